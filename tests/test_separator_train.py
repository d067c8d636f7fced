"""models/separator/train.py and export.py: a run, from its settings to the ONNX file."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from cascade.backends import separator
from cascade.types import seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import export
import mixtures
import network
import rooms
import train
from corpus import Spoken
from mixing import read_description, to_flac

SETTINGS = "kind: bands\nwidth: 4\nlayers: 1\nbatch: 2\nrate: 0.001\nvalidated: 3\nlogged: 1\n"
HERE = Path(train.__file__).parent


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of four voices of noise in each split, and rooms that echo nothing."""
    folder = tmp_path_factory.mktemp("data")
    for split in ("train", "valid"):
        lines = [Spoken(f"voice{n}", split, "text", 1.0, f"speech/{split}/{n}.flac") for n in range(4)]
        for number, line in enumerate(lines):
            path = folder / line.file
            path.parent.mkdir(parents=True, exist_ok=True)
            rng = np.random.default_rng(number)
            path.write_bytes(to_flac((0.05 * rng.standard_normal(16_000)).astype(np.float32)))
        text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
        (folder / "speech" / f"{split}.jsonl").write_text(text)
        responses = np.zeros((2, 6, 8), np.float16)
        responses[:, :, 0] = 1
        rooms.write_rooms(folder / "rooms" / f"{split}.npz", responses)
    (folder / "settings.yaml").write_text(SETTINGS)
    return folder


def start(run: Path, data: Path, *more: str) -> int:
    """Start a run, or go on with it."""
    known = ["--corpus", str(data), "--rooms", str(data / "rooms"), "--settings", str(data / "settings.yaml")]
    return train.main([str(run), *known, *more])


def log_of(run: Path) -> list[dict[str, object]]:
    """All lines of a run's log."""
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_equal_runs_give_equal_weights(tmp_path: Path, data: Path) -> None:
    for name in ("one", "other"):
        assert start(tmp_path / name, data, "--steps", "3") == 0
    one, other = (torch.load(tmp_path / name / "mean.pt") for name in ("one", "other"))
    assert one["step"] == other["step"] == 3
    for name, value in one["weights"].items():
        torch.testing.assert_close(value, other["weights"][name])
    assert [line["step"] for line in log_of(tmp_path / "one") if "loss" in line] == [1, 2, 3]


def test_what_is_kept_is_all_that_a_run_is(tmp_path: Path, data: Path) -> None:
    """A run that goes on from its checkpoint makes the step that it would have made."""
    assert start(tmp_path / "run", data, "--steps", "2") == 0
    settings = read_description(tmp_path / "run" / "settings.yaml", train.Settings)
    drawn = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 8000)).astype(np.float32))
    first = train.Run(tmp_path / "run", settings, "cpu")
    first.learn(drawn, 1e-3)
    first.save()
    second = train.Run(tmp_path / "run", settings, "cpu")
    assert first.learn(drawn, 1e-3) == pytest.approx(second.learn(drawn, 1e-3))
    for name, value in first.mean.items():
        torch.testing.assert_close(value, second.mean[name])


def test_a_stopped_run_continues_its_count_and_its_clock(tmp_path: Path, data: Path) -> None:
    assert start(tmp_path, data, "--steps", "2") == 0
    before = torch.load(tmp_path / "last.pt")
    assert start(tmp_path, data, "--steps", "3") == 0
    after = torch.load(tmp_path / "last.pt")
    assert (before["step"], after["step"]) == (2, 3)
    assert after["wall_s"] > before["wall_s"]
    assert after["rule"]["state"][0]["step"] == 3


def test_a_run_keeps_the_settings_of_its_first_start(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    assert start(run, data, "--steps", "1") == 0
    (tmp_path / "other.yaml").write_text(SETTINGS.replace("width: 4", "width: 8"))
    assert start(run, data, "--steps", "1", "--settings", str(tmp_path / "other.yaml")) == 0
    assert read_description(run / "settings.yaml", train.Settings).width == 4


def test_a_run_logs_gains_of_both_sources(tmp_path: Path, data: Path) -> None:
    start(tmp_path, data, "--steps", "1")
    last = log_of(tmp_path)[-1]
    assert len(last["gain"]) == len(last["gain_10"]) == 2  # type: ignore[arg-type]


def test_a_run_can_be_drawn(tmp_path: Path, data: Path) -> None:
    start(tmp_path, data, "--steps", "2")
    assert train.main([str(tmp_path), "--plot", str(tmp_path / "curve.svg")]) == 0
    first = (tmp_path / "curve.svg").read_bytes()
    assert b"hours of training" in first or b"<svg" in first
    train.main([str(tmp_path), "--plot", str(tmp_path / "curve.svg")])
    assert (tmp_path / "curve.svg").read_bytes() == first


def test_mixtures_do_not_depend_on_who_draws_them(data: Path) -> None:
    speech, places = mixtures.read_speech([data], "train"), mixtures.read_rooms(data / "rooms", "train")
    drawn = train.Drawn(mixtures.PLAIN, speech, places, 0, 0, 4)
    later = train.Drawn(mixtures.PLAIN, speech, places, 0, 2, 2)
    np.testing.assert_array_equal(drawn[3], later[1])
    with pytest.raises(IndexError):
        later[2]


def test_the_rate_rises_and_falls() -> None:
    settings = train.Settings()
    rates = [train.rate_at(1000, passed, settings) for passed in (0.0, 0.7, 0.8, 0.9, 1.0)]
    assert rates[0] == rates[1] == settings.rate
    assert rates[1] > rates[2] > rates[3] > rates[4]
    assert rates[4] == pytest.approx(0)
    assert train.rate_at(0, 0.0, settings) == pytest.approx(settings.rate / train.WARM_UP)


def test_a_perfect_guess_gains_much_and_the_mixture_nothing() -> None:
    rng = np.random.default_rng(0)
    foreground, background = rng.standard_normal((2, 3, seconds(1))).astype(np.float32)
    drawn = torch.from_numpy(np.stack([foreground + 0.3 * background, foreground, 0.3 * background], 1))

    class Mixture(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def forward(self, spectra: torch.Tensor) -> torch.Tensor:
            return torch.stack([spectra, spectra], 1)

    assert train.gains(Mixture(), drawn, "cpu") == pytest.approx([0, 0], abs=0.05)


def test_a_source_that_is_heard_alone_does_not_count() -> None:
    """There is nothing to gain: the mixture is the source."""
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, seconds(1))).astype(np.float32)
    drawn = torch.from_numpy(np.stack([[one + other, one, other], [one, one, 0 * one]]))

    class Half(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def forward(self, spectra: torch.Tensor) -> torch.Tensor:
            wanted = network.to_spectra(torch.from_numpy(one))
            return torch.stack([wanted.expand_as(spectra), spectra], 1)

    foreground, background = train.gains(Half(), drawn, "cpu")
    assert foreground > 40
    assert background == pytest.approx(0, abs=0.05)


def test_settings_in_the_repository_are_valid() -> None:
    for name in ("bands", "whole"):
        assert read_description(HERE / f"{name}.yaml", train.Settings).kind == name


def test_a_misspelt_setting_is_one_line(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("widht: 4\n")
    assert start(tmp_path / "run", data, "--settings", str(tmp_path / "bad.yaml")) == 2
    assert "widht" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_onnx_gives_what_torch_gives(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path, data, "--steps", "1")
    assert export.main([str(tmp_path / "mean.pt"), "--out", str(tmp_path / "out.onnx")]) == 0
    said = capsys.readouterr().out
    assert "difference" in said
    assert (
        f"to use them: put {tmp_path / 'out.onnx'} in the place of {HERE.parent / 'foreground' / 'bands.onnx'}" in said
    )
    run = separator.load(tmp_path / "out.onnx")
    spectra = np.random.default_rng(1).standard_normal((1, 2, network.N_BINS, 30)).astype(np.float32)
    assert run(spectra).shape == (1, 2, 2, network.N_BINS, 30)
    assert export.difference(export.in_torch(export.read_network(tmp_path / "mean.pt")), run) < 1e-4


def test_another_network_is_seen_as_different() -> None:
    first, second = (export.in_torch(network.build(network.Shape("whole", 4, 1))) for _ in range(2))
    assert export.difference(first, second) > 0.01


def test_a_file_that_is_no_network_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"shape": {"kind": "bands", "width": 4, "layers": 1}, "weights": {}}, tmp_path / "mean.pt")
    assert export.main([str(tmp_path / "mean.pt"), "--out", str(tmp_path / "out.onnx")]) == 2
    assert "isn't a network that train.py wrote" in capsys.readouterr().err
