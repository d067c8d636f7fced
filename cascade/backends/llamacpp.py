"""A chat model in a GGUF file, in this process, by llama.cpp (xllamacpp): nothing leaves the machine.

The letter of an option is decoded under a grammar that allows nothing else, so every reply can be read. The option
probabilities are those of the letters before the grammar (chat.letter_probabilities). Open questions are decoded
freely.

What llama.cpp does not expect of a file, such as a thousand layers, ends the whole process. So a model is loaded and
run in a process of its own first.

llama.cpp's server also listens on a port of 127.0.0.1, whether it is wanted or not. It asks for a key, made anew each
time and told to nobody, and its pages that show prompts are off.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, final

from cascade.answering.chat import ChatPrompts, Sampling, answer_of, chat_request, reply_of
from cascade.answering.questions import LETTERS
from cascade.errors import BackendError, MissingExtraError, ModelError
from cascade.types import Answer, Question, Transcript

CONTEXT: Final = 8192
"""Tokens of prompt and reply: an hour of one speaker's words."""

SAMPLING: Final = Sampling(letter_tokens=2, top_logprobs=200)
"""A letter, and what ends it. Among so many tokens are all letters that have any chance."""

_TRIAL_S: Final = 600
"""Seconds in which the largest model is read from a slow disk; a damaged one may never be."""

_TRIAL: Final = """
import os, secrets, sys, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path = sys.argv[1]
settings.n_ctx, settings.n_gpu_layers, settings.n_parallel, settings.verbosity = 512, 0, 1, -1
settings.offline, settings.api_keys = True, [secrets.token_hex(32)]
settings.endpoint_slots = settings.endpoint_props = settings.endpoint_metrics = settings.ui = False
try:
    kept = xllamacpp.Server(settings)  # one that is let go at once now and then waits for itself without end
except RuntimeError:
    os._exit(3)
os._exit(0)
"""
"""Loads a model and runs it on a token, as llama.cpp does to warm up, with a small context and on no GPU."""

Complete = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A request -> a chat completion, or {"error": ...}; must bear being called from several threads."""


def load(
    model: Path,
    *,
    prompts: ChatPrompts,
    context: int = CONTEXT,
    threads: int = 0,
    gpu_layers: int = -1,
    reuse_prompt: bool = False,
    sampling: Sampling = SAMPLING,
) -> LlamaCppAnswerer:
    """Load a model.

    Args:
        model: The GGUF file.
        prompts: What is asked where a question brings no prompt.
        context: The most tokens of prompt and reply together; takes memory.
        threads: How many cores to use, 0 for all.
        gpu_layers: How many layers go on the GPU; -1 for as many as fit.
        reuse_prompt: As in LlamaCppAnswerer.
        sampling: How the model is made to answer.

    Raises:
        MissingExtraError: xllamacpp is not installed.
        ModelError: The file is missing, or is no model that llama.cpp can load.
    """
    check_gguf(model)
    try:
        import xllamacpp
    except ModuleNotFoundError:
        raise MissingExtraError("xllamacpp", "llamacpp") from None
    _check_trial(model)
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.n_ctx = context
    settings.n_gpu_layers = gpu_layers
    if threads:
        settings.cpuparams.n_threads = threads
    settings.n_parallel = 1  # one question at a time, with the whole context; the others wait
    settings.verbosity = -1
    settings.offline = True
    settings.cache_ram_mib = 0  # else it keeps earlier prompts in memory
    settings.api_keys = [secrets.token_hex(32)]
    settings.endpoint_slots = settings.endpoint_props = settings.endpoint_metrics = settings.ui = False
    try:
        server = xllamacpp.Server(settings)
    except RuntimeError:
        server = None
    if server is None:
        raise _unloadable(model)
    return LlamaCppAnswerer(server.handle_chat_completions, prompts, sampling=sampling, reuse_prompt=reuse_prompt)


def _check_trial(model: Path) -> None:
    """Raise ModelError unless another process can load the model, which is then not ended by it itself."""
    # Without a backtrace, for which llama.cpp would start a debugger; and packages are looked for where they are here.
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        tried = subprocess.run(  # noqa: S603 (a fixed program)
            [sys.executable, "-P", "-c", _TRIAL, str(model.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            env=environment,
            timeout=_TRIAL_S,
        )
    except subprocess.TimeoutExpired:
        raise _unloadable(model) from None
    if tried.returncode:
        raise _unloadable(model)


def _unloadable(model: Path) -> ModelError:
    return ModelError(f"{model.name} is not a model that llama.cpp can load, or not all of it; fetch it again")


def request_of(
    question: Question,
    transcript: Transcript,
    *,
    prompts: ChatPrompts,
    sampling: Sampling = SAMPLING,
    reuse_prompt: bool = False,
) -> dict[str, Any]:
    """Return all that a model is given about a question; the arguments are those of LlamaCppAnswerer."""
    request = chat_request(question, transcript, model="", prompts=prompts, sampling=sampling)
    request |= {"cache_prompt": reuse_prompt, "chat_template_kwargs": {"enable_thinking": False}}
    if question.options:
        request["grammar"] = f'root ::= " "? [{LETTERS[: len(question.options)]}]'
    return request


def check_gguf(model: Path) -> None:
    """Raise ModelError unless the file begins as a GGUF file does."""
    try:
        with model.open("rb") as file:
            begins = file.read(4)
    except OSError as error:
        raise ModelError(f"the model {model} cannot be read: {error.strerror}; name a GGUF file") from None
    if begins != b"GGUF":
        raise ModelError(f"{model} is no GGUF file; fetch the model in that format")


@final
class LlamaCppAnswerer:
    """An Answerer by a model in this process; safe to share between threads, which wait for each other."""

    def __init__(
        self, complete: Complete, prompts: ChatPrompts, *, sampling: Sampling = SAMPLING, reuse_prompt: bool = False
    ) -> None:
        """Answer with what `complete` gives.

        Args:
            complete: Runs the model.
            prompts: What is asked where a question brings no prompt.
            sampling: How the model is made to answer.
            reuse_prompt: Compute only the part of a prompt that differs from the last one. Ten questions about a
                recording then take little more time than one, but probabilities differ in the third digit with the
                order in which they are asked; so it is off unless it is asked for.
        """
        self._complete = complete
        self._prompts = prompts
        self._sampling = sampling
        self._reuse_prompt = reuse_prompt

    def request(self, question: Question, transcript: Transcript) -> dict[str, Any]:
        """Return all that the model is given."""
        return request_of(
            question, transcript, prompts=self._prompts, sampling=self._sampling, reuse_prompt=self._reuse_prompt
        )

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        """Answer from the transcript; `text` is the reply as it came.

        Raises:
            BackendError: The prompt is longer than the context, or llama.cpp failed.
        """
        failed, completion = "", {}
        try:
            completion = dict(self._complete(self.request(question, transcript)))
        except Exception as error:  # llama.cpp's own; its text may quote the prompt
            failed = type(error).__name__
        if failed:
            raise BackendError(
                f"llama.cpp failed on a question with {failed}; its message is hidden: it may quote speech"
            )
        if "error" in completion:
            raise BackendError(_told(completion["error"]))
        try:
            reply = reply_of(completion)
        except ValueError:
            raise BackendError("llama.cpp gave something that is no chat completion; update xllamacpp") from None
        return answer_of(reply, question)


def _told(error: object) -> str:
    """Return one line about an error of llama.cpp's, with numbers and codes only."""
    fields = error if isinstance(error, Mapping) else {}
    needs, has = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(needs, int) and isinstance(has, int):
        return f"the prompt has {needs} tokens, and the context holds {has}; raise 'context', or hear less at a time"
    code = fields.get("code")
    return f"llama.cpp does not take the question (code {code if isinstance(code, int) else 'unknown'})"
