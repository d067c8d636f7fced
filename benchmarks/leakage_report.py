"""Results of benchmarks/leakage.py -> means with intervals, tables, JSON, and a picture of the privacy/utility curve.

Each recording counts the same in a mean. The intervals at 95 % are by bootstrap over recordings; differences are taken
recording by recording, so that what makes a recording hard for both does not widen their interval.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from hearing import Gated, Result, Setting, Words
from rich.table import Table

from cascade.errors import MissingExtraError
from cascade.scoring.bootstrap import mean95
from cascade.scoring.tally import Interval, Tally
from cascade.types import SAMPLE_RATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Measure: TypeAlias = Callable[[Result], float | None]
"""A number for one recording; None where there is none."""

DASH: Final = "-"


# --- what is measured -------------------------------------------------------------------------------------------------


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _of_words(part: Callable[[Result], Words | None], share: Callable[[Words], float | None]) -> Measure:
    def measure(result: Result) -> float | None:
        words = part(result)
        return None if words is None else _percent(share(words))

    return measure


def _of_gated(value: Callable[[Gated], float | None]) -> Measure:
    return lambda result: None if result.gated is None else value(result.gated)


def _duration_s(tally: Tally) -> float | None:
    return tally.correct / SAMPLE_RATE if tally.total else None


PARTS: Final[dict[str, Callable[[Result], Words | None]]] = {
    "cascade": lambda result: None if result.gated is None else result.gated.words,
    "mixture": lambda result: result.mixture,
    "clean": lambda result: result.clean,
}
"""Whose text it is: the cascade's, or the same speech recognition's on the mixture or on the main speaker alone."""

WORDS: Final[dict[str, Callable[[Words], float | None]]] = {
    "leakage": lambda words: words.leaked.accuracy,
    "retention": lambda words: words.kept.accuracy,
    "word error rate": lambda words: None if words.errors is None else words.errors.share,
}
"""What is measured of a text, as shares."""

OTHERS: Final[dict[str, tuple[str, Measure]]] = {
    "false accept": ("%", _of_gated(lambda gated: _percent(gated.accepted.accuracy))),
    "false accept time": ("s", _of_gated(lambda gated: _duration_s(gated.accepted))),
    "false withhold": ("%", _of_gated(lambda gated: _percent(gated.withheld.accuracy))),
    "false withhold time": ("s", _of_gated(lambda gated: _duration_s(gated.withheld))),
    "diarization error rate": (
        "%",
        lambda result: None if result.diarization is None else _percent(result.diarization.share),
    ),
    "delay, mean": ("s", _of_gated(lambda gated: None if gated.delay is None else gated.delay.mean_s)),
    "delay, 95th percentile": ("s", _of_gated(lambda gated: None if gated.delay is None else gated.delay.p95_s)),
}
"""What is measured of the cascade alone, with its unit."""


def word_measure(name: str, part: str = "cascade") -> Measure:
    """Return a measure of WORDS, in percent, of one of PARTS."""
    return _of_words(PARTS[part], WORDS[name])


def difference(name: str, part: str) -> Measure:
    """Return by how many points the cascade's measure of WORDS is above that of another of PARTS."""
    own, other = word_measure(name), word_measure(name, part)

    def measure(result: Result) -> float | None:
        value, base = own(result), other(result)
        return None if value is None or base is None else value - base

    return measure


def all_measures() -> dict[str, tuple[str, Measure]]:
    """Return every measure by its name, with its unit."""
    measures: dict[str, tuple[str, Measure]] = {}
    for name in WORDS:
        for part in PARTS:
            measures[f"{name}, {part}"] = ("%", word_measure(name, part))
        for part in ("mixture", "clean"):
            measures[f"{name}, cascade - {part}"] = ("points", difference(name, part))
    return measures | OTHERS


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over recordings, the number of those that have a value, and its interval, None with fewer than two."""

    mean: float
    recordings: int
    interval95: Interval | None

    @classmethod
    def of(cls, measure: Measure, results: Iterable[Result]) -> Mean | None:
        """Return the mean of a measure over results, None where none has a value."""
        values = [value for value in map(measure, results) if value is not None]
        return cls(float(np.mean(values)), len(values), mean95(values)) if values else None

    def __str__(self) -> str:
        low_high = "" if self.interval95 is None else "  [{:.2f}, {:.2f}]".format(*self.interval95)
        return f"{self.mean:.2f}{low_high}"


def in_setting(results: Iterable[Result], setting: Setting) -> list[Result]:
    """Return the results of one setting."""
    return [result for result in results if result.setting == setting]


# --- tables -----------------------------------------------------------------------------------------------------------


def scene_table(results: Sequence[Result], title: str) -> Table:
    """Lay out the results of one setting, a row a recording."""
    columns: dict[str, Measure] = {name: word_measure(name) for name in WORDS} | {
        name: measure for name, (_, measure) in OTHERS.items()
    }
    heads = ("leak %", "ret %", "WER %", "FA %", "FA s", "FW %", "FW s", "DER %", "delay s", "p95 s")
    table = Table(title=title, caption="FA, FW: false accept, false withhold")
    table.add_column("recording")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("leaked words")
    for result in results:
        leaked = "" if result.gated is None else " ".join(result.gated.leaked_words)
        table.add_row(result.scene, *(_cell(measure(result)) for measure in columns.values()), leaked)
    return table


def summary_table(results: Sequence[Result], title: str) -> Table:
    """Lay out the means of one setting: the cascade's words beside ASR alone, and what only the cascade has."""
    table = Table(title=title, caption="mean over recordings [95 % interval by bootstrap over them]")
    table.add_column("")
    for head in ("cascade", "ungated mixture", "clean main", "cascade - mixture", "cascade - clean"):
        table.add_column(head, justify="right")
    for name in WORDS:
        measures = [word_measure(name, part) for part in PARTS]
        measures += [difference(name, part) for part in ("mixture", "clean")]
        table.add_row(f"{name} %", *(_mean(measure, results) for measure in measures))
    for name, (unit, measure) in OTHERS.items():
        table.add_row(f"{name} {unit}", _mean(measure, results))
    return table


def curve_table(results: Sequence[Result], settings: Sequence[Setting]) -> Table:
    """Lay out the privacy/utility curve, a row a setting."""
    table = Table(title="Privacy and utility by threshold, in %")
    table.add_column("main speaker")
    table.add_column("threshold", justify="right")
    names = ("leakage", "retention", "false accept", "false withhold")
    for name in names:
        table.add_column(name, justify="right")
    for setting in settings:
        own = in_setting(results, setting)
        threshold = DASH if setting.threshold is None else f"{setting.threshold:g}"
        table.add_row(called(setting), threshold, *(_mean(_curve_measure(name), own) for name in names))
    return table


def called(setting: Setting) -> str:
    """Return how the main speaker is known."""
    return "enrolled" if setting.enrolled else "dominant"


def _curve_measure(name: str) -> Measure:
    return word_measure(name) if name in WORDS else OTHERS[name][1]


def _cell(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def _mean(measure: Measure, results: Sequence[Result]) -> str:
    return str(Mean.of(measure, results) or DASH)


# --- files ------------------------------------------------------------------------------------------------------------


def to_json(results: Sequence[Result], config: str) -> str:
    """Write everything down: for each setting the means, and each recording's numbers."""
    measures = all_measures()
    settings = list(dict.fromkeys(result.setting for result in results))
    document = {
        "config": config,
        "units": {name: unit for name, (unit, _) in measures.items()},
        "settings": [
            {
                "enrolled": setting.enrolled,
                "threshold": setting.threshold,
                "means": {
                    name: _mean_dict(Mean.of(measure, in_setting(results, setting)))
                    for name, (_, measure) in measures.items()
                },
                "recordings": {
                    result.scene: {name: measure(result) for name, (_, measure) in measures.items()}
                    for result in in_setting(results, setting)
                },
            }
            for setting in settings
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _mean_dict(mean: Mean | None) -> dict[str, Any] | None:
    return None if mean is None else {"mean": mean.mean, "interval95": mean.interval95, "recordings": mean.recordings}


STYLE: Final[dict[Any, Any]] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "cascade",
    "axes.grid": True,
    "grid.alpha": 0.3,
}
"""Text stays text in an SVG, and the same results give the same bytes."""

COLOURS: Final = {True: "#1f6f54", False: "#b3541e"}
"""Of the curves with enrolment, and without."""

OFFSETS: Final = {True: (4, 4), False: (4, -9)}
"""Where a threshold is written, in points from its own: apart, since the two curves often lie on each other."""

PLOT_SUFFIXES: Final = (".svg", ".png", ".pdf")


def check_plot(path: Path) -> None:
    """Tell before anything is heard that a picture cannot be drawn.

    Raises:
        ValueError: The file's name ends in no kind of picture that is known.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in PLOT_SUFFIXES:
        raise ValueError(f"--plot expects a file that ends in {', '.join(PLOT_SUFFIXES)}, got {path.name}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None


def draw(results: Sequence[Result], settings: Sequence[Setting], path: Path) -> None:
    """Draw the curves of settings: words on the left, time on the right."""
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=(9.5, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        words, time = figure.subplots(1, 2)
        _draw_panel(words, results, settings, ("leakage", "retention"))
        _draw_mixture(words, results)
        _draw_panel(time, results, settings, ("false accept", "false withhold"))
        words.legend()
        metadata = {".svg": {"Date": None, "Creator": None}, ".pdf": {"CreationDate": None}}
        figure.savefig(path, metadata=metadata.get(path.suffix.lower()))


def _draw_panel(axes: Axes, results: Sequence[Result], settings: Sequence[Setting], names: tuple[str, str]) -> None:
    for enrolled in (True, False):
        rows = []
        for setting in settings:
            means = [Mean.of(_curve_measure(name), in_setting(results, setting)) for name in names]
            if setting.enrolled is enrolled and means[0] is not None and means[1] is not None:
                rows.append((means[0], means[1], setting.threshold))
        if rows:
            _draw_curve(axes, rows, enrolled)
    axes.set_xlabel(f"{names[0]}, %")
    axes.set_ylabel(f"{names[1]}, %")


def _draw_curve(axes: Axes, rows: Sequence[tuple[Mean, Mean, float | None]], enrolled: bool) -> None:
    colour, offset, label = COLOURS[enrolled], OFFSETS[enrolled], called(Setting(enrolled))
    x, y = [row[0] for row in rows], [row[1] for row in rows]
    axes.errorbar(
        [mean.mean for mean in x], [mean.mean for mean in y], xerr=_reach(x), yerr=_reach(y),
        color=colour, marker="o", markersize=3, linewidth=1.2, elinewidth=0.5, alpha=0.9, label=label,
    )  # fmt: skip
    for mean_x, mean_y, threshold in rows:
        if threshold is not None:
            place = (mean_x.mean, mean_y.mean)
            axes.annotate(f"{threshold:g}", place, offset, textcoords="offset points", color=colour, fontsize=7)


def _reach(means: Sequence[Mean]) -> Any:
    """Return how far each interval reaches below and above its mean, (2, n_means)."""
    ends = np.array([mean.interval95 or (mean.mean, mean.mean) for mean in means])
    middle = np.array([mean.mean for mean in means])
    return np.abs(np.stack([middle - ends[:, 0], ends[:, 1] - middle]))


def _draw_mixture(axes: Axes, results: Sequence[Result]) -> None:
    """Mark what the speech recognition does without a gate, and on the main speaker alone."""
    recordings = list({result.scene: result for result in results}.values())
    for part, marker, label in (("mixture", "X", "mixture, no gate"), ("clean", "*", "main speaker alone")):
        x, y = (Mean.of(word_measure(name, part), recordings) for name in ("leakage", "retention"))
        if x is not None and y is not None:
            axes.plot([x.mean], [y.mean], marker, color="#555555", markersize=7, label=label)
