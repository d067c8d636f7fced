"""What a configuration needs to run, and what of it is not here; nothing is loaded, no package of a model imported."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import cascade
from cascade.backends import faster_whisper
from cascade.config import AnyStage, CascadeConfig, FasterWhisperSettings, MainSpeakerSettings
from cascade.errors import MissingExtraError, ModelError
from cascade.manifests import Manifest, State, models_of, verify
from cascade.provenance import extras_of, installed, requirements, versions


@dataclass(frozen=True, slots=True)
class Row:
    """One stage: what stands before and after it, its lookahead (None: the whole recording), extra and models."""

    use: str
    takes: str
    gives: str
    lookahead_s: float | None
    extra: str | None
    models: Mapping[str, State]

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """The row as texts for a table."""
        models = ", ".join(f"{name} {state}" for name, state in self.models.items())
        return self.use, f"{self.takes} -> {self.gives}", _shown(self.lookahead_s), self.extra or "-", models or "-"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is missing or wrong, and the command or the change that mends it."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Report:
    """The stages in order; the versions of what is installed, by name; everything that stands in the way of a run."""

    rows: tuple[Row, ...]
    versions: Mapping[str, str]
    problems: tuple[Problem, ...]

    @property
    def lookahead_s(self) -> float | None:
        """Seconds of audio after a turn that the whole chain waits for; None: the whole recording."""
        total = 0.0
        for row in self.rows:
            if row.lookahead_s is None:
                return None
            total += row.lookahead_s
        return total


def examine(config: CascadeConfig) -> Report:
    """Look at what each stage of a configuration needs; takes about 0.2 s, nearly all of it for hashing models."""
    models = models_of(config)
    states = {name: verify(manifest) for name, manifest in models.items()}
    return Report(
        rows=tuple(_row(stage, {name: _worst(states[name]) for name in stage.models}) for stage in config.stages),
        versions={
            "cascade": cascade.__version__,
            "python": platform.python_version(),
            **versions(extras_of(config)),
        },
        problems=(*_missing_packages(config), *_wrong_models(models, states), *_own_files(config)),
    )


def _row(stage: AnyStage, models: Mapping[str, State]) -> Row:
    return Row(stage.use, stage.takes.__name__, stage.gives.__name__, stage.lookahead_s, stage.extra, models)


def _worst(files: list[tuple[str, State]]) -> State:
    """Return one state for all files of a model: missing files before wrong ones."""
    found = {state for _, state in files}
    return next((state for state in (State.MISSING, State.WRONG) if state in found), State.OK)


def _missing_packages(config: CascadeConfig) -> Iterator[Problem]:
    """Yield a problem for each package that is not installed, or in a version that was not meant."""
    for extra in ("", *extras_of(config)):
        needed = f"needed by the extra '{extra}'" if extra else "needed by cascade"
        absent = [requirement for requirement in requirements(extra) if installed(requirement.name) is None]
        if absent:
            names = ", ".join(requirement.name for requirement in absent)
            wanted = " ".join(f"'{requirement.name}{requirement.specifier}'" for requirement in absent)
            yield Problem(f"not installed, {needed}: {names}", f"run: pip install {wanted}")
        for requirement in requirements(extra):
            version = installed(requirement.name)
            fix = f"run: pip install '{requirement.name}{requirement.specifier}'"
            if version is not None and not requirement.specifier.contains(version, prereleases=True):
                yield Problem(f"{requirement.name} {version} is installed, {requirement.specifier} {needed}", fix)


def _wrong_models(models: Mapping[str, Manifest], states: Mapping[str, list[tuple[str, State]]]) -> Iterator[Problem]:
    for name, manifest in models.items():
        if installed(manifest.package.distribution) is None:
            continue  # that is said of the package already
        for file, state in states[name]:
            if state is not State.OK:
                found = "is missing" if state is State.MISSING else "has another sha256 than its manifest says"
                yield Problem(f"{file} of the model {name} {found}", f"run: {manifest.reinstall}")


def _own_files(config: CascadeConfig) -> Iterator[Problem]:
    """Yield a problem for each file or folder of the user's own that a stage is to read and that is not there."""
    for stage in config.stages:
        if isinstance(stage, MainSpeakerSettings):
            for path in stage.enrolment:
                if why := _unreadable(path):
                    yield Problem(f"the enrolment '{path}' {why}", "name a recording of the main speaker alone")
        elif isinstance(stage, FasterWhisperSettings) and not stage.models:
            try:
                faster_whisper.model_folder(stage.size)
            except (MissingExtraError, ModelError) as error:
                what, _, fix = str(error).partition("; ")
                yield Problem(what, fix)


def _unreadable(path: Path) -> str:
    """Say why a file cannot be read, nothing if it can."""
    try:
        if path.is_file():
            return "" if os.access(path, os.R_OK) else "may not be read"
        return "is not a file" if path.exists() else "does not exist"
    except OSError as error:
        return f"cannot be looked at ({error.strerror})"


def _shown(lookahead_s: float | None) -> str:
    return "whole recording" if lookahead_s is None else f"{lookahead_s:.2f} s"
