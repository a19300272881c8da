"""Who may ask how much at once: waiting places of each model, and each key's share."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput
from refork.serve.refusal import too_busy

#: Retry-After is kept between these, whatever the estimate says.
_SOONEST, _LATEST = 1.0, 60.0
_MINUTE = 60.0


@final
@dataclass(slots=True, eq=False)
class _Entry:
    """A request that is inside, and who is told when its first choice has a slot."""

    choices: int
    began: float
    started: Callable[[], None] | None


@final
class Admission:
    """One model's places: ``slots`` choices are worked on, ``waiting`` more may wait; others are refused.

    Slots go to whoever came first. Used from the event loop's thread only.
    """

    def __init__(self, slots: int, waiting: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots = slots
        self.capacity = waiting
        self._clock = clock
        self._entries: dict[_Entry, None] = {}
        self._inside = 0
        self._seconds = 1.0

    @property
    def running(self) -> int:
        """Choices that have a slot."""
        return min(self._inside, self.slots)

    @property
    def waiting(self) -> int:
        """Choices that wait for one."""
        return self._inside - self.running

    @contextmanager
    def enter(self, choices: int = 1, started: Callable[[], None] | None = None) -> Iterator[None]:
        """Take places for the choices of one request, and give them back at the end.

        ``started`` is called when the first of them has a slot.

        Raises:
            Refused: 429, there are not so many places; after how long to ask again is estimated from
                how long answers took of late.
        """
        if self._inside + choices > self.slots + self.capacity:
            if choices > self.slots + self.capacity:
                raise BadInput(
                    f"n is {choices}; this server takes {self.slots + self.capacity} choices at once",
                    where="request",
                )
            ahead = self._inside + choices - self.slots
            said = f"the model is busy: {self.running} answers run and {self.waiting} wait"
            raise too_busy(said, min(max(self._seconds * ahead / self.slots, _SOONEST), _LATEST))
        entry = _Entry(choices, self._clock(), started)
        self._entries[entry] = None
        self._inside += choices
        self._start()
        try:
            yield
        finally:
            del self._entries[entry]
            self._inside -= choices
            self._seconds += 0.1 * (self._clock() - entry.began - self._seconds)
            self._start()

    def _start(self) -> None:
        """Tell those who have a slot by now."""
        before = 0
        for entry in self._entries:
            if before >= self.slots:
                return
            before += entry.choices
            told, entry.started = entry.started, None
            if told is not None:
                told()


@final
class Shares:
    """What each key has under way and has asked in the last minute. Used from the event loop's thread only.

    ``at_once`` and ``per_minute``: requests; None: as many as they like. Who asks nothing for a minute is
    forgotten.
    """

    def __init__(
        self, at_once: int | None, per_minute: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once = at_once
        self._per_minute = per_minute
        self._clock = clock
        self._running: dict[str, int] = {}
        self._asked: dict[str, deque[float]] = {}

    @contextmanager
    def enter(self, holder: str) -> Iterator[None]:
        """Count one request of a key while it runs.

        Raises:
            Refused: 429, over one of the two limits.
        """
        self._check(holder)
        self._running[holder] = self._running.get(holder, 0) + 1
        if self._per_minute is not None:
            self._asked.setdefault(holder, deque()).append(self._clock())
        try:
            yield
        finally:
            self._running[holder] -= 1
            if not self._running[holder]:
                del self._running[holder]

    def _check(self, holder: str) -> None:
        if self._at_once is not None and self._running.get(holder, 0) >= self._at_once:
            said = f"this key has {self._at_once} requests under way, and may have no more"
            raise too_busy(said, _SOONEST, "rate_limit_exceeded")
        if self._per_minute is None:
            return
        now = self._clock()
        for name in [name for name, times in self._asked.items() if now - times[-1] >= _MINUTE]:
            del self._asked[name]
        times = self._asked.get(holder, deque())
        while times and now - times[0] >= _MINUTE:
            times.popleft()
        if len(times) >= self._per_minute:
            wait = _MINUTE - (now - times[0])
            said = f"this key has asked {self._per_minute} times in a minute, and may not more often"
            raise too_busy(said, wait, "rate_limit_exceeded")


def token_limit(asked: int | None, most: int | None, default: int, name: str = "max_tokens") -> int:
    """How many tokens one choice may have: what was asked for, or the default.

    Raises:
        BadInput: fewer than one, or more than this server gives.
    """
    if asked is None:
        return default if most is None else min(default, most)
    if asked < 1:
        raise BadInput(f"{name} is {asked}; it must be at least 1", where="request")
    if most is not None and asked > most:
        raise BadInput(f"{name} is {asked}; this server gives at most {most}", where="request")
    return asked
