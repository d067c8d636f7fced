"""pyannote.audio 4: who speaks when in a whole recording; a DiarizationModel for diarization.py.

The pipeline (by default speaker-diarization-community-1, arXiv 2104.04045 and the VBx clustering of arXiv 2012.14952)
is a folder on this machine. It is given samples, never a file, so it decodes nothing.

pyannote.audio downloads whatever its configuration does not find beside it, its own defaults included, and reports to
its makers how long recordings are. So the configuration is read first and refused if it names anything outside of the
folder; the hub is set to offline and telemetry to off before the import (also in backends/__init__.py).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.backends import TELEMETRY_OFF
from cascade.diarization import Diarization, DiarizationModel, Stretch
from cascade.errors import BackendError, ConfigError, MissingExtraError, ModelError
from cascade.types import SAMPLE_RATE, Samples, Span, Vector, seconds

log = logging.getLogger(__name__)

MODEL: Final = "speaker-diarization-community-1"
"""The pipeline's name at pyannote, and in models/."""

_PULL: Final = f"python -m cascade models pull {MODEL}"

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
    if device not in ("cpu", "cuda"):
        raise ConfigError(
            f"pyannote runs on the device 'cpu' or 'cuda', got '{device}' (on 'mps' its times have been wrong)"
        )
    if not _installed():
        raise MissingExtraError("pyannote.audio", "paper")
    check_folder(folder)
    os.environ.update(OFFLINE)
    pipeline = _open(folder, device)
    if batch_size is not None:
        pipeline.segmentation_batch_size = pipeline.embedding_batch_size = batch_size
    return Pyannote(pipeline, min_speakers, max_speakers)


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
            f"'{_HERE}FOLDER', since nothing is downloaded; take {MODEL}, which does: {_PULL}"
        )
    paths = [Path(str(params[part]).removeprefix(_HERE)) / file for part, files in _PARTS.items() for file in files]
    missing = [path.as_posix() for path in paths if not (folder / path).is_file()]
    if missing:
        raise ModelError(f"the pipeline in '{folder}' lacks {', '.join(missing)}; get all of its files with: {_PULL}")


def _params(folder: Path) -> Mapping[str, Any]:
    """Return what the pipeline in folder is made with, as its configuration says."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = folder / _CONFIG
    if not path.is_file():
        raise ModelError(
            f"no pyannote pipeline at '{folder}': expected a folder with {_CONFIG} and what it names; get one with: "
            f"{_PULL}, or give its folder"
        )
    try:
        config = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        name, params = config["pipeline"]["name"], config["pipeline"]["params"]
    except (OSError, ValueError, KeyError, TypeError, YAMLError):
        raise ModelError(f"'{path}' is not the configuration of a pyannote pipeline; get it with: {_PULL}") from None
    foreign = sorted({"preprocessors", "device"} & set(config))
    if name not in _CLASS or not isinstance(params, Mapping) or params.get("legacy") or foreign:
        what = f"one with {', '.join(foreign)}" if foreign else f"the pipeline '{name}'"
        raise ModelError(f"'{path}' describes {what}; expected a plain {_CLASS[0]}, such as {MODEL}")
    return params


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

        if device == "cuda" and not torch.cuda.is_available():
            raise BackendError("pyannote was to run on the device 'cuda', but torch finds none; set device: cpu")
        try:
            pipeline = Pipeline.from_pretrained(folder.resolve())
            return pipeline.to(torch.device(device))
        except Exception as error:  # torch, lightning, pickle and pyannote each raise their own
            raise ModelError(
                f"the pyannote pipeline in '{folder}' cannot be loaded on '{device}' ({type(error).__name__}); "
                f"check that pyannote.audio is 4.0 or later, or get the model again with: {_PULL}"
            ) from error
