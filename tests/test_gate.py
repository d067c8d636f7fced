"""The only door: who passes, who does not and why; and how the main speaker is found.

A voice is a direction: `like(0.7)` is an embedding with similarity 0.7 to the main speaker's. The judges here are plain
functions; the network that judges in earnest is tested in test_evidence.py, and at the end of this file.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cascade.audio import read_audio
from cascade.backends import dvector, silero
from cascade.diarization import UNKNOWN, ClusteringSettings, Diarizer
from cascade.errors import ConfigError, EnrolmentError
from cascade.evidence import Column, Judge, Observation, band_levels, band_weights, load
from cascade.gate import (
    CHANGE_COST,
    FAR_DB,
    MAIN,
    Everyone,
    GateSettings,
    MainSpeaker,
    Piece,
    Profile,
    enrol,
    pieces,
)
from cascade.overlap import OverlapPolicy, foreground_of
from cascade.packaged import data_folder
from cascade.scoring.leakage import false_accept, false_withhold
from cascade.types import (
    SAMPLE_RATE,
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
    whole,
)

TALK = Path(__file__).parents[1] / "benchmarks" / "talk"
LOUD, SOFT = -20.0, -32.0
"""Levels of a near and a far speaker, in dB relative to full scale."""

Decided = AdmittedTurn | Withheld
Said = tuple[Vector, float]
"""A voice, and the seconds that it speaks."""


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
    """Return a turn of one voice."""
    span = Span(seconds(start_s), seconds(start_s + lasts_s))
    amplitude = 10 ** (level_db / 20) if math.isfinite(level_db) else 0.0
    samples = np.full(len(span), amplitude, np.float32)
    return SpeakerTurn(span, speaker, samples, voice, level_db, (span,) if overlapped else ())


def other(start_s: float, *, lasts_s: float = 2.0, level_db: float = SOFT, speaker: str = "speaker_2") -> SpeakerTurn:
    return turn(start_s, OTHER, lasts_s=lasts_s, level_db=level_db, speaker=speaker)


def mixed(start_s: float, *parts: Said, speaker: str = "speaker_1") -> SpeakerTurn:
    """Return a turn in which voices follow each other, with a window every 0.1 s; its samples rise from 0 to 1."""
    windows = np.stack([voice for voice, lasts_s in parts for _ in range(round(10 * lasts_s))])
    span = Span(seconds(start_s), seconds(start_s + sum(lasts_s for _, lasts_s in parts)))
    samples = np.linspace(0, 1, len(span), dtype=np.float32)
    return SpeakerTurn(span, speaker, samples, windows.mean(axis=0), LOUD, embeddings=windows)


# --- judges -----------------------------------------------------------------------------------------------------------


def column(seen: Observation, index: Column) -> Vector:
    """Return what is seen in one column, for each frame of the turn."""
    return seen.features[seen.before : seen.before + seen.n_frames, index]


def as_probability(lead: Vector) -> Vector:
    return (1 / (1 + np.exp(-20 * lead.astype(np.float64)))).astype(np.float32)


def by_voice(turn: SpeakerTurn, seen: Observation) -> Vector:
    """Judge each frame by its window's similarity to the main speaker: 0.5 is as much as 50 %."""
    return as_probability(column(seen, Column.WINDOW_TO_MAIN) - 0.5)


def by_rivals(turn: SpeakerTurn, seen: Observation) -> Vector:
    """Judge by whether the main speaker is nearer than any bystander heard before."""
    return as_probability(column(seen, Column.WINDOW_TO_MAIN) - np.maximum(0.5, column(seen, Column.WINDOW_TO_RIVAL)))


def certain(*probabilities: float) -> Judge:
    """Return a judge that gives these probabilities, spread evenly over each turn."""

    def _judge(turn: SpeakerTurn, seen: Observation) -> Vector:
        return np.array(probabilities, np.float32)[np.arange(seen.n_frames) * len(probabilities) // seen.n_frames]

    return _judge


@dataclass
class Watching:
    """A judge that asks another one, and keeps what it was shown."""

    judge: Judge = by_voice
    shown: list[Observation] = field(default_factory=list)

    def __call__(self, turn: SpeakerTurn, seen: Observation) -> Vector:
        self.shown.append(seen)
        return self.judge(turn, seen)

    def last(self, index: Column) -> float:
        """Return what the last turn's first frame showed in a column."""
        return float(column(self.shown[-1], index)[0])


def enrolled(mode: Mode = Mode.SELECTIVE, judge: Judge = by_voice, **changes: object) -> MainSpeaker:
    profile = enrol([("me.wav", [turn(0, lasts_s=8)])])
    return MainSpeaker(judge, replace(GateSettings(), **changes), mode, profile)  # type: ignore[arg-type]


def dominant(mode: Mode = Mode.SELECTIVE, judge: Judge = by_voice, **changes: object) -> MainSpeaker:
    return MainSpeaker(judge, replace(GateSettings(), **changes), mode)  # type: ignore[arg-type]


def decide(gate: MainSpeaker, turns: Sequence[SpeakerTurn]) -> list[Decided]:
    return decide_only(gate, turns) + list(gate.flush())


def decide_only(gate: MainSpeaker, turns: Sequence[SpeakerTurn]) -> list[Decided]:
    """Return what comes out before the stream is over."""
    return [item for one in turns for item in gate.push(one)]


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
        (turn(0, np.zeros(4, np.float32)), WithholdReason.NO_EMBEDDING),
        (turn(0, np.zeros(0, np.float32)), WithholdReason.NO_EMBEDDING),
        (turn(0, 2 * ME), WithholdReason.NO_EMBEDDING),
        (turn(0, level_db=math.nan), WithholdReason.GATE_ERROR),
        (turn(0, level_db=math.inf), WithholdReason.GATE_ERROR),
        (turn(0, np.full(3, 0.5, np.float32)), WithholdReason.GATE_ERROR),
    ],
)
@pytest.mark.parametrize("heard", [True, False], ids=["after", "before"])
def test_every_doubt_withholds(one: SpeakerTurn, reason: WithholdReason, heard: bool) -> None:
    gate = enrolled()
    if heard:
        gate.push(turn(10))
    (item,) = gate.push(one)
    assert isinstance(item, Withheld)
    assert item.reason is reason
    assert item.span == one.span
    assert outcomes(gate.push(turn(20))) == [PASSES], "and nothing of it stays behind"


def test_nothing_is_too_short_even_where_everything_is_long_enough() -> None:
    assert outcomes(enrolled(min_turn_s=0).push(turn(3, lasts_s=0))) == ["too_short"]
    assert outcomes(enrolled(min_turn_s=0).push(turn(3, lasts_s=1 / 16000))) == [PASSES]


def test_a_turn_that_somebody_else_speaks_in_passes_by_policy_only() -> None:
    both = turn(0, overlapped=True)
    assert outcomes(enrolled(overlap=OverlapPolicy.WITHHOLD).push(both)) == ["overlapped"]
    assert outcomes(enrolled(overlap=OverlapPolicy.ADMIT_IF_DOMINANT).push(both)) == [PASSES]


@pytest.mark.parametrize(
    ("probability", "outcome"), [(0.79, BYSTANDER), (0.81, PASSES), (1.0, PASSES), (0.0, BYSTANDER)]
)
def test_the_evidence_must_reach_the_threshold(probability: float, outcome: str) -> None:
    (item,) = enrolled(threshold=0.8, judge=certain(probability)).push(turn(0))
    assert outcomes([item]) == [outcome]
    evidence = item.admission.evidence if isinstance(item, AdmittedTurn) else item.evidence
    assert evidence == pytest.approx(probability, abs=0.002)


def test_a_turn_whose_model_gives_no_windows_is_judged_by_its_embedding() -> None:
    """So are pyannote's: it tells one embedding for each speaker."""
    assert len(turn(0).embeddings) == 0
    gate = enrolled()
    assert outcomes([*gate.push(turn(0, like(0.6))), *gate.push(turn(2, like(0.4)))]) == [PASSES, BYSTANDER]


def test_where_only_a_bystander_speaks_nothing_passes() -> None:
    items = decide(enrolled(), [other(3 * index, lasts_s=2.5, level_db=-10) for index in range(100)])
    assert set(outcomes(items)) == {BYSTANDER}


# --- a turn is cut where the main speaker begins or ends --------------------------------------------------------------

PROBABILITIES = st.lists(st.one_of(st.floats(0, 1), st.sampled_from((0.0, 0.05, 0.5, 0.95, 1.0))), max_size=60).map(
    lambda values: np.array(values, np.float32)
)
THRESHOLDS = st.floats(0.002, 0.998)


def passing(probabilities: Vector, threshold: float) -> set[int]:
    """Return the frames that pass."""
    found = pieces(probabilities, threshold)
    return {frame for piece in found if piece.passes for frame in range(piece.start, piece.end)}


@given(PROBABILITIES, st.floats(0, 1))
def test_pieces_cover_a_turn(probabilities: Vector, threshold: float) -> None:
    found = pieces(probabilities, threshold)
    assert [frame for piece in found for frame in range(piece.start, piece.end)] == list(range(len(probabilities)))
    assert all(piece.start < piece.end for piece in found)


@given(PROBABILITIES, THRESHOLDS)
def test_a_piece_passes_if_its_evidence_reaches_the_threshold(probabilities: Vector, threshold: float) -> None:
    for piece in pieces(probabilities, threshold):
        if piece.passes:
            assert piece.evidence >= threshold
        else:
            assert piece.evidence <= threshold + 1e-6
        inside = np.clip(probabilities[piece.start : piece.end], 0.001, 0.999)
        assert inside.min() - 1e-6 <= piece.evidence <= inside.max() + 1e-6


@given(PROBABILITIES, st.floats(0, 1), st.floats(0, 1))
@example(np.array([*[0.9999] * 15, 0.1, *[0.9999] * 15], np.float32), 0.97, 0.98)
def test_what_passes_at_one_threshold_passes_at_each_lower_one(probabilities: Vector, one: float, two: float) -> None:
    assert passing(probabilities, max(one, two)) <= passing(probabilities, min(one, two))


@given(PROBABILITIES, st.lists(st.integers(0, 59), min_size=1), st.floats(0, 1))
def test_what_is_not_a_number_never_passes(probabilities: Vector, places: list[int], threshold: float) -> None:
    spoilt = probabilities.copy()
    spoilt[[place for place in places if place < len(spoilt)]] = np.nan
    assert not passing(spoilt, threshold) & set(np.flatnonzero(np.isnan(spoilt)).tolist())


@given(PROBABILITIES.filter(lambda values: len(values) > 0).map(lambda values: values[:9]), THRESHOLDS)
@settings(max_examples=40, deadline=None)
def test_pieces_are_the_best_of_all_ways_to_cut(probabilities: Vector, threshold: float) -> None:
    odds = [math.log(p / (1 - p)) for p in np.clip(probabilities.astype(float), 0.001, 0.999)]
    leads = [value - math.log(threshold / (1 - threshold)) for value in odds]

    def worth(path: Sequence[bool]) -> float:
        changes = sum(one != two for one, two in itertools.pairwise(path))
        return sum(lead for lead, mine in zip(leads, path, strict=True) if mine) - CHANGE_COST * changes

    chosen = passing(probabilities, threshold)
    best = max(worth(path) for path in itertools.product((False, True), repeat=len(leads)))
    assert worth([frame in chosen for frame in range(len(leads))]) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    ("inside", "n_pieces"),
    [([0.4] * 10, 1), ([0.05] * 2, 1), ([0.05] * 3, 3), ([0.0], 3), ([0.3] * 5, 1), ([0.3] * 12, 3)],
)
def test_a_change_costs(inside: list[float], n_pieces: int) -> None:
    """A doubtful frame or two within speech is no other speaker; many are, or one that certainly is."""
    assert len(pieces(np.array([0.95] * 20 + inside + [0.95] * 20, np.float32), 0.5)) == n_pieces


def test_what_is_not_a_number_is_cut_out_of_what_passes() -> None:
    found = pieces(np.array([0.95] * 20 + [np.nan] + [0.95] * 20, np.float32), 0.5)
    assert [(piece.start, piece.end, piece.passes) for piece in found] == [
        (0, 20, True),
        (20, 21, False),
        (21, 41, True),
    ]


def test_nothing_has_no_pieces() -> None:
    assert pieces(np.zeros(0, np.float32), 0.5) == []


def test_a_bystander_within_the_main_speakers_turn_is_cut_out() -> None:
    whole = mixed(3, (ME, 1.5), (OTHER, 1.0), (ME, 0.8))
    items = enrolled().push(whole)
    assert outcomes(items) == [PASSES, BYSTANDER, PASSES]
    assert [item.span.end_s for item in items] == pytest.approx([4.5, 5.5, 6.3], abs=0.02)
    assert [item.speaker for item in items] == [MAIN, "speaker_1", MAIN]
    check_pieces(items, [whole])


def test_the_main_speaker_within_a_bystanders_turn_is_let_through() -> None:
    items = enrolled().push(mixed(0, (OTHER, 1.5), (ME, 1.0), (OTHER, 1.5), speaker="speaker_2"))
    assert outcomes(items) == [BYSTANDER, PASSES, BYSTANDER]
    assert [item.speaker for item in items] == ["speaker_2", MAIN, "speaker_2"]


def test_a_piece_that_is_too_short_is_withheld() -> None:
    whole = mixed(0, (OTHER, 1.5), (ME, 0.2), (OTHER, 1.5))
    items = enrolled().push(whole)
    assert outcomes(items) == [BYSTANDER, "too_short", BYSTANDER]
    assert outcomes(enrolled(min_turn_s=0.1).push(whole)) == [BYSTANDER, PASSES, BYSTANDER]


def test_what_passes_does_not_hold_the_rest_of_its_turn() -> None:
    """A view of the turn's samples would take the bystander's along, in its base."""
    first, *_ = enrolled().push(mixed(0, (ME, 1.5), (OTHER, 1.5)))
    assert isinstance(first, AdmittedTurn)
    assert first.samples.base is None


def mixture_of(one: SpeakerTurn) -> Samples:
    return one.samples


def check_pieces(
    items: Sequence[Decided], turns: Sequence[SpeakerTurn], sound: Callable[[SpeakerTurn], Samples] = mixture_of
) -> None:
    """Hold that pieces cover each turn exactly once, in order, and that what is admitted is what was said there."""
    rest = list(items)
    for one in turns:
        position = one.span.start
        while position < one.span.end or (not one.span and rest and rest[0].span == one.span):
            item = rest.pop(0)
            assert item.span.start == position
            assert item.span.end <= one.span.end
            if isinstance(item, AdmittedTurn):
                place = slice(item.span.start - one.span.start, item.span.end - one.span.start)
                np.testing.assert_array_equal(item.samples, sound(one)[place])
            position = item.span.end
            if not one.span:
                break
    assert rest == []


# --- where two speak at once ------------------------------------------------------------------------------------------

SEPARATE = OverlapPolicy.SEPARATE
CELL = seconds(0.2)
"""Samples of a source that one window stands for."""

MINE, THEIRS = 0.1, -0.1
"""Samples of a source that is the main speaker's, and of one that is a bystander's."""


class Sign:
    """An encoder that knows a voice by the sign of its samples; where both are in a window, it is a bystander's."""

    window = seconds(0.1)

    def __call__(self, samples: Samples, /) -> Vector:
        if not samples.any():
            return np.full(4, np.nan, np.float32)
        return ME if (samples > 0).all() else OTHER


def separating(mode: Mode = Mode.SELECTIVE, **changes: object) -> MainSpeaker:
    """Return a gate whose main speaker is enrolled, and that verifies sources."""
    settings = replace(GateSettings(), **{"overlap": SEPARATE, **changes})  # type: ignore[arg-type]
    return MainSpeaker(by_voice, settings, mode, enrol([("me.wav", [turn(0, lasts_s=8)])]), Sign())


def over(voice: Vector, source: Samples, start_s: float, end_s: float) -> SpeakerTurn:
    """Return a turn from 0 on, as long as its source, in which another speaks from start_s to end_s."""
    lasts_s = len(source) / SAMPLE_RATE
    overlaps = (Span(seconds(start_s), seconds(end_s)),)
    return replace(turn(0, voice, lasts_s=lasts_s), source=source, overlaps=overlaps)


def cells(*values: float) -> Samples:
    """Return a source in which each value lasts as long as a window stands for."""
    return np.repeat(np.array(values, np.float32), CELL)


def test_where_another_speaks_the_main_speakers_source_is_handed_on() -> None:
    (item,) = separating().push(over(ME, cells(*[MINE] * 15), 1, 2))
    assert isinstance(item, AdmittedTurn)
    assert (item.span, item.admission.reason) == (Span(0, seconds(3)), AdmitReason.MAIN_SPEAKER)
    fade = seconds(0.005)
    mixture = np.float32(10 ** (LOUD / 20))
    np.testing.assert_array_equal(item.samples[: seconds(1)], mixture)
    np.testing.assert_allclose(item.samples[seconds(1) + fade : seconds(2) - fade], MINE, rtol=1e-6)
    np.testing.assert_array_equal(item.samples[seconds(2) :], mixture)


def test_a_source_is_enough_where_the_mixture_sounds_like_a_bystander() -> None:
    (before, item, after) = separating().push(over(OTHER, cells(*[MINE] * 15), 1, 2))
    assert (before.span.end_s, after.span.start_s) == (1, 2)
    assert outcomes([before, item, after]) == [BYSTANDER, PASSES, BYSTANDER]


@pytest.mark.parametrize(
    "source",
    [
        cells(*[THEIRS] * 15),
        cells(*[MINE] * 5, *[THEIRS] * 5, *[MINE] * 5),
        cells(*[0.0] * 15),
        cells(*[math.nan] * 15),
        np.zeros(0, np.float32),
    ],
    ids=["the bystander's", "swapped", "silence", "NaN", "none"],
)
def test_a_source_that_is_not_verified_is_withheld(source: Samples) -> None:
    one = turn(0, lasts_s=3)
    overlaps = (Span(seconds(1), seconds(2)),)
    items = separating().push(replace(one, source=source, overlaps=overlaps))
    assert outcomes(items) == [PASSES, "unverified", PASSES]
    assert [item.span.start_s for item in items] == [0, 1, 2]
    for item in items:
        if isinstance(item, AdmittedTurn):
            np.testing.assert_array_equal(item.samples, one.samples[: len(item.samples)])
        else:
            assert math.isnan(item.evidence)


@given(st.lists(st.sampled_from([MINE, THEIRS, 0.0]), min_size=1, max_size=15), st.booleans())
@settings(max_examples=60, deadline=None)
def test_whatever_the_source_nothing_of_a_bystander_or_of_the_mixture_passes(voices: list[float], mine: bool) -> None:
    """However often the sources are swapped within a turn, and whoever the turn is said to be."""
    source = cells(*voices)
    items = separating().push(over(ME if mine else OTHER, source, 0, len(source) / SAMPLE_RATE))
    assert [item.span.start for item in items] == [0, *(item.span.end for item in items[:-1])]
    assert items[-1].span.end == len(source)
    for item in items:
        if isinstance(item, AdmittedTurn):
            assert (source[item.span.start : item.span.end] >= 0).all()


@given(st.lists(st.sampled_from([MINE, 0.0, math.nan]), min_size=2, max_size=12))
@settings(max_examples=20, deadline=None)
def test_all_of_the_main_speakers_source_passes_where_there_is_enough_of_it(voices: list[float]) -> None:
    source = cells(*voices)
    items = separating().push(over(ME, source, 0, len(source) / SAMPLE_RATE))
    passed = [item.span for item in items if isinstance(item, AdmittedTurn)]
    spoilt = bool(np.isnan(source).any()) or not source.any()
    assert passed == ([] if spoilt else [Span(0, len(source))])


def test_an_overlap_that_is_too_short_to_tell_a_voice_by_is_withheld() -> None:
    items = separating(min_turn_s=0.3).push(over(ME, cells(*[MINE] * 15), 1, 1.28))
    assert outcomes(items) == [PASSES, "unverified", PASSES]
    assert outcomes(separating(min_turn_s=0.3).push(over(ME, cells(*[MINE] * 15), 1, 1.3))) == [PASSES]


def test_nothing_is_learned_of_what_is_not_verified() -> None:
    gate = separating()
    gate.push(over(ME, cells(*[THEIRS] * 15), 0, 3))
    assert gate.similarity_to_enrolment is None


def test_in_general_mode_sources_go_on_whosever_they_are() -> None:
    (item,) = separating(Mode.GENERAL).push(over(OTHER, cells(*[THEIRS] * 15), 0, 3))
    assert isinstance(item, AdmittedTurn)
    assert (item.speaker, item.admission.reason) == ("speaker_1", AdmitReason.GENERAL_MODE)
    np.testing.assert_allclose(item.samples[80:-80], THEIRS, rtol=1e-6)
    assert outcomes(separating(Mode.GENERAL, always=True).push(over(OTHER, cells(*[THEIRS] * 15), 0, 3))) == [
        "unverified"
    ]


def test_where_nobody_gates_the_source_goes_on_too() -> None:
    (item,) = Everyone(Mode.SELECTIVE).push(over(OTHER, cells(*[THEIRS] * 15), 0, 3))
    assert isinstance(item, AdmittedTurn)
    np.testing.assert_allclose(item.samples[80:-80], THEIRS, rtol=1e-6)


def test_an_encoder_that_fails_withholds_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sign):
        def __call__(self, samples: Samples, /) -> Vector:
            raise RuntimeError("secret")

    settings = GateSettings(overlap=SEPARATE)
    gate = MainSpeaker(by_voice, settings, Mode.SELECTIVE, enrol([("me.wav", [turn(0, lasts_s=8)])]), Broken())
    items = [*gate.push(over(ME, cells(*[MINE] * 15), 1, 2)), *gate.push(turn(4))]
    assert outcomes(items) == ["gate_error", PASSES]
    assert "secret" not in caplog.text


def test_to_verify_sources_takes_an_encoder() -> None:
    with pytest.raises(ConfigError, match="overlap: separate needs the speaker encoder of the turns"):
        MainSpeaker(by_voice, GateSettings(overlap=SEPARATE), Mode.SELECTIVE)


def test_other_policies_do_not_look_at_the_source() -> None:
    both = over(ME, cells(*[THEIRS] * 15), 1, 2)
    (item,) = enrolled(overlap=OverlapPolicy.ADMIT_IF_DOMINANT).push(both)
    assert isinstance(item, AdmittedTurn)
    np.testing.assert_array_equal(item.samples, both.samples)
    assert outcomes(enrolled(overlap=OverlapPolicy.WITHHOLD).push(both)) == ["overlapped"]


# --- foreground and background ----------------------------------------------------------------------------------------

FOREGROUND = OverlapPolicy.FOREGROUND
NEAR, FAR, AWAY = 0.9, 0.05, 0.4
"""Shares of the mixture's amplitude that the foreground has: nearly all, nearly nothing, and less than half of it."""


def in_front(one: SpeakerTurn, *shares: float) -> SpeakerTurn:
    """Return a turn with a foreground that has these shares of the mixture, spread evenly over it."""
    part = np.array(shares, np.float32)[np.arange(len(one.samples)) * len(shares) // len(one.samples)]
    return replace(one, source=(part * one.samples).astype(np.float32))


def behind(start_s: float, lasts_s: float = 2.0, **changes: object) -> SpeakerTurn:
    """Return a turn that was heard in the background by itself."""
    one = turn(start_s, np.full(1, np.nan, np.float32), lasts_s=lasts_s, level_db=SOFT, speaker="background")
    return replace(one, background=True, **changes)  # type: ignore[arg-type]


def of_front(one: SpeakerTurn) -> Samples:
    """Return what goes on of all of a turn; tests/test_overlap.py knows what that is."""
    return foreground_of(one, one.span)


def of_foreground(mode: Mode = Mode.SELECTIVE, judge: Judge = by_voice, **changes: object) -> MainSpeaker:
    return enrolled(mode, judge, **{"overlap": FOREGROUND, **changes})


def test_the_foreground_goes_on_with_a_little_of_the_rest() -> None:
    one = in_front(turn(3), NEAR)
    (item,) = of_foreground().push(one)
    assert isinstance(item, AdmittedTurn)
    assert (item.speaker, item.admission.reason) == (MAIN, AdmitReason.MAIN_SPEAKER)
    np.testing.assert_allclose(item.samples, one.source + (one.samples - one.source) / math.sqrt(10), rtol=1e-6)
    assert not np.shares_memory(item.samples, one.source)


def test_of_a_piece_its_part_of_the_foreground_goes_on() -> None:
    one = in_front(mixed(3, (ME, 1.5), (OTHER, 1.0), (ME, 2.5)), NEAR)
    first, _, last = of_foreground().push(one)
    assert isinstance(first, AdmittedTurn)
    assert isinstance(last, AdmittedTurn)
    np.testing.assert_array_equal(first.samples, of_front(one)[: len(first.samples)])
    np.testing.assert_array_equal(last.samples, of_front(one)[-len(last.samples) :])


def test_whose_it_is_the_mixture_tells() -> None:
    """A bystander who is as near is in the foreground, too."""
    assert outcomes(of_foreground().push(in_front(other(0), 1.0))) == [BYSTANDER]


@pytest.mark.parametrize("share", [FAR, AWAY, 0.0, math.nan, 1.2, -20.0])
def test_who_is_not_in_the_foreground_is_not_verified(share: float) -> None:
    (item,) = of_foreground().push(in_front(turn(0), share))
    assert isinstance(item, Withheld)
    assert (item.reason, item.speaker) == (WithholdReason.UNVERIFIED, "speaker_1")
    assert item.evidence >= 0.5


@pytest.mark.parametrize("lasts_s", [0.3, 0.4, 1.0])
def test_where_the_foreground_is_somebody_elses_for_a_while_that_is_withheld(lasts_s: float) -> None:
    one = in_front(turn(0, lasts_s=4), NEAR)
    one.source[seconds(2) : seconds(2 + lasts_s)] *= np.float32(0.3)
    items = of_foreground().push(one)
    assert outcomes(items) == [PASSES, "unverified", PASSES]
    assert (items[1].span.start_s, items[1].span.duration_s) == (2, lasts_s)
    check_pieces(items, [one], of_front)


def test_what_is_left_beside_such_a_while_is_too_short_by_itself() -> None:
    one = in_front(turn(0, lasts_s=2), NEAR)
    one.source[seconds(0.2) : seconds(1)] *= np.float32(0.3)
    assert outcomes(of_foreground().push(one)) == ["too_short", "unverified", PASSES]


def test_a_pause_of_the_main_speakers_is_left_in_whoever_speaks_behind() -> None:
    one = in_front(turn(0, lasts_s=4), NEAR)
    one.source[seconds(2) : seconds(3)] *= np.float32(FAR)
    assert outcomes(of_foreground().push(one)) == [PASSES]


def test_the_background_is_decided_at_once_and_never_the_main_speakers() -> None:
    for gate in (of_foreground(), dominant(overlap=FOREGROUND), enrolled(), dominant()):
        (item,) = gate.push(behind(0))
        assert isinstance(item, Withheld)
        assert (item.span, item.speaker, item.reason) == (Span(0, seconds(2)), "background", WithholdReason.BYSTANDER)
        assert math.isnan(item.evidence)
        (item,) = gate.push(replace(behind(2), embedding=ME))
        assert isinstance(item, Withheld)
        assert list(gate.push(behind(4, goes_on=True))) == []
        assert list(gate.flush()) == []


def test_in_general_mode_the_background_is_let_through_as_it_was_heard() -> None:
    one = behind(0)
    (item,) = of_foreground(Mode.GENERAL).push(one)
    assert isinstance(item, AdmittedTurn)
    assert (item.speaker, item.admission.reason) == ("background", AdmitReason.GENERAL_MODE)
    np.testing.assert_array_equal(item.samples, one.samples)
    assert outcomes(of_foreground(Mode.GENERAL, always=True).push(one)) == [BYSTANDER]


def test_in_general_mode_nobody_is_let_through_twice() -> None:
    """Who is further away comes with the background; who is near, with the foreground."""
    gate = of_foreground(Mode.GENERAL)
    assert list(gate.push(in_front(other(0), FAR))) == []
    near = in_front(other(2), NEAR)
    (item,) = gate.push(near)
    assert isinstance(item, AdmittedTurn)
    assert (item.speaker, item.admission.reason) == ("speaker_2", AdmitReason.GENERAL_MODE)
    np.testing.assert_array_equal(item.samples, of_front(near))
    assert outcomes(gate.push(in_front(turn(4), NEAR))) == [PASSES]
    assert list(gate.push(in_front(turn(6), FAR))) == []
    assert outcomes(of_foreground(Mode.GENERAL, always=True).push(in_front(other(0), FAR))) == [BYSTANDER]


def test_where_separation_failed_for_a_while_nothing_is_let_through_muted() -> None:
    """A recogniser invents words in silence, and what was said there would be gone without a trace."""
    one = in_front(turn(0, lasts_s=4), NEAR)
    one.source[seconds(1) : seconds(3)] = 0
    items = of_foreground().push(one)
    assert outcomes(items) == [PASSES, "unverified", PASSES]
    assert (items[1].span.start_s, items[1].span.duration_s) == (1, 2)


@pytest.mark.parametrize("share", [0.0, math.nan, 20.0])
def test_in_general_mode_the_mixture_stands_in_where_separation_failed(share: float) -> None:
    """Neither source has what is said there."""
    for one in (turn(0), other(0)):
        (item,) = of_foreground(Mode.GENERAL).push(in_front(one, share))
        assert isinstance(item, AdmittedTurn)
        assert (item.speaker, item.admission.reason) == (one.speaker, AdmitReason.GENERAL_MODE)
        np.testing.assert_array_equal(item.samples, one.samples)
        assert outcomes(of_foreground(Mode.GENERAL, always=True).push(in_front(one, share)))[0] != PASSES


def test_nothing_is_learned_of_what_is_not_in_the_foreground() -> None:
    gate = of_foreground()
    gate.push(in_front(turn(0), FAR))
    one = in_front(turn(2, lasts_s=4), NEAR)
    one.source[seconds(1) : seconds(2)] *= np.float32(0.3)
    gate.push(one)
    assert gate.similarity_to_enrolment is None
    gate.push(in_front(turn(6), NEAR))
    assert gate.similarity_to_enrolment is not None


def test_who_is_not_in_the_foreground_is_not_dominant() -> None:
    """Somebody further away who is alone for long, and a part of the hold's end."""
    gate = dominant(overlap=FOREGROUND, hold_s=4)
    far = [in_front(turn(2 * place, OTHER, speaker="speaker_1"), FAR) for place in range(3)]
    near = [in_front(turn(6 + 2 * place, ME, speaker="speaker_2"), NEAR) for place in range(4)]
    items = decide(gate, [*far, *near])
    assert [item.speaker for item in items if isinstance(item, AdmittedTurn)] == [MAIN] * 4
    assert outcomes(decide(dominant(hold_s=4), [*far, *near]))[:3] == [PASSES] * 3, "else he would be"


@pytest.mark.parametrize("ends", [replace(turn(6), embedding=np.full(4, np.nan, np.float32)), in_front(turn(6), FAR)])
def test_a_hold_that_ends_with_a_turn_that_does_not_count_still_finds_the_main_speaker(ends: SpeakerTurn) -> None:
    gate = dominant(overlap=FOREGROUND, hold_s=4)
    turns = [in_front(turn(0), NEAR), in_front(turn(2), NEAR), ends if len(ends.source) else in_front(ends, NEAR)]
    assert outcomes(decide_only(gate, turns))[:2] == [PASSES, PASSES]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("make", [of_foreground, lambda mode: dominant(mode, overlap=FOREGROUND)])
def test_a_turn_without_a_foreground_is_withheld(make: Callable[[Mode], MainSpeaker], mode: Mode) -> None:
    assert outcomes(decide(make(mode), [turn(0, lasts_s=4)])) == ["gate_error"]


@pytest.mark.parametrize("mode", Mode)
def test_being_told_of_a_turn_with_a_foreground_while_it_goes_on_changes_nothing_but_when(mode: Mode) -> None:
    """A turn of the background may begin with it."""
    one = in_front(INTERRUPTED, 1.0, NEAR, FAR, 1.0, 0.45, FAR, NEAR, 1.0, 1.0, 1.0)
    early, late = of_foreground(mode), of_foreground(mode)
    parts = [item for part in told(one)[:-1] for item in early.push(part)]
    assert parts
    assert outcomes(early.push(behind(3))) == outcomes(late.push(behind(3)))
    parts += early.push(one)
    assert list(map(_shown, parts)) == list(map(_shown, late.push(one)))


def _shown(item: Decided) -> tuple[object, ...]:
    """Return all of what is decided but its evidence, which tells the more the more is known."""
    return (
        item.span,
        item.speaker,
        outcomes([item]),
        item.samples.tobytes() if isinstance(item, AdmittedTurn) else b"",
    )


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([0, FAR, 0.3, 0.6, 1.0, math.nan]), min_size=1))),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_foreground_nothing_but_it_passes_and_each_turn_is_decided_once(
    given_turns: list[tuple[bool, list[float]]], known: bool
) -> None:
    turns = [
        in_front(mixed(3.0 * place, (ME if mine else OTHER, 3.0)), *shares)
        for place, (mine, shares) in enumerate(given_turns)
    ]
    items = decide(of_foreground() if known else dominant(overlap=FOREGROUND, hold_s=2), turns)
    check_pieces(items, turns, of_front)
    for item in items:
        if isinstance(item, AdmittedTurn):
            one = next(one for one in turns if one.span.overlaps(item.span))
            place = slice(item.span.start - one.span.start, item.span.end - one.span.start)
            power = [np.square(sound[place], dtype=np.float64).sum() for sound in (one.source, one.samples)]
            assert power[0] >= 0.25 * power[1]


# --- what is learnt ---------------------------------------------------------------------------------------------------


def test_the_profile_follows_the_main_speaker_into_the_room() -> None:
    """The enrolment is dry; what surely is the main speaker's teaches the room's sound."""
    shift = [like(math.cos(angle)) for angle in np.linspace(0.6, 1.25, 6)]
    assert shift[-1][0] < 0.4
    gate = enrolled()
    items = [item for index, voice in enumerate(shift) for item in gate.push(turn(10 * index, voice, lasts_s=8))]
    assert outcomes(items) == [PASSES] * len(shift)
    assert outcomes(enrolled().push(turn(0, shift[-1]))) == [BYSTANDER]


@pytest.mark.parametrize(
    ("probability", "learns"), [(0.97, True), (0.9, False), (0.6, False), (0.4, False), (0.02, False)]
)
def test_the_profile_learns_from_what_is_sure_only(probability: float, learns: bool) -> None:
    judge = Watching(certain(probability))
    gate = enrolled(judge=judge)
    gate.push(turn(0, like(0.7), lasts_s=8))
    gate.push(turn(10))
    assert (judge.last(Column.WINDOW_TO_MAIN) < 0.99) is learns


def test_the_profile_learns_from_the_main_speakers_piece_and_not_from_the_rest() -> None:
    """What is known of the bystanders is learnt from theirs."""
    judge = Watching()
    gate = enrolled(judge=judge)
    gate.push(mixed(0, (ME, 4.0), (OTHER, 4.0)))
    gate.push(turn(10))
    assert judge.last(Column.WINDOW_TO_MAIN) == pytest.approx(1, abs=1e-3)
    assert judge.last(Column.WINDOW_TO_RIVAL) == pytest.approx(OTHER @ ME, abs=0.03)
    gate.push(other(20))
    assert judge.last(Column.WINDOW_TO_RIVAL) == pytest.approx(1, abs=0.01)


def test_a_piece_teaches_by_those_of_its_windows_that_have_an_embedding() -> None:
    judge = Watching(certain(1.0))
    gate = enrolled(judge=judge)
    made = mixed(0, (like(0.7), 4.0))
    made.embeddings[::2] = np.nan
    gate.push(made)
    gate.push(turn(10))
    assert 0.7 < judge.last(Column.WINDOW_TO_MAIN) < 0.99


def test_windows_without_an_embedding_teach_nothing() -> None:
    judge = Watching(certain(1.0, 0.0))
    gate = enrolled(judge=judge)
    lost = np.full(4, np.nan, np.float32)
    made = mixed(0, (ME, 2.0), (ME, 2.0))
    windows = np.concatenate([np.tile(lost, (20, 1)), np.tile(ME, (20, 1))])
    gate.push(SpeakerTurn(made.span, "speaker_1", made.samples, ME, LOUD, embeddings=windows))
    gate.push(turn(10))
    assert judge.last(Column.WINDOW_TO_MAIN) == pytest.approx(1)
    assert judge.last(Column.ANY_RIVAL) == 1


@pytest.mark.parametrize(
    ("bystander", "probability", "known"),
    [
        (other(2), 0.02, 1.0),
        (other(2), 0.2, 0.0),
        (other(2, speaker=UNKNOWN), 0.02, 0.0),
        (other(2, lasts_s=0.29), 0.02, 0.0),
    ],
)
def test_bystanders_are_learnt_from_what_is_surely_theirs(
    bystander: SpeakerTurn, probability: float, known: float
) -> None:
    judge = Watching(certain(probability))
    gate = enrolled(judge=judge)
    gate.push(bystander)
    gate.push(turn(5))
    assert judge.last(Column.ANY_RIVAL) == known


def test_likeness_to_a_bystander_heard_before_is_shown_to_the_judge() -> None:
    doubtful = like(0.6)
    gate, warned = enrolled(judge=by_rivals), enrolled(judge=by_rivals)
    gate.push(turn(0))
    warned.push(turn(0))
    warned.push(turn(2, like(0.1), speaker="speaker_2"))
    assert outcomes([*gate.push(turn(4, doubtful)), *warned.push(turn(4, doubtful))]) == [PASSES, BYSTANDER]


def test_levels_are_relative_to_the_main_speakers_or_to_the_loudest_until_that_is_known() -> None:
    judge = Watching(certain(0.3))
    gate = enrolled(judge=judge)
    for one, expected in ((other(0), 0.0), (turn(2), 0.0), (other(4), SOFT - LOUD)):
        gate.push(one)
        known_db = one.level_db - expected
        assert judge.last(Column.HEARD) == 0
        loudness = np.clip((_level_of(one) - known_db) / 20, -2, 2)
        assert judge.last(Column.LEVEL) == pytest.approx(loudness, abs=1e-4)
    judge.judge = certain(0.6)
    gate.push(turn(6, level_db=-26))
    gate.push(other(8))
    assert judge.last(Column.HEARD) == 1
    assert judge.last(Column.LEVEL) == pytest.approx(np.clip((_level_of(other(8)) + 26) / 20, -2, 2), abs=1e-4)


def _level_of(one: SpeakerTurn) -> float:
    return float(band_levels(one.samples, band_weights())[0, -1])


def test_two_streams_with_one_enrolment_do_not_touch_each_other() -> None:
    profile = enrol([("me.wav", [turn(0, lasts_s=8)])])
    before = profile.total.copy()
    first = MainSpeaker(by_voice, GateSettings(), Mode.SELECTIVE, profile)
    decide(first, [turn(0, like(0.8), lasts_s=20)])
    np.testing.assert_array_equal(profile.total, before)
    assert math.isnan(profile.level_db)


# --- a turn that goes on ----------------------------------------------------------------------------------------------


def until(whole: SpeakerTurn, heard_s: float) -> SpeakerTurn:
    """Return what is known of a turn so long after its start, in whole tenths of a second."""
    windows = whole.embeddings[: round(10 * heard_s)]
    return replace(
        whole,
        span=Span(whole.span.start, whole.span.start + seconds(heard_s)),
        samples=whole.samples[: seconds(heard_s)],
        source=whole.source[: seconds(heard_s)],
        embedding=windows.mean(axis=0),
        embeddings=windows,
        goes_on=True,
    )


def told(whole: SpeakerTurn) -> list[SpeakerTurn]:
    """Return a turn as the diarization tells of it: every 0.2 s while it goes on, and then the whole of it."""
    tenths = round(10 * whole.span.duration_s)
    return [*(until(whole, tenth / 10) for tenth in range(2, tenths, 2)), whole]


INTERRUPTED = mixed(3, (ME, 1.5), (OTHER, 1.0), (ME, 2.5))


def test_a_piece_comes_out_once_it_has_ended_and_not_with_its_turn() -> None:
    gate = enrolled()
    assert outcomes(gate.push(until(INTERRUPTED, 1.4))) == []
    assert outcomes(gate.push(until(INTERRUPTED, 2.4))) == [PASSES]
    assert outcomes(gate.push(until(INTERRUPTED, 2.4))) == []
    assert outcomes(gate.push(until(INTERRUPTED, 4.9))) == [BYSTANDER]
    assert outcomes(gate.push(INTERRUPTED)) == [PASSES]


def test_a_piece_is_not_decided_before_all_is_known_that_the_judge_looks_at() -> None:
    """What was heard after what is told of the turn counts."""
    gate, part = enrolled(), until(INTERRUPTED, 2.1)
    assert outcomes(gate.push(part)) == []
    assert outcomes(gate.push(replace(part, after=np.zeros(seconds(0.06), np.float32)))) == []
    assert outcomes(gate.push(replace(part, after=np.zeros(seconds(0.08), np.float32)))) == [PASSES]


@pytest.mark.parametrize(("probability", "early"), [(0.69, []), (0.71, [PASSES, BYSTANDER])])
def test_a_piece_that_passes_by_little_waits_and_what_follows_with_it(probability: float, early: list[str]) -> None:
    frames = np.repeat(np.array([probability, 0.01, 0.99], np.float32), (75, 50, 125))
    gate = enrolled(judge=lambda turn, seen: frames[: seen.n_frames])
    assert outcomes(gate.push(until(INTERRUPTED, 4.9))) == early
    assert outcomes(gate.push(INTERRUPTED)) == [PASSES, BYSTANDER, PASSES][len(early) :]


@pytest.mark.parametrize("mode", Mode)
def test_being_told_of_a_turn_while_it_goes_on_changes_nothing_but_when(mode: Mode) -> None:
    early, late = enrolled(mode), enrolled(mode)
    parts = decide(early, told(INTERRUPTED))
    whole = decide(late, [INTERRUPTED])
    check_pieces(parts, [INTERRUPTED])
    assert [(item.span, item.speaker) for item in parts] == [(item.span, item.speaker) for item in whole]
    assert outcomes(parts) == outcomes(whole)
    assert len(parts) == 3
    following = turn(9, like(0.7))
    assert [_evidence(item) for item in early.push(following)] == [_evidence(item) for item in late.push(following)]


def _evidence(item: Decided) -> float:
    return item.admission.evidence if isinstance(item, AdmittedTurn) else item.evidence


@given(PROBABILITIES, st.lists(st.integers(0, 60)), THRESHOLDS)
def test_pieces_that_have_ended_are_those_of_the_whole_turn(
    probabilities: Vector, lengths: list[int], threshold: float
) -> None:
    """Where the judge says the same of a frame whatever follows, waiting changes nothing."""
    decided: list[Piece] = []
    for length in sorted(lengths):
        decided += pieces(probabilities[:length], threshold, decided, goes_on=True)
    whole = pieces(probabilities, threshold)
    assert decided == whole[: len(decided)]
    assert [*decided, *pieces(probabilities, threshold, decided)] == whole


def test_what_is_out_stays_as_it_is_when_the_judge_thinks_better_of_it() -> None:
    """A turn's end shows all of it in another light; what is left is then judged by itself."""
    verdicts = iter([certain(1, 0, 0), certain(0, 0, 1)])
    gate = enrolled(judge=lambda turn, seen: next(verdicts)(turn, seen))
    whole = mixed(0, (ME, 3.0))
    (first,) = gate.push(until(whole, 1.5))
    second, third = gate.push(whole)
    assert [first.span.end_s, second.span.end_s, third.span.end_s] == [0.5, 2, 3]
    check_pieces([first, second, third], [whole])
    assert outcomes([first, second, third]) == [PASSES, BYSTANDER, PASSES]


def test_nothing_is_learned_of_a_turn_before_its_end() -> None:
    judge = Watching()
    gate = enrolled(judge=judge)
    for part in told(INTERRUPTED)[:-1]:
        gate.push(part)
    assert gate.similarity_to_enrolment is None
    assert judge.last(Column.ANY_RIVAL) == 0
    gate.push(INTERRUPTED)
    assert gate.similarity_to_enrolment is not None
    gate.push(turn(9))
    assert judge.last(Column.ANY_RIVAL) == 1


@pytest.mark.parametrize("speaker", [UNKNOWN, "speaker_1"])
def test_nobody_is_let_out_or_withheld_early_under_no_name(speaker: str) -> None:
    gate = enrolled(Mode.GENERAL)
    items = [item for part in told(replace(INTERRUPTED, speaker=speaker))[:-1] for item in gate.push(part)]
    assert bool(items) is (speaker != UNKNOWN)


def test_without_an_enrolment_the_end_of_a_turn_is_waited_for() -> None:
    gate = dominant(hold_s=1)
    assert decide_only(gate, told(INTERRUPTED)[:-1]) == []
    assert decide_only(gate, [INTERRUPTED]) == []
    assert outcomes(decide_only(gate, [turn(8)])) == [PASSES, BYSTANDER, PASSES, PASSES]
    later = replace(INTERRUPTED, span=Span(seconds(10), seconds(15)))
    assert decide_only(gate, told(later)[:-1]) == []
    assert outcomes(decide_only(gate, [later])) == [PASSES, BYSTANDER, PASSES]


@pytest.mark.parametrize("policy", OverlapPolicy)
def test_what_goes_on_waits_for_its_end_where_overlap_decides(policy: OverlapPolicy) -> None:
    gate, one = separating(overlap=policy), replace(INTERRUPTED, source=INTERRUPTED.samples)
    early = [item for part in told(one)[:-1] for item in gate.push(part)]
    assert bool(early) is (policy in (OverlapPolicy.ADMIT_IF_DOMINANT, FOREGROUND))
    assert outcomes([*early, *gate.push(one)]) == [PASSES, BYSTANDER, PASSES]


@pytest.mark.parametrize("mode", Mode)
def test_a_failure_withholds_what_is_not_out_yet(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    """While the turn goes on, a failure lets nothing out and the end is waited for."""
    judges = iter([by_voice, quoting, quoting])
    gate = enrolled(mode, judge=lambda turn, seen: next(judges)(turn, seen))
    first = gate.push(until(INTERRUPTED, 2.4))
    assert outcomes(gate.push(until(INTERRUPTED, 4.9))) == []
    rest = gate.push(INTERRUPTED)
    assert outcomes(rest) == ["gate_error"]
    assert "cannot judge" not in caplog.text
    check_pieces([*first, *rest], [INTERRUPTED])


# --- when the gate fails ----------------------------------------------------------------------------------------------


def quoting(turn: SpeakerTurn, seen: Observation) -> Vector:
    """Fail, and quote what it was asked about."""
    raise RuntimeError(f"cannot judge {turn.embedding.tolist()}")


class Faulty(Profile):
    """A profile that cannot learn."""

    def anew(self) -> Profile:
        return self

    def learn(self, embedding: Vector, hops: float, level_db: float) -> None:
        raise RuntimeError(f"cannot learn {embedding.tolist()}")


def test_a_failure_withholds_and_says_nothing_of_what_it_failed_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        items = decide(enrolled(judge=quoting), [turn(0, like(0.125)), turn(2)])
    assert outcomes(items) == ["gate_error", "gate_error"]
    assert all(isinstance(item, Withheld) for item in items)
    assert "RuntimeError" in caplog.text
    assert "0.125" not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda n: np.full(n, np.nan, np.float32),
        lambda n: np.where(np.arange(n) == n // 2, np.nan, 1).astype(np.float32),
        lambda n: np.full(n, np.inf, np.float32),
        lambda n: np.full(n, 1.5, np.float32),
        lambda n: np.full(n, -0.5, np.float32),
        lambda n: np.ones(n - 1, np.float32),
        lambda n: np.ones(n + 1, np.float32),
        lambda n: np.ones((n, 1), np.float32),
        lambda n: np.ones(0, np.float32),
        lambda n: np.float32(1),
        lambda n: [1.0] * n,
        lambda n: None,
    ],
    ids=[
        "NaN",
        "one NaN",
        "inf",
        "above 1",
        "below 0",
        "one short",
        "one over",
        "2-D",
        "none",
        "a number",
        "list",
        "None",
    ],
)
def test_what_are_no_probabilities_withholds_the_whole_turn(wrong: Callable[[int], Vector], mode: Mode) -> None:
    """In general mode too: a gate that fails does not know what it lets out."""
    gate = enrolled(mode, lambda _, seen: wrong(seen.n_frames))
    (item,) = gate.push(turn(0))
    assert isinstance(item, Withheld)
    assert (item.span, item.reason) == (turn(0).span, WithholdReason.GATE_ERROR)


def test_how_far_the_voice_has_moved_from_the_enrolment_is_told() -> None:
    gate = enrolled(judge=certain(0.99))
    assert gate.similarity_to_enrolment is None
    gate.push(turn(0))
    assert gate.similarity_to_enrolment == pytest.approx(1)
    for start in range(2, 40, 2):
        gate.push(turn(start, like(0.8)))
    assert gate.similarity_to_enrolment == pytest.approx(0.8, abs=0.05)
    assert dominant().similarity_to_enrolment is None


def test_a_turn_is_shown_beside_the_one_most_alike_so_far() -> None:
    """One that lasts less than a second is no measure for others."""
    judge = Watching(certain(0.5))
    gate = enrolled(judge=judge)
    below = []
    for start, likeness, lasts_s in ((0, 0.5, 2), (2, 0.9, 0.5), (4, 0.4, 2), (6, 0.8, 2), (8, 0.5, 2)):
        gate.push(turn(start, like(likeness), lasts_s=lasts_s))
        below.append(judge.last(Column.BELOW_MOST_ALIKE))
    assert below == pytest.approx([0, 0, -0.1, 0, -0.3], abs=1e-5)


@pytest.mark.parametrize("mode", Mode)
def test_a_fault_in_one_piece_withholds_the_whole_turn(mode: Mode) -> None:
    gate = MainSpeaker(by_voice, GateSettings(), mode, Faulty(ME))
    (item,) = gate.push(mixed(0, (OTHER, 1.5), (ME, 1.5), (OTHER, 1.5)))
    assert isinstance(item, Withheld)
    assert (item.span.duration_s, item.reason) == (4.5, WithholdReason.GATE_ERROR)


def test_a_failure_while_counting_loses_no_turn() -> None:
    """The second turn's embedding has another length, so that they cannot be added up."""
    gate = dominant()
    items = decide(gate, [turn(0), turn(2, np.full(3, 0.5, np.float32)), turn(4), turn(6)])
    assert outcomes(items)[:2] == ["gate_error", "gate_error"]
    assert [item.span.start_s for item in items] == [0, 2, 4, 6]


def test_a_judge_that_fails_while_dominance_counts_loses_no_turn() -> None:
    items = decide(dominant(judge=quoting, hold_s=2), [turn(0), turn(2), turn(4), turn(6)])
    assert outcomes(items) == ["gate_error"] * 4
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


def test_a_level_that_is_no_number_makes_nobody_the_main_speaker() -> None:
    turns = [turn(0, level_db=math.nan, lasts_s=9), other(9, lasts_s=3), turn(12, level_db=math.inf)]
    assert outcomes(decide(dominant(), turns)) == ["gate_error", PASSES, "gate_error"]


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


@pytest.mark.parametrize("judge", [by_voice, by_rivals])
def test_one_who_is_much_louder_for_long_shows_that_the_choice_was_wrong(judge: Judge) -> None:
    """A far speaker spoke first, alone, and was taken for the main speaker; the near one was learnt as a bystander."""
    wrong = [other(4 * index, lasts_s=3.5) for index in range(4)]
    near = [turn(20 + 4 * index, lasts_s=3.5) for index in range(8)]
    items = decide(dominant(hold_s=10, judge=judge), [*wrong, *near, other(60), turn(70)])
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


def test_general_mode_labels_the_pieces_of_a_turn() -> None:
    whole = mixed(0, (ME, 1.5), (OTHER, 1.5), (ME, 0.2))
    items = enrolled(Mode.GENERAL).push(whole)
    assert [(item.speaker, outcome) for item, outcome in zip(items, outcomes(items), strict=True)] == [
        (MAIN, PASSES),
        ("speaker_1", "general_mode"),
        ("speaker_1", "general_mode"),
    ]
    check_pieces(items, [whole])


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
    assert list(stage.push(until(INTERRUPTED, 2.4))) == []
    assert list(stage.flush()) == []
    assert stage.lookahead == 0


# --- laws -------------------------------------------------------------------------------------------------------------

VOICES = st.one_of(st.floats(-1, 1).map(like), st.just(np.full(4, np.nan, np.float32)))
TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(VOICES, st.sampled_from((0.1, 0.3, 1.0, 2.0))), min_size=1, max_size=4),
        st.integers(-1600, 1600),
        st.one_of(st.floats(-60, 0), st.just(math.nan)),
        st.sampled_from([UNKNOWN, "speaker_1", "speaker_2", "speaker_3"]),
    ),
    max_size=10,
)


@dataclass
class Whimsical:
    """A judge that says anything."""

    seed: int

    def __call__(self, turn: SpeakerTurn, seen: Observation) -> Vector:
        generator = np.random.default_rng(self.seed + turn.span.end)
        steps = generator.beta(0.3, 0.3, -(-seen.n_frames // 12))
        return np.repeat(steps, 12)[: seen.n_frames].astype(np.float32)


def _begun(whole: SpeakerTurn, seed: int) -> list[SpeakerTurn]:
    """Return up to three states in which a turn is heard while it goes on."""
    ends = np.random.default_rng(seed).integers(0, len(whole.span), 3, endpoint=True)
    return [
        replace(whole, span=Span(whole.span.start, whole.span.start + end), samples=whole.samples[:end], goes_on=True)
        for end in sorted(ends.tolist())
    ]


@given(
    TURNS,
    st.sampled_from([enrolled, dominant]),
    st.one_of(st.just(by_voice), st.integers(0, 999).map(Whimsical)),
    st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_every_turn_comes_out_once_and_in_order(
    drawn: list[tuple[list[Said], int, float, str]], make: Callable[..., MainSpeaker], judge: Judge, seed: int
) -> None:
    turns, start_s = list[SpeakerTurn](), 0.0
    for parts, longer, level_db, speaker in drawn:
        made = mixed(start_s, *parts)
        span = Span(made.span.start, max(made.span.start, made.span.end + longer))
        samples = np.resize(made.samples, len(span))
        windows = made.embeddings
        good = windows[np.isfinite(windows).all(axis=1)]
        embedding = good.mean(axis=0) if len(good) else windows[0]
        turns.append(SpeakerTurn(span, speaker, samples, embedding, level_db, embeddings=windows))
        start_s += made.span.duration_s + 0.2
    items = decide(make(judge=judge), [part for whole in turns for part in [*_begun(whole, seed), whole]])
    check_pieces(items, turns)
    for item in items:
        if isinstance(item, AdmittedTurn):
            assert item.speaker == MAIN
            assert item.admission.evidence >= item.admission.threshold
            assert item.span.duration_s >= GateSettings().min_turn_s


# --- enrolment --------------------------------------------------------------------------------------------------------


def test_an_enrolment_gives_the_mean_voice() -> None:
    profile = enrol([("a.wav", [turn(0, like(0.95, 1)), turn(2, like(0.95, 2))]), ("b.wav", [turn(0, ME, lasts_s=4)])])
    assert profile.voice @ ME > 0.95


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
        return whole([*turns, *stage.flush()])


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="module")
def scene(heard: Heard) -> list[SpeakerTurn]:
    return heard.turns(read_audio(TALK / "talk.flac"))


ENROLMENT = read_audio(TALK / "enrolment.flac")
JUDGE = load(data_folder("models") / "evidence" / "dvector.npz")


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
    items = decide(MainSpeaker(JUDGE, GateSettings(), Mode.SELECTIVE, me if knows_me else None), scene)
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


def test_one_who_is_near_is_not_heard_with_the_enrolment_of_one_who_is_far(
    heard: Heard, scene: list[SpeakerTurn]
) -> None:
    """Whoever is enrolled is the main speaker, and nobody else, however near and long they speak."""
    audio = read_audio(TALK / "talk.flac")
    alone = [audio[seconds(start) : seconds(end)] for start, end in ((12.8, 15.4), (19.7, 22.5), (32.5, 35.2))]
    far = enrol([("bystander.wav", [turn for part in alone for turn in heard.turns(part)])])
    items = decide(MainSpeaker(JUDGE, GateSettings(), Mode.SELECTIVE, far), scene)
    admitted = [item.span for item in items if isinstance(item, AdmittedTurn)]
    near, himself = (
        false_accept(admitted, spoken("bystander"), spoken("main")),
        false_accept(admitted, spoken("main"), spoken("bystander")),
    )
    assert near.total > seconds(20)
    assert near.accuracy is not None
    assert near.accuracy <= 0.05
    assert himself.accuracy is not None
    assert himself.accuracy >= 0.8


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
