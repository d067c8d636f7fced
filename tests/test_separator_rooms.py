"""models/separator/rooms.py."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import mixtures
import rooms
from mixing import Impulse, Room


def falling(room: Room, position: tuple[float, float], distance_m: float) -> Impulse:
    """A response whose second tap tells the distance."""
    return np.array([2.0, distance_m / 5])


def test_near_and_far_places_are_as_far_away_as_they_should(tmp_path: Path) -> None:
    made = np.stack([rooms.make_room("train", 0, number, falling) for number in range(30)])
    distances = 2 * 5 * made[:, :, 1].astype(np.float64)
    near, far = distances[:, : rooms.NEAR], distances[:, rooms.NEAR :]
    assert 0.16 <= near.min() < 0.35
    assert 0.85 < near.max() <= 1.04
    assert far.min() >= 1.49
    assert far.max() <= 5.01


def test_rooms_differ_between_splits_and_seeds_and_numbers() -> None:
    firsts = [
        rooms.make_room(*which, falling).tobytes()
        for which in (("train", 0, 0), ("valid", 0, 0), ("test", 0, 0), ("train", 1, 0), ("train", 0, 1))
    ]
    assert len(set(firsts)) == len(firsts)
    assert rooms.make_room("train", 0, 0, falling).tobytes() == firsts[0]


def test_a_response_peaks_at_one_whatever_the_distance() -> None:
    assert rooms.make_room("train", 0, 0, falling)[:, 0].tolist() == [1.0] * 6


def test_what_is_written_is_what_mixtures_read(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--train", "3", "--valid", "2", "--test", "1"]
    assert rooms.main(arguments, falling) == 0
    read = mixtures.read_rooms(tmp_path, "train")
    assert read.near.shape == (3, 2, rooms.N_TAPS)
    assert read.far.shape == (3, 4, rooms.N_TAPS)
    assert len(mixtures.read_rooms(tmp_path, "valid").near) == 2


def test_a_split_that_is_there_is_kept(tmp_path: Path) -> None:
    def fail(room: Room, position: tuple[float, float], distance_m: float) -> Impulse:
        raise AssertionError("made anew")

    arguments = ["--out", str(tmp_path), "--train", "1", "--valid", "1", "--test", "1"]
    assert rooms.main(arguments, falling) == 0
    assert rooms.main(arguments, fail) == 0


def test_what_is_no_split_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test.npz").write_text("mine")
    assert rooms.main(["--out", str(tmp_path)], falling) == 2
    assert "test.npz isn't a file of rooms: remove it" in capsys.readouterr().err
    assert (tmp_path / "test.npz").read_text() == "mine"


def test_a_missing_package_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(room: Room, position: tuple[float, float], distance_m: float) -> Impulse:
        raise ModuleNotFoundError(name="pyroomacoustics")

    assert rooms.main(["--out", str(tmp_path)], fail) == 2
    assert "pyroomacoustics isn't installed" in capsys.readouterr().err
