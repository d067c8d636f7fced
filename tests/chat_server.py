"""A chat server on loopback that plays faults: it speaks OpenAI's protocol, and keeps all that it receives.

    with serving(lambda received: good("B")) as server:
        ... server.url, server.received

What it plays is decided anew for each request, by a function that sees the request and how often its prompt has come.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Received:
    """A request as it came; tries is how often this prompt has come, this time included."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    tries: int

    @property
    def json(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.body)
        return fields

    @property
    def prompt(self) -> str:
        (message,) = self.json["messages"]
        return str(message["content"])


@dataclass(frozen=True)
class Play:
    """What the server does: answers with a body, hangs until it is closed, hangs up, or sends half of the body.

    drips: sends a header, or a space of the body, every 20 ms for ever. floods: sends spaces for ever, and quickly.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    hangs_up: bool = False
    sends_half: bool = False
    drips: Literal["", "headers", "body"] = ""
    floods: bool = False


Script = Callable[[Received], Play]


@dataclass
class Server:
    """Where it listens, and what came, in order."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    log: bytearray = field(default_factory=bytearray)
    """Every byte that came, headers too."""


def good(
    text: str | None = "B",
    *,
    finish: str = "stop",
    refusal: str | None = None,
    letters: Mapping[str, float] | None = None,
    usage: Mapping[str, Any] | None = None,
    model: str = "gpt-4o",
) -> Play:
    """Play a completion; letters are log-probabilities of what could have been its only token.

    usage is by default what a prompt of cascade's takes.
    """
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "message": message, "logprobs": None}
    if letters is not None:
        likely = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in letters.items()]
        choice["logprobs"] = {"content": [{"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": likely}]}
    counted = {"prompt_tokens": 500, "completion_tokens": 2, "total_tokens": 502} if usage is None else dict(usage)
    fields = {"id": "x", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    return Play(body=json.dumps(fields | ({"usage": counted} if counted else {})).encode())


def fault(
    status: int,
    code: str | None = None,
    *,
    kind: str | None = None,
    param: str | None = None,
    message: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Play:
    """Play an error in OpenAI's form."""
    error = {"message": message, "type": kind, "param": param, "code": code, **more}
    return Play(status, json.dumps({"error": error}).encode(), headers or {})


def in_turn(*plays: Play) -> Script:
    """Play these one after the other for each prompt, and the last one from then on."""
    return lambda received: plays[min(received.tries, len(plays)) - 1]


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    """Run a server in a thread of its own."""
    server, started, loop = Server(), threading.Event(), asyncio.new_event_loop()
    closing = asyncio.Event()

    async def _serve() -> None:
        connections: set[asyncio.Task[None]] = set()
        tries: Counter[bytes] = Counter()

        async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                connections.add(task)
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await _one(reader, writer, server, script, tries):
                    pass
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

        listening = await asyncio.start_server(_connected, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        started.set()
        await closing.wait()
        listening.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(_serve()))
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join()
        loop.close()


async def _one(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server, script: Script, tries: Counter[bytes]
) -> bool:
    """Take one request and play what the script says; tell whether the connection stays."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    server.log += head + body
    prompt = body.partition(b'"messages"')[2].partition(b"}]")[0]
    tries[prompt] += 1
    received = Received(first.split(" ")[1], headers, body, tries[prompt])
    server.received.append(received)
    play = script(received)
    if play.hangs:
        await asyncio.Event().wait()
    if play.hangs_up:
        return False
    if play.drips or play.floods:
        await _endless(writer, play)
    writer.write(_response(play))
    await writer.drain()
    return not play.sends_half


async def _endless(writer: asyncio.StreamWriter, play: Play) -> None:
    """Send an answer that never ends, until the other side hangs up."""
    writer.write(b"HTTP/1.1 200 X\r\n")
    chunk = b" " if play.drips else b" " * 65536
    if play.drips != "headers":
        writer.write(b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (len(chunk), chunk)
    while True:
        writer.write(b"x-more: y\r\n" if play.drips == "headers" else chunk)
        await writer.drain()
        await asyncio.sleep(0.02 if play.drips else 0)


def _response(play: Play) -> bytes:
    """Return the bytes of a response."""
    headers = {"content-type": "application/json", **play.headers, "content-length": str(len(play.body))}
    lines = [f"HTTP/1.1 {play.status} X", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    sent = play.body[: len(play.body) // 2] if play.sends_half else play.body
    return "\r\n".join(lines).encode() + sent


def prompts_of(received: Sequence[Received]) -> list[str]:
    """Return what was asked, in order."""
    return [each.prompt for each in received]
