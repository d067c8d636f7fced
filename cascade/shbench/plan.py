"""What a benchmark's run is going to do: recordings, modes, prompts; all of it is checked before anything is heard."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from cascade.answering.prompts import Prompt, load_prompt
from cascade.check import examine
from cascade.config import BenchmarkSettings, CascadeConfig
from cascade.errors import ConfigError, ItemsError, NotReadyError
from cascade.provenance import Provenance, gather, sha256_of
from cascade.shbench.items import Item, load_items
from cascade.types import Mode, Question

MOST_NAMED: Final = 20
"""Missing recordings that are named one by one; of more than these only how many."""

Words: TypeAlias = Mapping[str, str]
"""What each speaker ("main", "bystander") says in a recording."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording and all that is asked about it; words is None where no reference is known."""

    name: str
    path: Path
    sha256: str
    items: tuple[Item, ...]
    words: Words | None


@dataclass(frozen=True, slots=True)
class Shard:
    """The part `index` (from 1) of `count` parts into which the recordings are dealt."""

    index: int
    count: int

    @staticmethod
    def of(text: str) -> Shard:
        """Read "1/4"; ConfigError says what is wrong with it."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise ConfigError(f"--shard {text!r}: expected I/N with 1 <= I <= N, such as 1/4")
        return Shard(int(index), int(count))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: system is its name in files and tables; prompts are by mode; items are those of the selected recordings.

    total is the number of items in the whole file.
    """

    config: CascadeConfig
    system: str
    modes: tuple[Mode, ...]
    prompts: Mapping[Mode, Prompt]
    recordings: tuple[Recording, ...]
    limit: int | None
    shard: Shard | None
    total: int
    made: Provenance

    @property
    def settings(self) -> BenchmarkSettings:
        """What is asked of what, and how."""
        return self.config.benchmark

    @property
    def items(self) -> tuple[Item, ...]:
        """All items of the run, in the file's order."""
        items = (item for recording in self.recordings for item in recording.items)
        return tuple(sorted(items, key=lambda item: item.number))

    @property
    def hearings(self) -> Mapping[Mode, tuple[Mode, ...]]:
        """The modes in which a recording is heard, each with the modes whose questions that hearing serves."""
        heard: dict[Mode, tuple[Mode, ...]] = {}
        for mode in self.modes:
            as_heard = self.config.heard_as(mode)
            heard[as_heard] = (*heard.get(as_heard, ()), mode)
        return heard

    def file_name(self, mode: Mode) -> str:
        """Return the name of a mode's predictions; the benchmark's programs tell mode and setting from it."""
        selective = mode is Mode.SELECTIVE
        words = (
            "selective" if selective else "basic",
            "nospk" if selective and self.settings.description == "none" else "",
            "" if self.settings.dont_know else "noidk",
            "alwaysshut" if self.config.always else "",
            "open" if self.settings.open_ended else "",
        )
        return f"{self.system}_{''.join(words)}_qa.json"

    def question(self, item: Item, mode: Mode) -> Question:
        """Return an item as it is asked in a mode."""
        described = mode is Mode.SELECTIVE and self.settings.description != "none"
        prompt = self.prompts[mode].bind(getattr(item, self.settings.description) if described else "")
        if self.settings.open_ended:
            return Question(item.question, prompt=prompt)
        options = self.options(item)
        dont_know = options.index(item.idk_answer) if item.idk_answer in options else None
        return Question(item.question, options, dont_know, prompt)

    def options(self, item: Item) -> tuple[str, ...]:
        """Return the options that are offered."""
        if self.settings.dont_know:
            return item.options
        return tuple(option for option in item.options if option != item.idk_answer)

    @property
    def stream_key(self) -> str:
        """Hash of all that determines what is heard in a given recording and mode, and how it is answered."""
        return digest(self._made_of)

    def describe(self) -> dict[str, Any]:
        """Return what the run is: what determines it, with its hash as `identity`, and which items it asks.

        A larger limit is the same run.
        """
        determined_by: dict[str, Any] = {
            "system": self.system,
            **self._made_of,
            "data_sha256": sha256_of(self.settings.data),
            "references_sha256": None if self.settings.references is None else sha256_of(self.settings.references),
            "modes": [str(mode) for mode in self.modes],
            "description": self.settings.description,
            "dont_know": self.settings.dont_know,
            "open_ended": self.settings.open_ended,
            "prompts_sha256": {str(mode): prompt.sha256 for mode, prompt in self.prompts.items()},
            "shard": None if self.shard is None else str(self.shard),
        }
        return {
            "identity": digest(determined_by),
            "determined_by": determined_by,
            "items": [item.number for item in self.items],
            "items_in_data": self.total,
            "limit": self.limit,
            "git": None if self.made.revision is None else asdict(self.made.revision),
            "python": self.made.python,
            "platform": self.made.platform,
        }

    @property
    def _made_of(self) -> dict[str, Any]:
        """What hears and answers; files of the user's own by what is in them, wherever they lie."""
        own = {path: f"sha256:{sha256}" for path, sha256 in self.made.own_files.items()}
        return {
            "stages": [
                {key: own_content(value, own) for key, value in stage.items()}
                for stage in self.config.model_dump(mode="json")["stages"]
            ],
            "own_files_sha256": sorted(self.made.own_files.values()),
            "models": {name: dict(files) for name, files in self.made.models.items()},
            "cascade": self.made.version,
            "source_sha256": self.made.source,
            "packages": dict(self.made.packages),
        }


def make_plan(
    config: CascadeConfig,
    system: str,
    *,
    modes: Sequence[Mode],
    limit: int | None = None,
    shard: Shard | None = None,
) -> Plan:
    """Read the data, find the recordings, the models and the prompts; nothing is heard yet.

    limit is how many recordings, the first ones, are run.

    Errors: ConfigError, ItemsError, NotReadyError.
    """
    settings = config.benchmark
    if config.answerer is None:
        raise ConfigError("a benchmark asks questions, but the configuration has no answerer; add 'use: extractive'")
    items = load_items(settings.data)
    names = list(dict.fromkeys(item.audio for item in items))[:limit]
    chosen = names if shard is None else names[shard.index - 1 :: shard.count]
    if not chosen:
        raise ConfigError(f"--shard {shard}: there are only {len(names)} recordings; give a smaller N")
    paths = find_audio(chosen, settings.audio)
    problems = examine(config).problems
    if problems:
        raise NotReadyError([str(problem) for problem in problems])
    references = {} if settings.references is None else load_references(settings.references)
    by_name: dict[str, list[Item]] = {name: [] for name in chosen}
    for item in items:
        if item.audio in by_name:
            by_name[item.audio].append(item)
    return Plan(
        config=config,
        system=system,
        modes=tuple(modes),
        prompts={mode: load_prompt(settings.prompts / _prompt_file(settings, mode)) for mode in modes},
        recordings=tuple(
            Recording(
                name=name,
                path=paths[name],
                sha256=sha256_of(paths[name]),
                items=tuple(by_name[name]),
                words=references.get(PurePosixPath(name).stem),
            )
            for name in chosen
        ),
        limit=limit,
        shard=shard,
        total=len(items),
        made=gather(config),
    )


def _prompt_file(settings: BenchmarkSettings, mode: Mode) -> str:
    described = "_described" if mode is Mode.SELECTIVE and settings.description != "none" else ""
    return f"{'open_' if settings.open_ended else ''}{mode}{described}.txt"


def find_audio(names: Sequence[str], root: Path) -> dict[str, Path]:
    """Find each recording under a folder: as named, else the file whose path ends like the name.

    Raises:
        ItemsError: Some are missing, or two files fit equally; one line for each.
    """
    if not root.is_dir():
        raise ItemsError(f"the folder of recordings '{root}' does not exist; give --audio-root DIR")
    found = {name: root / _relative(name) for name in names}
    away = [name for name in names if not found[name].is_file()]
    files = _files_by_name(root) if away else {}
    problems = []
    for name in away:
        fitting = _best_fitting(name, files.get(PurePosixPath(_relative(name)).name, ()), root)
        if len(fitting) == 1:
            found[name] = fitting[0]
        elif fitting:
            problems.append(f"two files fit '{name}': {fitting[0]}, {fitting[1]}; give another --audio-root")
        else:
            problems.append(f"no recording '{name}' under {root}, nor one whose path ends like it")
    if problems:
        more = len(problems) - MOST_NAMED
        rest = [f"and {more} more recordings are missing; give --audio-root DIR"] if more > 0 else []
        raise ItemsError("\n".join([*problems[:MOST_NAMED], *rest]))
    return found


def _relative(name: str) -> str:
    """Return a recording's name without what would lead out of a folder."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join(parts) or "unnamed"


def _files_by_name(root: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            files.setdefault(name, []).append(Path(folder, name))
    return files


def _best_fitting(name: str, paths: Iterable[Path], root: Path) -> list[Path]:
    """Return the paths that share the longest tail with a name, in order."""
    wanted = _relative(name).split("/")
    tails = {path: _shared_tail(wanted, path.relative_to(root).parts) for path in paths}
    longest = max(tails.values(), default=0)
    return sorted(path for path, tail in tails.items() if tail == longest)


def _shared_tail(first: Sequence[str], second: Sequence[str]) -> int:
    count = 0
    for a, b in zip(reversed(first), reversed(second), strict=False):
        if a != b:
            break
        count += 1
    return count


def load_references(path: Path) -> dict[str, Words]:
    """Read who says what (SegLST) -> by session_id, what each speaker says.

    Raises:
        ItemsError: It cannot be read, or is not SegLST.
    """
    try:
        entries = json.loads(path.read_bytes())
        said: dict[str, dict[str, str]] = {}
        for entry in entries:
            words = said.setdefault(entry["session_id"], {})
            words[entry["speaker"]] = f"{words.get(entry['speaker'], '')} {entry['words']}".strip()
    except OSError as error:
        raise ItemsError(f"the references '{path}' cannot be read: {error.strerror}; name a SegLST file") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ItemsError(
            f"the references '{path}' are not SegLST: a JSON list with session_id, speaker and words in each entry"
        ) from None
    return dict(said)


def own_content(value: Any, own: Mapping[str, str]) -> Any:
    """Return a setting with paths of the user's own files, or of their folder, told by content."""
    if isinstance(value, list):
        return [own.get(str(entry), entry) for entry in value]
    return "own" if isinstance(value, str) and any(str(Path(path).parent) == value for path in own) else value


def digest(value: object) -> str:
    """Return the sha256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
