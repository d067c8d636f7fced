"""What a server's errors mean, read off the attributes that the client gives them; the client itself is not needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.faults import KNOWN_CODES, FaultError, Kind, fault_of

NOW_S = 1_800_000_000.0


@dataclass
class StatusError(Exception):
    """An error as the `openai` package raises it."""

    status_code: int
    code: Any = None
    type: Any = None
    param: Any = None
    message: str = ""
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def response(self) -> Any:
        return SimpleNamespace(headers=self.headers)


def kind_of(error: Exception, **request: Any) -> Kind:
    return fault_of(error, request, lambda: NOW_S).kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StatusError(429), Kind.PASSING),
        (StatusError(503), Kind.PASSING),
        (StatusError(425), Kind.PASSING),
        (StatusError(429, "insufficient_quota"), Kind.FINAL),
        (StatusError(401), Kind.FINAL),
        (StatusError(307), Kind.FINAL),
        (StatusError(400, "content_filter"), Kind.FILTERED),
        (StatusError(400, body={"innererror": {"code": "ResponsibleAIPolicyViolation"}}), Kind.FILTERED),
        (StatusError(413), Kind.TOO_LONG),
        (StatusError(400, 400, "BadRequestError", message="exceeds the context window"), Kind.TOO_LONG),
        (StatusError(400), Kind.REFUSED),
        (StatusError(501), Kind.REFUSED),
        (ValueError("no JSON"), Kind.PASSING),
        (TypeError("a mistake of ours"), Kind.REFUSED),
        (TimeoutError(), Kind.PASSING),
    ],
)
def test_each_error_means_one_thing(error: Exception, kind: Kind) -> None:
    assert kind_of(error) is kind


@pytest.mark.parametrize(
    ("error", "any_question"),
    [
        (StatusError(429), True),
        (StatusError(503), True),
        (StatusError(529), True),
        (StatusError(500), False),
        (StatusError(502), False),
        (StatusError(408), False),
        (ValueError("no JSON"), False),
    ],
)
def test_what_every_question_would_have_met_is_told_apart(error: Exception, any_question: bool) -> None:
    fault = fault_of(error, {}, lambda: NOW_S)
    assert (fault.kind, fault.any_question) == (Kind.PASSING, any_question)


def test_log_probabilities_are_only_given_up_where_they_were_asked_for() -> None:
    error = StatusError(400, param="top_logprobs")
    assert kind_of(error, logprobs=True) is Kind.NO_LOGPROBS
    assert kind_of(error) is Kind.REFUSED


def test_a_fault_that_the_client_wraps_is_itself_and_of_several_causes_one_is_said() -> None:
    wrapped = type("APIConnectionError", (Exception,), {})("platform nine")
    wrapped.__cause__ = FaultError(Kind.PASSING, "too large")
    assert fault_of(wrapped, {}, lambda: NOW_S) is wrapped.__cause__
    wrapped.__cause__ = type("ConnectError", (Exception,), {})()
    wrapped.__cause__.__cause__ = ExceptionGroup("both addresses", [ConnectionRefusedError(), ConnectionRefusedError()])
    fault = fault_of(wrapped, {}, lambda: NOW_S)
    assert (str(fault), fault.unreached) == ("no connection (ConnectionRefusedError)", True)


def test_only_what_never_went_out_is_surely_not_charged() -> None:
    api_connection = type("APIConnectionError", (Exception,), {})
    for cause, billed in (("ConnectError", False), ("ConnectTimeout", False), ("ReadError", True)):
        error = api_connection("platform nine")
        error.__cause__ = type(cause, (Exception,), {})()
        fault = fault_of(error, {}, lambda: NOW_S)
        assert (fault.kind, fault.billed, fault.any_question) == (Kind.PASSING, billed, not billed)
        assert fault.unreached is not billed
        assert str(fault) == f"{'the connection broke' if billed else 'no connection'} ({cause})"


WORDS = st.text() | st.sampled_from(sorted(KNOWN_CODES)) | st.from_regex(r"[A-Za-z]\w{0,39}", fullmatch=True)


@given(st.integers(300, 599), WORDS, WORDS, WORDS, st.text(), st.dictionaries(st.text(), WORDS))
def test_nothing_is_shown_but_the_status_and_known_codes(
    status: int, code: str, kind: str, param: str, message: str, inner: dict[str, str]
) -> None:
    error = StatusError(status, code, kind, param, message, {"innererror": inner})
    words = str(fault_of(error, {}, lambda: NOW_S)).removeprefix("HTTP ").split(", ")
    given_codes = {code, kind, param, inner.get("code", "")}
    assert words[0] == str(status)
    assert sorted(words[1:]) == sorted(given_codes & KNOWN_CODES)


def test_a_word_of_the_transcript_in_the_place_of_a_code_is_not_shown() -> None:
    error = StatusError(400, "platform", "nine.boston", "cancer", body={"innererror": {"code": "SECRET"}})
    assert str(fault_of(error, {}, lambda: NOW_S)) == "HTTP 400"
    assert str(fault_of(StatusError(400, "unsupported_value", None, "seed"), {}, lambda: NOW_S)) == (
        "HTTP 400, unsupported_value, seed"
    )


@given(st.text() | st.floats().map(str) | st.integers().map(str))
def test_a_wait_is_a_number_of_seconds_or_none(value: str) -> None:
    wait_s = fault_of(StatusError(429, headers={"retry-after": value}), {}, lambda: NOW_S).retry_after_s
    assert wait_s is None or 0 <= wait_s < float("inf")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_a_server_asks_for(headers: dict[str, str], expected: float | None) -> None:
    assert fault_of(StatusError(503, headers=headers), {}, lambda: NOW_S).retry_after_s == expected
