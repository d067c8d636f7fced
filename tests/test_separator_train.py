"""models/separator/train.py and export.py: a run, from its settings to the ONNX file."""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from cascade.backends import separator
from cascade.foreground import N_BINS
from cascade.types import seconds
from tests.small_sepformer import forget_lazy_modules

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import export
import mixtures
import network
import rooms
import train
from corpus import Spoken
from mixing import read_description, to_flac
from shapes import BandsShape

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
    """Train a small network."""
    return go_on(run, data, "--settings", str(data / "settings.yaml"), *more)


def go_on(run: Path, data: Path, *more: str) -> int:
    """Train on, with the run's own settings."""
    return train.main([str(run), "--corpus", str(data), "--rooms", str(data / "rooms"), *more])


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


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_that_share_a_step_learn_what_one_learns(tmp_path: Path, threads: int) -> None:
    settings = train.Settings.model_validate({"kind": "bands", "width": 4, "layers": 1})
    drawn = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3, 8000)).astype(np.float32))
    alone, shared = train.Run(tmp_path, settings, "cpu"), train.Run(tmp_path, settings, "cpu", threads)
    assert shared.learn(drawn, 1e-3) == pytest.approx(alone.learn(drawn, 1e-3), rel=1e-3)
    for one, other in zip(alone.network.parameters(), shared.network.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert float((one.grad - other.grad).norm()) <= 0.05 * float(one.grad.norm()) + 1e-6


def test_a_stopped_run_continues_its_count_and_its_clock(tmp_path: Path, data: Path) -> None:
    assert start(tmp_path, data, "--steps", "2") == 0
    before = torch.load(tmp_path / "last.pt")
    assert start(tmp_path, data, "--steps", "3") == 0
    after = torch.load(tmp_path / "last.pt")
    assert (before["step"], after["step"]) == (2, 3)
    assert after["wall_s"] > before["wall_s"]
    assert after["rules"][1]["state"][0]["step"] == 3


def test_a_run_keeps_the_settings_of_its_first_start(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    assert start(run, data, "--steps", "1") == 0
    assert go_on(run, data, "--steps", "2") == 0
    shape = read_description(run / "settings.yaml", train.Settings).shape
    assert shape == BandsShape(width=4, layers=1)
    assert torch.load(run / "last.pt")["step"] == 2


def test_other_settings_than_the_runs_are_refused(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = tmp_path / "run", tmp_path / "other.yaml"
    assert start(run, data, "--steps", "1") == 0
    other.write_text(SETTINGS.replace("width: 4", "width: 8"))
    assert start(run, data, "--steps", "2", "--settings", str(other)) == 2
    assert capsys.readouterr().err == (
        f"train.py: {run} is a run with other settings than {other}: name another folder\n"
    )
    assert torch.load(run / "last.pt")["step"] == 1


def test_a_start_that_fails_keeps_no_settings(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    assert train.main([str(run), "--corpus", str(data), "--rooms", str(tmp_path / "none")]) == 2
    assert not run.exists()


def test_a_run_says_where_its_log_is_and_how_far_it_got(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path, data, "--steps", "2")
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"from step 0 on; loss and gains: {tmp_path / 'log.jsonl'}"
    assert last.startswith(f"{tmp_path} is at step 2, after 0.0")


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
    settings = train.Settings(shape=BandsShape())
    rates = [train.rate_at(1000, passed, settings) for passed in (0.0, 0.7, 0.8, 0.9, 1.0)]
    assert rates[0] == rates[1] == settings.rate
    assert rates[1] > rates[2] > rates[3] > rates[4]
    assert rates[4] == pytest.approx(0)
    assert train.rate_at(0, 0.0, settings) == pytest.approx(settings.rate / train.WARM_UP)


def test_a_perfect_guess_gains_much_and_the_mixture_nothing() -> None:
    rng = np.random.default_rng(0)
    foreground, background = rng.standard_normal((2, 3, seconds(1))).astype(np.float32)
    drawn = torch.from_numpy(np.stack([foreground + 0.3 * background, foreground, 0.3 * background], 1))

    assert train.gains(lambda mixtures: torch.stack([mixtures, mixtures], 1), drawn, "cpu") == pytest.approx([0, 0])
    assert min(train.gains(lambda mixtures: drawn[:, 1:], drawn, "cpu")) > 40


def test_a_source_that_is_heard_alone_does_not_count() -> None:
    """There is nothing to gain: the mixture is the source."""
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, seconds(1))).astype(np.float32)
    drawn = torch.from_numpy(np.stack([[one + other, one, other], [one, one, 0 * one]]))

    def half(mixtures: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.from_numpy(one).expand_as(mixtures), mixtures], 1)

    foreground, background = train.gains(half, drawn, "cpu")
    assert foreground > 40
    assert background == pytest.approx(0, abs=0.05)


def test_settings_in_the_repository_are_valid() -> None:
    for name in ("bands", "sepformer"):
        assert read_description(HERE / f"{name}.yaml", train.Settings).shape.kind == name


def test_a_run_that_began_before_there_were_other_kinds_goes_on() -> None:
    """Its settings and the shape beside its weights are what they were."""
    settings = train.Settings.model_validate({"kind": "bands", "width": 4, "layers": 2, "frames": 2, "batch": 3})
    assert settings.shape == BandsShape(width=4, layers=2, frames=2)
    assert settings.lines().splitlines()[:5] == ["kind: bands", "width: 4", "layers: 2", "frames: 2", "batch: 3"]
    assert train.Settings.model_validate(settings.model_dump()) == settings


def test_a_misspelt_setting_is_one_line(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("kind: bands\nwidht: 4\n")
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
    written, trained = export.look_at(tmp_path / "out.onnx"), export.look_at(tmp_path / "mean.pt")
    assert (written.kind, trained.kind) == ("ONNX", "torch")
    assert written.parameters == trained.parameters
    run = separator.load(tmp_path / "out.onnx")
    heard = np.random.default_rng(1).standard_normal((1, 2, N_BINS, 30)).astype(np.float32)
    assert run(heard).shape == (1, 2, 2, N_BINS, 30)
    assert export.difference(export.in_torch(export.read_network(tmp_path / "mean.pt")), run) < 1e-4


@pytest.fixture
def _speechbrain() -> Iterator[None]:
    """hypothesis looks at all modules, in the tests that run after these: speechbrain's lazy ones must be gone."""
    pytest.importorskip("speechbrain", reason="a SepFormer is made of speechbrain's modules")
    yield
    forget_lazy_modules()


@pytest.mark.usefixtures("_speechbrain")
def test_a_sepformer_is_trained_and_becomes_a_folder(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "kind: sepformer\nkernel: 512\nwidth: 8\nheads: 2\nhidden: 8\nlayers: 1\nblocks: 1\n"
    (tmp_path / "settings.yaml").write_text(kind + "batch: 2\nvalidated: 3\nlogged: 1\n")
    run, folder = tmp_path / "run", tmp_path / "folder"
    for steps in ("1", "2"):  # the second goes on with the first
        assert start(run, data, "--settings", str(tmp_path / "settings.yaml"), "--steps", steps) == 0
    losses = [line["loss"] for line in log_of(run) if "loss" in line]
    assert len(losses) == 2
    assert np.isfinite(losses).all()  # type: ignore[arg-type]
    assert export.main([str(run / "mean.pt"), "--out", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "sha256 of masknet.ckpt" in said
    written = export.look_at(folder)
    assert written.kind == "SepFormer"
    assert written.parameters == network.count_parameters(export.read_network(run / "mean.pt"))
    assert written.size == sum(file.stat().st_size for file in folder.iterdir())
    assert export.main([str(run / "mean.pt"), "--out", str(tmp_path / "out.onnx")]) == 2
    assert "this network becomes a folder in speechbrain's format" in capsys.readouterr().err


def test_another_network_is_seen_as_different() -> None:
    first, second = (export.in_torch(network.build(BandsShape(width=4, layers=1))) for _ in range(2))
    assert export.difference(first, second) > 0.01


def test_a_file_that_is_no_network_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"shape": {"kind": "bands", "width": 4, "layers": 1}, "weights": {}}, tmp_path / "mean.pt")
    assert export.main([str(tmp_path / "mean.pt"), "--out", str(tmp_path / "out.onnx")]) == 2
    assert "isn't a network that train.py wrote" in capsys.readouterr().err
    for content in (b"", b"no weights"):
        (tmp_path / "mean.pt").write_bytes(content)
        assert export.main([str(tmp_path / "mean.pt"), "--out", str(tmp_path / "out.onnx")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(
            "isn't a network that train.py wrote, RUN/mean.pt: it isn't a whole file of torch's weights"
        )
    torch.save(torch.zeros(3), tmp_path / "mean.pt")
    assert export.main([str(tmp_path / "mean.pt"), "--out", str(tmp_path / "out.onnx")]) == 2
    assert export.main([str(tmp_path / "none.pt"), "--out", str(tmp_path / "out.onnx")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"export.py: '{tmp_path / 'none.pt'}' can't be read or written (No such file or directory); mend that, or name "
        "another place, and start it again"
    )


def test_a_network_of_nothing_takes_no_others_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = BandsShape(width=4, layers=1)
    weights = {name: value * np.nan for name, value in network.build(shape).state_dict().items()}
    torch.save({"shape": shape.model_dump(), "weights": weights}, tmp_path / "mean.pt")
    (tmp_path / "out.onnx").write_text("a good one")
    assert export.main([str(tmp_path / "mean.pt"), "--out", str(tmp_path / "out.onnx")]) == 2
    assert "out.onnx differs from torch by nan, expected" in capsys.readouterr().err
    assert (tmp_path / "out.onnx").read_text() == "a good one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mean.pt", "out.onnx"]
    out = tmp_path / "foreground" / "bands.onnx"
    assert export.main([str(tmp_path / "mean.pt"), "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"export.py: there is no folder {out.parent} to write bands.onnx into; make it, or name another place\n"
    )


@pytest.mark.parametrize("broken", ["half", "empty", "another's", "of another shape"])
def test_a_checkpoint_that_is_not_the_runs_is_one_line(
    broken: str, tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(tmp_path, data, "--steps", "1") == 0
    last, mean = tmp_path / "last.pt", (tmp_path / "mean.pt").read_bytes()
    content = last.read_bytes()
    if broken == "of another shape":
        kept = (tmp_path / "settings.yaml").read_text().replace("width: 4", "width: 8")
        (tmp_path / "settings.yaml").write_text(kept)
    last.write_bytes({"half": content[: len(content) // 2], "empty": b"", "another's": mean}.get(broken, content))
    assert go_on(tmp_path, data, "--steps", "2") == 2
    assert capsys.readouterr().err == (
        f"train.py: {last} isn't a checkpoint of the run that {tmp_path / 'settings.yaml'} describes; put back what "
        "belongs together, or give another RUN, where a new one begins\n"
    )
    assert (tmp_path / "mean.pt").read_bytes() == mean


def test_a_log_that_was_cut_off_loses_that_line_only(tmp_path: Path, data: Path) -> None:
    assert start(tmp_path, data, "--steps", "2") == 0
    log = tmp_path / "log.jsonl"
    log.write_text(log.read_text()[:-15])
    before = len(train.read_log(log))
    assert train.main([str(tmp_path), "--plot", str(tmp_path / "curve.svg")]) == 0
    assert start(tmp_path, data, "--steps", "3") == 0
    after = train.read_log(log)
    assert [line["step"] for line in after if "loss" in line] == [1, 2, 3]
    assert sum("parameters" in line for line in after) == 2
    assert len(after) > before


@pytest.mark.parametrize("content", ["", '{"step": 0, "wall_s": 0.0}\n', '[1]\n{"loss": 1}\nno JSON\n'])
def test_where_nothing_was_learnt_there_is_nothing_to_draw(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").write_text(content)
    assert train.main([str(tmp_path), "--plot", str(tmp_path / "curve.svg")]) == 2
    assert capsys.readouterr().err == (
        f"train.py: {tmp_path / 'log.jsonl'} tells of no step that was learnt; train first, then draw\n"
    )


@pytest.mark.parametrize("option", ["--steps", "--hours"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "many"])
def test_no_run_is_without_an_end_or_a_step(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train.parse_arguments(["run", "--plot", "curve.svg", option, value])
    assert f"expected a number above zero, got '{value}'" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_no_training_on_it(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(tmp_path, data, "--device", "cuda", "--steps", "1") == 2
    assert "torch finds no GPU here; leave it out" in capsys.readouterr().err


def test_speech_that_cannot_be_read_is_one_line(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "speech" / "valid" / "1.flac").write_text("no flac")
    assert start(tmp_path / "run", tmp_path / "data", "--steps", "1") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "1.flac' is not a recording that can be decoded" in line


def test_where_the_checkpoint_cannot_be_written_the_last_one_stays(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "last.pt"
    train.save_whole({"step": 1}, path)
    before = path.read_bytes()
    with pytest.raises(OSError, match="o"):
        train.save_whole({"step": 2}, tmp_path / "none" / "last.pt")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["last.pt"]


def test_onnx_is_not_written_under_another_sort_of_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = BandsShape(width=4, layers=1)
    torch.save({"shape": shape.model_dump(), "weights": network.build(shape).state_dict()}, tmp_path / "mean.pt")
    assert export.main([str(tmp_path / "mean.pt"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"export.py: this network becomes a file, FILE.onnx; name such a one after --out, got {tmp_path / 'out'}\n"
    )
    assert not (tmp_path / "out").exists()
