"""The limit on the cost is never passed, whatever the order in which replies come; the table of prices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.spending import MOST_COUNTED, Budget, Price, Spent, Usage, read_prices, total_of, usage_of
from cascade.errors import ConfigError, NoMoreAnswersError
from cascade.packaged import data_folder

PRICE = Price(2.0, 1.0, 4.0)
MILLIONS = st.integers(0, 5).map(lambda number: number * 1_000_000)


@given(st.lists(st.tuples(MILLIONS, MILLIONS, st.sampled_from(["counted", "not counted", "failed"]))), st.floats(0, 60))
def test_the_limit_is_never_passed(asked: list[tuple[int, int, str]], max_cost: float) -> None:
    """Here each request takes the most that it can, and one in two is still under way when the next one comes."""
    budget = Budget(PRICE, max_cost)
    under_way: list[tuple[float, Usage, str]] = []

    def _end(reserved: float, usage: Usage, how: str) -> None:
        budget.settle(reserved, usage if how == "counted" else None, billed=how != "failed")

    for prompt, completion, how in asked:
        most = Usage(prompt, 0, completion)
        if len(under_way) == 2:
            _end(*under_way.pop(0))
        while under_way and not budget._fits(PRICE.of(most)):
            _end(*under_way.pop(0))
        if not budget._fits(PRICE.of(most)):
            for tokens in (most, Usage(0)):  # from then on not even what costs nothing
                with pytest.raises(NoMoreAnswersError, match="passes --max-cost"):
                    budget.reserve(tokens)
            break
        under_way.append((budget.reserve(most), most, how))
    for each in under_way:
        _end(*each)
    spent = budget.spent
    assert spent.cost is not None
    assert spent.cost + spent.unsure_cost <= max_cost + 1e-9


@pytest.mark.parametrize(("max_cost", "shown"), [(0.005, "$0.005"), (11.0, "$11"), (1e-7, "$0.0000001"), (2.5, "$2.5")])
def test_the_limit_is_shown_as_it_was_given(max_cost: float, shown: str) -> None:
    with pytest.raises(NoMoreAnswersError, match=rf"of {re.escape(shown)}, \$0\.0000 are spent; nothing more"):
        Budget(PRICE, max_cost).reserve(Usage(100_000_000))


def test_what_was_spent_before_counts_against_the_limit_and_is_not_spent_again() -> None:
    budget = Budget(PRICE, 3.0)
    budget.count_before(Spent(cost=0.75, unsure_cost=0.5))
    budget.settle(budget.reserve(Usage(500_000)), Usage(500_000), billed=True)
    assert budget.spent.cost == pytest.approx(1.0)
    with pytest.raises(NoMoreAnswersError, match=r"\$2\.2500 are spent \(\$1\.2500 of it before"):
        budget.reserve(Usage(500_000))


def test_what_is_reserved_and_not_used_is_free_again() -> None:
    budget = Budget(PRICE, 3.0)
    for _ in range(50):
        reserved = budget.reserve(Usage(1_000_000))
        budget.settle(reserved, Usage(10_000), billed=True)
    assert budget.spent.cost == pytest.approx(50 * 0.02)


def test_cached_tokens_are_cheaper() -> None:
    assert PRICE.of(Usage(1_000_000, 400_000, 500_000)) == pytest.approx(0.6 * 2 + 0.4 * 1 + 0.5 * 4)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 1}, Usage(9, 0, 1)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 4, 1)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(9, 9, 1)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": -4}}, Usage(9, 0, 1)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None}, Usage(9, 0, 1)),
        ({"prompt_tokens": 0, "completion_tokens": 1}, None),
        ({"prompt_tokens": 9, "completion_tokens": None}, None),
        ({"prompt_tokens": 9.5, "completion_tokens": 1}, None),
        ({"prompt_tokens": True, "completion_tokens": 1}, None),
        ({"prompt_tokens": 100, "completion_tokens": 16}, Usage(100, 0, 16)),
        ({"prompt_tokens": 9, "completion_tokens": 5_000}, Usage(9, 0, 5_000)),
        ({"prompt_tokens": MOST_COUNTED, "completion_tokens": MOST_COUNTED}, Usage(MOST_COUNTED, 0, MOST_COUNTED)),
        ({"prompt_tokens": MOST_COUNTED + 1, "completion_tokens": 2}, None),
        ({"prompt_tokens": 9, "completion_tokens": -1}, None),
        ({"prompt_tokens": 9, "completion_tokens": 10**400}, None),
        (None, None),
        ("many", None),
    ],
)
def test_only_what_can_be_right_is_counted(counted: Any, expected: Usage | None) -> None:
    assert usage_of({"usage": counted}) == expected


def test_what_a_server_took_beyond_what_it_may_is_booked_and_expected_again() -> None:
    """A request may take $0.004 here; one takes $20, and so may the next."""
    budget = Budget(PRICE, 50.0)
    for _ in range(2):
        budget.settle(budget.reserve(Usage(0, 0, 1_000)), Usage(0, 0, 5_000_000), billed=True)
    assert budget.spent.cost == pytest.approx(40)
    with pytest.raises(NoMoreAnswersError, match=r"could cost up to \$20.0000, which .* \$40.0000 are spent"):
        budget.reserve(Usage(0, 0, 1_000))


def test_a_limit_needs_a_price() -> None:
    with pytest.raises(
        ConfigError, match=r"price of this model on this server is not known; say it in .*'price: \{input"
    ):
        Budget(None, 1.0)
    assert Budget(None, None).spent.cost is None


def test_without_a_price_tokens_are_counted_all_the_same() -> None:
    budget = Budget(None, None)
    budget.settle(budget.reserve(Usage(100)), Usage(80, 10, 5), billed=True)
    spent = budget.spent
    assert (spent.requests, spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens) == (1, 80, 10, 5)
    assert (spent.cost, spent.unsure_cost) == (None, 0)


COUNTS = st.integers(0, 10**9)
SPENT = st.builds(
    Spent, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.none() | st.integers(0, 99).map(float), COUNTS.map(float)
)


@given(SPENT, SPENT)
def test_what_is_spent_adds_up_and_is_read_as_it_is_written(first: Spent, then: Spent) -> None:
    both = first + then
    since = both - first
    assert (since.requests, since.completion_tokens, since.cost or 0) == (
        then.requests, then.completion_tokens, then.cost or 0,
    )  # fmt: skip
    assert total_of([first, None, then]) == both
    assert Spent.of(both.as_dict()) == both


def test_what_is_spent_in_words() -> None:
    spent = Spent(12, 10, 3, 4_000, 1_000, 20, 0.01234, 0.5)
    assert str(spent) == (
        "12 requests, 10 replies, 3 replies from the cache; 4000 tokens in, 1000 of them cached by the server, 20 out; "
        "$0.0123, or up to $0.5000 more, for replies that got lost"
    )
    assert str(Spent(1, 1)).endswith("; cost not known: no price for this model")
    assert not Spent(cost=0.0)
    assert total_of([None]) is None


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_packaged_prices_have_what_the_paper_asks() -> None:
    prices = read_prices(data_folder("models") / "prices" / "openai.yaml")
    assert prices["api.openai.com", "gpt-4o"] == prices["api.openai.com", "gpt-4o-2024-08-06"] == Price(2.5, 1.25, 10.0)
    assert prices["api.openai.com", "gpt-4o-2024-05-13"] == Price(5.0, 5.0, 15.0)
    assert all(price.cached_input <= price.input <= price.output for price in prices.values())


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("a: 1", "expected a list"),
        ("- server: a", "price 1: expected the keys"),
        ("- {server: a, models: [b], input: 1, output: 1, source: c, date: d, more: 3}", "price 1: expected the keys"),
        ("- {server: a, models: [b], input: -1, output: 1, source: c, date: d}", "expected US dollars"),
        ("- {server: a, models: [b], input: .nan, output: 1, source: c, date: d}", "expected US dollars"),
        (
            "- {server: a, models: [b], input: 1, cached_input: 2, output: 1, source: c, date: d}",
            "cached_input to be at",
        ),
        ("- {server: a, models: b, input: 1, output: 1, source: c, date: d}", "a list of names"),
        ("- [", "cannot be read as YAML"),
    ],
)
def test_a_table_that_is_wrong_is_one_line(tmp_path: Path, table: str, told: str) -> None:
    (tmp_path / "prices.yaml").write_text(table)
    with pytest.raises(ConfigError, match=told) as error:
        read_prices(tmp_path / "prices.yaml")
    assert "\n" not in str(error.value)
