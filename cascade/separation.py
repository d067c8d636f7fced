"""AudioChunk -> SeparatedChunk: which sources the mixture is heard as.

The on-device cascade separates nothing: the mixture is its only source, and the gate decides who is heard in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cascade.types import AudioChunk, SeparatedChunk


class Mixture:
    """Passes the mixture on as its only source; a Stage[AudioChunk, SeparatedChunk] without lookahead."""

    lookahead = 0

    def push(self, chunk: AudioChunk, /) -> Sequence[SeparatedChunk]:
        """Return the chunk with the mixture as sources (1, n_samples)."""
        return [SeparatedChunk(chunk.span, chunk.mixture, chunk.mixture[None])]

    def flush(self) -> Sequence[SeparatedChunk]:
        """Return nothing: nothing is held back."""
        return []
