"""Every file in configs/: it loads, it fits, and what its comments say is so."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest

from cascade.config import CascadeConfig, load_config
from cascade.packaged import data_folder
from cascade.settings import MainSpeakerSettings, stages_by_name
from cascade.types import AdmittedTurn, AudioChunk

FILES = sorted(data_folder("configs").glob("*.yaml"))
STAGE = re.compile(r"\s*- use: (?P<use>\w+)\s*(?:# (?P<takes>\w+)\s+-> (?P<gives>\w+)(?:: (?P<says>.+))?)?")


@pytest.fixture(params=FILES, ids=lambda path: str(path.name))
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def config(path: Path) -> CascadeConfig:
    return load_config(path)


def stage_lines(path: Path) -> list[re.Match[str]]:
    return [match for line in path.read_text().splitlines() if (match := STAGE.fullmatch(line))]


def test_there_is_nothing_but_configurations_and_prompts() -> None:
    assert FILES
    assert {*data_folder("configs").iterdir()} - {*FILES} == {data_folder("configs") / "prompts"}


def test_it_is_found_by_its_name(path: Path, config: CascadeConfig) -> None:
    assert load_config(path.stem) == load_config(path.name) == config


def first_comment(path: Path) -> str:
    """Return the comment that a file begins with, as one line."""
    lines = itertools.takewhile(lambda line: line.startswith("# "), path.read_text().splitlines())
    return " ".join(line.removeprefix("# ") for line in lines)


def test_it_begins_by_saying_what_it_is(path: Path) -> None:
    assert re.fullmatch(r"[A-Z].+\.", first_comment(path))


def test_its_lines_are_no_longer_than_the_programs(path: Path) -> None:
    assert max(map(len, path.read_text().splitlines())) <= 120


def test_each_stage_says_truly_what_it_takes_and_gives(path: Path, config: CascadeConfig) -> None:
    lines = stage_lines(path)
    assert [line["use"] for line in lines] == [stage.use for stage in config.stages]
    for line in lines:
        stage = stages_by_name()[line["use"]]
        assert (line["takes"], line["gives"]) == (stage.takes.__name__, stage.gives.__name__), line[0]


def test_it_goes_from_audio_through_one_door(config: CascadeConfig) -> None:
    assert config.stages[0].takes is AudioChunk
    doors = [stage.use for stage in config.stages if stage.gives is AdmittedTurn]
    assert doors == (["main_speaker"] if config.gated else ["everyone"])


def test_one_without_a_gate_says_so_first_and_only_such_a_one(path: Path, config: CascadeConfig) -> None:
    said = first_comment(path)
    assert ("privacy by instruction alone" in said) is not config.gated
    assert ("There is no gate" in said) is not config.gated


def test_only_the_papers_pipeline_has_no_gate() -> None:
    """Each one without is a choice: whoever adds one names it here."""
    assert [path.stem for path in FILES if not load_config(path).gated] == ["sepformer_whisper_gpt4o"]


def test_the_papers_two_configurations_differ_by_diarization_and_the_gate_alone() -> None:
    """So that a comparison of their scores says what the gate does."""
    without, gated = (
        [stage.model_dump() for stage in load_config(name).stages]
        for name in ("sepformer_whisper_gpt4o", "sepformer_pyannote_gate_whisper_gpt4o")
    )
    assert without[0] == gated[0]
    assert without[3:] == gated[3:]
    assert [stage["use"] for stage in without[1:3]] == ["loudest_source", "everyone"]
    assert [stage["use"] for stage in gated[1:3]] == ["pyannote", "main_speaker"]


def test_it_names_no_files_of_somebodys_machine(config: CascadeConfig) -> None:
    for stage in config.stages:
        assert not isinstance(stage, MainSpeakerSettings) or not stage.enrolment
        assert not any(re.match(r"[/~]|[A-Za-z]:\\", str(value)) for value in stage.model_dump().values())


def test_it_holds_no_secret(path: Path) -> None:
    """A key is in the environment: a comment may name its variable, no setting may hold it."""
    settings = "\n".join(line.partition("#")[0] for line in path.read_text().splitlines())
    assert not re.search(r"(?i)key|token|secret|password", settings)
    assert not re.search(r"\b(sk|hf)[-_]\w{6,}", path.read_text())


def test_its_models_have_manifests(config: CascadeConfig) -> None:
    folder = data_folder("models")
    wanted = {model for stage in config.stages for model in stage.models}
    assert wanted <= {manifest.stem for manifest in folder.glob("*.yaml")}


@pytest.mark.parametrize("name", ["ondevice", "foreground"])
def test_the_on_device_configurations_need_no_more_than_their_extra(name: str) -> None:
    """Its first line promises: two CPU cores, no network, no account, no torch."""
    config = load_config(name)
    assert {stage.extra for stage in config.stages} == {None, "ondevice"}
    for stage in config.stages:
        assert stage.model_dump().get("device", "cpu") == "cpu"
    assert not any("torch" in line for line in _extra("ondevice"))


def test_the_two_on_device_configurations_differ_by_the_foreground_alone() -> None:
    """So that a comparison of their figures says what the foreground does."""
    names = ("ondevice", "foreground")
    without, with_it = ([stage.model_dump() for stage in load_config(name).stages] for name in names)
    assert (without[0]["use"], with_it[0]["use"]) == ("mixture", "foreground")
    assert (without[2].pop("overlap"), with_it[2].pop("overlap")) == ("admit_if_dominant", "foreground")
    assert without[1:] == with_it[1:]
    assert with_it[0] == {"use": "foreground", "model": "foreground", "threads": 1}


def _extra(name: str) -> list[str]:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    return [str(line) for line in project["optional-dependencies"][name]]
