"""Intervals by bootstrap over recordings: they are drawn anew, with replacement, and the measure is taken each time.

What is measured within one recording is not independent (one voice, one room, one talk), so that recordings are what is
drawn, and not words, turns or answers. The draws are the same in every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.scoring.tally import Interval

DRAWS: Final = 2_000
"""Resamples of a bootstrap: enough for two digits of a percentile."""

SEED: Final = 20_251_206
"""Any number; fixed, so that the same answers always have the same interval."""

_TAILS: Final = (2.5, 97.5)
"""Percentiles that leave 95 % between them."""

_BLOCK: Final = 20
"""Draws that are made at a time, to keep memory small; a divisor of DRAWS."""


def drawn_weights(recordings: int) -> Iterator[NDArray[np.float64]]:
    """Yield how often each recording is in each draw, (n_draws, n_recordings) a block; DRAWS draws in all."""
    random = np.random.default_rng(SEED)
    for _ in range(DRAWS // _BLOCK):
        drawn = [random.integers(recordings, size=recordings) for _ in range(_BLOCK)]
        yield np.array([np.bincount(one, minlength=recordings) for one in drawn], np.float64)


def percentiles95(drawn: NDArray[np.float64]) -> Interval:
    """Return the percentile interval at 95 % of a measure in each draw, (DRAWS,), leaving out draws without a value.

    At least one draw must have one.
    """
    low, high = np.percentile(drawn[~np.isnan(drawn)], _TAILS)
    return float(low), float(high)


def mean95(values: Sequence[float]) -> Interval | None:
    """Return the interval at 95 % of the mean over recordings, a value each; None with fewer than two of them.

    >>> mean95([0.25, 0.25, 0.25]), mean95([0.25])
    ((0.25, 0.25), None)
    """
    if len(values) < 2:
        return None
    column = np.array(values, np.float64)
    return percentiles95(np.concatenate([weights @ column for weights in drawn_weights(len(values))]) / len(values))
