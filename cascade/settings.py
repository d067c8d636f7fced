"""The settings of each stage: what it takes and gives, what it needs, and how it is made.

What a stage is made of is handed to its settings' `around`, and `load` hands it the real models; so tests can make the
very stages of a configuration around models of their own. The list of stages is closed: AnyStage.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, Strict, ValidationInfo, field_validator

from cascade.answering.chat import Sampling, ShowsRequest, chat_request, load_prompts
from cascade.answering.questions import Answerer
from cascade.answering.spending import MILLION, Budget, Price, read_prices
from cascade.asr import LANGUAGES, Recogniser, Transcriber
from cascade.audio import read_audio
from cascade.backends import (
    dvector,
    extractive,
    faster_whisper,
    llamacpp,
    openai,
    pyannote,
    separator,
    sepformer,
    silero,
    whisper,
)
from cascade.diarization import (
    ClusteringSettings,
    DiarizationModel,
    Diarizer,
    ForegroundDiarizer,
    WholeRecordingDiarizer,
)
from cascade.errors import CascadeError, ConfigError, EnrolmentError, OutputError
from cascade.evidence import Judge
from cascade.evidence import load as load_evidence
from cascade.foreground import LOOKAHEAD, Foreground, Network
from cascade.gate import ENROLMENT_WEIGHT, Everyone, GateSettings, MainSpeaker, Profile, enrol
from cascade.manifests import checksums, folder_of, named
from cascade.output import enrolments
from cascade.output.cache import ResponseCache, check_place
from cascade.output.enrolments import FORMAT, EncoderVersion, KeptEnrolment, find
from cascade.output.models import sha256_of
from cascade.overlap import OverlapPolicy
from cascade.packaged import data_folder
from cascade.separation import Encoder, LoudestSource, Mixture, Separate, Separator
from cascade.speech import SpeechDetector
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
    whole,
)

log = logging.getLogger(__name__)

LONGEST_ENROLMENT_S: Final = 60.0
"""A minute says all about a voice; an hour by mistake would be listened to before anything else is."""

ENROLMENT_PIECE_S: Final = 4.0
"""An enrolment is heard in pieces of this length: in one long turn two similar voices would be one, unnoticed."""

D_VECTOR: Final = "d-vector-ge2e"
"""The manifest of the d-vector encoder."""

DIMENSIONS: Final = {D_VECTOR: 256, pyannote.MODEL: 256}
"""By the manifest of a speaker encoder, how many numbers its embeddings have."""

SPEECH: Final = "silero-vad-v6"
"""The manifest of the speech detector."""

EVIDENCE: Final = "gate-evidence"
"""The manifest of the network that judges in the gate; it was fitted to d-vectors."""

StageMaker: TypeAlias = Callable[[Mode], Stage[Any, Any]]
"""Makes the stage anew for each stream, around a model that was loaded once."""

_CLUSTERING, _GATE = ClusteringSettings(), GateSettings()

STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)
"""YAML has the types already. Laxer, `always: off` would mean false, and `threshold: true` 1.0.

No setting is infinite or no number: neither can be written as JSON, and a limit that is none is left out.
"""


FilePath = Annotated[Path, Strict(False)]
"""A path is text in YAML."""


def without_nul(value: object) -> object:
    """Return a setting as it is; ValueError where a text or a path, or one of several, has what no path can have."""
    texts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(text, str | Path) and "\0" in str(text) for text in texts):
        raise ValueError("expected text without a NUL character")
    return value


class Settings(BaseModel):
    """Settings of one stage. takes and gives are the types between which it stands; models names its manifests."""

    model_config = STRICT

    takes: ClassVar[type]
    gives: ClassVar[type]
    extra: ClassVar[str | None] = None
    immaterial: ClassVar[frozenset[str]] = frozenset()
    """Keys that say how the work is done and do not change what comes of it."""

    use: str

    _whole = field_validator("*")(without_nul)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the manifests in models/ whose files this stage loads."""
        return ()

    @property
    def own_files(self) -> tuple[Path, ...]:
        """Files of the user's own that this stage reads, which no manifest knows."""
        return ()

    def check_own_model(self) -> None:
        """Look at a model of the user's own without loading it; MissingExtraError or ModelError says what is wrong."""

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with their relative paths, if they have any, read from a folder."""
        return self

    @property
    def lookahead_s(self) -> float | None:
        """The stage's lookahead in seconds, without loading anything; None: it needs the whole recording."""
        return 0.0


class StreamSettings(Settings):
    """Settings of a stage in the stream, which is to say of all but the answerer.

    separates: whether it gives several sources. by_distance: whether these are foreground and background. encodes:
    whether there are embeddings in the turns that it gives, and `load_encoder` loads what they come from.
    """

    separates: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False
    encodes: ClassVar[bool] = False

    @property
    def hears_foreground(self) -> bool:
        """Whether the source of each turn that it gives is the foreground; known to what `behind` returns."""
        return False

    @property
    def encoder(self) -> EncoderVersion | None:
        """The encoder of the embeddings in the turns that this stage gives, if it gives any."""
        return None

    def load_encoder(self) -> Encoder:
        """Load the encoder of the embeddings in the turns that this stage gives."""
        raise ConfigError(f"there are no embeddings in the turns of '{self.use}', so it has no speaker encoder")

    def behind(self, others: Sequence[StreamSettings]) -> Self:
        """Return these settings with what they need to know of the stages in front of this one."""
        return self

    @property
    def misfit(self) -> str | None:
        """What in these settings does not go with the stages in front; known to what `behind` returns."""
        return None

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the model; `before` makes a fresh chain of the stages in front of this one."""
        raise NotImplementedError


class AnswererSettings(Settings):
    """Settings of what answers questions."""

    takes = Utterance
    gives = Answer

    @property
    def questions_at_once(self) -> int:
        """How many questions may be asked at the same time."""
        return 1

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


Device = Literal["cpu", "cuda"]


def _found(model: str, names: Collection[str]) -> Path:
    """Return the folder of a model that has a name here, or else the folder that is named."""
    return folder_of(model) if model in names else Path(model)


def _from(folder: Path, model: str, names: Collection[str]) -> str:
    """Return a model's name as it is, and a path as it is seen from a folder."""
    return model if model in names else str(folder / model)


def _own(model: str, names: Collection[str], files: Callable[[Path], Iterable[Path]]) -> tuple[Path, ...]:
    """Return the files of a model of the user's own that are read, none where it has a name here.

    What else lies in its folder, such as results, is none of it: a run's identity would change with that.
    """
    return () if model in names else tuple(sorted(files(Path(model))))


def _version(name: str, files: Mapping[str, str], dimension: int | None = None) -> EncoderVersion:
    """Return an encoder by its model's name, the sha256 of each of its files, and how many numbers it gives."""
    lines = [f"{path} {sha256}" for path, sha256 in sorted(files.items())]
    together = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    sha256 = next(iter(files.values())) if len(files) == 1 else together
    return EncoderVersion(name=name, sha256=sha256, dimension=dimension)


def _published(name: str) -> EncoderVersion:
    """Return the encoder in a model that has a manifest."""
    (manifest,) = named([name]).values()
    return _version(name, checksums(manifest), DIMENSIONS[name])


def published_encoders() -> list[EncoderVersion]:
    """Return the encoders that have a manifest."""
    return [_published(name) for name in DIMENSIONS]


class SepFormerSettings(StreamSettings):
    """SepFormer; model is one of speechbrain's that have a manifest, or a folder in its format.

    With `when: overlap` it runs only where two speak at once, as the segmentation of overlap_model tells: pyannote's
    pipeline by its name, or a folder that holds a whole one. threads is how many torch computes with; 0 leaves it that.
    """

    takes = AudioChunk
    gives = SeparatedChunk
    separates = True
    extra = "paper"
    use: Literal["sepformer"]
    model: str = sepformer.MODELS[0]
    device: Device = "cpu"
    window_s: float = Field(4.0, ge=1, le=30)
    hop_s: float = Field(2.0, ge=0.5, le=30, validate_default=True)
    batch: int = Field(1, ge=1, le=64)
    threads: int = Field(0, ge=0, le=256)
    when: Literal["always", "overlap"] = "always"
    overlap_model: str = pyannote.MODEL

    @field_validator("hop_s")
    @classmethod
    def _windows_overlap(cls, hop_s: float, info: ValidationInfo) -> float:
        window_s = info.data.get("window_s")  # not there if it is wrong itself
        if window_s is not None and hop_s >= window_s:
            raise ValueError(f"windows must overlap: expected less than window_s, {window_s}, got {hop_s}")
        return hop_s

    @property
    def models(self) -> tuple[str, ...]:
        """The separator and what tells overlap, unless they are the user's own, and the encoder for the order."""
        named = (self.model,) if self.model in sepformer.MODELS else ()
        overlap = (self.overlap_model,) if self._asks and self.overlap_model == pyannote.MODEL else ()
        return (*named, *overlap, D_VECTOR)

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files of models of the user's own."""
        overlap = _own(self.overlap_model, (pyannote.MODEL,), pyannote.files) if self._asks else ()
        return (*_own(self.model, sepformer.MODELS, sepformer.files), *overlap)

    def check_own_model(self) -> None:
        """Look whether folders of the user's own hold models."""
        if self.model not in sepformer.MODELS:
            sepformer.check_folder(Path(self.model))
        if self._asks and self.overlap_model != pyannote.MODEL:
            pyannote.check_folder(Path(self.overlap_model))

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with folders of the user's own read from a folder."""
        model = _from(folder, self.model, sepformer.MODELS)
        return self.model_copy(
            update={"model": model, "overlap_model": _from(folder, self.overlap_model, (pyannote.MODEL,))}
        )

    @property
    def _asks(self) -> bool:
        """Whether something has to tell where two speak at once."""
        return self.when == "overlap"

    @property
    def lookahead_s(self) -> float | None:
        """A window, and the hops to the last one of a batch."""
        return self.window_s + (self.batch - 1) * self.hop_s

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the separator, the encoder, and what tells overlap if it is asked."""
        model = sepformer.load(_found(self.model, sepformer.MODELS), device=self.device, threads=self.threads)
        return self.around(model, model.rate, model.n_sources, dvector.load(), self._load_overlap())

    def _load_overlap(self) -> Callable[[Samples], bool] | None:
        if not self._asks:
            return None
        return pyannote.load_overlap(_found(self.overlap_model, (pyannote.MODEL,)), device=self.device)

    def around(
        self,
        separate: Separate,
        rate: int,
        n_sources: int,
        encode: Encoder,
        overlap: Callable[[Samples], bool] | None = None,
    ) -> StageMaker:
        """Return the stage around these models; without overlap, everything is separated."""
        return lambda _: Separator(
            separate,
            rate=rate,
            n_sources=n_sources,
            window_s=self.window_s,
            hop_s=self.hop_s,
            batch=self.batch,
            encode=encode,
            overlap=overlap,
        )


class ForegroundSettings(StreamSettings):
    """Foreground and background; model is the network that comes with cascade, or a file of models/separator/export.py.

    threads is how many it computes with.
    """

    takes = AudioChunk
    gives = SeparatedChunk
    separates = True
    by_distance = True
    extra = "ondevice"
    use: Literal["foreground"]
    model: str = separator.MODEL
    threads: int = Field(1, ge=1, le=256)

    @property
    def models(self) -> tuple[str, ...]:
        """The network, unless it is the user's own, and the speech detector."""
        return (*((self.model,) if self.model == separator.MODEL else ()), SPEECH)

    @property
    def own_files(self) -> tuple[Path, ...]:
        """A network of the user's own."""
        return _own(self.model, (separator.MODEL,), separator.files)

    def check_own_model(self) -> None:
        """Look whether a network of the user's own is there."""
        if self.model != separator.MODEL:
            separator.check_file(Path(self.model))

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with a network of the user's own read from a folder."""
        return self.model_copy(update={"model": _from(folder, self.model, (separator.MODEL,))})

    @property
    def lookahead_s(self) -> float | None:
        """What a window hears after the hop that it settles begins."""
        return LOOKAHEAD / SAMPLE_RATE

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load both networks."""
        own = self.model != separator.MODEL
        path = Path(self.model) if own else folder_of(separator.MODEL) / separator.FILE
        return self.around(separator.load(path, threads=self.threads), silero.load())

    def around(self, network: Network, detector: Callable[[], SpeechDetector]) -> StageMaker:
        """Return the stage around these models; the detector has a state, so each stream is given its own."""
        return lambda _: Foreground(network, detector())


class LoudestSourceSettings(StreamSettings):
    """The paper's choice of the main speaker: the source that is loudest over the recording."""

    takes = SeparatedChunk
    gives = SpeakerTurn
    use: Literal["loudest_source"]

    @property
    def lookahead_s(self) -> float | None:
        """The whole recording."""
        return None

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load nothing."""
        return lambda _: LoudestSource()


class PyannoteSettings(StreamSettings):
    """pyannote.audio's speaker diarization; model is community-1, or a folder that holds a whole pipeline."""

    takes = SeparatedChunk
    gives = SpeakerTurn
    encodes = True
    extra = "paper"
    use: Literal["pyannote"]
    model: str = pyannote.MODEL
    device: Device = "cpu"
    min_speakers: int | None = Field(None, ge=1, le=50)
    max_speakers: int | None = Field(None, ge=1, le=50)
    batch_size: int | None = Field(None, ge=1, le=1024)
    pause_s: float = Field(0.5, ge=0, le=5)

    @field_validator("max_speakers")
    @classmethod
    def _at_least_as_many(cls, max_speakers: int | None, info: ValidationInfo) -> int | None:
        min_speakers = info.data.get("min_speakers")
        if max_speakers is not None and min_speakers is not None and max_speakers < min_speakers:
            raise ValueError(f"expected at least min_speakers, {min_speakers}, got {max_speakers}")
        return max_speakers

    @property
    def models(self) -> tuple[str, ...]:
        """The pipeline, unless it is the user's own."""
        return (self.model,) if self.model == pyannote.MODEL else ()

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files of a pipeline of the user's own."""
        return _own(self.model, (pyannote.MODEL,), pyannote.files)

    def check_own_model(self) -> None:
        """Look whether a folder of the user's own holds a pipeline."""
        if self.model != pyannote.MODEL:
            pyannote.check_folder(Path(self.model))

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with a folder of the user's own read from a folder."""
        return self.model_copy(update={"model": _from(folder, self.model, (pyannote.MODEL,))})

    @property
    def encoder(self) -> EncoderVersion:
        """The whole pipeline: its segmentation decides which of the speech the encoder is given."""
        if self.models:
            return _published(self.model)
        folder = Path(self.model)
        files = {path.relative_to(folder).as_posix(): sha256_of(path) for path in self.own_files}
        return _version(folder.name, files)

    @property
    def lookahead_s(self) -> float | None:
        """The whole recording."""
        return None

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the pipeline."""
        return self.around(
            pyannote.load(
                _found(self.model, (pyannote.MODEL,)),
                device=self.device,
                min_speakers=self.min_speakers,
                max_speakers=self.max_speakers,
                batch_size=self.batch_size,
            )
        )

    def load_encoder(self) -> Encoder:
        """Load the pipeline's own speaker encoder."""
        return pyannote.load_encoder(_found(self.model, (pyannote.MODEL,)), device=self.device)

    def around(self, diarize: DiarizationModel) -> StageMaker:
        """Return the stage around this model."""
        return lambda _: WholeRecordingDiarizer(diarize, pause_s=self.pause_s)


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
    encodes = True
    extra = "ondevice"
    use: Literal["online_clustering"]
    pause_s: float = Field(_CLUSTERING.pause_s, ge=0.2, le=2)
    pad_s: float = Field(_CLUSTERING.pad_s, ge=0, le=0.2)
    longest_s: float = Field(_CLUSTERING.longest_s, ge=6, le=28)
    _hears_foreground: bool = PrivateAttr(False)

    def behind(self, others: Sequence[StreamSettings]) -> Self:
        """Return these settings, knowing whether there is a foreground, and a background to be heard by itself."""
        copy = self.model_copy()
        copy._hears_foreground = any(other.by_distance for other in others)
        return copy

    @property
    def hears_foreground(self) -> bool:
        """Whether there is one."""
        return self._hears_foreground

    @property
    def models(self) -> tuple[str, ...]:
        """The speech detector and the speaker encoder."""
        return (SPEECH, D_VECTOR)

    @property
    def encoder(self) -> EncoderVersion:
        """The d-vectors."""
        return _published(D_VECTOR)

    @property
    def lookahead_s(self) -> float | None:
        """The pause that ends a turn, and what the last label depends on: with the encoder's window, so about 1 s."""
        stage = self.around(lambda: lambda _: 0.0, _WindowOnly())(Mode.SELECTIVE)
        return None if stage.lookahead is None else stage.lookahead / SAMPLE_RATE

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load both networks."""
        return self.around(silero.load(), dvector.load())

    def load_encoder(self) -> Encoder:
        """Load the d-vectors' network."""
        return dvector.load()

    def around(self, detector: Callable[[], SpeechDetector], encoder: Encoder) -> StageMaker:
        """Return the stage around these models; the detector has a state, so each stream is given its own."""
        settings = ClusteringSettings(pause_s=self.pause_s, pad_s=self.pad_s, longest_s=self.longest_s)
        if self._hears_foreground:
            return lambda _: ForegroundDiarizer((detector(), detector()), encoder, settings)
        return lambda _: Diarizer(detector(), encoder, settings)


class MainSpeakerSettings(StreamSettings):
    """The gate (gate.GateSettings); enrolment names recordings of the main speaker alone, or one that is kept."""

    takes = SpeakerTurn
    gives = AdmittedTurn
    use: Literal["main_speaker"]
    enrolment: Annotated[
        tuple[FilePath, ...],
        Strict(False),
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    ] = ()
    threshold: float = Field(_GATE.threshold, ge=0, le=1)
    min_turn_s: float = Field(_GATE.min_turn_s, ge=0, le=5)
    hold_s: float = Field(_GATE.hold_s, ge=2, le=60)
    overlap: OverlapPolicy = Field(_GATE.overlap, strict=False)
    always: bool = _GATE.always
    _others: tuple[StreamSettings, ...] = PrivateAttr(())

    @property
    def models(self) -> tuple[str, ...]:
        """The network that judges."""
        return (EVIDENCE,)

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The enrolment."""
        return self.enrolment

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with the enrolment's recordings looked for in a folder, else among those kept."""
        return self.model_copy(update={"enrolment": tuple(find(path, folder) for path in self.enrolment)})

    @property
    def lookahead_s(self) -> float | None:
        """Nothing with an enrolment; else the time that turns are held for until somebody is dominant."""
        return 0.0 if self.enrolment else self.hold_s

    def behind(self, others: Sequence[StreamSettings]) -> Self:
        """Return these settings, knowing whose embeddings this stage is given."""
        copy = self.model_copy()
        copy._others = tuple(others)
        return copy

    @property
    def encoder_before(self) -> EncoderVersion | None:
        """The encoder of the embeddings that this stage is given; known to the settings that `behind` returns."""
        return next((other.encoder for other in reversed(self._others) if other.encoder is not None), None)

    @property
    def enrolled(self) -> tuple[str, ...]:
        """Who is enrolled, as results tell it: the name of a kept enrolment, or those of the recordings' files."""
        return tuple(map(enrolments.named, self.enrolment))

    @property
    def kept(self) -> KeptEnrolment | None:
        """The enrolment that is kept, None where it is recordings; EnrolmentError where it cannot be used here."""
        path = next(filter(enrolments.is_kept, self.enrolment), None)
        if path is None:
            return None
        if len(self.enrolment) > 1:
            raise EnrolmentError(
                f"the enrolment '{path.stem}' is kept and stands for itself, but {len(self.enrolment)} enrolments are "
                "given; give it alone, or recordings only"
            )
        kept = enrolments.read(path)
        enrolments.check_encoder(path, kept, self.encoder_before)
        return kept

    @property
    def misfit(self) -> str | None:
        """That nothing in front gives what the overlap policy is about."""
        if self.overlap is OverlapPolicy.FOREGROUND and not any(other.hears_foreground for other in self._others):
            return (
                "overlap: foreground needs 'use: foreground' and 'use: online_clustering' in front; put them in place "
                "of what is there, or choose another overlap"
            )
        if self.overlap is not OverlapPolicy.SEPARATE:
            return None
        if not any(other.separates for other in self._others):
            return (
                "overlap: separate needs a stage in front that gives several sources, such as 'use: foreground'; put "
                "it in place of 'use: mixture', or choose overlap: admit_if_dominant or withhold"
            )
        if self._embedder is None:
            return (
                "overlap: separate verifies sources by their voice, but no stage in front tells voices; take "
                "'use: online_clustering' or 'use: pyannote'"
            )
        return None

    @property
    def _embedder(self) -> StreamSettings | None:
        """The stage in front whose embeddings this one is given."""
        return next((other for other in reversed(self._others) if other.encodes), None)

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the network that judges, and read the enrolment or listen to it, if there is one.

        With `overlap: separate` also the encoder of the embeddings that this stage is given, to verify sources with.
        """
        embedder = self._embedder if self.overlap is OverlapPolicy.SEPARATE else None
        encode = None if embedder is None else embedder.load_encoder()
        return self.around(load_evidence(folder_of(EVIDENCE) / "dvector.npz"), before, encode)

    def around(self, judge: Judge, before: Callable[[], Chain], encode: Encoder | None = None) -> StageMaker:
        """Return the stage around these models; `before` makes a fresh chain to hear the enrolment with.

        encode is needed for `overlap: separate` alone.
        """
        profile = self._profile(before) if self.enrolment else None
        settings = GateSettings(
            threshold=self.threshold,
            min_turn_s=self.min_turn_s,
            hold_s=self.hold_s,
            overlap=self.overlap,
            always=self.always,
        )
        return lambda mode: MainSpeaker(judge, settings, mode, profile, encode)

    def _profile(self, before: Callable[[], Chain]) -> Profile:
        kept = self.kept
        return self.hear(before)[0] if kept is None else profile_of(kept)

    def hear(self, before: Callable[[], Chain]) -> tuple[Profile, float]:
        """Listen to the recordings of the enrolment; return the profile, and the seconds of speech in them."""
        heard = [(f"'{path}'", _turns(path, before)) for path in self.enrolment]
        return enrol(heard), sum(turn.span.duration_s for _, turns in heard for turn in turns)


def profile_of(kept: KeptEnrolment) -> Profile:
    """Return the profile that was kept."""
    return Profile((np.asarray(kept.embedding, np.float64) * ENROLMENT_WEIGHT).astype(np.float32))


def kept_of(profile: Profile, speech_s: float, encoder: EncoderVersion, made: date) -> KeptEnrolment:
    """Return what is kept of an enrolment's profile; `profile_of` makes the very same of it."""
    return KeptEnrolment(
        format=FORMAT,
        made=made,
        speech_s=round(speech_s, 1),
        encoder=encoder.model_copy(update={"dimension": len(profile.total)}),
        embedding=tuple((profile.total.astype(np.float64) / ENROLMENT_WEIGHT).tolist()),
    )


class EveryoneSettings(StreamSettings):
    """No gate: everyone is admitted, labelled."""

    takes = SpeakerTurn
    gives = AdmittedTurn
    use: Literal["everyone"]

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load nothing."""
        return Everyone


def _known(language: str | None, *, english_only: bool) -> str | None:
    """Return a language that Whisper knows; ValueError says what is expected."""
    if language is not None and language not in LANGUAGES:
        raise ValueError(f"expected the code of a language that Whisper knows, such as en or de, got {language}")
    if english_only and language not in (None, "en"):
        raise ValueError(f"that size of Whisper knows English only: expected en, got {language}")
    return language


class WhisperSettings(StreamSettings):
    """Whisper by OpenAI's own package; size is large-v3, or a checkpoint file of the user's own."""

    takes = AdmittedTurn
    gives = Utterance
    extra = "paper"
    use: Literal["whisper"]
    size: str = whisper.DEFAULT_SIZE
    device: Device = "cpu"
    fp16: bool = False
    language: str | None = Field("en", min_length=2, max_length=3)
    beam_size: int = Field(1, ge=1, le=20)

    @field_validator("fp16")
    @classmethod
    def _on_a_gpu(cls, fp16: bool, info: ValidationInfo) -> bool:
        if fp16 and info.data.get("device") == "cpu":
            raise ValueError("Whisper computes in float16 on a GPU only: expected false with device: cpu")
        return fp16

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str | None, info: ValidationInfo) -> str | None:
        return _known(language, english_only=Path(info.data.get("size", "")).name in whisper.ENGLISH_ONLY)

    @property
    def models(self) -> tuple[str, ...]:
        """The checkpoint, unless it is the user's own."""
        return (whisper.MANIFEST,) if self.size == whisper.DEFAULT_SIZE else ()

    @property
    def own_files(self) -> tuple[Path, ...]:
        """A checkpoint of the user's own."""
        return () if self.models else (whisper.checkpoint_file(Path(self.size)),)

    def check_own_model(self) -> None:
        """Look whether a checkpoint of the user's own is there."""
        if not self.models:
            whisper.checkpoint_file(Path(self.size))

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with a checkpoint of the user's own read from a folder."""
        return self.model_copy(update={"size": _from(folder, self.size, (whisper.DEFAULT_SIZE,))})

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the checkpoint."""
        return self.around(
            whisper.load(
                folder_of(whisper.MANIFEST) if self.models else Path(self.size),
                device=self.device,
                fp16=self.fp16,
                language=self.language,
                beam_size=self.beam_size,
            )
        )

    def around(self, recognise: Recogniser) -> StageMaker:
        """Return the stage around this recogniser."""
        return lambda _: Transcriber(recognise)


class FasterWhisperSettings(StreamSettings):
    """Whisper by faster-whisper; size is tiny.en (comes with the extra), large-v3, large-v3-turbo or a folder."""

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

    @field_validator("compute_type")
    @classmethod
    def _fits_the_device(cls, compute_type: str, info: ValidationInfo) -> str:
        device = info.data.get("device")
        if device is not None and compute_type not in faster_whisper.COMPUTE_TYPES[device]:
            fitting = ", ".join(faster_whisper.COMPUTE_TYPES[device])
            raise ValueError(f"expected one of {fitting} with device: {device}, got {compute_type}")
        return compute_type

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str | None, info: ValidationInfo) -> str | None:
        return _known(language, english_only=info.data.get("size") == faster_whisper.PACKAGED_MODEL)

    @property
    def models(self) -> tuple[str, ...]:
        """The checkpoint of that size; a folder of the user's own has no manifest."""
        return (faster_whisper.MANIFESTS[self.size],) if self.size in faster_whisper.MANIFESTS else ()

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files of a checkpoint of the user's own."""
        return _own(self.size, faster_whisper.MANIFESTS, faster_whisper.files)

    def check_own_model(self) -> None:
        """Look whether a folder of the user's own holds a checkpoint."""
        if not self.models:
            faster_whisper.model_folder(self.size)

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with a folder of the user's own read from a folder."""
        return self.model_copy(update={"size": _from(folder, self.size, faster_whisper.MANIFESTS)})

    def load(self, before: Callable[[], Chain]) -> StageMaker:
        """Load the checkpoint."""
        packaged = self.size == faster_whisper.PACKAGED_MODEL
        recognise = faster_whisper.load(
            self.size if packaged or not self.models else str(folder_of(*self.models)),
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
    general_threshold: float = Field(extractive.GENERAL_THRESHOLD, ge=0, le=1)

    @property
    def models(self) -> tuple[str, ...]:
        """The word embeddings."""
        return ("wordllama-256",)

    def load(self) -> Answerer:
        """Load the word embeddings."""
        return extractive.load(threshold=self.threshold, general_threshold=self.general_threshold)


class PriceSettings(BaseModel):
    """US dollars for a million tokens; those that the server had cached cost as much as others if it is not said."""

    model_config = STRICT

    input: float = Field(ge=0, lt=MILLION)
    output: float = Field(ge=0, lt=MILLION)
    cached_input: float | None = Field(None, ge=0, lt=MILLION)

    @field_validator("cached_input")
    @classmethod
    def _is_no_dearer(cls, cached_input: float | None, info: ValidationInfo) -> float | None:
        others = info.data.get("input")  # not there if it is wrong itself
        if cached_input is not None and others is not None and cached_input > others:
            raise ValueError(f"expected at most what other tokens cost, {others}, got {cached_input}")
        return cached_input

    @property
    def price(self) -> Price:
        """The price of each kind of token."""
        cached = self.input if self.cached_input is None else self.cached_input
        return Price(input=self.input, cached_input=cached, output=self.output)


class OpenAISettings(AnswererSettings):
    """A chat model behind OpenAI's protocol; base_url names another server than OpenAI's own.

    The key is in the environment variable api_key_env: OPENAI_API_KEY for OpenAI's own server, and none for any other
    unless it is named. timeout_s bounds a whole request. max_cost is in US dollars, price what the model costs on this
    server, whatever models/prices says, and cache the folder in which replies are kept.
    """

    extra = "chat"
    immaterial = frozenset(
        {
            "api_key_env",
            "cache",
            "concurrency",
            "max_cost",
            "max_retries",
            "price",
            "requests_per_minute",
            "timeout_s",
            "tokens_per_minute",
        }
    )
    use: Literal["openai"]
    model: str = Field("gpt-4o", min_length=1)
    base_url: str | None = None
    api_key_env: str | None = None
    concurrency: int = Field(openai.CONCURRENCY, ge=1, le=256)
    requests_per_minute: float | None = Field(None, ge=0.01)
    tokens_per_minute: float | None = Field(None, ge=1)
    timeout_s: float = Field(openai.TIMEOUT_S, ge=0.1, le=3600)
    max_retries: int = Field(openai.MAX_RETRIES, ge=0, le=100)
    max_cost: float | None = Field(None, ge=0)
    price: PriceSettings | None = None
    cache: FilePath | None = None

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, base_url: str | None) -> str | None:
        try:
            openai.check_url(base_url)
        except ConfigError as error:
            problem = str(error)
        else:
            return base_url
        raise ValueError(problem)

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with the cache in a folder."""
        return self.model_copy(update={"cache": None if self.cache is None else folder / self.cache})

    @field_validator("api_key_env")
    @classmethod
    def _is_no_key(cls, name: str | None) -> str | None:
        if name is not None and not openai.is_variable(name):
            raise ValueError(openai.NO_VARIABLE)
        return name

    @property
    def questions_at_once(self) -> int:
        """The most requests at a time."""
        return self.concurrency

    @property
    def key_variable(self) -> str | None:
        """The environment variable whose key the server is given, None for no key."""
        return openai.key_variable(openai.check_url(self.base_url), self.api_key_env)

    @property
    def needs_key(self) -> bool:
        """Whether there must be a key in it: a server on this machine is asked without one, too."""
        return self.key_variable is not None and not self.server_is_here

    @property
    def server(self) -> str:
        """The host that is asked."""
        return openai.host_of(openai.check_url(self.base_url))

    @property
    def server_is_here(self) -> bool:
        """Whether that is this machine."""
        return openai.is_loopback(openai.check_url(self.base_url))

    @property
    def warning(self) -> str | None:
        """What others can read on the way to the server, None if they can read nothing."""
        return openai.who_can_read(openai.check_url(self.base_url), self.key_variable)

    def refusals(self) -> Iterator[CascadeError]:
        """Yield what `load` would refuse, but for packages and the key."""
        try:
            Budget(self._price, self.max_cost)
        except ConfigError as error:
            yield error
        try:
            if self.cache is not None:
                check_place(self.cache)
        except OutputError as error:
            yield error

    @property
    def _price(self) -> Price | None:
        if self.price is not None:
            return self.price.price
        table = read_prices(data_folder("models") / "prices" / "openai.yaml")
        return table.get((self.server, self.model))

    def load(self) -> Answerer:
        """Make the client; nothing is sent before the first question."""
        return openai.load(
            self.model,
            prompts=load_prompts(data_folder("configs") / "prompts"),
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            timeout_s=self.timeout_s,
            max_retries=self.max_retries,
            max_cost=self.max_cost,
            price=self._price,
            cache=None if self.cache is None else ResponseCache(self.cache),
        )


class ShowPromptSettings(AnswererSettings):
    """In place of a chat model: answers with what would be sent to it, and sends nothing."""

    use: Literal["show_prompt"]
    model: str = Field("gpt-4o", min_length=1)
    instead_of: Literal["openai", "llamacpp"] = "openai"

    def load(self) -> Answerer:
        """Load nothing but the prompts."""
        prompts = load_prompts(data_folder("configs") / "prompts")
        if self.instead_of == "llamacpp":
            return ShowsRequest(partial(llamacpp.request_of, prompts=prompts))
        return ShowsRequest(partial(chat_request, model=self.model, prompts=prompts, sampling=Sampling()))


class LlamaCppSettings(AnswererSettings):
    """A chat model in a GGUF file, run in this process by llama.cpp."""

    extra = "llamacpp"
    use: Literal["llamacpp"]
    model: FilePath
    context: int = Field(llamacpp.CONTEXT, ge=512, le=1_000_000)
    threads: int = Field(0, ge=0, le=256)
    gpu_layers: int = Field(-1, ge=-1, le=1000)

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The model."""
        return (self.model,)

    def check_own_model(self) -> None:
        """Look whether the file is a model."""
        llamacpp.check_gguf(self.model)

    def seen_from(self, folder: Path) -> Self:
        """Return these settings with the model read from a folder."""
        return self.model_copy(update={"model": folder / self.model})

    def load(self) -> Answerer:
        """Load the model."""
        return llamacpp.load(
            self.model,
            prompts=load_prompts(data_folder("configs") / "prompts"),
            context=self.context,
            threads=self.threads,
            gpu_layers=self.gpu_layers,
        )


AnyStage = Annotated[
    MixtureSettings
    | SepFormerSettings
    | ForegroundSettings
    | OnlineClusteringSettings
    | LoudestSourceSettings
    | PyannoteSettings
    | MainSpeakerSettings
    | EveryoneSettings
    | WhisperSettings
    | FasterWhisperSettings
    | ExtractiveSettings
    | OpenAISettings
    | ShowPromptSettings
    | LlamaCppSettings,
    Field(discriminator="use"),
]


def stages_by_name() -> dict[str, type[Settings]]:
    """Return the closed list: each `use:` name and its settings."""
    members: tuple[type[Settings], ...] = AnyStage.__origin__.__args__  # type: ignore[attr-defined]
    return {member.model_fields["use"].annotation.__args__[0]: member for member in members}  # type: ignore[union-attr]


def _turns(path: Path, before: Callable[[], Chain]) -> list[SpeakerTurn]:
    """Return the turns of a recording, or of its first LONGEST_ENROLMENT_S, each piece heard by itself.

    What is heard in the background of it is nobody's who is enrolled.
    """
    samples = read_audio(path, limit_s=LONGEST_ENROLMENT_S)
    if len(samples) >= seconds(LONGEST_ENROLMENT_S):
        log.warning("enrolment '%s': only its first %.0f s are used", path, LONGEST_ENROLMENT_S)
    size = seconds(ENROLMENT_PIECE_S)
    turns: list[SpeakerTurn] = []
    for start in range(0, len(samples), size):
        piece, chain = samples[start : start + size], before()
        turns += [*chain.push(AudioChunk(Span(0, len(piece)), piece)), *chain.flush()]
    return [turn for turn in whole(turns) if not turn.background]
