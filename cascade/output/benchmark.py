"""A benchmark run's folder: what it is a run of, its journal, and in the end its predictions and scores.

    OUT/
        run.json                what determines the run: configuration, models, data, prompts, versions
        journal.jsonl           hearings and answers, as they came to be (cascade.output.journal)
        NAME_basic_qa.json      predictions in general mode, in the benchmark's own format
        NAME_selective_qa.json  predictions in selective mode
        hearings.json           per recording: what was admitted, withheld, leaked
        scores.json scores.md   accuracies, Selective Efficacy, the paper's rows
        items.jsonl             what was read in each reply, and why
        figure4.svg figure4.png bystander accuracy, selective against general

Two runs of different things are never mixed: what an earlier one left goes to `earlier-<its identity>` as a whole. The
final files hold no date and no timing, so that the same run gives the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cascade.errors import OutputError
from cascade.output.files import as_bytes, as_json, check_free, write_private
from cascade.output.journal import JOURNAL

RUN: Final = "run.json"

IDENTITY_DIGITS: Final = 8
"""Of a run's identity in a folder's name; enough to tell the runs of one folder apart."""


def begin(out: Path, description: Mapping[str, Any], files: Iterable[str]) -> Path | None:
    """Make a run's folder ready, which the caller holds; the description has an `identity`, `files` come at the end.

    Returns:
        The folder to which another run's files went, None if there were none.

    Raises:
        OutputError: The folder holds files of the same names that no run has left, or cannot be written.
    """
    files = sorted(files)
    try:
        left = _read(out / RUN)
        moved = None
        if left is not None and left["identity"] != description["identity"]:
            moved = _put_aside(out, left)
            left = None
        if left is None:
            for name in (*files, JOURNAL):
                check_free(out / name)
        # Also when it goes on: a larger --limit is the same run.
        replace_private(out / RUN, as_bytes(as_json({**description, "files": files})))
    except OSError as error:
        raise OutputError(f"'{out}' cannot be written: {error.strerror or error}; give another --out") from None
    return moved


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


def read_run(out: Path) -> dict[str, Any]:
    """Return what determines the run in a folder.

    Raises:
        OutputError: There is none.
    """
    try:
        found = _read(out / RUN)
    except OSError as error:
        raise OutputError(f"'{out}' cannot be read: {error.strerror or error}") from None
    if found is None:
        raise OutputError(f"'{out}' holds no {RUN}; expected the --out folder of a benchmark's run")
    return found


def read_list(path: Path) -> list[dict[str, Any]]:
    """Return one of a run's final files that hold a JSON list.

    Raises:
        OutputError: It is not there or is damaged.
    """
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise OutputError(f"'{path}' cannot be read: {error.strerror or error}; give the run's command again") from None
    except (ValueError, RecursionError):
        found = None
    if not (isinstance(found, list) and all(isinstance(entry, dict) for entry in found)):
        raise OutputError(f"'{path}' is damaged; give the run's command again")
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """Return a run's description, None if there is no file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("identity"), str) and isinstance(found.get("files"), list):
        return found
    raise OutputError(f"'{path}' is no run's description; move it away, or give another --out")


def _put_aside(out: Path, left: Mapping[str, Any]) -> Path:
    """Move an earlier run's files to a folder of their own; its description goes last, so that this can go on."""
    base = f"earlier-{left['identity'][:IDENTITY_DIGITS]}"
    number, folder = 1, out / base
    while (folder / RUN).exists():
        number += 1
        folder = out / f"{base}-{number}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in (*map(os.path.basename, left["files"]), JOURNAL, RUN):
        if (out / name).is_file():
            (out / name).rename(folder / name)
    return folder
