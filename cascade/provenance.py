"""What a result came from: configuration, code, models, packages and machine, so that it can be made again."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

import cascade
from cascade.config import CascadeConfig
from cascade.manifests import checksums, models_of

_ROOT: Final = Path(__file__).parent.parent
"""The checkout, if this is one."""


@dataclass(frozen=True, slots=True)
class Revision:
    """The git commit that is checked out; dirty tells that tracked files differ from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a run was made with.

    models: the sha256 of each file, by the model's name and the file's path, as manifests.check_models found it.
    own_files: the sha256 of each file of the user's own that a stage reads, by its path.
    packages: version by name, of what cascade and its extras in use require. revision is None outside a checkout.
    source: sha256 of cascade's own program text, and of the small networks that come with it.
    """

    config: CascadeConfig
    models: Mapping[str, Mapping[str, str]]
    own_files: Mapping[str, str]
    packages: Mapping[str, str]
    revision: Revision | None
    source: str
    version: str
    python: str
    platform: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it and as it may be shared: of paths there are only the names at their end.

        Of the configuration there are the stages alone; the benchmark in it plays a part only where one is run.
        """
        own = {str(place) for file in self.own_files for place in (Path(file), *Path(file).parents)}
        names = told_apart(self.own_files)
        return {
            "config": {"stages": [without_folders(stage.model_dump(), own) for stage in self.config.stages]},
            "config_sha256": self.config.sha256,
            "models": {name: dict(files) for name, files in self.models.items()},
            "own_files": {names[file]: sha256 for file, sha256 in self.own_files.items()},
            "cascade": self.version,
            "source_sha256": self.source,
            "git": None if self.revision is None else asdict(self.revision),
            "packages": dict(self.packages),
            "python": self.python,
            "platform": self.platform,
        }


def gather(config: CascadeConfig) -> Provenance:
    """Note what a run with a configuration is made with; once for all of its recordings."""
    return Provenance(
        config=config,
        models={name: checksums(manifest) for name, manifest in models_of(config).items()},
        own_files={str(path): sha256_of(path) for stage in config.stages for path in stage.own_files},
        packages=versions(extras_of(config)),
        revision=git_revision(_ROOT),
        source=source_sha256(),
        version=cascade.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
    )


def without_folders(value: Any, own: Collection[str] = ()) -> Any:
    """Return settings as they may be shared: a path's last name for each path, and for each text that is in `own`."""
    if isinstance(value, Mapping):
        return {key: without_folders(inner, own) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(inner, own) for inner in value]
    return Path(value).absolute().name if isinstance(value, Path) or value in own else value


def told_apart(paths: Iterable[str]) -> dict[str, str]:
    """Return, for each of several paths, the shortest end of it that no other of them has."""
    parts = {path: Path(path).parts for path in paths}
    return {
        path: next(
            Path(*mine[-length:]).as_posix()
            for length in count(1)
            if sum(theirs[-length:] == mine[-length:] for theirs in parts.values()) == 1 or length >= len(mine)
        )
        for path, mine in parts.items()
    }


def extras_of(config: CascadeConfig) -> tuple[str, ...]:
    """Return the extras that a configuration's stages need, each once."""
    return tuple(dict.fromkeys(stage.extra for stage in config.stages if stage.extra))


def requirements(extra: str = "") -> tuple[Requirement, ...]:
    """Return what cascade itself requires, or what one of its extras does, those that it names in turn included."""
    found: list[Requirement] = []
    for requirement in _declared(extra):
        if requirement.name == "cascade":  # another of its extras: a checkout that is not installed has no such package
            found += (inner for other in sorted(requirement.extras) for inner in requirements(other))
        else:
            found.append(requirement)
    return tuple(found)


def _declared(extra: str) -> tuple[Requirement, ...]:
    """Return what is declared to be required.

    That is in the installed package's metadata; cascade run from a checkout without being installed has none, and there
    pyproject.toml says it.
    """
    try:
        declared = [Requirement(line) for line in metadata.requires("cascade") or ()]
    except metadata.PackageNotFoundError:
        project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return tuple(map(Requirement, project["optional-dependencies"][extra] if extra else project["dependencies"]))
    mine = [requirement for requirement in declared if _holds(requirement, extra)]
    return tuple(requirement for requirement in mine if not (extra and _holds(requirement, "")))


def _holds(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def installed(distribution: str) -> str | None:
    """Return the version of an installed package, None if it is not; nothing is imported."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def versions(extras: Iterable[str]) -> dict[str, str]:
    """Return the version of each installed package that cascade or one of the extras requires."""
    names = [requirement.name for extra in ("", *extras) for requirement in requirements(extra)]
    return {name: version for name in names if (version := installed(name)) is not None}


def sha256_of(path: Path) -> str:
    """Return a file's sha256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_sha256() -> str:
    """Return the sha256 of cascade's own program text, which tells two states of it apart where git cannot."""
    whole = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def git_revision(folder: Path) -> Revision | None:
    """Return what is checked out in a folder, None if it is no checkout or git cannot tell; nothing is written."""
    git = shutil.which("git")
    if git is None or not (folder / ".git").exists():
        return None
    commit = _git(git, folder, "rev-parse", "--verify", "HEAD")
    changes = _git(git, folder, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else Revision(commit, bool(changes))


def _git(git: str, folder: Path, *arguments: str) -> str | None:
    """Return what git prints about a checkout, None if it fails."""
    # Variables such as GIT_DIR, which git sets for its hooks, would lead to another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(  # noqa: S603 (fixed commands)
        # Without the option, status rewrites .git/index, as `describe --dirty` does even with it.
        [git, "--no-optional-locks", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=environment,
    )
    return done.stdout.strip() if done.returncode == 0 else None
