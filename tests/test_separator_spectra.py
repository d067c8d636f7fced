"""models/separator/spectra.py."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cascade import foreground
from cascade.foreground import N_BINS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import spectra


def noise(*shape: int) -> torch.Tensor:
    """The same noise each time."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_spectra_give_the_samples_back() -> None:
    samples = noise(2, 3, 5000)
    assert spectra.to_spectra(samples).shape == (2, 3, 2, N_BINS, 20)
    torch.testing.assert_close(spectra.to_samples(spectra.to_spectra(samples), 5000), samples, atol=1e-5, rtol=0)


def test_spectra_are_those_of_the_stage() -> None:
    samples = noise(64_000)
    stages = foreground.to_spectra(samples.numpy())
    np.testing.assert_allclose(spectra.to_spectra(samples[None]).numpy(), stages, atol=1e-4)


def test_the_loss_is_least_for_the_truth() -> None:
    wanted = noise(2, 2, 2, N_BINS, 5)
    right = spectra.loss_of(wanted, wanted)
    assert right < spectra.loss_of(0.9 * wanted, wanted) < spectra.loss_of(0 * wanted, wanted)


def test_the_background_counts_double() -> None:
    wanted = noise(1, 2, 2, N_BINS, 5)
    wrong = [wanted.clone(), wanted.clone()]
    for source in range(2):
        wrong[source][:, source] = 0
    base = spectra.loss_of(wanted, wanted)
    losses = [spectra.loss_of(one, wanted, ratio=0.0) - spectra.loss_of(wanted, wanted, ratio=0.0) for one in wrong]
    assert base < 0
    assert float(losses[1] / losses[0]) == pytest.approx(2, rel=0.1)


def test_the_error_of_a_silent_source_is_not_counted_in_decibels() -> None:
    wanted = noise(1, 2, 2, N_BINS, 5)
    wanted[:, 1] = 0
    found = spectra.error_db(0.1 * torch.ones_like(wanted) + wanted, wanted)
    assert found[0, 1] == 0
    assert found[0, 0] == pytest.approx(-20, abs=1)


def test_silence_has_a_gradient() -> None:
    guess = torch.zeros(1, 2, 2, N_BINS, 5, requires_grad=True)
    spectra.loss_of(guess, noise(1, 2, 2, N_BINS, 5)).backward()
    assert torch.isfinite(guess.grad).all()


def test_si_sdr_does_not_mind_the_level() -> None:
    wanted, other = noise(2, 16000)
    guess = wanted + 0.1 * other
    assert float(spectra.si_sdr(guess, wanted)) == pytest.approx(20, abs=0.3)
    assert float(spectra.si_sdr(3 * guess, wanted)) == pytest.approx(float(spectra.si_sdr(guess, wanted)), abs=1e-3)
