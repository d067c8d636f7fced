"""models/separator/network.py."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cascade import foreground

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import network

SMALL = [network.Shape("whole", 8, 1), network.Shape("bands", 8, 1), network.Shape("bands", 8, 1, 2)]


def noise(*shape: int) -> torch.Tensor:
    """The same noise each time."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_spectra_give_the_samples_back() -> None:
    samples = noise(2, 3, 5000)
    assert network.to_spectra(samples).shape == (2, 3, 2, network.N_BINS, 20)
    torch.testing.assert_close(network.to_samples(network.to_spectra(samples), 5000), samples, atol=1e-5, rtol=0)


def test_spectra_are_those_of_the_stage() -> None:
    samples = noise(64_000)
    stages = foreground.to_spectra(samples.numpy())
    np.testing.assert_allclose(network.to_spectra(samples[None]).numpy(), stages, atol=1e-4)


@pytest.mark.parametrize("shape", SMALL)
def test_a_network_gives_two_sources_of_any_length(shape: network.Shape) -> None:
    built = network.build(shape)
    for n_frames in (3, 40):
        assert built(noise(2, 2, network.N_BINS, n_frames)).shape == (2, 2, 2, network.N_BINS, n_frames)


@pytest.mark.parametrize("shape", SMALL)
def test_every_weight_learns(shape: network.Shape) -> None:
    built = network.build(shape)
    spectra = noise(1, 2, network.N_BINS, 10)
    network.loss_of(built(spectra), noise(1, 2, 2, network.N_BINS, 10)).backward()
    still = [name for name, parameter in built.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert still == []


@pytest.mark.parametrize("shape", SMALL)
def test_mixtures_of_a_batch_do_not_touch_each_other(shape: network.Shape) -> None:
    built, spectra = network.build(shape), noise(2, 2, network.N_BINS, 10)
    together = built(spectra)
    torch.testing.assert_close(together[1:], built(spectra[1:]), atol=1e-4, rtol=1e-4)


def test_a_mask_turns_and_scales() -> None:
    spectra = noise(1, 2, network.N_BINS, 4)
    masks = torch.zeros(1, 4, network.N_BINS, 4)
    masks[..., 0] = -0.5  # the first source: half of it, since it would be all of it
    masks[..., 3] = 1.0  # the second: turned by a quarter
    first, second = network.apply_masks(masks, spectra)[0]
    torch.testing.assert_close(first, 0.5 * spectra[0])
    torch.testing.assert_close(second, torch.stack([-spectra[0, 1], spectra[0, 0]]))


def test_bands_cover_all_bins_once() -> None:
    assert sum(network.WIDTHS) == network.N_BINS
    groups = network.group(network.WIDTHS)
    assert sum(count for _, count, _ in groups) == len(network.WIDTHS)
    assert [start for start, _, _ in groups] == [sum(count * bins for _, count, bins in groups[:place])
                                                 for place in range(len(groups))]  # fmt: skip


def test_a_band_hears_its_own_bins() -> None:
    """With no block between them, what goes into a band comes out of its masks alone."""
    built = network.BandSplit(network.Shape("bands", 8, 0, 2))
    spectra = noise(1, 2, network.N_BINS, 5)
    louder = spectra.clone()
    louder[:, :, 100, 2] *= 3
    changed = (built(spectra) - built(louder)).abs().amax((0, 1, 2)).detach() > 0
    bins, frames = np.nonzero(changed.numpy())
    assert (bins.min(), bins.max()) == (96, 111)
    assert set(frames) == {2, 3}


def test_the_loss_is_least_for_the_truth() -> None:
    wanted = noise(2, 2, 2, network.N_BINS, 5)
    right = network.loss_of(wanted, wanted)
    assert right < network.loss_of(0.9 * wanted, wanted) < network.loss_of(0 * wanted, wanted)


def test_the_background_counts_double() -> None:
    wanted = noise(1, 2, 2, network.N_BINS, 5)
    wrong = [wanted.clone(), wanted.clone()]
    for source in range(2):
        wrong[source][:, source] = 0
    base = network.loss_of(wanted, wanted)
    losses = [network.loss_of(one, wanted, ratio=0.0) - network.loss_of(wanted, wanted, ratio=0.0) for one in wrong]
    assert base < 0
    assert float(losses[1] / losses[0]) == pytest.approx(2, rel=0.1)


def test_the_error_of_a_silent_source_is_not_counted_in_decibels() -> None:
    wanted = noise(1, 2, 2, network.N_BINS, 5)
    wanted[:, 1] = 0
    found = network.error_db(0.1 * torch.ones_like(wanted) + wanted, wanted)
    assert found[0, 1] == 0
    assert found[0, 0] == pytest.approx(-20, abs=1)


def test_silence_has_a_gradient() -> None:
    guess = torch.zeros(1, 2, 2, network.N_BINS, 5, requires_grad=True)
    network.loss_of(guess, noise(1, 2, 2, network.N_BINS, 5)).backward()
    assert torch.isfinite(guess.grad).all()


def test_si_sdr_does_not_mind_the_level() -> None:
    wanted, other = noise(2, 16000)
    guess = wanted + 0.1 * other
    assert float(network.si_sdr(guess, wanted)) == pytest.approx(20, abs=0.3)
    assert float(network.si_sdr(3 * guess, wanted)) == pytest.approx(float(network.si_sdr(guess, wanted)), abs=1e-3)
