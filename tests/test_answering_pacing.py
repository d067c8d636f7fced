"""No minute has more requests or tokens than a server allows; a dead server is not asked."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.pacing import DEAD_AFTER, SILENT_AFTER, Clock, Health, Pace


class FakeTime:
    """A clock that only sleeping, and the test, move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, duration_s: float) -> None:
        assert duration_s > 0
        self.now_s += duration_s

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_s, lambda: self.now_s, self.sleep)


ARRIVALS = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 3000)), min_size=1, max_size=40)


@given(ARRIVALS, st.integers(1, 120), st.integers(1000, 90_000))
def test_no_minute_has_more_than_is_allowed(
    arrivals: list[tuple[float, int]], requests_per_minute: int, tokens_per_minute: int
) -> None:
    time = FakeTime()
    pace = Pace(requests_per_minute, tokens_per_minute, time.clock)
    started: list[tuple[float, int]] = []
    for pause_s, tokens in arrivals:
        time.now_s += pause_s
        pace.wait(tokens)
        started.append((time.now_s, tokens))
    for begin, (start_s, _) in enumerate(started):
        minute = [tokens for at_s, tokens in started[begin:] if at_s < start_s + 60 - 1e-6]
        assert len(minute) <= requests_per_minute
        assert sum(minute[:-1]) <= tokens_per_minute


@given(ARRIVALS)
def test_without_limits_nobody_waits(arrivals: list[tuple[float, int]]) -> None:
    time = FakeTime()
    pace = Pace(None, None, time.clock)
    for _, tokens in arrivals:
        pace.wait(tokens)
        pace.correct(5)
    assert time.now_s == 0


def test_what_is_not_used_is_not_saved_up() -> None:
    time = FakeTime()
    pace = Pace(60, None, time.clock)
    time.now_s = 1000.0
    starts = []
    for _ in range(4):
        pace.wait(1)
        starts.append(time.now_s)
    assert [later - earlier for earlier, later in pairwise(starts)] == pytest.approx([1, 1, 1])


def test_tokens_are_corrected_in_both_directions() -> None:
    time = FakeTime()
    pace = Pace(None, 60, time.clock)
    pace.wait(10)
    pace.correct(-4)
    pace.wait(1)
    assert time.now_s == pytest.approx(6)
    pace.correct(2)
    pace.wait(1)
    assert time.now_s == pytest.approx(9)


def test_a_pause_holds_for_all_and_is_never_shortened() -> None:
    time = FakeTime()
    pace = Pace(None, None, time.clock)
    pace.pause(20)
    pace.pause(5)
    pace.wait(1)
    assert time.now_s == 20


@pytest.mark.parametrize(("any_question", "dead_after"), [(True, DEAD_AFTER), (False, SILENT_AFTER)])
def test_a_server_is_dead_after_so_many_questions_in_a_row(any_question: bool, dead_after: int) -> None:
    health = Health()
    for _ in range(3):
        for _ in range(dead_after - 1):
            health.gave_up("HTTP 503", any_question=any_question)
        health.heard()
    assert health.trouble is None
    tries = []
    for _ in range(dead_after):
        assert health.trouble is None
        tries.append(health.tries(7))
        health.gave_up("HTTP 503", any_question=any_question)
    assert tries == [7, 3, *[1] * (dead_after - 2)]
    assert health.tries(7) == 1
    assert health.trouble == f"HTTP 503; so it went for {dead_after} questions in a row: nothing more is asked"


def test_what_may_be_a_questions_own_fault_is_no_sign_that_nobody_is_there() -> None:
    health = Health()
    for _ in range(3):
        for _ in range(DEAD_AFTER - 1):
            health.gave_up("no connection", any_question=True)
        health.gave_up("no answer in time", any_question=False)
    assert health.trouble is None
    for _ in range(SILENT_AFTER - 3 * DEAD_AFTER):
        health.gave_up("no answer in time", any_question=False)
    assert health.trouble is not None


def test_all_questions_on_one_recording_may_be_too_much_for_a_server() -> None:
    """SH-Bench asks ten, in two modes."""
    assert SILENT_AFTER > 10 * 2


def test_the_first_reason_is_the_one_that_is_told() -> None:
    health = Health()
    health.doom("the key is wrong")
    health.doom("something else")
    health.heard()
    for _ in range(DEAD_AFTER):
        health.gave_up("HTTP 503", any_question=True)
    assert health.trouble == "the key is wrong"
