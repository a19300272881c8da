"""How much may be asked at once: the waiting places of each model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput
from refork.serve.refusal import too_busy

#: Retry-After is kept between these, whatever the estimate says.
_SOONEST, _LATEST = 1.0, 60.0


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
        # A dict for its order: slots go to whoever came first, and anybody may leave from the middle.
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
            # A moving mean over about ten answers.
            self._seconds += 0.1 * (self._clock() - entry.began - self._seconds)
            self._start()

    def _start(self) -> None:
        """Tell those who have a slot by now."""
        before = 0
        for entry in self._entries:
            if before >= self.slots:
                return
            before += entry.choices
            # Told once: whoever stays is met here again each time that somebody else leaves.
            told, entry.started = entry.started, None
            if told is not None:
                told()


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
