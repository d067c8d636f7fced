"""What each kind of network is like: written beside its weights, and into a run's settings.

bands           network.py
sepformer       sepformer.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, TypeAlias

from mixtures import BENCHMARKS  # noqa: F401  so that what is in there is found
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from mixing import Described, describe_faults  # isort: skip


class BandsShape(Described):
    """LSTMs over time and across bands of frequencies.

    Attributes:
        kind: This one.
        width: Of the LSTMs, in each direction.
        layers: How many pairs of them there are, one over time and one across bands.
        frames: Heard as one: half as many steps for twice as long ones.
    """

    kind: Literal["bands"] = "bands"
    width: int = Field(default=64, ge=1)
    layers: int = Field(default=3, ge=1)
    frames: int = Field(default=1, ge=1)


class SepFormerShape(Described):
    """Transformers within pieces of a recording and across them, on a basis that is learnt.

    Attributes:
        kind: This one.
        kernel: Of the encoder, in samples; it moves by half of that, and has twice as many channels.
        width: Of the transformers.
        heads: Of their attention.
        hidden: Width of what is between the two layers after each attention.
        layers: Of each transformer.
        blocks: How many pairs of transformers there are, one within pieces and one across.
        piece: Frames in a piece; each piece shares half of them with the next.
    """

    kind: Literal["sepformer"] = "sepformer"
    kernel: int = Field(default=256, ge=4, le=1024, multiple_of=2)
    width: int = Field(default=96, ge=2, multiple_of=2)
    heads: int = Field(default=4, ge=1)
    hidden: int = Field(default=192, ge=1)
    layers: int = Field(default=2, ge=1)
    blocks: int = Field(default=2, ge=1)
    piece: int = Field(default=32, ge=2, multiple_of=2)

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width} and {self.heads}")
        return self


Shape: TypeAlias = Annotated[BandsShape | SepFormerShape, Field(discriminator="kind")]
"""Of any kind."""

_SHAPE: Final = TypeAdapter[BandsShape | SepFormerShape](Shape)


def read_shape(described: Mapping[str, object]) -> Shape:
    """Read what was written beside weights.

    Raises:
        ValueError: It isn't a shape; the message names the fields.
    """
    try:
        return _SHAPE.validate_python(described)
    except ValidationError as error:
        raise ValueError(describe_faults(error)) from error
