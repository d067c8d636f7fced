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
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
    try:
        yield partial
        check_free(folder)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


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
