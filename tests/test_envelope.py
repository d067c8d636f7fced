from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.envelope import CELL, Envelope
from cascade.types import Admission, AdmitReason, AdmittedTurn, Mode, Span

LEAVE = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.5)


def turn(start: int, samples: list[float]) -> AdmittedTurn:
    return AdmittedTurn(Span(start, start + len(samples)), "main", np.array(samples, np.float32), LEAVE)


def test_a_cell_has_the_peak_of_its_samples() -> None:
    samples = [0.0] * (3 * CELL)
    samples[5], samples[CELL + 1], samples[CELL + 2] = 0.25, -0.5, 0.125
    envelope = Envelope()
    envelope.add(turn(2 * CELL, samples))
    assert envelope.peaks == {2: 0.25, 3: 0.5, 4: 0.0}


def test_turns_share_the_cell_in_which_they_meet() -> None:
    envelope = Envelope()
    envelope.add(turn(10, [0.5] * 20))
    envelope.add(turn(30, [0.25] * (CELL - 29)))
    assert envelope.peaks == {0: 0.5, 1: 0.25}


@given(
    st.lists(
        st.tuples(st.integers(0, 5 * CELL), st.integers(0, 3 * CELL), st.floats(0, 1, width=32)),
        max_size=5,
    )
)
def test_it_is_the_peak_of_what_was_admitted_and_nothing_else(turns: list[tuple[int, int, float]]) -> None:
    envelope, heard = Envelope(), np.full(9 * CELL, np.nan, np.float32)
    for start, length, peak in turns:
        envelope.add(turn(start, [peak] * length))
        heard[start : start + length] = np.fmax(heard[start : start + length], np.float32(peak))
    cells = {cell: part for cell, part in enumerate(heard.reshape(-1, CELL)) if not np.isnan(part).all()}
    assert envelope.peaks == {cell: float(np.nanmax(part)) for cell, part in cells.items()}


@pytest.mark.parametrize(("sample", "peak"), [(float("nan"), 0.0), (float("inf"), 1.0), (-3.0, 1.0)])
def test_what_is_no_audio_still_gives_a_level(sample: float, peak: float) -> None:
    envelope = Envelope()
    envelope.add(turn(0, [sample]))
    assert envelope.peaks == {0: peak}
