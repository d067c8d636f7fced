from __future__ import annotations

import pytest

from cascade.answering.questions import Answerer, dont_know_index, outcome_of, question_of
from cascade.errors import QuestionError
from cascade.types import Answer, Outcome, Question, Transcript

CITIES = question_of("Which city?", ["Berlin", "Amsterdam", "I don't know"])
NO_IDK = question_of("Which city?", ["Berlin", "Amsterdam"])


def test_a_question_without_options_is_open() -> None:
    assert question_of("When does the train leave?") == Question("When does the train leave?")


def test_the_option_that_says_i_dont_know_is_found() -> None:
    assert CITIES.dont_know == 2
    assert question_of("Who?", ["A coach", "I do not have an answer", "The end"]).dont_know == 1
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
    assert outcome_of(CITIES, 2) is Outcome.DONT_KNOW
    assert outcome_of(CITIES, 0) is Outcome.ANSWERED
    assert outcome_of(NO_IDK, 0) is Outcome.ANSWERED


def test_a_class_with_an_answer_is_an_answerer() -> None:
    class First:
        """Answers with the first option, under its own name."""

        def __init__(self, name: str) -> None:
            self._name = name

        def answer(self, question: Question, transcript: Transcript) -> Answer:
            return Answer(f"{self._name}: {question.options[0]}", outcome_of(question, 0), 0)

    answerer: Answerer = First("first")
    assert answerer.answer(CITIES, Transcript()) == Answer("first: Berlin", Outcome.ANSWERED, 0)


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
