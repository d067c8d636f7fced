"""Silero VAD v6 as the ONNX file that faster-whisper carries: speech probability of 512-sample frames, no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.backends.packages import package_file, session
from cascade.types import Samples

CONTEXT: Final = 64
"""Samples of the frame before that the network wants in front of each frame; without them it hears no speech."""

STATE: Final = (1, 1, 128)
"""Shape of each of the two recurrent states."""


def model_file() -> Path:
    """Return where the network lies; MissingExtraError without faster-whisper."""
    return package_file("faster_whisper", "assets/silero_vad_v6.onnx", extra="ondevice", distribution="faster-whisper")


def load() -> Callable[[], SileroDetector]:
    """Load the network once; return a maker of detectors, one for each stream."""
    network = session(model_file())
    return lambda: SileroDetector(network)


class SileroDetector:
    """The detector of one stream. Frames go through one by one, so that no chunking can change a result."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self._hidden = np.zeros(STATE, np.float32)
        self._cell = np.zeros(STATE, np.float32)
        self._input = np.zeros((1, CONTEXT), np.float32)

    def __call__(self, frame: Samples, /) -> float:
        """Return the probability of speech in the next frame (512,), in [0, 1]."""
        self._input = np.concatenate([self._input[:, -CONTEXT:], frame[None]], axis=1)
        state = {"input": self._input, "h": self._hidden, "c": self._cell}
        probability, self._hidden, self._cell = self._network.run(None, state)
        return float(probability.item())
