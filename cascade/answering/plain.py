"""Replies and options in one plain writing, so that they can be compared: no markup, no punctuation, no case."""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache
from typing import Final

SENTENCE_END: Final = re.compile(r"[.;!?](?=\s|$)|\n")
"""What stands between two sentences."""

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

_ATTRIBUTE = r"\s+[\w:-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>]+)"
_MARKUP = re.compile(
    rf"\\(?:boxed|fbox|text|textbf|mathrm|mathbf)\b|</?\w+(?:{_ATTRIBUTE})*\s*/?>|<!--[^<>]*-->|<\|\w+\|>"
    r"|\x1b\[[\d;]*m|[*_`$#{}\\\x00-\x08\x0e-\x1b\x7f]|\\[()\[\]]"
)
_MAY_BE_MARKUP = re.compile(r"[\\<*_`$#{}\x00-\x08\x0e-\x1b\x7f]")
_STRUCK = re.compile(r"~~[^~]+~~|<(del|strike)>[^<]*</\1>|\\(?:sout|st|cancel)\s*\{[^{}]*\}")
_ANGLED = re.compile(r"<([A-E])>")
_ENTITY = re.compile(r"&(?:\w{2,8}|#\w{2,7});")
_BOXED = re.compile(r"\\f?boxed\s*\{|<answer>")
_THOUGHT = re.compile(r"(?s)^.*</think(?:ing)?>|<think(?:ing)?>.*")
_OTHER_THOUGHT = re.compile(
    r"(?s)^.*◁/think▷|◁think▷.*"  # Kimi
    r"|^.*<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"  # gpt-oss
    r"|<\|channel\|>\s*(?:analysis|commentary)\b.*"
)
"""Thoughts as those models write them that have marks of their own, and what stands before the final answer."""
_RUN_ON = re.compile(
    r"(?si)\n(?:human|user|assistant)\s*(?::|\n|$).*|(?<=\S)\s+(?-i:Human|User|Assistant):.*"
    r"|(?<=\S)\s*(?:<\|\w+\|>|</s>).*"
)
_NEXT_QUESTION = re.compile(
    r"(?si)\A([(\[\"'*]*[A-E]\b[^\n]*)\n(?:question|q|instruction|input|exercise)\b\s*\d*\s*[:.].*"
)
_MAY_RUN_ON = ("human", "user", "assistant", "<|", "</s>", "\nq", "\nin", "\nex")

_INVISIBLE = re.compile(
    r"\w[\u0335\u0336]|[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
"""A letter that is struck through, and what has no looks of its own: marks of direction, joints, variants, widths."""

_PUNCTUATION: Final = str.maketrans(
    {"。": ". ", "、": ", ", "۔": ". ", "؟": "? ", "،": ", ", "‐": "-"}
    | dict.fromkeys("’‘‚‹›", "'")
    | dict.fromkeys("“”„‟«»「」『』《》〈〉", '"')
    | {"【": "[", "】": "]", "〔": "[", "〕": "]"}
)
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_SCRIPT_CHANGE = re.compile(rf"(?<=[{_CJK}])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[{_CJK}])")
"""Chinese, Japanese and Korean put no space between their characters and a Latin letter, though it is a word."""


def plain_text(text: str) -> str:
    """Return lower-case words without punctuation, negations spelt out: "I can't tell!" -> "i can not tell"."""
    text = (text if text.isascii() else _in_common_characters(text)).casefold()
    if "'" in text or "cannot" in text or "dont" in text or "doesnt" in text:
        for pattern, spelt_out in _CONTRACTIONS:
            text = pattern.sub(spelt_out, text)
    return " ".join(_WORDS.findall(text))


def without_markup(reply: str) -> str:
    """Return the reply without Markdown, TeX, tags, a reasoner's thoughts, and turns that the model made up.

    What is struck out goes as well; what cannot be seen is not there; control characters never are.
    """
    said = _without_thoughts(reply)
    folded = said.casefold()
    if any(word in folded for word in _MAY_RUN_ON):
        said = _NEXT_QUESTION.sub(r"\1", _RUN_ON.sub("", said))
    if "<" in said and "</" not in said:
        said = _ANGLED.sub(r"\1", said)
    if "~~" in said or "\\" in said or "</" in said:
        said = _STRUCK.sub("", said)
    return _without_marks(said)


def without_tags(reply: str) -> str:
    """Return the reply like `without_markup`, but with what is struck out, and turns that are made up."""
    return _without_marks(_without_thoughts(reply))


def _without_thoughts(reply: str) -> str:
    """Return the reply in common characters, without a reasoner's thoughts, and without empty lines."""
    if "&" in reply and ";" in reply:
        reply = _ENTITY.sub(lambda entity: html.unescape(entity[0]), reply)
    said = reply if reply.isascii() else _in_common_characters(reply)
    said = "\n".join([" ".join(line.split()) for line in said.splitlines() if line.strip()])
    folded = said.casefold()
    if "◁" in said or "<|channel|>" in said:
        said = _OTHER_THOUGHT.sub("", said)
    return _THOUGHT.sub("", said) if "<think" in folded or "</think" in folded else said


def _without_marks(said: str) -> str:
    if _MAY_BE_MARKUP.search(said):
        said = _MARKUP.sub("", _BOXED.sub(" answer: ", said))
    return said.strip()


def _in_common_characters(text: str) -> str:
    """Return the text in compatible characters, with ASCII punctuation, and without what cannot be seen."""
    text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_PUNCTUATION)
    return _SCRIPT_CHANGE.sub(" ", text)


def bare_text(said: str) -> str:
    """Return a text without what is put around it, case folded; its inner punctuation stays."""
    return said.casefold().strip(" .,;!\"'()[]")


@lru_cache(maxsize=16_384)
def bare_option(option: str) -> str:
    """Return `bare_text` of an option's text, written as `without_markup` writes replies."""
    return bare_text(without_markup(option))


@lru_cache(maxsize=16_384)
def plain_option(option: str) -> str:
    """Return `plain_text` of an option's text, written as `without_markup` writes replies."""
    return plain_text(without_markup(option))
