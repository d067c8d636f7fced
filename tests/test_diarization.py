"""Turns in a world where each voice is a tone, heard by perfect models; and the laws with the real ones.

The tones stand for what the models make of voices: the encoder's fake gives the amplitudes of all tones in its window,
so two voices at once look like a mixture of both, as they do to a real encoder.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cascade.audio import read_audio
from cascade.backends import dvector, silero
from cascade.diarization import (
    BEHIND,
    FLOOR_DB,
    HOP,
    SURROUNDINGS,
    UNKNOWN,
    ClusteringSettings,
    Diarizer,
    ForegroundDiarizer,
    combine,
    level_db,
    level_handicap_db,
)
from cascade.separation import Encoder
from cascade.speech import FRAME, SpeechDetector
from cascade.types import SAMPLE_RATE, Samples, SeparatedChunk, Span, SpeakerTurn, Vector, seconds
from cascade.types import whole as whole_turns

TALK = Path(__file__).parents[1] / "benchmarks" / "talk"
PITCHES = (1000, 2000, 3000, 4500)
A, B, C, D = range(4)
NEAR, FAR = 0.3, 0.1
"""Amplitudes; 9.5 dB apart."""

Part = tuple[float, dict[int, float]]
"""Seconds, and the amplitude of each voice that speaks for so long."""


class Tones:
    """An encoder: the amplitude of each voice's tone in the window, as a unit vector; NaN where there is none."""

    window = seconds(0.5)

    def __init__(self) -> None:
        times = np.arange(self.window) / SAMPLE_RATE
        self._waves = np.exp(-2j * np.pi * np.outer(PITCHES, times))

    def __call__(self, samples: Samples, /) -> Vector:
        amplitudes = np.abs(self._waves @ samples)
        norm = np.linalg.norm(amplitudes)
        return (amplitudes / norm if norm > 0 else np.full(len(PITCHES), np.nan)).astype(np.float32)


TONES = Tones()


def hears_sound(frame: Samples) -> float:
    return float(np.abs(frame).max() > 1e-4)


def scene(*parts: Part) -> Samples:
    """Make audio (n_samples,) in which voices speak one part after the other."""
    pieces, start = [np.zeros(0, np.float32)], 0
    for duration_s, voices in parts:
        times = np.arange(start, start + seconds(duration_s)) / SAMPLE_RATE
        waves = [amplitude * np.sin(2 * np.pi * PITCHES[voice] * times) for voice, amplitude in voices.items()]
        pieces.append(np.sum([np.zeros(len(times)), *waves], axis=0).astype(np.float32))
        start += len(times)
    return np.concatenate(pieces)


def says(voice: int, duration_s: float, amplitude: float = NEAR) -> Part:
    return duration_s, {voice: amplitude}


def pause(duration_s: float) -> Part:
    return duration_s, {}


def stage(
    clustering: ClusteringSettings | None = None,
    detect: SpeechDetector = hears_sound,
    encode: Encoder = TONES,
) -> Diarizer:
    return Diarizer(detect, encode, clustering or ClusteringSettings())


def chunks(audio: Samples, positions: Iterable[int] = ()) -> list[SeparatedChunk]:
    return [
        SeparatedChunk(Span(start, end), audio[start:end], audio[None, start:end])
        for start, end in itertools.pairwise(sorted({0, *positions, len(audio)}))
    ]


def told(audio: Samples, positions: Iterable[int] = (), diarizer: Diarizer | None = None) -> list[SpeakerTurn]:
    """Return all that is told of turns, while they go on and once they are whole."""
    diarizer = diarizer or stage()
    turns = [turn for chunk in chunks(audio, positions) for turn in diarizer.push(chunk)]
    return turns + list(diarizer.flush())


def turns_of(audio: Samples, positions: Iterable[int] = (), diarizer: Diarizer | None = None) -> list[SpeakerTurn]:
    return whole_turns(told(audio, positions, diarizer))


def speakers(turns: Sequence[SpeakerTurn]) -> list[str]:
    return [turn.speaker for turn in turns]


def described(turns: Iterable[SpeakerTurn]) -> list[tuple[object, ...]]:
    """Return all that a turn holds as something that can be compared."""
    return [
        (
            (turn.span, turn.speaker, turn.level_db, turn.overlaps, turn.background, turn.goes_on),
            [
                (array.shape, array.tobytes())
                for array in (turn.samples, turn.source, turn.embedding, turn.embeddings, turn.before, turn.after)
            ],
        )
        for turn in turns
    ]


# --- laws, in any scene -----------------------------------------------------------------------------------------------

VOICES = st.dictionaries(st.sampled_from((A, B, C)), st.sampled_from((NEAR, FAR)), max_size=2)
SCENES = st.lists(st.tuples(st.floats(0.01, 1.8), VOICES), max_size=12).map(lambda parts: scene(*parts))
MIXED = scene(
    says(A, 2.0), says(B, 1.3, FAR), pause(0.3), (0.8, {A: NEAR, B: FAR}), says(C, 0.2), pause(0.7), says(A, 1)
)


@given(SCENES, st.lists(st.floats(0, 1), max_size=30))
@example(MIXED, [index / 50 for index in range(50)])
@settings(max_examples=40, deadline=None)
def test_cutting_changes_nothing(audio: Samples, places: list[float]) -> None:
    positions = [int(place * len(audio)) for place in places]
    assert described(told(audio, positions)) == described(told(audio))


@given(SCENES, st.integers(200, 8000))
@example(MIXED, 160)
@example(scene(says(A, 70)), 1600)
@example(scene(says(A, 2.1), pause(0.4), says(A, 1)), 160)
@example(scene(says(A, 2), pause(0.4), says(B, 1)), 160)
@example(scene(says(A, 2.05), pause(0.36), says(B, 1)), 160)
@settings(max_examples=40, deadline=None)
def test_nothing_comes_later_than_lookahead(audio: Samples, step: int) -> None:
    whole, diarizer, out = turns_of(audio), stage(), list[SpeakerTurn]()
    for chunk in chunks(audio, range(0, len(audio), step)):
        out += whole_turns(diarizer.push(chunk))
        due = [turn.span for turn in whole if turn.span.end <= chunk.span.end - diarizer.lookahead]
        assert [turn.span for turn in out][: len(due)] == due


@given(SCENES)
@example(MIXED)
@settings(max_examples=40, deadline=None)
def test_turns_follow_each_other_and_hold_their_audio(audio: Samples) -> None:
    turns = turns_of(audio)
    for before, after in itertools.pairwise(turns):
        assert before.span.end <= after.span.start
    for turn in turns:
        assert turn.span
        np.testing.assert_array_equal(turn.samples, audio[turn.span.start : turn.span.end])
        np.testing.assert_array_equal(turn.before, audio[max(0, turn.span.start - SURROUNDINGS) : turn.span.start])
        np.testing.assert_array_equal(turn.after, audio[turn.span.end : turn.span.end + len(turn.after)])
        assert len(turn.after) <= SURROUNDINGS
        assert turn.embedding.shape == (len(PITCHES),) or np.isnan(turn.embedding).all()
        assert np.isfinite(turn.level_db)


@given(SCENES, SCENES, SCENES)
@example(MIXED, scene(says(B, 2)), scene(pause(2)))
@settings(max_examples=30, deadline=None)
def test_what_follows_does_not_change_a_turn_that_is_out(audio: Samples, one: Samples, other: Samples) -> None:
    """Nor what it tells of its surroundings: that ends where the stream was heard when the turn was known."""
    first, second = stage(), stage()
    turns = [turn for chunk in chunks(np.concatenate([audio, one]), [len(audio)]) for turn in first.push(chunk)]
    others = [turn for chunk in chunks(np.concatenate([audio, other]), [len(audio)]) for turn in second.push(chunk)]
    alone = [turn for chunk in chunks(audio) for turn in stage().push(chunk)]
    assert described(turns[: len(alone)]) == described(others[: len(alone)]) == described(alone)


@given(SCENES)
@example(MIXED)
@example(scene(says(A, 27)))
@example(scene(says(A, 24.9), pause(0.2), says(A, 3), says(B, 0.4), says(A, 3)))
@settings(max_examples=40, deadline=None)
def test_what_is_told_of_a_turn_that_goes_on_is_how_the_whole_one_begins(audio: Samples) -> None:
    begun = list[SpeakerTurn]()
    for turn in told(audio):
        if turn.goes_on:
            begun.append(turn)
            continue
        for early, later in itertools.pairwise([*begun, turn]):
            assert early.span.start == later.span.start
            assert early.span.end < later.span.end or later is turn
            assert early.span.end <= later.span.end
            assert early.speaker in (later.speaker, UNKNOWN)
            np.testing.assert_array_equal(early.samples, later.samples[: len(early.samples)])
            np.testing.assert_array_equal(early.before, later.before)
            known = np.isfinite(early.embeddings).all(axis=1)
            np.testing.assert_array_equal(early.embeddings[known], later.embeddings[: len(early.embeddings)][known])
            np.testing.assert_array_equal(early.after, audio[early.span.end : early.span.end + len(early.after)])
        begun = []
    assert not begun


def test_a_turn_that_goes_on_is_told_of_while_it_goes_on() -> None:
    """Every 0.2 s, as soon as a label is certain."""
    diarizer, heard = stage(), list[tuple[int, SpeakerTurn]]()
    for chunk in chunks(audio := scene(says(A, 6)), range(0, 6 * SAMPLE_RATE, 160)):
        heard += [(chunk.span.end, turn) for turn in diarizer.push(chunk)]
    assert len(audio) == 6 * SAMPLE_RATE
    assert all(turn.goes_on for _, turn in heard)
    ends = [turn.span.end for _, turn in heard]
    assert set(np.diff(ends)) == {2 * HOP}
    assert max(at - turn.span.end for at, turn in heard) <= TONES.window // 2 + 4 * HOP
    assert len(audio) - ends[-1] <= TONES.window // 2 + 6 * HOP


def test_what_is_heard_after_a_turn_reaches_as_far_as_a_pause_tells() -> None:
    (turn,) = turns_of(scene(pause(1), says(A, 2), pause(2)))
    assert len(turn.before) == SURROUNDINGS
    assert len(turn.after) == SURROUNDINGS


def test_windows_are_spread_over_the_turn() -> None:
    """One for each hop; those in which nobody speaks have none."""
    audio = scene(pause(1), says(A, 2), pause(0.35), says(A, 1), pause(1))
    (turn,) = turns_of(audio)
    assert turn.embeddings.shape == (-(-len(turn.span) // HOP), len(PITCHES))
    heard = np.asarray(np.isfinite(turn.embeddings).all(axis=1), bool)
    quiet = (np.flatnonzero(~heard) * HOP + turn.span.start) / SAMPLE_RATE
    assert all(any(low <= place <= high for low, high in ((0.7, 1.0), (2.9, 3.4), (4.2, 4.7))) for place in quiet)
    assert not heard[0]
    assert not heard[-1]
    assert heard.sum() >= 28
    np.testing.assert_allclose(turn.embeddings[heard].mean(axis=0), turn.embedding, atol=1e-6)


def test_windows_tell_where_in_a_turn_the_voice_changes() -> None:
    """A voice too brief to be known goes with the turn that it touches; its windows say what it is."""
    turns = turns_of(scene(says(A, 2), says(C, 0.3), says(A, 1), pause(1)))
    sure = [turn.embeddings[np.isfinite(turn.embeddings).all(axis=1)] for turn in turns]
    windows = np.concatenate(sure)
    assert windows[:, A].max() > 0.95
    assert windows[:, C].max() > 0.7


def test_a_turn_of_nobody_has_no_windows() -> None:
    (turn,) = turns_of(scene(says(A, 0.4)))
    assert turn.embeddings.shape == (0, 1)


def test_long_speech_is_cut_and_memory_stays_bounded() -> None:
    clustering, audio = ClusteringSettings(longest_s=8.0), scene(says(A, 60))
    diarizer, turns, most = stage(clustering), list[SpeakerTurn](), 0
    for chunk in chunks(audio, range(0, len(audio), HOP)):
        turns += whole_turns(diarizer.push(chunk))
        most = max(most, len(diarizer._buffer))
    turns += whole_turns(diarizer.flush())
    assert most <= seconds(8.0 + 2 * clustering.pad_s) + TONES.window + seconds(1.0)
    assert all(turn.span.duration_s <= 8.0 + 2 * clustering.pad_s for turn in turns)
    assert sum(len(turn.span) for turn in turns) == len(audio)
    assert set(speakers(turns)) == {"speaker_1"}


def test_memory_is_bounded_in_long_silence() -> None:
    diarizer, audio = stage(), scene(pause(60))
    for chunk in chunks(audio, range(0, len(audio), HOP)):
        assert list(diarizer.push(chunk)) == []
        assert len(diarizer._buffer) <= TONES.window + seconds(1.0)


def test_a_long_turn_ends_at_a_short_pause_rather_than_within_a_word() -> None:
    audio = scene(says(A, 6.0), pause(0.25), says(A, 6.0))
    first, second = turns_of(audio, diarizer=stage(ClusteringSettings(longest_s=8.0)))
    assert 6.0 <= first.span.end_s <= 6.2
    assert second.span.start_s < 6.25


def test_lookahead_is_at_most_a_second() -> None:
    assert stage(encode=dvector.load()).lookahead <= seconds(1.0)


# --- turns ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("audio", [scene(), scene(pause(3)), scene(pause(0.02))], ids=["nothing", "silence", "20 ms"])
def test_where_nobody_speaks_there_is_no_turn(audio: Samples) -> None:
    assert turns_of(audio) == []


def test_a_turn_reaches_a_little_around_its_speech() -> None:
    (turn,) = turns_of(scene(pause(1), says(A, 2), pause(1)))
    assert 0.7 <= turn.span.start_s <= 0.9
    assert 3.1 <= turn.span.end_s <= 3.3
    assert turn.speaker == "speaker_1"
    assert turn.level_db == pytest.approx(20 * np.log10(NEAR / np.sqrt(2)), abs=1.0)
    assert turn.embedding @ TONES(scene(says(A, 0.5))) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("pause_s", "n_turns"), [(0.3, 1), (1.0, 2)])
def test_a_short_pause_does_not_end_a_turn(pause_s: float, n_turns: int) -> None:
    turns = turns_of(scene(says(A, 2), pause(pause_s), says(A, 2)))
    assert speakers(turns) == ["speaker_1"] * n_turns


def test_a_turn_ends_where_the_voice_changes_and_labels_hold() -> None:
    turns = turns_of(scene(says(A, 2), says(B, 2), says(A, 2), pause(1), says(B, 2)))
    assert speakers(turns) == ["speaker_1", "speaker_2", "speaker_1", "speaker_2"]
    assert [turn.span.end_s for turn in turns[:2]] == pytest.approx([2, 4], abs=0.25)


def test_a_far_voice_does_not_take_the_overlap_from_a_near_one() -> None:
    turns = turns_of(scene(says(A, 2), says(B, 2, FAR), says(A, 1), (1.0, {A: NEAR, B: 0.28}), says(A, 1)))
    assert speakers(turns) == ["speaker_1", "speaker_2", "speaker_1"]
    assert turns[-1].span.duration_s == pytest.approx(3, abs=0.3)


def test_overlap_goes_to_the_near_voice_even_if_it_sounds_more_like_the_far_one() -> None:
    """At a near speaker's level, a far one alone cannot be: the level outweighs a small lead in similarity."""
    both = (0.8, {A: 0.16, B: 0.18})
    turns = turns_of(scene(says(A, 2, 0.2), says(B, 2, 0.07), says(A, 1, 0.2), both, pause(1)))
    assert speakers(turns) == ["speaker_1", "speaker_2", "speaker_1"]
    assert turns[-1].span.duration_s == pytest.approx(2.0, abs=0.3)


def test_a_soft_word_end_is_no_new_voice() -> None:
    turns = turns_of(scene(says(A, 2), says(C, 0.15, 0.01), pause(1), says(A, 1)))
    assert speakers(turns) == ["speaker_1", "speaker_1"]
    assert turns[0].span.end_s >= 2.1


def test_what_is_nobodys_for_a_moment_is_no_turn() -> None:
    assert speakers(turns_of(scene(says(A, 2), pause(1), says(C, 0.05), pause(1)))) == ["speaker_1"]


def test_who_speaks_too_briefly_to_be_known_is_unknown() -> None:
    turns = turns_of(scene(says(A, 2), pause(1), says(C, 0.55), pause(1)))
    assert speakers(turns) == ["speaker_1", UNKNOWN]


@pytest.mark.parametrize("softer", [4, 300])
def test_a_fading_voice_remains_the_same(softer: float) -> None:
    turns = turns_of(scene(says(A, 3), says(A, 1, NEAR / softer), pause(1)))
    assert speakers(turns) == ["speaker_1"]


def test_a_fresh_voice_is_not_split_by_a_loud_first_syllable() -> None:
    """The level of a voice follows quickly at first, since its first hops may be unlike the rest."""
    hoarse = (1.5, {A: 0.03, C: 0.04})
    assert set(speakers(turns_of(scene(says(A, 0.15, 0.5), says(A, 1.0, 0.05), hoarse)))) == {"speaker_1"}


def test_no_more_voices_are_known_than_allowed() -> None:
    turns = turns_of(scene(says(A, 2), says(B, 2), says(C, 2)), diarizer=stage(ClusteringSettings(max_voices=2)))
    assert speakers(turns) == ["speaker_1", "speaker_2", UNKNOWN]


# --- where the models can tell nothing --------------------------------------------------------------------------------


class Useless:
    """An encoder that cannot tell anything."""

    window = Tones.window

    def __call__(self, samples: Samples, /) -> Vector:
        return np.full(4, np.nan, np.float32)


@pytest.mark.parametrize(
    ("audio", "encode"),
    [(scene(says(A, 2)), Useless()), (scene(says(A, 0.4)), TONES)],
    ids=["no embedding", "shorter than a window"],
)
def test_speech_without_an_embedding_is_a_turn_of_nobody(audio: Samples, encode: Encoder) -> None:
    turns = turns_of(audio, diarizer=stage(encode=encode))
    assert speakers(turns) == [UNKNOWN]
    assert all(np.isnan(turn.embedding).all() for turn in turns)
    assert sum(len(turn.span) for turn in turns) == len(audio)


def test_samples_that_are_no_numbers_have_no_voice() -> None:
    """A quantised encoder gives a finite embedding for NaN; it must not be asked."""
    audio = np.full(seconds(2), 0.1, np.float32)
    audio[:: 2 * FRAME] = np.nan  # in every second frame, so that there is speech between them
    turns = turns_of(audio, diarizer=stage(detect=lambda frame: 1.0, encode=dvector.load()))
    assert speakers(turns) == [UNKNOWN]
    assert all(np.isnan(turn.embedding).all() for turn in turns)


# --- several sources --------------------------------------------------------------------------------------------------


def separated(sources: Samples, positions: Iterable[int] = (), diarizer: Diarizer | None = None) -> list[SpeakerTurn]:
    """Return the turns of what these sources (n_sources, n_samples) add up to."""
    diarizer, mixture = diarizer or stage(), sources.sum(axis=0)
    edges = itertools.pairwise(sorted({0, *positions, sources.shape[1]}))
    chunks = [SeparatedChunk(Span(start, end), mixture[start:end], sources[:, start:end]) for start, end in edges]
    return whole_turns([turn for chunk in chunks for turn in diarizer.push(chunk)] + list(diarizer.flush()))


def talked_over(turn: SpeakerTurn) -> list[tuple[float, float]]:
    """Return where others speak in a turn, in seconds of the stream."""
    return [(overlap.start_s, overlap.end_s) for overlap in turn.overlaps]


def two(a: Samples, b: Samples, leak: float = 0.0) -> Samples:
    """Return the sources of two who speak, each with some of the other; the second speaks first."""
    length = max(len(a), len(b))
    one, other = (np.pad(track, (0, length - len(track))) for track in (a, b))
    return np.stack([other * (1 - leak) + one * leak, one * (1 - leak) + other * leak]).astype(np.float32)


TALKED_OVER = (scene(says(A, 4), pause(1.5)), scene(pause(2), says(B, 0.6, FAR), pause(2.2), says(B, 0.7, FAR)))
"""A speaks from 0 to 4 s; B, who is softer, from 2 to 2.6 and from 4.8 to 5.5 s."""


@pytest.mark.parametrize("leak", [0.0, 0.05])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_turn_has_the_mixture_and_the_source_of_its_voice(swapped: bool, leak: float) -> None:
    sources = two(*TALKED_OVER, leak)
    first, second = separated(sources[::-1].copy() if swapped else sources)
    for turn, own in ((first, sources[1]), (second, sources[0])):
        np.testing.assert_array_equal(turn.samples, sources.sum(axis=0)[turn.span.start : turn.span.end])
        np.testing.assert_array_equal(turn.source, own[turn.span.start : turn.span.end])


def test_it_hears_the_mixture() -> None:
    sources = two(*TALKED_OVER)
    plain = turns_of(sources.sum(axis=0))
    for turn, other in zip(separated(sources), plain, strict=True):
        assert described([replace(turn, source=other.source, overlaps=other.overlaps)]) == described([other])


def test_where_another_source_is_loud_others_speak() -> None:
    assert [talked_over(turn) for turn in separated(two(*TALKED_OVER))] == [[(2.0, 2.6)], []]


@pytest.mark.parametrize(("lasts_s", "gap_s", "expected"), [(0.2, 0.4, []), (0.3, 0.4, [(1, 1.3), (1.7, 2)])])
def test_a_source_that_is_loud_for_a_moment_is_nobody_else(
    lasts_s: float, gap_s: float, expected: list[tuple[float, float]]
) -> None:
    b = scene(pause(1), says(B, lasts_s, FAR), pause(gap_s), says(B, lasts_s, FAR))
    (turn,) = separated(two(scene(says(A, 3)), b))
    assert talked_over(turn) == expected


def test_moments_that_are_close_to_each_other_are_one() -> None:
    b = scene(pause(1), *[says(B, 0.1, FAR), pause(0.2)] * 3)
    (turn,) = separated(two(scene(says(A, 3)), b))
    assert talked_over(turn) == [(1, 1.7)]


def test_what_separation_left_of_a_voice_is_nobody_else() -> None:
    """A twentieth of each is in the other's source, 26 dB below it."""
    sources = two(scene(says(A, 3)), scene(pause(4.5), says(B, 1.0, FAR)), 0.05)
    assert [talked_over(turn) for turn in separated(sources)] == [[], []]


def test_faint_noise_in_a_pause_is_nobody_else() -> None:
    a = scene(says(A, 1), pause(0.3), says(A, 1))
    noise = np.random.default_rng(0).normal(0, 0.002, len(a)).astype(np.float32)
    assert [talked_over(turn) for turn in separated(np.stack([a, noise]))] == [[]]


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_source_without_sound_is_nobodys(value: float) -> None:
    a = scene(says(A, 2))
    (turn,) = separated_from(a, np.stack([np.full_like(a, value), a]))
    np.testing.assert_array_equal(turn.source, a)
    assert not turn.overlapped


def test_where_separation_fails_others_may_speak() -> None:
    a = scene(says(A, 3))
    sources = two(a, scene(says(B, 0)))
    for silent in (0.0, np.nan):
        sources[:, seconds(1) : seconds(2)] = silent
        (turn,) = separated_from(a, sources)
        assert talked_over(turn) == [(1, 2)]
    (turn,) = separated_from(a, np.zeros_like(sources))
    assert talked_over(turn) == [(0, 3)]


def separated_from(mixture: Samples, sources: Samples) -> list[SpeakerTurn]:
    diarizer = stage()
    return whole_turns([*diarizer.push(SeparatedChunk(Span(0, len(mixture)), mixture, sources)), *diarizer.flush()])


def test_a_single_source_is_nobodys() -> None:
    assert [len(turn.source) for turn in turns_of(scene(says(A, 2)))] == [0]


def test_a_short_turn_under_another_voice_keeps_the_source_that_its_voice_had() -> None:
    """By itself it would be given the source that is loudest in it just then."""
    a = scene(says(A, 3), pause(4))
    b = scene(pause(4), says(B, 0.4), pause(2.6))
    sources = np.stack([a, b])
    sources[:, seconds(4) :] = sources[::-1, seconds(4) :].copy()
    sources[1] += scene(pause(5.5), says(A, 1), pause(0.5))
    turns = separated(sources)
    assert turns[0].speaker == turns[-1].speaker == "speaker_1"
    np.testing.assert_array_equal(turns[-1].source, sources[0, turns[-1].span.start : turns[-1].span.end])
    assert turns[-1].overlapped


def test_the_number_of_sources_does_not_change() -> None:
    diarizer, audio = stage(), scene(says(A, 1))
    diarizer.push(SeparatedChunk(Span(0, 16_000), audio, np.stack([audio, audio])))
    with pytest.raises(ValueError, match="expected 2 sources, as before; got 1"):
        diarizer.push(SeparatedChunk(Span(16_000, 32_000), audio, audio[None]))


SOURCES = st.tuples(SCENES, SCENES).map(lambda tracks: two(*tracks, 0.03))


@given(SOURCES, st.lists(st.integers(0, 200_000), max_size=30))
@example(two(*TALKED_OVER, 0.1), list(range(0, 88_000, 160)))
@settings(max_examples=25, deadline=None)
def test_cutting_changes_nothing_of_several_sources(sources: Samples, positions: list[int]) -> None:
    cuts = [position for position in positions if position < sources.shape[1]]
    assert described(separated(sources, cuts)) == described(separated(sources))


def test_memory_does_not_grow_with_several_sources() -> None:
    diarizer = stage()
    sources = two(scene(*[says(A, 1.5), pause(1)] * 40), scene(*[pause(1.2), says(B, 0.8, FAR), pause(0.5)] * 40))
    mixture = sources.sum(axis=0)
    for start in range(0, len(mixture), 8000):
        part = slice(start, start + 8000)
        diarizer.push(SeparatedChunk(Span(start, start + len(mixture[part])), mixture[part], sources[:, part]))
        assert all(len(buffer) < seconds(30) for buffer in diarizer._sources._buffers)


# --- foreground and background ----------------------------------------------------------------------------------------


def by_distance() -> ForegroundDiarizer:
    return ForegroundDiarizer((hears_sound, hears_sound), TONES, ClusteringSettings())


def parted(
    near: Samples, far: Samples, positions: Iterable[int] = (), mixture: Samples | None = None
) -> list[SeparatedChunk]:
    """Return the chunks of a foreground and a background, cut at these positions; they add up to the mixture."""
    length = max(len(near), len(far))
    sources = np.stack([np.pad(track, (0, length - len(track))) for track in (near, far)])
    mixture = sources.sum(axis=0) if mixture is None else mixture
    edges = itertools.pairwise(sorted({0, *(place for place in positions if place < length), length}))
    return [SeparatedChunk(Span(start, end), mixture[start:end], sources[:, start:end]) for start, end in edges]


def told_of(chunks: Iterable[SeparatedChunk]) -> list[SpeakerTurn]:
    diarizer = by_distance()
    return [turn for chunk in chunks for turn in diarizer.push(chunk)] + list(diarizer.flush())


def test_turns_of_the_mixture_have_the_foreground_and_the_background_has_its_own() -> None:
    near, far = TALKED_OVER
    near = np.pad(near, (0, len(far) - len(near)))
    turns = whole_turns(told_of(parted(near, far)))
    mixture, behind = ([turn for turn in turns if turn.background is one] for one in (False, True))
    alone = turns_of(near + far)
    assert [turn.span for turn in mixture] == [turn.span for turn in alone]
    for turn, plain in zip(mixture, alone, strict=True):
        np.testing.assert_array_equal(turn.source, near[turn.span.start : turn.span.end])
        assert described([replace(turn, source=plain.source, overlaps=())]) == described([plain])
    assert [talked_over(turn) for turn in mixture] == [[(2.0, 2.6)], [(4.8, 5.5)]], "never its own"
    assert [turn.span.start_s for turn in behind] == pytest.approx([1.8, 4.6], abs=0.11)
    assert [turn.span.end_s for turn in behind] == pytest.approx([2.8, 5.5], abs=0.11)
    for turn in behind:
        np.testing.assert_array_equal(turn.samples, far[turn.span.start : turn.span.end])
        assert (turn.speaker, len(turn.source), turn.overlaps) == (BEHIND, 0, ())
        assert np.isnan(turn.embedding).all()
        assert len(turn.embeddings) == 0


def test_the_background_is_one_whoever_speaks_in_it() -> None:
    far = scene(says(A, 2, FAR), says(B, 2, FAR), pause(0.3), says(C, 0.2, FAR), pause(1))
    (turn,) = [turn for turn in told_of(parted(scene(pause(5)), far)) if turn.background]
    assert turn.span.start == 0
    assert turn.span.end_s == pytest.approx(4.7, abs=0.11)


def test_where_the_network_gave_no_number_nobody_is_in_the_background() -> None:
    near = scene(says(A, 3), pause(1))
    assert not any(turn.background for turn in told_of(parted(near, np.full(len(near), np.nan, np.float32), (), near)))


PARTED = parted(scene(says(A, 2), pause(1), says(A, 1)), scene(pause(1), says(B, 1.5, FAR), says(C, 0.3, FAR)))[0]


@given(SCENES, SCENES, st.lists(st.integers(0, 400_000), max_size=30))
@example(*PARTED.sources, list(range(0, 64_000, 160)))
@example(*PARTED.sources, list(range(0, 64_000, 1601)))
@settings(max_examples=25, deadline=None)
def test_cutting_changes_neither_the_turns_of_both_nor_their_order(
    near: Samples, far: Samples, positions: list[int]
) -> None:
    """Nor what is told of turns that go on, which is shown as it lies in a buffer."""
    assert described(told_of(parted(near, far, positions))) == described(told_of(parted(near, far)))


@given(SCENES, SCENES, st.integers(200, 8000))
@example(*PARTED.sources, 160)
@example(scene(says(A, 2.05), pause(0.36), says(B, 1)), scene(pause(1)), 160)
@example(scene(says(A, 2), pause(0.4), says(B, 1)), scene(pause(1)), 160)
@settings(max_examples=20, deadline=None)
def test_neither_comes_later_than_lookahead(near: Samples, far: Samples, step: int) -> None:
    whole, diarizer, out = whole_turns(told_of(parted(near, far))), by_distance(), list[Span]()
    for chunk in parted(near, far, range(0, 400_000, step)):
        out += [turn.span for turn in whole_turns(diarizer.push(chunk))]
        assert {turn.span for turn in whole if turn.span.end <= chunk.span.end - diarizer.lookahead} <= set(out)


def test_what_is_told_of_a_turn_that_goes_on_has_the_foreground_so_far() -> None:
    near = scene(says(A, 3), pause(1))
    turns = told_of(parted(near, near * np.float32(0.3)))
    begun = [turn for turn in turns if turn.goes_on]
    assert len(begun) > 5
    for turn in begun:
        assert not turn.background
        np.testing.assert_array_equal(turn.source, near[turn.span.start : turn.span.end])


@pytest.mark.parametrize("n_sources", [1, 3])
def test_it_takes_a_foreground_and_a_background(n_sources: int) -> None:
    audio = scene(says(A, 1))
    with pytest.raises(ValueError, match=f"expected a foreground and a background, got {n_sources} source"):
        by_distance().push(SeparatedChunk(Span(0, len(audio)), audio, np.stack([audio] * n_sources)))


def test_a_gap_between_chunks_is_refused() -> None:
    near, far = PARTED.sources
    first, second, third = parted(near, far, [16_000, 32_000])
    diarizer = by_distance()
    diarizer.push(first)
    with pytest.raises(ValueError, match="a gap"):
        diarizer.push(third)
    diarizer.push(second)


def test_memory_does_not_grow_with_a_foreground_and_a_background() -> None:
    diarizer = by_distance()
    near, far = scene(*[says(A, 1.5), pause(1)] * 40), scene(says(B, 100, FAR))
    for chunk in parted(near, far, range(0, len(far), 8000)):
        diarizer.push(chunk)
        for part in (diarizer._mixture, diarizer._background):
            assert all(len(buffer) < seconds(30) for buffer in (part._buffer, *part._sources._buffers))
        assert all(len(buffer) < HOP for buffer in diarizer._waiting)


# --- levels -----------------------------------------------------------------------------------------------------------


def test_levels_are_relative_to_full_scale() -> None:
    assert level_db(np.ones(100, np.float32)) == pytest.approx(0)
    assert level_db(np.full(100, 0.1, np.float32)) == pytest.approx(-20)
    assert level_db(np.zeros(100, np.float32)) == level_db(np.zeros(0, np.float32)) == FLOOR_DB


@given(st.floats(-1, 1), st.floats(-60, 60), st.floats(-60, 60))
def test_being_softer_never_speaks_for_a_voice(similarity: float, level: float, softer: float) -> None:
    level, softer = max(level, softer), min(level, softer)
    assert combine(similarity, softer) <= combine(similarity, level) <= similarity
    assert level_handicap_db(softer, 0) >= level_handicap_db(level, 0) >= 0
    assert level_handicap_db(0, level) >= level_handicap_db(0, softer) >= 0


# --- with the real detector and encoder -------------------------------------------------------------------------------

PIECE = read_audio(TALK / "talk.flac")[seconds(6) : seconds(17)]
"""The main speaker, at last with the bystander over it; the bystander alone; the main speaker: 11 s."""


@pytest.fixture(scope="module")
def real() -> Callable[[], Diarizer]:
    detector, encoder = silero.load(), dvector.load()
    return lambda: Diarizer(detector(), encoder, ClusteringSettings())


@pytest.fixture(scope="module")
def whole(real: Callable[[], Diarizer]) -> list[SpeakerTurn]:
    return turns_of(PIECE, diarizer=real())


def test_real_speech_is_told_apart(whole: list[SpeakerTurn]) -> None:
    assert speakers(whole) == ["speaker_1", "speaker_1", "speaker_2", "speaker_1"]
    assert [turn.span.start_s for turn in whole] == pytest.approx([0, 2.67, 6.76, 9.92], abs=0.35)
    assert [turn.span.end_s for turn in whole] == pytest.approx([1.87, 6.1, 9.42, 11], abs=0.35)


@given(st.lists(st.integers(0, len(PIECE)), max_size=40))
@example(list(range(0, len(PIECE), FRAME - 1)))
@settings(max_examples=3, deadline=None)
def test_cutting_changes_nothing_for_the_real_models(
    real: Callable[[], Diarizer], whole: list[SpeakerTurn], positions: list[int]
) -> None:
    assert described(turns_of(PIECE, positions, real())) == described(whole)
