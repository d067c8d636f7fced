"""models/separator/sepformer.py."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cascade.backends import hyperparameters
from cascade.backends import sepformer as backend
from cascade.errors import ModelError
from cascade.separation import Separator
from cascade.types import SAMPLE_RATE, AudioChunk, Samples, Span, seconds
from tests.small_sepformer import forget_lazy_modules

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import sepformer
from network import count_parameters, state_of
from shapes import SepFormerShape
from spectra import loss_of, to_spectra

SMALL = SepFormerShape(kernel=64, width=8, heads=2, hidden=8, layers=1, blocks=2, piece=10)


@pytest.fixture(scope="module", autouse=True)
def _speechbrain() -> Iterator[None]:
    """hypothesis looks at all modules, in the tests that run after these: speechbrain's lazy ones must be gone."""
    pytest.importorskip("speechbrain", reason="a SepFormer is made of speechbrain's modules")
    yield
    forget_lazy_modules()


@pytest.fixture
def network() -> sepformer.SepFormer:
    torch.manual_seed(0)
    return sepformer.SepFormer(SMALL)


def noise(*shape: int) -> Samples:
    """The same noise each time."""
    return (0.1 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("length", [64, 65, 1000, 4096])
def test_it_gives_two_sources_of_any_length(network: sepformer.SepFormer, length: int) -> None:
    mixtures = torch.from_numpy(noise(3, length))
    assert network.separate(mixtures).shape == (3, 2, length)
    torch.testing.assert_close(network.guess(mixtures), to_spectra(network.separate(mixtures)))


@pytest.mark.parametrize("kernel", [4, 64, 256])
def test_before_it_has_learnt_encoder_and_decoder_give_the_samples_back(kernel: int) -> None:
    network = sepformer.SepFormer(SMALL.model_copy(update={"kernel": kernel}))
    samples = torch.from_numpy(noise(1, 10 * kernel))
    back = network.decoder(network.encoder(samples))
    inside = slice(kernel // 2, -(kernel // 2))
    torch.testing.assert_close(back[0, inside], samples[0, inside], atol=1e-5, rtol=0)


def test_every_weight_learns(network: sepformer.SepFormer) -> None:
    loss_of(network.guess(torch.from_numpy(noise(2, 4000))), to_spectra(torch.from_numpy(noise(2, 2, 4000)))).backward()
    still = [name for name, parameter in network.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert still == []


def test_mixtures_of_a_batch_do_not_touch_each_other(network: sepformer.SepFormer) -> None:
    mixtures = torch.from_numpy(noise(2, 4000))
    torch.testing.assert_close(network(mixtures)[1:], network(mixtures[1:]), atol=1e-5, rtol=1e-4)


def test_the_level_of_a_mixture_is_that_of_its_sources(network: sepformer.SepFormer) -> None:
    mixtures = torch.from_numpy(noise(1, 4000))
    torch.testing.assert_close(network(4 * mixtures), 4 * network(mixtures), atol=1e-5, rtol=1e-4)


def test_it_is_described_as_speechbrain_does(network: sepformer.SepFormer, tmp_path: Path) -> None:
    network.save(tmp_path)
    told = hyperparameters.read(tmp_path / backend.HYPERPARAMETERS, most_sources=2)
    assert (told.sample_rate, told.num_spks) == (SAMPLE_RATE, 2)
    assert (told.encoder.kernel_size, told.encoder.out_channels, told.decoder.stride) == (64, 128, 32)
    assert (told.masknet.num_layers, told.masknet.K, told.masknet.intra_model.nhead) == (2, 10, 2)


def test_a_folder_gives_what_the_network_gives(network: sepformer.SepFormer, tmp_path: Path) -> None:
    for parameter in network.parameters():  # nothing of it is as it was made
        torch.nn.init.normal_(parameter, std=0.1)
    network.save(tmp_path)
    windows = noise(2, 4000)
    with torch.no_grad():
        own = network(torch.from_numpy(windows)).numpy()
    np.testing.assert_allclose(backend.load(tmp_path)(windows), own, atol=1e-5 * np.abs(own).max())


def test_only_what_was_learnt_is_written(network: sepformer.SepFormer, tmp_path: Path) -> None:
    network.save(tmp_path)
    weights = [torch.load(tmp_path / f"{name}.ckpt") for name in backend.NETWORKS]
    assert sum(value.numel() for each in weights for value in each.values()) == count_parameters(network)
    assert len(state_of(network)) > sum(map(len, weights))  # which holds tables of sines, too


def test_the_stage_runs_on_a_folder(network: sepformer.SepFormer, tmp_path: Path) -> None:
    network.save(tmp_path)
    model, audio = backend.load(tmp_path), noise(seconds(5))
    stage = Separator(model, rate=model.rate, n_sources=model.n_sources)
    chunks = [*stage.push(AudioChunk(Span(0, len(audio)), audio)), *stage.flush()]
    assert sum(len(chunk.span) for chunk in chunks) == len(audio)
    assert all(chunk.sources.any(axis=1).all() for chunk in chunks)


def test_weights_of_another_shape_are_refused(network: sepformer.SepFormer, tmp_path: Path) -> None:
    network.save(tmp_path)
    other = sepformer.describe(SMALL.model_copy(update={"hidden": 16}))
    (tmp_path / backend.HYPERPARAMETERS).write_text(other)
    with pytest.raises(ModelError, match="is no SepFormer"):
        backend.load(tmp_path)
