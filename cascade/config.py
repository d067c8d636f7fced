"""YAML -> settings: the closed list of `use:` names, what each of them takes and gives, and how it is made.

    stages:
      - use: mixture             # AudioChunk     -> SeparatedChunk
      - use: online_clustering   # SeparatedChunk -> SpeakerTurn
      - use: main_speaker        # SpeakerTurn    -> AdmittedTurn
      - use: faster_whisper      # AdmittedTurn   -> Utterance
      - use: extractive          # Utterance      -> Answer

Each stage must accept what the one before it gives. Durations end in `_s`. YAML 1.2 rules hold (`off` is a word), and
types are strict: a word is no switch, and a quoted number is no number. Values are not echoed in errors. Relative paths
are read from the folder that the file is in, wherever the command is given.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, field_validator

from cascade.errors import ConfigError
from cascade.output.enrolments import EncoderVersion, find
from cascade.packaged import data_folder
from cascade.settings import (
    STRICT,
    AnswererSettings,
    AnyStage,
    FilePath,
    LlamaCppSettings,
    MainSpeakerSettings,
    OpenAISettings,
    Settings,
    ShowPromptSettings,
    StreamSettings,
    stages_by_name,
    without_nul,
)
from cascade.types import AdmittedTurn, Answer, AudioChunk, Mode, SpeakerTurn, Utterance


class BenchmarkSettings(BaseModel):
    """What `run` without a recording runs (cascade.shbench); by default the small benchmark that comes with cascade.

    data: the benchmark's questions, in SH-Bench's format. audio: the folder of its recordings; with other data, by
    default the folder that these are in. references: who says what in them (SegLST, session_id is the recording's name
    without extension), to measure leakage by; with other data, by default none.
    description: which description of the main speaker a chat model is given in selective mode. dont_know: whether the
    option "I don't know" is offered. open_ended: ask without options. prompts: the folder of the prompt files.
    """

    model_config = STRICT

    _whole = field_validator("*")(without_nul)

    data: FilePath = Field(default_factory=lambda: data_folder("benchmarks") / "shmini" / "questions.json")
    audio: FilePath = Field(default_factory=lambda: data_folder("benchmarks") / "shmini")
    references: FilePath | None = Field(
        default_factory=lambda: data_folder("benchmarks") / "shmini" / "references.json"
    )
    description: Literal[
        "main_speaker_desc", "main_speaker_desc_w_content", "main_speaker_desc_w_content_filter", "none"
    ] = "main_speaker_desc_w_content_filter"
    dont_know: bool = True
    open_ended: bool = False
    prompts: FilePath = Field(default_factory=lambda: data_folder("configs") / "prompts")


class CascadeConfig(BaseModel):
    """A whole configuration: the stages in order, the answerer last if there is one; and a benchmark to run it on."""

    model_config = STRICT

    stages: tuple[AnyStage, ...] = Field(strict=False)
    benchmark: BenchmarkSettings = Field(default_factory=BenchmarkSettings)

    @property
    def stream(self) -> tuple[StreamSettings, ...]:
        """The stages that the audio goes through, each knowing those in front of it."""
        known: list[StreamSettings] = []
        for stage in self.stages:
            if isinstance(stage, StreamSettings):
                known.append(stage.behind(known))
        return tuple(known)

    @property
    def answerer(self) -> AnswererSettings | None:
        """What answers, if anything does."""
        return next((stage for stage in self.stages[-1:] if isinstance(stage, AnswererSettings)), None)

    @property
    def gate(self) -> MainSpeakerSettings | None:
        """The settings of what withholds, if anything does; they know the stages in front of it."""
        return next((stage for stage in self.stream if isinstance(stage, MainSpeakerSettings)), None)

    @property
    def main_speaker(self) -> str:
        """How it is known who the main speaker is, in words that stand beside each result."""
        if self.gate is None:
            return "no gate"
        names = ", ".join(self.gate.enrolled)
        return f"enrolled: {names}" if names else "dominant speaker; nobody enrolled"

    @property
    def encoder(self) -> EncoderVersion | None:
        """The encoder of the embeddings that the gate is given, if it is given any."""
        return None if self.gate is None else self.gate.encoder_before

    @property
    def gated(self) -> bool:
        """Whether anything withholds; without it everyone is admitted in selective mode too."""
        return any(isinstance(stage, MainSpeakerSettings) for stage in self.stages)

    def heard_as(self, mode: Mode) -> Mode:
        """Return the mode in which a recording is heard for what is asked in `mode`: the gate may be shut in both.

        Where two modes are heard alike, one hearing serves both.
        """
        if not self.gated:
            return Mode.GENERAL
        return Mode.SELECTIVE if self.always else mode

    @property
    def always(self) -> bool:
        """Whether the gate stays shut in general mode too."""
        return any(isinstance(stage, MainSpeakerSettings) and stage.always for stage in self.stages)

    @property
    def sha256(self) -> str:
        """Hash of all stages' settings; equal settings have equal hashes however their YAML is written."""
        canonical = json.dumps(self.model_dump(mode="json", include={"stages"}), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def with_benchmark(self, data: Path | None, audio: Path | None) -> CascadeConfig:
        """Return the same configuration with another benchmark's data, which lie beside their audio if it is not said.

        Its references are known for the configuration's own data only.
        """
        if data is None and audio is None:
            return self
        changed: dict[str, Path | None] = {}
        if data is not None:
            changed = {"data": data, "audio": data.parent, "references": None}
        if audio is not None:
            changed["audio"] = audio
        benchmark = self.benchmark.model_copy(update=changed)
        return self.model_copy(update={"benchmark": benchmark})

    def with_max_cost(self, max_cost: float) -> CascadeConfig:
        """Return the same configuration with a limit on what its answers may cost, in US dollars."""
        if not 0 <= max_cost < math.inf:
            raise ConfigError(f"a limit on the cost was given that is none, {max_cost}; give US dollars, such as 2.50")
        return self._with_answerer(
            lambda chat: chat.model_copy(update={"max_cost": max_cost}), "has no answerer that costs money"
        )

    def with_prompt_shown(self) -> CascadeConfig:
        """Return the same configuration with its chat model replaced by what shows what it would be sent."""
        if isinstance(self.answerer, LlamaCppSettings):
            shown = ShowPromptSettings(use="show_prompt", model=self.answerer.model.name, instead_of="llamacpp")
        elif isinstance(self.answerer, OpenAISettings):
            shown = ShowPromptSettings(use="show_prompt", model=self.answerer.model)
        else:
            raise ConfigError("this configuration asks no chat model, so it has no prompt; leave the option out")
        return self.model_copy(update={"stages": (*self.stages[:-1], shown)})

    def _with_answerer(self, change: Callable[[OpenAISettings], AnyStage], refusal: str) -> CascadeConfig:
        if not isinstance(self.answerer, OpenAISettings):
            raise ConfigError(f"this configuration {refusal}; leave the option out")
        return self.model_copy(update={"stages": (*self.stages[:-1], change(self.answerer))})

    def with_enrolment(self, enrolment: Sequence[Path | str]) -> CascadeConfig:
        """Return the same configuration with another enrolment: recordings, or the name of one that is kept.

        Where there is a file of that name, it is a recording.
        """
        return self._with_gate({"enrolment": tuple(map(find, enrolment))}, "an enrolment")

    def with_threshold(self, threshold: float) -> CascadeConfig:
        """Return the same configuration with another threshold of its gate."""
        if not 0 <= threshold <= 1:
            raise ConfigError(f"a threshold of {threshold} was given; give a probability, from 0 to 1, such as 0.7")
        return self._with_gate({"threshold": threshold}, "a threshold")

    def _with_gate(self, update: Mapping[str, object], given: str) -> CascadeConfig:
        if not self.gated:
            raise ConfigError(
                f"{given} was given, but the configuration has no stage that needs one; "
                "add 'use: main_speaker', or leave the option out"
            )
        stages = tuple(
            stage.model_copy(update=update) if isinstance(stage, MainSpeakerSettings) else stage
            for stage in self.stages
        )
        return self.model_copy(update={"stages": stages})


def load_config(name: str | Path) -> CascadeConfig:
    """Read a configuration: `name` as given, else in configs/; ConfigError says what is wrong with it and where."""
    path = find_config(name)
    document = _read_yaml(path)
    if not isinstance(document.plain, Mapping):
        raise ConfigError(f"{path}: expected a file that begins with 'stages:', got {_kind(document.plain)}")
    try:
        config = CascadeConfig.model_validate(document.plain)
    except ValidationError as error:
        problems = [_explain(problem, document) for problem in error.errors()]
    else:
        _check_fit(config, document)
        return _resolve(config, path.parent)
    # Raised out here so that pydantic's error, which holds the values, is not chained to this one.
    raise ConfigError("; ".join(problems))


def find_config(name: str | Path) -> Path:
    """Return the file that a configuration's name means: as given, else in configs/, each also with `.yaml`."""
    folder = data_folder("configs")
    given, own = Path(name), folder / name
    for path in (given, own):
        for candidate in (path, path.parent / f"{path.name}.yaml"):
            if _is_file(candidate):
                return candidate
    known = ", ".join(sorted(path.name for path in folder.glob("*.yaml")))
    shown, *_ = str(given).splitlines()
    raise ConfigError(f"no configuration at {shown[:200]} nor in {folder}; cascade comes with: {known}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be looked into
        return False


@dataclass(frozen=True, slots=True)
class _Document:
    """A parsed YAML file, and the same with its line numbers."""

    path: Path
    plain: Any
    marked: Any

    def at(self, location: Sequence[str | int]) -> str:
        """Return "FILE, line N" for what a location of pydantic's points at, or for what is around it."""
        node, line = self.marked, 1
        for step in location:
            try:
                line = (node.lc.key(step) if isinstance(step, str) else node.lc.item(step))[0] + 1
                node = node[step]
            except (AttributeError, KeyError, IndexError, TypeError):
                continue  # pydantic's locations hold the `use:` name too, which is no step in the file
        return f"{self.path}, line {line}"


def _read_yaml(path: Path) -> _Document:
    """Parse a file; what ruamel.yaml says goes on only where it holds none of the file's values."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise ConfigError(f"{path}: is larger than {LARGEST_CONFIG} bytes, which no configuration is")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    try:
        return _Document(path, YAML(typ="safe", pure=True).load(text), YAML(typ="rt").load(text))
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = str(error.problem or error.context).partition(" with value ")[0]
    except YAMLError as error:
        line, problem = "", str(error).splitlines()[0]
    except (ValueError, ArithmeticError):
        line, problem = "", "it holds a date or a number that cannot be one"
    except RecursionError:
        line, problem = "", "it is nested too deeply"
    raise ConfigError(f"{path}{line}: not valid YAML: {problem}")


LARGEST_CONFIG: Final = 1_000_000
"""Bytes. A configuration has some dozens of lines; parsing a file of any size could take hours."""

_EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping",
    "float_type": "expected a number",
    "int_type": "expected a whole number",
    "model_attributes_type": "expected a stage, such as '- use: mixture'",
    "path_type": "expected a path",
    "string_type": "expected text",
    "tuple_type": "expected a list",
}
"""What pydantic's types of errors mean for somebody who writes YAML."""


def _explain(problem: Mapping[str, Any], document: _Document) -> str:
    """Turn one of pydantic's problems into a line: where, what, and the nearest valid word."""
    location, kind = problem["loc"], problem["type"]
    where = document.at(location)
    stage = _stage_at(location)
    key = ".".join(str(step) for step in (location[2:] if stage else location))
    match kind:
        case "extra_forbidden":
            return f"{where}: unknown key {location[-1]!r}{_nearest(str(location[-1]), _keys(location))}"
        case "invalid_key":
            return f"{where}: a key must be text; valid: {', '.join(_keys(location))}"
        case "union_tag_invalid":
            named = str(problem["ctx"]["tag"])
            return f"{where}: unknown stage {named!r}{_nearest(named, list(stages_by_name()))}"
        case "union_tag_not_found":
            return f"{where}: a stage needs a 'use:' key; valid: {', '.join(stages_by_name())}"
        case "missing":
            return f"{where}: '{key}:' is missing"
    if kind in _EXPECTED:
        return f"{where}: {key}: {_EXPECTED[kind]}, got {_kind(problem['input'])}"
    message = problem["msg"].removeprefix("Value error, ")  # pydantic's, before what a validator of settings.py says
    return f"{where}: {key}: {message[0].lower()}{message[1:]}"


def _stage_at(location: Sequence[str | int]) -> type[Settings] | None:
    return stages_by_name().get(str(location[2])) if len(location) > 2 and location[0] == "stages" else None


def _keys(location: Sequence[str | int]) -> list[str]:
    """Return the keys that are valid where a problem is."""
    benchmark = BenchmarkSettings if location[0] == "benchmark" and len(location) > 1 else None
    model: type[BaseModel] = _stage_at(location) or benchmark or CascadeConfig
    for step in location[3:-1]:
        field = model.model_fields.get(str(step))
        inner = [kind for kind in get_args(field.annotation) if isinstance(kind, type)] if field else []
        model = next((kind for kind in inner if issubclass(kind, BaseModel)), model)
    return sorted(model.model_fields)


def _nearest(word: str, valid: Sequence[str]) -> str:
    close = get_close_matches(word, valid, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; valid: {', '.join(valid)}"


def _kind(value: object) -> str:
    """Say what kind of thing a value is, since the value itself may be a secret."""
    names: Mapping[type, str] = {
        type(None): "nothing", bool: "true or false", int: "a number", float: "a number", str: "text",
        list: "a list", dict: "a mapping",
    }  # fmt: skip
    return next((name for kind, name in names.items() if isinstance(value, kind)), f"a {type(value).__name__}")


def _check_fit(config: CascadeConfig, document: _Document) -> None:
    """Raise ConfigError unless each stage takes what the one before it gives, and its settings go with those."""
    given: type = AudioChunk
    before = "the audio"
    for index, stage in enumerate(config.stages):
        if stage.takes is not given:
            takes = f"{stage.use} takes {stage.takes.__name__}, but {before} gives {given.__name__}"
            raise ConfigError(f"{document.at(('stages', index))}: {takes}{_gap(given, stage)}")
        given, before = stage.gives, stage.use
    for index, settings in enumerate(config.stream):  # the answerer comes last, so that places are the same
        if settings.misfit is not None:
            raise ConfigError(f"{document.at(('stages', index))}: {settings.misfit}")
    if given not in (Utterance, Answer):
        ends = f"the chain must end with Utterance or Answer, but {before} gives {given.__name__}"
        raise ConfigError(f"{document.path}: {ends}{_after(given)}")


def _gap(given: type, stage: Settings) -> str:
    """Say what is missing between two stages that do not fit."""
    if given is SpeakerTurn and stage.takes in (AdmittedTurn, Utterance):
        return ": nothing may be transcribed that has not passed a gate; add 'use: main_speaker' before it"
    return _after(given)


def _after(given: type) -> str:
    fitting = [name for name, other in stages_by_name().items() if other.takes is given]
    return f"; after it can stand: {', '.join(fitting)}" if fitting else "; nothing can stand after it"


def _resolve(config: CascadeConfig, folder: Path) -> CascadeConfig:
    """Read all relative paths from the configuration's own folder; those of the command line are not in it yet."""
    given = {name: getattr(config.benchmark, name) for name in config.benchmark.model_fields_set}
    paths: dict[str, Path | None] = {name: folder / value for name, value in given.items() if isinstance(value, Path)}
    if "data" in given:  # other data have no share in the small benchmark's recordings and references
        paths = {"audio": (folder / given["data"]).parent, "references": None} | paths
    return config.model_copy(
        update={
            "benchmark": config.benchmark.model_copy(update=paths),
            "stages": tuple(stage.seen_from(folder) for stage in config.stages),
        }
    )
