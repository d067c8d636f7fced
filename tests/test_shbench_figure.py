from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from cascade.shbench.figure import LONGEST_LABEL, RUN_COLOUR, Picture, Point, figure4, paper_points, run_points
from cascade.shbench.paper import load_paper

ROOT = Path(__file__).resolve().parents[1]
PAPER = load_paper()
SHORT = [system.short for system in PAPER.systems]

Json = dict[str, Any]


def mode(bystander: float | None, interval: list[float] | None = None) -> Json:
    return {"main": None, "bystander": {"accuracy": bystander, "total": 1000, "cluster95": interval}}


def system(name: str, general: Json | None, selective: Json | None, **setting: bool) -> Json:
    read = {"general": general, "selective": selective, "se": None}
    other = {"general": mode(0.5), "selective": mode(0.5), "se": None}
    return {"name": name, "files": [f"{name}.json"], "setting": setting, "parsers": {"strict": read, "paper": other}}


def scores(*systems: Json) -> Json:
    return {"systems": list(systems)}


MINE = system("mine", mode(0.3, [0.25, 0.36]), mode(0.9, [0.8, 0.95]))


@pytest.fixture(scope="module")
def picture() -> Picture:
    return figure4(scores(MINE), PAPER)


def texts(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [str(element.text) for element in root.iter("{http://www.w3.org/2000/svg}text")]


# --- points -----------------------------------------------------------------------------------------------------------


def test_the_papers_points_are_bystander_accuracies() -> None:
    points = {point.label: point for point in paper_points(PAPER)}
    assert list(points) == SHORT
    assert points["Qwen-2.5-Omni 7B"] == Point("Qwen-2.5-Omni 7B", general=48.2, selective=47.6)
    assert points["Llama-Omni 2 14B"] == Point("Llama-Omni 2 14B", general=15.3, selective=87.0)


def test_a_runs_points_have_intervals_by_recording() -> None:
    (point,) = run_points(scores(MINE), "strict")
    assert point == Point("mine", 30.0, 90.0, (25.0, 36.0), (80.0, 95.0), own=True)


def test_the_reader_is_the_callers_choice() -> None:
    (point,) = run_points(scores(MINE), "paper")
    assert point == Point("mine", 50.0, 50.0, None, None, own=True)


@pytest.mark.parametrize(
    "other",
    [
        system("half", mode(0.3), None),
        system("unknown", mode(None), mode(0.3)),
        system("noidk", mode(0.3), mode(0.3), idk_option=False),
    ],
)
def test_systems_that_have_no_place_are_left_out(other: Json) -> None:
    assert list(run_points(scores(other), "strict")) == []


def test_what_sets_a_system_apart_is_in_its_label() -> None:
    shut = {**system("mine", mode(0.1), mode(0.9)), "setting": {"always_shut": True}}
    bare = system("mine", mode(0.1), mode(0.9), described=False)
    labels = [point.label for point in run_points(scores(shut, bare), "strict")]
    assert labels == ["mine (gate always shut)", "mine (no description)"]


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_svg_holds_each_label_once(picture: Picture) -> None:
    found = texts(picture.svg)
    for label in [*SHORT, "mine"]:
        assert found.count(label) == 1


def test_the_axes_go_from_0_to_100(picture: Picture) -> None:
    ticks = [text for text in texts(picture.svg) if text.isdigit()]
    assert ticks == ["0", "20", "40", "60", "80", "100"] * 2


def test_the_png_has_the_run_in_its_own_colour(picture: Picture) -> None:
    pixels = np.round(imread(io.BytesIO(picture.png))[:, :, :3] * 255).astype(int)
    height, width, _ = pixels.shape
    assert min(height, width) > 900
    colour = [int(RUN_COLOUR[start : start + 2], 16) for start in (1, 3, 5)]
    assert (pixels == colour).all(axis=2).sum() > 50
    without = np.round(imread(io.BytesIO(figure4(scores(), PAPER).png))[:, :, :3] * 255).astype(int)
    assert not (without == colour).all(axis=2).any()


@pytest.mark.parametrize(
    ("general", "selective", "bars"),
    [(None, None, 0), ([0.1, 0.5], None, 1), (None, [0.1, 0.5], 1), ([0.1, 0.5], [0.1, 0.5], 2)],
)
def test_each_interval_is_drawn(general: list[float] | None, selective: list[float] | None, bars: int) -> None:
    svg = figure4(scores(system("m", mode(0.3, general), mode(0.3, selective))), PAPER).svg
    assert svg.count(b'id="LineCollection_') == bars


def test_a_point_higher_up_is_drawn_higher_up() -> None:
    def row_of(selective: float) -> float:
        png = figure4(scores(system("m", mode(0.02), mode(selective))), PAPER).png
        pixels = np.round(imread(io.BytesIO(png))[:, :, :3] * 255).astype(int)
        colour = [int(RUN_COLOUR[start : start + 2], 16) for start in (1, 3, 5)]
        return float(np.nonzero((pixels == colour).all(axis=2))[0].mean())

    assert row_of(0.7) < row_of(0.2) - 300


def test_the_same_scores_give_the_same_bytes(picture: Picture) -> None:
    assert figure4(scores(MINE), PAPER) == picture


def test_another_process_with_other_settings_gives_the_same_bytes(picture: Picture, tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: black\nxtick.labelsize: 30\nsvg.fonttype: path\n")
    program = (
        "import json, sys\n"
        "from cascade.shbench.figure import figure4\n"
        "from cascade.shbench.paper import load_paper\n"
        "made = figure4(json.loads(sys.argv[1]), load_paper())\n"
        "sys.stdout.buffer.write(made.svg + made.png)\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", program, json.dumps(scores(MINE))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
        capture_output=True,
        check=True,
    )
    assert made.stdout == picture.svg + picture.png


def test_nothing_tells_when_or_by_which_version_it_was_made(picture: Picture) -> None:
    assert b"<dc:date>" not in picture.svg
    assert b"matplotlib.org" not in picture.svg + picture.png


@pytest.mark.parametrize("name", ["<b>&amp;</b> ]]>", "$x^2$", "中文", "a\x00b\ufffe\nc", "x" * 300, "\\alpha %"])
def test_any_name_gives_a_valid_figure(name: str) -> None:
    found = texts(figure4(scores(system(name, mode(1.0), mode(0.0))), PAPER).svg)
    shown = " ".join(name.replace("\x00", "").replace("\ufffe", "").split())
    expected = shown if len(shown) <= LONGEST_LABEL else f"{shown[:LONGEST_LABEL]}…"
    assert found.count(expected) == 1


def test_systems_at_one_place_have_labels_at_several() -> None:
    same = [system(f"run {number}", mode(0.3), mode(0.6)) for number in range(5)]
    root = ElementTree.fromstring(figure4(scores(*same), PAPER).svg)
    places = [
        (float(element.attrib["x"]), float(element.attrib["y"]))
        for element in root.iter("{http://www.w3.org/2000/svg}text")
        if str(element.text).startswith("run ")
    ]
    assert len(places) == 5
    assert all(
        abs(a[1] - b[1]) > 7 or abs(a[0] - b[0]) > 10 for number, a in enumerate(places) for b in places[number + 1 :]
    )  # 8 points is a line's height


def test_without_matplotlib_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from cascade.errors import MissingExtraError\n"
        "from cascade.shbench.figure import figure4\n"
        "from cascade.shbench.paper import load_paper\n"
        "try:\n    figure4({'systems': []}, load_paper())\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.strip() == (
        "the Python package 'matplotlib' is not installed; in cascade's checkout, run: pip install -e '.[plots]'"
    )


def test_a_run_that_was_asked_other_numbers_of_questions_says_so(picture: Picture) -> None:
    few: Json = {"accuracy": 0.3, "total": 10, "cluster95": None}
    mine = system("small", {"main": few, "bystander": few}, {"main": few, "bystander": few})
    mine["parsers"]["paper"] = mine["parsers"]["strict"]
    line = "asked 20 questions in each mode, and 2000: they cannot be compared as they stand"
    assert line in texts(figure4(scores(mine), PAPER).svg)
    assert not [text for text in texts(picture.svg) if "asked" in text]
