"""Reading a reply to an open question: whether it answers, says "I don't know", or refuses.

What it says is not judged: an open answer has nothing to be compared with but a person's opinion.
"""

from __future__ import annotations

from cascade.answering.phrases import CLEAR_DONT_KNOW, REFUSES, SAYS_DONT_KNOW, TERSE_DONT_KNOW
from cascade.answering.plain import plain_text, without_markup
from cascade.types import Outcome, Reading


def read_open(reply: str) -> Reading:
    """Tell whether a reply declines to answer.

    >>> read_open("The audio does not mention it.").outcome, read_open("At nine.").outcome
    (<Outcome.DONT_KNOW: 'dont_know'>, <Outcome.ANSWERED: 'answered'>)
    """
    said = plain_text(without_markup(reply))
    if not said:
        return Reading(None, Outcome.EMPTY, "no reply")
    if SAYS_DONT_KNOW.search(said) or CLEAR_DONT_KNOW.fullmatch(said) or TERSE_DONT_KNOW.fullmatch(said):
        return Reading(None, Outcome.DONT_KNOW, "open-ended: it says that it does not know")
    if REFUSES.search(said):
        return Reading(None, Outcome.REFUSED, "open-ended: it refuses")
    return Reading(None, Outcome.ANSWERED, "open-ended: it says something")
