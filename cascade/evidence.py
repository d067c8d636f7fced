"""SpeakerTurn -> how likely the main speaker speaks in it, every 20 ms.

A speaker embedding alone tells whose voice it is within about half a second, and not at all where two speak at once.
What else tells near from far is in the sound itself: how loud it is against the main speaker's level, in each band, and
how it starts and dies away (a far voice is reverberant and soft). So a small network looks at both:

    turn + Known (profiles) -> observe -> Observation (n_frames, n_features) -> Evidence -> probabilities (n_frames,)

Its weights come from `benchmarks/evidence.py`, which trains them on synthetic scenes. It is told nothing of words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cascade.errors import ModelError
from cascade.types import Samples, SpeakerTurn, Vector, seconds

FRAME: Final = seconds(0.02)
"""Samples between two decisions."""

WINDOW: Final = 512
"""Samples of a spectrum, around the middle of its frame: 32 ms hold two periods of the lowest voices."""

N_BANDS: Final = 20
LOWEST_HZ: Final = 100.0
HIGHEST_HZ: Final = 7000.0

RANGE_DB: Final = 40.0
"""What is softer than the main speaker by more than this, or louder, tells no more."""

Matrix: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Known:
    """What is known of who speaks, before a turn is heard.

    main (dim,) is the main speaker's voice as known by now, first (dim,) as it was known at first, which cannot have
    drifted to somebody else's; rivals (n_rivals, dim) are those of bystanders heard before; all unit norm. most_alike
    is the highest similarity to `first` of a turn so far: in another room or over a telephone all are lower.
    level_db is the main speaker's level in dB re full scale, or the loudest level so far where `heard` is false.
    """

    main: Vector
    first: Vector
    rivals: Matrix
    most_alike: float
    level_db: float
    heard: bool
    enrolled: bool


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Observation:
    """What a turn looks like, seen from what is known: features (n_frames, N_FEATURES), one row for each FRAME.

    The rows reach from `before` frames ahead of the turn to what was heard after it; n_frames are those of the turn.
    """

    features: Matrix
    before: int
    n_frames: int


Judge: TypeAlias = Callable[[SpeakerTurn, Observation], Vector]
"""-> the probability that the main speaker speaks, for each frame of the turn (n_frames,)."""


def mel(hertz: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Turn frequencies into mel (O'Shaughnessy 1987)."""
    return np.asarray(2595 * np.log10(1 + hertz / 700), np.float64)


def band_weights() -> Matrix:
    """Return triangular weights of the bands over the bins of a spectrum, (N_BANDS, WINDOW // 2 + 1)."""
    bins = mel(np.fft.rfftfreq(WINDOW, 1 / seconds(1)))
    lowest, highest = mel(np.array([LOWEST_HZ, HIGHEST_HZ]))
    edges = np.linspace(lowest, highest, N_BANDS + 2)
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - left) / (middle - left), (right - bins) / (right - middle)
    return np.asarray(np.maximum(0, np.minimum(rising, falling)), np.float32)


def band_levels(samples: Samples, weights: Matrix) -> Matrix:
    """Return levels in dB of each band and of all together, (n_frames, N_BANDS + 1); the last frame may be part of one.

    A full-scale sine in a band is near 0 dB.
    """
    n_frames = -(-len(samples) // FRAME)
    margin = (WINDOW - FRAME) // 2
    padded = np.pad(samples, (margin, n_frames * FRAME - len(samples) + margin))
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::FRAME]
    spectra = np.abs(np.fft.rfft(windows * np.hanning(WINDOW).astype(np.float32))) ** 2 / (WINDOW / 4) ** 2
    bands = spectra.astype(np.float32) @ weights.T
    power = np.concatenate([bands, bands.sum(axis=1, keepdims=True)], axis=1)
    return (10 * np.log10(power + 1e-12)).astype(np.float32)


class Column(IntEnum):
    """Where in a row of features what stands, behind the levels of the bands."""

    LEVEL = N_BANDS
    WINDOW_TO_MAIN = N_BANDS + 1
    WINDOW_TO_FIRST = N_BANDS + 2
    WINDOW_TO_RIVAL = N_BANDS + 3
    TURN_TO_MAIN = N_BANDS + 4
    TURN_TO_FIRST = N_BANDS + 5
    TURN_TO_RIVAL = N_BANDS + 6
    BELOW_MOST_ALIKE = N_BANDS + 7
    ANY_RIVAL = N_BANDS + 8
    HEARD = N_BANDS + 9
    ENROLLED = N_BANDS + 10


N_FEATURES: Final = N_BANDS + len(Column)


def observe(turn: SpeakerTurn, known: Known, weights: Matrix) -> Observation:
    """Return what tells the main speaker from others in a turn, which must not be empty, and its embedding finite."""
    frames = [turn.before[len(turn.before) % FRAME :], turn.samples]
    before = len(frames[0]) // FRAME
    n_frames = -(-len(turn.samples) // FRAME)
    padded = np.pad(turn.samples, (0, n_frames * FRAME - len(turn.samples)))
    if len(padded) > len(turn.samples) and len(turn.after):
        missing = min(len(padded) - len(turn.samples), len(turn.after))
        padded[len(turn.samples) : len(turn.samples) + missing] = turn.after[:missing]
    after = turn.after[n_frames * FRAME - len(turn.samples) :]
    sound = np.concatenate([frames[0], padded, after[: len(after) // FRAME * FRAME]])
    levels = np.clip((band_levels(sound, weights) - known.level_db) / (RANGE_DB / 2), -2, 2)
    voices = np.pad(_voices(turn, known, n_frames), ((before, len(levels) - before - n_frames), (0, 0)), mode="edge")
    return Observation(np.concatenate([levels, voices], axis=1).astype(np.float32), before, n_frames)


def _voices(turn: SpeakerTurn, known: Known, n_frames: int) -> Matrix:
    """Return, for each frame, similarities of its window and of the whole turn to what is known: Column, past LEVEL."""
    windows = _filled(turn)
    middles = np.arange(n_frames) * FRAME + FRAME // 2
    place = np.minimum(middles * len(windows) // len(turn.samples), len(windows) - 1)
    whole = _similarities(turn.embedding[None], known)
    to_first = float(whole[0, 1])
    same = [*whole[0], min(0.0, to_first - known.most_alike), len(known.rivals) > 0, known.heard, known.enrolled]
    rows = np.broadcast_to(np.array(same, np.float32), (n_frames, len(same)))
    return np.concatenate([_similarities(windows, known)[place], rows], axis=1)


def _similarities(embeddings: Matrix, known: Known) -> Matrix:
    """Return those of embeddings (n, dim) to the main speaker, as known by now and at first, and to a rival (n, 3)."""
    voices = embeddings @ np.stack([known.main, known.first], axis=1)
    return np.concatenate([voices, _closest(embeddings, known.rivals)[:, None]], axis=1).astype(np.float32)


def _filled(turn: SpeakerTurn) -> Matrix:
    """Return an embedding for each window of a turn, that of the nearest one where it gave none."""
    good = np.flatnonzero(np.isfinite(turn.embeddings).all(axis=1)) if len(turn.embeddings) else np.zeros(0, int)
    if not len(good):
        return turn.embedding[None]
    nearest = good[np.argmin(np.abs(np.arange(len(turn.embeddings))[:, None] - good[None, :]), axis=1)]
    return np.asarray(turn.embeddings[nearest], np.float32)


def _closest(embeddings: Matrix, voices: Matrix) -> Vector:
    """Return the similarity of each embedding to the nearest of some voices, 0 where there are none."""
    if not len(voices):
        return np.zeros(len(embeddings), np.float32)
    return np.asarray((embeddings @ voices.T).max(axis=1), np.float32)


DILATIONS: Final = (1, 4, 12)
TAPS: Final = 5
"""Frames that each layer looks at, and how far apart they are."""

REACH: Final = sum(DILATIONS) * (TAPS // 2)
"""Frames that the network looks at to either side of one: 34, 0.68 s."""

CERTAIN: Final = 30.0
"""Log-odds beyond which nothing is more certain, so that their exponential has a number."""


class Evidence:
    """A Judge: three layers of dilated convolutions over an observation, and a logistic output; 4 ms for 10 s."""

    def __init__(self, weights: Mapping[str, Matrix]) -> None:
        """Take the weights: mean and scale (N_FEATURES,), w0..w3 (n_out, n_in, TAPS or 1), b0..b3 (n_out,).

        calibration (2, 2) is what log-odds are multiplied by, and what is added then: without and with an enrolment.
        """
        self._weights = weights

    def __call__(self, turn: SpeakerTurn, seen: Observation) -> Vector:
        """Return the probability that the main speaker speaks, for each frame of the turn (n_frames,)."""
        weights = self._weights
        frames = (seen.features - weights["mean"]) / weights["scale"]
        for layer, dilation in enumerate(DILATIONS):
            frames = np.maximum(0, _convolved(frames, weights[f"w{layer}"], dilation) + weights[f"b{layer}"])
        factor, bias = weights["calibration"][int(seen.features[seen.before, Column.ENROLLED] > 0)]
        odds = np.clip((frames @ weights["w3"][0, :, 0] + weights["b3"][0]) * factor + bias, -CERTAIN, CERTAIN)
        probabilities = 1 / (1 + np.exp(-odds[seen.before : seen.before + seen.n_frames]))
        return np.asarray(probabilities, np.float32)


def _convolved(frames: Matrix, weight: Matrix, dilation: int) -> Matrix:
    """Return frames (n_frames, n_in) through a layer (n_out, n_in, TAPS): (n_frames, n_out); outside is zero."""
    reach = dilation * (TAPS // 2)
    padded = np.pad(frames, ((reach, reach), (0, 0)))
    taps = [padded[tap * dilation : tap * dilation + len(frames)] @ weight[:, :, tap].T for tap in range(TAPS)]
    return np.asarray(sum(taps), np.float32)


def load(path: Path) -> Evidence:
    """Read weights that `benchmarks/evidence.py fit` wrote.

    Raises:
        ModelError: It is not such a file, or was made for other features.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            weights = {name: np.asarray(arrays[name], np.float32) for name in arrays.files}
        fits = _fit(weights)
    except Exception:  # of a broken header numpy's reader, which is Python's own parser, raises whatever comes
        fits = False
    if not fits:
        raise ModelError(
            f"{path} holds no evidence model for these {N_FEATURES} features; make one with benchmarks/evidence.py fit"
        )
    return Evidence(weights)


def _fit(weights: Mapping[str, Matrix]) -> bool:
    """Tell whether weights are numbers and of shapes that go together; a KeyError tells the same."""
    inner = [len(weights[f"b{layer}"]) for layer in range(len(DILATIONS))]
    sizes, taps = [N_FEATURES, *inner, 1], [TAPS] * len(inner) + [1]
    shapes: dict[str, tuple[int, ...]] = {"mean": (N_FEATURES,), "scale": (N_FEATURES,), "calibration": (2, 2)}
    for layer, n_taps in enumerate(taps):
        shapes |= {f"w{layer}": (sizes[layer + 1], sizes[layer], n_taps), f"b{layer}": (sizes[layer + 1],)}
    return all(weights[name].shape == shape and np.isfinite(weights[name]).all() for name, shape in shapes.items())
