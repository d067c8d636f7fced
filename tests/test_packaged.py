"""The files that come with cascade: they are in the wheel, and found there, as they are in a checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from cascade.manifests import manifests
from cascade.packaged import data_folder

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of this checkout, and unpack it."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed, which builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "there")
    return folder / "there"


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_in_a_checkout_the_folders_lie_beside_the_package() -> None:
    assert data_folder("models") == ROOT / "models"


def test_the_wheel_has_all_that_a_run_reads(wheel: Path) -> None:
    inside = files_in(wheel / "cascade")
    own = {
        str(PurePosixPath("models", manifest.bundled.folder, file.path))
        for manifest in manifests().values()
        if manifest.bundled
        for file in manifest.files
    }
    assert {"models/evidence/dvector.npz", "models/foreground/bands.onnx"} <= own
    assert own <= inside
    assert {f"models/{name}.yaml" for name in manifests()} <= inside
    assert {f"configs/{name}" for name in files_in(ROOT / "configs")} <= inside
    assert {"benchmarks/paper.yaml", "benchmarks/shmini/questions.json", "models/prices/openai.yaml"} <= inside
    program = {name for name in files_in(ROOT / "cascade") if not name.endswith((".pyc", ".pyo"))}
    assert program <= inside


def test_the_wheel_has_nothing_else(wheel: Path) -> None:
    """The programs that train are in the checkout; nobody needs them to run what they made."""
    assert {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")} == {"cascade"}
    assert {path.name for path in (wheel / "cascade" / "benchmarks").iterdir()} == {"paper.yaml", "shmini"}
    assert not [name for name in files_in(wheel / "cascade" / "models") if name.endswith(".py")]


def test_what_is_in_the_wheel_is_found_there(wheel: Path) -> None:
    program = (
        "from cascade.manifests import manifests, place_of, verify\n"
        "for manifest in manifests().values():\n"
        "    if manifest.bundled:\n"
        "        print(place_of(manifest), *(state for _, state in verify(manifest)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=wheel,
        env={**os.environ, "PYTHONPATH": str(wheel)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [
        f"{wheel / 'cascade' / 'models' / 'foreground'} ok",
        f"{wheel / 'cascade' / 'models' / 'evidence'} ok",
    ]
