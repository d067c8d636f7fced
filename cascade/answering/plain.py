"""Replies and options in one plain writing, so that they can be compared: no markup, no punctuation, no case."""

from __future__ import annotations

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

_MARKUP = re.compile(
    r"\\(?:boxed|fbox|text|textbf|mathrm|mathbf)\b|</?\w+>|<\|\w+\|>"
    r"|[*_`$#{}\\\u00ad\u200b-\u200d\u2060\ufeff]|\\[()\[\]]"
)
_MAY_BE_MARKUP = re.compile(r"[\\<*_`$#{}\u00ad\u200b-\u200d\u2060\ufeff]")
_BOXED = re.compile(r"\\f?boxed\s*\{|<answer>")
_THOUGHT = re.compile(r"(?s)^.*</think(?:ing)?>|<think(?:ing)?>.*")
_RUN_ON = re.compile(
    r"(?si)\n(?:human|user|assistant)\s*(?::|\n|$).*|(?<=\S)\s+(?-i:Human|User|Assistant):.*"
    r"|(?<=\S)\s*(?:<\|\w+\|>|</s>).*"
)
_NEXT_QUESTION = re.compile(
    r"(?si)\A([(\[\"'*]*[A-E]\b[^\n]*)\n(?:question|q|instruction|input|exercise)\b\s*\d*\s*[:.].*"
)
_MAY_RUN_ON = ("human", "user", "assistant", "<|", "</s>", "\nq", "\nin", "\nex")
_QUOTES: Final = str.maketrans("’‘“”", "''\"\"")


def plain_text(text: str) -> str:
    """Return lower-case words without punctuation, negations spelt out: "I can't tell!" -> "i can not tell"."""
    text = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    if "'" in text or "cannot" in text or "dont" in text or "doesnt" in text:
        for pattern, spelt_out in _CONTRACTIONS:
            text = pattern.sub(spelt_out, text)
    return " ".join(_WORDS.findall(text))


def without_markup(reply: str) -> str:
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
