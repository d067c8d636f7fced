"""SepFormer by speechbrain: a small model of the real architecture, saved and loaded in speechbrain's own format."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from cascade.backends import sepformer
from cascade.backends.sepformer import NETWORKS, SepFormer
from cascade.errors import ConfigError, ModelError
from cascade.separation import Separator, in_level, resized
from cascade.types import SAMPLE_RATE, AudioChunk, Samples, SeparatedChunk, Span, seconds
from tests.small_sepformer import HYPERPARAMETERS, forget_lazy_modules, save_sepformer


@pytest.fixture(scope="module", autouse=True)
def _leave_no_lazy_modules() -> Iterator[None]:
    """hypothesis looks at all modules, in the tests that run after these."""
    yield
    forget_lazy_modules()


@pytest.fixture(scope="module")
def torch() -> Any:
    reason = "the extra `paper` is not installed: SepFormer needs torch and speechbrain"
    pytest.importorskip("speechbrain", reason=reason)
    return pytest.importorskip("torch", reason=reason)


@pytest.fixture(scope="module")
def saved(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Save a small SepFormer with random weights for a sample rate; return its folder."""
    pytest.importorskip("hyperpyyaml")

    def save(rate: int) -> Path:
        folder = tmp_path_factory.mktemp("sepformer")
        save_sepformer(folder, rate)
        return folder

    return save


@pytest.fixture(scope="module")
def folder(saved: Callable[[int], Path]) -> Path:
    return saved(8000)


@pytest.fixture(scope="module")
def model(folder: Path) -> SepFormer:
    return sepformer.load(folder)


@pytest.fixture
def spoilt(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder, to be spoilt."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def speech(n_samples: int, seed: int = 0) -> Samples:
    """Noise with a slow envelope."""
    random = np.random.default_rng(seed)
    envelope = 0.1 + np.abs(np.sin(np.arange(n_samples) / 3000))
    return (0.1 * envelope * random.standard_normal(n_samples)).astype(np.float32)


def separated(stage: Separator, audio: Samples, size: int) -> Samples:
    """Return sources (n_sources, n_samples) of audio that is pushed in chunks of this size."""
    chunks: list[SeparatedChunk] = []
    for start in range(0, len(audio), size):
        piece = audio[start : start + size]
        chunks += stage.push(AudioChunk(Span(start, start + len(piece)), piece))
    chunks += stage.flush()
    assert [chunk.span.start for chunk in chunks[1:]] == [chunk.span.end for chunk in chunks[:-1]]
    return np.concatenate([np.zeros((2, 0), np.float32), *(chunk.sources for chunk in chunks)], axis=1)


# --- the model --------------------------------------------------------------------------------------------------------


def test_it_separates_as_speechbrain_does_that_loads_the_folder_itself(folder: Path, model: SepFormer) -> None:
    """cascade makes the networks by itself, since speechbrain would run what a folder from elsewhere says."""
    import torch
    from speechbrain.inference.separation import SepformerSeparation
    from speechbrain.utils.fetching import FetchConfig, FetchFrom, FetchSource

    theirs = SepformerSeparation.from_hparams(
        FetchSource(FetchFrom.LOCAL, str(folder)), fetch_config=FetchConfig(allow_network=False)
    )
    windows = np.stack([speech(8000, seed) for seed in range(2)])
    with torch.inference_mode():
        expected = theirs.separate_batch(torch.from_numpy(windows)).numpy().transpose(0, 2, 1)
    np.testing.assert_allclose(model(windows), expected, atol=1e-6)
    assert float(np.abs(expected).max()) > 0


@pytest.mark.parametrize("rate", [8000, 16_000])
def test_the_rate_is_read_from_the_model(saved: Callable[[int], Path], rate: int) -> None:
    model = sepformer.load(saved(rate))
    assert (model.rate, model.n_sources) == (rate, 2)


def test_sources_are_what_the_saved_networks_give(torch: Any, folder: Path, model: SepFormer) -> None:
    """By the networks themselves, put together by hand from the saved weights."""
    modules = pytest.importorskip("hyperpyyaml").load_hyperpyyaml((folder / "hyperparams.yaml").read_text())["modules"]
    for name in NETWORKS:
        modules[name].load_state_dict(torch.load(folder / f"{name}.ckpt", weights_only=True))
        modules[name].eval()
    windows = np.stack([speech(4000, seed) for seed in range(3)])
    with torch.no_grad():
        encoded = modules["encoder"](torch.from_numpy(windows))
        masks = modules["masknet"](encoded)
        expected = np.stack([modules["decoder"](encoded * mask).numpy() for mask in masks], axis=1)
    given = model(windows)
    assert given.shape == (3, 2, 4000)
    assert given.dtype == np.float32
    np.testing.assert_allclose(given[:, :, : expected.shape[2]], expected, atol=1e-6)
    assert np.abs(given[:, 0] - given[:, 1]).max() > 1e-4


def test_the_same_window_gives_the_same_sources_again(model: SepFormer) -> None:
    window = speech(8000)[None]
    np.testing.assert_array_equal(model(window), model(window))


def test_the_batch_changes_nothing_but_rounding(model: SepFormer) -> None:
    windows = np.stack([speech(8000, seed) * np.float32(10.0**-seed) for seed in range(4)])
    alone = np.concatenate([model(window[None]) for window in windows])
    scale = np.abs(alone).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(model(windows) / scale, alone / scale, atol=1e-5)


def test_it_has_no_gradients_and_no_dropout(model: SepFormer) -> None:
    assert not model._model.training or not any(module.training for module in model._model.mods.values())
    assert not any(weights.requires_grad for weights in model._model.parameters())


def test_a_number_of_threads_is_obeyed(torch: Any, folder: Path) -> None:
    before = torch.get_num_threads()
    try:
        sepformer.load(folder, threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


# --- in the stage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 16_000])
def test_one_window_over_all_is_one_pass_in_level(saved: Callable[[int], Path], rate: int) -> None:
    model, audio = sepformer.load(saved(rate)), speech(seconds(0.9))
    given = resized(audio[None], len(audio) * rate // SAMPLE_RATE)
    one_pass = resized(in_level(model(given)[0], given[0]), len(audio))
    stage = Separator(model, rate=model.rate, n_sources=model.n_sources, window_s=0.9, hop_s=0.45)
    np.testing.assert_allclose(separated(stage, audio, 1000), one_pass, atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 16_000])
def test_cutting_and_batching_change_nothing(saved: Callable[[int], Path], rate: int) -> None:
    model, audio = sepformer.load(saved(rate)), speech(seconds(2.3))

    def hear(size: int, batch: int) -> Samples:
        return separated(Separator(model, rate=model.rate, window_s=0.8, hop_s=0.4, batch=batch), audio, size)

    whole = hear(len(audio), 1)
    assert whole.shape == (2, len(audio))
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(hear(777, 1), whole)
    np.testing.assert_array_equal(hear(777, 3), hear(len(audio), 3))
    np.testing.assert_allclose(hear(len(audio), 3), whole, atol=1e-5)


@pytest.mark.parametrize("n_samples", [0, 1, 10, 160, 8000, 16_001])
def test_any_length_comes_out_as_long(model: SepFormer, n_samples: int) -> None:
    stage = Separator(model, rate=model.rate, window_s=1.0, hop_s=0.5)
    assert separated(stage, speech(n_samples), 4000).shape == (2, n_samples)


def test_silence_and_what_is_no_number_give_silence(model: SepFormer) -> None:
    for value in (0.0, np.nan):
        audio = np.full(seconds(2), value, np.float32)
        stage = Separator(model, rate=model.rate, window_s=1.0, hop_s=0.5)
        assert not separated(stage, audio, 4000).any()


# --- what is no model -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hyperparams.yaml", "encoder.ckpt", "masknet.ckpt", "decoder.ckpt"])
def test_a_missing_file_is_named_before_anything_is_loaded(tmp_path: Path, name: str) -> None:
    for file in {"hyperparams.yaml", "encoder.ckpt", "masknet.ckpt", "decoder.ckpt"} - {name}:
        (tmp_path / file).write_text("")
    with pytest.raises(ModelError, match=f"has no {name}; .* models pull"):
        sepformer.load(tmp_path)


def test_no_folder_is_looked_for_on_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"has no hyperparams\.yaml"):
        sepformer.load("speechbrain/sepformer-wsj02mix")


@pytest.mark.parametrize(
    "line",
    [
        "bad: !apply:os.system ['true']",
        "bad: !new:speechbrain.utils.superpowers.run_shell ['true']",
        "bad: !name:os.system",
        "bad: !module:os",
        "bad: !include:other.yaml",
        "bad: !!python/object/apply:os.system ['true']",
        "bad: !<tag:yaml.org,2002:python/object/apply:os.system> ['true']",
        "bad: {a: !apply:os.system ['true']}",
        "%TAG ! tag:yaml.org,2002:python/object/",
        "bad: !tuple (1, 2)",
        "bad: !new:torch.nn.functional.np.testing.extbuild.subprocess.Popen {args: 'true', shell: true}",
        "bad: !new:torch.nn.ReLU",
        "bad: !new:speechbrain.nnet.RNN.torch.os.system",
        "bad: !new:speechbrain.lobes.models.dual_path.SBRNNBlock [1, 1, 1, copy]",
        "bad: !new:speechbrain.lobes.models.dual_path.Encoder.__class__",
        "bad: !new:speechbrain.lobes.models.dual_path%2Etorch.nn.Linear [1, 1]",
        "bad: !apply:torch.manual_seed.__class__ []",
        "bad: !applyref:os.system ['true']",
        'bad: "(\\x21\\x21python/object/apply:os.system [true])"',
        'bad: {a: "\\u0021", b: !ref "(<bad[a]>)"}',
        '"\\x21new:os": 1',
        "%YAML 1.1",
    ],
)
def test_hyperparameters_that_could_run_a_program_are_refused(tmp_path: Path, line: str) -> None:
    for name in NETWORKS:
        (tmp_path / f"{name}.ckpt").write_text("")
    lines = ("sample_rate: 8000", line) if not line.startswith("%") else (line, "---", "sample_rate: 8000")
    (tmp_path / "hyperparams.yaml").write_text("\n".join(lines))
    with pytest.raises(ModelError, match=r"could run any program|can be read as the name of a program"):
        sepformer.check_folder(tmp_path)


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2\n", "- 1", "", "a: {" * 2000])
def test_what_is_no_hyperparameters_is_one_line(tmp_path: Path, text: str) -> None:
    for name in NETWORKS:
        (tmp_path / f"{name}.ckpt").write_text("")
    (tmp_path / "hyperparams.yaml").write_text(text)
    with pytest.raises(ModelError, match=r"is no YAML|holds no hyperparameters") as caught:
        sepformer.check_folder(tmp_path)
    assert "\n" not in str(caught.value)


def test_hyperparameters_may_seed_torch_and_tell_of_exclamation_marks_in_comments(
    spoilt: Path, model: SepFormer
) -> None:
    path = spoilt / "hyperparams.yaml"
    path.write_text(f"# Dataset : WHAM! !new:os.system\n__seed: !apply:torch.manual_seed [1]\n{path.read_text()}")
    windows = speech(4000)[None]
    np.testing.assert_array_equal(sepformer.load(spoilt)(windows), model(windows))


@pytest.mark.parametrize(("speakers", "right"), [(1, True), (4, True), (5, False), (40, False)])
def test_more_speakers_than_orders_can_be_tried_for_are_refused(spoilt: Path, speakers: int, right: bool) -> None:
    path = spoilt / "hyperparams.yaml"
    path.write_text(path.read_text().replace("num_spks: 2", f"num_spks: {speakers}"))
    if right:
        sepformer.check_folder(spoilt)
        return
    for respelt in (f"num_spks: {speakers}\n", f"n: {speakers}\nnum_spks: !ref <n>\n"):
        path.write_text(path.read_text().replace(f"num_spks: {speakers}\n", respelt))
        with pytest.raises(ModelError, match=rf"has num_spks: {speakers}, more than 4"):
            sepformer.check_folder(spoilt)


NETWORK_PART, PRETRAINER_PART = HYPERPARAMETERS.split("pretrainer:")


@pytest.mark.parametrize(
    "evil",
    [
        # What stands in conditions is called, and so is a custom hook, with a network's place in the loadables.
        """
Where: !new:speechbrain.utils.parameter_transfer.Pretrainer
  collect_in: VICTIM
Target: !ref <Where.collect_in>
Gone: !ref <Target.unlink>
pretrainer: PRETRAINER
  conditions:
    decoder: !ref <Gone>
""",
        """
Where: !new:speechbrain.utils.parameter_transfer.Pretrainer
  collect_in: VICTIM.py
Target: !ref <Where.collect_in>
Kind: !ref <Target.__class__>
Link: !ref <Kind.symlink_to>
pretrainer: PRETRAINER
    program: !ref <Target>
  custom_hooks:
    program: !ref <Link>
""",
        """
Gone: !ref <Encoder.load_state_dict>
pretrainer: PRETRAINER
  collect_in: VICTIM.py
""",
    ],
    ids=["a file is deleted", "a program is put where it is imported", "a folder is made"],
)
def test_a_folder_neither_runs_a_program_nor_changes_a_file(
    spoilt: Path, tmp_path: Path, evil: str, torch: Any
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("what I need")
    (spoilt / "program.ckpt").write_text("")
    text = evil.replace("VICTIM", str(victim)).replace("PRETRAINER", PRETRAINER_PART.strip())
    (spoilt / "hyperparams.yaml").write_text(NETWORK_PART.format(rate=8000) + text)
    before = sorted(tmp_path.iterdir())
    for look in (sepformer.check_folder, sepformer.load):
        with pytest.raises(ModelError, match="use the file that was published with the model") as caught:
            look(spoilt)
        assert "\n" not in str(caught.value)
    assert victim.read_text() == "what I need"
    assert sorted(tmp_path.iterdir()) == before


def test_two_references_to_a_network_are_one_and_a_copy_is_another(spoilt: Path, torch: Any) -> None:
    path = spoilt / "hyperparams.yaml"
    for name, shared in (("!ref <Within>", True), ("!copy <Within>", False)):
        path.write_text(HYPERPARAMETERS.format(rate=8000).replace("!ref <Across>", name))
        block = sepformer.load(spoilt)._model.mods["masknet"].dual_mdl[0]
        assert (block.intra_mdl is block.inter_mdl) is shared


def test_torch_told_to_run_what_weights_hold_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(ConfigError, match="run: unset TORCH_FORCE"):
        sepformer.load(folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "has no sample_rate"),
        ("sample_rate: 8 kHz", "no whole number"),
        ("sample_rate: 0", "no whole number"),
        ("sample_rate: 1", "has sample_rate: 1, expected 8000 to 48000 Hz"),
        ("sample_rate: 1000000000", "has sample_rate: 1000000000, expected 8000 to 48000 Hz"),
        ("sample_rate: 1.0e+9", "no whole number"),
        ("n: 1\nsample_rate: !ref <n>", "has sample_rate: 1, expected"),
    ],
)
def test_a_model_that_does_not_tell_its_rate_is_refused(spoilt: Path, line: str, message: str) -> None:
    path = spoilt / "hyperparams.yaml"
    path.write_text(path.read_text().replace("sample_rate: 8000", line))
    with pytest.raises(ModelError, match=message):
        sepformer.load(spoilt)


def test_weights_of_another_model_are_refused(torch: Any, spoilt: Path) -> None:
    """speechbrain itself only warns, and goes on with random weights."""
    weights = torch.load(spoilt / "masknet.ckpt", weights_only=True)
    del weights["conv1d.weight"]
    torch.save(weights, spoilt / "masknet.ckpt")
    with pytest.raises(ModelError, match=r"masknet.ckpt lacks 1 .* such as conv1d.weight"):
        sepformer.load(spoilt)


def test_weights_that_would_run_a_program_are_not_read(torch: Any, spoilt: Path) -> None:
    class Program:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (spoilt / "ran",)

    torch.save({"conv1d.weight": Program()}, spoilt / "decoder.ckpt")
    with pytest.raises(ModelError, match="no SepFormer that speechbrain can load"):
        sepformer.load(spoilt)
    assert not (spoilt / "ran").exists()


def test_a_folder_named_by_a_repository_is_read_from_itself(spoilt: Path, model: SepFormer) -> None:
    path = spoilt / "hyperparams.yaml"
    paths = "".join(f"    {name}: !ref <pretrained_path>/{name}.ckpt\n" for name in NETWORKS)
    path.write_text(f"pretrained_path: speechbrain/sepformer\n{path.read_text()}  paths:\n{paths}")
    windows = speech(4000)[None]
    np.testing.assert_array_equal(sepformer.load(spoilt)(windows), model(windows))


def test_nothing_is_written_and_no_socket_is_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a socket was opened")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    before = sorted(folder.iterdir())
    sepformer.load(folder)
    assert sorted(folder.iterdir()) == before
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there_is_refused(torch: Any, folder: Path) -> None:
    with pytest.raises(ConfigError, match="torch sees"):
        sepformer.load(folder, device=f"cuda:{torch.cuda.device_count()}")
    with pytest.raises(ConfigError, match="must be 'cpu', 'cuda'"):
        sepformer.load(folder, device="mps")
