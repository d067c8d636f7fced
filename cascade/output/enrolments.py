"""Enrolments that are kept under a name: a voice's embedding, never its audio.

Each is a small JSON file, NAME.json, that its owner alone may read, in $CASCADE_ENROLMENTS or the user's data folder.
An embedding is biometric data: it tells whose voice is in a recording. So its numbers are shown nowhere, and a file
that others may read, or that belongs to somebody else, is refused.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cascade.errors import EnrolmentError, OutputError
from cascade.output.files import sync

FORMAT: Final = 1
"""What the file's layout, and the meaning of its numbers, are called; another one is refused."""

SUFFIX: Final = ".json"

LARGEST: Final = 1_000_000
"""Bytes. A kept enrolment has some thousands."""

_NAME: Final = re.compile(r"\w[\w-]{0,39}")
_Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class EncoderVersion(_Strict):
    """A speaker encoder: the name of its model, for people, and the sha256 of its files, which tells it from others."""

    name: str = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]}...)"


class KeptEnrolment(_Strict):
    """What is kept of an enrolment.

    made is the day of it, speech_s the seconds of speech that were heard. embedding (dimension,) and level_db (dB re
    full scale; None: not known) are those of the main speaker's profile; the embedding is not shown.
    """

    format: Literal[1]
    made: date
    speech_s: float = Field(gt=0, allow_inf_nan=False)
    encoder: EncoderVersion
    dimension: int = Field(ge=1)
    embedding: tuple[_Number, ...] = Field(repr=False)
    level_db: _Number | None

    @model_validator(mode="after")
    def _is_a_voice(self) -> Self:
        if len(self.embedding) != self.dimension or not any(self.embedding):
            raise ValueError("the embedding needs as many numbers as its dimension, and not all of them 0")
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
        """Return where an enrolment of that name is, or would be."""
        return self.folder / f"{name}{SUFFIX}"

    def names(self) -> list[str]:
        """Return the names that are taken."""
        return sorted(path.stem for path in self.folder.glob(f"*{SUFFIX}") if is_name(path.stem))

    def read(self, name: str) -> KeptEnrolment:
        """Return what is kept under a name; EnrolmentError if it cannot be used."""
        return read(self.file(name))

    def check_free(self, name: str, *, replace: bool) -> None:
        """Raise EnrolmentError if nothing may be kept under a name: it is none, or is taken and not to be replaced."""
        if not is_name(name):
            raise EnrolmentError(
                "the name of an enrolment must be 1 to 40 letters, digits, - and _, and not begin with -; "
                "give another --name"
            )
        if os.path.lexists(self.file(name)) and not replace:
            raise EnrolmentError(
                f"an enrolment is kept under the name '{name}' already; add --replace, or give another --name"
            )

    def keep(self, name: str, kept: KeptEnrolment, *, replace: bool) -> Path:
        """Write an enrolment, whole or not at all, and return its file; EnrolmentError or OutputError."""
        self.check_free(name, replace=replace)
        path = self.file(name)
        with _writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(prefix=f".{name}.", suffix=".partial", dir=self.folder)  # mode 0600
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(kept.model_dump_json() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                Path(partial).replace(path)
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise
            sync(self.folder)
        return path

    def forget(self, name: str) -> list[Path]:
        """Delete an enrolment, with what a crash may have left of its writing, and return what was deleted.

        A file that cannot be used is deleted as well. Raises EnrolmentError if nothing is kept under that name, and
        OutputError if it cannot be deleted.
        """
        left = list(self.folder.glob(f".{name}.*.partial")) if is_name(name) else []
        if is_name(name) and os.path.lexists(self.file(name)):
            left.append(self.file(name))
        if not left:
            raise EnrolmentError(f"no enrolment is kept under the name '{name}'; {_kept_in(self.folder)}")
        with _writing(self.folder):
            for path in left:
                path.unlink()
            sync(self.folder)
        return left


def is_name(text: str) -> bool:
    """Tell whether an enrolment may be called so: never a path, nor a file's name with an ending."""
    return _NAME.fullmatch(text) is not None


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
    raise EnrolmentError(f"the enrolment '{path.stem}' ({path}) {why}; {anew(path)}")


def check_encoder(path: Path, kept: KeptEnrolment, encoder: EncoderVersion | None) -> None:
    """Raise EnrolmentError unless a kept enrolment is of the encoder that hears now; None: it is not known which."""
    if encoder is None or kept.encoder.sha256 != encoder.sha256:
        here = "none" if encoder is None else str(encoder)
        raise EnrolmentError(
            f"the enrolment '{path.stem}' is of the speaker encoder {kept.encoder}, and this configuration has {here}: "
            f"their embeddings cannot be compared; {anew(path)}"
        )


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
            raise _not_kept(path)
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


def _not_kept(path: Path) -> EnrolmentError:
    return EnrolmentError(
        f"no enrolment is kept under the name '{path.stem}', and no such file is there; {_kept_in(path.parent)}"
    )


def _kept_in(folder: Path) -> str:
    """Say which names there are, or how to make the first."""
    known = Enrolments(folder).names()
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
