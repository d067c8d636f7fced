"""What the programs here share: files that are written whole or not at all, and one line where they are stopped."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells have it."""


def check_place(path: Path) -> None:
    """Raise ValueError, before anything is done, where a file cannot be written."""
    if not path.parent.is_dir():
        raise ValueError(f"no folder {path.parent} to write {path.name} into; make it first")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or leave what was there as it was."""
    handle, partial = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(partial).chmod(0o666 & ~_umask())
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _umask() -> int:
    """Return what new files are closed to here; it can only be told by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def stoppable(program: Path, main: Callable[[], int]) -> int:
    """Run a program, and return its exit status; Ctrl-C is one line."""
    try:
        return main()
    except KeyboardInterrupt:
        print(f"{program.name}: stopped", file=sys.stderr)
        return INTERRUPTED
