"""A benchmark run's folder: what it is a run of, its journal, and in the end its predictions and scores.

    OUT/
        run.json                what determines the run: configuration, models, data, prompts, versions
        journal.jsonl           hearings and answers, as they came to be (cascade.output.journal)
        NAME_basic_qa.json      predictions in general mode, in the benchmark's own format
        NAME_selective_qa.json  predictions in selective mode
        hearings.json           per recording: what was admitted, withheld, leaked
        spent.json              requests, tokens, cost of all answers, where a server gave them
        scores.json scores.md   accuracies, Selective Efficacy, the paper's rows
        items.jsonl             what was read in each reply, and why
        figure4.svg figure4.png bystander accuracy, selective against general

Two runs of different things are never mixed: what an earlier one left goes to `earlier-<its identity>` as a whole. The
final files hold no date and no timing, so that the same run gives the same bytes; but for spent.json, since a run that
was killed may have asked something twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cascade.errors import OutputError
from cascade.output.files import as_bytes, as_json, check_free, is_plain_name, read_plain, sync, write_private
from cascade.output.journal import JOURNAL

RUN: Final = "run.json"

DESCRIBED: Final = frozenset({"identity", "determined_by", "items", "limit", "files"})
"""What a whole description holds."""

MOVING: Final = ".moving.json"
"""Notes which files are on their way to which folder, so that a move that was cut off is finished."""

EARLIER: Final = "earlier-"
"""How the name of a folder begins to which another run's files go."""

IDENTITY_DIGITS: Final = 8
"""Of a run's identity in a folder's name; enough to tell the runs of one folder apart."""


def begin(out: Path, description: Mapping[str, Any], files: Iterable[str]) -> Path | None:
    """Make a run's folder ready, which the caller holds; the description has an `identity`, `files` come at the end.

    A journal is left where it is: its keys tell what of it is this run's.

    Returns:
        The folder to which another run's files went, None if there were none.

    Raises:
        OutputError: The folder holds files of the same names that no run has left, or cannot be written.
    """
    files = sorted(files)
    try:
        moved = _finish_putting_aside(out) or _put_aside_another(out, description["identity"], files)
        if not (out / RUN).exists():
            for name in files:
                check_free(out / name)
        # Also when it goes on: a larger --limit is the same run.
        replace_private(out / RUN, as_bytes(as_json({**description, "files": files})))
    except OSError as error:
        raise OutputError(f"'{out}' cannot be written: {error.strerror or error}; give another --out") from None
    return moved


def _put_aside_another(out: Path, identity: str, files: Sequence[str]) -> Path | None:
    """Move what another run has left to a folder of its own; a description that is damaged is another run's."""
    if not (out / RUN).exists():
        return None
    left = _read(out / RUN)
    if left is not None and left["identity"] == identity:
        return None
    base = f"{EARLIER}{left['identity'][:IDENTITY_DIGITS] if left else 'damaged'}"
    number, name = 1, base
    while (out / name).exists():
        number += 1
        name = f"{base}-{number}"
    # A damaged description does not tell whose the journal is; its keys do, so it stays.
    others = [*left["files"], JOURNAL] if left else files
    replace_private(out / MOVING, as_bytes(as_json({"to": name, "files": [*others, RUN]})))
    return _finish_putting_aside(out)


def _finish_putting_aside(out: Path) -> Path | None:
    """Do, or go on with, the move that is noted; nothing if none is."""
    if not os.path.lexists(out / MOVING):
        return None
    noted = _noted(out)
    folder = out / str(noted["to"])
    if folder.is_symlink():
        raise OutputError(f"'{folder}' is a link to another place; remove it, or give another --out")
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in noted["files"]:
        if (out / name).is_file() and not (folder / name).exists():
            (out / name).rename(folder / name)
    (out / MOVING).unlink()
    return folder


def _noted(out: Path) -> dict[str, Any]:
    """Return the move that is noted; OutputError if it is not one of ours, which never leads out of the folder."""
    noted = _parsed(read_plain(out / MOVING))
    names = [noted.get("to"), *_list_in(noted, "files")] if isinstance(noted, dict) else []
    if not names or not all(map(is_plain_name, names)) or not str(names[0]).startswith(EARLIER):
        raise OutputError(f"'{out / MOVING}' is damaged; remove it, then give the same command")
    return dict(noted)


def finish(out: Path, files: Mapping[str, bytes]) -> None:
    """Write a run's final files, each as a whole.

    Raises:
        OutputError: The folder cannot be written.
    """
    try:
        for name, content in files.items():
            replace_private(out / name, content)
    except OSError as error:
        raise OutputError(
            f"'{out}' cannot be written: {error.strerror or error}; make room, then give the same command"
        ) from None


def replace_private(path: Path, content: bytes) -> None:
    """Give a file this content at once, or leave it as it was."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    write_private(partial, content)
    partial.replace(path)
    sync(path.parent)


def read_run(out: Path) -> dict[str, Any]:
    """Return what determines the run in a folder.

    Raises:
        OutputError: There is none.
    """
    try:
        found = _read(out / RUN)
    except FileNotFoundError:
        raise OutputError(f"'{out}' holds no {RUN}; expected the --out folder of a benchmark's run") from None
    except OSError as error:
        raise OutputError(f"'{out}' cannot be read: {error.strerror or error}") from None
    if found is None or not _describes(found):
        raise OutputError(f"'{out / RUN}' is damaged; give the run's command again")
    return found


def read_list(path: Path) -> list[dict[str, Any]]:
    """Return one of a run's final files that hold a JSON list.

    Raises:
        OutputError: It is not there or is damaged.
    """
    try:
        found = _parsed(read_plain(path))
    except OSError as error:
        raise OutputError(f"'{path}' cannot be read: {error.strerror or error}; give the run's command again") from None
    if not (isinstance(found, list) and all(isinstance(entry, dict) for entry in found)):
        raise OutputError(f"'{path}' is damaged; give the run's command again")
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """Return a run's description, None if it is damaged."""
    found = _parsed(read_plain(path))
    if not isinstance(found, dict) or not all(map(is_plain_name, [*_list_in(found, "files")])):
        return None
    identity = found.get("identity")
    known = isinstance(identity, str) and identity.isascii() and identity.isalnum()
    return found if known and isinstance(found.get("files"), list) else None


def _describes(found: Mapping[str, Any]) -> bool:
    """Tell whether a description is whole, as far as it is read."""
    made = found.get("determined_by")
    return (
        found.keys() >= DESCRIBED
        and isinstance(made, dict)
        and isinstance(made.get("shard", 0), str | None)
        and all(type(number) is int for number in _list_in(found, "items"))
        and isinstance(found["items"], list)
        and isinstance(found["limit"], int | None)
    )


def _list_in(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    return value if isinstance(value, list) else []


def _parsed(content: bytes) -> Any:
    """Return what JSON says, None where it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
