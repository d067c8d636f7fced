from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.asr import (
    HIGH_COMPRESSION_RATIO,
    MAX_PIECE,
    MIN_PIECE,
    SAME_TIME,
    RecognisedWord,
    Recogniser,
    Recognition,
    Transcriber,
    collapse_loops,
    compression_ratio,
    each_once,
    join,
    loop_limit,
    nearer,
    split_at_pauses,
)
from cascade.diarization import level_db
from cascade.errors import BackendError
from cascade.types import (
    SAMPLE_RATE,
    Admission,
    AdmitReason,
    AdmittedTurn,
    Mode,
    Samples,
    Span,
    Utterance,
    Withheld,
    WithholdReason,
    Word,
    seconds,
)

ADMISSION = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.5)


def noise(n_samples: int, seed: int = 0) -> Samples:
    return np.random.default_rng(seed).uniform(-0.1, 0.1, n_samples).astype(np.float32)


def turn(samples: Samples, start: int = 0) -> AdmittedTurn:
    return AdmittedTurn(Span(start, start + len(samples)), "main", samples, ADMISSION)


class Recorder:
    """A recogniser that remembers what it was shown."""

    def __init__(self) -> None:
        self.calls: list[Samples] = []

    def __call__(self, samples: Samples) -> Recognition:
        self.calls.append(samples)
        return said(" word")


def said(
    *texts: str, start: int = 0, step: int = 1600, no_speech: float = 0.0, log_probability: float = 0.0
) -> Recognition:
    words = [
        RecognisedWord(start + index * step, start + (index + 1) * step, text, 0.9) for index, text in enumerate(texts)
    ]
    return Recognition("".join(texts).strip(), tuple(words), no_speech, log_probability)


def hear(recognise: Recogniser, samples: Samples, start: int = 0) -> Utterance:
    (utterance,) = Transcriber(recognise).push(turn(samples, start))
    assert isinstance(utterance, Utterance)
    return utterance


def words_of(text: str) -> list[RecognisedWord]:
    return [RecognisedWord(index, index + 1, f" {word}", 1.0) for index, word in enumerate(text.split())]


def collapsed(text: str) -> tuple[str, bool]:
    kept, looped = collapse_loops(words_of(text))
    return join(kept), looped


# The stage


def test_a_turn_becomes_an_utterance_in_the_recordings_time() -> None:
    utterance = hear(lambda _: said(" Hello,", "  my  ", " friend."), noise(16_000), start=160_000)

    assert utterance.text == "Hello, my friend."
    assert [word.text for word in utterance.words] == ["Hello,", "my", "friend."]
    assert [word.span for word in utterance.words] == [
        Span(160_000, 161_600),
        Span(161_600, 163_200),
        Span(163_200, 164_800),
    ]
    assert (utterance.span, utterance.speaker, utterance.admission) == (Span(160_000, 176_000), "main", ADMISSION)
    assert not utterance.looped


def test_what_was_withheld_passes_by_unheard() -> None:
    recorder = Recorder()
    withheld = Withheld(Span(0, 16_000), "speaker_1", WithholdReason.BYSTANDER, 0.1)

    assert Transcriber(recorder).push(withheld) == (withheld,)
    assert recorder.calls == []


def test_text_comes_out_on_the_push_that_brings_the_turn() -> None:
    stage = Transcriber(lambda _: said(" word"))

    assert stage.lookahead == 0
    assert len(stage.push(turn(noise(16_000)))) == 1
    assert stage.flush() == ()


def test_a_turn_is_heard_by_itself_and_whole() -> None:
    recorder = Recorder()
    stage = Transcriber(recorder)
    turns = [turn(noise(16_000, seed), start=seed * 20_000) for seed in range(3)]
    for item in turns:
        stage.push(item)

    assert [call.tobytes() for call in recorder.calls] == [item.samples.tobytes() for item in turns]


@pytest.mark.parametrize("n_samples", [0, 1, 10, 160, 800, MIN_PIECE])
def test_a_turn_too_short_for_a_word_is_not_shown_to_the_recogniser(n_samples: int) -> None:
    assert Transcriber(lambda _: pytest.fail("called")).push(turn(noise(n_samples))) == ()


def test_a_turn_just_long_enough_is() -> None:
    assert hear(lambda _: said(" Yes."), noise(MIN_PIECE + 1)).text == "Yes."


def test_silence_is_not_shown_to_the_recogniser() -> None:
    assert Transcriber(lambda _: pytest.fail("called")).push(turn(np.zeros(32_000, np.float32))) == ()
    assert hear(lambda _: said(" quiet"), noise(32_000) * np.float32(0.01)).text == "quiet"


BYSTANDER = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, 0.1, 0.5)


def quieter(times: float) -> Samples:
    """Return a second of noise whose loudest sample is far below what the gain asks for."""
    return np.asarray(np.clip(noise(SAMPLE_RATE), -0.02, 0.02) / np.float32(times), np.float32)


def shown(samples: Samples, admission: Admission = BYSTANDER) -> Samples:
    """Return what the recogniser is shown of a turn."""
    recogniser = Recorder()
    Transcriber(recogniser).push(AdmittedTurn(Span(0, len(samples)), "speaker_2", samples, admission))
    (call,) = recogniser.calls
    return call


@pytest.mark.parametrize(("level_db_", "expected"), [(-35, -20), (-49, -20), (-55, -25), (-20, -20), (-15, -15)])
def test_in_general_mode_a_far_voice_is_brought_near(level_db_: float, expected: float) -> None:
    sine = np.sin(np.arange(SAMPLE_RATE) / 10).astype(np.float32)
    soft = sine * np.float32(10 ** ((level_db_ - level_db(sine)) / 20))
    assert level_db(shown(np.asarray(soft, np.float32))) == pytest.approx(expected, abs=0.01)


def test_a_voice_is_not_brought_so_near_that_it_clips() -> None:
    samples = quieter(1)
    samples[5000] = 0.5
    assert float(np.abs(shown(samples)).max()) == pytest.approx(1)


def test_what_is_heard_of_a_far_voice_does_not_depend_on_how_loud_it_is() -> None:
    np.testing.assert_allclose(shown(quieter(1)), shown(quieter(2)), rtol=1e-4)


@pytest.mark.parametrize(
    "admission",
    [ADMISSION, replace(ADMISSION, mode=Mode.GENERAL), replace(BYSTANDER, reason=AdmitReason.EVERYONE)],
    ids=["main, selective", "main, general", "no gate"],
)
def test_the_main_speaker_is_heard_as_loud_as_recorded(admission: Admission) -> None:
    soft = quieter(1)
    np.testing.assert_array_equal(shown(soft, admission), soft)


@given(st.integers(0, 2000), st.floats(0, 1, width=32))
def test_nothing_gets_softer_or_louder_than_full_scale(n_samples: int, amplitude: float) -> None:
    samples = noise(n_samples) * np.float32(10 * amplitude)
    near = nearer(samples)
    assert (np.abs(near) >= np.abs(samples)).all()
    assert (np.abs(near) <= 1 + 1e-6).all()


@pytest.mark.parametrize("text", ["", " ", ".", " ...", " - !"])
def test_a_turn_without_words_gives_no_utterance(text: str) -> None:
    assert Transcriber(lambda _: said(text)).push(turn(noise(16_000))) == ()


@pytest.mark.parametrize(
    ("no_speech", "log_probability", "kept"),
    [(0.9, -1.5, False), (0.9, -0.2, True), (0.1, -1.5, True), (0.6, -1.5, True), (0.9, -1.0, True)],
)
def test_text_that_the_recogniser_doubts_where_it_hears_no_speech_is_dropped(
    no_speech: float, log_probability: float, kept: bool
) -> None:
    heard = said(" Thanks", " for", " watching!", no_speech=no_speech, log_probability=log_probability)

    assert bool(Transcriber(lambda _: heard).push(turn(noise(16_000)))) is kept


def test_parts_of_a_word_are_joined_and_keep_their_time() -> None:
    utterance = hear(lambda _: said(" a", " follow", "-up", " at", " 9", ".40", "!"), noise(16_000))

    assert [word.text for word in utterance.words] == ["a", "follow-up", "at", "9.40!"]
    assert utterance.words[1].span == Span(1600, 4800)
    assert utterance.text == "a follow-up at 9.40!"


def test_a_language_without_spaces_stays_without() -> None:
    utterance = hear(lambda _: said("你", "好", "。"), noise(16_000))

    assert utterance.text == "你好。"
    assert [word.text for word in utterance.words] == ["你", "好。"]


def test_a_recogniser_without_word_times_gets_equal_shares() -> None:
    utterance = hear(lambda _: Recognition("one two  three four"), noise(16_000), start=100)

    assert utterance.text == "one two three four"
    assert [word.span for word in utterance.words] == [
        Span(100 + index * 4000, 4100 + index * 4000) for index in range(4)
    ]


def test_a_failure_says_where_and_never_what() -> None:
    def fail(samples: Samples) -> Recognition:
        raise RuntimeError("could not decode 'my secret diagnosis'")

    with pytest.raises(BackendError) as caught:
        Transcriber(fail).push(turn(noise(16_000), start=32_000))

    assert "[2.000 s, 3.000 s)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


ANYWHERE = st.integers(-(2**40), 2**40)


@given(
    length=st.integers(MIN_PIECE + 1, MIN_PIECE * 3),
    start=st.integers(0, 10**9),
    words=st.lists(st.tuples(ANYWHERE, ANYWHERE), min_size=1, max_size=30),
)
def test_words_lie_inside_their_turn_whatever_the_recogniser_says(
    length: int, start: int, words: Sequence[tuple[int, int]]
) -> None:
    heard = Recognition(
        "x", tuple(RecognisedWord(first, last, f" w{index}", 0.5) for index, (first, last) in enumerate(words))
    )
    utterance = hear(lambda _: heard, noise(length), start)
    spans = [word.span for word in utterance.words]

    assert len(spans) == len(words)
    assert all(utterance.span.start <= span.start < span.end <= utterance.span.end for span in spans)
    assert [span.start for span in spans] == sorted(span.start for span in spans)
    assert [span.end for span in spans] == sorted(span.end for span in spans)


# Long turns


@given(length=st.integers(0, MAX_PIECE * 4), seed=st.integers(0, 3))
def test_pieces_cover_a_turn_exactly(length: int, seed: int) -> None:
    pieces = split_at_pauses(noise(length, seed))

    assert pieces[0].start == 0
    assert pieces[-1].end == length
    assert all(before.end == after.start for before, after in pairwise(pieces))
    assert all(len(piece) <= MAX_PIECE for piece in pieces)
    assert all(len(piece) > MIN_PIECE for piece in pieces[1:])
    assert all(len(piece) >= MAX_PIECE * 2 // 3 for piece in pieces[:-1])


def test_a_turn_that_fits_is_not_cut() -> None:
    assert split_at_pauses(noise(MAX_PIECE)) == [Span(0, MAX_PIECE)]
    assert len(split_at_pauses(noise(MAX_PIECE + 1))) == 2


@pytest.mark.parametrize("pause_s", [19.0, 22.35, 27.7])
def test_the_cut_is_in_the_pause(pause_s: float) -> None:
    samples = noise(seconds(40))
    pause = slice(seconds(pause_s), seconds(pause_s + 0.25))
    samples[pause] = 0
    samples[seconds(5) : seconds(6)] = 0  # A longer one, but too early to fill the window.
    (piece, _) = split_at_pauses(samples)

    assert pause.start + 1600 <= piece.end <= pause.stop - 1600


def test_a_cut_does_not_depend_on_what_is_far_behind_it() -> None:
    samples = noise(seconds(60))

    assert split_at_pauses(samples)[0] == split_at_pauses(samples[: seconds(40)])[0]


def test_the_pieces_of_a_long_turn_make_one_utterance() -> None:
    samples = noise(seconds(50))
    pieces = split_at_pauses(samples)
    lengths: list[int] = []

    def recognise(piece: Samples) -> Recognition:
        lengths.append(len(piece))
        return said(f"part{len(lengths)}", "-a", " b", start=100)

    utterance = hear(recognise, samples, start=1000)

    assert lengths == [len(piece) for piece in pieces]
    assert utterance.text == "part1-a b part2-a b"
    assert utterance.words[2].span.start == 1000 + pieces[1].start + 100


def test_a_word_that_runs_over_its_piece_ends_with_it() -> None:
    samples = noise(seconds(50))
    first = split_at_pauses(samples)[0]
    utterance = hear(lambda _: said(" word", start=len(first) - 1000, step=SAMPLE_RATE), samples)

    assert utterance.words[0].span == Span(first.end - 1000, first.end)


# Loops


def test_a_long_turn_that_comes_back_to_the_same_words_is_no_loop() -> None:
    text = "the way goes over an old stone bridge behind our mill and up again past two farms until you see his church"
    utterance = hear(lambda _: said(*(f" {word}" for word in text.split())), noise(seconds(100)))

    assert utterance.text == " ".join([text] * len(split_at_pauses(noise(seconds(100)))))
    assert compression_ratio(utterance.text) > HIGH_COMPRESSION_RATIO
    assert not utterance.looped


@pytest.mark.parametrize(
    "text",
    [
        "no no no",
        "No, no, no, no, no!",
        "the code is seven seven seven seven",
        "one two one two one two one two",
        "thank you thank you thank you thank you",
        "I love you I love you I love you",
        "never let me down again never let me down again",
        "a b a c a b a c",
        "",
    ],
)
def test_what_people_repeat_stays(text: str) -> None:
    assert collapsed(text) == (" ".join(text.split()), False)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("you " * 8, "you"),
        ("so " + "you know " * 30, "so you know"),
        ("I am going to " * 4, "I am going to"),
        ("I'm sorry. " * 20 + "I'm", "I'm sorry."),
        ("we left. " + "OK. " * 12 + "then we came back", "we left. OK. then we came back"),
        ("and then we went to the old house again. " * 3, "and then we went to the old house again."),
        ("Yes, yes. YES! " * 4, "Yes,"),
        ("a b " * 6 + "c d " * 6, "a b c d"),
    ],
)
def test_a_loop_is_collapsed_to_one_occurrence_and_flagged(text: str, kept: str) -> None:
    assert collapsed(text) == (kept, True)


@given(phrase=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=20, unique=False), times=st.integers(1, 12))
def test_no_loop_is_left_and_no_word_is_new(phrase: list[str], times: int) -> None:
    words = words_of(" ".join(phrase * times))
    kept, looped = collapse_loops(words)

    assert looped == (len(kept) < len(words))
    assert set(kept) <= set(words)
    assert {word.text for word in kept} == {word.text for word in words}
    assert looped or times < loop_limit(len(phrase))


def test_an_utterance_says_that_it_was_a_loop() -> None:
    utterance = hear(lambda _: said(" so,", *[" you", " know,"] * 20, step=160), noise(16_000))

    assert utterance.looped
    assert utterance.text == "so, you know,"
    assert [word.span for word in utterance.words] == [Span(0, 160), Span(160, 320), Span(320, 480)]


def test_a_loop_within_a_word_is_flagged() -> None:
    assert hear(lambda _: said(" ha" + "ha" * 60), noise(16_000)).looped
    assert compression_ratio("The train to Boston leaves at nine forty from platform six.") < 1.2


# --- each word once ---------------------------------------------------------------------------------------------------

THEIRS = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, float("nan"), 0.5)
OWN = Admission(Mode.GENERAL, AdmitReason.MAIN_SPEAKER, 0.8, 0.5)
EDGE_S = 0.2


def spoken(text: str, start_s: float = 0.0, leave: Admission = THEIRS, certain: float = 0.9) -> Utterance:
    """Return an utterance with a word every 0.4 s, from EDGE_S after its start to EDGE_S before its end."""
    words = text.split()
    begins = [start_s + EDGE_S + 0.4 * place for place in range(len(words))]
    timed = tuple(
        Word(Span(seconds(begin), seconds(begin + 0.4)), word, certain)
        for word, begin in zip(words, begins, strict=True)
    )
    span = Span(seconds(start_s), seconds(start_s + 0.4 * len(words) + 2 * EDGE_S))
    return Utterance(span, "main" if leave is OWN else "background", text, timed, leave)


def texts(*utterances: Utterance) -> list[str]:
    return [utterance.text for utterance in each_once(utterances)]


def test_of_two_at_once_a_word_is_the_main_speakers() -> None:
    """However sure the recogniser was of the other."""
    main, far = spoken("The train leaves, now.", 0.0, OWN, 0.2), spoken("my train of thought", 0.1, certain=0.99)
    assert texts(main, far) == ["The train leaves, now.", "my of thought"]
    assert texts(far, main) == ["my of thought", "The train leaves, now."], "in the order in which they came"
    assert [word.text for word in each_once([main, far])[1].words] == ["my", "of", "thought"]


def test_else_it_is_where_the_recogniser_was_more_certain() -> None:
    sure, unsure = spoken("a kidney", certain=0.9), spoken("the kidney", certain=0.5)
    assert texts(unsure, sure) == ["the", "a kidney"]


def test_what_another_says_altogether_is_left_out() -> None:
    assert texts(spoken("hey there", 0, OWN), spoken("Hey there.", 0.1)) == ["hey there"]


@pytest.mark.parametrize(("apart_s", "once"), [(0.0, True), (0.25, True), (0.35, False)])
def test_the_same_word_at_another_time_is_another(apart_s: float, once: bool) -> None:
    assert apart_s == 0 or (seconds(apart_s) <= SAME_TIME) is once
    assert texts(spoken("yes", 0, OWN), spoken("yes no", apart_s)) == ["yes", "no" if once else "yes no"]


def test_a_word_that_is_said_twice_in_turns_that_follow_each_other_stays() -> None:
    """Nothing lies over anything there, and the gate may cut between the two."""
    first = Utterance(Span(0, 8000), "main", "no", (Word(Span(5000, 8000), "no", 0.9),), OWN)
    second = Utterance(Span(8000, 16_000), "main", "no", (Word(Span(8000, 9000), "no", 0.9),), OWN)
    assert each_once([first, second]) == [first, second]


def test_a_language_without_spaces_stays_without_when_a_word_goes() -> None:
    main, far = spoken("你", 0, OWN), replace(spoken("你 好 吗"), text="你好吗")
    assert texts(main, far) == ["你", "好吗"]


UTTERANCES = st.builds(
    spoken,
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map(" ".join),
    st.integers(0, 30).map(lambda tenths: tenths / 10),
    st.sampled_from([OWN, THEIRS]),
    st.sampled_from([0.3, 0.6, 0.9]),
)


@given(st.lists(UTTERANCES, max_size=5))
def test_each_word_is_told_once_and_no_time_of_a_word_is_lost(utterances: list[Utterance]) -> None:
    kept = each_once(utterances)
    words = [(word, utterance.span, place) for place, utterance in enumerate(kept) for word in utterance.words]
    for word, span, place in words:
        for other, beside, elsewhere in words:
            if place != elsewhere and span.overlaps(beside) and word.text == other.text:
                assert abs(word.span.start - other.span.start) > SAME_TIME - 2
    told = [(word.text, word.span.start) for word, _, _ in words]
    for utterance in utterances:
        for word in utterance.words:
            assert any(text == word.text and abs(start - word.span.start) <= SAME_TIME + 1 for text, start in told)
    assert each_once(kept) == kept


def test_a_long_recording_is_no_more_work_a_word() -> None:
    """The commonest word of three hours comes some thousand times; a transcript is made for each question."""
    utterances = [spoken("the " * 10, 5.0 * place, leave) for place in range(2000) for leave in (OWN, THEIRS)]
    began = time.process_time()
    assert len(each_once(utterances)) == 2000
    assert time.process_time() - began < 3
