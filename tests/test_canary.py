"""The fakes of tests/canary.py do what test_privacy.py needs of them; else its silence would prove nothing."""

from __future__ import annotations

import itertools
import socket
import tempfile

import numpy as np
import pytest

from cascade.types import (
    Admission,
    AdmitReason,
    Mode,
    Question,
    Samples,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
    seconds,
)
from tests.canary import (
    BYSTANDERS_ONLY,
    MAIN,
    PITCHES,
    SCENE,
    WORDS,
    PitchDiarization,
    PitchEncoder,
    Quoting,
    decode,
    detect,
    separate,
    separate_nothing,
    spoken,
    watched,
)


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


def words_of(samples: Samples) -> set[str]:
    return {word for word, _, _ in decode(samples)}


def test_the_separator_gives_the_main_speaker_apart_from_all_others() -> None:
    mine, theirs = separate(SCENE.audio[None])[0]
    assert words_of(mine) - {"um"} == set(SCENE.main_words)
    assert words_of(theirs) - {"um"} == SCENE.canaries
    assert (mine + theirs == SCENE.audio).all()


def test_the_bad_separator_gives_everyone_in_one_source() -> None:
    louder, softer = separate_nothing(SCENE.audio[None])[0]
    assert words_of(louder) >= SCENE.canaries | set(SCENE.main_words)
    assert (louder + softer == SCENE.audio).all()


def test_the_diarization_knows_who_speaks_where() -> None:
    heard = PitchDiarization()(SCENE.audio)
    names = dict(zip(PITCHES, ("speaker_1", "speaker_2", "speaker_3"), strict=True))
    for said in SCENE.said:
        inside = [stretch for stretch in heard.turns if stretch.span.overlaps(said.span)]
        near = [s for s in inside if len(s.span & said.span) > seconds(0.1)]
        assert {stretch.speaker for stretch in near} == {names[said.speaker]}
        assert len(near) == len(said.words)
    voices = heard.embeddings
    assert set(voices) == set(names.values())
    assert all(voices[name] @ voices[other] == float(name == other) for name in voices for other in voices)
    pairs = itertools.pairwise(stretch.span for stretch in heard.turns)
    assert all(one.end <= other.start for one, other in pairs)


def test_the_diarization_hears_two_at_once() -> None:
    """Turns are the louder one's; speech is both's."""
    main, neighbour = np.pad(spoken(MAIN, "train"), (0, 2000)), np.pad(spoken("neighbour", "tumor"), (2000, 0))
    heard = PitchDiarization()((main + neighbour).astype(np.float32))
    assert [stretch.speaker for stretch in heard.turns] == ["speaker_1", "speaker_2"]
    mine, theirs = (stretch.span for stretch in heard.speech)
    assert mine.overlaps(theirs)


def test_the_chat_model_quotes_all_that_it_is_shown() -> None:
    leave = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.9, 0.5)
    said = Utterance(Span(0, 1), "main", "train boston", (), leave)
    transcript = Transcript((said, Withheld(Span(1, 2), "hidden", WithholdReason.BYSTANDER)))
    answer = Quoting().answer(Question("Where to?", ("By train", "Unclear"), prompt=""), transcript)
    assert all(text in answer.text for text in ("train boston", "Where to?", "A. By train"))
    assert "hidden" not in answer.text
    told = Quoting().answer(Question("Where to?", prompt="Listen: {transcript}|{question}"), transcript)
    assert told.text == "Listen: train boston|Where to?"


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


def test_one_server_on_this_machine_may_be_reached_and_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as allowed, socket.create_server(("127.0.0.1", 0)) as other:
        port = allowed.getsockname()[1]
        with watched(port) as doings:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            assert (doings.served, doings.sockets) == (1, [])
            with pytest.raises(ConnectionError):
                socket.create_connection(other.getsockname(), timeout=1)
            with pytest.raises(ConnectionError):
                socket.create_connection(("example.org", port), timeout=1)
    assert (doings.served, len(doings.sockets)) == (1, 2)


def test_a_written_file_is_noted() -> None:
    with watched() as doings, tempfile.TemporaryFile() as file:
        file.write(b"x")
    assert doings.writes
