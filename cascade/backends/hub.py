"""Fetching the files of models: the only place that downloads. It writes nothing itself (output/models.py does).

A repository on the Hugging Face hub is asked through huggingface_hub: where a file lies, how large it is, whether this
person may have it. The bytes are read here, because huggingface_hub starts a file afresh when it was interrupted, and
a model of 3 GB should go on. A token is sent for gated repositories only, and what a .netrc file says for none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from cascade.errors import ModelError

if TYPE_CHECKING:
    from requests import Response

PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0)
"""Waits between tries of a download that brings nothing any more; whenever it brings something they start again."""

TIMEOUT_S: Final = (10.0, 60.0)
"""Seconds to wait for a connection, and for the next bytes."""

TOKENS_PAGE: Final = "https://huggingface.co/settings/tokens"

BLOCK: Final = 1 << 16
"""Bytes that are kept at once; what a broken connection brought of a block is lost."""

MOST: Final = 50_000_000_000
"""Bytes of a file, whatever its source says; the largest model has a sixteenth of that."""

_PASSING: Final = (408, 429, 500, 502, 503, 504)
_COMMIT: Final = re.compile("[0-9a-f]{40,64}")
_SHA256: Final = re.compile("[0-9a-f]{64}")

Watch: TypeAlias = Callable[[str, int, int | None], None]
"""Told the name of a file, how many of its bytes are here, and how many it has, None if that is not known."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file that can be fetched: address, what to send along, and what its source says of it, None where it does not.

    name says in messages what is fetched, otherwise what else a person can do where it cannot be.
    """

    name: str
    url: str
    otherwise: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold a token
    size: int | None = None
    sha256: str | None = None


class Growing(Protocol):
    """A file on its way."""

    def __len__(self) -> int:
        """Return how many bytes of it are here."""

    def append(self, block: bytes, /) -> None:
        """Put bytes at its end."""

    def discard(self) -> None:
        """Begin anew."""


# --- the Hugging Face hub ---------------------------------------------------------------------------------------------


class Repository:
    """A repository on the hub at one revision, such as a commit; endpoint is another hub's address, if not the usual.

    otherwise says in messages what else a person can do to get its files, such as "carry them here". A gated one is
    asked with the person's token: `token` ("" is none), or what HF_TOKEN or `hf auth login` have set.
    """

    def __init__(
        self,
        name: str,
        revision: str,
        *,
        otherwise: str,
        gated: bool = False,
        endpoint: str | None = None,
        token: str | None = None,
    ) -> None:
        self.name, self.revision, self._otherwise = name, revision, otherwise
        self._gated, self._endpoint = gated, endpoint
        self._token = (_stored_token() if token is None else token or None) if gated else None

    @property
    def page(self) -> str:
        """Where a person can look at it."""
        return f"https://huggingface.co/{self.name}"

    def commit(self, path: str) -> str:
        """Return the commit that the revision stands for, by asking for one of its files; ModelError as in find."""
        commit: str | None = self._ask(path).commit_hash
        if commit is None or not _COMMIT.fullmatch(commit):
            raise ModelError(
                f"{self.page} does not say which commit '{self.revision}' is; {_TRY_LATER}, or {self._otherwise}"
            )
        return commit

    def find(self, path: str) -> Remote:
        """Return where one of its files lies.

        Raises ModelError with the cause and what mends it: no token, a bad one, terms that were not accepted, a
        revision or file that is not there, no connection.
        """
        found = self._ask(path)
        etag = str(found.etag or "")
        return Remote(
            name=f"{self.name}/{path}",
            url=self._url(path),
            otherwise=self._otherwise,
            headers={"Authorization": f"Bearer {self._token}"} if self._token else {},
            size=found.size,
            sha256=etag if _SHA256.fullmatch(etag) else None,  # large files have their sha256 for an etag
        )

    def _url(self, path: str) -> str:
        return str(_hub().hf_hub_url(self.name, path, revision=self.revision, endpoint=self._endpoint))

    def _ask(self, path: str) -> Any:
        hub = _hub()
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            return hub.get_hf_file_metadata(self._url(path), token=self._token or False, endpoint=self._endpoint)
        except OfflineModeIsEnabled:
            problem = "the environment variable HF_HUB_OFFLINE forbids it; unset it"
        except HfHubHTTPError as error:
            raise ModelError(self._refusal(error, path)) from None
        except (
            Exception
        ) as error:  # the HTTP library beneath changes with huggingface_hub's version, and so do its types
            problem = f"no answer ({type(error).__name__}); check the network"
        raise ModelError(f"{self.page} was not asked for {path}: {problem}, or {self._otherwise}")

    def _refusal(self, error: Any, path: str) -> str:
        """Say why the hub refuses, and what mends it."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        status = error.response.status_code
        terms = f"accept its terms at {self.page}"
        update_or = f"update cascade, or {self._otherwise}"
        match error:
            case GatedRepoError() if self._token is None:
                return f"{self.page} is gated and no token is set; {terms}, {_GET_TOKEN}"
            case GatedRepoError():
                return (
                    f"{self.page} is gated and your token's account has not been let in; {terms} with that account, "
                    "and see that the token may read gated repositories"
                )
            case _ if status == 401 and self._token is not None:
                return f"{self.page} refuses your token: it is not valid any more; {_GET_TOKEN}"
            case RevisionNotFoundError():
                return f"{self.page} has no revision {self.revision} any more; {update_or}"
            case RepositoryNotFoundError():
                return f"{self.page} is not there, or is private now; {update_or}"
            case _ if status == 404:
                return f"{self.page} has no file {path} at revision {self.revision}; {update_or}"
        return f"{self.page} answers with status {status} when asked for {path}; {_TRY_LATER}, or {self._otherwise}"


_GET_TOKEN: Final = f"make a token at {TOKENS_PAGE} and set it: export HF_TOKEN=..."
_TRY_LATER: Final = "run the same command again later"


def has_token() -> bool:
    """Tell whether a token for the hub is set, in HF_TOKEN or by `hf auth login`; it is not looked at further.

    Raises ModelError without huggingface_hub.
    """
    return _stored_token() is not None


def _stored_token() -> str | None:
    token: str | None = _hub().get_token()
    return token


def _hub() -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise _lacking("huggingface_hub") from None
    return huggingface_hub


def _lacking(package: str) -> ModelError:
    return ModelError(f"fetching models needs the Python package '{package}'; run: pip install {package}")


# --- downloading ------------------------------------------------------------------------------------------------------


def download(
    remote: Remote,
    growing: Growing,
    *,
    watch: Watch = lambda *_: None,
    sleep: Callable[[float], None] = time.sleep,
    most: int = MOST,
) -> None:
    """Bring what is missing of a file, which may be all of it; whether it is the right one is not known then.

    Raises ModelError: refused, gone, more than it has, or than `most` bytes, or no connection after several tries; what
    `growing` raises where it is full.
    """
    pauses = iter(PAUSES_S)
    while not _whole(growing, remote.size):
        before = len(growing)
        problem = _read(remote, growing, watch, most)
        if problem is None:
            return
        if len(growing) > before:
            pauses = iter(PAUSES_S)
        pause = next(pauses, None)
        if pause is None:
            raise ModelError(
                f"{remote.name} was not fetched: {problem}; check the network and {_GOES_ON}, or {remote.otherwise}"
            )
        sleep(pause)


_GOES_ON: Final = "run the same command again: it goes on where it stopped"


def _read(remote: Remote, growing: Growing, watch: Watch, most: int) -> str | None:
    """Make one request for what is missing and append it; return what kept it from being whole, None if nothing did."""
    requests = _requests()
    rest = {"Range": f"bytes={len(growing)}-"} if len(growing) else {}
    headers = {**remote.headers, **rest, "Accept-Encoding": "identity"}
    try:
        with (
            _session(requests) as session,
            session.get(remote.url, headers=headers, auth=_as_it_is, stream=True, timeout=TIMEOUT_S) as response,
        ):
            if response.status_code in _PASSING:
                return f"status {response.status_code}"
            if response.status_code in (200, 416):  # it comes from its beginning, or what is here is not part of it
                growing.discard()
            if response.status_code == 416:
                return "the file is shorter than what was here of it"
            if not response.ok:
                raise ModelError(
                    f"{remote.name} was not fetched: {_host(response)} answers with status {response.status_code}; "
                    f"update cascade, or {remote.otherwise}"
                )
            size = remote.size if remote.size is not None else _announced(response)
            limit = most if size is None else min(size, most)
            for block in response.iter_content(BLOCK):
                if len(growing) + len(block) > limit:
                    growing.discard()
                    raise ModelError(
                        f"{remote.name} was not fetched: {_host(response)} sends more than the {limit} bytes that it "
                        f"may have; do not use what is there, and {remote.otherwise}"
                    )
                growing.append(block)
                watch(remote.name, len(growing), size)
    except requests.RequestException as error:
        return f"no answer ({type(error).__name__})"
    return None if size is None or _whole(growing, size) else "the connection broke off"


def _requests() -> Any:
    try:
        import requests
    except ModuleNotFoundError:
        raise _lacking("requests") from None
    return requests


def _session(requests: Any) -> Any:
    """Return a session that asks no .netrc file for a password, which proxies of the environment do not need."""

    class Session(requests.Session):  # type: ignore[misc]
        def rebuild_auth(self, prepared_request: Any, response: Any) -> None:
            """Take the token away on the way to another host, and put nothing in its place."""
            if self.should_strip_auth(response.request.url, prepared_request.url):
                prepared_request.headers.pop("Authorization", None)

    return Session()


def _as_it_is(request: Any) -> Any:
    """Return a request without a password: requests looks for one only where it is told nothing about it."""
    return request


def _announced(response: Response) -> int | None:
    """Return the size of the whole file that a response is of, or of the end of."""
    whole = response.headers.get("Content-Range", "").rpartition("/")[2] or response.headers.get("Content-Length", "")
    return int(whole) if whole.isdecimal() else None


def _host(response: Response) -> str:
    return str(response.url.partition("://")[2].partition("/")[0])


def _whole(growing: Growing, size: int | None) -> bool:
    return size is not None and len(growing) >= size
