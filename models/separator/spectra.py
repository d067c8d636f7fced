"""Spectra of samples, and how wrong guesses of sources are: what all kinds of network share.

The spectra are those of the stage (cascade/foreground.py), in torch. Loss and SI-SDR are of
foreground and background, in this order.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from cascade.foreground import FFT, STEP

COMPRESSION: Final = 0.3
"""Exponent of magnitudes, in what the networks hear and in their loss: so soft sounds count, too."""

FLOOR: Final = 1e-4
"""Least power that compression tells from silence; a sine of level 1 has some 1e4."""

TINY: Final = 1e-8


def analysis_window(device: torch.device | str = "cpu") -> Tensor:
    """The root of a Hann window, (FFT,), which analyses and puts together."""
    return torch.hann_window(FFT, device=device).sqrt()


def to_spectra(samples: Tensor) -> Tensor:
    """(..., n_samples) -> real and imaginary parts (..., 2, N_BINS, n_frames)."""
    flat = samples.reshape(-1, samples.shape[-1])
    spectra = torch.stft(
        flat, FFT, STEP, window=analysis_window(samples.device), center=True, pad_mode="constant", return_complex=True
    )
    return torch.stack([spectra.real, spectra.imag], 1).reshape(*samples.shape[:-1], 2, *spectra.shape[-2:])


def to_samples(spectra: Tensor, length: int) -> Tensor:
    """(..., 2, N_BINS, n_frames) -> (..., length)."""
    flat = spectra.reshape(-1, *spectra.shape[-3:])
    samples = torch.istft(
        torch.complex(flat[:, 0], flat[:, 1]), FFT, STEP, window=analysis_window(spectra.device), length=length
    )
    return samples.reshape(*spectra.shape[:-3], length)


def compress(spectra: Tensor) -> tuple[Tensor, Tensor]:
    """(..., 2, n_bins, n_frames) -> the same with compressed magnitudes, and these (..., n_bins, n_frames)."""
    power = spectra.square().sum(-3) + FLOOR
    return spectra * power.pow((COMPRESSION - 1) / 2).unsqueeze(-3), power.pow(COMPRESSION / 2)


def loss_of(guess: Tensor, wanted: Tensor, weights: tuple[float, ...] = (1.0, 2.0), ratio: float = 0.02) -> Tensor:
    """How wrong sources (n, SOURCES, 2, N_BINS, n_frames) are: compressed spectra, and the ratio of error to source.

    Args:
        guess: What the network gave.
        wanted: What it should have given.
        weights: What each source counts for; the background is the softer and harder one.
        ratio: What a decibel of a source's error counts for.
    """
    guess_parts, guess_magnitude = compress(guess)
    wanted_parts, wanted_magnitude = compress(wanted)
    complex_error = (guess_parts - wanted_parts).square().sum(2).mean((-1, -2))
    magnitude_error = (guess_magnitude - wanted_magnitude).square().mean((-1, -2))
    counted = torch.tensor(weights, device=guess.device)
    spectral = ((0.5 * complex_error + 0.5 * magnitude_error) * counted).sum(1).mean()
    return spectral + ratio * (error_db(guess, wanted) * counted).sum(1).mean()


def error_db(guess: Tensor, wanted: Tensor) -> Tensor:
    """Error over source in dB, (n, SOURCES), no better than -30; 0 where the source is silent."""
    power = wanted.square().sum((-1, -2, -3))
    error = (guess - wanted).square().sum((-1, -2, -3))
    active = power > 1e-3 * power.sum(1, keepdim=True) + TINY
    return torch.where(
        active, 10 * torch.log10((error + 1e-3 * power + TINY) / (power + TINY)), torch.zeros_like(power)
    )


def si_sdr(guess: Tensor, wanted: Tensor) -> Tensor:
    """Scale-invariant signal-to-distortion ratio in dB, (...,) of (..., n_samples)."""
    target = wanted * (guess * wanted).sum(-1, keepdim=True) / (wanted.square().sum(-1, keepdim=True) + TINY)
    return 10 * torch.log10((target.square().sum(-1) + TINY) / ((guess - target).square().sum(-1) + TINY))
