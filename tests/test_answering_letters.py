from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering import letters, phrases
from cascade.answering.letters import DENIED, OWN_TEXT, Named, covered, distinct, longest, pointed_letters

CITIES = ("Berlin", "Amsterdam", "Copenhagen", "Stockholm", "I don't know")


def named_letters(said: str) -> list[Named]:
    return letters.named_letters(covered(said, CITIES), CITIES)


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
        ("Sure, C, of course", "a leading letter", "C"),
        ("It is A... no, C.", "a corrected letter", "C"),
    ],
)
def test_letters_are_found_with_their_kind(said: str, kind: str, found: str) -> None:
    (named,) = named_letters(said)
    assert (named.kind, named.letters) == (kind, found)
    assert set(found) <= set(said[named.start : named.end].upper())


@pytest.mark.parametrize("said", ["", "The end", "Vitamin D", "A dog barked", "She means B) Berlin", "an F"])
def test_a_capital_is_not_a_letter(said: str) -> None:
    assert named_letters(said) == []


def test_letters_that_contradict_each_other_are_all_found() -> None:
    assert distinct(named_letters("The answer is C. The answer is B.")) == "BC"
    assert distinct(named_letters("It is C... B.")) == "BC"
    assert distinct(named_letters("B. Amsterdam\nC. Copenhagen")) == "BC"
    assert distinct(named_letters("A. Berlin B. Amsterdam")) == "AB"


def test_what_is_taken_back_or_mused_about_is_dropped() -> None:
    assert distinct(named_letters("The answer is C. Wait, the answer is B.")) == "B"
    assert distinct(named_letters("Maybe C? The answer is B.")) == "B"
    assert named_letters("It is A... no, Stockholm.") == [Named("a corrected text", "D", 11, 24)]


def test_letters_are_pointed_at_in_brackets_or_after_option() -> None:
    assert distinct(pointed_letters("so (B), or option C", CITIES)) == "BC"
    assert pointed_letters("so B", CITIES) == []


def test_a_text_before_the_bracket_counts_as_its_letter() -> None:
    assert distinct(pointed_letters("It was Copenhagen (B)", CITIES)) == "BC"
    assert distinct(pointed_letters("It was not Copenhagen (B)", CITIES)) == "B"
    assert distinct(pointed_letters("Not Copenhagen. Amsterdam (B)", CITIES)) == "B"


def test_any_options_text_fits_into_the_longest() -> None:
    assert longest(CITIES) > len("I don't know")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I don't think it's B. It is C", "I don't think it's ~. It is C"),
        ("It is C, not (A).", "It is C, ~~~~~~~."),
        ("Neither A nor B; C", "~~~~~~~~~~~~~~~; C"),
        ("B is wrong, so C", "~~~~~~~~~~, so C"),
        ("Not bad, B", "Not bad, B"),
        ("B. Amsterdam, not C. Copenhagen!", "B. =========, ~~~~~~~~~~~~~~~~~!"),
        ("C) Amsterdam", "C) Amsterdam"),
        ("B. Amsterdamer", "B. Amsterdamer"),
    ],
)
def test_what_is_no_letter_is_covered(said: str, kept: str) -> None:
    assert covered(said, CITIES) == kept.replace("~", DENIED).replace("=", OWN_TEXT)


def test_no_letter_is_looked_for_in_an_options_own_text() -> None:
    assert covered("A. L.C.D. screen, I think", ["L.C.D. screen"]) == f"A. {OWN_TEXT * 13}, I think"


@given(st.lists(st.sampled_from([*"ABb .,:\n", "not ", "Berlin", "Amsterdam", " is wrong", "İ", "ß"])).map("".join))
def test_covering_keeps_the_length(said: str) -> None:
    assert len(covered(said, CITIES)) == len(said)


GUARDED = (
    (letters._MARK, letters._MARKS),
    (letters._CONFIRMED, letters._MARKS),
    (letters._FINAL, ("final", "my answer")),
    (letters._DENIED, letters._MAY_DENY),
    (letters._DENIES, letters._MAY_DENY),
    (letters._REFUTED, letters._MAY_DENY),
    (phrases.TAKES_BACK, phrases.TAKES_BACK_WORDS),
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
        assert not (pattern.search(said) or pattern.search(said.lower())) or any(
            word in said.casefold() for word in words
        )
