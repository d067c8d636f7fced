"""How a server is asked without being overrun: how fast, and when to stop asking."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Final, final

DEAD_AFTER: Final = 3
"""So many questions in a row that were given up, however often they were tried, and the server is taken for dead."""


@final
@dataclass(frozen=True, slots=True)
class Clock:
    """Time, as far as it can be faked: now [s since 1970], passed [s], sleep."""

    now: Callable[[], float] = time.time
    passed: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@final
class Pace:
    """Spaces requests evenly, so that no minute has more of them, or more tokens, than a server allows.

    Every caller is told its own moment, in the order in which they come; so several threads never start together.
    """

    def __init__(self, requests_per_minute: float | None, tokens_per_minute: float | None, clock: Clock) -> None:
        self._request_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._token_s = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._next = clock.passed()
        self._lock = Lock()

    def wait(self, tokens: float) -> None:
        """Sleep until the next request may go out; tokens is how many it will take, as far as is known."""
        with self._lock:
            now = self._clock.passed()
            start = max(now, self._next)
            self._next = start + max(self._request_s, tokens * self._token_s)
        if start > now:
            self._clock.sleep(start - now)

    def correct(self, tokens: float) -> None:
        """Say that a request took so many tokens more than was known, or fewer where it is negative."""
        with self._lock:
            self._next += tokens * self._token_s

    def pause(self, duration_s: float) -> None:
        """Let no further request out for this long: the server asked one of us to wait, and means all."""
        with self._lock:
            self._next = max(self._next, self._clock.passed() + duration_s)


@final
class Health:
    """Whether it is worth asking the server at all; `trouble` is why not, None while it is."""

    def __init__(self) -> None:
        self._trouble: str | None = None
        self._given_up = 0
        self._lock = Lock()

    @property
    def trouble(self) -> str | None:
        """The one line that answers every further question."""
        return self._trouble

    def tries(self, most: int) -> int:
        """Return how often to try the next question: half as often for each one in a row that was given up."""
        return max(1, most >> self._given_up)

    def heard(self) -> None:
        """Note that the server did its part, whatever it said."""
        with self._lock:
            self._given_up = 0

    def gave_up(self, why: str) -> None:
        """Note that a question was tried as often as allowed, and that the server did its part in none of the tries."""
        with self._lock:
            self._given_up += 1
            if self._given_up >= DEAD_AFTER and self._trouble is None:
                self._trouble = (
                    f"{why}; so it went for {DEAD_AFTER} questions in a row: nothing more is asked; "
                    "start again when the server is well"
                )

    def doom(self, why: str) -> None:
        """Note something that no further try can change, such as a wrong key."""
        with self._lock:
            self._trouble = self._trouble or why
