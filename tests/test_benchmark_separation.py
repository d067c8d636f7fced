"""The program that measures SepFormer: what it exits with."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_sepformer import forget_lazy_modules

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # the programs find each other there, as they do when they are run

import separation  # noqa: E402


@pytest.fixture(autouse=True)
def _with_speechbrain() -> Iterator[None]:
    if importlib.util.find_spec("speechbrain") is None:
        pytest.skip("the extra `paper` is not installed: SepFormer needs torch and speechbrain")
    yield
    forget_lazy_modules()


def test_a_row_that_fails_is_told_by_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert separation.main(["0.5", "--way", "windows", "--limit-gb", "0.01", "--threads", "1"]) == 1
    assert "exit " in capsys.readouterr().out.splitlines()[-1]


def test_rows_that_work_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert separation.main(["0.5", "--way", "windows", "--threads", "1"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:2] == ["0.5", "windows"]
    assert float(row[2]) > 0
