"""The mixture as its only source."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cascade.separation import Mixture
from cascade.types import AudioChunk, Samples, Span


@given(st.lists(st.integers(0, 100), max_size=8))
def test_the_mixture_passes_unchanged_at_once(sizes: list[int]) -> None:
    stage, start, heard = Mixture(), 0, list[Samples]()
    audio = np.random.default_rng(0).standard_normal(sum(sizes)).astype(np.float32)
    for size in sizes:
        span = Span(start, start + size)
        (chunk,) = stage.push(AudioChunk(span, audio[span.start : span.end]))
        assert chunk.span == span
        assert chunk.sources.shape == (1, size)
        np.testing.assert_array_equal(chunk.sources[0], chunk.mixture)
        heard.append(chunk.mixture)
        start = span.end
    assert list(stage.flush()) == []
    np.testing.assert_array_equal(np.concatenate([*heard, np.zeros(0, np.float32)]), audio)


def test_nothing_is_waited_for() -> None:
    assert Mixture().lookahead == 0
