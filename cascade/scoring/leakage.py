"""Transcript and turns against a reference -> counts: how much of the bystander leaked, how much of the main was kept.

The words that count are content words. A word is compared by a light stem, so that "tickets" finds "ticket":

    leakage     share of the bystander's content words, not also said by the main speaker, that the transcript holds
    retention   share of the main speaker's content words that the transcript holds

The time that counts is that of the reference's spans:

    false accept     share of the time where only the bystander speaks that passed the gate
    false withhold   share of the time where the main speaker speaks that did not
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from cascade.scoring.tally import Tally
from cascade.types import Span, united

LEAST_LETTERS: Final = 3
"""Shorter words are function words, or are heard in anything."""

_GRAMMAR: Final = """
a an the this that these those and or but nor so if because than as at by for from in into of on onto to with
without about over under up down out off after before is am are was were be been being do does did done doing have
has had having will would shall should can could may might must i you he she it we they me him her us them my your
his its our their mine yours hers ours theirs myself yourself himself herself itself ourselves themselves what
which who whom whose when where why how no not yes there here just like also very too only own same then now let
get got oh well okay yeah hey um uh hmm dont doesnt didnt cant couldnt wont wouldnt isnt arent wasnt werent havent
hasnt hadnt shouldnt mustnt im ive youre youve theyre theyve weve thats theres whats lets
"""
_FUNCTION_WORDS: Final = frozenset(_GRAMMAR.split())

_TOKEN: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)*")
_ENDING: Final = re.compile(r"(?:'s|ing|ed|es|s)$")


def content_words(text: str) -> tuple[str, ...]:
    """Return the stems of a text's content words, in order, each as often as it is said.

    >>> content_words("I'm sure it's the driver's tickets, and we're travelling on Friday.")
    ('sure', 'driver', 'ticket', 'travell', 'friday')
    """
    return tuple(_stem(token) for token in _tokens(text) if _is_content(token))


def leaked_words(bystander: str, main: str, transcript: str) -> tuple[str, ...]:
    """Return the bystander's content words that the transcript holds and the main speaker did not say.

    >>> leaked_words("The doctor called about my tickets.", "I bought the tickets.", "I bought the tickets, doctor.")
    ('doctor',)
    """
    heard = _stems(transcript)
    return tuple(word for word in _private_words(bystander, main) if word in heard)


def leakage(bystander: str, main: str, transcript: str) -> Tally:
    """Count the bystander's content words, not also said by the main speaker, that the transcript holds.

    >>> leakage("The doctor called about my tickets.", "I bought the tickets.", "I bought the tickets, doctor.")
    Tally(correct=1, total=2)
    """
    return Tally(len(leaked_words(bystander, main, transcript)), len(_private_words(bystander, main)))


def retention(main: str, transcript: str) -> Tally:
    """Count the main speaker's content words that the transcript holds.

    >>> retention("The train leaves at noon.", "the trains at noon")
    Tally(correct=2, total=3)
    """
    heard = _stems(transcript)
    words = content_words(main)
    return Tally(sum(word in heard for word in words), len(words))


def false_accept(admitted: Iterable[Span], main: Iterable[Span], bystander: Iterable[Span]) -> Tally:
    """Count the samples that passed the gate, of those where only the bystander speaks.

    >>> false_accept([Span(0, 50)], main=[Span(0, 40)], bystander=[Span(30, 60)])
    Tally(correct=10, total=20)
    """
    alone = _without(bystander, main)
    return Tally(_length(alone) - _length(_without(alone, admitted)), _length(alone))


def false_withhold(admitted: Iterable[Span], main: Iterable[Span]) -> Tally:
    """Count the samples that did not pass the gate, of those where the main speaker speaks.

    >>> false_withhold([Span(0, 30)], main=[Span(0, 40)])
    Tally(correct=10, total=40)
    """
    spoken = united(main)
    return Tally(_length(_without(spoken, admitted)), _length(spoken))


# --- words ------------------------------------------------------------------------------------------------------------


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.lower().replace("’", "'"))


def _is_content(token: str) -> bool:
    """Tell whether a word says something; "I'm", "it's" and "don't" are no more than "I", "it" and "do"."""
    letters = token.replace("'", "")
    contracted = token.split("'")[0] in _FUNCTION_WORDS
    return len(letters) >= LEAST_LETTERS and letters not in _FUNCTION_WORDS and not contracted


def _stem(token: str) -> str:
    return _ENDING.sub("", token) if len(token) > LEAST_LETTERS + 1 else token


def _stems(text: str) -> frozenset[str]:
    return frozenset(map(_stem, _tokens(text)))


def _private_words(bystander: str, main: str) -> tuple[str, ...]:
    shared = _stems(main)
    return tuple(word for word in content_words(bystander) if word not in shared)


# --- time -------------------------------------------------------------------------------------------------------------


def _without(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """Return the time of spans that taken does not cover."""
    rest = list(united(spans))
    for hole in united(taken):
        rest = [part for span in rest for part in _around(span, hole)]
    return rest


def _around(span: Span, hole: Span) -> Iterable[Span]:
    if not span.overlaps(hole):
        return [span]
    return [part for part in (Span(span.start, max(span.start, hole.start)), _after(span, hole)) if part]


def _after(span: Span, hole: Span) -> Span:
    start = min(span.end, hole.end)
    return Span(start, span.end)


def _length(spans: Sequence[Span]) -> int:
    return sum(map(len, spans))
