"""5 AdmittedTurn -> Utterance: what was said in the turns that passed the gate.

A turn is cut out of the recording, never muted in place: Whisper makes up text in zeroed stretches. Each is transcribed
by itself, with no text of an earlier one as context, so that one bad turn cannot spoil the next. What Whisper is known
to invent is kept out: text that it doubts itself where it hears no speech, and phrases that it repeats without end.

    turn -> pieces that fit Whisper's window, cut at pauses -> Recogniser -> words -> loops collapsed -> one Utterance
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, final

import numpy as np

from cascade.diarization import level_db
from cascade.errors import BackendError
from cascade.types import AdmitReason, AdmittedTurn, Samples, Span, Utterance, Withheld, Word, seconds

MAX_PIECE: Final = seconds(28)
"""Longest piece that a recogniser is given. Whisper's window is 30 s; the rest is room for its padding."""

MIN_PIECE: Final = seconds(0.1)
"""A turn as short as this holds no word, and is not shown to a recogniser."""

SILENCE_PEAK: Final = 1e-4
"""A turn that nowhere gets louder than this (-80 dB of full scale) is silence, in which Whisper hears "you"."""

FAR_LEVEL_DB: Final = -20.0
LARGEST_GAIN_DB: Final = 30.0
"""Level (RMS, dB of full scale) that a bystander's turn is brought to in general mode, and by how much at most.

What is said far away is then heard as well as it can be, and does not depend on how far. The main speaker's turns stay
as they are.
"""

NO_SPEECH_PROBABILITY: Final = 0.6
LOW_LOG_PROBABILITY: Final = -1.0
HIGH_COMPRESSION_RATIO: Final = 2.4
"""Whisper's own thresholds (https://github.com/openai/whisper/blob/main/whisper/transcribe.py)."""

# fmt: off
LANGUAGES: Final = frozenset({
    "af", "am", "ar", "as", "az", "ba", "be", "bg", "bn", "bo", "br", "bs", "ca", "cs", "cy", "da", "de", "el", "en",
    "es", "et", "eu", "fa", "fi", "fo", "fr", "gl", "gu", "ha", "haw", "he", "hi", "hr", "ht", "hu", "hy", "id", "is",
    "it", "ja", "jw", "ka", "kk", "km", "kn", "ko", "la", "lb", "ln", "lo", "lt", "lv", "mg", "mi", "mk", "ml", "mn",
    "mr", "ms", "mt", "my", "ne", "nl", "nn", "no", "oc", "pa", "pl", "ps", "pt", "ro", "ru", "sa", "sd", "si", "sk",
    "sl", "sn", "so", "sq", "sr", "su", "sv", "sw", "ta", "te", "tg", "th", "tk", "tl", "tr", "tt", "uk", "ur", "uz",
    "vi", "yi", "yo", "yue", "zh",
})
# fmt: on
"""Codes of the languages that Whisper knows; all of them only from large-v3 on, and an English-only model just one."""

_PAUSE_GRID: Final = seconds(0.01)
_PAUSE_CELLS: Final = 20
"""A pause is looked for in steps of 10 ms, as the quietest 0.2 s."""


@final
@dataclass(frozen=True, slots=True)
class RecognisedWord:
    """A word in a piece: start and end in samples from the piece's first one, probability in [0, 1].

    text is as the recogniser writes it: with a space before it unless it goes on from the word before ("-up", ".40").
    """

    start: int
    end: int
    text: str
    probability: float


@final
@dataclass(frozen=True, slots=True)
class Recognition:
    """What a recogniser hears in one piece.

    words may be empty although there is text, if the recogniser has no word times. no_speech is the probability that
    the piece holds no speech, log_probability the mean of the tokens' natural log-probabilities; a recogniser without
    such numbers leaves them at 0, which trusts it.
    """

    text: str
    words: tuple[RecognisedWord, ...] = ()
    no_speech: float = 0.0
    log_probability: float = 0.0


_NOTHING: Final = Recognition("")

Recogniser: TypeAlias = Callable[[Samples], Recognition]
"""Float32 audio, (n_samples,), more than MIN_PIECE and at most MAX_PIECE samples at 16 kHz -> what was said in it."""


class Transcriber:
    """The stage: one Utterance for each admitted turn that holds words; what was withheld passes by."""

    def __init__(self, recognise: Recogniser) -> None:
        self._recognise = recognise

    @property
    def lookahead(self) -> int:
        """No audio after a turn is needed: its text comes out on the push that brings it."""
        return 0

    def push(self, item: AdmittedTurn | Withheld, /) -> Sequence[Utterance | Withheld]:
        """Transcribe a turn.

        Raises:
            BackendError: The recogniser failed; the message names the turn's span and the kind of failure only.
        """
        if isinstance(item, Withheld):
            return (item,)
        samples = nearer(item.samples) if item.admission.reason is AdmitReason.GENERAL_MODE else item.samples
        heard = [(piece, self._hear(samples, piece, item.span)) for piece in split_at_pauses(samples)]
        words = [word for piece, recognition in heard for word in _in_turn(recognition, piece)]
        kept, looped = collapse_loops(words)
        text = join(kept)
        if not text:
            return ()
        looped = looped or any(compression_ratio(part.text) > HIGH_COMPRESSION_RATIO for _, part in heard)
        return (Utterance(item.span, item.speaker, text, place(kept, item.span), item.admission, looped),)

    def flush(self) -> Sequence[Utterance | Withheld]:
        """Return nothing: no turn is held back."""
        return ()

    def _hear(self, turn: Samples, piece: Span, span: Span) -> Recognition:
        """Return what is said in one piece of a turn (relative to its span), with no text where there is none."""
        samples = turn[piece.start : piece.end]
        if len(piece) <= MIN_PIECE or float(np.max(np.abs(samples))) < SILENCE_PEAK:
            return _NOTHING
        heard = self._recognised(samples, span)
        return _NOTHING if is_invented(heard) else heard

    def _recognised(self, samples: Samples, span: Span) -> Recognition:
        try:
            return self._recognise(samples)
        except Exception as error:
            kind = type(error).__name__
        # Raised out here so that the recogniser's own exception, which may quote text, is not chained to this one.
        raise BackendError(f"speech recognition failed with {kind} on the turn {span}, which is sound audio")


def nearer(samples: Samples) -> Samples:
    """Bring a turn (n_samples,) to FAR_LEVEL_DB, as far as LARGEST_GAIN_DB and full scale allow; it never gets softer.

    What is silence to a recogniser stays as it is.
    """
    peak = float(np.max(np.abs(samples), initial=0.0))
    if peak < SILENCE_PEAK:
        return samples
    gain_db = min(FAR_LEVEL_DB - level_db(samples), LARGEST_GAIN_DB, -20 * math.log10(peak))
    return samples * np.float32(10 ** (max(0.0, gain_db) / 20))


def split_at_pauses(samples: Samples) -> list[Span]:
    """Cut a turn (n_samples,) into pieces of at most MAX_PIECE that cover it without gap or overlap.

    A cut lies in the middle of the quietest 0.2 s in the last third of what a piece could hold at most, so it depends
    on nothing but the turn's samples.
    """
    pieces: list[Span] = []
    start = 0
    while len(samples) - start > MAX_PIECE:
        end = start + _quietest(samples[start : start + MAX_PIECE])
        pieces.append(Span(start, end))
        start = end
    return [*pieces, Span(start, len(samples))]


def _quietest(window: Samples) -> int:
    """Return the middle of the quietest 0.2 s in the last third of a window, in samples from the window's start."""
    first = len(window) * 2 // 3 // _PAUSE_GRID
    cells = window[first * _PAUSE_GRID :]
    cells = cells[: len(cells) // _PAUSE_GRID * _PAUSE_GRID].reshape(-1, _PAUSE_GRID)
    energy = np.sum(cells.astype(np.float64) ** 2, axis=1)
    place = int(np.argmin(np.convolve(energy, np.ones(_PAUSE_CELLS), mode="valid")))
    return (first + place + _PAUSE_CELLS // 2) * _PAUSE_GRID


def is_invented(heard: Recognition) -> bool:
    """Tell whether a text is none, such as "...", or one that the recogniser doubts where it heard no speech.

    That is where "Thank you for watching!" comes from.
    """
    doubted = heard.no_speech > NO_SPEECH_PROBABILITY and heard.log_probability < LOW_LOG_PROBABILITY
    return doubted or not any(map(str.isalnum, heard.text))


def compression_ratio(text: str) -> float:
    """Return how far zlib shrinks a text; above HIGH_COMPRESSION_RATIO it repeats itself, down to within a word."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def loop_limit(length: int) -> int:
    """Return from how many repetitions in a row a phrase of so many words counts as a loop of the recogniser.

    People do say "no no no no", read "seven seven seven seven" and count "one two, one two, one two"; Whisper, once in
    a loop, goes on for as long as it may. So the shorter the phrase, the more often it may come.
    """
    return {1: 8, 2: 5}.get(length, 4 if length <= 6 else 3)


_LONGEST_LOOP: Final = 20
"""Words in the longest phrase that is looked for: a sentence."""


def collapse_loops(words: Sequence[RecognisedWord]) -> tuple[list[RecognisedWord], bool]:
    """Keep one occurrence of a phrase that is repeated without end, and tell whether there was one.

    Case and punctuation do not matter. A last repetition that breaks off at the end goes too.
    """
    keys = [_key(word.text) for word in words]
    kept: list[RecognisedWord] = []
    index = 0
    while index < len(words):
        length, end = _loop_at(keys, index)
        kept.extend(words[index : index + length])
        index = end
    return kept, len(kept) < len(words)


def _loop_at(keys: Sequence[str], index: int) -> tuple[int, int]:
    """Return the length of the phrase at index and where to go on; (1, index + 1) without a loop."""
    for length in range(1, min(_LONGEST_LOOP, len(keys) - index) + 1):
        end = index + length
        while end < len(keys) and keys[end] == keys[end - length]:
            end += 1
        if (end - index) // length >= loop_limit(length):
            return length, end if end == len(keys) else end - (end - index) % length
    return 1, index + 1


def _key(text: str) -> str:
    """Return a word without case and punctuation; punctuation that stands alone stays."""
    return "".join(filter(str.isalnum, text.casefold())) or text.strip()


def _in_turn(heard: Recognition, piece: Span) -> list[RecognisedWord]:
    """Return the words of a piece in its turn's time."""
    return [_shift(word, piece) for word in _whole(heard.words or _spread(heard.text, len(piece)))]


SAME_TIME: Final = seconds(0.3)
"""A word that two utterances have is one if its middles are no further apart: about a word's length."""


def each_once(utterances: Sequence[Utterance]) -> list[Utterance]:
    """Return utterances without the words that a better one, which lies over it, has at the same time.

    Of two sources the softer one may hold some of the other's voice, and a recogniser finds words in little. A word is
    the main speaker's, if that is one of the two; else it is where the recogniser was more certain. Utterances of turns
    that do not lie over each other, as without separation, stay as they are: people do say a word twice.
    """
    told: dict[tuple[str, int], list[tuple[Span, int]]] = {}
    kept: dict[int, Utterance] = {}
    for index in sorted(range(len(utterances)), key=lambda index: _rank(utterances[index])):
        utterance = utterances[index]
        words = [word for word in utterance.words if not _is_told(word, utterance.span, told)]
        for word in words:
            told.setdefault((_key(word.text), _middle(word) // SAME_TIME), []).append((utterance.span, _middle(word)))
        if len(words) == len(utterance.words):
            kept[index] = utterance
        elif words:
            space = " " if " " in utterance.text else ""  # some languages have none
            kept[index] = replace(utterance, words=tuple(words), text=space.join(word.text for word in words))
    return [kept[index] for index in sorted(kept)]


def _rank(utterance: Utterance) -> tuple[bool, float]:
    """Return what puts an utterance before others that are less sure to have said the same word."""
    certain = sum(word.probability for word in utterance.words) / max(1, len(utterance.words))
    return utterance.admission.reason is not AdmitReason.MAIN_SPEAKER, -certain


def _is_told(word: Word, span: Span, told: Mapping[tuple[str, int], Sequence[tuple[Span, int]]]) -> bool:
    """Tell whether an utterance that lies over this span has told a word at its time.

    What was told is known by the word and by how many times SAME_TIME lie before its middle: a long recording holds
    the same word very often.
    """
    key, middle = _key(word.text), _middle(word)
    place = middle // SAME_TIME
    near = [one for step in (place - 1, place, place + 1) for one in told.get((key, step), ())]
    return any(other.overlaps(span) and abs(when - middle) <= SAME_TIME for other, when in near)


def _middle(word: Word) -> int:
    return (word.span.start + word.span.end) // 2


def _spread(text: str, length: int) -> tuple[RecognisedWord, ...]:
    """Give the words of a text without times equal shares of a piece of so many samples."""
    words = text.split()
    times = [length * index // len(words) for index in range(len(words) + 1)] if words else []
    return tuple(
        RecognisedWord(start, end, f" {word}", 1.0)
        for word, start, end in zip(words, times[:-1], times[1:], strict=True)
    )


def _whole(words: Sequence[RecognisedWord]) -> list[RecognisedWord]:
    """Join what starts with neither a space nor a letter to the word before it: "follow" + "-up", "9" + ".40"."""
    joined: list[RecognisedWord] = []
    for word in words:
        if joined and word.text and not word.text[0].isspace() and not word.text[0].isalnum():
            before = joined[-1]
            probability = min(before.probability, word.probability)
            joined[-1] = replace(before, end=word.end, text=before.text + word.text, probability=probability)
        elif word.text.strip():
            joined.append(word)
    return joined


def _shift(word: RecognisedWord, piece: Span) -> RecognisedWord:
    """Move a word from its piece's time to its turn's, inside the piece."""
    start = min(max(word.start, 0), len(piece) - 1) + piece.start
    end = min(word.end, len(piece)) + piece.start
    # The first word of a piece is apart from the last one of the piece before.
    return replace(word, start=start, end=end, text=word.text if piece.start == 0 else _spaced(word.text))


def _spaced(text: str) -> str:
    return text if text[:1].isspace() else f" {text}"


def join(words: Sequence[RecognisedWord]) -> str:
    """Return the words as one line of text with single spaces."""
    return " ".join("".join(word.text for word in words).split())


def place(words: Sequence[RecognisedWord], turn: Span) -> tuple[Word, ...]:
    """Put words into the recording's time: inside the turn, none empty, starts and ends never going back."""
    placed: list[Word] = []
    start, end = turn.start, turn.start
    for word in words:
        start = min(max(turn.start + word.start, start), turn.end - 1)
        end = min(max(turn.start + word.end, start + 1, end), turn.end)
        placed.append(Word(Span(start, end), " ".join(word.text.split()), word.probability))
    return tuple(placed)
