"""Scores beside what the paper reports: scores.md for a reader, a short table for a screen.

    benchmarks/paper.yaml -> Paper          what the paper prints, as data
    scores (Scores.as_dict) -> Figures      a run's values in the same shape as the paper's
    both -> scores_md, screen_table         side by side; where a file is a published one, value by value

Scores hold fractions and counts; the paper, and all that is shown here, holds percent. Entropies are in nats.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, groupby
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.config import data_folder
from cascade.errors import ItemsError
from cascade.rendering import one_line
from cascade.scoring.efficacy import Partition, Speaker
from cascade.types import Mode

Json: TypeAlias = Mapping[str, Any]
"""A part of what Scores.as_dict gives; what is not known is None or not there."""

CELLS: Final = tuple((mode, speaker) for speaker in Speaker for mode in (Mode.GENERAL, Mode.SELECTIVE))
"""The four accuracies, in the order of the paper's table 2."""

READERS: Final = {"strict": "strict", "paper": "published"}
"""How replies were read, and what that is called in tables."""

ABOUT: Final = {Speaker.MAIN: "main speaker", Speaker.BYSTANDER: "bystander"}

DECLINED: Final = ("idk", "refused")
"""The counts of replies that answer nothing on purpose."""

UNKNOWN: Final = "–"


class Setting(StrEnum):
    """How the questions were asked; each has a table of the paper to itself."""

    STANDARD = "standard"
    NO_DESCRIPTION = "no_description"
    NO_IDK = "no_idk"
    OPEN_ENDED = "open_ended"


LABELS: Final = {
    Setting.STANDARD: "",
    Setting.NO_DESCRIPTION: "no description",
    Setting.NO_IDK: "no IDK option",
    Setting.OPEN_ENDED: "open-ended",
}
"""What is said beside a system's name."""


# --- the paper --------------------------------------------------------------------------------------------------------

Percent = Annotated[float, Field(ge=0, le=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Entry(_Strict):
    """What is known of one mode and speaker: percent; entropy in nats; real and synth are accuracies."""

    accuracy: Percent | None = None
    wilson95: Annotated[tuple[Percent, Percent] | None, Field(strict=False)] = None
    entropy: float | None = None
    real: Percent | None = None
    synth: Percent | None = None


class Speakers(_Strict):
    """The two cells of one mode."""

    main: Entry = Entry()
    bystander: Entry = Entry()


class Files(_Strict):
    """The published predictions by mode: file names without .json."""

    general: Annotated[tuple[str, ...], Field(strict=False)] = ()
    selective: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Figures(_Strict):
    """What is known of one system in one setting; a run's values are put in this shape too."""

    files: Files = Files()
    general: Speakers = Speakers()
    selective: Speakers = Speakers()
    se: Percent | None = None

    def cell(self, mode: Mode, speaker: Speaker) -> Entry:
        """Return one of the four cells."""
        speakers = self.general if mode is Mode.GENERAL else self.selective
        return speakers.main if speaker is Speaker.MAIN else speakers.bystander


class Declined(_Strict):
    """Percent of open-ended questions that were not answered but declined."""

    main: Percent | None
    bystander: Percent | None


class PaperSystem(_Strict):
    """All that the paper says of one system; short is its name where there is little room."""

    name: str
    short: str
    standard: Figures
    no_description: Figures | None = None
    no_idk: Figures | None = None
    open_ended: Declined | None = None

    @property
    def settings(self) -> Iterator[tuple[Setting, Figures]]:
        """The multiple-choice settings that the paper, or its published files, cover."""
        yield Setting.STANDARD, self.standard
        if self.no_description:
            yield Setting.NO_DESCRIPTION, self.no_description
        if self.no_idk:
            yield Setting.NO_IDK, self.no_idk


class Source(_Strict):
    """Where the figures come from."""

    title: str
    url: str


class Questions(_Strict):
    """How many of the test set's questions are about each speaker."""

    main: int
    bystander: int


@dataclass(frozen=True, slots=True)
class Published:
    """What a published file of predictions holds."""

    system: PaperSystem
    setting: Setting
    mode: Mode
    figures: Figures


class Paper(_Strict):
    """The paper's tables 2, 3, 4, 5, 6 and 8, by system."""

    source: Source
    questions: Questions
    systems: Annotated[tuple[PaperSystem, ...], Field(strict=False, min_length=1)]

    def published(self, file: str) -> Published | None:
        """Return what a file holds if it is named as one of the published ones, whatever its folder."""
        for system in self.systems:
            for setting, figures in system.settings:
                for mode, names in ((Mode.GENERAL, figures.files.general), (Mode.SELECTIVE, figures.files.selective)):
                    if stem(file) in names:
                        return Published(system, setting, mode, figures)
        return None


def load_paper(path: Path | None = None) -> Paper:
    """Read what the paper reports, by default from cascade's own file; ItemsError says what is wrong with it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = path or data_folder("benchmarks") / "paper.yaml"
    try:
        return Paper.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except (UnicodeDecodeError, YAMLError):
        problem = "expected YAML in UTF-8"
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc'])) or 'the whole file'}: {first['msg']}"
    raise ItemsError(f"{path}: the paper's figures: {problem}; reinstall cascade, or mend the file")


# --- a run in the paper's shape ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: a system, how its replies were read, its figures; own tells a run's from the paper's.

    note is what sets it apart from other rows of the same system.
    """

    name: str
    note: str
    read: str
    figures: Figures
    own: bool


def stem(file: str) -> str:
    """Return a file's name without its folders, .gz and .json."""
    return re.split(r"[/\\]", file)[-1].removesuffix(".gz").removesuffix(".json")


def setting_of(system: Json) -> Setting:
    """Tell how a system was asked; what is not said is as usual."""
    asked = system.get("setting") or {}
    if asked.get("open_ended", False):
        return Setting.OPEN_ENDED
    if not asked.get("idk_option", True):
        return Setting.NO_IDK
    return Setting.STANDARD if asked.get("described", True) else Setting.NO_DESCRIPTION


def name_of(system: Json) -> str:
    """Return a system's name, or else its files', on one line."""
    return one_line(system.get("name") or " + ".join(map(stem, system["files"])))


def note_of(system: Json) -> str:
    """Say how a system was asked, and whether its gate was shut in both modes; nothing for the usual case."""
    notes = [LABELS[setting_of(system)], "gate always shut" if system.get("always") else ""]
    return "; ".join(note for note in notes if note)


def full_name(system: Json) -> str:
    """Return a system's name with its note."""
    return _noted(name_of(system), note_of(system))


def _noted(name: str, note: str) -> str:
    return f"{name} ({note})" if note else name


def figures_of(system: Json, reader: str) -> Figures:
    """Put what one reader made of a system into the paper's shape, in percent.

    Without an "I don't know" option a low accuracy is the private one, so there is no SE.
    """
    parser = _part(system["parsers"], reader)
    se = None if setting_of(system) is Setting.NO_IDK else _percent(parser.get("se"))
    general, selective = _speakers(_part(parser, Mode.GENERAL)), _speakers(_part(parser, Mode.SELECTIVE))
    return Figures(general=general, selective=selective, se=se)


def _speakers(mode: Json) -> Speakers:
    return Speakers(main=_entry(mode, Speaker.MAIN), bystander=_entry(mode, Speaker.BYSTANDER))


def _entry(mode: Json, speaker: Speaker) -> Entry:
    cell = _part(mode, speaker)
    low, high = cell.get("wilson95") or (None, None)
    return Entry(
        accuracy=_percent(cell.get("accuracy")),
        wilson95=None if low is None or high is None else (100 * low, 100 * high),
        entropy=cell.get("entropy"),
        real=_percent(_part(mode, Partition.REAL, speaker).get("accuracy")),
        synth=_percent(_part(mode, Partition.SYNTH, speaker).get("accuracy")),
    )


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def own_rows(system: Json) -> list[Row]:
    """Return a system's rows, one for each way of reading; a single one where both ways show the same."""
    name, note = name_of(system), note_of(system)
    rows = [Row(name, note, read, figures_of(system, reader), own=True) for reader, read in READERS.items()]
    return [replace(rows[0], read="both")] if rows[0].figures == rows[1].figures else rows


def rows_beside(scores: Json, paper: Paper, setting: Setting) -> list[Row]:
    """Return the paper's rows of a setting with the run's among them, the highest SE first, unknown ones last."""
    printed = [
        Row(system.name, LABELS[setting], READERS["paper"], figures, own=False)
        for system in paper.systems
        for found, figures in system.settings
        if found is setting and figures != Figures(files=figures.files)
    ]
    run = [row for system in scores["systems"] if setting_of(system) is setting for row in own_rows(system)]
    return _by_se(printed + run)


def _by_se(rows: Iterable[Row]) -> list[Row]:
    """Sort by SE, the highest first, unknown ones last."""
    return sorted(rows, key=lambda row: -1 if row.figures.se is None else row.figures.se, reverse=True)


# --- where a file is a published one ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """One value as a published file gives it and as the paper prints it; several numbers for an interval."""

    what: str
    table: int
    file: tuple[float | None, ...]
    paper: tuple[float, ...]
    digits: int
    note: str = ""

    @property
    def shown(self) -> str:
        """The file's value, to the digit that the paper prints."""
        return " / ".join(_number(value, self.digits) for value in self.file)

    @property
    def printed(self) -> str:
        """The paper's value."""
        return " / ".join(_number(value, self.digits) for value in self.paper)

    @property
    def agrees(self) -> bool:
        """Whether both are the same to the printed digit."""
        return self.shown == self.printed

    @property
    def verdict(self) -> str:
        """Say whether they agree, else by how much the file is above or below."""
        if self.agrees:
            return "agree"
        if None in self.file:
            return "not known from the file"
        pairs = zip(self.file, self.paper, strict=True)
        by = ", ".join(f"{round(value or 0, self.digits) - printed:+z.{self.digits}f}" for value, printed in pairs)
        return f"**differ by {by}**" + (f"; {self.note}" if self.note else "")


def agreements(system: Json, paper: Paper) -> list[Agreement]:
    """Compare a system's published files with the paper, value by value; nothing for files of other names."""
    known = [found for file in system["files"] if (found := paper.published(file))]
    run = figures_of(system, "paper")
    lines = [line for found in known for line in _agreements(found, run)]
    settings = {found.setting: found for found in known}
    if {found.mode for found in known} == set(Mode) and len({found.system.name for found in known}) == 1:
        asked = settings.get(Setting.NO_DESCRIPTION) or known[0]
        if asked.figures.se is not None:
            table = 3 if asked.setting is Setting.NO_DESCRIPTION else 2
            lines.append(Agreement("Selective Efficacy", table, (run.se,), (asked.figures.se,), 1))
    return lines


ACCURACY_TABLE: Final = {Setting.STANDARD: 2, Setting.NO_DESCRIPTION: 3, Setting.NO_IDK: 4}


def _agreements(found: Published, run: Figures) -> Iterator[Agreement]:
    for speaker in Speaker:
        ours, theirs = run.cell(found.mode, speaker), found.figures.cell(found.mode, speaker)
        where = f"{ABOUT[speaker]}, {found.mode} mode"
        if theirs.accuracy is not None:
            table, note = ACCURACY_TABLE[found.setting], _halves(theirs, ours)
            yield Agreement(f"accuracy, {where}", table, (ours.accuracy,), (theirs.accuracy,), 1, note)
        if theirs.wilson95 is not None:
            yield Agreement(f"Wilson interval, {where}", 8, ours.wilson95 or (None, None), theirs.wilson95, 1)
        if theirs.real is not None and theirs.synth is not None:
            split = (ours.real, ours.synth), (theirs.real, theirs.synth)
            yield Agreement(f"accuracy on real, on synthetic recordings, {where}", 6, *split, 1)
        if theirs.entropy is not None:
            yield Agreement(f"entropy, {where}", 4, (ours.entropy,), (theirs.entropy,), 3)


def _halves(theirs: Entry, ours: Entry) -> str:
    """Say so where the paper's table 6 bears out the file and not its own table 2; both halves are of one size."""
    if theirs.real is None or theirs.synth is None or ours.accuracy is None:
        return ""
    mean = (theirs.real + theirs.synth) / 2
    return f"but the halves in table 6 give {mean:.1f}" if abs(mean - ours.accuracy) < 0.05 else ""


# --- scores.md --------------------------------------------------------------------------------------------------------

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
- **published**: as the benchmark's own program does, faults included, to compare with the paper.

**IDK** is the share of replies that say "I don't know"; **over-refusal** the share of questions about the main
speaker that were answered so or refused. **Entropy** (in nats) tells how undecided the probabilities of the options
were: 0 is certain, 1.61 is no idea among five. "Both" stands where the two readings give the same. A dash: not known.
"""

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


def escaped(text: str) -> str:
    """Return any text, such as a file's name, so that Markdown shows it as it is, on one line, also in a table."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore between letters marks nothing, and names read better without backslashes.
    return re.sub(r"[\\`*\[\]|#~$!]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def _system(system: Json, paper: Paper) -> list[str]:
    """Return the part about one system: accuracies, SE, real and synthetic, and the paper if the files are its own."""
    files = "Files: " + ", ".join(map(escaped, system["files"]))
    parts = [f"## {escaped(full_name(system))}", files]
    if system.get("always"):
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
    return [*parts, "### Real and synthetic recordings", _partitions(system), *_published(system, paper)]


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
        for reader, read in READERS.items():
            scored = _part(system["parsers"], reader, mode)
            if cell := _part(scored, speaker):
                parts = (_part(scored, Partition.REAL, speaker), _part(scored, Partition.SYNTH, speaker))
                yield _Found(mode, speaker, read, cell, parts)


def _part(scores: Json, *keys: str) -> Json:
    """Return what is under these keys, one inside the other; nothing where one is not there, or null."""
    for key in keys:
        scores = scores.get(key) or {}
    return scores


def _accuracies(system: Json) -> str:
    header = (
        "Mode", "About", "Read", "Right", "Accuracy", "Wilson", "By recording", "IDK", "Over-refusal",
        "Unparsed", "Entropy",
    )  # fmt: skip
    return _table(header, [(*found.head, *_accuracy(found)) for found in _found(system)], words=3)


def _accuracy(found: _Found) -> Iterator[str]:
    cell = found.cell
    yield _right(cell)
    yield _number(_percent(cell.get("accuracy")))
    yield _interval(cell.get("wilson95"))
    yield _interval(cell.get("cluster95"))
    yield _number(_rate(cell, "idk"))
    yield _number(_rate(cell, *DECLINED) if found.speaker is Speaker.MAIN else None)
    yield _number(_rate(cell, "unparsed"))
    yield _number(cell.get("entropy"), 3)


def _efficacies(system: Json) -> str:
    parsers = {read: _part(system["parsers"], reader) for reader, read in READERS.items()}
    rows = [
        (read, _number(_percent(parser.get("se"))), _interval(parser.get("se_cluster95")))
        for read, parser in parsers.items()
    ]
    return _table(("Read", "SE", "By recording"), rows, words=1)


def _partitions(system: Json) -> str:
    rows = [
        (
            *found.head,
            *(text for part in found.parts for text in (_right(part), _number(_percent(part.get("accuracy"))))),
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


def _beside_the_paper(scores: Json, paper: Paper) -> list[str]:
    """Return the run's rows among the paper's, one table of the paper after the other as far as the run has values."""
    standard = rows_beside(scores, paper, Setting.STANDARD)
    bare = rows_beside(scores, paper, Setting.NO_DESCRIPTION)
    selective = [cell for cell in CELLS if cell[0] is Mode.SELECTIVE]
    parts = [
        *_compared("Accuracies and SE (table 2)", standard, CELLS, lambda cell: _number(cell.accuracy), se=True),
        *_compared("Without a description (table 3)", bare, selective, lambda cell: _number(cell.accuracy), se=True),
        *_without_idk(standard, rows_beside(scores, paper, Setting.NO_IDK)),
        *_open_ended(scores, paper),
        *_compared("Real / synthetic recordings (table 6)", standard, CELLS, _split),
        *_compared("Wilson intervals (table 8)", standard, CELLS, lambda cell: _range(cell.wilson95)),
    ]
    if not parts:
        return []
    source = f"[{escaped(paper.source.title)}]({paper.source.url})"
    return [f"## Beside the paper\n\nThe paper: {source}. Rows of this run are bold.", *_others(scores, paper), *parts]


def _others(scores: Json, paper: Paper) -> list[str]:
    """Name the systems that were not asked as many questions as the paper's."""
    expected = {Speaker.MAIN: paper.questions.main, Speaker.BYSTANDER: paper.questions.bystander}
    others = [
        full_name(system)
        for system in scores["systems"]
        if any(found.cell.get("total") not in (expected[found.speaker], 0, None) for found in _found(system))
    ]
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
    lines = [[*_head(row), *texts, *[_number(row.figures.se)] * se] for row, texts in kept]
    return [f"### {title}", _table(header, lines, words=2)]


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
        [f"**{escaped(full_name(system))}**", mode, READERS[reader], *map(_number, declined)]
        for system in scores["systems"]
        if setting_of(system) is Setting.OPEN_ENDED
        for mode, reader, declined in declined_of(system)
    ]
    printed = [
        [escaped(system.name), UNKNOWN, READERS["paper"], _number(found.main), _number(found.bystander)]
        for system in paper.systems
        if (found := system.open_ended)
    ]
    header = ("System", "Mode", "Read", "Main", "Bystander")
    words = 'The share of questions that were declined: answered by "I don\'t know", or refused.'
    return ["### Open-ended questions (table 5)", words, _table(header, run + printed, words=3)] if run else []


def declined_of(system: Json) -> list[tuple[Mode, str, tuple[float | None, float | None]]]:
    """Return mode, reader, and the percent of questions declined, about the main speaker and about the bystander."""
    return [
        (mode, reader, (_rate(_part(scored, "main"), *DECLINED), _rate(_part(scored, "bystander"), *DECLINED)))
        for mode in Mode
        for reader in READERS
        if (scored := _part(system["parsers"], reader, mode))
    ]


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


# --- a table for a screen ---------------------------------------------------------------------------------------------

NAME_WIDTH: Final = 28
"""Columns of a terminal; with it a row of the table has 80."""

SHORTEST: Final = 10
"""Columns that a name keeps beside a note of any length."""


def screen_table(scores: Json, paper: Paper) -> list[str]:
    """Return the lines of a short table for a terminal: the run's rows, marked by `>`, among the paper's.

    A row without a description of the main speaker, or without an "I don't know" option, says so.
    """
    rows = [row for setting in _ON_SCREEN for row in rows_beside(scores, paper, setting)]
    rows = _by_se(row for row in rows if row.own or not row.note)
    short = {system.name: system.short for system in paper.systems}
    lines = [
        _screen_line("", "", "", ["main", "main", "byst.", "byst.", "SE"]),
        _screen_line("", "accuracy in percent", "read", ["general", "select.", "general", "select.", ""]).rstrip(),
    ]
    for row in rows:
        values = [*(row.figures.cell(*cell).accuracy for cell in CELLS), row.figures.se]
        lines.append(_screen_line(">" if row.own else "", _screen_name(row, short), row.read, map(_number, values)))
    return [*lines, *_screen_declined(scores), f"> this run; the others: {paper.source.url}"]


_ON_SCREEN: Final = (Setting.STANDARD, Setting.NO_DESCRIPTION, Setting.NO_IDK)


def _screen_declined(scores: Json) -> list[str]:
    """Return a line for each open-ended system, mode and reader."""
    return [
        f"> {full_name(system)}, {mode}, {READERS[reader]}: declined {_number(main)} % about the main speaker, "
        f"{_number(bystander)} % about the bystander"
        for system in scores["systems"]
        if setting_of(system) is Setting.OPEN_ENDED
        for mode, reader, (main, bystander) in declined_of(system)
    ]


def _screen_line(mark: str, name: str, read: str, values: Iterable[str]) -> str:
    return f"{mark:1} {_filled(name)} {read:9}" + "".join(f"{value:>8}" for value in values)


def _screen_name(row: Row, short: Mapping[str, str]) -> str:
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


# --- values as text ---------------------------------------------------------------------------------------------------


def _number(value: float | None, digits: int = 1) -> str:
    return UNKNOWN if value is None else f"{value:z.{digits}f}"


def _range(ends: tuple[float, float] | None, digits: int = 1) -> str:
    """Return an interval, its ends in percent."""
    return UNKNOWN if ends is None else f"{ends[0]:.{digits}f}–{ends[1]:.{digits}f}"


def _interval(ends: Sequence[float | None] | None) -> str:
    """Return an interval whose ends are fractions."""
    low, high = ends or (None, None)
    return UNKNOWN if low is None or high is None else _range((100 * low, 100 * high))


def _split(cell: Entry) -> str:
    real, synth = _number(cell.real), _number(cell.synth)
    return UNKNOWN if real == synth == UNKNOWN else f"{real} / {synth}"


def _accuracy_and_entropy(cell: Entry) -> str:
    return _number(cell.accuracy) if cell.entropy is None else f"{_number(cell.accuracy)} ({_number(cell.entropy, 3)})"


def _right(cell: Json) -> str:
    return UNKNOWN if not cell.get("total") or cell["correct"] is None else f"{cell['correct']} of {cell['total']}"


def _rate(cell: Json, *counts: str) -> float | None:
    """Return the share of replies that are among these counts, in percent; None where none of them was counted."""
    known: list[int] = [cell[count] for count in counts if cell.get(count) is not None]
    return 100 * sum(known) / cell["total"] if known and cell.get("total") else None


def _head(row: Row) -> tuple[str, str]:
    name = escaped(_noted(row.name, row.note))
    return (f"**{name}**" if row.own else name), row.read


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """Return a Markdown table; its first `words` columns hold words, the others numbers. Cells are escaped already."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])
