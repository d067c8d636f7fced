"""Every file in configs/: it loads, it fits, and what its comments say is so."""

from __future__ import annotations

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


def test_it_begins_by_saying_what_it_is(path: Path) -> None:
    assert re.match(r"# [A-Z].+\.\n", path.read_text())


def test_each_stage_says_truly_what_it_takes_and_gives(path: Path, config: CascadeConfig) -> None:
    lines = stage_lines(path)
    assert [line["use"] for line in lines] == [stage.use for stage in config.stages]
    for line in lines:
        stage = stages_by_name()[line["use"]]
        assert (line["takes"], line["gives"]) == (stage.takes.__name__, stage.gives.__name__), line[0]


def test_it_goes_from_audio_through_a_gate(config: CascadeConfig) -> None:
    assert config.stages[0].takes is AudioChunk
    assert [stage.use for stage in config.stages if stage.gives is AdmittedTurn] == ["main_speaker"]


def test_it_names_no_files_of_somebodys_machine(config: CascadeConfig) -> None:
    for stage in config.stages:
        assert not isinstance(stage, MainSpeakerSettings) or not stage.enrolment
        assert not any(re.match(r"[/~]|[A-Za-z]:\\", str(value)) for value in stage.model_dump().values())


def test_it_holds_no_secret(path: Path) -> None:
    assert not re.search(r"(?i)key|token|secret|password", path.read_text())


def test_its_models_have_manifests(config: CascadeConfig) -> None:
    folder = data_folder("models")
    wanted = {model for stage in config.stages for model in stage.models}
    assert wanted <= {manifest.stem for manifest in folder.glob("*.yaml")}


def test_the_on_device_configuration_needs_no_more_than_its_extra() -> None:
    """Its first line promises: two CPU cores, no network, no account, no torch."""
    config = load_config("ondevice")
    assert {stage.extra for stage in config.stages} == {None, "ondevice"}
    for stage in config.stages:
        assert stage.model_dump().get("device", "cpu") == "cpu"
    assert not any("torch" in line for line in _extra("ondevice"))


def _extra(name: str) -> list[str]:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    return [str(line) for line in project["optional-dependencies"][name]]
