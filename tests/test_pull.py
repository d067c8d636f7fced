from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cascade.backends.hub import BLOCK
from cascade.errors import ModelError
from cascade.manifests import Manifest, State, folder_of, glance, manifests, verify
from cascade.pull import NotPulled, Pulled, carry_in, pull
from tests.hub_server import HubServer, serving

pytest.importorskip("huggingface_hub", reason="fetching models needs huggingface_hub")
pytest.importorskip("requests", reason="fetching models needs requests")

ROOT = Path(__file__).resolve().parents[1]
COMMIT, NEWER = "1" * 40, "2" * 40
WEIGHTS = bytes(range(256)) * 1000
SETTINGS = b"rate: 8000\n"
FILES = {"weights.bin": WEIGHTS, "sub/settings.yaml": SETTINGS}
URL_FILE = b"a checkpoint" * 10_000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(
    *, known: bool = True, revision: str | None = COMMIT, gated: bool = False, name: str = "a-model"
) -> Manifest:
    """A manifest of the model on the server, with or without its revision, sha256 and sizes."""
    return Manifest.model_validate(
        {
            "name": name,
            "what": "a small model",
            "source": "https://huggingface.co/some/model",
            "revision": revision,
            "licence": "MIT",
            "sample_rate": 8000,
            "hub": {"repository": "some/model", "gated": gated, "extra": "paper"},
            "files": [
                {"path": path, "sha256": sha256(file) if known else None, "size": len(file) if known else None}
                for path, file in FILES.items()
            ],
        }
    )


def at_an_address(address: str) -> Manifest:
    return Manifest.model_validate(
        {
            "name": "a-checkpoint",
            "what": "one file",
            "source": "https://github.com/some/project",
            "revision": None,
            "licence": "MIT",
            "sample_rate": 16000,
            "url": {"address": address, "extra": "paper"},
            "files": [{"path": "large.pt", "sha256": sha256(URL_FILE), "size": len(URL_FILE)}],
        }
    )


@pytest.fixture
def hub() -> Iterator[HubServer]:
    started = HubServer(
        files={("some/model", COMMIT, path): file for path, file in FILES.items()},
        main={"some/model": COMMIT},
        tokens={"hf_good": True},
        urls={"/large.pt": URL_FILE},
    )
    with serving(started):
        yield started


def got(results: Iterator[Pulled | NotPulled]) -> Pulled:
    (result,) = results
    assert isinstance(result, Pulled), result
    return result


def refused(results: Iterator[Pulled | NotPulled]) -> str:
    (result,) = results
    assert isinstance(result, NotPulled), result
    assert isinstance(result.error, ModelError)
    assert len(str(result.error).splitlines()) == 1
    return str(result.error)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- fetching ---------------------------------------------------------------------------------------------------------


def test_a_model_is_fetched_whole_and_is_right(hub: HubServer, tmp_path: Path) -> None:
    result = got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint))
    assert result == Pulled("a-model", tmp_path / "a-model" / COMMIT, ("weights.bin", "sub/settings.yaml"))
    assert contents(result.folder) == FILES
    assert set(dict(verify(manifest(), root=tmp_path)).values()) == {State.OK}
    assert not (tmp_path / "models.lock.json").exists()  # all of it was known before


def test_what_is_here_is_not_fetched_again(hub: HubServer, tmp_path: Path) -> None:
    got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint))
    hub.asked.clear()
    assert got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)).fetched == ()
    assert hub.asked == []


def test_what_is_wrong_or_missing_is_fetched_alone(hub: HubServer, tmp_path: Path) -> None:
    folder = got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)).folder
    (folder / "weights.bin").write_bytes(WEIGHTS[::-1])
    hub.asked.clear()
    assert got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)).fetched == ("weights.bin",)
    assert contents(folder) == FILES
    assert not [asked for asked in hub.asked if asked.path.endswith("settings.yaml")]


def test_an_address_is_fetched_too(hub: HubServer, tmp_path: Path) -> None:
    hub.cuts = [BLOCK + 1]
    model = at_an_address(f"{hub.endpoint}/large.pt")
    result = got(pull([model], root=tmp_path))
    assert result.folder == tmp_path / "a-checkpoint" / sha256(URL_FILE)[:16]
    assert contents(result.folder) == {"large.pt": URL_FILE}
    assert hub.downloads("large.pt") == [None, f"bytes={BLOCK}-"]


def test_what_is_not_what_the_manifest_says_is_refused(hub: HubServer, tmp_path: Path) -> None:
    hub.files["some/model", COMMIT, "weights.bin"] = WEIGHTS[::-1]
    message = refused(pull([manifest()], root=tmp_path, endpoint=hub.endpoint))
    assert message.startswith(
        f"a-model/{COMMIT}/weights.bin has sha256 {sha256(WEIGHTS[::-1])[:12]}..., expected {sha256(WEIGHTS)[:12]}... "
        "by its manifest: it was damaged on its way, or is another file now"
    )
    assert contents(tmp_path / "a-model") == {}
    hub.files["some/model", COMMIT, "weights.bin"] = WEIGHTS  # the same command once more
    assert contents(got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)).folder) == FILES


def test_one_that_fails_does_not_keep_the_others(hub: HubServer, tmp_path: Path) -> None:
    gone, there = manifest(revision="9" * 40, name="gone"), manifest()
    failed, done = pull([gone, there], root=tmp_path, endpoint=hub.endpoint)
    assert isinstance(failed, NotPulled)
    assert (failed.name, str(failed.error)[:50]) == ("gone", "https://huggingface.co/some/model has no revision ")
    assert isinstance(done, Pulled)


def test_a_gated_model_takes_the_token_from_the_environment(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add("some/model")
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    message = refused(pull([manifest(gated=True)], root=tmp_path, endpoint=hub.endpoint))
    assert "refuses your token" in message
    assert not hub.downloads("weights.bin")
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert contents(got(pull([manifest(gated=True)], root=tmp_path, endpoint=hub.endpoint)).folder) == FILES


def test_a_model_of_a_package_is_pips(tmp_path: Path) -> None:
    here = manifests()["wordllama-256"]
    assert got(pull([here], root=tmp_path)).fetched == ()
    assert here.package is not None
    elsewhere = here.model_copy(update={"package": here.package.model_copy(update={"module": "no_such_module"})})
    (result,) = pull([elsewhere], root=tmp_path)
    assert isinstance(result, NotPulled)
    assert str(result.error).startswith("the Python package 'wordllama' is not installed; install it with: pip install")
    assert contents(tmp_path) == {}


# --- the lock file ----------------------------------------------------------------------------------------------------


def test_what_nobody_knew_is_recorded_and_held_to(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False, revision=None)
    result = got(pull([unknown], root=tmp_path, endpoint=hub.endpoint))
    assert result.folder == tmp_path / "a-model" / "unpinned"
    lock = json.loads((tmp_path / "models.lock.json").read_text())
    assert lock == {
        "a-model/unpinned": {
            "commit": COMMIT,
            "files": {path: {"sha256": sha256(file), "size": len(file)} for path, file in FILES.items()},
        }
    }
    assert set(dict(verify(unknown, root=tmp_path)).values()) == {State.OK}
    (result.folder / "sub/settings.yaml").write_bytes(b"rate: 9000\n")
    assert dict(verify(unknown, root=tmp_path))["sub/settings.yaml"] is State.WRONG


def test_the_first_commit_is_kept_when_main_moves_on(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False, revision=None)
    folder = got(pull([unknown], root=tmp_path, endpoint=hub.endpoint)).folder
    hub.main["some/model"] = NEWER
    hub.files |= {("some/model", NEWER, path): file[::-1] for path, file in FILES.items()}
    (folder / "weights.bin").unlink()
    got(pull([unknown], root=tmp_path, endpoint=hub.endpoint))
    assert contents(folder) == FILES


def test_a_change_behind_a_commit_is_refused(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False)
    folder = got(pull([unknown], root=tmp_path, endpoint=hub.endpoint)).folder
    hub.files["some/model", COMMIT, "sub/settings.yaml"] = b"rate: 9000\n"
    (folder / "sub/settings.yaml").unlink()
    message = refused(pull([unknown], root=tmp_path, endpoint=hub.endpoint))
    assert "expected" in message
    assert "... as at its first pull (to begin anew, delete its folder and its entry in models.lock.json)" in message
    assert not (folder / "sub/settings.yaml").exists()


def test_what_a_person_put_there_by_hand_is_not_trusted(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False)
    folder = tmp_path / "a-model" / COMMIT
    folder.mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"from somewhere")
    assert dict(glance(unknown, root=tmp_path))["weights.bin"] is State.UNRECORDED
    got(pull([unknown], root=tmp_path, endpoint=hub.endpoint))
    assert contents(folder) == FILES


# --- interrupted, and at once -----------------------------------------------------------------------------------------

# A backend that ran in this process before may have switched the hub off in it.
ONLINE = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "0"}

PULL = """
import sys
from pathlib import Path
from cascade.pull import pull
from tests.test_pull import manifest
for result in pull([manifest()], root=Path(sys.argv[1]), endpoint=sys.argv[2]):
    print(result)
"""


def test_a_pull_that_was_killed_goes_on(hub: HubServer, tmp_path: Path) -> None:
    hub.cuts, hub.stall = [2 * BLOCK], threading.Event()
    process = subprocess.Popen(
        [sys.executable, "-c", PULL, str(tmp_path), hub.endpoint],
        cwd=ROOT,
        env=ONLINE,
    )
    growing = tmp_path / ".partial" / "a-model" / COMMIT / "weights.bin.partial"
    try:
        until = time.monotonic() + 20
        while not (growing.exists() and growing.stat().st_size == 2 * BLOCK):
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
        hub.stall.set()
    assert contents(tmp_path / "a-model") == {}  # what is not whole is not where a run looks
    assert contents(got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)).folder) == FILES
    assert hub.downloads("weights.bin") == [None, f"bytes={2 * BLOCK}-"]
    assert not contents(tmp_path / ".partial")


def test_two_pulls_at_once_fetch_once(hub: HubServer, tmp_path: Path) -> None:
    results: list[Pulled | NotPulled] = []

    def work() -> None:
        results.extend(pull([manifest()], root=tmp_path, endpoint=hub.endpoint))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(result.fetched) for result in results if isinstance(result, Pulled)) == [0, 0, 0, 2]
    assert len(hub.downloads("weights.bin")) == 1


# --- running never downloads ------------------------------------------------------------------------------------------


def test_a_model_that_is_not_here_is_one_line_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        folder_of("sepformer-wsj02mix", root=tmp_path)
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith("sepformer-wsj02mix: ")
    assert str(error.value).endswith(
        "hyperparams.yaml is missing; run: python -m cascade models pull sepformer-wsj02mix"
    )
    assert contents(tmp_path) == {}


# --- carried in -------------------------------------------------------------------------------------------------------


def carried(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for path, file in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file)
    return folder


@pytest.mark.parametrize(
    "inside",
    [
        "a-model",
        f"a-model/{COMMIT}",
        "model",
        f"models--some--model/snapshots/{COMMIT}",
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_files_are_taken_from_a_folder_of_their_own(tmp_path: Path, inside: str, known: bool) -> None:
    source = carried(tmp_path / "stick" / inside)
    other = manifest(name="other")
    result, lacking = carry_in([manifest(known=known), other], tmp_path / "stick", root=tmp_path / "models")
    assert isinstance(result, Pulled)
    assert contents(result.folder) == FILES
    assert contents(source) == FILES  # they are copied
    assert isinstance(lacking, Pulled), "its files have the same sha256, so they serve here too"
    assert set(dict(verify(manifest(known=known), root=tmp_path / "models")).values()) == {State.OK}


def test_a_file_is_taken_by_its_sha256_wherever_it_is(tmp_path: Path) -> None:
    carried(
        tmp_path / "stick", {"weights.bin": WEIGHTS[::-1], "deep/down/weights.bin": WEIGHTS, "settings.yaml": SETTINGS}
    )
    assert contents(got(carry_in([manifest()], tmp_path / "stick", root=tmp_path / "models")).folder) == FILES


def test_of_several_models_without_sha256_loose_files_are_nobodys(tmp_path: Path) -> None:
    source = carried(tmp_path / "stick")
    unknown = [manifest(known=False), manifest(known=False, name="other")]
    assert contents(got(carry_in(unknown[:1], source, root=tmp_path / "alone")).folder) == FILES
    results = list(carry_in(unknown, source, root=tmp_path / "both"))
    assert [str(result.error) for result in results if isinstance(result, NotPulled)] == [
        f"{name}: '{source}' lacks weights.bin, sub/settings.yaml; fetch them elsewhere from "
        f"https://huggingface.co/some/model at revision {COMMIT} and put them into '{source / name}'"
        for name in ("a-model", "other")
    ]
    assert contents(tmp_path / "both" / "a-model") == {}


def test_what_is_lacking_is_named_before_anything_is_copied(tmp_path: Path) -> None:
    source = carried(tmp_path / "stick" / "a-model", {"weights.bin": WEIGHTS})
    message = refused(carry_in([manifest()], source.parent, root=tmp_path / "models"))
    assert message.startswith(f"a-model: '{source.parent}' lacks sub/settings.yaml; fetch them elsewhere from")
    assert contents(tmp_path / "models" / "a-model") == {}


def test_a_wrong_file_in_the_models_own_folder_is_said_to_be_wrong(tmp_path: Path) -> None:
    source = carried(tmp_path / "stick" / "a-model", {**FILES, "weights.bin": WEIGHTS[::-1]})
    message = refused(carry_in([manifest()], source.parent, root=tmp_path / "models"))
    assert "/weights.bin has sha256" in message


def test_the_folder_must_be_one(tmp_path: Path) -> None:
    message = refused(carry_in([manifest()], tmp_path / "none", root=tmp_path / "models"))
    assert message == f"'{tmp_path / 'none'}' is not a folder; name the folder with the files of a-model"


def test_carried_in_files_are_recorded_too(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False)
    source = carried(tmp_path / "stick" / "a-model")
    got(carry_in([unknown], source.parent, root=tmp_path / "models"))
    shutil.rmtree(tmp_path / "models" / "a-model")
    hub.files["some/model", COMMIT, "weights.bin"] = WEIGHTS[::-1]
    assert "as at its first pull" in refused(pull([unknown], root=tmp_path / "models", endpoint=hub.endpoint))


def test_manifests_are_taken_in_any_number(tmp_path: Path) -> None:
    nothing: Sequence[Manifest] = []
    assert list(pull(nothing, root=tmp_path)) == list(carry_in(nothing, tmp_path, root=tmp_path)) == []
