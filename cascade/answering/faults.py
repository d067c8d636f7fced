"""What an error of a chat server means: try again, ask nothing more, or let this question fail.

An error is read by the attributes that the `openai` package gives it (status_code, code, type, param, message, body,
response). What is kept of it may be shown: its status, and those of its codes that are known. All else may quote the
prompt, or be made up to be read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any, Final, final


@final
class Kind(Enum):
    """What follows from a fault."""

    PASSING = auto()
    """Try again."""
    FINAL = auto()
    """Ask nothing more."""
    REFUSED = auto()
    """This question fails."""
    TOO_LONG = auto()
    FILTERED = auto()
    NO_LOGPROBS = auto()


@final
class FaultError(Exception):
    """What went wrong with a request, in words that may be shown.

    retry_after_s is what the server asked for; billed, whether it may charge for the request all the same;
    any_question, whether every other question would surely have met the same, as where there is no connection;
    unreached, whether there was none.
    """

    def __init__(
        self,
        kind: Kind,
        text: str,
        *,
        retry_after_s: float | None = None,
        billed: bool = False,
        any_question: bool = False,
        unreached: bool = False,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.billed = billed
        self.any_question = any_question
        self.unreached = unreached


NO_COMPLETION: Final = "what came back is no chat completion"

_FILTER_CODES: Final = {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"}
_LENGTH_CODES: Final = {"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"}
_QUOTA_CODES: Final = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_PARAMETERS: Final = {
    "logprobs", "max_completion_tokens", "max_tokens", "messages", "model", "seed", "temperature", "top_logprobs",
}  # fmt: skip
"""What a request has, which some servers name as what they do not take."""

KNOWN_CODES: Final = frozenset(
    {
        *_FILTER_CODES, *_LENGTH_CODES, *_QUOTA_CODES, *_PARAMETERS,
        # OpenAI (platform.openai.com, guide on error codes) and who does as it does
        "access_terminated", "account_deactivated", "api_error", "authentication_error", "billing_error",
        "engine_overloaded", "internal_error", "internal_server_error", "invalid_api_key", "invalid_model",
        "invalid_organization", "invalid_prompt", "invalid_request_error", "invalid_type", "invalid_value",
        "ip_not_authorized", "missing_required_parameter", "model_not_available", "model_not_found", "not_found_error",
        "overloaded", "overloaded_error", "permission_denied", "permission_error", "rate_limit_error",
        "rate_limit_exceeded", "request_too_large", "requests", "server_error", "server_overloaded",
        "service_unavailable", "slow_down", "timeout", "tokens", "unknown_parameter", "unknown_url",
        "unsupported_country_region_territory", "unsupported_parameter", "unsupported_value",
        # Azure
        "DeploymentNotFound", "InternalServerError", "OperationNotSupported", "RateLimitReached", "ServiceUnavailable",
        # vLLM, llama.cpp
        "BadRequestError", "NotFoundError", "UnauthorizedError", "not_supported_error", "unavailable_error",
    }
)  # fmt: skip
"""The words that are shown of a server's answer."""

_PASSING: Final = {408, 409, 425, 429}
_ANY_QUESTION: Final = {429, 503, 529}
"""What a server says before it looks at a question: too many requests, unavailable, overloaded."""

_TOO_LONG = re.compile(
    r"context (?:length|size|window)|maximum (?:context|input|prompt)|too (?:long|many tokens)", re.I
)


def fault_of(error: Exception, request: Mapping[str, Any], now: Callable[[], float]) -> FaultError:
    """Say what an exception of the client's means; nothing of its text is kept."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _status_fault(status, error, request, now)
    for cause in _causes(error):
        if isinstance(cause, FaultError):
            return cause
    if isinstance(error, TimeoutError):
        return FaultError(Kind.PASSING, "no answer in time (TimeoutError)", billed=True)
    causes = [type(cause).__name__ for cause in _causes(error)]
    if "APITimeoutError" in causes or "APIConnectionError" in causes:
        if {"ConnectError", "ConnectTimeout"} & set(causes):  # so nothing was sent
            return FaultError(Kind.PASSING, f"no connection ({causes[-1]})", any_question=True, unreached=True)
        what = "no answer in time" if "APITimeoutError" in causes else "the connection broke"
        return FaultError(Kind.PASSING, f"{what} ({causes[-1]})", billed=True)
    if isinstance(error, ValueError) or "APIResponseValidationError" in causes:
        return FaultError(Kind.PASSING, NO_COMPLETION, billed=True)
    return FaultError(Kind.REFUSED, causes[0], billed=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what led to it, the first cause last; of several at once, one."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        several = seen.exceptions if isinstance(seen, BaseExceptionGroup) else (None,)
        seen = several[0] or seen.__cause__ or seen.__context__


def _status_fault(status: int, error: Any, request: Mapping[str, Any], now: Callable[[], float]) -> FaultError:
    """Say what an HTTP status means, with the known codes in the server's answer."""
    codes = list(_codes(error))
    known = set(codes)
    text = f"HTTP {', '.join([str(status), *codes])}"
    message = str(getattr(error, "message", ""))
    if known & _FILTER_CODES:
        return FaultError(Kind.FILTERED, text)
    if known & _QUOTA_CODES or status in (401, 402, 403, 404) or 300 <= status < 400:
        return FaultError(Kind.FINAL, text)
    if status in _PASSING or (status >= 500 and status not in (501, 505)):
        wait_s = _retry_after(error, now)
        return FaultError(Kind.PASSING, text, retry_after_s=wait_s, any_question=status in _ANY_QUESTION)
    if "logprobs" in request and (known & {"logprobs", "top_logprobs"} or "logprobs" in message):
        return FaultError(Kind.NO_LOGPROBS, text)
    if known & _LENGTH_CODES or status == 413 or _TOO_LONG.search(message):
        return FaultError(Kind.TOO_LONG, text)
    return FaultError(Kind.REFUSED, text)


def _codes(error: Any) -> Iterator[str]:
    """Yield the codes in a server's answer that are known."""
    body = getattr(error, "body", None)
    inner = body.get("innererror") if isinstance(body, Mapping) else None
    given = [getattr(error, name, None) for name in ("code", "type", "param")]
    given.append(inner.get("code") if isinstance(inner, Mapping) else None)
    for code in dict.fromkeys(code for code in given if isinstance(code, str)):
        if code in KNOWN_CODES:
            yield code


def _retry_after(error: Any, now: Callable[[], float]) -> float | None:
    """Return how many seconds the server asks to wait: given in milliseconds, in seconds, or as a date."""
    headers: Mapping[str, str] = error.response.headers
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(0.0, wait) if math.isfinite(wait) else None
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now())
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
