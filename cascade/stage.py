"""Stage, the one shape that every step has, and Chain, which joins stages and is itself one.

Contract: once everything up to time t has been pushed, everything that ended by `t - lookahead` has been returned.
However the audio is cut into chunks, the output is the same. A stage is cheap state around a loaded model, made anew
for each stream; there is no reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Stage(Protocol[In, Out]):
    """One step of the chain."""

    @property
    def lookahead(self) -> int | None:
        """Samples of audio that must follow an item's end before it comes out; None: the whole recording."""

    def push(self, item: In, /) -> Sequence[Out]:
        """Take one item; return what is now certain."""

    def flush(self) -> Sequence[Out]:
        """Return the rest, since the stream is over. Called once."""


class Chain:
    """Stages one after the other; what fits whom is checked in config.py, where chains are put together."""

    def __init__(self, stages: Sequence[Stage[Any, Any]]) -> None:
        self._stages = tuple(stages)

    @property
    def lookahead(self) -> int | None:
        """Sum of the stages' lookaheads; None as soon as one stage needs the whole recording."""
        total = 0
        for stage in self._stages:
            if stage.lookahead is None:
                return None
            total += stage.lookahead
        return total

    def push(self, item: Any, /) -> Sequence[Any]:
        """Push one item through all stages."""
        return self._through([item], self._stages)

    def flush(self) -> Sequence[Any]:
        """Flush each stage in turn, its rest going through those behind it."""
        rest: list[Any] = []
        for index, stage in enumerate(self._stages):
            rest.extend(self._through(stage.flush(), self._stages[index + 1 :]))
        return rest

    @staticmethod
    def _through(items: Sequence[Any], stages: Sequence[Stage[Any, Any]]) -> Sequence[Any]:
        for stage in stages:
            items = [out for item in items for out in stage.push(item)]
        return items
