"""A server on the loopback that plays the Hugging Face hub, with its redirects, and an address with one file.

Requests are kept; faults are put in before them. Large files (as on the hub: those with a sha256 for an etag) are
handed out by another host, localhost, as the hub has its own for them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

LARGE = 1000
"""Bytes from which on a file has its sha256 for an etag."""


class Asked(NamedTuple):
    method: str
    host: str
    path: str
    range: str | None
    authorization: str | None


@dataclass
class HubServer:
    """files: bytes by (repository, commit, path). main: the newest commit of each repository.

    gated: repositories that want a token; tokens: whether a token's account has been let in. urls: bytes by path.
    surplus: how many bytes more than a file has are sent after it, without saying how long all is; sent counts them.
    cuts: after how many bytes the next downloads break off. statuses: what the next downloads are answered with.
    """

    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    main: dict[str, str] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    tokens: dict[str, bool] = field(default_factory=dict)
    urls: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    ranges: bool = True
    surplus: int = 0
    sent: int = 0
    stall: threading.Event | None = None
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def downloads(self, path: str) -> list[str | None]:
        """The Range of each request that was answered with bytes of a file, by the end of its path."""
        return [
            asked.range
            for asked in self.asked
            if asked.method == "GET"
            and asked.path.endswith(path)
            and (asked.host == "localhost" or not self._moved(asked))
        ]

    def _moved(self, asked: Asked) -> bool:
        return "/resolve/" in asked.path and len(self.found(asked.path)[1] or b"") >= LARGE

    def found(self, path: str) -> tuple[str, bytes | None]:
        """Return (commit, bytes) of what a path such as /owner/name/resolve/main/weights.bin means."""
        if "/resolve/" not in path:
            return "", self.urls.get(path)
        repository, _, rest = path.removeprefix("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        commit = self.main.get(repository, "") if revision == "main" else revision
        return commit, self.files.get((repository, commit, name))

    def refusal(self, path: str, authorization: str | None) -> tuple[int, str] | None:
        """Return the status and the hub's own code for it, None if a request is granted."""
        if "/resolve/" not in path:
            return None if path in self.urls else (404, "")
        repository = path.removeprefix("/").partition("/resolve/")[0]
        if authorization is not None and authorization.removeprefix("Bearer ") not in self.tokens:
            return 401, "InvalidToken"
        if repository not in self.main:
            return 401, "RepoNotFound"
        if repository in self.gated and authorization is None:
            return 401, "GatedRepo"
        if repository in self.gated and not self.tokens[str(authorization).removeprefix("Bearer ")]:
            return 403, "GatedRepo"
        commit, content = self.found(path)
        if not any((owner, of) == (repository, commit) for owner, of, _ in self.files):
            return 404, "RevisionNotFound"
        return (404, "EntryNotFound") if content is None else None


def etag_of(content: bytes) -> str:
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server names it so)
        pass

    def _answer(self, *, body: bool) -> None:
        host = self.headers["Host"].partition(":")[0]
        asked = Asked(self.command, host, self.path, self.headers["Range"], self.headers["Authorization"])
        self.hub.asked.append(asked)
        refusal = None if host == "localhost" else self.hub.refusal(self.path, asked.authorization)
        commit, content = self.hub.found(self.path)
        if refusal or content is None:
            status, code = refusal or (404, "EntryNotFound")
            self._head(status, {"X-Error-Code": code, "Content-Length": "0"} | self._message(code))
            return
        etag = {"ETag": f'"{etag_of(content)}"', "X-Repo-Commit": commit}
        if "/resolve/" in self.path and host != "localhost" and len(content) >= LARGE:
            elsewhere = f"http://localhost:{self.hub.port}{self.path}"
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": etag["ETag"]}
            self._head(302, {"Location": elsewhere, "Content-Length": "0", **etag, **linked})
        elif not body:
            self._head(200, {"Content-Length": str(len(content)), **etag})
        elif self.hub.statuses:
            self._head(self.hub.statuses.pop(0), {"Content-Length": "0"})
        else:
            self._send(content, asked.range)

    def _message(self, code: str) -> dict[str, str]:
        return {"X-Error-Message": "Invalid credentials in Authorization header"} if code == "InvalidToken" else {}

    def _send(self, content: bytes, wanted: str | None) -> None:
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.hub.ranges else 0
        if begin >= len(content) > 0 and begin:
            self._head(416, {"Content-Length": "0", "Content-Range": f"bytes */{len(content)}"})
            return
        rest = content[begin:]
        if self.hub.surplus:
            self._overflow(rest)
            return
        ranged = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
        self._head(206 if begin else 200, {"Content-Length": str(len(rest)), **ranged})
        cut = self.hub.cuts.pop(0) if self.hub.cuts else len(rest)
        self.wfile.write(rest[:cut])
        self.wfile.flush()
        if cut < len(rest):
            if self.hub.stall is not None:
                self.hub.stall.wait(30)
            self.close_connection = True

    def _overflow(self, rest: bytes) -> None:
        self._head(200, {"Connection": "close"})
        self.close_connection = True
        with suppress(OSError):  # nobody listens any more
            self.wfile.write(rest)
            while self.hub.sent < self.hub.surplus:
                self.wfile.write(bytes(100_000))
                self.hub.sent += 100_000

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@contextmanager
def serving(hub: HubServer) -> Iterator[HubServer]:
    """Serve until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
