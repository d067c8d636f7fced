"""The answerer behind OpenAI's protocol, by the real client, against a loopback server that plays what goes wrong."""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import random
import subprocess
import sys
import threading
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.chat import ChatPrompts, Sampling, chat_request
from cascade.answering.pacing import DEAD_AFTER, SILENT_AFTER, Clock
from cascade.answering.prompts import Prompt, load_prompt
from cascade.answering.questions import question_of
from cascade.answering.spending import Price
from cascade.backends import openai
from cascade.backends.bounded import LARGEST_BODY
from cascade.backends.openai import OpenAIAnswerer, check_url, host_of, is_loopback, is_placeholder, key_variable
from cascade.errors import BackendError, ConfigError, NoMoreAnswersError, NotReadyError
from cascade.output.cache import ResponseCache
from cascade.packaged import data_folder
from cascade.types import (
    Admission,
    AdmitReason,
    Answer,
    Mode,
    Outcome,
    Question,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
)
from tests.chat_server import Play, Received, Server, fault, good, in_turn, serving

pytest.importorskip("openai", reason="the package openai is not installed (extra 'paper')")
pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'paper')")

CLIENT = pytest.importorskip("openai").DefaultHttpxClient()
SECRET = "sk-test-nobody-may-see-this"
SAID = "the train leaves from platform nine"
OPTIONS = ("nine", "ten", "eleven", "I don't know")
QUESTION = question_of("Which platform?", OPTIONS)
OPEN = question_of("Which platform?")
PROMPTS = ChatPrompts(Prompt("{transcript}\n{question}\n{options}\nLetter:"), Prompt("{transcript}\n{question}"))
COUNTED = {"prompt_tokens": 100, "completion_tokens": 2}
"""What a server may count for these short prompts."""
ADMITTED = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, math.nan, math.nan)
HEARD = Transcript.of(
    [
        Utterance(Span(0, 16000), "main", SAID, (), ADMITTED),
        Withheld(Span(16000, 32000), "bystander", WithholdReason.BYSTANDER),
    ]
)


@dataclass
class FakeTime:
    """A clock that only sleeping moves."""

    now_s: float = 1_800_000_000.0
    slept: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sleep(self, duration_s: float) -> None:
        with self.lock:
            self.slept.append(duration_s)
            self.now_s += duration_s

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_s, lambda: self.now_s, self.sleep)


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


Ask = Callable[..., OpenAIAnswerer]


@pytest.fixture
def load(time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)

    def _load(server: Server, **settings: Any) -> OpenAIAnswerer:
        given: dict[str, Any] = {"base_url": server.url, "prompts": PROMPTS, "timeout_s": 5, "clock": time.clock}
        return openai.load(**{"model": "gpt-4o", "api_key_env": "OPENAI_API_KEY", **given, **settings})

    return _load


@pytest.fixture(autouse=True)
def _connections_are_closed() -> Iterator[None]:
    """Let connections that nobody closed be found within the test that left them."""
    yield
    gc.collect()


def host(server: Server) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def priced(server: Server, price: Price) -> dict[tuple[str, str], Price]:
    return {(host(server), "gpt-4o"): price}


def shown(error: BaseException) -> str:
    """Return all that an exception says, or that hangs on it; its frames' variables are not part of that."""
    told = "".join(traceback.format_exception(error))
    return told + repr((error.args, vars(error), error.__cause__, error.__context__))


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_one_message_is_sent_and_nothing_else(load: Ask) -> None:
    with serving(in_turn(good("A"))) as server:
        load(server).answer(QUESTION, HEARD)
    (received,) = server.received
    assert received.json == {
        "model": "gpt-4o",
        "messages": [
            {
                "role": "user",
                "content": f"{SAID}\nWhich platform?\nA. nine\nB. ten\nC. eleven\nD. I don't know\nLetter:",
            }
        ],
        "temperature": 0,
        "seed": 1,
        "max_tokens": 16,
        "logprobs": True,
        "top_logprobs": 20,
    }
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {SECRET}"
    assert received.headers["user-agent"] == "cascade"
    assert received.headers.keys() <= {
        "host", "accept", "accept-encoding", "connection", "content-type", "content-length", "authorization",
        "user-agent",
    }  # fmt: skip


def test_the_questions_own_prompt_comes_first(load: Ask) -> None:
    asked = Question(QUESTION.text, QUESTION.options, QUESTION.dont_know, "Of {{braces}}: {question} {transcript}")
    with serving(in_turn(good("A"))) as server:
        load(server).answer(asked, HEARD)
    assert server.received[0].prompt == f"Of {{braces}}: Which platform? {SAID}"


def test_an_open_question_has_its_own_prompt_and_length_and_no_log_probabilities(load: Ask) -> None:
    with serving(in_turn(good("Platform nine."))) as server:
        answer = load(server).answer(OPEN, HEARD)
    assert answer == Answer("Platform nine.", Outcome.ANSWERED)
    sent = server.received[0].json
    assert (sent["max_tokens"], sent["messages"][0]["content"]) == (128, f"{SAID}\nWhich platform?")
    assert not {"logprobs", "top_logprobs"} & sent.keys()


def test_what_would_be_sent_can_be_seen_without_sending_and_without_a_key(load: Ask) -> None:
    with serving(in_turn(good("A"))) as server:
        answerer = load(server, sampling=Sampling(seed=7, letter_tokens=4, top_logprobs=5))
        shown = answerer.request(QUESTION, HEARD)
        assert not server.received
        answerer.answer(QUESTION, HEARD)
    assert server.received[0].json == shown
    sampling = Sampling(seed=7, letter_tokens=4, top_logprobs=5)
    assert shown == chat_request(QUESTION, HEARD, model="gpt-4o", prompts=PROMPTS, sampling=sampling)


def test_a_server_on_this_machine_needs_no_key_and_is_sent_none(load: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-somebody")
    with serving(in_turn(good("A"))) as server:
        load(server).answer(QUESTION, HEARD)
    assert "authorization" not in server.received[0].headers
    assert b"of-somebody" not in server.log


def test_the_environment_adds_no_headers(load: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    added = "Cookie: mine\nX-Token: mine\nAuthorization: Bearer mine\nHost: mine\nUser-Agent: mine\nContent-Length: 3"
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", added)
    monkeypatch.setenv("OPENAI_ORG_ID", "mine")
    with serving(in_turn(good("A"))) as server:
        assert load(server).answer(QUESTION, HEARD).choice == 0
    assert b"mine" not in server.log
    assert server.received[0].headers["host"] == host(server)
    assert server.received[0].headers["authorization"] == f"Bearer {SECRET}"


def test_another_variable_can_hold_the_key(load: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " key-of-mine\n")
    with serving(in_turn(good("A"))) as server:
        load(server, api_key_env="MY_KEY").answer(QUESTION, HEARD)
        load(server, api_key_env=None).answer(QUESTION, HEARD)
    assert [received.headers.get("authorization") for received in server.received] == ["Bearer key-of-mine", None]
    assert SECRET.encode() not in server.log


def test_the_key_for_openai_is_sent_to_nobody_else_unless_it_is_named(load: Ask) -> None:
    """SECRET is in OPENAI_API_KEY."""
    wants = pytest.raises(NoMoreAnswersError, match="it wants a key, and is given none; name the variable of its key")
    with serving(in_turn(fault(401))) as server, wants:
        load(server, api_key_env=None).answer(QUESTION, HEARD)
    assert SECRET.encode() not in server.log
    for url, variable in [
        ("https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://API.openai.com:443/v1", "OPENAI_API_KEY"),
        ("http://api.openai.com/v1", None),
        ("https://api.openai.com.example.org/v1", None),
        ("https://api.openai.com:8443/v1", None),
        ("https://llm.example.org/v1", None),
        ("http://localhost:8000/v1", None),
    ]:
        assert key_variable(check_url(url), None) == variable
        assert key_variable(check_url(url), "MY_KEY") == "MY_KEY"


def test_that_the_network_can_read_along_is_said_once_and_of_the_key_too(
    load: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    told = "llm.example.org is asked without encryption: the network in between can read transcripts"
    for named, more in (("OPENAI_API_KEY", " and the key in OPENAI_API_KEY"), (None, "")):
        caplog.clear()
        load(Server("http://llm.example.org/v1"), api_key_env=named)
        assert [record.getMessage() for record in caplog.records] == [told + more]
    caplog.clear()
    load(Server("https://llm.example.org/v1"))
    load(Server("http://127.0.0.1:1/v1"))
    assert not caplog.records


def test_a_key_is_asked_for_before_anything_is_sent(load: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(NotReadyError, match=r"^api.openai.com needs a key.*export OPENAI_API_KEY=\.\.\.$"):
        openai.load("gpt-4o", prompts=PROMPTS)


@pytest.mark.parametrize("key", ["...", "sk-...", "<your key>", "your-api-key", "xxxx", "sk-xxxxxxxx", "$KEY", "…"])
def test_a_placeholder_is_no_key_and_is_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(NotReadyError) as error:
        openai.load("gpt-4o", prompts=PROMPTS)
    assert str(error.value) == (
        "the environment variable OPENAI_API_KEY holds a placeholder in the place of a key; "
        "export OPENAI_API_KEY=YOUR_KEY"
    )


@pytest.mark.parametrize("key", [SECRET, "sk-proj-Ab1_xXx", "token-abc123", "EMPTY"])
def test_what_may_be_a_key_is_taken_for_one(key: str) -> None:
    assert not is_placeholder(key)


def test_a_key_that_can_be_none_is_not_shown(load: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("sk-secret\nof mine", "sk-secret of mine", "sk-secret\N{LATIN SMALL LETTER E WITH ACUTE}"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(NotReadyError, match="holds something that no key holds") as error:
            openai.load("gpt-4o", prompts=PROMPTS)
        assert "secret" not in shown(error.value)
    monkeypatch.setenv("OPENAI_API_KEY", " \n")
    with pytest.raises(
        NotReadyError, match="needs a key, and the environment variable OPENAI_API_KEY holds only blanks"
    ):
        openai.load("gpt-4o", prompts=PROMPTS)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:8000", "expected one such as"),
        ("ftp://localhost/v1", "expected one such as"),
        ("http://", "expected one such as"),
        ("http://localhost:99999/v1", "expected one such as"),
        ("http://[half/v1", "expected one such as"),
        ("http://[1::2::3]/v1", "expected one such as"),
        ("http://localhost:0/v1", "expected one such as"),
        ("", "expected one such as"),
        ("http://\uff4cocalhost:1/v1", "expected one such as"),
        ("http://localhost:\uff11/v1", "expected one such as"),
        ("http://localhost/v1\r\nX-Secret: y", "expected one such as"),
        ("http://local\thost/v1", "expected one such as"),
        ("http://local host/v1", "expected one such as"),
        ("http://localhost\\secret/v1", "expected one such as"),
        ("http://999.1.1.1/v1", "expected one such as"),
        ("http://127.0.0.01/v1", "expected one such as"),
        ("http://a..b/v1", "expected one such as"),
        ("https://me:secret@host/v1", "in the environment instead"),
        ("https://host/v1?key=secret", "in the environment instead"),
    ],
)
def test_an_address_that_is_none_is_refused_without_being_quoted(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        check_url(url)
    assert "secret" not in str(error.value)


def test_an_address_loses_the_slash_at_its_end_and_only_this_machine_is_this_one() -> None:
    assert check_url(None) == "https://api.openai.com/v1"
    assert check_url("http://127.0.0.1:1/v1/") == "http://127.0.0.1:1/v1"
    for here in ("http://localhost:1234/v1", "http://[::1]:1234/v1", "http://127.9.8.7"):
        assert is_loopback(check_url(here))
    for elsewhere in ("http://localhost.example.org/v1", "http://127.0.0.1.example.org/v1", "http://[::2]/v1"):
        assert not is_loopback(check_url(elsewhere))


HOSTS = st.from_regex(r"[a-zA-Z0-9._:\[\]-]{1,40}", fullmatch=True) | st.ip_addresses().map(str)


@given(HOSTS | st.ip_addresses(v=6).map("[{}]".format), st.none() | st.integers(0, 99999), st.text(max_size=9))
def test_what_is_taken_for_an_address_the_client_takes_for_the_same(host: str, port: int | None, path: str) -> None:
    url = f"http://{host}{'' if port is None else f':{port}'}/{path}"
    try:
        checked = check_url(url)
    except ConfigError:
        return
    parsed = CLIENT.build_request("POST", f"{checked}/chat").url
    assert (parsed.scheme, parsed.raw_host.decode()) == ("http", host.strip("[]").lower())
    assert parsed.port == (None if port in (None, 80) else port)
    assert parsed.netloc.decode() == host_of(checked).removesuffix(":80")


def test_proxies_of_the_environment_are_not_used(load: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(in_turn(good("A"))) as server, serving(in_turn(good("B"))) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        assert load(server).answer(QUESTION, HEARD).text == "A"
    assert not proxy.log


_connected: list[Any] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _connected is not None and event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        _connected.append(arguments[1] if event != "socket.getaddrinfo" else arguments[:2])


@contextmanager
def connections() -> Iterator[list[Any]]:
    """Collect every address that anything in this process connects to, or looks up."""
    global _connected
    if not _audit_hooked:
        sys.addaudithook(_audit)
        _audit_hooked.append(True)
    _connected = []
    try:
        yield _connected
    finally:
        _connected = None


_audit_hooked: list[bool] = []


def test_nothing_is_connected_but_the_server(load: Ask) -> None:
    with connections() as seen, serving(in_turn(fault(500), good("A"))) as server:
        load(server).answer(QUESTION, HEARD)
    address, port = host(server).split(":")
    assert seen
    assert {(str(where[0]), int(where[1])) for where in seen} == {(address, int(port))}


def test_a_redirect_is_not_followed(load: Ask) -> None:
    with serving(in_turn(good("B"))) as elsewhere:
        moved = Play(307, headers={"location": f"{elsewhere.url}/chat/completions"})
        with serving(in_turn(moved)) as server, pytest.raises(BackendError, match="points to another address"):
            load(server).answer(QUESTION, HEARD)
    assert not elsewhere.log


def test_nothing_of_a_question_is_logged_at_debug(load: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(in_turn(fault(500, message=SAID), good("A"))) as server:
        load(server).answer(QUESTION, HEARD)
    logged = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for hidden in (SAID, "Which platform", SECRET):
        assert hidden not in logged


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("played", "question", "expected"),
    [
        (good("B"), QUESTION, (Outcome.ANSWERED, 1, "B")),
        (good("D. I don't know"), QUESTION, (Outcome.DONT_KNOW, 3, "D. I don't know")),
        (good("**Answer:** (C)"), QUESTION, (Outcome.ANSWERED, 2, "**Answer:** (C)")),
        (good("Hm, hard to choose."), QUESTION, (Outcome.UNPARSED, None, "Hm, hard to choose.")),
        (good("I cannot help with that."), QUESTION, (Outcome.REFUSED, None, "I cannot help with that.")),
        (good(None, refusal="I'm sorry, B is private."), QUESTION, (Outcome.REFUSED, None, "I'm sorry, B is private.")),
        (good(None), QUESTION, (Outcome.EMPTY, None, "")),
        (good(" \n"), QUESTION, (Outcome.EMPTY, None, " \n")),
        (good("B", finish="content_filter"), QUESTION, (Outcome.FILTERED, None, "B")),
        (good(None, finish="content_filter"), QUESTION, (Outcome.FILTERED, None, "")),
        (fault(400, "content_filter"), QUESTION, (Outcome.FILTERED, None, "")),
        (
            fault(400, None, innererror={"code": "ResponsibleAIPolicyViolation"}),
            QUESTION,
            (Outcome.FILTERED, None, ""),
        ),
        (good("The answer must", finish="length"), QUESTION, (Outcome.UNPARSED, None, "The answer must")),
        (good(None, finish="length"), QUESTION, (Outcome.EMPTY, None, "")),
        (good("I don't know."), OPEN, (Outcome.DONT_KNOW, None, "I don't know.")),
        (good("The transcript does not mention it."), OPEN, (Outcome.DONT_KNOW, None, None)),
        (good("I'm sorry, I can't help with that."), OPEN, (Outcome.REFUSED, None, None)),
        (good("She says she cannot answer the phone."), OPEN, (Outcome.ANSWERED, None, None)),
        (good("<think>Hm.</think>"), OPEN, (Outcome.EMPTY, None, None)),
    ],
)
def test_each_reply_has_one_outcome_and_is_asked_for_once(
    load: Ask, played: Play, question: Question, expected: tuple[Outcome, int | None, str | None]
) -> None:
    with serving(in_turn(played)) as server:
        answer = load(server).answer(question, HEARD)
    outcome, choice, text = expected
    assert (answer.outcome, answer.choice) == (outcome, choice)
    assert text is None or answer.text == text
    assert len(server.received) == 1


def test_a_reply_that_was_cut_off_says_so(load: Ask) -> None:
    with serving(in_turn(good("The answer must", finish="length"))) as server:
        answer = load(server).answer(QUESTION, HEARD)
        assert "cut off" in answer.why
        assert "cut off" in load(server).answer(OPEN, HEARD).why


def test_probabilities_are_those_of_the_letters_and_sum_to_one(load: Ask) -> None:
    letters = {"B": math.log(0.5), " B": math.log(0.1), "A": math.log(0.2), "The": math.log(0.1), "E": math.log(0.05)}
    with serving(in_turn(good("B", letters=letters))) as server:
        answer = load(server).answer(QUESTION, HEARD)
    assert answer.probabilities == pytest.approx((0.25, 0.75, 0, 0))


@pytest.mark.parametrize("letters", [None, {}, {"The": -0.1}, {"C": -9999.0}])
def test_without_log_probabilities_of_letters_there_are_no_probabilities_or_those_of_the_reply(
    load: Ask, letters: Mapping[str, float] | None
) -> None:
    with serving(in_turn(good("B", letters=letters))) as server:
        answer = load(server).answer(QUESTION, HEARD)
    assert answer.choice == 1
    assert answer.probabilities == (() if letters is None else (0, 1, 0, 0))


@pytest.mark.parametrize(
    "refusal",
    [
        fault(400, "unsupported_parameter", param="logprobs"),
        fault(400, None, message="top_logprobs must be at most 5"),
        fault(422, None, message="logprobs: extra fields not permitted"),
    ],
)
def test_a_server_without_log_probabilities_is_asked_without_them_from_then_on(
    load: Ask, refusal: Play, caplog: pytest.LogCaptureFixture
) -> None:
    def _play(received: Received) -> Play:
        return refusal if "logprobs" in received.json else good("A")

    with serving(_play) as server:
        answerer = load(server)
        answers = [answerer.answer(question_of(f"Which, {n}?", OPTIONS), HEARD) for n in range(3)]
    assert [(answer.choice, answer.probabilities) for answer in answers] == [(0, ())] * 3
    assert ["logprobs" in received.json for received in server.received] == [True, False, False, False]
    assert caplog.text.count("no log-probabilities") == 1


# --- what passes, and what does not -----------------------------------------------------------------------------------

PASSING = {
    "429": fault(429, "rate_limit_exceeded"),
    "500": fault(500),
    "502 in HTML": Play(502, b"<html>Bad gateway</html>", {"content-type": "text/html"}),
    "503": fault(503),
    "529": fault(529, "overloaded"),
    "408": fault(408),
    "409": fault(409),
    "hangs up": Play(hangs_up=True),
    "half a body": Play(body=good("B").body, sends_half=True),
    "no JSON": Play(body=b'{"choices": [{"mess'),
    "a web page": Play(body=b"<html>Welcome to the hotel's network</html>", headers={"content-type": "text/html"}),
    "no choices": Play(body=b'{"id": "x", "choices": []}'),
    "null": Play(body=b"null"),
    "a list": Play(body=b"[1, 2]"),
    "choices of numbers": Play(body=b'{"choices": [1]}'),
    "content of another kind": Play(body=b'{"choices": [{"message": {"content": 3}}]}'),
}


@pytest.mark.parametrize("played", PASSING.values(), ids=PASSING)
def test_what_passes_is_tried_again_later_and_later(load: Ask, time: FakeTime, played: Play) -> None:
    with serving(in_turn(played, played, played, good("A"))) as server:
        assert load(server).answer(QUESTION, HEARD).choice == 0
    assert len(server.received) == 4
    assert len(time.slept) == 3
    assert all(slept <= longest for slept, longest in zip(time.slept, (0.5, 1, 2), strict=True))


@pytest.mark.parametrize("played", PASSING.values(), ids=PASSING)
def test_what_does_not_pass_ends_in_one_line_that_quotes_nothing(load: Ask, played: Play) -> None:
    with serving(in_turn(played)) as server, pytest.raises(BackendError) as error:
        load(server, max_retries=2).answer(QUESTION, HEARD)
    assert len(server.received) == 3
    told = str(error.value)
    assert "trying again did not help" in told
    assert told.startswith(f"{host(server)}: ")
    assert "\n" not in told
    for hidden in (SAID, "Which", SECRET, "Welcome", "Bad gateway"):
        assert hidden not in shown(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


def test_waits_are_random_so_that_clients_do_not_come_back_together(load: Ask, time: FakeTime) -> None:
    with serving(lambda received: good("A") if received.tries % 2 == 0 else fault(500)) as server:
        for _ in range(6):
            load(server).answer(QUESTION, HEARD)
    assert len(set(time.slept)) == 6


@pytest.mark.parametrize(
    ("play", "settings"),
    [
        (fault(429, headers={"retry-after": "100"}), {}),
        (fault(429, headers={"retry-after": "100"}), {"concurrency": 1}),
        (Play(hangs=True), {"timeout_s": 100}),
        (Play(drips="body"), {"timeout_s": 100}),
        (good("A", usage=COUNTED), {"requests_per_minute": 0.5}),
        (good("A", usage=COUNTED), {"tokens_per_minute": 10}),
        (Play(hangs=True), {"timeout_s": 100, "max_cost": 0.2, "price": Price(1000.0, 1000.0, 0.0)}),
    ],
    ids=["asks to wait", "one at a time", "hangs", "drips", "few requests", "few tokens", "waits for the cost"],
)
def test_no_wait_outlasts_a_stop(load: Ask, play: Play, settings: dict[str, Any]) -> None:
    """Here the clock is the real one. The last server is asked one question, whose cost the others wait for."""
    with serving(in_turn(play)) as server:
        answerer = load(server, clock=None, **settings)
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(answerer.answer, question_of(f"{n}?", OPTIONS), HEARD) for n in range(3)]
            while not server.received:
                sleep(0.01)
            sleep(0.2)
            began = monotonic()
            answerer.stop()
            errors = [future.exception() for future in asked]
        assert monotonic() - began < 20
        assert [type(error) for error in errors if error] == [NoMoreAnswersError] * len([e for e in errors if e])
        assert len([error for error in errors if error]) >= 2
        assert {str(error) for error in errors if error} == {"stopped; nothing more is asked"}
        sent = len(server.received)
        with pytest.raises(NoMoreAnswersError, match="stopped"):
            answerer.answer(QUESTION, HEARD)
        assert len(server.received) == sent
        assert answerer.spent.requests == sent


def test_what_is_all_but_answered_when_it_is_stopped_is_kept(load: Ask) -> None:
    came = threading.Event()

    def late(received: Received) -> Play:
        came.set()
        sleep(0.1)
        return good("A", usage=COUNTED)

    with serving(late) as server, ThreadPoolExecutor(1) as pool:
        answerer = load(server, clock=None)
        asked = pool.submit(answerer.answer, QUESTION, HEARD)
        assert came.wait(10)
        answerer.stop()
        assert asked.result().choice == 0


def test_a_server_that_hangs_is_given_up_in_time(load: Ask) -> None:
    with serving(in_turn(Play(hangs=True))) as server:
        with pytest.raises(BackendError, match=r"no answer in time \(\w+\); trying again did not help"):
            load(server, timeout_s=0.2, max_retries=1).answer(QUESTION, HEARD)
        assert len(server.received) == 2


@pytest.mark.parametrize("drips", ["headers", "body"])
def test_a_server_that_sends_a_little_now_and_then_is_given_up_in_time(
    load: Ask, drips: Literal["headers", "body"]
) -> None:
    began_s = monotonic()
    with serving(in_turn(Play(drips=drips))) as server:
        with pytest.raises(BackendError, match=r"no answer in time \(\w+\); trying again did not help"):
            load(server, timeout_s=0.3, max_retries=1).answer(QUESTION, HEARD)
        assert len(server.received) == 2
    assert monotonic() - began_s < 5


def packed(body: bytes, how: int = 31) -> bytes:
    """Compress: as gzip, or with 15 as zlib does."""
    packing = zlib.compressobj(9, zlib.DEFLATED, how)
    return packing.compress(body) + packing.flush()


LONG = good("B").body + b" " * LARGEST_BODY


@pytest.mark.parametrize(
    "played",
    [
        Play(floods=True),
        Play(body=LONG),
        Play(500, LONG),
        Play(body=packed(LONG), headers={"content-encoding": "gzip"}),
        Play(body=packed(b" " * 50_000_000), headers={"content-encoding": "deflate"}),
    ],
    ids=["floods", "long", "a long error", "a small bomb", "a bomb"],
)
def test_an_answer_that_is_too_large_is_not_read_and_may_pass(load: Ask, played: Play) -> None:
    with serving(in_turn(played, good("A"))) as server:
        assert load(server).answer(QUESTION, HEARD).choice == 0
    with serving(in_turn(played)) as server, pytest.raises(BackendError, match="is longer than 1000000 bytes; trying"):
        load(server, max_retries=1).answer(QUESTION, HEARD)


def test_an_answer_may_be_compressed_and_what_is_not_compressed_as_it_says_may_pass(load: Ask) -> None:
    body = good("B").body + b" " * (LARGEST_BODY - len(good("B").body))
    for encoding, sent in (("gzip", packed(body)), ("deflate", packed(body, 15)), ("identity", body)):
        with serving(in_turn(Play(body=sent, headers={"content-encoding": encoding}))) as server:
            assert load(server).answer(QUESTION, HEARD).choice == 1
    for encoding in ("gzip", "br"):
        with serving(in_turn(Play(body=b"xxxx", headers={"content-encoding": encoding}), good("A"))) as server:
            assert load(server).answer(QUESTION, HEARD).choice == 0


@pytest.mark.parametrize(
    ("headers", "at_least"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": formatdate(1_800_000_030.0, usegmt=True)}, 30),
        ({"retry-after": formatdate(1_700_000_000.0, usegmt=True)}, 0),
        ({"retry-after": "0"}, 0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_servers_own_wait_is_obeyed(
    load: Ask, time: FakeTime, headers: Mapping[str, str], at_least: float, status: int
) -> None:
    with serving(in_turn(fault(status, headers=headers), good("A"))) as server:
        load(server).answer(QUESTION, HEARD)
    assert at_least <= sum(time.slept) <= at_least + 0.5


@pytest.mark.parametrize("wait", ["soon", "nan", "inf", "-inf", "", "Mon, 99 Foo 9999 99:99:99 GMT"])
def test_a_wait_that_cannot_be_read_is_no_wait(load: Ask, time: FakeTime, wait: str) -> None:
    with serving(in_turn(fault(429, headers={"retry-after": wait}), good("A"))) as server:
        assert load(server).answer(QUESTION, HEARD).choice == 0
    assert sum(time.slept) <= 0.5


def test_a_wait_for_hours_is_not_waited_for(load: Ask, time: FakeTime) -> None:
    with serving(in_turn(fault(429, headers={"retry-after": "86400"}))) as server:
        with pytest.raises(BackendError, match="it asks to wait 86400 s, which is not waited for"):
            load(server).answer(QUESTION, HEARD)
        assert len(server.received) == 1
    assert not time.slept


def test_when_one_is_asked_to_wait_all_wait(load: Ask, time: FakeTime) -> None:
    with serving(in_turn(fault(429, headers={"retry-after": "20"}), good("A"))) as server:
        answerer = load(server, max_retries=0)
        with pytest.raises(BackendError):
            answerer.answer(QUESTION, HEARD)
        answerer.answer(QUESTION, HEARD)
    assert sum(time.slept) == pytest.approx(20)


# --- what is final ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("played", "what_to_do"),
    [
        (fault(401, "invalid_api_key"), "the key is not accepted; set another: export OPENAI_API_KEY="),
        (fault(402), "no credit left"),
        (fault(403, "unsupported_country_region_territory"), "the key may not use 'gpt-4o'"),
        (fault(404, "model_not_found"), "there is no model 'gpt-4o', or no server under base_url"),
        (Play(404, b"page not found", {"content-type": "text/plain"}), "there is no model 'gpt-4o'"),
        (fault(429, "insufficient_quota", headers={"retry-after": "1"}), "no quota left; add credit"),
        (fault(429, None, kind="insufficient_quota"), "no quota left; add credit"),
        (fault(400, "billing_hard_limit_reached"), "billing does not allow it"),
        (Play(302, headers={"location": "http://127.0.0.1:9/v1"}), "points to another address"),
    ],
)
def test_what_no_try_can_change_stops_all_questions_at_once(
    load: Ask, time: FakeTime, played: Play, what_to_do: str
) -> None:
    with serving(in_turn(played)) as server:
        answerer = load(server)
        told = []
        for number in range(4):
            with pytest.raises(NoMoreAnswersError) as error:
                answerer.answer(question_of(f"Which, {number}?", OPTIONS), HEARD)
            told.append(str(error.value))
            assert SECRET not in shown(error.value)
    assert len(server.received) == 1
    assert not time.slept
    assert what_to_do in told[0]
    assert "\n" not in told[0]
    assert set(told) == {told[0]}


@pytest.mark.parametrize(
    ("played", "told"),
    [
        (fault(400, "context_length_exceeded", message=f"maximum context length is 9. {SAID}"), "is too long"),
        (fault(400, None, kind="exceed_context_size_error"), "is too long"),
        (fault(400, None, kind="BadRequestError", message="This model's maximum context length is 9"), "is too long"),
        (fault(413), "is too long"),
        (good("A", usage={"prompt_tokens": 9, "completion_tokens": 1}), r"it read 9 tokens of \d+ words"),
        (fault(400, "unsupported_value", param="temperature"), r"\(HTTP 400, unsupported_value, temperature\)"),
        (fault(400, f"said: {SAID}"), r"does not take the question \(HTTP 400\)"),
        (fault(422), "HTTP 422"),
        (fault(501), "HTTP 501"),
    ],
)
def test_a_question_that_a_server_cannot_take_fails_alone(load: Ask, played: Play, told: str) -> None:
    def _play(received: Received) -> Play:
        return good("A") if "easy" in received.prompt else played

    with serving(_play) as server:
        answerer = load(server)
        for _ in range(SILENT_AFTER + 1):
            with pytest.raises(BackendError, match=told) as error:
                answerer.answer(QUESTION, HEARD)
            assert not isinstance(error.value, NoMoreAnswersError)
            assert SAID not in shown(error.value)
        assert answerer.answer(question_of("An easy one?", OPTIONS), HEARD).choice == 0
    assert len(server.received) == SILENT_AFTER + 2


@pytest.mark.parametrize(("status", "dead_after"), [(503, DEAD_AFTER), (500, SILENT_AFTER)])
def test_a_dead_server_is_not_waited_for_by_every_question(load: Ask, status: int, dead_after: int) -> None:
    with serving(in_turn(fault(status))) as server:
        answerer = load(server, max_retries=6)
        told: list[BackendError] = []
        for number in range(60):
            with pytest.raises(BackendError) as error:
                answerer.answer(question_of(f"Which, {number}?", OPTIONS), HEARD)
            told.append(error.value)
            assert SAID not in shown(error.value)
    assert len(server.received) == 7 + 3 + (dead_after - 2)
    assert not any(isinstance(error, NoMoreAnswersError) for error in told[: dead_after - 1])
    assert all(isinstance(error, NoMoreAnswersError) for error in told[dead_after - 1 :])
    assert f"so it went for {dead_after} questions in a row: nothing more is asked" in str(told[-1])


def test_a_server_that_is_gone_is_dead_after_seconds(load: Ask, time: FakeTime) -> None:
    with serving(in_turn(good("A"))) as server:
        answerer = load(server)
        assert answerer.answer(QUESTION, HEARD).choice == 0
    for _ in range(DEAD_AFTER - 1):
        with pytest.raises(BackendError, match="it was there before, and trying again did not help") as error:
            answerer.answer(OPEN, HEARD)
        assert not isinstance(error.value, NoMoreAnswersError)
    assert len(time.slept) > openai.UNREACHED_TRIES
    with pytest.raises(NoMoreAnswersError, match="ConnectionRefusedError"):
        answerer.answer(OPEN, HEARD)
    assert sum(time.slept) <= 0.5 * (2**6 - 1) + 0.5 * (2**2 - 1)


@pytest.mark.parametrize(
    ("url", "cause", "fix"),
    [
        (None, "ConnectionRefusedError", "nothing listens there: start the server, or check base_url"),
        ("http://nobody.invalid/v1", "gaierror", "nobody knows that name: check base_url, and the network"),
    ],
)
def test_a_server_that_was_never_there_is_said_at_once(
    load: Ask, time: FakeTime, url: str | None, cause: str, fix: str
) -> None:
    with serving(in_turn(good("A"))) as server:
        pass
    answerer = load(server, **({} if url is None else {"base_url": url}))
    told = []
    for _ in range(2):
        with pytest.raises(NoMoreAnswersError) as error:
            answerer.answer(QUESTION, HEARD)
        told.append(str(error.value))
    name = host(server) if url is None else "nobody.invalid"
    assert set(told) == {f"{name} was never reached: no connection ({cause}); {fix}; nothing more is asked"}
    assert answerer.spent.requests == openai.UNREACHED_TRIES
    assert len(time.slept) == openai.UNREACHED_TRIES - 1
    assert sum(time.slept) <= 1.5


def test_what_is_under_way_when_a_server_ends_is_answered_and_what_waits_is_not_asked(load: Ask) -> None:
    """Four are sent at once. The first is refused for good; only then the other three are answered."""
    refused, four = threading.Event(), threading.Barrier(4)

    def _create(**request: Any) -> Any:
        four.wait(5)
        if "number 0?" in request["messages"][0]["content"]:
            raise Refused
        assert refused.wait(5)
        return Completion(good("B").body)

    with serving(in_turn(good("A"))) as server:
        answerer = load(server, concurrency=4)
    answerer._create = _create
    with ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(answerer.answer, question_of(f"number {n}?", OPTIONS), HEARD) for n in range(4)]
        with pytest.raises(NoMoreAnswersError):
            asked[0].result()
        waiting = [pool.submit(answerer.answer, question_of(f"late {n}?", OPTIONS), HEARD) for n in range(6)]
        refused.set()
        assert all(isinstance(late.exception(), NoMoreAnswersError) for late in waiting)
    assert [each.result().choice for each in asked[1:]] == [1, 1, 1]


def test_what_the_cache_holds_is_answered_when_nothing_more_is_asked(load: Ask, tmp_path: Path) -> None:
    with serving(in_turn(good("B"))) as server:
        load(server, cache=ResponseCache(tmp_path / "replies")).answer(QUESTION, HEARD)
        answerer = load(
            server, cache=ResponseCache(tmp_path / "replies"), prices=priced(server, Price(1, 1, 1)), max_cost=0.0
        )
        with pytest.raises(NoMoreAnswersError, match=r"of \$0, \$0.0000 are spent; nothing more is asked: raise"):
            answerer.answer(OPEN, HEARD)
        assert answerer.answer(QUESTION, HEARD).choice == 1


@dataclass
class Completion:
    """A completion as the client gives it."""

    body: bytes

    def to_dict(self, *, warnings: bool) -> Any:
        return json.loads(self.body)


class Refused(Exception):  # noqa: N818
    """An error as the client raises it for a wrong key."""

    status_code = 401


def test_a_server_that_comes_back_is_not_taken_for_dead(load: Ask) -> None:
    with serving(lambda received: good("A") if "well" in received.prompt else fault(503)) as server:
        answerer = load(server, max_retries=0)
        for _ in range(5):
            for _ in range(DEAD_AFTER - 1):
                with pytest.raises(BackendError):
                    answerer.answer(QUESTION, HEARD)
            assert answerer.answer(question_of("Are you well?", OPTIONS), HEARD).choice == 0


# --- limits, tokens and cost ------------------------------------------------------------------------------------------


def test_requests_are_spaced_by_requests_per_minute(load: Ask, time: FakeTime) -> None:
    with serving(in_turn(good("A"))) as server:
        answerer = load(server, requests_per_minute=30)
        for number in range(5):
            answerer.answer(question_of(f"Which, {number}?", OPTIONS), HEARD)
    assert time.slept == pytest.approx([2.0] * 4)


def test_requests_are_spaced_by_the_tokens_that_they_took(load: Ask, time: FakeTime) -> None:
    with serving(in_turn(good("A", usage={"prompt_tokens": 90, "completion_tokens": 10}))) as server:
        answerer = load(server, tokens_per_minute=6_000)
        for number in range(5):
            answerer.answer(question_of(f"Which, {number}?", OPTIONS), HEARD)
    assert time.slept == pytest.approx([1.0] * 4)


@pytest.mark.parametrize("usage", [(10**9, 2), (100, 10**15), (100, 10**400)])
def test_a_count_that_cannot_be_is_not_believed(load: Ask, time: FakeTime, usage: tuple[int, int]) -> None:
    """Neither for the time until the next question, nor for the cost: the most that was possible is reserved."""
    counted = dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))
    with serving(in_turn(good("A", usage=counted))) as server:
        answerer = load(server, tokens_per_minute=6_000, prices=priced(server, Price(1e6, 1e6, 1e6)))
        prompt = answerer.request(QUESTION, HEARD)["messages"][0]["content"]
        for _ in range(2):
            answerer.answer(QUESTION, HEARD)
    assert time.slept == pytest.approx([(len(prompt) / 4 + 16) / 100])
    assert (answerer.spent.cost, answerer.spent.prompt_tokens) == (0, 0)
    assert answerer.spent.unsure_cost == pytest.approx(2 * (len(prompt) + openai.MESSAGE_TOKENS + 16))


def test_a_server_that_does_not_heed_the_longest_reply_is_booked_by_its_own_count(load: Ask, time: FakeTime) -> None:
    """A reply may take 16 tokens, a cent each, and takes 5000: after one, nothing fits under the limit any more."""
    counted = {"prompt_tokens": 100, "completion_tokens": 5_000}
    with serving(in_turn(good("A", usage=counted))) as server:
        answerer = load(server, tokens_per_minute=6_000, price=Price(0, 0, 1e4), max_cost=60.0)
        assert answerer.answer(QUESTION, HEARD).choice == 0
        for _ in range(3):
            with pytest.raises(NoMoreAnswersError, match="passes --max-cost"):
                answerer.answer(QUESTION, HEARD)
    assert len(server.received) == 1
    assert (answerer.spent.cost, answerer.spent.unsure_cost) == (50.0, 0)
    assert sum(time.slept) < 60


@pytest.mark.parametrize("error", [True, False])
@pytest.mark.parametrize("text", ["", "A"])
def test_a_failure_within_a_completion_is_no_answer_and_is_tried_again(load: Ask, error: bool, text: str) -> None:
    """As OpenRouter says it."""
    fields = json.loads(good(text, finish="error" if not error else "stop").body)
    if error:
        fields["choices"][0]["error"] = {"code": 502, "message": f"died: {SAID}"}
    broken = Play(body=json.dumps(fields).encode())
    with serving(in_turn(broken, good("B"))) as server:
        assert load(server).answer(QUESTION, HEARD).choice == 1
        assert len(server.received) == 2
    told = r"says that the model's server failed( \(HTTP 502\))?; trying again did not help"
    with serving(in_turn(broken)) as server, pytest.raises(BackendError, match=told) as caught:
        load(server, max_retries=1).answer(QUESTION, HEARD)
    assert SAID not in shown(caught.value)


def test_no_more_requests_than_places_are_under_way(load: Ask) -> None:
    under_way, most = Counter[str](), []
    lock = threading.Lock()

    def _create(**request: Any) -> Any:
        with lock:
            under_way["now"] += 1
            most.append(under_way["now"])
        threading.Event().wait(0.002)
        with lock:
            under_way["now"] -= 1
        raise ValueError("no completion")

    with serving(in_turn(good("A"))) as server:
        answerer = load(server, concurrency=3, max_retries=0)
        answerer._create = _create
        with ThreadPoolExecutor(8) as pool:
            failed = [pool.submit(answerer.answer, QUESTION, HEARD) for _ in range(40)]
        assert all(isinstance(each.exception(), BackendError) for each in failed)
    assert max(most) == 3


def test_tokens_and_cost_are_those_that_the_server_counted(load: Ask) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}}
    with serving(in_turn(fault(500), good("A", usage=usage))) as server:
        answerer = load(server, prices=priced(server, Price(2.5, 1.25, 10.0)))
        answerer.answer(QUESTION, HEARD)
    spent = answerer.spent
    assert (spent.requests, spent.answered, spent.from_cache) == (2, 1, 0)
    assert (spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens) == (100, 60, 5)
    assert spent.cost == pytest.approx((40 * 2.5 + 60 * 1.25 + 5 * 10) / 1e6)
    assert spent.unsure_cost == 0


@pytest.mark.parametrize(
    "played",
    [
        Play(body=b"null"),
        Play(hangs_up=True),
        good("A", usage={}),
        good("A", usage={"prompt_tokens": "many", "completion_tokens": 1}),
        good("A", usage={"prompt_tokens": -5, "completion_tokens": 1}),
    ],
    ids=["no completion", "hangs up", "no usage", "usage in words", "negative usage"],
)
def test_what_may_have_been_charged_is_told_apart(load: Ask, played: Play) -> None:
    with serving(in_turn(played, good("A", usage=COUNTED))) as server:
        answerer = load(server, prices=priced(server, Price(1e6, 1e6, 1e6)))
        answerer.answer(QUESTION, HEARD)
        prompt = answerer.request(QUESTION, HEARD)["messages"][0]["content"]
    assert answerer.spent.unsure_cost == pytest.approx(len(prompt) + openai.MESSAGE_TOKENS + 16)


def test_without_a_price_the_cost_is_unknown_and_a_limit_is_refused(load: Ask) -> None:
    with serving(in_turn(good("A"))) as server:
        answerer = load(server)
        answerer.answer(QUESTION, HEARD)
        assert answerer.spent.cost is None
        with pytest.raises(ConfigError, match=r"--max-cost.*price of this model on this server is not known"):
            load(server, max_cost=1.0)
        with pytest.raises(ConfigError):
            load(server, max_cost=1.0, prices=priced(server, Price(1, 1, 1)), model="gpt-4o-2099-01-01")


def test_a_price_that_is_given_wins_over_the_table_and_makes_a_limit_possible(load: Ask) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    with serving(in_turn(good("A", usage=usage))) as server:
        table = priced(server, Price(1e6, 1e6, 1e6))
        free = load(server, max_cost=0.0, price=Price(0, 0, 0), prices=table)
        dear = load(server, max_cost=1.0, price=Price(1000, 1000, 10_000))
        for answerer in (free, dear):
            answerer.answer(QUESTION, HEARD)
    assert [free.spent.cost, dear.spent.cost] == pytest.approx([0, 0.1 + 0.1])


@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_limit_on_the_cost_is_not_passed_and_is_used_up(load: Ask, concurrency: int) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 0}
    with serving(in_turn(good("A", usage=usage))) as server:
        price = Price(1e4, 1e4, 1e4)  # a cent a token
        answerer = load(server, prices=priced(server, price), max_cost=20.0, concurrency=concurrency)
        most = (len(answerer.request(QUESTION, HEARD)["messages"][0]["content"]) + 4 + openai.MESSAGE_TOKENS + 16) / 100
        with ThreadPoolExecutor(concurrency) as pool:
            asked = [pool.submit(answerer.answer, question_of(f"Which, {n}?", OPTIONS), HEARD) for n in range(60)]
        failed = [error for each in asked if (error := each.exception()) is not None]
    assert failed
    cost = answerer.spent.cost
    assert cost is not None
    assert 20.0 - most - 1.0 <= cost <= 20.0
    assert len(server.received) == 60 - len(failed) == round(cost)
    assert all(isinstance(error, NoMoreAnswersError) and "passes --max-cost" in str(error) for error in failed)


# --- the cache --------------------------------------------------------------------------------------------------------


def test_a_cached_reply_needs_no_request(load: Ask, tmp_path: Path) -> None:
    letters = {"B": -0.2, "A": -2.0}
    with serving(in_turn(good("B", letters=letters))) as server:
        first = load(server, cache=ResponseCache(tmp_path / "replies"))
        answer = first.answer(QUESTION, HEARD)
        second = load(server, cache=ResponseCache(tmp_path / "replies"))
        assert second.answer(QUESTION, HEARD) == answer
        assert second.answer(question_of("Which platform then?", OPTIONS), HEARD).choice == 1
    assert len(server.received) == 2
    assert answer.probabilities
    assert (first.spent.from_cache, second.spent.from_cache, second.spent.requests) == (0, 1, 1)
    written = b"".join(path.read_bytes() for path in (tmp_path / "replies").rglob("*.json"))
    assert SAID.encode() not in written
    assert b"platform" not in written


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "gpt-4.1"},
        {"sampling": Sampling(seed=2)},
        {"prompts": ChatPrompts(Prompt("{question}"), PROMPTS.open)},
    ],
)
def test_all_that_determines_a_reply_is_in_its_key(load: Ask, tmp_path: Path, changed: Mapping[str, Any]) -> None:
    cache = ResponseCache(tmp_path / "replies")
    with serving(in_turn(good("B"))) as server, serving(in_turn(good("C"))) as another:
        load(server, cache=cache).answer(QUESTION, HEARD)
        load(server, cache=cache, **changed).answer(QUESTION, HEARD)
        assert load(another, cache=cache).answer(QUESTION, HEARD).choice == 2
    assert len(server.received) == 2


@pytest.mark.parametrize(
    "played",
    [
        good(None),
        good("B", finish="content_filter"),
        good(None, refusal="No."),
        fault(400, "content_filter"),
        fault(400),
        fault(500),
        Play(body=b"null"),
    ],
)
def test_only_good_replies_are_cached(load: Ask, tmp_path: Path, played: Play) -> None:
    cache = ResponseCache(tmp_path / "replies")
    with serving(in_turn(played, good("A"))) as server:
        for _ in range(2):
            try:
                answer = load(server, cache=cache, max_retries=0).answer(QUESTION, HEARD)
            except BackendError:
                continue
            if answer.choice is None:
                assert not list((tmp_path / "replies").rglob("*.json"))
    assert answer.choice == 0
    assert len(server.received) == 2


@dataclass
class PoisonedCache:
    """A cache that holds for every key what it was given."""

    entry: dict[str, Any]

    def get(self, key: str) -> Mapping[str, Any]:
        return self.entry

    def put(self, key: str, entry: Mapping[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"choices": []},
        {"choices": [{"message": {"content": 3}}]},
        {"choices": [{"message": {"content": ""}}]},
        {"choices": [{"finish_reason": "content_filter", "message": {"content": "B"}}]},
    ],
)
def test_a_cached_reply_that_cannot_be_read_is_asked_again(
    load: Ask, entry: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(in_turn(good("A"))) as server:
        assert load(server, cache=PoisonedCache(entry)).answer(QUESTION, HEARD).choice == 0
    assert "asked again" in caplog.text


# --- many questions at once -------------------------------------------------------------------------------------------

QUESTIONS = 10_000
SHARE_OF_FAULTS = 0.2
FAULTS = [
    fault(429, "rate_limit_exceeded"),
    fault(429, headers={"retry-after": "3"}),
    fault(500),
    fault(503),
    Play(hangs_up=True),
    Play(body=good("B").body, sends_half=True),
    Play(body=b"null"),
    Play(502, b"<html>", {"content-type": "text/html"}),
]


def test_of_ten_thousand_questions_and_a_fifth_of_faults_none_is_lost_or_asked_twice(load: Ask) -> None:
    """The right letter depends on the question; a fault, if it were read, would give another one, or none."""
    answered: Counter[int] = Counter()
    played: Counter[str] = Counter()

    def _play(received: Received) -> Play:
        number = int(received.prompt.partition("number ")[2].partition("?")[0])
        dice = random.Random(f"{number} {received.tries}")
        if dice.random() < SHARE_OF_FAULTS:
            played["fault"] += 1
            return dice.choice(FAULTS)
        answered[number] += 1
        return good("ACD"[number % 3], usage=COUNTED)

    with serving(_play) as server:
        answerer = load(server, concurrency=16, prices=priced(server, Price(2.5, 1.25, 10.0)))
        questions = [question_of(f"What is number {number}?", OPTIONS) for number in range(QUESTIONS)]
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda question: answerer.answer(question, HEARD), questions))
    assert [answer.choice for answer in answers] == [(0, 2, 3)[number % 3] for number in range(QUESTIONS)]
    assert answered == dict.fromkeys(range(QUESTIONS), 1)
    assert played["fault"] > SHARE_OF_FAULTS * QUESTIONS
    spent = answerer.spent
    assert (spent.answered, spent.requests) == (QUESTIONS, QUESTIONS + played["fault"])
    assert (spent.prompt_tokens, spent.completion_tokens) == (100 * QUESTIONS, 2 * QUESTIONS)
    assert spent.cost == pytest.approx(QUESTIONS * (100 * 2.5 + 2 * 10) / 1e6)


# --- a real server ----------------------------------------------------------------------------------------------------


def test_llama_cpps_server_is_asked_by_the_real_client(load: Ask, tmp_path: Path) -> None:
    xllamacpp = pytest.importorskip("xllamacpp", reason="the package xllamacpp is not installed")
    from tests.test_backends_llamacpp import smollm2

    settings = xllamacpp.CommonParams()
    settings.model.path = str(smollm2())
    settings.n_ctx, settings.n_parallel, settings.verbosity = 1024, 1, -1
    settings.cpuparams.n_threads = 1
    real = xllamacpp.Server(settings)
    server = Server(url=f"{real.listening_address}/v1")
    packaged = load_prompt(data_folder("configs") / "prompts" / "general.txt")
    prompts = ChatPrompts(packaged, PROMPTS.open)
    answerer = load(server, model="smollm2", prompts=prompts, timeout_s=60, cache=ResponseCache(tmp_path / "replies"))
    answer = answerer.answer(QUESTION, HEARD)
    assert answer.outcome is not Outcome.EMPTY
    assert answer.choice is not None
    assert len(answer.probabilities) == 4
    assert sum(answer.probabilities) == pytest.approx(1)
    assert max(answer.probabilities) == answer.probabilities[answer.choice]
    assert answerer.spent.prompt_tokens > 150
    assert answerer.answer(QUESTION, HEARD) == answer
    assert answerer.spent.from_cache == 1
    long = Transcript.of([Utterance(Span(0, 16000), "main", "word " * 3000, (), ADMITTED)])
    with pytest.raises(BackendError, match=r"too long for 'smollm2' \(HTTP 400, exceed_context_size_error\)"):
        answerer.answer(QUESTION, long)


LOGGING = """
import logging, sys
from cascade.answering.chat import ChatPrompts
from cascade.answering.prompts import Prompt
from cascade.answering.questions import question_of
from cascade.backends import openai
from cascade.types import Transcript
ASKED = Prompt("nobody shows this: {transcript} {question} {options}")
answerer = openai.load("gpt-4o", prompts=ChatPrompts(ASKED, ASKED), base_url=sys.argv[1])
print(answerer.answer(question_of("Who?", ("a", "b")), Transcript()).choice)
print({logging.getLogger(name).level for name in ("openai", "httpx", "httpcore")})
"""


def test_a_prompt_is_not_logged_where_the_environment_wants_the_clients_log() -> None:
    counted = {"prompt_tokens": 10, "completion_tokens": 1}
    with serving(in_turn(good("B", usage=counted))) as server:
        done = subprocess.run(
            [sys.executable, "-c", LOGGING, server.url],
            env={**os.environ, "OPENAI_LOG": "debug", "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n{30}\n", "")
