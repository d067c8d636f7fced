"""Prediction files -> systems -> their scores, and what is wrong with the files.

A system is the files of one folder whose names are the same without these words, in one setting. The general mode has
no description, so that one general file may serve a selective file with a description and another without. Files of
different systems are never put together; every file is in the scores, and the audit says what is missing.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from cascade.errors import ItemsError
from cascade.scoring.efficacy import Cell, ModeScore, Scored, Speaker, SystemScore, entropy, score
from cascade.scoring.paper import published_entropy
from cascade.scoring.tally import Interval, Tally
from cascade.shbench.audit import Asked, Finding, Index, Kind, Notes, inspect, inspect_all
from cascade.shbench.items import Item, load_items, load_predictions
from cascade.shbench.names import Setting, modes_of, words_of
from cascade.types import Mode, Question, Reading

Reader = Callable[[str, Question], Reading]
"""Reads the option out of a reply."""

PAPER: Final = "paper"
"""The reader whose numbers are the published evaluation's, entropies too; to open answers it has nothing to say."""

LETTERS: Final = "ABCDE"

_NO_MODE: Final = "not scored: neither selective nor basic or general is in its name; say which with --mode"


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """What was read in a reply, and what it is worth; item is the place in the file."""

    item: int
    reading: Reading
    scored: Scored


@final
@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """A file of replies, and what each reader that can makes of them.

    system is what all files of a system share: the folder and what their names have in common. items is how many there
    are; asked holds each by a digest, which takes little memory.
    """

    file: Path
    mode: Mode
    setting: Setting
    system: tuple[str, str]
    items: int
    asked: Mapping[bytes, Asked]
    marks: Mapping[str, Sequence[Mark]]

    def scored(self, reader: str) -> list[Scored] | None:
        """Return the answers as a reader reads them, None where it cannot."""
        return [mark.scored for mark in self.marks[reader]] if reader in self.marks else None


@final
@dataclass(frozen=True, slots=True)
class System:
    """One system in one setting: its files, and its score by each reader.

    general and selective are what was made of its files, None for a mode that is not there. A file of which no mode is
    known is a system by itself, with neither.
    """

    name: str
    setting: Setting
    files: tuple[Path, ...]
    general: Predictions | None
    selective: Predictions | None
    scores: Mapping[str, SystemScore]


@final
@dataclass(frozen=True, slots=True)
class Scores:
    """All systems, in the order of their files, and what is wrong with the files."""

    systems: tuple[System, ...]
    files: tuple[Predictions, ...]
    audit: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what scores.json holds: shares in [0, 1], counts, and None for what is not there."""
        return {"systems": [{**_system_dict(system), "audit": self._found_in(system)} for system in self.systems]}

    def _found_in(self, system: System) -> list[dict[str, Any]]:
        """Return what is wrong with a system's files."""
        files = set(map(str, system.files))
        return [
            {"kind": str(one.kind), "file": one.file, "item": one.item, "detail": one.detail}
            for one in self.audit
            if one.file in files
        ]

    def readings(self) -> Iterator[dict[str, Any]]:
        """Yield what each reader read in each scored reply, and why."""
        for file in self.files:
            for reader, marks in file.marks.items():
                yield from (_reading_dict(file, reader, mark) for mark in marks)


def evaluate(
    files: Sequence[Path],
    modes: Sequence[Mode] | None,
    name: str | None,
    readers: Mapping[str, Reader],
    data: Path | None = None,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> Scores:
    """Score files of predictions, and audit them.

    Args:
        files: Each holds one mode of one system, .json or .json.gz.
        modes: The files' modes, one for all or one for each; None to tell them from the names.
        name: What the one system is called that all files are of; None to tell systems from the names.
        readers: How replies are read, by name.
        data: The benchmark's file, to find what is missing.
        read: Returns a file's bytes; predictions that are not on disk can be handed in.

    Raises:
        ItemsError: A file cannot be read, the modes do not fit the files, or two files are one mode of one system.
    """
    told = [words_of(file) for file in files]
    audit: list[Finding] = []
    marked: list[Predictions] = []
    unscored: list[System] = []
    for file, words, mode in zip(files, told, modes_of(told, modes), strict=True):
        if mode is None:
            audit.append(Finding(Kind.MODE_UNKNOWN, str(file), None, _NO_MODE))
            unscored.append(
                System(file.name, words.setting, (file,), None, None, dict.fromkeys(readers, score(None, None)))
            )
            continue
        notes = Notes(file)
        if words.ambiguous and not modes:
            notes.add(
                Kind.MODE_AMBIGUOUS, None, "taken for selective; the other mode's word is in its name too: say --mode"
            )
        system = ("", name) if name else (str(file.resolve().parent), words.system)
        items = load_predictions(file, open_ended=words.setting.open_ended, read=read)
        marked.append(_marked(file, items, mode, words.setting, system, readers, notes))
        audit += notes.findings(marked[-1].items)
    systems = _systems(marked, readers)
    audit += itertools.chain(_one_mode_only(systems), *map(_disagreements, systems))
    if data is not None:
        audit += _beside_benchmark(data, marked, read)
    return Scores((*systems, *unscored), tuple(marked), tuple(audit))


# --- a file -----------------------------------------------------------------------------------------------------------


def _marked(
    file: Path,
    items: Iterable[Item],
    mode: Mode,
    setting: Setting,
    system: tuple[str, str],
    readers: Mapping[str, Reader],
    notes: Notes,
) -> Predictions:
    """Read a file's replies with all readers that can, and note what is wrong with it."""
    able = {reader: read for reader, read in readers.items() if not (setting.open_ended and reader == PAPER)}
    marks: dict[str, list[Mark]] = {reader: [] for reader in able}
    index = Index(notes)
    for item in items:
        index.add(item)
        inspect(item, setting, notes)
        right = _reference(item, mode, setting)
        if right is not None or setting.open_ended:
            question = Question(item.question) if setting.open_ended else item.question_of_options
            for reader, read in able.items():
                marks[reader].append(_mark(item, read(item.pred or "", question), right, _entropy(item, reader)))
    inspect_all(index, setting, notes)
    return Predictions(file, mode, setting, system, index.items, index.asked, marks)


def _reference(item: Item, mode: Mode, setting: Setting) -> int | None:
    """Return the index of the right option, None where there is none among the options or nothing is right."""
    if setting.open_ended:
        return None
    if mode is Mode.SELECTIVE and item.speaker is Speaker.BYSTANDER and setting.idk_option:
        return item.dont_know
    return item.options.index(item.answer) if item.answer in item.options else None


def _mark(item: Item, reading: Reading, right: int | None, nats: float | None) -> Mark:
    """Say whether what was read is right; without a right option it cannot be."""
    correct = None if right is None else reading.choice == right
    audio = sys.intern(item.audio)  # one string a recording, not one an item
    return Mark(item.number, reading, Scored(audio, item.speaker, item.partition, correct, reading.outcome, nats))


def _entropy(item: Item, reader: str) -> float | None:
    """Return the entropy over the options, None without probabilities; the published one where that is asked for.

    Numbers that are no probabilities make the published mean undefined, and are left out of the other.
    """
    if not item.logp:
        return None
    if reader == PAPER:
        return published_entropy(item.logp)
    nats = entropy(item.logp)
    return None if math.isnan(nats) else nats


# --- systems ----------------------------------------------------------------------------------------------------------

_Place = tuple[tuple[str, str], Mode, Setting]


def _systems(marked: Sequence[Predictions], readers: Iterable[str]) -> tuple[System, ...]:
    """Put the two modes of each system together."""
    there = _by_place(marked)
    labels = _labels({file.system for file in marked})
    generals = {file: _partner(file, there) for file in marked if file.mode is Mode.SELECTIVE}
    systems = []
    for file in marked:
        if file in generals:
            systems.append(_system(labels[file.system], file.setting, generals[file], file, readers))
        elif file not in generals.values():
            systems.append(_system(labels[file.system], file.setting, file, None, readers))
    return tuple(systems)


def _by_place(marked: Iterable[Predictions]) -> dict[_Place, Predictions]:
    """Return the files by system, mode and setting; ItemsError for two in one place."""
    there: dict[_Place, Predictions] = {}
    for file in marked:
        other = there.setdefault((file.system, file.mode, file.setting), file)
        if other is not file:
            raise ItemsError(
                f"'{other.file}' and '{file.file}' are both the {file.mode} mode of one system in one setting; give one"
            )
    return there


def _partner(file: Predictions, there: Mapping[_Place, Predictions]) -> Predictions | None:
    """Find a selective file's general file; there the speaker is described to nobody, whatever its name says."""
    for described in (file.setting.described, not file.setting.described):
        setting = replace(file.setting, described=described)
        if general := there.get((file.system, Mode.GENERAL, setting)):
            return general
    return None


def _labels(systems: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Name systems as their files are called; with the folder where two would be called the same."""
    short = {system: _label(*system) for system in systems}
    counts = Counter(short.values())
    return {
        (folder, bare): label if counts[label] == 1 else f"{Path(folder).name}/{bare or label}"
        for (folder, bare), label in short.items()
    }


def _label(folder: str, bare: str) -> str:
    """Leave out the "qa" that the benchmark's files end in; a name that the user gave has no folder, and is kept."""
    return (re.sub(r"[-_. ]?qa$", "", bare) or Path(folder).name or "system") if folder else bare


def _system(
    name: str,
    setting: Setting,
    general: Predictions | None,
    selective: Predictions | None,
    readers: Iterable[str],
) -> System:
    """Score a system by each reader. Where there is no 'I don't know' to choose, there is no efficacy to speak of."""
    scores = {}
    for reader in readers:
        found = score(*(file.scored(reader) if file else None for file in (general, selective)))
        scores[reader] = found if setting.idk_option else SystemScore(found.general, found.selective, None, None)
    files = tuple(file.file for file in (general, selective) if file)
    return System(name, setting, files, general, selective, scores)


def _one_mode_only(systems: Sequence[System]) -> Iterator[Finding]:
    """Say which modes are missing, and whether files were given that could be taken for them."""
    generals = [system.general.file for system in systems if system.general and not system.selective]
    selectives = [system.selective.file for system in systems if system.selective and not system.general]
    for file, other in [*((file, "selective") for file in generals), *((file, "general") for file in selectives)]:
        yield Finding(
            Kind.MODE_MISSING, str(file), None, f"no {other} file of this system and setting: SE is not known"
        )
    for file in selectives if generals else ():
        detail = f"not scored together with '{generals[0].name}': other system or setting; to say they are one: --name"
        yield Finding(Kind.MIXED_SYSTEMS, str(file), None, detail)


def _disagreements(system: System) -> Iterator[Finding]:
    """Say where the two modes of a system do not ask the same."""
    if not system.general or not system.selective:
        return
    for file, other in ((system.general, system.selective), (system.selective, system.general)):
        notes = Notes(file.file)
        _note_missing(file.asked, other.asked, other.file, notes)
        if file is system.selective:
            _note_differing(file.asked, other.asked, other.file, notes)
        yield from notes.findings()


def _beside_benchmark(data: Path, marked: Iterable[Predictions], read: Callable[[Path], bytes]) -> Iterator[Finding]:
    """Say where files do not ask what the benchmark's file does."""
    index = Index(Notes(data))
    for item in load_items(data, read=read):
        index.add(item)
    for file in marked:
        notes = Notes(file.file)
        _note_missing(file.asked, index.asked, data, notes)
        for key, asked in file.asked.items():
            if key not in index.asked:
                notes.add(Kind.UNKNOWN_ITEM, asked.item, f"not in '{data.name}'")
        if not file.setting.open_ended:
            _note_differing(file.asked, index.asked, data, notes)
        yield from notes.findings()


def _note_missing(here: Mapping[bytes, Asked], there: Mapping[bytes, Asked], file: Path, notes: Notes) -> None:
    for key, asked in there.items():
        if key not in here:
            notes.add(Kind.MISSING_ITEM, None, f"item {asked.item} of '{file.name}' is not here")


def _note_differing(here: Mapping[bytes, Asked], there: Mapping[bytes, Asked], file: Path, notes: Notes) -> None:
    for key, asked in here.items():
        if key in there and there[key].reference != asked.reference:
            detail = f"item {there[key].item} of '{file.name}' has another answer or other options"
            notes.add(Kind.REFERENCES_DIFFER, asked.item, detail)


# --- the shape of scores.json -----------------------------------------------------------------------------------------


def _system_dict(system: System) -> dict[str, Any]:
    return {
        "name": system.name,
        "files": [str(file) for file in system.files],
        "setting": {
            "idk_option": system.setting.idk_option,
            "described": system.setting.described,
            "open_ended": system.setting.open_ended,
            "always_shut": system.setting.always_shut,
        },
        "parsers": {
            reader: {
                "general": _mode_dict(found.general),
                "selective": _mode_dict(found.selective),
                "se": found.se,
                "se_cluster95": _list(found.se_cluster95),
            }
            for reader, found in system.scores.items()
        },
    }


def _mode_dict(mode: ModeScore | None) -> dict[str, Any] | None:
    if mode is None:
        return None
    return {
        **_speakers_dict(mode.main, mode.bystander),
        "real": _speakers_dict(*mode.real),
        "synth": _speakers_dict(*mode.synth),
    }


def _speakers_dict(main: Cell, bystander: Cell) -> dict[str, Any]:
    """Return both speakers' numbers; over-refusal is told of the main speaker only, of whom all may be answered."""
    over_refusal = _rate(main.idk + main.refused, main)
    return {
        "main": {**_cell_dict(main), "over_refusal": over_refusal},
        "bystander": {**_cell_dict(bystander), "over_refusal": None},
    }


def _cell_dict(cell: Cell) -> dict[str, Any]:
    return {
        "correct": cell.tally.correct if cell.tally else None,
        "total": cell.replies,
        "accuracy": cell.accuracy,
        "wilson95": _list(cell.wilson95),
        "cluster95": _list(cell.cluster95),
        "idk": cell.idk,
        "idk_rate": _rate(cell.idk, cell),
        "unparsed": cell.unparsed,
        "unparsed_rate": _rate(cell.unparsed, cell),
        "refused": cell.refused,
        "filtered": cell.filtered,
        "empty": cell.empty,
        "entropy": cell.entropy,
    }


def _rate(count: int, cell: Cell) -> float | None:
    return Tally(count, cell.replies).accuracy


def _list(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _reading_dict(file: Predictions, reader: str, mark: Mark) -> dict[str, Any]:
    choice = mark.reading.choice
    return {
        "file": str(file.file),
        "item": mark.item,
        "mode": str(file.mode),
        "reader": reader,
        "choice": None if choice is None else LETTERS[choice],
        "outcome": str(mark.reading.outcome),
        "why": mark.reading.why,
        "right": mark.scored.right,
    }
