"""The data check themselves, and what has not passed the gate shows nothing."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.types import (
    SAMPLE_RATE,
    Admission,
    AdmitReason,
    AdmittedTurn,
    AudioChunk,
    Mode,
    Question,
    SeparatedChunk,
    Span,
    SpeakerTurn,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
    concatenate,
    covered,
    seconds,
    united,
)

SPANS = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: Span(min(pair), max(pair)))
AUDIO = np.full(4, 0.123, np.float32)
EMBEDDING = np.array([0.6, 0.8], np.float32)
UNGATED = [
    AudioChunk(Span(0, 4), AUDIO),
    SeparatedChunk(Span(0, 4), AUDIO, AUDIO[None]),
    SpeakerTurn(Span(0, 4), "speaker_1", AUDIO, EMBEDDING, -20.0),
    SpeakerTurn(
        Span(0, 4), "speaker_1", AUDIO, EMBEDDING, -20.0, embeddings=EMBEDDING[None], before=AUDIO[:3], after=AUDIO[:2]
    ),
]
ADMISSION = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.7, 0.5)


# --- spans ------------------------------------------------------------------------------------------------------------


@given(SPANS, SPANS)
def test_spans_are_sets_of_samples(a: Span, b: Span) -> None:
    common = set(range(a.start, a.end)) & set(range(b.start, b.end))
    assert set(range((a & b).start, (a & b).end)) == common
    assert a.overlaps(b) == b.overlaps(a) == bool(common)
    assert len(a) == a.end - a.start
    assert bool(a) == (len(a) > 0)


@given(st.lists(SPANS, max_size=6), st.integers(1, 5))
def test_united_spans_are_the_same_time_in_order_and_apart(spans: list[Span], gap: int) -> None:
    found = united(spans, gap)
    assert all(later.start - earlier.end >= gap for earlier, later in itertools.pairwise(found))
    given_time = {sample for span in spans for sample in range(span.start, span.end)}
    time = {sample for span in found for sample in range(span.start, span.end)}
    assert given_time <= time
    assert all(any(abs(sample - other) < gap for other in given_time) for sample in time)
    assert covered(spans) == len(given_time)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_an_impossible_span_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="0 <= start <= end"):
        Span(start, end)


def test_a_span_tells_its_seconds() -> None:
    span = Span(seconds(1.5), seconds(4))
    assert (span.start_s, span.end_s, span.duration_s) == (1.5, 4.0, 2.5)
    assert str(span) == "[1.500 s, 4.000 s)"


@given(st.integers(0, 3 * 3600 * SAMPLE_RATE))
def test_seconds_and_samples_agree(samples: int) -> None:
    assert seconds(Span(0, samples).duration_s) == samples


# --- what has not passed the gate -------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", UNGATED, ids=lambda item: type(item).__name__)
def test_ungated_speech_is_not_shown(item: Any) -> None:
    for text in (repr(item), str(item), f"{item}", repr([item])):
        assert type(item).__name__ in text
        assert "0.12" not in text
        assert "0.6" not in text


@pytest.mark.parametrize(
    "leave",
    [copy.copy, copy.deepcopy, *(lambda item, n=n: pickle.dumps(item, n) for n in range(pickle.HIGHEST_PROTOCOL + 1))],
)
@pytest.mark.parametrize("item", UNGATED, ids=lambda item: type(item).__name__)
def test_ungated_speech_is_neither_pickled_nor_copied(item: Any, leave: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="not passed the gate"):
        leave(item)


@pytest.mark.parametrize("item", UNGATED, ids=lambda item: type(item).__name__)
def test_ungated_speech_is_no_json(item: Any) -> None:
    with pytest.raises(TypeError):
        json.dumps(item)


def test_an_admitted_turn_does_not_print_its_samples() -> None:
    assert (
        repr(AdmittedTurn(Span(0, 4), "main", AUDIO, ADMISSION))
        == "<AdmittedTurn [0.000 s, 0.000 s) main, main_speaker>"
    )


@pytest.mark.parametrize("item", UNGATED, ids=lambda item: type(item).__name__)
def test_data_do_not_change(item: Any) -> None:
    with pytest.raises(AttributeError):
        item.span = Span(0, 1)


def around(**parts: Any) -> SpeakerTurn:
    """Return a turn with what is known of its inside and its surroundings."""
    return SpeakerTurn(Span(0, 4), "s", AUDIO, EMBEDDING, 0.0, **parts)


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: AudioChunk(Span(0, 3), AUDIO), "4 samples, but its span"),
        (lambda: AudioChunk(Span(0, 4), AUDIO.astype(np.float64)), "mixture must be float32, got float64"),
        (lambda: AudioChunk(Span(0, 4), AUDIO[None]), r"1 dimension.*\(1, 4\)"),
        (lambda: SeparatedChunk(Span(0, 4), AUDIO, AUDIO), "sources must have 2 dimension"),
        (lambda: SeparatedChunk(Span(0, 4), AUDIO, AUDIO[None, :3]), "sources has 3 samples"),
        (lambda: SpeakerTurn(Span(0, 5), "s", AUDIO, EMBEDDING, 0.0), "samples has 4 samples"),
        (lambda: SpeakerTurn(Span(0, 4), "s", AUDIO, EMBEDDING[None], 0.0), r"embedding must be \(dim,\)"),
        (lambda: around(embeddings=EMBEDDING), r"embeddings must be \(n_windows, dim\)"),
        (lambda: around(embeddings=np.zeros((3, 5), np.float32)), r"with the same dim, got \(3, 5\)"),
        (lambda: around(source=AUDIO[None]), r"source must have 1 dimension"),
        (lambda: around(source=AUDIO[:3]), "source must be empty or 4 samples long, got 3"),
        (lambda: around(before=AUDIO.astype(np.float64)), "before must be float32, got float64"),
        (lambda: around(after=AUDIO[None]), r"after must have 1 dimension.*\(1, 4\)"),
        (lambda: AdmittedTurn(Span(0, 5), "main", AUDIO, ADMISSION), "samples has 4 samples"),
    ],
)
def test_arrays_fit_their_spans(make: Callable[[], Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make()


@pytest.mark.parametrize(
    "overlaps",
    [(Span(1, 1),), (Span(3, 5),), (Span(2, 3), Span(1, 2)), (Span(0, 2), Span(1, 3)), (Span(0, 1), Span(9, 10))],
)
def test_overlaps_are_in_order_apart_and_within_the_turn(overlaps: tuple[Span, ...]) -> None:
    with pytest.raises(ValueError, match="overlaps must be in order, apart, not empty, and within"):
        around(overlaps=overlaps)


def test_a_turn_is_overlapped_where_there_are_overlaps() -> None:
    assert not around().overlapped
    assert around(overlaps=(Span(0, 1), Span(1, 4)), source=AUDIO).overlapped


def test_a_turn_may_tell_nothing_of_its_inside_and_its_surroundings() -> None:
    turn = around()
    assert (len(turn.source), len(turn.embeddings), len(turn.before), len(turn.after)) == (0, 0, 0, 0)
    assert around(embeddings=np.zeros((0, 7), np.float32)).embeddings.shape == (0, 7)
    first, second = around(), around()
    assert first.before is not second.before


def test_pieces_are_joined_along_time() -> None:
    assert concatenate([AUDIO, AUDIO]).shape == (8,)
    assert concatenate([AUDIO[None], AUDIO[None]]).shape == (1, 8)
    assert concatenate([]).dtype == np.float32
    assert concatenate([]).shape == (0,)


# --- transcripts and questions ----------------------------------------------------------------------------------------


def test_a_transcript_is_in_time_order() -> None:
    def said(start: int, text: str) -> Utterance:
        return Utterance(Span(start, start + 5), "main", text, (), ADMISSION)

    withheld = Withheld(Span(7, 9), "speaker_2", WithholdReason.BYSTANDER)
    transcript = Transcript.of([said(10, "later"), withheld, said(0, "first")])
    assert [item.span.start for item in transcript.items] == [0, 7, 10]
    assert transcript.text == "first\nlater"
    assert transcript.withheld == (withheld,)
    assert [utterance.text for utterance in transcript.utterances] == ["first", "later"]


def test_a_transcript_is_of_everyone_where_nobody_was_withheld() -> None:
    general = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, 0.2, 0.5)
    main = Utterance(Span(0, 5), "main", "hello", (), replace(ADMISSION, mode=Mode.GENERAL))
    other = Utterance(Span(5, 9), "speaker_2", "hi", (), general)
    assert Transcript.of([main, other]).is_of_everyone
    assert not Transcript.of([main, replace(other, admission=ADMISSION)]).is_of_everyone
    assert not Transcript.of([main, Withheld(Span(5, 9), "speaker_2", WithholdReason.BYSTANDER)]).is_of_everyone


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Question("  "), "needs a text"),
        (lambda: Question("Who?", ("A", "B"), dont_know=2), "one of 2 options, got 2"),
        (lambda: Question("Who?", dont_know=0), "one of 0 options"),
    ],
)
def test_a_question_must_be_askable(make: Callable[[], Question], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make()
