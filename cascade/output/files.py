"""Private files and folders, whole or not at all, and JSON as it is written here."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cascade.errors import OutputError

_LOCKS: Final = os.name == "posix"
"""Whether the system can tell if a process still uses a file."""


def as_json(value: Any) -> str:
    """Return JSON for people: indented, letters of any script as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def as_json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one line a row, also for readers that take Unicode's other line ends for one."""
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    return "".join((line if line.isascii() else line.translate(_LINE_ENDS)) + "\n" for line in lines)


_LINE_ENDS: Final = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Ends of lines that JSON allows within a string, and how they are escaped there."""


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """Lend a private folder that takes this name at the end, or leaves nothing behind if that is not reached."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    clear_abandoned(partials_of(folder))
    partial = Path(tempfile.mkdtemp(prefix=partial_prefix(folder), dir=folder.parent))
    try:
        with in_use(partial):
            yield partial
            check_free(folder)
            partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def partial_prefix(path: Path) -> str:
    """Return how the name of a folder begins in which something of this name is on its way."""
    return f".{path.name[:100]}.partial-"


def partials_of(path: Path) -> list[Path]:
    """Return the folders in which something of this name is on its way, or was when its process was killed."""
    return [other for other in _listed(path.parent) if other.name.startswith(partial_prefix(path))]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it is not there yet, or may not be looked into
        return []


@contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Tell other processes that a file or folder is on its way; that ends with this process, however it ends."""
    handle = os.open(path, os.O_RDONLY) if _LOCKS else None
    try:
        if handle is not None:
            _try_lock(handle)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def clear_abandoned(paths: Iterable[Path]) -> list[Path]:
    """Delete what was on its way when its process was killed, and return it; what is in use by another one stays.

    Where the system cannot tell (Windows), nothing is deleted. What may not be deleted stays.
    """
    return [path for path in paths if _LOCKS and _deleted_if_abandoned(path)]


def _deleted_if_abandoned(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not _try_lock(handle):
            return False
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _try_lock(handle: int) -> bool:
    """Lock an open file or folder for as long as it is open; tell whether that could be done."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def give_name(partial: Path, path: Path) -> None:
    """Give a file its name unless that is taken; where links cannot be made, at the risk of a moment.

    Raises:
        FileExistsError: Something has that name.
        OSError: It cannot be given.
    """
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError from None
        partial.rename(path)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that its owner alone may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def open_plain(path: Path, flags: int) -> int:
    """Open a file in a folder that may come from elsewhere, and return its handle; it is made if the flags say so.

    A link is not followed, and nothing else than a file is waited for.

    Raises:
        OSError: It cannot be opened, or is a link, a folder, a pipe or a device.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link to another place")
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no file")
    return handle


def read_plain(path: Path) -> bytes:
    """Return what is in a file in a folder that may come from elsewhere; OSError as `open_plain` has it."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        return file.read()


def is_plain_name(name: object) -> bool:
    """Tell whether something is the name of a file, not a path that may lead elsewhere."""
    return isinstance(name, str) and name.isprintable() and name not in ("", ".", "..") and not set(name) & set("/\\:")


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on disk, where the system can tell."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def as_bytes(text: str) -> bytes:
    """Return text as UTF-8; half a character, as from a bad argument, becomes ?."""
    return text.encode("utf-8", errors="replace")


def check_free(folder: Path) -> None:
    """Raise OutputError if something of that name is there."""
    if os.path.lexists(folder):
        raise OutputError(f"'{folder}' exists already and is not overwritten; give another --out or remove it")


def check_writable(out: Path) -> None:
    """Make a folder if need be; raise OutputError if nothing can be written into it."""
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(prefix=".writable-", dir=out)).rmdir()
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"'{out}' is not a folder, or lies below what is none; give another --out") from None
    except OSError as error:
        raise OutputError(f"'{out}' cannot be written: {error.strerror or error}; give another --out") from None
