"""A run's scores in the paper's shape: rows among the paper's own, and, for published files, value by value.

Scores (Scores.as_dict) hold fractions and counts; the paper, and all that is made here, holds percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from cascade.rendering import one_line
from cascade.scoring.efficacy import Partition, Speaker
from cascade.shbench.paper import Entry, Figures, Paper, Published, Setting, Speakers, stem
from cascade.types import Mode

Json: TypeAlias = Mapping[str, Any]
"""A part of what Scores.as_dict gives; what is not known is None or not there."""

CELLS: Final = tuple((mode, speaker) for speaker in Speaker for mode in (Mode.GENERAL, Mode.SELECTIVE))
"""The four accuracies, in the order of the paper's table 2."""

READERS: Final = ("strict", "paper")
"""How replies were read, as it is called in files and tables."""

ABOUT: Final = {Speaker.MAIN: "main speaker", Speaker.BYSTANDER: "bystander"}

DECLINED: Final = ("idk", "refused")
"""The counts of replies that answer nothing on purpose."""

UNKNOWN: Final = "–"

LABELS: Final = {
    Setting.STANDARD: "",
    Setting.NO_DESCRIPTION: "no description",
    Setting.NO_IDK: "no IDK option",
    Setting.OPEN_ENDED: "open-ended",
}
"""What is said beside a system's name."""


# --- a part of the scores, a value as text ----------------------------------------------------------------------------


def part_of(scores: Json, *keys: str) -> Json:
    """Return what is under these keys, one inside the other; nothing where one is not there, or null."""
    for key in keys:
        scores = scores.get(key) or {}
    return scores


def percent(fraction: float | None) -> float | None:
    """Return a fraction in percent; None stays None."""
    return None if fraction is None else 100 * fraction


def rate(cell: Json, *counts: str) -> float | None:
    """Return the share of replies that are among these counts, in percent; None where none of them was counted."""
    known: list[int] = [cell[count] for count in counts if cell.get(count) is not None]
    return 100 * sum(known) / cell["total"] if known and cell.get("total") else None


def number(value: float | None, digits: int = 1) -> str:
    """Return a number to so many digits after the point; a dash where it is not known."""
    return UNKNOWN if value is None else f"{value:z.{digits}f}"


# --- a system ---------------------------------------------------------------------------------------------------------


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
    notes = [LABELS[setting_of(system)], "gate always shut" if (system.get("setting") or {}).get("always_shut") else ""]
    return "; ".join(note for note in notes if note)


def full_name(system: Json) -> str:
    """Return a system's name with its note."""
    return noted(name_of(system), note_of(system))


def noted(name: str, note: str) -> str:
    """Return a name with a note in brackets, if there is one."""
    return f"{name} ({note})" if note else name


def asked_otherwise(scores: Json, paper: Paper) -> list[Json]:
    """Return the systems that were not asked as many questions as the paper's, with which they cannot be compared."""
    expected = {Speaker.MAIN: paper.questions.main, Speaker.BYSTANDER: paper.questions.bystander}
    return [
        system
        for system in scores["systems"]
        if any(total not in (expected[speaker], 0) for _, speaker, total in _totals(system))
    ]


def questions_of(system: Json) -> int:
    """Return how many questions a system was asked in a mode, in that in which it was asked more."""
    return max(
        sum(
            max([0, *(total for mode, speaker, total in _totals(system) if (mode, speaker) == (asked_in, about))])
            for about in Speaker
        )
        for asked_in in Mode
    )


def _totals(system: Json) -> Iterator[tuple[Mode, Speaker, int]]:
    """Yield how many questions each reader scored in each mode about each speaker."""
    for mode, speaker in CELLS:
        for reader in READERS:
            yield mode, speaker, part_of(system["parsers"], reader, mode, speaker).get("total") or 0


def figures_of(system: Json, reader: str) -> Figures:
    """Put what one reader made of a system into the paper's shape, in percent.

    Without an "I don't know" option a low accuracy is the private one, so there is no SE.
    """
    parser = part_of(system["parsers"], reader)
    se = None if setting_of(system) is Setting.NO_IDK else percent(parser.get("se"))
    general, selective = _speakers(part_of(parser, Mode.GENERAL)), _speakers(part_of(parser, Mode.SELECTIVE))
    return Figures(general=general, selective=selective, se=se)


def _speakers(mode: Json) -> Speakers:
    return Speakers(main=_entry(mode, Speaker.MAIN), bystander=_entry(mode, Speaker.BYSTANDER))


def _entry(mode: Json, speaker: Speaker) -> Entry:
    cell = part_of(mode, speaker)
    low, high = cell.get("wilson95") or (None, None)
    return Entry(
        accuracy=percent(cell.get("accuracy")),
        wilson95=None if low is None or high is None else (100 * low, 100 * high),
        entropy=cell.get("entropy"),
        real=percent(part_of(mode, Partition.REAL, speaker).get("accuracy")),
        synth=percent(part_of(mode, Partition.SYNTH, speaker).get("accuracy")),
    )


def declined_of(system: Json) -> list[tuple[Mode, str, tuple[float | None, float | None]]]:
    """Return mode, reader, and the percent of questions declined, about the main speaker and about the bystander."""
    return [
        (mode, reader, (rate(part_of(scored, "main"), *DECLINED), rate(part_of(scored, "bystander"), *DECLINED)))
        for mode in Mode
        for reader in READERS
        if (scored := part_of(system["parsers"], reader, mode))
    ]


# --- rows among the paper's -------------------------------------------------------------------------------------------


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


def own_rows(system: Json) -> list[Row]:
    """Return a system's rows, one for each way of reading; a single one where both ways show the same."""
    name, note = name_of(system), note_of(system)
    rows = [Row(name, note, reader, figures_of(system, reader), own=True) for reader in READERS]
    return [replace(rows[0], read="both")] if rows[0].figures == rows[1].figures else rows


def rows_beside(scores: Json, paper: Paper, setting: Setting) -> list[Row]:
    """Return the paper's rows of a setting with the run's among them, the highest SE first, unknown ones last."""
    printed = [
        Row(system.name, LABELS[setting], "paper", figures, own=False)
        for system in paper.systems
        for found, figures in system.settings
        if found is setting and figures != Figures(files=figures.files)
    ]
    run = [row for system in scores["systems"] if setting_of(system) is setting for row in own_rows(system)]
    return by_se(printed + run)


def by_se(rows: Iterable[Row]) -> list[Row]:
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
        return " / ".join(number(value, self.digits) for value in self.file)

    @property
    def printed(self) -> str:
        """The paper's value."""
        return " / ".join(number(value, self.digits) for value in self.paper)

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
