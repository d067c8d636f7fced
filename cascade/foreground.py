"""AudioChunk -> SeparatedChunk: who is near the microphone, and who is further away.

A small network (models/separator) tells foreground from background by what distance does to a voice. So the order of
the two is fixed, and nobody's voice must be known. The stream is cut into windows at absolute multiples of the hop, and
what comes out is joined. Each window passes through

    mixture -> level -> spectra -> network -> samples -> level -> foreground + background = mixture -> crossfade

and settles one hop, with what is heard before and after it:

    |<------ WINDOW - LOOKAHEAD ------>|<--- HOP --->|<- FADE ->|    |
    window                             what it settles          |    LOOKAHEAD after the hop's start
                                                                the next window takes over
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from cascade.audio import SampleBuffer
from cascade.errors import BackendError
from cascade.separation import active_level_db
from cascade.speech import FRAME, SpeechDetector, SpeechFrames
from cascade.types import SAMPLE_RATE, AudioChunk, Samples, SeparatedChunk, Span, seconds

log = logging.getLogger(__name__)

SOURCES: Final = 2
FOREGROUND, BACKGROUND = range(SOURCES)
"""Their places among the sources."""

WINDOW: Final = seconds(4.0)
"""What the network hears at a time; it was trained on as much."""

HOP: Final = seconds(1.5)
LOOKAHEAD: Final = seconds(2.0)
FADE: Final = seconds(0.25)
"""Samples in which one window takes over from the one before it."""

FFT: Final = 512
STEP: Final = FFT // 2
N_BINS: Final = FFT // 2 + 1
"""The network's spectra: 32 ms every 16 ms."""

TAPER: Final = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)).astype(np.float32)
"""The root of a Hann window, (FFT,): squared, those of neighbours add up to one."""

LEVEL_MEMORY: Final = 0.99
"""What is left of the loudest window's power after each window with speech: 3 dB in some 100 s of speech."""

BANG: Final = 10 ** (10 / 10)
"""What is louder than this (10 dB) over the median of a window's frames of speech counts as so loud and no louder: one
slammed door must not make all else quiet, or the main speaker would be taken for somebody far away."""

SPEECH_PEAKS: Final = 10 ** (3 / 10)
"""The most by which a window's level may be over that of its frames of speech. In eight scenes and six recordings it
was 3 dB at most in all but two of the windows that were the loudest so far, and with a slammed door 8 and 35 dB."""

QUIET: Final = 1e-4
"""Level of the mixture (-80 dB of full scale) below which nothing is made louder."""

LOUDER: Final = 10 ** (1 / 10)
"""The most that a foreground may have of the mixture's power (+1 dB). To take a part of the mixture away makes the rest
softer; what makes it louder is something else, such as the background with the wrong sign or many times as loud. In
30 s of each of four scenes no 0.3 s of the foreground were louder than the mixture.
"""

Spectra: TypeAlias = npt.NDArray[np.float32]
"""Real and imaginary parts (1, 2, N_BINS, n_frames); of sources (1, SOURCES, 2, N_BINS, n_frames)."""

Network: TypeAlias = Callable[[Spectra], Spectra]
"""The spectra of a mixture -> those of foreground and background, which need not add up to it."""


class Foreground:
    """Foreground and background; a Stage[AudioChunk, SeparatedChunk] that gives a chunk for each hop.

    The network hears a window only where there is speech in it, at the level of the loudest speech so far; elsewhere
    all is foreground. The two add up to the mixture: what the network gives to neither, which is noise, is foreground,
    where it is softest beside what is heard. Where the network gives what is no number or no part of the mixture, or
    would be shown what is no number, both are silent: nobody knows who speaks there, and a bystander must not be taken
    for who is near.
    """

    lookahead = LOOKAHEAD

    def __init__(self, network: Network, detect: SpeechDetector) -> None:
        """Make the stage for one stream, around a network without a state, and a speech detector of its own."""
        self._network = network
        self._buffer = SampleBuffer()
        self._speech = SpeechFrames(detect, self._buffer)
        self._before: Samples | None = None  # what the last window says of the first FADE samples of the next hop
        self._next = 0  # index of the first hop that is not settled
        self._power = QUIET**2
        self._failed = False

    def push(self, chunk: AudioChunk, /) -> Sequence[SeparatedChunk]:
        """Take a chunk; return the hops whose windows have been heard."""
        self._buffer.append(chunk.mixture, chunk.span)
        self._speech.hear()
        return list(self._hops(self._buffer.end - LOOKAHEAD + 1))

    def flush(self) -> Sequence[SeparatedChunk]:
        """Return the rest: the last windows are padded with silence, and what comes of that is cut off."""
        self._speech.hear_rest()
        return list(self._hops(self._buffer.end))

    def _hops(self, end: int) -> Iterator[SeparatedChunk]:
        """Yield the hops that begin before a position."""
        while (start := self._next * HOP) < end:
            span = Span(start, min(start + HOP, self._buffer.end))
            sources = self._joined(self._window(start))
            yield SeparatedChunk(span, self._buffer.take(span), sources[:, : len(span)])
            self._next += 1
            self._buffer.drop_before(start + HOP - (WINDOW - LOOKAHEAD))

    def _joined(self, sources: Samples) -> Samples:
        """Return the hop (SOURCES, HOP) that a window's sources (SOURCES, WINDOW) settle; keep what goes over."""
        mine = sources[:, WINDOW - LOOKAHEAD :]
        hop = mine[:, :HOP].copy()
        if self._before is not None:
            rise = (np.arange(FADE, dtype=np.float32) + np.float32(0.5)) / np.float32(FADE)
            hop[:, :FADE] = self._before + rise * (hop[:, :FADE] - self._before)
        self._before = mine[:, HOP : HOP + FADE].copy()
        return hop

    def _window(self, hop: int) -> Samples:
        """Return the sources (SOURCES, WINDOW) of the window around the hop that starts there."""
        start, end = hop - (WINDOW - LOOKAHEAD), hop + LOOKAHEAD
        heard = Span(max(0, start), min(end, self._buffer.end))
        mixture = np.pad(self._buffer.view(heard), (heard.start - start, end - heard.end))
        # A frame that goes on behind the window has been heard already only if a long chunk came.
        speech = self._speech.frames_in(Span(heard.start, end - end % FRAME))
        if not np.isfinite(mixture).all():
            return np.zeros((SOURCES, WINDOW), np.float32)
        if not speech or not mixture.any():
            return np.stack([mixture, np.zeros_like(mixture)])
        return self._separated(mixture, [mixture[frame.start - start : frame.end - start] for frame in speech])

    def _separated(self, mixture: Samples, speech: Sequence[Samples]) -> Samples:
        """Return the sources (SOURCES, WINDOW) of a window (WINDOW,), given the frames of it that hold speech."""
        self._power = max(self._power * LEVEL_MEMORY, speech_power(mixture, speech))
        background = separate(mixture, self._network, level=self._power**0.5)[BACKGROUND]
        foreground = mixture - background
        # A comparison with what is no number is false.
        if not power(foreground) <= LOUDER * power(mixture):
            self._report()
            return np.zeros((SOURCES, WINDOW), np.float32)
        return np.stack([foreground, background])

    def _report(self) -> None:
        if not self._failed:
            self._failed = True
            log.warning(
                "what the separation network gave, first around %.1f s, is no part of what is heard: foreground and "
                "background are silent there",
                self._next * HOP / SAMPLE_RATE,
            )


def speech_power(mixture: Samples, speech: Sequence[Samples]) -> float:
    """Return the power of the speech in a window (n_samples,), as a share of full scale; no bang beside it counts.

    speech are its frames that hold speech.
    """
    active = 10 ** (active_level_db(mixture) / 10)
    powers = np.array([power(frame) for frame in speech])
    heard = powers[powers > 0]
    if not heard.size:
        return active
    return min(active, SPEECH_PEAKS * float(np.minimum(heard, BANG * np.median(heard)).mean()))


# --- one window -------------------------------------------------------------------------------------------------------


def separate(mixture: Samples, network: Network, *, level: float = 1.0) -> Samples:
    """Return the sources (SOURCES, n_samples) of a mixture (n_samples,) as they come from a network.

    A source is NaN where the network gave what is no number of it.

    Args:
        mixture: a window.
        network: what separates it.
        level: what the network is to take for the level of speech close by.

    Raises:
        BackendError: the network gives something else than two sources.
    """
    spectra = to_spectra(mixture / np.float32(level))
    sources = network(spectra)
    expected = (1, SOURCES, *spectra.shape[1:])
    if sources.shape != expected:
        raise BackendError(
            f"the separation network gave spectra of shape {sources.shape}, expected {expected}; take the one that "
            "comes with cascade, or one that models/separator/export.py wrote"
        )
    sound = np.isfinite(sources[0]).all(axis=(1, 2, 3))
    with np.errstate(over="ignore"):  # what is too large for a sample becomes infinite
        samples = to_samples(np.where(sound[:, None, None, None], sources[0], np.float32(0)), len(mixture))
        samples[~sound] = np.nan
        return samples * np.float32(level)


def power(samples: Samples) -> float:
    """Return the mean power of samples (n_samples,), as a share of full scale; not finite where they are not."""
    return float(np.mean(np.square(samples, dtype=np.float64)))


def to_spectra(samples: Samples) -> Spectra:
    """Return the spectra (1, 2, N_BINS, n_frames) of samples (n_samples,): frames around each STEP, zeros outside."""
    padded = np.pad(samples, (STEP, STEP + -len(samples) % STEP))
    spectra = np.fft.rfft(sliding_window_view(padded, FFT)[::STEP] * TAPER).T
    return np.stack([spectra.real, spectra.imag])[None].astype(np.float32)


def to_samples(spectra: Spectra, n_samples: int) -> Samples:
    """Return the samples (..., n_samples) of spectra (..., 2, N_BINS, n_frames), as to_spectra makes them."""
    parts = np.moveaxis(spectra, -1, -2)
    frames = np.fft.irfft(parts[..., 0, :, :] + 1j * parts[..., 1, :, :], FFT) * TAPER
    halves = frames[..., :-1, STEP:] + frames[..., 1:, :STEP]
    samples: Samples = halves.reshape(*halves.shape[:-2], -1)[..., :n_samples].astype(np.float32)
    return samples
