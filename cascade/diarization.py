"""SeparatedChunk -> SpeakerTurn: where somebody speaks, and which stretches are one voice.

Four small steps, each fed by the one before it, on a grid of 0.1 s hops that starts with the stream:

    samples -> Hop (speech? level, embedding) -> label (a Voice) -> extent of a turn -> SpeakerTurn

The labels hold for the whole stream. A turn ends at a pause, or where the voice changes without one; while it goes on,
what is known of it is told every NEWS hops. Nothing here knows who the main speaker is: that is the gate's business, so
labels may be wrong (two labels for one voice, say) without anybody being let through by that.

Where a separator tells near from far, the background is heard by itself, too; of it only matters where somebody speaks.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cascade.audio import SampleBuffer
from cascade.foreground import FOREGROUND, SOURCES
from cascade.separation import Encoder
from cascade.speech import FRAME, SpeechDetector, SpeechFrames
from cascade.types import Samples, SeparatedChunk, Span, SpeakerTurn, Vector, concatenate, seconds, united, whole

HOP: Final = seconds(0.1)
"""Samples between decisions: a syllable is not much shorter."""

SURROUNDINGS: Final = seconds(0.3)
"""Samples on either side of a turn that go with it, to tell where in it somebody begins or ends; after a turn that a
pause ended, so many were heard anyway before it was known."""

HOPS_PER_WINDOW: Final = 2
"""Hops that share an embedding, of the window around their middle. The encoder is most of the computing, and windows of
0.8 s that start 0.1 s apart tell almost the same: on eight scenes leakage and retention stay what they are."""

FLOOR_DB: Final = -120.0
"""Level of digital silence, so that it has a number."""

LEVEL_WEIGHT: Final = 0.016
LEVEL_LOWEST_DB: Final = -15.0
"""Similarity that one dB is worth by which a voice is softer than usual, down to LEVEL_LOWEST_DB: a pause inside a word
is no more evidence than that. A logistic regression of "the main speaker is active" on (similarity, level), over the
hops of eight and then of twenty two-speaker scenes, each scene held out in turn, gave 0.009 and 0.028.
"""

CONTRAST_WEIGHT: Final = 0.035
SOFTER_MOST_DB: Final = 10.0
MASKED_MOST_DB: Final = 8.0
"""Where known voices are compared with each other, a dB is worth more: CONTRAST_WEIGHT in similarity.

Where two speak at once, the window sounds like both; what tells is the level. A hop that is softer than a voice's level
speaks against that voice, up to SOFTER_MOST_DB. A voice that is softer than the loudest one needs more similarity, by
up to MASKED_MOST_DB of their difference, since the loudest one at its usual level masks it. From the same regression on
the difference of two similarities and on these dB: the coefficients stood as 8.2 to 0.28.
"""

UNKNOWN: Final = "unknown"
"""Label of a voice that was heard too briefly to be told from the others."""


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
        self._encode, self._buffer = encode, buffer
        self._speech = SpeechFrames(detect, buffer)
        self._embedded: tuple[int, Vector | None] = (-1, None)
        self._next = 0

    @property
    def lookahead(self) -> int:
        """Samples after a hop's end that its features depend on, where there is speech in it."""
        return max((self._encode.window + 1) // 2 + (HOPS_PER_WINDOW // 2 - 1) * HOP, FRAME - 1)

    @property
    def needs(self) -> int:
        """First sample that a later hop may still ask for."""
        return max(0, min(self._speech.end, self._window(self._next).start, self._last_window_start()))

    def hops(self) -> Iterator[Hop]:
        """Yield the hops that what was heard so far settles."""
        self._speech.hear()
        while self._ready():
            yield self._take()

    def rest(self) -> Iterator[Hop]:
        """Yield the hops at the end of the stream: the last frame is padded, the last window stands where it can."""
        self._speech.hear_rest()
        while self._next * HOP < self._buffer.end:
            yield self._take()

    def _ready(self) -> bool:
        span = Span(self._next * HOP, (self._next + 1) * HOP)
        if self._speech.end < span.end:
            return False
        return not self._speech.any_in(span) or self._buffer.end >= self._window(self._next).end

    def _take(self) -> Hop:
        span = Span(self._next * HOP, min((self._next + 1) * HOP, self._buffer.end))
        speech = self._speech.any_in(span)
        hop = Hop(
            index=self._next,
            speech=speech,
            level_db=level_db(self._buffer.take(span)),
            embedding=self._embedding(self._next) if speech else None,
        )
        self._next += 1
        return hop

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
        samples = self._buffer.take(Span(start, start + self._encode.window))
        if not np.isfinite(samples).all():  # a quantised encoder makes a voice even of that
            return None
        embedding = self._encode(samples)
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
        self.hops += 1
        pace = max((1 - memory) * LEVEL_PACE, 1 / self.hops)
        self.level_db += pace * (level - self.level_db)


LEVEL_PACE: Final = 6.0
"""How much faster a voice's level is followed than its embedding: people turn their head faster than they age."""


@dataclass(frozen=True, slots=True)
class ClusteringSettings:
    """What the online clustering goes by.

    join and stay are similarities: a hop joins a known voice at `join`, and stays with the voice before it at `stay`
    (the tail of a word is softer than its start). A voice learns from a hop that is confident, and a margin better for
    it than for any other voice. found_s: how long an unknown voice must be heard to become a known one. memory: what is
    left of a voice's past after each hop. pause_s ends a turn; pad_s of what surrounds a turn goes with it; none is
    longer than longest_s and its pads.
    """

    join: float = 0.5
    stay: float = 0.45
    confident: float = 0.62
    margin: float = 0.1
    found_s: float = 0.8
    memory: float = 0.995
    max_voices: int = 32
    pause_s: float = 0.5
    pad_s: float = 0.2
    longest_s: float = 25.0


@dataclass(frozen=True, slots=True)
class _Match:
    """A known voice, what speaks for it, and by how much more than for any other."""

    voice: Voice
    evidence: float
    lead: float


class _Labeller:
    """Hop -> (hop, voice or None): online clustering, two hops behind what was heard."""

    SMOOTH: Final = 2
    """Hops on each side whose similarity counts; together half a second, about a word."""

    UNSURE: Final = 2
    """So many hops in a row that sound like nobody known are nobody's: the soft end of a word is no new voice. They go
    with the turn that they touch."""

    def __init__(self, settings: ClusteringSettings) -> None:
        self._settings = settings
        self._around = deque[Hop](maxlen=2 * self.SMOOTH + 1)
        self._done = 0
        self._known: list[Voice] = []
        self._newcomer: Voice | None = None
        self._nobody = Voice(UNKNOWN, np.zeros(0, np.float32), FLOOR_DB)  # whose speech the encoder can tell nothing of
        self._last: Voice | None = None
        self._unsure = 0

    def push(self, hop: Hop) -> Iterator[tuple[Hop, Voice | None]]:
        """Take one hop; yield those that are now settled: speech once its neighbours are known, silence at once."""
        self._around.append(hop)
        while self._done <= hop.index and (hop.index - self._done >= self.SMOOTH or not self._hop(self._done).speech):
            yield self._settle()

    def flush(self) -> Iterator[tuple[Hop, Voice | None]]:
        """Yield the hops at the end of the stream."""
        while self._around and self._done <= self._around[-1].index:
            yield self._settle()

    def _hop(self, index: int) -> Hop:
        return self._around[index - self._around[0].index]

    def _settle(self) -> tuple[Hop, Voice | None]:
        hop = self._hop(self._done)
        near = [other for other in self._around if abs(other.index - hop.index) <= self.SMOOTH]
        self._done += 1
        voice = self._voice_of(hop, near) if hop.speech else None
        self._last = voice or self._last
        doubtful = voice is not None and voice.name == UNKNOWN and voice is not self._nobody
        self._unsure = self._unsure + 1 if doubtful else 0
        return hop, None if 0 < self._unsure <= self.UNSURE else voice

    def _voice_of(self, hop: Hop, near: Sequence[Hop]) -> Voice:
        level = max(other.level_db for other in near if abs(other.index - hop.index) <= 1)
        embeddings = [other.embedding for other in near if other.embedding is not None]
        if not embeddings:
            return self._nobody
        match = self._match(np.stack(embeddings), level)
        if match is None:
            return self._meet(hop, level)
        clear = match.evidence >= self._settings.confident and match.lead >= self._settings.margin
        if clear and hop.embedding is not None:
            match.voice.hear(hop.embedding, level, self._settings.memory)
        return match.voice

    def _match(self, embeddings: Vector, level: float) -> _Match | None:
        """Return the known voice that embeddings (n, dim) and a level in dB speak for; None if it is nobody's."""
        similarities = [float(np.median(embeddings @ voice.centroid)) for voice in self._known]
        contrasts = self._contrasts(similarities, level)
        best = max(range(len(contrasts)), key=contrasts.__getitem__, default=None)
        if best is None:
            return None
        voice = self._known[best]
        evidence = combine(similarities[best], level - voice.level_db)
        if not evidence >= (self._settings.stay if voice is self._last else self._settings.join):
            return None
        rival = max(contrasts[:best] + contrasts[best + 1 :], default=-np.inf)
        return _Match(voice, evidence, contrasts[best] - rival)

    def _contrasts(self, similarities: Sequence[float], level: float) -> list[float]:
        """Return what speaks for each known voice, to be compared with each other, given a hop's level in dB."""
        loudest = max((voice.level_db for voice in self._known), default=FLOOR_DB)
        return [
            similarity - CONTRAST_WEIGHT * level_handicap_db(level - voice.level_db, loudest - voice.level_db)
            for similarity, voice in zip(similarities, self._known, strict=True)
        ]

    def _meet(self, hop: Hop, level: float) -> Voice:
        """Count the hop to the newcomer, who becomes a known voice once heard for long enough."""
        if hop.embedding is None:
            return self._nobody
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


def level_handicap_db(above_voice_db: float, below_loudest_db: float) -> float:
    """Return how many dB speak against a voice: the hop's being softer than it, and its being masked by the loudest."""
    return min(max(-above_voice_db, 0.0), SOFTER_MOST_DB) + min(max(below_loudest_db, 0.0), MASKED_MOST_DB)


@dataclass(slots=True)
class _Extent:
    """A turn in the making: its voice, its hops up to the last one that it spoke in, and the span that it reaches."""

    voice: Voice
    hops: list[Hop]
    reach: Span = field(default_factory=lambda: Span(0, 0))
    goes_on: bool = False

    @property
    def last(self) -> int:
        """Index of the last hop that the voice spoke in."""
        return self.hops[-1].index

    def __len__(self) -> int:
        return (self.last + 1 - self.hops[0].index) * HOP


class _TurnFinder:
    """(hop, voice) -> _Extent: joins hops of one voice across short pauses, and what is nobody's to what it touches."""

    BREATH: Final = seconds(5.0)
    """A turn that comes so close to the longest one ends at the next pause, however short."""

    CUT: Final = 3
    """Without any pause it is cut at the quietest of so many hops at its end; more would come out too late."""

    NEWS: Final = 2
    """Hops after which a turn that goes on is told again: so many share an embedding, and tell no more apart."""

    def __init__(self, settings: ClusteringSettings) -> None:
        self._pause = seconds(settings.pause_s)
        self._pad = seconds(settings.pad_s)
        self._longest = seconds(settings.longest_s)
        self._open: _Extent | None = None
        self._free_from = 0

    @property
    def needs(self) -> int | None:
        """First sample of the turn in the making, if there is one."""
        return None if self._open is None else self._start_of(self._open)

    def push(self, hop: Hop, voice: Voice | None) -> Iterator[_Extent]:
        """Take the next hop; yield a turn that it ended, or the one that goes on with it, now and then."""
        if self._open is not None and self._ends(self._open, hop, voice):
            yield self._close(self._open, hop.index * HOP)
            self._open = None
        if self._open is None:
            self._open = None if voice is None else _Extent(voice, [hop])
        elif voice is not None or (hop.speech and hop.index == self._open.last + 1):
            self._open.hops.append(hop)
            yield from self._cut(self._open)
            yield from self._so_far()

    def flush(self, end: int) -> Iterator[_Extent]:
        """Yield the turn that the end of the stream ended."""
        if self._open is not None:
            yield self._close(self._open, end)

    def _ends(self, extent: _Extent, hop: Hop, voice: Voice | None) -> bool:
        if voice is not None:
            return voice is not extent.voice
        patience = self._pause if len(extent) < self._longest - self.BREATH else HOP
        return (hop.index - extent.last) * HOP >= patience

    def _cut(self, extent: _Extent) -> Iterator[_Extent]:
        if len(extent) < self._longest:
            return
        cut = extent.hops.index(min(extent.hops[-self.CUT :], key=lambda hop: hop.level_db)) + 1
        head, rest = _Extent(extent.voice, extent.hops[:cut]), extent.hops[cut:]
        self._open = _Extent(extent.voice, rest) if rest else None
        yield self._close(head, (head.last + 1) * HOP)

    def _so_far(self) -> Iterator[_Extent]:
        """Yield the turn in the making; not where it may yet be cut before its end."""
        turn = self._open
        if turn is None or len(turn.hops) % self.NEWS or len(turn) > self._longest - self.CUT * HOP:
            return
        reach = Span(self._start_of(turn), (turn.last + 1) * HOP)
        yield _Extent(turn.voice, turn.hops, reach, goes_on=True)

    def _close(self, extent: _Extent, limit: int) -> _Extent:
        end = min((extent.last + 1) * HOP + self._pad, limit)
        extent.reach = Span(self._start_of(extent), end)
        self._free_from = end
        return extent

    def _start_of(self, extent: _Extent) -> int:
        return max(self._free_from, extent.hops[0].index * HOP - self._pad, 0)


RESIDUE: Final = 10 ** (-12 / 10)
"""A source with less than this share (-12 dB) of the power of the turn's own may hold what separation left of it."""

HEARD: Final = 10 ** (-20 / 10)
"""What has less than this share (-20 dB) of the power of a turn's speech does not matter, not even in its pauses."""


LOUD_OVERLAP: Final = seconds(0.3)
"""Others speak where another source is loud for so long, a short word, with gaps that are shorter. A hop or two of it
is mostly what separation got wrong."""

_NOTHING: Final[Samples] = np.zeros(0, np.float32)


class _Sources:
    """The separated sources of a stream: which of them goes with a turn's voice, and where others speak in it.

    The voice of a turn is the one that is heard best in the mixture. So its source is the one that is loudest in most
    of its hops, in this turn and in those before, which count less the older they are.
    """

    def __init__(self, memory: float, own: int | None = None) -> None:
        """Begin with no samples; own is the source of all turns, where that is known."""
        self._memory = memory
        self._own = own
        self._buffers: list[SampleBuffer] = []
        self._votes: dict[str, npt.NDArray[np.float64]] = {}

    def append(self, sources: Samples) -> None:
        """Keep what was separated (n_sources, n_samples); ValueError if it is another number of sources than before."""
        if not self._buffers:
            self._buffers = [SampleBuffer() for _ in sources]
        if len(sources) != len(self._buffers):
            raise ValueError(f"expected {len(self._buffers)} sources, as before; got {len(sources)}")
        for buffer, source in zip(self._buffers, sources, strict=True):
            buffer.append(source)

    def drop_before(self, position: int) -> None:
        """Forget all samples before a position."""
        for buffer in self._buffers:
            buffer.drop_before(position)

    def of(self, span: Span, extent: _Extent, mixture: Samples) -> tuple[Samples, tuple[Span, ...]]:
        """Return the source of a turn over its span (n_samples,), and where others speak; nothing if there is one.

        Others speak where, for LOUD_OVERLAP, another source has RESIDUE of the power of the turn's own there, and HEARD
        of its usual one. Where all sources together have less than HEARD of the mixture's power, separation failed:
        nobody knows who speaks there, so others may.
        """
        if len(self._buffers) < 2:
            return _NOTHING, ()
        heard = np.stack([buffer.take(span) for buffer in self._buffers])
        hops = range(span.start // HOP, -(-span.end // HOP))
        cells = [Span(hop * HOP, (hop + 1) * HOP) & span for hop in hops]
        *sources, whole = _powers(np.concatenate([heard, mixture[None]]), [len(cell) for cell in cells])
        powers = np.stack(sources)
        spoken = powers[:, np.isin(hops, [hop.index for hop in extent.hops if hop.speech])]
        own = self._vote(extent.voice.name, spoken) if self._own is None else self._own
        other = np.delete(powers, own, axis=0).max(axis=0)
        least = np.maximum(powers[own] * RESIDUE, spoken[own].mean() * HEARD if spoken.size else 0.0)
        loud = united(itertools.compress(cells, (other > 0) & (other >= least)), LOUD_OVERLAP)
        failed = itertools.compress(cells, powers.sum(axis=0) < whole * HEARD)
        return heard[own], united([*(stretch for stretch in loud if len(stretch) >= LOUD_OVERLAP), *failed])

    def so_far(self, span: Span) -> Samples:
        """Return the source of a turn that goes on, where it is known; a turn votes for one only when it has ended."""
        return _NOTHING if self._own is None or not self._buffers else self._buffers[self._own].view(span)

    def _vote(self, voice: str, powers: npt.NDArray[np.float64]) -> int:
        """Return the source that is a voice's, given the power of all of them where it speaks (n_sources, n_hops)."""
        votes = np.bincount(powers.argmax(axis=0), minlength=len(powers)).astype(np.float64)
        if voice in self._votes:
            votes += self._votes[voice] * self._memory ** powers.shape[1]
        if voice != UNKNOWN:
            self._votes[voice] = votes
        return int(votes.argmax())


def _powers(sounds: Samples, lengths: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the mean power of each of some sounds (n_sounds, n_samples) in each of the cells that follow each other.

    It is (n_sounds, n_cells), and 0 in a cell that holds what is no number.
    """
    starts = np.cumsum([0, *lengths[:-1]])
    power = np.add.reduceat(np.square(sounds, dtype=np.float64), starts, axis=1) / lengths
    return np.asarray(np.nan_to_num(power, posinf=0.0), np.float64)


class Diarizer:
    """Voice activity and online clustering; a Stage[SeparatedChunk, SpeakerTurn] that hears the mixture.

    Where there are several sources, each turn has the one that goes with its voice, and tells where others speak too.
    """

    def __init__(
        self, detect: SpeechDetector, encode: Encoder, settings: ClusteringSettings, *, own: int | None = None
    ) -> None:
        """Make the stage for one stream; own is the source that goes with all turns, where that is known."""
        self._buffer = SampleBuffer()
        self._sources = _Sources(settings.memory, own)
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
        """Take a chunk; return the turns that have ended, and what is known of one that goes on."""
        self._buffer.append(chunk.mixture)
        self._sources.append(chunk.sources)
        turns = [turn for hop in self._listener.hops() for turn in self._after(hop)]
        self._forget()
        return turns

    def flush(self) -> Sequence[SpeakerTurn]:
        """Return the turns up to the end of the stream."""
        turns = [turn for hop in self._listener.rest() for turn in self._after(hop)]
        for hop, voice in self._labeller.flush():
            turns += [self._turn(extent, self._heard(hop)) for extent in self._finder.push(hop, voice)]
        turns += [self._turn(extent, self._buffer.end) for extent in self._finder.flush(self._buffer.end)]
        return turns

    def _after(self, hop: Hop) -> Iterator[SpeakerTurn]:
        for settled, voice in self._labeller.push(hop):
            self._settled = settled.index
            for extent in self._finder.push(settled, voice):
                yield self._turn(extent, self._heard(settled))

    def _heard(self, hop: Hop) -> int:
        """Return up to where the stream was surely heard when a hop is settled, however it was cut into chunks."""
        return min((hop.index + 1 + (_Labeller.SMOOTH if hop.speech else 0)) * HOP, self._buffer.end)

    def _turn(self, extent: _Extent, heard: int) -> SpeakerTurn:
        """Cut a turn out of what was heard, up to the sample `heard`."""
        span = Span(extent.reach.start, min(extent.reach.end, self._buffer.end))
        before = Span(max(0, span.start - SURROUNDINGS), span.start)
        after = Span(span.end, max(span.end, min(span.end + SURROUNDINGS, heard)))
        take = self._buffer.view if extent.goes_on else self._buffer.take
        embeddings = [hop.embedding for hop in extent.hops if hop.embedding is not None]
        power = np.mean([10 ** (hop.level_db / 10) for hop in extent.hops])
        samples = take(span)
        so_far = self._sources.so_far(span), ()
        source, overlaps = so_far if extent.goes_on else self._sources.of(span, extent, samples)
        return SpeakerTurn(
            span=span,
            speaker=extent.voice.name,
            samples=samples,
            embedding=np.mean(embeddings, axis=0, dtype=np.float32) if embeddings else np.full(1, np.nan, np.float32),
            level_db=10 * float(np.log10(power)),
            overlaps=overlaps,
            source=source,
            embeddings=_by_hop(extent.hops, span),
            before=take(before),
            after=take(after),
            goes_on=extent.goes_on,
        )

    def _forget(self) -> None:
        """Drop what no later turn can reach: memory stays within the longest turn."""
        pending = max(0, self._settled * HOP - seconds(self._settings.pad_s))
        turn = self._finder.needs
        oldest = max(0, min(pending, pending if turn is None else turn) - SURROUNDINGS)
        self._buffer.drop_before(min(self._listener.needs, oldest))
        self._sources.drop_before(oldest)


BEHIND: Final = "background"
"""Label of whoever speaks in the background: one or several, nobody who could be the main speaker."""


class _Voiceless:
    """An Encoder where it does not matter whose voice it is: it can tell nothing, of a hop at a time."""

    window = HOP

    def __call__(self, samples: Samples, /) -> Vector:
        return np.full(1, np.nan, np.float32)


class ForegroundDiarizer:
    """Hears the mixture, and the background by itself; a Stage[SeparatedChunk, SpeakerTurn].

    The turns of the mixture are those of a Diarizer, each with the foreground as its source. In the background it only
    matters when somebody speaks: all of it is BEHIND's. So turns of the two may lie over each other.

    Both are heard hop by hop: so the order of their turns does not depend on how the stream is cut into chunks.
    """

    def __init__(self, detectors: Sequence[SpeechDetector], encode: Encoder, settings: ClusteringSettings) -> None:
        """Make the stage for one stream; the detectors are two, of the mixture and of the background."""
        of_mixture, of_background = detectors
        self._mixture = Diarizer(of_mixture, encode, settings, own=FOREGROUND)
        self._background = Diarizer(of_background, _Voiceless(), settings)
        self._waiting = SampleBuffer(), SampleBuffer(), SampleBuffer()
        self._heard = 0

    @property
    def lookahead(self) -> int:
        """Samples that must follow a turn's end, as in a Diarizer, and those up to the end of a hop."""
        return max(self._mixture.lookahead, self._background.lookahead) + HOP - 1

    def push(self, chunk: SeparatedChunk, /) -> Sequence[SpeakerTurn]:
        """Take a chunk; return the turns that have ended, and what is known of one of the mixture that goes on.

        Raises:
            ValueError: The chunk has other sources than a foreground and a background.
        """
        if len(chunk.sources) != SOURCES:
            raise ValueError(f"expected a foreground and a background, got {len(chunk.sources)} source(s)")
        for buffer, sound in zip(self._waiting, (chunk.mixture, *chunk.sources), strict=True):
            buffer.append(sound, chunk.span)
        turns: list[SpeakerTurn] = []
        while self._heard + HOP <= chunk.span.end:
            turns += self._hear(HOP)
        return turns

    def flush(self) -> Sequence[SpeakerTurn]:
        """Return the turns up to the end of the stream."""
        rest = self._waiting[0].end - self._heard
        turns = self._hear(rest) if rest else []
        return [*turns, *self._mixture.flush(), *_in_background(self._background.flush())]

    def _hear(self, n_samples: int) -> list[SpeakerTurn]:
        """Hear so many samples more: a hop, or what is left at the end."""
        span = Span(self._heard, self._heard + n_samples)
        mixture, foreground, background = (buffer.take(span) for buffer in self._waiting)
        for buffer in self._waiting:
            buffer.drop_before(span.end)
        self._heard = span.end
        turns = self._mixture.push(SeparatedChunk(span, mixture, np.stack([foreground, background])))
        behind = self._background.push(SeparatedChunk(span, background, background[None]))
        return [*turns, *_in_background(behind)]


def _in_background(turns: Iterable[SpeakerTurn]) -> list[SpeakerTurn]:
    return [replace(turn, speaker=BEHIND, background=True) for turn in whole(turns)]


def _by_hop(hops: Sequence[Hop], span: Span) -> Vector:
    """Return the embeddings of a span's hops (n_hops, dim), NaN where there is none; no row if there is none at all."""
    known = [(hop.index * HOP - span.start, hop.embedding) for hop in hops if hop.embedding is not None]
    if not known:
        return np.zeros((0, 1), np.float32)
    rows = np.full((-(-len(span) // HOP), len(known[0][1])), np.nan, np.float32)
    for start, embedding in known:
        rows[start // HOP] = embedding
    return rows


# --- models that hear a whole recording before they say anything ------------------------------------------------------

INAUDIBLE: Final = 1e-4
"""A recording that nowhere gets louder than this (-80 dB of full scale) holds no speech, whatever a model says."""

_CELL: Final = seconds(0.01)
"""Who speaks alone, and how loud each source is there, is told in steps of 10 ms."""

TOLD_OVERLAP: Final = seconds(0.05)
"""A turn counts as overlapped where others speak in it for so long together, or for half of it. Where turns change, two
stretches share a frame of the model (17 ms for pyannote), or a sample by rounding: no word is heard in that."""


class Stretch(NamedTuple):
    """A span in which one speaker speaks."""

    span: Span
    speaker: str


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Diarization:
    """What a model makes of a whole recording.

    turns: who speaks where, never two at once: where two do, the one whom the model hears best. speech: the same with
    all who speak. embeddings: one (dim,) for each speaker, unit norm, or NaN where the model has none.
    """

    turns: Sequence[Stretch]
    speech: Sequence[Stretch]
    embeddings: Mapping[str, Vector]


DiarizationModel: TypeAlias = Callable[[Samples], Diarization]
"""A whole recording, float32 (n_samples,) at 16 kHz -> who speaks where in it."""


class WholeRecordingDiarizer:
    """A model of whole recordings as a Stage[SeparatedChunk, SpeakerTurn]; it hears the mixture.

    A turn is cut out of the mixture. Where there are several sources, the turn has the one that goes with its speaker,
    too: the one that holds most of that speaker's sound where nobody else speaks. All turns of a speaker have the same
    embedding.

    It keeps the recording, and the sources where there are several: 230 MB for an hour of each, and at the end twice
    that (measured for an hour: 0.5 GB with one source, 1.4 GB with two), besides what the model needs.
    """

    lookahead = None

    def __init__(self, model: DiarizationModel, *, pause_s: float = 0.5) -> None:
        """Make the stage; turns of one speaker that follow each other within pause_s are one."""
        self._model = model
        self._pause = seconds(pause_s)
        self._mixture: list[Samples] = []
        self._sources: list[Samples] = []
        self._n_sources: int | None = None
        self._end = 0

    def push(self, chunk: SeparatedChunk, /) -> Sequence[SpeakerTurn]:
        """Keep the chunk; no turn is known before the end.

        Raises:
            ValueError: The chunk does not follow the one before it, or has another number of sources.
        """
        n_sources = len(chunk.sources)
        if chunk.span.start != self._end or self._n_sources not in (None, n_sources):
            raise ValueError(
                f"expected a chunk from sample {self._end} on with {self._n_sources} sources, as before; "
                f"got {chunk.span} with {n_sources}"
            )
        self._end, self._n_sources = chunk.span.end, n_sources
        self._mixture.append(chunk.mixture.copy())
        if n_sources > 1:
            self._sources.append(chunk.sources.copy())
        return []

    def flush(self) -> Sequence[SpeakerTurn]:
        """Return all turns of the recording, in time order."""
        mixture, self._mixture = concatenate(self._mixture), []
        sources, self._sources = (concatenate(self._sources) if self._sources else None), []
        if not is_audible(mixture):
            return []
        heard = self._model(mixture)
        turns = [turn for turn in _joined(heard.turns, self._pause) if is_audible(mixture[_slice(turn.span)])]
        return _Cutter(heard, mixture, sources).cut(turns)


def is_audible(samples: Samples) -> bool:
    """Tell whether anything in samples (n_samples,) is loud enough to be speech."""
    return bool(samples.size) and max(float(samples.max()), -float(samples.min())) > INAUDIBLE


def _slice(span: Span) -> slice:
    return slice(span.start, span.end)


def _joined(turns: Sequence[Stretch], pause: int) -> list[Stretch]:
    """Return the turns in time order, those of one speaker joined across at most `pause` samples of nobody."""
    joined: list[Stretch] = []
    for turn in sorted(turn for turn in turns if turn.span):
        last = joined[-1] if joined else None
        if last is not None and last.speaker == turn.speaker and turn.span.start - last.span.end <= pause:
            joined[-1] = Stretch(Span(last.span.start, max(last.span.end, turn.span.end)), turn.speaker)
        else:
            joined.append(turn)
    return joined


class _Cutter:
    """Cuts turns out of a recording: mixture (n_samples,), sources (n_sources, n_samples) where there are several."""

    def __init__(self, heard: Diarization, mixture: Samples, sources: Samples | None) -> None:
        self._heard, self._mixture, self._sources = heard, mixture, sources
        self._starts = np.array([stretch.span.start for stretch in heard.speech], np.int64)
        self._ends = np.array([stretch.span.end for stretch in heard.speech], np.int64)
        self._shares = {} if sources is None else source_shares(heard.speech, sources)

    def cut(self, turns: Sequence[Stretch]) -> list[SpeakerTurn]:
        """Return the turns with their samples and embeddings."""
        return [self._cut(turn) for turn in turns]

    def _cut(self, turn: Stretch) -> SpeakerTurn:
        others = self._others(turn)
        samples = self._mixture[_slice(turn.span)].copy()
        embedding = self._heard.embeddings.get(turn.speaker)
        told = sum(len(other.span) for other in others) >= min(TOLD_OVERLAP, len(turn.span) / 2)
        return SpeakerTurn(
            span=turn.span,
            speaker=turn.speaker,
            samples=samples,
            embedding=np.full(1, np.nan, np.float32) if embedding is None else embedding,
            level_db=level_db(samples),
            overlaps=united(other.span for other in others) if told else (),
            source=self._source(turn, others),
            before=self._mixture[max(0, turn.span.start - SURROUNDINGS) : turn.span.start].copy(),
            after=self._mixture[turn.span.end : turn.span.end + SURROUNDINGS].copy(),
        )

    def _others(self, turn: Stretch) -> list[Stretch]:
        """Return where others speak in a turn."""
        near = np.flatnonzero((self._starts < turn.span.end) & (self._ends > turn.span.start))
        stretches = [self._heard.speech[int(index)] for index in near]
        return [
            Stretch(stretch.span & turn.span, stretch.speaker)
            for stretch in stretches
            if stretch.speaker != turn.speaker
        ]

    def _source(self, turn: Stretch, others: Sequence[Stretch]) -> Samples:
        """Return the source that goes with a turn's speaker (n_samples,), empty where there is none.

        Who the others are can tell more than the speaker's own share: two are not in one source. Where nothing tells
        which source it is, it is silent.
        """
        if self._sources is None:
            return np.zeros(0, np.float32)
        source = np.zeros(len(turn.span), np.float32)
        own = self._shares.get(turn.speaker)
        stretches = [(turn.span, None if own is None else int(np.argmax(own)))]
        for span, other in others:
            stretches.append((span, pair_source(self._shares, turn.speaker, other)))
        for span, index in stretches:
            if index is not None:
                start = span.start - turn.span.start
                source[start : start + len(span)] = self._sources[index, _slice(span)]
        return source


def source_shares(speech: Sequence[Stretch], sources: Samples) -> dict[str, Vector]:
    """Return for each speaker which share of the sound is in which of the sources (n_sources, n_samples).

    Only what is said while nobody else speaks counts. A speaker who never speaks alone has no entry.
    """
    power = _cell_power(sources)
    active = {speaker: np.zeros(power.shape[1], bool) for speaker in sorted({stretch.speaker for stretch in speech})}
    for span, speaker in speech:
        active[speaker][span.start // _CELL : -(-span.end // _CELL)] = True
    together = np.sum(list(active.values()), axis=0)
    alone = {speaker: power[:, cells & (together == 1)].sum(axis=1) for speaker, cells in active.items()}
    return {
        speaker: (energy / energy.sum()).astype(np.float32) for speaker, energy in alone.items() if energy.sum() > 0
    }


def _cell_power(sources: Samples) -> Samples:
    """Return the energy of each source in each whole cell of 10 ms, (n_sources, n_cells), one source at a time."""
    n_cells = sources.shape[1] // _CELL
    cells = [source[: n_cells * _CELL].reshape(n_cells, _CELL) for source in sources]
    return np.stack([np.einsum("ij,ij->i", cell, cell) for cell in cells])


def pair_source(shares: Mapping[str, Vector], speaker: str, other: str) -> int | None:
    """Return the index of the source that goes with a speaker where another speaks too; None if nothing tells.

    Each of the two has a source of their own, so that both together have the most of their sound in theirs.
    """
    known = [shares[name] for name in (speaker, other) if name in shares]
    if not known:
        return None
    nothing = np.zeros_like(known[0])
    pairs = shares.get(speaker, nothing)[:, None] + shares.get(other, nothing)[None, :]
    np.fill_diagonal(pairs, -np.inf)
    return int(np.argmax(pairs)) // len(pairs)
