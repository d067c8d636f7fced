from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.envelope import CELL, Envelope
from cascade.pipeline import Decision
from cascade.reporting.timeline import EVIDENCE_PX, MOST_TICKS, ROW, Line, in_words, timeline
from cascade.types import (
    Admission,
    AdmitReason,
    Mode,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
    seconds,
)

LEAVE = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.5)


def span(start_s: float, end_s: float) -> Span:
    return Span(seconds(start_s), seconds(end_s))


def decision(start_s: float, end_s: float, evidence: float = 0.8, threshold: float = 0.5) -> Decision:
    passes = evidence >= threshold
    reason = AdmitReason.MAIN_SPEAKER if passes else WithholdReason.BYSTANDER
    return Decision(span(start_s, end_s), "main" if passes else "speaker_2", passes, reason, evidence, threshold)


def said(start_s: float, end_s: float, text: str = "Hello.") -> Utterance:
    return Utterance(span(start_s, end_s), "main", text, (), LEAVE)


def withheld(start_s: float, end_s: float) -> Withheld:
    return Withheld(span(start_s, end_s), "speaker_2", WithholdReason.BYSTANDER)


# --- rows -------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10 * ROW))
def test_rows_are_of_one_length_and_cover_the_recording(heard: int) -> None:
    spans = [row.span for row in timeline(Transcript(), [], Envelope(), heard).rows]
    assert [part.start for part in spans] == [0, *(part.end for part in spans)][: len(spans)]
    assert sum(map(len, spans)) == heard
    if spans:
        assert max(map(len, spans)) <= ROW
        assert max(map(len, spans)) - min(map(len, spans)) <= 1


@pytest.mark.parametrize("duration_s", [0.5, 1, 7, 48.1, 60, 61, 3600])
def test_ticks_are_few_and_stand_at_their_moments(duration_s: float) -> None:
    for row in timeline(Transcript(), [], Envelope(), seconds(duration_s)).rows:
        assert 1 <= len(row.ticks) <= MOST_TICKS + 1 or duration_s < 1
        for tick in row.ticks:
            *hours, minutes, moment = map(int, tick.label.split(":"))
            at_s = sum(hours) * 3600 + minutes * 60 + moment
            assert tick.x == pytest.approx(100 * (at_s - row.span.start_s) / row.span.duration_s)


def test_a_turn_across_rows_is_in_both() -> None:
    first, second = timeline(Transcript(), [decision(50, 70)], Envelope(), seconds(120)).rows
    assert [(bar.x, bar.width) for bar in first.bars] == [pytest.approx((100 * 50 / 60, 100 * 10 / 60))]
    assert [(bar.x, bar.width) for bar in second.bars] == [pytest.approx((0, 100 * 10 / 60))]


def test_a_turn_that_is_very_short_can_still_be_seen_inside_the_row() -> None:
    (row,) = timeline(Transcript(), [decision(59.99, 60)], Envelope(), ROW).rows
    (bar,) = row.bars
    assert bar.width > 0
    assert bar.x + bar.width <= 100


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_evidence_is_drawn_from_the_threshold_up_or_down() -> None:
    drawn = timeline(Transcript(), [decision(0, 1, 0.75), decision(1, 2, 0.25)], Envelope(), seconds(2))
    passed, failed = drawn.rows[0].levels
    assert (drawn.threshold, drawn.threshold_y) == (0.5, EVIDENCE_PX / 2)
    assert (passed.top, passed.height) == (EVIDENCE_PX / 4, EVIDENCE_PX / 4)
    assert (failed.top, failed.height) == (EVIDENCE_PX / 2, EVIDENCE_PX / 4)
    assert [level.bar.admitted for level in (passed, failed)] == [True, False]


def test_evidence_beyond_0_and_1_stays_in_the_lane() -> None:
    drawn = timeline(Transcript(), [decision(0, 1, 1.5), decision(1, 2, -0.5)], Envelope(), seconds(2))
    assert (drawn.low, drawn.high) == (-0.5, 1.5)
    assert [level.y for level in drawn.rows[0].levels] == [0, EVIDENCE_PX]


def test_without_evidence_nothing_is_drawn_of_it() -> None:
    turns = [decision(0, 1, math.nan, math.nan), Decision(span(1, 2), "a", True, AdmitReason.EVERYONE, 0, -math.inf)]
    drawn = timeline(Transcript(), turns[:1], Envelope(), seconds(2))
    assert (drawn.rows[0].levels, drawn.threshold) == ([], None)
    (level,) = timeline(Transcript(), turns, Envelope(), seconds(2)).rows[0].levels
    assert (level.top, level.height) == (EVIDENCE_PX, 0)


def test_thresholds_that_differ_are_not_one_line() -> None:
    drawn = timeline(Transcript(), [decision(0, 1), decision(1, 2, threshold=0.6)], Envelope(), seconds(2))
    assert (drawn.threshold, drawn.threshold_y) == (None, None)


def test_a_decision_in_words() -> None:
    assert in_words(decision(12.84, 15.6, 0.214)) == (
        "00:12.8, 2.8 s withheld: bystander (evidence 0.21, threshold 0.50)"
    )
    assert in_words(decision(1, 2, math.nan, math.nan)) == "00:01.0, 1.0 s withheld: bystander"


# --- waveform ---------------------------------------------------------------------------------------------------------


def test_the_waveform_has_the_cells_that_are_there_and_no_others() -> None:
    (row,) = timeline(Transcript(), [], Envelope({3: 0.5, 4: 0.25, 9: 0.0}), 20 * CELL).rows
    cells = re.findall(r"M([\d.-]+) ([\d.-]+)h1V([\d.-]+)h-1z", row.waveform)
    assert [tuple(map(float, cell)) for cell in cells] == [(3, -1, 1), (4, -0.5, 0.5), (9, 0, 0)]
    assert row.cells == 20


def test_silence_has_no_waveform() -> None:
    assert timeline(Transcript(), [], Envelope({0: 0.0}), CELL).rows[0].waveform == ""


# --- transcript -------------------------------------------------------------------------------------------------------


def test_each_line_stands_below_the_row_in_which_it_begins() -> None:
    transcript = Transcript.of([said(1, 2, "First."), withheld(59, 63), said(65, 66, "Last.")])
    first, second = timeline(transcript, [], Envelope(), seconds(120)).rows
    assert first.lines == [Line("00:01.0", "main", "First."), Line("00:59.0", "", "[bystander, 4.0 s withheld]")]
    assert second.lines == [Line("01:05.0", "main", "Last.")]


def test_no_line_is_lost_where_the_recording_was_shorter_than_said() -> None:
    drawn = timeline(Transcript.of([said(5, 6)]), [decision(0, 2)], Envelope(), 0)
    assert [line.text for row in drawn.rows for line in row.lines] == ["Hello."]
