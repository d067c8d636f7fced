"""The paper's figure 4 with a run in it: bystander accuracy, selective against general mode, a point for each system.

To the right, the bystander is understood when everyone may be; at the top, the bystander's words are kept when only the
main speaker may be attended to. On the diagonal both are equal. The same scores give the same bytes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cascade.errors import MissingExtraError
from cascade.scoring.efficacy import Speaker
from cascade.shbench.comparison import asked_otherwise, figures_of, full_name, questions_of, setting_of
from cascade.shbench.paper import Paper, Setting
from cascade.types import Mode

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Json: TypeAlias = Mapping[str, Any]
Box: TypeAlias = NDArray[np.float64]
"""A rectangle in pixels: left, bottom, right, top; (4,)."""

STYLE: Final[Mapping[str, Any]] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 9,
    "svg.fonttype": "none",  # text stays text, to be searched and copied
    "svg.hashsalt": "cascade",  # else each figure's ids are random
    "text.usetex": False,
}

SIZE_INCHES: Final = (7.0, 6.6)
PNG_DPI: Final = 150

PAPER_COLOUR: Final = "#4c6a92"
RUN_COLOUR: Final = "#c0392b"

PLACES: Final = tuple(
    (x * distance, y * distance)
    for distance in (8.0, 14.0, 22.0, 32.0, 44.0)
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8), (-0.8, -0.8))
)
"""Where a label may stand, in points from its system's point; the first place with room is taken."""

LONGEST_LABEL: Final = 40
"""Characters."""

NEAR: Final = 15.0
"""A label that is farther from its point than this, in points, is tied to it by a line."""

LINE_BITS: Final = 16
"""A line to a label is taken as this many bits when looking for what it would cross."""


@dataclass(frozen=True, slots=True)
class Point:
    """A system: bystander accuracy in percent, and for a run its intervals by recording.

    general is along the first axis, selective along the second.
    """

    label: str
    general: float
    selective: float
    general95: tuple[float, float] | None = None
    selective95: tuple[float, float] | None = None
    own: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure, in two formats."""

    svg: bytes
    png: bytes


def figure4(scores: Json, paper: Paper, reader: str = "strict") -> Picture:
    """Draw the paper's systems and a run's (the shape of Scores.as_dict), its replies read by `reader`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib.style
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None
    points = [*paper_points(paper), *run_points(scores, reader)]
    # The default style, so that a user's own matplotlibrc changes nothing.
    with matplotlib.style.context(["default", dict(STYLE)]), warnings.catch_warnings():
        # DejaVu lacks Chinese, say: the PNG then shows a box, the SVG still holds the text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure = _draw(points, _caption(scores, paper))
        return Picture(
            svg=_saved(figure, "svg", {"Date": None, "Creator": None}),
            png=_saved(figure, "png", {"Software": None}),
        )


def paper_points(paper: Paper) -> Iterator[Point]:
    """Yield the paper's systems, as its figure 4 has them."""
    for system in paper.systems:
        general, selective = system.standard.general.bystander.accuracy, system.standard.selective.bystander.accuracy
        if general is not None and selective is not None:
            yield Point(system.short, general, selective)


def run_points(scores: Json, reader: str) -> Iterator[Point]:
    """Yield a run's systems that have both accuracies.

    Those without an "I don't know" option have no place here: there, a low accuracy in selective mode is the private
    one.
    """
    for system in scores["systems"]:
        figures = figures_of(system, reader)
        general, selective = (figures.cell(mode, Speaker.BYSTANDER).accuracy for mode in (Mode.GENERAL, Mode.SELECTIVE))
        if setting_of(system) is not Setting.NO_IDK and general is not None and selective is not None:
            general95, selective95 = (_interval(system, reader, mode) for mode in (Mode.GENERAL, Mode.SELECTIVE))
            yield Point(_short(full_name(system)), general, selective, general95, selective95, own=True)


def _caption(scores: Json, paper: Paper) -> str:
    """Say whose points are whose, and where a run was asked other numbers of questions than the paper's systems."""
    others = sorted({questions_of(system) for system in asked_otherwise(scores, paper)})
    whose = "SH-Bench: red diamonds are this run, blue dots the paper's systems"
    printed = paper.questions.main + paper.questions.bystander
    asked = f"asked {', '.join(map(str, others))} questions in each mode, and {printed}"
    return f"{whose}\n{asked}: they cannot be compared as they stand" if others else whose


def _short(name: str) -> str:
    """Return a name that fits the figure, without characters that an SVG may not hold."""
    shown = "".join(filter(str.isprintable, name))
    return shown if len(shown) <= LONGEST_LABEL else f"{shown[:LONGEST_LABEL].rstrip()}…"


def _interval(system: Json, reader: str, mode: Mode) -> tuple[float, float] | None:
    """Return the interval by recording, in percent."""
    low, high = system["parsers"][reader][mode][Speaker.BYSTANDER].get("cluster95") or (None, None)
    return None if low is None or high is None else (100 * low, 100 * high)


def _draw(points: Sequence[Point], caption: str) -> Figure:
    """Draw all but the labels, whose places depend on where everything else is; then those."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_frame(axes, caption)
    for point in points:
        _draw_point(axes, point)
    # The run's labels come first, so that they get the better places.
    labels = [(_label(axes, point), point) for point in sorted(points, key=lambda point: not point.own)]
    figure.draw_without_rendering()  # lays out the axes; without it nothing has a place yet
    _place(axes, labels, canvas.get_renderer())  # type: ignore[no-untyped-call]
    return figure


def _draw_frame(axes: Axes, caption: str) -> None:
    axes.set(
        xlim=(-2, 102),  # room for what lies on the edge
        ylim=(-2, 102),
        xticks=range(0, 101, 20),
        yticks=range(0, 101, 20),
        aspect="equal",
        xlabel="Bystander accuracy in general mode (%): understood",
        ylabel="Bystander accuracy in selective mode (%): kept private",
        title=caption,
    )
    axes.title.set_fontsize(10)
    axes.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, linestyle="--", zorder=1)
    axes.grid(color="0.92", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_point(axes: Axes, point: Point) -> None:
    colour = RUN_COLOUR if point.own else PAPER_COLOUR
    if point.own:
        axes.errorbar(
            point.general,
            point.selective,
            xerr=_reach(point.general, point.general95),
            yerr=_reach(point.selective, point.selective95),
            color=colour,
            linewidth=1,
            capsize=2,
            alpha=0.7,
            zorder=2,
        )
    axes.plot(point.general, point.selective, "D" if point.own else "o", color=colour, markersize=6, zorder=3)


def _reach(centre: float, interval: tuple[float, float] | None) -> list[list[float]] | None:
    """Return how far an interval reaches below and above a value; a rounded end may be on the wrong side of it."""
    return None if interval is None else [[max(0.0, centre - interval[0])], [max(0.0, interval[1] - centre)]]


def _label(axes: Axes, point: Point) -> Annotation:
    label = axes.annotate(
        point.label,
        (point.general, point.selective),
        PLACES[0],
        textcoords="offset points",
        color=RUN_COLOUR if point.own else "0.2",
        fontsize=8,
        arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3},
        zorder=4,
    )
    label.set_parse_math(False)  # a dollar sign in a name is one
    return label


def _place(axes: Axes, labels: Sequence[tuple[Annotation, Point]], renderer: RendererBase) -> None:
    """Give each label the first place where it is on the axes and on top of nothing, else the least bad one."""
    taken = [box for _, point in labels for box in _boxes(axes, point)]
    taken += [_box(axes, (step, step + 1), (step, step + 1)) for step in range(100)]  # the diagonal
    texts: list[Box] = []
    for label, _ in labels:
        costs: list[float] = []
        for place in PLACES:
            text, line = _covered(label, place, renderer)
            outside = _area(text) - _shared(text, [np.asarray(axes.bbox.extents)])
            costs.append(_shared(text, taken) + outside + sum(_shared(bit, texts) for bit in line))
            if costs[-1] == 0:
                break
        text, line = _covered(label, PLACES[costs.index(min(costs))], renderer)
        texts.append(text)
        taken += [text, *line]
        if label.arrow_patch is not None:
            label.arrow_patch.set_visible(bool(line))


def _covered(label: Annotation, place: tuple[float, float], renderer: RendererBase) -> tuple[Box, list[Box]]:
    """Put a label at a place; return what its text covers, and bits of the line to its point if it has one."""
    text = _moved(label, place, renderer)
    if label.axes is None or max(map(abs, place)) <= NEAR:
        return text, []
    start = label.axes.transData.transform(label.xy)
    end = np.clip(start, text[:2], text[2:])  # where the text is nearest
    bits = [start + (end - start) * step / LINE_BITS for step in range(1, LINE_BITS)]
    return text, [np.concatenate([bit - 1, bit + 1]) for bit in bits]


def _boxes(axes: Axes, point: Point) -> Iterator[Box]:
    """Yield what a point and its intervals cover."""
    x, y = (point.general, point.general), (point.selective, point.selective)
    for horizontal, vertical in ((x, y), (point.general95 or x, y), (x, point.selective95 or y)):
        yield _box(axes, horizontal, vertical) + np.array((-4, -4, 4, 4))


def _box(axes: Axes, horizontal: tuple[float, float], vertical: tuple[float, float]) -> Box:
    """Return in pixels what is in percent."""
    return np.ravel(axes.transData.transform(list(zip(horizontal, vertical, strict=True))))


def _moved(label: Annotation, place: tuple[float, float], renderer: RendererBase) -> Box:
    """Put a label at a place beside its point and return what its text covers."""
    from matplotlib.text import Text

    x, y = place
    label.set_position(place)
    label.set_horizontalalignment("left" if x > 0 else "right" if x < 0 else "center")
    label.set_verticalalignment("bottom" if y > 0 else "top" if y < 0 else "center")
    label.update_positions(renderer)
    # An annotation's own extent would have the line to its point in it.
    return np.asarray(Text.get_window_extent(label, renderer).padded(1).extents)


def _shared(box: Box, others: Sequence[Box]) -> float:
    """Return how many square pixels others share with a box."""
    if not others:
        return 0.0
    stacked = np.stack(others)
    sides = np.minimum(box[2:], stacked[:, 2:]) - np.maximum(box[:2], stacked[:, :2])
    return float(np.prod(np.maximum(sides, 0), axis=1).sum())


def _area(box: Box) -> float:
    return float(np.prod(box[2:] - box[:2]))


def _saved(figure: Figure, kind: str, metadata: Mapping[str, None]) -> bytes:
    """Return the figure's file; what is None in metadata would hold a date or a version."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=PNG_DPI, metadata=dict(metadata))
    return content.getvalue()
