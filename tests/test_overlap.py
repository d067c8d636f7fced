"""Where others speak in a turn: which stretches, what is heard there, and how the source stands in for the mixture."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.diarization import HOP, LOUD_OVERLAP, SURROUNDINGS
from cascade.evidence import FRAME
from cascade.overlap import (
    FADE,
    JOINED,
    STEP,
    foreground_of,
    foreground_parts,
    is_in_foreground,
    is_separated,
    source_turn,
    stretches,
    with_source,
)
from cascade.types import Samples, Span, SpeakerTurn, Vector, seconds

START = 12_345
"""Turns begin anywhere: the gate's frames are counted from there."""

VOICE = np.array([1, 0], np.float32)


@dataclass
class Ear:
    """An encoder that knows a voice by the sign of its samples, none in silence, and keeps what it heard."""

    window: int = 1600
    heard: list[Samples] = field(default_factory=list)

    def __call__(self, samples: Samples, /) -> Vector:
        assert samples.shape == (self.window,)
        self.heard.append(samples)
        if not samples.any():
            return np.full(2, np.nan, np.float32)
        return np.array([1, 0] if samples.mean() > 0 else [0, 1], np.float32)


def turn_of(
    mixture: Samples, source: Samples | None = None, *overlaps: tuple[int, int], windows: int = 0
) -> SpeakerTurn:
    """Return a turn; overlaps are counted from its start."""
    return SpeakerTurn(
        Span(START, START + len(mixture)),
        "speaker_1",
        mixture,
        VOICE,
        -20.0,
        tuple(Span(START + start, START + end) for start, end in overlaps),
        np.zeros(0, np.float32) if source is None else source,
        np.tile(VOICE, (windows, 1)) if windows else np.zeros((0, 2), np.float32),
    )


def full(value: float, duration_s: float = 2.0) -> Samples:
    return np.full(seconds(duration_s), value, np.float32)


# --- where ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9_999), min_size=2, max_size=10, unique=True).map(sorted))
def test_stretches_are_the_overlaps_in_whole_frames_and_never_less(places: list[int]) -> None:
    overlaps = list(zip(places[::2], places[1::2], strict=False))
    found = stretches(turn_of(np.zeros(10_000, np.float32), None, *overlaps))
    for one, two in itertools.pairwise(found):
        assert two.start - one.end >= JOINED
    for stretch in found:
        assert (stretch.start - START) % FRAME == 0
        assert (stretch.end - START) % FRAME == 0 or stretch.end == START + 10_000
    for start, end in overlaps:
        assert any(one.start <= START + start and START + end <= one.end for one in found)
    assert sum(map(len, found)) < sum(end - start for start, end in overlaps) + len(overlaps) * (2 * FRAME + JOINED)


def test_a_turn_in_which_nobody_else_speaks_has_none() -> None:
    assert stretches(turn_of(full(0.5))) == []


# --- what is heard there ----------------------------------------------------------------------------------------------


def test_no_window_reaches_out_of_a_stretch() -> None:
    """Beside it the main speaker is alone, and would vouch for whoever is in it."""
    source = full(0.3)
    source[8000:16000] = -0.3
    turn, ear = turn_of(full(0.5), source, (8000, 16000)), Ear()
    (stretch,) = stretches(turn)
    heard = source_turn(turn, stretch, ear)
    assert heard is not None
    np.testing.assert_array_equal(heard.samples, source[8000:16000])
    np.testing.assert_array_equal(heard.embeddings, np.tile([0, 1], (3, 1)))
    np.testing.assert_array_equal(heard.embedding, [0, 1])
    np.testing.assert_array_equal(heard.before, source[8000 - SURROUNDINGS : 8000])
    np.testing.assert_array_equal(heard.after, source[16000 : 16000 + SURROUNDINGS])
    assert heard.overlaps == ()
    assert heard.level_db == pytest.approx(20 * np.log10(0.3), abs=0.01)
    assert all((window < 0).all() for window in ear.heard)


def test_what_is_no_number_beside_a_stretch_is_silence() -> None:
    source = full(0.3)
    source[7000], source[17_000] = np.nan, np.inf
    heard = source_turn(turn_of(full(0.5), source, (8000, 16000)), Span(START + 8000, START + 16000), Ear())
    assert heard is not None
    assert (heard.before == 0).sum() == (heard.after == 0).sum() == 1


def test_windows_follow_a_voice_that_changes_within_a_stretch() -> None:
    source = full(0.3)
    source[seconds(1) :] = -0.3
    heard = source_turn(turn_of(full(0.5), source, (0, seconds(2))), Span(START, START + seconds(2)), Ear())
    assert heard is not None
    assert heard.embeddings[:, 0].tolist() == [1] * 5 + [0] * 5
    assert len(heard.embeddings) == seconds(2) / STEP


def test_what_is_shorter_than_a_window_is_repeated() -> None:
    source, ear = full(0.1), Ear()
    source[3200:4160] = np.linspace(-0.5, -0.2, 960)
    assert source_turn(turn_of(full(0.5), source, (3200, 4160)), Span(START + 3200, START + 4160), ear) is not None
    np.testing.assert_array_equal(ear.heard, [np.concatenate([source[3200:4160], source[3200:3840]])])


@pytest.mark.parametrize(
    "source",
    [None, full(0), full(5e-5), full(np.nan), full(np.inf), np.where(np.arange(32_000) == 9000, np.nan, full(0.3))],
    ids=["none", "silence", "hardly a sound", "NaN", "inf", "one NaN"],
)
def test_of_no_source_or_one_without_sound_nothing_is_told(source: Samples | None) -> None:
    turn = turn_of(full(0.5), source, (8000, 16000))
    assert source_turn(turn, stretches(turn)[0], Ear()) is None


def test_of_a_source_that_sounds_like_no_voice_nothing_is_told() -> None:
    class Deaf(Ear):
        def __call__(self, samples: Samples, /) -> Vector:
            return np.full(2, np.nan, np.float32)

    assert source_turn(turn_of(full(0.5), full(0.3), (0, 8000)), Span(START, START + 8000), Deaf()) is None


# --- what goes on -----------------------------------------------------------------------------------------------------


def test_the_source_stands_in_where_others_speak_and_nowhere_else() -> None:
    turn = turn_of(full(0.5), full(0.3), (8000, 16000), windows=20)
    handed = with_source(turn)
    np.testing.assert_array_equal(handed.samples[:8000], 0.5)
    np.testing.assert_allclose(handed.samples[8000 + FADE : 16000 - FADE], 0.3)
    np.testing.assert_array_equal(handed.samples[16000:], 0.5)
    assert np.abs(np.diff(handed.samples)).max() <= 0.2 / FADE + 1e-6, "no click"
    assert np.isnan(handed.embeddings[5:10]).all()
    np.testing.assert_array_equal(np.delete(handed.embeddings, range(5, 10), axis=0), np.tile(VOICE, (15, 1)))
    np.testing.assert_array_equal(turn.samples, 0.5)
    np.testing.assert_array_equal(turn.embeddings, np.tile(VOICE, (20, 1)))


@pytest.mark.parametrize("source", [None, full(0), full(np.nan)], ids=["none", "silence", "NaN"])
def test_without_a_source_the_mixture_stays(source: Samples | None) -> None:
    np.testing.assert_array_equal(with_source(turn_of(full(0.5), source, (8000, 16000))).samples, 0.5)


def test_a_turn_without_overlap_stays_as_it_is() -> None:
    turn = turn_of(full(0.5), full(0.3), windows=4)
    np.testing.assert_array_equal(with_source(turn).samples, turn.samples)
    np.testing.assert_array_equal(with_source(turn).embeddings, turn.embeddings)


# --- the foreground ---------------------------------------------------------------------------------------------------

ALL = Span(START, START + seconds(2))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (full(0.4), True),
        (full(0.21), True),
        (full(0.2), False),
        (full(0), False),
        (full(np.nan), False),
        (full(np.inf), False),
        (np.where(np.arange(32_000) == 9000, np.nan, full(0.4)).astype(np.float32), False),
    ],
    ids=["all of it", "a bit more than a quarter", "a quarter", "silence", "NaN", "inf", "one NaN"],
)
def test_who_is_in_the_foreground_has_more_than_a_quarter_of_the_power_there(source: Samples, expected: bool) -> None:
    assert is_in_foreground(turn_of(full(0.4), source), ALL) is expected


def test_with_the_foreground_goes_a_tenth_of_the_power_of_the_rest() -> None:
    source = np.linspace(0.1, 0.3, seconds(2), dtype=np.float32)
    turn = turn_of(full(0.4), source)
    part = Span(START + seconds(0.5), START + seconds(1))
    rest = foreground_of(turn, part) - source[seconds(0.5) : seconds(1)]
    expected = (0.4 - source[seconds(0.5) : seconds(1)]) / np.sqrt(10)
    np.testing.assert_allclose(rest, expected, atol=1e-6)


def test_where_all_is_in_the_foreground_it_is_what_was_heard() -> None:
    turn = turn_of(full(0.4), full(0.4))
    handed = foreground_of(turn, ALL)
    np.testing.assert_array_equal(handed, turn.samples)
    assert not np.shares_memory(handed, turn.samples)
    assert not np.shares_memory(handed, turn.source)


def test_where_separation_failed_for_a_moment_nothing_goes_on() -> None:
    source = full(0.3)
    source[seconds(1) : seconds(1.1)] = 0
    handed = foreground_of(turn_of(full(0.4), source), ALL)
    assert not handed[seconds(1) : seconds(1.1)].any()
    assert handed[: seconds(1)].all()
    assert handed[seconds(1.1) :].all()


def test_a_mixture_that_is_no_number_is_nowhere() -> None:
    mixture = full(0.4)
    mixture[9000] = np.nan
    assert not is_in_foreground(turn_of(mixture, full(0.4)), ALL)


def test_only_the_part_that_is_asked_for_counts() -> None:
    source = full(0.4)
    source[seconds(1) :] = 0
    turn = turn_of(full(0.4), source)
    assert is_in_foreground(turn, Span(START, START + seconds(1)))
    assert not is_in_foreground(turn, Span(START + seconds(1), START + seconds(2)))


def test_in_silence_nobody_is_missed() -> None:
    assert is_in_foreground(turn_of(full(0), full(0)), ALL)
    assert foreground_parts(turn_of(full(0), full(0)), ALL) == [ALL]


def test_without_a_source_there_is_no_foreground() -> None:
    with pytest.raises(ValueError, match="without a source has no foreground"):
        is_in_foreground(turn_of(full(0.4)), ALL)


def in_seconds(parts: list[Span]) -> list[tuple[float, float]]:
    """Return parts in seconds of their turn."""
    return [((part.start - START) / 16_000, (part.end - START) / 16_000) for part in parts]


@pytest.mark.parametrize(
    ("level", "lasts_s", "expected"),
    [
        (0.1, 0.5, [(0, 1), (1, 1.5), (1.5, 2)]),
        (0.1, 0.3, [(0, 1), (1, 1.3), (1.3, 2)]),
        (0.1, 0.2, [(0, 2)]),
        (0.3, 0.5, [(0, 2)]),
        (0.01, 0.5, [(0, 2)]),
        (0.0, 0.5, [(0, 1), (1, 1.5), (1.5, 2)]),
        (0.5, 0.5, [(0, 1), (1, 1.5), (1.5, 2)]),
    ],
    ids=["somebody else", "for a short word", "for a moment", "most of it", "hardly a sound", "failed", "too loud"],
)
def test_it_is_cut_where_the_foreground_may_hold_somebody_else(
    level: float, lasts_s: float, expected: list[tuple[float, float]]
) -> None:
    """A bystander in the foreground, of whom the mixture cannot tell: the main speaker is louder in it.

    So it is where separation failed: a recogniser would invent words in the silence.
    """
    source = full(0.4)
    source[seconds(1) : seconds(1 + lasts_s)] = level
    turn = turn_of(full(0.4), source)
    parts = foreground_parts(turn, ALL)
    assert in_seconds(parts) == expected
    assert [is_in_foreground(turn, part) for part in parts] == [part not in ((1, 1.5), (1, 1.3)) for part in expected]


@pytest.mark.parametrize(
    ("level", "in_foreground", "separated"),
    [
        (0.4, True, True),
        (0.1, False, True),
        (1e-6, False, True),
        (0.0, False, False),
        (0.44, True, True),
        (0.46, False, False),
        (np.nan, False, False),
        (np.inf, False, False),
    ],
)
def test_a_foreground_is_a_part_of_what_is_heard(level: float, in_foreground: bool, separated: bool) -> None:
    turn = turn_of(full(0.4), full(level))
    assert (is_in_foreground(turn, turn.span), is_separated(turn, turn.span)) == (in_foreground, separated)


def test_silence_is_separated() -> None:
    turn = turn_of(full(0), full(0))
    assert is_in_foreground(turn, turn.span)
    assert is_separated(turn, turn.span)
    with pytest.raises(ValueError, match="without a source"):
        is_separated(turn_of(full(0)), turn.span)


SHARES = st.lists(st.sampled_from([0.0, 0.02, 0.2, 0.45, 0.6, 1.0]), min_size=1, max_size=25)


@given(SHARES, st.integers(0, HOP - 1), st.integers(0, 3))
def test_the_parts_cover_a_piece_once_and_what_is_cut_out_is_not_in_the_foreground(
    shares: list[float], rest: int, start: int
) -> None:
    source = np.repeat(np.array(shares, np.float32), HOP)[: max(1, len(shares) * HOP - rest)]
    turn = turn_of(np.ones_like(source), source)
    span = Span(START + min(start * HOP, len(source) - 1), START + len(source))
    parts = foreground_parts(turn, span)
    assert (parts[0].start, parts[-1].end) == (span.start, span.end)
    assert all(one.end == two.start for one, two in itertools.pairwise(parts))
    for part in parts[1:-1]:
        soft = np.square(source[part.start - START : part.end - START]).mean() < 0.01
        assert len(part) >= LOUD_OVERLAP or is_in_foreground(turn, part) or part.end == span.end or soft
    lacking = [part for part in parts if not is_in_foreground(turn, part)] if len(parts) > 1 else []
    for part in lacking:
        assert np.square(source[part.start - START : part.end - START]).mean() < 0.26
