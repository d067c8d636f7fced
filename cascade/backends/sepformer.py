"""SepFormer (arXiv 2010.13154) by way of speechbrain: a Separate for separation.py, from a folder on this machine.

A folder is what speechbrain publishes: hyperparams.yaml and the three networks' weights. Nothing is downloaded, and
nothing is linked or copied elsewhere. separate_file is not used: it normalises each source by its own peak, which hides
who was loud and makes NaN of silence, and keeps recordings by their name.

hyperparams.yaml is a program to speechbrain. So it is read as data (backends/hyperparameters.py), the networks that it
describes are made here, and speechbrain is handed those; weights are read as numbers only (torch.load does that by
default, from torch 2.6 on).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.backends import hyperparameters
from cascade.backends.hyperparameters import Hyperparameters
from cascade.errors import ConfigError, MissingExtraError, ModelError, reinstalling
from cascade.separation import MOST_SOURCES
from cascade.types import Samples

HYPERPARAMETERS: Final = "hyperparams.yaml"
NETWORKS: Final = hyperparameters.NETWORKS
_FILES: Final = (HYPERPARAMETERS, *(f"{network}.ckpt" for network in NETWORKS))

_NAMES: Final = {described: name for name, described in hyperparameters.CLASSES.items()}
_DESCRIBED: Final = tuple(_NAMES)

_UNSAFE_TORCH: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
"""An environment variable by which torch.load runs what is in a file unless it is told otherwise in each call."""

_REINSTALL: Final = f"run: {reinstalling('torch', 'torchaudio', 'speechbrain')}"

MODELS: Final = ("sepformer-whamr16k", "sepformer-whamr", "sepformer-wsj02mix", "sepformer-libri2mix")
"""The models that have a manifest; the first hears at 16 kHz, and was trained on noise and reverberation."""


class SepFormer:
    """Windows (n_windows, n_samples) -> sources (n_windows, n_sources, n_samples), both at `rate`.

    The networks normalise each window by itself, so a window's sources do not depend on the others in the batch, but
    for rounding. The sources' levels are the model's own.
    """

    def __init__(self, model: Any, rate: int, n_sources: int) -> None:
        self._model = model
        self.rate = rate
        self.n_sources = n_sources

    def __call__(self, windows: Samples, /) -> Samples:
        """Separate."""
        import torch

        with torch.inference_mode():
            sources: Samples = self._model.separate_batch(torch.from_numpy(windows)).cpu().numpy()
        return np.ascontiguousarray(sources.transpose(0, 2, 1), dtype=np.float32)


def load(folder: Path | str, *, device: str = "cpu", threads: int = 0) -> SepFormer:
    """Load a SepFormer from a folder in speechbrain's format.

    Args:
        folder: holds hyperparams.yaml, encoder.ckpt, masknet.ckpt and decoder.ckpt.
        device: "cpu", "cuda" (the first one), or "cuda:N".
        threads: how many threads torch computes with in this process; 0 leaves that to torch.

    Raises:
        ConfigError: the device is not there.
        MissingExtraError: speechbrain or torch is not installed.
        ModelError: a file is missing or is not what it should be, or the model does not tell its sample rate.
    """
    folder = Path(folder)
    told = _told(folder)
    return SepFormer(_read(folder, told, _device(device, threads)), told.sample_rate, told.num_spks)


def check_folder(folder: Path) -> None:
    """Look whether a folder holds a model, without loading it; ModelError says what is wrong."""
    _told(folder)


def files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder that are read, those that are there."""
    return tuple(path for name in _FILES if (path := folder / name).is_file())


def _told(folder: Path) -> Hyperparameters:
    """Return what a folder says of the model in it; ModelError if it lacks a file, or says what it may not."""
    _check_files(folder)
    return hyperparameters.read(folder / HYPERPARAMETERS, most_sources=MOST_SOURCES)


def _check_files(folder: Path) -> None:
    for name in _FILES:
        if not (folder / name).is_file():
            raise ModelError(
                f"{folder} has no {name}; expected one of {', '.join(MODELS)}, or a folder with {', '.join(_FILES)}; "
                "get one with: python -m cascade models pull sepformer-wsj02mix"
            )


def _device(device: str, threads: int) -> str:
    """Return speechbrain's name of a device that is there, and set the threads."""
    torch = _torch()
    if threads:
        torch.set_num_threads(threads)
    if device == "cpu":
        return device
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise ConfigError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {device!r}")
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise ConfigError(f"device is {device}, but torch sees {torch.cuda.device_count()} GPU(s); use 'device: cpu'")
    return f"cuda:{index}"


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return torch


def _missing(error: ModuleNotFoundError) -> MissingExtraError | ModelError:
    if error.name in ("torch", "torchaudio", "speechbrain"):
        return MissingExtraError(error.name, "paper")
    return ModelError(f"the package 'speechbrain' is broken; {_REINSTALL}")


def _read(folder: Path, told: Hyperparameters, device: str) -> Any:
    """Return speechbrain's SepformerSeparation, in evaluation mode and without gradients."""
    try:
        from speechbrain.inference.separation import SepformerSeparation
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except (ImportError, OSError) as error:  # a shared library of another torch, or of none
        raise ModelError(f"torch, torchaudio and speechbrain do not fit each other; {_REINSTALL}") from error
    _check_numbers_only()
    _check_classes()
    made: dict[int, Any] = {}
    try:
        modules = {name: _network(getattr(told, name), made) for name in NETWORKS}
        for name, module in modules.items():
            _load_weights(folder / f"{name}.ckpt", module)
        hparams = {"sample_rate": told.sample_rate, "num_spks": told.num_spks}
        return SepformerSeparation(modules=modules, hparams=hparams, run_opts={"device": device})
    except ModelError:
        raise
    except Exception as error:  # pickle's, torch's and speechbrain's own, unrelated types
        raise ModelError(
            f"{folder} is no SepFormer that speechbrain can load ({type(error).__name__}); get the model's files again"
        ) from error


def _network(described: hyperparameters.Network, made: dict[int, Any]) -> Any:
    """Return the network that is described, which is made once; made holds those that are, by their description."""
    from speechbrain.lobes.models import dual_path

    if id(described) not in made:
        arguments = {name: getattr(described, name) for name in described.model_fields_set}
        arguments |= {name: _network(of, made) for name, of in arguments.items() if isinstance(of, _DESCRIBED)}
        made[id(described)] = getattr(dual_path, _NAMES[type(described)])(**arguments)
    return made[id(described)]


def _check_numbers_only() -> None:
    """Raise ConfigError if torch was told to run what a file of weights holds; speechbrain leaves it the choice."""
    if os.environ.get(_UNSAFE_TORCH, "0").lower() in ("1", "y", "yes", "true"):
        raise ConfigError(f"{_UNSAFE_TORCH} is set, so that weights could run any program; run: unset {_UNSAFE_TORCH}")


def _check_classes() -> None:
    """Raise ModelError if a name that hyperparameters may hold does not stand for the class of that name."""
    try:
        from speechbrain.lobes.models import dual_path
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    for name in hyperparameters.CLASSES:
        found = getattr(dual_path, name, None)
        if not isinstance(found, type) or (found.__module__, found.__qualname__) != (hyperparameters.HOME, name):
            raise ModelError(f"speechbrain has no class {hyperparameters.HOME}.{name}; {_REINSTALL}")


def _load_weights(path: Path, network: Any) -> None:
    """Give a network its weights; ModelError if some are missing: speechbrain would go on with random ones."""
    from speechbrain.utils.checkpoints import torch_patched_state_dict_load

    weights = torch_patched_state_dict_load(path)
    lacking = dict(network.named_parameters()).keys() - weights.keys()
    if lacking:
        raise ModelError(
            f"{path} lacks {len(lacking)} of the weights that {HYPERPARAMETERS} asks for, such as {min(lacking)}: "
            "they belong to different models; get the model's files again"
        )
    network.load_state_dict(weights, strict=False)
