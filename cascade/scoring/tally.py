"""So many of so many: what every measure counts, and what adds up over recordings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

Interval = tuple[float, float]
"""The lower and the upper end."""

Z95: Final = 1.959963984540054
"""The standard normal distribution's 97.5 % point: 95 % of it lies within this many deviations of its mean."""


@final
@dataclass(frozen=True, slots=True)
class Tally:
    """So many of so many. Tallies add; what is counted (words, samples, answers) is the caller's to know."""

    correct: int = 0
    total: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.total:
            raise ValueError(f"a tally needs 0 <= correct <= total, got {self.correct} of {self.total}")

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.correct + other.correct, self.total + other.total)

    @property
    def accuracy(self) -> float | None:
        """Return correct / total, None where there is nothing to count.

        >>> Tally(3, 4).accuracy, Tally().accuracy
        (0.75, None)
        """
        return self.correct / self.total if self.total else None

    @property
    def wilson95(self) -> Interval | None:
        """Return the Wilson score interval at 95 %, None where there is nothing to count.

        It takes what is counted as independent. Without continuity correction: Wilson, "Probable inference, the law of
        succession, and statistical inference", JASA 22 (1927); Brown, Cai and DasGupta, "Interval estimation for a
        binomial proportion", Statistical Science 16 (2001), eq. 4.

        >>> [round(end, 3) for end in Tally(938, 1000).wilson95]
        [0.921, 0.951]
        """
        if not self.total:
            return None
        share, extra = self.correct / self.total, Z95**2 / self.total
        centre = share + extra / 2
        reach = Z95 * math.sqrt((share * (1 - share) + extra / 4) / self.total)
        # At the ends rounding would leave a last digit where the formula gives exactly 0 or 1.
        low = (centre - reach) / (1 + extra) if self.correct else 0.0
        high = (centre + reach) / (1 + extra) if self.correct < self.total else 1.0
        return low, high
