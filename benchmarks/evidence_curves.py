"""Probabilities of frames, beside the truth -> calibration, and false accepts against false rejects, with intervals.

Only frames in which somebody speaks count, and for the calibration bystanders alone as much as noting.CAUTION says. The
intervals at 95 % are by bootstrap over scenes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from leakage_report import STYLE, check_plot
from noting import BYSTANDER, NOBODY, Note, balanced
from rich.table import Table

from cascade.scoring.bootstrap import drawn_weights, percentiles95
from cascade.scoring.tally import Interval

__all__ = ["Curve", "Rate", "check_plot", "curve_of", "draw", "table_of"]

THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BINS: Final = 10
"""Equal parts of [0, 1] in each of which probabilities are compared with what is true (arXiv 1706.04599)."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of frames of all scenes, and its interval, None with fewer than two scenes."""

    share: float
    interval95: Interval | None

    @classmethod
    def of(cls, hits: Sequence[int], frames: Sequence[int]) -> Rate | None:
        """Return the share from counts by scene, None where there are no such frames."""
        if not sum(frames):
            return None
        return cls(sum(hits) / sum(frames), _interval(np.array(hits, np.float64), np.array(frames, np.float64)))

    def __str__(self) -> str:
        low_high = "" if self.interval95 is None else " [{:.1f}, {:.1f}]".format(*(100 * x for x in self.interval95))
        return f"{100 * self.share:.2f}{low_high}"


def _interval(hits: npt.NDArray[np.float64], frames: npt.NDArray[np.float64]) -> Interval | None:
    if len(frames) < 2:
        return None
    with np.errstate(invalid="ignore"):  # a draw may hold only scenes without such frames
        return percentiles95(
            np.concatenate([weights @ hits / (weights @ frames) for weights in drawn_weights(len(hits))])
        )


@dataclass(frozen=True, slots=True)
class Bin:
    """Frames of like probability: what they count for, their mean probability, and how much is the main speaker's."""

    weight: float
    probability: float
    share: float


@dataclass(frozen=True, slots=True)
class Curve:
    """How good probabilities are: false accept and false reject at each of THRESHOLDS, and the calibration.

    error is the expected calibration error: how far a probability is from the truth, on the mean.
    """

    false_accept: tuple[Rate | None, ...]
    false_reject: tuple[Rate | None, ...]
    bins: tuple[Bin, ...]
    error: float


def curve_of(notes: Sequence[Note], probabilities: Sequence[npt.NDArray[Any]]) -> Curve:
    """Compare probabilities, (n_frames,) for each note, with the truth; there must be speech."""
    who = np.concatenate([note.truth.who for note in notes])
    scenes = np.concatenate([np.full(len(note.truth.who), note.scene) for note in notes])
    given = np.concatenate(list(probabilities))
    spoken = who != NOBODY
    weight = balanced(who)[spoken].astype(np.float64)
    alone, given, scenes = who[spoken] == BYSTANDER, given[spoken], scenes[spoken]
    parts = [scenes == name for name in dict.fromkeys(scenes.tolist())]
    bins = tuple(_bins(given, ~alone, weight))
    return Curve(
        tuple(_rate(parts, alone, given >= threshold) for threshold in THRESHOLDS),
        tuple(_rate(parts, ~alone, given < threshold) for threshold in THRESHOLDS),
        bins,
        sum(part.weight * abs(part.probability - part.share) for part in bins) / float(weight.sum()),
    )


def _rate(parts: Sequence[npt.NDArray[np.bool_]], of: npt.NDArray[np.bool_], hit: npt.NDArray[np.bool_]) -> Rate | None:
    counts = [(int((part & of & hit).sum()), int((part & of).sum())) for part in parts]
    return Rate.of([hits for hits, _ in counts], [frames for _, frames in counts])


def _bins(given: npt.NDArray[Any], is_main: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> Iterator[Bin]:
    place = np.minimum((given * BINS).astype(int), BINS - 1)
    for index in np.unique(place):
        one = place == index
        total = float(weight[one].sum())
        yield Bin(total, float(weight[one] @ given[one]) / total, float(weight[one] @ is_main[one]) / total)


def table_of(curves: Mapping[str, Curve], title: str) -> Table:
    """Lay out curves by their names: calibration, and false accept / false reject at some thresholds."""
    table = Table(
        title=title, caption="false accept / false reject in % of frames [95 % interval by bootstrap over scenes]"
    )
    for head in ("", "calibration error", *(f"at {THRESHOLDS[index]:g}" for index in SHOWN)):
        table.add_column(head, justify="left" if not head else "right")
    for name, curve in curves.items():
        pairs = [f"{_text(curve.false_accept[index])}\n{_text(curve.false_reject[index])}" for index in SHOWN]
        table.add_row(name, f"{100 * curve.error:.2f} %", *pairs)
    return table


SHOWN: Final = (2, 4, 6, 8)
"""Those of THRESHOLDS that have a column."""


def _text(rate: Rate | None) -> str:
    return "-" if rate is None else str(rate)


def draw(curves: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Draw curves, a row for each way to know the main speaker: calibration, and false accept against false reject."""
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=(9.5, 4.2 * len(curves)), layout="constrained")
        FigureCanvasAgg(figure)
        rows = figure.subplots(len(curves), 2, squeeze=False)
        for (known, own), (left, right) in zip(curves.items(), rows, strict=True):
            for name, curve in own.items():
                left.plot(
                    [b.probability for b in curve.bins], [b.share for b in curve.bins], marker="o", ms=3, label=name
                )
                right.plot(_percents(curve.false_accept), _percents(curve.false_reject), marker="o", ms=3)
            left.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
            left.set(title=f"{known}: calibration", xlabel="probability", ylabel="share that is the main speaker's")
            right.set(title=f"{known}: thresholds", xlabel="false accept, %", ylabel="false reject, %")
            left.legend()
        figure.savefig(path, metadata={".svg": {"Date": None, "Creator": None}}.get(path.suffix.lower()))


def _percents(rates: Sequence[Rate | None]) -> list[float]:
    return [np.nan if rate is None else 100 * rate.share for rate in rates]
