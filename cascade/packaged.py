"""Where the files lie that come with cascade: in the package, or beside it in a checkout."""

from __future__ import annotations

from pathlib import Path


def data_folder(name: str) -> Path:
    """Return the folder of configs or models that comes with cascade: in the package, or beside it in a checkout."""
    inside = Path(__file__).parent / name
    return inside if inside.is_dir() else Path(__file__).parent.parent / name
