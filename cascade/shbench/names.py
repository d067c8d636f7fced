"""A prediction file's name -> its mode, its setting, its system, as the benchmark tells them.

    selective               selective mode; else basic or general: general mode
    noidk                   no "I don't know" option: the correct answer is the reference in both modes
    nospk, nospeaker        the main speaker is not described
    alwaysshut              cascade's own: its gate withheld bystanders in general mode too
    openended               no options are shown, and what is declined is counted; also "open" after the mode's word

The system is what is left of the name without these words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from cascade.errors import ItemsError
from cascade.types import Mode


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """How questions were asked; described counts in selective mode only. always_shut: the gate, in general mode too."""

    idk_option: bool = True
    described: bool = True
    open_ended: bool = False
    always_shut: bool = False


_ENDING: Final = re.compile(r"\.json(\.gz)?$", re.IGNORECASE)
_NO_IDK: Final = re.compile("noidk", re.IGNORECASE)
_NO_DESCRIPTION: Final = re.compile("nospk|nospeaker", re.IGNORECASE)
_OPEN_ENDED: Final = re.compile("open[-_ ]?ended", re.IGNORECASE)
_ALWAYS_SHUT: Final = re.compile("alwaysshut", re.IGNORECASE)
_OPEN: Final = re.compile(r"(?:^|(?<=[-_. ]))open(?=[-_. ]|qa|$)", re.IGNORECASE)
"""Only looked for after the mode's word, since models are called open-something too."""


@final
@dataclass(frozen=True, slots=True)
class Words:
    """What a file's name says; system is what is left of it, mode None where no word tells it.

    ambiguous tells that the words of both modes are in it.
    """

    mode: Mode | None
    setting: Setting
    system: str
    ambiguous: bool = False


def words_of(file: Path) -> Words:
    """Take a file's name apart."""
    stem = _ENDING.sub("", file.name)
    found = [word for word in ("selective", "basic", "general") if word in stem.lower()]
    word = next(iter(found), "")
    start = stem.lower().rindex(word) if word else 0
    before, after = stem[:start], stem[start + len(word) :]
    for mark in (_NO_IDK, _NO_DESCRIPTION, _OPEN_ENDED, _ALWAYS_SHUT):
        before, after = mark.sub("", before), mark.sub("", after)
    setting = Setting(
        idk_option=not _NO_IDK.search(stem),
        described=not _NO_DESCRIPTION.search(stem),
        open_ended=bool(_OPEN_ENDED.search(stem) or (word and _OPEN.search(after))),
        always_shut=bool(_ALWAYS_SHUT.search(stem)),
    )
    left = f"{before}_{_OPEN.sub('', after) if word else after}"
    mode = (Mode.SELECTIVE if word == "selective" else Mode.GENERAL) if word else None
    system = re.sub(r"([-_. ])[-_. ]+", r"\1", left).strip("-_. ")
    return Words(mode, setting, system, ambiguous=word == "selective" and len(found) > 1)


def modes_of(told: Sequence[Words], given: Sequence[Mode] | None) -> Sequence[Mode | None]:
    """Return each file's mode: what the user says, or else what its name does."""
    if not given:
        return [words.mode for words in told]
    if len(given) not in (1, len(told)):
        raise ItemsError(f"{len(given)} modes came for {len(told)} files; give one for all, or one for each, in order")
    return given if len(given) == len(told) else [*given] * len(told)
