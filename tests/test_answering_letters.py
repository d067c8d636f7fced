from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering import letters
from cascade.answering.letters import distinct, longest, named_letters, pointed_letters, without_denials

CITIES = ("Berlin", "Amsterdam", "Copenhagen", "Stockholm", "I don't know")


@pytest.mark.parametrize(
    ("said", "kind", "found"),
    [
        ("Final answer: A. Final answer: C, not (B)", "a final answer", "C"),
        ("So I pick B", "a marked letter", "B"),
        ("Answer: A or C", "a marked letter", "AC"),
        ("Well, D is correct", "a confirmed letter", "D"),
        ("b", "a letter alone", "B"),
        ("(B) Amsterdam", "a leading letter", "B"),
        ("She means B) Amsterdam, of course", "a labelled option", "B"),
    ],
)
def test_letters_are_found_with_their_kind(said: str, kind: str, found: str) -> None:
    (named,) = named_letters(said, CITIES)
    assert (named.kind, named.letters) == (kind, found)
    assert set(found) <= set(said[named.start : named.end].upper())


@pytest.mark.parametrize("said", ["", "The end", "Vitamin D", "A dog barked", "She means B) Berlin", "an F"])
def test_a_capital_is_not_a_letter(said: str) -> None:
    assert named_letters(said, CITIES) == []


def test_letters_that_contradict_each_other_are_all_found() -> None:
    assert distinct(named_letters("The answer is C. No: the answer is B.", CITIES)) == "BC"
    assert distinct(named_letters("A. Berlin B. Amsterdam", CITIES)) == "AB"


def test_what_is_taken_back_or_mused_about_is_dropped() -> None:
    assert distinct(named_letters("The answer is C. Wait, the answer is B.", CITIES)) == "B"
    assert distinct(named_letters("Maybe C? The answer is B.", CITIES)) == "B"


def test_letters_are_pointed_at_in_brackets_or_after_option() -> None:
    assert distinct(pointed_letters("so (B), or option C", CITIES)) == "BC"
    assert pointed_letters("so B", CITIES) == []


def test_a_text_before_the_bracket_counts_as_its_letter() -> None:
    assert distinct(pointed_letters("It was Copenhagen (B)", CITIES)) == "BC"
    assert distinct(pointed_letters("It was not Copenhagen (B)", CITIES)) == "B"
    assert distinct(pointed_letters("Not Copenhagen. Amsterdam (B)", CITIES)) == "B"


def test_any_options_text_fits_into_the_longest() -> None:
    assert longest(CITIES) > len("I don't know")


def test_denied_letters_are_covered() -> None:
    assert without_denials("I don't think it's B. It is C, not (A).") == "I don't think it's ~. It is C, not (~)."
    assert without_denials("Not bad, B") == "Not bad, B"


GUARDED = (
    (letters._MARKED, letters._MARKS),
    (letters._CONFIRMED, letters._MARKS),
    (letters._FINAL, ("final", "my answer")),
    (letters._DENIED, letters._MAY_DENY),
)
FRAGMENTS = sorted(
    {" ", "\n", "B", "A", "(C)", ": ", ".", "is ", "the ", "x"}.union(
        *(re.findall(r"[^\W\d_][\w' ]*", pattern.pattern) for pattern, _ in GUARDED)
    )
)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8), st.sampled_from(["", " "]))
def test_what_is_skipped_to_save_time_could_not_match(fragments: list[str], between: str) -> None:
    said = "\n".join(" ".join(line.split()) for line in between.join(fragments).splitlines() if line.strip())
    for pattern, words in GUARDED:
        assert not pattern.search(said) or any(word in said.casefold() for word in words)
