"""The recordings that items name, and what is known to be said in them."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

from cascade.errors import ItemsError
from cascade.provenance import sha256_of
from cascade.rendering import one_line

MOST_NAMED: Final = 20
"""Missing recordings that are named one by one; of more than these only how many."""

Words: TypeAlias = Mapping[str, str]
"""What each speaker ("main", "bystander") says in a recording."""


# --- files ------------------------------------------------------------------------------------------------------------


def find_audio(names: Sequence[str], root: Path) -> dict[str, Path]:
    """Find each recording under a folder: as named, else the file whose path ends like the name.

    Raises:
        ItemsError: Some are missing, or two files fit equally; one line for each.
    """
    if not root.is_dir():
        raise ItemsError(f"the folder of recordings '{root}' does not exist; give --audio-root DIR")
    found = {name: root.joinpath(*_parts(name)) for name in names}
    away = [name for name in names if not _is_file(found[name])]
    tails = _by_tail(root, {_parts(name)[-1] for name in away}) if away else {}
    problems = []
    for name in away:
        fitting = _fitting(name, tails)
        if len(fitting) == 1:
            found[name] = fitting[0]
        elif fitting:
            problems.append(f"two files fit '{name}': {fitting[0]}, {fitting[1]}; give another --audio-root")
        else:
            problems.append(f"no recording '{name}' under {root}, nor one whose path ends like it")
    if problems:
        more = len(problems) - MOST_NAMED
        rest = [f"and {more} more recordings are missing; give --audio-root DIR"] if more > 0 else []
        raise ItemsError("\n".join([*map(one_line, problems[:MOST_NAMED]), *rest]))
    return found


def _parts(name: str) -> tuple[str, ...]:
    """Return a recording's path in pieces, without what would lead out of a folder."""
    parts = (part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))
    return tuple(parts) or ("unnamed",)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file system takes
        return False


def _by_tail(root: Path, names: set[str]) -> dict[tuple[str, ...], list[Path]]:
    """Return the files of these names by every end of their paths, in the order of their paths; each file once."""
    tails: dict[tuple[str, ...], list[Path]] = {}
    for path in sorted(_files(root, names)):
        parts = path.relative_to(root).parts
        for length in range(1, len(parts) + 1):
            tails.setdefault(parts[-length:], []).append(path)
    return tails


def _files(root: Path, names: set[str]) -> Iterator[Path]:
    """Yield the files of these names below a folder, also behind links; no folder and no file twice."""
    seen: set[tuple[int, int]] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if _is_new(Path(folder, name), seen)]
        yield from (Path(folder, name) for name in files if name in names and _is_new(Path(folder, name), seen))


def _is_new(path: Path, seen: set[tuple[int, int]]) -> bool:
    """Tell whether a file or folder was not met before, under whatever name; now it was."""
    try:
        found = path.stat()
    except OSError:  # a link to nowhere
        return False
    identity = found.st_dev, found.st_ino
    new = identity not in seen
    seen.add(identity)
    return new


def _fitting(name: str, tails: Mapping[tuple[str, ...], list[Path]]) -> list[Path]:
    """Return the files that share the longest end with a name."""
    parts = _parts(name)
    return next((tails[parts[start:]] for start in range(len(parts)) if parts[start:] in tails), [])


def hash_of(path: Path) -> str:
    """Return a recording's sha256.

    Raises:
        ItemsError: It cannot be read.
    """
    try:
        return sha256_of(path)
    except OSError as error:
        raise ItemsError(f"the recording '{path}' cannot be read: {error.strerror}; make it readable") from None


# --- references -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class References:
    """Who says what, by session_id, which is a recording's name without folder and extension; sha256 of the file."""

    by_session: Mapping[str, Words]
    sha256: str | None

    @staticmethod
    def of(path: Path | None) -> References:
        """Read a SegLST file; without one nothing is known.

        Raises:
            ItemsError: It cannot be read, or is not SegLST.
        """
        if path is None:
            return References({}, None)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ItemsError(f"the references '{path}' cannot be read: {error.strerror}; name a SegLST file") from None
        try:
            return References(_said(json.loads(content)), hashlib.sha256(content).hexdigest())
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ItemsError(
                f"the references '{path}' are not SegLST: a JSON list with session_id, speaker and words in each entry"
            ) from None

    def words_in(self, names: Sequence[str]) -> dict[str, Words]:
        """Return what is said in each recording that the references know.

        Raises:
            ItemsError: Two recordings of one name in different folders cannot be told apart.
        """
        sessions = {name: PurePosixPath(*_parts(name)).stem for name in names}
        for session, count in Counter(sessions.values()).items():
            if count > 1 and session in self.by_session:
                raise ItemsError(
                    f"{count} recordings are called '{one_line(session)}', so the references cannot tell them apart; "
                    "rename them, or set 'references: null' under 'benchmark:'"
                )
        return {name: self.by_session[session] for name, session in sessions.items() if session in self.by_session}


def _said(entries: Iterable[Mapping[str, str]]) -> dict[str, Words]:
    """Join what each speaker says."""
    said: dict[str, dict[str, str]] = {}
    for entry in entries:
        words = said.setdefault(entry["session_id"], {})
        words[entry["speaker"]] = f"{words.get(entry['speaker'], '')} {entry['words']}".strip()
    return {session: dict(words) for session, words in said.items()}
