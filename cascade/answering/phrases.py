"""How people and chat models say "I don't know", how they refuse, and how they take back what they said.

All of it but TAKES_BACK is matched against `plain_text`: lower case, no punctuation, "n't" and "can't" spelt out.
"""

from __future__ import annotations

import re
from typing import Final

SOURCE = r"(?:audio|recording|transcript|conversation|dialogue|speaker|speech|passage|text|context|clip|information)s?"
"""What is heard, or who: a regular expression of one word."""

_FROM = rf"(?: (?:in|from|by|based on|according to|with|on) (?:\w+ ){{0,3}}{SOURCE}(?: (?:provided|given))?)?"
_ADVERB = r"(?:(?:really|actually|explicitly|directly|clearly|specifically|even) )?"
_THAT = r"(?: (?:it|this|that|so|the|your|correct|question|answer|to))*"
_TO_ANSWER = rf"(?: to (?:be able to )?(?:answer|tell|determine|say|know|decide){_THAT})?"
_FACTS = r"(?:answer|information|info|data|evidence|context|details?|idea|clue)"
_STATES = r"(?:mention|say|state|specify|tell|discuss|indicate|reveal)"
_STATED = (
    r"(?:mentioned|stated|specified|given|provided|discussed|said|clear|known|available|determined|answered|revealed"
    r"|disclosed|indicated)"
)
_NOT_TO_BE = r"(?:can|could) not be (?:determined|answered|known|inferred|told|established|deduced|said|found)"
ELSEWHERE = (  # German, French, Spanish, Italian, Portuguese, Russian, Chinese, Japanese, Korean
    r"(?:ich weiss (?:es |das )?nicht|(?:je )?(?:ne )?sais pas|(?:yo )?no (?:lo )?sé|non (?:lo )?so|(?:eu )?não sei|"
    r"(?:я )?не знаю|我?不知道|わかりません|分かりません|모르겠습니다)"
)
"""A regular expression of "I don't know" in other languages than English."""

_CLEAR = (  # whoever says this speaks of their own answer
    rf"(?:(?:i|we|you|it|(?:the )?{SOURCE}) )?(?:do|does|did) not {_ADVERB}"
    r"(?:have|provide|give|contain|include|hold|offer) (?:access to )?"
    rf"(?:(?:an|the|any|enough|sufficient|that|this) )?{_FACTS}{_TO_ANSWER}",
    rf"(?:there is |i have |have )?(?:not enough|insufficient|not sufficient|no|too little) {_FACTS}"
    rf"(?: (?:is )?(?:provided|given|available|mentioned))?{_TO_ANSWER}",
    rf"(?:(?:i|we|you) )?{_ADVERB}(?:do|can|could|would) not {_ADVERB}(?:know|tell|determine|infer|say|answer)"
    rf"(?: for (?:sure|certain))?{_THAT}",
    rf"(?:(?:it|this|that|the answer) )?{_NOT_TO_BE}(?: for (?:sure|certain))?",
    rf"(?:it|(?:the )?{SOURCE}) (?:do|does|did) not {_ADVERB}{_STATES}{_THAT}",
    r"i am (?:not sure|not certain|unsure|uncertain)",
    ELSEWHERE,
)
_TERSE = (  # this may also be what somebody said: "What did she think of it?" - "Unclear"
    rf"(?:(?:it|this|that|the answer|(?:the )?information) )?(?:is |was )?not {_ADVERB}{_STATED}",
    r"(?:(?:it|this|that|the answer) )?(?:is )?(?:unknown|unclear|unanswerable|undetermined|unspecified|idk)",
    r"not sure|not certain|unsure|uncertain|no answer|n a",
)
CLEAR_DONT_KNOW: Final = re.compile(rf"(?:i am )?(?:sorry )?(?:but )?(?:{'|'.join(_CLEAR)}){_FROM}")
"""A whole text that says "I don't know" and can mean nothing else."""

TERSE_DONT_KNOW: Final = re.compile(rf"(?:{'|'.join(_TERSE)}){_FROM}")
"""A whole text that says "I don't know", unless it is what somebody thought of something."""

SAYS_DONT_KNOW: Final = re.compile(
    "|".join(
        (
            *(rf"\b{pattern}\b" for pattern in _CLEAR[:2]),
            rf"\bi (?:really )?(?:do|can|could) not {_ADVERB}(?:know|tell|determine|infer|say)\b",
            r"\b(?:not possible|impossible|unable) to (?:tell|determine|infer|know|say)\b",
            rf"\b{_NOT_TO_BE}\b",
            rf"\b(?:is|was|are|were) not {_ADVERB}{_STATED}\b",
            rf"\b{SOURCE} (?:\d+ )?(?:do|does|did) not {_ADVERB}(?:{_STATES}|provide|give|answer)\b",
            rf"\b{SOURCE} (?:\d+ )?(?:is|are|was|were) not {_ADVERB}(?:talking about|discussing)\b",
            rf"\b(?:can not|unable to) (?:answer|respond to) (?:\w+ ){{0,3}}"
            rf"(?:based on|from|with|using|given) (?:\w+ ){{0,3}}{SOURCE}\b",
            rf"\b(?:answer|it|this|that|information) is not (?:contained )?in (?:\w+ ){{0,2}}{SOURCE}\b",
            r"\bno mention of\b",
            r"\bno way (?:to (?:know|tell|say|determine)|of (?:knowing|telling))\b",
            r"\b(?:i am|we are|i was|we were) not told\b",
            r"\bi (?:can|could) not (?:hear|make out|understand) (?:that|it|this|what)\b",
            rf"^(?:he|she|they) (?:do|does|did) not {_ADVERB}{_STATES}\b",
            r"^(?:i )?dunno\b",
            r"\bi am (?:not sure|not certain|unsure)\b",
            r"^(?:the answer is |it is )?(?:not mentioned|unknown|unclear|idk)\b",
            r"^(?:i am )?(?:sorry )?(?:but )?(?:i am )?unable to answer$",
            rf"^{ELSEWHERE}\b",
        )
    )
)
"""A reply that means "I don't know", whatever else it says. What somebody else does not know is not matched."""

REFUSES: Final = re.compile(
    r"\b(?:can not|could not|am unable to|am not able to|will not|must not|am not allowed to|would rather not)"
    r" (?:\w+ )?(?:help|assist|answer|respond|comply|share|disclose|reveal|discuss|provide|give|access|continue|do)\b"
    r"|\bas an ai\b|\bi (?:must |have to )?(?:refuse|decline)\b|\bagainst (?:my|the) (?:policy|policies|guidelines)\b"
)
"""A reply that refuses."""

NEGATED: Final = re.compile(
    r"\b(?:not|no|nor|never|neither|nicht|pas|não)(?: (?!(?:but|sondern|mais|mas)\b)\w+){0,2} $"
)
"""The end of a text that denies what comes next."""

_TAKES_BACK = (
    r"no,?\s+wait|nope|wait|hold on|actually|i mean|i meant|correction|(?:or\s+)?rather(?!\s+than\b)|make that|"
    r"scratch that|strike that|sorry|oops|my (?:mistake|bad)|on (?:second thoughts?|reflection)|"
    r"let me correct (?:that|myself|it)|ich meine|vielmehr|je veux dire|plutôt|pardon|quiero decir|mejor dicho|perdón|"
    r"anzi|cioè|quer dizer|aliás"
)
_NO = (
    r"(?:no|nein|non|não)(?=\s*(?:[,!–—]|\.{2}|-+\s))"
    r"|(?:(?<=[.,;!–—\n])|(?<=[.,;!–—\n]\s))(?:no|nein|non|não)(?=[.;:\n])"
)
TAKES_BACK: Final = re.compile(
    rf"(?:(?:(?<![\w'\"])(?:{_TAKES_BACK}|{_NO})\b|不对|不對|不(?=,)|いや|違います)[\s,.:;!–—-]*){{1,5}}+"
)
"""Words that take back what was said before them, in a text `without_markup`, in lower case: "no," "I mean".

"No." does so after a sentence, but not after a colon or a question ("A. Berlin: no. B. ...", "Is it A? No. ...").
"""

TAKES_BACK_WORDS: Final = (
    "no", "nein", "não", "wait", "hold on", "actually", "i mean", "correction", "rather", "make that", "scratch that",
    "strike that", "sorry", "oops", "my mistake", "my bad", "on second", "on reflection", "let me correct", "ich meine",
    "vielmehr", "je veux", "plutôt", "pardon", "quiero", "mejor dicho", "perdón", "anzi", "cioè", "quer dizer", "aliás",
    "不", "いや", "違います",
)  # fmt: skip
"""One of these stands wherever `TAKES_BACK` matches; looking for them first is faster."""
