"""The network of models/separator as ONNX: spectra of a mixture to those of foreground and background, no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.backends.packages import session
from cascade.errors import ModelError
from cascade.foreground import N_BINS, SOURCES, Spectra

MODEL: Final = "foreground"
"""The manifest of the network that comes with cascade."""

FILE: Final = "bands.onnx"
"""Its file."""

_TRIED: Final = 5
"""Frames of silence that a network is tried with: shapes that a file tells of itself need not be true."""

_BEGIN: Final = b"\x08"
"""What an ONNX file begins with: its first field, the version of its format."""

_OUTSIDE: Final = b"\n\x08location"
"""How an ONNX file says that weights are in another one (github.com/onnx/onnx, docs/ExternalData.md), as protobuf."""

_FIX: Final = f"expected {MODEL}, or a file that models/separator/export.py wrote; name such a one"


class SeparatorNetwork:
    """Spectra (1, 2, N_BINS, n_frames) -> those of the sources (1, SOURCES, 2, N_BINS, n_frames); without a state."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def __call__(self, spectra: Spectra, /) -> Spectra:
        """Return the spectra of foreground and background."""
        (sources,) = self._network.run(None, {"spectra": spectra})
        return np.asarray(sources, np.float32)


def load(path: Path, *, threads: int = 1) -> SeparatorNetwork:
    """Load a network.

    Args:
        path: what models/separator/export.py wrote.
        threads: how many threads it computes with.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ModelError: it is no such file.
    """
    check_file(path)
    network = SeparatorNetwork(session(path, threads=threads, fix=_FIX))
    spectra = np.zeros((1, 2, N_BINS, _TRIED), np.float32)
    try:
        shape = network(spectra).shape
    except Exception as error:  # onnxruntime raises its own, unrelated types
        raise ModelError(f"{path} is a network for something else than spectra of a mixture; {_FIX}") from error
    if shape != (1, SOURCES, *spectra.shape[1:]):
        raise ModelError(f"{path} is a network that gives something else than two sources; {_FIX}")
    return network


def check_file(path: Path) -> None:
    """Look whether a file may be a network, without loading it; ModelError says what is wrong."""
    if path.exists() and not path.is_file():  # to open a pipe would wait for whoever writes into it
        raise ModelError(f"{path} is no file; {_FIX}")
    try:
        with path.open("rb") as file:
            is_onnx = file.read(len(_BEGIN)) == _BEGIN
            outside = is_onnx and _OUTSIDE in file.read()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); {_FIX}") from None
    if not is_onnx:
        raise ModelError(f"{path} is no ONNX file; {_FIX}")
    if outside:
        raise ModelError(f"{path} keeps weights in another file, which its checksum would not tell of; {_FIX}")


def files(path: Path) -> tuple[Path, ...]:
    """Return the file that is read, if it is there."""
    return (path,) if path.is_file() else ()
