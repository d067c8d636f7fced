from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

from cascade.check import Report, examine, unheard
from cascade.config import CascadeConfig, load_config
from cascade.errors import ModelError
from cascade.machine import Gpu, Machine
from cascade.manifests import manifests, models_of
from cascade.output.enrolments import EncoderVersion, Enrolments, KeptEnrolment
from cascade.pipeline import Cascade, load_stages
from cascade.settings import AnswererSettings, ForegroundSettings, OpenAISettings, StreamSettings
from cascade.types import SAMPLE_RATE, AdmittedTurn, AudioChunk, Mode, SeparatedChunk, SpeakerTurn, Utterance

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
        ("main_speaker", "SpeakerTurn -> AdmittedTurn", "10.00 s", "-", "gate-evidence ok"),
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


@pytest.mark.parametrize("name", ["ondevice.yaml", "foreground.yaml"])
def test_the_chains_lookahead_is_the_loaded_cascades(name: str) -> None:
    config = load_config(name)
    assert examine(config).lookahead_s == pytest.approx((Cascade.load(config).lookahead or 0) / SAMPLE_RATE)


def test_one_stage_that_needs_the_whole_recording_makes_the_chain_need_it() -> None:
    rows = examine(CONFIG).rows
    whole = type(rows[0])("pyannote", "SeparatedChunk", "SpeakerTurn", None, "paper", {})
    assert Report((*rows, whole), {}, ()).lookahead_s is None
    assert Report((*rows, whole), {}, (), hold_s=10.0).lookahead == "the whole recording"
    assert whole.cells == ("pyannote", "SeparatedChunk -> SpeakerTurn", "whole recording", "paper", "-")


def test_an_enrolment_needs_no_hold_and_must_be_there(tmp_path: Path) -> None:
    there, missing = tmp_path / "me.wav", tmp_path / "you.wav"
    there.touch()
    report = examine(changed("main_speaker", enrolment=(there, missing)))
    assert report.rows[2].lookahead_s == 0
    (problem,) = report.problems
    assert str(problem) == f"the enrolment '{missing}' does not exist; name a recording of the main speaker alone"


def test_the_lookahead_is_told_with_and_without_an_enrolment(tmp_path: Path) -> None:
    (tmp_path / "me.wav").touch()
    alone, enrolled = examine(CONFIG), examine(CONFIG.with_enrolment([tmp_path / "me.wav"]))
    with_one = f"{CONFIG.stages[1].lookahead_s:.2f} s"
    assert alone.lookahead == f"{with_one} with an enrolment, {alone.lookahead_s:.2f} s without"
    assert alone.lookahead_s == pytest.approx((enrolled.lookahead_s or 0) + 10.0)
    assert enrolled.lookahead == with_one


def test_an_enrolment_that_is_kept_must_be_there_and_of_the_right_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADE_ENROLMENTS", str(tmp_path))
    config, store = CONFIG.with_enrolment(["me"]), Enrolments.usual()
    (problem,) = examine(config).problems
    assert str(problem).startswith("no enrolment is kept under the name 'me', and no such file is there; keep one with")
    assert CONFIG.encoder is not None
    kept = KeptEnrolment(
        format=2,
        made=date(2026, 11, 30),
        speech_s=8.9,
        encoder=CONFIG.encoder,
        embedding=(1.0, *[0.0] * 255),
    )
    store.keep("me", kept, replace=False)
    report = examine(config)
    assert report.problems == ()
    assert report.rows[2].lookahead_s == 0
    assert "enrolled: me (d-vector-ge2e, 8.9 s of speech, made 2026-11-30)" in report.notes
    other = kept.model_copy(update={"encoder": EncoderVersion(name="other", sha256="0" * 64, dimension=256)})
    store.keep("me", other, replace=True)
    report = examine(config)
    (problem,) = report.problems
    assert problem.what.startswith(
        "the enrolment 'me' is of the speaker encoder other (000000000000...), and this conf"
    )
    assert problem.fix.startswith("make it anew: python -m cascade enrol RECORDING --name me --replace")
    assert not [note for note in report.notes if note.startswith("enrolled")]


def test_a_whisper_of_the_users_own_must_be_there(tmp_path: Path) -> None:
    report = examine(changed("faster_whisper", size=str(tmp_path / "large-v3")))
    (problem,) = report.problems
    assert problem.what.startswith(f"no Whisper model at '{tmp_path / 'large-v3'}'")
    assert problem.fix.startswith("get one with: python -m cascade models pull faster-whisper-large-v3")
    assert report.rows[3].models == {}


PROGRAM = """
import json, sys
from cascade.check import examine, unheard
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
        "gate-evidence": "ok",
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
        "silero_vad_v6.onnx of the model silero-vad-v6 is another file than its manifest, or its first pull, says; "
        "run: pip install --force-reinstall faster-whisper==1.2.1"
    )
    assert states["silero-vad-v6"] == "wrong"


# --- a chain such as the paper's, on machines that have more or less --------------------------------------------------


class Separating(StreamSettings):
    """A stage as SepFormer is."""

    takes, gives = AudioChunk, SeparatedChunk
    use: Literal["separating"] = "separating"
    device: str = "cpu"

    @property
    def models(self) -> tuple[str, ...]:
        return ("sepformer-wsj02mix",)


class Diarizing(StreamSettings):
    """A stage as pyannote is, whose model is gated."""

    takes, gives = SeparatedChunk, SpeakerTurn
    use: Literal["diarizing"] = "diarizing"
    device: str = "cpu"

    @property
    def lookahead_s(self) -> float | None:
        return None

    @property
    def models(self) -> tuple[str, ...]:
        return ("speaker-diarization-community-1",)


class Transcribing(StreamSettings):
    """A stage as openai-whisper is."""

    takes, gives = AdmittedTurn, Utterance
    use: Literal["transcribing"] = "transcribing"
    device: str = "cpu"

    @property
    def models(self) -> tuple[str, ...]:
        return ("openai-whisper-large-v3",)


class Asking(AnswererSettings):
    """An answerer that speaks to a server."""

    use: Literal["asking"] = "asking"
    key_variable: str | None = "SOME_KEY"
    needs_key: bool = True


def paper(device: str = "cpu", key: str | None = "SOME_KEY") -> CascadeConfig:
    stages: tuple[Any, ...] = (
        Separating(device=device),
        Diarizing(device=device),
        CONFIG.stages[2],
        Transcribing(device=device),
        Asking(key_variable=key),
    )
    return CONFIG.model_copy(update={"stages": stages})


def machine(
    gpus: tuple[Gpu, ...] = (), environment: Mapping[str, str] | None = None, *, token: bool = False
) -> Machine:
    return Machine(gpus, 16_000_000_000, environment or {}, lambda: token)


H200 = Gpu("NVIDIA H200", 150_000_000_000)


def test_a_machine_with_nothing_gets_the_whole_list_with_the_commands(tmp_path: Path) -> None:
    began_s = time.monotonic()
    report = examine(paper(), machine=machine(), root=tmp_path / "models")
    assert time.monotonic() - began_s < 2
    assert [str(problem) for problem in report.problems] == [
        "the model sepformer-wsj02mix is not here (113.1 MB); run: python -m cascade models pull sepformer-wsj02mix",
        "the model speaker-diarization-community-1 is not here (32.8 MB); accept the terms at "
        "https://huggingface.co/pyannote/speaker-diarization-community-1, make a token at "
        "https://huggingface.co/settings/tokens, run: export HF_TOKEN=..., "
        "run: python -m cascade models pull speaker-diarization-community-1",
        "the model openai-whisper-large-v3 is not here (3.09 GB); "
        "run: python -m cascade models pull openai-whisper-large-v3",
        "the environment variable SOME_KEY is not set, which 'asking' needs; run: export SOME_KEY=...",
    ]
    assert report.lookahead_s is None
    assert report.rows[0].models == {"sepformer-wsj02mix": "missing"}
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("told", [{"environment": {"HF_TOKEN": "hf_secret"}}, {"token": True}])
def test_with_a_token_none_is_asked_for(tmp_path: Path, told: dict[str, Any]) -> None:
    report = examine(paper(), machine=machine(**told), root=tmp_path)
    (gated,) = [problem for problem in report.problems if "community-1" in problem.what]
    assert gated.fix == (
        "accept the terms at https://huggingface.co/pyannote/speaker-diarization-community-1, "
        "run: python -m cascade models pull speaker-diarization-community-1"
    )


def test_without_the_hubs_package_there_is_no_token(tmp_path: Path) -> None:
    def lacking() -> bool:
        raise ModelError("fetching models needs the Python package 'huggingface_hub'")

    report = examine(paper(), machine=Machine((), None, {}, lacking), root=tmp_path)
    assert any("make a token" in problem.fix for problem in report.problems)


def test_keys_are_noted_and_never_shown(tmp_path: Path) -> None:
    told = machine(environment={"SOME_KEY": "sk-secret", "HF_TOKEN": "hf_secret"})
    report = examine(paper(), machine=told, root=tmp_path)
    assert "SOME_KEY is set (it is not shown)" in report.notes
    assert not any("SOME_KEY" in problem.what for problem in report.problems)
    assert "secret" not in repr(report)


def asking(tmp_path: Path, **settings: Any) -> list[str]:
    """What stands in the way of a chat model with these settings, and what else is said; the key is in MY_KEY."""
    chat = OpenAISettings(use="openai", **settings)
    config = CONFIG.model_copy(update={"stages": (*CONFIG.stages[:-1], chat)})
    environment = {"MY_KEY": "my-secret", "BLANK": " \n", "BROKEN": "my-\nsecret", "LOCAL": "\N{SNOWMAN}secret"}
    report = examine(config, machine=machine(environment=environment), root=tmp_path)
    assert "secret" not in repr(report)
    told = [*map(str, report.problems), *report.notes]
    return [line for line in told if "pip install" not in line and not line.startswith(("GPU: ", "sent to "))]


SERVER = {"base_url": "https://llm.example.org/v1", "api_key_env": "MY_KEY"}
BROKEN = "holds something that no key holds, such as a space, a line break or a letter beyond ASCII"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {},
            "the environment variable OPENAI_API_KEY is not set, which 'openai' needs; run: export OPENAI_API_KEY=...",
        ),
        (SERVER, "MY_KEY is set (it is not shown)"),
        (SERVER | {"api_key_env": None}, None),
        (
            SERVER | {"api_key_env": "BLANK"},
            "variable BLANK holds only blanks, which 'openai' needs; run: export BLANK=",
        ),
        (SERVER | {"api_key_env": "BROKEN"}, f"variable BROKEN {BROKEN}; run: export BROKEN=YOUR_KEY"),
        (
            SERVER | {"base_url": "http://localhost/v1", "api_key_env": "LOCAL"},
            f"LOCAL {BROKEN}; run: export LOCAL=YOU",
        ),
        (SERVER | {"base_url": "http://localhost/v1", "api_key_env": "BLANK"}, None),
        (SERVER | {"max_cost": 1.0}, "of this model on this server is not known; say it in the configuration"),
        ({"base_url": "http://llm.example.org/v1"}, "warning: llm.example.org is asked without encryption"),
        (SERVER | {"base_url": "http://llm.example.org/v1"}, "can read transcripts and the key in MY_KEY"),
    ],
)
def test_what_would_stop_a_chat_model_is_one_line_of_the_list(
    tmp_path: Path, settings: dict[str, Any], expected: str | None
) -> None:
    told = asking(tmp_path, **settings)
    if expected is None:
        assert told == []
    else:
        assert sum(expected in line for line in told) == 1


def test_a_cache_that_cannot_be_one_is_in_the_list(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir(mode=0o755)
    local = {"base_url": "http://localhost/v1"}
    (file,) = asking(tmp_path, cache=tmp_path / "file", **local)
    (others,) = asking(tmp_path, cache=tmp_path / "open", **local)
    assert file == f"'{tmp_path / 'file'}' is not a folder, or lies below what is none; name another cache"
    assert others.startswith(
        f"the cache '{tmp_path / 'open'}' is open to others (mode 0755), and replies are private; name"
    )
    assert asking(tmp_path, cache=tmp_path / "new", **local) == []
    assert not (tmp_path / "new").exists()


def test_a_placeholder_is_no_key(tmp_path: Path) -> None:
    report = examine(paper(), machine=machine(environment={"SOME_KEY": "<sk-my-placeholder>"}), root=tmp_path)
    assert [str(problem) for problem in report.problems if "SOME_KEY" in problem.what] == [
        "the environment variable SOME_KEY holds a placeholder in the place of a key; run: export SOME_KEY=YOUR_KEY"
    ]
    assert not any("SOME_KEY" in note for note in report.notes)
    assert "my-placeholder" not in repr(report)


def test_an_answerer_that_needs_no_key_is_not_asked_for_one(tmp_path: Path) -> None:
    report = examine(paper(key=None), machine=machine(), root=tmp_path)
    assert not any("variable" in problem.what for problem in report.problems)


def test_a_gpu_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    lacking = examine(paper("cuda"), machine=machine(), root=tmp_path)
    assert [str(problem) for problem in lacking.problems if "GPU" in problem.what] == [
        f"'{use}' is to run on cuda, and no GPU is here; set: device: cpu"
        for use in ("separating", "diarizing", "transcribing")
    ]
    there = examine(paper("cuda"), machine=machine((H200,)), root=tmp_path)
    assert not [problem for problem in there.problems if "GPU" in problem.what]
    assert there.notes[0].startswith("GPU: NVIDIA H200 (150.00 GB); CPU: ")


def sent(config: CascadeConfig) -> list[str]:
    notes = examine(config, machine=machine()).notes
    return [note for note in notes if note.startswith(("sent to ", "nothing leaves"))]


def test_what_leaves_the_machine_is_said() -> None:
    assert sent(CONFIG) == ["nothing leaves this machine"]
    to_openai = CONFIG.model_copy(update={"stages": (*CONFIG.stages[:-1], OpenAISettings(use="openai"))})
    rest = "a benchmark's description of the main speaker, and the question"
    assert sent(to_openai) == [
        f"sent to api.openai.com: the admitted transcript (in general mode that of everyone), {rest}"
    ]
    gate = to_openai.stages[2].model_copy(update={"always": True})
    assert sent(to_openai.model_copy(update={"stages": (*to_openai.stages[:2], gate, *to_openai.stages[3:])})) == [
        f"sent to api.openai.com: the admitted transcript, {rest}"
    ]
    (ungated,) = sent(load_config("sepformer_whisper_gpt4o"))
    assert ungated == f"sent to api.openai.com: the transcript of everyone, since there is no gate, {rest}"
    here = OpenAISettings(use="openai", base_url="http://localhost:8000/v1")
    (local,) = sent(CONFIG.model_copy(update={"stages": (*CONFIG.stages[:-1], here)}))
    assert local.startswith("sent to localhost:8000, on this machine: the admitted transcript")


def test_a_package_that_two_extras_need_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cascade.check.installed", lambda name: None)
    config = load_config("sepformer_pyannote_gate_whisper_gpt4o")
    names = [
        name
        for problem in examine(config, machine=machine()).problems
        if problem.what.startswith("not installed")
        for name in problem.what.partition(": ")[2].split(", ")
    ]
    assert {"openai", "tenacity", "torch"} <= set(names)
    assert len(names) == len(set(names))


def test_what_is_not_here_is_not_said_to_be_compared(tmp_path: Path) -> None:
    assert not [note for note in examine(paper(), machine=machine(), root=tmp_path).notes if "by their size" in note]


def test_large_files_are_said_to_be_compared_by_size(tmp_path: Path) -> None:
    model = manifests()["openai-whisper-large-v3"]
    (tmp_path / model.name / model.version).mkdir(parents=True)
    (tmp_path / model.name / model.version / "large-v3.pt").touch()
    (note,) = [note for note in examine(paper(), machine=machine(), root=tmp_path).notes if "by their size" in note]
    assert "(openai-whisper-large-v3)" in note
    assert note.endswith("by their sha256 with: python -m cascade models verify")
    assert not [note for note in examine(CONFIG).notes if "by their size" in note]


def test_some_files_of_a_model_that_are_not_right_are_named(tmp_path: Path) -> None:
    model = manifests()["speaker-diarization-community-1"]
    folder = tmp_path / model.name / model.version
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("another")
    report = examine(paper(), machine=machine(token=True), root=tmp_path)
    named = [problem.what for problem in report.problems if model.name in problem.what]
    assert named[:2] == [
        f"config.yaml of the model {model.name} is another file than its manifest, or its first pull, says",
        f"segmentation/pytorch_model.bin of the model {model.name} is missing",
    ]


# --- what it will take ------------------------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A minute of silence."""
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    path = tmp_path / "silence.wav"
    soundfile.write(path, [0.0] * 60 * 8000, 8000)
    return path


def test_time_and_memory_are_those_measured_for_each_model_on_its_device(recording: Path, tmp_path: Path) -> None:
    estimate = examine(paper("cuda"), [recording, recording], machine=machine((H200,)), root=tmp_path).estimate
    assert estimate is not None
    assert estimate.audio_s == pytest.approx(120)
    assert estimate.longest_s == pytest.approx(60)
    assert estimate.time_s == pytest.approx((0.18 + 0.001) * 120)  # Whisper's, and the gate's
    assert estimate.memory == {"cuda": 10_000_000_000 + 1_600_000_000 + 6_600_000_000 // 60, "cpu": 8_000_000}
    assert estimate.unmeasured == ("sepformer-wsj02mix on cuda", "speaker-diarization-community-1 on cuda")
    assert str(estimate) == (
        "2.0 min of audio: more than 0.4 min, 11.71 GB on cuda, 8.0 MB on cpu, and it is not known how much; not "
        "measured: sepformer-wsj02mix on cuda, speaker-diarization-community-1 on cuda"
    )


SEPARATED = CONFIG.model_copy(update={"stages": (ForegroundSettings(use="foreground"), *CONFIG.stages[1:])})


def test_the_foreground_is_ready_once_the_extra_is_there() -> None:
    report = examine(SEPARATED)
    assert report.problems == ()
    assert report.rows[0].cells == (
        "foreground", "AudioChunk -> SeparatedChunk", "2.00 s", "ondevice", "foreground ok, silero-vad-v6 ok",
    )  # fmt: skip


def test_a_network_of_ones_own_that_is_none_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").write_text("network")
    own = ForegroundSettings(use="foreground", model=str(tmp_path / "mine.onnx"))
    (problem,) = examine(SEPARATED.model_copy(update={"stages": (own, *CONFIG.stages[1:])})).problems
    assert problem.what == f"{tmp_path / 'mine.onnx'} is no ONNX file"
    assert "models/separator/export.py" in problem.fix


@pytest.mark.parametrize("config", [CONFIG, SEPARATED], ids=["mixture", "foreground"])
def test_the_chain_on_the_device_is_measured_whole(recording: Path, config: CascadeConfig) -> None:
    estimate = examine(config, [recording]).estimate
    assert estimate is not None
    assert estimate.unmeasured == ()
    assert 0 < estimate.time_s < estimate.audio_s
    assert 0 < estimate.memory["cpu"] < 1_000_000_000


def test_a_recording_that_is_too_long_for_the_memory_is_a_problem(recording: Path, tmp_path: Path) -> None:
    small = Gpu("a small card", 8_000_000_000)
    report = examine(paper("cuda"), [recording], machine=machine((small,)), root=tmp_path)
    (problem,) = [problem for problem in report.problems if "memory" in problem.what]
    assert str(problem) == (
        "the recordings need about 11.71 GB of memory on cuda, which has 8.00 GB; "
        "hear shorter recordings, or configure smaller models"
    )


def test_a_model_that_two_stages_use_takes_its_memory_once(recording: Path) -> None:
    """The speech detector of `foreground` and of `online_clustering`."""
    models = models_of(SEPARATED)
    estimate = examine(SEPARATED, [recording]).estimate
    assert estimate is not None
    assert sum(stage.models.count("silero-vad-v6") for stage in SEPARATED.stages) == 2
    expected = sum(needs.memory for manifest in models.values() for needs in manifest.needs if needs.device == "cpu")
    assert estimate.memory == {"cpu": expected}


def test_without_recordings_nothing_is_estimated() -> None:
    assert examine(CONFIG).estimate is None


def test_recordings_that_cannot_be_heard_are_missing(tmp_path: Path) -> None:
    text = tmp_path / "notes.wav"
    text.write_text("not audio")
    talk = Path(__file__).parents[1] / "benchmarks" / "talk" / "talk.flac"
    problems = [str(problem) for problem in unheard([talk, tmp_path / "nosuch.wav", text, tmp_path, "-"])]
    assert len(problems) == 3
    assert "nosuch.wav" in problems[0]
    assert "notes.wav" in problems[1]


def test_an_estimate_says_that_a_model_of_ones_own_was_not_measured(tmp_path: Path) -> None:
    talk = Path(__file__).parents[1] / "benchmarks" / "talk" / "talk.flac"
    (tmp_path / "config.json").write_text("{}")
    estimate = examine(changed("faster_whisper", size=str(tmp_path)), [talk]).estimate
    assert estimate is not None
    assert estimate.unmeasured == ("the model of your own in faster_whisper",)
    assert "it is not known how much" in str(estimate)
