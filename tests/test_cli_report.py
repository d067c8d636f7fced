"""`run --report`, as a user meets it."""

from __future__ import annotations

import signal
import stat
import time
from pathlib import Path

import numpy as np
import soundfile

from tests.html_page import Page
from tests.test_cli import RUN, TALK, cascade, short, start
from tests.test_cli_benchmark import SHMINI


def test_recordings_have_a_page_also_those_that_failed(tmp_path: Path) -> None:
    name = "<script>alert(1)<!--.wav"
    short(tmp_path / name)
    code, out, err = cascade(*RUN, name, "nofile.wav", "--out", "out", "--report", "out/new/r.html", cwd=tmp_path)
    assert code == 1, err
    assert out.splitlines()[-1] == "the report is out/new/r.html"
    path = tmp_path / "out" / "new" / "r.html"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    page = Page(path.read_text(encoding="utf-8"))
    page.check_self_contained()
    assert name in page.text
    assert "Failed: 'nofile.wav' does not exist" in page.words


def test_a_report_that_exists_is_refused_before_anything_is_heard(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    (tmp_path / "r.html").write_text("mine")
    for what in (("s.wav",), ("--data", SHMINI / "questions.json", "--limit", "1")):
        code, out, err = cascade(*RUN, *what, "--report", "r.html", cwd=tmp_path)
        assert (code, out) == (2, "")
        assert err == "error: 'r.html' exists already and is not overwritten; give another --report or remove it\n"
    assert (tmp_path / "r.html").read_text() == "mine"


def test_ctrl_c_leaves_a_page_about_what_is_finished(tmp_path: Path) -> None:
    short(tmp_path / "first.wav")
    talk = soundfile.read(TALK, dtype="float32")[0]
    soundfile.write(tmp_path / "second.wav", np.tile(talk, 10), 16_000)
    process = start(*RUN, "first.wav", "second.wav", "--out", "out", "--report", "r.html", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / "first").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.splitlines()[-1] == "the report is r.html"
    assert "What was heard in first.wav" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_benchmark_has_a_page(tmp_path: Path) -> None:
    code, out, err = cascade(*RUN, "--limit", "1", "--mode", "selective", "--report", "r.html", cwd=tmp_path)
    assert code == 0, err
    assert out.splitlines()[-1] == "the report is r.html"
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    page.check_self_contained()
    assert "Benchmark of ondevice" in page.words
