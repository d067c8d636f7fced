"""The option letters that a reply names, and how: alone, at its start, marked as the answer, labelled, pointed at.

What is called `said` here is a reply `without_markup`. What is called `kept` is the same, of the same length, but
`covered`: letters that are denied are DENIED, and an option's text right after its own letter is OWN_TEXT, so that no
letter is looked for in "L.C.D. screen" and no denial in "Not before noon".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cascade.answering.phrases import NEGATED, TAKES_BACK, TAKES_BACK_WORDS
from cascade.answering.plain import SENTENCE_END, bare_option, plain_option, plain_text
from cascade.answering.questions import LETTERS

DENIED: Final = "\x01"
OWN_TEXT: Final = "\x02"
"""Neither can stand in a reply: `without_markup` drops control characters."""

# A letter is not the start of a word (Boston, B-12, D.C.), and an "A" before a word is the article, unless the word
# goes on about the letter ("the answer is A because ...") or is of a language without it. "a" counts only where it
# stands alone.
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_NOT_A_WORD = rf"(?![\w'&]|[.-]\w)(?!(?<=A)[^\S\n]+(?!(?:because|since|as|is|and|or|with|for)\b)(?![{_CJK}])\w)"
_LETTER = rf"[(\[\"']*(?<![\w'])([A-E]|[b-e]|a(?=\s*$|[)\].:;]))\b{_NOT_A_WORD}[)\]\"']*"
_OR_LETTER = (
    rf"(?:(?:[).:]?\s*{OWN_TEXT}+)?(?:\s*(?:,|/|&|或|和|\b(?:and|und|et|y)\b)|[.,;]?\s*\b(?:or|oder|ou)\b)\s*"
    rf"(?:option )?[(\"']?([A-E])\b{_NOT_A_WORD})?"
)
_BUT = r"(?:\b(?i:but|rather|instead|sondern|sino|mais|ma|mas)\b|而是|而)?"
_JOIN = (
    rf"(?:[\s:=>\-–—→\"'(\[,是为為はがのも은는应该應當]|{DENIED}+[)\]\"',]*\s*{_BUT}|\b(?:é (?:a|o)\b|(?i:"
    r"is|are|was|would|should|must|be|seems|appears|to|the|this|that|here|question|option|choice|letter|"
    r"correct|right|best|answer|most|likely|probably|clearly|definitely|therefore|one|it|it's|ist|wäre|lautet|"
    r"est|es|sería|é|è|la|le|il|el|die|der|das|richtige|giusta|esatta|juste|exacte|letra|lettre|lettera|"
    r"buchstabe|opción|opção|opzione|alternativa|correct[ae]|correcto|corretta|correta)\b)){0,20}+"
)
_MARK = re.compile(
    r"\b(?:answer|antwort|lösung|réponse|respuesta|risposta|resposta|ответ|choice|choose|chose|pick|select|selected|"
    r"(?:correct|right|best) (?:one|option|letter|response)|go with|going with|go for|it is|it's|it must be|"
    r"it (?:would|could|might|may) be|that is|that's|i think|i guess|i believe|i say|i'd say|i would say|maybe|perhaps|"
    r"richtig ist|es ist|c'est|ich wähle|ich nehme|je choisis|elijo|escojo|escolho|scelgo|choix|scelta|elección|"
    r"creo que|penso che sia|acho que|(?:option|opción|opção|opzione|alternativa) (?:correct[ae]|corretta|correta))\b"
    r"|答案|选择?|選択?|正解|答え|回答|解答|정답|답"
)
"""What stands before the letter that is the answer, in lower case: "the answer is", "I'd go with"."""

_MARKS = (
    "answer", "choice", "choose", "chose", "pick", "select", "correct", "right", "best", "go", "it is", "it's", "it m",
    "it would", "it could", "that", "think", "guess", "believe", "say", "maybe", "perhaps", "antwort", "lösung",
    "réponse", "respuesta", "risposta", "resposta", "ответ", "richtig", "es ist", "c'est", "ich ", "je choisis",
    "elijo", "escojo", "escolho", "scelgo", "corret", "choix", "scelta",
    "elección", "creo", "penso", "acho", "答", "选", "選", "正", "답",
)  # fmt: skip
"""One of these stands wherever `_MARKED` or `_CONFIRMED` matches; looking for them first is ten times as fast."""

_FINAL = re.compile(r"\b(?:final (?:answer|choice)|my answer)\b")
_JOINED = re.compile(rf"{_JOIN}{_LETTER}{_OR_LETTER}")
"""The letter right after one of those."""

_CONFIRMED = re.compile(
    r"(?:^|[.,;:!?\n(\[\"'–—-]\s*|\b(?:option|choice|letter|answer|so|think|that|believe|say|since|and|but|then)\s+)"
    rf"([A-E])\b(?:[)\].\"']*\s*{OWN_TEXT}*\s+(?i:is|seems|looks|would be|must be|appears|fits|ist|est|es|è|é)"
    r"(?:\s+(?i:to|be|the|my|most|likely|probably|clearly|la|a|die|richtige|bonne))*\s+(?i:correct[aeo]?|right|best|"
    r"answer|choice|richtig|corretta|correta|antwort|respuesta|réponse|risposta|resposta)\b"
    r"|\s*(?:是|が)\s*(?:正[确確解]|答案|[对對]))"
)
_LOOSE = re.compile(r"(?i)\b(?:it|it's|that|that's|think|guess|believe|maybe|perhaps|seems?|appears?)\b")
"""In a marked letter: this is how people also speak of an option that they then drop."""

_WITHDRAWN = re.compile(
    r"(?i)\b(?:wait|correction|on second thought|scratch that|let me (?:re|correct )\w+|actually(?=,)|i mean(?=,)|"
    r"sorry(?=,)|(?:(?<=[.,;!–—\n]\s)|(?<=\n))(?:no|nein|non|não)(?=\s*[,.:;!–—-]))\b"
)
"""After these the letters before them no longer count, where others follow."""

_CORRECTED = re.compile(
    rf"(?:\b(?i:(?:the )?answer|it is|it's|that is)\b)?{_JOIN}{_LETTER}(?=[).\]\"']*\s*{OWN_TEXT}*\s*(?:$|[.,;!\n()]"
    r"|\b(?i:because|since|as|for|is (?:the )?(?:correct|right|best|answer))\b))"
)
"""A letter right after words that take an earlier one back, and no more than mentioned: not "C is where she lives"."""

_OPENER = re.compile(
    r"(?:(?:\b(?i:and|sure|certainly|of course|okay|ok|yes|yeah|yep|no(?=\s*[,.;:!–—-])|well|hmm+|so|then|right|"
    r"alright|absolutely|got it|great|definitely|clearly|obviously|probably|likely|surely|ja|nein|sí|oui|non|sì|sim|"
    r"não|also|claro|natürlich|bien sûr|certo|i mean)\b"
    rf"|好的|はい|네|[(\[\"']*{DENIED}+[)\]\"']*)[\s,.;:!–—-]*{_BUT}[\s,]*){{0,4}}+"
)
"""What people say before they come to the letter: "Sure, C", "Neither A nor B; C"."""

_ALONE = re.compile(r"(?m)^[-•>(\[\"' ]*([A-Ea-e])[)\]\"'.:;,!? ]*$")
_LEADING = re.compile(
    r"[(\[\"']*(?:([A-Ea-e])\s*[)\].:](?=\s|$)|([A-E])(?:,\s|\s+[-–—]\s|\s+(?=\())"
    rf"(?:[(]?([A-E])\b{_NOT_A_WORD})?){_OR_LETTER}"
)
_OPENED = re.compile(rf"(?m)[(\[\"']*([A-E])(?:[)\]\"'.:;,!? ]*$|\s*[)\].:](?=\s)|,\s|\s+(?=\()){_OR_LETTER}")
_LISTED = re.compile(rf"(?:(?<=[\n{OWN_TEXT}])|(?<=[\n.;,:!?{OWN_TEXT}]\s))[(\[]?([B-E])[).:](?=\s)")
_RECITED = re.compile(
    rf"(?:^|(?<=[\n/{OWN_TEXT}])|(?<=[\n.;,:!?/•>{OWN_TEXT}-]\s)|(?<=\b(?:or|et|ou)\s)|(?<=\b(?:and|und)\s)|(?<=\boder\s))"
    rf"[(\[\"']*([A-Ea-e])\s*[).:\]–—-]+\s*[\"'(]*{OWN_TEXT}+(?=\s*(?:$|[\n.;,!?/)]|(?:and|or|und|oder|y|et|ou)\b|"
    r"[(\[]?[A-E][).:]))"
)
"""An option that is recited: its letter, its text, and no more."""

_RECITED_ALONE = re.compile(rf"(?m)^[-•>(\[\"' ]*([A-Ea-e])\s*[).:\]–—-]+\s*[\"'(]*{OWN_TEXT}+[\"').,;]*$")
"""The same on a line of its own."""

_TRAILING = re.compile(r"(?m)([A-E])(?:(?<=[.!?;–—-]\s.)|(?<=[–—].)|(?<=\.\..))[.!)\]\"']*$")
"""A sentence that is no more than a letter: "It is A... C."."""

_CLAUSE_END = re.compile(r"[.;!?](?=\s|$)|\n|[,(:–—]|\s-\s")
_LABEL = re.compile(r"([A-E]|[a-e](?=[)\].:]))(?<![\w'].)(?:[)\].:]+\s*|\s*[-–—]\s*|,?\s+)[\"'(\[]*")
_LABELLED = re.compile(rf"(?<![\w'])([A-E])(?:[).:\]]+\s*|\s*[-–—]\s*|,?\s+)[\"'(\[]*{OWN_TEXT}+")
_POINTED = re.compile(
    rf"\b(?i:option|letter|choice|opción|opção|opzione|alternativa|buchstabe|lettre|letra|lettera)[\s:]+{_LETTER}"
    rf"|(?:选项|選項|選択肢)\s*{_LETTER}|[(\[]([A-E])[)\]]"
    r"|(?m:^(?!.{0,40}(?i:wrong|incorrect|false|except|eliminat|rule|not\b))[^\n:]{1,40}:\s+([A-E])[.)\]\"']*$)"
    rf"|\A(?=.*[{_CJK}])[^A-Za-z不没沒错錯違아]{{0,40}}([A-E])[^A-Za-z不没沒错錯違아]{{0,40}}\Z"
)
_DENIED = re.compile(
    r"(?i)\b(?:not|don't|doesn't|wouldn't|can't|cannot|couldn't|unable to|hard to)\s+(?:really\s+)?"
    r"(?:think|believe|say|choose|pick|select|sure|certain|clear|know|tell|determine|decide)\b"
    r"(?:(?!\b(?:but|so|however)\b)[^.;,\n–—])*"
)
_DENIES = re.compile(
    r"\b(?:not|(?:is|was|are)n't|never|neither|nor|none of(?: the)?|unlike|rather than|instead of|eliminat\w+|"
    r"exclud\w+|discard\w*|reject\w*|rul(?:e|es|ed|ing) out|nicht|weder|noch|(?:n'est )?pas|no es|non è|não é)\s+"
    r"|\b(?:wrong|incorrect|false) (?:answer|option|choice|one)s?(?: (?:is|are|was|were))?[ :]+|不是\s*"
)
"""What stands before letters that are denied, in lower case."""

_DENIED_LETTERS = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice|[Ll]etter)s?\s+)?"
    rf"(?:(?:\s*(?:,|and|or|nor|&|noch|und)\s*)?[(\[\"']*[A-E]\b(?![\w'&])[)\]\"']*(?:[.:]?\s*{OWN_TEXT}+)?)+"
)
_REFUTED = re.compile(
    rf"[A-E](?<![\w'].)(?:[)\]\"']*|[)\].:]*\s*{OWN_TEXT}+)\s+"
    r"(?:(?:is|was)(?:n't|\s+not)(?:\s+(?:correct|right))?|(?:is|was)\s+(?:wrong|incorrect|false))\b"
)
"""A letter that is denied by what follows it."""

_LONE_LETTER = re.compile(r"\b[A-Ea-e]\b")
_MAY_DENY = (
    "not", "n't", "unable", "hard", "eliminat", "exclud", "discard", "reject", "rul", "never", "neither", "nor",
    "none of", "unlike", "rather", "instead", "wrong", "incorrect", "false", "nicht", "weder", "noch", "pas ", "no es",
    "non è", "não é", "不是",
)  # fmt: skip


class Named(NamedTuple):
    """Letters that a reply names in one place ("B"; "AC" in "A or C"), and where that is."""

    kind: str
    letters: str
    start: int
    end: int


def covered(said: str, options: Sequence[str]) -> str:
    """Return what is said, at the same length, with what is no letter of its own covered: OWN_TEXT and DENIED."""
    if len(said) < 3:  # "B", "B.": there is nothing to cover
        return said
    said = _without_own_texts(said, options)
    folded = said.casefold()
    if not any(word in folded for word in _MAY_DENY):
        return said
    said = _DENIED.sub(lambda denied: _LONE_LETTER.sub(DENIED, denied[0]), said)
    spans = [(start, denied.end()) for start, denied in _right_after(_DENIES, _DENIED_LETTERS, said)]
    return _REFUTED.sub(lambda refuted: DENIED * len(refuted[0]), _over(said, spans, DENIED))


def _over(said: str, spans: Sequence[tuple[int, int]], cover: str) -> str:
    """Return what is said with these spans, which are in order and apart, covered."""
    pieces, done = [], 0
    for start, end in spans:
        pieces += [said[done:start], cover * (end - start)]
        done = end
    return "".join((*pieces, said[done:]))


def _right_after(words: re.Pattern[str], what: re.Pattern[str], said: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Give where such words start and what follows them, in order, without overlap.

    The words are looked for in lower case: to do so in any case at once takes several times as long.
    """
    done = 0
    for found in words.finditer(_lower(said)):
        match = what.match(said, found.end()) if found.start() >= done else None
        if match:
            yield found.start(), match
            done = match.end()


def _lower(said: str) -> str:
    """Return what is said in lower case, at the same length."""
    lower = said.lower()
    return lower if len(lower) == len(said) else said


def _without_own_texts(said: str, options: Sequence[str]) -> str:
    """Cover each option's text that stands right after its own letter: "B. Rye & Salt" -> "B. " and OWN_TEXT."""
    spans: list[tuple[int, int]] = []
    for match in _LABEL.finditer(said):
        index = LETTERS.index(match[1].upper())
        text = bare_option(options[index]) if index < len(options) else ""
        start, end = match.end(), match.end() + len(text)
        apart = not spans or match.start() >= spans[-1][1]
        if text and apart and said[start:end].casefold() == text and not said[end : end + 1].isalnum():
            spans.append((start, end))
    return _over(said, spans, OWN_TEXT) if spans else said


def named_letters(kept: str, options: Sequence[str]) -> list[Named]:
    """Return the letters of the strongest kind that is there, with all that would contradict them."""
    alone = _ALONE.fullmatch(kept)
    if alone:
        return [Named("a letter alone", alone[1].upper(), alone.start(), alone.end())]
    folded = kept.casefold()
    final_answers = _found_after("a final answer", _FINAL, kept) if "final" in folded or "my answer" in folded else []
    correction = _correction(kept, options) if any(word in folded for word in TAKES_BACK_WORDS) else None
    if final_answers and not (correction and correction.start > final_answers[-1].start):
        return final_answers[-1:]
    named = _with_contradictions(_spoken(kept, folded), kept)
    if correction:
        return [correction, *(item for item in named if item.start >= correction.end)]
    return named


def _found(kind: str, pattern: re.Pattern[str], kept: str) -> list[Named]:
    """Return the letters of each match, in order."""
    return [
        Named(kind, "".join(filter(None, match.groups())).upper(), match.start(), match.end())
        for match in pattern.finditer(kept)
    ]


def _found_after(kind: str, words: re.Pattern[str], kept: str) -> list[Named]:
    """Return the letters that are joined to such words, in order."""
    return [
        Named(kind, "".join(filter(None, match.groups())).upper(), start, match.end())
        for start, match in _right_after(words, _JOINED, kept)
    ]


def distinct(named: Sequence[Named]) -> str:
    """Return the letters that are named, each once, sorted."""
    return "".join(sorted(set().union(*(item.letters for item in named))))


def _correction(kept: str, options: Sequence[str]) -> Named | None:
    """Return the last letter, or option's text, that takes back what was said before it: "It is A... no, C."."""
    plain = [plain_option(option) for option in options]
    window = longest(options)
    last = None
    for words in TAKES_BACK.finditer(_lower(kept)):
        letter = _CORRECTED.match(kept, words.end())
        if letter:
            last = Named("a corrected letter", letter[1].upper(), words.start(), letter.end())
            continue
        clause = _CLAUSE_END.split(kept[words.end() : words.end() + window], maxsplit=1)[0]
        said = plain_text(clause)
        if said and plain.count(said) == 1:
            end = words.end() + len(clause)
            last = Named("a corrected text", LETTERS[plain.index(said)], words.start(), end)
    return last


def _spoken(kept: str, folded: str) -> list[Named]:
    """Return the letters that are marked as the answer; else those that the reply opens with; else labelled ones."""
    opening = _opening(kept)
    if any(word in folded for word in _MARKS):
        marked = _found_after("a marked letter", _MARK, kept) + _found("a confirmed letter", _CONFIRMED, kept)
        if marked:  # an opening that recites the options does not contradict the one that is marked
            return _settled(marked + (opening if len(distinct(opening)) == 1 else []), kept)
    return opening or _found("a labelled option", _LABELLED, kept)


def _with_contradictions(named: list[Named], kept: str) -> list[Named]:
    """Add what contradicts the letters that are named before it: "It is A... C.", or another option, recited.

    Where the letter itself is among those recited, the reply shows the options once more after its answer.
    """
    if not named:
        return named
    first = named[0].end
    after = [item for item in _found("a letter alone", _TRAILING, kept) if item.end > first]
    if OWN_TEXT in kept:
        recited = [item for item in _found("a listed letter", _RECITED_ALONE, kept) if item.start > first]
        after += [] if set(distinct(named)) <= set(distinct(recited)) else recited
    return named + after


def _settled(named: list[Named], kept: str) -> list[Named]:
    """Where letters contradict each other, drop those that were taken back and those that were only mused about."""
    if len(distinct(named)) > 1:
        withdrawn = max((match.end() for match in _WITHDRAWN.finditer(kept)), default=0)
        named = [item for item in named if item.start >= withdrawn] or named
    if len(distinct(named)) > 1:
        named = [item for item in named if not _LOOSE.search(kept, item.start, item.end)] or named
    return named


def _opening(kept: str) -> list[Named]:
    """Return the letter that the reply starts with, and those that have a line to themselves.

    Options that follow with their own letters and texts contradict it: the reply recites them. One that starts with A
    and goes on to another letter does so whatever stands behind the letters.
    """
    named = _found("a letter alone", _ALONE, kept)
    start = _LEADING.match(kept)
    if not start:
        opener = _OPENER.match(kept)
        start = _OPENED.match(kept, opener.end()) if opener and opener.end() else None
    if start:
        letters = "".join(filter(None, start.groups())).upper()
        named.append(Named("a leading letter", letters, start.start(), start.end()))
        more = OWN_TEXT in kept[start.end() :].lstrip(f" \"'({OWN_TEXT}")
        named += _found("a listed letter", _RECITED, kept) if more else []
        named += _found("a listed letter", _LISTED, kept) if letters == "A" else []
    return named


def pointed_letters(kept: str, options: Sequence[str]) -> list[Named]:
    """Return the letters in brackets or after "option"; an option's text right before the bracket counts as its letter.

    So "Copenhagen (B)" names two letters where Copenhagen is C.
    """
    named = _found("a letter pointed at", _POINTED, kept)
    window = longest(options)
    texts = {kept[max(0, item.start - window) : item.start] for item in named if kept[item.start] in "(["}
    for text in texts:
        before = f" {plain_text(SENTENCE_END.split(text)[-1])}"
        for letter, option in zip(LETTERS, map(plain_option, options), strict=False):
            if option and before.endswith(f" {option}") and not NEGATED.search(before.removesuffix(option)):
                named.append(named[0]._replace(letters=letter))
    return named


def longest(options: Sequence[str]) -> int:
    """Return how many characters hold any of the options' texts, with what is put around them."""
    return max(map(len, options)) + 20
