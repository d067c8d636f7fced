"""One page for people: it appears whole or not at all, is its owner's alone to read, and replaces nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cascade.errors import OutputError
from cascade.output.files import (
    as_bytes,
    check_free,
    check_writable,
    clear_abandoned,
    give_name,
    in_use,
    partial_prefix,
    partials_of,
    sync,
    write_private,
)


def plan_report(path: Path) -> None:
    """Make sure, before anything is heard, that a report can be written there; its folder is made if need be.

    Raises:
        OutputError: Something of that name exists, or its folder cannot be written.
    """
    clear_abandoned(partials_of(path))
    try:
        check_free(path)
        check_writable(path.parent)
    except OutputError as error:
        raise OutputError(str(error).replace("give another --out", "give another --report")) from None


def write_report(path: Path, page: str) -> None:
    """Write a page.

    Raises:
        OutputError: Something of that name exists by now, or it cannot be written.
    """
    try:
        prefix = partial_prefix(path)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent) as folder, in_use(Path(folder)):
            partial = Path(folder) / "page"
            write_private(partial, as_bytes(page))
            give_name(partial, path)
            sync(path.parent)
    except FileExistsError:
        raise OutputError(
            f"'{path}' exists by now and is not overwritten; give another --report or remove it"
        ) from None
    except OSError as error:
        raise OutputError(
            f"'{path}' cannot be written: {error.strerror or error}; make room or give another --report"
        ) from None
