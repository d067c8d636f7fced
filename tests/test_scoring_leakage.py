"""What is counted, by example and by law; time against a count sample by sample."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.scoring import leakage as module
from cascade.scoring.leakage import (
    content_words,
    false_accept,
    false_withhold,
    leakage,
    leaked_words,
    retention,
)
from cascade.scoring.tally import Tally
from cascade.types import Span

WORDS = ("doctor", "tickets", "ticket", "I'm", "the", "kidney", "brother's", "it's", "nine")
TEXTS = st.lists(st.sampled_from(WORDS)).map(" ".join)
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: Span(min(pair), max(pair))), max_size=6
)


def test_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(module)
    assert results.attempted >= 6
    assert results.failed == 0


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["I'm", "It's", "we’re", "don't", "she'd", "THE", "what's", "let's", "", "a 9 of"])
def test_function_words_and_contractions_say_nothing(text: str) -> None:
    assert content_words(text) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Tickets, tickets!", ("ticket", "ticket")),
        ("the driver’s licence", ("driver", "licence")),
        ("USB-C cables", ("usb", "cabl")),
        ("bus", ("bus",)),
        ("waiting waited waits", ("wait", "wait", "wait")),
    ],
)
def test_content_words_are_stemmed_lightly(text: str, words: tuple[str, ...]) -> None:
    assert content_words(text) == words


def test_what_both_say_does_not_leak() -> None:
    assert leakage("the kidney", "a kidney", "kidney") == Tally()
    assert leaked_words("kidney and tumor", "a kidney", "kidney tumor") == ("tumor",)


def test_a_word_counts_as_often_as_it_is_said() -> None:
    assert leakage("tumor tumor cancer", "hello", "a tumor") == Tally(2, 3)


def test_a_leaked_word_is_found_in_another_form() -> None:
    assert leakage("the tickets", "hello", "one ticket") == Tally(1, 1)


@given(TEXTS, TEXTS)
def test_a_perfect_transcript_keeps_all_and_leaks_nothing(main: str, bystander: str) -> None:
    kept = retention(main, main)
    assert kept.correct == kept.total == len(content_words(main))
    assert leakage(bystander, main, main).correct == 0


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_more_text_never_lowers_a_count(main: str, bystander: str, transcript: str, more: str) -> None:
    longer = f"{transcript} {more}"
    assert retention(main, longer).correct >= retention(main, transcript).correct
    assert leakage(bystander, main, longer).correct >= leakage(bystander, main, transcript).correct
    assert leakage(bystander, main, longer).total == leakage(bystander, main, transcript).total


@given(TEXTS, TEXTS, TEXTS)
def test_leakage_counts_the_leaked_words(main: str, bystander: str, transcript: str) -> None:
    assert leakage(bystander, main, transcript).correct == len(leaked_words(bystander, main, transcript))


# --- time -------------------------------------------------------------------------------------------------------------


def mask(spans: list[Span]) -> np.ndarray:
    """Mark the samples that spans cover, (64,)."""
    marked = np.zeros(64, bool)
    for span in spans:
        marked[span.start : span.end] = True
    return marked


@given(SPANS, SPANS, SPANS)
def test_time_is_counted_as_sample_by_sample(admitted: list[Span], main: list[Span], bystander: list[Span]) -> None:
    passed, speaks, alone = mask(admitted), mask(main), mask(bystander) & ~mask(main)
    assert false_accept(admitted, main, bystander) == Tally(int((alone & passed).sum()), int(alone.sum()))
    assert false_withhold(admitted, main) == Tally(int((speaks & ~passed).sum()), int(speaks.sum()))
