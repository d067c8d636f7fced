"""Cascade: listen(chunks) -> utterances, ask(question) -> answer; and the driver that measures while it listens.

A file is a stream that ends: it goes through the same pushes as a live microphone would make. Latency is measured by a
virtual clock, on which a chunk arrives when its last sample has been spoken and waits while the one before it is worked
on; so the latency of a ten-minute recording is known without waiting ten minutes.

The driver is also where a failing stage is caught: what a model says about the audio that it failed on may quote it, so
only the kind of failure and its place go on.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Never, Protocol, TypeAlias, TypeVar

import numpy as np

from cascade.answering.pacing import Stops
from cascade.answering.questions import Answerer, question_of
from cascade.answering.spending import Limited, Spends, Spent
from cascade.asr import each_once
from cascade.config import CascadeConfig
from cascade.envelope import Envelope
from cascade.errors import AudioError, BackendError, CascadeError, ConfigError
from cascade.manifests import check_models
from cascade.settings import StageMaker, StreamSettings
from cascade.stage import Chain, Stage
from cascade.types import (
    SAMPLE_RATE,
    AdmittedTurn,
    Answer,
    AudioChunk,
    Mode,
    Question,
    Span,
    Transcript,
    Utterance,
    Withheld,
    covered,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and 95th percentile in seconds, over `count` values."""

    count: int
    mean_s: float
    p95_s: float

    @staticmethod
    def of(values: Sequence[float]) -> Distribution | None:
        """Summarise values in seconds; None for none."""
        if not values:
            return None
        return Distribution(len(values), float(np.mean(values)), float(np.percentile(values, 95)))


@dataclass(frozen=True, slots=True)
class Performance:
    """How fast one recording was heard.

    audio_s: seconds heard. stages_s: computing time of each stage, by its `use:` name. delay: audio heard after a turn,
    or a piece of one, ended before the gate had decided on it. latency: from that end to its text, computing included.
    """

    audio_s: float
    stages_s: dict[str, float]
    delay: Distribution | None
    latency: Distribution | None

    @property
    def rtf(self) -> float | None:
        """Computing time over the recording's length; None for an empty recording."""
        return sum(self.stages_s.values()) / self.audio_s if self.audio_s else None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate did with one turn, or one piece of it; evidence and threshold are NaN where there were none."""

    span: Span
    speaker: str
    admitted: bool
    reason: str
    evidence: float
    threshold: float


def seconds_by_reason(decisions: Iterable[Decision]) -> dict[str, float]:
    """Return how long turns were decided for each reason, each time once."""
    spans: dict[str, list[Span]] = {}
    for decision in decisions:
        spans.setdefault(str(decision.reason), []).append(decision.span)
    return {reason: covered(found) / SAMPLE_RATE for reason, found in spans.items()}


class _Clock(Protocol):
    def __call__(self) -> float:
        """Return seconds, from any start."""


def guarded(what: str, work: Callable[[], T]) -> T:
    """Return what `work` gives; an exception that nobody meant becomes a BackendError without its text.

    It is raised outside of the handler: the text and the local variables of the first one may hold ungated speech, so
    it is not chained to this one.
    """
    try:
        return work()
    except CascadeError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
    raise BackendError(f"{what} failed with {failure}; its message is hidden: it may quote speech")


class _Metered:
    """A stage that counts its computing time, shows what it gives to `watch`, and fails without quoting anything."""

    def __init__(
        self, name: str, stage: Stage[Any, Any], clock: _Clock, watch: Callable[[_Metered, Any], None]
    ) -> None:
        self.name = name
        self.spent_s = 0.0
        self._stage, self._clock, self._watch = stage, clock, watch

    @property
    def lookahead(self) -> int | None:
        return self._stage.lookahead

    def push(self, item: Any, /) -> Sequence[Any]:
        return self._timed(lambda: self._stage.push(item))

    def flush(self) -> Sequence[Any]:
        return self._timed(self._stage.flush)

    def _timed(self, work: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        began = self._clock()
        try:
            items = guarded(f"the stage '{self.name}'", work)
        finally:
            self.spent_s += self._clock() - began
        for item in items:
            self._watch(self, item)
        return items


@dataclass(slots=True, repr=False, eq=False)
class Listening:
    """One stream on its way through the stages: push chunks, flush once, read the results at any time.

    Its stages hold what has not passed the gate, so it shows nothing of them, and refuses pickle and copy. envelope is
    of what was admitted.
    """

    stages: Sequence[tuple[str, Stage[Any, Any]]]
    clock: _Clock = time.perf_counter
    decisions: list[Decision] = field(default_factory=list)
    envelope: Envelope = field(default_factory=Envelope)
    _items: list[Utterance | Withheld] = field(default_factory=list)
    _heard: int = 0
    _over: bool = False
    _now_s: float = 0.0
    _delays_s: list[float] = field(default_factory=list)
    _latencies_s: list[float] = field(default_factory=list)
    _metered: list[_Metered] = field(init=False)
    _chain: Chain = field(init=False)
    _gate: _Metered | None = None

    def __post_init__(self) -> None:
        self._metered = [_Metered(name, stage, self.clock, self._watch) for name, stage in self.stages]
        self._chain = Chain(self._metered)

    def __repr__(self) -> str:
        return f"<Listening {Span(0, self._heard)}, {len(self.decisions)} turns decided>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a stream holds speech that has not passed the gate: it cannot be pickled or copied")

    def push(self, chunk: AudioChunk) -> Sequence[Utterance | Withheld]:
        """Hear a chunk; return what came out.

        Raises:
            AudioError: The chunk does not start where the one before it ended, or the stream is over.
            BackendError: A stage failed.
        """
        if self._over:
            raise AudioError("the stream is over; open a new one for further audio")
        if chunk.span.start != self._heard:
            raise AudioError(f"chunks must follow each other: expected one from sample {self._heard}, got {chunk.span}")
        self._heard = chunk.span.end
        return self._advance(lambda: self._chain.push(chunk))

    def flush(self) -> Sequence[Utterance | Withheld]:
        """Return the rest, since the stream is over; nothing when called again."""
        if self._over:
            return []
        self._over = True
        return self._advance(self._chain.flush)

    @property
    def transcript(self) -> Transcript:
        """What was let through so far, each word once, and what was withheld, in time order."""
        utterances = each_once([item for item in self._items if isinstance(item, Utterance)])
        return Transcript.of([*utterances, *(item for item in self._items if isinstance(item, Withheld))])

    @property
    def performance(self) -> Performance:
        """How fast it went so far."""
        spent: dict[str, float] = {}
        for stage in self._metered:
            spent[stage.name] = spent.get(stage.name, 0.0) + stage.spent_s
        return Performance(
            audio_s=Span(0, self._heard).duration_s,
            stages_s=spent,
            delay=Distribution.of(self._delays_s),
            latency=Distribution.of(self._latencies_s),
        )

    def _advance(self, work: Callable[[], Sequence[Any]]) -> Sequence[Utterance | Withheld]:
        arrived_s = Span(0, self._heard).duration_s
        began = self.clock()
        items = work()
        self._now_s = max(self._now_s, arrived_s) + self.clock() - began
        self._latencies_s += [self._now_s - item.span.end_s for item in items if isinstance(item, Utterance)]
        return items

    def _watch(self, stage: _Metered, item: object) -> None:
        """Note what the gate decides, and what leaves the last stage, at once: it stays when a later turn fails.

        The gate is the first stage to give an AdmittedTurn or a Withheld; behind it, a Withheld only passes by.
        """
        if isinstance(item, AdmittedTurn | Withheld):
            self._gate = self._gate or stage
            if stage is self._gate:
                self._note(item)
        if stage is self._metered[-1] and isinstance(item, Utterance | Withheld):
            self._items.append(item)

    def _note(self, item: AdmittedTurn | Withheld) -> None:
        self.decisions.append(_decision(item))
        if isinstance(item, AdmittedTurn):
            self.envelope.add(item)
        self._delays_s.append(Span(0, self._heard).duration_s - item.span.end_s)


def _decision(item: AdmittedTurn | Withheld) -> Decision:
    if isinstance(item, Withheld):
        return Decision(item.span, item.speaker, False, item.reason, item.evidence, item.threshold)
    leave = item.admission
    return Decision(item.span, item.speaker, True, leave.reason, leave.evidence, leave.threshold)


StageLoader: TypeAlias = Callable[[StreamSettings, Callable[[], Chain]], StageMaker]
"""Loads a stage from its settings; the second argument makes a fresh chain of the stages in front of it."""


def load_stages(
    config: CascadeConfig,
    mode: Mode,
    load: StageLoader = lambda settings, before: settings.load(before),
) -> list[tuple[str, StageMaker]]:
    """Return the name and the maker of each stage in the stream; another `load` can hand in other models."""
    stages: list[tuple[str, StageMaker]] = []
    for settings in config.stream:
        before = partial(_chain_of, tuple(stages), mode)
        stages.append((settings.use, load(settings, before)))
    return stages


def _chain_of(stages: Sequence[tuple[str, StageMaker]], mode: Mode) -> Chain:
    """Return fresh stages; one that fails, as on an enrolment, quotes nothing."""
    return Chain([_Metered(name, make(mode), time.perf_counter, lambda _, item: None) for name, make in stages])


class Cascade:
    """A loaded cascade: models once, stages anew for each recording."""

    def __init__(
        self,
        stages: Sequence[tuple[str, StageMaker]],
        answerer: Answerer | None = None,
        *,
        mode: Mode = Mode.SELECTIVE,
    ) -> None:
        self._stages = tuple(stages)
        self._answerer = answerer
        self._mode = mode
        self.listening = self.open()

    @classmethod
    def load(cls, config: CascadeConfig, *, mode: Mode = Mode.SELECTIVE) -> Cascade:
        """Verify and load the models that a configuration names.

        Errors: MissingExtraError, ModelError, EnrolmentError.
        """
        check_models(config)
        answerer = None if config.answerer is None else config.answerer.load()
        return cls(load_stages(config, mode), answerer, mode=mode)

    def in_mode(self, mode: Mode) -> Cascade:
        """Return a cascade around the same loaded models that hears in this mode."""
        return Cascade(self._stages, self._answerer, mode=mode)

    @property
    def mode(self) -> Mode:
        """Selective or general."""
        return self._mode

    @property
    def lookahead(self) -> int | None:
        """Samples of audio after a turn's end that its text depends on; None: the whole recording."""
        return _chain_of(self._stages, self._mode).lookahead

    def open(self) -> Listening:
        """Begin a new stream; ask() then answers from it."""
        self.listening = Listening([(name, make(self._mode)) for name, make in self._stages])
        return self.listening

    def listen(self, chunks: Iterable[AudioChunk]) -> Iterator[Utterance | Withheld]:
        """Hear a new recording; yield each utterance and each withheld span as soon as it is certain."""
        listening = self.open()
        for chunk in chunks:
            yield from listening.push(chunk)
        yield from listening.flush()

    @property
    def transcript(self) -> Transcript:
        """Transcript of the recording heard last, as far as it was heard."""
        return self.listening.transcript

    @property
    def spent(self) -> Spent | None:
        """What answers took so far in requests, tokens and money; None where no server is asked."""
        return self._answerer.spent if isinstance(self._answerer, Spends) else None

    def count_before(self, before: Spent) -> None:
        """Count what the same run spent before it was stopped against the limit on the cost, too."""
        if isinstance(self._answerer, Limited):
            self._answerer.count_before(before)

    def ask(self, question: Question | str) -> Answer:
        """Answer from the transcript of the recording heard last."""
        if self._answerer is None:
            raise ConfigError(
                "a question was asked, but the configuration has no answerer; add 'use: extractive' at its end"
            )
        asked = question_of(question) if isinstance(question, str) else question
        answerer, transcript = self._answerer, self.transcript
        return guarded("the answerer", lambda: answerer.answer(asked, transcript))

    def stop(self) -> None:
        """Let no question wait for a server any longer, in whatever thread, nor any later one."""
        if isinstance(self._answerer, Stops):
            self._answerer.stop()
