"""What chat models share: what they are sent, what of a reply is kept, and the answer that is read in it.

Requests and completions have the form of OpenAI's chat completions, which llama.cpp, vLLM and Ollama speak too
(https://platform.openai.com/docs/api-reference/chat). All that is sent of a recording is what `fill` puts into the
prompt: the admitted transcript, and the description of the main speaker where the prompt has one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, final

from cascade.answering.declining import read_open
from cascade.answering.prompts import Prompt, fill, load_prompt
from cascade.answering.questions import LETTERS
from cascade.answering.reading import read_choice
from cascade.types import Answer, Outcome, Question, Transcript

REQUEST_VERSION: Final = 1
"""Raised when the same question would be asked in another way, so that no older reply is taken for the new one."""

FILTERED: Final = "content_filter"
"""How a server ends a reply that its content filter cut."""


class ReplyCache(Protocol):
    """Replies by key, from earlier runs too; it may be called from several threads at once."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return what was put under the key, None where there is nothing, or nothing whole."""

    def put(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry that JSON can hold; one that cannot be kept is no error."""


# --- what is sent -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class ChatPrompts:
    """What a model is told when a question brings no prompt of its own: one with options, an open one."""

    choice: Prompt
    open: Prompt


def load_prompts(folder: Path) -> ChatPrompts:
    """Read the default prompts, which fit both modes, from a folder of prompt files.

    Raises:
        ConfigError: One is missing, or is no Prompt.
    """
    return ChatPrompts(load_prompt(folder / "general.txt"), load_prompt(folder / "open_general.txt"))


@final
@dataclass(frozen=True, slots=True)
class Sampling:
    """How a model is made to answer; its temperature is always 0.

    seed: for servers that have one. letter_tokens, open_tokens: the longest reply to a question with options and to an
    open one. top_logprobs: how many tokens the server gives probabilities of (OpenAI: at most 20), 0 for none.
    """

    seed: int = 1
    letter_tokens: int = 16
    open_tokens: int = 128
    top_logprobs: int = 20


def chat_request(
    question: Question, transcript: Transcript, *, model: str, prompts: ChatPrompts, sampling: Sampling
) -> dict[str, Any]:
    """Return all that a chat model is sent about a question: one user message, and how to sample.

    Args:
        question: Its own prompt is used if it has one.
        transcript: Its admitted text alone goes in.
        model: The server's name for the model.
        prompts: The default prompts.
        sampling: Log-probabilities are asked for only where there are options.
    """
    default = prompts.choice if question.options else prompts.open
    request: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": fill(question.prompt or default.text, question, transcript)}],
        "temperature": 0,
        "seed": sampling.seed,
        "max_tokens": sampling.letter_tokens if question.options else sampling.open_tokens,
    }
    if question.options and sampling.top_logprobs:
        request |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
    return request


@final
class ShowsRequest:
    """An Answerer that answers with what a chat model would be sent; nothing is sent."""

    def __init__(self, request: Callable[[Question, Transcript], Mapping[str, Any]]) -> None:
        self._request = request

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        """Return the request as JSON."""
        request = self._request(question, transcript)
        return Answer(json.dumps(request, ensure_ascii=False, indent=2), Outcome.ANSWERED)


def request_key(server: str, request: Mapping[str, Any]) -> str:
    """Return a hash, in hex, of everything that determines a reply: the server's address and all that it is sent."""
    canonical = json.dumps([REQUEST_VERSION, server, request], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


# --- what comes back --------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Token:
    """A token of a reply; letters are the option letters that could have stood there, and their log-probabilities."""

    text: str
    letters: tuple[tuple[str, float], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said, how it ended ("stop", "length", FILTERED), what it said instead of an answer, its tokens."""

    text: str
    finish: str = "stop"
    refusal: str = ""
    tokens: tuple[Token, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether the model answered in words, so that there is no need to ask again."""
        return bool(self.text.strip()) and not self.refusal and self.finish != FILTERED


@final
class BrokenOffError(ValueError):
    """A chat completion that says that the server failed on it; nothing in it is an answer."""


_ENDS: Final = frozenset(
    {
        "", "stop", "length", FILTERED, "tool_calls", "function_call",
        "end", "end_turn", "eos", "eos_token", "max_tokens", "model_length", "stop_sequence",
    }
)  # fmt: skip
"""How a reply ends that the model ended, or a limit or a filter did: in OpenAI's words, and in those of others."""

_FAILURES: Final = frozenset(
    {
        "abort", "aborted", "canceled", "cancelled", "error", "failed", "insufficient_system_resource",
        "network_error", "timeout",
    }
)  # fmt: skip
"""How a reply ends that the server did not finish."""


def reply_of(completion: object) -> Reply:
    """Read a chat completion.

    Raises:
        BrokenOffError: It says that the server failed, be it in part of it; or nothing is said, for a reason that
            nobody knows.
        ValueError: It is none; what came is not quoted.
    """
    choices = completion.get("choices") if isinstance(completion, Mapping) else None
    choice = choices[0] if isinstance(choices, Sequence) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise ValueError("not a chat completion")
    texts = [message.get("content"), choice.get("finish_reason"), message.get("refusal")]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError("a chat completion with something other than text in it")
    text, finish, refusal = (text or "" for text in texts)
    how = finish.lower()
    if choice.get("error") or message.get("error") or how in _FAILURES:
        raise BrokenOffError(_broken_off(choice.get("error") or message.get("error")))
    if not (text.strip() or refusal) and how not in _ENDS:
        raise BrokenOffError("it says nothing, and ended for a reason that is not known")
    return Reply(text, finish, refusal, tuple(_tokens(choice.get("logprobs"))))


def _broken_off(error: object) -> str:
    """Say that a server failed, with the code that it gives if that is one of HTTP's."""
    code = error.get("code") if isinstance(error, Mapping) else None
    known = f" (HTTP {code})" if type(code) is int and 400 <= code < 600 else ""
    return f"what came back says that the model's server failed{known}"


def essence(reply: Reply) -> dict[str, Any]:
    """Return a chat completion with nothing but what `reply_of` reads in it, to be kept."""
    tokens = [
        {
            "token": token.text,
            "top_logprobs": [{"token": letter, "logprob": chance} for letter, chance in token.letters],
        }
        for token in reply.tokens
    ]
    message = {"content": reply.text, "refusal": reply.refusal}
    return {"choices": [{"finish_reason": reply.finish, "message": message, "logprobs": {"content": tokens}}]}


def _tokens(logprobs: object) -> Iterator[Token]:
    """Yield the tokens of a completion whose log-probabilities can be read; a server need not have any."""
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    for token in content if isinstance(content, list) else []:
        if isinstance(token, Mapping) and isinstance(token.get("token"), str):
            own = token["token"]
            others = token.get("top_logprobs")
            candidates = [each for each in others if isinstance(each, Mapping)] if isinstance(others, list) else []
            if own not in [each.get("token") for each in candidates]:
                candidates.append(token)
            yield Token(own, tuple(_letter_chances(candidates)))


def _letter_chances(candidates: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield the candidates that are letters, with their log-probabilities."""
    for each in candidates:
        text, logprob = each.get("token"), each.get("logprob")
        if (
            isinstance(text, str)
            and (letter := _letter(text))
            and isinstance(logprob, int | float)
            and -1e9 < logprob <= 0
        ):
            yield letter, float(logprob)


_AROUND_A_LETTER: Final = " \t\n▁Ġ*_`$()[]{}<>.,:;\"'"
"""What a tokeniser may have put into one token with a letter."""


def _letter(token: str) -> str:
    """Return the option letter that a token is, empty if it is none."""
    bare = token.strip(_AROUND_A_LETTER)
    return bare if len(bare) == 1 and bare in LETTERS else ""


def letter_probabilities(tokens: Sequence[Token], choice: int, n_options: int) -> tuple[float, ...]:
    """Return the probability of each option, (n_options,), where the reply names the chosen one's letter.

    They are those of the letters at that place of the reply, in all the ways in which a token may write them, and sum
    to 1 over the options: what the model would rather have said there is left out. A letter that the server does not
    list among its likeliest tokens has probability 0.

    Returns:
        Nothing where the server gave no log-probabilities, or the reply does not name the letter.
    """
    place = next((token for token in tokens if _letter(token.text) == LETTERS[choice]), None)
    if place is None:
        return ()
    chances = [0.0] * n_options
    for letter, logprob in place.letters:
        if LETTERS.index(letter) < n_options:
            chances[LETTERS.index(letter)] += math.exp(logprob)
    total = sum(chances)
    return tuple(chance / total for chance in chances) if total > 0 else ()


# --- the answer -------------------------------------------------------------------------------------------------------


def answer_of(reply: Reply, question: Question) -> Answer:
    """Read the answer in a reply; its text is the reply as it is, and `why` what was read in it.

    A reply that a filter cut is FILTERED whatever is left of it, and one without words is EMPTY: neither is read.
    """
    if reply.finish == FILTERED:
        return Answer(reply.text, Outcome.FILTERED, why="the server's content filter cut the reply")
    if reply.refusal:
        return Answer(reply.text or reply.refusal, Outcome.REFUSED, why="the model refused")
    if not reply.text.strip():
        return Answer(reply.text, Outcome.EMPTY, why=_cut_off("nothing is said", reply))
    return _chosen(reply, question) if question.options else _spoken(reply, question)


def _chosen(reply: Reply, question: Question) -> Answer:
    """Read the choice of an option."""
    reading = read_choice(reply.text, question)
    if reading.choice is None:
        return Answer(reply.text, reading.outcome, why=_cut_off(reading.why, reply))
    chances = letter_probabilities(reply.tokens, reading.choice, len(question.options))
    return Answer(reply.text, reading.outcome, reading.choice, reading.why, chances)


def _spoken(reply: Reply, question: Question) -> Answer:
    """Read the answer to an open question: is it one, does it say "I don't know", is it a refusal?"""
    reading = read_open(reply.text, question.text)
    whys = {
        Outcome.DONT_KNOW: '"I don\'t know" in words',
        Outcome.REFUSED: "a refusal",
        Outcome.EMPTY: _cut_off("nothing is said", reply),
        Outcome.ANSWERED: _cut_off("", reply),
    }
    return Answer(reply.text, reading.outcome, why=whys[reading.outcome])


def _cut_off(why: str, reply: Reply) -> str:
    """Add that the reply was longer than the server was allowed to make it."""
    cut_off = ["the reply was cut off at its longest allowed length"] if reply.finish == "length" else []
    return "; ".join([*([why] if why else []), *cut_off])
