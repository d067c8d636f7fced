"""A short table for a terminal: a run's rows among the paper's, in percent."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from cascade.rendering import one_line
from cascade.shbench.comparison import (
    CELLS,
    Json,
    Row,
    asked_otherwise,
    by_se,
    declined_of,
    full_name,
    number,
    questions_of,
    rows_beside,
    setting_of,
)
from cascade.shbench.paper import Paper, Setting

NAME_WIDTH: Final = 28
"""Columns of a terminal; with it a row of the table has 80."""

SHORTEST: Final = 10
"""Columns that a name keeps beside a note of any length."""

_ON_SCREEN: Final = (Setting.STANDARD, Setting.NO_DESCRIPTION, Setting.NO_IDK)


def screen_table(scores: Json, paper: Paper) -> list[str]:
    """Return the lines of a short table for a terminal: the run's rows, marked by `>`, among the paper's.

    A row without a description of the main speaker, or without an "I don't know" option, says so.
    """
    rows = [row for setting in _ON_SCREEN for row in rows_beside(scores, paper, setting)]
    rows = by_se(row for row in rows if row.own or not row.note)
    short = {system.name: system.short for system in paper.systems}
    lines = [
        _line("", "", "", ["main", "main", "byst.", "byst.", "SE"]),
        _line("", "accuracy in percent", "read", ["general", "select.", "general", "select.", ""]).rstrip(),
    ]
    for row in rows:
        values = [*(row.figures.cell(*cell).accuracy for cell in CELLS), row.figures.se]
        lines.append(_line(">" if row.own else "", _name(row, short), row.read, map(number, values)))
    return [*lines, *_declined(scores), *_others(scores, paper), f"> this run; the others: {paper.source.url}"]


def audit_lines(scores: Json) -> list[str]:
    """Return a line for each kind of thing that is wrong with the files, with the first of its kind."""
    once = {json.dumps(finding): finding for system in scores["systems"] for finding in system["audit"]}
    kinds: dict[str, list[Json]] = {}
    for finding in once.values():
        kinds.setdefault(finding["kind"], []).append(finding)
    return [_finding_line(kind, found) for kind, found in sorted(kinds.items())]


def _finding_line(kind: str, found: Sequence[Json]) -> str:
    first = found[0]
    place = first["file"] if first["item"] is None else f"{first['file']}, item {first['item']}"
    rest = "; and more of this kind" if len(found) > 1 else ""
    return one_line(f"{kind.replace('_', ' ')}: {place}: {first['detail']}{rest}")


def _others(scores: Json, paper: Paper) -> list[str]:
    """Return a line for each system that was not asked as many questions as the paper's."""
    printed = paper.questions.main + paper.questions.bystander
    return [
        f"> {full_name(system)}: {questions_of(system)} questions in each mode, the paper's systems {printed}; "
        "so these rows cannot be compared as they stand"
        for system in asked_otherwise(scores, paper)
    ]


def _declined(scores: Json) -> list[str]:
    """Return a line for each open-ended system, mode and reader."""
    return [
        f"> {full_name(system)}, {mode}, {reader}: declined {number(main)} % about the main speaker, "
        f"{number(bystander)} % about the bystander"
        for system in scores["systems"]
        if setting_of(system) is Setting.OPEN_ENDED
        for mode, reader, (main, bystander) in declined_of(system)
    ]


def _line(mark: str, name: str, read: str, values: Iterable[str]) -> str:
    return f"{mark:1} {_filled(name)} {read:9}" + "".join(f"{value:>8}" for value in values)


def _name(row: Row, short: Mapping[str, str]) -> str:
    """Return a row's name as far as there is room for it, with its note."""
    note = f" ({row.note})" if row.note else ""
    name = row.name if row.own else short[row.name]
    return _cut(name, max(NAME_WIDTH - _columns(note), SHORTEST)) + note


def _cut(text: str, width: int) -> str:
    """Return what fits of a text into a terminal's columns, with a mark where it was cut."""
    if _columns(text) <= width:
        return text
    kept = sum(total < width for total in accumulate(map(_columns, text)))
    return f"{text[:kept].rstrip()}…"


def _filled(text: str) -> str:
    return text + " " * (NAME_WIDTH - _columns(text))


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes; Chinese and the like take two a character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
