"""Hear scenes with references through a cascade, and count what came of it.

The stages in front of the gate hear a recording once. What they found is put through the gate and the speech
recognition for every setting (enrolled or not, and the threshold), and the recogniser hears equal audio once. Beside
it, the same recogniser hears the mixture without a gate and the main speaker alone.

With the true sources, what a good separator would give takes the place of the configuration's first stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from rates import Rate, diarization_errors, word_errors
from references import Scene

from cascade.audio import open_audio, read_audio
from cascade.config import CascadeConfig
from cascade.errors import ConfigError
from cascade.gate import Everyone
from cascade.overlap import OverlapPolicy
from cascade.pipeline import Cascade, Distribution, Listening, StageLoader, load_stages
from cascade.scoring.leakage import false_accept, false_withhold, leakage, leaked_words, retention
from cascade.scoring.tally import Tally
from cascade.settings import MainSpeakerSettings, StageMaker, StreamSettings
from cascade.stage import Chain, Stage
from cascade.types import (
    SAMPLE_RATE,
    AdmittedTurn,
    AudioChunk,
    Mode,
    Samples,
    SeparatedChunk,
    Span,
    SpeakerTurn,
    Transcript,
    Utterance,
    Withheld,
    concatenate,
    seconds,
    whole,
)

PAST_END_S: Final = 2.0
"""Seconds past a recording's end in which its references may still have somebody speak: its last page may be lost."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How the gate is set: whether the main speaker is enrolled; threshold None is the configuration's own."""

    enrolled: bool
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """What a text holds: the bystanders' words that leaked, the main speaker's that were kept, and the word errors."""

    leaked: Tally
    kept: Tally
    errors: Rate | None

    @classmethod
    def of(cls, text: str, scene: Scene) -> Words:
        """Compare a text with what is said in a scene."""
        main, bystander = scene.main_text, scene.bystander_text
        return cls(leakage(bystander, main, text), retention(main, text), word_errors(main, text))


@dataclass(frozen=True, slots=True)
class Gated:
    """What came out of the whole cascade: words, time in samples, delay of the gate's decisions, the leaked words."""

    words: Words
    accepted: Tally
    withheld: Tally
    delay: Distribution | None
    leaked_words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one scene in one setting; gated and clean are None where the recording for it is missing."""

    scene: str
    setting: Setting
    gated: Gated | None
    mixture: Words
    clean: Words | None
    diarization: Rate | None


@dataclass(frozen=True, slots=True, repr=False)
class Diarized:
    """A recording in chunks, each with the turns that came out when it was heard, and those that came at the end."""

    steps: Sequence[tuple[AudioChunk, Sequence[SpeakerTurn]]]
    rest: Sequence[SpeakerTurn]

    @property
    def chunks(self) -> Iterator[AudioChunk]:
        """The recording."""
        return (chunk for chunk, _ in self.steps)

    @property
    def mixture(self) -> Samples:
        """The recording in one piece, (n_samples,)."""
        return concatenate([chunk.mixture for chunk in self.chunks])

    @property
    def turns(self) -> list[SpeakerTurn]:
        """All turns, each once it is whole."""
        return whole([*(turn for _, turns in self.steps for turn in turns), *self.rest])


class Replay:
    """Gives the turns of a recording again, each with the chunk that it came with; a Stage[AudioChunk, SpeakerTurn]."""

    lookahead = 0

    def __init__(self, diarized: Diarized) -> None:
        self._coming = iter(diarized.steps)
        self._rest = diarized.rest

    def push(self, _: AudioChunk, /) -> Sequence[SpeakerTurn]:
        """Return what came when this chunk was heard; the chunks are those of the recording, in order."""
        return next(self._coming)[1]

    def flush(self) -> Sequence[SpeakerTurn]:
        """Return what came at the end."""
        return self._rest


class TrueSources:
    """Separates as nobody can: with the main speaker's own track; a Stage[AudioChunk, SeparatedChunk].

    The sources are the main speaker and all else. Each holds some of the other, so much softer; they add up to the
    mixture.
    """

    lookahead = 0

    def __init__(self, main: Samples, leak_db: float) -> None:
        """Take the main speaker's track (n_samples,), as loud as in the mixture, and how loud what is left is."""
        self._main, self._leak = main, np.float32(10 ** (leak_db / 20))

    def push(self, chunk: AudioChunk, /) -> Sequence[SeparatedChunk]:
        """Return the chunk with its two sources."""
        main = np.zeros_like(chunk.mixture)
        heard = self._main[chunk.span.start : chunk.span.end]
        main[: len(heard)] = heard
        rest = chunk.mixture - main
        crossed = self._leak * (rest - main)
        return [SeparatedChunk(chunk.span, chunk.mixture, np.stack([main + crossed, rest - crossed]))]

    def flush(self) -> Sequence[SeparatedChunk]:
        """Return nothing: nothing is held back."""
        return []


Memory: TypeAlias = dict[tuple[Span, bytes], Sequence[Utterance]]
"""Texts of turns of one recording, by their place and their samples."""


class Remembering:
    """A speech recognition that hears equal audio at an equal time once, however often it is asked.

    A Stage[AdmittedTurn | Withheld, Utterance | Withheld] around another one, which hears each turn by itself.
    """

    lookahead = 0

    def __init__(self, stage: Stage[Any, Any], memory: Memory) -> None:
        self._stage, self._memory = stage, memory

    def push(self, item: AdmittedTurn | Withheld, /) -> Sequence[Utterance | Withheld]:
        """Return the turn's text, with this turn's leave to pass."""
        if isinstance(item, Withheld):
            return [item]
        key = item.span, item.samples.tobytes()
        if key not in self._memory:
            self._memory[key] = self._stage.push(item)
        return [replace(text, speaker=item.speaker, admission=item.admission) for text in self._memory[key]]

    def flush(self) -> Sequence[Utterance | Withheld]:
        """Return nothing: no turn is held back."""
        return []


class Ears:
    """A configuration's stages around models that are loaded once; only the gate is made for each setting."""

    def __init__(
        self, config: CascadeConfig, load: StageLoader = lambda settings, before: settings.load(before)
    ) -> None:
        """Load the configuration's models; another `load` can hand in other models.

        Raises:
            ValueError: The configuration ends before there is text.
            CascadeError: A model cannot be used.
        """
        gives = [stage.gives for stage in config.stream]
        if AdmittedTurn not in gives or gives[-1] is not Utterance:
            raise ValueError("the configuration has no speech recognition behind its gate; add 'use: faster_whisper'")
        self._config, self._load_one = config, load
        self._loaded: dict[StreamSettings, StageMaker] = {}
        place = gives.index(AdmittedTurn)
        stages = self._stages(Setting(enrolled=False), None)
        self._front, self._place, self._behind = stages[:place], place, stages[place + 1 :]

    def diarize(self, chunks: Iterable[AudioChunk], sources: TrueSources | None = None) -> Diarized:
        """Hear a recording up to the gate; with true sources, they take the first stage's place."""
        stages = [make(Mode.SELECTIVE) for _, make in self._front]
        front = Chain(stages if sources is None else [sources, *stages[1:]])
        return Diarized([(chunk, front.push(chunk)) for chunk in chunks], front.flush())

    def transcribe(self, samples: Samples) -> str:
        """Return what the speech recognition alone hears in a recording (n_samples,)."""
        whole = SpeakerTurn(Span(0, len(samples)), "", samples, np.full(1, np.nan, np.float32), math.nan)
        chain = Chain([Everyone(Mode.GENERAL), *(make(Mode.GENERAL) for _, make in self._behind)])
        return Transcript.of([*chain.push(whole), *chain.flush()]).text

    def hear(self, diarized: Diarized, setting: Setting, enrolment: Path | None, memory: Memory) -> Listening:
        """Put a recording's turns through the gate and the speech recognition."""
        turns: tuple[str, StageMaker] = ("turns", lambda _: Replay(diarized))
        gate = self._stages(setting, enrolment)[self._place]
        cascade = Cascade([turns, gate, *((name, _remembering(make, memory)) for name, make in self._behind)])
        for _ in cascade.listen(diarized.chunks):
            pass
        return cascade.listening

    def _stages(self, setting: Setting, enrolment: Path | None) -> list[tuple[str, StageMaker]]:
        return load_stages(configured(self._config, setting, enrolment), Mode.SELECTIVE, self._load)

    def _load(self, settings: StreamSettings, before: Callable[[], Chain]) -> StageMaker:
        if isinstance(settings, MainSpeakerSettings):
            return self._load_one(settings, before)
        if settings not in self._loaded:
            self._loaded[settings] = self._load_one(settings, before)
        return self._loaded[settings]


def _remembering(make: StageMaker, memory: Memory) -> StageMaker:
    return lambda mode: Remembering(make(mode), memory)


def configured(config: CascadeConfig, setting: Setting, enrolment: Path | None) -> CascadeConfig:
    """Return the configuration with its gate set so; ConfigError where there is none to set."""
    if not setting.enrolled and setting.threshold is None and not config.gated:
        return config
    enrolled = config.with_enrolment([enrolment] if setting.enrolled and enrolment else [])
    change = {} if setting.threshold is None else {"threshold": setting.threshold}
    stages = (
        stage.model_copy(update=change) if isinstance(stage, MainSpeakerSettings) else stage
        for stage in enrolled.stages
    )
    return enrolled.model_copy(update={"stages": tuple(stages)})


def _check_length(scene: Scene, n_samples: int) -> None:
    """Raise ValueError where somebody speaks long after the end of a recording of so many samples."""
    last = max((line.span.end for line in scene.spoken), default=0)
    if last > n_samples + seconds(PAST_END_S):
        raise ValueError(
            f"{scene.name}: its references go on until {last / SAMPLE_RATE:.1f} s, the recording ends at "
            f"{n_samples / SAMPLE_RATE:.1f} s; give it its own references, with times in seconds"
        )


def with_overlap(config: CascadeConfig, policy: OverlapPolicy, *, true_sources: bool = False) -> CascadeConfig:
    """Return the configuration with another overlap policy of its gate.

    Raises:
        ConfigError: There are no sources that the policy could choose from, and no true ones are put in their place; or
            nothing tells which is the foreground.
    """
    stages = (
        stage.model_copy(update={"overlap": policy}) if isinstance(stage, MainSpeakerSettings) else stage
        for stage in config.stages
    )
    changed = config.model_copy(update={"stages": tuple(stages)})
    misfit = next((stage.misfit for stage in changed.stream if stage.misfit is not None), None)
    if misfit is not None and policy is not OverlapPolicy.SEPARATE:
        raise ConfigError(misfit)
    if misfit is not None and not true_sources:
        raise ConfigError(f"{misfit}; or give --true-sources")
    return changed


def measure(scene: Scene, ears: Ears, settings: Sequence[Setting], leak_db: float | None = None) -> list[Result]:
    """Hear a scene once, and count what came of it in each setting; leak_db is that of the true sources, if any.

    Errors: AudioError, EnrolmentError, BackendError; ValueError where true sources need a track that is missing, or the
    references are those of a longer recording.
    """
    diarized = ears.diarize(open_audio(scene.mixture), None if leak_db is None else _true_sources(scene, leak_db))
    _check_length(scene, len(diarized.mixture))
    mixture = Words.of(ears.transcribe(diarized.mixture), scene)
    clean = None if scene.main is None else Words.of(ears.transcribe(read_audio(scene.main)), scene)
    rate = diarization_errors(
        [(line.span, line.speaker) for line in scene.spoken],
        [(turn.span, turn.speaker) for turn in diarized.turns if not turn.background],  # who is in it is in the mixture
        Span(0, len(diarized.mixture)),
    )
    memory: Memory = {}
    gated = [
        None if setting.enrolled and scene.enrolment is None else _gated(scene, ears, diarized, setting, memory)
        for setting in settings
    ]
    return [
        Result(scene.name, setting, out, mixture, clean, rate) for setting, out in zip(settings, gated, strict=True)
    ]


def _true_sources(scene: Scene, leak_db: float) -> TrueSources:
    if scene.main is None:
        raise ValueError(f"{scene.name} has no track of the main speaker alone, so its true sources are not known")
    return TrueSources(read_audio(scene.main), leak_db)


def _gated(scene: Scene, ears: Ears, diarized: Diarized, setting: Setting, memory: Memory) -> Gated:
    listening = ears.hear(diarized, setting, scene.enrolment, memory)
    admitted = [decision.span for decision in listening.decisions if decision.admitted]
    text = listening.transcript.text
    return Gated(
        words=Words.of(text, scene),
        accepted=false_accept(admitted, scene.main_spans, scene.bystander_spans),
        withheld=false_withhold(admitted, scene.main_spans),
        delay=listening.performance.delay,
        leaked_words=leaked_words(scene.bystander_text, scene.main_text, text),
    )
