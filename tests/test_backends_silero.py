"""The speech detector: what it hears as speech, and that each stream has its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cascade.audio import read_audio
from cascade.backends import silero
from cascade.backends.silero import CONTEXT, STATE, SileroDetector
from cascade.speech import FRAME, SPEECH_THRESHOLD
from cascade.types import Samples, seconds

TALK = read_audio(Path(__file__).parents[1] / "benchmarks" / "talk" / "talk.flac")


@pytest.fixture(scope="module")
def make() -> Callable[[], SileroDetector]:
    return silero.load()


def heard(detector: Callable[[Samples], float], audio: Samples) -> list[float]:
    return [detector(audio[start : start + FRAME]) for start in range(0, len(audio) - FRAME + 1, FRAME)]


def share(probabilities: list[float]) -> float:
    return float(np.mean(np.array(probabilities) > SPEECH_THRESHOLD))


def test_speech_is_speech_and_a_pause_is_none(make: Callable[[], SileroDetector]) -> None:
    """The reference has speech from 0.5 to 3.75 s, and nothing before."""
    probabilities = heard(make(), TALK[: seconds(3.7)])
    first = seconds(0.45) // FRAME
    assert all(0 <= probability <= 1 for probability in probabilities)
    assert share(probabilities[:first]) == 0
    assert share(probabilities[first + 4 :]) > 0.8


@pytest.mark.parametrize("level", [0.0, 0.001, 0.05])
def test_silence_and_noise_are_no_speech(make: Callable[[], SileroDetector], level: float) -> None:
    noise = np.random.default_rng(0).normal(0, level, seconds(4)).astype(np.float32)
    assert share(heard(make(), noise)) == 0


def test_streams_do_not_touch_each_other(make: Callable[[], SileroDetector]) -> None:
    """A state that leaked from one stream into the next would change what is heard there."""
    audio = TALK[seconds(0.4) : seconds(1.4)]
    alone = heard(make(), audio)
    first, second = make(), make()
    heard(first, TALK[seconds(4) : seconds(6)])
    assert heard(second, audio) == alone
    assert heard(first, audio) != alone


def test_each_frame_is_shown_with_the_end_of_the_one_before() -> None:
    """Without its context the network hears no speech at all, and does not complain."""
    shown: list[Samples] = []

    class Network:
        def run(self, _: None, inputs: dict[str, Samples]) -> list[Samples]:
            shown.append(inputs["input"])
            return [np.array([[0.5]], np.float32), inputs["h"] + 1, inputs["c"] + 2]

    audio = np.arange(2 * FRAME, dtype=np.float32)
    detector = SileroDetector(Network())
    assert heard(detector, audio) == [0.5, 0.5]
    assert [frame.shape for frame in shown] == [(1, CONTEXT + FRAME)] * 2
    assert not shown[0][0, :CONTEXT].any()
    np.testing.assert_array_equal(shown[1][0], audio[FRAME - CONTEXT :])


def test_the_state_goes_from_frame_to_frame() -> None:
    states: list[tuple[float, float]] = []

    class Network:
        def run(self, _: None, inputs: dict[str, Samples]) -> list[Samples]:
            assert inputs["h"].shape == inputs["c"].shape == STATE
            states.append((float(inputs["h"].max()), float(inputs["c"].max())))
            return [np.zeros((1, 1), np.float32), inputs["h"] + 1, inputs["c"] + 2]

    heard(SileroDetector(Network()), np.zeros(3 * FRAME, np.float32))
    assert states == [(0, 0), (1, 2), (2, 4)]


def test_the_network_lies_in_an_installed_package() -> None:
    assert silero.model_file().is_file()
