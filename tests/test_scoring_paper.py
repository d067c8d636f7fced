"""The published rule against a plain restatement of it, and what it makes of replies that it misreads."""

from __future__ import annotations

import doctest
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.scoring import paper as module
from cascade.scoring.paper import published_entropy, read_as_published
from cascade.types import Outcome, Question

FOUR = Question("When?", ("one", "two", "six", "ten"))
FIVE = Question("When?", ("one", "two", "six", "I don't know", "ten"), 3)
PHRASES = [
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    "The best option isThe correct option is",
    "Best answer:Best option:",
    "Answer:",
    "Option:",
    "The correct answer",
    "The correct option",
]
REPLIES = st.lists(
    st.sampled_from(
        [*PHRASES, "The best option is", "Best answer:", "A", "C.", "E", " ", "\n", "none", "the", "(B)", "d"]
    )
    | st.text(max_size=4)
).map(" ".join)


def restated(reply: str) -> str:
    """Return the letter by the published rule, word by word, with its limit of ten words; "" for none."""
    text = reply.strip()
    for phrase in PHRASES:
        text = text.split(phrase)[-1]
    if len(text.split()) > 10 and not re.search("[ABCDE]", text):
        return ""
    found = re.search("[ABCDE]", text)
    return found.group() if found else ""


def test_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(module)
    assert results.attempted >= 2
    assert results.failed == 0


@given(REPLIES)
def test_the_letter_is_that_of_the_published_rule(reply: str) -> None:
    reading = read_as_published(reply, FIVE)
    assert ("" if reading.choice is None else "ABCDE"[reading.choice]) == restated(reply)


@pytest.mark.parametrize("phrase", PHRASES)
def test_each_phrase_is_cut_off_with_what_stands_before_its_last_place(phrase: str) -> None:
    assert read_as_published(f"A. {phrase} D {phrase} C", FIVE).choice == 2


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("B", 1),
        ("Based on the audio, the choice is D", 1),
        ("An answer is C", 0),
        ("The best option is C", 2),  # its own phrase is fused with the next: the C counts, not the phrase
        ("(C) or D", 2),
        ("d", None),
        ("The correct answer is F", None),
        ("Answer: The answer is", None),
        ("one two three four five six seven eight nine ten eleven C", 2),
    ],
)
def test_the_first_capital_counts_wherever_it_stands(reply: str, choice: int | None) -> None:
    reading = read_as_published(reply, FIVE)
    assert reading.choice == choice
    assert reading.outcome is (Outcome.UNPARSED if choice is None else Outcome.ANSWERED)


def test_the_phrases_come_one_after_another() -> None:
    """What a phrase leaves is what the next one is looked for in: "The correct answer" is gone before its own turn."""
    assert read_as_published("The correct answer: B. Answer: C", FIVE).choice == 2
    assert read_as_published("Answer: C. The correct answer: B", FIVE).choice == 1


def test_the_i_dont_know_option_is_told_by_its_letter_alone() -> None:
    assert read_as_published("D", FIVE).outcome is Outcome.DONT_KNOW
    assert read_as_published("I don't know", FIVE).outcome is Outcome.UNPARSED
    assert read_as_published("D", FOUR).outcome is Outcome.ANSWERED


def test_a_letter_beyond_the_options_chooses_nothing() -> None:
    assert read_as_published("D", FOUR).choice == 3
    reading = read_as_published("Everyone", FOUR)
    assert (reading.choice, reading.outcome) == (None, Outcome.UNPARSED)
    assert "E" in reading.why


@pytest.mark.parametrize("reply", ["", " ", "\n\t"])
def test_an_empty_reply_is_told_apart(reply: str) -> None:
    assert read_as_published(reply, FIVE).outcome is Outcome.EMPTY


def test_why_names_the_letter() -> None:
    assert read_as_published("The answer is C", FIVE).why == "first capital: C"


@given(st.lists(st.floats(1e-300, 1), min_size=1, max_size=5))
def test_the_entropy_is_numpys_to_the_last_bit(probabilities: list[float]) -> None:
    shares = np.array(probabilities)
    assert published_entropy(probabilities) == -np.sum(shares * np.log(shares))


def test_the_entropy_of_a_zero_is_not_defined() -> None:
    assert math.isnan(published_entropy([1.0, 0.0]))
    assert math.isnan(published_entropy([1.0, -0.0]))
