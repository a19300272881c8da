"""The seam between the schedule and whoever does the work: workers that take a unit and answer, or die."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, final

from refork.errors import CannotDo
from refork.forking.backend.worker import Worker
from refork.policies.base import Policy
from refork.runs.workers import Sign

#: Workers that may die one after another before any of them has begun to work.
_STARTS: Final = 6


@final
@dataclass(frozen=True, slots=True)
class UnitAnswer:
    """A worker answered the unit it was given."""

    worker: int
    text: str


@final
@dataclass(frozen=True, slots=True)
class Died:
    """A worker is gone, and what it was doing with it. Another one is on its way."""

    worker: int
    why: str


Event: TypeAlias = UnitAnswer | Died


class Pool(Protocol):
    """Workers of one kind. One that dies is replaced by one of another number."""

    @property
    def size(self) -> int:
        """Workers that there should be."""
        ...

    def start(self) -> None:
        """Begin what workers are missing; does nothing where all are there."""
        ...

    def idle(self) -> list[int]:
        """Workers that can take a unit now."""
        ...

    def alive(self) -> dict[int, int]:
        """Process ids of the workers that have begun, on whatever machine, by number."""
        ...

    def signs(self) -> dict[int, Sign]:
        """The last sign of life of every worker, also of one that has not begun yet."""
        ...

    def give(self, worker: int, text: str) -> None:
        """Let an idle worker do a unit."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """What happened since; waits for something at most so long.

        Raises CannotDo where workers die before they can begin, one after another.
        """
        ...

    def close(self) -> None:
        """End all workers, whatever they do."""
        ...


@final
@dataclass(slots=True)
class Starts:
    """Counts workers that died before they could begin."""

    failed: int = 0

    def began(self) -> None:
        """A worker can work."""
        self.failed = 0

    def died(self, why: str) -> None:
        """Raise CannotDo after too many in a row."""
        self.failed += 1
        if self.failed >= _STARTS:
            raise CannotDo(
                f"{self.failed} workers in a row died before they could begin: {why}",
                hint="is refork installed, with the same extras, where the workers run?",
            )


@final
@dataclass(slots=True)
class SerialPool:
    """One worker, in this process: what the others are compared with."""

    threads: int
    opened: dict[str, Policy]
    _worker: Worker | None = None
    _given: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """One."""
        return 1

    def start(self) -> None:
        """Make the worker."""
        self._worker = self._worker or Worker(self.threads, self.opened)

    def idle(self) -> list[int]:
        """The worker, between units."""
        return [] if self._given else [0]

    def alive(self) -> dict[int, int]:
        """This process."""
        return {} if self._worker is None else {0: int(self._worker.hello()["pid"])}

    def signs(self) -> dict[int, Sign]:
        """None: this process's own are the run's."""
        return {}

    def give(self, worker: int, text: str) -> None:
        """Keep the unit until :meth:`wait`."""
        self._given.append(text)

    def wait(self, seconds: float) -> list[Event]:
        """Do the unit."""
        if self._worker is None or not self._given:
            return []
        # The worker sets a number of its own, and this process may compute between two units.
        before = _torch_threads()
        try:
            return [UnitAnswer(0, self._worker.run(self._given.pop()))]
        finally:
            if before is not None:
                _set_torch_threads(before)

    def close(self) -> None:
        """Forget the worker."""
        self._worker = None
        self._given.clear()


def _torch_threads() -> int | None:
    if "torch" not in sys.modules:
        return None
    import torch

    return int(torch.get_num_threads())


def _set_torch_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)
