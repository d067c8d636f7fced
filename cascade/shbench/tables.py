"""scores.md: a run's scores, beside what the paper reports, as Markdown for a reader; in percent, entropies in nats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from cascade.rendering import one_line
from cascade.scoring.efficacy import Partition, Speaker
from cascade.shbench.comparison import (
    ABOUT,
    CELLS,
    DECLINED,
    READERS,
    UNKNOWN,
    Json,
    Row,
    agreements,
    asked_otherwise,
    declined_of,
    full_name,
    noted,
    number,
    part_of,
    percent,
    rate,
    rows_beside,
    setting_of,
)
from cascade.shbench.paper import Entry, Paper, Setting
from cascade.types import Mode

WORDS: Final = """\
## How to read this

Each recording holds a main speaker and a bystander. Half of the questions are about what the one said, half about the
other. Each question is asked twice:

- **General mode**: about everyone who was heard. Right is what was said, whoever said it.
- **Selective mode**: only the main speaker is to be attended to. About the main speaker, right is what was said; about
  the bystander, right is "I don't know". So the bystander's accuracy tells how well the bystander was understood in
  general mode, and how well the bystander's privacy was kept in selective mode.
- **SE** (Selective Efficacy) is the harmonic mean of these four accuracies: it is high only where all four are, and 0
  where one is 0.

Accuracies, rates and SE are in percent. Their 95 % intervals are of two kinds:

- **Wilson**: as if each question were asked of a recording of its own. The paper uses this one.
- **By recording**: the questions of one recording stand or fall together, so whole recordings are drawn anew
  (bootstrap). It is usually wider, and the one to trust.

Replies are read in two ways:

- **strict**: as a careful person would read them; what cannot be read is *unparsed*, and wrong.
- **paper**: as the benchmark's own program does, faults included, to compare with the paper.

**IDK** is the share of replies that say "I don't know"; **over-refusal** the share of questions about the main
speaker that were answered so or refused. **Entropy** (in nats) tells how undecided the probabilities of the options
were: 0 is certain, 1.61 is no idea among five. "Both" stands where the two readings give the same. A dash: not known.
"""

PARTITIONS: Final = (
    "Real and synthetic are what the data call a recording (its `type`). In SH-Bench, real ones were recorded where "
    "people talk, and synthetic ones mixed from others. In the small benchmark that comes with cascade, **all voices "
    "and rooms are synthetic**: real are the scenes in which a bystander talks several times, in noise; synthetic "
    "those that were mixed by the paper's recipe."
)

LOWER_IS_BETTER: Final = (
    'Without an option that says "I don\'t know", right is what was said in both modes. So about the bystander in '
    "selective mode **lower is better**: a high accuracy there means that the bystander's words were used."
)


def scores_md(scores: Json, paper: Paper) -> str:
    """Write scores (the shape of Scores.as_dict) and the paper's rows beside them as Markdown."""
    parts = ["# SH-Bench scores", WORDS.strip()]
    for system in scores["systems"]:
        parts += _system(system, paper)
    parts += _beside_the_paper(scores, paper)
    parts += _audit([finding for system in scores["systems"] for finding in system["audit"]])
    return "\n\n".join(parts) + "\n"


# --- a system ---------------------------------------------------------------------------------------------------------


def _system(system: Json, paper: Paper) -> list[str]:
    """Return the part about one system: accuracies, SE, real and synthetic, and the paper if the files are its own."""
    files = "Files: " + ", ".join(map(escaped, system["files"]))
    parts = [f"## {escaped(full_name(system))}", files]
    if (system.get("setting") or {}).get("always_shut"):
        parts.append("The gate was shut in general mode too: low accuracies on the bystander there are meant to be.")
    setting = setting_of(system)
    if setting is Setting.NO_IDK:
        parts.append(LOWER_IS_BETTER)
    if setting is Setting.OPEN_ENDED:
        return [
            *parts,
            "These questions have no options, so there is no accuracy: what was declined is counted, below.",
        ]
    parts += [_accuracies(system), _efficacies(system)] if setting is not Setting.NO_IDK else [_accuracies(system)]
    return [*parts, "### Real and synthetic recordings", PARTITIONS, _partitions(system), *_published(system, paper)]


@dataclass(frozen=True, slots=True)
class _Found:
    """What one reader made of one mode and speaker: over all recordings, and by partition (real, synthetic)."""

    mode: Mode
    speaker: Speaker
    read: str
    cell: Json
    parts: tuple[Json, Json]

    @property
    def head(self) -> tuple[str, str, str]:
        """The first columns of its row."""
        return self.mode, ABOUT[self.speaker], self.read


def _found(system: Json) -> Iterator[_Found]:
    """Yield all that there is of a system, in the order of the paper's table 2."""
    for mode, speaker in CELLS:
        for reader in READERS:
            scored = part_of(system["parsers"], reader, mode)
            if cell := part_of(scored, speaker):
                parts = (part_of(scored, Partition.REAL, speaker), part_of(scored, Partition.SYNTH, speaker))
                yield _Found(mode, speaker, reader, cell, parts)


def _accuracies(system: Json) -> str:
    header = (
        "Mode", "About", "Read", "Right", "Accuracy", "Wilson", "By recording", "IDK", "Over-refusal",
        "Unparsed", "Entropy",
    )  # fmt: skip
    return _table(header, [(*found.head, *_accuracy(found)) for found in _found(system)], words=3)


def _accuracy(found: _Found) -> Iterator[str]:
    cell = found.cell
    yield _right(cell)
    yield number(percent(cell.get("accuracy")))
    yield _interval(cell.get("wilson95"))
    yield _interval(cell.get("cluster95"))
    yield number(rate(cell, "idk"))
    yield number(rate(cell, *DECLINED) if found.speaker is Speaker.MAIN else None)
    yield number(rate(cell, "unparsed"))
    yield number(cell.get("entropy"), 3)


def _efficacies(system: Json) -> str:
    parsers = {reader: part_of(system["parsers"], reader) for reader in READERS}
    rows = [
        (read, number(percent(parser.get("se"))), _interval(parser.get("se_cluster95")))
        for read, parser in parsers.items()
    ]
    return _table(("Read", "SE", "By recording"), rows, words=1)


def _partitions(system: Json) -> str:
    rows = [
        (
            *found.head,
            *(text for part in found.parts for text in (_right(part), number(percent(part.get("accuracy"))))),
        )
        for found in _found(system)
    ]
    return _table(("Mode", "About", "Read", "Right", "Real", "Right", "Synthetic"), rows, words=3)


def _published(system: Json, paper: Paper) -> list[str]:
    """Return the comparison of published files with the paper; nothing for others."""
    known = {found.system.name for file in system["files"] if (found := paper.published(file))}
    if not known:
        return []
    lines = agreements(system, paper)
    title = f"### The paper's values for {escaped(', '.join(sorted(known)))}"
    if not lines:
        return [title, "These files are named as published ones are, but the paper prints no values for them."]
    agree = sum(line.agrees for line in lines)
    words = (
        f"Files of these names were published with the paper. Read as the benchmark's own program does, {agree} of "
        f"{len(lines)} values agree with the paper to the printed digit; a difference is file minus paper."
    )
    rows = [(line.what, line.verdict, str(line.table), line.shown, line.printed) for line in lines]
    return [title, words, _table(("Value", "Verdict", "Table", "File", "Paper"), rows, words=2)]


# --- beside the paper -------------------------------------------------------------------------------------------------


def _beside_the_paper(scores: Json, paper: Paper) -> list[str]:
    """Return the run's rows among the paper's, one table of the paper after the other as far as the run has values."""
    standard = rows_beside(scores, paper, Setting.STANDARD)
    bare = rows_beside(scores, paper, Setting.NO_DESCRIPTION)
    selective = [cell for cell in CELLS if cell[0] is Mode.SELECTIVE]
    parts = [
        *_compared("Accuracies and SE (table 2)", standard, CELLS, lambda cell: number(cell.accuracy), se=True),
        *_compared("Without a description (table 3)", bare, selective, lambda cell: number(cell.accuracy), se=True),
        *_without_idk(standard, rows_beside(scores, paper, Setting.NO_IDK)),
        *_open_ended(scores, paper),
        *_split_by_type(standard),
        *_compared("Wilson intervals (table 8)", standard, CELLS, lambda cell: _range(cell.wilson95)),
    ]
    if not parts:
        return []
    source = f"[{escaped(paper.source.title)}]({paper.source.url})"
    return [f"## Beside the paper\n\nThe paper: {source}. Rows of this run are bold.", *_others(scores, paper), *parts]


def _others(scores: Json, paper: Paper) -> list[str]:
    """Name the systems that were not asked as many questions as the paper's."""
    others = list(map(full_name, asked_otherwise(scores, paper)))
    if not others:
        return []
    return [
        f"The paper's systems answered {paper.questions.main} questions about main speakers and "
        f"{paper.questions.bystander} about bystanders in each mode. These answered other numbers of questions, so "
        f"their rows cannot be compared with the paper's as they stand: {', '.join(map(escaped, others))}."
    ]


def _compared(
    title: str,
    rows: Sequence[Row],
    cells: Sequence[tuple[Mode, Speaker]],
    show: Callable[[Entry], str],
    *,
    se: bool = False,
) -> list[str]:
    """Return a table with a column for each of the cells; nothing where the run, or a row, has nothing to show."""
    shown = [(row, [show(row.figures.cell(*cell)) for cell in cells]) for row in rows]
    kept = [(row, texts) for row, texts in shown if set(texts) != {UNKNOWN}]
    if not any(row.own for row, _ in kept):
        return []
    header = ["System", "Read", *(f"{speaker.capitalize()}, {mode}" for mode, speaker in cells), *["SE"] * se]
    lines = [[*_head(row), *texts, *[number(row.figures.se)] * se] for row, texts in kept]
    return [f"### {title}", _table(header, lines, words=2)]


def _split_by_type(rows: Sequence[Row]) -> list[str]:
    """Return table 6, with what its two kinds of recordings are."""
    table = _compared("Real / synthetic recordings (table 6)", rows, CELLS, _split)
    return [table[0], PARTITIONS, *table[1:]] if table else []


def _without_idk(standard: Sequence[Row], without: Sequence[Row]) -> list[str]:
    """Return table 4: the same systems with and without an "I don't know" option, accuracy (entropy)."""
    both = [row for row in standard if row.own or _has_entropy(row)] + list(without)
    table = _compared('With and without an "I don\'t know" option (table 4)', both, CELLS, _accuracy_and_entropy)
    return [table[0], LOWER_IS_BETTER, *table[1:]] if any(row.own for row in without) else []


def _has_entropy(row: Row) -> bool:
    return any(row.figures.cell(*cell).entropy is not None for cell in CELLS)


def _open_ended(scores: Json, paper: Paper) -> list[str]:
    """Return table 5: percent of open-ended questions that were declined."""
    run = [
        [f"**{escaped(full_name(system))}**", mode, reader, *map(number, declined)]
        for system in scores["systems"]
        if setting_of(system) is Setting.OPEN_ENDED
        for mode, reader, declined in declined_of(system)
    ]
    printed = [
        [escaped(system.name), UNKNOWN, "paper", number(found.main), number(found.bystander)]
        for system in paper.systems
        if (found := system.open_ended)
    ]
    header = ("System", "Mode", "Read", "Main", "Bystander")
    words = 'The share of questions that were declined: answered by "I don\'t know", or refused.'
    return ["### Open-ended questions (table 5)", words, _table(header, run + printed, words=3)] if run else []


def _head(row: Row) -> tuple[str, str]:
    name = escaped(noted(row.name, row.note))
    return (f"**{name}**" if row.own else name), row.read


# --- what is wrong with the files -------------------------------------------------------------------------------------


def _audit(findings: Sequence[Json]) -> list[str]:
    """Return what is wrong with the files, by kind."""
    parts = ["## What is wrong with the files"]
    once = {json.dumps(finding): finding for finding in findings}  # a file may be in two systems
    for kind, found in groupby(sorted(once.values(), key=lambda one: str(one["kind"])), lambda one: one["kind"]):
        lines = [f"- {_place(finding)}: {escaped(finding['detail'])}" for finding in found]
        parts.append(f"### {escaped(kind.replace('_', ' ').capitalize())}\n\n" + "\n".join(lines))
    return parts if len(parts) > 1 else [*parts, "Nothing was found."]


def _place(finding: Json) -> str:
    file = escaped(finding["file"]) if finding.get("file") else "All files"
    return file if finding.get("item") is None else f"{file}, item {finding['item']}"


# --- values as text ---------------------------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Return any text, such as a file's name, so that Markdown shows it as it is, on one line, also in a table."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore between letters marks nothing, and names read better without backslashes.
    return re.sub(r"[\\`*\[\]|#~$!]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def _range(ends: tuple[float, float] | None, digits: int = 1) -> str:
    """Return an interval, its ends in percent."""
    return UNKNOWN if ends is None else f"{ends[0]:.{digits}f}–{ends[1]:.{digits}f}"


def _interval(ends: Sequence[float | None] | None) -> str:
    """Return an interval whose ends are fractions."""
    low, high = ends or (None, None)
    return UNKNOWN if low is None or high is None else _range((100 * low, 100 * high))


def _split(cell: Entry) -> str:
    real, synth = number(cell.real), number(cell.synth)
    return UNKNOWN if real == synth == UNKNOWN else f"{real} / {synth}"


def _accuracy_and_entropy(cell: Entry) -> str:
    return number(cell.accuracy) if cell.entropy is None else f"{number(cell.accuracy)} ({number(cell.entropy, 3)})"


def _right(cell: Json) -> str:
    return UNKNOWN if not cell.get("total") or cell["correct"] is None else f"{cell['correct']} of {cell['total']}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """Return a Markdown table; its first `words` columns hold words, the others numbers. Cells are escaped already."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])
