from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cascade.errors import OutputError
from cascade.output.files import in_use
from cascade.output.report import plan_report, write_report


def test_a_page_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    plan_report(path)
    assert not path.exists()
    write_report(path, "é\ud800")
    assert path.read_bytes() == "é?".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("there", ["file", "folder", "dangling link"])
def test_nothing_is_replaced(there: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    if there == "file":
        path.write_text("mine")
    elif there == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "away")
    before = sorted(tmp_path.iterdir())
    refusal = r"report.html' exists .* and is not overwritten; give another --report or remove it$"
    with pytest.raises(OutputError, match=refusal):
        plan_report(path)
    with pytest.raises(OutputError, match=refusal):
        write_report(path, "new")
    assert sorted(tmp_path.iterdir()) == before
    assert there != "file" or path.read_text() == "mine"


def test_a_place_that_cannot_be_written_is_said_before_anything_is_heard(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file' is not a folder.*; give another --report$"):
        plan_report(tmp_path / "file" / "report.html")


def test_a_folder_that_is_gone_by_then_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written: No such file or directory; make room or"):
        write_report(tmp_path / "gone" / "report.html", "page")


def test_what_a_run_left_that_was_killed_is_deleted_and_what_is_in_use_stays(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 150 + ".html")
    left, used, other = (tmp_path / f".{name}.partial-x{number}" for number, name in enumerate(["n" * 100] * 2 + ["m"]))
    for folder in (left, used, other):
        folder.mkdir()
        (folder / "page").touch()
    with in_use(used):
        plan_report(path)
    assert sorted(tmp_path.iterdir()) == sorted([used, other])


def test_a_long_name_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".html")
    plan_report(path)
    write_report(path, "page")
    assert path.read_text() == "page"
