"""What a benchmark's run found -> a page: scores among the paper's, the figure, what was heard, what was got wrong.

Of a question about the main speaker that was got wrong there is its text, the right option and the chosen one, all from
the benchmark's own file; never a reply in a model's own words, which may quote what got past the gate. Of one about a
bystander there is its number and what became of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from cascade.errors import MissingExtraError
from cascade.provenance import without_folders
from cascade.reporting.drawing import inlined
from cascade.reporting.page import UNKNOWN, made_with, number, render, speeds
from cascade.reporting.timeline import plain_reason
from cascade.scoring.efficacy import Speaker
from cascade.scoring.tally import Tally
from cascade.shbench.comparison import (
    ABOUT,
    CELLS,
    READERS,
    Json,
    declined_of,
    full_name,
    noted,
    part_of,
    percent,
    rate,
    rows_beside,
    setting_of,
)
from cascade.shbench.figure import figure4
from cascade.shbench.paper import Paper, Setting, load_paper
from cascade.shbench.plan import Plan
from cascade.shbench.results import Results
from cascade.shbench.running import Heard
from cascade.shbench.scores import LETTERS, Mark, Predictions
from cascade.shbench.screen import audit_lines

READER: Final = "strict"
"""Whose reading tells what was got wrong."""

NAMES: Final = {
    Setting.STANDARD: "As usual",
    Setting.NO_DESCRIPTION: "Without a description of the main speaker",
    Setting.NO_IDK: "Without an option that says “I don't know”",
}

FIGURE: Final = (
    "Bystander accuracy of this run and of the paper's systems",
    "A point for each system: to the right, the bystander is understood in general mode; higher up, the bystander's "
    "words are kept private in selective mode. The same numbers are in the tables.",
)


def benchmark_page(plan: Plan, results: Results) -> str:
    """Return the page about a run."""
    scores, paper = results.scores.as_dict(), load_paper()
    figure, why_none = _figure(scores, paper)
    return render(
        "benchmark.html",
        {
            "name": plan.system,
            "modes": ", ".join(plan.modes),
            "gated": plan.config.gated,
            "asked": plan.asked,
            "main_speaker": plan.config.main_speaker,
            "said": results.lines,
            "failed": [f"{failed.recording}: {failed.error}" for failed in results.failed],
            "stopped": None if results.stopped is None else str(results.stopped),
            "systems": [_system(system) for system in scores["systems"]],
            "beside": list(_beside(scores, paper)),
            "paper": paper,
            "figure": figure,
            "why_none": why_none,
            "notes": audit_lines(scores),
            "hearings": [_hearing(heard) for heard in results.hearings],
            "speeds": speeds(*_spent(results.hearings)),
            "wrong": [_wrong(file, results.answered[file.file.name]) for file in results.scores.files],
            "made": made_with({"benchmark": without_folders(plan.settings.model_dump()), **plan.made.as_dict()}),
        },
    )


# --- scores -----------------------------------------------------------------------------------------------------------


def _system(system: Json) -> dict[str, Any]:
    """Return a system's accuracies and SE, a row for each way of reading, or one where both ways give the same."""
    lower = setting_of(system) is Setting.NO_IDK
    return {
        "name": full_name(system),
        "accuracies": [] if setting_of(system) is Setting.OPEN_ENDED else list(_accuracies(system)),
        "efficacies": [] if lower else _merged([_efficacy(system, reader) for reader in READERS]),
        "lower_is_better": lower,
        "declined": [
            (mode, reader, *map(number, shares))
            for mode, reader, shares in declined_of(system)
            if setting_of(system) is Setting.OPEN_ENDED
        ],
    }


def _accuracies(system: Json) -> Iterator[tuple[str, ...]]:
    for mode, speaker in CELLS:
        cells = [part_of(system["parsers"], reader, mode, speaker) for reader in READERS]
        if any(cells):
            for read, *values in _merged(list(map(_accuracy, cells))):
                yield str(mode), ABOUT[speaker], read, *values


def _accuracy(cell: Json) -> tuple[str, ...]:
    right = UNKNOWN if cell.get("correct") is None else f"{cell['correct']} of {cell['total']}"
    intervals = (_interval(cell.get("wilson95")), _interval(cell.get("cluster95")))
    return number(percent(cell.get("accuracy"))), *intervals, right, number(rate(cell, "idk"))


def _efficacy(system: Json, reader: str) -> tuple[str, ...]:
    parser = part_of(system["parsers"], reader)
    return number(percent(parser.get("se"))), _interval(parser.get("se_cluster95"))


def _merged(found: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Put before each reader's values how it read; all as one where they are the same."""
    if len(set(found)) == 1:
        return [("both", *found[0])]
    return [(read, *values) for read, values in zip(READERS, found, strict=True)]


def _interval(ends: Sequence[float | None] | None) -> str:
    """Return an interval whose ends are fractions, in percent."""
    low, high = ends or (None, None)
    return UNKNOWN if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}"


@dataclass(frozen=True, slots=True)
class Beside:
    """The run's rows among the paper's in one setting: name, how it was read, SE and four accuracies; own or not."""

    name: str
    rows: Sequence[tuple[bool, str, str, Sequence[str]]]


def _beside(scores: Json, paper: Paper) -> Iterator[Beside]:
    asked = {setting_of(system) for system in scores["systems"]}
    short = {system.name: system.short for system in paper.systems}
    for setting, name in NAMES.items():
        if setting in asked:
            rows = rows_beside(scores, paper, setting)
            yield Beside(
                name,
                [
                    (
                        row.own,
                        noted(row.name, row.note) if row.own else short[row.name],
                        row.read,
                        [number(row.figures.se), *(number(row.figures.cell(*cell).accuracy) for cell in CELLS)],
                    )
                    for row in rows
                ],
            )


def _figure(scores: Json, paper: Paper) -> tuple[Markup | None, str]:
    """Return figure 4 as a part of the page, or else why it is not there."""
    try:
        return inlined(figure4(scores, paper).svg, "figure4-", *FIGURE), ""
    except MissingExtraError as error:
        return None, str(error)


# --- hearings ---------------------------------------------------------------------------------------------------------


def _hearing(heard: Heard) -> tuple[str, ...]:
    withheld = ", ".join(f"{plain_reason(reason)} {s:.1f}" for reason, s in heard.withheld_s.items())
    return (
        heard.recording,
        str(heard.mode),
        f"{heard.audio_s:.1f}",
        f"{heard.admitted_s:.1f}",
        withheld or UNKNOWN,
        _share(heard.main_words),
        _share(heard.bystander_words),
    )


def _share(words: Tally | None) -> str:
    return UNKNOWN if words is None else f"{words.correct} of {words.total}"


def _spent(heard: Sequence[Heard]) -> tuple[Mapping[str, float], float]:
    """Return the computing time of each stage, and the seconds heard."""
    stages = Counter[str]()
    for one in heard:
        stages.update(one.stages_s)
    return stages, sum(one.audio_s for one in heard)


# --- what was got wrong -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Missed:
    """A question about the main speaker that was got wrong; chosen is an option, or what became of the reply."""

    item: int
    recording: str
    question: str
    right: str
    chosen: str


@dataclass(frozen=True, slots=True)
class Wrong:
    """What was got wrong in one file of predictions; about bystanders only number and outcome."""

    file: str
    mode: str
    questions: int
    main: Sequence[Missed]
    bystander: Sequence[tuple[int, str]]


def _wrong(file: Predictions, answered: Sequence[Mapping[str, Any]]) -> Wrong:
    marks = file.marks[READER]
    wrong = [mark for mark in marks if mark.scored.right is False]
    return Wrong(
        file=file.file.name,
        mode=str(file.mode),
        questions=len(marks),
        main=[_missed(mark, answered[mark.item]) for mark in wrong if mark.scored.speaker is Speaker.MAIN],
        bystander=[(mark.item, _outcome(mark)) for mark in wrong if mark.scored.speaker is not Speaker.MAIN],
    )


def _missed(mark: Mark, item: Mapping[str, Any]) -> Missed:
    choice = mark.reading.choice
    chosen = f"({_outcome(mark)})" if choice is None else _lettered(item["options"], choice)
    right = _lettered(item["options"], item["options"].index(item["answer"]))
    return Missed(mark.item, item["audio"], item["question"], right, chosen)


def _lettered(options: Sequence[str], choice: int) -> str:
    return f"{LETTERS[choice]}. {options[choice]}"


def _outcome(mark: Mark) -> str:
    return "I don't know" if mark.reading.outcome == "dont_know" else plain_reason(mark.reading.outcome)
