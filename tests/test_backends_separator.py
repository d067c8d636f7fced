"""The network of foreground and background: it is loaded from what export.py writes, and from nothing else."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cascade.backends import separator, silero
from cascade.errors import ModelError
from cascade.foreground import BACKGROUND, N_BINS, SOURCES, Foreground, separate, to_spectra
from cascade.types import AudioChunk, Samples, Span, seconds
from tests.small_separator import save_separator

EXPECTED = "; expected foreground, or a file that models/separator/export.py wrote; name such a one"


def needs(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; a network cannot be made without")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("torch", "onnx", "onnxruntime")
    return save_separator(tmp_path_factory.mktemp("separator") / "small.onnx")


def noise(n_samples: int) -> Samples:
    return (0.1 * np.random.default_rng(0).standard_normal(n_samples)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_gives_two_sources(saved: Path, threads: int) -> None:
    network = separator.load(saved, threads=threads)
    spectra = to_spectra(noise(seconds(1)))
    sources = network(spectra)
    assert sources.shape == (1, SOURCES, *spectra.shape[1:])
    assert sources.dtype == np.float32
    assert np.isfinite(sources).all()
    np.testing.assert_array_equal(network(spectra), sources)


def test_a_network_that_has_learnt_nothing_hears_hardly_a_background(saved: Path) -> None:
    """Its masks begin near the mixture for the foreground, and near nothing for the background."""
    audio = noise(seconds(4))
    foreground, background = separate(audio, separator.load(saved))
    assert np.square(background).mean() < 0.2 * np.square(audio).mean()
    assert np.corrcoef(foreground, audio)[0, 1] > 0.9


def test_the_stage_runs_around_it(saved: Path) -> None:
    stage = Foreground(separator.load(saved), silero.load()())
    audio = noise(seconds(3))
    chunks = [*stage.push(AudioChunk(Span(0, len(audio)), audio)), *stage.flush()]
    sources = np.concatenate([chunk.sources for chunk in chunks], axis=1)
    np.testing.assert_allclose(sources.sum(axis=0), audio, atol=1e-6)
    assert not sources[BACKGROUND].any(), "noise is no speech"


def write_onnx(path: Path, inputs: Sequence[int | str], outputs: Sequence[int | str], name: str = "spectra") -> Path:
    """Write a network that gives its input's magnitudes, whatever it says that it gives."""
    from onnx import TensorProto, checker, helper, save

    graph = helper.make_graph(
        [helper.make_node("Abs", [name], ["sources"])],
        "other",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, inputs)],
        [helper.make_tensor_value_info("sources", TensorProto.FLOAT, outputs)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    save(model, str(path))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as error:
        separator.load(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_network_that_gives_something_else_is_refused(tmp_path: Path) -> None:
    needs("onnx", "onnxruntime")
    path = write_onnx(tmp_path / "other.onnx", ["n", 2, N_BINS, "t"], ["n", 2, N_BINS, "t"])
    assert refusal(path) == f"{path} is a network that gives something else than two sources{EXPECTED}"


@pytest.mark.parametrize(("shape", "name"), [(["n", 80], "spectra"), (["n", 2, N_BINS, "t"], "mel")])
def test_a_network_that_hears_something_else_is_refused(tmp_path: Path, shape: list[int | str], name: str) -> None:
    needs("onnx", "onnxruntime")
    path = write_onnx(tmp_path / "other.onnx", shape, shape, name)
    assert refusal(path) == f"{path} is a network for something else than spectra of a mixture{EXPECTED}"


def test_a_damaged_file_is_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.onnx"
    path.write_bytes(saved.read_bytes()[: saved.stat().st_size // 2])
    separator.check_file(path)
    assert refusal(path) == f"half.onnx is not a network that onnxruntime can load{EXPECTED}"


@pytest.mark.parametrize("content", [b"", b"RIFF....WAVE", b"PK\x03\x04"])
def test_what_is_no_onnx_file_is_refused_unloaded(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(content)
    assert refusal(path) == f"{path} is no ONNX file{EXPECTED}"
    with pytest.raises(ModelError, match="is no ONNX file"):
        separator.check_file(path)


def test_a_network_whose_weights_are_in_another_file_is_refused(saved: Path, tmp_path: Path) -> None:
    """The record of a run names one checksum: it would stay as it is while the weights change."""
    import onnx

    path = tmp_path / "split.onnx"
    onnx.save(onnx.load(saved), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size
    with pytest.raises(ModelError) as caught:
        separator.load(path)
    problem = "keeps weights in another file, which its checksum would not tell of"
    assert str(caught.value) == f"{path} {problem}{EXPECTED}"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.onnx") == (
        f"{tmp_path / 'none.onnx'} cannot be read (No such file or directory){EXPECTED}"
    )


def test_what_is_no_file_is_refused_unopened(tmp_path: Path) -> None:
    """To open a pipe waits for whoever writes into it."""
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        assert refusal(path) == f"{path} is no file{EXPECTED}"


def test_only_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").touch()
    (tmp_path / "notes.txt").touch()
    assert separator.files(tmp_path / "mine.onnx") == (tmp_path / "mine.onnx",)
    assert separator.files(tmp_path) == separator.files(tmp_path / "none.onnx") == ()
