"""The extractive answerer: it points at the sentence that holds the answer, or says that none does.

Words are compared twice: by static embeddings (WordLlama, numpy only) and by their stems, with numbers brought to
digits, since recognisers write "9:40" and "$80" where people say "nine forty" and "eighty dollars". It invents nothing,
and the same question and transcript give the same answer.

For each option, the evidence is the best of all windows of one, two or three sentences:

    match     half the cosine of (question + option) and the window, half the share of the option's words in the window
    evidence  match x (1 - QUESTION_WEIGHT + QUESTION_WEIGHT x cosine of the question and the window)

"I don't know" has the evidence `threshold`, or `general_threshold` where nobody was withheld: there a question about
the recording has its answer, if need be in words that were misheard. A softmax over all of it gives the probabilities.

An open question is answered by the sentence with the highest half cosine, half share of the question's words, plus a
little if it holds the kind of thing that is asked for, a time or a number.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.answering.questions import DONT_KNOW_TEXT, outcome_of
from cascade.backends.packages import package_file
from cascade.errors import BackendError
from cascade.types import Answer, Outcome, Question, Transcript

# How these were chosen. COSINE_WEIGHT: by a prototype on 30 scenes. QUESTION_WEIGHT is not tuned: from 0 to 0.5 the
# results hardly differ. THRESHOLD and TEMPERATURE: the least negative log-likelihood of the right options, over the
# questions of 8 two-speaker scenes with perfect transcripts, in both modes with one threshold; `python
# benchmarks/answering.py SCENES_DIR` fits them to the selective mode alone, also with each scene left out of the fit,
# and prints both (0.37 to 0.41, the same answers). GENERAL_THRESHOLD: it prints for several how many questions are
# answered, and how many about another recording, which nothing in this one answers, are declined, at 0.2 three of
# four. It was chosen with the results on heard transcripts of these scenes and of the small benchmark in view.
# OPEN_THRESHOLD and KIND_BONUS: the same questions without their options, in-sample. The bonus finds 77 of 120
# answers instead of 74; at the threshold 53 % get the right sentence and 24 % a wrong one, and 39 of 40 questions
# about what was withheld get "I don't know".
COSINE_WEIGHT: Final = 0.5
QUESTION_WEIGHT: Final = 0.3
THRESHOLD: Final = 0.34
GENERAL_THRESHOLD: Final = 0.2
TEMPERATURE: Final = 0.03
OPEN_THRESHOLD: Final = 0.28
KIND_BONUS: Final = 0.05

WINDOW_SENTENCES: Final = 3
"""Longest run of sentences that is looked at as one."""

LONGEST_SENTENCE: Final = 40
"""Words; what a recogniser wrote without full stops is cut after that many."""

Embed = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
"""Texts -> (n_texts, dim); must bear being called from several threads."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Passages:
    """What a transcript says, ready to be compared: texts, unit vectors (n_texts, dim), content words."""

    texts: tuple[str, ...]
    vectors: Floats
    words: tuple[frozenset[str], ...]
    n_sentences: int
    """The first so many are single sentences; longer windows follow."""

    def similarity(self, vectors: Floats) -> Floats:
        """Return the cosines of vectors (n, dim) with each passage, (n, n_texts)."""
        return np.asarray(vectors @ self.vectors.T, np.float64)

    def share(self, wanted: frozenset[str]) -> Floats:
        """Return the share of the wanted words that each passage holds, (n_texts,)."""
        return np.array([len(wanted & words) / max(1, len(wanted)) for words in self.words])


class ExtractiveAnswerer:
    """An Answerer without a language model; safe to share between threads.

    It keeps the vectors of the last transcript, so that ten questions about one recording cost one embedding of it.
    """

    def __init__(
        self,
        embed: Embed,
        *,
        threshold: float = THRESHOLD,
        general_threshold: float = GENERAL_THRESHOLD,
        temperature: float = TEMPERATURE,
    ) -> None:
        self._embed = embed
        self._threshold, self._general_threshold = threshold, general_threshold
        self._temperature = temperature
        self._lock = Lock()
        self._last: tuple[Transcript, _Passages] | None = None

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        """Choose an option, or point at a sentence; `why` is what it rests on, and empty where nothing is known.

        Without an option for "I don't know" the best one is chosen, unless the transcript holds no words at all.

        Raises:
            BackendError: The embedding gave something that is not one finite vector a text.
        """
        passages = self._passages(transcript)
        if not question.options:
            return self._point(question, passages)
        return self._choose(question, passages, self._threshold_for(transcript))

    def evidence(self, question: Question, transcript: Transcript) -> tuple[float, ...]:
        """Return how much speaks for each option, as the module's text defines; the threshold for "I don't know"."""
        evidence = self._evidence(question, self._passages(transcript), self._threshold_for(transcript))
        return tuple(evidence.max(axis=1, initial=0.0).tolist())

    def _threshold_for(self, transcript: Transcript) -> float:
        """Return the evidence of "I don't know"."""
        return self._general_threshold if transcript.is_of_everyone else self._threshold

    def _choose(self, question: Question, passages: _Passages, threshold: float) -> Answer:
        """Answer a multiple-choice question."""
        evidence = self._evidence(question, passages, threshold)
        best = evidence.max(axis=1, initial=0.0)
        probabilities = tuple(_softmax(best / self._temperature).tolist())
        if question.dont_know is None and not passages.texts:
            return Answer(DONT_KNOW_TEXT, Outcome.DONT_KNOW, probabilities=probabilities)
        choice = int(best.argmax())
        known = outcome_of(question, choice) is Outcome.ANSWERED
        why = passages.texts[int(evidence[choice].argmax())] if known and passages.texts else ""
        return Answer(question.options[choice], outcome_of(question, choice), choice, why, probabilities)

    def _evidence(self, question: Question, passages: _Passages, threshold: float) -> Floats:
        """Return the evidence of each window for each option, (n_options, n_windows), at least one window."""
        asked = [question.text, *(f"{question.text} {option}" for option in question.options)]
        evidence = np.zeros((len(question.options), 1))
        if passages.texts:
            cosines = passages.similarity(self._unit_vectors(asked))
            shares = np.stack([passages.share(content_words(option)) for option in question.options])
            match = COSINE_WEIGHT * cosines[1:] + (1 - COSINE_WEIGHT) * shares
            evidence = match * (1 - QUESTION_WEIGHT + QUESTION_WEIGHT * cosines[0])
        if question.dont_know is not None:
            evidence[question.dont_know] = threshold
        return evidence

    def _point(self, question: Question, passages: _Passages) -> Answer:
        """Answer an open question with a sentence."""
        fits = self._fits(question, passages)
        best = int(fits.argmax()) if fits.size else -1
        if best < 0 or not fits[best] >= OPEN_THRESHOLD:
            return Answer(DONT_KNOW_TEXT, Outcome.DONT_KNOW)
        return Answer(passages.texts[best], Outcome.ANSWERED, why=passages.texts[best])

    def _fits(self, question: Question, passages: _Passages) -> Floats:
        """Return how well each sentence answers an open question, (n_sentences,)."""
        if not passages.texts:
            return np.zeros(0)
        cosines = passages.similarity(self._unit_vectors([question.text]))[0]
        fits = COSINE_WEIGHT * cosines + (1 - COSINE_WEIGHT) * passages.share(content_words(question.text))
        kind = _asked_kind(question.text)
        return np.array([fits[i] + KIND_BONUS * _holds(kind, passages.texts[i]) for i in range(passages.n_sentences)])

    def _passages(self, transcript: Transcript) -> _Passages:
        """Return the transcript's windows; those of the last one are kept."""
        with self._lock:
            if self._last is not None and self._last[0] is transcript:
                return self._last[1]
        sentences = [_sentences(text) for text in _running_texts(transcript)]
        texts = tuple(_windows(sentences))
        vectors = self._unit_vectors(texts) if texts else np.zeros((0, 0))
        passages = _Passages(texts, vectors, tuple(map(content_words, texts)), sum(map(len, sentences)))
        with self._lock:
            self._last = transcript, passages
        return passages

    def _unit_vectors(self, texts: Sequence[str]) -> Floats:
        """Embed texts; each vector (dim,) has unit norm, or is zero."""
        vectors = np.asarray(self._embed(texts), np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise BackendError(
                f"the embedding gave an array of shape {vectors.shape} for {len(texts)} texts; "
                "expected one finite vector a text"
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(norms, np.finfo(np.float32).tiny), np.float64)


def _softmax(logits: Floats) -> Floats:
    """Return probabilities (n,) that sum to 1."""
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum(), np.float64)


# --- sentences --------------------------------------------------------------------------------------------------------

_TITLES = "".join(rf"(?<!\b{title}\.)" for title in ("Mr", "Mrs", "Ms", "Dr", "St"))
_SENTENCE_END = re.compile(rf"{_TITLES}(?:(?<=[.!?…])|(?<=[.!?…][\"')\]]))\s+(?=[^a-z])")
"""A full stop, unless a small letter follows: a sentence that was cut in two by a turn's border is whole again."""


def _running_texts(transcript: Transcript) -> list[str]:
    """Return what each speaker said, as one text a speaker, in the order in which they first spoke."""
    said: dict[str, list[str]] = {}
    for utterance in transcript.utterances:
        said.setdefault(utterance.speaker, []).append(utterance.text)
    return [" ".join(" ".join(texts).split()) for texts in said.values()]


def _sentences(text: str) -> list[str]:
    """Cut a text at full stops, and at LONGEST_SENTENCE words where there are none."""
    cut = []
    for sentence in filter(None, _SENTENCE_END.split(text)):
        words = sentence.split()
        cut += [" ".join(words[start : start + LONGEST_SENTENCE]) for start in range(0, len(words), LONGEST_SENTENCE)]
    return cut


def _windows(speakers: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield each run of 1 to WINDOW_SENTENCES sentences of one speaker, the short ones first."""
    for size in range(1, WINDOW_SENTENCES + 1):
        for sentences in speakers:
            for start in range(len(sentences) - size + 1):
                yield " ".join(sentences[start : start + size])


# --- words ------------------------------------------------------------------------------------------------------------

_GRAMMAR = """
a an the this that these those and or but nor so if then than as at by for from in into of on onto to with without
about over under up down out off is am are was were be been being do does did doing have has had having will would
shall should can could may might must i you he she it we they me him her us them my your his its our their mine yours
hers ours theirs what which who whom whose when where why how not no there here just also very too i'm i've i'd i'll
you're you've you'd you'll he'd he'll she'd she'll it'll it'd we're we've we'd we'll they're they've they'd they'll
that'll there'd don't doesn't didn't isn't aren't wasn't weren't won't wouldn't can't couldn't shouldn't hasn't
haven't hadn't
"""
_ABOUT_THE_RECORDING = "speaker speakers mention mentioned"
_FUNCTION_WORDS: Final = frozenset(f"{_GRAMMAR} {_ABOUT_THE_RECORDING}".split())
"""Words that say nothing about the content."""

_SUFFIXES: Final = ("ingly", "edly", "ings", "ing", "ied", "ies", "ers", "er", "ed", "es", "ly", "s", "e", "y")
_SHORTEST_STEM: Final = 3

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_IRREGULAR = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_CARDINALS: Final = {word: value for value, word in enumerate([*_ONES.split(), "eighteen", "nineteen"])} | {
    word: 10 * value for value, word in enumerate(_TENS.split(), 2)
}
_ORDINALS: Final = (
    {f"{word}th": value for word, value in _CARDINALS.items() if value > 12}
    | {f"{word[:-1]}ieth": value for word, value in _CARDINALS.items() if word.endswith("ty")}
    | {word: value for value, word in enumerate(_IRREGULAR.split(), 1)}
    | {"twice": 2, "thrice": 3}
)
_SCALES: Final = {"hundred": 100, "thousand": 1000, "million": 1_000_000}

_CURRENCIES: Final = {"$": "dollars", "£": "pounds", "€": "euros"}
_PRICE = re.compile(r"([$£€])\s?(\d[\d,]*(?:\.\d+)?)")
_DIGIT_GROUPS = re.compile(r"(?<=\d)[.,:](?=\d)")
_WORD = re.compile(r"\d+(?:st|nd|rd|th)?(?![a-z])|[^\W_]+(?:'[a-z]+)?|[.,;:!?]")


def content_words(text: str) -> frozenset[str]:
    """Return the stems and numbers that say what a text is about."""
    return frozenset(_stem(word) for word in _tokens(text) if word not in _FUNCTION_WORDS)


def _tokens(text: str) -> list[str]:
    """Return lower-case words; numbers are digits without separators: "nine forty", "9:40" and "9.40" are "940"."""
    text = text.lower().replace("’", "'").replace("-", " ").replace("%", " percent")
    text = _PRICE.sub(lambda price: f"{price[2]} {_CURRENCIES[price[1]]}", text)
    words = _WORD.findall(re.sub(r"'s\b", "", _DIGIT_GROUPS.sub("", text)))
    return [word for word in _in_digits(words) if word[0].isalnum()]


def _stem(word: str) -> str:
    """Cut a word's ending: rough, but the same for both sides of a comparison."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            return word.removesuffix(suffix)
    return word


def _in_digits(words: Iterable[str]) -> Iterator[str]:
    """Write runs of number words as digits: two four three -> 243, twenty sixth -> 26, two hundred and fifty -> 250."""
    run = _NumberRun()
    for word in words:
        if run.takes(word):
            continue
        yield from run.end()
        if not run.takes(word):
            yield word
    yield from run.end()


class _NumberRun:
    """Number words that belong together, as values that stand side by side."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._values: list[int] = []
        self._last = 0
        self._room = 0  # what follows is added to the last value if it is below this: "twenty" + "six"
        self._closed = False  # an ordinal ends the run

    def takes(self, word: str) -> bool:
        """Add a word if the run can go on with it."""
        if self._closed:
            return False
        if word in _CARDINALS or word in _ORDINALS:
            self._closed = word in _ORDINALS
            return self._add(_CARDINALS.get(word, _ORDINALS.get(word, 0)))
        if word[0].isdecimal():
            self._closed = not word.isdecimal()
            return self._append(int(re.sub(r"\D", "", word)))
        if word in _SCALES:
            return self._scale(_SCALES[word])
        if word == "oh":
            return bool(self._values) and self._append(0)
        return bool(self._values) and (word == "point" or (word == "and" and self._room >= min(_SCALES.values())))

    def end(self) -> Iterator[str]:
        """Yield the run's digits, if there are any, and begin anew."""
        if self._values:
            yield "".join(map(str, self._values))
        self._begin()

    def _add(self, value: int) -> bool:
        if not 0 < value < self._room or not self._values:
            return self._append(value, room=10 if value >= 20 else 0)
        self._values[-1] += value
        self._last, self._room = value, 10 if value >= 20 else 0
        return True

    def _append(self, value: int, *, room: int = 0) -> bool:
        self._values.append(value)
        self._last, self._room = value, room
        return True

    def _scale(self, scale: int) -> bool:
        if not self._values:
            return self._append(scale, room=scale)
        self._values[-1] += (scale - 1) * (self._last if scale == 100 else self._values[-1])
        self._room = scale
        return True


# --- what an open question asks for -----------------------------------------------------------------------------------

_ASKS_TIME = re.compile(r"\b(?:when|what time|(?:what|which) (?:date|day|month|year))\b")
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|long|old|far|often|big|tall)\b|\b(?:price|cost|number|amount|total)\b")
_NUMBER = re.compile(r"\b\d")
_TIME = re.compile(
    r"\b(?:\d+|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april|may|june|july|august|september|"
    r"october|november|december|today|tonight|tomorrow|yesterday|noon|midnight|"
    r"(?:morning|afternoon|evening|night|week|weekend|month|year)s?)\b"
)


def _asked_kind(question: str) -> re.Pattern[str] | None:
    """Return what an answer to the question would hold: a time, a number, or nothing that shows."""
    asked = question.lower()
    if _ASKS_TIME.search(asked):
        return _TIME
    return _NUMBER if _ASKS_NUMBER.search(asked) else None


def _holds(kind: re.Pattern[str] | None, text: str) -> bool:
    """Tell whether a text holds the kind of thing that is asked for."""
    return kind is not None and kind.search(" ".join(_tokens(text))) is not None


# --- the embedding ----------------------------------------------------------------------------------------------------


WORDLLAMA_FILES: Final = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
"""What the package ships: 256 numbers for each of 32,000 pieces of words (github.com/dleemiller/WordLlama)."""


def load(*, threshold: float = THRESHOLD, general_threshold: float = GENERAL_THRESHOLD) -> ExtractiveAnswerer:
    """Return the answerer on WordLlama's vectors, from the files that its package ships; nothing is downloaded.

    Raises:
        MissingExtraError: wordllama is not installed.
        ModelError: Its package lacks the files.
    """
    for inside in WORDLLAMA_FILES:
        file = package_file("wordllama", inside, extra="ondevice", distribution="wordllama")
    with _root_logger_kept():  # importing wordllama configures it
        from wordllama import WordLlama

        model = WordLlama.load(cache_dir=file.parents[1], disable_download=True)

    def embed(texts: Sequence[str]) -> NDArray[np.floating[Any]]:
        return np.asarray(model.embed(list(texts)), np.float32)

    return ExtractiveAnswerer(embed, threshold=threshold, general_threshold=general_threshold)


@contextmanager
def _root_logger_kept() -> Iterator[None]:
    """Undo what is done to the root logger within: this library leaves logging to the program that uses it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
