"""How a server is asked without being overrun: how fast, and when to stop asking."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock
from typing import Final, Protocol, final, runtime_checkable

DEAD_AFTER: Final = 3
"""So many questions in a row were given up, all for what any other would have met (no connection, HTTP 503): dead.

The server itself says that it is not there, so no more are needed than rule out bad luck. As each is tried half as
often as the one before, a server that stopped in the midst of a run, and refuses connections since, is dead after 11
tries and some 20 s, all waits included.
"""

SILENT_AFTER: Final = 21
"""So many questions in a row were given up for whatever reason, such as no answer in time: dead.

A question itself may be the reason, where its transcript is more than the server can read in time. SH-Bench asks 20
about a recording, in both modes; so it takes a second recording to call a server dead that ran for hours. With the
default settings one that hangs is dead after 29 tries of 60 s, one after the other, or 11 min with 8 at a time.
"""


@runtime_checkable
class Stops(Protocol):
    """An answerer that waits for a server, and can be told to stop waiting."""

    def stop(self) -> None:
        """End all waits, in all threads, within about a second; nothing more is asked then."""


@final
class Halt:
    """Ends waits before their time: those of all threads at once, and all later ones."""

    def __init__(self) -> None:
        self._over = Event()

    def sleep(self, duration_s: float) -> None:
        """Wait, unless there is nothing more to wait for."""
        self._over.wait(duration_s)

    def call(self) -> None:
        """Let nobody wait any longer."""
        self._over.set()

    @property
    def called(self) -> bool:
        """Whether nobody waits any longer."""
        return self._over.is_set()


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
        self._was_reached = False
        self._given_up = 0
        self._turned_away = 0
        self._lock = Lock()

    @property
    def trouble(self) -> str | None:
        """The one line that answers every further question."""
        return self._trouble

    @property
    def was_reached(self) -> bool:
        """Whether the server was ever there."""
        return self._was_reached

    def reached(self) -> None:
        """Note that the server was there, however it went."""
        self._was_reached = True

    def tries(self, most: int) -> int:
        """Return how often to try the next question: half as often for each one in a row that was given up."""
        return max(1, most >> self._given_up)

    def heard(self) -> None:
        """Note that the server did its part, whatever it said."""
        with self._lock:
            self._given_up = self._turned_away = 0

    def gave_up(self, why: str, *, any_question: bool) -> None:
        """Note that a question was tried as often as allowed, and that the server did its part in none of the tries.

        any_question tells that every other question would surely have met the same.
        """
        with self._lock:
            self._given_up += 1
            self._turned_away = self._turned_away + 1 if any_question else 0
            if self._turned_away >= DEAD_AFTER or self._given_up >= SILENT_AFTER:
                self._trouble = self._trouble or (
                    f"{why}; so it went for {self._given_up} questions in a row: nothing more is asked"
                )

    def doom(self, why: str) -> None:
        """Note something that no further try can change, such as a wrong key."""
        with self._lock:
            self._trouble = self._trouble or why
