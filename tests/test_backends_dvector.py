"""The speaker encoder: unit vectors that are alike for one voice, and NaN where there is nothing to tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cascade.audio import read_audio
from cascade.backends import dvector
from cascade.backends.dvector import DVectorEncoder, mel_filters
from cascade.errors import ModelError
from cascade.types import SAMPLE_RATE, Samples, Vector, seconds

TALK = Path(__file__).parents[1] / "benchmarks" / "talk"
ENROLMENT = read_audio(TALK / "enrolment.flac")
MIXTURE = read_audio(TALK / "talk.flac")


@pytest.fixture(scope="module")
def encode() -> DVectorEncoder:
    return dvector.load()


def windows(encode: DVectorEncoder, audio: Samples) -> Vector:
    """Return unit vectors (n_windows, dim) of windows side by side."""
    return np.stack(
        [encode(audio[at : at + encode.window]) for at in range(0, len(audio) - encode.window, encode.window)]
    )


def mean(vectors: Vector) -> Vector:
    total: Vector = vectors.sum(axis=0)
    return total / np.float32(np.linalg.norm(total))


def test_an_embedding_is_a_unit_vector(encode: DVectorEncoder) -> None:
    embedding = encode(ENROLMENT[seconds(1) : seconds(1) + encode.window])
    assert embedding.shape == (256,)
    assert embedding.dtype == np.float32
    assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-5)


def test_a_window_is_a_little_less_than_a_second(encode: DVectorEncoder) -> None:
    assert 0.7 < encode.window / SAMPLE_RATE < 0.9


def test_one_voice_is_more_alike_than_two(encode: DVectorEncoder) -> None:
    """The main speaker dry and in the room, and the bystander alone; the times are the reference's."""
    dry = mean(windows(encode, ENROLMENT[seconds(0.5) : seconds(6)]))
    near = mean(windows(encode, MIXTURE[seconds(4.4) : seconds(7.8)]))
    far = mean(windows(encode, MIXTURE[seconds(12.8) : seconds(15.4)]))
    assert dry @ near > 0.7
    assert max(dry @ far, near @ far) < 0.55


def test_the_same_window_gives_the_same_embedding_whatever_came_before(encode: DVectorEncoder) -> None:
    window = ENROLMENT[seconds(1) : seconds(1) + encode.window]
    first = encode(window)
    encode(MIXTURE[seconds(13) : seconds(13) + encode.window])
    np.testing.assert_array_equal(encode(window), first)


def test_loudness_hardly_changes_the_voice(encode: DVectorEncoder) -> None:
    window = ENROLMENT[seconds(1) : seconds(1) + encode.window]
    assert encode(window) @ encode(window * np.float32(0.3)) > 0.8


def test_silence_has_no_voice(encode: DVectorEncoder) -> None:
    assert np.isnan(encode(np.zeros(encode.window, np.float32))).all()


def test_mel_filters_cover_the_spectrum() -> None:
    filters = mel_filters(40, 512)
    assert filters.shape == (40, 257)
    assert (filters >= 0).all()
    assert (np.diff(filters.argmax(axis=1)) > 0).all()


class Network:
    """A network that carries other hyperparameters, and gives what it is told to."""

    def __init__(self, meta: dict[str, str]) -> None:
        self.custom_metadata_map = meta

    def get_modelmeta(self) -> Network:
        return self

    def run(self, _: None, inputs: dict[str, Any]) -> list[Any]:
        return [np.zeros((1, 4), np.float32)]


RECIPE = {"window": 10, "hop_length": 160, "n_fft": 512, "win_length": 400, "n_mels": 40}


@pytest.mark.parametrize("meta", [{}, {"voicefilter_lite_config": "{"}], ids=["none", "not JSON"])
def test_another_kind_of_network_is_refused(meta: dict[str, str]) -> None:
    with pytest.raises(ModelError, match="no hyperparameters in it; run: python -m cascade models verify"):
        DVectorEncoder(Network(meta))


def test_an_embedding_without_a_direction_tells_nothing() -> None:
    encode = DVectorEncoder(Network({"voicefilter_lite_config": json.dumps(RECIPE)}))
    assert encode.window == 9 * 160 + 512
    assert np.isnan(encode(np.ones(encode.window, np.float32))).all()


def test_the_network_lies_in_an_installed_package() -> None:
    assert dvector.model_file().is_file()


def test_samples_that_are_no_numbers_tell_nothing() -> None:
    encode = dvector.load()
    samples = np.sin(np.arange(encode.window, dtype=np.float32) / 20)
    assert np.isfinite(encode(samples)).all()
    samples[1000] = np.nan
    assert np.isnan(encode(samples)).all()
