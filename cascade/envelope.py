"""AdmittedTurn -> how loud it was over time, coarse enough that nothing can be understood from it.

Of what was withheld there is nothing, not even a level: only a turn that passed the gate can be added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cascade.types import AdmittedTurn, seconds

CELL: Final = seconds(0.1)
"""Samples in a cell, on a grid that starts with the stream: a syllable is not much shorter."""


@dataclass(slots=True)
class Envelope:
    """The peak of the admitted samples in each cell, by the cell's number; full scale is 1.

    A cell in which nothing was admitted is not there; of one that lies across a turn's border, only the turn's samples
    count.
    """

    peaks: dict[int, float] = field(default_factory=dict)

    def add(self, turn: AdmittedTurn) -> None:
        """Take in a turn; where it lies over another, the louder one is kept."""
        if not turn.span:
            return
        first, last = turn.span.start // CELL, (turn.span.end - 1) // CELL
        starts = np.maximum(np.arange(first, last + 1) * CELL - turn.span.start, 0)
        found = np.maximum.reduceat(np.abs(np.nan_to_num(turn.samples)), starts)
        for cell, peak in enumerate(found, start=first):
            self.peaks[cell] = max(self.peaks.get(cell, 0.0), min(float(peak), 1.0))
