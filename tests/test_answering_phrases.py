from __future__ import annotations

import pytest

from cascade.answering.phrases import (
    CLEAR_DONT_KNOW,
    NEGATED,
    REFUSES,
    SAYS_DONT_KNOW,
    TAKES_BACK,
    TERSE_DONT_KNOW,
)
from cascade.answering.plain import plain_text


@pytest.mark.parametrize(
    ("text", "clear", "terse"),
    [
        ("I don't know.", True, False),
        ("Not enough information", True, False),
        ("Sorry, but I can't tell from the recording", True, False),
        ("No lo sé.", True, False),
        ("Ich weiß es nicht", True, False),
        ("我不知道。", True, False),
        ("Unclear", False, True),
        ("Not mentioned in the audio", False, True),
        ("He doesn't know", False, False),
        ("Unknown caller", False, False),
    ],
)
def test_a_whole_text_that_says_i_dont_know(text: str, clear: bool, terse: bool) -> None:
    assert bool(CLEAR_DONT_KNOW.fullmatch(plain_text(text))) is clear
    assert bool(TERSE_DONT_KNOW.fullmatch(plain_text(text))) is terse


@pytest.mark.parametrize(
    "text",
    [
        "I listened twice, and I really can't tell which of them it was.",
        "The speaker does not say where.",
        "The answer is not in the transcript, so there is nothing to choose.",
        "There's no mention of a city.",
        "Unknown, as far as this goes",
        "Je ne sais pas, elle ne le dit pas.",
    ],
)
def test_a_longer_text_that_says_so(text: str) -> None:
    assert SAYS_DONT_KNOW.search(plain_text(text))


@pytest.mark.parametrize("text", ["She doesn't know where.", "They can't tell her", "The unknown soldier", "Berlin"])
def test_what_somebody_else_does_not_know_is_not_meant(text: str) -> None:
    assert not SAYS_DONT_KNOW.search(plain_text(text))


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm sorry, I can't help with that.", True),
        ("As an AI, I listen.", True),
        ("I must decline.", True),
        ("That is against my guidelines", True),
        ("She can't come to the party.", False),
        ("The help desk", False),
    ],
)
def test_a_refusal_is_known(text: str, refuses: bool) -> None:
    assert bool(REFUSES.search(plain_text(text))) is refuses


@pytest.mark.parametrize(
    ("before", "denied"), [("it is not ", True), ("never in old ", True), ("not berlin but ", False), ("it is ", False)]
)
def test_what_is_denied_is_told_by_the_words_before(before: str, denied: bool) -> None:
    assert bool(NEGATED.search(before)) is denied


@pytest.mark.parametrize(
    "text",
    [
        "a... no, c",
        "a. no. c",
        "a - no - c",
        "a, no wait, c",
        "actually c",
        "i mean, c",
        "correction: c",
        "or rather c",
        "a\nno, c",
    ],
)
def test_words_that_take_back_are_known(text: str) -> None:
    assert any(text[match.end() :] == "c" for match in TAKES_BACK.finditer(text))


@pytest.mark.parametrize(
    "text", ["a: no. b", "is it a? no. b", "no doubt", "a volcano, c", "rather than c", "there is no c", "know, c"]
)
def test_a_no_that_takes_nothing_back(text: str) -> None:
    assert not TAKES_BACK.search(text)
