"""A small pipeline of pyannote.audio 4 in its own format, as a folder: the real classes, with weights drawn at random.

Segmentation is a PyanNet with small layers, embedding the WeSpeakerResNet34 that community-1 has, PLDA two npz files.
Its windows are 2 s, not 10 s, since each is embedded three times.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = """\
dependencies:
  pyannote.audio: 4.0.0

pipeline:
  name: pyannote.audio.pipelines.SpeakerDiarization
  params:
    clustering: VBxClustering
    segmentation: $model/segmentation
    segmentation_batch_size: 8
    embedding: $model/embedding
    embedding_batch_size: 8
    embedding_exclude_overlap: true
    plda: $model/plda

params:
  segmentation:
    min_duration_off: 0.0
  clustering:
    threshold: 0.6
    Fa: 0.07
    Fb: 0.8
"""

WINDOW_S = 2.0

DIMENSION = 256
"""Numbers in an embedding of WeSpeakerResNet34."""


def save_pipeline(folder: Path) -> None:
    """Write config.yaml, segmentation/, embedding/ and plda/ into folder; needs pyannote.audio."""
    import torch
    from pyannote.audio.core.task import Problem, Resolution, Specifications
    from pyannote.audio.models.embedding import WeSpeakerResNet34
    from pyannote.audio.models.segmentation import PyanNet

    torch.manual_seed(0)
    frames = Specifications(
        problem=Problem.MONO_LABEL_CLASSIFICATION,
        resolution=Resolution.FRAME,
        duration=WINDOW_S,
        classes=["speaker#1", "speaker#2", "speaker#3"],
        powerset_max_classes=2,
        permutation_invariant=True,
    )
    voices = Specifications(
        problem=Problem.REPRESENTATION, resolution=Resolution.CHUNK, duration=WINDOW_S, classes=["one", "two"]
    )
    small = {"hidden_size": 8, "num_layers": 1, "bidirectional": True, "monolithic": True, "dropout": 0.0}
    segmentation = PyanNet(lstm=small, linear={"hidden_size": 8, "num_layers": 1})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(CONFIG)
    _save_model(segmentation, frames, folder / "segmentation")
    _save_model(WeSpeakerResNet34(), voices, folder / "embedding")
    _save_plda(folder / "plda")


def _save_model(model: Any, specifications: Any, folder: Path) -> None:
    """Write a model as pyannote's training leaves it behind: a Lightning checkpoint that says whose it is."""
    import torch
    from pyannote.audio import __version__

    model.specifications = specifications
    model.build()
    folder.mkdir()
    checkpoint = {
        "pytorch-lightning_version": version("lightning"),
        "state_dict": model.state_dict(),
        "hyper_parameters": dict(model.hparams),
        "pyannote.audio": {
            "versions": {"torch": torch.__version__, "pyannote.audio": __version__},
            "architecture": {"module": type(model).__module__, "class": type(model).__name__},
            "specifications": specifications,
        },
    }
    torch.save(checkpoint, folder / "pytorch_model.bin")


def _save_plda(folder: Path, reduced: int = 128) -> None:
    random = np.random.default_rng(0)
    folder.mkdir()
    np.savez(
        folder / "xvec_transform.npz",
        mean1=np.zeros(DIMENSION),
        mean2=np.zeros(reduced),
        lda=random.standard_normal((DIMENSION, reduced)) / np.sqrt(DIMENSION),
    )
    rotation = np.linalg.qr(random.standard_normal((reduced, reduced)))[0]
    np.savez(folder / "plda.npz", mu=np.zeros(reduced), tr=rotation, psi=np.linspace(3.0, 0.1, reduced))
