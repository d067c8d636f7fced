"""Every program of benchmarks/ from a Python without cascade."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PROGRAMS = [path.name for path in sorted(BENCHMARKS.glob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]


def test_there_are_programs() -> None:
    assert {"scenes.py", "leakage.py", "ondevice.py"} <= set(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_cascade_a_program_ends_with_one_line(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(BENCHMARKS / program)],  # without site-packages nothing is installed
        cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    line = f"{program}: cascade isn't installed for {sys.executable}; in its checkout, run: "
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{line}{sys.executable} -m pip install -e .\n"
