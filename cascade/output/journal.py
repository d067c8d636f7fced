"""What a benchmark's run has done so far: one line for each hearing and each answer, on disk the moment it exists.

The journal is append-only JSON Lines. A line is kept under a key, a hash of everything that determined it, so that what
was done under another configuration is never taken for what is asked now. A process may be killed at any moment: the
half line that this can leave at the end is cut off when the journal is opened again, and a line that is damaged is left
where it is and done again. Each line has a checksum. The kernel gives back the lock of a process that is gone.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any, Final, final

from filelock import FileLock, Timeout

from cascade.errors import OutputError
from cascade.output.files import as_json_lines, check_writable, open_plain, read_plain

JOURNAL: Final = "journal.jsonl"
LOCK: Final = ".lock"

log = logging.getLogger(__name__)


@final
class Journal:
    """Entries by key; each is on disk before `append` returns. Without a file it only remembers."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]], file: FileIO | None) -> None:
        self._entries = dict(entries)
        self._file = file
        self._lock = Lock()

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._entries[key]

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the entries of a kind, in their order."""
        return [entry for entry in self._entries.values() if entry.get("kind") == kind]

    def append(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry; may be called from several threads.

        Raises:
            OutputError: The file cannot be written.
        """
        line = _sealed({"key": key, **entry})
        with self._lock:
            if self._file is not None:
                _write(self._file, line)
            self._entries[key] = entry


def _sealed(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line that ends in a checksum of the rest of it."""
    return _bytes({**entry, "crc32": _checksum(entry)})


def _checksum(entry: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(_bytes(entry)):08x}"


def _bytes(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line; half a character, which a server may reply with, stays what it is."""
    return as_json_lines([entry]).encode("utf-8", "surrogatepass")


def _write(file: FileIO, line: bytes) -> None:
    """Write a line and wait until it is on disk; what a full disk took of it is taken back."""
    before = file.seek(0, os.SEEK_END)
    try:
        while line:  # a disk that is nearly full takes a part, and then says why it does not take the rest
            line = line[file.write(line) :]
        os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            file.truncate(before)
        raise OutputError(
            f"the journal cannot be written: {error.strerror or error}; make room, then give the same command"
        ) from None


def forgetful() -> Journal:
    """Return a journal that writes nothing."""
    return Journal({}, None)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold a run's folder, which is made if need be; nobody else may work in it meanwhile.

    Raises:
        OutputError: Another process holds it, or it cannot be written.
    """
    check_writable(out)
    if (out / LOCK).is_symlink():  # which a lock would follow, and empty the file that it leads to
        raise OutputError(f"'{out / LOCK}' is a link to another place; remove it, or give another --out")
    lock = FileLock(out / LOCK, mode=0o600, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise OutputError(f"another run is at work in '{out}'; wait until it ends, or give another --out") from None
    except (OSError, NotImplementedError) as error:
        raise OutputError(f"'{out}' cannot be locked: {error}; give another --out") from None
    try:
        yield
    finally:
        lock.release()


Known = Callable[[Mapping[str, Any]], bool]
"""Tells whether an entry is one that a run writes."""


def _any(entry: Mapping[str, Any]) -> bool:
    return True


@contextmanager
def open_journal(out: Path, known: Known = _any) -> Iterator[Journal]:
    """Read the journal of a run's folder, which the caller holds, and go on with it; other entries count as damaged.

    Raises:
        OutputError: It cannot be read or written.
    """
    path = out / JOURNAL
    try:
        file = FileIO(open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+")
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror or error}; give another --out") from None
    with file:
        written = file.readall()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            file.truncate(whole)
        yield Journal(dict(_entries(written[:whole], known)), file)


def read_journal(out: Path, known: Known = _any) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a journal by key, in their order, and leave it as it is.

    Raises:
        OutputError: It cannot be read.
    """
    path = out / JOURNAL
    try:
        written = read_plain(path)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be read: {error.strerror or error}; give the folder of a run") from None
    return dict(_entries(written[: written.rfind(b"\n") + 1], known))


def _entries(written: bytes, known: Known) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield key and entry of each line; of a damaged one only its number is said."""
    for number, line in enumerate(written.split(b"\n")[:-1], start=1):
        found = _entry(line)
        if found is not None and known(found[1]):
            yield found
        else:
            log.warning("%s: line %d is damaged; what it held is done again", JOURNAL, number)


def _entry(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """Return key and entry of a line, None if it is damaged."""
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict) or entry.pop("crc32", None) != _checksum(entry):
            return None
    except (ValueError, RecursionError):  # also for a number that JSON does not have, such as NaN
        return None
    key = entry.pop("key", None)
    return (key, entry) if isinstance(key, str) else None
