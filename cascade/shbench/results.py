"""What is left of a run when everything was asked: its final files; and shards merged to what one run would have left.

The final files are made of what the journal holds, without any timing, so that a run that was stopped and went on
leaves the same bytes as one that was not.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from cascade.answering.declining import read_open
from cascade.answering.reading import read_choice
from cascade.answering.spending import Spent
from cascade.errors import MissingExtraError, OutputError
from cascade.output import benchmark as output
from cascade.output.files import as_bytes, as_json, as_json_lines, check_free
from cascade.output.journal import Journal, forgetful, locked, open_journal, read_journal
from cascade.pipeline import Cascade
from cascade.scoring.paper import read_as_published
from cascade.scoring.tally import Tally
from cascade.shbench.figure import figure4
from cascade.shbench.paper import Paper, load_paper
from cascade.shbench.plan import Plan, Shard, counted, digest
from cascade.shbench.running import (
    SPENT,
    Failed,
    Heard,
    Loader,
    Stopped,
    hearings,
    is_entry,
    predictions,
    run,
    spent_in,
)
from cascade.shbench.scores import Scores, evaluate
from cascade.shbench.tables import scores_md
from cascade.types import Mode, Question, Reading


def read_strictly(reply: str, question: Question) -> Reading:
    """Read a reply as a careful person would; of an open one only whether it declines."""
    return read_choice(reply, question) if question.options else read_open(reply, question.text)


READERS: Final = {"strict": read_strictly, "paper": read_as_published}
"""How replies are read: as a careful person would, and as the published evaluation does."""

log = logging.getLogger(__name__)

HEARINGS: Final = "hearings.json"

PREDICTIONS: Final = "_qa.json"
"""How the names of prediction files end."""


@dataclass(frozen=True, slots=True)
class Results:
    """What came of a run.

    failed: what could not be heard or answered. moved: the folder of another run's files. stopped: why the run ended
    early, if it did. answered: the predictions, by the name of their file. spent: what all answers took since the run
    was first begun; None where no server was asked. asked: how much of the data was run, in words.
    """

    scores: Scores
    hearings: Sequence[Heard]
    failed: Sequence[Failed]
    moved: Path | None = None
    stopped: Stopped | None = None
    answered: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    spent: Spent | None = None
    asked: str = ""

    @property
    def lines(self) -> list[str]:
        """What was heard, in sentences: for each mode how much was admitted and leaked, then speed and cost."""
        return [
            *(_in_words(mode, self.hearings) for mode in Mode if any(h.mode is mode for h in self.hearings)),
            *_speed(self.hearings),
            *([f"answers, since this run was first begun: {self.spent}"] if self.spent else []),
        ]


class Watch(Protocol):
    """Who is told how a run goes on."""

    def progress(self, behind_s: float, total_s: float, /) -> None:
        """Hear how many seconds of audio are behind, and how many there are in all."""

    def failed(self, failed: Failed, /) -> None:
        """Hear of something that could not be heard or answered."""


def run_plan(plan: Plan, out: Path | None, watch: Watch, load: Loader = Cascade.load) -> Results:
    """Run a plan, or go on with it, and write its final files to a folder; without one nothing is written.

    Errors: ModelError, EnrolmentError, OutputError.
    """
    if out is None:
        journal = forgetful()
        failed, stopped = _run(plan, journal, watch, load)
        found, answered = hearings(plan, journal), _predictions(plan, journal)
        spent = spent_in(journal.of_kind(SPENT))
        scores = _scores(answered, _asked(plan))
        return Results(scores, found, failed, stopped=stopped, answered=answered, spent=spent, asked=_in_brief(plan))
    description = plan.describe()
    names = [*map(plan.file_name, plan.modes), *FINAL_FILES]
    with locked(out):
        moved = output.begin(out, description, names)
        with open_journal(out, is_entry) as journal:
            failed, stopped = _run(plan, journal, watch, load)
            found = hearings(plan, journal)
            answered = _predictions(plan, journal)
            spent = spent_in(journal.of_kind(SPENT))
        scores = _scores(answered, _asked(plan))
        output.finish(out, _final_files(answered, [_numbers(heard) for heard in found], scores, spent))
    return Results(scores, found, failed, moved, stopped, answered, spent, _in_brief(plan))


def _in_brief(plan: Plan) -> str:
    return f"{plan.asked} ({plan.config.main_speaker})"


def _run(plan: Plan, journal: Journal, watch: Watch, load: Loader) -> tuple[list[Failed], Stopped | None]:
    """Hear and ask what is left to do; return what failed, and why it ended early, if it did."""
    failed: list[Failed] = []
    for trouble in run(plan, journal, watch.progress, load):
        if isinstance(trouble, Stopped):
            return failed, trouble
        watch.failed(trouble)
        failed.append(trouble)
    return failed, None


def _predictions(plan: Plan, journal: Journal) -> dict[str, list[dict[str, Any]]]:
    """Return the answered items by the name of their file."""
    return {plan.file_name(mode): items for mode, items in predictions(plan, journal).items()}


def _in_words(mode: Mode, heard: Sequence[Heard]) -> str:
    """Say what came of the hearings in a mode."""
    mine = [one for one in heard if one.mode is mode]
    audio_s, admitted_s = sum(one.audio_s for one in mine), sum(one.admitted_s for one in mine)
    text = f"heard in {mode} mode: {audio_s:.1f} s, {admitted_s:.1f} s admitted"
    bystander = _added([one.bystander_words for one in mine])
    main = _added([one.main_words for one in mine])
    if main.total and bystander.total:
        text += f"; of the main speakers' words {_share(main)} were transcribed, of the bystanders' {_share(bystander)}"
    return text


def _added(tallies: Sequence[Tally | None]) -> Tally:
    return sum((tally for tally in tallies if tally is not None), Tally())


def _share(tally: Tally) -> str:
    return f"{100 * (tally.accuracy or 0):.1f} % ({tally.correct} of {tally.total})"


def _speed(heard: Sequence[Heard]) -> list[str]:
    """Say how fast it went: computing time over the audio's length, in all and by stage."""
    audio_s = sum(one.audio_s for one in heard)
    if not audio_s:
        return []
    stages = Counter[str]()
    for one in heard:
        stages.update(one.stages_s)
    parts = ", ".join(f"{stage} {spent_s / audio_s:.3f}" for stage, spent_s in stages.items())
    return [f"real-time factor {stages.total() / audio_s:.2f} ({parts})"]


# --- predictions of any system ----------------------------------------------------------------------------------------


def score_predictions(
    files: Sequence[Path], modes: Sequence[Mode] | None, name: str | None, data: Path | None
) -> Scores:
    """Score files of predictions by both ways of reading; see scores.evaluate."""
    return evaluate(files, modes, name, READERS, data)


def write_scores(out: Path, scores: Scores) -> None:
    """Write what predictions score to a folder, in which none of the files may be.

    Raises:
        OutputError: One of the files is there, or the folder cannot be written.
    """
    with locked(out):
        files = score_files(scores)
        for name in files:
            check_free(out / name)
        output.finish(out, files)


# --- final files ------------------------------------------------------------------------------------------------------

SPENT_FILE: Final = "spent.json"

FINAL_FILES: Final = (HEARINGS, SPENT_FILE, "scores.json", "scores.md", "items.jsonl", "figure4.svg", "figure4.png")
"""Beside the predictions."""


def score_files(scores: Scores) -> dict[str, bytes]:
    """Return the files that say how predictions score, by name; the figure only where it can be drawn."""
    found, paper = scores.as_dict(), load_paper()
    return {
        "scores.json": as_bytes(as_json(found)),
        "scores.md": as_bytes(scores_md(found, paper)),
        "items.jsonl": as_bytes(as_json_lines(scores.readings())),
        **_figure(found, paper),
    }


def _figure(found: Mapping[str, Any], paper: Paper) -> dict[str, bytes]:
    """Return figure 4, or nothing but a warning: it is no reason to lose a run's scores."""
    try:
        figure = figure4(found, paper)
    except MissingExtraError as error:
        log.warning("figure 4 is not drawn: %s", error)
        return {}
    return {"figure4.svg": figure.svg, "figure4.png": figure.png}


def _final_files(
    answered: Mapping[str, Sequence[Mapping[str, Any]]],
    heard: Sequence[Mapping[str, Any]],
    scores: Scores,
    spent: Spent | None,
) -> dict[str, bytes]:
    """Return a run's files by name; the predictions are laid out as the benchmark's own programs write them."""
    return {
        **{name: json.dumps(items, indent=4).encode() for name, items in answered.items()},
        HEARINGS: as_bytes(as_json(heard)),
        **({} if spent is None else {SPENT_FILE: as_bytes(as_json(spent.as_dict()))}),
        **score_files(scores),
    }


ASKED: Final = Path("the questions of this run")
"""Stands for a file of what was to be asked, which the audit compares with what was answered."""


def _asked(plan: Plan) -> list[dict[str, Any]]:
    """Return the items of a run with the options that are offered."""
    return [{**plan.data.raw[item.number], "options": list(plan.options(item))} for item in plan.items]


def _scores(answered: Mapping[str, Sequence[Mapping[str, Any]]], asked: Sequence[Mapping[str, Any]]) -> Scores:
    """Score predictions as they will stand in their files, before there are any."""
    files = sorted(Path(name) for name, items in answered.items() if items)
    contents = {file: json.dumps(answered[file.name]).encode() for file in files}
    contents[ASKED] = json.dumps(asked).encode()
    return evaluate(files, None, None, READERS, ASKED, contents.__getitem__)


def _numbers(heard: Heard) -> dict[str, Any]:
    """Return what is said of a hearing; a timing would differ each time."""
    return {
        "key": heard.key,
        "recording": heard.recording,
        "mode": str(heard.mode),
        "audio_s": heard.audio_s,
        "admitted_s": heard.admitted_s,
        "withheld_s": dict(heard.withheld_s),
        "bystander_words": _counted(heard.bystander_words),
        "main_words": _counted(heard.main_words),
    }


def _counted(tally: Tally | None) -> dict[str, int] | None:
    return None if tally is None else {"found": tally.correct, "total": tally.total}


# --- shards -----------------------------------------------------------------------------------------------------------


def merge(shards: Sequence[Path], out: Path) -> Results:
    """Put the shards of one run together into a folder as if it had been run whole.

    Raises:
        OutputError: They are not all the shards of one run, each once and complete, or the folder cannot be written.
    """
    if out.resolve() in [folder.resolve() for folder in shards]:
        raise OutputError(f"'{out}' is one of the shards; give another --out")
    runs = {folder: output.read_run(folder) for folder in shards}
    _check_shards([(folder, runs[folder]) for folder in shards])
    whole = _as_whole(list(runs.values()))
    answered = {name: _joined(runs, name) for name in whole["files"] if name.endswith(PREDICTIONS)}
    order = {item["audio"]: number for items in answered.values() for number, item in reversed([*enumerate(items)])}
    entries = {key: entry for folder in runs for key, entry in read_journal(folder, is_entry).items()}
    heard = [entry for folder in runs for entry in _hearings_of(folder, entries)]
    if {entry["recording"] for entry in heard} != set(order):
        raise OutputError("the shards' hearings and predictions are not of the same recordings; run the shards again")
    heard.sort(key=lambda entry: order[entry["recording"]])
    with locked(out):
        moved = output.begin(out, whole, whole["files"])
        with open_journal(out, is_entry) as journal:
            for key, entry in entries.items():
                if key not in journal:
                    journal.append(key, entry)
        scores = _scores(answered, next(iter(answered.values())))
        spent = spent_in(entries.values())
        output.finish(out, _final_files(answered, heard, scores, spent))
    found = [Heard.of(entry["key"], entries[entry["key"]]) for entry in heard]
    questions = counted(len(whole["items"]), whole["items_in_data"], "questions")
    return Results(scores, found, (), moved, spent=spent, asked=f"{len(order)} recordings, {questions}")


def _hearings_of(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a shard's hearings, all of which its journal holds."""
    heard = output.read_list(folder / HEARINGS)
    if not all(
        entries.get(str(entry.get("key")), {}).get("kind") == "hearing" and "recording" in entry for entry in heard
    ):
        raise OutputError(f"'{folder}': hearings and journal do not fit together; give the shard's command again")
    return heard


def _check_shards(runs: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
    """Raise OutputError unless these are all the shards of one run, each once."""
    given: dict[str, Path] = {}
    for folder, description in runs:
        shard = description["determined_by"]["shard"]
        if shard is None:
            raise OutputError(f"'{folder}' holds a whole run, no shard; merge takes the folders of --shard runs")
        if shard in given:
            raise OutputError(f"'{given[shard]}' and '{folder}' both hold shard {shard}; give each shard once")
        given[shard] = folder
    if len({(_whole_identity(description), description["limit"]) for _, description in runs}) > 1:
        raise OutputError(
            "the shards are of different runs: configuration, data, models, prompts, versions or --limit differ; "
            "run them alike"
        )
    count = Shard.of(next(iter(given))).count
    absent = [f"{index}/{count}" for index in range(1, count + 1) if f"{index}/{count}" not in given]
    if absent:
        raise OutputError(f"shard {', '.join(absent)} is missing; give the folders of all {count} shards")


def _whole_identity(description: Mapping[str, Any]) -> str:
    """Return the identity that a shard's run would have had as a whole."""
    return digest({**description["determined_by"], "shard": None})


def _as_whole(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the description that the whole run would have had."""
    return {
        **runs[0],
        "identity": _whole_identity(runs[0]),
        "determined_by": {**runs[0]["determined_by"], "shard": None},
        "items": sorted(number for description in runs for number in description["items"]),
    }


def _joined(runs: Mapping[Path, Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the predictions of all shards in the order of the benchmark's file."""
    numbered: list[tuple[int, dict[str, Any]]] = []
    for folder, description in runs.items():
        items = output.read_list(folder / name)
        if not all("audio" in item for item in items):
            raise OutputError(f"'{folder / name}' is damaged; give the shard's command again")
        if len(items) != len(description["items"]):
            answered = f"{len(items)} of {len(description['items'])} questions are answered"
            raise OutputError(f"'{folder / name}': {answered}; give the shard's command again, then merge")
        numbered += zip(description["items"], items, strict=True)
    return [item for _, item in sorted(numbered, key=lambda pair: pair[0])]
