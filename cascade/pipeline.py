"""Cascade: listen(chunks) -> utterances, ask(question) -> answer; and the driver that measures while it listens.

A file is a stream that ends: it goes through the same pushes as a live microphone would make. Latency is measured by a
virtual clock, on which a chunk arrives when its last sample has been spoken and waits while the one before it is worked
on; so the latency of a ten-minute recording is known without waiting ten minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cascade.answering import Answerer, question_of
from cascade.config import CascadeConfig, StageMaker
from cascade.errors import ConfigError
from cascade.stage import Chain, Stage
from cascade.types import AdmittedTurn, Answer, AudioChunk, Mode, Question, Span, Transcript, Utterance, Withheld


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

    audio_s: seconds heard. stages_s: computing time of each stage, by its `use:` name. delay: audio heard after a turn
    ended before the gate had decided on it. latency: from the end of a turn to its text, computing included.
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
    """What the gate did with one turn; evidence and threshold are NaN where there were none."""

    span: Span
    speaker: str
    admitted: bool
    reason: str
    evidence: float
    threshold: float


class _Clock(Protocol):
    def __call__(self) -> float:
        """Return seconds, from any start."""


class _Metered:
    """A stage that counts its computing time and shows what it gives to `watch`."""

    def __init__(self, stage: Stage[Any, Any], clock: _Clock, watch: Callable[[Any], None]) -> None:
        self._stage, self._clock, self._watch = stage, clock, watch
        self.spent_s = 0.0

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
            items = work()
        finally:
            self.spent_s += self._clock() - began
        for item in items:
            self._watch(item)
        return items


@dataclass(slots=True)
class Listening:
    """One stream on its way through the stages: push chunks, flush once, read the results at any time."""

    stages: Sequence[tuple[str, Stage[Any, Any]]]
    clock: _Clock = time.perf_counter
    decisions: list[Decision] = field(default_factory=list)
    _items: list[Utterance | Withheld] = field(default_factory=list)
    _heard: int = 0
    _now_s: float = 0.0
    _delays_s: list[float] = field(default_factory=list)
    _latencies_s: list[float] = field(default_factory=list)
    _metered: dict[str, _Metered] = field(init=False)
    _chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self._metered = {name: _Metered(stage, self.clock, self._watch) for name, stage in self.stages}
        self._chain = Chain(list(self._metered.values()))

    def push(self, chunk: AudioChunk) -> Sequence[Utterance | Withheld]:
        """Hear a chunk; return what came out."""
        self._heard = chunk.span.end
        return self._advance(lambda: self._chain.push(chunk))

    def flush(self) -> Sequence[Utterance | Withheld]:
        """Return the rest, since the stream is over."""
        return self._advance(self._chain.flush)

    @property
    def transcript(self) -> Transcript:
        """What was let through so far, and what was withheld, in time order."""
        return Transcript.of(self._items)

    @property
    def performance(self) -> Performance:
        """How fast it went so far."""
        return Performance(
            audio_s=Span(0, self._heard).duration_s,
            stages_s={name: stage.spent_s for name, stage in self._metered.items()},
            delay=Distribution.of(self._delays_s),
            latency=Distribution.of(self._latencies_s),
        )

    def _advance(self, work: Callable[[], Sequence[Any]]) -> Sequence[Utterance | Withheld]:
        arrived_s = Span(0, self._heard).duration_s
        began = self.clock()
        items = work()
        self._now_s = max(self._now_s, arrived_s) + self.clock() - began
        self._latencies_s += [self._now_s - item.span.end_s for item in items if isinstance(item, Utterance)]
        self._items += items
        return items

    def _watch(self, item: object) -> None:
        """Note each decision of the gate once: an AdmittedTurn is only seen there, a Withheld passes on."""
        if isinstance(item, AdmittedTurn):
            leave = item.admission
            self._note(Decision(item.span, item.speaker, True, leave.reason, leave.evidence, leave.threshold))
        elif isinstance(item, Withheld) and not (self.decisions and self.decisions[-1].span == item.span):
            self._note(Decision(item.span, item.speaker, False, item.reason, item.evidence, float("nan")))

    def _note(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self._delays_s.append(Span(0, self._heard).duration_s - decision.span.end_s)


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
        """Load the models that a configuration names. Errors: MissingExtraError, ModelError, EnrolmentError."""
        stages: list[tuple[str, StageMaker]] = []
        for settings in config.stream:
            before = tuple(make for _, make in stages)
            stages.append((settings.use, settings.load(lambda before=before: Chain([make(mode) for make in before]))))
        answerer = None if config.answerer is None else config.answerer.load()
        return cls(stages, answerer, mode=mode)

    @property
    def mode(self) -> Mode:
        """Selective or general."""
        return self._mode

    @property
    def lookahead(self) -> int | None:
        """Samples of audio after a turn's end that its text depends on; None: the whole recording."""
        return Chain([make(self._mode) for _, make in self._stages]).lookahead

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

    def ask(self, question: Question | str) -> Answer:
        """Answer from the transcript of the recording heard last."""
        if self._answerer is None:
            raise ConfigError("a question was asked, but the configuration has no answerer; add 'use: extractive' at its end")
        asked = question_of(question) if isinstance(question, str) else question
        return self._answerer.answer(asked, self.transcript)
