"""models/separator/listening.py."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.types import Samples, seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import listening
from spectra import to_spectra


def noise(length: int, seed: int = 0) -> Samples:
    """Noise of level 0.1."""
    return (0.1 * np.random.default_rng(seed).standard_normal(length)).astype(np.float32)


def in_parts(*parts: float) -> listening.Network:
    """A network that gives each source a part of the mixture."""
    return lambda spectra: np.stack([np.float32(part) * spectra for part in parts], 1)


def test_spectra_are_those_of_the_training() -> None:
    samples = noise(64_000)
    own, theirs = listening.to_spectra(samples), to_spectra(torch.from_numpy(samples)[None]).numpy()
    np.testing.assert_allclose(own, theirs, atol=1e-5)


@given(length=st.integers(1, 2000), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_spectra_give_the_samples_back(length: int, seed: int) -> None:
    samples = noise(length * listening.FRAME_HOP // 4, seed)
    back = listening.to_samples(listening.to_spectra(samples), len(samples))[0]
    inside = len(samples) // listening.FRAME_HOP * listening.FRAME_HOP
    np.testing.assert_allclose(back[:inside], samples[:inside], atol=1e-5)


@pytest.mark.parametrize("length_s", [0.001, 0.1, 3.9, 4.0, 13.3])
def test_windows_join_without_a_seam(length_s: float) -> None:
    samples = noise(seconds(length_s))
    foreground, background = listening.separate(samples, in_parts(0.75, 0.25))
    np.testing.assert_allclose(foreground, 0.75 * samples, atol=1e-5)
    np.testing.assert_allclose(background, 0.25 * samples, atol=1e-5)


def test_what_is_neither_goes_to_the_foreground_by_its_share() -> None:
    samples = noise(seconds(5))
    foreground, background = listening.separate(samples, in_parts(0.5, 0.2))
    np.testing.assert_allclose(foreground + background, samples, atol=1e-5)
    np.testing.assert_allclose(background, 0.2 * samples, atol=1e-5)
    plain = listening.separate(samples, in_parts(0.5, 0.2), share=0.0)[0]
    np.testing.assert_allclose(plain, 0.5 * samples, atol=1e-5)


def test_nothing_is_heard_beyond_the_lookahead() -> None:
    """What comes more than 2.25 s later doesn't change what comes out."""
    heard = []

    def network(spectra: listening.Spectra) -> listening.Spectra:
        heard.append(spectra)
        return np.stack([spectra, 0 * spectra + spectra.mean()], 1)

    one, cut = noise(seconds(12)), seconds(8)
    other = np.concatenate([one[:cut], noise(len(one) - cut, 1)])
    first, second = (listening.separate(samples, network)[1] for samples in (one, other))
    same = cut - listening.LOOKAHEAD - listening.FADE
    np.testing.assert_array_equal(first[:same], second[:same])
    assert not np.array_equal(first, second)


def test_a_network_hears_speech_at_the_level_of_the_loudest_so_far() -> None:
    levels: list[float] = []

    def network(spectra: listening.Spectra) -> listening.Spectra:
        levels.append(float(np.sqrt(np.mean(np.square(spectra)))))
        return np.stack([spectra, 0 * spectra], 1)

    listening.separate(np.concatenate([noise(seconds(6)), 0.1 * noise(seconds(30))]), network)
    full = levels[1]
    assert levels[-3] == pytest.approx(0.1 * full, rel=0.15)
    assert max(levels) == pytest.approx(full, rel=0.1)


def test_silence_stays_silence() -> None:
    sources = listening.separate(np.zeros(seconds(5), np.float32), in_parts(0.5, 0.5))
    assert sources.shape == (2, seconds(5))
    assert not sources.any()
