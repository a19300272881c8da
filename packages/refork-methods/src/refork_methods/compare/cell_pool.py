"""Processes that train the cells of a comparison; one that dies is replaced, and its cell goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final, final

from refork.errors import CannotDo, InternalError
from refork.forking.backend.worker import refusal, wrong
from refork.runs.observe import counting
from refork.runs.record import BEAT, new_record
from refork.runs.running import Run
from refork.runs.workers import Roster, Sign
from refork.types import Json
from refork.visible import show_only
from refork_methods.compare.cell import UPDATES, Cell, run_cell

#: Deaths of its process after which a cell is given up.
LIVES: Final = 3
#: Seconds between looks at what processes said.
_PATIENCE: Final = 0.5


@final
@dataclass(slots=True)
class _Member:
    """A process; ``cell`` is what it trains, ``sign`` what it last said of it."""

    process: SpawnProcess
    pipe: Connection
    heard: float
    cell: Cell | None = None
    pid: int | None = None
    sign: Json = field(default_factory=dict)

    def last_sign(self) -> Sign:
        """Its last sign of life; what it said of another cell is not this one's."""
        mine = self.cell is not None and self.sign.get("cell") == str(self.cell.folder)
        at = self.sign if mine else {}
        return Sign(self.heard, self.pid, socket.gethostname(), at.get("done"), at.get("stage"))


@final
class CellPool:
    """``size`` processes of one thread each. ``roster`` is told what they do.

    ``work``: what a process runs a cell with; it must be known by name.
    """

    def __init__(self, size: int, work: Callable[..., None] = run_cell) -> None:
        self.size = size
        self.roster = Roster("updates")
        self._work = work
        self._members: dict[int, _Member] = {}
        self._number = 0

    def run(self, cells: Sequence[Cell], tell: Callable[[], None]) -> None:
        """Train cells; ``tell`` is called now and then. An error or interrupt ends the processes.

        Raises:
            UserError: what a cell was refused with.
            CannotDo: a cell whose processes died again and again.
            InternalError: a cell broke our code; its traceback is quoted.
        """
        todo, deaths = list(cells), Counter[Path]()
        self.roster.open()
        try:
            while todo or any(member.cell is not None for member in self._members.values()):
                self._hand_out(todo)
                self._hear(todo, deaths)
                tell()
        finally:
            self._end()

    def _hand_out(self, todo: list[Cell]) -> None:
        busy = sum(member.cell is not None for member in self._members.values())
        while len(self._members) < min(self.size, busy + len(todo)):
            self._begin()
        for number, member in self._members.items():
            if todo and member.cell is None and member.pid is not None:
                member.cell = cell = todo.pop(0)
                self.roster.takes(number, _title(cell), cell.recipe.updates)
                _send(member.pipe, cell)
        self.roster.look({number: member.last_sign() for number, member in self._members.items()})

    def _begin(self) -> None:
        # Spawned, not forked: a process that has run torch's threads must not be copied.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_main, args=(theirs, self._work))
        process.start()
        theirs.close()
        self._members[self._number] = _Member(process, ours, time.time())
        self._number += 1

    def _hear(self, todo: list[Cell], deaths: Counter[Path]) -> None:
        by_pipe: dict[Any, int] = {member.pipe: number for number, member in self._members.items()}
        for ready in wait(list(by_pipe), timeout=_PATIENCE):
            number = by_pipe[ready]
            member = self._members[number]
            try:
                said = member.pipe.recv()
            except (EOFError, ConnectionError):
                self._bury(number, todo, deaths)
                continue
            member.heard = time.time()
            if "sign" in said:
                member.pid, member.sign = said["pid"], said["sign"]
            elif "broken" in said:
                raise InternalError(f"a worker failed at {_title(member.cell)}:\n{said['broken']}")
            elif "refused" in said:
                raise refusal(said["refused"])
            else:
                self.roster.gives(number, said["made"], tokens=said["tokens"], errors=said["errors"])
                member.cell = None

    def _bury(self, number: int, todo: list[Cell], deaths: Counter[Path]) -> None:
        member = self._members.pop(number)
        member.process.join()
        member.pipe.close()
        why = _ended(member.process.exitcode)
        self.roster.lost(number, why)
        where = member.cell.folder if member.cell is not None else Path()
        deaths[where] += 1
        if deaths[where] >= LIVES:
            raise CannotDo(
                f"{LIVES} processes in turn were lost at {_title(member.cell)}: {why}",
                where=str(where),
                hint="is there memory enough? --workers 1 trains one cell at a time; what is trained stays",
            )
        if member.cell is not None:
            todo.insert(0, member.cell)

    def _end(self) -> None:
        for member in self._members.values():
            member.process.kill()  # a cell is whole after every update: nothing is lost but the last one
        for member in self._members.values():
            member.process.join()
            member.pipe.close()
        self._members.clear()
        self.roster.end()


def _title(cell: Cell | None) -> str:
    return "their beginning" if cell is None else f"{cell.world_plan.world} {cell.arm} seed {cell.seed}"


def _ended(status: int | None) -> str:
    if status is not None and status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it ended with status {status}"


def _send(pipe: Connection, cell: Cell) -> None:
    try:
        pipe.send(cell)
    except BrokenPipeError:  # it died meanwhile: its end of the pipe says so next
        return


@final
class _CellProgress:
    """What a cell's progress is, in its own process."""

    def __init__(self, run: Run) -> None:
        self.run, self.stage = run, ""
        self.first: tuple[int, int] | None = None
        self.last = (0, 0)

    @property
    def made(self) -> tuple[int, int]:
        """Updates made here, and tokens sampled for them: a cell may go on from earlier ones."""
        first = self.first or self.last
        return self.last[0] - first[0], self.last[1] - first[1]

    def __call__(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        """Updates are what is counted; anything else is a stage of one."""
        if stage == UPDATES:
            self.last, self.stage = (done, tokens or 0), ""
            self.first = self.first or self.last
        elif stage:
            self.stage = f"{stage} {done}/{total}"
        self.run(stage, done, total, tokens=tokens, waiting=waiting)


def _main(pipe: Connection, work: Callable[..., None]) -> None:
    """A process: train the cells that come through the pipe, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that gives out work
    show_only()
    told: list[tuple[Cell, _CellProgress]] = []
    lock = threading.Lock()

    def say(data: Json) -> None:
        with lock:
            pipe.send(data | {"pid": os.getpid()})

    def sign() -> Json:
        if not told:
            return {}
        cell, at = told[-1]
        return {"cell": str(cell.folder), "done": at.last[0], "stage": at.stage or None}

    def beat() -> None:
        pause = threading.Event()
        while not pause.wait(BEAT / 2):
            try:
                say({"sign": sign()})
            except OSError:  # whom it works for is gone, and another may be at the same cell soon
                os._exit(1)

    say({"sign": sign()})
    threading.Thread(target=beat, daemon=True).start()
    while True:
        try:
            cell = pipe.recv()
        except (EOFError, ConnectionError):
            return
        run = Run(new_record("learn compare", (), None), keep=False)
        told.append((cell, _CellProgress(run)))
        say(_done(cell, work, told[-1][1]))


def _done(cell: Cell, work: Callable[..., None], told: _CellProgress) -> Json:
    try:
        with counting(told.run):
            work(cell, told)
    except Exception as error:
        return wrong(error)
    updates, tokens = told.made
    return {"made": updates, "tokens": tokens, "errors": sum(told.run.record.errors.values())}
