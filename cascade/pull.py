"""Getting the files of models: fetched from where their manifests say, or taken from a folder that a person carried in.

What had no sha256 gets one in the lock file, and must keep it. What is fetched is not used until it is the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from cascade.backends.hub import Remote, Repository, Watch, download
from cascade.errors import CascadeError, ModelError
from cascade.manifests import Manifest, ModelFile, State, expected, place_of, require, store_at, verify
from cascade.output.models import Entry, Growing, Store, length_of, sha256_of


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is here and right; fetched names the files that were not, before."""

    name: str
    folder: Path
    fetched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotPulled:
    """A model that could not be had, and the one line that says why and what mends it."""

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

    A file is looked for in SOURCE/NAME, in a folder named after the repository (as the hub's own cache has them too)
    and in SOURCE itself; one whose sha256 is known also anywhere below SOURCE, by its name. Nothing is fetched.
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

    def attempted(self, get: Callable[[Sequence[ModelFile]], None]) -> Pulled | NotPulled:
        """Get the files that are lacking, and say what came of it."""
        try:
            if self.manifest.package:
                require(self.manifest)  # pip brings them
                return Pulled(self.manifest.name, place_of(self.manifest), ())
            with self.store.pulling(self.manifest.name):
                lacking = self._lacking()
                if lacking:
                    get(lacking)
            return Pulled(self.manifest.name, self._folder, tuple(file.path for file in lacking))
        except CascadeError as error:
            return NotPulled(self.manifest.name, error)

    @property
    def entry(self) -> Entry:
        return self.store.entry(self.manifest.name, self.manifest.version)

    def record(self, entry: Entry) -> None:
        self.store.record(self.manifest.name, self.manifest.version, entry)

    def growing(self, file: ModelFile) -> Growing:
        return self.store.growing(self.manifest.name, self.manifest.version, file.path)

    def take(self, file: ModelFile, published: str | None = None) -> None:
        """Give a file its place if it is the right one; put on record what the manifest does not know of it.

        published is the sha256 that its source gives, for a file that has none yet.
        """
        said = next(other for other in self.manifest.files if other.path == file.path)
        origin = _ORIGIN[said.sha256 is not None, file.sha256 is not None]
        found = self.store.accept(self.growing(file), self._folder / file.path, file.sha256 or published, origin)
        if said.sha256 is None or said.size is None:
            self.record(replace(self.entry, files={**self.entry.files, file.path: found}))

    @property
    def _folder(self) -> Path:
        return place_of(self.manifest, root=self.store.root)

    def _lacking(self) -> list[ModelFile]:
        states = dict(verify(self.manifest, root=self.store.root))
        files = expected(self.manifest, root=self.store.root)
        return [file for file in files if states[file.path] is not State.OK]


_ORIGIN: Final = {
    (True, True): "by its manifest",
    (False, True): "as at its first pull (to begin anew, delete its folder and its entry in models.lock.json)",
    (False, False): "by the hub",
}
"""Where an expected sha256 comes from, by whether the manifest knows it, and whether it is known at all."""


def _fetch(job: _Job, endpoint: str | None, watch: Watch, lacking: Sequence[ModelFile]) -> None:
    found = {file.path: remote for file, remote in zip(lacking, _remotes(job, endpoint, lacking), strict=True)}
    job.store.check_room(sum(max(0, (found[file.path].size or 0) - len(job.growing(file))) for file in lacking))
    for file in lacking:
        download(found[file.path], job.growing(file), watch=watch)
        job.take(file, found[file.path].sha256)


def _remotes(job: _Job, endpoint: str | None, lacking: Sequence[ModelFile]) -> list[Remote]:
    """Ask where files lie, at the revision that is pinned, or was found at the first pull."""
    name, hub, url = job.manifest.name, job.manifest.hub, job.manifest.url
    if url:
        return [Remote(f"{name}/{file.path}", url.address, size=file.size) for file in lacking]
    if hub is None:
        raise ModelError(f"{name} cannot be fetched; run: {job.manifest.fix}")
    at = partial(Repository, hub.repository, gated=hub.gated, endpoint=endpoint)
    revision = job.manifest.revision or job.entry.commit
    if revision is None:
        revision = at("main").commit(lacking[0].path)
        job.record(replace(job.entry, commit=revision))
    repository = at(revision)
    return [repository.find(file.path) for file in lacking]


def _copy(job: _Job, source: Path, lacking: Sequence[ModelFile], *, alone: bool) -> None:
    manifest = job.manifest
    if not source.is_dir():
        raise ModelError(f"'{source}' is not a folder; name the folder with the files of {manifest.name}")
    found = {file.path: path for file in lacking if (path := _carried(manifest, file, source, alone=alone))}
    if missing := [file.path for file in lacking if file.path not in found]:
        revision = f" at revision {manifest.revision}" if manifest.revision else ""
        raise ModelError(
            f"{manifest.name}: '{source}' lacks {', '.join(missing)}; fetch them elsewhere from {manifest.source}"
            f"{revision} and put them into '{source / manifest.name}'"
        )
    for file in lacking:
        job.store.check_room(length_of(found[file.path]))
        job.growing(file).copy(found[file.path])
        job.take(file)


def _carried(manifest: Manifest, file: ModelFile, source: Path, *, alone: bool) -> Path | None:
    """Return where in a folder a file of a model is; None if it is not there, or it is not clear which it is.

    Many models have files of the same name (hyperparams.yaml). So what lies in no folder of its model's own counts only
    if its sha256 is known, or if this model alone is asked for.
    """
    own = [folder / file.path for folder in _own_folders(manifest, source)]
    loose = [source / file.path, source / PurePosixPath(file.path).name]
    if file.sha256 is None:
        return next((path for path in [*own, *(loose if alone else ())] if path.is_file()), None)
    anywhere = source.rglob(PurePosixPath(file.path).name)
    there = [path for path in dict.fromkeys([*own, *loose, *anywhere]) if path.is_file()]
    alike = [path for path in there if file.size in (None, length_of(path))]
    # Where none is right, the one in the model's own folder is taken, so that the message says what is wrong with it.
    wrong = next((path for path in there if path in own), None)
    return next((path for path in alike if sha256_of(path) == file.sha256), wrong)


def _own_folders(manifest: Manifest, source: Path) -> list[Path]:
    """Return the folders that hold a model's files only, by their names."""
    names = [f"{manifest.name}/{manifest.version}", manifest.name]
    if manifest.hub is None:
        return [source / name for name in names]
    repository = manifest.hub.repository
    snapshots = f"models--{repository.replace('/', '--')}/snapshots/*"  # as huggingface_hub's cache has them
    return [*(source / name for name in [*names, repository.rpartition("/")[2]]), *sorted(source.glob(snapshots))]
