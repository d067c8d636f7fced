"""SeparatedChunk -> SpeakerTurn: where somebody speaks, and which stretches are one voice.

Four small steps, each fed by the one before it, on a grid of 0.1 s hops that starts with the stream:

    samples -> Hop (speech? level, embedding) -> label (a Voice) -> extent of a turn -> SpeakerTurn

The labels hold for the whole stream. A turn ends at a pause, or where the voice changes without one. Nothing here knows
who the main speaker is: that is the gate's business, so labels may be wrong (two labels for one voice, say) without
anybody being let through by that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cascade.audio import SampleBuffer
from cascade.types import Samples, SeparatedChunk, Span, SpeakerTurn, Vector, seconds

HOP: Final = seconds(0.1)
"""Samples between decisions: a syllable is not much shorter."""

FRAME: Final = 512
"""Samples per frame of the speech detector; Silero VAD (v5 and later) takes no other number at 16 kHz."""

SPEECH_THRESHOLD: Final = 0.5
"""Speech probability from which a frame is speech: the default of Silero VAD (github.com/snakers4/silero-vad)."""

HOPS_PER_WINDOW: Final = 2
"""Hops that share an embedding, of the window around their middle. The encoder is most of the computing, and windows of
0.8 s that start 0.1 s apart tell almost the same: on eight scenes leakage and retention stay what they are."""

FLOOR_DB: Final = -120.0
"""Level of digital silence, so that it has a number."""

LEVEL_WEIGHT: Final = 0.009
"""Similarity that one dB of level is worth.

From a logistic regression of "the main speaker is active" on (similarity, level) over the hops of eight two-speaker
scenes, each scene held out in turn: the coefficients stood as 14.7 to 0.13 per dB.
"""

LEVEL_LOWEST_DB: Final = -15.0
"""Level differences below this count as this: a pause inside a word is no more evidence than that."""

LOUDER_FREE_DB: Final = 3.0
LOUDER_WEIGHT: Final = 0.02
LOUDER_MOST_DB: Final = 10.0
"""A hop that is louder than a voice's level by more than LOUDER_FREE_DB speaks against it, by LOUDER_WEIGHT a dB, up to
LOUDER_MOST_DB of them: where the near speaker sets in over a far one, the window still sounds like the far one."""

UNKNOWN: Final = "unknown"
"""Label of a voice that was heard too briefly to be told from the others."""


class SpeechDetector(Protocol):
    """Speech probability of one frame; keeps the state of one stream, so each stream has its own."""

    def __call__(self, frame: Samples, /) -> float:
        """Return the probability of speech, in [0, 1], in the next frame (FRAME,)."""


class Encoder(Protocol):
    """A speaker encoder: stateless, so that streams may share it."""

    @property
    def window(self) -> int:
        """Samples that it listens to at a time."""

    def __call__(self, samples: Samples, /) -> Vector:
        """Return the embedding (dim,), unit norm, of samples (window,); NaN where it can tell nothing."""


@dataclass(frozen=True, slots=True)
class Hop:
    """What is known of one hop: speech or not, level in dB re full scale, embedding (dim,) where there is speech."""

    index: int
    speech: bool
    level_db: float
    embedding: Vector | None


def level_db(samples: Samples) -> float:
    """Return the root-mean-square level in dB relative to full scale; silence gives FLOOR_DB."""
    power = float(np.mean(np.square(samples, dtype=np.float64))) if samples.size else 0.0
    return max(FLOOR_DB, 10 * float(np.log10(power))) if power > 0 else FLOOR_DB


class _Listener:
    """Samples -> Hop. A hop is ready once its frames and the encoder's window around it have been heard."""

    def __init__(self, detect: SpeechDetector, encode: Encoder, buffer: SampleBuffer) -> None:
        self._detect, self._encode, self._buffer = detect, encode, buffer
        self._embedded: tuple[int, Vector | None] = (-1, None)
        self._frames_done = 0
        self._speech_until = deque[int]()
        self._next = 0

    @property
    def lookahead(self) -> int:
        """Samples after a hop's end that its features depend on."""
        return max((self._encode.window + 1) // 2 + (HOPS_PER_WINDOW // 2 - 1) * HOP, FRAME - 1)

    @property
    def needs(self) -> int:
        """First sample that a later hop may still ask for."""
        return max(0, min(self._frames_done * FRAME, self._window(self._next).start, self._last_window_start()))

    def hops(self) -> Iterator[Hop]:
        """Yield the hops that what was heard so far settles."""
        self._detect_speech()
        while self._ready():
            yield self._take()

    def rest(self) -> Iterator[Hop]:
        """Yield the hops at the end of the stream: the last frame is padded, the last window stands where it can."""
        missing = -self._buffer.end % FRAME
        tail = self._buffer.take(Span(self._frames_done * FRAME, self._buffer.end))
        if missing and tail.size:
            self._hear(np.pad(tail, (0, FRAME - tail.size)))
        while self._next * HOP < self._buffer.end:
            yield self._take()

    def _detect_speech(self) -> None:
        while (start := self._frames_done * FRAME) + FRAME <= self._buffer.end:
            self._hear(self._buffer.take(Span(start, start + FRAME)))

    def _hear(self, frame: Samples) -> None:
        if self._detect(frame) > SPEECH_THRESHOLD:
            self._speech_until.append(self._frames_done)
        self._frames_done += 1

    def _ready(self) -> bool:
        end = max((self._next + 1) * HOP, self._window(self._next).end)
        return self._frames_done * FRAME >= (self._next + 1) * HOP and self._buffer.end >= end

    def _take(self) -> Hop:
        span = Span(self._next * HOP, min((self._next + 1) * HOP, self._buffer.end))
        speech = self._has_speech(span)
        hop = Hop(
            index=self._next,
            speech=speech,
            level_db=level_db(self._buffer.take(span)),
            embedding=self._embedding(self._next) if speech else None,
        )
        self._next += 1
        return hop

    def _has_speech(self, span: Span) -> bool:
        while self._speech_until and (self._speech_until[0] + 1) * FRAME <= span.start:
            self._speech_until.popleft()
        return bool(self._speech_until) and self._speech_until[0] * FRAME < span.end

    def _embedding(self, hop: int) -> Vector | None:
        """Return the embedding that a hop shares with its neighbours; None where the encoder can tell nothing."""
        group = hop // HOPS_PER_WINDOW
        if self._embedded[0] != group:
            self._embedded = group, self._embed(hop)
        return self._embedded[1]

    def _embed(self, hop: int) -> Vector | None:
        if self._buffer.end < self._encode.window:
            return None
        start = min(self._window(hop).start, self._last_window_start())
        embedding = self._encode(self._buffer.take(Span(start, start + self._encode.window)))
        return embedding if bool(np.isfinite(embedding).all()) else None

    def _window(self, hop: int) -> Span:
        """Return the encoder's window for a hop, around the middle of the hops that share it."""
        first = hop - hop % HOPS_PER_WINDOW
        start = max(0, first * HOP + (HOPS_PER_WINDOW * HOP - self._encode.window) // 2)
        return Span(start, start + self._encode.window)

    def _last_window_start(self) -> int:
        return self._buffer.end - self._encode.window


@dataclass(slots=True, eq=False)
class Voice:
    """A voice in this stream: sum of its embeddings (dim,), running level in dB, hops heard."""

    name: str
    total: Vector
    level_db: float
    hops: int = 1

    @property
    def centroid(self) -> Vector:
        """Return the mean direction (dim,), unit norm."""
        return self.total / np.float32(np.linalg.norm(self.total))

    def hear(self, embedding: Vector, level: float, memory: float) -> None:
        """Learn from one hop; older ones fade by `memory` each time."""
        self.total = self.total * np.float32(memory) + embedding
        self.level_db += (1 - memory) * LEVEL_PACE * (level - self.level_db)
        self.hops += 1


LEVEL_PACE: Final = 6.0
"""How much faster a voice's level is followed than its embedding: people turn their head faster than they age."""


@dataclass(frozen=True, slots=True)
class ClusteringSettings:
    """What the online clustering goes by.

    join and stay are similarities: a hop joins a known voice at `join`, and stays with the voice before it at `stay`
    (the tail of a word is softer than its start). A voice learns from a hop that is confident, and a margin better for it
    than for any other voice. found_s: how
    long an unknown voice must be heard to become a known one. memory: what is left of a voice's past after each hop.
    pause_s ends a turn; pad_s of what surrounds a turn goes with it; longest_s cuts a turn at its quietest place.
    """

    join: float = 0.55
    stay: float = 0.5
    confident: float = 0.62
    margin: float = 0.2
    found_s: float = 0.8
    memory: float = 0.995
    max_voices: int = 32
    pause_s: float = 0.5
    pad_s: float = 0.2
    longest_s: float = 25.0


class _Labeller:
    """Hop -> (hop, voice or None): online clustering, two hops behind what was heard."""

    SMOOTH: Final = 2
    """Hops on each side whose similarity counts; together half a second, about a word."""

    def __init__(self, settings: ClusteringSettings) -> None:
        self._settings = settings
        self._around = deque[Hop](maxlen=2 * self.SMOOTH + 1)
        self._done = 0
        self._known: list[Voice] = []
        self._newcomer: Voice | None = None
        self._last: Voice | None = None

    def push(self, hop: Hop) -> Iterator[tuple[Hop, Voice | None]]:
        """Take one hop; yield the one that is now settled, if any."""
        self._around.append(hop)
        if hop.index - self._done == self.SMOOTH:
            yield self._settle()

    def flush(self) -> Iterator[tuple[Hop, Voice | None]]:
        """Yield the hops at the end of the stream."""
        while self._around and self._done <= self._around[-1].index:
            yield self._settle()

    def _settle(self) -> tuple[Hop, Voice | None]:
        near = [hop for hop in self._around if abs(hop.index - self._done) <= self.SMOOTH]
        hop = next(hop for hop in near if hop.index == self._done)
        self._done += 1
        voice = self._voice_of(hop, near) if hop.speech else None
        self._last = voice or self._last
        return hop, voice

    def _voice_of(self, hop: Hop, near: Sequence[Hop]) -> Voice:
        level = max(other.level_db for other in near if abs(other.index - hop.index) <= 1)
        embeddings = [other.embedding for other in near if other.embedding is not None]
        if not embeddings:
            return self._last or self._meet(hop, level)
        evidences = self._evidences(np.stack(embeddings), level)
        best = max(range(len(evidences)), key=evidences.__getitem__, default=None)
        if best is None:
            return self._meet(hop, level)
        voice, evidence = self._known[best], evidences[best]
        if evidence < (self._settings.stay if voice is self._last else self._settings.join):
            return self._meet(hop, level)
        rival = max((other for index, other in enumerate(evidences) if index != best), default=-np.inf)
        clear = evidence >= self._settings.confident and evidence - rival >= self._settings.margin
        if clear and hop.embedding is not None:
            voice.hear(hop.embedding, level, self._settings.memory)
        return voice

    def _evidences(self, embeddings: Vector, level: float) -> list[float]:
        return [
            combine(float(np.median(embeddings @ voice.centroid)), level - voice.level_db)
            - LOUDER_WEIGHT * min(max(0.0, level - voice.level_db - LOUDER_FREE_DB), LOUDER_MOST_DB)
            for voice in self._known
        ]

    def _meet(self, hop: Hop, level: float) -> Voice:
        """Count the hop to the newcomer, who becomes a known voice once heard for long enough."""
        if hop.embedding is None:
            return Voice(UNKNOWN, np.zeros(0, np.float32), level)
        newcomer = self._newcomer
        if newcomer is None or not self._continues(newcomer, hop.embedding):
            newcomer = self._newcomer = Voice(UNKNOWN, hop.embedding, level)
        else:
            newcomer.hear(hop.embedding, level, self._settings.memory)
        if newcomer.hops * HOP >= seconds(self._settings.found_s) and len(self._known) < self._settings.max_voices:
            self._known.append(newcomer)
            newcomer.name = f"speaker_{len(self._known)}"
        return newcomer

    def _continues(self, newcomer: Voice, embedding: Vector) -> bool:
        known = any(newcomer is voice for voice in self._known)
        return self._last is newcomer and not known and float(embedding @ newcomer.centroid) >= self._settings.stay


def combine(similarity: float, level_difference_db: float) -> float:
    """Return the evidence for a voice: its similarity, less what being softer than that voice takes from it."""
    return similarity + LEVEL_WEIGHT * min(max(level_difference_db, LEVEL_LOWEST_DB), 0.0)


@dataclass(slots=True)
class _Extent:
    """A turn in the making: its voice, its hops, and the span that it may reach over."""

    voice: Voice
    hops: list[Hop]
    reach: Span = Span(0, 0)

    @property
    def last_speech(self) -> int:
        return max(hop.index for hop in self.hops if hop.speech)


class _TurnFinder:
    """(hop, voice) -> _Extent: joins hops of one voice across short pauses."""

    CUT: Final = seconds(5.0)
    """A turn that grows too long is cut at the quietest hop of this stretch at its end."""

    def __init__(self, settings: ClusteringSettings) -> None:
        self._settings = settings
        self._pad = seconds(settings.pad_s)
        self._open: _Extent | None = None
        self._free_from = 0

    @property
    def needs(self) -> int | None:
        """First sample of the turn in the making, if there is one."""
        return None if self._open is None else self._start_of(self._open)

    def push(self, hop: Hop, voice: Voice | None) -> Iterator[_Extent]:
        """Take the next hop; yield a turn that it ended."""
        if self._open is not None and self._ends(self._open, hop, voice):
            yield self._close(self._open, hop.index * HOP)
            self._open = None
        if self._open is not None:
            self._open.hops.append(hop)
            yield from self._cut(self._open)
        elif voice is not None:
            self._open = _Extent(voice, [hop])

    def flush(self, end: int) -> Iterator[_Extent]:
        """Yield the turn that the end of the stream ended."""
        if self._open is not None:
            yield self._close(self._open, end)

    def _ends(self, extent: _Extent, hop: Hop, voice: Voice | None) -> bool:
        if voice is not None:
            return voice is not extent.voice
        return (hop.index - extent.last_speech) * HOP >= seconds(self._settings.pause_s)

    def _cut(self, extent: _Extent) -> Iterator[_Extent]:
        if len(extent.hops) * HOP < seconds(self._settings.longest_s):
            return
        tail = extent.hops[-self.CUT // HOP :]
        cut = extent.hops.index(min(tail, key=lambda hop: hop.level_db)) + 1
        head, rest = extent.hops[:cut], extent.hops[cut:]
        if any(hop.speech for hop in head):
            yield self._close(_Extent(extent.voice, head), cut_at := head[-1].index * HOP + HOP)
            self._free_from = cut_at
        first = next((index for index, hop in enumerate(rest) if hop.speech), None)
        self._open = None if first is None else _Extent(extent.voice, rest[first:])

    def _close(self, extent: _Extent, limit: int) -> _Extent:
        end = min((extent.last_speech + 1) * HOP + self._pad, limit)
        extent.reach = Span(self._start_of(extent), end)
        self._free_from = end
        return extent

    def _start_of(self, extent: _Extent) -> int:
        return max(self._free_from, extent.hops[0].index * HOP - self._pad, 0)


class Diarizer:
    """Voice activity and online clustering; a Stage[SeparatedChunk, SpeakerTurn] that listens to one source."""

    def __init__(self, detect: SpeechDetector, encode: Encoder, settings: ClusteringSettings) -> None:
        self._buffer = SampleBuffer()
        self._listener = _Listener(detect, encode, self._buffer)
        self._labeller = _Labeller(settings)
        self._finder = _TurnFinder(settings)
        self._settings = settings
        self._settled = 0

    @property
    def lookahead(self) -> int:
        """Samples that must follow a turn's end: the pause that ends it, and what the last hop's label depends on."""
        pause = max(0, seconds(self._settings.pause_s) - seconds(self._settings.pad_s))
        return pause + self._listener.lookahead + _Labeller.SMOOTH * HOP

    def push(self, chunk: SeparatedChunk, /) -> Sequence[SpeakerTurn]:
        """Take a chunk with one source; return the turns that have ended."""
        if len(chunk.sources) != 1:
            raise ValueError(f"online_clustering listens to one source, got {len(chunk.sources)}")
        self._buffer.append(chunk.sources[0])
        turns = [turn for hop in self._listener.hops() for turn in self._after(hop)]
        self._forget()
        return turns

    def flush(self) -> Sequence[SpeakerTurn]:
        """Return the turns up to the end of the stream."""
        turns = [turn for hop in self._listener.rest() for turn in self._after(hop)]
        for hop, voice in self._labeller.flush():
            turns += [self._turn(extent) for extent in self._finder.push(hop, voice)]
        turns += [self._turn(extent) for extent in self._finder.flush(self._buffer.end)]
        return turns

    def _after(self, hop: Hop) -> Iterator[SpeakerTurn]:
        for settled, voice in self._labeller.push(hop):
            self._settled = settled.index
            for extent in self._finder.push(settled, voice):
                yield self._turn(extent)

    def _turn(self, extent: _Extent) -> SpeakerTurn:
        span = Span(extent.reach.start, min(extent.reach.end, self._buffer.end))
        speech = [hop for hop in extent.hops if hop.speech]
        embeddings = [hop.embedding for hop in speech if hop.embedding is not None]
        power = np.mean([10 ** (hop.level_db / 10) for hop in speech])
        return SpeakerTurn(
            span=span,
            speaker=extent.voice.name,
            samples=self._buffer.take(span).copy(),
            embedding=np.mean(embeddings, axis=0, dtype=np.float32) if embeddings else np.full(1, np.nan, np.float32),
            level_db=10 * float(np.log10(power)),
        )

    def _forget(self) -> None:
        """Drop what no later turn can reach: memory stays within the longest turn."""
        pending = max(0, self._settled * HOP - seconds(self._settings.pad_s))
        turn = self._finder.needs
        self._buffer.drop_before(min(self._listener.needs, pending, pending if turn is None else turn))
