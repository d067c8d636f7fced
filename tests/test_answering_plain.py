from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering import plain
from cascade.answering.plain import SENTENCE_END, bare_option, bare_text, plain_option, plain_text, without_markup


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I can't tell!", "i can not tell"),
        ("Cannot. Won’t; doesnt, dont", "can not will not does not do not"),
        ("I'm sure that it's B-12", "i am sure that it is b 12"),
        ("Ｒｙｅ & Salt", "rye salt"),
        ("Éclair, STRASSE", "éclair strasse"),
        ("She's not there", "she s not there"),
        ("?!", ""),
    ],
)
def test_a_text_in_plain_writing(text: str, expected: str) -> None:
    assert plain_text(text) == expected


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_plain_writing_has_words_alone(text: str) -> None:
    assert re.fullmatch(r"(\w+( \w+)*)?", plain_text(text))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("**B**", "B"),
        (" a   b \n\n c ", "a b\nc"),
        ("\\boxed{\\text{B}}", "answer: B"),
        ("<answer>B</answer>", "answer: B"),
        ("<think>Is it A?</think>B", "B"),
        ("Is it A?</thinking>B", "B"),
        ("<think>Is it", ""),
        ("B\nHuman: and C?", "B"),
        ("B</s>C", "B"),
        ("B. Rye\nQuestion: Which?\nA", "B. Rye"),
        ("“It’s” \u200bＢ", '"It\'s" B'),
        ("~~A~~ B", "B"),
        ("<del>A</del> **B**", "B"),
        ("\\sout{A} B", "B"),
        ("A\u0336 B", "B"),
        ('<span class="x" data-y=1>B</span><br/>', "B"),
        ("<p>3 <5 and 6> 5</p>", "3 <5 and 6> 5"),
        ("Answer: <B>", "Answer: B"),
        ("<B>C</B>", "C"),
        ("B&nbsp;Rye &amp; Salt; AT&T", "B Rye & Salt; AT&T"),
        ("\x1b[1mB\x1b[0m\x00", "B"),
        ("答案是B。因为", "答案是 B. 因为"),
        ("「B」、【C】", '"B", [C]'),
        ("« B »", '" B "'),
    ],
)
def test_a_reply_without_markup(reply: str, expected: str) -> None:
    assert without_markup(reply) == expected


@pytest.mark.parametrize(
    "invisible", [*"\u00ad\u061c\u200b\u200d\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufe0f\ufeff"]
)
def test_what_cannot_be_seen_is_nothing(invisible: str) -> None:
    assert without_markup(f"{invisible}B{invisible}. R{invisible}ye{invisible}") == "B. Rye"
    assert plain_text(f"I don{invisible}'t{invisible} know") == "i do not know"


def test_a_bare_text_keeps_its_inner_punctuation() -> None:
    assert bare_text('("Rye & Salt".)') == "rye & salt"


def test_options_are_written_as_replies_are() -> None:
    assert bare_option("**Rye** &  Salt.") == "rye & salt"
    assert plain_option("**Rye** & <b>Salt</b>!") == "rye salt"


def test_sentences_end_at_a_mark_before_a_space() -> None:
    assert SENTENCE_END.split("At 3.5 p.m. sharp; yes!\nNo") == ["At 3.5 p.m", " sharp", " yes", "", "No"]


GUARDED = ((plain._RUN_ON, plain._MAY_RUN_ON), (plain._NEXT_QUESTION, plain._MAY_RUN_ON))
FRAGMENTS = sorted(
    {" ", "\n", "B", "A", "(C)", ": ", ".", "<|x|>", "</s>", "x", "Human:"}.union(
        *(re.findall(r"[^\W\d_][\w' ]*", pattern.pattern) for pattern, _ in GUARDED)
    )
)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8), st.sampled_from(["", " "]))
def test_what_is_skipped_to_save_time_could_not_match(fragments: list[str], between: str) -> None:
    said = "\n".join(" ".join(line.split()) for line in between.join(fragments).splitlines() if line.strip())
    for pattern, words in GUARDED:
        assert not pattern.search(said) or any(word in said.casefold() for word in words)
