"""Questions, their option letters and the option that says "I don't know"; the protocol of an answerer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from cascade.answering.phrases import CLEAR_DONT_KNOW, TERSE_DONT_KNOW
from cascade.answering.plain import plain_text
from cascade.errors import QuestionError
from cascade.types import Answer, Outcome, Question, Transcript

LETTERS: Final = "ABCDE"
"""The options' letters in order; SH-Bench has four options, and "I don't know" as a fifth."""

DONT_KNOW_TEXT: Final = "I don't know."
"""What an answerer says to an open question that the transcript does not answer."""


class Answerer(Protocol):
    """Whatever answers questions from a transcript: an extractive answerer, a chat model.

    It is made once, with its own settings (a chat model: its prompts), and may be called from several threads at once.
    """

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        """Answer from what the transcript says, and from nothing else.

        Raises:
            BackendError: A model or a server failed.
            NoMoreAnswersError: And so it would on all that is still asked in this run.
        """


def question_of(text: str, options: Sequence[str] = ()) -> Question:
    """Build a question, and find the option that means "I don't know"; without options it is an open question.

    Raises:
        QuestionError: No text, broken text, an empty option, or more or fewer options than the letters cover.
    """
    if not text.strip():
        raise QuestionError("the question is empty; expected a text such as 'When does the train leave?'")
    if any(_is_broken(part) for part in (text, *options)):
        raise QuestionError("the question holds bytes that are not UTF-8; type it again, or set the terminal to UTF-8")
    if options and not 2 <= len(options) <= len(LETTERS):
        raise QuestionError(f"the question has {len(options)} option(s); expected none, or 2 to {len(LETTERS)}")
    for letter, option in zip(LETTERS, options, strict=False):
        if not option.strip():
            raise QuestionError(f"option {letter} of the question is empty; give it a text or leave it out")
    return Question(text, tuple(options), dont_know_index(options))


def _is_broken(text: str) -> bool:
    """Tell whether text holds lone surrogates: what Python makes of command-line bytes that are not UTF-8."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def outcome_of(question: Question, choice: int) -> Outcome:
    """Tell whether choosing that option answers the question or says "I don't know"."""
    return Outcome.DONT_KNOW if choice == question.dont_know else Outcome.ANSWERED


def dont_know_index(options: Sequence[str]) -> int | None:
    """Return the index of the option that means "I don't know", or None.

    "I don't know", "not enough information" and the like come first; only where no option says so is a terse one meant
    ("Unclear", "Not mentioned").
    """
    plain = [plain_text(option) for option in options]
    for pattern in (CLEAR_DONT_KNOW, TERSE_DONT_KNOW):
        for index, option in enumerate(plain):
            if pattern.fullmatch(option):
                return index
    return None
