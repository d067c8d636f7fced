"""A small network of models/separator with random weights, as export.py writes it; only tests use it."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[1]


def save_separator(path: Path) -> Path:
    """Write a network to a file; ModuleNotFoundError without torch or onnx."""
    import torch

    for folder in ("benchmarks", "models/separator"):  # the programs find each other there
        sys.path.insert(0, str(PROGRAMS / folder))
    import export
    import network
    import shapes

    torch.manual_seed(0)
    export.write_onnx(network.build(shapes.BandsShape(width=4, layers=1)).eval(), path)
    return path
