"""What questions cost: a table of prices, the tokens that a server counted, and a limit that is never passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from threading import Condition
from typing import Any, Final, Protocol, final, runtime_checkable

from cascade.errors import ConfigError, NoMoreAnswersError

MILLION: Final = 1_000_000


@final
@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request: those of the prompt, how many of these the server had cached, and those of the reply."""

    prompt: int
    cached: int = 0
    completion: int = 0


MOST_COUNTED: Final = 10_000_000
"""Tokens. No model reads or writes so many for a question; a server that counts more counts wrongly."""


def usage_of(completion: Mapping[str, Any]) -> Usage | None:
    """Return what the server says that it counted, None where it says nothing that can be right.

    It may be more than what was asked for: a server that writes on past `max_tokens` charges for that, too.
    """
    counted = completion.get("usage")
    if not isinstance(counted, Mapping):
        return None
    details = counted.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    prompt, completed = counted.get("prompt_tokens"), counted.get("completion_tokens")
    if type(prompt) is not int or type(completed) is not int:  # true is an int too
        return None
    if not 0 < prompt <= MOST_COUNTED or not 0 <= completed <= MOST_COUNTED:
        return None
    return Usage(prompt, min(prompt, max(0, cached)) if type(cached) is int else 0, completed)


@final
@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of each kind."""

    input: float
    cached_input: float
    output: float

    def of(self, usage: Usage) -> float:
        """Return what a request costs, in US dollars."""
        fresh = usage.prompt - usage.cached
        return (fresh * self.input + usage.cached * self.cached_input + usage.completion * self.output) / MILLION


Prices = Mapping[tuple[str, str], Price]
"""Prices by (server's host, model)."""


def read_prices(path: Path) -> Prices:
    """Read a table of prices; its first lines say what is in it.

    Raises:
        ConfigError: It cannot be read, or a row lacks something; names the row.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        rows = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError):
        raise ConfigError(f"the table of prices {path} cannot be read as YAML; reinstall cascade") from None
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: expected a list of prices that begins with '- server: ...'")
    table: dict[tuple[str, str], Price] = {}
    for number, row in enumerate(rows, start=1):
        server, models, price = _price(row, f"{path}: price {number}")
        table |= {(server, model): price for model in models}
    return table


_ROW: Final = {"server", "models", "input", "cached_input", "output", "source", "date"}


def _price(row: object, where: str) -> tuple[str, Sequence[str], Price]:
    """Return server, models and price of a row."""
    if not isinstance(row, dict) or not _ROW - {"cached_input"} <= row.keys() <= _ROW:
        raise ConfigError(f"{where}: expected the keys {', '.join(sorted(_ROW))}; only cached_input may be left out")
    prices = [row["input"], row.get("cached_input", row["input"]), row["output"]]
    if not all(isinstance(price, int | float) and 0 <= price < MILLION for price in prices):
        raise ConfigError(f"{where}: expected US dollars for a million tokens, such as 2.50")
    if prices[1] > prices[0]:
        raise ConfigError(f"{where}: expected cached_input to be at most what other tokens cost, input")
    if not isinstance(row["models"], list) or not all(
        isinstance(name, str) for name in [row["server"], *row["models"]]
    ):
        raise ConfigError(f"{where}: expected a host as server, and a list of names as models")
    return row["server"], row["models"], Price(*map(float, prices))


@final
@dataclass(frozen=True, slots=True)
class Spent:
    """What was asked so far, and what it took.

    requests counts all that were sent, failed tries too; answered those with a reply; from_cache the replies that
    needed no request. cost is in US dollars, None where the price is not known; unsure_cost is how much more it may be,
    for requests whose reply got lost or did not say what it took.
    """

    requests: int = 0
    answered: int = 0
    from_cache: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    unsure_cost: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Put two together, neither of which is in the other."""
        return self._with(other, 1)

    def __sub__(self, earlier: Spent) -> Spent:
        """Return what was spent since."""
        return self._with(earlier, -1)

    def __bool__(self) -> bool:
        return bool(self.requests or self.from_cache)

    def __str__(self) -> str:
        cost = "cost not known: no price for this model" if self.cost is None else f"${self.cost:.4f}"
        unsure = f", or up to ${self.unsure_cost:.4f} more, for replies that got lost" if self.unsure_cost else ""
        return (
            f"{self.requests} requests, {self.answered} replies, {self.from_cache} replies from the cache; "
            f"{self.prompt_tokens} tokens in, {self.cached_tokens} of them cached by the server, "
            f"{self.completion_tokens} out; {cost}{unsure}"
        )

    def as_dict(self) -> dict[str, int | float | None]:
        """Return it as JSON can hold it."""
        return {
            "requests": self.requests,
            "replies": self.answered,
            "replies_from_cache": self.from_cache,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": None if self.cost is None else round(self.cost, 8),
            "unsure_cost_usd": round(self.unsure_cost, 8),
        }

    @staticmethod
    def of(entry: Mapping[str, Any]) -> Spent:
        """Read what as_dict gives."""
        return Spent(
            requests=entry["requests"],
            answered=entry["replies"],
            from_cache=entry["replies_from_cache"],
            prompt_tokens=entry["prompt_tokens"],
            cached_tokens=entry["cached_tokens"],
            completion_tokens=entry["completion_tokens"],
            cost=entry["cost_usd"],
            unsure_cost=entry["unsure_cost_usd"],
        )

    def _with(self, other: Spent, sign: int) -> Spent:
        costs = [self.cost or 0.0, other.cost or 0.0]
        return Spent(
            requests=self.requests + sign * other.requests,
            answered=self.answered + sign * other.answered,
            from_cache=self.from_cache + sign * other.from_cache,
            prompt_tokens=self.prompt_tokens + sign * other.prompt_tokens,
            cached_tokens=self.cached_tokens + sign * other.cached_tokens,
            completion_tokens=self.completion_tokens + sign * other.completion_tokens,
            cost=None if self.cost is None and other.cost is None else costs[0] + sign * costs[1],
            unsure_cost=self.unsure_cost + sign * other.unsure_cost,
        )


@runtime_checkable
class Spends(Protocol):
    """An answerer that asks a server, and says what that took so far."""

    @property
    def spent(self) -> Spent:
        """All of it."""


@runtime_checkable
class Limited(Protocol):
    """An answerer with a limit on what it may cost."""

    def count_before(self, before: Spent) -> None:
        """Count what the same run spent before it was stopped against the limit on the cost, too."""


def total_of(parts: Iterable[Spent | None]) -> Spent | None:
    """Return the sum, None where nobody asked a server."""
    spent = [part for part in parts if part is not None]
    return sum(spent[1:], spent[0]) if spent else None


@final
class Budget:
    """Counts what is spent, and lets nothing out that could pass the limit; for several threads.

    A request is let out only if the limit holds even if it, and all that are under way, take the most that they can.
    A server that does not heed how long a reply may be takes more than that all the same, by its own count. That is
    booked as it is counted, and each further request is then expected to take as much as the dearest.
    """

    def __init__(self, price: Price | None, max_cost: float | None) -> None:
        """Begin with nothing spent; max_cost is in US dollars.

        Raises:
            ConfigError: There is a limit, but no price to hold it by.
        """
        if max_cost is not None and price is None:
            raise ConfigError(
                "a limit on the cost was given (--max-cost), but the price of this model on this server is not known; "
                "say it in the configuration, under 'use: openai', in US dollars for a million tokens, such as "
                "'price: {input: 2.5, output: 10}' (a server of your own: 0), or leave the limit out"
            )
        self._price = price
        self._max_cost = max_cost
        self._before = 0.0
        self._spent = Spent(cost=None if price is None else 0.0)
        self._reserved = 0.0
        self._dearest = 0.0
        self._under_way = 0
        self._full: str | None = None
        self._changed = Condition()

    @property
    def spent(self) -> Spent:
        """What was spent so far."""
        return self._spent

    def count_before(self, before: Spent) -> None:
        """Count what the same run spent before it was stopped against the limit, too; it is not in `spent`."""
        self._before = (before.cost or 0.0) + before.unsure_cost

    def reserve(self, most: Usage) -> float:
        """Count a request, and return the most that it may cost, in US dollars; waits for those under way if need be.

        Raises:
            NoMoreAnswersError: It could pass the limit. Then nothing else is let out either, so that a run ends there.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._full or self._fits(self._most_cost(most)) or not self._under_way)
            most_cost = self._most_cost(most)
            if self._full is None and not self._fits(most_cost):
                self._full = self._passes(most_cost)
                self._changed.notify_all()
            if self._full is not None:
                raise NoMoreAnswersError(self._full)
            self._reserved += most_cost
            self._under_way += 1
            self._spent = replace(self._spent, requests=self._spent.requests + 1)
        return most_cost

    def settle(self, reserved: float, usage: Usage | None, *, billed: bool) -> None:
        """Say how a request ended: whether the server may charge for it, and what it counted, if it said so."""
        with self._changed:
            self._under_way -= 1
            # Sums of many differences would drift: with nothing under way there is nothing reserved.
            self._reserved = self._reserved - reserved if self._under_way else 0.0
            if usage is not None:
                self._spent = self._with(usage)
                cost = 0.0 if self._price is None else self._price.of(usage)
                self._dearest = max(self._dearest, cost if cost > reserved else 0.0)
            elif billed:
                self._spent = replace(self._spent, unsure_cost=self._spent.unsure_cost + reserved)
            self._changed.notify_all()

    def stop(self, why: str) -> None:
        """Let nothing more out, whoever waits for it; why is what they are told."""
        with self._changed:
            self._full = self._full or why
            self._changed.notify_all()

    def answered(self, *, from_cache: bool) -> None:
        """Count a reply."""
        with self._changed:
            name = "from_cache" if from_cache else "answered"
            self._spent = replace(self._spent, **{name: getattr(self._spent, name) + 1})

    def _most_cost(self, most: Usage) -> float:
        return 0.0 if self._price is None else max(self._price.of(most), self._dearest)

    def _fits(self, most_cost: float) -> bool:
        return self._max_cost is None or self._counted + self._reserved + most_cost <= self._max_cost

    @property
    def _counted(self) -> float:
        """What may have been spent, in US dollars: all that counts against the limit."""
        return self._before + (self._spent.cost or 0.0) + self._spent.unsure_cost

    def _passes(self, most_cost: float) -> str:
        limit = f"{Decimal(str(self._max_cost)).normalize():f}"  # as it was given: rounded, it could be another
        before = f" (${self._before:.4f} of it before this run was stopped)" if self._before else ""
        return (
            f"the next question could cost up to ${most_cost:.4f}, which passes --max-cost: of ${limit}, "
            f"${self._counted:.4f} are spent{before}; nothing more is asked: raise the limit"
        )

    def _with(self, usage: Usage) -> Spent:
        cost = None if self._price is None else (self._spent.cost or 0.0) + self._price.of(usage)
        return replace(
            self._spent,
            prompt_tokens=self._spent.prompt_tokens + usage.prompt,
            cached_tokens=self._spent.cached_tokens + usage.cached,
            completion_tokens=self._spent.completion_tokens + usage.completion,
            cost=cost,
        )
