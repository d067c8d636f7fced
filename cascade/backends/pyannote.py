"""pyannote.audio 4: who speaks when in a whole recording; a DiarizationModel for diarization.py.

Its segmentation network by itself tells whether two speak at once in a few seconds, for separation.py (load_overlap);
its embedding network tells whose voice a second of a source is, for the gate (load_encoder).

The pipeline (by default speaker-diarization-community-1, arXiv 2104.04045 and the VBx clustering of arXiv 2012.14952)
is a folder on this machine. It is given samples, never a file, so it decodes nothing.

pyannote.audio downloads whatever its configuration does not find beside it, its own defaults included, and reports to
its makers how long recordings are. So the configuration is read first and refused if it names anything outside of the
folder; the hub is set to offline and telemetry to off before the import (also in backends/__init__.py).

It also runs whatever a file of weights holds. So it is handed no file of weights, but what pyannote_weights.py read of
it. The npz files are read by numpy, which takes nothing but numbers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.backends import TELEMETRY_OFF, pyannote_weights
from cascade.backends.pyannote_weights import PULL, read_weights
from cascade.diarization import Diarization, DiarizationModel, Stretch
from cascade.errors import BackendError, ConfigError, MissingExtraError, ModelError
from cascade.types import SAMPLE_RATE, Samples, Span, Vector, seconds

log = logging.getLogger(__name__)

MODEL: Final = pyannote_weights.MODEL

OFFLINE: Final = {"HF_HUB_OFFLINE": "1", **TELEMETRY_OFF}

_CONFIG: Final = "config.yaml"
_CLASS: Final = ("pyannote.audio.pipelines.SpeakerDiarization", "SpeakerDiarization")
_WEIGHTS: Final = ("pytorch_model.bin",)
_PARTS: Final = {
    "segmentation": _WEIGHTS,
    "embedding": _WEIGHTS,
    "plda": ("plda.npz", "xvec_transform.npz"),
}
"""What the pipeline is made of, and the files of each. What its configuration leaves out would be downloaded."""

_CONFIG_KEYS: Final = frozenset({"dependencies", "version", "pipeline", "params", "freeze"})
_PARAMS: Final = frozenset(
    {
        *_PARTS,
        "clustering",
        "der_variant",
        "embedding_batch_size",
        "embedding_exclude_overlap",
        "legacy",
        "segmentation_batch_size",
        "segmentation_step",
    }
)
"""What a pipeline's configuration may say. Left out are classes to import (preprocessors), a device, and what is for
downloads (token, cache_dir)."""

_LARGEST: Final = 100_000
"""Bytes of a configuration; community-1's has 444."""

_MOST: Final = 1000.0
_BOUNDS: Final = {
    "embedding_batch_size": (1, 1024),
    "segmentation_batch_size": (1, 1024),
    "segmentation_step": (0.01, 1.0),
}
"""The least and the most that a number of a configuration may be; a step is a share of a window."""

MIN_OVERLAP_S: Final = 0.25
"""Two speak at once where they do so for this long without a break: about a syllable. Where turns change, the network
hears shorter ones, in which there is hardly a word to separate."""

_SPOKEN: Final = 0.5
"""From this probability on a speaker is active, where the network gives one per speaker; a powerset is a choice."""

_HERE: Final = "$model/"
"""How a pipeline's configuration names a folder inside its own."""


class Pyannote:
    """A loaded pipeline as a DiarizationModel; it keeps nothing between calls.

    Speakers are called speaker_1, speaker_2, ... in the order in which they first speak.
    """

    def __init__(self, pipeline: Any, min_speakers: int | None = None, max_speakers: int | None = None) -> None:
        self._pipeline = pipeline
        self._bounds = {"min_speakers": min_speakers, "max_speakers": max_speakers}

    def __call__(self, samples: Samples) -> Diarization:
        """Return who speaks where in a recording (n_samples,) at 16 kHz."""
        import torch

        recording = {"waveform": torch.from_numpy(samples)[None], "sample_rate": SAMPLE_RATE, "uri": "recording"}
        with warnings.catch_warnings():
            # About silent or very short stretches, and what it sets in torch: nothing to act on.
            warnings.simplefilter("ignore")
            heard = self._run(recording)
        return as_diarization(heard, len(samples))

    def _run(self, recording: Mapping[str, Any]) -> Any:
        """Return pyannote's DiarizeOutput."""
        try:
            return self._pipeline(dict(recording), **self._bounds)
        except ValueError as error:
            # It asks k-means for min_speakers groups of voices, also when it found fewer stretches than that.
            if self._bounds["min_speakers"] is None or "n_clusters" not in str(error):
                raise
        log.warning("the recording is too short to find min_speakers=%d in; as many as there are", self._at_least)
        return self._pipeline(dict(recording), max_speakers=self._bounds["max_speakers"])

    @property
    def _at_least(self) -> int:
        return self._bounds["min_speakers"] or 1


def as_diarization(heard: Any, n_samples: int) -> Diarization:
    """Turn pyannote's DiarizeOutput into ours: times into samples of a recording with so many, names into our own."""
    labels = heard.speaker_diarization.labels()
    embeddings = heard.speaker_embeddings
    speech = list(_stretches(heard.speaker_diarization, n_samples))
    names: dict[str, str] = {}
    for stretch in sorted(speech):
        names.setdefault(stretch.speaker, f"speaker_{len(names) + 1}")
    turns = _stretches(heard.exclusive_speaker_diarization, n_samples)
    return Diarization(
        turns=[Stretch(span, names[label]) for span, label in turns if label in names],
        speech=[Stretch(span, names[label]) for span, label in speech],
        embeddings={
            names[label]: unit(embedding)
            for label, embedding in zip(map(str, labels), [] if embeddings is None else embeddings, strict=False)
            if label in names
        },
    )


def _stretches(annotation: Any, n_samples: int) -> Iterator[Stretch]:
    """Yield the stretches of a pyannote.core.Annotation that lie in the recording: its last window is padded."""
    for segment, _, label in annotation.itertracks(yield_label=True):
        start, end = (min(max(seconds(time), 0), n_samples) for time in (segment.start, segment.end))
        if start < end:
            yield Stretch(Span(start, end), str(label))


def unit(embedding: Vector) -> Vector:
    """Return an embedding (dim,) with norm 1; NaN where it has no direction, as pyannote gives 0 for nobody's voice."""
    norm = float(np.linalg.norm(embedding))
    if not (np.isfinite(norm) and norm > 0):
        return np.full(len(embedding), np.nan, np.float32)
    return (embedding / norm).astype(np.float32)


def load(
    folder: Path,
    *,
    device: str = "cpu",
    min_speakers: int | None = None,
    max_speakers: int | None = None,
    batch_size: int | None = None,
) -> DiarizationModel:
    """Load a pipeline that is on this machine; nothing is ever downloaded.

    Args:
        folder: Where the pipeline lies: config.yaml, and what it names.
        device: "cpu" or "cuda"; what is asked for is used, or fails.
        min_speakers: Fewest speakers to find, where the recording is long enough; None leaves it to the pipeline.
        max_speakers: Most speakers to find; None leaves it to the pipeline.
        batch_size: Windows of 10 s that are worked on at once; None takes what the pipeline's configuration says.
            Memory on a GPU grows with it.

    Raises:
        MissingExtraError: pyannote.audio is not installed.
        ModelError: The folder lacks a file, or what it holds is no such pipeline, or names what lies elsewhere.
        ConfigError: The numbers of speakers, the batch's size or the device make no sense.
        BackendError: The device cannot be used.
    """
    _check_numbers(min_speakers, max_speakers, batch_size)
    _check_ready(folder, device)
    pipeline = _open(folder, device)
    if batch_size is not None:
        pipeline.segmentation_batch_size = pipeline.embedding_batch_size = batch_size
    return Pyannote(pipeline, min_speakers, max_speakers)


class Overlap:
    """Tells whether two speak at once in a window (n_samples,) at 16 kHz; it keeps nothing between calls.

    Args:
        count: how many speak in each frame of a window (n_frames,), NaN where that is not known.
        frame_s: time between the starts of two frames, in seconds.
    """

    def __init__(self, count: Callable[[Samples], Vector], frame_s: float) -> None:
        self._count = count
        self._frames = max(1, math.ceil(MIN_OVERLAP_S / frame_s))

    def __call__(self, samples: Samples, /) -> bool:
        """Return whether two or more speak at once for MIN_OVERLAP_S; True when in doubt."""
        counts = self._count(samples)
        if not np.isfinite(counts).all():
            return True
        run = 0
        for together in counts >= 2:
            run = run + 1 if together else 0
            if run >= self._frames:
                return True
        return False


class _SpeakerCount:
    """A segmentation network: window (n_samples,) at 16 kHz -> how many speak in each frame (n_frames,)."""

    def __init__(self, network: Any, to_speakers: Callable[[Any], Any], device: str) -> None:
        self._network, self._to_speakers, self._device = network, to_speakers, device
        self._size = seconds(float(network.specifications.duration))
        self.frame_s = float(network.receptive_field.step)

    def __call__(self, samples: Samples, /) -> Vector:
        import torch

        # The network knows pieces of one length: a shorter window is filled up with silence, a longer one is cut.
        n_pieces = max(1, -(-len(samples) // self._size))
        pieces = np.pad(samples, (0, n_pieces * self._size - len(samples))).reshape(n_pieces, 1, self._size)
        with torch.inference_mode():
            scores = self._network(torch.from_numpy(pieces).to(self._device))
            scores = scores.cpu()
            counts = self._to_speakers(scores).sum(-1)
            # The largest of several scores is one of them, also where they are no numbers.
            counts[scores.isnan().any(-1)] = math.nan
        heard = math.ceil(len(samples) / (self.frame_s * SAMPLE_RATE))
        found: Vector = counts.reshape(-1)[:heard].numpy()
        return found


def load_overlap(folder: Path, *, device: str = "cpu") -> Callable[[Samples], bool]:
    """Load what tells whether two speak at once in a window at 16 kHz: a pipeline's segmentation network.

    Args:
        folder: Where the whole pipeline lies, as for load; nothing is ever downloaded.
        device: "cpu" or "cuda"; what is asked for is used, or fails.

    Raises:
        MissingExtraError: pyannote.audio is not installed.
        ModelError: The folder lacks a file, or its segmentation does not tell who speaks at once.
        ConfigError: The device makes no sense.
        BackendError: The device cannot be used.
    """
    _check_ready(folder, device)
    network = _open_network(folder, "segmentation", device)
    count = _SpeakerCount(network, _to_speakers(network.specifications, folder), device)
    return Overlap(count, count.frame_s)


VOICE_WINDOW: Final = seconds(1.0)
"""Samples that the embedding network is given at a time. The pipeline gives it 10 s, with a mask; a longer window would
not notice that the voice changes in it."""


class VoiceEncoder:
    """An embedding network as an Encoder; it keeps nothing between calls.

    What a pipeline gives for a speaker is a mean of embeddings by the same network, so the two can be compared.
    """

    window = VOICE_WINDOW

    def __init__(self, network: Callable[[Any], Any]) -> None:
        """Take the network: (1, 1, n_samples) -> (1, dim), as torch tensors."""
        self._network = network

    def __call__(self, samples: Samples, /) -> Vector:
        """Return the embedding (dim,) of samples (window,), unit norm; NaN for silence and for what is no number."""
        import torch

        with torch.inference_mode():
            found: Vector = self._network(torch.from_numpy(samples)[None, None])[0].cpu().numpy()
        if not samples.any() or not np.isfinite(samples).all():
            return np.full(len(found), np.nan, np.float32)
        return unit(found)


def load_encoder(folder: Path, *, device: str = "cpu") -> VoiceEncoder:
    """Load what tells voices in a pipeline that is on this machine: its embedding network.

    Args:
        folder: Where the whole pipeline lies, as for load; nothing is ever downloaded.
        device: "cpu" or "cuda"; what is asked for is used, or fails.

    Raises:
        MissingExtraError: pyannote.audio is not installed.
        ModelError: The folder lacks a file, or what it holds is no such network.
        ConfigError: The device makes no sense.
        BackendError: The device cannot be used.
    """
    _check_ready(folder, device)
    network = _open_network(folder, "embedding", device)
    return VoiceEncoder(lambda samples: network(samples.to(device)))


def _open_network(folder: Path, part: str, device: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        _check_gpu(device)
        try:
            return _network(folder, part).to(torch.device(device)).eval()
        except ModelError:
            raise
        except Exception as error:  # torch, lightning, pickle and pyannote each raise their own
            raise _unloadable(folder, device, error) from error


def _network(folder: Path, part: str) -> Any:
    """Return one of a pipeline's networks, a pyannote.audio.Model; its weights were read as data, not as a program."""
    import torch
    from pyannote.audio import Model

    checkpoint = read_weights(_place(folder, part) / _WEIGHTS[0])
    # pyannote reads files only. What is written for it here holds nothing but what was just read.
    written = io.BytesIO()
    torch.save(checkpoint, written)
    written.seek(0)
    return Model.from_pretrained(written)


def _place(folder: Path, part: str) -> Path:
    return folder / str(_params(folder)[part]).removeprefix(_HERE)


def _to_speakers(specifications: Any, folder: Path) -> Callable[[Any], Any]:
    """Return what makes of a network's scores who speaks: (..., n_scores) -> (..., n_speakers) of 0 and 1."""
    from pyannote.audio.core.task import Problem, Resolution
    from pyannote.audio.utils.powerset import Powerset

    if getattr(specifications, "resolution", None) == Resolution.FRAME and len(specifications.classes or ()) > 1:
        if specifications.powerset and specifications.powerset_max_classes > 1:
            powerset: Any = Powerset(len(specifications.classes), specifications.powerset_max_classes)
            return lambda scores: powerset.to_multilabel(scores)
        if specifications.problem == Problem.MULTI_LABEL_CLASSIFICATION:
            return lambda scores: (scores > _SPOKEN).float()
    raise ModelError(
        f"the segmentation in '{folder}' does not tell who speaks at once: expected one with several speakers in each "
        f"frame; take {MODEL}: {PULL}"
    )


def _check_ready(folder: Path, device: str) -> None:
    """Look whether a pipeline can be loaded, and switch off what pyannote would send."""
    if device not in ("cpu", "cuda"):
        raise ConfigError(
            f"pyannote runs on the device 'cpu' or 'cuda', got '{device}' (on 'mps' its times have been wrong)"
        )
    if not _installed():
        raise MissingExtraError("pyannote.audio", "paper")
    check_folder(folder)
    os.environ.update(OFFLINE)


def check_folder(folder: Path) -> None:
    """Check that a folder holds a whole pipeline, without loading it or importing anything heavy.

    Raises:
        ModelError: It lacks a file, or its configuration is of another kind or names what lies elsewhere.
    """
    params = _params(folder)
    outside = [name for name in _PARTS if not _inside(params.get(name))]
    if outside:
        raise ModelError(
            f"the pipeline in '{folder}' does not hold its own {', '.join(outside)}: its {_CONFIG} must name each as "
            f"'{_HERE}FOLDER', since nothing is downloaded; take {MODEL}, which does: {PULL}"
        )
    missing = [path.as_posix() for path in _paths(params) if not (folder / path).is_file()]
    if missing:
        raise ModelError(f"the pipeline in '{folder}' lacks {', '.join(missing)}; get all of its files with: {PULL}")


def files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a pipeline's folder that are read, those that are there."""
    params: Mapping[str, Any] = {}
    with contextlib.suppress(ModelError):  # which check_folder says
        params = _params(folder)
    inside = {part: params[part] for part in _PARTS if _inside(params.get(part))}
    return tuple(path for name in (Path(_CONFIG), *_paths(inside)) if (path := folder / name).is_file())


def _paths(params: Mapping[str, Any]) -> Iterator[Path]:
    """Yield where the files of a pipeline's parts lie in its folder."""
    for part, names in _PARTS.items():
        if part in params:
            yield from (Path(str(params[part]).removeprefix(_HERE)) / name for name in names)


def _params(folder: Path) -> Mapping[str, Any]:
    """Return what the pipeline in folder is made with, as its configuration says."""
    params: Mapping[str, Any] = _config(folder)["pipeline"]["params"]
    return params


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration of the pipeline in folder; it says nothing that it may not."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = folder / _CONFIG
    if not path.is_file():
        raise ModelError(
            f"no pyannote pipeline at '{folder}': expected a folder with {_CONFIG} and what it names; get one with: "
            f"{PULL}, or give its folder"
        )
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError("that is no configuration")
        config = YAML(typ="safe", pure=True).load(text.decode("utf-8"))
        name, params = config["pipeline"]["name"], config["pipeline"]["params"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, YAMLError):
        raise ModelError(f"'{path}' is not the configuration of a pyannote pipeline; get it with: {PULL}") from None
    _check_config(path, config, name, params)
    return dict(config)


def _check_config(path: Path, config: Mapping[str, Any], name: Any, params: Any) -> None:
    """Raise ModelError unless a configuration is that of a plain pipeline, and names no class but that one."""
    foreign = sorted(map(str, {*config} - _CONFIG_KEYS))
    if name not in _CLASS or not isinstance(params, Mapping) or params.get("legacy") or foreign:
        what = f"one with {', '.join(foreign)}" if foreign else f"the pipeline '{name}'"
        raise ModelError(f"'{path}' describes {_short(what)}; expected a plain {_CLASS[0]}, such as {MODEL}")
    if unknown := sorted(map(str, {*params} - _PARAMS)):
        raise ModelError(
            f"'{path}' gives its pipeline {_short(', '.join(unknown))}, which is none of {', '.join(sorted(_PARAMS))}"
        )
    own = [(key, value) for key, value in params.items() if key not in _PARTS]
    for key, value in (*own, *_inner(config.get("params")), *_inner(config.get("freeze"))):
        least, most = _BOUNDS.get(str(key), (-_MOST, _MOST))
        plain = value is None or isinstance(value, bool | str)
        if not plain and not (isinstance(value, int | float) and least <= value <= most):  # NaN is not
            raise ModelError(
                f"'{path}' has a wrong {_short(str(key))}, expected a word, or a number from {least} to {most}; get it "
                f"with: {PULL}"
            )


def _inner(group: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the names and values of parameters, which are in groups of one or two levels."""
    for name, value in group.items() if isinstance(group, Mapping) else ():
        yield from value.items() if isinstance(value, Mapping) else ((name, value),)


def _short(found: str) -> str:
    """Return what stands in a file, as it fits into a line."""
    return "".join(letter if letter.isprintable() else "?" for letter in found[:80])


def _inside(place: Any) -> bool:
    """Tell whether a configuration's value names a folder inside of the pipeline's own."""
    return isinstance(place, str) and place.startswith(_HERE) and "@" not in place and ".." not in Path(place).parts


def _installed() -> bool:
    try:
        return importlib.util.find_spec("pyannote.audio") is not None
    except ModuleNotFoundError:  # nothing of pyannote at all
        return False


def _check_numbers(min_speakers: int | None, max_speakers: int | None, batch_size: int | None) -> None:
    for name, value in (("min_speakers", min_speakers), ("max_speakers", max_speakers), ("batch_size", batch_size)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    if min_speakers is not None and max_speakers is not None and min_speakers > max_speakers:
        raise ConfigError(f"min_speakers is {min_speakers}, more than max_speakers, {max_speakers}; exchange them")


def _open(folder: Path, device: str) -> Any:
    with warnings.catch_warnings():
        # Its import warns that no torchcodec decodes files, over twenty lines; it is not given any.
        warnings.simplefilter("ignore")
        import torch
        from pyannote.audio import Pipeline

        _check_gpu(device)
        try:
            return Pipeline.from_pretrained(_with_networks(folder)).to(torch.device(device))
        except ModelError:
            raise
        except Exception as error:  # torch, lightning, pickle and pyannote each raise their own
            raise _unloadable(folder, device, error) from error


def _with_networks(folder: Path) -> dict[str, Any]:
    """Return the configuration in which the folder's networks stand in place of their names."""
    from pyannote.audio.core.plda import PLDA

    config = _config(folder)
    parts = {part: _network(folder, part) for part in ("segmentation", "embedding")}
    parts["plda"] = PLDA.from_pretrained(_place(folder, "plda"))
    pipeline = {"name": _CLASS[0], "params": {**config["pipeline"]["params"], **parts}}
    return {**config, "pipeline": pipeline}


def _check_gpu(device: str) -> None:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BackendError("pyannote was to run on the device 'cuda', but torch finds none; set device: cpu")


def _unloadable(folder: Path, device: str, error: Exception) -> ModelError:
    return ModelError(
        f"the pyannote pipeline in '{folder}' cannot be loaded on '{device}' ({type(error).__name__}); "
        f"check that pyannote.audio is 4.0 or later, or get the model again with: {PULL}"
    )
