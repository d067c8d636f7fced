"""What the programs that make recordings share: levels, rooms, noise, the mix of two speakers, and its files.

A recording is made from two dry tracks of one length (`Dry`), each speaker alone and as close as a headset hears them,
and a `Setting`, which says where the two are and how loud:

    Dry + Setting -> mix -> Mixed -> to_flac / to_opus
    Said          -> to_rttm / to_seglst

The same input and the same versions of the packages give the same samples. Needs, beside cascade itself:

    pip install pyroomacoustics scipy
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.types import SAMPLE_RATE, Samples, Span

SPEED_OF_SOUND = 343.0  # m/s, pyroomacoustics' default

MAIN_LEVEL_DBFS = -30.0  # active-speech level of the main speaker (ITU-T P.56); a phone at arm's length
P56_MARGIN_DB = 15.9  # a frame this far below the active-speech level is a pause (ITU-T P.56)
SPEECH_FLOOR_DB = 40.0  # a frame this far below a sentence's loudest frame is silence
FRAME_S = 0.01
NOISE_SLOPE_DB = -5.0  # dB per octave, as room noise falls (Hoth noise, ITU-T P.800)
NOISE_CORNER_HZ = 60.0  # below it the noise is flat
HEIGHT_M = 1.2  # of the microphone and both mouths
WALL_MARGIN_M = 0.3  # nobody stands closer to a wall
OPUS_BIT_RATE = 32_000  # bit/s

Name: TypeAlias = Literal["main", "bystander"]
Impulse: TypeAlias = npt.NDArray[np.float64]
"""What a room makes of a click, (n_taps,) at SAMPLE_RATE."""
Signal: TypeAlias = npt.NDArray[np.float64]
"""Sound on its way to becoming Samples, (n_samples,) at SAMPLE_RATE."""


# --- the description ------------------------------------------------------------------------------


class Described(BaseModel):
    """What every part of a description shares: nothing unknown, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Room(Described):
    """A shoebox with one absorption for all walls.

    Attributes:
        size_m: Length, width and height.
        rt60_s: Time in which the sound falls by 60 dB.
        microphone_m: Where the microphone stands (x, y); the middle of the room if left out.
    """

    size_m: tuple[float, float, float] = (6.2, 5.0, 2.7)
    rt60_s: float = Field(default=0.3, ge=0.1, le=1.5)
    microphone_m: tuple[float, float] | None = None

    @property
    def microphone(self) -> tuple[float, float]:
        """Where the microphone stands (x, y), in metres."""
        return self.microphone_m or (self.size_m[0] / 2, self.size_m[1] / 2)


class Place(Described):
    """Where somebody is, as seen from the microphone.

    Attributes:
        azimuth_deg: Direction, 0 along the room's length; drawn by the seed if left out.
    """

    azimuth_deg: float | None = None


class MainPlace(Place):
    """Where the one is who holds the microphone."""

    distance_m: float = Field(ge=0.3, le=0.6)


class BystanderPlace(Place):
    """Where the other one is; level_db is their active-speech level over the main speaker's, at the microphone."""

    distance_m: float = Field(ge=2.0, le=4.0)
    level_db: float = Field(ge=-30.0, le=10.0)


class Setting(Described):
    """Where a recording is made, and who is how loud in it.

    Attributes:
        session_id: Name of the recording, in the references and as its file's name.
        seed: Of the noise, and of the azimuths that are left out.
        noise_snr_db: Main speaker's active-speech level over the noise.
    """

    session_id: str = Field(pattern=r"^[\w-]+$")
    seed: int = Field(default=0, ge=0)
    room: Room = Room()
    noise_snr_db: float = 25.0
    main: MainPlace
    bystander: BystanderPlace

    def place(self, name: Name) -> MainPlace | BystanderPlace:
        """Where one of the two is."""
        return self.main if name == "main" else self.bystander


Model = TypeVar("Model", bound=Described)


def read_description(path: Path, model: type[Model]) -> Model:
    """Read a YAML file (1.2, so that `12:30` and `off` are words) as one of the models.

    Raises:
        ValueError: It isn't a valid description; the message names the file and the place.
        OSError: It can't be read.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return model.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except (YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} isn't valid YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        raise ValueError(f"{path}: {describe_faults(error)}") from error


def describe_faults(error: ValidationError) -> str:
    """Say on one line where a description is wrong, and how."""
    faults = [(".".join(map(str, fault["loc"])) or "the scene", fault["msg"]) for fault in error.errors()]
    return "; ".join(f"{place}: {message}" for place, message in faults)


# --- levels ---------------------------------------------------------------------------------------


def frame_powers(samples: Samples) -> npt.NDArray[np.float64]:
    """Mean power of each frame of FRAME_S: (n_samples,) -> (n_frames,).

    Raises:
        ValueError: There is nothing but silence.
    """
    length = round(FRAME_S * SAMPLE_RATE)
    frames = samples[: len(samples) // length * length].reshape(-1, length)
    if not frames.any():
        raise ValueError(f"expected speech, got {len(samples)} silent samples")
    return np.asarray(np.mean(np.square(frames, dtype=np.float64), axis=1))


def trim_silence(samples: Samples) -> Samples:
    """Cut what lies SPEECH_FLOOR_DB below the loudest frame at both ends: (n_samples,) -> (fewer,)."""
    powers = frame_powers(samples)
    loud = np.flatnonzero(powers > powers.max() * from_db(-SPEECH_FLOOR_DB))
    length = round(FRAME_S * SAMPLE_RATE)
    return samples[loud[0] * length : (loud[-1] + 1) * length]


def active_power(samples: Samples) -> float:
    """Mean power while somebody speaks, of (n_samples,): ITU-T P.56 in frames.

    Frames P56_MARGIN_DB below the result don't count; each round drops more of them, until none is left to drop.
    """
    powers = frame_powers(samples)
    while True:
        active = powers[powers > powers.mean() * from_db(-P56_MARGIN_DB)]
        if len(active) == len(powers):
            return float(powers.mean())
        powers = active


def from_db(level_db: float) -> float:
    """Turn dB into a ratio of powers."""
    return float(10 ** (level_db / 10))


def at_level(samples: Samples, level_dbfs: float) -> Samples:
    """Scale speech (n_samples,) to an active-speech level."""
    return samples * np.float32(np.sqrt(from_db(level_dbfs) / active_power(samples)))


# --- the mix --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Dry:
    """Each speaker alone, without a room: main and bystander are (n_samples,), at any level."""

    main: Samples
    bystander: Samples

    def track(self, name: Name) -> Samples:
        """One of the two."""
        return self.main if name == "main" else self.bystander


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """What the microphone heard, and each speaker alone as it heard them; all (n_samples,)."""

    mixture: Samples
    main: Samples
    bystander: Samples


def mix(dry: Dry, setting: Setting, respond: Callable[[Setting, Name], Impulse]) -> Mixed:
    """Put two speakers into a room.

    Args:
        dry: What they say.
        setting: Where they are, and how loud.
        respond: Gives the way from a speaker's mouth to the microphone; `room_response`, or a lambda in tests.

    Raises:
        ValueError: A speaker is silent or stands in a wall, or the mix clips.
    """
    main = at_level(hear(dry.main, respond(setting, "main")), MAIN_LEVEL_DBFS)
    level_dbfs = MAIN_LEVEL_DBFS + setting.bystander.level_db
    bystander = at_level(hear(dry.bystander, respond(setting, "bystander")), level_dbfs)
    mixture = main + bystander + make_noise(setting, len(main))
    if np.abs(mixture).max() >= 1:
        raise ValueError(f"{setting.session_id} clips: lower the bystander's level or raise noise_snr_db")
    return Mixed(mixture, main, bystander)


def hear(dry: Samples, response: Impulse) -> Samples:
    """One speaker (n_samples,) as the microphone hears them: (n_samples,), at no particular level."""
    from scipy.signal import fftconvolve  # type: ignore[import-untyped, unused-ignore]

    return np.asarray(fftconvolve(dry, response)[: len(dry)], dtype=np.float32)


def room_response(setting: Setting, name: Name) -> Impulse:
    """Impulse response from a speaker's mouth to the microphone, (n_taps,), by the image-source method.

    The way from mouth to microphone is cut off, so that speech is heard when the reference says.
    """
    return impulse_response(setting.room, find_position(setting, name), setting.place(name).distance_m)


def impulse_response(
    room: Room, position: tuple[float, float], distance_m: float, max_order: int | None = None
) -> Impulse:
    """Impulse response from a mouth in a room to its microphone, (n_taps,), without the way from one to the other.

    Args:
        room: Where both are.
        position: Of the mouth (x, y), in metres.
        distance_m: From the mouth to the microphone.
        max_order: How often a sound is followed from wall to wall, at most; until it has died out if left out.
    """
    import pyroomacoustics as pra  # type: ignore[import-untyped, unused-ignore]

    absorption, order = pra.inverse_sabine(room.rt60_s, room.size_m, c=SPEED_OF_SOUND)
    order = order if max_order is None else min(order, max_order)
    box = pra.ShoeBox(room.size_m, fs=SAMPLE_RATE, materials=pra.Material(absorption), max_order=order)
    box.set_sound_speed(SPEED_OF_SOUND)
    box.add_source([*position, HEIGHT_M])
    box.add_microphone([*room.microphone, HEIGHT_M])
    box.compute_rir()
    direct = pra.constants.get("frac_delay_length") // 2 + int(distance_m / SPEED_OF_SOUND * SAMPLE_RATE)
    return np.asarray(box.rir[0][0][direct:], dtype=np.float64)


def find_position(setting: Setting, name: Name) -> tuple[float, float]:
    """Where a speaker stands (x, y), in metres.

    Raises:
        ValueError: No place at that distance and azimuth lies inside the room.
    """
    place = setting.place(name)
    draws = np.random.default_rng([setting.seed, 1 if name == "main" else 2]).uniform(0, 360, size=100)
    azimuths = draws if place.azimuth_deg is None else [place.azimuth_deg]
    for azimuth in np.deg2rad(azimuths):
        x = setting.room.microphone[0] + place.distance_m * float(np.cos(azimuth))
        y = setting.room.microphone[1] + place.distance_m * float(np.sin(azimuth))
        if is_inside(x, setting.room.size_m[0]) and is_inside(y, setting.room.size_m[1]):
            return x, y
    raise ValueError(
        f"{name} at {place.distance_m} m from the microphone doesn't fit into the room {setting.room.size_m}"
    )


def is_inside(position_m: float, size_m: float) -> bool:
    """Whether a coordinate keeps its distance from both walls."""
    return WALL_MARGIN_M <= position_m <= size_m - WALL_MARGIN_M


def make_noise(setting: Setting, length: int) -> Samples:
    """Room noise, (length,): Gaussian, falling by NOISE_SLOPE_DB, noise_snr_db below the main speaker."""
    noise = sloping_noise(length, NOISE_SLOPE_DB, np.random.default_rng([setting.seed, 0]))
    return at_mean_level(noise, MAIN_LEVEL_DBFS - setting.noise_snr_db)


# --- noises, and what a microphone does to all that it hears ----------------------------------------


def sloping_noise(length: int, slope_db: float, rng: np.random.Generator) -> Signal:
    """Gaussian noise, (length,), that changes by slope_db an octave from NOISE_CORNER_HZ on: 0 white, -3 pink."""
    white = rng.standard_normal(length)
    octaves = np.log2(np.maximum(np.fft.rfftfreq(length, 1 / SAMPLE_RATE), NOISE_CORNER_HZ) / NOISE_CORNER_HZ)
    return np.fft.irfft(np.fft.rfft(white) * 10 ** (slope_db * octaves / 20), n=length)


def mains_hum(length: int, rng: np.random.Generator) -> Signal:
    """What a bad power supply gives, (length,): the mains' frequency, its harmonics, and a little hiss."""
    mains_hz = rng.choice([50.0, 60.0])
    time = np.arange(length) / SAMPLE_RATE
    hum = 0.02 * rng.standard_normal(length)
    for harmonic in range(1, 16):
        strength = rng.uniform(0.2, 1.0) / harmonic
        hum += strength * np.sin(2 * np.pi * (mains_hz * harmonic * time + rng.uniform()))
    return hum


def chords(length: int, rng: np.random.Generator) -> Signal:
    """Something like music, (length,): a chord of four notes every second or two, each dying away."""
    music = np.zeros(length)
    start = 0
    while start < length:
        time = np.arange(min(round(rng.uniform(0.6, 2.0) * SAMPLE_RATE), length - start)) / SAMPLE_RATE
        root_hz = 110 * 2 ** (rng.integers(24) / 12)
        attack = np.minimum(time / 0.02, 1)
        for semitones in (0, rng.choice([3, 4]), 7, rng.choice([10, 11, 12])):
            for harmonic in range(1, 7):
                tone = np.sin(2 * np.pi * (root_hz * 2 ** (semitones / 12) * harmonic * time + rng.uniform()))
                music[start : start + len(time)] += attack * np.exp(-time * (0.5 + harmonic)) * tone / harmonic
        start += len(time)
    return music


def at_mean_level(samples: Signal | Samples, level_dbfs: float) -> Samples:
    """Scale noise (n_samples,) to a level, its pauses included."""
    return np.asarray(samples * np.sqrt(from_db(level_dbfs) / np.mean(samples**2)), dtype=np.float32)


def band_pass(samples: Samples, low_hz: float, high_hz: float) -> Samples:
    """Keep what lies between two frequencies, as a telephone or a television does: (n_samples,) -> (n_samples,)."""
    from scipy.signal import butter, sosfilt  # type: ignore[import-untyped, unused-ignore]

    sections = butter(4, [low_hz, high_hz], btype="bandpass", fs=SAMPLE_RATE, output="sos")
    return np.asarray(sosfilt(sections, samples), dtype=np.float32)


def soft_clip(samples: Samples, ceiling: float) -> Samples:
    """Bend what comes near a ceiling, as an overdriven microphone does: (n_samples,) -> (n_samples,)."""
    return np.asarray(ceiling * np.tanh(samples / ceiling), dtype=np.float32)


def drift(samples: Samples, levels_db: Sequence[float]) -> Samples:
    """Let the level of (n_samples,) wander in a straight line from each of the given gains to the next."""
    places = np.linspace(0, len(levels_db) - 1, len(samples))
    gains_db = np.interp(places, np.arange(len(levels_db)), levels_db)
    return np.asarray(samples * 10 ** (gains_db / 20), dtype=np.float32)


# --- sentences in their places --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SpokenSentence:
    """A sentence in its place: `start` in samples since the recording began; samples (n_samples,), dry."""

    speaker: Name
    text: str
    start: int
    samples: Samples

    @property
    def end(self) -> int:
        """The first sample after it."""
        return self.start + len(self.samples)

    @property
    def span(self) -> Span:
        """When it is heard."""
        return Span(self.start, self.end)


def lay(sentences: Iterable[SpokenSentence], length: int) -> Dry:
    """Put sentences into their places on two tracks of (length,)."""
    dry = Dry(np.zeros(length, dtype=np.float32), np.zeros(length, dtype=np.float32))
    for sentence in sentences:
        dry.track(sentence.speaker)[sentence.start : sentence.end] = sentence.samples
    return dry


# --- what is known of a recording -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """Who says what when in which recording; a second bystander is `bystander_2`."""

    session_id: str
    speaker: str
    span: Span
    text: str


def to_rttm(said: Iterable[Said]) -> str:
    """Who speaks when, in seconds: SPEAKER session 1 start duration <NA> <NA> speaker <NA> <NA>."""
    return "".join(
        f"SPEAKER {part.session_id} 1 {part.span.start_s:.3f} {part.span.duration_s:.3f}"
        f" <NA> <NA> {part.speaker} <NA> <NA>\n"
        for part in said
    )


def to_seglst(said: Iterable[Said]) -> str:
    """Who says what and when, in seconds, as SegLST JSON."""
    entries = [
        {
            "session_id": part.session_id,
            "speaker": part.speaker,
            "start_time": round(part.span.start_s, 3),
            "end_time": round(part.span.end_s, 3),
            "words": part.text,
        }
        for part in said
    ]
    return to_json(entries)


def to_json(value: object) -> str:
    """JSON as people read it, with a line's end at its end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


# --- encodings ------------------------------------------------------------------------------------


def to_flac(samples: Samples) -> bytes:
    """Encode (n_samples,) at SAMPLE_RATE as 16-bit FLAC."""
    import soundfile  # type: ignore[import-untyped, unused-ignore]

    buffer = io.BytesIO()
    soundfile.write(buffer, samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def to_opus(samples: Samples) -> bytes:
    """Encode (n_samples,) at SAMPLE_RATE as Opus of OPUS_BIT_RATE in Ogg.

    By PyAV, since libsndfile draws the stream's number by the clock, so that no two of its files are the same.
    """
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="ogg", options={"fflags": "bitexact"}) as container:
        stream = container.add_stream("libopus", rate=SAMPLE_RATE, layout="mono", options={"application": "audio"})
        stream.bit_rate = OPUS_BIT_RATE
        frame = av.AudioFrame.from_ndarray(samples[np.newaxis], format="flt", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return buffer.getvalue()
