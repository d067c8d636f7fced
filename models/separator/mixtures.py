"""Draw what the separator learns from: a few seconds of somebody near a microphone, and of others further away.

    Speech + Rooms + Recipe -> draw_mixture -> Mixture (mixture, foreground, background)

Everything is drawn from the generator that is handed in. Levels are relative to the one near: the mixture is scaled as
the stage scales what it hears, by the loudest speech in the stream so far, which is mostly that of the main speaker.
What is neither foreground nor background in a mixture, noise and what clipping makes, is nobody's.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

BENCHMARKS: Final = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its programs find each other there, and this one finds them

from channels import TELEPHONE_HZ  # noqa: E402
from corpus import NOISES, SLOPES_DB, TELEVISION_HZ, Split, draw_weighted, read_index  # noqa: E402
from mixing import (  # noqa: E402
    Signal,
    band_pass,
    chords,
    from_db,
    hear,
    mains_hum,
    sloping_noise,
    soft_clip,
)

from cascade.audio import read_audio  # noqa: E402
from cascade.types import SAMPLE_RATE, Samples, seconds  # noqa: E402

HEARD_ALONE: Final = frozenset(
    [
        *("af_aoede", "af_alloy", "af_bella", "af_nicole", "af_river", "af_sky", "am_echo", "am_fenrir", "am_michael"),
        *("bf_alice", "bf_isabella", "bf_lily", "bm_george", "bm_lewis"),
    ]
)
"""Kokoro voices that speak in recordings for testing: in training and validation they are heard in blends only."""

ROUGH = 16  # a line is said by one of five speakers: faster and higher by ROUGH / n for each n of TEMPI
TEMPI: Final = (14, 15, 16, 17, 18)
PRE_ROLL: Final = seconds(0.5)  # what was said before a mixture begins, and echoes in it
BEGUN_S: Final = 3.0  # a mixture begins at most so far in somebody's sentence
ALONE_LEVEL: Final = 1e-4  # of a mixture in which nobody speaks
BABBLERS = 5
LOW_PASS_HZ: Final = (3000.0, 7000.0)
CLIP: Final = (0.25, 0.9)  # where it bends, as a share of the loudest sample
TILT: Final = 0.4  # how much a microphone may favour high or low tones, as the coefficient of its filter
RINGING: Final = seconds(0.02)  # after a click through a band

PCM: Final = (-32768, 32767)
Pcm: TypeAlias = npt.NDArray[np.int16]


Response: TypeAlias = npt.NDArray[np.float16]
"""What a room makes of a click, (n_taps,)."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """What the microphone hears, and each source as it hears it; all (n_samples,)."""

    mixture: Samples
    foreground: Samples
    background: Samples


# --- what there is to draw from -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    """What each voice says: lines (n_samples,) of one active-speech level, dry.

    A line said at another tempo is kept: this costs memory, up to TEMPI times that of the speech, and saves a third of
    the time that a mixture takes.
    """

    voices: Sequence[Sequence[Pcm]]
    hurried: dict[tuple[int, int], tuple[Pcm, Pcm]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How much there is in all."""
        return sum(len(line) for voice in self.voices for line in voice) / SAMPLE_RATE

    def at_tempo(self, line: Pcm, tempo: int) -> Pcm:
        """Speak a line (n_samples,) faster and higher, by ROUGH / tempo: (n_samples * tempo / ROUGH,)."""
        if tempo == ROUGH:
            return line
        kept = self.hurried.get((id(line), tempo))
        if kept is None:  # with the line itself, so that its id stays its own
            kept = self.hurried[id(line), tempo] = line, resample(line, tempo)
        return kept[1]

    def hurry(self) -> None:
        """Speak every line at every tempo, for workers to find: what they make themselves ends with them."""
        for voice in self.voices:
            for line in voice:
                for tempo in TEMPI:
                    self.at_tempo(line, tempo)


Known: TypeAlias = dict[Path, Pcm]
"""Lines that were read already, by file."""


def read_speech(corpora: Sequence[Path], split: Split, known: Known | None = None) -> Speech:
    """Read a split of some banks that corpus.py or speech.py wrote, or are writing; what is known isn't read again.

    Raises:
        ValueError: There are no two voices.
        AudioError: A file can't be read.
    """
    known = {} if known is None else known
    voices: dict[str, list[Pcm]] = {}
    for corpus in corpora:
        for line in read_index(corpus / "speech" / f"{split}.jsonl"):
            if split != "test" and line.voice in HEARD_ALONE:
                continue
            path = corpus / line.file
            if path not in known:
                known[path] = np.round(read_audio(path) * PCM[1]).astype(np.int16)
            voices.setdefault(line.voice, []).append(known[path])
    if len(voices) < 2:
        raise ValueError(f"expected speech of two voices or more for {split}, got {len(voices)}: run speech.py first")
    return Speech(tuple(tuple(lines) for lines in voices.values()))


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """How rooms sound: near (n_rooms, n, n_taps), far (n_rooms, m, n_taps)."""

    near: npt.NDArray[np.float16]
    far: npt.NDArray[np.float16]


def read_rooms(folder: Path, split: Split) -> Rooms:
    """Read a split's rooms, as rooms.py writes them.

    Raises:
        ValueError: It isn't such a file, or there is no room in it.
        OSError: The file can't be read.
    """
    path = folder / f"{split}.npz"
    if not path.is_file():
        raise ValueError(f"there are no rooms for {split}, expected {path}: run rooms.py --out {folder} first")
    try:
        with np.load(io.BytesIO(path.read_bytes())) as rooms:
            near, far = rooms["near"], rooms["far"]
    except (ValueError, TypeError, KeyError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} isn't a file of rooms: {_ANEW}") from error
    if not (near.ndim == far.ndim == 3 and len(near) == len(far) and near.size and far.size):
        raise ValueError(f"{path} holds no rooms, near {near.shape} and far {far.shape}: {_ANEW}")
    return Rooms(near, far)


_ANEW: Final = "remove it, and run rooms.py, which makes it anew"


# --- how it is drawn ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recipe:
    """How often what is drawn, and bounds between which is drawn.

    Attributes:
        length: Of a mixture, in samples.
        absent: Share of mixtures without the one near.
        narrow: Share of those near who come through a telephone's band, as from a loudspeaker: a narrow band is no sign
            of distance.
        others: How many speak further away, and how often.
        level_db: How much softer they are than the one near.
        gaps: Share of them who say a sentence now and then; the others talk on.
        partly: Share of speakers who begin, or end, somewhere in the mixture.
        television: Share of them who come from a television.
        noise: Share of mixtures with one.
        snr_db: Of the one near over the noise.
        telephone, low_pass, clipped: Shares of mixtures that come through such a microphone.
        first: Share of mixtures with which a stream begins: nothing is known of the level.
        level_spread_db: How far the level known is from that of the one near, as a standard deviation.
    """

    length: int = seconds(4.0)
    absent: float = 0.08
    narrow: float = 0.12
    others: Mapping[int, float] = field(default_factory=lambda: {0: 0.08, 1: 0.65, 2: 0.18, 3: 0.09})
    level_db: tuple[float, float] = (-18.0, -3.0)
    gaps: float = 0.4
    partly: float = 0.25
    television: float = 0.1
    noise: float = 0.85
    snr_db: tuple[float, float] = (12.0, 40.0)
    telephone: float = 0.16
    low_pass: float = 0.08
    clipped: float = 0.08
    first: float = 0.15
    level_spread_db: float = 3.0


PLAIN: Final = Recipe()
AT_10_DB: Final = replace(PLAIN, absent=0.0, others={1: 1.0}, level_db=(-10.0, -10.0), partly=0.0, gaps=0.0)
"""Both speak, and the other one is 10 dB softer: what the separator is judged by."""


def draw_mixture(recipe: Recipe, speech: Speech, rooms: Rooms, rng: np.random.Generator) -> Mixture:
    """Draw a mixture of (recipe.length,)."""
    room = rng.integers(len(rooms.near))
    count = draw_weighted(recipe.others, rng)
    voices = rng.choice(len(speech.voices), min(1 + count, len(speech.voices)), replace=False)
    near = rooms.near[room, rng.integers(rooms.near.shape[1])]
    if rng.random() < recipe.narrow:
        near = band_pass(np.pad(near.astype(np.float32), (0, RINGING)), *TELEPHONE_HZ).astype(np.float16)
    foreground = render(recipe, speech, int(voices[0]), near, 0.0, rng)
    if rng.random() < recipe.absent:
        foreground = np.zeros_like(foreground)
    places = rng.permutation(rooms.far.shape[1])
    background = np.zeros_like(foreground)
    for voice, place in zip(voices[1:], places, strict=False):
        background += render_other(recipe, speech, int(voice), rooms.far[room, place], rng)
    noise = draw_noise(recipe, speech, rng)
    return through_microphone(recipe, foreground, background, noise, rng)


def render_other(recipe: Recipe, speech: Speech, voice: int, response: Response, rng: np.random.Generator) -> Samples:
    """Somebody further away, (recipe.length,), at a level that is drawn."""
    level_db = rng.uniform(*recipe.level_db)
    now_and_then = rng.random() < recipe.gaps
    pauses_s = (0.5, 3.0) if now_and_then else (0.1, 0.6)
    heard = render(recipe, speech, voice, response, level_db, rng, pauses_s)
    return band_pass(heard, *TELEVISION_HZ) if rng.random() < recipe.television else heard


def render(
    recipe: Recipe,
    speech: Speech,
    voice: int,
    response: Response,
    level_db: float,
    rng: np.random.Generator,
    pauses_s: tuple[float, float] = (0.1, 1.0),
) -> Samples:
    """Somebody in a room, (recipe.length,), at an active level of level_db over 1."""
    dry = say(speech, voice, PRE_ROLL + recipe.length, pauses_s, rng)
    if rng.random() < recipe.partly:
        border = PRE_ROLL + rng.integers(recipe.length)
        dry[slice(border) if rng.random() < 0.5 else slice(border, None)] = 0
    spoken = dry != 0
    heard = hear(dry, response.astype(np.float32))
    if not spoken.any():
        return heard[PRE_ROLL:]
    level = np.sqrt(np.mean(np.square(heard[spoken])))
    return np.asarray(heard[PRE_ROLL:] * np.float32(np.sqrt(from_db(level_db)) / level), dtype=np.float32)


def say(speech: Speech, voice: int, length: int, pauses_s: tuple[float, float], rng: np.random.Generator) -> Samples:
    """One line after the other, (length,), from somewhere in the first one on; all at one tempo."""
    dry, lines = np.zeros(length, dtype=np.float32), speech.voices[voice]
    tempo = int(rng.choice(TEMPI))
    start = -seconds(rng.uniform(0, BEGUN_S))
    while start < length:
        line = speech.at_tempo(lines[int(rng.integers(len(lines)))], tempo)
        begin, end = max(start, 0), min(start + len(line), length)
        if end > begin:
            dry[begin:end] = line[begin - start : end - start]
        start += len(line) + seconds(rng.uniform(*pauses_s))
    return dry / np.float32(PCM[1])


def resample(line: Pcm, tempo: int) -> Pcm:
    """Speak a line (n_samples,) at a tempo: (n_samples * tempo / ROUGH,)."""
    from scipy.signal import resample_poly  # type: ignore[import-untyped, unused-ignore]

    return np.asarray(np.clip(np.round(resample_poly(line.astype(np.float32), tempo, ROUGH)), *PCM), dtype=np.int16)


def draw_noise(recipe: Recipe, speech: Speech, rng: np.random.Generator) -> Samples:
    """Noise of any kind, (recipe.length,), or none."""
    if rng.random() >= recipe.noise:
        return np.zeros(recipe.length, dtype=np.float32)
    noise = make_noise(draw_weighted(NOISES, rng), recipe.length, speech, rng)
    level = np.sqrt(np.mean(np.square(noise))) or 1.0
    return np.asarray(noise * np.sqrt(from_db(-rng.uniform(*recipe.snr_db))) / level, dtype=np.float32)


def make_noise(kind: str, length: int, speech: Speech, rng: np.random.Generator) -> Signal:
    """Make one of NOISES, (length,), at no particular level."""
    if kind == "hum":
        return mains_hum(length, rng)
    if kind == "music":
        return chords(length, rng)
    if kind != "babble":
        return sloping_noise(length, SLOPES_DB[kind], rng)
    voices = rng.integers(len(speech.voices), size=BABBLERS)
    babble = np.zeros(length)
    for voice in voices:
        babble += say(speech, int(voice), length, (0.1, 0.6), rng)
    return babble


def through_microphone(
    recipe: Recipe, foreground: Samples, background: Samples, noise: Samples, rng: np.random.Generator
) -> Mixture:
    """What a microphone, good or bad, makes of what reaches it; at the level that the stage brings it to."""
    pass_on = draw_microphone(recipe, rng)
    foreground, background, noise = pass_on(foreground), pass_on(background), pass_on(noise)
    mixture = foreground + background + noise
    if rng.random() < recipe.clipped:
        mixture = soft_clip(mixture, float(rng.uniform(*CLIP) * np.abs(mixture).max()) or 1.0)
    scale = np.float32(draw_scale(recipe, foreground + background, rng))
    return Mixture(scale * mixture, scale * foreground, scale * background)


def draw_microphone(recipe: Recipe, rng: np.random.Generator) -> Callable[[Samples], Samples]:
    """Draw a microphone, and the line behind it: a filter of (n_samples,)."""
    from scipy.signal import butter, lfilter, sosfilt  # type: ignore[import-untyped, unused-ignore]

    tilt = rng.uniform(-TILT, TILT)
    kind, corner_hz = rng.random(), rng.uniform(*LOW_PASS_HZ)
    if kind < recipe.telephone:
        return lambda samples: band_pass(samples, *TELEPHONE_HZ)
    if kind < recipe.telephone + recipe.low_pass:
        sections = butter(8, corner_hz, fs=SAMPLE_RATE, output="sos")
        return lambda samples: np.asarray(sosfilt(sections, samples), dtype=np.float32)
    gain = 1 / np.sqrt(1 + tilt**2)
    return lambda samples: np.asarray(lfilter([gain, gain * tilt], [1.0], samples), dtype=np.float32)


def draw_scale(recipe: Recipe, spoken: Samples, rng: np.random.Generator) -> float:
    """Draw the level of a mixture: near that of the one near, or at a stream's beginning, that of what is heard."""
    spread = from_db(rng.normal(0, recipe.level_spread_db) / 2)
    if rng.random() >= recipe.first:
        return spread
    loud = np.abs(spoken) > 0.1 * max(float(np.abs(spoken).max()), ALONE_LEVEL)
    return spread / max(float(np.sqrt(np.mean(np.square(spoken[loud])))) if loud.any() else 1.0, ALONE_LEVEL)


def as_array(mixture: Mixture) -> npt.NDArray[np.float32]:
    """Mixture, foreground and background as (3, n_samples)."""
    return np.stack([mixture.mixture, mixture.foreground, mixture.background])


def describe(speech: Speech) -> str:
    """Say how much speech there is."""
    return json.dumps({"voices": len(speech.voices), "hours": round(speech.seconds / 3600, 2)})
