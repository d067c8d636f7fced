from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.questions import Answerer
from cascade.config import CascadeConfig, load_config
from cascade.errors import AudioError, BackendError, CascadeError, ConfigError, QuestionError
from cascade.pipeline import Cascade, Distribution, Listening, load_stages
from cascade.settings import StreamSettings
from cascade.stage import Chain, Stage
from cascade.types import (
    Admission,
    AdmitReason,
    AdmittedTurn,
    Answer,
    AudioChunk,
    Mode,
    Outcome,
    Question,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
    Word,
    seconds,
)

SECOND = seconds(1)
LEAVE = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.5)


class Clock:
    """A clock that stands still unless somebody works."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, duration_s: float) -> None:
        self.now_s += duration_s


def chunk(start_s: float, end_s: float) -> AudioChunk:
    span = Span(seconds(start_s), seconds(end_s))
    return AudioChunk(span, np.zeros(len(span), np.float32))


def chunks(n_seconds: int) -> Iterator[AudioChunk]:
    return (chunk(second, second + 1) for second in range(n_seconds))


def admitted(start_s: float, end_s: float) -> AdmittedTurn:
    span = Span(seconds(start_s), seconds(end_s))
    return AdmittedTurn(span, "main", np.zeros(len(span), np.float32), LEAVE)


def withheld(start_s: float, end_s: float, reason: WithholdReason = WithholdReason.BYSTANDER) -> Withheld:
    return Withheld(Span(seconds(start_s), seconds(end_s)), "speaker_2", reason, 0.25)


def utterance(turn: AdmittedTurn, text: str = "a word") -> Utterance:
    return Utterance(turn.span, turn.speaker, text, (), turn.admission)


@dataclass
class Scripted:
    """A stage that gives what it is told to once that much audio was heard, and works for a while on each push."""

    script: Sequence[tuple[float, AdmittedTurn | Withheld]]
    work: Callable[[], None] = lambda: None
    rest: Sequence[AdmittedTurn | Withheld] = ()
    lookahead: int | None = 0
    _given: int = 0

    def push(self, item: AudioChunk, /) -> Sequence[AdmittedTurn | Withheld]:
        self.work()
        due = [what for at_s, what in self.script if at_s <= item.span.end_s]
        new, self._given = due[self._given :], len(due)
        return new

    def flush(self) -> Sequence[AdmittedTurn | Withheld]:
        return self.rest


@dataclass
class Writer:
    """A recogniser's stage that calls `work` for each turn, and passes on what is withheld."""

    work: Callable[[AdmittedTurn], None] = lambda turn: None
    lookahead: int | None = 0
    seen: list[object] = field(default_factory=list)

    def push(self, item: AdmittedTurn | Withheld, /) -> Sequence[Utterance | Withheld]:
        self.seen.append(item)
        if isinstance(item, Withheld):
            return [item]
        self.work(item)
        return [utterance(item)]

    def flush(self) -> Sequence[Utterance | Withheld]:
        return []


def numbers(distribution: Distribution | None) -> tuple[float, float, float]:
    assert distribution is not None
    return distribution.count, distribution.mean_s, distribution.p95_s


def listening(*stages: tuple[str, Stage[Any, Any]], clock: Callable[[], float] | None = None) -> Listening:
    return Listening(stages, clock or Clock())


# --- the virtual clock ------------------------------------------------------------------------------------------------


def test_delay_and_latency_of_a_case_worked_out_by_hand() -> None:
    clock = Clock()
    gate = Scripted([(2.0, admitted(0.2, 1.5)), (4.0, withheld(2.0, 3.25))], work=lambda: clock.work(0.1))
    stream = listening(("gate", gate), ("asr", Writer(lambda _: clock.work(0.5))), clock=clock)
    for each in chunks(4):
        stream.push(each)
    stream.flush()
    performance = stream.performance
    assert performance.audio_s == 4.0
    assert performance.stages_s == pytest.approx({"gate": 0.4, "asr": 0.5})
    assert performance.rtf == pytest.approx(0.9 / 4)
    # The turn ended at 1.5 s and was let through when 2.0 s were heard; the other 3.25 and 4.0.
    assert numbers(performance.delay) == pytest.approx((2, 0.625, 0.7375))
    # Second 2 arrived at 2.0 s and was worked on for 0.6 s: the text was there at 2.6 s.
    assert numbers(performance.latency) == pytest.approx((1, 1.1, 1.1))


def test_a_chunk_waits_while_the_one_before_it_is_worked_on() -> None:
    clock = Clock()
    gate = Scripted([(1.0, admitted(0, 1)), (2.0, admitted(1, 2)), (9.0, admitted(8, 9))])
    work = iter([2.5, 0.5, 0.5])
    stream = listening(("gate", gate), ("asr", Writer(lambda _: clock.work(next(work)))), clock=clock)
    latencies = []
    for each in chunks(9):
        before = stream.performance.latency
        stream.push(each)
        after = stream.performance.latency
        if after is not None and (before is None or after.count > before.count):
            latencies.append(after.mean_s * after.count - (before.mean_s * before.count if before else 0))
    # 1 s: done at 3.5. 2 s: it waits until then, done at 4.0. By 9 s the work has caught up: done at 9.5.
    assert latencies == pytest.approx([2.5, 2.0, 0.5])


def test_what_the_flush_brings_is_measured_too() -> None:
    clock = Clock()
    gate = Scripted([], rest=[admitted(0.5, 2.75), withheld(2.8, 3.0)])
    stream = listening(("gate", gate), ("asr", Writer(lambda _: clock.work(1.0))), clock=clock)
    for each in chunks(3):
        stream.push(each)
    stream.flush()
    assert numbers(stream.performance.delay) == pytest.approx((2, 0.125, 0.2375))
    assert numbers(stream.performance.latency) == pytest.approx((1, 1.25, 1.25))


def test_time_spent_before_a_failure_is_counted() -> None:
    clock = Clock()

    def fail() -> None:
        clock.work(0.25)
        raise RuntimeError

    stream = listening(("gate", Scripted([], work=fail)), clock=clock)
    with pytest.raises(BackendError):
        stream.push(chunk(0, 1))
    assert stream.performance.stages_s == {"gate": 0.25}


def test_an_empty_recording_has_no_numbers() -> None:
    stream = listening(("gate", Scripted([])), ("asr", Writer()))
    assert stream.flush() == []
    performance = stream.performance
    assert (performance.audio_s, performance.rtf, performance.delay, performance.latency) == (0.0, None, None, None)
    assert stream.transcript == Transcript()


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=50))
def test_a_distribution_lies_within_its_values(values: list[float]) -> None:
    found = Distribution.of(values)
    assert found is not None
    assert found.count == len(values)
    assert min(values) - 1e-6 <= found.mean_s <= max(values) + 1e-6
    assert min(values) - 1e-6 <= found.p95_s <= max(values) + 1e-6


def test_stages_of_one_name_are_all_kept_and_their_times_added() -> None:
    clock = Clock()

    @dataclass
    class Passing:
        lookahead: int | None = 3

        def push(self, item: Any, /) -> Sequence[Any]:
            clock.work(0.25)
            return [item]

        def flush(self) -> Sequence[Any]:
            return []

    stream = listening(("same", Passing()), ("same", Passing()), ("gate", Scripted([])), clock=clock)
    stream.push(chunk(0, 1))
    assert stream.performance.stages_s == {"same": 0.5, "gate": 0.0}


# --- the gate's decisions ---------------------------------------------------------------------------------------------


def test_each_decision_is_noted_once() -> None:
    turns: list[AdmittedTurn | Withheld] = [
        admitted(0, 1),
        withheld(1, 2),
        withheld(2, 3, WithholdReason.TOO_SHORT),
        admitted(3, 4),
    ]
    stream = listening(("gate", Scripted([(4.0, turn) for turn in turns])), ("asr", Writer()), ("more", Writer2()))
    for each in chunks(5):
        stream.push(each)
    stream.flush()
    assert [decision.span for decision in stream.decisions] == [turn.span for turn in turns]
    assert [decision.admitted for decision in stream.decisions] == [True, False, False, True]
    assert [decision.reason for decision in stream.decisions] == [
        "main_speaker",
        "bystander",
        "too_short",
        "main_speaker",
    ]
    assert [decision.speaker for decision in stream.decisions] == ["main", "speaker_2", "speaker_2", "main"]
    first, second, *_ = stream.decisions
    assert (first.evidence, first.threshold) == (0.8, 0.5)
    assert second.evidence == 0.25
    assert math.isnan(second.threshold)


def test_two_turns_of_equal_span_are_two_decisions() -> None:
    """Two separated sources may hold turns that begin and end together."""
    gate = Scripted([(1.0, withheld(0, 1)), (1.0, withheld(0, 1)), (1.0, admitted(0, 1))])
    stream = listening(("gate", gate), ("asr", Writer()))
    stream.push(chunk(0, 1))
    assert [decision.admitted for decision in stream.decisions] == [False, False, True]
    assert stream.performance.delay is not None
    assert stream.performance.delay.count == 3


def test_a_turn_without_words_is_still_a_decision() -> None:
    silent = listening(("gate", Scripted([(1.0, admitted(0, 1))])), ("asr", Mute()))
    silent.push(chunk(0, 1))
    assert [decision.admitted for decision in silent.decisions] == [True]
    assert silent.transcript.items == ()
    assert silent.performance.latency is None


class Mute(Writer):
    def push(self, item: AdmittedTurn | Withheld, /) -> Sequence[Utterance | Withheld]:
        return []


class Writer2:
    """A stage behind the recogniser: what is withheld passes by a third time, late."""

    lookahead: int | None = 0

    def __init__(self) -> None:
        self._late: list[Any] = []

    def push(self, item: Utterance | Withheld, /) -> Sequence[Utterance | Withheld]:
        self._late.append(item)
        return []

    def flush(self) -> Sequence[Utterance | Withheld]:
        return self._late


def test_a_transcript_has_each_word_of_turns_that_lie_over_each_other_once() -> None:
    """What came out keeps what it said, and what was withheld stays."""

    class Both(Writer):
        def push(self, item: AdmittedTurn | Withheld, /) -> Sequence[Utterance | Withheld]:
            if isinstance(item, Withheld):
                return [item]
            words = tuple(Word(Span(at, at + 4000), text, 0.9) for at, text in ((8000, "a"), (16_000, item.speaker)))
            return [replace(utterance(item, f"a {item.speaker}"), words=words)]

    general = replace(LEAVE, mode=Mode.GENERAL, reason=AdmitReason.GENERAL_MODE)
    far = replace(admitted(0, 2), speaker="background", admission=general)
    stream = listening(("gate", Scripted([(2.0, far), (2.0, admitted(0, 2)), (2.0, withheld(1, 2))])), ("asr", Both()))
    came = [item for each in chunks(2) for item in stream.push(each)]
    assert [item.text for item in came if isinstance(item, Utterance)] == ["a background", "a main"]
    assert sorted(item.text for item in stream.transcript.utterances) == ["a main", "background"]
    assert len(stream.transcript.withheld) == 1


def test_the_transcript_is_in_time_order() -> None:
    gate = Scripted([(2.0, admitted(1, 2)), (2.0, withheld(0, 1))])
    stream = listening(("gate", gate), ("asr", Writer()))
    stream.push(chunk(0, 2))
    assert [item.span.start_s for item in stream.transcript.items] == [0, 1]


# --- misuse and failure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start_s", "end_s"), [(1.5, 2), (0.5, 1.5), (0, 1)])
def test_a_gap_or_an_overlap_between_chunks_is_refused(start_s: float, end_s: float) -> None:
    stream = listening(("gate", Scripted([])))
    stream.push(chunk(0, 1))
    with pytest.raises(AudioError, match="expected one from sample 16000, got "):
        stream.push(chunk(start_s, end_s))
    stream.push(chunk(1, 2))  # it can go on


def test_a_stream_that_is_over_takes_nothing_more() -> None:
    stream = listening(("gate", Scripted([], rest=[withheld(0, 1)])))
    stream.push(chunk(0, 1))
    assert len(stream.flush()) == 1
    assert stream.flush() == []
    with pytest.raises(AudioError, match="the stream is over; open a new one"):
        stream.push(chunk(1, 2))
    assert len(stream.transcript.items) == 1


def test_ctrl_c_leaves_what_is_finished() -> None:
    """Also of turns that come out on one push, which is so when the gate has held them until it was sure."""

    def work(turn: AdmittedTurn) -> None:
        if turn.span.start_s == 2:
            raise KeyboardInterrupt

    gate = Scripted([(5.0, admitted(0, 1)), (5.0, withheld(1, 2)), (5.0, admitted(2, 3)), (5.0, admitted(3, 4))])
    cascade = Cascade([("gate", lambda _: gate), ("asr", lambda _: Writer(work))])
    with pytest.raises(KeyboardInterrupt):
        list(cascade.listen(chunks(9)))
    assert [item.span.start_s for item in cascade.transcript.items] == [0, 1]
    assert cascade.transcript.text == "a word"
    assert len(cascade.listening.decisions) == 4
    assert cascade.listening.performance.audio_s == 5.0


def test_a_consumer_that_stops_early_keeps_what_it_heard() -> None:
    gate = Scripted([(1.0, admitted(0, 1)), (3.0, admitted(2, 3))])
    cascade = Cascade([("gate", lambda _: gate), ("asr", lambda _: Writer())])
    for _ in cascade.listen(chunks(9)):
        break
    assert [item.span.start_s for item in cascade.transcript.items] == [0]


def test_a_failing_stage_is_named_but_not_quoted() -> None:
    def fail(turn: AdmittedTurn) -> None:
        raise RuntimeError("heard: a secret")

    cascade = Cascade([("gate", lambda _: Scripted([(1.0, admitted(0, 1))])), ("asr", lambda _: Writer(fail))])
    with pytest.raises(BackendError) as caught:
        list(cascade.listen(chunks(2)))
    assert "the stage 'asr' failed with RuntimeError at test_pipeline.py:" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert "heard: a secret" not in "".join(traceback.TracebackException.from_exception(caught.value).format())
    assert caught.value.__context__ is None


def test_an_error_meant_for_the_user_passes_unchanged() -> None:
    own = ConfigError("do this")

    def fail() -> None:
        raise own

    stream = listening(("gate", Scripted([], work=fail)))
    with pytest.raises(CascadeError) as caught:
        stream.push(chunk(0, 1))
    assert caught.value is own


# --- Cascade ----------------------------------------------------------------------------------------------------------


class Echo:
    """An answerer that says how much it was shown."""

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        return Answer(f"{question.text} {len(transcript.items)}", Outcome.ANSWERED)


def cascade_of(answerer: Answerer | None = None, mode: Mode = Mode.SELECTIVE) -> Cascade:
    def gate(given: Mode) -> Stage[Any, Any]:
        return Scripted([(1.0, admitted(0, 1)), (2.0, withheld(1, 2))], lookahead=seconds(0.5))

    return Cascade([("gate", gate), ("asr", lambda _: Writer(lookahead=7))], answerer, mode=mode)


def test_it_yields_what_the_transcript_holds() -> None:
    cascade = cascade_of()
    heard = list(cascade.listen(chunks(3)))
    assert tuple(heard) == cascade.transcript.items
    assert [type(item) for item in heard] == [Utterance, Withheld]


def test_each_item_comes_out_as_soon_as_it_is_certain() -> None:
    taken: list[float] = []

    def counted() -> Iterator[AudioChunk]:
        for each in chunks(3):
            taken.append(each.span.end_s)
            yield each

    came = [(len(taken), type(item)) for item in cascade_of().listen(counted())]
    assert came == [(1, Utterance), (2, Withheld)]


def test_each_recording_has_stages_of_its_own() -> None:
    cascade = cascade_of()
    first = list(cascade.listen(chunks(3)))
    one = cascade.listening
    assert list(cascade.listen(chunks(3))) == first
    assert cascade.listening is not one
    assert len(one.decisions) == len(cascade.listening.decisions) == 2


def test_lookahead_is_the_sum_unless_a_stage_needs_the_whole_recording() -> None:
    assert cascade_of().lookahead == seconds(0.5) + 7
    whole = Cascade([("gate", lambda _: Scripted([], lookahead=None)), ("asr", lambda _: Writer(lookahead=7))])
    assert whole.lookahead is None


def test_it_answers_from_the_recording_heard_last() -> None:
    cascade = cascade_of(Echo())
    assert cascade.ask("How many?").text == "How many? 0"
    list(cascade.listen(chunks(1)))
    assert cascade.ask("How many?").text == "How many? 1"
    list(cascade.listen(chunks(3)))
    assert cascade.ask(Question("How many?")).text == "How many? 2"


def test_a_question_without_an_answerer_says_what_to_add() -> None:
    with pytest.raises(ConfigError, match="add 'use: extractive' at its end"):
        cascade_of().ask("Who?")


def test_an_empty_question_is_refused() -> None:
    with pytest.raises(QuestionError, match="the question is empty"):
        cascade_of(Echo()).ask("  ")


# --- stages from a configuration --------------------------------------------------------------------------------------


def test_stages_are_loaded_in_order_each_with_those_before_it() -> None:
    config = load_config("ondevice")
    loaded: list[tuple[str, int]] = []

    def load(settings: StreamSettings, before: Callable[[], Chain]) -> Callable[[Mode], Stage[Any, Any]]:
        loaded.append((settings.use, before().lookahead or 0))
        assert before() is not before()
        return lambda _: Scripted([], lookahead=1)

    stages = load_stages(config, Mode.GENERAL, load)
    assert [name for name, _ in stages] == [settings.use for settings in config.stream]
    assert loaded == [(settings.use, index) for index, settings in enumerate(config.stream)]


@pytest.mark.parametrize("mode", list(Mode))
def test_the_stages_before_are_made_for_the_mode(mode: Mode) -> None:
    config = CascadeConfig.model_validate({"stages": [{"use": "mixture"}, {"use": "everyone"}]})
    asked: list[Mode] = []

    def load(settings: StreamSettings, before: Callable[[], Chain]) -> Callable[[Mode], Stage[Any, Any]]:
        before()
        return lambda given: asked.append(given) or Scripted([])  # type: ignore[func-returns-value]

    load_stages(config, mode, load)
    assert asked == [mode]
