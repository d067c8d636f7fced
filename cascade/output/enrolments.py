"""Enrolments that are kept under a name: a voice's embedding, never its audio.

Each is a small JSON file, NAME.json, that its owner alone may read, in $CASCADE_ENROLMENTS or the user's data folder.
An embedding is biometric data: it tells whose voice is in a recording. So its numbers are shown nowhere, and a file
that others may read, or that belongs to somebody else, is refused.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cascade.errors import EnrolmentError, OutputError
from cascade.output.files import clear_abandoned, give_name, in_use, sync

log = logging.getLogger(__name__)

FORMAT: Final = 2
"""What the file's layout, and the meaning of its numbers, are called; another one is refused."""

SUFFIX: Final = ".json"
PARTIAL: Final = ".partial"

LARGEST: Final = 1_000_000
"""Bytes. A kept enrolment has some thousands."""

LONGEST_NAME: Final = 40

LONGEST_S: Final = 100_000.0
"""Seconds of speech beyond which nobody was enrolled: more than a day."""

ROUNDING: Final = 1e-3
"""How much the norm of an embedding may differ from 1."""

_OFFERED: Final = 100_000
"""Bytes that must fit onto the disk before anybody is heard; an enrolment takes some thousands."""

_Number = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class EncoderVersion(_Strict):
    """A speaker encoder: the name of its model, for people, and the sha256 of its files, which tells it from others.

    dimension is how many numbers its embeddings have; None: that is not known before it is heard with.
    """

    name: str = Field(min_length=1, max_length=255)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    dimension: int | None = Field(None, ge=1)

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]}...)"


class KeptEnrolment(_Strict):
    """What is kept of an enrolment.

    made is the day of it, speech_s the seconds of speech that were heard. embedding (encoder.dimension,) is the voice,
    of norm 1; it is not shown. How loud it was says nothing of another recording, and is not kept.
    """

    format: Literal[2]
    made: date
    speech_s: float = Field(gt=0, le=LONGEST_S, allow_inf_nan=False)
    encoder: EncoderVersion
    embedding: tuple[_Number, ...] = Field(repr=False)

    @model_validator(mode="after")
    def _is_a_voice(self) -> Self:
        if len(self.embedding) != self.encoder.dimension or abs(math.hypot(*self.embedding) - 1) > ROUNDING:
            raise ValueError("the embedding needs as many numbers as its encoder gives, and norm 1")
        return self

    def __str__(self) -> str:
        return f"{self.encoder.name}, {self.speech_s:.1f} s of speech, made {self.made}"


class Enrolments:
    """The folder of what is kept. It is made when the first one is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def usual(cls) -> Enrolments:
        """Return those in $CASCADE_ENROLMENTS, else in the user's data folder."""
        if given := os.environ.get("CASCADE_ENROLMENTS"):
            return cls(Path(given).expanduser().absolute())
        from platformdirs import user_data_path

        return cls(user_data_path("cascade", appauthor=False) / "enrolments")

    def file(self, name: str) -> Path:
        """Return where an enrolment of that name is, or would be.

        A letter with an accent can be spelt as one character or as two; a file may have come from a system that
        prefers the other spelling.
        """
        spelt = [self.folder / f"{unicodedata.normalize(form, name)}{SUFFIX}" for form in ("NFC", "NFD")]
        return next(filter(os.path.lexists, spelt), spelt[0])

    def names(self) -> list[str]:
        """Return the names that are taken; OutputError where the folder is none, or may not be looked into."""
        names = {unicodedata.normalize("NFC", path.stem) for path in self._listed() if path.suffix == SUFFIX}
        return sorted(filter(is_name, names))

    def clear(self) -> list[Path]:
        """Delete what was being written when its process was killed, and return it: there is an embedding in it."""
        return clear_abandoned(path for path in self._listed() if path.name.startswith(".") and path.suffix == PARTIAL)

    def warn_if_open(self) -> None:
        """Warn where other users may look into the folder: names tell who is enrolled; or even put files there."""
        with suppress(OSError):
            state = self.folder.stat()
            mode = stat.S_IMODE(state.st_mode)
            if hasattr(os, "getuid") and stat.S_ISDIR(state.st_mode) and mode & 0o077:
                log.warning(
                    "'%s' is open to other users (mode %o, expected 700); run: chmod 700 '%s'",
                    self.folder, mode, self.folder,
                )  # fmt: skip

    def check_writable(self) -> None:
        """Make the folder if need be; raise OutputError if nothing can be written to it."""
        with _writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(bytes(_OFFERED))
                file.flush()
                os.fsync(file.fileno())

    def _listed(self) -> list[Path]:
        try:
            return sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise OutputError(
                f"{self.folder} cannot be looked into: {error.strerror}; set CASCADE_ENROLMENTS to a folder that can"
            ) from None

    def read(self, name: str) -> KeptEnrolment:
        """Return what is kept under a name; EnrolmentError if it cannot be used."""
        return read(self.file(name))

    def check_free(self, name: str, *, replace: bool) -> None:
        """Raise EnrolmentError if nothing may be kept under a name: it is none, or is taken and not to be replaced."""
        if not is_name(name):
            raise EnrolmentError(
                f"the name of an enrolment must be 1 to {LONGEST_NAME} letters, digits, - and _, and not begin with -; "
                "give another --name"
            )
        if os.path.lexists(self.file(name)) and not replace:
            raise _taken(name)
        if self.file(name).is_dir():
            raise _no_file(self.file(name))

    def keep(self, name: str, kept: KeptEnrolment, *, replace: bool) -> Path:
        """Write an enrolment, whole or not at all, and return its file; EnrolmentError or OutputError."""
        self.check_free(name, replace=replace)
        path = self.file(name)
        with _writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=PARTIAL, dir=self.folder)  # mode 0600
            try:
                with in_use(Path(partial)), os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(kept.model_dump_json() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                    if replace:
                        Path(partial).replace(path)
                    else:
                        give_name(Path(partial), path)
            except FileExistsError:
                raise _taken(name) from None
            finally:
                Path(partial).unlink(missing_ok=True)
            sync(self.folder)
        return path

    def forget(self, name: str) -> list[Path]:
        """Delete an enrolment, with what a crash may have left of its writing, and return what was deleted.

        A file that cannot be used is deleted as well. Raises EnrolmentError if nothing is kept under that name, or only
        a folder lies there, and OutputError if it cannot be deleted.
        """
        known = self._listed()
        path = self.file(name) if is_name(name) else self.folder
        if is_name(name) and path.is_dir():
            raise _no_file(path)
        left = [other for other in known if other.name.startswith(f".{path.stem}.") and other.suffix == PARTIAL]
        left += [path] if path in known else []
        if not left:
            raise EnrolmentError(f"no enrolment is kept under the name '{name}'; {_kept_in(self)}")
        with _writing(self.folder):
            for path in left:
                path.unlink()
            sync(self.folder)
        return left


def is_name(text: str) -> bool:
    """Tell whether an enrolment may be called so: never a path, nor a file's name with an ending.

    Many scripts write vowels as marks on a letter.
    """
    text = unicodedata.normalize("NFC", text)
    letters = all(letter in "-_" or letter.isalnum() or _is_mark(letter) for letter in text)
    return letters and 0 < len(text) <= LONGEST_NAME and text[0] != "-" and not _is_mark(text[0])


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Mc")


def is_kept(path: Path) -> bool:
    """Tell whether a file that was named as an enrolment is a kept one, not a recording."""
    return path.suffix == SUFFIX


def named(path: Path) -> str:
    """Return what an enrolment is called where results are told: a kept one's name, or a recording's without folders.

    Results are made to be shared, and of a recording's place only its name is anybody's business.
    """
    return path.stem if is_kept(path) else path.name


def find(given: Path | str, folder: Path = Path()) -> Path:
    """Return the file that an enrolment means: as given, seen from a folder, or else what is kept under that name.

    A file wins over a name. Whether there is anything in the end is found when it is read.
    """
    path, name = folder / given, str(given)
    return path if not is_name(name) or _is_file(path) else Enrolments.usual().file(name)


def read(path: Path) -> KeptEnrolment:
    """Return what a file keeps; EnrolmentError if it is not there, not private, not whole, or of another format."""
    content = _private_content(path)
    try:
        return KeptEnrolment.model_validate_json(content)
    except ValidationError as error:
        wrong_format = any(problem["loc"] == ("format",) for problem in error.errors())
    why = f"is not of format {FORMAT}, the only one known here" if wrong_format else "is damaged"
    raise _unusable(path, why)


def _unusable(path: Path, why: str) -> EnrolmentError:
    return EnrolmentError(f"the enrolment '{path.stem}' ({path}) {why}; {anew(path)}")


def check_dimension(path: Path, kept: KeptEnrolment, encoders: Iterable[EncoderVersion]) -> None:
    """Raise EnrolmentError for a kept enrolment of one of these encoders that has not as many numbers as it gives."""
    for encoder in encoders:
        if encoder.sha256 == kept.encoder.sha256 and encoder.dimension not in (None, kept.encoder.dimension):
            raise _unusable(path, "is damaged")


def check_encoder(path: Path, kept: KeptEnrolment, encoder: EncoderVersion | None) -> None:
    """Raise EnrolmentError unless a kept enrolment is of the encoder that hears now; None: it is not known which."""
    if encoder is None or kept.encoder.sha256 != encoder.sha256:
        here = "none" if encoder is None else str(encoder)
        raise EnrolmentError(
            f"the enrolment '{path.stem}' is of the speaker encoder {kept.encoder}, and this configuration has {here}: "
            f"their embeddings cannot be compared; {anew(path)}"
        )
    check_dimension(path, kept, [encoder])


def anew(path: Path) -> str:
    """Say what makes an enrolment anew."""
    return f"make it anew: python -m cascade enrol RECORDING --name {path.stem} --replace --config CONFIG"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that may not be looked into
        return False


def _private_content(path: Path) -> bytes:
    """Return the bytes of a file that is this user's own and that nobody else may read."""
    try:
        if not path.is_file():
            raise _no_file(path) if os.path.lexists(path) else _not_kept(path.stem, Enrolments(path.parent))
        with path.open("rb") as file:
            _check_private(path, os.fstat(file.fileno()))
            return file.read(LARGEST)
    except OSError as error:
        raise EnrolmentError(
            f"the enrolment '{path.stem}' ({path}) cannot be read: {error.strerror}; make it readable for yourself"
        ) from None


def _check_private(path: Path, state: Any) -> None:
    if not hasattr(os, "getuid"):
        return  # Windows: the user's own folders are closed to other users, and modes say nothing
    if state.st_uid != os.getuid():
        raise EnrolmentError(
            f"the enrolment '{path.stem}' ({path}) belongs to another user, who may have put another voice in it; "
            f"remove it, and {anew(path)}"
        )
    if state.st_mode & 0o077:
        raise EnrolmentError(
            f"the enrolment '{path.stem}' is open to other users (mode {state.st_mode & 0o777:o}, expected 600), and a "
            f"voice's embedding is biometric data; run: chmod 600 '{path}'"
        )


def _taken(name: str) -> EnrolmentError:
    return EnrolmentError(
        f"an enrolment is kept under the name '{name}' already; add --replace, or give another --name"
    )


def _no_file(path: Path) -> EnrolmentError:
    """Say that a name is taken by something that is no file."""
    what = "a link to nothing" if path.is_symlink() else "a folder" if path.is_dir() else "no file"
    return EnrolmentError(f"no enrolment can be under the name '{path.stem}': '{path}' is {what}; remove it")


def _not_kept(name: str, store: Enrolments) -> EnrolmentError:
    return EnrolmentError(f"no enrolment is kept under the name '{name}', and no such file is there; {_kept_in(store)}")


def _kept_in(store: Enrolments) -> str:
    """Say which names there are, or how to make the first."""
    known = [name for name in store.names() if store.file(name).is_file()]
    return f"kept are: {', '.join(known)}" if known else "keep one with: python -m cascade enrol RECORDING --name NAME"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say in one line why nothing can be written to a folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(
            f"{folder} cannot be written: {reason}; set CASCADE_ENROLMENTS to a folder that can"
        ) from None
