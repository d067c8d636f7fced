"""What an open reply declines, by example."""

from __future__ import annotations

import doctest

import pytest

from cascade.answering import declining
from cascade.answering.declining import read_open
from cascade.types import Outcome


def test_the_examples_in_the_docstring_hold() -> None:
    assert doctest.testmod(declining).failed == 0


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("At nine forty, from platform six.", Outcome.ANSWERED),
        ("She doesn't know her brother's number.", Outcome.ANSWERED),
        ("**I don't know.**", Outcome.DONT_KNOW),
        ("The recording does not mention why.", Outcome.DONT_KNOW),
        ("Unclear", Outcome.DONT_KNOW),
        ("I'm sorry, but I can't help with that.", Outcome.REFUSED),
        ("", Outcome.EMPTY),
        (" ** ", Outcome.EMPTY),
    ],
)
def test_an_open_reply_answers_or_declines(reply: str, outcome: Outcome) -> None:
    reading = read_open(reply)
    assert (reading.choice, reading.outcome) == (None, outcome)
    assert reading.why
