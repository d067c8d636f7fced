"""Finding the files of a model in a folder that a person carried in. Nothing is fetched or written here.

A file is looked for in the folders that hold this model's files only: SOURCE/NAME, one named after the repository (as
the hub's own cache has them too), or SOURCE itself where it is such a folder. One whose sha256 is known is also looked
for anywhere below SOURCE, by its name. One whose sha256 is not known must lie in SOURCE itself, or in the hub's own
cache of its repository: a link elsewhere leads to who knows what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from cascade.errors import ModelError
from cascade.manifests import Manifest, ModelFile, fault_of


def find(
    manifest: Manifest, wanted: Sequence[ModelFile], source: Path, *, alone: bool, commit: str | None = None
) -> dict[str, Path]:
    """Return where each wanted file of a model is, by its path in the model; they are the right ones.

    wanted is what `manifests.expected` gives. alone: whether this model alone is asked for; then what lies in SOURCE
    itself is meant for it, whatever the folder's name. commit: where its files lay at the first pull, for addresses.

    Raises:
        ModelError: SOURCE is no folder, or files are not there or wrong. It says so of each, with its address.
    """
    if not source.is_dir():
        raise ModelError(f"'{source}' is not a folder; name the folder with the files of {manifest.name}")
    homes = _homes(manifest, source)
    _refuse_two_snapshots(manifest, wanted, homes)
    sought = {
        file.path: _right_one(manifest, file, source, _candidates(file, source, homes, alone=alone)) for file in wanted
    }
    bad = {path: fault for path, (right, fault) in sought.items() if right is None}
    if bad:
        home = homes[0] if homes else source if alone else source / manifest.name
        raise ModelError("\n".join(_said(manifest, bad, source, home, commit)))
    return {path: right for path, (right, _) in sought.items() if right is not None}


def listed(manifest: Manifest, paths: Sequence[str], commit: str | None = None) -> list[str]:
    """Return a line for each of a model's files, with the address that holds it, for a message."""
    return [f"{manifest.name}: {path} is at {manifest.address_of(path, commit)}" for path in paths]


def _right_one(
    manifest: Manifest, file: ModelFile, source: Path, candidates: Iterable[Path]
) -> tuple[Path, None] | tuple[None, str | None]:
    """Return the first right one of candidates; else what is wrong with the likeliest, None where there is none."""
    wrong: str | None = None
    for path in candidates:
        astray = file.sha256 is None and _leads_away(manifest, path, source)
        fault = f"is a link to '{path.resolve()}', outside of '{source}'" if astray else fault_of(manifest, file, path)
        if fault is None:
            return path, None
        wrong = wrong or f"{path} {fault}"
    return None, wrong


def _leads_away(manifest: Manifest, path: Path, source: Path) -> bool:
    """Tell whether a path is a link out of SOURCE, to elsewhere than the hub's own cache of the model's repository."""
    place = path.resolve()
    return not place.is_relative_to(source.resolve()) and _cache_name(manifest) not in place.parts


def _cache_name(manifest: Manifest) -> str | None:
    """Return how huggingface_hub calls the folder of a model's repository in its cache."""
    return None if manifest.hub is None else f"models--{manifest.hub.repository.replace('/', '--')}"


def _said(
    manifest: Manifest, bad: Mapping[str, str | None], source: Path, home: Path, commit: str | None
) -> Iterator[str]:
    """Yield a line on the files that are not there, one on each that is wrong, and one with the address of each."""
    lacking = ", ".join(path for path, fault in bad.items() if fault is None)
    if lacking:
        yield f"{manifest.name}: '{source}' lacks {lacking}; put what lacks into '{home}'"
    for fault in bad.values():
        if fault is not None:
            yield f"{manifest.name}: {fault}; put the right file into '{home}'"
    yield from listed(manifest, list(bad), commit)


def _homes(manifest: Manifest, source: Path) -> list[Path]:
    """Return the folders at or below SOURCE that hold this model's files only, by their names."""
    names = [f"{manifest.name}/{manifest.version}", manifest.name]
    if manifest.hub is not None:
        repository = manifest.hub.repository
        cached = f"{_cache_name(manifest)}/snapshots"
        names += [repository.rpartition("/")[2], f"{cached}/{manifest.revision or '*'}"]
    here = source.resolve()
    around = [here, *here.parents[:4]]  # SOURCE may be such a folder itself, or one on the way to it
    there = [path for base in around for name in names for path in sorted(base.glob(name)) if path.is_dir()]
    return list(dict.fromkeys(source / path.relative_to(here) for path in there if path.is_relative_to(here)))


def _refuse_two_snapshots(manifest: Manifest, wanted: Sequence[ModelFile], homes: Sequence[Path]) -> None:
    """Raise ModelError where a cache holds several versions of a model, and nothing tells which is meant."""
    snapshots = [home for home in homes if home.resolve().parent.name == "snapshots"]
    if len(snapshots) > 1 and any(file.sha256 is None for file in wanted):
        raise ModelError(
            f"{manifest.name}: there are several versions of it, and its manifest names none: "
            f"{', '.join(map(str, snapshots))}; name one of these folders with --from"
        )


def _candidates(file: ModelFile, source: Path, homes: Sequence[Path], *, alone: bool) -> Iterator[Path]:
    """Yield the files that may be the wanted one, the most likely first.

    Many models have files of the same name (hyperparams.yaml). So what lies in no folder of its model's own counts only
    if its sha256 is known, or if this model alone is asked for.
    """
    name = PurePosixPath(file.path).name
    places = [home / file.path for home in homes]
    if alone or file.sha256 is not None:
        places += [source / file.path, source / name]
    seen = set[Path]()
    for path in places:
        if path not in seen and path.is_file():
            seen.add(path)
            yield path
    if file.sha256 is not None:
        yield from (path for path in source.rglob(name) if path not in seen and path.is_file())
