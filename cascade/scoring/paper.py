"""How the published evaluation of SH-Bench reads a reply, faults included, so that its numbers can be had again.

The rule: what follows the last occurrence of each of ten phrases in turn is kept; in what is left, the first capital A
to E is the answer, wherever it stands. So "Based on the audio, the choice is D" is read as B. (The original also gives
up on more than ten words without such a capital, where there is none to be found anyway.) It is there for comparing
with published numbers; the strict reader tells how good a system is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from cascade.scoring.efficacy import entropy
from cascade.types import Outcome, Question, Reading

_PHRASES: Final = (
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    "The best option isThe correct option is",  # two phrases in one, here and below, for want of a comma
    "Best answer:Best option:",
    "Answer:",
    "Option:",
    "The correct answer",
    "The correct option",
)
_LETTER: Final = re.compile("[A-E]")


def read_as_published(reply: str, question: Question) -> Reading:
    """Read a reply as the published evaluation does; a letter beyond the options chooses nothing.

    >>> read_as_published("Based on the audio, the choice is D", Question("When?", ("one", "two", "six", "ten")))
    Reading(choice=1, outcome=<Outcome.ANSWERED: 'answered'>, why='first capital: B')
    """
    rest = reply.strip()
    if not rest:
        return Reading(None, Outcome.EMPTY, "no reply")
    for phrase in _PHRASES:
        rest = rest.rpartition(phrase)[2]
    found = _LETTER.search(rest)
    if found is None:
        return Reading(None, Outcome.UNPARSED, "no capital A to E")
    return _chosen(found[0], question)


def _chosen(letter: str, question: Question) -> Reading:
    choice = ord(letter) - ord("A")
    if choice >= len(question.options):
        return Reading(None, Outcome.UNPARSED, f"first capital: {letter}, which is no option")
    outcome = Outcome.DONT_KNOW if choice == question.dont_know else Outcome.ANSWERED
    return Reading(choice, outcome, f"first capital: {letter}")


def published_entropy(probabilities: Sequence[float]) -> float:
    """Return a distribution's entropy in nats as published: a probability of 0 makes it NaN, for log 0 is infinite.

    >>> published_entropy([0.5, 0.5]), published_entropy([1.0, 0.0])
    (0.6931471805599453, nan)
    """
    return math.nan if 0 in probabilities else entropy(probabilities)
