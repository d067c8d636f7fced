"""The option letters that a reply names, and how: alone, at its start, marked as the answer, labelled, pointed at.

What is called `said` here is a reply `without_markup`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cascade.answering.phrases import NEGATED
from cascade.answering.plain import SENTENCE_END, bare_option, plain_option, plain_text
from cascade.answering.questions import LETTERS

# A letter is not the start of a word (Boston, B-12, D.C.), and an "A" before a word is the article, unless the word
# goes on about the letter ("the answer is A because ..."). "a" counts only where it stands alone. What is denied is not
# chosen ("option A is wrong").
_NOT_A_WORD = (
    r"(?![\w'&]|[.-]\w)(?!(?<=A)[^\S\n]+(?!(?:because|since|as|is|and|or|with|for)\b)\w)"
    r"(?![)\]]?\s+(?:is|was)(?:n't|\s+not|\s+wrong|\s+incorrect|\s+false))"
)
_LETTER = rf"[(\[\"']*(?<![\w'])([A-E]|[b-e]|a(?=\s*$|[)\].:;]))\b{_NOT_A_WORD}[)\]\"']*"
_OR_LETTER = rf"(?:\s*(?:,|/|&|\b(?:or|and|und|oder)\b)\s*(?:option )?[(]?([A-E])\b{_NOT_A_WORD})?"
_JOIN = (
    r"(?:[\s:=>\-–—→\"'(\[,]|\b(?i:is|are|was|would|should|must|be|seems|appears|to|the|this|that|here|question|option|"
    r"choice|letter|correct|right|best|answer|most|likely|probably|clearly|definitely|therefore|one|it|it's|ist|lautet|"
    r"est|es)\b){0,20}+"
)
_MARK = (
    r"\b(?i:answer|antwort|lösung|réponse|respuesta|risposta|resposta|ответ|答案|choice|choose|chose|pick|select|"
    r"selected|(?:correct|right|best) (?:one|option|letter|response)|go with|going with|go for|it is|it's|"
    r"it must be|it (?:would|could|might|may) be|that is|that's|i think|i guess|i believe|i say|i'd say|i would say|"
    r"maybe|perhaps)\b"
)
_MARKS = (
    "answer", "choice", "choose", "chose", "pick", "select", "correct", "right", "best", "go", "it is", "it's", "it m",
    "it would", "it could", "that", "think", "guess", "believe", "say", "maybe", "perhaps", "antwort", "lösung",
    "réponse", "respuesta", "risposta", "resposta", "ответ", "答案",
)  # fmt: skip
"""One of these stands wherever `_MARKED` or `_CONFIRMED` matches; looking for them first is ten times as fast."""

_FINAL = re.compile(rf"\b(?i:final (?:answer|choice)|my answer)\b{_JOIN}{_LETTER}{_OR_LETTER}")
_MARKED = re.compile(rf"{_MARK}{_JOIN}{_LETTER}{_OR_LETTER}")
_CONFIRMED = re.compile(
    r"(?:^|[.,;:!?\n(\[\"'–—-]\s*|\b(?i:option|choice|letter|answer|so|think|that|believe|say|since|and|but|then)\s+)"
    r"([A-E])\b[)\].\"']*\s+(?i:is|seems|looks|would be|must be|appears|fits)"
    r"(?:\s+(?i:to|be|the|my|most|likely|probably|clearly))*\s+(?i:correct|right|best|answer|choice)\b"
)
_LOOSE = re.compile(r"(?i)\b(?:it|it's|that|that's|think|guess|believe|maybe|perhaps|seems?|appears?)\b")
"""In a marked letter: this is how people also speak of an option that they then drop."""

_WITHDRAWN = re.compile(r"(?i)\b(?:wait|correction|on second thought|scratch that|let me re\w+|actually(?=,))\b")
_ALONE = re.compile(r"(?m)^[-•>(\[\"' ]*([A-Ea-e])[)\]\"'.:;,!? ]*$")
_LEADING = re.compile(
    rf"[(\[\"']*(?:([A-Ea-e])\s*[)\].:](?=\s|$)|([A-E])(?:,\s|\s+[-–—]\s|\s+(?=\())(?:[(]?([A-E])\b{_NOT_A_WORD})?)"
)
_LISTED = re.compile(r"(?<![\w'])([B-E])[).:](?=\s)")
_LABEL = re.compile(r"(?<![\w'])([A-E])(?:[).:]\s*|\s+)")
_POINTED = re.compile(rf"\b(?i:option|letter|choice)[\s:]+{_LETTER}|[(\[]([A-E])[)\]]")
_DENIED = re.compile(
    r"(?i)\b(?:not|don't|doesn't|wouldn't|can't|cannot|couldn't|unable to|hard to)\s+(?:really\s+)?"
    r"(?:think|believe|say|choose|pick|select|sure|certain|clear|know|tell|determine|decide)\b"
    r"(?:(?!\b(?:but|so|however)\b)[^.;,\n–—])*"
    r"|\b(?:not|never|neither|nor|unlike|rather than|instead of|eliminat\w+|exclud\w+|discard\w*|reject\w*|"
    r"rul(?:e|es|ed|ing) out)\s+(?:(?:options?|choices?|letters?)\s+)?"
    r"(?:(?:\s*(?:,|and|or|nor|&)\s*)?[(\[\"']*(?-i:[A-E])\b(?![\w'&])[)\]\"']*)+"
)
_LONE_LETTER = re.compile(r"\b[A-Ea-e]\b")
_MAY_DENY = (
    "not", "n't", "unable", "hard", "eliminat", "exclud", "discard", "reject", "rul", "never", "neither", "nor",
    "unlike", "rather", "instead",
)  # fmt: skip


class Named(NamedTuple):
    """Letters that a reply names in one place ("B"; "AC" in "A or C"), and where that is."""

    kind: str
    letters: str
    start: int
    end: int


def named_letters(said: str, options: Sequence[str]) -> list[Named]:
    """Return the letters of the strongest kind that is there, with all that would contradict them."""
    folded = said.casefold()
    if "final" in folded or "my answer" in folded:
        final_answers = _found("a final answer", _FINAL, said)
        if final_answers:
            return final_answers[-1:]
    opening = _opening(said)
    if any(word in folded for word in _MARKS):
        marked = _found("a marked letter", _MARKED, said) + _found("a confirmed letter", _CONFIRMED, said)
        if marked:  # an opening that recites the options does not contradict the one that is marked
            return _settled(marked + (opening if len(distinct(opening)) == 1 else []), said)
    return opening or _labelled(said, options)


def _found(kind: str, pattern: re.Pattern[str], said: str) -> list[Named]:
    """Return the letters of each match, in order."""
    return [
        Named(kind, "".join(filter(None, match.groups())).upper(), match.start(), match.end())
        for match in pattern.finditer(said)
    ]


def distinct(named: Sequence[Named]) -> str:
    """Return the letters that are named, each once, sorted."""
    return "".join(sorted(set().union(*(item.letters for item in named))))


def _settled(named: list[Named], said: str) -> list[Named]:
    """Where letters contradict each other, drop those that were taken back and those that were only mused about."""
    if len(distinct(named)) > 1:
        withdrawn = max((match.end() for match in _WITHDRAWN.finditer(said)), default=0)
        named = [item for item in named if item.start >= withdrawn] or named
    if len(distinct(named)) > 1:
        named = [item for item in named if not _LOOSE.search(said, item.start, item.end)] or named
    return named


def _opening(said: str) -> list[Named]:
    """Return the letter that the reply starts with, and those that have a line to themselves.

    A reply that starts with A and goes on to another letter recites the options.
    """
    named = _found("a letter alone", _ALONE, said)
    start = _LEADING.match(said)
    if start:
        letters = "".join(filter(None, start.groups())).upper()
        named.append(Named("a leading letter", letters, start.start(), start.end()))
        named += _found("a listed letter", _LISTED, said) if letters == "A" else []
    return named


def _labelled(said: str, options: Sequence[str]) -> list[Named]:
    """Return the letters that stand before their own option's text: "so it was B) espresso tonic"."""
    named = []
    for match in _LABEL.finditer(said):
        index = LETTERS.index(match[1])
        text = bare_option(options[index]) if index < len(options) else ""
        end = match.end() + len(text)
        if text and said[match.end() : end].casefold() == text and not said[end : end + 1].isalnum():
            named.append(Named("a labelled option", match[1], match.start(), end))
    return named


def pointed_letters(said: str, options: Sequence[str]) -> list[Named]:
    """Return the letters in brackets or after "option"; an option's text right before the bracket counts as its letter.

    So "Copenhagen (B)" names two letters where Copenhagen is C.
    """
    named = _found("a letter pointed at", _POINTED, said)
    window = longest(options)
    texts = {said[max(0, item.start - window) : item.start] for item in named if said[item.start] in "(["}
    for text in texts:
        before = f" {plain_text(SENTENCE_END.split(text)[-1])}"
        for letter, option in zip(LETTERS, map(plain_option, options), strict=False):
            if option and before.endswith(f" {option}") and not NEGATED.search(before.removesuffix(option)):
                named.append(named[0]._replace(letters=letter))
    return named


def longest(options: Sequence[str]) -> int:
    """Return how many characters hold any of the options' texts, with what is put around them."""
    return max(map(len, options)) + 20


def without_denials(said: str) -> str:
    """Return what is said with a "~" for each letter that it denies: "I don't think it's ~", "not (~)"."""
    folded = said.casefold()
    if not any(word in folded for word in _MAY_DENY):
        return said
    return _DENIED.sub(lambda denied: _LONE_LETTER.sub("~", denied[0]), said)
