from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cascade.check import Report, examine
from cascade.config import CascadeConfig, load_config
from cascade.pipeline import Cascade, load_stages
from cascade.types import SAMPLE_RATE, Mode

ROOT = Path(__file__).resolve().parents[1]
CONFIG = load_config("ondevice.yaml")


def changed(use: str, **settings: object) -> CascadeConfig:
    """The configuration on the device with other settings of one stage."""
    stages = tuple(stage.model_copy(update=settings) if stage.use == use else stage for stage in CONFIG.stages)
    return CONFIG.model_copy(update={"stages": stages})


def test_a_chain_that_is_all_here_has_no_problems() -> None:
    report = examine(CONFIG)
    lookahead = f"{CONFIG.stages[1].lookahead_s:.2f} s"
    vad_and_encoder = "silero-vad-v6 ok, d-vector-ge2e ok"
    assert report.problems == ()
    assert [row.cells for row in report.rows] == [
        ("mixture", "AudioChunk -> SeparatedChunk", "0.00 s", "-", "-"),
        ("online_clustering", "SeparatedChunk -> SpeakerTurn", lookahead, "ondevice", vad_and_encoder),
        ("main_speaker", "SpeakerTurn -> AdmittedTurn", "10.00 s", "-", "-"),
        ("faster_whisper", "AdmittedTurn -> Utterance", "0.00 s", "ondevice", "whisper-tiny.en ok"),
        ("extractive", "Utterance -> Answer", "0.00 s", "ondevice", "wordllama-256 ok"),
    ]  # fmt: skip
    assert {"cascade", "python", "numpy", "faster-whisper"} <= report.versions.keys()


@pytest.mark.parametrize("pause_s", [0.2, 0.5, 1.0])
def test_the_lookahead_is_that_of_the_loaded_stages(pause_s: float) -> None:
    config = changed("online_clustering", pause_s=pause_s)
    for settings, (_, make) in zip(config.stream, load_stages(config, Mode.SELECTIVE), strict=True):
        lookahead = make(Mode.SELECTIVE).lookahead
        assert settings.lookahead_s == (None if lookahead is None else lookahead / SAMPLE_RATE)


def test_the_chains_lookahead_is_the_loaded_cascades() -> None:
    assert examine(CONFIG).lookahead_s == pytest.approx((Cascade.load(CONFIG).lookahead or 0) / SAMPLE_RATE)


def test_one_stage_that_needs_the_whole_recording_makes_the_chain_need_it() -> None:
    rows = examine(CONFIG).rows
    whole = type(rows[0])("pyannote", "SeparatedChunk", "SpeakerTurn", None, "paper", {})
    assert Report((*rows, whole), {}, ()).lookahead_s is None
    assert whole.cells == ("pyannote", "SeparatedChunk -> SpeakerTurn", "whole recording", "paper", "-")


def test_an_enrolment_needs_no_hold_and_must_be_there(tmp_path: Path) -> None:
    there, missing = tmp_path / "me.wav", tmp_path / "you.wav"
    there.touch()
    report = examine(changed("main_speaker", enrolment=(there, missing)))
    assert report.rows[2].lookahead_s == 0
    (problem,) = report.problems
    assert str(problem) == f"the enrolment '{missing}' does not exist; name a recording of the main speaker alone"


def test_a_whisper_of_the_users_own_must_be_there(tmp_path: Path) -> None:
    report = examine(changed("faster_whisper", size=str(tmp_path / "large-v3")))
    (problem,) = report.problems
    assert problem.what.startswith(f"no Whisper model at '{tmp_path / 'large-v3'}'")
    assert problem.fix.startswith("download one")
    assert report.rows[3].models == {}


PROGRAM = """
import json, sys
from cascade.check import examine
from cascade.config import load_config
report = examine(load_config("ondevice.yaml"))
states = {name: state for row in report.rows for name, state in row.models.items()}
print(json.dumps([list(map(str, report.problems)), states, sorted(sys.modules)]))
"""
HEAVY = {"av", "ctranslate2", "faster_whisper", "onnxruntime", "soundfile", "soxr", "tokenizers", "wordllama"}


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with links to all installed packages but faster-whisper."""
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(site).iterdir():
            if not entry.name.startswith("faster_whisper"):
                (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


def examined_with(packages: Path) -> tuple[list[str], dict[str, str], set[str]]:
    """Examine in a fresh process that sees these packages only; return problems, states of models, imported modules."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)])},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    problems, states, modules = json.loads(done.stdout)
    return problems, states, set(modules)


def test_a_missing_package_is_named_once_with_its_fix(packages: Path) -> None:
    problems, states, modules = examined_with(packages)
    (problem,) = problems
    assert problem.startswith(
        "not installed, needed by the extra 'ondevice': faster-whisper; run: pip install 'faster-"
    )
    assert states == {
        "silero-vad-v6": "missing",
        "d-vector-ge2e": "ok",
        "whisper-tiny.en": "ok",
        "wordllama-256": "ok",
    }
    assert not HEAVY & modules


def test_an_old_package_and_a_wrong_file_are_named_with_their_fixes(packages: Path) -> None:
    assets = packages / "faster_whisper" / "assets"
    assets.mkdir(parents=True)
    (packages / "faster_whisper" / "__init__.py").touch()
    (assets / "silero_vad_v6.onnx").write_bytes(b"not the network")
    described = packages / "faster_whisper-1.0.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: faster-whisper\nVersion: 1.0.0\n")
    (old, wrong), states, _ = examined_with(packages)
    assert old.startswith("faster-whisper 1.0.0 is installed, <2,>=1.2.1 needed by the extra 'ondevice'; run: pip inst")
    assert wrong == (
        "silero_vad_v6.onnx of the model silero-vad-v6 has another sha256 than its manifest says; "
        "run: pip install --force-reinstall faster-whisper==1.2.1"
    )
    assert states["silero-vad-v6"] == "wrong"
