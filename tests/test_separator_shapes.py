"""models/separator/shapes.py."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

from shapes import BandsShape, SepFormerShape, read_shape


@pytest.mark.parametrize("shape", [BandsShape(frames=2), SepFormerShape(kernel=64)])
def test_what_is_written_of_a_shape_is_read(shape: BandsShape | SepFormerShape) -> None:
    assert read_shape(shape.model_dump()) == shape


def test_what_was_written_before_there_were_other_kinds_is_read() -> None:
    written = {"kind": "bands", "width": 64, "layers": 4, "frames": 2}
    assert read_shape(written) == BandsShape(width=64, layers=4, frames=2)
    assert read_shape(written).model_dump() == written


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"kind": "bands", "kernel": 16}, "kernel"),
        ({"kind": "bands", "heads": 2}, "heads"),
        ({"kind": "bands", "layers": 0}, "layers"),
        ({"kind": "waves"}, "'bands', 'sepformer'"),
        ({"width": 4}, "kind"),
        ({"kind": "sepformer", "width": 96, "heads": 5}, "width must be a multiple of heads, got 96 and 5"),
        ({"kind": "sepformer", "piece": 33}, "piece"),
        ({"kind": "sepformer", "kernel": 2048}, "kernel"),
    ],
)
def test_what_is_no_shape_is_refused(described: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_shape(described)
