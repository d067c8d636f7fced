"""SepFormer (arXiv 2010.13154) by way of speechbrain: a Separate for separation.py, from a folder on this machine.

A folder is what speechbrain publishes: hyperparams.yaml and the three networks' weights. Nothing is downloaded, and
nothing is linked or copied elsewhere. separate_file is not used: it normalises each source by its own peak, which hides
who was loud and makes NaN of silence, and keeps recordings by their name.

hyperparams.yaml is a program: speechbrain makes whatever objects it names, and finds them by attributes of modules, so
that torch.nn alone leads to any other module. So it is read as YAML first, and may name nothing but the few classes
that a SepFormer is made of; weights are read as numbers only (torch.load does that by default, from torch 2.6 on).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError, MissingExtraError, ModelError, reinstalling
from cascade.separation import MOST_SOURCES
from cascade.types import Samples

HYPERPARAMETERS: Final = "hyperparams.yaml"
NETWORKS: Final = ("encoder", "masknet", "decoder")

_FILES: Final = (HYPERPARAMETERS, *(f"{network}.ckpt" for network in NETWORKS))

_CLASSES: Final = (
    *(
        f"speechbrain.lobes.models.dual_path.{name}"
        for name in ("Encoder", "Decoder", "Dual_Path_Model", "SBTransformerBlock", "PytorchTransformerBlock")
    ),
    "speechbrain.utils.parameter_transfer.Pretrainer",
)
"""What the published SepFormers are made of, and the other transformer that their recipes know. Each of these takes
numbers, words and networks, and looks nothing up by a name that it is given, as SBRNNBlock does."""

_TAGS: Final = frozenset({"!ref", "!copy", "!apply:torch.manual_seed", *(f"!new:{name}" for name in _CLASSES)})
"""Recipes seed torch before they make a network; that function does nothing else, whatever it is given."""

_PLAIN_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))

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
    check_folder(folder)
    model = _read(folder, _device(device, threads))
    _check_weights(folder, model)
    path, told = folder / HYPERPARAMETERS, model.hparams
    rate = _whole(path, "sample_rate", getattr(told, "sample_rate", None))
    return SepFormer(model, rate, _whole(path, "num_spks", getattr(told, "num_spks", None), MOST_SOURCES))


def check_folder(folder: Path) -> None:
    """Look whether a folder holds a model, without loading it; ModelError says what is wrong."""
    _check_files(folder)
    path = folder / HYPERPARAMETERS
    text = _text(path)
    _check_hyperparameters(path, text)
    _check_plain(path, text)


def _check_files(folder: Path) -> None:
    for name in _FILES:
        if not (folder / name).is_file():
            raise ModelError(
                f"{folder} has no {name}; expected one of {', '.join(MODELS)}, or a folder with {', '.join(_FILES)}; "
                "get one with: python -m cascade models pull sepformer-wsj02mix"
            )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read ({type(error).__name__}); get the model's files again") from None


def _check_hyperparameters(path: Path, text: str) -> None:
    """Raise ModelError if the file names anything but what a SepFormer is made of."""
    for found in _foreign(path, text):
        raise ModelError(
            f"{path} has {found[:80]!r}: only a SepFormer's own networks of speechbrain may be named in it, since it "
            "could run any program; use the file that was published with the model"
        )


def _foreign(path: Path, text: str) -> Iterator[str]:
    """Yield what the file may not hold, as YAML's own parser sees it: escapes are undone, and comments are gone.

    A value with an exclamation mark is foreign too. hyperpyyaml writes the file anew and reads it again, and what it
    takes for a tuple a third time: a value may be a tag by then.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        for event in YAML(pure=True).parse(text):
            if getattr(event, "version", None) or getattr(event, "tags", None):
                yield "%"  # a directive, which can rename a tag
            tag, value = getattr(event, "tag", None), getattr(event, "value", None)
            if tag is not None and str(tag) not in _TAGS | _PLAIN_TAGS:
                yield str(tag)
            if isinstance(value, str) and "!" in value:
                yield value
    except (YAMLError, ValueError, RecursionError) as error:
        raise _no_yaml(path, error) from None


def _check_plain(path: Path, text: str) -> None:
    """Raise ModelError if a number that must be told is missing or is none; references are not followed.

    Nothing is made of the file here: YAML's own parser keeps tags, and does not know what speechbrain does with them.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        told = YAML(pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise _no_yaml(path, error) from None
    if not isinstance(told, Mapping):
        raise ModelError(f"{path} holds no hyperparameters; use the file published with the model")
    for name, most in (("sample_rate", None), ("num_spks", MOST_SOURCES)):
        value = told.get(name)
        if value is None or isinstance(value, bool | float | str):
            _whole(path, name, value)
        elif isinstance(value, int):  # YAML keeps with some how they are written, such as 8_000
            _whole(path, name, int(value), most)


def _no_yaml(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path} is no YAML ({type(error).__name__}); get the model's files again")


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


def _read(folder: Path, device: str) -> Any:
    """Return speechbrain's SepformerSeparation, in evaluation mode and without gradients."""
    try:
        from speechbrain.inference.separation import SepformerSeparation
        from speechbrain.utils.fetching import FetchConfig, FetchFrom, FetchSource
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except (ImportError, OSError) as error:  # a shared library of another torch, or of none
        raise ModelError(f"torch, torchaudio and speechbrain do not fit each other; {_REINSTALL}") from error
    _check_numbers_only()
    _check_classes()
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


def _check_numbers_only() -> None:
    """Raise ConfigError if torch was told to run what a file of weights holds; speechbrain leaves it the choice."""
    if os.environ.get(_UNSAFE_TORCH, "0").lower() in ("1", "y", "yes", "true"):
        raise ConfigError(f"{_UNSAFE_TORCH} is set, so that weights could run any program; run: unset {_UNSAFE_TORCH}")


def _check_classes() -> None:
    """Raise ModelError if a name that hyperparameters may hold does not stand for the class of that name."""
    # Until somebody has imported the module itself, `from speechbrain.utils import parameter_transfer` gives a stand-in
    # of another name.
    try:
        import speechbrain.lobes.models.dual_path
        import speechbrain.utils.parameter_transfer  # noqa: F401
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    for path in _CLASSES:
        module, _, name = path.rpartition(".")
        found = getattr(sys.modules[module], name, None)
        if not isinstance(found, type) or (found.__module__, found.__qualname__) != (module, name):
            raise ModelError(f"speechbrain has no class {path}; {_REINSTALL}")


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


def _whole(path: Path, name: str, value: Any, most: int | None = None) -> int:
    """Return one of the hyperparameters, which must be a whole number from 1 to most."""
    if type(value) is not int or value < 1:
        problem = f"has no {name}" if value is None else f"has a {name} that is no whole number above 0"
        raise ModelError(f"{path} {problem}, and it cannot be guessed; use the file published with the model")
    if most is not None and value > most:
        raise ModelError(
            f"{path} has {name}: {value}, more than {most}, whose orders cannot all be tried; use a model of {most} or "
            "fewer speakers"
        )
    return value
