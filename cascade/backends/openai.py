"""Chat models behind OpenAI's protocol: GPT-4o, and whatever speaks like it (vLLM, llama.cpp's server, Ollama).

Each thing that can go wrong has one outcome:

    no connection, and there never was one   tried UNREACHED_TRIES times; then nothing more is asked
    429, 408, 409, 425, 5xx, not all of an   tried again, later and later, when the server says so if it does; given up
    answer in time, a connection that        after `max_retries`. When DEAD_AFTER or SILENT_AFTER questions in a row
    breaks, a body that is too large or no   were given up, the server is taken for dead: nothing more is asked
    chat completion, or one that says that
    it was broken off
    no quota, 401, 402, 403, 404, redirects  nothing more is asked
    the cost could pass `max_cost`           nothing more is asked
    a prompt that is too long, other 4xx     this question fails; so it does where the server shortened the prompt
    a content filter                         Outcome.FILTERED
    an empty reply, a refusal                Outcome.EMPTY, Outcome.REFUSED
    no log-probabilities on this server      asked without them, once and for all; no probabilities then

A question that fails is a BackendError of one line, and never an answer; where nothing more is asked, it is a
NoMoreAnswersError. A request that is under way by then ends as it would, and replies in the cache are still given.
Neither the line nor anything that hangs on it holds prompt or reply: of a server's error only its status and those of
its codes are shown that are known (faults.KNOWN_CODES).

Nothing is sent but `chat_request`, to `base_url` alone: redirects are not followed, proxies in the environment not
used, and headers are those of a closed list (cascade.backends.bounded).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import weakref
from collections.abc import Callable, Mapping
from threading import BoundedSemaphore
from typing import Any, Final, final
from urllib.parse import urlsplit

from cascade.answering.chat import (
    BrokenOffError,
    ChatPrompts,
    Reply,
    ReplyCache,
    Sampling,
    answer_of,
    chat_request,
    essence,
    reply_of,
    request_key,
)
from cascade.answering.faults import NO_COMPLETION, FaultError, Kind, fault_of
from cascade.answering.pacing import Clock, Halt, Health, Pace
from cascade.answering.spending import Budget, Price, Prices, Spent, Usage, usage_of
from cascade.backends.bounded import Client
from cascade.errors import (
    BackendError,
    CascadeError,
    ConfigError,
    MissingExtraError,
    NoMoreAnswersError,
    NotReadyError,
)
from cascade.types import Answer, Outcome, Question, Transcript

OPENAI: Final = "https://api.openai.com/v1"
KEY_VARIABLE: Final = "OPENAI_API_KEY"

CONCURRENCY: Final = 8
TIMEOUT_S: Final = 60.0
MAX_RETRIES: Final = 6
UNREACHED_TRIES: Final = 3
"""How often a server is tried that was never reached in this run, at most, within some 1.5 s if it is refused at once.

A name that nobody knows and a port on which nobody listens are mistakes in base_url, or a server that was not started;
waiting does not mend them. A few tries bear a packet that got lost. A server that was there, and is gone, is another
matter: it may be restarting, and a run of hours is worth the longer wait.
"""

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
"""Between two tries at random up to the first, doubled each time, at most the second."""

LONGEST_RETRY_AFTER_S: Final = 120.0
"""A server that asks for a longer wait is given up: it means a limit for hours or a day, and nobody waits for that."""

STOPPED: Final = "stopped; nothing more is asked"

MESSAGE_TOKENS: Final = 64
"""More than any server's chat template adds to a single message."""

log = logging.getLogger(__name__)

Create = Callable[..., Any]
"""Sends a request, whose parts are its keyword arguments, and returns a completion: the client's `create`."""


def load(
    model: str,
    *,
    prompts: ChatPrompts,
    base_url: str | None = None,
    api_key_env: str | None = None,
    concurrency: int = CONCURRENCY,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    timeout_s: float = TIMEOUT_S,
    max_retries: int = MAX_RETRIES,
    max_cost: float | None = None,
    prices: Prices | None = None,
    price: Price | None = None,
    cache: ReplyCache | None = None,
    sampling: Sampling | None = None,
    clock: Clock | None = None,
) -> OpenAIAnswerer:
    """Return an answerer that asks a server; nothing is sent before the first question.

    Args:
        model: The server's name for the model.
        prompts: What is asked where a question brings no prompt.
        base_url: Where the server is; None for OpenAI's own.
        api_key_env: The environment variable that holds the key. None: OpenAI's own server is given the key in
            OPENAI_API_KEY, and any other none.
        concurrency: The most requests at a time.
        requests_per_minute: The most requests in a minute; None for no limit.
        tokens_per_minute: The most tokens in a minute; None for no limit.
        timeout_s: How long a request may take, from finding the server to the last byte of its answer.
        max_retries: How often a question is tried again.
        max_cost: US dollars that are never passed.
        prices: What models cost (spending.read_prices).
        price: What this one costs, whatever the table says.
        cache: Where replies are kept.
        sampling: How the model is made to answer.
        clock: Time.

    Raises:
        MissingExtraError: The package `openai` or `tenacity` is not installed.
        NotReadyError: There is no key where one is needed.
        ConfigError: The address is none, api_key_env names no variable, or a limit on the cost is given for a model
            without a price.
    """
    url = check_url(base_url)
    if api_key_env is not None and not is_variable(api_key_env):
        raise ConfigError(f"api_key_env: {NO_VARIABLE}")
    budget = Budget(price or (prices or {}).get((host_of(url), model)), max_cost)
    variable = key_variable(url, api_key_env)
    client = _client(url, api_key(url, variable), timeout_s)
    if readable := who_can_read(url, variable):
        log.warning("%s", readable)
    halt = Halt()
    clock = clock or Clock(sleep=halt.sleep)
    answerer = OpenAIAnswerer(
        client.create,
        client.stop,
        server=url,
        model=model,
        prompts=prompts,
        sampling=sampling or Sampling(),
        key_variable=variable,
        concurrency=concurrency,
        max_retries=max_retries,
        pace=Pace(requests_per_minute, tokens_per_minute, clock),
        budget=budget,
        cache=cache,
        clock=clock,
        halt=halt,
    )
    weakref.finalize(answerer, client.close)
    return answerer


# --- before anything is sent ------------------------------------------------------------------------------------------


NO_ADDRESS: Final = "base_url is no address of a server; expected one such as http://localhost:8000/v1"

_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_ADDRESS = re.compile(
    rf"https?://(?:(?P<name>{_LABEL}(?:\.{_LABEL})*)\.?|\[(?P<ipv6>[0-9a-f:.]+)\])(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?:/[a-z0-9._~!$&'()*+,;=:%-]*)*",
    re.IGNORECASE | re.ASCII,
)
"""Less than a URL may be: letters and line breaks that one parser takes and another does not are in none of ours."""


def check_url(base_url: str | None) -> str:
    """Return the server's address without a slash at its end.

    Raises:
        ConfigError: It is no address, or holds a password, which belongs into the environment.
    """
    url = (OPENAI if base_url is None else base_url).rstrip("/")
    if re.search("[@?#]", url):
        raise ConfigError("base_url holds a name, a password, '?' or '#'; give the key in the environment instead")
    if not _is_address(url):
        raise ConfigError(NO_ADDRESS)
    return url


def _is_address(url: str) -> bool:
    """Tell whether a text is the address of a server, for whoever parses it."""
    parts = _ADDRESS.fullmatch(url)
    if parts is None or not 0 < int(parts["port"] or 1) < 65536:
        return False
    try:
        if parts["ipv6"]:
            ipaddress.IPv6Address(parts["ipv6"])
        elif re.search(r"(?:^|\.)[0-9]+$", parts["name"]):
            ipaddress.IPv4Address(parts["name"])
    except ValueError:
        return False
    return len(parts["name"] or "") <= 253


def host_of(url: str) -> str:
    """Return the host of an address, with its port if it names one."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def is_loopback(url: str) -> bool:
    """Tell whether a server is on this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or re.fullmatch(r"127\.\d+\.\d+\.\d+", host) is not None


def key_variable(url: str, named: str | None) -> str | None:
    """Return the environment variable whose key the server is given, None for no key.

    The key in OpenAI's own variable is for OpenAI alone: another server is given a key only if it is named.
    """
    return named or (KEY_VARIABLE if is_openai(url) else None)


NO_VARIABLE: Final = (
    "expected the name of an environment variable, such as OPENAI_API_KEY, in capitals, and not the key itself"
)

_LONGEST_NAME: Final = 64
_RANDOM = re.compile(r"(?=[A-Z]*[0-9])[A-Z0-9]{16,}")


def is_variable(name: str) -> bool:
    """Tell whether a text can be shown as the name of an environment variable, since it does not look like a key.

    A key put there by mistake would be printed as a name. Most have small letters; others are long, or have many
    letters and digits in a row.
    """
    if len(name) > _LONGEST_NAME or not re.fullmatch("[A-Z_][A-Z0-9_]*", name):
        return False
    return not any(_RANDOM.fullmatch(word) for word in name.split("_"))


def is_openai(url: str) -> bool:
    """Tell whether a server is OpenAI's own, and nobody can stand between."""
    return url.lower().startswith("https://") and host_of(url) in ("api.openai.com", "api.openai.com:443")


def who_can_read(url: str, variable: str | None) -> str | None:
    """Say what the network can read on the way to a server, None if it can read nothing."""
    if url.lower().startswith("https://") or is_loopback(url):
        return None
    key = f" and the key in {variable}" if variable else ""
    return f"{host_of(url)} is asked without encryption: the network in between can read transcripts{key}"


def api_key(url: str, variable: str | None) -> str:
    """Return the key from the environment, empty where none is needed.

    Raises:
        NotReadyError: It is needed and not there, or cannot be one; it is not shown.
    """
    if variable is None:
        return ""
    key, needed = os.environ.get(variable, ""), not is_loopback(url)
    if fault := key_fault(variable, key, needed=needed):
        raise NotReadyError(
            [f"{host_of(url)} needs a key, and {fault}: export {variable}=..."]
            if not key.strip()
            else [f"{fault}; export {variable}=YOUR_KEY"]
        )
    return key.strip()


def key_fault(variable: str, key: str, *, needed: bool) -> str | None:
    """Say what is wrong with the key in an environment variable without showing it, None if nothing is.

    needed tells whether the server is on another machine. One on this machine may do without a key, and have one that
    looks like a placeholder.
    """
    where = f"the environment variable {variable}"
    if not key.strip():
        return f"{where} {'holds only blanks' if key else 'is not set'}" if needed else None
    if needed and is_placeholder(key):
        return f"{where} holds a placeholder in the place of a key"
    if not re.fullmatch("[!-~]+", key.strip()):
        return f"{where} holds something that no key holds, such as a space, a line break or a letter beyond ASCII"
    return None


_PLACEHOLDER = re.compile(
    r".*(?:\.{3}|…).*|<.*>|\$\{?\w+\}?|(?:sk[-_])?(?:x+|\*+)|.*your[-_ ]?(?:\w+[-_ ]?)?(?:key|token).*"
    r"|(?:changeme|todo|(?:openai[-_ ]?)?api[-_ ]?key|key|secret)",
    re.IGNORECASE,
)


def is_placeholder(key: str) -> bool:
    """Tell whether a key is what instructions put in the place of one, such as "..." or "<your key>"."""
    return _PLACEHOLDER.fullmatch(key.strip()) is not None


def _client(url: str, key: str, timeout_s: float) -> Client:
    """Return a client of the `openai` package that speaks to this address alone, and says nothing of this machine."""
    try:
        import tenacity  # noqa: F401

        client = Client(url, key, timeout_s, is_openai=is_openai(url))
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "chat") from None
    except ValueError:
        raise ConfigError(NO_ADDRESS) from None
    # Some releases log whole requests when the program logs at DEBUG, or OPENAI_LOG says so, which is read on import.
    for name in ("openai", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return client


# --- asking -----------------------------------------------------------------------------------------------------------


@final
class OpenAIAnswerer:
    """An Answerer that asks a server; safe to share between threads. `spent` says what it took so far."""

    def __init__(
        self,
        create: Create,
        end_requests: Callable[[], None],
        *,
        server: str,
        model: str,
        prompts: ChatPrompts,
        sampling: Sampling,
        key_variable: str | None,
        concurrency: int,
        max_retries: int,
        pace: Pace,
        budget: Budget,
        cache: ReplyCache | None,
        clock: Clock,
        halt: Halt,
    ) -> None:
        self._create = create
        self._end_requests = end_requests
        self._server = server
        self._model = model
        self._prompts = prompts
        self._sampling = sampling
        self._key_variable = key_variable
        self._places = BoundedSemaphore(concurrency)
        self._tries = max_retries + 1
        self._pace = pace
        self._budget = budget
        self._cache = cache
        self._clock = clock
        self._halt = halt
        self._health = Health()
        self._no_logprobs = False

    @property
    def spent(self) -> Spent:
        """Requests, tokens and cost so far."""
        return self._budget.spent

    def count_before(self, before: Spent) -> None:
        """Count what the same run spent before it was stopped against the limit, too; it is not in `spent`."""
        self._budget.count_before(before)

    def stop(self) -> None:
        """End all waits, and all requests that are not answered at once; nothing more is asked then.

        What a request that is ended may cost counts as not sure.
        """
        self._health.doom(STOPPED)
        self._budget.stop(STOPPED)
        self._halt.call()
        self._end_requests()

    def request(self, question: Question, transcript: Transcript) -> dict[str, Any]:
        """Return all that the server would be sent, without sending it."""
        request = chat_request(question, transcript, model=self._model, prompts=self._prompts, sampling=self._sampling)
        if self._no_logprobs:
            request = {name: value for name, value in request.items() if name not in ("logprobs", "top_logprobs")}
        return request

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        """Answer from the cache, or ask the server.

        `text` is the reply as it came, and `why` what was read in it. The probabilities are those of the option letters
        (chat.letter_probabilities), where the server has them.

        Raises:
            BackendError: The module's text lists when.
            NoMoreAnswersError: Nothing more is asked.
        """
        request = self.request(question, transcript)
        key = request_key(self._server, request)
        kept = self._kept(key)
        if kept is not None:
            return answer_of(kept, question)
        reply = self._asked(request)
        if isinstance(reply, Reply):
            if self._cache is not None and reply.is_good:
                self._cache.put(key, essence(reply))
            return answer_of(reply, question)
        if reply.kind is Kind.FILTERED:
            return Answer("", Outcome.FILTERED, why="the server's content filter refused the question")
        if reply.kind is Kind.NO_LOGPROBS:
            if not self._no_logprobs:
                log.warning(
                    "%s has no log-probabilities, or not so many (top_logprobs); answers come without option "
                    "probabilities",
                    self._host,
                )
            self._no_logprobs = True
            return self.answer(question, transcript)
        raise self._failure(reply, request)

    def _kept(self, key: str) -> Reply | None:
        """Return the cached reply, None where there is none that can be read."""
        entry = self._cache.get(key) if self._cache is not None else None
        if entry is None:
            return None
        try:
            reply = reply_of(entry)
        except ValueError:
            reply = None
        if reply is None or not reply.is_good:
            log.warning("a cached reply cannot be read; it is asked again")
            return None
        self._budget.answered(from_cache=True)
        return reply

    def _asked(self, request: Mapping[str, Any]) -> Reply | FaultError:
        """Ask as often as it takes and is allowed; return what came of it.

        Raises:
            NoMoreAnswersError: Nothing more is asked.
        """
        from tenacity import Retrying, retry_if_exception

        tries = self._health.tries(self._tries)
        retrying = Retrying(
            sleep=self._clock.sleep,
            stop=lambda state: state.attempt_number >= self._most_tries(tries, state) or _asks_too_long(state),
            wait=_wait,
            retry=retry_if_exception(lambda error: isinstance(error, FaultError) and error.kind is Kind.PASSING),
            reraise=True,
        )
        try:
            reply: Reply | FaultError = retrying(self._ask, request)
            return reply
        except FaultError as error:
            # Without its traceback, whose frames hold the prompt.
            return error.with_traceback(None)

    def _most_tries(self, tries: int, state: Any) -> int:
        """Return how often a question is tried that failed now."""
        unreached = getattr(state.outcome.exception(), "unreached", False)
        return min(tries, UNREACHED_TRIES) if unreached and not self._health.was_reached else tries

    def _ask(self, request: Mapping[str, Any]) -> Reply:
        """Ask once, when there is a place and it is time."""
        prompt = request["messages"][0]["content"]
        guess = len(prompt) / 4 + request["max_tokens"]
        with self._places:
            self._check()
            self._pace.wait(guess)
            self._check()
            # No token is shorter than a byte.
            most = Usage(len(prompt.encode()) + MESSAGE_TOKENS, completion=request["max_tokens"])
            reserved = self._budget.reserve(most)
            usage, billed = None, True
            try:
                completion = self._send(request)
                usage = usage_of(completion)
                reply = _whole_reply(completion, usage, prompt)
            except FaultError as fault:
                billed = fault.billed
                self._note(fault)
                raise
            finally:
                self._budget.settle(reserved, usage, billed=billed)
        self._health.reached()
        self._health.heard()
        self._budget.answered(from_cache=False)
        if usage is not None:
            # No more than was possible: else a server that counts wrongly would hold up the next question for ever.
            self._pace.correct(min(usage.prompt + usage.completion, most.prompt + most.completion) - guess)
        return reply

    def _check(self) -> None:
        """Raise NoMoreAnswersError if nothing more is asked."""
        trouble = self._health.trouble
        if trouble is not None:
            raise NoMoreAnswersError(trouble)

    def _send(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request through the client, and return the completion; a FaultError says what went wrong."""
        try:
            return _as_mapping(self._create(**request))
        except CascadeError:
            raise
        except Exception as error:  # the client's own, TimeoutError, and ValueError for a body that is no JSON
            fault = fault_of(error, request, self._clock.now)
        if self._halt.called:
            raise NoMoreAnswersError(STOPPED)
        # Raised out here so that the client's exception, which holds prompt and reply, is not chained to this one.
        raise fault

    def _note(self, fault: FaultError) -> None:
        """Let a fault have its effect on what else is asked."""
        if not fault.unreached:
            self._health.reached()
        if fault.kind is not Kind.PASSING:
            self._health.heard()
        elif fault.retry_after_s is not None and fault.retry_after_s <= LONGEST_RETRY_AFTER_S:
            self._pace.pause(fault.retry_after_s)

    def _failure(self, fault: FaultError, request: Mapping[str, Any]) -> BackendError:
        """Return the one line that a fault ends in, and stop asking if that is what it means."""
        match fault.kind:
            case Kind.FINAL:
                self._health.doom(f"{self._host}: {self._final(str(fault))}; nothing more is asked")
                return NoMoreAnswersError(self._health.trouble)
            case Kind.TOO_LONG:
                prompt = request["messages"][0]["content"]
                return BackendError(
                    f"{self._host}: the prompt of {len(prompt)} characters (some {len(prompt) // 4} tokens) is too "
                    f"long for '{self._model}' ({fault}); use a model with a larger context, or a shorter recording"
                )
            case Kind.PASSING if fault.unreached and not self._health.was_reached:
                self._health.doom(
                    f"{self._host} was never reached: {fault}; {_way_there(fault)}; nothing more is asked"
                )
                return NoMoreAnswersError(self._health.trouble)
            case Kind.PASSING:
                why = f"{self._host}: {fault}"
                if fault.retry_after_s is not None and fault.retry_after_s > LONGEST_RETRY_AFTER_S:
                    why += f"; it asks to wait {fault.retry_after_s:.0f} s, which is not waited for: come back later"
                elif fault.unreached:
                    why += "; it was there before, and trying again did not help: see that it runs, and the network"
                else:
                    why += "; trying again did not help: see that it is well, or lower 'concurrency' and the limits"
                self._health.gave_up(why, any_question=fault.any_question)
                trouble = self._health.trouble
                return BackendError(why) if trouble is None else NoMoreAnswersError(trouble)
        return BackendError(
            f"{self._host} does not take the question ({fault}); see that it knows this kind of request"
        )

    def _final(self, text: str) -> str:
        """Say what to do about a fault that no further try can change."""
        hints = {
            "insufficient_quota": "the account has no quota left; add credit, or use another key",
            "billing": "the account's billing does not allow it; look at its settings",
            "HTTP 401": self._key_hint,
            "HTTP 402": "the account has no credit left; add some, or use another key",
            "HTTP 403": f"the key may not use '{self._model}', or not from here; use another key or model",
            "HTTP 404": f"there is no model '{self._model}', or no server under base_url, which mostly ends in /v1",
            "HTTP 3": "it points to another address, which is not followed; give that one as base_url",
        }
        hint = next(hint for sign, hint in hints.items() if sign in text)
        return f"{hint} ({text})"

    @property
    def _key_hint(self) -> str:
        if self._key_variable is None:
            return "it wants a key, and is given none; name the variable of its key in the configuration: api_key_env"
        return f"the key is not accepted; set another: export {self._key_variable}=..."

    @property
    def _host(self) -> str:
        return host_of(self._server)


def _way_there(fault: FaultError) -> str:
    """Say what to look at where there is no connection."""
    if "gaierror" in str(fault):
        return "nobody knows that name: check base_url, and the network"
    if "Refused" in str(fault):
        return "nothing listens there: start the server, or check base_url"
    return "check base_url, and the network"


def _as_mapping(completion: Any) -> Mapping[str, Any]:
    """Return a completion of the client's as JSON has it; ValueError if it is none."""
    if not hasattr(completion, "to_dict"):  # a body that is not JSON comes as text
        raise ValueError("not a chat completion")
    fields: Mapping[str, Any] = completion.to_dict(warnings=False)  # which would quote what is of the wrong type
    return fields


def _whole_reply(completion: Mapping[str, Any], usage: Usage | None, prompt: str) -> Reply:
    """Read a completion whose prompt was read to its end; FaultError if it was not, or if it is no completion.

    Some servers cut a prompt that is longer than their context and say nothing (Ollama: num_ctx). No tokeniser makes
    fewer tokens than there are words.
    """
    words = len(prompt.split())
    if usage is not None and usage.prompt < 0.9 * words:
        raise FaultError(Kind.TOO_LONG, f"it read {usage.prompt} tokens of {words} words", billed=True)
    try:
        return reply_of(completion)
    except BrokenOffError as error:
        fault = str(error)
    except ValueError:
        fault = NO_COMPLETION
    raise FaultError(Kind.PASSING, fault, billed=True)


def _asks_too_long(state: Any) -> bool:
    """Tell whether the server asks for a wait that nobody waits for."""
    retry_after_s = getattr(state.outcome.exception(), "retry_after_s", None)
    return retry_after_s is not None and retry_after_s > LONGEST_RETRY_AFTER_S


def _wait(state: Any) -> float:
    """Return how long to wait before the next try [s]: never less than the server asks for, and never all at once."""
    from tenacity import wait_random, wait_random_exponential

    retry_after_s = getattr(state.outcome.exception(), "retry_after_s", None)
    if retry_after_s is None:
        return float(wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S)(state))
    return float(retry_after_s + wait_random(0, FIRST_WAIT_S)(state))
