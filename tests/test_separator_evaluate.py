"""models/separator/evaluate.py."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from cascade.types import Samples, seconds
from tests.small_sepformer import forget_lazy_modules

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import evaluate
import network
from corpus import Spoken
from mixing import active_power, to_flac
from mixtures import read_rooms
from references import read_scenes
from rooms import write_rooms
from shapes import BandsShape, SepFormerShape


def noise(seed: int, level: float) -> Samples:
    """Five seconds of noise."""
    return (level * np.random.default_rng(seed).standard_normal(seconds(5))).astype(np.float32)


MAIN, BYSTANDER = noise(0, 0.1), noise(1, 0.03)


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """One scene, with every speaker alone."""
    folder = tmp_path / "scenes" / "one"
    folder.mkdir(parents=True)
    for name, samples in (("mixture", MAIN + BYSTANDER), ("main", MAIN), ("bystander", BYSTANDER)):
        (folder / f"{name}.flac").write_bytes(to_flac(samples))
    lines = [f"SPEAKER one 1 0.000 5.000 <NA> <NA> {name} <NA> <NA>\n" for name in ("main", "bystander")]
    (folder / "reference.rttm").write_text("".join(lines))
    said = [("main", "bread and butter"), ("bystander", "doctor and ticket")]
    entries = [
        {"session_id": "one", "speaker": name, "start_time": 0.0, "end_time": 5.0, "words": words}
        for name, words in said
    ]
    (folder / "reference.json").write_text(json.dumps(entries))
    return tmp_path / "scenes"


def thirds(spectra: np.ndarray) -> np.ndarray:
    """A network that separates nothing."""
    return np.stack([0.7 * spectra, 0.3 * spectra], 1).astype(np.float32)


def test_si_sdr_of_noise_is_its_ratio() -> None:
    assert evaluate.si_sdr(MAIN + BYSTANDER, MAIN) == pytest.approx(20 * np.log10(0.1 / 0.03), abs=0.2)
    assert evaluate.si_sdr(0.5 * MAIN, MAIN) > 90


def test_who_separates_nothing_gains_nothing(scenes: Path) -> None:
    measured = evaluate.measure(read_scenes(scenes)[0], thirds, None)
    assert measured.foreground is not None
    assert measured.background is not None
    assert measured.foreground.mixture == pytest.approx(10.5, abs=0.3)
    assert measured.background.mixture == pytest.approx(-10.5, abs=0.3)
    assert measured.foreground.gain == pytest.approx(0, abs=0.1)
    assert measured.foreground.adding_up == pytest.approx(0, abs=0.1)
    assert measured.background.gain == pytest.approx(0, abs=0.1)
    assert measured.words == {}


def test_words_are_counted_where_they_are_heard(scenes: Path) -> None:
    def hear(samples: Samples) -> str:
        level = float(np.sqrt(np.mean(np.square(samples))))
        return "bread doctor" if level > 0.09 else "doctor ticket"

    words = evaluate.measure(read_scenes(scenes)[0], thirds, hear).words
    assert words["bystander mixture"] == (1, 2)
    assert words["bystander source"] == (2, 2)
    assert words["leaked"] == (2, 2)
    assert words["main mixture"] == (1, 2)
    assert words["main source"] == (0, 2)


def test_who_is_silent_has_no_gain(scenes: Path) -> None:
    (scenes / "one" / "bystander.flac").write_bytes(to_flac(np.zeros_like(MAIN)))
    measured = evaluate.measure(read_scenes(scenes)[0], thirds, None)
    assert measured.background is None
    assert evaluate.mean_gain([measured.background]) is None
    assert " - " in evaluate.show(measured)


def test_words_and_gains_are_added_up() -> None:
    gain = evaluate.Gain(-10.0, 6.0, 5.0)
    one = evaluate.Measured("a", gain, gain, 0.1, {"leaked": (1, 4)})
    other = evaluate.Measured("b", gain, evaluate.Gain(-20.0, 8.0, 7.0), 0.3, {"leaked": (2, 6)})
    assert evaluate.sum_words([one, other]) == {"leaked": (3, 10)}
    assert evaluate.mean_gain([one.background, other.background]) == evaluate.Gain(-15.0, 7.0, 6.0)
    assert "leaked 30" in evaluate.total([one, other])


def test_the_command_writes_a_table_and_a_file(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "mean.pt", BandsShape(width=4, layers=1))
    arguments = [str(tmp_path / "mean.pt"), str(scenes), "--json", str(tmp_path / "out.json")]
    assert evaluate.main(arguments) == 0
    assert "mean of 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())[0]["scene"] == "one"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Three voices of noise for the test split, and a room that echoes nothing."""
    lines = [Spoken(f"voice{number}", "test", "text", 5.0, f"speech/test/{number}.flac") for number in range(3)]
    (tmp_path / "speech" / "test").mkdir(parents=True)
    for number, line in enumerate(lines):
        (tmp_path / line.file).write_bytes(to_flac(noise(number, 0.05)))
    (tmp_path / "speech" / "test.jsonl").write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))
    responses = np.zeros((1, 6, 8), np.float16)
    responses[:, :, 0] = 1
    write_rooms(tmp_path / "rooms" / "test.npz", responses)
    return tmp_path


def save(path: Path, shape: BandsShape) -> Path:
    """Write a network as train.py does."""
    torch.save({"shape": shape.model_dump(), "weights": network.build(shape).state_dict(), "step": 0}, path)
    return path


def test_networks_are_compared_on_mixtures_of_the_test_split(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = save(bank / "one.pt", BandsShape(width=4, layers=1))
    other = save(bank / "other.pt", BandsShape(width=4, layers=1))
    where = ["--corpus", str(bank), "--rooms", str(bank / "rooms"), "--count", "2"]
    assert evaluate.main([str(one), "--beside", str(other), *where]) == 0
    _, heads, first, second = capsys.readouterr().out.splitlines()
    assert heads.split() == ["kind", "parameters", "size", "RTF", "foreground", "background", "network"]
    assert (first.split()[-1], second.split()[-1]) == (str(one), str(other))
    assert first.split()[2] == "M"
    with pytest.raises(SystemExit):
        evaluate.main([str(one), "scenes", "--beside", str(other)])
    assert "--beside compares on mixtures of the test split" in capsys.readouterr().err


@pytest.fixture
def _speechbrain() -> Iterator[None]:
    """hypothesis looks at all modules, in the tests that run after these: speechbrain's lazy ones must be gone."""
    pytest.importorskip("speechbrain", reason="a SepFormer is made of speechbrain's modules")
    yield
    forget_lazy_modules()


@pytest.mark.usefixtures("_speechbrain")
def test_a_sepformer_is_measured_as_any_other(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = SepFormerShape(kernel=512, width=4, heads=1, hidden=4, layers=1, blocks=1)
    built = network.build(shape)
    torch.save({"shape": shape.model_dump(), "weights": built.state_dict()}, bank / "mean.pt")
    built.save(bank / "folder")
    where = [bank], bank / "rooms", 2
    in_torch = evaluate.measure_drawn(evaluate.load_network(bank / "mean.pt"), *where)
    in_folder = evaluate.measure_drawn(evaluate.load_network(bank / "folder"), *where)
    assert in_folder == pytest.approx(in_torch, abs=0.01)
    arguments = [str(bank / "folder"), "--corpus", str(bank), "--rooms", str(bank / "rooms"), "--count", "1"]
    assert evaluate.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("SepFormer")
    (bank / "folder" / "masknet.ckpt").unlink()
    assert evaluate.main(arguments) == 2
    assert "has no masknet.ckpt" in capsys.readouterr().err


def test_a_network_is_timed() -> None:
    timed = evaluate.Timed(thirds)
    spectra = np.ones((1, 2, 257, 125), np.float32)
    np.testing.assert_array_equal(timed(spectra), thirds(spectra))
    assert 0 < timed.rtf < 1


def test_mixtures_of_the_test_split_can_be_drawn(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    banks = [bank], bank / "rooms", 3
    assert evaluate.measure_drawn(thirds, *banks) == pytest.approx((0, 0), abs=0.01)

    def wrong(spectra: np.ndarray) -> np.ndarray:
        return np.stack([spectra, np.roll(spectra, 7, 2)], 1).astype(np.float32)

    foreground, background = evaluate.measure_drawn(wrong, *banks)
    assert foreground == pytest.approx(0, abs=0.01)
    assert background < -3
    with pytest.raises(SystemExit):
        evaluate.main(["some.onnx"])
    assert "give SCENES_DIR, or --corpus and --rooms" in capsys.readouterr().err


def test_recordings_are_put_near_and_far_in_rooms(bank: Path) -> None:
    rooms = read_rooms(bank / "rooms", "test")
    near, far = noise(2, 0.2)[: seconds(2)], noise(3, 0.01)
    found = evaluate.put_in_rooms(near, far, rooms, 1)
    assert len(found) == 1
    levels = [10 * np.log10(active_power(track)) for track in (found[0].main, found[0].bystander)]
    assert levels == pytest.approx([-26, -36], abs=0.1)
    assert len(found[0].main) == seconds(5)
    np.testing.assert_array_equal(found[0].mixture, found[0].main + found[0].bystander)


def test_two_recordings_are_measured_in_rooms(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = save(bank / "mean.pt", BandsShape(width=4, layers=1))
    for name, samples in (("near", MAIN), ("far", BYSTANDER)):
        (bank / f"{name}.flac").write_bytes(to_flac(samples))
    asked = [str(weights), "--near", str(bank / "near.flac"), "--rooms", str(bank / "rooms"), "--count", "1"]
    assert evaluate.main([*asked, "--far", str(bank / "far.flac")]) == 0
    first, mean = capsys.readouterr().out.splitlines()[1:]
    assert first.startswith("room 1 ")
    assert mean.startswith("mean of 1 ")
    assert evaluate.main([*asked, "--far", str(bank / "no.flac")]) == 2
    assert "no.flac" in capsys.readouterr().err
    for place in (bank, bank / "none" / "numbers.json"):
        assert evaluate.main([*asked, "--far", str(bank / "far.flac"), "--json", str(place)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"evaluate.py: --json {place} isn't a file in a folder that is there; name such a one"


def test_a_guess_without_the_source_is_worth_a_number() -> None:
    assert np.isfinite(evaluate.si_sdr(np.zeros_like(MAIN), MAIN))


def test_a_scene_without_its_tracks_is_one_line(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "mean.pt", BandsShape(width=4, layers=1))
    (scenes / "one" / "bystander.flac").unlink()
    assert evaluate.main([str(tmp_path / "mean.pt"), str(scenes)]) == 2
    assert "no main.flac and bystander.flac" in capsys.readouterr().err
