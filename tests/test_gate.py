"""The only door: who passes, who does not and why; and how the main speaker is found.

A voice is a direction: `like(0.7)` is an embedding with similarity 0.7 to the main speaker's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.audio import read_audio
from cascade.backends import dvector, silero
from cascade.diarization import UNKNOWN, ClusteringSettings, Diarizer
from cascade.errors import EnrolmentError
from cascade.gate import (
    FAR_DB,
    MAIN,
    Everyone,
    GateSettings,
    MainSpeaker,
    OverlapPolicy,
    Profile,
    enrol,
)
from cascade.scoring.leakage import false_accept, false_withhold
from cascade.types import (
    AdmitReason,
    AdmittedTurn,
    Mode,
    Samples,
    SeparatedChunk,
    Span,
    SpeakerTurn,
    Vector,
    Withheld,
    WithholdReason,
    seconds,
)

TALK = Path(__file__).parents[1] / "benchmarks" / "talk"
LOUD, SOFT = -20.0, -32.0
"""Levels of a near and a far speaker, in dB relative to full scale."""

Decided = AdmittedTurn | Withheld


def like(similarity: float, direction: int = 1) -> Vector:
    """Return an embedding (4,) with this similarity to the main speaker's; the rest points in another direction."""
    vector = np.zeros(4, np.float32)
    vector[0], vector[direction] = similarity, math.sqrt(1 - similarity**2)
    return vector


ME, OTHER = like(1.0), like(0.2)


def turn(
    start_s: float,
    voice: Vector = ME,
    *,
    lasts_s: float = 2.0,
    level_db: float = LOUD,
    speaker: str = "speaker_1",
    overlapped: bool = False,
) -> SpeakerTurn:
    span = Span(seconds(start_s), seconds(start_s + lasts_s))
    return SpeakerTurn(span, speaker, np.zeros(len(span), np.float32), voice, level_db, overlapped)


def other(start_s: float, *, lasts_s: float = 2.0, level_db: float = SOFT, speaker: str = "speaker_2") -> SpeakerTurn:
    return turn(start_s, OTHER, lasts_s=lasts_s, level_db=level_db, speaker=speaker)


def enrolled(mode: Mode = Mode.SELECTIVE, **changes: object) -> MainSpeaker:
    return MainSpeaker(replace(GateSettings(), **changes), mode, enrol([("me.wav", [turn(0, lasts_s=8)])]))  # type: ignore[arg-type]


def dominant(mode: Mode = Mode.SELECTIVE, **changes: object) -> MainSpeaker:
    return MainSpeaker(replace(GateSettings(), **changes), mode)  # type: ignore[arg-type]


def decide(gate: MainSpeaker, turns: Sequence[SpeakerTurn]) -> list[Decided]:
    return [item for one in turns for item in gate.push(one)] + list(gate.flush())


def outcomes(items: Sequence[Decided]) -> list[str]:
    return [str(item.admission.reason if isinstance(item, AdmittedTurn) else item.reason) for item in items]


PASSES, BYSTANDER, UNDECIDED = "main_speaker", "bystander", "undecided"


# --- with an enrolment ------------------------------------------------------------------------------------------------


def test_the_main_speaker_passes_and_others_do_not() -> None:
    items = decide(enrolled(), [turn(0), other(2), turn(4)])
    assert outcomes(items) == [PASSES, BYSTANDER, PASSES]
    assert [item.speaker for item in items] == [MAIN, "speaker_2", MAIN]
    assert [item.span.start_s for item in items] == [0, 2, 4]


def test_each_turn_is_decided_as_it_comes() -> None:
    gate = enrolled()
    assert gate.lookahead == 0
    assert outcomes(gate.push(turn(0))) == [PASSES]
    assert outcomes(gate.push(other(2))) == [BYSTANDER]
    assert list(gate.flush()) == []


def test_the_admission_says_on_what_it_rests() -> None:
    (item,) = enrolled(threshold=0.4).push(turn(0))
    assert isinstance(item, AdmittedTurn)
    assert (item.admission.mode, item.admission.reason) == (Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER)
    assert item.admission.evidence >= item.admission.threshold == 0.4


def test_what_is_withheld_keeps_nothing_but_time_label_and_evidence() -> None:
    (item,) = enrolled().push(other(0))
    assert isinstance(item, Withheld)
    assert item.evidence < item.threshold == GateSettings().threshold
    assert (item.span, item.speaker, item.reason) == (Span(0, seconds(2)), "speaker_2", WithholdReason.BYSTANDER)
    assert not any(isinstance(getattr(item, name), np.ndarray) for name in item.__slots__)


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (turn(0, like(0.3)), WithholdReason.BYSTANDER),
        (turn(0, -ME), WithholdReason.BYSTANDER),
        (turn(0, lasts_s=0.29), WithholdReason.TOO_SHORT),
        (turn(0, np.full(4, np.nan, np.float32)), WithholdReason.NO_EMBEDDING),
        (turn(0, np.full(1, np.nan, np.float32)), WithholdReason.NO_EMBEDDING),
        (turn(0, np.full(4, np.inf, np.float32)), WithholdReason.NO_EMBEDDING),
        (turn(0, level_db=math.nan), None),
        (turn(0, np.ones(3, np.float32)), WithholdReason.GATE_ERROR),
    ],
)
def test_every_doubt_withholds(one: SpeakerTurn, reason: WithholdReason | None) -> None:
    gate = enrolled()
    gate.push(turn(10))
    (item,) = gate.push(one)
    assert isinstance(item, Withheld)
    assert item.reason is (reason or WithholdReason.BYSTANDER)


def test_a_turn_that_somebody_else_speaks_in_passes_by_policy_only() -> None:
    both = turn(0, overlapped=True)
    assert outcomes(enrolled(overlap=OverlapPolicy.WITHHOLD).push(both)) == ["overlapped"]
    assert outcomes(enrolled(overlap=OverlapPolicy.ADMIT_IF_DOMINANT).push(both)) == [PASSES]


def test_the_evidence_must_reach_the_threshold() -> None:
    gate = enrolled(threshold=0.9)
    gate.push(turn(0))
    assert outcomes([*gate.push(turn(2, like(0.95))), *gate.push(turn(4, like(0.85)))]) == [PASSES, BYSTANDER]


def test_being_softer_than_the_main_speaker_speaks_against_a_turn() -> None:
    gate = enrolled()
    gate.push(turn(0))
    near, far = gate.push(turn(2, like(0.6, 2))), gate.push(turn(4, like(0.6, 2), level_db=LOUD - 12))
    assert outcomes([*near, *far]) == [PASSES, BYSTANDER]


def test_more_similarity_is_asked_for_until_the_main_speaker_was_heard() -> None:
    assert outcomes(enrolled().push(turn(0, like(0.55)))) == [BYSTANDER]
    gate = enrolled()
    gate.push(turn(0))
    assert outcomes(gate.push(turn(2, like(0.55)))) == [PASSES]


def test_likeness_to_a_bystander_heard_before_speaks_against_a_turn() -> None:
    doubtful = like(0.6)
    gate, warned = enrolled(), enrolled()
    gate.push(turn(0))
    warned.push(turn(0))
    warned.push(turn(2, like(0.1), speaker="speaker_2"))
    assert outcomes([*gate.push(turn(4, doubtful)), *warned.push(turn(4, doubtful))]) == [PASSES, BYSTANDER]


def test_the_profile_follows_the_main_speaker_into_the_room() -> None:
    """The enrolment is dry; what surely is the main speaker's teaches the room's sound."""
    shift = [like(math.cos(angle)) for angle in np.linspace(0.6, 1.25, 6)]
    assert shift[-1][0] < 0.4
    gate = enrolled()
    items = [item for index, voice in enumerate(shift) for item in gate.push(turn(10 * index, voice, lasts_s=8))]
    assert outcomes(items) == [PASSES] * len(shift)
    assert outcomes(enrolled().push(turn(0, shift[-1]))) == [BYSTANDER]


def test_two_streams_with_one_enrolment_do_not_touch_each_other() -> None:
    profile = enrol([("me.wav", [turn(0, lasts_s=8)])])
    before = profile.total.copy()
    first = MainSpeaker(GateSettings(), Mode.SELECTIVE, profile)
    decide(first, [turn(0, like(0.8), lasts_s=20)])
    np.testing.assert_array_equal(profile.total, before)
    assert math.isnan(profile.level_db)


def test_where_only_a_bystander_speaks_nothing_passes() -> None:
    items = decide(enrolled(), [other(3 * index, lasts_s=2.5, level_db=-10) for index in range(100)])
    assert set(outcomes(items)) == {BYSTANDER}


# --- when the gate fails ----------------------------------------------------------------------------------------------


class Faulty(Profile):
    """A profile that quotes what it was asked about when it fails."""

    def copy(self) -> Profile:
        return self

    def similarity(self, turn: SpeakerTurn) -> float:
        raise RuntimeError(f"cannot compare {turn.embedding.tolist()}")


def test_a_failure_withholds_and_says_nothing_of_what_it_failed_on(caplog: pytest.LogCaptureFixture) -> None:
    gate = MainSpeaker(GateSettings(), Mode.SELECTIVE, Faulty(ME))
    with caplog.at_level(logging.DEBUG):
        items = decide(gate, [turn(0, like(0.125)), turn(2)])
    assert outcomes(items) == ["gate_error", "gate_error"]
    assert all(isinstance(item, Withheld) for item in items)
    assert "RuntimeError" in caplog.text
    assert "0.125" not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


def test_a_failure_withholds_in_general_mode_too() -> None:
    assert outcomes(MainSpeaker(GateSettings(), Mode.GENERAL, Faulty(ME)).push(turn(0))) == ["gate_error"]


def test_a_failure_while_counting_loses_no_turn() -> None:
    """The second turn's embedding has another length, so that they cannot be added up."""
    gate = dominant()
    items = decide(gate, [turn(0), turn(2, np.ones(3, np.float32)), turn(4), turn(6)])
    assert outcomes(items)[:2] == ["gate_error", "gate_error"]
    assert [item.span.start_s for item in items] == [0, 2, 4, 6]


# --- without an enrolment ---------------------------------------------------------------------------------------------


def talk(pairs: int, start_s: float = 0.0) -> list[SpeakerTurn]:
    """A near speaker and a far one who takes every second turn."""
    turns = [(turn(start_s + 6 * i, lasts_s=3), other(start_s + 6 * i + 3, lasts_s=3)) for i in range(pairs)]
    return [one for pair in turns for one in pair]


def test_the_dominant_speaker_passes_from_the_first_word() -> None:
    assert outcomes(decide(dominant(), talk(5))) == [PASSES, BYSTANDER] * 5


def test_turns_are_held_until_it_is_certain_who_dominates() -> None:
    gate = dominant(hold_s=10)
    assert gate.lookahead == seconds(10)
    held = [list(gate.push(one)) for one in talk(3)]
    assert [len(items) for items in held] == [0, 0, 0, 0, 5, 1]


def test_a_near_speaker_dominates_a_far_one_who_talks_more() -> None:
    turns = [other(0, lasts_s=5), turn(5, lasts_s=2), other(7, lasts_s=5), turn(12, lasts_s=2)]
    assert outcomes(decide(dominant(), turns)) == [BYSTANDER, PASSES, BYSTANDER, PASSES]


def test_two_who_are_alike_in_time_and_level_remain_undecided() -> None:
    turns = [one for start in (0, 4) for one in (turn(start), other(start + 2, level_db=LOUD))]
    assert set(outcomes(decide(dominant(), turns))) == {UNDECIDED}


def test_who_says_a_word_only_is_not_the_main_speaker() -> None:
    assert outcomes(decide(dominant(), [turn(0, lasts_s=1.0)])) == [UNDECIDED]


def test_what_is_undecided_is_not_held_for_ever() -> None:
    gate = dominant(hold_s=10)
    turns = [one for start in range(0, 80, 4) for one in (turn(start), other(start + 2, level_db=LOUD))]
    for one in turns:
        gate.push(one)
        assert len(gate._held) <= 6


def test_who_is_unknown_is_not_counted() -> None:
    turns = [turn(0, lasts_s=9, speaker=UNKNOWN), other(9, lasts_s=3), turn(12, lasts_s=1, speaker=UNKNOWN)]
    assert outcomes(decide(dominant(), turns)) == [BYSTANDER, PASSES, BYSTANDER]


@pytest.mark.parametrize("level_db", [SOFT, LOUD - FAR_DB, LOUD, LOUD + FAR_DB - 0.5])
def test_a_bystander_who_talks_alone_for_minutes_is_never_promoted(level_db: float) -> None:
    alone = [other(40 + 4 * index, lasts_s=3.5, level_db=level_db) for index in range(60)]
    items = decide(dominant(), [*talk(5), *alone, turn(300)])
    assert outcomes(items)[10:] == [BYSTANDER] * 60 + [PASSES]


def test_the_same_holds_with_an_enrolment() -> None:
    alone = [other(40 + 4 * index, lasts_s=3.5, level_db=0.0) for index in range(60)]
    assert outcomes(decide(enrolled(), [*talk(2), *alone, turn(300)]))[4:] == [BYSTANDER] * 60 + [PASSES]


def test_one_who_is_much_louder_for_long_shows_that_the_choice_was_wrong() -> None:
    """A far speaker spoke first, alone, and was taken for the main speaker."""
    wrong = [other(4 * index, lasts_s=3.5) for index in range(4)]
    near = [turn(20 + 4 * index, lasts_s=3.5) for index in range(8)]
    items = decide(dominant(hold_s=10), [*wrong, *near, other(60), turn(70)])
    assert outcomes(items)[:4] == [PASSES] * 4
    assert outcomes(items)[4:8] == [BYSTANDER] * 4
    assert outcomes(items)[-2:] == [BYSTANDER, PASSES]


# --- general mode, and no gate ----------------------------------------------------------------------------------------

DOUBTS = [turn(0), other(2), turn(4, lasts_s=0.1), turn(5, np.full(1, np.nan, np.float32)), turn(7, speaker=UNKNOWN)]


@pytest.mark.parametrize("make", [enrolled, dominant])
def test_general_mode_admits_everyone_labelled(make: Callable[..., MainSpeaker]) -> None:
    items = decide(make(Mode.GENERAL), DOUBTS)
    assert [type(item) for item in items] == [AdmittedTurn] * len(DOUBTS)
    assert [item.speaker for item in items] == [MAIN, "speaker_2", "speaker_1", "speaker_1", MAIN]
    assert outcomes(items) == [PASSES, "general_mode", "general_mode", "general_mode", PASSES]


def test_general_mode_admits_those_of_whom_nothing_is_known() -> None:
    assert outcomes(decide(dominant(Mode.GENERAL), [turn(0, lasts_s=1)])) == ["general_mode"]


@pytest.mark.parametrize("make", [enrolled, dominant])
def test_a_gate_that_is_always_shut_decides_alike_in_both_modes(make: Callable[..., MainSpeaker]) -> None:
    general, selective = (decide(make(mode, always=True), DOUBTS) for mode in (Mode.GENERAL, Mode.SELECTIVE))
    assert outcomes(general) == outcomes(selective)
    assert BYSTANDER in outcomes(general)


def test_without_a_gate_everyone_passes() -> None:
    stage = Everyone(Mode.SELECTIVE)
    items = [item for one in DOUBTS for item in stage.push(one)]
    assert outcomes(items) == ["everyone"] * len(DOUBTS)
    assert [item.speaker for item in items] == [one.speaker for one in DOUBTS]
    assert list(stage.flush()) == []
    assert stage.lookahead == 0


# --- laws -------------------------------------------------------------------------------------------------------------

TURNS = st.lists(
    st.tuples(
        st.floats(-1, 1),
        st.floats(0.1, 4),
        st.floats(-60, 0),
        st.sampled_from([UNKNOWN, "speaker_1", "speaker_2", "speaker_3"]),
        st.booleans(),
    ),
    max_size=12,
)


@given(TURNS, st.sampled_from([enrolled, dominant]))
@settings(max_examples=60, deadline=None)
def test_every_turn_comes_out_once_and_in_order(
    drawn: list[tuple[float, float, float, str, bool]], make: Callable[..., MainSpeaker]
) -> None:
    turns, start_s = list[SpeakerTurn](), 0.0
    for similarity, lasts_s, level, speaker, nan in drawn:
        voice = np.full(4, np.nan, np.float32) if nan else like(similarity)
        turns.append(turn(start_s, voice, lasts_s=lasts_s, level_db=level, speaker=speaker))
        start_s += lasts_s
    items = decide(make(), turns)
    assert [item.span for item in items] == [one.span for one in turns]
    for item in items:
        if isinstance(item, AdmittedTurn):
            assert item.speaker == MAIN
            assert item.admission.evidence >= item.admission.threshold


@given(st.floats(-1, 1), st.floats(-60, 0), st.floats(-60, 0))
def test_evidence_never_grows_by_being_softer(similarity: float, level: float, softer: float) -> None:
    profile = Profile(ME, LOUD)
    loud, soft = (
        turn(0, like(similarity), level_db=max(level, softer)),
        turn(0, like(similarity), level_db=min(level, softer)),
    )
    assert profile.evidence(soft) <= profile.evidence(loud)


# --- enrolment --------------------------------------------------------------------------------------------------------


def test_an_enrolment_gives_the_mean_voice() -> None:
    profile = enrol([("a.wav", [turn(0, like(0.95, 1)), turn(2, like(0.95, 2))]), ("b.wav", [turn(0, ME, lasts_s=4)])])
    assert profile.similarity(turn(0)) > 0.95


@pytest.mark.parametrize(
    ("recordings", "fault"),
    [
        ([("me.wav", [])], "enrolment me.wav: no speech found, at least 3 s needed"),
        ([("me.wav", [turn(0, lasts_s=2.9)])], "enrolment me.wav: only 2.9 s of speech"),
        ([("me.wav", [turn(0, np.full(1, np.nan, np.float32), lasts_s=9)])], "no speech found"),
        ([("me.wav", [turn(0, lasts_s=6), other(6, lasts_s=4)])], "enrolment me.wav: more than one voice"),
        ([("me.wav", [turn(0), other(2), turn(4), other(6)])], "enrolment me.wav: more than one voice"),
        ([("a.wav", [turn(0, lasts_s=6)]), ("b.wav", [other(0, lasts_s=6)])], "enrolments a.wav, b.wav together"),
        ([("a.wav", [turn(0, lasts_s=6)]), ("b.wav", [turn(0)])], "enrolment b.wav: only 2.0 s of speech"),
    ],
)
def test_an_enrolment_that_will_not_do_is_refused_in_one_line(
    recordings: list[tuple[str, list[SpeakerTurn]]], fault: str
) -> None:
    with pytest.raises(EnrolmentError, match=fault) as caught:
        enrol(recordings)
    assert "record the main speaker alone" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cough_of_somebody_else_does_not_spoil_an_enrolment() -> None:
    enrol([("me.wav", [turn(0, lasts_s=6), other(6, lasts_s=1), turn(7, lasts_s=3)])])


# --- the real models on the recording in benchmarks/talk --------------------------------------------------------------


class Heard:
    """The real diarization of recordings, each heard once."""

    def __init__(self) -> None:
        self._detector, self._encoder = silero.load(), dvector.load()

    def turns(self, audio: Samples, clustering: ClusteringSettings | None = None) -> list[SpeakerTurn]:
        stage = Diarizer(self._detector(), self._encoder, clustering or ClusteringSettings())
        turns = stage.push(SeparatedChunk(Span(0, len(audio)), audio, audio[None]))
        return [*turns, *stage.flush()]


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="module")
def scene(heard: Heard) -> list[SpeakerTurn]:
    return heard.turns(read_audio(TALK / "talk.flac"))


ENROLMENT = read_audio(TALK / "enrolment.flac")


@pytest.fixture(scope="module")
def me(heard: Heard) -> Profile:
    return enrol([("enrolment.flac", heard.turns(ENROLMENT))])


def spoken(speaker: str) -> list[Span]:
    lines = [line.split() for line in (TALK / "reference.rttm").read_text().splitlines()]
    times = [(float(line[3]), float(line[3]) + float(line[4])) for line in lines if line[7] == speaker]
    return [Span(seconds(start), seconds(end)) for start, end in times]


@pytest.mark.parametrize("knows_me", [True, False], ids=["enrolled", "dominant"])
def test_the_main_speaker_of_a_real_recording_passes_alone(
    scene: list[SpeakerTurn], me: Profile, knows_me: bool
) -> None:
    items = decide(MainSpeaker(GateSettings(), Mode.SELECTIVE, me if knows_me else None), scene)
    admitted = [item.span for item in items if isinstance(item, AdmittedTurn)]
    withheld, accepted = (
        false_withhold(admitted, spoken("main")),
        false_accept(admitted, spoken("main"), spoken("bystander")),
    )
    assert withheld.total > seconds(30)
    assert accepted.total > seconds(7)
    assert withheld.accuracy is not None
    assert withheld.accuracy <= 0.05
    assert accepted.accuracy is not None
    assert accepted.accuracy <= 0.05


def test_short_enrolments_of_one_voice_are_accepted(heard: Heard) -> None:
    enrol([("five seconds.wav", heard.turns(ENROLMENT[: seconds(5)]))])
    near = read_audio(TALK / "talk.flac")[: seconds(8.2)]
    enrol([("in the room.wav", heard.turns(near)), ("dry.wav", heard.turns(ENROLMENT))])


def test_two_real_voices_are_no_enrolment(heard: Heard, scene: list[SpeakerTurn]) -> None:
    """The bystander, where they speak alone, after the main speaker."""
    audio = read_audio(TALK / "talk.flac")
    alone = [audio[seconds(start) : seconds(end)] for start, end in ((12.8, 15.4), (32.5, 35.2))]
    both = np.concatenate([ENROLMENT[: seconds(6)], *alone])
    with pytest.raises(EnrolmentError, match="more than one voice"):
        enrol([("both.wav", heard.turns(both))])


@pytest.mark.parametrize(
    ("audio", "fault"),
    [
        (np.zeros(seconds(5), np.float32), "no speech"),
        (np.random.default_rng(0).normal(0, 0.05, seconds(5)).astype(np.float32), "no speech"),
        (ENROLMENT[: seconds(1)], "of speech found"),
        (np.zeros(0, np.float32), "no speech"),
    ],
    ids=["silence", "noise", "1 s", "nothing"],
)
def test_what_is_no_voice_is_no_enrolment(heard: Heard, audio: Samples, fault: str) -> None:
    with pytest.raises(EnrolmentError, match=fault):
        enrol([("me.wav", heard.turns(audio))])
