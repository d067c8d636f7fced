"""Every block of the README that is marked as one to run is run; what it claims is compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(mark: str, language: str) -> list[str]:
    """The blocks of a language behind an HTML comment that holds the mark."""
    return re.findall(rf"<!-- {mark} -->\s*```{language}\n(.*?)\n```", README, re.DOTALL)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder that looks like a checkout to the README's commands, and is not one that they can litter."""
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    return tmp_path


def execute(arguments: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(command: str, folder: Path) -> str:
    return execute(["bash", "-euc", command.replace("python -m", f"{sys.executable} -m")], folder)


def without_times(text: str) -> list[str]:
    """The lines with tenths of seconds left out: 8-bit networks place a border differently on another processor."""
    return [re.sub(r"\d+\.\d\b", "#", line) for line in text.rstrip().splitlines()]


def test_there_are_blocks_to_run() -> None:
    assert len(blocks("run", "sh")) == 3
    assert len(blocks("run", "python")) == 1


def test_the_first_screen_is_what_is_printed(desk: Path) -> None:
    printed = shell(blocks("run", "sh")[0], desk)
    assert without_times(printed) == without_times(blocks("output", "text")[0])
    written = {path.name for path in (desk / "out" / "talk").iterdir()}
    section = README.split("## What is written")[1].split("## SH-Bench")[0]
    documented = set(re.findall(r"`(\w+\.\w+)`(?:, `\.vtt`)? \|", section))
    assert written == documented | {"transcript.vtt"}


@pytest.mark.parametrize("command", blocks("run", "sh")[1:])
def test_the_other_commands_run(command: str, desk: Path) -> None:
    assert "ok" in shell(command, desk)


def test_the_python_block_answers(desk: Path) -> None:
    printed = execute([sys.executable, "-c", blocks("run", "python")[0]], desk)
    assert "withheld" in printed
    assert printed.splitlines()[-1] == "My brother Daniel will pick us up at the station in his green van."


def test_the_configuration_shown_is_the_file() -> None:
    shown = blocks("file configs/ondevice.yaml", "yaml")[0]
    assert shown.strip() == (ROOT / "configs" / "ondevice.yaml").read_text(encoding="utf-8").strip()


def test_every_reason_is_explained() -> None:
    from cascade.types import WithholdReason

    table = README.split("closed list")[1].split("`delay`")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(WithholdReason)


def test_every_setting_is_explained_with_its_default() -> None:
    from cascade.settings import stages_by_name

    table = README.split("## Configurations")[1].split("## What is kept")[0]
    for name, settings in stages_by_name().items():
        row = next(line for line in table.splitlines() if line.startswith(f"| `{name}` |"))
        for key in set(settings.model_fields) - {"use"}:
            assert f"`{key}`" in row, f"{name}.{key} is not in the README"


def test_every_setting_of_the_benchmark_and_every_file_of_a_run_is_explained() -> None:
    from cascade.config import BenchmarkSettings
    from cascade.shbench.results import FINAL_FILES

    section = README.split("## SH-Bench")[1].split("## In Python")[0]
    for name in (*BenchmarkSettings.model_fields, *FINAL_FILES):
        assert f"`{name}`" in section, f"{name} is not in the README"


def test_links_and_paths_exist() -> None:
    for path in re.findall(r"`((?:configs|benchmarks|models|cascade|tests)/[\w./-]*)`", README):
        assert (ROOT / path).exists(), path
