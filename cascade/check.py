"""What a configuration needs to run, and what of it is not here; nothing is loaded, no package of a model imported."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import cascade
from cascade.audio import announced_duration_s, open_audio
from cascade.backends.hub import TOKENS_PAGE
from cascade.backends.openai import key_fault
from cascade.config import CascadeConfig
from cascade.errors import AudioError, CascadeError, EnrolmentError, MissingExtraError, ModelError
from cascade.machine import Machine
from cascade.manifests import QUICK, Manifest, Needs, State, glance, models_of, worst
from cascade.output.models import shown_size
from cascade.provenance import extras_of, installed, requirements, versions
from cascade.settings import AnswererSettings, MainSpeakerSettings, StreamSettings

CPU: Final = "cpu"


@runtime_checkable
class NeedsKey(Protocol):
    """Settings of a stage that speaks to a server; key_variable: where its key is looked for, None if it gets none."""

    key_variable: str | None
    needs_key: bool


@runtime_checkable
class Sends(Protocol):
    """Settings of a stage that asks a server; server: its host, here: whether that is this machine itself."""

    server: str
    server_is_here: bool


@runtime_checkable
class NeedsDevice(Protocol):
    """Settings of a stage that is told what to run on: cpu or cuda."""

    device: str


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
class Estimate:
    """What hearing recordings will take, from what each model was measured to take on its device.

    audio_s: their length in seconds, longest_s: that of the longest. time_s: computing time of what was measured.
    memory: bytes by device. unmeasured: models (and on what device) that nobody measured, or not their time; what they
    take comes on top, and they may be what takes longest. Answering is not in it, where that waits for a server.
    """

    audio_s: float
    longest_s: float
    time_s: float
    memory: Mapping[str, int]
    unmeasured: tuple[str, ...]

    def __str__(self) -> str:
        audio = f"{self.audio_s / 60:.1f} min of audio"
        memory = ", ".join(f"{shown_size(size)} on {device}" for device, size in self.memory.items())
        taken = f"{self.time_s / 60:.1f} min, {memory or 'little memory'}"
        if not self.unmeasured:
            return f"{audio}: about {taken}"
        unmeasured = ", ".join(self.unmeasured)
        return f"{audio}: more than {taken}, and it is not known how much; not measured: {unmeasured}"


@dataclass(frozen=True, slots=True)
class Report:
    """The stages in order; the versions of what is installed, by name; everything that stands in the way of a run.

    notes: what else is worth knowing, a line each. estimate: for the recordings that were given, if any were. hold_s:
    what an enrolment would take from the lookahead, in seconds.
    """

    rows: tuple[Row, ...]
    versions: Mapping[str, str]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    estimate: Estimate | None = None
    hold_s: float = 0.0

    @property
    def lookahead(self) -> str:
        """The lookahead of the whole chain in words."""
        if self.lookahead_s is None:
            return "the whole recording"
        if not self.hold_s:
            return f"{self.lookahead_s:.2f} s"
        return f"{self.lookahead_s - self.hold_s:.2f} s with an enrolment, {self.lookahead_s:.2f} s without"

    @property
    def lookahead_s(self) -> float | None:
        """Seconds of audio after a turn that the whole chain waits for; None: the whole recording."""
        total = 0.0
        for row in self.rows:
            if row.lookahead_s is None:
                return None
            total += row.lookahead_s
        return total


def examine(
    config: CascadeConfig,
    recordings: Sequence[Path | str] = (),
    *,
    machine: Machine | None = None,
    root: Path | None = None,
) -> Report:
    """Look at what each stage of a configuration needs; takes well below 2 s, most of it for hashing small models.

    recordings are those that an estimate is wanted for. machine and root (the folder of models) are this machine's.
    """
    machine = machine or Machine.this()
    models = models_of(config)
    states = {name: glance(manifest, root=root) for name, manifest in models.items()}
    estimate = _estimate(config, models, recordings) if recordings else None
    return Report(
        rows=tuple(
            _row(stage, {name: worst(states[name]) for name in stage.models})
            for stage in (*config.stream, *config.stages[len(config.stream) :])
        ),
        versions={
            "cascade": cascade.__version__,
            "python": platform.python_version(),
            **versions(extras_of(config)),
        },
        problems=(
            *_missing_packages(config),
            *_wrong_models(models, states, machine),
            *_missing_keys(config, machine),
            *_refused(config),
            *_missing_devices(config, machine),
            *_enrolment(config),
            *_own_files(config),
            *_too_large(estimate, machine),
        ),
        notes=(
            machine.device,
            *_kept(config),
            *_sent(config),
            *_notes(config, machine),
            *_compared_by_size(models, states),
        ),
        estimate=estimate,
        hold_s=0.0 if config.gate is None else config.gate.lookahead_s or 0.0,
    )


def unheard(recordings: Sequence[Path | str]) -> Iterator[Problem]:
    """Yield a problem for each recording that cannot be heard, from its first second; standard input is left alone."""
    for recording in recordings:
        if str(recording) == "-":
            continue
        try:
            next(open_audio(recording), None)
        except AudioError as error:
            what, _, fix = str(error).partition("; ")
            yield Problem(what, fix or "name a recording that can be read, or leave it out")


def _row(stage: StreamSettings | AnswererSettings, models: Mapping[str, State]) -> Row:
    return Row(stage.use, stage.takes.__name__, stage.gives.__name__, stage.lookahead_s, stage.extra, models)


# --- what is missing --------------------------------------------------------------------------------------------------


def _missing_packages(config: CascadeConfig) -> Iterator[Problem]:
    """Yield a problem for each package that is not installed, or in a version that was not meant."""
    seen = set[str]()
    for extra in ("", *extras_of(config)):
        needed = f"needed by the extra '{extra}'" if extra else "needed by cascade"
        mine = [one for one in requirements(extra) if f"{one.name}{one.specifier}" not in seen]
        seen |= {f"{one.name}{one.specifier}" for one in mine}  # a requirement's own text says which extra it is for
        absent = [requirement for requirement in mine if installed(requirement.name) is None]
        if absent:
            names = ", ".join(requirement.name for requirement in absent)
            wanted = " ".join(f"'{requirement.name}{requirement.specifier}'" for requirement in absent)
            yield Problem(f"not installed, {needed}: {names}", f"run: pip install {wanted}")
        for requirement in mine:
            version = installed(requirement.name)
            fix = f"run: pip install '{requirement.name}{requirement.specifier}'"
            if version is not None and not requirement.specifier.contains(version, prereleases=True):
                yield Problem(f"{requirement.name} {version} is installed, {requirement.specifier} {needed}", fix)


def _wrong_models(
    models: Mapping[str, Manifest], states: Mapping[str, list[tuple[str, State]]], machine: Machine
) -> Iterator[Problem]:
    for name, manifest in models.items():
        if manifest.package and installed(manifest.package.distribution) is None:
            continue  # that is said of the package already
        if not manifest.comes_installed and {state for _, state in states[name]} == {State.MISSING}:
            yield Problem(f"the model {name} is not here ({manifest.shown_size})", _way_to(manifest, machine))
            continue
        for file, state in states[name]:
            if not state.right:
                yield Problem(f"{file} of the model {name} {_FOUND[state]}", _way_to(manifest, machine))


_FOUND: Final = {
    State.MISSING: "is missing",
    State.WRONG: "is another file than its manifest, or its first pull, says",
    State.UNRECORDED: "was put there by hand, and nothing says what it should be",
}


def _way_to(manifest: Manifest, machine: Machine) -> str:
    """Say all that it takes to get a model's files."""
    steps = [f"run: {manifest.fix}"]
    if manifest.gated:
        steps.insert(0, f"accept the terms at {manifest.source}")
        if not _token_set(machine):
            steps.insert(1, f"make a token at {TOKENS_PAGE}, run: export HF_TOKEN=...")
    return ", ".join(steps)


def _token_set(machine: Machine) -> bool:
    try:
        return bool(machine.environment.get("HF_TOKEN")) or machine.has_token()
    except ModelError:
        return False  # without huggingface_hub; that is said as a missing package


def _missing_keys(config: CascadeConfig, machine: Machine) -> Iterator[Problem]:
    for stage in config.stages:
        if not isinstance(stage, NeedsKey) or not stage.key_variable:
            continue
        key = machine.environment.get(stage.key_variable, "")
        fault = key_fault(stage.key_variable, key, needed=stage.needs_key)
        if fault and not key.strip():
            yield Problem(f"{fault}, which '{stage.use}' needs", f"run: export {stage.key_variable}=...")
        elif fault:
            yield Problem(fault, f"run: export {stage.key_variable}=YOUR_KEY")


@runtime_checkable
class Refuses(Protocol):
    """Settings of a stage that would not be loaded as it is; warning: what is to be known before, None if nothing."""

    warning: str | None

    def refusals(self) -> Iterator[CascadeError]:
        """Yield why."""


def _refused(config: CascadeConfig) -> Iterator[Problem]:
    for stage in config.stages:
        if isinstance(stage, Refuses):
            for error in stage.refusals():
                what, _, fix = str(error).partition("; ")
                yield Problem(what, fix)


def _missing_devices(config: CascadeConfig, machine: Machine) -> Iterator[Problem]:
    for stage in config.stages:
        if isinstance(stage, NeedsDevice) and stage.device != CPU and not machine.gpus:
            yield Problem(f"'{stage.use}' is to run on {stage.device}, and no GPU is here", "set: device: cpu")


def _own_files(config: CascadeConfig) -> Iterator[Problem]:
    """Yield a problem for each file or folder of the user's own that a stage is to read and that is not there."""
    for stage in config.stages:
        try:
            stage.check_own_model()
        except (MissingExtraError, ModelError) as error:
            what, _, fix = str(error).partition("; ")
            yield Problem(what, fix)


def _enrolment(config: CascadeConfig) -> Iterator[Problem]:
    """Yield what is wrong with an enrolment: one that is kept is read, recordings are looked for."""
    gate = config.gate
    if gate is None:
        return
    try:
        kept = gate.kept
    except EnrolmentError as error:
        what, _, fix = str(error).partition("; ")
        yield Problem(what, fix)
        return
    for path in gate.enrolment if kept is None else ():
        if why := _unreadable(path):
            yield Problem(f"the enrolment '{path}' {why}", "name a recording of the main speaker alone")


def _kept(config: CascadeConfig) -> Iterator[str]:
    """Yield what is kept as the enrolment, if that is usable."""
    with suppress(EnrolmentError):
        if config.gate is not None and (kept := config.gate.kept) is not None:
            yield f"enrolled: {config.gate.enrolment[0].stem} ({kept})"


def _unreadable(path: Path) -> str:
    """Say why a file cannot be read, nothing if it can."""
    try:
        if path.is_file():
            return "" if os.access(path, os.R_OK) else "may not be read"
        return "is not a file" if path.exists() else "does not exist"
    except OSError as error:
        return f"cannot be looked at ({error.strerror})"


def _sent(config: CascadeConfig) -> Iterator[str]:
    """Yield a line for each server that a run speaks to, with what it is sent; or that nothing leaves this machine."""
    if not config.gated:
        whose = "the transcript of everyone, since there is no gate"
    elif config.always:
        whose = "the admitted transcript"
    else:
        whose = "the admitted transcript (in general mode that of everyone)"
    servers = [stage for stage in config.stages if isinstance(stage, Sends)]
    for stage in servers:
        place = f"{stage.server}, on this machine" if stage.server_is_here else stage.server
        yield f"sent to {place}: {whose}, a benchmark's description of the main speaker, and the question"
    if not servers:
        yield "nothing leaves this machine"


def _notes(config: CascadeConfig, machine: Machine) -> Iterator[str]:
    """Yield what is right but not plain to see."""
    yield from (f"warning: {stage.warning}" for stage in config.stages if isinstance(stage, Refuses) and stage.warning)
    for stage in config.stages:
        if not isinstance(stage, NeedsKey) or not stage.key_variable:
            continue
        key = machine.environment.get(stage.key_variable, "")
        if key.strip() and key_fault(stage.key_variable, key, needed=stage.needs_key) is None:
            yield f"{stage.key_variable} is set (it is not shown)"


def _compared_by_size(models: Mapping[str, Manifest], states: Mapping[str, list[tuple[str, State]]]) -> Iterator[str]:
    """Yield which models have files here whose bytes were not read."""
    sizes = {name: {file.path: file.size or 0 for file in manifest.files} for name, manifest in models.items()}
    large = [
        name
        for name, found in states.items()
        if any(state is not State.MISSING and sizes[name][path] > QUICK for path, state in found)
    ]
    if large:
        yield (
            f"large files are compared by their size here ({', '.join(large)}); by their sha256 with: "
            "python -m cascade models verify"
        )


# --- what it will take ------------------------------------------------------------------------------------------------


def _estimate(config: CascadeConfig, models: Mapping[str, Manifest], recordings: Sequence[Path | str]) -> Estimate:
    lengths = [announced_duration_s(recording) or 0.0 for recording in recordings]
    audio_s, longest_s = sum(lengths), max(lengths)
    time_s, memory, unmeasured = 0.0, dict[str, int](), list[str]()
    counted = set[tuple[str, str]]()
    for device, manifest in _used(config, models):
        needs = _needs(manifest, device)
        if needs is None or needs.rtf is None:
            unmeasured.append(f"{manifest.name} on {device}")
        if needs is not None:
            time_s += (needs.rtf or 0.0) * audio_s
        if needs is not None and (device, manifest.name) not in counted:  # most of it is there once for all stages
            counted.add((device, manifest.name))
            taken = needs.memory + round(needs.memory_per_hour * longest_s / 3600)
            memory[device] = memory.get(device, 0) + taken
    unmeasured += [
        f"the model of your own in {stage.use}"
        for stage in config.stages
        if stage.own_files and not isinstance(stage, MainSpeakerSettings)
    ]
    return Estimate(audio_s, longest_s, time_s, memory, tuple(unmeasured))


def _used(config: CascadeConfig, models: Mapping[str, Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield each model with the device that it runs on."""
    for stage in config.stages:
        device = stage.device if isinstance(stage, NeedsDevice) else CPU
        yield from ((device, models[name]) for name in stage.models)


def _needs(manifest: Manifest, device: str) -> Needs | None:
    return next((needs for needs in manifest.needs if needs.device == device), None)


def _too_large(estimate: Estimate | None, machine: Machine) -> Iterator[Problem]:
    if estimate is None:
        return
    there = {CPU: machine.memory, "cuda": max((gpu.memory for gpu in machine.gpus), default=None)}
    for device, size in estimate.memory.items():
        limit = there.get(device)
        if limit is not None and size > limit:
            yield Problem(
                f"the recordings need about {shown_size(size)} of memory on {device}, which has {shown_size(limit)}",
                "hear shorter recordings, or configure smaller models",
            )


def _shown(lookahead_s: float | None) -> str:
    return "whole recording" if lookahead_s is None else f"{lookahead_s:.2f} s"
