r"""The data, in the order in which they flow.

    AudioChunk -> SeparatedChunk -> SpeakerTurn -> [GATE] -> AdmittedTurn -> Utterance -> Answer
                                                        \-> Withheld

Time is an integer number of samples at 16 kHz since the stream began; spans are half-open. Seconds exist only as
properties and in files. Audio is float32, full scale is [-1, 1]. An array never travels without its span.

What stands before the gate (AudioChunk, SeparatedChunk, SpeakerTurn) may hold a bystander's speech: it has a redacted
repr and refuses pickle and copy, so that it does not get into a log, a cache or another process by accident.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Never, final

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE: Final = 16_000
"""Samples per second of everything between audio.py and asr.py. Silero VAD, the d-vector encoder and Whisper use it."""

Samples = NDArray[np.float32]
"""Audio, (n_samples,) or (n_sources, n_samples)."""

Vector = NDArray[np.float32]
"""An embedding, (dim,)."""


def seconds(duration_s: float) -> int:
    """Return a duration in seconds as a whole number of samples."""
    return round(duration_s * SAMPLE_RATE)


class Mode(StrEnum):
    """What the user asks for. SH-Bench asks the same system in both."""

    SELECTIVE = "selective"
    """Only the main speaker goes on."""
    GENERAL = "general"
    """Everyone goes on, labelled."""


class AdmitReason(StrEnum):
    """Why a turn passed the gate."""

    MAIN_SPEAKER = "main_speaker"
    GENERAL_MODE = "general_mode"
    EVERYONE = "everyone"


class WithholdReason(StrEnum):
    """Why a turn did not pass the gate; the list is closed."""

    BYSTANDER = "bystander"
    """The evidence speaks for somebody else, or they are in the background."""
    UNDECIDED = "undecided"
    """No main speaker was known in time (nobody enrolled, nobody dominant yet)."""
    TOO_SHORT = "too_short"
    """A turn, or a piece of one, shorter than `min_turn_s`: too little to tell a voice by."""
    OVERLAPPED = "overlapped"
    """Two speak at once and the overlap policy withholds that."""
    UNVERIFIED = "unverified"
    """What was separated there is not surely the main speaker's, or they are not in the foreground."""
    NO_EMBEDDING = "no_embedding"
    """The turn has no embedding, or one that is not a number."""
    GATE_ERROR = "gate_error"
    """The gate itself failed on this turn."""


@final
@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open stretch of the stream, [start, end), in samples at 16 kHz."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a span needs 0 <= start <= end, got [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        return self.end > self.start

    def __and__(self, other: Span) -> Span:
        """Return what both cover; an empty span where they do not meet."""
        start = max(self.start, other.start)
        return Span(start, max(start, min(self.end, other.end)))

    def overlaps(self, other: Span) -> bool:
        """Tell whether the two share at least one sample."""
        return bool(self & other)

    @property
    def start_s(self) -> float:
        """Seconds from the start of the stream to the first sample."""
        return self.start / SAMPLE_RATE

    @property
    def end_s(self) -> float:
        """Seconds from the start of the stream to just after the last sample."""
        return self.end / SAMPLE_RATE

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return len(self) / SAMPLE_RATE

    def __str__(self) -> str:
        return f"[{self.start_s:.3f} s, {self.end_s:.3f} s)"


def united(spans: Iterable[Span], gap: int = 1) -> tuple[Span, ...]:
    """Return the same stretches in time order, those that are less than a gap apart as one."""
    found: list[Span] = []
    for span in sorted(span for span in spans if span):
        if found and span.start - found[-1].end < gap:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)


def covered(spans: Iterable[Span]) -> int:
    """Return how many samples spans cover, each once."""
    return sum(map(len, united(spans)))


class _Ungated:
    """Speech that has not passed the gate: never shown, never serialised."""

    __slots__ = ()
    span: Span

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.span}, not gated>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(f"{type(self).__name__} has not passed the gate: it cannot be pickled or copied")

    def __deepcopy__(self, memo: object) -> Never:
        self.__reduce_ex__(memo)

    __copy__ = __reduce__ = __getstate__ = lambda self: self.__reduce_ex__(0)


@final
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AudioChunk(_Ungated):
    """What the microphone heard, as it arrives; mixture is (n_samples,)."""

    span: Span
    mixture: Samples

    def __post_init__(self) -> None:
        _check_audio("mixture", self.mixture, self.span, ndim=1)


@final
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SeparatedChunk(_Ungated):
    """The mixture (n_samples,) and its sources (n_sources, n_samples), in an order that holds for the whole stream."""

    span: Span
    mixture: Samples
    sources: Samples

    def __post_init__(self) -> None:
        _check_audio("mixture", self.mixture, self.span, ndim=1)
        _check_audio("sources", self.sources, self.span, ndim=2)


@final
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SpeakerTurn(_Ungated):
    """One speaker, uninterrupted, as the diarization sees it.

    samples (n_samples,) are the mixture over its span, or the source that it was heard in by itself: the background, or
    the paper's loudest source.
    overlaps are where others speak in it too: in time order, apart from each other. source (n_samples,) is the
    separated source that goes with its speaker, empty where there is none; nothing has verified that it is theirs
    throughout. The gate decides what of both goes on.

    embedding is (dim,), the mean of the unit-norm embeddings of the turn's windows; NaN where the turn gave none. Its
    norm, at most 1, tells how much the windows agree, so a threshold means the same for short and for long turns.
    level_db is the level of its speech in dB relative to full scale.

    embeddings (n_windows, dim) are those of windows spread evenly over the turn, NaN where one gave none; there is no
    row where a model tells only one for the whole turn. before and after (n_samples,) are what is heard just outside of
    it, as far as it was heard when the turn was known.

    background tells that it was heard in what a separator found far away: whoever speaks there is not the main speaker.

    goes_on tells that this is what is known so far of a turn that goes on: the next turn begins where this one does and
    takes its place, with all of it and more. It has no overlaps yet, and a source only if all turns have the same.
    `whole` leaves such ones out.
    """

    span: Span
    speaker: str
    samples: Samples
    embedding: Vector
    level_db: float
    overlaps: tuple[Span, ...] = ()
    source: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    embeddings: Vector = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    before: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    after: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    background: bool = False
    goes_on: bool = False

    def __post_init__(self) -> None:
        _check_audio("samples", self.samples, self.span, ndim=1)
        if self.embedding.ndim != 1:
            raise ValueError(f"embedding must be (dim,), got shape {self.embedding.shape}")
        if self.embeddings.ndim != 2 or (len(self.embeddings) and self.embeddings.shape[1:] != self.embedding.shape):
            raise ValueError(f"embeddings must be (n_windows, dim) with the same dim, got {self.embeddings.shape}")
        _check_array("source", self.source, ndim=1)
        if len(self.source) not in (0, len(self.samples)):
            raise ValueError(f"source must be empty or {len(self.samples)} samples long, got {len(self.source)}")
        _check_overlaps(self.overlaps, self.span)
        _check_array("before", self.before, ndim=1)
        _check_array("after", self.after, ndim=1)

    @property
    def overlapped(self) -> bool:
        """Whether somebody else speaks in it too."""
        return bool(self.overlaps)


def whole(turns: Iterable[SpeakerTurn]) -> list[SpeakerTurn]:
    """Return the turns that have ended, and so each turn once."""
    return [turn for turn in turns if not turn.goes_on]


@final
@dataclass(frozen=True, slots=True)
class Admission:
    """The gate's leave to pass. Only gate.py makes one.

    evidence is how probable it is that the main speaker speaks; it was at least `threshold`, unless the mode or the
    stage admits everyone.
    """

    mode: Mode
    reason: AdmitReason
    evidence: float
    threshold: float


@final
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AdmittedTurn:
    """A turn, or a piece of one, that passed the gate: samples (n_samples,) and the leave to use them."""

    span: Span
    speaker: str
    samples: Samples
    admission: Admission

    def __post_init__(self) -> None:
        _check_audio("samples", self.samples, self.span, ndim=1)

    def __repr__(self) -> str:
        return f"<AdmittedTurn {self.span} {self.speaker}, {self.admission.reason}>"


@final
@dataclass(frozen=True, slots=True)
class Withheld:
    """What is left of a turn, or a piece, that did not pass: when, which label, why. No audio, text, or embedding.

    threshold is what the evidence had to reach; both are NaN where there was none.
    """

    span: Span
    speaker: str
    reason: WithholdReason
    evidence: float = math.nan
    threshold: float = math.nan


@final
@dataclass(frozen=True, slots=True)
class Word:
    """A recognised word; span is in the original recording's time, probability in [0, 1]."""

    span: Span
    text: str
    probability: float


@final
@dataclass(frozen=True, slots=True)
class Utterance:
    """The text of an admitted turn. looped tells that the recogniser repeated itself there."""

    span: Span
    speaker: str
    text: str
    words: tuple[Word, ...]
    admission: Admission
    looped: bool = False


@final
@dataclass(frozen=True, slots=True)
class Transcript:
    """Utterances and withheld spans of one recording, in time order."""

    items: tuple[Utterance | Withheld, ...] = ()

    @staticmethod
    def of(items: Iterable[Utterance | Withheld]) -> Transcript:
        """Build a transcript from items in any order."""
        return Transcript(tuple(sorted(items, key=lambda item: item.span)))

    @property
    def utterances(self) -> tuple[Utterance, ...]:
        """What was said by those who were admitted."""
        return tuple(item for item in self.items if isinstance(item, Utterance))

    @property
    def withheld(self) -> tuple[Withheld, ...]:
        """What was not let through."""
        return tuple(item for item in self.items if isinstance(item, Withheld))

    @property
    def is_of_everyone(self) -> bool:
        """Whether all who were heard were admitted, as the general mode does without `always`."""
        return not self.withheld and all(one.admission.mode is Mode.GENERAL for one in self.utterances)

    @property
    def text(self) -> str:
        """All admitted text, one utterance a line, without placeholders."""
        return "\n".join(utterance.text for utterance in self.utterances)


@final
@dataclass(frozen=True, slots=True)
class Question:
    """A question about the recording; without options it is an open one.

    dont_know is the index of the option that says "I don't know", if one does. prompt is what a chat model is told: the
    template, filled in but for {transcript}, {question} and {options}; answerers that are not told anything need none.
    """

    text: str
    options: tuple[str, ...] = ()
    dont_know: int | None = None
    prompt: str = ""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a question needs a text, got an empty one")
        if self.dont_know is not None and not 0 <= self.dont_know < len(self.options):
            raise ValueError(f"dont_know must be the index of one of {len(self.options)} options, got {self.dont_know}")


class Outcome(StrEnum):
    """How an answer came about; everything but ANSWERED counts as wrong and is counted apart."""

    ANSWERED = "answered"
    DONT_KNOW = "dont_know"
    """The transcript does not hold the answer, and the answerer says so."""
    UNPARSED = "unparsed"
    """Something was said, but no option can be read in it."""
    REFUSED = "refused"
    FILTERED = "filtered"
    """A provider's content filter cut the answer."""
    EMPTY = "empty"


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """What was read in a reply to a multiple-choice question.

    choice is the index of the option that the reply chooses, None where it chooses none; why says what was read, such
    as "a marked letter: the answer is C".
    """

    choice: int | None
    outcome: Outcome
    why: str


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and why.

    choice is the index of the chosen option (None for an open question or where none was chosen); why is the sentence
    of the transcript that the answer rests on; probabilities has one number an option, or is empty where the answerer
    has none.
    """

    text: str
    outcome: Outcome
    choice: int | None = None
    why: str = ""
    probabilities: tuple[float, ...] = ()


def _check_audio(name: str, audio: Samples, span: Span, *, ndim: int) -> None:
    """Raise ValueError unless audio is float32, of ndim dimensions, and as long as its span."""
    _check_array(name, audio, ndim=ndim)
    if audio.shape[-1] != len(span):
        raise ValueError(f"{name} has {audio.shape[-1]} samples, but its span {span} has {len(span)}")


def _check_array(name: str, array: Samples, *, ndim: int) -> None:
    """Raise ValueError unless an array is float32 and of ndim dimensions."""
    if array.dtype != np.float32:
        raise ValueError(f"{name} must be float32, got {array.dtype}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")


def _check_overlaps(overlaps: Sequence[Span], span: Span) -> None:
    """Raise ValueError unless these are stretches within a span, in time order and apart from each other."""
    free_from = span.start
    for overlap in overlaps:
        if not overlap or overlap.start < free_from or overlap.end > span.end:
            raise ValueError(f"overlaps must be in order, apart, not empty, and within {span}, got {overlap}")
        free_from = overlap.end


def concatenate(parts: Sequence[Samples]) -> Samples:
    """Join pieces of audio along time; nothing gives an empty array."""
    return np.concatenate(parts, axis=-1) if parts else np.zeros(0, np.float32)
