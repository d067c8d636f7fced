"""So many of so many: what every measure counts, and what adds up over recordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


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
