"""Hear a whole recording with a trained separator, as a stream would: in windows, with a bounded lookahead.

    samples -> windows at absolute multiples of the hop -> level -> spectra -> network -> samples -> crossfade

The sources of a window add up to its mixture: what the network gave to neither, which is noise, goes to the foreground,
where it is softest beside what is heard; or, asked so, to neither, which is how it is trained. Needs numpy alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

BENCHMARKS: Final = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its programs find each other there, and this one finds them

from mixing import active_power  # noqa: E402

from cascade.types import Samples, seconds  # noqa: E402

FRAME: Final = 512
FRAME_HOP: Final = 256
N_BINS: Final = FRAME // 2 + 1

WINDOW: Final = seconds(4.0)
HOP: Final = seconds(1.5)
LOOKAHEAD: Final = seconds(2.0)  # of the first sample that a window decides on
FADE: Final = seconds(0.25)  # from one window to the next

LEVEL_MEMORY: Final = 0.99  # what is left of the loudest window's power after each window: 3 dB in a minute and a half
QUIET: Final = 1e-4  # level below which nothing is made louder

Spectra: TypeAlias = npt.NDArray[np.float32]
"""Real and imaginary parts (n, 2, N_BINS, n_frames); of sources (n, n_sources, 2, N_BINS, n_frames)."""
Network: TypeAlias = Callable[[Spectra], Spectra]
"""Spectra of mixtures -> those of their sources, foreground and background."""

ANALYSIS: Final = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)).astype(np.float32)


def to_spectra(samples: Samples) -> Spectra:
    """(n_samples,) -> (1, 2, N_BINS, n_frames); frames are centred, and zeros lie around the samples."""
    padded = np.pad(samples, FRAME // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::FRAME_HOP] * ANALYSIS
    spectra = np.fft.rfft(frames).T
    return np.stack([spectra.real, spectra.imag])[np.newaxis].astype(np.float32)


def to_samples(spectra: Spectra, length: int) -> Samples:
    """(..., 2, N_BINS, n_frames) -> (..., length)."""
    parts = np.moveaxis(spectra, -1, -2)
    frames = np.fft.irfft(parts[..., 0, :, :] + 1j * parts[..., 1, :, :], FRAME) * ANALYSIS
    n_frames = frames.shape[-2]
    samples = np.zeros((*frames.shape[:-2], (n_frames - 1) * FRAME_HOP + FRAME))
    weight = np.zeros(samples.shape[-1])
    for number in range(n_frames):
        place = slice(number * FRAME_HOP, number * FRAME_HOP + FRAME)
        samples[..., place] += frames[..., number, :]
        weight[place] += ANALYSIS**2
    inner = slice(FRAME // 2, FRAME // 2 + length)
    return np.asarray(samples[..., inner] / np.maximum(weight[inner], 1e-8), dtype=np.float32)


def separate(samples: Samples, network: Network, *, share: float = 1.0) -> Samples:
    """Hear a recording (n_samples,): foreground and background (2, n_samples).

    Args:
        samples: The recording.
        network: What was trained.
        share: Of what is neither, that goes to the foreground; with 1, the sources add up to the recording.
    """
    sources = np.zeros((2, len(samples) + 2 * FADE), dtype=np.float32)
    for start, window in windows(samples, network, share):
        first, last = start + WINDOW - LOOKAHEAD - FADE, start + WINDOW - LOOKAHEAD + HOP
        ramp = np.ones(last - first, dtype=np.float32)
        ramp[:FADE] = (np.arange(FADE) + 0.5) / FADE
        ramp[-FADE:] = 1 - ramp[:FADE]
        kept = window[:, first - start : last - start] * ramp
        begin, end = max(first, -FADE), min(last, len(samples) + FADE)
        if end > begin:
            sources[:, begin + FADE : end + FADE] += kept[:, begin - first : end - first]
    return sources[:, FADE:-FADE]


def windows(samples: Samples, network: Network, share: float) -> Iterator[tuple[int, Samples]]:
    """Yield where each window starts, and its sources (2, WINDOW)."""
    power = QUIET**2
    for start in range(-(WINDOW - LOOKAHEAD), len(samples), HOP):
        begin, end = max(start, 0), min(start + WINDOW, len(samples))
        mixture = np.zeros(WINDOW, dtype=np.float32)
        mixture[begin - start : end - start] = samples[begin:end]
        power = max(power * LEVEL_MEMORY, active_power(mixture) if mixture.any() else 0.0)
        level = np.float32(np.sqrt(power))
        found = to_samples(network(to_spectra(mixture / level)), WINDOW)[0] * level
        found[0] += np.float32(share) * (mixture - found.sum(axis=0))
        yield start, found
