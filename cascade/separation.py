"""AudioChunk -> SeparatedChunk: which sources the mixture is heard as; and the paper's choice among them.

    Mixture         the mixture is its only source (the on-device cascade: the gate decides who is heard in it)
    Separator       a model that separates short windows, joined so that the order of the sources holds
    LoudestSource   SeparatedChunk -> SpeakerTurn: the source that speaks loudest is the main speaker

(Foreground, which tells near from far, has a file of its own: foreground.py.)

A separation model hears a few seconds at a time: its memory and time grow with the length that it is given, and models
with a positional encoding know no length beyond it. So the stream is cut into windows that start at absolute multiples
of the hop, and what comes out is joined by overlap-add. Each window passes through

    mixture -> the model's rate -> separate -> levels by least squares -> 16 kHz -> in order -> overlap-add

by itself, so that no chunking of the stream can change a result.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from cascade.audio import SampleBuffer
from cascade.errors import BackendError, ConfigError
from cascade.types import (
    SAMPLE_RATE,
    AudioChunk,
    Samples,
    SeparatedChunk,
    Span,
    SpeakerTurn,
    Vector,
    concatenate,
    seconds,
)

log = logging.getLogger(__name__)

Separate = Callable[[Samples], Samples]
"""A model: windows (n_windows, n_samples) at its own rate -> sources (n_windows, n_sources, n_samples)."""

Windows = NDArray[np.float32]
"""Mixtures (n_windows, n_samples), or sources (n_windows, n_sources, n_samples)."""

_Wide = NDArray[np.float64]
_Order = tuple[int, ...]
"""For each source of the stream, which source of the window it is."""

MOST_SOURCES: Final = 4
"""The order of the sources is found by trying all of them: 24 for four, 40320 for eight."""

QUIET: Final = 1e-3
"""Less than this share (-30 dB) of the loudest window's power is a pause: noise, and the end of an echo."""

LOUDEST_MEMORY: Final = 0.99
"""What is left of the loudest window's power after each window, so that one slammed door does not make all else quiet:
3 dB in some two minutes."""

CLEAR: Final = 0.1
"""How much better one order must fit the overlap than any other, as a share of the energy, for it to be certain."""

DOMINATED: Final = 10 ** (-12 / 10)
COPIED: Final = 0.5
"""A source 12 dB below the loudest one at the same time may be that one's residue, and one that is as much correlated
with it as this surely holds some: neither tells anything of its own voice."""

STRANGER: Final = 0.5
"""Similarity that a source not heard before has to any voice: beyond it, two stretches are taken for one voice, as in
online clustering."""

ACQUAINTED: Final = 4
"""How often a voice must have been heard before a piece of the mixture can be a stranger's: two pieces of one voice are
at 0.3 to 0.6, a piece and the mean of several at 0.5 to 0.9 (eight two-speaker scenes)."""

PROFILE_MEMORY: Final = 0.98
"""What is left of a source's voice each time it is heard: of the last 50 times, some 40 to 100 s of speech."""

LEVEL_PRIOR: Final = 1e-3
"""How strongly the sources keep the levels that the model gave them, relative to each other: enough to decide where the
mixture cannot (one source is a faint copy of the other), and 0.1 % of bias where it can."""

SIGN_PRIOR: Final = 0.1
"""What LEVEL_PRIOR is, for telling which source is upside down: two that are hardly different must not become each
other's opposite for the sake of that difference, and a soft one not for a chance likeness with a loud one."""

LEVEL_CORRECTION: Final = 10.0
"""A source becomes at most this much (20 dB) louder or softer against the others than the model made it."""

CANCELLED: Final = 0.25
"""Where less than this share (-6 dB) of the sources' power is left in their sum, they cancel each other: two voices are
hardly alike, so it is the model that put into one source what it took away in the other."""

LOUDER: Final = CANCELLED**-0.5
"""A source comes out at most twice as loud (6 dB) as the mixture, in amplitude."""

P56_MARGIN: Final = 10 ** (15.9 / 10)
"""A frame this far (15.9 dB) below the active-speech level is a pause (ITU-T P.56)."""

P56_FRAME: Final = seconds(0.01)

LOUDEST: Final = "main"
"""Label of the turn of the loudest source: to the paper, it is the main speaker."""


class Encoder(Protocol):
    """A speaker encoder: stateless, so that streams may share it."""

    @property
    def window(self) -> int:
        """Samples that it listens to at a time."""

    def __call__(self, samples: Samples, /) -> Vector:
        """Return the embedding (dim,), unit norm, of samples (window,); NaN where it can tell nothing."""


class Mixture:
    """Passes the mixture on as its only source; a Stage[AudioChunk, SeparatedChunk] without lookahead."""

    lookahead = 0

    def push(self, chunk: AudioChunk, /) -> Sequence[SeparatedChunk]:
        """Return the chunk with the mixture as sources (1, n_samples)."""
        return [SeparatedChunk(chunk.span, chunk.mixture, chunk.mixture[None])]

    def flush(self) -> Sequence[SeparatedChunk]:
        """Return nothing: nothing is held back."""
        return []


class Separator:
    """Separates windows and joins them; a Stage[AudioChunk, SeparatedChunk] that gives a chunk for each hop.

    The sources' order holds for the whole stream (_SourceOrder), their levels are those in the mixture (in_level), and
    they are silent where the model gives no number. Windows are separated `batch` at a time, always the same ones
    together, so that not even rounding depends on how the stream is cut; that costs (batch - 1) hops of lookahead.

    With `overlap`, the model runs only in windows in which two speak at once; elsewhere the mixture itself goes, piece
    by piece, to the source whose voice it is, and the others are silent. That takes an encoder.
    """

    def __init__(
        self,
        separate: Separate,
        *,
        rate: int,
        n_sources: int = 2,
        window_s: float = 4.0,
        hop_s: float = 2.0,
        batch: int = 1,
        encode: Encoder | None = None,
        overlap: Callable[[Samples], bool] | None = None,
    ) -> None:
        """Make the stage for one stream.

        Args:
            separate: the model; it must give the same for a window whatever other windows are in the batch.
            rate: the model's sample rate, in Hz.
            n_sources: how many sources it gives.
            window_s: length of a window, in seconds.
            hop_s: time between the starts of two windows; they must overlap.
            batch: windows that are separated at once.
            encode: tells voices apart where the overlap cannot: after a pause, and where only one speaks.
            overlap: tells whether two speak at once in a window (n_samples,) at 16 kHz; None: separate all windows.

        Raises:
            ConfigError: the lengths do not fit each other, there are too many sources, or `overlap` came without
                `encode`.
        """
        self._window, self._hop, self._batch = seconds(window_s), seconds(hop_s), batch
        _check_lengths(window_s, hop_s, batch, encode)
        if not 1 <= n_sources <= MOST_SOURCES:
            raise ConfigError(f"all orders of the sources are tried: expected 1 to {MOST_SOURCES}, got {n_sources}")
        if overlap is not None and encode is None:
            raise ConfigError("when: overlap needs a speaker encoder to tell whose voice the rest is; got none")
        self._separate, self._overlap, self._n_sources = separate, overlap, n_sources
        self._window_at_rate = round(self._window * rate / SAMPLE_RATE)
        self._buffer = SampleBuffer()
        self._order = _SourceOrder(n_sources, encode)
        self._joined = _OverlapAdd(n_sources, self._window, self._hop)
        self._next = 0  # index of the first window that has not been separated
        self._failed = False

    @property
    def lookahead(self) -> int:
        """Samples of a window, and of the hops to the last window of a batch."""
        return self._window + (self._batch - 1) * self._hop

    def push(self, chunk: AudioChunk, /) -> Sequence[SeparatedChunk]:
        """Take a chunk; return the hops that all windows over them have been separated for."""
        self._buffer.append(chunk.mixture, chunk.span)
        chunks: list[SeparatedChunk] = []
        while self._next * self._hop + self.lookahead <= self._buffer.end:
            chunks += self._hear(self._batch)
        return chunks

    def flush(self) -> Sequence[SeparatedChunk]:
        """Return the rest: the last window is padded with silence, and what comes of that is cut off."""
        end = self._buffer.end
        windows = 0 if end == 0 else 1 + max(0, -(-(end - self._window) // self._hop))
        chunks = list(self._hear(windows - self._next)) if windows > self._next else []
        start = self._next * self._hop
        if end <= start:
            return chunks
        rest = self._joined.rest(end - start)
        for at in range(0, end - start, self._hop):
            span = Span(start + at, min(start + at + self._hop, end))
            chunks.append(SeparatedChunk(span, self._buffer.take(span), rest[:, at : at + len(span)]))
        return chunks

    def _hear(self, n_windows: int) -> Iterator[SeparatedChunk]:
        """Separate so many windows at once; yield the hop that each of them starts with, as far as it was heard."""
        starts = [(self._next + index) * self._hop for index in range(n_windows)]
        mixtures = np.stack([self._take(start) for start in starts])
        for start, mixture, sources in zip(starts, mixtures, self._separated(mixtures), strict=True):
            before = self._joined.overlap
            ordered = self._order.alone(mixture, before) if sources is None else self._order.of(sources, before)
            span = Span(start, min(start + self._hop, self._buffer.end))
            joined = self._joined.add(ordered)[:, : len(span)]
            yield SeparatedChunk(span, self._buffer.take(span), joined)
        self._next += n_windows
        self._buffer.drop_before(self._next * self._hop)

    def _take(self, start: int) -> Samples:
        """Return the window (n_samples,) that starts there, padded with silence."""
        heard = self._buffer.take(Span(start, min(start + self._window, self._buffer.end)))
        return np.pad(heard, (0, self._window - len(heard)))

    def _separated(self, mixtures: Windows) -> list[Samples | None]:
        """Return the sources (n_sources, n_samples) of each window, None for one in which only one speaks.

        Digital silence has no sources, and what is no number is not shown to the model.
        """
        silence = np.zeros((self._n_sources, self._window), np.float32)
        sounds = [bool(mixture.any()) and bool(np.isfinite(mixture).all()) for mixture in mixtures]
        two = [
            sound and (self._overlap is None or self._overlap(mixture))
            for sound, mixture in zip(sounds, mixtures, strict=True)
        ]
        found = iter(self._run(mixtures[two])) if any(two) else iter(())
        return [next(found) if both else None if sound else silence for sound, both in zip(sounds, two, strict=True)]

    def _run(self, mixtures: Windows) -> Windows:
        """Return the sources (n_windows, n_sources, n_samples) of mixtures (n_windows, n_samples) at 16 kHz."""
        given = resized(mixtures, self._window_at_rate)
        sources = self._separate(given)
        expected = (len(given), self._n_sources, self._window_at_rate)
        if sources.shape != expected:
            raise BackendError(f"the separation model gave sources of shape {sources.shape}, expected {expected}")
        sound = np.isfinite(sources).all(axis=-1, keepdims=True)
        self._report(bool(sound.all()))
        numbers = np.where(sound, sources, np.float32(0))
        level = np.stack([in_level(each, mixture) for each, mixture in zip(numbers, given, strict=True)])
        return resized(level, self._window)

    def _report(self, sound: bool) -> None:
        if not sound and not self._failed:
            self._failed = True
            log.warning(
                "the separation model gave what is no number, first in or after window %d: a source is silent there",
                self._next,
            )


def _check_lengths(window_s: float, hop_s: float, batch: int, encode: Encoder | None) -> None:
    if not 1 <= seconds(hop_s) < seconds(window_s):
        raise ConfigError(
            f"windows must overlap: expected 0 < hop_s < window_s, got hop_s {hop_s}, window_s {window_s}"
        )
    if batch < 1:
        raise ConfigError(f"batch is the number of windows separated at once, at least 1; got {batch}")
    if encode is not None and encode.window > seconds(window_s):
        raise ConfigError(
            f"the speaker encoder hears {encode.window / SAMPLE_RATE:.2f} s at a time; window_s is {window_s}"
        )


# --- one window -------------------------------------------------------------------------------------------------------


def resized(audio: Windows, n_samples: int) -> Windows:
    """Return audio (..., any) as (..., n_samples) over the same time, which is to say at another rate.

    By the spectrum, cut off or padded. A window is not periodic, so it is mirrored at its end first, or its two ends
    would ring into each other. A window at a time has no delay and no state, and always the same length.
    """
    if audio.shape[-1] == n_samples:
        return audio
    mirrored = np.concatenate([audio, audio[..., ::-1]], axis=-1)
    spectrum = np.fft.rfft(mirrored, axis=-1)[..., : n_samples + 1]
    scale = n_samples / audio.shape[-1]
    result: Windows = np.fft.irfft(spectrum, 2 * n_samples, axis=-1)[..., :n_samples].astype(np.float32)
    return result * np.float32(scale)


def in_level(sources: Samples, mixture: Samples) -> Samples:
    """Return sources (n_sources, n_samples) scaled so that they add up to the mixture (n_samples,), one gain for each.

    Models trained by a scale-invariant measure give sources of any level and of either sign. A source that is part of
    the mixture upside down is turned over. The gains then minimise the squared error of the sum, and keep close to one
    common gain where that decides nothing. No source changes by more than LEVEL_CORRECTION against that common gain;
    the sum is never further from the mixture than with it. Silent sources stay silent.

    Where the sources nearly cancel each other, no common gain says how loud they are: each is what the mixture holds of
    it by itself, or all are softer than that, if their sum is too loud. No source comes out louder than LOUDER times
    the mixture, and the sum is never further from the mixture than silence is.
    """
    wide, target = sources.astype(np.float64), mixture.astype(np.float64)
    gains = _gains(wide @ wide.T, wide @ target, float(target @ target))
    return (gains[:, None] * wide).astype(np.float32)


def _gains(gram: _Wide, target: _Wide, power: float) -> _Wide:
    """Return the gains (n_sources,) from the sources' products with each other and with the mixture, and its power."""
    gains = np.zeros(len(gram))
    active = np.diag(gram) > 0
    if power > 0 and active.any():
        gram, target = gram[np.ix_(active, active)], target[active]
        signs = _signs(gram, target)
        gains[active] = signs * _positive_gains(gram * np.outer(signs, signs), target * signs, power)
    return gains


def _signs(gram: _Wide, target: _Wide) -> _Wide:
    """Return 1 for each source, and -1 for each one that the mixture holds upside down."""
    best = np.linalg.solve(gram + np.diag(SIGN_PRIOR * np.diag(gram)), target)
    return np.where(best < 0, -1.0, 1.0)


def _positive_gains(gram: _Wide, target: _Wide, power: float) -> _Wide:
    """Return the gains of sources that are not upside down."""
    energy, total = np.diag(gram), float(gram.sum())
    common = float(target.sum()) / total if total > CANCELLED * float(energy.sum()) else 0.0
    if common <= 0:
        alone = np.maximum(target, 0) / energy
        together = float(alone @ gram @ alone)
        softer: _Wide = alone * min(1.0, float(alone @ target) / together) if together > 0 else alone
        return softer
    prior = LEVEL_PRIOR * energy
    best = np.linalg.solve(gram + np.diag(prior), target + prior * common)
    change = best / common - 1
    # With the common gain a source is at most 1 / sqrt(CANCELLED) times as loud as the mixture, which LOUDER is.
    loudest = LOUDER * np.sqrt(power / energy) / common - 1
    most, least = np.clip(loudest, 0, LEVEL_CORRECTION - 1), 1 / LEVEL_CORRECTION - 1
    # The error is convex in the gains: it falls all the way from the common gain towards the best ones.
    over, under = change > most, change < least
    way = min([1.0, *(most[over] / change[over]), *(least / change[under])])
    gains: _Wide = common * (1 + way * change)
    return gains


class _OverlapAdd:
    """Joins windows one hop apart, each faded in and out; the weights of those over a sample add up to one."""

    def __init__(self, n_sources: int, window: int, hop: int) -> None:
        self._hop = hop
        # Half a sample off the ends, the fade is never zero: where a window stands alone it can be divided out.
        self._fade = (np.sin(np.pi * (np.arange(window) + 0.5) / window) ** 2).astype(np.float32)
        self._sum = np.zeros((n_sources, window), np.float32)
        self._weight = np.zeros(window, np.float32)

    @property
    def overlap(self) -> Samples:
        """Return what is there (n_sources, window - hop) of what the next window overlaps; nothing before the first."""
        known = int(np.count_nonzero(self._weight))
        return self._sum[:, :known] / self._weight[:known]

    def add(self, sources: Samples) -> Samples:
        """Add the next window (n_sources, window); return its first hop (n_sources, hop), which is now complete."""
        self._sum += sources * self._fade
        self._weight += self._fade
        done = self._sum[:, : self._hop] / self._weight[: self._hop]
        self._sum = _shifted(self._sum, self._hop)
        self._weight = _shifted(self._weight, self._hop)
        return done

    def rest(self, n_samples: int) -> Samples:
        """Return the first samples (n_sources, n_samples) of what no other window will be added to."""
        return self._sum[:, :n_samples] / self._weight[:n_samples]


def _shifted(audio: Samples, hop: int) -> Samples:
    return np.concatenate([audio[..., hop:], np.zeros_like(audio[..., :hop])], axis=-1)


# --- the order of the sources -----------------------------------------------------------------------------------------


class _SourceOrder:
    """Brings the sources of each window into the order that holds for the stream.

    A model gives its sources in any order, and in another one for the next window. Where they can be heard in the
    overlap of two windows, the order is the one in which they are closest to what the window before gave there. After a
    pause it is the one in which each source's voice is most like the voice that this source had until then.
    """

    def __init__(self, n_sources: int, encode: Encoder | None) -> None:
        self._orders = list(itertools.permutations(range(n_sources)))
        self._voices = _Voices(n_sources)
        self._encode = encode
        self._loudest = 0.0

    def of(self, sources: Samples, before: Samples) -> Samples:
        """Return sources (n_sources, window) in order; before (n_sources, n_overlap) is what they overlap with."""
        self._loudest = max(self._loudest * LOUDEST_MEMORY, _power(sources))
        heard = self._embeddings(sources)
        order = self._by_overlap(sources[:, : before.shape[1]], before)
        if order is None:
            order = max(self._orders, key=lambda order: self._voices.fit(order, heard))
        for source, index in enumerate(order):
            self._voices.learn(source, heard[index])
        return sources[list(order)]

    def alone(self, mixture: Samples, before: Samples) -> Samples:
        """Return sources (n_sources, window): each piece of the mixture (window,) in the source whose voice it has."""
        self._loudest = max(self._loudest * LOUDEST_MEMORY, _power(mixture[None]))
        pieces = self._pieces(len(mixture))
        heard = [self._embedding(mixture[piece.start : piece.end]) for piece in pieces]
        speaking = [self._voices.meet(heard, index) for index in range(len(heard))]
        # A pause, or what is too soft to tell, goes with what was said before it.
        last = next((source for source in speaking if source is not None), _loudest_of(before))
        sources = np.zeros((len(self._orders[0]), len(mixture)), np.float32)
        ends = [piece.start for piece in pieces[1:]] + [len(mixture)]
        for piece, end, source in zip(pieces, ends, speaking, strict=True):
            last = last if source is None else source
            sources[last, piece.start : end] = mixture[piece.start : end]
        return sources

    def _by_overlap(self, sources: Samples, before: Samples) -> _Order | None:
        """Return the order in which sources (n_sources, n_overlap) are closest to before; None if it is not clear."""
        if _power(before) <= QUIET * self._loudest:
            return None
        products = before.astype(np.float64) @ sources.T.astype(np.float64)
        fits = sorted(((_fit(products, order), order) for order in self._orders), key=lambda fit: -fit[0])
        energy = math.sqrt(
            float(np.square(before, dtype=np.float64).sum() * np.square(sources, dtype=np.float64).sum())
        )
        if len(fits) > 1 and not fits[0][0] - fits[1][0] > CLEAR * energy:
            return None
        return fits[0][1]

    def _embeddings(self, sources: Samples) -> list[Vector | None]:
        """Return the mean embedding (dim,) of each source over the pieces in which it has a voice of its own."""
        found: list[list[Vector]] = [[] for _ in sources]
        for piece in self._pieces(sources.shape[1]):
            parts = sources[:, piece.start : piece.end]
            for index in _own_voices(parts):
                voice = self._embedding(parts[index])
                found[index] += [] if voice is None else [voice]
        return [np.mean(voices, axis=0, dtype=np.float32) if voices else None for voices in found]

    def _embedding(self, samples: Samples) -> Vector | None:
        """Return the embedding (dim,) of samples (encoder's window,); None in a pause, or where it tells nothing."""
        if self._encode is None or _power(samples[None]) <= QUIET * self._loudest:
            return None
        voice = self._encode(samples)
        return voice if bool(np.isfinite(voice).all()) else None

    def _pieces(self, n_samples: int) -> list[Span]:
        """Return the encoder's windows side by side, as many as there are in so many samples."""
        if self._encode is None:
            return []
        size = self._encode.window
        return [Span(start, start + size) for start in range(0, n_samples - size + 1, size)]


class _Voices:
    """The voice of each source: a running sum of its embeddings (dim,), None before it was heard."""

    def __init__(self, n_sources: int) -> None:
        self._totals: list[Vector | None] = [None] * n_sources
        self._times = [0] * n_sources

    def fit(self, order: _Order, heard: Sequence[Vector | None]) -> float:
        """Return the sum of the similarities if the sources stood in this order; those not heard tell nothing."""
        pairs = ((source, heard[index]) for source, index in enumerate(order))
        return sum(self._similarity(source, voice) for source, voice in pairs if voice is not None)

    def learn(self, source: int, voice: Vector | None) -> None:
        """Take in a source's voice (dim,), where it was heard."""
        if voice is None:
            return
        total = self._totals[source]
        self._totals[source] = voice if total is None else total * np.float32(PROFILE_MEMORY) + voice
        self._times[source] += 1

    def meet(self, heard: Sequence[Vector | None], index: int) -> int | None:
        """Return the source whose voice a piece and those beside it have, and learn it; None if it tells nothing."""
        voice = heard[index]
        if voice is None:
            return None
        near = [other for other in heard[max(0, index - 1) : index + 2] if other is not None]
        known = [source for source, times in enumerate(self._times) if times]
        acquainted = not known or min(self._times[source] for source in known) >= ACQUAINTED
        # A mean of unit vectors is shorter than they are, so its similarity is the mean of theirs.
        source = self._nearest(
            np.mean(near, axis=0, dtype=np.float32), range(len(self._totals)) if acquainted else known
        )
        self.learn(source, voice)
        return source

    def _similarity(self, source: int, voice: Vector) -> float:
        """Return how alike a voice (dim,) and a source's are; STRANGER for a source that was not heard yet."""
        total = self._totals[source]
        return STRANGER if total is None else float(voice @ total / np.linalg.norm(total))

    def _nearest(self, voice: Vector, sources: Iterable[int]) -> int:
        """Return which of these sources a voice (dim,) is most like, the first of equals."""
        return max(sources, key=lambda source: self._similarity(source, voice))


def _power(sources: Samples) -> float:
    """Return the mean power of what sources (n_sources, n_samples) hold together; 0 for nothing."""
    return float(np.square(sources, dtype=np.float64).sum() / max(1, sources.shape[-1]))


def _own_voices(sources: Samples) -> list[int]:
    """Return the sources (n_sources, n_samples) that are neither much softer than the loudest one nor copies of it."""
    wide = sources.astype(np.float64)
    energy = np.square(wide).sum(axis=1)
    loudest = int(np.argmax(energy))
    alike = np.abs(wide @ wide[loudest]) > COPIED * np.sqrt(energy * energy[loudest])
    alike[loudest] = False
    return [int(index) for index in np.flatnonzero((energy > DOMINATED * energy[loudest]) & ~alike)]


def _loudest_of(sources: Samples) -> int:
    """Return the source (n_sources, n_samples) with the most energy, the first of equals."""
    return int(np.argmax(np.square(sources, dtype=np.float64).sum(axis=1)))


def _fit(products: _Wide, order: _Order) -> float:
    return float(sum(products[source, index] for source, index in enumerate(order)))


# --- how often it goes wrong ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Swaps:
    """Stretches in which the sources stand in another order than in most of the recording, of those that tell."""

    swapped: int
    total: int

    @property
    def rate(self) -> float | None:
        """Share of the stretches that are swapped; None where no stretch tells."""
        return self.swapped / self.total if self.total else None

    def __add__(self, other: Swaps) -> Swaps:
        return Swaps(self.swapped + other.swapped, self.total + other.total)


def count_swaps(sources: Samples, references: Samples, *, stretch_s: float = 1.0) -> Swaps:
    """Count the stretches in which sources (n_sources, n_samples) are swapped against references of the same shape.

    A stretch's order is the one in which the sources explain most of the references' energy. A stretch tells nothing
    where the references are quiet, or where two orders explain about the same.

    Raises:
        ValueError: sources and references have different shapes.
    """
    if sources.shape != references.shape:
        raise ValueError(f"sources {sources.shape} and references {references.shape} must have one shape")
    size, orders = seconds(stretch_s), list(itertools.permutations(range(len(references))))
    starts = range(0, references.shape[1], size)
    quiet = QUIET * max((_power(references[:, start : start + size]) for start in starts), default=0.0)
    fits = [
        fit
        for start in starts
        if _power(part := references[:, start : start + size]) > quiet
        and (fit := _order_fits(sources[:, start : start + size], part, orders)) is not None
    ]
    if not fits:
        return Swaps(0, 0)
    usual = int(np.argmax(np.sum(fits, axis=0)))
    return Swaps(sum(int(np.argmax(fit)) != usual for fit in fits), len(fits))


def _order_fits(sources: Samples, references: Samples, orders: Sequence[_Order]) -> _Wide | None:
    """Return how much energy each order explains (n_orders,); None where the best two are about the same."""
    products = references.astype(np.float64) @ sources.T.astype(np.float64)
    energy = np.square(sources, dtype=np.float64).sum(axis=1)
    explained = np.divide(products**2, energy, out=np.zeros_like(products), where=energy > 0)
    fits = np.array([_fit(explained, order) for order in orders])
    if len(orders) > 1:
        second, best = np.sort(fits)[-2:]
        if best - second <= CLEAR * float(np.square(references, dtype=np.float64).sum()):
            return None
    return fits


# --- the paper's choice -----------------------------------------------------------------------------------------------


class LoudestSource:
    """Takes the source with the highest active-speech level as the main speaker; a Stage[SeparatedChunk, SpeakerTurn].

    It gives one turn for the whole recording, which nothing has verified: its embedding is NaN, so a gate withholds it.
    The choice is made when the recording is over, so all sources are kept until then: 230 MB an hour for each, and
    as much again while the chosen one is put together.
    """

    lookahead = None

    def __init__(self) -> None:
        self._heard: list[SeparatedChunk] = []

    def push(self, chunk: SeparatedChunk, /) -> Sequence[SpeakerTurn]:
        """Keep the chunk's sources; nothing is certain yet."""
        end = self._heard[-1].span.end if self._heard else 0
        if chunk.span.start != end:
            raise ValueError(f"chunks must follow each other: expected one from sample {end}, got {chunk.span}")
        # The mixture is not needed any more: an hour of it is 230 MB too.
        self._heard.append(SeparatedChunk(chunk.span, chunk.sources[0], chunk.sources))
        return []

    def flush(self) -> Sequence[SpeakerTurn]:
        """Return the turn of the loudest source; none where there is no sound at all."""
        heard, self._heard = self._heard, []
        if not heard:
            return []
        levels = [active_level_db(_source(heard, index)) for index in range(len(heard[0].sources))]
        loudest = max(range(len(levels)), key=levels.__getitem__)
        if levels[loudest] == -math.inf:
            return []
        samples = _source(heard, loudest)
        return [SpeakerTurn(Span(0, len(samples)), LOUDEST, samples, np.full(1, np.nan, np.float32), levels[loudest])]


def _source(heard: Sequence[SeparatedChunk], index: int) -> Samples:
    return concatenate([chunk.sources[index] for chunk in heard])


def active_level_db(samples: Samples) -> float:
    """Return the level of samples (n_samples,) while somebody speaks, in dB re full scale; -inf for silence.

    ITU-T P.56 in frames: pauses, which are P56_MARGIN below the result, do not count; each round drops more of them,
    until none is left to drop.
    """
    powers = _frame_powers(samples)
    while powers.any():
        active = powers[powers * P56_MARGIN > powers.mean()]
        if len(active) == len(powers):
            return 10 * math.log10(float(powers.mean()))
        powers = active
    return -math.inf


def _frame_powers(samples: Samples) -> _Wide:
    """Return the mean power of each frame (n_frames,); a recording shorter than a frame is one."""
    if len(samples) < P56_FRAME:
        samples = np.pad(samples, (0, P56_FRAME - len(samples)))
    frames = samples[: len(samples) // P56_FRAME * P56_FRAME].reshape(-1, P56_FRAME)
    powers: _Wide = np.einsum("fs,fs->f", frames, frames, dtype=np.float64) / P56_FRAME
    return powers
