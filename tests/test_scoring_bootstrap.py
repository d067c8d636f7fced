"""The mean's interval against plain draws, and what it must keep to."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.scoring import bootstrap as module
from cascade.scoring.bootstrap import DRAWS, SEED, drawn_weights, mean95, percentiles95

VALUES = st.lists(st.floats(0, 1), min_size=2, max_size=6)


def test_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(module)
    assert results.attempted >= 1
    assert results.failed == 0


def test_each_draw_has_as_many_recordings_as_there_are() -> None:
    weights = np.concatenate(list(drawn_weights(5)))
    assert weights.shape == (DRAWS, 5)
    assert (weights.sum(axis=1) == 5).all()


def test_the_means_interval_is_that_of_plain_draws() -> None:
    values = np.array([0.0, 0.1, 0.4, 1.0])
    numbers = np.random.default_rng(SEED)
    means = [values[numbers.integers(4, size=4)].mean() for _ in range(DRAWS)]
    assert mean95(values.tolist()) == pytest.approx(tuple(np.percentile(means, (2.5, 97.5))))


@given(VALUES)
def test_the_interval_lies_within_the_values(values: list[float]) -> None:
    interval = mean95(values)
    assert interval is not None
    assert min(values) - 1e-9 <= interval[0] <= interval[1] <= max(values) + 1e-9


def test_draws_without_a_value_are_left_out() -> None:
    assert percentiles95(np.array([np.nan, 0.5, 0.5, np.nan])) == (0.5, 0.5)


@pytest.mark.parametrize("values", [[], [0.5]])
def test_one_recording_has_no_interval(values: list[float]) -> None:
    assert mean95(values) is None
