"""Chain: stages in a row, which is itself a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.stage import Chain, Stage


@dataclass
class Delaying:
    """Gives each item `by` items late, with its own name added; the rest when flushed."""

    name: str
    by: int
    lookahead: int | None = 0
    held: list[str] = field(default_factory=list)

    def push(self, item: str, /) -> Sequence[str]:
        self.held.append(f"{item}{self.name}")
        return [self.held.pop(0)] if len(self.held) > self.by else []

    def flush(self) -> Sequence[str]:
        rest, self.held = self.held, []
        return rest


def run(stage: Stage[str, str], items: Sequence[str]) -> list[str]:
    return [out for item in items for out in stage.push(item)] + list(stage.flush())


@given(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 6))
def test_every_item_goes_through_every_stage_in_order(delays: list[int], count: int) -> None:
    names = "abcd"[: len(delays)]
    chain = Chain([Delaying(name, by) for name, by in zip(names, delays, strict=True)])
    items = [str(index) for index in range(count)]
    assert run(chain, items) == [item + names for item in items]


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_a_chain_of_chains_is_a_chain(a: int, b: int, c: int) -> None:
    def stages() -> list[Delaying]:
        return [Delaying("a", a, 1), Delaying("b", b, 2), Delaying("c", c, 4)]

    first, second, third = stages()
    flat, nested = Chain(stages()), Chain([Chain([first, second]), Chain([third])])
    assert run(flat, ["x", "y"]) == run(nested, ["x", "y"])
    assert flat.lookahead == nested.lookahead == 7


def test_nothing_comes_out_before_its_time() -> None:
    chain = Chain([Delaying("a", 1), Delaying("b", 1)])
    assert [list(chain.push(item)) for item in "xyz"] == [[], [], ["xab"]]
    assert list(chain.flush()) == ["yab", "zab"]


@pytest.mark.parametrize(("lookaheads", "total"), [((), 0), ((3, 4), 7), ((3, None, 4), None)])
def test_lookaheads_add_up(lookaheads: tuple[int | None, ...], total: int | None) -> None:
    assert Chain([Delaying("a", 0, lookahead) for lookahead in lookaheads]).lookahead == total


def test_an_empty_chain_passes_everything() -> None:
    assert run(Chain([]), ["x", "y"]) == ["x", "y"]
