"""SepFormer (arXiv 2010.13154) by way of speechbrain: a Separate for separation.py, from a folder on this machine.

A folder is what speechbrain publishes: hyperparams.yaml and the three networks' weights. Nothing is downloaded, and
nothing is linked or copied elsewhere. separate_file is not used: it normalises each source by its own peak, which hides
who was loud and makes NaN of silence, and keeps recordings by their name.

hyperparams.yaml is a program: speechbrain makes whatever objects it names. So only speechbrain's and torch's networks
may be named in it, and weights are read as numbers only (torch.load does that by default, from torch 2.6 on).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError, MissingExtraError, ModelError
from cascade.types import Samples

HYPERPARAMETERS: Final = "hyperparams.yaml"
NETWORKS: Final = ("encoder", "masknet", "decoder")

_FILES: Final = (HYPERPARAMETERS, *(f"{network}.ckpt" for network in NETWORKS))

_TAG: Final = re.compile(r"(?<!\w)!\S*|^%.*", re.MULTILINE)
"""What YAML may take for a tag, and its directives, which could rename one."""

_ALLOWED_TAG: Final = re.compile(
    r"!(ref|copy)|!new:(speechbrain\.(lobes\.models|nnet)|torch\.nn)\.[\w.]+"
    r"|!new:speechbrain\.utils\.parameter_transfer\.Pretrainer|!apply:torch\.manual_seed"
)


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
    check_folder(folder)
    model = _read(folder, _device(device, threads))
    _check_weights(folder, model)
    return SepFormer(model, _whole(folder, model, "sample_rate"), _whole(folder, model, "num_spks"))


def check_folder(folder: Path) -> None:
    """Look whether a folder holds a model, without loading it; ModelError says what is wrong."""
    _check_files(folder)
    _check_hyperparameters(folder / HYPERPARAMETERS)


def _check_files(folder: Path) -> None:
    for name in _FILES:
        if not (folder / name).is_file():
            raise ModelError(
                f"{folder} has no {name}; a SepFormer is a folder with {', '.join(_FILES)}; get one with: "
                "python -m cascade models pull sepformer-wsj02mix"
            )


def _check_hyperparameters(path: Path) -> None:
    """Raise ModelError if the file names anything but networks."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read ({type(error).__name__}); get the model's files again") from None
    for tag in _TAG.findall(text):
        if not _ALLOWED_TAG.fullmatch(tag):
            raise ModelError(
                f"{path} has the tag {tag[:80]!r}: only networks of speechbrain and torch may be named in it, since it "
                "could run any program; use the file that was published with the model"
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
    return ModelError("the package 'speechbrain' is broken; run: pip install --force-reinstall 'cascade[paper]'")


def _read(folder: Path, device: str) -> Any:
    """Return speechbrain's SepformerSeparation, in evaluation mode and without gradients."""
    try:
        from speechbrain.inference.separation import SepformerSeparation
        from speechbrain.utils.fetching import FetchConfig, FetchFrom, FetchSource
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except (ImportError, OSError) as error:  # a shared library of another torch, or of none
        raise ModelError(
            "torch, torchaudio and speechbrain do not fit each other; run: "
            "pip install --force-reinstall 'cascade[paper]'"
        ) from error
    # Without a source that is said to be local, a name that is no folder would be looked for on a hub; without savedir,
    # nothing is linked. Hyperparameters that name a repository (pretrained_path) are given the folder instead.
    try:
        return SepformerSeparation.from_hparams(
            FetchSource(FetchFrom.LOCAL, str(folder)),
            overrides={"pretrained_path": str(folder)},
            overrides_must_match=False,
            fetch_config=FetchConfig(allow_network=False),
            run_opts={"device": device},
        )
    except Exception as error:  # YAML's, pickle's, torch's and speechbrain's own, unrelated types
        raise ModelError(
            f"{folder} is no SepFormer that speechbrain can load ({type(error).__name__}); get the model's files again"
        ) from error


def _check_weights(folder: Path, model: Any) -> None:
    """Raise ModelError if weights are missing: speechbrain would go on with random ones."""
    from speechbrain.utils.checkpoints import torch_patched_state_dict_load

    for name in NETWORKS:
        path = folder / f"{name}.ckpt"
        lacking = dict(model.mods[name].named_parameters()).keys() - torch_patched_state_dict_load(path).keys()
        if lacking:
            raise ModelError(
                f"{path} lacks {len(lacking)} of the weights that {HYPERPARAMETERS} asks for, such as {min(lacking)}: "
                "they belong to different models; get the model's files again"
            )


def _whole(folder: Path, model: Any, name: str) -> int:
    """Return one of the hyperparameters, which must be a whole number above 0."""
    value = getattr(model.hparams, name, None)
    if type(value) is not int or value < 1:
        problem = f"has no {name}" if value is None else f"has a {name} that is no whole number above 0"
        raise ModelError(
            f"{folder / HYPERPARAMETERS} {problem}, and it cannot be guessed; use the file published with the model"
        )
    return value
