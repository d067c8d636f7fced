"""Notes of what a judge was shown -> weights of cascade/evidence.py's network, and of simpler ones to compare with.

The network is trained with torch and used with numpy alone. What is drawn, is drawn from the seed: the same notes give
the same weights on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from noting import Note, balanced

from cascade.evidence import DILATIONS, N_FEATURES, TAPS, Column, Matrix

WEIGHTS: Final = np.array([0.3, 1.0, 1.0, 2.0], np.float32)
"""What a frame counts for in training, by who speaks.

A bystander who is let through costs more. A pause, which goes with what is said around it, costs little, but not
nothing: else the network would cut turns in their pauses.
"""


LEVELS: Final = Column.WINDOW_TO_MAIN
"""The first features are levels: of bands, and of all together."""

SIMILARITIES: Final = 3
"""Then come those of the window, and as many of the turn: to the main speaker, as known by now and at first, and to a
rival."""

# Training. The noise stands for voices, rooms and profiles that the scenes do not have.
LONGEST: Final = 300  # frames of a note that are looked at in one step, 6 s
BATCH: Final = 32  # notes
RATE: Final = 3e-3  # of learning, at its highest (one cycle, arXiv 1708.07120)
DECAY: Final = 1e-3
LEVEL_NOISE: Final = 0.1  # of all levels of a note together, in units of the feature: 2 dB
SIMILARITY_NOISE: Final = 0.05  # of each kind of similarity in a note: what another voice or microphone makes of it

Fitted: TypeAlias = dict[str, Matrix]
"""What an npz file holds: mean and scale, w0 b0 ..."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Notes as tables: features (n_frames, N_FEATURES), whether the main speaker speaks, and what the frame counts for.

    Frames around a turn count for nothing: nobody asks about them.
    """

    features: Matrix
    is_main: npt.NDArray[np.float32]
    weight: npt.NDArray[np.float32]

    @classmethod
    def of(cls, note: Note, weights: npt.NDArray[np.float32]) -> Frames:
        """Lay out a note, with weights by who speaks."""
        seen, around = note.seen, (note.seen.before, len(note.seen.features) - note.seen.before - note.seen.n_frames)
        return cls(seen.features, np.pad(note.truth.is_main, around), np.pad(weights[note.truth.who], around))


@dataclass(frozen=True, slots=True)
class Training:
    """How to train; hidden is the width of each layer, dropout the share of it that is left out in a step."""

    hidden: int = 32
    epochs: int = 12
    dropout: float = 0.3
    seed: int = 0


def train(
    notes: Sequence[Note], valid: Sequence[Note], how: Training, say: Callable[[str], None]
) -> tuple[Fitted, float]:
    """Fit the network; return its last weights, and their loss on the validation notes, in nats.

    The last, not those that did best there: by then the rate of learning has gone down to nothing, and the few voices
    of a validation set would choose by chance among early ones.
    """
    import torch

    torch.manual_seed(how.seed)
    draws = np.random.default_rng(how.seed)
    everything = np.concatenate([note.seen.features for note in notes])
    mean, scale = everything.mean(axis=0), everything.std(axis=0) + np.float32(1e-3)
    own, others = ([Frames.of(note, WEIGHTS) for note in some] for some in (notes, valid))
    network = _network(how)
    rule = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    steps = how.epochs * -(-len(own) // BATCH)
    pace = torch.optim.lr_scheduler.OneCycleLR(rule, RATE, total_steps=steps)
    missed = np.inf
    for epoch in range(how.epochs):
        network.train()
        for items in _batches(own, draws):
            features, is_main, weight = _padded(items)
            features += _noise(len(items), draws)
            loss = _loss(network, (features - mean) / scale, is_main, weight)
            rule.zero_grad()
            (loss / max(1.0, float(weight.sum()))).backward()
            rule.step()
            pace.step()
        network.eval()
        missed = _mean_loss(network, others, mean, scale)
        say(f"epoch {epoch + 1} of {how.epochs}: validation loss {missed:.4f}")
    return {"mean": mean, "scale": scale, "calibration": UNCALIBRATED, **_weights_of(network)}, missed


def _network(how: Training) -> Any:
    """Return cascade/evidence.py's network, with dropout between its layers."""
    import torch

    layers: list[Any] = []
    sizes = [N_FEATURES, *[how.hidden] * len(DILATIONS)]
    for dilation, (inside, outside) in zip(DILATIONS, pairwise(sizes), strict=True):
        convolution = torch.nn.Conv1d(inside, outside, TAPS, dilation=dilation, padding=dilation * (TAPS // 2))
        layers += [convolution, torch.nn.ReLU(), torch.nn.Dropout(how.dropout)]
    return torch.nn.Sequential(*layers, torch.nn.Conv1d(how.hidden, 1, 1))


def _weights_of(network: Any) -> Fitted:
    convolutions = [layer for layer in network if hasattr(layer, "kernel_size")]
    pairs = {f"{name}{place}": value for place, layer in enumerate(convolutions) for name, value in
             (("w", layer.weight), ("b", layer.bias))}  # fmt: skip
    return {name: value.detach().numpy().copy() for name, value in pairs.items()}


def _batches(frames: Sequence[Frames], draws: np.random.Generator) -> Iterator[list[Frames]]:
    """Yield all notes once, a stretch of each, those of like length together, so that little is padded."""
    lengths = np.minimum([len(one.features) for one in frames], LONGEST) + draws.uniform(0, 60, len(frames))
    batches = np.array_split(np.argsort(lengths), -(-len(frames) // BATCH))
    for place in draws.permutation(len(batches)):
        yield [_stretch(frames[index], draws) for index in batches[place]]


def _stretch(frames: Frames, draws: np.random.Generator) -> Frames:
    start = int(draws.integers(max(1, len(frames.features) - LONGEST + 1)))
    part = slice(start, start + LONGEST)
    return Frames(frames.features[part], frames.is_main[part], frames.weight[part])


def _padded(items: Sequence[Frames]) -> tuple[Matrix, Matrix, Matrix]:
    """Return features (n_items, n_frames, N_FEATURES), labels and weights (n_items, n_frames), zero at the ends."""
    length = max(len(item.features) for item in items)
    features = np.zeros((len(items), length, N_FEATURES), np.float32)
    is_main, weight = np.zeros((2, len(items), length), np.float32)
    for place, item in enumerate(items):
        features[place, : len(item.features)] = item.features
        is_main[place, : len(item.is_main)], weight[place, : len(item.weight)] = item.is_main, item.weight
    return features, is_main, weight


def _noise(n_items: int, draws: np.random.Generator) -> Matrix:
    """Return what is added to all frames of each note, (n_items, 1, N_FEATURES)."""
    noise = np.zeros((n_items, 1, N_FEATURES), np.float32)
    noise[..., :LEVELS] = draws.normal(0, LEVEL_NOISE, (n_items, 1, 1))
    shared, own = draws.normal(0, SIMILARITY_NOISE, (2, n_items, 1, SIMILARITIES))
    noise[..., LEVELS : LEVELS + SIMILARITIES] = shared
    noise[..., LEVELS + SIMILARITIES : LEVELS + 2 * SIMILARITIES] = (shared + own) / 2**0.5  # a turn's is a mean
    return noise


def _loss(network: Any, features: Matrix, is_main: Matrix, weight: Matrix) -> Any:
    import torch

    odds = network(torch.from_numpy(features.transpose(0, 2, 1).copy()))[:, 0]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(odds, torch.from_numpy(is_main), reduction="none")
    return (loss * torch.from_numpy(weight)).sum()


def _mean_loss(network: Any, frames: Sequence[Frames], mean: Matrix, scale: Matrix) -> float:
    import torch

    total = 0.0
    with torch.no_grad():
        for one in frames:
            features, is_main, weight = _padded([one])
            total += float(_loss(network, (features - mean) / scale, is_main, weight))
    return total / float(sum(one.weight.sum() for one in frames))


# --- simpler models, and calibration ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Logistic:
    """A logistic regression: what each column counts for in natural log-odds, and the bias."""

    coefficients: tuple[float, ...]
    bias: float

    def odds(self, table: Matrix) -> npt.NDArray[np.float64]:
        """Return the log-odds of each row of a table (n_rows, n_columns)."""
        return np.asarray(table @ np.array(self.coefficients) + self.bias, np.float64)


RIDGE: Final = 1e-3
"""Keeps coefficients finite where a column tells all, or nothing; too little to be seen in them otherwise."""


def fit_logistic(table: Matrix, is_main: Matrix, weight: Matrix) -> Logistic:
    """Fit a logistic regression of labels (n_rows,) on a table (n_rows, n_columns) by Newton's method."""
    design = np.column_stack([table, np.ones(len(table))]).astype(np.float64)
    solution = np.zeros(design.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-np.clip(design @ solution, -30, 30)))
        slope = design.T @ (weight * (is_main - chance)) - RIDGE * solution
        curvature = (design * (weight * chance * (1 - chance))[:, None]).T @ design + RIDGE * np.eye(len(solution))
        step = np.linalg.solve(curvature, slope)
        solution += step
        if np.abs(step).max() < 1e-8:
            break
    return Logistic(tuple(float(value) for value in solution[:-1]), float(solution[-1]))


KINDS: Final[Mapping[str, slice]] = {
    "level and spectrum": slice(0, LEVELS),
    "voice": slice(LEVELS, N_FEATURES),
    "similarity to the main speaker": slice(LEVELS, LEVELS + 1),
    "all of them": slice(0, N_FEATURES),
}
"""What a logistic regression, frame by frame, is given, to see what each kind of evidence brings."""


def in_turns(notes: Sequence[Note]) -> tuple[Matrix, Matrix, Matrix]:
    """Return features (n_frames, N_FEATURES), labels and balanced weights (n_frames,) of all frames of turns."""
    features = [note.seen.features[note.seen.before : note.seen.before + note.seen.n_frames] for note in notes]
    labels = np.concatenate([note.truth.is_main for note in notes])
    return np.concatenate(features), labels, balanced(np.concatenate([note.truth.who for note in notes]))


def fit_simple(notes: Sequence[Note]) -> dict[str, Logistic]:
    """Fit a logistic regression on each of KINDS."""
    features, labels, weight = in_turns(notes)
    return {kind: fit_logistic(features[:, columns], labels, weight) for kind, columns in KINDS.items()}


UNCALIBRATED: Final = np.array([[1, 0], [1, 0]], np.float32)


def calibrate(odds: npt.NDArray[np.float64], notes: Sequence[Note]) -> Matrix:
    """Return the calibration (2, 2) by which log-odds on notes (n_frames,) say how often it is true.

    It is a factor (one over the temperature, arXiv 1706.04599) and a bias, without and with an enrolment: what is known
    of the main speaker differs, and so does how far it is to be believed. It stays as it is where there are no notes.
    """
    ends = np.cumsum([note.seen.n_frames for note in notes])[:-1]
    pairs = list(zip(notes, np.split(odds, ends), strict=True))
    calibration = UNCALIBRATED.copy()
    for enrolled in (False, True):
        own = [pair for pair in pairs if pair[0].enrolled is enrolled]
        if own:
            _, labels, weight = in_turns([note for note, _ in own])
            given = np.concatenate([one for _, one in own])[:, None].astype(np.float32)
            change = fit_logistic(given, labels, weight)
            calibration[int(enrolled)] = change.coefficients[0], change.bias
    return calibration
