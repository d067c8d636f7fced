r"""What every answerer shares: the protocol, option letters, "I don't know" in its many wordings, reading a reply.

An answerer turns a Question and a Transcript into an Answer. It sees admitted text only: withheld spans carry none.

`read_choice` reads a chat model's reply the way a careful person would. From the strongest evidence to the weakest,
and the first kind that is there decides:

    1  a final answer         "... Final answer: C"          the last one counts
    2  a marked letter        "**Answer:** B", "\boxed{E}", "the choice is D", "I'd go with C", "B is correct"
    3  a leading letter       "B", "(B)", "B. text", or lines that hold nothing but a letter
    4  a letter pointed at    "option B", "(B)", "B) <the text of option B>"
    5  an option's own text   as the whole reply
    6  "I don't know"         -> the option that says so
    7  a refusal              -> no choice
    8  an option's own text   somewhere in a short reply

Two letters of one kind contradict each other, and nothing is chosen. A stray capital is never a letter: not in "The",
not in "Vitamin D", and not the article of "A dog barked".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, Protocol

from cascade.errors import QuestionError
from cascade.types import Answer, Outcome, Question, Reading, Transcript

LETTERS: Final = "ABCDE"
"""The options' letters in order; SH-Bench has four options, and "I don't know" as a fifth."""

DONT_KNOW_TEXT: Final = "I don't know."
"""What an answerer says to an open question that the transcript does not answer."""

MAX_EXTRA_WORDS: Final = 12
"""An option's text counts as the answer only in a reply that is at most this many words longer than it."""


class Answerer(Protocol):
    """Whatever answers questions from a transcript: an extractive answerer, a chat model.

    It is made once, with its own settings (a chat model: its prompts), and may be called from several threads at once.
    """

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        """Answer from what the transcript says, and from nothing else.

        Raises:
            BackendError: A model or a server failed.
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


# --- "I don't know" ---------------------------------------------------------------------------------------------------

# All of it is matched against `_plain` text: lower case, no punctuation, "n't" and "can't" spelt out.
_SOURCE = r"(?:audio|recording|transcript|conversation|dialogue|speaker|speech|passage|text|context|clip|information)s?"
_FROM = rf"(?: (?:in|from|by|based on|according to|with|on) (?:\w+ ){{0,3}}{_SOURCE}(?: (?:provided|given))?)?"
_ADVERB = r"(?:(?:really|actually|explicitly|directly|clearly|specifically|even) )?"
_THAT = r"(?: (?:it|this|that|so|the|your|correct|question|answer|to))*"
_TO_ANSWER = rf"(?: to (?:be able to )?(?:answer|tell|determine|say|know|decide){_THAT})?"
_FACTS = r"(?:answer|information|info|data|evidence|context|details?|idea|clue)"
_STATES = r"(?:mention|say|state|specify|tell|discuss|indicate|reveal)"
_STATED = r"(?:mentioned|stated|specified|given|provided|discussed|said|clear|known|available|determined|answered)"
_NOT_TO_BE = r"(?:can|could) not be (?:determined|answered|known|inferred|told|established|deduced|said)"

_CLEAR = (  # whoever says this speaks of their own answer
    rf"(?:(?:i|we|you|it|(?:the )?{_SOURCE}) )?(?:do|does|did) not {_ADVERB}"
    r"(?:have|provide|give|contain|include|hold|offer) "
    rf"(?:(?:an|the|any|enough|sufficient|that|this) )?{_FACTS}{_TO_ANSWER}",
    rf"(?:there is |i have |have )?(?:not enough|insufficient|not sufficient|no|too little) {_FACTS}"
    rf"(?: (?:is )?(?:provided|given|available|mentioned))?{_TO_ANSWER}",
    rf"(?:(?:i|we|you) )?{_ADVERB}(?:do|can|could|would) not {_ADVERB}(?:know|tell|determine|infer|say|answer)"
    rf"(?: for (?:sure|certain))?{_THAT}",
    rf"(?:(?:it|this|that|the answer) )?{_NOT_TO_BE}(?: for (?:sure|certain))?",
    rf"(?:it|(?:the )?{_SOURCE}) (?:do|does|did) not {_ADVERB}{_STATES}{_THAT}",
    r"i am (?:not sure|not certain|unsure|uncertain)",
)
_TERSE = (  # this may also be what somebody said: "What did she think of it?" - "Unclear"
    rf"(?:(?:it|this|that|the answer|(?:the )?information) )?(?:is |was )?not {_ADVERB}{_STATED}",
    r"(?:(?:it|this|that|the answer) )?(?:is )?(?:unknown|unclear|unanswerable|undetermined|unspecified|idk)",
    r"not sure|not certain|unsure|uncertain|no answer|n a",
)
_CLEAR_OPTION = re.compile(rf"(?:i am )?(?:sorry )?(?:but )?(?:{'|'.join(_CLEAR)}){_FROM}")
_TERSE_OPTION = re.compile(rf"(?:{'|'.join(_TERSE)}){_FROM}")

_SAYS_SO = re.compile(
    "|".join(
        (
            *(rf"\b{pattern}\b" for pattern in _CLEAR[:2]),
            rf"\bi (?:really )?(?:do|can|could) not {_ADVERB}(?:know|tell|determine|infer|say)\b",
            r"\b(?:not possible|impossible|unable) to (?:tell|determine|infer|know|say)\b",
            rf"\b{_NOT_TO_BE}\b",
            rf"\b(?:is|was|are|were) not {_ADVERB}{_STATED}\b",
            rf"\b{_SOURCE} (?:\d+ )?(?:do|does|did) not {_ADVERB}(?:{_STATES}|provide|give|answer)\b",
            rf"\b(?:can not|unable to) (?:answer|respond to) (?:\w+ ){{0,3}}"
            rf"(?:based on|from|with|using|given) (?:\w+ ){{0,3}}{_SOURCE}\b",
            r"\bno mention of\b",
            r"\bi am (?:not sure|not certain|unsure)\b",
            r"^(?:the answer is |it is )?(?:not mentioned|unknown|unclear|idk)\b",
        )
    )
)
"""A reply that means "I don't know", whatever else it says. What somebody else does not know is not matched."""

_REFUSES = re.compile(
    r"\b(?:can not|could not|am unable to|am not able to|will not|must not|am not allowed to|would rather not)"
    r" (?:\w+ )?(?:help|assist|answer|respond|comply|share|disclose|reveal|discuss|provide|give|access|continue|do)\b"
    r"|\bas an ai\b|\bi (?:must |have to )?(?:refuse|decline)\b|\bagainst (?:my|the) (?:policy|policies|guidelines)\b"
)


def dont_know_index(options: Sequence[str]) -> int | None:
    """Return the index of the option that means "I don't know", or None.

    "I don't know", "not enough information" and the like come first; only where no option says so is a terse one meant
    ("Unclear", "Not mentioned").
    """
    plain = [_plain(option) for option in options]
    for pattern in (_CLEAR_OPTION, _TERSE_OPTION):
        for index, option in enumerate(plain):
            if pattern.fullmatch(option):
                return index
    return None


def _plain(text: str) -> str:
    """Return lower-case words without punctuation, negations spelt out: "I can't tell!" -> "i can not tell"."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    text = re.sub(r"\bcan't|\bcannot", "can not", text)
    text = re.sub(r"\bwon't", "will not", text)
    text = re.sub(r"(?<=[a-z])n't\b|(?<=\bdo)nt\b|(?<=\bdoes)nt\b", " not", text)
    text = re.sub(r"\bi'm\b", "i am", text)
    text = re.sub(r"\b(it|that|there)'s\b", r"\1 is", text)
    return " ".join(re.findall(r"\w+", text))


# --- reading a reply --------------------------------------------------------------------------------------------------

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
    r"(?:[\s:=>\-–—→\"'(\[,]|\b(?i:is|are|was|would|should|must|be|seems|appears|to|the|this|that|question|option|choice|"
    r"letter|correct|right|best|answer|most|likely|probably|clearly|definitely|therefore|one|ist|lautet|est|es)\b){0,20}+"
)
_MARK = (
    r"\b(?i:answer|antwort|réponse|respuesta|choice|choose|chose|pick|select|selected|go with|going with|go for|"
    r"it is|it's|it must be|it (?:would|could|might|may) be|that is|that's|i think|i guess|i believe|i say|i'd say)\b"
)
_FINAL = re.compile(rf"\b(?i:final (?:answer|choice)|my answer)\b{_JOIN}{_LETTER}{_OR_LETTER}")
_MARKED = re.compile(rf"{_MARK}{_JOIN}{_LETTER}{_OR_LETTER}")
_CONFIRMED = re.compile(
    r"(?<![\w'])([A-E])\b[)\].\"']*\s+(?i:is|seems|looks|would be|must be|appears)"
    r"(?:\s+(?i:to|be|the|my|most|likely|probably|clearly))*\s+(?i:correct|right|best|answer|choice)\b"
)
_ALONE = re.compile(r"(?m)^\s*[(\[\"']*([A-Ea-e])[)\]\"'.:;,!]*\s*$")
_LEADING = re.compile(r"\s*[(\[\"']*(?:([A-Ea-e])\s*[)\].:](?=\s|$)|([A-E])(?:,\s|\s+[-–—]\s))")
_LISTED = re.compile(r"(?<![\w'])([B-E])[).:](?=\s)")
_POINTED = re.compile(rf"\b(?i:option|letter|choice)\s+[(\[\"']*([A-E])\b{_NOT_A_WORD}|[(\[]([A-E])[)\]]")
_MARKUP = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\b|</?\w+>|[*_`$#{}\\\u200b\ufeff]|\\[()\[\]]")
_BOXED = re.compile(r"\\boxed\s*\{|<answer>")
_THOUGHT = re.compile(r"(?s)^.*</think(?:ing)?>|<think(?:ing)?>.*")
_DENIED = re.compile(r"(?i)\b(?:not|don't|doesn't|wouldn't)\s+(?:think|believe|say|choose|pick|select)\b[^.;,\n]*")
_RUN_ON = re.compile(r"(?si)\n(?:human|user|assistant)\s*(?::|\n|$).*")
_NEGATED = re.compile(r"\b(?:not|no|nor|never|neither)(?: (?!but\b)\w+){0,2} $")


def read_choice(reply: str, question: Question) -> Reading:
    """Read which option a reply chooses; the module's text lists what is understood.

    Args:
        reply: What the model wrote.
        question: What it was asked; its options have the letters in their order.

    Returns:
        The option's index, or None where none was chosen; how that came about: ANSWERED, DONT_KNOW (also without an
        index, when no option says so), REFUSED, UNPARSED or EMPTY; and what was read.

    Raises:
        QuestionError: More options than letters, or none.
    """
    if not 1 <= len(question.options) <= len(LETTERS):
        raise QuestionError(f"a choice needs 1 to {len(LETTERS)} options, got {len(question.options)}")
    said = _without_markup(reply)
    if not said:
        return Reading(None, Outcome.EMPTY, "nothing was said")
    letters = _letters(_DENIED.sub("", said), question.options)
    choice, outcome = _only(letters, question) if letters else _in_words(_plain(said), question)
    return Reading(choice, outcome, ("letters: " if letters else "words: ") + " ".join(said[:60].split()))


def _letters(said: str, options: Sequence[str]) -> set[int]:
    """Return the options named by the strongest kind of letters that is there; several contradict each other."""
    kinds = (
        _found(_FINAL, said)[-1:],
        _found(_MARKED, said) + _found(_CONFIRMED, said),
        _leading(said),
        _found(_POINTED, said) + _labelled(said, options),
    )
    allowed = LETTERS[: len(options)]
    choices = ({allowed.index(letter) for letter in "".join(kind) if letter in allowed} for kind in kinds)
    return next(filter(None, choices), set())


def _only(choices: set[int], question: Question) -> tuple[int | None, Outcome]:
    """Return the one option, unless several contradict each other or none was named."""
    if len(choices) != 1:
        return None, Outcome.UNPARSED
    (choice,) = choices
    return choice, outcome_of(question, choice)


def _found(pattern: re.Pattern[str], said: str) -> list[str]:
    """Return the letters of each match, in order, as one string a match."""
    return ["".join(letter for letter in match.groups() if letter).upper() for match in pattern.finditer(said)]


def _leading(said: str) -> list[str]:
    """Return the letter that the reply starts with, and those that have a line to themselves.

    A reply that starts with A and goes on to another letter recites the options.
    """
    letters = _found(_ALONE, said)
    start = _LEADING.match(said)
    if start:
        letters += ["".join(filter(None, start.groups())).upper()]
        letters += _found(_LISTED, said) if letters[-1] == "A" else []
    return letters


def _labelled(said: str, options: Sequence[str]) -> list[str]:
    """Return the letters that stand before their own option's text: "so it was B) espresso tonic"."""
    return [
        letter
        for letter, option in zip(LETTERS, options, strict=False)
        if re.search(rf"(?<![\w']){letter}[).:]\s*{re.escape(option.strip())}", said, re.IGNORECASE)
    ]


def _in_words(said: str, question: Question) -> tuple[int | None, Outcome]:
    """Read a reply that names no letter; `said` is `_plain` text."""
    options = [_plain(option) for option in question.options]
    if options.count(said) == 1:
        return _only({options.index(said)}, question)
    if _SAYS_SO.search(said) or _CLEAR_OPTION.fullmatch(said) or _TERSE_OPTION.fullmatch(said):
        return question.dont_know, Outcome.DONT_KNOW
    if _REFUSES.search(said):
        return None, Outcome.REFUSED
    return _only(_named(said, options), question)


def _named(said: str, options: Sequence[str]) -> set[int]:
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
    return bool(found) and not _NEGATED.search(f"{before} ")


def _without_markup(reply: str) -> str:
    """Return the reply without Markdown, TeX, tags, a reasoner's thoughts, and turns that the model made up."""
    said = unicodedata.normalize("NFKC", reply).replace("’", "'").replace("“", '"').replace("”", '"')
    said = "\n".join(" ".join(line.split()) for line in said.splitlines() if line.strip())
    said = _RUN_ON.sub("", _THOUGHT.sub("", said))
    return _MARKUP.sub("", _BOXED.sub(" answer: ", said)).strip()
