"""A recording -> rows of lanes over time, each with its part of the transcript below.

A long recording is wrapped like a text, so that a minute is as wide as the page, also on a phone. Places along time are
in percent of a row, heights in pixels: a browser can then stretch the lanes and leave the letters as they are.

It is drawn from decisions, from the transcript and from the envelope, none of which holds anything of a withheld turn
but when it was, its label, and why it was withheld.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cascade.envelope import CELL, Envelope
from cascade.pipeline import Decision
from cascade.rendering import Gap, clock, readable
from cascade.types import SAMPLE_RATE, Span, Transcript, Utterance, seconds

ROW: Final = seconds(60.0)
"""The longest row, in samples."""

TICKS_S: Final = (1, 2, 5, 10, 15, 30)
MOST_TICKS: Final = 6
"""A tick's label takes up to 50 pixels, and a phone's page has 300."""

EVIDENCE_PX: Final = 60
"""Height of the lane of evidence."""

LEAST_PERCENT: Final = 0.25
"""The least width of a bar: of a row of a minute on a phone, a bit less than a pixel."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A turn in a row: from `x`, `width` wide, in percent; title says in words what it shows."""

    x: float
    width: float
    reason: str
    admitted: bool
    title: str


@dataclass(frozen=True, slots=True)
class Level:
    """A turn's evidence: `y` in pixels from the lane's top; between it and the threshold's `base` is its bar."""

    bar: Bar
    y: float
    base: float

    @property
    def top(self) -> float:
        """The bar's upper edge."""
        return min(self.y, self.base)

    @property
    def height(self) -> float:
        """The bar's height."""
        return abs(self.y - self.base)


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment on the axis; anchor keeps its label within the row."""

    x: float
    label: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the transcript; a placeholder has no speaker."""

    time: str
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """A stretch of the recording; waveform is an SVG path over `cells` cells, in which full height is 2."""

    span: Span
    ticks: Sequence[Tick]
    bars: Sequence[Bar]
    levels: Sequence[Level]
    cells: float
    waveform: str
    lines: Sequence[Line]

    @property
    def name(self) -> str:
        """When it is."""
        return f"{clock(self.span.start)} to {clock(self.span.end)}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """All rows, and how evidence is drawn: threshold is the one of all turns, None if it differs or there is none.

    low and high are the evidence at the lower and at the upper edge of its lane.
    """

    rows: Sequence[Row]
    threshold: float | None
    threshold_y: float | None
    low: float
    high: float


def timeline(transcript: Transcript, decisions: Sequence[Decision], envelope: Envelope, heard: int) -> Timeline:
    """Lay out a recording of so many samples."""
    scale = _Scale.of(decisions)
    thresholds = {turn.threshold for turn in decisions if math.isfinite(turn.threshold)}
    threshold = thresholds.pop() if len(thresholds) == 1 else None
    end = max([heard, *(turn.span.end for turn in decisions)])
    spans = _rows(end)
    lines = _lines(transcript, spans)
    loudest = max(envelope.peaks.values(), default=0.0)
    return Timeline(
        rows=[_row(span, decisions, envelope, loudest, scale, lines[span]) for span in spans],
        threshold=threshold,
        threshold_y=None if threshold is None else scale.y(threshold),
        low=scale.low,
        high=scale.high,
    )


def _rows(end: int) -> list[Span]:
    """Cut a recording into rows of one length, ROW at most; an empty one has none."""
    count = math.ceil(end / ROW)
    borders = [end * number // count for number in range(count + 1)] if count else []
    return [Span(start, stop) for start, stop in pairwise(borders)]


def _row(
    span: Span,
    decisions: Iterable[Decision],
    envelope: Envelope,
    loudest: float,
    scale: _Scale,
    lines: Sequence[Line],
) -> Row:
    turns = [turn for turn in decisions if turn.span.overlaps(span)]
    return Row(
        span=span,
        ticks=list(_ticks(span)),
        bars=[_bar(turn, span) for turn in turns],
        levels=[level for turn in turns if (level := scale.level(turn, span))],
        cells=len(span) / CELL,
        waveform=_waveform(envelope.peaks, loudest, span),
        lines=lines,
    )


# --- along time -------------------------------------------------------------------------------------------------------


def _bar(turn: Decision, row: Span) -> Bar:
    """Return the part of a turn that is in a row."""
    part = turn.span & row
    x = _percent(part.start, row)
    width = min(max(_percent(part.end, row) - x, LEAST_PERCENT), 100 - x)
    return Bar(x, width, str(turn.reason), turn.admitted, in_words(turn))


def in_words(turn: Decision) -> str:
    """Say what was decided on a turn, such as `00:12.8, 2.8 s withheld: bystander (evidence 0.21, threshold 0.52)`."""
    done = "admitted" if turn.admitted else "withheld"
    numbers = [
        f"{name} {value:.2f}"
        for name, value in (("evidence", turn.evidence), ("threshold", turn.threshold))
        if math.isfinite(value)
    ]
    told = f" ({', '.join(numbers)})" if numbers else ""
    return f"{clock(turn.span.start)}, {turn.span.duration_s:.1f} s {done}: {plain_reason(turn.reason)}{told}"


def plain_reason(reason: str) -> str:
    """Return a reason as words."""
    return str(reason).replace("_", " ")


def _ticks(row: Span) -> Iterator[Tick]:
    """Yield round moments of a row, so few that their labels stand side by side."""
    step = next((step for step in TICKS_S if len(row) <= step * MOST_TICKS * SAMPLE_RATE), TICKS_S[-1])
    first = math.ceil(row.start_s / step) * step
    for moment_s in range(first, math.floor(row.end_s) + 1, step):
        x = _percent(seconds(moment_s), row)
        yield Tick(x, _short_clock(moment_s), "start" if x < 4 else "end" if x > 96 else "middle")


def _short_clock(moment_s: int) -> str:
    minutes, second = divmod(moment_s, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def _percent(position: int, row: Span) -> float:
    return 100 * (position - row.start) / len(row)


# --- evidence ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    """Evidence -> pixels from the top of its lane."""

    low: float
    high: float

    @staticmethod
    def of(decisions: Iterable[Decision]) -> _Scale:
        """Return a scale from 0 to 1, and as far beyond as evidence goes."""
        found = [value for turn in decisions for value in (turn.evidence, turn.threshold) if math.isfinite(value)]
        return _Scale(min([0.0, *found]), max([1.0, *found]))

    def y(self, value: float) -> float:
        return EVIDENCE_PX * (self.high - value) / (self.high - self.low)

    def level(self, turn: Decision, row: Span) -> Level | None:
        """Return how a turn's evidence is drawn, None if it has none."""
        if not math.isfinite(turn.evidence):
            return None
        base = turn.threshold if math.isfinite(turn.threshold) else self.low
        return Level(_bar(turn, row), self.y(turn.evidence), self.y(base))


# --- waveform ---------------------------------------------------------------------------------------------------------


def _waveform(peaks: Mapping[int, float], loudest: float, row: Span) -> str:
    """Return a row's cells as bars around 0, the recording's loudest one from -1 to 1."""
    if loudest <= 0:
        return ""
    first, last = row.start // CELL, (row.end - 1) // CELL
    return "".join(
        f"M{cell - row.start / CELL:.4g} {-peaks[cell] / loudest:.3f}h1V{peaks[cell] / loudest:.3f}h-1z"
        for cell in range(first, last + 1)
        if cell in peaks
    )


# --- transcript -------------------------------------------------------------------------------------------------------


def _lines(transcript: Transcript, rows: Sequence[Span]) -> dict[Span, list[Line]]:
    """Return the transcript's lines by the row in which they begin."""
    lines: dict[Span, list[Line]] = {row: [] for row in rows}
    for item in readable(transcript):
        row = next((row for row in rows if item.span.start < row.end), rows[-1] if rows else None)
        if row is not None:
            lines[row].append(_line(item))
    return lines


def _line(item: Utterance | Gap) -> Line:
    time = clock(item.span.start)
    return Line(time, "", str(item)) if isinstance(item, Gap) else Line(time, item.speaker, item.text)
