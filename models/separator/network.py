"""The band-split network, of spectra, and any kind of network by its shape.

BandSplit hears frames of 32 ms every 16 ms, at 16 kHz, and gives for each source complex masks, what it is in each
frame and frequency. Frequencies are in bands; small LSTMs that all share go over time and across bands
(arXiv 2209.15174).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, TypeAlias

import torch
from sepformer import SepFormer
from shapes import BandsShape, SepFormerShape, Shape
from spectra import compress, to_samples, to_spectra
from torch import Tensor, nn

from cascade.foreground import N_BINS, SOURCES

BEFORE: Final = (1.0, 0.0, 0.0, 0.0)
"""Masks of foreground and background, real and imaginary part, of a network that has learnt nothing."""

WIDTHS: Final = (4,) * 8 + (8,) * 6 + (16,) * 5 + (32, 32, 33)
"""Bins in each band, from low to high: 125 Hz where voices have their harmonics, 1 kHz at the top."""


def features(spectra: Tensor) -> Tensor:
    """What a network hears of spectra (n, 2, N_BINS, n_frames): (n, n_frames, N_BINS, 3)."""
    parts, magnitude = compress(spectra)
    return torch.cat([parts, magnitude.unsqueeze(1)], 1).permute(0, 3, 2, 1)


def apply_masks(masks: Tensor, spectra: Tensor) -> Tensor:
    """Masks (n, n_frames, N_BINS, SOURCES * 2) on spectra -> (n, SOURCES, 2, N_BINS, n_frames).

    A mask is a complex factor, beside what is known before: the foreground is much like the mixture.
    """
    n, n_frames, n_bins, _ = masks.shape
    real, imaginary = (masks + masks.new_tensor(BEFORE)).reshape(n, n_frames, n_bins, SOURCES, 2).permute(4, 0, 3, 2, 1)
    own_real, own_imaginary = spectra[:, :1], spectra[:, 1:]
    return torch.stack([real * own_real - imaginary * own_imaginary, real * own_imaginary + imaginary * own_real], 2)


class PerBand(nn.Module):  # type: ignore[misc, unused-ignore]
    """A linear layer of its own for each of some bands of one width."""

    def __init__(self, n_bands: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = n_in**-0.5
        self.weight = nn.Parameter(torch.empty(n_bands, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(n_bands, 1, n_out))

    def forward(self, values: Tensor) -> Tensor:
        """(n_bands, n, n_in) -> (n_bands, n, n_out)."""
        return torch.matmul(values, self.weight) + self.bias


class Block(nn.Module):  # type: ignore[misc, unused-ignore]
    """One LSTM over time that all bands share, and one across the bands that all frames share."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.time_norm, self.band_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_time = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.over_bands = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.from_time, self.from_bands = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

    def forward(self, values: Tensor) -> Tensor:
        """(n, n_bands, n_frames, width) -> the same."""
        n, n_bands, n_frames, width = values.shape
        heard, _ = self.over_time(self.time_norm(values).reshape(n * n_bands, n_frames, width))
        values = values + self.from_time(heard).reshape(n, n_bands, n_frames, width)
        across = self.band_norm(values).transpose(1, 2).reshape(n * n_frames, n_bands, width)
        heard, _ = self.over_bands(across)
        return values + self.from_bands(heard).reshape(n, n_frames, n_bands, width).transpose(1, 2)


class BandSplit(nn.Module):  # type: ignore[misc, unused-ignore]
    """Frequencies in bands, each a row of features; blocks of LSTMs over time and across bands."""

    def __init__(self, shape: BandsShape) -> None:
        super().__init__()
        self.groups, self.frames = group(WIDTHS), shape.frames
        width, outputs = shape.width, 2 * SOURCES * shape.frames
        self.into = nn.ModuleList(PerBand(count, 3 * shape.frames * bins, width) for _, count, bins in self.groups)
        self.blocks = nn.ModuleList(Block(width) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.ModuleList(PerBand(count, width, 2 * width) for _, count, _ in self.groups)
        self.out = nn.ModuleList(PerBand(count, 2 * width, 2 * outputs * bins) for _, count, bins in self.groups)

    def forward(self, spectra: Tensor) -> Tensor:
        """(n, 2, N_BINS, n_frames) -> (n, SOURCES, 2, N_BINS, n_frames)."""
        heard = self._join(features(spectra))
        n, n_steps = heard.shape[:2]
        bands = [self._enter(heard, place) for place in range(len(self.groups))]
        values = torch.cat(bands, 0).reshape(len(WIDTHS), n, n_steps, -1).transpose(0, 1)
        for block in self.blocks:
            values = block(values)
        leaving = self.norm(values).transpose(0, 1).reshape(len(WIDTHS), n * n_steps, -1)
        first, masks = 0, []
        for place, (_, count, _) in enumerate(self.groups):
            masks.append(self._leave(leaving[first : first + count], place, n, n_steps))
            first += count
        return apply_masks(torch.cat(masks, 2)[:, : spectra.shape[-1]], spectra)

    def guess(self, mixtures: Tensor) -> Tensor:
        """Mixtures (n, n_samples) -> spectra of their sources (n, SOURCES, 2, N_BINS, n_frames)."""
        return self(to_spectra(mixtures))

    def separate(self, mixtures: Tensor) -> Tensor:
        """Mixtures (n, n_samples) -> their sources (n, SOURCES, n_samples)."""
        return to_samples(self.guess(mixtures), mixtures.shape[-1])

    def _join(self, heard: Tensor) -> Tensor:
        """(n, n_frames, N_BINS, 3) -> as many frames as are heard as one, (n, n_steps, frames, N_BINS, 3)."""
        n, n_frames = heard.shape[:2]
        n_steps = (n_frames + self.frames - 1) // self.frames
        longer = nn.functional.pad(heard, (0, 0, 0, 0, 0, self.frames - 1))
        return longer[:, : n_steps * self.frames].reshape(n, n_steps, self.frames, N_BINS, 3)

    def _enter(self, heard: Tensor, place: int) -> Tensor:
        """(n, n_steps, frames, N_BINS, 3) -> a group's bands (n_bands, n * n_steps, width)."""
        start, count, bins = self.groups[place]
        n, n_steps = heard.shape[:2]
        part = heard[:, :, :, start : start + count * bins].reshape(n * n_steps, self.frames, count, 3 * bins)
        values: Tensor = self.into[place](part.permute(2, 0, 1, 3).reshape(count, n * n_steps, -1))
        return values

    def _leave(self, values: Tensor, place: int, n: int, n_steps: int) -> Tensor:
        """A group's bands (n_bands, n * n_steps, width) -> their masks (n, n_frames, bins, SOURCES * 2)."""
        _, count, bins = self.groups[place]
        wide = self.out[place](torch.tanh(self.hidden[place](values)))
        masks = nn.functional.glu(wide, -1).reshape(count, n * n_steps, self.frames, bins, 2 * SOURCES)
        return masks.permute(1, 2, 0, 3, 4).reshape(n, n_steps * self.frames, count * bins, 2 * SOURCES)


def group(widths: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Bands of one width side by side: (first bin, how many bands, bins in each)."""
    borders = [0, *(place for place, (one, two) in enumerate(pairwise(widths), 1) if one != two), len(widths)]
    return [(sum(widths[:first]), last - first, widths[first]) for first, last in pairwise(borders)]


# --- any kind -----------------------------------------------------------------------------------------

Network: TypeAlias = BandSplit | SepFormer


def build(shape: Shape) -> Network:
    """Make a network, with random weights.

    Raises:
        ModuleNotFoundError: speechbrain, which a SepFormer is made of, isn't installed.
    """
    match shape:
        case BandsShape():
            return BandSplit(shape)
        case SepFormerShape():
            return SepFormer(shape)


def count_parameters(network: nn.Module) -> int:
    """How many numbers are learnt."""
    return sum(parameter.numel() for parameter in network.parameters())


def state_of(network: nn.Module) -> dict[str, Any]:
    """The weights, apart from the network."""
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
