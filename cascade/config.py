"""YAML -> settings: the closed list of `use:` names, what each of them takes and gives, and how it is made.

    stages:
      - use: mixture             # AudioChunk     -> SeparatedChunk
      - use: online_clustering   # SeparatedChunk -> SpeakerTurn
      - use: main_speaker        # SpeakerTurn    -> AdmittedTurn
      - use: faster_whisper      # AdmittedTurn   -> Utterance
      - use: extractive          # Utterance      -> Answer

Each stage must accept what the one before it gives. Durations end in `_s`. YAML 1.2 rules hold (`off` is a word), and
types are strict: a word is no switch, and a quoted number is no number. Values are not echoed in errors.

What a stage is made of is handed to its settings' `around`, and `load` hands it the real models; so tests can make the
very stages of a configuration around models of their own.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError

from cascade.answering.questions import Answerer
from cascade.asr import Recogniser, Transcriber
from cascade.audio import read_audio
from cascade.backends import dvector, extractive, faster_whisper, silero
from cascade.diarization import ClusteringSettings, Diarizer, Encoder, SpeechDetector
from cascade.errors import ConfigError
from cascade.gate import Everyone, GateSettings, MainSpeaker, OverlapPolicy, Profile, enrol
from cascade.separation import Mixture
from cascade.stage import Chain, Stage
from cascade.types import (
    SAMPLE_RATE,
    AdmittedTurn,
    Answer,
    AudioChunk,
    Mode,
    Samples,
    SeparatedChunk,
    Span,
    SpeakerTurn,
    Utterance,
    Vector,
    seconds,
)

log = logging.getLogger(__name__)

LONGEST_ENROLMENT_S: Final = 60.0
"""A minute says all about a voice; an hour by mistake would be listened to before anything else is."""

ENROLMENT_PIECE_S: Final = 4.0
"""An enrolment is heard in pieces of this length: in one long turn two similar voices would be one, unnoticed."""

StageMaker: TypeAlias = Callable[[Mode], Stage[Any, Any]]
"""Makes the stage anew for each stream, around a model that was loaded once."""

_CLUSTERING, _GATE = ClusteringSettings(), GateSettings()

_STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True)
"""YAML has the types already. Laxer, `always: off` would mean false, and `threshold: true` 1.0."""


_Path = Annotated[Path, Strict(False)]
"""A path is text in YAML."""


class _Settings(BaseModel):
    """Settings of one stage. takes and gives are the types between which it stands; models names its manifests."""

    model_config = _STRICT

    takes: ClassVar[type]
    gives: ClassVar[type]
    extra: ClassVar[str | None] = None

    use: str

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the manifests in models/ whose files this stage loads."""
        return ()

    @property
    def own_files(self) -> tuple[Path, ...]:
        """Files of the user's own that this stage reads, which no manifest knows."""
        return ()

    @property
    def lookahead_s(self) -> float | None:
        """The stage's lookahead in seconds, without loading anything; None: it needs the whole recording."""
        return 0.0


class StreamSettings(_Settings):
    """Settings of a stage in the stream, which is to say of all but the answerer."""

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the model; `before` makes a fresh chain of the stages in front of this one."""
        raise NotImplementedError


class AnswererSettings(_Settings):
    """Settings of what answers questions; concurrency is how many may be asked at once."""

    takes = Utterance
    gives = Answer
    concurrency: ClassVar[int] = 1

    def load(self) -> Answerer:
        """Load the answerer."""
        raise NotImplementedError


class MixtureSettings(StreamSettings):
    """The mixture as the only source."""

    takes = AudioChunk
    gives = SeparatedChunk
    use: Literal["mixture"]

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load nothing."""
        return lambda _: Mixture()


class _WindowOnly:
    """Stands for the d-vector encoder where only the length of its window matters, so that it need not be loaded."""

    window = 79 * 160 + 512
    """80 frames of 512 samples, 160 apart; a test holds it against the network's own."""

    def __call__(self, samples: Samples, /) -> Vector:
        raise NotImplementedError("it only has a window")


class OnlineClusteringSettings(StreamSettings):
    """Silero VAD, d-vectors and online clustering (diarization.ClusteringSettings)."""

    takes = SeparatedChunk
    gives = SpeakerTurn
    extra = "ondevice"
    use: Literal["online_clustering"]
    pause_s: float = Field(_CLUSTERING.pause_s, ge=0.2, le=2)
    pad_s: float = Field(_CLUSTERING.pad_s, ge=0, le=0.2)
    longest_s: float = Field(_CLUSTERING.longest_s, ge=6, le=28)

    @property
    def models(self) -> tuple[str, ...]:
        """The speech detector and the speaker encoder."""
        return ("silero-vad-v6", "d-vector-ge2e")

    @property
    def lookahead_s(self) -> float | None:
        """The pause that ends a turn, and what the last label depends on: with the encoder's window, so about 1 s."""
        stage = self.around(lambda: lambda _: 0.0, _WindowOnly())(Mode.SELECTIVE)
        return None if stage.lookahead is None else stage.lookahead / SAMPLE_RATE

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load both networks."""
        return self.around(silero.load(), dvector.load())

    def around(self, detector: Callable[[], SpeechDetector], encoder: Encoder) -> StageMaker:
        """Return the stage around these models; the detector has a state, so each stream is given its own."""
        settings = ClusteringSettings(pause_s=self.pause_s, pad_s=self.pad_s, longest_s=self.longest_s)
        return lambda _: Diarizer(detector(), encoder, settings)


class MainSpeakerSettings(StreamSettings):
    """The gate (gate.GateSettings); enrolment names recordings of the main speaker alone."""

    takes = SpeakerTurn
    gives = AdmittedTurn
    use: Literal["main_speaker"]
    enrolment: Annotated[
        tuple[_Path, ...],
        Strict(False),
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    ] = ()
    threshold: float = Field(_GATE.threshold, ge=0, le=1)
    min_turn_s: float = Field(_GATE.min_turn_s, ge=0, le=5)
    hold_s: float = Field(_GATE.hold_s, ge=2, le=60)
    overlap: OverlapPolicy = Field(_GATE.overlap, strict=False)
    always: bool = _GATE.always

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The enrolment."""
        return self.enrolment

    @property
    def lookahead_s(self) -> float | None:
        """Nothing with an enrolment; else the time that turns are held for until somebody is dominant."""
        return 0.0 if self.enrolment else self.hold_s

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Listen to the enrolment, if there is one."""
        profile = self._profile(before) if self.enrolment else None
        settings = GateSettings(
            threshold=self.threshold,
            min_turn_s=self.min_turn_s,
            hold_s=self.hold_s,
            overlap=self.overlap,
            always=self.always,
        )
        return lambda mode: MainSpeaker(settings, mode, profile)

    def _profile(self, before: Callable[[], Chain]) -> Profile:
        return enrol([(path.name, _turns(path, before)) for path in self.enrolment])


class EveryoneSettings(StreamSettings):
    """No gate: everyone is admitted, labelled."""

    takes = SpeakerTurn
    gives = AdmittedTurn
    use: Literal["everyone"]

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load nothing."""
        return Everyone


class FasterWhisperSettings(StreamSettings):
    """Whisper by faster-whisper; size is tiny.en (comes with the extra) or a folder in CTranslate2's format."""

    takes = AdmittedTurn
    gives = Utterance
    extra = "ondevice"
    use: Literal["faster_whisper"]
    size: str = "tiny.en"
    device: Literal["cpu", "cuda"] = "cpu"
    compute_type: Literal["int8", "int8_float32", "int8_float16", "int16", "float16", "bfloat16", "float32"] = "int8"
    cpu_threads: int = Field(0, ge=0, le=256)
    language: str | None = Field("en", min_length=2, max_length=3)
    beam_size: int = Field(1, ge=1, le=20)

    @property
    def models(self) -> tuple[str, ...]:
        """The packaged checkpoint; a folder of the user's own has no manifest."""
        return ("whisper-tiny.en",) if self.size == faster_whisper.PACKAGED_MODEL else ()

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files of a checkpoint of the user's own."""
        return () if self.models else tuple(sorted(path for path in Path(self.size).glob("*") if path.is_file()))

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the checkpoint."""
        recognise = faster_whisper.load(
            self.size,
            device=self.device,
            compute_type=self.compute_type,
            cpu_threads=self.cpu_threads,
            language=self.language,
            beam_size=self.beam_size,
        )
        return self.around(recognise)

    def around(self, recognise: Recogniser) -> StageMaker:
        """Return the stage around this recogniser."""
        return lambda _: Transcriber(recognise)


class ExtractiveSettings(AnswererSettings):
    """Answers with sentences of the transcript; no generation, no network."""

    extra = "ondevice"
    use: Literal["extractive"]
    threshold: float = Field(extractive.THRESHOLD, ge=0, le=1)

    @property
    def models(self) -> tuple[str, ...]:
        """The word embeddings."""
        return ("wordllama-256",)

    def load(self) -> Answerer:
        """Load the word embeddings."""
        return extractive.load(threshold=self.threshold)


AnyStage = Annotated[
    MixtureSettings
    | OnlineClusteringSettings
    | MainSpeakerSettings
    | EveryoneSettings
    | FasterWhisperSettings
    | ExtractiveSettings,
    Field(discriminator="use"),
]


class BenchmarkSettings(BaseModel):
    """What `run` without a recording runs (cascade.shbench); by default the small benchmark that comes with cascade.

    data: the benchmark's questions, in SH-Bench's format. audio: the folder of its recordings; with other data, by
    default the folder that these are in. references: who says what in them (SegLST, session_id is the recording's name
    without extension), to measure leakage by; with other data, by default none.
    description: which description of the main speaker a chat model is given in selective mode. dont_know: whether the
    option "I don't know" is offered. open_ended: ask without options. prompts: the folder of the prompt files.
    """

    model_config = _STRICT

    data: _Path = Field(default_factory=lambda: data_folder("benchmarks") / "shmini" / "questions.json")
    audio: _Path = Field(default_factory=lambda: data_folder("benchmarks") / "shmini")
    references: _Path | None = Field(default_factory=lambda: data_folder("benchmarks") / "shmini" / "references.json")
    description: Literal[
        "main_speaker_desc", "main_speaker_desc_w_content", "main_speaker_desc_w_content_filter", "none"
    ] = "main_speaker_desc_w_content_filter"
    dont_know: bool = True
    open_ended: bool = False
    prompts: _Path = Field(default_factory=lambda: data_folder("configs") / "prompts")


class CascadeConfig(BaseModel):
    """A whole configuration: the stages in order, the answerer last if there is one; and a benchmark to run it on."""

    model_config = _STRICT

    stages: tuple[AnyStage, ...] = Field(strict=False)
    benchmark: BenchmarkSettings = Field(default_factory=BenchmarkSettings)

    @property
    def stream(self) -> tuple[StreamSettings, ...]:
        """The stages that the audio goes through."""
        return tuple(stage for stage in self.stages if isinstance(stage, StreamSettings))

    @property
    def answerer(self) -> AnswererSettings | None:
        """What answers, if anything does."""
        return next((stage for stage in self.stages[-1:] if isinstance(stage, AnswererSettings)), None)

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

    def with_enrolment(self, recordings: Sequence[Path]) -> CascadeConfig:
        """Return the same configuration with other enrolment recordings."""
        if not any(isinstance(stage, MainSpeakerSettings) for stage in self.stages):
            raise ConfigError(
                "an enrolment was given, but the configuration has no stage that needs one; "
                "add 'use: main_speaker', or leave the enrolment out"
            )
        enrolment = {"enrolment": tuple(recordings)}
        stages = tuple(
            stage.model_copy(update=enrolment) if isinstance(stage, MainSpeakerSettings) else stage
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


def data_folder(name: str) -> Path:
    """Return the folder of configs or models that comes with cascade: in the package, or beside it in a checkout."""
    inside = Path(__file__).parent / name
    return inside if inside.is_dir() else Path(__file__).parent.parent / name


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
    return f"{where}: {key}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _stage_at(location: Sequence[str | int]) -> type[_Settings] | None:
    return stages_by_name().get(str(location[2])) if len(location) > 2 and location[0] == "stages" else None


def _keys(location: Sequence[str | int]) -> list[str]:
    """Return the keys that are valid where a problem is."""
    benchmark = BenchmarkSettings if location[0] == "benchmark" and len(location) > 1 else None
    return sorted((_stage_at(location) or benchmark or CascadeConfig).model_fields)


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


def stages_by_name() -> dict[str, type[_Settings]]:
    """Return the closed list: each `use:` name and its settings."""
    members: tuple[type[_Settings], ...] = AnyStage.__origin__.__args__  # type: ignore[attr-defined]
    return {member.model_fields["use"].annotation.__args__[0]: member for member in members}  # type: ignore[union-attr]


def _check_fit(config: CascadeConfig, document: _Document) -> None:
    """Raise ConfigError unless each stage takes what the one before it gives."""
    given: type = AudioChunk
    before = "the audio"
    for index, stage in enumerate(config.stages):
        if stage.takes is not given:
            takes = f"{stage.use} takes {stage.takes.__name__}, but {before} gives {given.__name__}"
            raise ConfigError(f"{document.at(('stages', index))}: {takes}{_gap(given, stage)}")
        given, before = stage.gives, stage.use
    if given not in (Utterance, Answer):
        ends = f"the chain must end with Utterance or Answer, but {before} gives {given.__name__}"
        raise ConfigError(f"{document.path}: {ends}{_after(given)}")


def _gap(given: type, stage: _Settings) -> str:
    """Say what is missing between two stages that do not fit."""
    if given is SpeakerTurn and stage.takes in (AdmittedTurn, Utterance):
        return ": nothing may be transcribed that has not passed a gate; add 'use: main_speaker' before it"
    return _after(given)


def _after(given: type) -> str:
    fitting = [name for name, other in stages_by_name().items() if other.takes is given]
    return f"; after it can stand: {', '.join(fitting)}" if fitting else "; nothing can stand after it"


def _resolve(config: CascadeConfig, folder: Path) -> CascadeConfig:
    """Read relative paths from the configuration's own folder."""
    given = {name: getattr(config.benchmark, name) for name in config.benchmark.model_fields_set}
    paths: dict[str, Path | None] = {name: folder / value for name, value in given.items() if isinstance(value, Path)}
    if "data" in given:  # other data have no share in the small benchmark's recordings and references
        paths = {"audio": (folder / given["data"]).parent, "references": None} | paths
    if paths:
        benchmark = config.benchmark.model_copy(update=paths)
        config = config.model_copy(update={"benchmark": benchmark})
    for stage in config.stages:
        if isinstance(stage, MainSpeakerSettings) and stage.enrolment:
            return config.with_enrolment([folder / path for path in stage.enrolment])
    return config


def _turns(path: Path, before: Callable[[], Chain]) -> list[SpeakerTurn]:
    """Return the turns of a recording, or of its first LONGEST_ENROLMENT_S, each piece heard by itself."""
    samples = read_audio(path, limit_s=LONGEST_ENROLMENT_S)
    if len(samples) >= seconds(LONGEST_ENROLMENT_S):
        log.warning("enrolment %s: only its first %.0f s are used", path.name, LONGEST_ENROLMENT_S)
    size = seconds(ENROLMENT_PIECE_S)
    turns: list[SpeakerTurn] = []
    for start in range(0, len(samples), size):
        piece, chain = samples[start : start + size], before()
        turns += [*chain.push(AudioChunk(Span(0, len(piece)), piece)), *chain.flush()]
    return turns
