"""The fakes of tests/canary.py do what test_privacy.py needs of them; else its silence would prove nothing."""

from __future__ import annotations

import socket
import tempfile

import numpy as np
import pytest

from cascade.types import seconds
from tests.canary import BYSTANDERS_ONLY, MAIN, PITCHES, SCENE, WORDS, PitchEncoder, decode, detect, spoken, watched


def words_in(start_s: float, end_s: float) -> list[str]:
    return [word for word, _, _ in decode(SCENE.audio[seconds(start_s) : seconds(end_s)])]


def test_whoever_hears_the_samples_hears_the_words() -> None:
    expected = [word for said in SCENE.said for word in said.words]
    assert words_in(0, 99) == expected


@pytest.mark.parametrize("speaker", PITCHES)
@pytest.mark.parametrize("word", WORDS)
def test_half_of_a_word_is_enough(speaker: str, word: str) -> None:
    tone = np.pad(spoken(speaker, word), 800)
    assert [found for found, _, _ in decode(tone)] == [word]
    assert [found for found, _, _ in decode(tone[: len(tone) // 2 + 400])] == [word]


def test_silence_and_noise_hold_no_words() -> None:
    assert words_in(2.95, 3.55) == []
    assert detect(SCENE.audio[:512]) == 0
    assert np.isnan(PitchEncoder()(SCENE.audio[:3200])).all()


def test_whoever_hears_the_pitch_knows_the_speaker() -> None:
    encode = PitchEncoder()
    voices = {
        speaker: np.stack(
            [encode(np.pad(spoken(speaker, word), 800)[at : at + 3200]) for word in WORDS for at in (0, 2400)]
        )
        for speaker in PITCHES
    }
    for speaker, embeddings in voices.items():
        for other, others in voices.items():
            assert (embeddings @ others.T == float(speaker == other)).all()


def test_traces_are_found_in_every_form() -> None:
    start = seconds(3.65)
    piece = SCENE.audio[start : start + 600]
    for leak in (
        piece.tobytes(),
        piece.astype(np.float64).tobytes(),
        np.round(piece * 32767).astype(np.int16).tobytes(),
    ):
        assert SCENE.leaks(b"before" + leak + b"after")
    assert SCENE.leaks(f"samples={piece!r}") == ["598 stretches of audio"]
    long = SCENE.audio[start : start + 4000]
    assert SCENE.leaks(f"samples={long!r}")  # numpy shows but three at each end
    assert SCENE.leaks(f"samples={list(piece[:3])}") == ["1 stretches of audio"]
    assert SCENE.leaks("she said Biopsy") == ["biopsy"]


def test_the_main_speakers_audio_is_no_leak() -> None:
    assert SCENE.leaks(SCENE.audio[: seconds(3.4)].tobytes()) == []
    assert SCENE.leaks(str(list(SCENE.audio[seconds(0.5) : seconds(0.6)]))) == []
    assert SCENE.leaks(" ".join(SCENE.main_words)) == []
    assert not SCENE.canaries & set(SCENE.main_words)
    assert BYSTANDERS_ONLY.main_words == []
    assert MAIN not in {said.speaker for said in BYSTANDERS_ONLY.said}


def test_a_socket_is_noted_and_refused() -> None:
    with watched() as doings, pytest.raises(ConnectionError):
        socket.create_connection(("localhost", 9), timeout=1)
    assert doings.sockets


def test_a_written_file_is_noted() -> None:
    with watched() as doings, tempfile.TemporaryFile() as file:
        file.write(b"x")
    assert doings.writes
