"""The folder in which the files of models are kept.

Below its root are:

    models.lock.json       the commit and the sha256 that were found at the first pull, where nobody knew them
    NAME/REVISION/FILE     a file that is whole and the right one, as all others of its model are
    .partial/NAME/...      a file on its way, which nothing trusts; the next pull goes on with it
    .locks/NAME.lock       held by the process that pulls NAME
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from cascade.errors import ModelError

log = logging.getLogger(__name__)

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_SHA256: Final = re.compile("[0-9a-f]{64}")
_COMMIT: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
"""A name on the hub for a state of a repository; it is the name of a folder too."""

_MAKE_ROOM: Final = "free some space, or set CASCADE_MODELS to a folder on a larger disk; the same command goes on"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the lock file holds of a file that was pulled without anything to compare it with."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What the lock file holds of a model: the commit that its first pull found, and its files by path."""

    commit: str | None = None
    files: Mapping[str, Recorded] = field(default_factory=dict)


class Growing:
    """A file on its way: it may be a part of what it is to be, or not the right one at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return length_of(self.path)

    def append(self, block: bytes) -> None:
        """Put bytes at its end; ModelError where the disk is full or nothing can be written."""
        with _writing(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(block)

    def copy(self, whole: Path) -> None:
        """Become a copy of another file; ModelError if that cannot be read."""
        if not _readable(whole):
            raise ModelError(f"{whole} cannot be read; make it readable and run the same command again")
        with _writing(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(whole, self.path)

    def discard(self) -> None:
        """Begin anew: nothing of it is of use."""
        with _writing(self.path.parent):
            self.path.unlink(missing_ok=True)


class Store:
    """The folder of all models that were pulled. Only what is asked to change something makes it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def lock_file(self) -> Path:
        """The record of what was pulled without anything to compare it with."""
        return self.root / "models.lock.json"

    def folder(self, model: str, revision: str) -> Path:
        """Return where a model's files are, or will be."""
        return self.root / model / revision

    def growing(self, model: str, revision: str, path: str) -> Growing:
        """Return what is there of a file that is on its way."""
        return Growing(self.root / ".partial" / model / revision / f"{path}.partial")

    def entry(self, model: str, revision: str) -> Entry:
        """Return what is recorded of a model; ModelError if the lock file cannot be read."""
        entries = self._entries()
        if f"{model}/{revision}" not in entries:
            return Entry()
        held = entries[f"{model}/{revision}"]
        try:
            files = {path: _recorded(path, file) for path, file in held["files"].items()}
            commit = held["commit"]
            if commit is not None and not _COMMIT.fullmatch(commit):
                raise ValueError("that is no commit")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._spoilt() from None
        return Entry(commit, files)

    def record(self, model: str, revision: str, entry: Entry) -> None:
        """Put an entry in the place of a model's; two processes may do so at once."""
        with self._alone("models.lock.json"), _writing(self.root):
            entries = dict(self._entries())
            entries[f"{model}/{revision}"] = {
                "commit": entry.commit,
                "files": {path: {"sha256": file.sha256, "size": file.size} for path, file in entry.files.items()},
            }
            text = json.dumps(entries, indent=2, sort_keys=True) + "\n"
            fresh = self.lock_file.with_suffix(".json.new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self.lock_file)

    @contextmanager
    def pulling(self, model: str) -> Iterator[None]:
        """Be the only process that pulls a model; waits for another one, which may have done the work by then."""
        with self._alone(model):
            yield

    def check_room(self, size: int, free: Callable[[Path], int] | None = None) -> None:
        """Raise ModelError unless so many bytes more fit onto the disk."""
        there = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        left = (free or (lambda folder: shutil.disk_usage(folder).free))(there)
        if size > left:
            raise ModelError(
                f"{shown_size(size)} more do not fit onto the disk of {self.root}, which has {shown_size(left)} left; "
                f"{_MAKE_ROOM}"
            )

    def place(self, model: str, revision: str, arrived: Mapping[str, Growing], entry: Entry) -> None:
        """Give files, by path, their places in the folder of a model, and then put its entry on record.

        Call it when all that is lacking of the model has arrived and is the right thing. The record comes last: where
        this is interrupted, a file that only the record would know is not trusted. Nothing stays on its way.
        """
        with _writing(self.root):
            for path, growing in arrived.items():
                place = self.folder(model, revision) / path
                place.parent.mkdir(parents=True, exist_ok=True)
                growing.path.replace(place)
        if entry != self.entry(model, revision):
            self.record(model, revision, entry)
        self.forget(model)

    def forget(self, model: str, revision: str = ".") -> None:
        """Throw away what is on its way of a model, or of one of its revisions."""
        folder = self.root / ".partial" / model / revision
        with _writing(self.root):
            if folder.exists():
                shutil.rmtree(folder)

    def _entries(self) -> Mapping[str, Any]:
        try:
            entries = json.loads(self.lock_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ModelError(f"{self.lock_file} cannot be read: {error.strerror}; make it readable") from None
        except (ValueError, RecursionError):
            raise self._spoilt() from None
        if not isinstance(entries, dict):
            raise self._spoilt()
        return entries

    def _spoilt(self) -> ModelError:
        return ModelError(
            f"{self.lock_file} is not the lock file that cascade wrote; put the right one back, or delete it and pull "
            "the models again (python -m cascade models list names them)"
        )

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        path = self.root / ".locks" / f"{name}.lock"
        with _writing(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                log.warning("another process is at work on %s; waiting for it", name)
                lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _recorded(path: str, file: Any) -> Recorded:
    """Return what the lock file holds of a file; ValueError, KeyError or TypeError if that can be of none."""
    sha256, size = file["sha256"], file["size"]
    if not _SHA256.fullmatch(sha256) or type(size) is not int or size < 1:
        raise ValueError(f"{path} is recorded as no file can be")
    return Recorded(sha256, size)


def sha256_of(path: Path) -> str:
    """Return a file's sha256 in hex; ModelError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}; make it readable") from None


def length_of(path: Path) -> int:
    """Return a file's size in bytes, 0 if it is not there."""
    return path.stat().st_size if path.is_file() else 0


def shown_size(size: int) -> str:
    """Return bytes as people say them: 113.1 MB, 3.09 GB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say in one line why nothing can be written to a folder."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise ModelError(f"the disk of {folder} is full; {_MAKE_ROOM}") from None
        reason = error.strerror or type(error).__name__
        raise ModelError(f"{folder} cannot be written: {reason}; set CASCADE_MODELS to a folder that can") from None


def _readable(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False
