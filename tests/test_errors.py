"""What messages tell a user to install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cascade.errors import MissingExtraError, installing, reinstalling

ROOT = Path(__file__).resolve().parents[1]
SHOWN = [
    path
    for place in ("cascade", "benchmarks", "configs", "models")
    for path in sorted((ROOT / place).rglob("*"))
    if path.suffix in (".py", ".md", ".yaml", ".html", ".txt")
] + [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]

STRANGERS = re.compile(r"""cascade\[|pip install[^\n`]*[\s'"]cascade\b""")
"""On the package index that name is somebody else's."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install 'cascade[paper]'", True),
        ("pip install cascade", True),
        ("pip install -U cascade", True),
        ("pip install -e '.[paper]'", False),
        ("pip install 'cascadelake==1'", False),
        ("run pip install av`; cascade", False),
    ],
)
def test_the_search_can_tell(text: str, found: bool) -> None:
    assert bool(STRANGERS.search(text)) is found


def test_nobody_is_told_to_install_the_package_indexs_cascade() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in SHOWN
        for match in STRANGERS.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_commands_of_pip_are_written_in_one_place() -> None:
    """Beside it only `check`, which names requirements, and what `models pull` itself needs."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "cascade").rglob("*.py")
        if re.search(r"pip install (?!`)", path.read_text(encoding="utf-8"))
    }
    assert found == {"cascade/check.py", "cascade/errors.py", "cascade/backends/hub.py"}


def test_a_missing_package_is_named_with_a_command_that_works_in_the_checkout() -> None:
    error = MissingExtraError("torch", "paper")
    assert str(error) == (
        "the Python package 'torch' is not installed; in cascade's checkout, run: pip install -e '.[paper]'"
    )
    assert installing("chat") in str(MissingExtraError("openai", "chat"))


def test_what_is_reinstalled_are_requirements() -> None:
    *_, first, second = reinstalling("torch", "faster-whisper==1.2.1").split()
    assert [str(Requirement(text)) for text in (first, second)] == ["torch", "faster-whisper==1.2.1"]
