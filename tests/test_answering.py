from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering import LETTERS, Answerer, dont_know_index, outcome_of, question_of, read_choice
from cascade.errors import QuestionError
from cascade.types import Answer, Outcome, Question, Transcript

SHBENCH = Path(__file__).resolve().parents[2] / "shared" / "shbench"

CITIES = question_of("Which city?", ["Berlin", "Amsterdam", "Copenhagen", "Stockholm", "I don't know"])
SUPPLEMENTS = question_of("Which supplement?", ["Vitamin C", "Vitamin D", "Iron", "Vitamin D and zinc", "Unknown"])
ARTICLES = question_of("Who?", ["A yoga instructor", "I do not have an answer", "A DMV", "A mobility coach", "The end"])
NO_IDK = question_of("Which city?", ["Berlin", "Amsterdam", "Copenhagen", "Stockholm"])

A, B, C, D, E = range(5)
ANSWERED, DONT_KNOW, UNPARSED, REFUSED, EMPTY = (
    Outcome.ANSWERED,
    Outcome.DONT_KNOW,
    Outcome.UNPARSED,
    Outcome.REFUSED,
    Outcome.EMPTY,
)


def read(reply: str, question: Question) -> tuple[int | None, Outcome]:
    reading = read_choice(reply, question)
    return reading.choice, reading.outcome


# --- questions --------------------------------------------------------------------------------------------------------


def test_a_question_without_options_is_open() -> None:
    assert question_of("When does the train leave?") == Question("When does the train leave?")


def test_the_option_that_says_i_dont_know_is_found() -> None:
    assert CITIES.dont_know == E
    assert ARTICLES.dont_know == B
    assert NO_IDK.dont_know is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("  ", (), "the question is empty"),
        ("Which?", ("one",), r"has 1 option\(s\); expected none, or 2 to 5"),
        ("Which?", tuple("123456"), "has 6 option"),
        ("Which?", ("one", " ", "three"), "option B of the question is empty"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(text: str, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        question_of(text, options)


def test_outcome_of_tells_an_answer_from_i_dont_know() -> None:
    assert outcome_of(CITIES, E) is DONT_KNOW
    assert outcome_of(CITIES, A) is ANSWERED
    assert outcome_of(NO_IDK, A) is ANSWERED


def test_a_chat_model_fits_the_protocol() -> None:
    class Chat:
        """Answers with what a model says to the transcript and the question, under its own prompt."""

        def __init__(self, prompt: str) -> None:
            self._prompt = prompt

        def answer(self, question: Question, transcript: Transcript) -> Answer:
            reply = f"{self._prompt}: (C)"
            reading = read_choice(reply, question)
            return Answer(reply, reading.outcome, reading.choice)

    answerer: Answerer = Chat("Answer")
    assert answerer.answer(CITIES, Transcript()).choice == C


@pytest.mark.parametrize(
    "option",
    [
        "I don't know",
        "I don’t know.",
        "I dont know",
        "Don't know",
        "We don't know",
        "I really don't know",
        "I do not know the answer",
        "I don't know the answer to this question",
        "I do not have an answer",
        "I don't have the answer",
        "I do not have the information to answer the question",
        "The audio does not provide enough information",
        "It is unknown",
        "Unknown",
        "unknown.",
        "Unclear",
        "cannot be determined",
        "Can't be determined from the audio",
        "It can not be determined based on the recording",
        "Cannot tell",
        "I can't answer this question",
        "Not mentioned",
        "Not mentioned in the audio",
        "It was not mentioned",
        "Not specified",
        "Not stated in the transcript",
        "not enough information",
        "There is not enough information to answer the question",
        "Insufficient information",
        "The information is not available",
        "No information",
        "The speaker does not say",
        "It doesn't say",
        "No idea",
        "I have no idea",
        "Not sure",
        "I'm not certain",
        "Sorry, I don't know",
        "No answer",
        "N/A",
        "IDK",
    ],
)
def test_an_option_that_means_i_dont_know(option: str) -> None:
    assert dont_know_index(["Paris", option, "Rome"]) == 1


@pytest.mark.parametrize(
    "option",
    [
        "He doesn't know",
        "She does not know the answer yet",
        "They didn't know about the party",
        "I don't know what to do",
        "To say I don't know",
        "Unknown caller",
        "The unknown soldier",
        "Nothing yet.",
        "No",
        "None of the above",
        "Not sure about the job",
        "Not known for its food",
        "No information desk",
        "There is no data plan",
        "Not mentioned twice but once",
    ],
)
def test_an_option_that_only_sounds_like_i_dont_know(option: str) -> None:
    assert dont_know_index(["Paris", option, "Rome"]) is None


def test_a_clear_i_dont_know_comes_before_a_terse_one() -> None:
    assert dont_know_index(["Unclear", "Very good", "I do not have the information to answer the question"]) == 2
    assert dont_know_index(["Unclear", "Very good"]) == 0


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        # a letter, and what is put around it
        ("B", B),
        ("b", B),
        ("B.", B),
        (" B \n", B),
        ("(B)", B),
        ("[B]", B),
        ("b)", B),
        ("**B**", B),
        ("`B`", B),
        ("$B$", B),
        ('"B"', B),
        ("Ｂ", B),
        ("a", A),
        ("A", A),
        ("\\boxed{B}", B),
        ("\\(\\boxed{\\text{B}}\\)", B),
        ("<answer>B</answer>", B),
        # a letter and the option's text
        ("B. Amsterdam", B),
        ("B) Amsterdam", B),
        ("(B) Amsterdam", B),
        ("B: Amsterdam", B),
        ("B - Amsterdam", B),
        ("B, because she says so.", B),
        ("A. Berlin. Option B is wrong.", A),
        ("D. Stockholm. Unlike option A, it fits.", D),
        ("The city she came back from was C. Copenhagen, as she says.", C),
        # a marked answer
        ("**Answer:** **B**", B),
        ("Answer: B", B),
        ("answer: b", B),
        ("Answer - B", B),
        ("Answer\n\nB", B),
        ("ANSWER: $B$", B),
        ("**Answer: (B)**", B),
        ("Answer: B. Amsterdam", B),
        ("Answer seems to be A", A),
        ("The answer is A because she says so", A),
        ("The correct answer is option C.", C),
        ("The best answer would be (D)", D),
        ("Antwort: C", C),
        ("Die Antwort ist C.", C),
        ("La réponse est C.", C),
        ("Based on the audio, the choice is D", D),
        ("The product is called EVA. So, the answer is B. If you have any other questions, feel free to ask!", B),
        ("The answer is C, not A.", C),
        ("I choose B", B),
        ("I'd go with C.", C),
        ("I would pick option D", D),
        ("It's D.", D),
        ("I think it's B", B),
        ("Well, so \\boxed{C}", C),
        ("B is correct", B),
        ("Option A is wrong, B is the correct answer.", B),
        ("I don't think it's B. The answer is C.", C),
        ("Option A: wrong\nOption B: wrong\nAnswer: C", C),
        ("A. Berlin\nB. Amsterdam\nC. Copenhagen\n\nThe answer is B.", B),
        ("It mentions C21. So, the correct answer is D.", D),
        # the last final answer
        ("The answer is A. Wait, no. Final answer: C", C),
        ("Final answer: A. Let me check. Final answer: C", C),
        # pointed at
        ("That would be option B", B),
        ("Hmm, (B) fits best", B),
        # thoughts, and turns that the model made up
        ("<think>Is it A? Or B?</think>C", C),
        ("B\nHuman: What about C?\nAnswer: C", B),
        ("B\n\nHuman: I'm sorry, but I can't share that", B),
        ("B\nI'm sorry, but I can't disclose personal details", B),
        ("B\nB\nB", B),
        # the option's own text
        ("Copenhagen", C),
        ("copenhagen.", C),
        ("Answer: Copenhagen", C),
        ("**Copenhagen**", C),
        ("She came back from Copenhagen.", C),
        ("Not Berlin but Copenhagen", C),
    ],
)
def test_a_choice_is_read(reply: str, choice: int) -> None:
    assert read(reply, CITIES) == (choice, ANSWERED)


@pytest.mark.parametrize(
    ("reply", "question", "choice"),
    [
        ("Vitamin D", SUPPLEMENTS, B),
        ("Vitamin D.", SUPPLEMENTS, B),
        ("She takes vitamin D and zinc.", SUPPLEMENTS, D),
        ("Answer: Vitamin D", SUPPLEMENTS, B),
        ("A mobility coach", ARTICLES, D),
        ("Answer: A mobility coach", ARTICLES, D),
        ("Answer: A DMV", ARTICLES, C),
        ("The answer is A. A yoga instructor", ARTICLES, A),
    ],
)
def test_the_text_of_an_option_is_not_mistaken_for_a_letter(reply: str, question: Question, choice: int) -> None:
    assert read(reply, question) == (choice, ANSWERED)


@pytest.mark.parametrize(
    "reply",
    [
        "E",
        "\\boxed{E}",
        "E. I don't know",
        "I don't know.",
        "I do not have an answer",
        "I don't have the information to answer this question.",
        "The audio doesn't provide enough information to answer the question. So I can't give a letter.",
        "The audio doesn't mention where she was. So there's no correct choice here.",
        "The recording does not clearly state which city.",
        "I'm sorry, but I can't answer this question based on the audio.",
        "It cannot be determined from the transcript.",
        "Unknown",
        "Not mentioned",
        "It is not mentioned in the recording that she went to Berlin.",
        "I'm not sure which city she means.",
        "There is no mention of a city.",
    ],
)
def test_i_dont_know_maps_to_its_option(reply: str) -> None:
    assert read(reply, CITIES) == (E, DONT_KNOW)


def test_i_dont_know_without_an_option_for_it_chooses_nothing() -> None:
    assert read("I don't know.", NO_IDK) == (None, DONT_KNOW)


def test_the_question_says_which_option_means_i_dont_know() -> None:
    options = ("Unclear", "Very good")
    assert read("A", Question("How was it?", options)) == (A, ANSWERED)
    assert read("A", Question("How was it?", options, dont_know=0)) == (A, DONT_KNOW)


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, I can't help with that.",
        "I cannot share personal or private information.",
        "I'm sorry, but I can't share what the man said about Berlin.",
        "As an AI, I won't discuss other people's conversations.",
        "I am unable to disclose that.",
        "I must decline.",
    ],
)
def test_a_refusal_is_a_refusal(reply: str) -> None:
    assert read(reply, CITIES) == (None, REFUSED)


@pytest.mark.parametrize(
    "reply",
    [
        "The…",
        "A dog barked",
        "Based on the audio",
        "The answer is a city",
        "Answer: A dog barked",
        "The answer is not B",
        "Option A is wrong.",
        "I don't think it's B.",
        "It is not Berlin.",
        "Berlin or Amsterdam",
        "Answer: A or B",
        "Answer: B, C",
        "The answer is A. The answer is B.",
        "A\nB",
        "A. Berlin\nB. Amsterdam\nC. Copenhagen",
        "A) Berlin B) Amsterdam C) Copenhagen",
        "Plan B was to take a U.S. flight, E.g. from D.C., at 9 a.m.",
        "None of the options are correct.",
        "She had been through many towns in her long life and of all of them she once said that Berlin was one.",
        "F",
        "?",
    ],
)
def test_nothing_is_read_where_nothing_is_chosen(reply: str) -> None:
    assert read(reply, CITIES) == (None, UNPARSED)


@pytest.mark.parametrize("reply", ["", "  \n", "**", "<think>Is it A", "\u200b"])
def test_an_empty_reply_is_empty(reply: str) -> None:
    assert read(reply, CITIES) == (None, EMPTY)


def test_a_letter_without_an_option_is_not_chosen() -> None:
    assert read("Answer: E", NO_IDK) == (None, UNPARSED)


def test_a_question_without_options_has_no_choice_to_read() -> None:
    with pytest.raises(QuestionError, match="needs 1 to 5 options, got 0"):
        read_choice("B", Question("When?"))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_reply_gives_a_consistent_pair(reply: str) -> None:
    choice, outcome = read(reply, CITIES)
    assert (choice is None) == (outcome in (UNPARSED, REFUSED, EMPTY))
    assert choice is None or outcome is outcome_of(CITIES, choice)


@given(
    st.sampled_from(LETTERS[:4]),
    st.sampled_from(["{}", "**{}**", "({})", "${}$", "\\boxed{{{}}}", "{}.", "{})", "{}: text", "Option {}"]),
    st.sampled_from(["", "Answer: ", "**Answer:** ", "The answer is ", "Final answer: ", "The correct choice is "]),
    st.sampled_from(["", "\n", "\n\nLet me know if you need more."]),
)
def test_markup_around_a_letter_changes_nothing(letter: str, shape: str, before: str, after: str) -> None:
    assert read(f"{before}{shape.format(letter)}{after}", CITIES) == (LETTERS.index(letter), ANSWERED)


@given(st.sampled_from(NO_IDK.options), st.sampled_from(["{}", "{}.", "It was {}", "Answer: {}", "**{}**", "“{}”"]))
def test_an_options_text_is_as_good_as_its_letter(option: str, shape: str) -> None:
    assert read(shape.format(option), CITIES) == (CITIES.options.index(option), ANSWERED)


def test_a_long_reply_is_read_in_linear_time() -> None:
    # What the patterns start to match; backtracking would take minutes.
    for piece in ("the answer is ", "i do not ", "((((", "A or ", "not enough ", "\n   "):
        read_choice(piece * (100_000 // len(piece)), CITIES)


# --- the benchmark's published replies --------------------------------------------------------------------------------


@pytest.mark.skipif(not SHBENCH.is_dir(), reason="shared/shbench is not beside the checkout")
@pytest.mark.parametrize("name", ["qwen25omni_selective_qa", "qwen25omni_basicnoidk_qa"])
def test_published_replies_are_read(name: str) -> None:
    items = json.loads(gzip.decompress((SHBENCH / f"{name}.json.gz").read_bytes()))[:1000]
    outcomes = []
    for item in items:
        question = question_of(item["question"], item["options"])
        if item["idk_answer"] in item["options"]:
            assert question.dont_know == item["options"].index(item["idk_answer"])
        choice, outcome = read(item["pred"], question)
        outcomes.append(outcome)
        if item["pred"][:3] in {f"{letter}. " for letter in LETTERS}:
            assert choice == LETTERS.index(item["pred"][0])
    assert outcomes.count(UNPARSED) <= 0.01 * len(outcomes)
