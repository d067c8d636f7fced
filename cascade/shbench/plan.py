"""What a benchmark's run is going to do: recordings, modes, prompts; all of it is checked before anything is heard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cascade.answering.prompts import Prompt, load_prompt, put
from cascade.check import examine
from cascade.config import BenchmarkSettings, CascadeConfig
from cascade.errors import ConfigError, NotReadyError
from cascade.provenance import Provenance, gather
from cascade.shbench.items import Data, Item, load_data
from cascade.shbench.recordings import References, Words, find_audio, hash_of
from cascade.types import Mode, Question


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

    data is the whole file, also what of it is not run.
    """

    config: CascadeConfig
    system: str
    modes: tuple[Mode, ...]
    prompts: Mapping[Mode, Prompt]
    recordings: tuple[Recording, ...]
    limit: int | None
    shard: Shard | None
    data: Data
    references_sha256: str | None
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
    def asked(self) -> str:
        """How much of the data is run, in words."""
        recordings = len({item.audio for item in self.data.items})
        return f"{counted(len(self.recordings), recordings, 'recordings')}, " + counted(
            len(self.items), len(self.data.items), "questions"
        )

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
        return _question(self.settings, self.prompts[mode], item, mode)

    def options(self, item: Item) -> tuple[str, ...]:
        """Return the options that are offered."""
        return _options(self.settings, item)

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
            "data_sha256": self.data.sha256,
            "references_sha256": self.references_sha256,
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
            "items_in_data": len(self.data.items),
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
                {
                    key: own_content(value, own)
                    for key, value in stage.model_dump(mode="json", exclude=set(stage.immaterial)).items()
                }
                for stage in self.config.stages
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
    _check_name(system)
    data = load_data(settings.data)
    chosen = _chosen(data, limit, shard)
    paths = find_audio(chosen, settings.audio)
    problems = examine(config, list(paths.values())).problems
    if problems:
        raise NotReadyError([str(problem) for problem in problems])
    references = References.of(settings.references)
    asked: dict[str, list[Item]] = {name: [] for name in chosen}
    for item in data.items:
        if item.audio in asked:
            asked[item.audio].append(item)
    words = references.words_in(chosen)
    return Plan(
        config=config,
        system=system,
        modes=tuple(modes),
        prompts={mode: _prompt(settings, mode) for mode in modes},
        recordings=tuple(
            Recording(name, paths[name], hash_of(paths[name]), tuple(items), words.get(name))
            for name, items in asked.items()
        ),
        limit=limit,
        shard=shard,
        data=data,
        references_sha256=references.sha256,
        made=gather(config),
    )


def counted(some: int, all_of_them: int, what: str) -> str:
    """Say how many of how many, such as `2 of 12 recordings`; the number alone where it is all of them."""
    return f"{some} {what}" if some == all_of_them else f"{some} of {all_of_them} {what}"


LONGEST_NAME: Final = 200
"""Bytes of a run's name in UTF-8. A file's name may have 255, and the mode's words come behind it."""


def _check_name(system: str) -> None:
    """Raise ConfigError unless a run's name can be a part of files' names."""
    if not system.isprintable():
        raise ConfigError(
            "the configuration's name holds a line break, another control character, or what is no character, and its "
            "results would be named so; give the file another name"
        )
    if len(system.encode()) > LONGEST_NAME:
        raise ConfigError(
            f"the configuration's name '{system[:20]}...' has {len(system.encode())} bytes, expected at most "
            f"{LONGEST_NAME}, since its results are named so; give the file another name"
        )


def what_is_heard(config: CascadeConfig, *, limit: int | None = None, shard: Shard | None = None) -> list[Path]:
    """Return the recordings of a run in both modes, each as often as it is heard.

    Errors: ConfigError, ItemsError.
    """
    settings = config.benchmark
    paths = find_audio(_chosen(load_data(settings.data), limit, shard), settings.audio)
    return list(paths.values()) * len({config.heard_as(mode) for mode in Mode})


def _chosen(data: Data, limit: int | None, shard: Shard | None) -> list[str]:
    """Return the names of the recordings that are run, in the order of the benchmark's file."""
    names = list(dict.fromkeys(item.audio for item in data.items))[:limit]
    chosen = names if shard is None else names[shard.index - 1 :: shard.count]
    if not chosen:
        raise ConfigError(f"--shard {shard}: there are only {len(names)} recordings; give a smaller N")
    return chosen


def example(
    config: CascadeConfig, mode: Mode, *, limit: int | None = None, shard: Shard | None = None
) -> tuple[Item, Question]:
    """Return the first item of a run, and how it is asked in a mode, with a placeholder for the transcript.

    Its recording need not be there.

    Errors: ConfigError, ItemsError.
    """
    data = load_data(config.benchmark.data)
    first = _chosen(data, limit, shard)[0]
    item = next(item for item in data.items if item.audio == first)
    question = _question(config.benchmark, _prompt(config.benchmark, mode), item, mode)
    return item, replace(question, prompt=put(question.prompt, "transcript", TRANSCRIPT))


TRANSCRIPT: Final = "[here stands the transcript of the recording]"
"""What `example` has in the place of a transcript."""


def _question(settings: BenchmarkSettings, template: Prompt, item: Item, mode: Mode) -> Question:
    described = mode is Mode.SELECTIVE and settings.description != "none"
    prompt = template.bind(getattr(item, settings.description) if described else "")
    if settings.open_ended:
        return Question(item.question, prompt=prompt)
    options = _options(settings, item)
    dont_know = options.index(item.idk_answer) if item.idk_answer in options else None
    return Question(item.question, options, dont_know, prompt)


def _options(settings: BenchmarkSettings, item: Item) -> tuple[str, ...]:
    if settings.dont_know:
        return item.options
    return tuple(option for option in item.options if option != item.idk_answer)


def _prompt(settings: BenchmarkSettings, mode: Mode) -> Prompt:
    return load_prompt(settings.prompts / prompt_file(settings, mode))


def prompt_file(settings: BenchmarkSettings, mode: Mode) -> str:
    """Return the name of the prompt's file for questions asked in a mode."""
    described = "_described" if mode is Mode.SELECTIVE and settings.description != "none" else ""
    return f"{'open_' if settings.open_ended else ''}{mode}{described}.txt"


def own_content(value: Any, own: Mapping[str, str]) -> Any:
    """Return a setting with paths of the user's own files, or of their folder, told by content."""
    if isinstance(value, list):
        return [own_content(entry, own) for entry in value]
    if not isinstance(value, str):
        return value
    if value in own:
        return own[value]
    return "own" if any(str(Path(path).parent) == value for path in own) else value


def digest(value: object) -> str:
    """Return the sha256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
