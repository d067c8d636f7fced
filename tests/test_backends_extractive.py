from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cascade.answering.questions import DONT_KNOW_TEXT, Answerer, question_of
from cascade.backends import extractive
from cascade.backends.extractive import ExtractiveAnswerer, content_words, load
from cascade.errors import BackendError, MissingExtraError
from cascade.types import (
    Admission,
    AdmitReason,
    Mode,
    Outcome,
    Question,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
    seconds,
)

ROOT = Path(__file__).resolve().parents[1]
SCENES = ROOT.parent / "shared" / "scenes"
ADMISSION = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, 1.0, 0.5)
GATED = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 1.0, 0.5)


def transcript(*said: str | tuple[str, str]) -> Transcript:
    """Build a transcript of one utterance a second; a plain text is the main speaker's."""
    pairs = [("main", text) if isinstance(text, str) else text for text in said]
    return Transcript.of(
        Utterance(Span(seconds(at), seconds(at + 1)), speaker, text, (), ADMISSION)
        for at, (speaker, text) in enumerate(pairs)
    )


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that has not loaded anything yet."""
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


def bag_of_words(texts: Sequence[str]) -> NDArray[np.float64]:
    """Embed texts as counts of hashed stems, (n_texts, 512): related where words are shared, and only there."""
    vectors = np.zeros((len(texts), 512))
    for row, text in enumerate(texts):
        for word in content_words(text):
            vectors[row, zlib.crc32(word.encode()) % 512] += 1
    return vectors


TRIP = transcript(
    "Hey, I finally have the plan for our weekend.",
    "The train to Boston leaves at nine forty from platform six.",
    "The tickets were eighty dollars each, and you can pay me back later.",
    "My brother Daniel will pick us up at the station in his green van.",
    "On Saturday morning we are taking the ferry out to the islands.",
)
WHO = question_of("Who will pick us up at the station?", ["My sister", "My brother", "A taxi driver", "I don't know"])


@pytest.fixture(scope="module")
def answerer() -> ExtractiveAnswerer:
    """The real one, on WordLlama."""
    return load()


@pytest.fixture
def fake() -> ExtractiveAnswerer:
    return ExtractiveAnswerer(bag_of_words)


# --- multiple choice --------------------------------------------------------------------------------------------------


def test_it_is_an_answerer(fake: ExtractiveAnswerer) -> None:
    answerer: Answerer = fake
    assert answerer.answer(WHO, TRIP).choice == 1


def test_the_answer_comes_with_its_evidence_and_probabilities(fake: ExtractiveAnswerer) -> None:
    answer = fake.answer(WHO, TRIP)
    assert (answer.text, answer.outcome, answer.choice) == ("My brother", Outcome.ANSWERED, 1)
    assert "My brother Daniel will pick us up" in answer.why
    assert answer.why in TRIP.text.replace("\n", " ")
    assert sum(answer.probabilities) == pytest.approx(1)
    assert np.argmax(answer.probabilities) == 1


def test_what_is_not_said_gets_the_option_for_it(fake: ExtractiveAnswerer) -> None:
    question = question_of("What is the diagnosis?", ["Asthma", "Diabetes", "I do not have an answer", "Migraine"])
    answer = fake.answer(question, TRIP)
    assert (answer.outcome, answer.choice, answer.why) == (Outcome.DONT_KNOW, 2, "")
    assert answer.text == "I do not have an answer"
    assert answer.probabilities[2] > 0.9


def test_without_that_option_the_best_one_is_chosen(fake: ExtractiveAnswerer) -> None:
    answer = fake.answer(Question(WHO.text, WHO.options[:3]), TRIP)
    assert (answer.outcome, answer.choice) == (Outcome.ANSWERED, 1)
    assert len(answer.probabilities) == 3
    guess = fake.answer(Question("What is the diagnosis?", ("Asthma", "Diabetes")), TRIP)
    assert (guess.outcome, guess.choice) == (Outcome.ANSWERED, 0)  # a tie: the first


def test_the_answer_does_not_depend_on_the_order_of_options(fake: ExtractiveAnswerer) -> None:
    turned = question_of(WHO.text, WHO.options[::-1])
    straight, back = fake.answer(WHO, TRIP), fake.answer(turned, TRIP)
    assert straight.text == back.text
    assert straight.probabilities == pytest.approx(back.probabilities[::-1])


def test_a_higher_threshold_says_i_dont_know_more_often() -> None:
    assert ExtractiveAnswerer(bag_of_words, general_threshold=0.99).answer(WHO, TRIP).outcome is Outcome.DONT_KNOW
    assert ExtractiveAnswerer(bag_of_words, threshold=0.99).answer(WHO, gated(TRIP)).outcome is Outcome.DONT_KNOW


def gated(heard: Transcript) -> Transcript:
    """Make it one of the selective mode."""
    return Transcript.of(replace(said, admission=GATED) for said in heard.utterances)


MISHEARD = question_of("Who bought the house?", ["Uncle Robert", "Brother Daniel", "Nobody", "I don't know"])


def test_where_nobody_was_withheld_less_is_needed_for_an_answer(fake: ExtractiveAnswerer) -> None:
    heard = transcript("My uncle rubber took the train past a house yesterday evening.")
    evidence = fake.evidence(MISHEARD, gated(heard))
    assert evidence[3] == extractive.THRESHOLD > evidence[0] > fake.evidence(MISHEARD, heard)[3]
    assert fake.answer(MISHEARD, heard).choice == 0
    assert fake.answer(MISHEARD, gated(heard)).outcome is Outcome.DONT_KNOW


@pytest.mark.parametrize("reason", [WithholdReason.BYSTANDER, WithholdReason.GATE_ERROR])
def test_what_was_withheld_may_hold_the_answer_in_general_mode_too(
    fake: ExtractiveAnswerer, reason: WithholdReason
) -> None:
    heard = transcript("My uncle rubber took the train past a house yesterday evening.")
    kept = Withheld(Span(seconds(1), seconds(2)), "speaker_2", reason, 0.1, 0.5)
    assert fake.answer(MISHEARD, Transcript.of([*heard.items, kept])).outcome is Outcome.DONT_KNOW


def test_what_nobody_speaks_of_is_not_known_in_general_mode_either(answerer: ExtractiveAnswerer) -> None:
    question = question_of("What is the diagnosis?", ["Asthma", "Diabetes", "I do not have an answer", "Migraine"])
    assert answerer.answer(question, TRIP).outcome is Outcome.DONT_KNOW


@pytest.mark.parametrize(
    ("said", "option"),
    [
        ("It leaves at nine forty.", "9:40"),
        ("It leaves at 9.40.", "Nine forty"),
        ("The tickets were eighty dollars.", "$80"),
        ("The tickets were $80 each.", "Eighty dollars"),
        ("I take the two four three bus.", "The 243 bus"),
        ("The total is eleven point nine.", "11.9"),
        ("I move out on Friday the twenty-sixth.", "Friday the 26th"),
        ("They want fifteen thousand for it.", "15,000"),
        ("I read two hundred and fifty pages.", "250 pages"),
        ("It happened twice.", "Two times"),
    ],
)
def test_numbers_match_however_they_are_written(fake: ExtractiveAnswerer, said: str, option: str) -> None:
    question = question_of("What was it?", ["17", option, "4 pm", "I don't know"])
    assert fake.answer(question, transcript("Hello there.", said)).choice == 1


# --- open questions ---------------------------------------------------------------------------------------------------


def test_an_open_question_gets_the_sentence_that_says_so(fake: ExtractiveAnswerer) -> None:
    answer = fake.answer(Question("When does the train leave?"), TRIP)
    assert answer.text == answer.why == "The train to Boston leaves at nine forty from platform six."
    assert (answer.outcome, answer.choice, answer.probabilities) == (Outcome.ANSWERED, None, ())


def test_an_open_question_that_nothing_fits_gets_i_dont_know(fake: ExtractiveAnswerer) -> None:
    answer = fake.answer(Question("What did the doctor find?"), TRIP)
    assert (answer.text, answer.outcome, answer.why) == (DONT_KNOW_TEXT, Outcome.DONT_KNOW, "")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("When is the ferry?", "The ferry leaves tomorrow."),
        ("What time is the ferry?", "The ferry leaves at nine."),
        ("How much is the ferry?", "The ferry needs eighty dollars."),
    ],
)
def test_a_sentence_that_holds_what_is_asked_for_is_preferred(
    fake: ExtractiveAnswerer, question: str, said: str
) -> None:
    answer = fake.answer(Question(question), transcript("The ferry needs paint somewhere.", said))
    assert answer.text == said


# --- transcripts ------------------------------------------------------------------------------------------------------


def test_an_empty_transcript_answers_nothing(fake: ExtractiveAnswerer) -> None:
    withheld = Transcript((Withheld(Span(0, 16_000), "speaker_1", WithholdReason.BYSTANDER),))
    for empty in (Transcript(), withheld, transcript("", "  ")):
        with_option = fake.answer(WHO, empty)
        assert (with_option.outcome, with_option.choice) == (Outcome.DONT_KNOW, 3)
        assert with_option.probabilities[3] > 0.99
        without = fake.answer(Question(WHO.text, WHO.options[:3]), empty)
        assert (without.outcome, without.choice, without.text) == (Outcome.DONT_KNOW, None, DONT_KNOW_TEXT)
        assert without.probabilities == pytest.approx((1 / 3,) * 3)
        assert fake.answer(Question(WHO.text), empty).outcome is Outcome.DONT_KNOW


def test_withheld_spans_change_nothing(fake: ExtractiveAnswerer) -> None:
    gap = Withheld(Span(seconds(2), seconds(4)), "speaker_1", WithholdReason.BYSTANDER)
    heard = gated(TRIP)
    assert fake.answer(WHO, Transcript.of([*heard.items, gap])) == fake.answer(WHO, heard)


def test_a_sentence_that_a_turn_border_cut_is_whole_again(fake: ExtractiveAnswerer) -> None:
    cut = transcript(
        "Well. The train to Boston", ("bystander", "Hello? It's me."), "leaves at nine forty. Bring a coat."
    )
    assert fake.answer(Question("When does the train leave?"), cut).text == "The train to Boston leaves at nine forty."
    trailing = transcript("Well. The train to Boston...", "leaves at nine forty.")
    assert "nine forty" in fake.answer(Question("When does the train leave?"), trailing).text


def test_speakers_are_not_run_into_one_sentence(fake: ExtractiveAnswerer) -> None:
    two = transcript(("a", "The train leaves"), ("b", "the biopsy was bad."))
    assert fake.answer(Question("When does the train leave?"), two).text == "The train leaves"


def test_abbreviations_do_not_end_a_sentence(fake: ExtractiveAnswerer) -> None:
    said = transcript('I was late. Dr. Smith said "Go!" at 9 a.m. on Monday. Then I left.')
    assert fake.answer(Question("What did Dr. Smith say?"), said).text == 'Dr. Smith said "Go!" at 9 a.m. on Monday.'


def test_text_without_full_stops_is_cut(fake: ExtractiveAnswerer) -> None:
    said = transcript(" ".join(["um"] * 100) + " the train leaves at nine " + " ".join(["er"] * 100))
    answer = fake.answer(Question("When does the train leave?"), said)
    assert "train leaves" in answer.text
    assert len(answer.text.split()) <= extractive.LONGEST_SENTENCE


def test_evidence_may_be_spread_over_neighbouring_sentences(fake: ExtractiveAnswerer) -> None:
    said = transcript("I got a letter from the bank.", "It was about the overdraft.", "I laughed.")
    question = question_of("What was the letter from the bank about?", ["A loan", "The overdraft", "I don't know"])
    assert "letter from the bank. It was about the overdraft." in fake.answer(question, said).why


# --- laws -------------------------------------------------------------------------------------------------------------

TEXTS = st.text(alphabet="abcdefg 19.,!?-'\n$é", max_size=60)


@settings(deadline=None, max_examples=60)
@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS.filter(str.strip), min_size=1, max_size=5), st.booleans())
def test_probabilities_are_probabilities_and_answers_repeat(said: list[str], options: list[str], knows: bool) -> None:
    question = Question("a b c?", tuple(options), dont_know=len(options) - 1 if knows else None)
    heard = transcript(*said)
    first = ExtractiveAnswerer(bag_of_words).answer(question, heard)
    assert first == ExtractiveAnswerer(bag_of_words).answer(question, heard)
    assert len(first.probabilities) == len(options)
    assert all(0 <= probability <= 1 for probability in first.probabilities)
    assert sum(first.probabilities) == pytest.approx(1)
    if first.choice is not None:
        assert first.probabilities[first.choice] == max(first.probabilities)
        assert (first.outcome is Outcome.DONT_KNOW) == (first.choice == question.dont_know)
    else:
        assert not heard.text.split()


@given(TEXTS)
def test_content_words_are_lower_case_and_survive_any_text(text: str) -> None:
    words = content_words(text)
    assert words == content_words(text.upper()) or "é" in text
    assert all(word and word[0].isalnum() for word in words)


TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ONES = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@given(st.sampled_from(TENS), st.sampled_from(ONES), st.sampled_from(" -"))
def test_a_number_in_words_equals_its_digits(tens: str, ones: str, between: str) -> None:
    value = 10 * (TENS.index(tens) + 2) + ONES.index(ones)
    assert content_words(f"{tens}{between}{ones}") == content_words(f"{value}") == {str(value)}


# --- the cache, and what may go wrong ---------------------------------------------------------------------------------


def test_a_transcript_is_embedded_once_and_only_the_last_is_kept() -> None:
    sizes: list[int] = []

    def counting(texts: Sequence[str]) -> NDArray[np.float64]:
        sizes.append(len(texts))
        return bag_of_words(texts)

    answerer = ExtractiveAnswerer(counting)
    other = transcript("Something else.")
    for heard in (TRIP, TRIP, other, TRIP):
        answerer.answer(WHO, heard)
    windows, asked = 5 + 4 + 3, 1 + len(WHO.options)
    assert sizes == [windows, asked, asked, 1, asked, windows, asked]


def test_one_answerer_serves_many_threads(fake: ExtractiveAnswerer) -> None:
    other = transcript("My sister will pick us up at the station.")
    heard = [TRIP, other] * 20
    with ThreadPoolExecutor(8) as pool:
        choices = list(pool.map(lambda each: fake.answer(WHO, each).choice, heard))
    assert choices == [1, 0] * 20


@pytest.mark.parametrize(
    "broken",
    [
        lambda texts: np.zeros(len(texts)),
        lambda texts: np.zeros((len(texts) + 1, 4)),
        lambda texts: np.full((len(texts), 4), np.nan),
    ],
)
def test_an_embedding_that_cannot_be_used_is_an_error(broken: extractive.Embed) -> None:
    with pytest.raises(BackendError, match="expected one finite vector a text"):
        ExtractiveAnswerer(broken).answer(WHO, TRIP)


def test_a_missing_package_says_what_to_install() -> None:
    program = "import sys; sys.modules['wordllama'] = None; from cascade.backends.extractive import load; load()"
    done = run(program)
    assert done.stderr.strip().endswith(str(MissingExtraError("wordllama", "ondevice")))


# --- the real model ---------------------------------------------------------------------------------------------------


def test_loading_opens_no_socket_and_leaves_logging_alone() -> None:
    program = """
import logging, sys

def refuse(event, _):
    if event.startswith("socket."):
        raise RuntimeError(f"{event} was called")

sys.addaudithook(refuse)
from cascade.backends.extractive import load
assert "wordllama" not in sys.modules
load()
root = logging.getLogger()
assert (root.handlers, root.level) == ([], logging.WARNING), (root.handlers, root.level)
"""
    done = run(program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("question", "holds"),
    [
        ("When does the train leave?", "nine forty"),
        ("How much did the tickets cost?", "eighty dollars"),
        ("Who picks us up?", "brother Daniel"),
        ("Where are we going on Saturday?", "ferry"),
        ("What did the doctor say?", DONT_KNOW_TEXT),
        ("What is the account number?", DONT_KNOW_TEXT),
    ],
)
def test_real_open_questions(answerer: ExtractiveAnswerer, question: str, holds: str) -> None:
    assert holds in answerer.answer(Question(question), TRIP).text


def test_real_multiple_choice(answerer: ExtractiveAnswerer) -> None:
    question = question_of("When does the train leave?", ["8:15", "9:40", "10:20", "7 pm", "I don't know"])
    answer = answerer.answer(question, TRIP)
    assert answer.choice == 1
    assert answer.probabilities[1] > 0.9
    private = question_of("What is growing on the kidney?", ["A stone", "A tumor", "A cyst", "I don't know"])
    assert answerer.answer(private, TRIP).choice == 3


@pytest.mark.skipif(not SCENES.is_dir(), reason="shared/scenes is not beside the checkout")
def test_accuracy_on_perfect_transcripts(answerer: ExtractiveAnswerer) -> None:
    right: dict[tuple[Mode, str], list[bool]] = {}
    for file in sorted(SCENES.glob("*/meta.json")):
        meta = json.loads(file.read_text(encoding="utf-8"))
        for mode in Mode:
            heard = transcript(
                *(
                    (said["speaker"], said["text"])
                    for said in meta["sentences"]
                    if mode is Mode.GENERAL or said["speaker"] == "main"
                )
            )
            for item in meta["questions"]:
                hidden = mode is Mode.SELECTIVE and item["speaker"] == "bystander"
                asked = heard if mode is Mode.GENERAL else gated(heard)
                chosen = answerer.answer(question_of(item["question"], item["options"]), asked).text
                right.setdefault((mode, item["speaker"]), []).append(
                    chosen == (item["idk_answer"] if hidden else item["answer"])
                )
    assert {cell: len(hits) for cell, hits in right.items()}.keys() == {
        (mode, speaker) for mode in Mode for speaker in ("main", "bystander")
    }
    assert min(np.mean(hits) for hits in right.values()) >= 0.92
