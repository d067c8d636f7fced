"""models/separator/pack.py."""

import json
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import mixtures
import pack
import rooms
from corpus import Spoken
from mixing import to_flac


def write_bank(folder: Path, voice: str) -> None:
    """Write a bank in which two voices say a tone each, in each split."""
    for split in ("train", "valid", "test"):
        lines = [Spoken(f"{voice}{number}", split, "text", 1.0, f"speech/{split}/{number}.flac") for number in range(2)]
        for line in lines:
            path = folder / line.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(to_flac(np.sin(np.arange(16_000, dtype=np.float32) / np.float32(5)) / np.float32(3)))
        text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
        (folder / "speech" / f"{split}.jsonl").write_text(text)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Two banks and four rooms."""
    for name in ("a", "b"):
        write_bank(tmp_path / name, name)
    for split in ("train", "valid"):
        rooms.write_rooms(tmp_path / "rooms" / f"{split}.npz", np.ones((4, 6, 8), np.float16))
    banks = ["--corpus", str(tmp_path / "a"), "--corpus", str(tmp_path / "b")]
    return [*banks, "--rooms", str(tmp_path / "rooms"), "--rooms-of", "3", "--out", str(tmp_path / "pack.tar")]


def test_what_is_unpacked_can_be_trained_on(tmp_path: Path, arguments: list[str]) -> None:
    assert pack.main(arguments) == 0
    with tarfile.open(tmp_path / "pack.tar") as archive:
        archive.extractall(tmp_path / "data", filter="data")
    speech = mixtures.read_speech([tmp_path / "data" / "corpus"], "train")
    assert len(speech.voices) == 4
    assert len(speech.voices[0][0]) == pytest.approx(16_000, abs=400)
    spectrum = np.abs(np.fft.rfft(speech.voices[0][0][2000:10_000]))
    assert spectrum.argmax() == pytest.approx(8000 / (10 * np.pi), abs=1)
    assert len(mixtures.read_rooms(tmp_path / "data" / "rooms", "valid").near) == 3


def test_the_test_split_stays_here(tmp_path: Path, arguments: list[str]) -> None:
    pack.main(arguments)
    with tarfile.open(tmp_path / "pack.tar") as archive:
        assert not [name for name in archive.getnames() if "test" in name]


def test_an_empty_bank_is_one_line(tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "speech" / "train.jsonl").write_text("")
    assert pack.main(arguments) == 2
    assert "no speech for train" in capsys.readouterr().err
    assert not (tmp_path / "pack.tar").exists()
    assert not (tmp_path / ".pack.tar").exists()
