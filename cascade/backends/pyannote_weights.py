"""The weights of pyannote's networks, read as data: a closed list of what may be in them, and of what is handed on.

A file of weights is a Lightning checkpoint. pyannote.audio runs whatever it holds (weights_only=False in its
core/model.py) and imports the class that it names, and Lightning, in versions that pyannote.audio allows, calls what
stands as _instantiator in any of hyper_parameters, hparams and module_arguments. So the file is read here as numbers
and the few classes that describe pyannote's models. What pyannote then gets is put together anew: weights, the
arguments of a network that is known here, and what the network is for. Whatever else training left behind stays here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from cascade.errors import ModelError

MODEL: Final = "speaker-diarization-community-1"
"""The pipeline's name at pyannote, and in models/."""

PULL: Final = f"python -m cascade models pull {MODEL}"

_NETWORKS: Final = {
    "pyannote.audio.models.segmentation": ("PyanNet",),
    "pyannote.audio.models.embedding": (
        *(f"WeSpeakerResNet{depth}" for depth in (34, 152, 221, 293)),
        "XVectorMFCC",
        "XVectorSincNet",
    ),
}
"""The networks that weights may be for, all of pyannote.audio's own that are made of numbers alone: SSeRiouSS reads, or
downloads, a second network that its weights name."""

_ONE_OF: Final = "one of " + ", ".join(name for names in _NETWORKS.values() for name in names)

_CALLBACKS: Final = (
    "pytorch_lightning.callbacks.early_stopping.EarlyStopping",
    "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
)
"""What an old Lightning wrote beside the weights, such as in pyannote/embedding: states of training, by their class."""

_ARGUMENTS: Final = {
    "sincnet": frozenset({"stride", "sample_rate"}),
    "lstm": frozenset({"hidden_size", "num_layers", "bidirectional", "monolithic", "dropout", "batch_first"}),
    "linear": frozenset({"hidden_size", "num_layers"}),
    "mfcc": frozenset({"n_mfcc", "dct_type", "norm", "log_mels", "sample_rate"}),
    **dict.fromkeys(
        (
            "dimension",
            "dither",
            "frame_length",
            "frame_shift",
            "num_channels",
            "num_mel_bins",
            "sample_rate",
            "use_energy",
            "window_type",
        ),
        None,
    ),
}
"""What the networks are made with, and for what has parts, the names of those."""

_MOST: Final = {"sample_rate": 48_000, "num_layers": 16}
_MOST_OF_OTHERS: Final = 1024
"""The largest numbers among the arguments; a published network has four layers of 128, and 512 numbers at the most."""

_LONGEST_S: Final = 60.0
"""A network's window; the published ones have 10 s at the most."""

_MOST_TOGETHER: Final = 10
"""Speakers in a window of which any may speak at once; the sets of them are counted out."""


class _Callback:
    """Stands for a class of _CALLBACKS: it is only looked at as a name, and is not handed on."""


def read_weights(path: Path) -> dict[str, Any]:
    """Return a Lightning checkpoint for one of pyannote's networks, which holds nothing but what is known here.

    Raises ModelError if the file asks for anything else; what torch, pickle and zipfile raise where it is damaged.
    """
    import torch
    from pyannote.audio.core.task import Problem, Resolution, Specifications
    from torch.torch_version import TorchVersion

    described = [Specifications, Problem, Resolution, TorchVersion]
    try:
        with torch.serialization.safe_globals([*described, *((_Callback, name) for name in _CALLBACKS)]):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch's message goes over many lines, and names in one of them what it would not read.
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found is None:
            raise
        raise ModelError(
            f"'{path}' holds '{found[1][:80]}': only numbers and what describes pyannote's own networks are read, "
            f"since anything else could run any program; take {MODEL}: {PULL}"
        ) from None
    return _known(checkpoint, path)


def _known(checkpoint: Any, path: Path) -> dict[str, Any]:
    """Return what is handed on of a checkpoint, put together anew."""
    try:
        weights, described = checkpoint["state_dict"], checkpoint["pyannote.audio"]
        module, name = described["architecture"]["module"], described["architecture"]["class"]
        version, specifications = described["versions"]["pyannote.audio"], described["specifications"]
        arguments = dict(checkpoint.get("hyper_parameters", {}))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ModelError(f"'{path}' holds no weights of a pyannote network; take {MODEL}: {PULL}") from None
    home = next((home for home in _NETWORKS if f"{module}.".startswith(f"{home}.")), None)
    if home is None or name not in _NETWORKS[home]:
        raise _asks(path, f"{module}.{name}", _ONE_OF)
    if hidden := [key for key in arguments if str(key).startswith("_")]:
        raise _asks(path, hidden[0], _ONE_OF)
    # Lightning too leaves out what a class does not take, such as of the one that it is derived from.
    arguments = {key: value for key, value in arguments.items() if key in _ARGUMENTS}
    _check_arguments(path, arguments)
    return {
        # Lightning changes what older ones wrote; of what it would look for, nothing is here.
        "pytorch-lightning_version": metadata.version("lightning"),
        "state_dict": weights,
        "hyper_parameters": arguments,
        "pyannote.audio": {
            "versions": {"pyannote.audio": str(version)},
            "architecture": {"module": home, "class": name},
            "specifications": _specifications(path, specifications),
        },
    }


def _asks(path: Path, found: object, expected: str) -> ModelError:
    return ModelError(f"'{path}' asks for {str(found)[:80]!r}, expected {expected}; take {MODEL}: {PULL}")


def _check_arguments(path: Path, arguments: Mapping[Any, Any]) -> None:
    """Raise ModelError unless the arguments of a network have known parts and are within reason."""
    for name, value in arguments.items():
        parts = _ARGUMENTS[name]
        if parts is None or value is None:
            _check_argument(path, name, value)
            continue
        if not isinstance(value, dict) or not parts.issuperset(value):
            raise _asks(path, f"another {name}", f"{name} with {', '.join(sorted(parts))}")
        for part, inner in value.items():
            _check_argument(path, part, inner)


def _check_argument(path: Path, name: str, value: object) -> None:
    most = _MOST.get(name, _MOST_OF_OTHERS)
    if isinstance(value, int | float) and not -1 <= value <= most:  # NaN is not
        # A whole number of very many digits cannot be written out.
        shown = value if isinstance(value, float) or value.bit_length() < 64 else "a number of many digits"
        raise _asks(path, f"{name}: {shown}", f"at most {most}")
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise _asks(path, f"{name}: {type(value).__name__}", "a number or a word")


def _specifications(path: Path, found: Any) -> Any:
    """Return what a network is for, a pyannote Specifications, anew: what was read can have any attributes."""
    from pyannote.audio.core.task import Problem, Resolution, Specifications

    told = vars(found) if isinstance(found, Specifications) else {}
    classes, together = told.get("classes"), told.get("powerset_max_classes")
    right = (
        isinstance(told.get("problem"), Problem)
        and isinstance(told.get("resolution"), Resolution)
        and _is_time(told.get("duration"))
        and told["duration"] > 0
        and (told.get("min_duration") is None or _is_time(told["min_duration"]))
        and (classes is None or (isinstance(classes, list) and all(isinstance(name, str) for name in classes)))
        and (together is None or _is_powerset(classes, together))
        and isinstance(warm_up := told.get("warm_up", (0.0, 0.0)), tuple)
        and len(warm_up) == 2
        and all(map(_is_time, warm_up))
    )
    if not right:
        raise _asks(path, "specifications that no network of pyannote has", f"windows of at most {_LONGEST_S:.0f} s")
    return Specifications(
        problem=told["problem"],
        resolution=told["resolution"],
        duration=told["duration"],
        min_duration=told.get("min_duration"),
        warm_up=warm_up,
        classes=classes,
        powerset_max_classes=together,
        permutation_invariant=bool(told.get("permutation_invariant")),
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= _LONGEST_S


def _is_powerset(classes: object, together: object) -> bool:
    return isinstance(classes, list) and isinstance(together, int) and 1 <= together <= len(classes) <= _MOST_TOGETHER
