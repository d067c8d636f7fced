"""The client of the `openai` package, so that no server holds it up or floods it, and nothing adds to what it sends.

The package bounds each read by its timeout, not a whole request: a server that sends a byte now and then would hold a
question for ever. So requests run in an event loop, in a thread of their own, where one deadline holds for all that a
request does: finding the server, sending, and reading the last byte of the answer. And an answer has a largest size,
before it is unpacked and after.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from threading import Thread
from typing import Any, Final, final

from cascade.answering.faults import NO_COMPLETION, FaultError, Kind

LARGEST_BODY: Final = 1_000_000
"""Bytes. A completion has some thousands, with 20 log-probabilities for each of 16 tokens some ten thousands."""

CONNECT_S: Final = 10.0
"""A server that does not even take the connection by then is not slow, it is not there."""

GRACE_S: Final = 10.0
"""How much later than its deadline a request is given up if the event loop itself does not come to it."""

STOP_S: Final = 1.0
"""How long requests that are under way may still take when they are told to end: most are answered by then."""

_ACCOUNT: Final = ("OpenAI-Organization", "OpenAI-Project")


@final
class Client:
    """Sends requests to one address, from any thread."""

    def __init__(self, url: str, key: str, timeout_s: float, *, is_openai: bool) -> None:
        """Make a client; nothing is sent. An empty key is none; timeout_s is for a whole request.

        Raises:
            ImportError: The package `openai` is not installed.
            ValueError: The client takes the address for none.
        """
        import openai

        http = _bounded(openai.DefaultAsyncHttpxClient)(
            timeout=openai.Timeout(timeout_s, connect=min(timeout_s / 2, CONNECT_S)),
            follow_redirects=False,
            trust_env=False,
            event_hooks={"request": [_closed_list(key, is_openai=is_openai)]},
        )
        try:
            _ = http.build_request("POST", url).url.host
        except Exception:  # httpx.InvalidURL, or what its parser of international names raises
            raise ValueError("no address") from None
        self._timeout_s = timeout_s
        self._client = openai.AsyncOpenAI(base_url=url, api_key=key or "none", max_retries=0, http_client=http)
        self._given_up = False
        self._under_way = set[asyncio.Task[Any] | None]()
        self._loop = asyncio.new_event_loop()
        Thread(target=_run, args=(self._loop, self._client.close), name="chat server", daemon=True).start()

    def create(self, **request: Any) -> Any:
        """Send a request for a chat completion; return what came back as the package gives it.

        Raises:
            TimeoutError: It was not all there in time, or requests were told to end.
            openai.OpenAIError: Something else went wrong; a FaultError is its cause where the answer was too large.
        """
        asked = asyncio.run_coroutine_threadsafe(self._create(request), self._loop)
        try:
            return asked.result(self._timeout_s + GRACE_S)
        except CancelledError:
            raise TimeoutError from None
        except BaseException:
            asked.cancel()  # after Ctrl-C nobody waits for it any more
            raise

    async def _create(self, request: dict[str, Any]) -> Any:
        if self._given_up:
            raise TimeoutError
        task = asyncio.current_task()
        self._under_way.add(task)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._client.chat.completions.create(**request)
        finally:
            self._under_way.discard(task)

    def stop(self) -> None:
        """End all requests that are not answered within STOP_S, and send no other."""
        self._loop.call_soon_threadsafe(self._loop.call_later, STOP_S, self._give_up)

    def _give_up(self) -> None:
        self._given_up = True
        for task in self._under_way:  # and not the loop's other tasks: one may be closing the connections
            if task is not None:
                task.cancel()

    def close(self) -> None:
        """Close all connections, soon; nothing can be sent then."""
        self._loop.call_soon_threadsafe(self._loop.stop)


def _run(loop: asyncio.AbstractEventLoop, close: Callable[[], Awaitable[None]]) -> None:
    """Run the loop until it is stopped, and end it."""

    async def _close() -> None:
        await close()

    loop.run_forever()
    try:
        loop.run_until_complete(_close())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


# --- what goes out ----------------------------------------------------------------------------------------------------


def _closed_list(key: str, *, is_openai: bool) -> Callable[[Any], Awaitable[None]]:
    """Return what leaves a request the headers that it needs, and no other.

    The package's own describe the machine, and OPENAI_CUSTOM_HEADERS in the environment may add any; the account's are
    for OpenAI alone.
    """

    async def _leave(request: Any) -> None:
        account = {name: request.headers[name] for name in _ACCOUNT if is_openai and name in request.headers}
        needed = {
            "Host": request.url.netloc.decode("ascii"),
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/json",
            "Content-Length": str(len(request.content)),
            "User-Agent": "cascade",
        }
        request.headers.clear()
        request.headers.update({**needed, **account, **({"Authorization": f"Bearer {key}"} if key else {})})

    return _leave


# --- what comes in ----------------------------------------------------------------------------------------------------


def _bounded(client: Any) -> Any:
    """Return a class of HTTP clients of this kind that read answers up to the largest size."""

    class _Bounded(client):  # type: ignore[misc]
        async def send(self, request: Any, *, stream: bool = False, **more: Any) -> Any:
            response = await super().send(request, stream=True, **more)
            try:
                body = _unpacked(await _read(response), response.headers.get("Content-Encoding", ""))
            finally:
                await response.aclose()
            headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in _OF_THE_BODY]
            return type(response)(response.status_code, headers=headers, content=body, request=request)

    return _Bounded


_OF_THE_BODY: Final = ("content-encoding", "content-length", "transfer-encoding")


async def _read(response: Any) -> bytes:
    """Return the body as it comes; FaultError if it is too large."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > LARGEST_BODY:
            raise _too_large()
    return bytes(body)


def _unpacked(body: bytes, encoding: str) -> bytes:
    """Return a body uncompressed; FaultError if it is too large then, or cannot be.

    >>> _unpacked(zlib.compress(b"B"), "deflate")
    b'B'
    """
    if encoding.strip().lower() in ("", "identity"):
        return body
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, as its first bytes say
    try:
        whole = unpacking.decompress(body, LARGEST_BODY + 1)
    except zlib.error:
        raise FaultError(Kind.PASSING, NO_COMPLETION, billed=True) from None
    if len(whole) > LARGEST_BODY:
        raise _too_large()
    return whole


def _too_large() -> FaultError:
    return FaultError(Kind.PASSING, f"what came back is longer than {LARGEST_BODY} bytes", billed=True)
