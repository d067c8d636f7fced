from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cascade.carrying import find, listed
from cascade.errors import ModelError
from cascade.manifests import FIRST_PULL, Manifest, manifests

COMMIT, OTHER = "1" * 40, "2" * 40
FILES = {"weights.bin": b"weights", "sub/settings.yaml": b"rate: 8000\n"}
HUB = f"https://huggingface.co/some/model/resolve/{COMMIT}"
AT = f"a-model: weights.bin is at {HUB}/weights.bin\na-model: sub/settings.yaml is at {HUB}/sub/settings.yaml"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(*, known: bool = True, revision: str | None = COMMIT, name: str = "a-model") -> Manifest:
    return Manifest.model_validate(
        {
            "name": name,
            "what": "a small model",
            "source": "https://huggingface.co/some/model",
            "revision": revision,
            "licence": "MIT",
            "sample_rate": 8000,
            "hub": {"repository": "some/model", "extra": "paper"},
            "files": [
                {"path": path, "sha256": sha256(file) if known else None, "size": len(file) if known else None}
                for path, file in FILES.items()
            ],
        }
    )


def carried(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for path, file in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file)
    return folder


def found(model: Manifest, source: Path, *, alone: bool = False) -> dict[str, Path]:
    return find(model, model.files, source, alone=alone)


def refused(model: Manifest, source: Path, *, alone: bool = True) -> str:
    with pytest.raises(ModelError) as error:
        found(model, source, alone=alone)
    assert len(set(str(error.value).splitlines())) == len(str(error.value).splitlines())
    return str(error.value)


# --- where files are looked for ---------------------------------------------------------------------------------------

INSIDE = ["a-model", f"a-model/{COMMIT}", "model", f"models--some--model/snapshots/{COMMIT}"]


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("known", [True, False])
def test_a_folder_of_the_models_own_is_found_below(tmp_path: Path, inside: str, known: bool) -> None:
    home = carried(tmp_path / "stick" / inside)
    carried(tmp_path / "stick" / "another", dict.fromkeys(FILES, b"of another"))
    assert found(manifest(known=known), tmp_path / "stick") == {path: home / path for path in FILES}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("known", [True, False])
def test_the_models_own_folder_itself_is_taken_also_among_several_models(
    tmp_path: Path, inside: str, known: bool
) -> None:
    home = carried(tmp_path / "stick" / inside)
    source = tmp_path / "stick"
    for step in Path(inside).parts:
        source = source / step
        assert found(manifest(known=known), source) == {path: home / path for path in FILES}


def test_a_file_is_taken_by_its_sha256_wherever_it_is(tmp_path: Path) -> None:
    files = {"weights.bin": b"another", "deep/down/weights.bin": FILES["weights.bin"], "settings.yaml": b"rate: 8000\n"}
    source = carried(tmp_path, files)
    assert found(manifest(), source) == {
        "weights.bin": source / "deep/down/weights.bin",
        "sub/settings.yaml": source / "settings.yaml",
    }


def test_what_nothing_pins_is_taken_loose_only_for_one_model_alone(tmp_path: Path) -> None:
    source = carried(tmp_path / "stick")
    assert found(manifest(known=False), source, alone=True) == {path: source / path for path in FILES}
    assert refused(manifest(known=False), source, alone=False) == (
        f"a-model: '{source}' lacks weights.bin, sub/settings.yaml; put what lacks into '{source / 'a-model'}'\n{AT}"
    )


def test_what_nothing_pins_is_not_taken_from_another_snapshot(tmp_path: Path) -> None:
    cache = tmp_path / "models--some--model" / "snapshots"
    carried(cache / OTHER)
    assert "lacks weights.bin, sub/settings.yaml" in refused(manifest(known=False), tmp_path)


def test_what_nothing_pins_is_not_taken_from_a_link_that_leads_away(tmp_path: Path) -> None:
    source, away = carried(tmp_path / "a-model"), tmp_path / "hostname"
    away.write_bytes(b"weights")
    (source / "weights.bin").unlink()
    (source / "weights.bin").symlink_to(away)
    first, *_ = refused(manifest(known=False), source).splitlines()
    said = f"a-model: {source}/weights.bin is a link to '{away}', outside of '{source}'; put the right file into"
    assert first == f"{said} '{source}'"
    assert found(manifest(), source)["weights.bin"].resolve() == away, "its sha256 tells that it is the right one"


def test_links_within_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    """Its files lie in blobs, and a folder may link to them, as speechbrain makes one."""
    cache = tmp_path / "models--some--model"
    blobs, snapshot, links = cache / "blobs", cache / "snapshots" / COMMIT, tmp_path / "a-model"
    carried(blobs)
    for path in FILES:
        for folder in (snapshot, links):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(blobs / path)
    for source in (snapshot, links):
        assert set(found(manifest(known=False), source, alone=True)) == set(FILES)


def test_of_two_snapshots_none_is_guessed(tmp_path: Path) -> None:
    one, two = (carried(tmp_path / "models--some--model" / "snapshots" / commit) for commit in (COMMIT, OTHER))
    unknown = manifest(known=False, revision=None)
    assert refused(unknown, tmp_path) == (
        f"a-model: there are several versions of it, and its manifest names none: {one}, {two}; name one of these "
        "folders with --from"
    )
    assert found(unknown, two) == {path: two / path for path in FILES}
    assert found(manifest(revision=None), tmp_path) == {path: one / path for path in FILES}  # known by their sha256


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_the_folder_must_be_one(tmp_path: Path) -> None:
    assert refused(manifest(), tmp_path / "none") == (
        f"'{tmp_path / 'none'}' is not a folder; name the folder with the files of a-model"
    )


@pytest.mark.parametrize("inside", ["a-model", "whatever"])
def test_a_file_that_is_there_is_not_said_to_be_lacking(tmp_path: Path, inside: str) -> None:
    home = carried(tmp_path / inside, {"weights.bin": b"stumps!", "sub/settings.yaml": b"rate: 16000\n"})
    assert refused(manifest(), home) == (
        f"a-model: {home / 'weights.bin'} has another sha256 ({sha256(b'stumps!')[:12]}..., expected "
        f"{sha256(b'weights')[:12]}...): not the file that the manifest names; put the right file into '{home}'\n"
        f"a-model: {home / 'sub/settings.yaml'} has 12 bytes, expected 11 by its manifest; put the right file into "
        f"'{home}'\n{AT}"
    )


def test_what_lacks_and_what_is_wrong_are_told_apart(tmp_path: Path) -> None:
    carried(tmp_path / "stick" / "a-model", {"weights.bin": b"shorter than it"})
    source = tmp_path / "stick"
    message = refused(manifest(), source)
    assert message.startswith(
        f"a-model: '{source}' lacks sub/settings.yaml; put what lacks into '{source / 'a-model'}'\n"
        f"a-model: {source / 'a-model/weights.bin'} has 15 bytes, expected 7 by its manifest; put the right file into "
    )


def test_a_file_that_was_recorded_must_be_the_same(tmp_path: Path) -> None:
    source = carried(tmp_path / "a-model", {**FILES, "weights.bin": b"another"})
    with pytest.raises(ModelError, match=r"weights\.bin has another sha256 ") as error:
        find(manifest(known=False), manifest().files, source, alone=True, commit=None)
    assert f"expected is the one {FIRST_PULL}; put the right file into '{source}'\n" in str(error.value)


def test_no_message_asks_for_the_same_folder_twice_or_for_a_page_without_the_file(tmp_path: Path) -> None:
    for model in manifests().values():
        if not model.comes_installed:
            (tmp_path / model.name).mkdir()
            message = refused(model, tmp_path / model.name)
            first, *files = message.splitlines()
            assert first.endswith(f" into '{tmp_path / model.name}'")
            assert files == [f"{model.name}: {file.path} is at {model.address_of(file.path)}" for file in model.files]
    assert "large-v3.pt is at https://openaipublic.azureedge.net/" in refused(
        manifests()["openai-whisper-large-v3"], tmp_path
    )


def test_addresses_are_those_of_the_commit_of_the_first_pull() -> None:
    assert listed(manifest(revision=None), ["a"], OTHER) == [
        f"a-model: a is at https://huggingface.co/some/model/resolve/{OTHER}/a"
    ]
