"""What the programs share that make cascade's own networks: a run uses no weights but those that a manifest names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from whole import write_whole

from cascade.manifests import named, place_of
from cascade.packaged import data_folder


def pin(weights: Path, model: str) -> str:
    """Name weights in a model's manifest where they are the file that is read; return what was done, or what to do."""
    (manifest,) = named([model]).values()
    own = place_of(manifest) / manifest.files[0].path
    said = data_folder("models") / f"{model}.yaml"
    if own.resolve() == weights.resolve():
        write_whole(said, pinned(said.read_text(encoding="utf-8"), weights).encode())
        return f"{said} names these weights now"
    size, sha256 = size_and_sha256(weights)
    return f"to use them: put {weights} in the place of {own}, and size: {size}, sha256: {sha256} into {said}"


def size_and_sha256(path: Path) -> tuple[int, str]:
    """Return what tells a file from others: its size in bytes, its sha256."""
    content = path.read_bytes()
    return len(content), hashlib.sha256(content).hexdigest()


def pinned(manifest: str, weights: Path) -> str:
    """Return a manifest of one file with the size and the sha256 of these weights."""
    size, sha256 = size_and_sha256(weights)
    text = re.sub(r"(?m)^(    sha256: ).*$", rf"\g<1>{sha256}", manifest)
    return re.sub(r"(?m)^(    size: ).*$", rf"\g<1>{size}", text)
