"""What is wrong with a file of predictions: kinds, places, and no more of a kind than a person reads."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, final

from cascade.scoring.efficacy import Speaker
from cascade.shbench.items import Item
from cascade.shbench.names import Setting

MOST_FINDINGS: Final = 20
"""So many of a kind and file are told one by one."""

SUM_TOLERANCE: Final = 0.01
"""Probabilities that are further off 1 are no distribution over the options."""


class Kind(StrEnum):
    """What the audit finds."""

    DUPLICATE_ITEM = "duplicate_item"
    """Audio, question and speaker are the same as an earlier item's; both are scored."""
    REPEATED_QUESTION = "repeated_question"
    """The same words ask about both speakers of a recording."""
    MISSING_ITEM = "missing_item"
    """It is in the other mode's file, or in the benchmark's, but not here."""
    UNKNOWN_ITEM = "unknown_item"
    """It is here, but not in the benchmark's file."""
    FEWER_PROBABILITIES = "fewer_probabilities"
    """Than options: the entropy is not comparable with others."""
    MORE_PROBABILITIES = "more_probabilities"
    PROBABILITIES_SUM = "probabilities_sum"
    INVALID_PROBABILITY = "invalid_probability"
    ZERO_PROBABILITY = "zero_probability"
    """The published evaluation's entropy is not defined then."""
    ANSWER_NOT_IN_OPTIONS = "answer_not_in_options"
    IDK_NOT_IN_OPTIONS = "idk_not_in_options"
    DUPLICATE_OPTION = "duplicate_option"
    REPLY_MISSING = "reply_missing"
    """`pred` is no text; read as an empty reply."""
    MODE_UNKNOWN = "mode_unknown"
    MODE_AMBIGUOUS = "mode_ambiguous"
    """The name holds the words of both modes; the benchmark takes it for selective."""
    MODE_MISSING = "mode_missing"
    MIXED_SYSTEMS = "mixed_systems"
    """General and selective files were given that do not belong together."""
    OPTIONS_DO_NOT_FIT_NAME = "options_do_not_fit_name"
    REFERENCES_DIFFER = "references_differ"


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a file; item is the place from 0, None for the whole file. It quotes no text of an item."""

    kind: Kind
    file: str
    item: int | None
    detail: str


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """Where an item is found first, and a digest of its answer and options, whatever their order."""

    item: int
    reference: bytes


@final
class Notes:
    """Collects what is wrong with a file; of each kind the first few are kept, and the others counted."""

    def __init__(self, file: Path) -> None:
        self.counts: Counter[Kind] = Counter()
        self._file = str(file)
        self._first: dict[Kind, list[Finding]] = {}

    def add(self, kind: Kind, item: int | None, detail: str) -> None:
        """Note one thing; of a kind at most once an item."""
        self.counts[kind] += 1
        first = self._first.setdefault(kind, [])
        if len(first) < MOST_FINDINGS:
            first.append(Finding(kind, self._file, item, detail))

    def findings(self, items: int = 0) -> Iterator[Finding]:
        """Yield what was noted; what all of so many items share is said once."""
        for kind, first in self._first.items():
            count = self.counts[kind]
            if count == items > 1:
                yield Finding(
                    kind, self._file, None, f"all {items} items, such as item {first[0].item}: {first[0].detail}"
                )
                continue
            yield from first
            if count > len(first):
                yield Finding(kind, self._file, None, f"{count - len(first)} more")


@final
class Index:
    """The items of a file by who is asked about, what, and in which recording; notes those that come twice."""

    def __init__(self, notes: Notes) -> None:
        self.items = 0
        self.without_probabilities = 0
        self.asked: dict[bytes, Asked] = {}
        self._notes = notes

    def add(self, item: Item) -> None:
        """Take in the next item."""
        self.items += 1
        self.without_probabilities += item.logp is None
        words = digest(item.audio, item.question)
        key, other = (words + speaker.encode() for speaker in both(item.speaker))
        if (earlier := self.asked.get(key)) is not None:
            detail = f"audio, question and speaker are those of item {earlier.item}; both are scored"
            self._notes.add(Kind.DUPLICATE_ITEM, item.number, detail)
            return
        if (earlier := self.asked.get(other)) is not None:
            detail = f"item {earlier.item} asks the same words about the recording's other speaker"
            self._notes.add(Kind.REPEATED_QUESTION, item.number, detail)
        known = sorted(option for option in item.options if option != item.idk_answer)
        self.asked[key] = Asked(item.number, digest(item.answer, *known))


def both(speaker: Speaker) -> tuple[Speaker, Speaker]:
    """Return a speaker and the other one."""
    return (speaker, Speaker.BYSTANDER if speaker is Speaker.MAIN else Speaker.MAIN)


def digest(*texts: str) -> bytes:
    """Return a short digest of texts, which takes less memory than they do."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).digest()


def inspect(item: Item, setting: Setting, notes: Notes) -> None:
    """Note what is wrong with an item."""
    if item.pred is None:
        notes.add(Kind.REPLY_MISSING, item.number, "'pred' is no text; read as an empty reply")
    if not setting.open_ended:
        _inspect_options(item, setting, notes)
        if item.logp is not None:
            _inspect_probabilities(item.logp, item, notes)


def _inspect_options(item: Item, setting: Setting, notes: Notes) -> None:
    if len(set(item.options)) < len(item.options):
        notes.add(Kind.DUPLICATE_OPTION, item.number, "two options have the same text; the first one counts")
    if item.answer not in item.options:
        detail = "'answer' is none of the options; not scored where it is the reference"
        notes.add(Kind.ANSWER_NOT_IN_OPTIONS, item.number, detail)
    if setting.idk_option and item.dont_know is None:
        detail = "'idk_answer' is none of the options; not scored where it is the reference"
        notes.add(Kind.IDK_NOT_IN_OPTIONS, item.number, detail)
    if not setting.idk_option and item.dont_know is not None:
        detail = "named noidk, but 'idk_answer' is one of the options; the correct answer is the reference all the same"
        notes.add(Kind.OPTIONS_DO_NOT_FIT_NAME, item.number, detail)


def _inspect_probabilities(values: Sequence[float], item: Item, notes: Notes) -> None:
    shown = f"{len(values)} probabilities for {len(item.options)} options"
    if len(values) < len(item.options):
        notes.add(Kind.FEWER_PROBABILITIES, item.number, f"{shown}: its entropy cannot be compared with others")
    if len(values) > len(item.options):
        notes.add(Kind.MORE_PROBABILITIES, item.number, f"{shown}: its entropy cannot be compared with others")
    if not all(math.isfinite(value) and value >= 0 for value in values):
        detail = "a number in 'logp' is negative, infinite or none; the field holds probabilities, not logarithms"
        notes.add(Kind.INVALID_PROBABILITY, item.number, detail)
        return
    if 0 in values:
        notes.add(Kind.ZERO_PROBABILITY, item.number, "a probability is 0: the published entropy is not defined")
    if abs(sum(values) - 1) > SUM_TOLERANCE:
        notes.add(Kind.PROBABILITIES_SUM, item.number, f"the probabilities sum to {sum(values):.4g}, expected 1")


def inspect_all(index: Index, setting: Setting, notes: Notes) -> None:
    """Note what can only be told from all items together."""
    if notes.counts[Kind.IDK_NOT_IN_OPTIONS] == index.items:
        detail = "no item has an 'I don't know' option, but noidk is not in the name; rename the file if that is meant"
        notes.add(Kind.OPTIONS_DO_NOT_FIT_NAME, None, detail)
    if not setting.open_ended and 0 < index.without_probabilities < index.items:
        detail = f"{index.without_probabilities} of {index.items} items have no probabilities at all"
        notes.add(Kind.FEWER_PROBABILITIES, None, detail)
