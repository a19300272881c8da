"""Who does what next: units to workers, results back in order, what a death took given out again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, final

from refork.errors import InternalError, UserError
from refork.forking.backend.pool import Died, Event, Pool
from refork.forking.backend.unit import Result, Unit
from refork.forking.backend.worker import refusal
from refork.runs.workers import Roster

#: Deaths of its worker after which a unit is taken apart, and a single draw is given up.
LIVES: Final = 3

#: Units for every worker that may be under way or wait for an earlier one to be written.
_AHEAD: Final = 4

_PATIENCE: Final = 0.2  # seconds between looks at whether to stop


@final
@dataclass(frozen=True, slots=True)
class Lost:
    """A unit of one draw that killed every worker which tried it."""

    why: str


@final
@dataclass(slots=True)
class _Task:
    """A unit on its way to be written; ``deaths`` of workers that did it, ``worker`` who does it now."""

    unit: Unit
    deaths: int = 0
    worker: int | None = None
    answer: Result | Lost | UserError | None = None

    @property
    def begun(self) -> bool:
        """Whether some worker has, or had, it."""
        return self.worker is not None or self.deaths > 0


@final
@dataclass(slots=True)
class Schedule:
    """Runs units on a pool, each once as far as anyone can see; ``roster`` is told who does what.

    ``title``: what a unit is called there.
    """

    pool: Pool
    units: Sequence[Unit]
    retried: int = 0
    roster: Roster = field(default_factory=Roster)
    title: Callable[[Unit], str] = lambda unit: f"arm {unit.job}"
    _open: list[_Task] = field(default_factory=list)
    _busy: dict[int, _Task] = field(default_factory=dict)

    @property
    def waiting(self) -> str:
        """What is waited for, in words."""
        alive = len(self.pool.alive())
        if not alive:
            return "workers to begin"
        units = f"{len(self._busy)} unit{'' if len(self._busy) == 1 else 's'}"
        again = f", {self.retried} done again" if self.retried else ""
        return f"{units} on {alive} of {self.pool.size} workers{again}"

    def results(
        self, stopping: Callable[[], bool], tell: Callable[[], None]
    ) -> Iterator[tuple[Unit, Result | Lost]]:
        """Results in the order of the units, whatever the order in which they come.

        Where ``stopping`` says so, or a unit is refused, nothing new is begun, and what is under way is
        waited for. A refusal is raised once all that stands before it has been given out.

        Raises:
            UserError: a worker refused a unit; it is the error that one process would have raised.
            InternalError: a unit broke a worker's code; its traceback is quoted.
            CannotDo: workers cannot begin.
        """
        # The head of the list is the next to be written: answers that come early wait behind it.
        self._open = [_Task(unit) for unit in self.units]
        self.pool.start()
        while self._open:
            self.roster.look(self.pool.signs())
            refused = any(isinstance(task.answer, UserError) for task in self._open)
            self._hand_out(only_begun=refused or stopping())
            if not self._busy and self._open[0].answer is None and (refused or stopping()):
                if refused:
                    raise next(t.answer for t in self._open if isinstance(t.answer, UserError))
                return
            if self._open[0].answer is None:
                for event in self.pool.wait(_PATIENCE):
                    self._take(event)
                tell()
            while self._open and self._open[0].answer is not None:
                task = self._open.pop(0)
                if isinstance(task.answer, UserError):
                    self._drain()
                    raise task.answer
                assert task.answer is not None
                yield task.unit, task.answer

    def _drain(self) -> None:
        """Wait for what is under way: its workers are wanted again."""
        while self._busy:
            for event in self.pool.wait(_PATIENCE):
                self._take(event)

    def _hand_out(self, *, only_begun: bool) -> None:
        # No further ahead, or one slow unit at the head would let answers pile up in memory.
        near = islice(self._open, _AHEAD * self.pool.size)
        wanting = [t for t in near if t.worker is None and t.answer is None]
        wanting = [t for t in wanting if t.begun or not only_begun]
        for worker, task in zip(self.pool.idle(), wanting, strict=False):
            task.worker = worker
            self._busy[worker] = task
            self.roster.takes(worker, self.title(task.unit), len(task.unit.draws))
            self.pool.give(worker, task.unit.text)

    def _take(self, event: Event) -> None:
        task = self._busy.pop(event.worker, None)
        if isinstance(event, Died):
            self.roster.lost(event.worker, event.why)
        if task is None:
            return
        task.worker = None
        if isinstance(event, Died):
            self._bury(task, event.why)
            return
        answer = json.loads(event.text)
        if "broken" in answer:
            raise InternalError(f"a worker failed:\n{answer['broken']}")
        if "refused" in answer:
            task.answer = refusal(answer["refused"])
            self.roster.gives(event.worker, 0, errors=1)
            return
        task.answer = result = Result.from_json(answer)
        failed = sum(draw.end == "error" for draw in result.draws)
        self.roster.gives(event.worker, len(task.unit.draws), tokens=result.tokens, errors=failed)

    def _bury(self, task: _Task, why: str) -> None:
        # A worker may die of its machine as well as of the unit, so one death condemns nothing.
        task.deaths += 1
        self.retried += 1
        if task.deaths < LIVES:
            return
        if len(task.unit.draws) == 1:
            task.answer = Lost(f"{task.deaths} workers died of this draw: {why}")
            return
        # One of the draws may be what kills: alone, it kills no other draw.
        place = self._open.index(task)
        self._open[place : place + 1] = [_Task(unit, deaths=1) for unit in task.unit.singles()]
