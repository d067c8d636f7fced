"""Speech in a code that fakes can truly read: each speaker is a pitch, each word a tone above it.

A canary is a word that only a bystander says. The fakes are as good as models get: whoever hears the samples hears the
words, and whoever hears the pitch knows the speaker. So if a bystander's audio reaches a recogniser, its words come
out; and nothing but the gate keeps it from there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import soundfile

from cascade.answering.chat import Sampling, chat_request, load_prompts
from cascade.answering.questions import Answerer
from cascade.asr import RecognisedWord, Recognition
from cascade.backends.extractive import ExtractiveAnswerer
from cascade.config import CascadeConfig
from cascade.diarization import Diarization, Stretch
from cascade.evidence import N_BANDS, Judge, Observation
from cascade.foreground import WINDOW, Network, Spectra, to_samples, to_spectra
from cascade.packaged import data_folder
from cascade.pipeline import Cascade, StageLoader, load_stages
from cascade.settings import (
    AnswererSettings,
    ExtractiveSettings,
    FasterWhisperSettings,
    ForegroundSettings,
    MainSpeakerSettings,
    OnlineClusteringSettings,
    OpenAISettings,
    PyannoteSettings,
    SepFormerSettings,
    StageMaker,
    StreamSettings,
    WhisperSettings,
)
from cascade.stage import Chain
from cascade.types import (
    SAMPLE_RATE,
    Answer,
    AudioChunk,
    Mode,
    Outcome,
    Question,
    Samples,
    Span,
    SpeakerTurn,
    Transcript,
    Vector,
    seconds,
)

MAIN: Final = "main"
PITCHES: Final = {MAIN: 200, "neighbour": 500, "caller": 800}
"""Hz; well apart, and far below the words."""

LEVELS: Final = {MAIN: 0.3, "neighbour": 0.1, "caller": 0.08}

_MAINS: Final = "train boston nine platform tickets eighty jacket ferry station harbor dinner camera monday"
_BYSTANDERS: Final = "biopsy kidney tumor cancer insurance surgery account chemotherapy lawyer divorce debt password"
_ENROLLED: Final = "cherry street bicycle twelve garden summer"
WORDS: Final = ("um", *_MAINS.split(), *_BYSTANDERS.split(), *_ENROLLED.split())
"""A word's tone has 2000 Hz and 100 Hz for each place in this list."""

FILLER: Final = "um"
"""What is said at a border without a pause: which hop of a tenth of a second a border falls on, no gate can know."""

TONE_S: Final = 0.25
SLOT_S: Final = 0.3
_FRAME: Final = 800
_STEP: Final = 400
_LEAST_FRAMES: Final = 4
"""Half of a word is enough to understand it."""


@dataclass(frozen=True)
class Said:
    """Who says what from when on, a word every SLOT_S."""

    speaker: str
    start_s: float
    text: str

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.text.split())

    @property
    def span(self) -> Span:
        return Span(seconds(self.start_s), seconds(self.start_s + SLOT_S * len(self.words)))


@dataclass(frozen=True)
class Scene:
    """A recording in which it is known who says what; audio is (n_samples,)."""

    said: tuple[Said, ...]
    seed: int = 1

    @cached_property
    def audio(self) -> Samples:
        length = max(said.span.end for said in self.said) + SAMPLE_RATE
        # The noise makes every stretch unlike every other, so that it can be recognised wherever it turns up.
        audio = np.random.default_rng(self.seed).normal(0, 0.001, length)
        for said in self.said:
            for place, word in enumerate(said.words):
                start = said.span.start + seconds(SLOT_S * place)
                tone = spoken(said.speaker, word)
                audio[start : start + len(tone)] += tone
        return audio.astype(np.float32)

    @property
    def canaries(self) -> frozenset[str]:
        """Words that nobody may ever see."""
        return frozenset(word for said in self.said if said.speaker != MAIN for word in said.words) - {FILLER}

    @property
    def main_words(self) -> list[str]:
        return [word for said in self.said if said.speaker == MAIN for word in said.words if word != FILLER]

    @cached_property
    def traces(self) -> tuple[bytes, ...]:
        """What bystander audio looks like in bytes: as float32, as float64 and as 16 bit."""
        pieces = [self.audio[start : start + 16] for span in self._bystander_words() for start in _starts(span)]
        pcm = [np.round(piece * 32767).astype(np.int16).tobytes() for piece in pieces]
        return (*(piece.tobytes() for piece in pieces), *(piece.astype(np.float64).tobytes() for piece in pieces), *pcm)

    @cached_property
    def printed(self) -> frozenset[tuple[str, str, str]]:
        """What bystander audio looks like in digits: each three samples in a row, to five of them."""
        shown = [[f"{sample:.4e}" for sample in self.audio[span.start : span.end]] for span in self._bystander_words()]
        return frozenset(triple for row in shown for triple in zip(row, row[1:], row[2:], strict=False))

    def _bystander_words(self) -> Iterator[Span]:
        for said in self.said:
            for place, word in enumerate(said.words):
                if said.speaker != MAIN and word != FILLER:
                    start = said.span.start + seconds(SLOT_S * place)
                    yield Span(start, start + seconds(TONE_S))

    def leaks(self, data: bytes | str) -> list[str]:
        """Return which canaries, and how many stretches of bystander audio, are in what somebody got to see."""
        seen = data.encode(errors="replace") if isinstance(data, str) else data
        lower = seen.lower()
        words = [word for word in sorted(self.canaries) if word.encode() in lower]
        numbers = [f"{float(number):.4e}" for number in re.findall(rb"-?\d+\.\d{4,}(?:e[+-]?\d+)?", seen)]
        stretches = sum(trace in seen for trace in self.traces)
        stretches += len(self.printed.intersection(zip(numbers, numbers[1:], numbers[2:], strict=False)))
        return words + ([f"{stretches} stretches of audio"] if stretches else [])

    def chunks(self, duration_s: float = 0.5) -> Iterator[AudioChunk]:
        """Yield the recording as it arrives."""
        step = seconds(duration_s)
        for start in range(0, len(self.audio), step):
            samples = self.audio[start : start + step]
            yield AudioChunk(Span(start, start + len(samples)), samples)

    def write(self, path: Path) -> Path:
        """Write the recording, exact to the bit."""
        soundfile.write(path, self.audio, SAMPLE_RATE, subtype="FLOAT")
        return path


def spoken(speaker: str, word: str) -> Samples:
    """Return a word in somebody's voice, (n_samples,)."""
    time_s = np.arange(seconds(TONE_S)) / SAMPLE_RATE
    fade = np.minimum(1, np.minimum(time_s, TONE_S - time_s) / 0.01)
    pitch = np.sin(2 * np.pi * PITCHES[speaker] * time_s)
    tone = np.sin(2 * np.pi * (2000 + 100 * WORDS.index(word)) * time_s)
    return np.asarray(LEVELS[speaker] * fade * (pitch + 0.7 * tone) / 1.7, np.float32)


def _starts(span: Span) -> range:
    return range(span.start, span.end - 16, 160)


SCENE: Final = Scene(
    (
        Said(MAIN, 0.5, "train boston nine platform tickets eighty jacket ferry"),
        Said("neighbour", 3.6, "biopsy kidney tumor cancer insurance surgery account"),
        Said(MAIN, 6.4, "station harbor dinner camera monday"),
        Said("caller", 8.6, "lawyer divorce debt password"),
        Said(MAIN, 10.5, "train nine boston eighty ferry jacket um um"),
        Said("neighbour", 12.9, "um um um chemotherapy biopsy kidney um um um"),
        Said(MAIN, 15.6, "um um harbor dinner tickets platform"),
        Said("neighbour", 18.2, "account insurance surgery tumor cancer biopsy kidney chemotherapy"),
        Said(MAIN, 21.4, "camera monday station"),
    )
)
ENROLMENT: Final = Scene((Said(MAIN, 0.3, "cherry street bicycle twelve garden summer " * 3),), seed=2)
TALKED_OVER: Final = Scene(
    (
        Said(MAIN, 0.5, "train boston nine platform tickets eighty jacket ferry"),
        Said("neighbour", 1.4, "biopsy kidney tumor"),
        Said("neighbour", 3.5, "cancer insurance surgery account"),
        Said(MAIN, 5.3, "station harbor dinner camera monday train boston nine"),
        Said("caller", 6.2, "lawyer divorce debt"),
    ),
    seed=4,
)
"""A bystander speaks under the main speaker, twice, so that a source can hold what the mixture drowns."""

BYSTANDERS_ONLY: Final = Scene(
    (
        Said("neighbour", 0.5, "biopsy kidney tumor cancer insurance surgery account " * 3),
        Said("caller", 8.0, "lawyer divorce debt password"),
    ),
    seed=3,
)


# --- models -----------------------------------------------------------------------------------------------------------


def detect(frame: Samples) -> float:
    """Tell speech by its energy."""
    return float(np.sqrt(np.mean(frame.astype(np.float64) ** 2)) > 0.008)


@dataclass(frozen=True)
class PitchEncoder:
    """An encoder that knows a voice by its pitch, and nothing else; embeddings are (256,)."""

    window: int = 3200

    def __call__(self, samples: Samples, /) -> Vector:
        spectrum = np.abs(np.fft.rfft(samples))[: 1000 // 5]
        embedding = np.full(256, np.nan, np.float32)
        if spectrum.max() > 5:  # 0.003 of full scale
            embedding = np.zeros(256, np.float32)
            embedding[round(int(spectrum.argmax()) / 20)] = 1
        return embedding


PITCH_FRAME: Final = 400
"""Samples in which a pitch is told: five periods of the lowest one."""

AUDIBLE: Final = 0.01
"""Amplitude of a pitch that is somebody speaking; the softest speaker's is four times that, the noise's a tenth."""


def pitches(samples: Samples) -> Any:
    """Return how loud each speaker's pitch is in each frame, (n_frames, n_speakers); the last frame is padded."""
    padded = np.pad(samples.astype(np.float64), (0, -len(samples) % PITCH_FRAME))
    window = np.hanning(PITCH_FRAME)
    cycles = np.outer(np.arange(PITCH_FRAME), list(PITCHES.values())) / SAMPLE_RATE
    waves = np.exp(-2j * np.pi * cycles) * window[:, None]
    return 2 * np.abs(padded.reshape(-1, PITCH_FRAME) @ waves) / window.sum()


def separate(windows: Samples) -> Samples:
    """Separate windows (n_windows, n_samples) truly: the main speaker's frames are source 0, everybody else's source 1.

    The sources (n_windows, 2, n_samples) add up to the window. Where two speak at once, the louder one has the frame.
    """
    n_samples = windows.shape[1]
    loudest = np.stack([pitches(window).argmax(axis=1) for window in windows])
    mine = np.repeat(loudest == list(PITCHES).index(MAIN), PITCH_FRAME, axis=1)[:, :n_samples]
    return np.stack([windows * mine, windows * ~mine], axis=1).astype(np.float32)


@dataclass(frozen=True)
class Parted:
    """A separation model that knows a scene: the main speaker is source 0, all else source 1, and both add up to it.

    With `swaps` they are the wrong way round wherever a bystander speaks under the main speaker. What is not of the
    scene, such as an enrolment, is separated by its pitch. A window may begin at each multiple of the step, have
    silence around what is of the scene, and be at another level.
    """

    scene: Scene
    step: int = seconds(0.5)
    swaps: bool = False

    def __call__(self, windows: Samples, /) -> Samples:
        return np.stack([self._of(window) for window in windows])

    def _of(self, window: Samples) -> Samples:
        size = len(window)
        whole = np.concatenate([self.scene.audio[None], self._sources]).astype(np.float64)
        around = np.pad(whole, ((0, 0), (size, size)))
        for start in range(self.step, size + whole.shape[1], self.step):
            heard, *sources = around[:, start : start + size]
            gain = (window @ heard) / max(heard @ heard, 1e-9)
            if np.square(window - gain * heard).sum() < 1e-6 * np.square(window, dtype=np.float64).sum():
                return np.asarray(gain * np.stack(sources), np.float32)
        return np.asarray(separate(window[None])[0], np.float32)

    @cached_property
    def _sources(self) -> Samples:
        main = np.zeros_like(self.scene.audio)
        for said in self.scene.said:
            for place, word in enumerate(said.words if said.speaker == MAIN else ()):
                tone = spoken(MAIN, word)
                start = said.span.start + seconds(SLOT_S * place)
                main[start : start + len(tone)] += tone
        sources = np.stack([main, self.scene.audio - main])
        for span in self.under_main if self.swaps else ():
            sources[:, span.start : span.end] = sources[::-1, span.start : span.end].copy()
        return sources.astype(np.float32)

    @property
    def under_main(self) -> list[Span]:
        """Where a bystander speaks while the main speaker does."""
        mine = [said.span for said in self.scene.said if said.speaker == MAIN]
        return [
            said.span & span for said in self.scene.said if said.speaker != MAIN for span in mine if said.span & span
        ]


def in_spectra(separate: Callable[[Samples], Samples]) -> Network:
    """Return the network of foreground and background that gives what a separation model does, and in its order."""

    def network(spectra: Spectra) -> Spectra:
        (sources,) = separate(to_samples(spectra, WINDOW))
        return np.stack([to_spectra(source) for source in sources], axis=1)

    return network


def separate_nothing(windows: Samples) -> Samples:
    """Give everything to both sources, more of it to the first."""
    return np.stack([windows * np.float32(0.75), windows * np.float32(0.25)], axis=1)


@dataclass(frozen=True)
class PitchDiarization:
    """A DiarizationModel that knows all speakers by their pitch, and has their embeddings from an encoder."""

    encode: Any = field(default_factory=PitchEncoder)

    def __call__(self, samples: Samples, /) -> Diarization:
        loudness = pitches(samples)
        names = [f"speaker_{number}" for number in range(1, len(PITCHES) + 1)]
        best = loudness.max(axis=1, keepdims=True)
        turns = self._stretches((loudness == best) & (best > AUDIBLE), names, len(samples))
        speech = self._stretches(loudness > AUDIBLE, names, len(samples))
        longest = {name: max((s for s, n in turns if n == name), key=len) for name in {n for _, n in turns}}
        voices = {name: self._voice(samples[span.start : span.end]) for name, span in longest.items()}
        return Diarization(turns, speech, voices)

    @staticmethod
    def _stretches(speaks: Any, names: Sequence[str], n_samples: int) -> list[Stretch]:
        """Return who speaks where, from frames (n_frames, n_speakers), in time order."""
        found = []
        for name, row in zip(names, speaks.T, strict=True):
            edges = np.flatnonzero(np.diff(row.astype(int), prepend=0, append=0)) * PITCH_FRAME
            pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
            found += [Stretch(Span(start, min(end, n_samples)), name) for start, end in pairs]
        return sorted(found)

    def _voice(self, samples: Samples) -> Vector:
        size = self.encode.window
        voice: Vector = self.encode(np.pad(samples, (0, max(0, size - len(samples))))[:size])
        return voice


def judge(turn: SpeakerTurn, seen: Observation) -> Vector:
    """Judge each frame by its voice alone: its window's similarity to the main speaker is taken for a probability."""
    similarities = seen.features[seen.before : seen.before + seen.n_frames, N_BANDS + 1]
    return np.asarray(np.clip(similarities, 0, 1), np.float32)


def decode(samples: Samples) -> list[tuple[str, int, int]]:
    """Return the words in samples with their start and end; half of a word is enough."""
    frames = [samples[start : start + _FRAME] for start in range(0, len(samples) - _FRAME + 1, _STEP)]
    heard = [_word_in(frame) for frame in frames] + [None]
    words, start = [], 0
    for place, word in enumerate(heard):
        if word == heard[start]:
            continue
        if heard[start] is not None and place - start >= _LEAST_FRAMES:
            words.append((str(heard[start]), start * _STEP, (place - 1) * _STEP + _FRAME))
        start = place
    return words


def _word_in(frame: Samples) -> str | None:
    tones = np.abs(np.fft.rfft(frame * np.hanning(_FRAME)))[100 : 100 + 5 * len(WORDS) : 5]
    place = int(tones.argmax())
    return WORDS[place] if tones[place] > 2 else None  # 0.01 of full scale


@dataclass
class Recogniser:
    """Reads the code, and keeps what it was given to read."""

    given: list[bytes] = field(default_factory=list)

    def __call__(self, samples: Samples, /) -> Recognition:
        self.given.append(samples.tobytes())
        found = decode(samples)
        words = tuple(RecognisedWord(start, end, f" {word}", 0.9) for word, start, end in found)
        return Recognition(" ".join(word for word, _, _ in found), words)


def embed(texts: Sequence[str]) -> Any:
    """Return a vector for each text (n_texts, 64): which of the words it holds."""
    vectors = np.full((len(texts), 64), 0.01)
    for row, text in zip(vectors, texts, strict=True):
        for word in text.lower().split():
            row[WORDS.index(word) if word in WORDS else 63] += 1
    return vectors


class Quoting:
    """Stands for a chat model: its answer is all that it was sent."""

    prompts = load_prompts(data_folder("configs") / "prompts")

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        request = chat_request(question, transcript, model="gpt-4o", prompts=self.prompts, sampling=Sampling())
        return Answer("\n".join(message["content"] for message in request["messages"]), Outcome.ANSWERED)


@dataclass
class Models:
    """All the models of a cascade, as fakes; diarize is made around encode if it is None."""

    detect: Callable[[Samples], float] = detect
    encode: Any = field(default_factory=PitchEncoder)
    judge: Judge = judge
    recognise: Recogniser = field(default_factory=Recogniser)
    separate: Callable[[Samples], Samples] = separate
    diarize: Callable[[Samples], Diarization] | None = None

    def load(self, settings: StreamSettings, before: Callable[[], Chain]) -> StageMaker:
        """Make the stage that these settings describe around a fake; a StageLoader."""
        if isinstance(settings, OnlineClusteringSettings):
            return settings.around(lambda: self.detect, self.encode)
        if isinstance(settings, FasterWhisperSettings | WhisperSettings):
            return settings.around(self.recognise)
        if isinstance(settings, SepFormerSettings):
            return settings.around(self.separate, SAMPLE_RATE, 2, self.encode)
        if isinstance(settings, ForegroundSettings):
            return settings.around(in_spectra(self.separate), lambda: self.detect)
        if isinstance(settings, PyannoteSettings):
            return settings.around(self.diarize or PitchDiarization(self.encode))
        if isinstance(settings, MainSpeakerSettings):
            return settings.around(self.judge, before, self.encode)
        if settings.use in ("mixture", "loudest_source", "everyone"):
            return settings.load(before)  # there is no model in it
        raise NotImplementedError(f"tests/canary.py has no fake for 'use: {settings.use}': add one that reads the code")

    @staticmethod
    def answerer(settings: AnswererSettings | None) -> Answerer | None:
        """Return the answerer that these settings describe."""
        if settings is None:
            return None
        if isinstance(settings, ExtractiveSettings):
            return ExtractiveAnswerer(embed, threshold=settings.threshold)
        if isinstance(settings, OpenAISettings):
            return Quoting()
        raise NotImplementedError(
            f"tests/canary.py has no fake for 'use: {settings.use}': add one that quotes all it sees"
        )


def cascade_of(
    config: CascadeConfig, models: Models, mode: Mode = Mode.SELECTIVE, load: StageLoader | None = None
) -> Cascade:
    """Return the cascade of a configuration around fakes."""
    stages = load_stages(config, mode, load or models.load)
    return Cascade(stages, models.answerer(config.answerer), mode=mode)


# --- what leaves the process ------------------------------------------------------------------------------------------


@dataclass
class Doings:
    """What was done to the world outside while it was watched: sockets, files opened for writing, programs started.

    port is where a server on this machine may be reached; that is noted in served, not in sockets.
    """

    sockets: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    port: int | None = None
    served: int = 0

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take one of Python's audit events (docs.python.org/3/library/audit_events.html)."""
        if event.startswith("socket."):
            if self._may(event, arguments):
                self.served += event == "socket.connect"
                return
            self.sockets.append(event)
            raise ConnectionError(f"{event} while nothing may reach the network")
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            self.programs.append(str(arguments[0]))
        elif (event == "open" and _writes(arguments)) or event in (
            "os.mkdir",
            "os.rename",
            "os.link",
            "os.symlink",
            "os.truncate",
        ):
            self.writes.append(str(arguments[0]))

    def _may(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Tell whether this only serves to reach the server."""
        if self.port is None:
            return False
        # urllib3, when imported, asks by a socket that it binds to ::1 whether there is IPv6.
        harmless = event == "socket.__new__" or (event == "socket.bind" and arguments[1] == ("::1", 0))
        address = arguments[1] if event == "socket.connect" else arguments[:2]
        return harmless or (
            event in ("socket.connect", "socket.getaddrinfo") and address[:2] == ("127.0.0.1", self.port)
        )


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, mode, flags = arguments
    if isinstance(path, int):
        return False  # it was opened, and noted, before
    return bool(set(mode or "") & set("wax+")) or bool((flags or 0) & 0o3)


_watching: list[Doings] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    for doings in _watching:
        doings.note(event, arguments)


sys.addaudithook(_audit)


@contextmanager
def watched(port: int | None = None) -> Iterator[Doings]:
    """Watch what is done in a block; every socket is refused, but to this port of this machine if one is given."""
    doings = Doings(port=port)
    _watching.append(doings)
    try:
        yield doings
    finally:
        _watching.remove(doings)


def files_in(folder: Path) -> bytes:
    """Return the names and contents of all files under a folder."""
    paths = sorted(folder.rglob("*"))
    return b"\0".join(str(path).encode() + (path.read_bytes() if path.is_file() else b"") for path in paths)
