"""Replies of chat models, kept from run to run: JSON, a file each, readable by their owner alone.

A file's name is a hash of all that determined the reply, so the cache holds no transcript and no question. A file that
is damaged, half written, somebody else's or open to be changed by others is not believed: what it should hold is asked
again. Files appear whole (written beside, then renamed), so two runs may share a cache.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, final

from cascade.errors import OutputError

FORMAT: Final = 1
LARGEST_ENTRY: Final = 1_000_000
"""Bytes. A reply has some thousands; a larger file is not one of ours."""

log = logging.getLogger(__name__)


@final
class ResponseCache:
    """Replies by key, a hash in hex, in a private folder; for several threads and processes at once."""

    def __init__(self, folder: Path) -> None:
        """Open a cache; its folder is made if need be.

        Raises:
            OutputError: The folder cannot be made or written, or others may look into it.
        """
        with _one_line(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(folder)
            probe, name = tempfile.mkstemp(prefix=".writable-", dir=folder)
            os.close(probe)
            Path(name).unlink()
        self._folder = folder

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return what is kept under a key, None where there is nothing that can be believed."""
        try:
            return _entry(_read(self._path(key)), key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            log.warning("cache: %s is damaged or not ours; it is asked again", self._path(key).name)
            return None

    def put(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry; where that is not possible, a warning says so, and it will be asked again."""
        content = json.dumps({"format": FORMAT, "key": key, "sha256": _digest(entry), "entry": entry})
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _replace(path, content.encode())
        except OSError as error:
            log.warning("cache: a reply could not be kept (%s); it will be asked again", error.strerror)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


def check_place(folder: Path) -> None:
    """Look whether a cache can be opened there; nothing is made.

    Raises:
        OutputError: It cannot: ResponseCache would say the same.
    """
    with _one_line(folder):
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if there == folder:
            _check_private(folder)
        elif not there.is_dir():
            raise NotADirectoryError
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def _one_line(folder: Path) -> Iterator[None]:
    """Say in one line why a cache cannot be opened."""
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"'{folder}' is not a folder, or lies below what is none; name another cache") from None
    except OSError as error:
        raise OutputError(f"the cache '{folder}' cannot be written: {error.strerror}; name another") from None


def _check_private(folder: Path) -> None:
    """Raise OutputError if the folder is somebody else's, or open to others."""
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
        raise OutputError(
            f"the cache '{folder}' is open to others (mode {stat.S_IMODE(found.st_mode):04o}), and replies are "
            "private; name a new folder, or make it yours alone: chmod 700"
        )


def _read(path: Path) -> bytes:
    """Read a file that is ours alone to write: no link, no pipe, of a sensible size.

    Raises:
        OSError: There is none, or it cannot be read.
        ValueError: It is something else.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        ours = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)
        if not stat.S_ISREG(found.st_mode) or not ours or found.st_size > LARGEST_ENTRY:
            raise ValueError("not a file of this cache")
        return file.read(LARGEST_ENTRY)


def _entry(content: bytes, key: str) -> Mapping[str, Any]:
    """Return the entry in a file's content; ValueError if it is not just what was written under this key."""
    kept = json.loads(content)
    whole = isinstance(kept, dict) and kept.keys() == {"format", "key", "sha256", "entry"}
    if not whole or (kept["format"], kept["key"]) != (FORMAT, key) or not isinstance(kept["entry"], dict):
        raise ValueError("not an entry of this key")
    if kept["sha256"] != _digest(kept["entry"]):
        raise ValueError("not what was written")
    entry: Mapping[str, Any] = kept["entry"]
    return entry


def _digest(entry: Mapping[str, Any]) -> str:
    """Return the hash of an entry, in hex: it tells a damaged file, which may still be JSON."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def _replace(path: Path, content: bytes) -> None:
    """Write a private file beside its place, and move it there whole."""
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
