r"""A chat model's reply -> the option that it chooses.

`read_choice` reads a chat model's reply the way a careful person would. From the strongest evidence to the weakest,
and the first kind that is there decides:

    1  an option              as it is shown ("B. <its text>"), or its text verbatim, as the whole reply
    2  a final answer         "... Final answer: C"          the last one counts
    3  a letter               marked: "**Answer:** B", "\boxed{E}", "the choice is D", "I'd go with C", "B is correct";
                              at the start: "B", "(B)", "B. text"; or on a line of its own
    4  a labelled option      "... so it is about B) <the text of option B>"
    5  an option's own text   as the whole reply, give or take punctuation
    6  "I don't know"         -> the option that says so
    7  a refusal              -> no choice
    8  a letter pointed at    "option B", "(B)"
    9  an option's beginning  as the whole reply, which a token limit cut off, where it fits one option alone
    10 an option's own text   somewhere in a short reply

Two letters of one kind contradict each other, and so does a letter with another option's text ("B. <the text of C>")
or with options that are recited ("B. <its text>\nC. <its text>"): nothing is chosen, unless the reply takes one back
in words ("It is A... no, C", "Wait, ...") or only muses about it ("at first it seems to be A"). What is denied or
struck out is not chosen ("not B but C", "~~A~~ B"). A stray capital is never a letter: not in "The", not in "Vitamin
D", not in an option's own text, and not the article of "A dog barked". What a model makes up after its answer
("D\nHuman: ...") is not read. The answer may be marked in other languages too: in a few words of theirs, or as the
letter after a colon.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from cascade.answering.letters import OWN_TEXT, Named, covered, distinct, longest, named_letters, pointed_letters
from cascade.answering.phrases import CLEAR_DONT_KNOW, NEGATED, REFUSES, SAYS_DONT_KNOW, TERSE_DONT_KNOW
from cascade.answering.plain import SENTENCE_END, bare_option, bare_text, plain_option, plain_text, without_markup
from cascade.answering.questions import LETTERS, outcome_of
from cascade.errors import QuestionError
from cascade.types import Outcome, Question, Reading

MAX_EXTRA_WORDS: Final = 12
"""An option's text counts as the answer only in a reply that is at most this many words longer than it."""

_SHOWN = re.compile(r"\s*[(\[]?([A-E])[)\].:]+\s+")
_CLAUSE = re.compile(r"[,(:–—]|\s-\s")
_ANSWER_IS = re.compile(
    r"^(?:so |therefore )?(?:the )?(?:(?:correct|best|right|final) )?answer (?:is |would be |seems to be )?"
)
_ENDS = ("", ".", ",", ";", ":", "!", "?", ")", '"', "'", "\n")
_NO_CONTENT = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "because", "by", "did", "do", "does", "for", "from", "he", "her", "his",
    "i", "if", "in", "is", "it", "its", "no", "not", "of", "on", "or", "she", "so", "that", "the", "their", "there",
    "they", "this", "to", "was", "we", "were", "with", "you",
})  # fmt: skip
"""A reply of nothing but these does not point at an option that starts with them."""


def read_choice(reply: str, question: Question) -> Reading:
    """Read which option a reply chooses; the module's text lists what is understood.

    Args:
        reply: What the model wrote.
        question: What it was asked; its options have the letters in their order.

    Returns:
        The option's index, or None where none was chosen; how that came about: ANSWERED, DONT_KNOW (also without an
        index, when no option says so), REFUSED, UNPARSED or EMPTY; and what was read: the kind of evidence, and where
        it stands in the reply.

    Raises:
        QuestionError: More options than letters, or none.
    """
    if not 1 <= len(question.options) <= len(LETTERS):
        raise QuestionError(f"a choice needs 1 to {len(LETTERS)} options, got {len(question.options)}")
    shown = _as_shown(reply, question.options)
    if shown:
        return _chosen(LETTERS.index(shown[1]), question, "a leading letter", shown[0])
    said = without_markup(reply)
    if not said:
        return Reading(None, Outcome.EMPTY, "nothing is said")
    stripped = bare_text(said)
    verbatim = [index for index, option in enumerate(question.options) if bare_option(option) == stripped]
    kept = covered(said, question.options)
    if len(verbatim) == 1 and len(stripped) > 1 and plain_text(stripped) and OWN_TEXT not in kept:
        return _chosen(verbatim[0], question, "an option's text", said)
    named = named_letters(kept, question.options)
    return _by_letter(named, said, question) if named else _in_words(said, kept, question)


def _as_shown(reply: str, options: Sequence[str]) -> re.Match[str] | None:
    """Return the letter at the start of a reply that is one option the way all are shown: "B. <the text of B>"."""
    letter = _SHOWN.match(reply)
    choice = LETTERS.index(letter[1]) if letter else len(options)
    return (
        letter
        if letter and choice < len(options) and reply[letter.end() :].strip() == options[choice].strip()
        else None
    )


def _chosen(choice: int, question: Question, kind: str, piece: str) -> Reading:
    """Return the reading that chooses this option."""
    return Reading(choice, outcome_of(question, choice), _why(kind, piece))


def _unread(kind: str, piece: str) -> Reading:
    """Return the reading that chooses nothing."""
    return Reading(None, Outcome.UNPARSED, _why(kind, piece))


def _why(kind: str, piece: str) -> str:
    """Say what was read: the kind of evidence, and at most 60 characters of where it stands."""
    piece = " ".join(piece.split())
    return f"{kind}: {piece if len(piece) <= 60 else piece[:59] + '…'}"


# Letters.


def _by_letter(named: Sequence[Named], said: str, question: Question) -> Reading:
    """Choose the one option whose letter is named, unless letters or texts contradict each other."""
    letters = distinct(named)
    first = named[0]
    if len(letters) > 1:
        piece = said[min(item.start for item in named) : max(item.end for item in named)]
        return _unread(f"letters that contradict each other ({', '.join(letters)})", piece)
    choice = LETTERS.index(letters)
    if choice >= len(question.options):
        return _by_missing_letter(first, said, question)
    window = longest(question.options)
    for after, start in {said[item.end : item.end + window]: item.start for item in named}.items():
        if _says_another(after, choice, question):
            return _unread("a letter with another option's text", said[start : start + window])
    return _chosen(choice, question, first.kind, said[first.start : first.end])


def _by_missing_letter(item: Named, said: str, question: Question) -> Reading:
    """Choose nothing; "E. I don't know" still says that much where no option does."""
    unsure = _unsure(plain_text(said[item.end :]), ()) if question.dont_know is None else ""
    if unsure:
        return Reading(None, Outcome.DONT_KNOW, _why('"I don\'t know" in words', unsure))
    return _unread("a letter that no option has", said[item.start : item.end])


def _says_another(after: str, choice: int, question: Question) -> bool:
    """Tell whether what follows a letter is another option's text, and nothing but that: "B. <the text of C>"."""
    options = question.options
    said = after.lstrip(" .):]}-–—,\"'\n")
    own = bare_option(options[choice])
    if not said or (said[: len(own)].casefold() == own and said[len(own) : len(own) + 1] in _ENDS):
        return False
    sentence = SENTENCE_END.split(said, maxsplit=1)[0]
    plain = [plain_option(option) for option in options]
    whole = plain_text(sentence)
    if plain[choice].startswith(whole):
        return False
    clause = plain_text(_CLAUSE.split(sentence, maxsplit=1)[0])
    if whole in plain or (clause and clause in plain):
        return clause != plain[choice]
    if choice != question.dont_know and CLEAR_DONT_KNOW.fullmatch(whole):
        return True
    cut_off = sentence == said and len(after) < longest(options)
    begun = _begun(whole, plain, ended=False) if cut_off else None
    return begun is not None and begun != choice


# Words.


def _in_words(said: str, kept: str, question: Question) -> Reading:
    """Read a reply that names no letter; `kept` is what it says but for the letters that it denies."""
    plain = _ANSWER_IS.sub("", plain_text(said))
    options = [plain_option(option) for option in question.options]
    if plain and options.count(plain) == 1:
        return _chosen(options.index(plain), question, "an option's text", said)
    unsure = _unsure(plain, [option for index, option in enumerate(options) if index != question.dont_know])
    if unsure:
        told = _told_anyway(said, options, question.dont_know)
        if told:
            return _unread('"I don\'t know", and yet an option', told)
        return Reading(question.dont_know, Outcome.DONT_KNOW, _why('"I don\'t know" in words', unsure))
    refusal = REFUSES.search(plain)
    if refusal:
        return Reading(None, Outcome.REFUSED, _why("a refusal", refusal[0]))
    pointed = pointed_letters(kept, question.options)
    if pointed:
        return _by_letter(pointed, said, question)
    begun = _begun(plain, options, ended=not said[-1].isalnum())
    if begun is not None:
        return _chosen(begun, question, "the beginning of an option's text", said)
    return _by_text(_held(plain, options), said, question)


def _unsure(said: str, others: Sequence[str]) -> str:
    """Return the words that mean "I don't know", empty where there are none but those of another option's text."""
    if not SAYS_DONT_KNOW.search(said) and not CLEAR_DONT_KNOW.fullmatch(said) and not TERSE_DONT_KNOW.fullmatch(said):
        return ""
    for option in others:
        if SAYS_DONT_KNOW.search(option):
            said = f" {said} ".replace(f" {option} ", " ; ").strip()
    found = SAYS_DONT_KNOW.search(said) or CLEAR_DONT_KNOW.fullmatch(said) or TERSE_DONT_KNOW.fullmatch(said)
    return found[0] if found else ""


def _told_anyway(said: str, options: Sequence[str], dont_know: int | None) -> str:
    """Return the clause that names an option beside one that says "I don't know": a secret told is no secret kept.

    A clause that doubts what it names ("it does not say whether it is asthma") tells nothing, and several options named
    are no answer.
    """
    others = ["" if index == dont_know else option for index, option in enumerate(options)]
    clauses = [clause for clause in _CLAUSE_END.split(said) if not _SAYS_NOTHING.search(plain_text(clause))]
    held = {index: clause for clause in clauses for index in _held(plain_text(clause), others)}
    return next(iter(held.values())) if len(held) == 1 else ""


_CLAUSE_END = re.compile(r"[.;:!?\n–—]+(?=\s|$)|\bbut\b|\bthough\b")
_SAYS_NOTHING = re.compile(
    rf"{SAYS_DONT_KNOW.pattern}"
    r"|\b(?:whether|if|or|nor|neither|not|never|no|the question|the option|asks?|asked|options?)\b"
)
"""Clauses in which an option is named without being given as the answer."""


def _begun(said: str, options: Sequence[str], *, ended: bool) -> int | None:
    """Return the one option that starts with all that is said, None unless it is the only one that holds it.

    A token limit also cuts words; not those that are followed by a full stop (`ended`), nor short ones.
    """
    if set(said.split()) <= _NO_CONTENT:
        return None
    whole = f"{said} "
    begun = [
        index
        for index, option in enumerate(options)
        if f"{option} ".startswith(whole) or (not ended and len(said) > 3 and option.startswith(said))
    ]
    held = [index for index, option in enumerate(options) if f" {whole}" in f" {option} "]
    return begun[0] if len(begun) == 1 and set(held) <= set(begun) else None


def _by_text(held: set[int], said: str, question: Question) -> Reading:
    """Choose the one option whose text the reply holds."""
    if len(held) != 1:
        return _unread("texts that contradict each other" if held else "no option", said)
    (choice,) = held
    return _chosen(choice, question, "an option's text in the reply", said)


def _held(said: str, options: Sequence[str]) -> set[int]:
    """Return the options whose text stands in the reply, not denied, and is not just a part of a longer one's."""
    held = {index: option for index, option in enumerate(options) if option and _asserts(said, option)}
    return {
        index
        for index, option in held.items()
        if not any(option != other and f" {option} " in f" {other} " for other in held.values())
        and len(said.split()) <= len(option.split()) + MAX_EXTRA_WORDS
    }


def _asserts(said: str, option: str) -> bool:
    """Tell whether the words of the option stand in the reply without a "not" shortly before."""
    before, found, _ = f" {said} ".partition(f" {option} ")
    return bool(found) and not NEGATED.search(f"{before} ")
