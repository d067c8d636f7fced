"""What chat models are sent, and what is read in what comes back, whatever that is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.chat import (
    ChatPrompts,
    Reply,
    Sampling,
    Token,
    answer_of,
    chat_request,
    essence,
    letter_probabilities,
    load_prompts,
    reply_of,
    request_key,
)
from cascade.answering.prompts import Prompt
from cascade.answering.questions import LETTERS, question_of
from cascade.errors import ConfigError
from cascade.packaged import data_folder
from cascade.types import Outcome, Transcript

OPTIONS = ("nine", "ten", "eleven", "I don't know")
QUESTION = question_of("Which platform?", OPTIONS)
OPEN = question_of("Which platform?")
PROMPTS = ChatPrompts(Prompt("{question} {options}"), Prompt("{question}"))

TOKENS = st.builds(
    Token,
    st.text(max_size=3) | st.sampled_from([*LETTERS, " A", "(B", "**C**", "▁D"]),
    st.lists(st.tuples(st.sampled_from(LETTERS), st.floats(-1e8, 0)), max_size=6).map(tuple),
)
REPLIES = st.builds(
    Reply,
    st.text(max_size=40) | st.sampled_from(["B", "(C) eleven", "I don't know.", "I cannot help.", "\ud800", "\0"]),
    st.sampled_from(["stop", "length", "content_filter", ""]),
    st.text(max_size=5),
    st.lists(TOKENS, max_size=4).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(-(10**400)) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "message",
                    "content",
                    "refusal",
                    "finish_reason",
                    "logprobs",
                    "token",
                    "logprob",
                    "top_logprobs",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(REPLIES)
def test_what_is_kept_of_a_reply_is_all_that_is_read_of_it(reply: Reply) -> None:
    assert reply_of(json.loads(json.dumps(essence(reply)))) == reply


@given(REPLIES, st.sampled_from([QUESTION, OPEN]))
def test_every_reply_has_an_outcome(reply: Reply, question: Any) -> None:
    answer = answer_of(reply, question)
    assert (answer.outcome is Outcome.FILTERED) == (reply.finish == "content_filter")
    assert answer.choice is None or answer.outcome in (Outcome.ANSWERED, Outcome.DONT_KNOW)
    assert len(answer.probabilities) in (0, len(question.options))
    assert answer.text in (reply.text, reply.refusal)


@given(JSON)
def test_what_is_no_completion_is_said_to_be_none(fields: Any) -> None:
    for completion in (fields, {"choices": fields}, {"choices": [{"message": {"content": "B"}, "logprobs": fields}]}):
        try:
            reply = reply_of(completion)
        except ValueError:
            continue
        answer_of(reply, QUESTION)


@given(st.lists(TOKENS, max_size=4), st.integers(0, 4), st.integers(1, 5))
def test_probabilities_sum_to_one_or_there_are_none(tokens: list[Token], choice: int, n_options: int) -> None:
    chances = letter_probabilities(tokens, min(choice, n_options - 1), n_options)
    assert not chances or (len(chances) == n_options and sum(chances) == pytest.approx(1))
    assert all(0 <= chance <= 1 for chance in chances)


def test_probabilities_are_those_where_the_reply_names_its_letter() -> None:
    def _token(text: str, **letters: float) -> Token:
        return Token(text, tuple((letter, math.log(chance)) for letter, chance in letters.items()))

    tokens = [_token("The"), _token(" A", A=0.9, B=0.1), _token(" dog"), _token(" (B", A=0.2, B=0.6), _token(")", C=1)]
    assert letter_probabilities(tokens, 1, 3) == pytest.approx((0.25, 0.75, 0))
    assert letter_probabilities(tokens, 2, 3) == ()
    assert letter_probabilities([], 0, 3) == ()


def test_a_letter_is_read_however_the_tokeniser_writes_it() -> None:
    candidates = [
        {"token": text, "logprob": math.log(0.1)}
        for text in ("A", " A", "▁A", "Ġ(A", "**A**", "A.", "B", "a", "AB", "")
    ]
    content = [{"token": "A", "logprob": math.log(0.1), "top_logprobs": candidates}]
    completion = {"choices": [{"message": {"content": "A"}, "logprobs": {"content": content}}]}
    assert answer_of(reply_of(completion), QUESTION).probabilities == pytest.approx((6 / 7, 1 / 7, 0, 0))


def test_a_token_that_is_not_among_its_own_candidates_counts_too() -> None:
    content = [{"token": "C", "logprob": math.log(0.3), "top_logprobs": [{"token": "A", "logprob": math.log(0.1)}]}]
    completion = {"choices": [{"message": {"content": "C"}, "logprobs": {"content": content}}]}
    assert answer_of(reply_of(completion), QUESTION).probabilities == pytest.approx((0.25, 0, 0.75, 0))


def test_the_packaged_prompts_can_be_asked_with() -> None:
    prompts = load_prompts(data_folder("configs") / "prompts")
    sampling = Sampling()
    closed = chat_request(QUESTION, Transcript(), model="m", prompts=prompts, sampling=sampling)
    assert "D. I don't know" in closed["messages"][0]["content"]
    spoken = chat_request(OPEN, Transcript(), model="m", prompts=prompts, sampling=sampling)
    assert "one short sentence" in spoken["messages"][0]["content"]


def test_prompts_that_are_missing_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no prompt file .*general.txt"):
        load_prompts(tmp_path)


def test_log_probabilities_can_be_left_out() -> None:
    request = chat_request(QUESTION, Transcript(), model="m", prompts=PROMPTS, sampling=Sampling(top_logprobs=0))
    assert not {"logprobs", "top_logprobs"} & request.keys()


def test_a_key_depends_on_the_server_and_on_all_that_it_is_sent() -> None:
    request = chat_request(QUESTION, Transcript(), model="m", prompts=PROMPTS, sampling=Sampling())
    keys = {request_key("http://a", request), request_key("http://b", request)}
    keys |= {request_key("http://a", {**request, name: "changed"}) for name in request}
    assert len(keys) == 2 + len(request)
    assert request_key("http://a", dict(reversed(request.items()))) == request_key("http://a", request)
