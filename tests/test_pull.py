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
from cascade.manifests import Manifest, ModelFile, State, folder_of, glance, manifests, verify
from cascade.output.models import Recorded
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
    assert len(set(str(result.error).splitlines())) == len(str(result.error).splitlines())
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
    assert result.lines == ()


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


def address(hub: HubServer, path: str) -> str:
    return f"{hub.endpoint}/some/model/resolve/{COMMIT}/{path}"


def test_what_is_not_what_the_manifest_says_is_refused(hub: HubServer, tmp_path: Path) -> None:
    """The hub gives no sha256 of small files; so it may be a damage, and the same command once more may help."""
    hub.files["some/model", COMMIT, "sub/settings.yaml"] = b"rate: 9000\n"
    message = refused(pull([manifest()], root=tmp_path, endpoint=hub.endpoint))
    assert message == (
        f"a-model: what came of {address(hub, 'sub/settings.yaml')} has another sha256 "
        f"({sha256(b'rate: 9000' + bytes([10]))[:12]}..., expected {sha256(SETTINGS)[:12]}...): not the file that the "
        "manifest names; it was damaged on its way, or is another file now: run the same command once more, and if it "
        "stays so, do not use it"
    )
    assert contents(tmp_path / "a-model") == {}
    hub.files["some/model", COMMIT, "sub/settings.yaml"] = SETTINGS  # the same command once more
    assert contents(got(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)).folder) == FILES
    assert len(hub.downloads("weights.bin")) == 1  # it was whole, and waited


@pytest.mark.parametrize(
    ("content", "what", "theirs", "ours"),
    [
        (WEIGHTS[::-1], "sha256", sha256(WEIGHTS[::-1]), sha256(WEIGHTS)),
        (WEIGHTS + b"more", "size", len(WEIGHTS) + 4, len(WEIGHTS)),
    ],
)
def test_what_the_hub_says_is_another_file_is_not_even_fetched(
    hub: HubServer, tmp_path: Path, content: bytes, what: str, theirs: object, ours: object
) -> None:
    hub.files["some/model", COMMIT, "weights.bin"] = content
    assert refused(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)) == (
        f"a-model: {address(hub, 'weights.bin')} is another file now: its {what} is {theirs}, expected {ours} by its "
        "manifest; update cascade, or carry the right file here from elsewhere and run: python -m cascade models pull "
        "a-model --from FOLDER"
    )
    assert not [asked for asked in hub.asked if asked.method == "GET"]


def test_a_broken_network_says_what_to_carry_in_of_which_model(hub: HubServer, tmp_path: Path) -> None:
    """So for a repository and for an address alike, with the addresses of the files that are lacking."""
    hub.files.clear()
    assert refused(pull([manifest()], root=tmp_path, endpoint=hub.endpoint)).endswith(
        "; update cascade, or carry its files into a FOLDER here and run: python -m cascade models pull a-model --from "
        "FOLDER\n"
        f"a-model: weights.bin is at https://huggingface.co/some/model/resolve/{COMMIT}/weights.bin\n"
        f"a-model: sub/settings.yaml is at https://huggingface.co/some/model/resolve/{COMMIT}/sub/settings.yaml"
    )
    hub.urls.clear()
    one = at_an_address(f"{hub.endpoint}/large.pt")
    assert refused(pull([one], root=tmp_path)).endswith(
        " answers with status 404; update cascade, or carry its files into a FOLDER here and run: python -m cascade "
        f"models pull a-checkpoint --from FOLDER\na-checkpoint: large.pt is at {hub.endpoint}/large.pt"
    )


# --- all or nothing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [COMMIT, None])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("gone", FILES)
def test_a_model_that_does_not_come_whole_leaves_nothing_in_the_store(
    hub: HubServer, tmp_path: Path, gone: str, known: bool, revision: str | None
) -> None:
    model = manifest(known=known, revision=revision)
    del hub.files["some/model", COMMIT, gone]
    refused(pull([model], root=tmp_path, endpoint=hub.endpoint))
    stick = carried(tmp_path / "stick", {path: file for path, file in FILES.items() if path != gone})
    refused(carry_in([model], stick, root=tmp_path))
    assert not (tmp_path / "a-model").exists()
    assert not (tmp_path / "models.lock.json").exists()
    assert {state for _, state in verify(model, root=tmp_path)} == {State.MISSING}


def speechbrains(rate: int = 8000) -> Manifest:
    """A model as sepformer-whamr16k: its weights are pinned, and its hyperparams.yaml is not."""
    model = manifest()
    (weights, _) = model.files
    settings = ModelFile(path="hyperparams.yaml", sha256=None, size=None)
    return model.model_copy(update={"files": (settings, weights), "sample_rate": rate})


def test_what_came_beside_a_wrong_file_does_not_become_the_right_one(hub: HubServer, tmp_path: Path) -> None:
    """Somebody carries in settings of another model, and damaged weights; then the hub's own are still taken."""
    right, other = b"sample_rate: 8000\nlayers: 8\n", b"sample_rate: 8000\nlayers: 9\n"
    hub.files["some/model", COMMIT, "hyperparams.yaml"] = right
    stick = carried(tmp_path / "stick", {"hyperparams.yaml": other, "weights.bin": WEIGHTS[::-1]})
    refused(carry_in([speechbrains()], stick, root=tmp_path))
    assert {state for _, state in verify(speechbrains(), root=tmp_path)} == {State.MISSING}
    result = got(pull([speechbrains()], root=tmp_path, endpoint=hub.endpoint))
    assert (result.folder / "hyperparams.yaml").read_bytes() == right
    assert dict(verify(speechbrains(), root=tmp_path)) == {
        "hyperparams.yaml": State.RECORDED,
        "weights.bin": State.OK,
    }


def test_what_was_left_of_a_killed_copy_is_not_gone_on_with(hub: HubServer, tmp_path: Path) -> None:
    """A part of a file that nothing pins would be taken for the beginning of the hub's."""
    hub.files["some/model", COMMIT, "hyperparams.yaml"] = b"sample_rate: 8000\n"
    for revision in (COMMIT, "carried"):
        left = tmp_path / ".partial" / "a-model" / revision / "hyperparams.yaml.partial"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"sample_rate: 9")
    result = got(pull([speechbrains()], root=tmp_path, endpoint=hub.endpoint))
    assert (result.folder / "hyperparams.yaml").read_bytes() == b"sample_rate: 8000\n"
    assert not list((tmp_path / ".partial").iterdir())


def test_a_model_for_another_sample_rate_is_refused(hub: HubServer, tmp_path: Path) -> None:
    hub.files["some/model", COMMIT, "hyperparams.yaml"] = b"sample_rate: 8000\n"
    assert refused(pull([speechbrains(16_000)], root=tmp_path, endpoint=hub.endpoint)) == (
        f"a-model: {address(hub, 'hyperparams.yaml')} is of a model for 8000 Hz, expected 16000 Hz as the manifest "
        "says; do not use it, and update cascade"
    )
    stick = carried(tmp_path / "stick", {"hyperparams.yaml": b"sample_rate: 8000\n", "weights.bin": WEIGHTS})
    assert refused(carry_in([speechbrains(16_000)], stick, root=tmp_path)).startswith(
        f"a-model: {stick / 'hyperparams.yaml'} is of a model for 8000 Hz, expected 16000 Hz as the manifest says; put"
    )
    assert contents(tmp_path / "a-model") == {}
    assert not (tmp_path / "models.lock.json").exists()


def test_a_pull_goes_on_with_parts_of_the_same_commit_only(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False, revision=None)
    del hub.files["some/model", COMMIT, "sub/settings.yaml"]
    part = tmp_path / ".partial" / "a-model" / COMMIT / "weights.bin.partial"
    part.parent.mkdir(parents=True)
    part.write_bytes(WEIGHTS[:3000])
    hub.main["some/model"] = NEWER
    hub.files |= {("some/model", NEWER, path): file[::-1] for path, file in FILES.items()}
    result = got(pull([unknown], root=tmp_path, endpoint=hub.endpoint))
    assert contents(result.folder) == {path: file[::-1] for path, file in FILES.items()}


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
    assert str(result.error).startswith("the Python package 'wordllama' is not installed; in cascade's checkout, run: ")
    assert contents(tmp_path) == {}


def test_an_empty_file_is_no_model(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False, revision=None)
    stick = carried(tmp_path / "stick", {**FILES, "sub/settings.yaml": b""})
    assert "settings.yaml is empty" in refused(carry_in([unknown], stick, root=tmp_path / "models"))
    assert {state for _, state in verify(unknown, root=tmp_path / "models")} == {State.MISSING}
    hub.files["some/model", COMMIT, "sub/settings.yaml"] = b""
    assert "is empty" in refused(pull([unknown], root=tmp_path / "models", endpoint=hub.endpoint))
    assert not (tmp_path / "models" / "models.lock.json").exists()


# --- the lock file ----------------------------------------------------------------------------------------------------


def test_what_nobody_knew_is_recorded_and_held_to(hub: HubServer, tmp_path: Path) -> None:
    unknown = manifest(known=False, revision=None)
    result = got(pull([unknown], root=tmp_path, endpoint=hub.endpoint))
    assert result.folder == tmp_path / "a-model" / "unpinned"
    assert result.recorded == {path: Recorded(sha256(file), len(file)) for path, file in FILES.items()}
    assert result.lines[1] == (
        f"sub/settings.yaml: recorded as it came, 11 bytes, sha256 {sha256(SETTINGS)}; the manifest pins no sha256 of "
        "it, so compare this with a copy that you trust"
    )
    lock = json.loads((tmp_path / "models.lock.json").read_text())
    assert lock == {
        "a-model/unpinned": {
            "commit": COMMIT,
            "files": {path: {"sha256": sha256(file), "size": len(file)} for path, file in FILES.items()},
        }
    }
    assert set(dict(verify(unknown, root=tmp_path)).values()) == {State.RECORDED}
    assert got(pull([unknown], root=tmp_path, endpoint=hub.endpoint)).lines == ()  # it was said when it came
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
    assert "has another sha256" in message
    assert (
        "expected is the one as at its first pull (to begin anew, delete its folder and its entry in models.lock.json)"
    ) in message
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


@pytest.mark.parametrize("known", [True, False])
def test_files_are_copied_from_a_folder(tmp_path: Path, known: bool) -> None:
    source = carried(tmp_path / "stick" / "a-model")
    result = got(carry_in([manifest(known=known)], tmp_path / "stick", root=tmp_path / "models"))
    assert contents(result.folder) == contents(source) == FILES
    state = State.OK if known else State.RECORDED
    assert set(dict(verify(manifest(known=known), root=tmp_path / "models")).values()) == {state}
    assert len(result.lines) == (0 if known else 2)
    assert not contents(tmp_path / "models" / ".partial")


def test_the_same_files_serve_two_models(tmp_path: Path) -> None:
    carried(tmp_path / "stick" / "a-model")
    models = [manifest(), manifest(name="other")]
    for result in carry_in(models, tmp_path / "stick", root=tmp_path / "models"):
        assert isinstance(result, Pulled)
        assert contents(result.folder) == FILES


def test_models_that_are_asked_for_together_take_no_loose_files_without_sha256(tmp_path: Path) -> None:
    source = carried(tmp_path / "stick")
    unknown = [manifest(known=False), manifest(known=False, name="other")]
    assert contents(got(carry_in(unknown[:1], source, root=tmp_path / "alone")).folder) == FILES
    results = list(carry_in(unknown, source, root=tmp_path / "both"))
    assert [str(result.error).partition(";")[0] for result in results if isinstance(result, NotPulled)] == [
        f"{name}: '{source}' lacks weights.bin, sub/settings.yaml" for name in ("a-model", "other")
    ]


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
