"""models/separator/network.py."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cascade.foreground import N_BINS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import network
from shapes import BandsShape, Shape
from spectra import loss_of, to_spectra

SMALL = [BandsShape(width=8, layers=1), BandsShape(width=8, layers=1, frames=2)]


def noise(*shape: int) -> torch.Tensor:
    """The same noise each time."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("shape", SMALL)
def test_a_network_gives_two_sources_of_any_length(shape: Shape) -> None:
    built = network.build(shape)
    for n_frames in (3, 40):
        assert built(noise(2, 2, N_BINS, n_frames)).shape == (2, 2, 2, N_BINS, n_frames)


@pytest.mark.parametrize("shape", SMALL)
def test_every_weight_learns(shape: Shape) -> None:
    built = network.build(shape)
    spectra = noise(1, 2, N_BINS, 10)
    loss_of(built(spectra), noise(1, 2, 2, N_BINS, 10)).backward()
    still = [name for name, parameter in built.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert still == []


@pytest.mark.parametrize("shape", SMALL)
def test_mixtures_of_a_batch_do_not_touch_each_other(shape: Shape) -> None:
    built, spectra = network.build(shape), noise(2, 2, N_BINS, 10)
    together = built(spectra)
    torch.testing.assert_close(together[1:], built(spectra[1:]), atol=1e-4, rtol=1e-4)


def test_a_mask_turns_and_scales() -> None:
    spectra = noise(1, 2, N_BINS, 4)
    masks = torch.zeros(1, 4, N_BINS, 4)
    masks[..., 0] = -0.5  # the first source: half of it, since it would be all of it
    masks[..., 3] = 1.0  # the second: turned by a quarter
    first, second = network.apply_masks(masks, spectra)[0]
    torch.testing.assert_close(first, 0.5 * spectra[0])
    torch.testing.assert_close(second, torch.stack([-spectra[0, 1], spectra[0, 0]]))


def test_bands_cover_all_bins_once() -> None:
    assert sum(network.WIDTHS) == N_BINS
    groups = network.group(network.WIDTHS)
    assert sum(count for _, count, _ in groups) == len(network.WIDTHS)
    assert [start for start, _, _ in groups] == [sum(count * bins for _, count, bins in groups[:place])
                                                 for place in range(len(groups))]  # fmt: skip


def test_a_band_hears_its_own_bins() -> None:
    """With no block between them, what goes into a band comes out of its masks alone."""
    built = network.BandSplit(BandsShape.model_construct(width=8, layers=0, frames=2))
    spectra = noise(1, 2, N_BINS, 5)
    louder = spectra.clone()
    louder[:, :, 100, 2] *= 3
    changed = (built(spectra) - built(louder)).abs().amax((0, 1, 2)).detach() > 0
    bins, frames = np.nonzero(changed.numpy())
    assert (bins.min(), bins.max()) == (96, 111)
    assert set(frames) == {2, 3}


@pytest.mark.parametrize("shape", SMALL)
def test_to_a_network_that_has_learnt_nothing_all_is_foreground(shape: Shape) -> None:
    built, mixtures = network.build(shape), noise(2, 4000)
    for parameter in built.parameters():
        torch.nn.init.zeros_(parameter)
    foreground, background = built.separate(mixtures).unbind(1)
    torch.testing.assert_close(foreground, mixtures, atol=1e-4, rtol=0)
    assert not background.any()
    torch.testing.assert_close(built.guess(mixtures)[:, 0], to_spectra(mixtures))
