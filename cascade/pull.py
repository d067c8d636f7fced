"""Getting the files of models: fetched from where their manifests say, or taken from a folder that a person carried in.

A model comes whole or not at all: nothing gets its place, and nothing is recorded, before all that was lacking is there
and right. What had no sha256 gets one in the lock file, is said to be such a file, and must keep its sha256.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from cascade.backends.hub import Remote, Repository, Watch, download
from cascade.carrying import find, listed
from cascade.errors import CascadeError, ModelError
from cascade.manifests import FIRST_PULL, Manifest, ModelFile, expected, fault_of, place_of, require, store_at, verify
from cascade.output.models import Entry, Growing, Recorded, Store, length_of, sha256_of

CARRIED: Final = "carried"
"""In the place of a revision: where copies of what a person carried in are on their way. A fetch does not go on with
them, since nobody knows what they are."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is here and right; fetched names the files that were not, before.

    recorded holds those of them whose sha256 nothing pinned, by path: what was found is believed from now on.
    """

    name: str
    folder: Path
    fetched: tuple[str, ...]
    recorded: Mapping[str, Recorded] = field(default_factory=dict)

    @property
    def lines(self) -> tuple[str, ...]:
        """What a person should know of the files that nothing pinned, in one line each."""
        return tuple(
            f"{path}: recorded as it came, {file.size} bytes, sha256 {file.sha256}; the manifest pins no sha256 of it, "
            "so compare this with a copy that you trust"
            for path, file in self.recorded.items()
        )


@dataclass(frozen=True, slots=True)
class NotPulled:
    """A model that could not be had, and the lines that say why and what mends it."""

    name: str
    error: CascadeError


def pull(
    chosen: Iterable[Manifest],
    *,
    root: Path | None = None,
    endpoint: str | None = None,
    watch: Watch = lambda *_: None,
) -> Iterator[Pulled | NotPulled]:
    """Fetch what is missing or wrong of some models; yield what came of each.

    What is on its way stays when it is interrupted, and the next pull goes on with it; a second pull at the same time
    waits for the first. endpoint is the address of another hub than the usual one (or than HF_ENDPOINT).
    """
    for manifest in chosen:
        job = _Job(manifest, store_at(root))
        yield job.attempted(partial(_fetch, job, endpoint, watch))


def carry_in(chosen: Iterable[Manifest], source: Path, *, root: Path | None = None) -> Iterator[Pulled | NotPulled]:
    """Take what is missing or wrong of some models from a folder that a person carried here; yield what came of each.

    Where files are looked for is in carrying.py. Nothing is fetched.
    """
    wanted = list(chosen)
    for manifest in wanted:
        job = _Job(manifest, store_at(root))
        yield job.attempted(partial(_copy, job, source, alone=len(wanted) == 1))


@dataclass(frozen=True, slots=True)
class _Job:
    """Getting one model into a store."""

    manifest: Manifest
    store: Store

    def attempted(self, get: Callable[[Sequence[ModelFile]], Mapping[str, Recorded]]) -> Pulled | NotPulled:
        """Get the files that are lacking, and say what came of it; get returns those that were recorded."""
        try:
            if self.manifest.comes_installed:
                require(self.manifest)
                return Pulled(self.manifest.name, place_of(self.manifest), ())
            with self.store.pulling(self.manifest.name):
                lacking = self._lacking()
                recorded = get(lacking) if lacking else {}
            return Pulled(self.manifest.name, self._folder, tuple(file.path for file in lacking), recorded)
        except CascadeError as error:
            return NotPulled(self.manifest.name, error)

    @property
    def entry(self) -> Entry:
        return self.store.entry(self.manifest.name, self.manifest.version)

    def growing(self, file: ModelFile, revision: str) -> Growing:
        return self.store.growing(self.manifest.name, revision, file.path)

    def place(self, arrived: Mapping[str, Growing], commit: str | None) -> Mapping[str, Recorded]:
        """Make files that are right part of the store; return those that nothing pinned or recorded before.

        commit is where they were found, where the manifest names no revision.
        """
        said = {file.path: file for file in self.manifest.files}
        entry = self.entry
        news = {
            path: Recorded(said[path].sha256 or sha256_of(growing.path), len(growing))
            for path, growing in arrived.items()
            if None in (said[path].sha256, said[path].size)
        }
        changed = replace(entry, commit=entry.commit or commit, files={**entry.files, **news})
        self.store.place(self.manifest.name, self.manifest.version, arrived, changed)
        return {path: file for path, file in news.items() if said[path].sha256 is None and path not in entry.files}

    @property
    def _folder(self) -> Path:
        return place_of(self.manifest, root=self.store.root)

    def _lacking(self) -> list[ModelFile]:
        states = dict(verify(self.manifest, root=self.store.root))
        files = expected(self.manifest, root=self.store.root)
        return [file for file in files if not states[file.path].right]


# --- fetched ----------------------------------------------------------------------------------------------------------


def _fetch(job: _Job, endpoint: str | None, watch: Watch, lacking: Sequence[ModelFile]) -> Mapping[str, Recorded]:
    commit, remotes = _remotes(job, endpoint, lacking)
    arriving = {file.path: job.growing(file, commit or job.manifest.version) for file in lacking}
    for file, remote in zip(lacking, remotes, strict=True):
        _refuse_another(job.manifest, file, remote)
        if (file.sha256 or remote.sha256) is None:
            arriving[file.path].discard()  # nothing would tell whether what is here of it is a part of it
    sizes = zip(remotes, arriving.values(), strict=True)
    job.store.check_room(sum(max(0, (remote.size or 0) - len(growing)) for remote, growing in sizes))
    for file, remote in zip(lacking, remotes, strict=True):
        download(remote, arriving[file.path], watch=watch)
        _refuse_wrong(job.manifest, file, remote, arriving[file.path])
    return job.place(arriving, None if job.manifest.revision else commit)


def _remotes(job: _Job, endpoint: str | None, lacking: Sequence[ModelFile]) -> tuple[str | None, list[Remote]]:
    """Ask where files lie, at the revision that is pinned, or was found at the first pull; return it with them."""
    name, hub, url = job.manifest.name, job.manifest.hub, job.manifest.url
    otherwise = _to_carry(job.manifest, lacking, job.entry.commit)
    if url:
        return None, [Remote(f"{name}/{file.path}", url.address, otherwise, size=file.size) for file in lacking]
    if hub is None:
        raise ModelError(f"{name} cannot be fetched; run: {job.manifest.fix}")
    at = partial(Repository, hub.repository, otherwise=otherwise, gated=hub.gated, endpoint=endpoint)
    commit = job.manifest.revision or job.entry.commit or at("main").commit(lacking[0].path)
    repository = at(commit)
    return commit, [repository.find(file.path) for file in lacking]


def _to_carry(manifest: Manifest, lacking: Sequence[ModelFile], commit: str | None) -> str:
    """Say how a person gets files here without this machine's network: a line, and one for each file."""
    files = listed(manifest, [file.path for file in lacking], commit)
    return "\n".join([f"carry its files into a FOLDER here and run: {manifest.fix} --from FOLDER", *files])


def _refuse_another(manifest: Manifest, file: ModelFile, remote: Remote) -> None:
    """Raise ModelError if the source itself says that it has another file now, before that is fetched."""
    said = next(other for other in manifest.files if other.path == file.path)
    for what, theirs, ours in (("size", remote.size, file.size), ("sha256", remote.sha256, file.sha256)):
        if theirs is not None and ours is not None and theirs != ours:
            origin = "by its manifest" if getattr(said, what) is not None else FIRST_PULL
            raise ModelError(
                f"{manifest.name}: {remote.url} is another file now: its {what} is {theirs}, expected {ours} {origin}; "
                f"update cascade, or carry the right file here from elsewhere and run: {manifest.fix} --from FOLDER"
            )


def _refuse_wrong(manifest: Manifest, file: ModelFile, remote: Remote, growing: Growing) -> None:
    """Raise ModelError, and throw a file away, if it is not the right one now that it is whole."""
    right = file.model_copy(update={"sha256": file.sha256 or remote.sha256, "size": file.size or remote.size})
    source = "by the hub" if None in (file.sha256, file.size) else FIRST_PULL
    fault = fault_of(manifest, right, growing.path, source=source)
    if fault is None:
        return
    growing.discard()
    if right.sha256 is None:
        raise ModelError(f"{manifest.name}: {remote.url} {fault}; do not use it, and update cascade")
    raise ModelError(
        f"{manifest.name}: what came of {remote.url} {fault}; it was damaged on its way, or is another file now: run "
        "the same command once more, and if it stays so, do not use it"
    )


# --- carried in -------------------------------------------------------------------------------------------------------


def _copy(job: _Job, source: Path, lacking: Sequence[ModelFile], *, alone: bool) -> Mapping[str, Recorded]:
    found = find(job.manifest, lacking, source, alone=alone, commit=job.entry.commit)
    job.store.check_room(sum(length_of(path) for path in found.values()))
    arriving = {file.path: job.growing(file, CARRIED) for file in lacking}
    try:
        for file in lacking:
            arriving[file.path].copy(found[file.path])
            if fault := fault_of(job.manifest, file, arriving[file.path].path):
                raise ModelError(
                    f"{job.manifest.name}: the copy of {found[file.path]} {fault}; it was damaged on its way: run the "
                    "same command once more"
                )
        return job.place(arriving, None)
    finally:
        job.store.forget(job.manifest.name, CARRIED)
