r"""What every answerer shares: the protocol, prompts, option letters, "I don't know", reading a reply.

An answerer turns a Question and a Transcript into an Answer. It sees admitted text only: withheld spans carry none.

`read_choice` reads a chat model's reply the way a careful person would. From the strongest evidence to the weakest,
and the first kind that is there decides:

    1  an option's own text   verbatim, as the whole reply
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

Two letters of one kind contradict each other, and so does a letter with another option's text ("B. <the text of C>"):
nothing is chosen, unless the reply takes one back ("Wait, ...") or only muses about it ("at first it seems to be A").
A stray capital is never a letter: not in "The", not in "Vitamin D", and not the article of "A dog barked". What a
model makes up after its answer ("D\nHuman: ...") is not read.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol, final

from cascade.errors import ConfigError, QuestionError
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


# --- what a chat model is told ----------------------------------------------------------------------------------------

PLACEHOLDERS: Final = ("description", "transcript", "question", "options")
"""What a prompt may hold in braces."""

NO_SPEECH: Final = "(no speech)"
"""What stands for a transcript in which nobody says anything."""

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}")


@final
@dataclass(frozen=True, slots=True)
class Prompt:
    """What a chat model is told: a text that names its PLACEHOLDERS in braces; a brace that is meant is doubled.

    Raises:
        ConfigError: Something else stands in braces, a brace stands alone, or there is no {question}.
    """

    text: str

    def __post_init__(self) -> None:
        names = [match[1] for match in _BRACES.finditer(self.text) if match[1] is not None]
        known = f"it may hold {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}; a brace that is meant is doubled"
        for name in names:
            if name not in PLACEHOLDERS:
                close = get_close_matches(name, PLACEHOLDERS, 1, cutoff=0.0)[0]
                raise ConfigError(f"the prompt holds {{{name[:30]}}}, did you mean {{{close}}}? {known.capitalize()}")
        if lone := re.search(r"[{}]", _BRACES.sub("", self.text)):
            raise ConfigError(f"the prompt holds a lone '{lone[0]}'; {known}")
        if "question" not in names:
            raise ConfigError("the prompt does not hold {question}; put it where the question belongs")

    @property
    def sha256(self) -> str:
        """The hash of the text in UTF-8, which tells one prompt from another in results."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def bind(self, description: str) -> str:
        """Return the text with the main speaker's description filled in, ready for `fill`; its braces stay text."""
        escaped = description.replace("{", "{{").replace("}", "}}")
        return _BRACES.sub(lambda match: escaped if match[1] == "description" else match[0], self.text)

    def fill(self, question: Question, transcript: Transcript, description: str = "") -> str:
        """Return what the model is told about this question; the four values are put in as they are."""
        return fill(self.bind(description), question, transcript)


def load_prompt(path: Path) -> Prompt:
    """Read a prompt from a UTF-8 file.

    Raises:
        ConfigError: The file is missing or not UTF-8, or its text is no Prompt.
    """
    try:
        return Prompt(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no prompt file {path}; create it, or name another") from None
    except OSError as error:
        raise ConfigError(f"the prompt file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the prompt file {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def fill(prompt: str, question: Question, transcript: Transcript) -> str:
    """Put question, options and transcript into a prompt's text in a single pass.

    Args:
        prompt: What `Prompt.bind` returns; a {description} that is still in it gives nothing.
        question: Its text, and its options as lines such as "A. text".
        transcript: Its admitted text, a line for each utterance, labelled where several speak; what was withheld leaves
            no trace.
    """
    values: Mapping[str, str] = {
        "transcript": _spoken(transcript),
        "question": question.text,
        "options": "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, question.options, strict=False)),
    }
    return _BRACES.sub(lambda match: match[0][0] if match[1] is None else values.get(match[1], ""), prompt)


def _spoken(transcript: Transcript) -> str:
    """Return the admitted utterances that have a text, a line each, with their speaker where there is more than one."""
    spoken = [(each.speaker, " ".join(each.text.split())) for each in transcript.utterances if each.text.strip()]
    several = len({speaker for speaker, _ in spoken}) > 1
    return "\n".join(f"{speaker}: {text}" if several else text for speaker, text in spoken) or NO_SPEECH


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
_NOT_TO_BE = r"(?:can|could) not be (?:determined|answered|known|inferred|told|established|deduced|said|found)"

_CLEAR = (  # whoever says this speaks of their own answer
    rf"(?:(?:i|we|you|it|(?:the )?{_SOURCE}) )?(?:do|does|did) not {_ADVERB}"
    r"(?:have|provide|give|contain|include|hold|offer) (?:access to )?"
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
            rf"\b{_SOURCE} (?:\d+ )?(?:is|are|was|were) not {_ADVERB}(?:talking about|discussing)\b",
            rf"\b(?:can not|unable to) (?:answer|respond to) (?:\w+ ){{0,3}}"
            rf"(?:based on|from|with|using|given) (?:\w+ ){{0,3}}{_SOURCE}\b",
            rf"\b(?:answer|it|this|that|information) is not (?:contained )?in (?:\w+ ){{0,2}}{_SOURCE}\b",
            r"\bno mention of\b",
            r"\bi am (?:not sure|not certain|unsure)\b",
            r"^(?:the answer is |it is )?(?:not mentioned|unknown|unclear|idk)\b",
            r"^(?:i am )?(?:sorry )?(?:but )?(?:i am )?unable to answer$",
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
    text = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    if "'" in text or "cannot" in text or "dont" in text or "doesnt" in text:
        for pattern, spelt_out in _CONTRACTIONS:
            text = pattern.sub(spelt_out, text)
    return " ".join(_WORDS.findall(text))


_WORDS = re.compile(r"\w+")
_CONTRACTIONS = tuple(
    (re.compile(pattern), spelt_out)
    for pattern, spelt_out in (
        (r"\bcan't|\bcannot", "can not"),
        (r"\bwon't", "will not"),
        (r"(?<=[a-z])n't\b|(?<=\bdo)nt\b|(?<=\bdoes)nt\b", " not"),
        (r"\bi'm\b", "i am"),
        (r"\b(it|that|there)'s\b", r"\1 is"),
    )
)


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
_MARKUP = re.compile(
    r"\\(?:boxed|fbox|text|textbf|mathrm|mathbf)\b|</?\w+>|<\|\w+\|>"
    r"|[*_`$#{}\\\u00ad\u200b-\u200d\u2060\ufeff]|\\[()\[\]]"
)
_MAY_BE_MARKUP = re.compile(r"[\\<*_`$#{}\u00ad\u200b-\u200d\u2060\ufeff]")
_BOXED = re.compile(r"\\f?boxed\s*\{|<answer>")
_THOUGHT = re.compile(r"(?s)^.*</think(?:ing)?>|<think(?:ing)?>.*")
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
_RUN_ON = re.compile(
    r"(?si)\n(?:human|user|assistant)\s*(?::|\n|$).*|(?<=\S)\s+(?-i:Human|User|Assistant):.*"
    r"|(?<=\S)\s*(?:<\|\w+\|>|</s>).*"
)
_NEXT_QUESTION = re.compile(
    r"(?si)\A([(\[\"'*]*[A-E]\b[^\n]*)\n(?:question|q|instruction|input|exercise)\b\s*\d*\s*[:.].*"
)
_NEGATED = re.compile(r"\b(?:not|no|nor|never|neither)(?: (?!but\b)\w+){0,2} $")
_SENTENCE = re.compile(r"[.;!?](?=\s|$)|\n")
_CLAUSE = re.compile(r"[,(:–—]|\s-\s")
_ANSWER_IS = re.compile(
    r"^(?:so |therefore )?(?:the )?(?:(?:correct|best|right|final) )?answer (?:is |would be |seems to be )?"
)
_ENDS = ("", ".", ",", ";", ":", "!", "?", ")", '"', "'", "\n")
_QUOTES: Final = str.maketrans("’‘“”", "''\"\"")
_MAY_RUN_ON = ("human", "user", "assistant", "<|", "</s>", "\nq", "\nin", "\nex")
_NO_CONTENT = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "because", "by", "did", "do", "does", "for", "from", "he", "her", "his",
    "i", "if", "in", "is", "it", "its", "no", "not", "of", "on", "or", "she", "so", "that", "the", "their", "there",
    "they", "this", "to", "was", "we", "were", "with", "you",
})  # fmt: skip
"""A reply of nothing but these does not point at an option that starts with them."""


class _Named(NamedTuple):
    """Letters that a reply names in one place ("B"; "AC" in "A or C"), and where that is."""

    kind: str
    letters: str
    start: int
    end: int


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
    said = _without_markup(reply)
    if not said:
        return Reading(None, Outcome.EMPTY, "nothing is said")
    stripped = _stripped(said)
    verbatim = [index for index, option in enumerate(question.options) if _bare(option) == stripped]
    if len(verbatim) == 1 and len(stripped) > 1:
        return _chosen(verbatim[0], question, "an option's text", said)
    kept = _without_denials(said)
    named = _letters(kept, question.options)
    return _by_letter(named, said, question) if named else _in_words(said, kept, question)


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


def _letters(said: str, options: Sequence[str]) -> list[_Named]:
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
            return _settled(marked + (opening if len(_distinct(opening)) == 1 else []), said)
    return opening or _labelled(said, options)


def _found(kind: str, pattern: re.Pattern[str], said: str) -> list[_Named]:
    """Return the letters of each match, in order."""
    return [
        _Named(kind, "".join(filter(None, match.groups())).upper(), match.start(), match.end())
        for match in pattern.finditer(said)
    ]


def _distinct(named: Sequence[_Named]) -> str:
    """Return the letters that are named, each once, sorted."""
    return "".join(sorted(set().union(*(item.letters for item in named))))


def _settled(named: list[_Named], said: str) -> list[_Named]:
    """Where letters contradict each other, drop those that were taken back and those that were only mused about."""
    if len(_distinct(named)) > 1:
        withdrawn = max((match.end() for match in _WITHDRAWN.finditer(said)), default=0)
        named = [item for item in named if item.start >= withdrawn] or named
    if len(_distinct(named)) > 1:
        named = [item for item in named if not _LOOSE.search(said, item.start, item.end)] or named
    return named


def _opening(said: str) -> list[_Named]:
    """Return the letter that the reply starts with, and those that have a line to themselves.

    A reply that starts with A and goes on to another letter recites the options.
    """
    named = _found("a letter alone", _ALONE, said)
    start = _LEADING.match(said)
    if start:
        letters = "".join(filter(None, start.groups())).upper()
        named.append(_Named("a leading letter", letters, start.start(), start.end()))
        named += _found("a listed letter", _LISTED, said) if letters == "A" else []
    return named


def _labelled(said: str, options: Sequence[str]) -> list[_Named]:
    """Return the letters that stand before their own option's text: "so it was B) espresso tonic"."""
    named = []
    for match in _LABEL.finditer(said):
        index = LETTERS.index(match[1])
        text = _bare(options[index]) if index < len(options) else ""
        end = match.end() + len(text)
        if text and said[match.end() : end].casefold() == text and not said[end : end + 1].isalnum():
            named.append(_Named("a labelled option", match[1], match.start(), end))
    return named


def _pointed(said: str, options: Sequence[str]) -> list[_Named]:
    """Return the letters in brackets or after "option"; an option's text right before the bracket counts as its letter.

    So "Copenhagen (B)" names two letters where Copenhagen is C.
    """
    named = _found("a letter pointed at", _POINTED, said)
    window = _longest(options)
    texts = {said[max(0, item.start - window) : item.start] for item in named if said[item.start] in "(["}
    for text in texts:
        before = f" {_plain(_SENTENCE.split(text)[-1])}"
        for letter, option in zip(LETTERS, map(_plain_option, options), strict=False):
            if option and before.endswith(f" {option}") and not _NEGATED.search(before.removesuffix(option)):
                named.append(named[0]._replace(letters=letter))
    return named


def _by_letter(named: Sequence[_Named], said: str, question: Question) -> Reading:
    """Choose the one option whose letter is named, unless letters or texts contradict each other."""
    letters = _distinct(named)
    first = named[0]
    if len(letters) > 1:
        piece = said[min(item.start for item in named) : max(item.end for item in named)]
        return _unread(f"letters that contradict each other ({', '.join(letters)})", piece)
    choice = LETTERS.index(letters)
    if choice >= len(question.options):
        return _by_missing_letter(first, said, question)
    window = _longest(question.options)
    for after, start in {said[item.end : item.end + window]: item.start for item in named}.items():
        if _says_another(after, choice, question):
            return _unread("a letter with another option's text", said[start : start + window])
    return _chosen(choice, question, first.kind, said[first.start : first.end])


def _by_missing_letter(item: _Named, said: str, question: Question) -> Reading:
    """Choose nothing; "E. I don't know" still says that much where no option does."""
    unsure = _unsure(_plain(said[item.end :]), ()) if question.dont_know is None else ""
    if unsure:
        return Reading(None, Outcome.DONT_KNOW, _why('"I don\'t know" in words', unsure))
    return _unread("a letter that no option has", said[item.start : item.end])


def _longest(options: Sequence[str]) -> int:
    """Return how many characters hold any of the options' texts, with what is put around them."""
    return max(map(len, options)) + 20


def _says_another(after: str, choice: int, question: Question) -> bool:
    """Tell whether what follows a letter is another option's text, and nothing but that: "B. <the text of C>"."""
    options = question.options
    said = after.lstrip(" .):]}-–—,\"'\n")
    own = _bare(options[choice])
    if not said or (said[: len(own)].casefold() == own and said[len(own) : len(own) + 1] in _ENDS):
        return False
    sentence = _SENTENCE.split(said, maxsplit=1)[0]
    plain = [_plain_option(option) for option in options]
    whole = _plain(sentence)
    if plain[choice].startswith(whole):
        return False
    clause = _plain(_CLAUSE.split(sentence, maxsplit=1)[0])
    if whole in plain or (clause and clause in plain):
        return True
    if choice != question.dont_know and _CLEAR_OPTION.fullmatch(whole):
        return True
    cut_off = sentence == said and len(after) < _longest(options)
    begun = _begun(whole, plain, ended=False) if cut_off else None
    return begun is not None and begun != choice


# Words.


def _in_words(said: str, kept: str, question: Question) -> Reading:
    """Read a reply that names no letter; `kept` is what it says but for the letters that it denies."""
    plain = _ANSWER_IS.sub("", _plain(said))
    options = [_plain_option(option) for option in question.options]
    if options.count(plain) == 1:
        return _chosen(options.index(plain), question, "an option's text", said)
    unsure = _unsure(plain, [option for index, option in enumerate(options) if index != question.dont_know])
    if unsure:
        return Reading(question.dont_know, Outcome.DONT_KNOW, _why('"I don\'t know" in words', unsure))
    refusal = _REFUSES.search(plain)
    if refusal:
        return Reading(None, Outcome.REFUSED, _why("a refusal", refusal[0]))
    pointed = _pointed(kept, question.options)
    if pointed:
        return _by_letter(pointed, said, question)
    begun = _begun(plain, options, ended=not said[-1].isalnum())
    if begun is not None:
        return _chosen(begun, question, "the beginning of an option's text", said)
    return _by_text(_held(plain, options), said, question)


def _unsure(said: str, others: Sequence[str]) -> str:
    """Return the words that mean "I don't know", empty where there are none but those of another option's text."""
    if not _SAYS_SO.search(said) and not _CLEAR_OPTION.fullmatch(said) and not _TERSE_OPTION.fullmatch(said):
        return ""
    for option in others:
        if _SAYS_SO.search(option):
            said = f" {said} ".replace(f" {option} ", " ; ").strip()
    found = _SAYS_SO.search(said) or _CLEAR_OPTION.fullmatch(said) or _TERSE_OPTION.fullmatch(said)
    return found[0] if found else ""


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
    return bool(found) and not _NEGATED.search(f"{before} ")


# What is read of a text.


def _without_markup(reply: str) -> str:
    """Return the reply without Markdown, TeX, tags, a reasoner's thoughts, and turns that the model made up."""
    said = reply if reply.isascii() else _ascii_quotes(unicodedata.normalize("NFKC", reply))
    said = "\n".join(" ".join(line.split()) for line in said.splitlines() if line.strip())
    folded = said.casefold()
    if "<think" in folded or "</think" in folded:
        said = _THOUGHT.sub("", said)
    if any(word in folded for word in _MAY_RUN_ON):
        said = _NEXT_QUESTION.sub(r"\1", _RUN_ON.sub("", said))
    if _MAY_BE_MARKUP.search(said):
        said = _MARKUP.sub("", _BOXED.sub(" answer: ", said))
    return said.strip()


def _ascii_quotes(text: str) -> str:
    """Return the text with straight quotation marks."""
    return text.translate(_QUOTES)


def _without_denials(said: str) -> str:
    """Return what is said with a "~" for each letter that it denies: "I don't think it's ~", "not (~)"."""
    folded = said.casefold()
    if not any(word in folded for word in _MAY_DENY):
        return said
    return _DENIED.sub(lambda denied: _LONE_LETTER.sub("~", denied[0]), said)


def _stripped(said: str) -> str:
    """Return a text without what is put around it, case folded; its inner punctuation stays."""
    return said.casefold().strip(" .,;!\"'()[]")


@lru_cache(maxsize=16_384)
def _bare(option: str) -> str:
    """Return `_stripped` of an option's text, written as `_without_markup` writes replies."""
    return _stripped(_without_markup(option))


@lru_cache(maxsize=16_384)
def _plain_option(option: str) -> str:
    """Return `_plain` of an option's text, written as `_without_markup` writes replies."""
    return _plain(_without_markup(option))
