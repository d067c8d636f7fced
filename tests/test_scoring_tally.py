"""Tallies add; Wilson's interval against its plain definition and against scipy."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cascade.scoring import tally as module
from cascade.scoring.tally import Z95, Tally

TALLIES = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: Tally(min(pair), max(pair)))
COUNTED = st.integers(1, 100_000).flatmap(lambda total: st.integers(0, total).map(lambda some: Tally(some, total)))


def test_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(module)
    assert results.attempted >= 2
    assert results.failed == 0


@given(TALLIES, TALLIES, TALLIES)
def test_tallies_add(a: Tally, b: Tally, c: Tally) -> None:
    assert a + b == Tally(a.correct + b.correct, a.total + b.total)
    assert (a + b) + c == a + (b + c)
    assert a + Tally() == a


def test_an_empty_tally_has_no_accuracy_and_no_interval() -> None:
    assert Tally().accuracy is None
    assert Tally().wilson95 is None
    assert Tally(0, 3).accuracy == 0.0


@pytest.mark.parametrize(("correct", "total"), [(2, 1), (-1, 3), (1, -1)])
def test_an_impossible_tally_is_refused(correct: int, total: int) -> None:
    with pytest.raises(ValueError, match="0 <= correct <= total"):
        Tally(correct, total)


def test_the_deviations_hold_95_percent() -> None:
    assert stats.norm.cdf(Z95) - stats.norm.cdf(-Z95) == pytest.approx(0.95, abs=1e-15)


@given(COUNTED)
def test_wilson_solves_the_quadratic(tally: Tally) -> None:
    """Its ends are the shares q from which the observed one is Z95 deviations away: (p - q)^2 = z^2 q (1 - q) / n."""
    ends = tally.wilson95
    assert ends is not None
    share = tally.correct / tally.total
    assert 0 <= ends[0] <= share <= ends[1] <= 1
    assert ends[0] < ends[1]
    for end in ends:
        deviation = math.sqrt(end * (1 - end) / tally.total)
        assert abs(share - end) == pytest.approx(Z95 * deviation, abs=1e-9)


@pytest.mark.parametrize(("correct", "total"), [(0, 10), (1, 10), (5, 10), (10, 10), (938, 1000), (479, 1000), (1, 1)])
def test_wilson_is_scipys(correct: int, total: int) -> None:
    expected = stats.binomtest(correct, total).proportion_ci(method="wilson")
    assert Tally(correct, total).wilson95 == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.integers(1, 10_000))
def test_wilson_is_exact_at_the_ends(total: int) -> None:
    none, every = Tally(0, total).wilson95, Tally(total, total).wilson95
    assert none is not None
    assert every is not None
    assert none[0] == 0.0
    assert every[1] == 1.0
    assert every[0] == pytest.approx(1 - none[1], abs=1e-12)


@pytest.mark.parametrize(
    ("correct", "low", "high"), [(960, 94.6, 97.0), (482, 45.1, 51.3), (955, 94.0, 96.6), (938, 92.1, 95.1)]
)
def test_wilson_is_the_papers(correct: int, low: float, high: float) -> None:
    """Table 8 of arXiv 2512.06380, of 1,000 questions each."""
    ends = Tally(correct, 1000).wilson95
    assert ends is not None
    assert [round(100 * end, 1) for end in ends] == [low, high]
