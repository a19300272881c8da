"""Workers as processes of this machine, spoken to in lines of JSON over pipes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from refork.forking.backend.pool import Died, Event, Starts, UnitAnswer
from refork.forking.backend.worker import SIGN
from refork.runs.join import telemetry_asked
from refork.runs.otel import PATIENCE
from refork.runs.workers import Sign
from refork.types import Json

_PROGRAM: Final = "from refork.forking.backend.worker import main"


@final
@dataclass(slots=True)
class _Member:
    """A process; ``pid`` once it has said that it can work, ``heard`` when it last said anything."""

    process: subprocess.Popen[str]
    heard: float
    reader: threading.Thread | None = None
    pid: int | None = None
    host: str | None = None
    busy: bool = False
    units: int = 0
    sign: Json = field(default_factory=dict)


@final
@dataclass(slots=True)
class ProcessPool:
    """``size`` processes with ``threads`` threads each. They end with this process, however it ends."""

    size: int
    threads: int
    _members: dict[int, _Member] = field(default_factory=dict)
    _said: queue.SimpleQueue[tuple[int, str | None]] = field(default_factory=queue.SimpleQueue)
    _starts: Starts = field(default_factory=Starts)
    _number: int = 0

    def start(self) -> None:
        """Begin what processes are missing."""
        while len(self._members) < self.size:
            self._begin()

    def _begin(self) -> None:
        number, self._number = self._number, self._number + 1
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-c", f"{_PROGRAM}; main({self.threads})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(self.threads)},
            # Ctrl-C is for the driver, which lets its workers finish.
            start_new_session=True,
        )
        member = self._members[number] = _Member(process, time.time())
        member.reader = threading.Thread(target=self._listen, args=(number, member), daemon=True)
        member.reader.start()

    def _listen(self, number: int, member: _Member) -> None:
        assert member.process.stdout is not None
        for line in member.process.stdout:
            member.heard = time.time()
            if not line.startswith(SIGN):
                self._said.put((number, line))
            elif line.endswith("\n"):  # else its writer died over it
                member.sign = json.loads(line.removeprefix(SIGN))
        self._said.put((number, None))

    def idle(self) -> list[int]:
        """Processes that can take a unit now."""
        return [n for n, member in self._members.items() if member.pid is not None and not member.busy]

    def alive(self) -> dict[int, int]:
        """Process ids of those that have begun."""
        return {n: member.pid for n, member in self._members.items() if member.pid is not None}

    def signs(self) -> dict[int, Sign]:
        """When each process last said anything, and the draws of its unit that it said were done."""
        return {
            n: Sign(m.heard, m.pid, m.host, m.sign.get("done") if m.sign.get("unit") == m.units else None)
            for n, m in self._members.items()
        }

    def give(self, worker: int, text: str) -> None:
        """Send a unit. A process that dies meanwhile is heard of in :meth:`wait`."""
        member = self._members[worker]
        assert member.process.stdin is not None
        member.busy = True
        member.units += 1
        try:
            member.process.stdin.write(text + "\n")
            member.process.stdin.flush()
        except BrokenPipeError:
            return

    def wait(self, seconds: float) -> list[Event]:
        """What the processes said or how they ended."""
        events: list[Event] = []
        try:
            said = [self._said.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._said.empty():
            said.append(self._said.get())
        for number, line in said:
            event = self._hear(number, line)
            if event is not None:
                events.append(event)
        return events

    def _hear(self, number: int, line: str | None) -> Event | None:
        member = self._members.get(number)
        if member is None:
            return None
        # A line that was cut off by the writer's death is no answer; its end is heard next.
        if line is not None and not line.endswith("\n"):
            return None
        if line is None:
            del self._members[number]
            why = _ended(member.process.wait())
            _close(member)
            if member.pid is None:
                self._starts.died(why)
            self._begin()
            return Died(number, why)
        if member.pid is None:
            hello = json.loads(line)
            member.pid, member.host = int(hello["pid"]), str(hello["host"])
            self._starts.began()
            return None
        member.busy = False
        return UnitAnswer(number, line)

    def close(self) -> None:
        """End all processes: at once, unless what they measured is still to be sent."""
        if telemetry_asked():
            self._let_idle_end()
        for member in self._members.values():
            # What a world began there ends too: each worker leads a session of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(member.process.pid, signal.SIGKILL)
        for member in self._members.values():
            member.process.wait()
            _close(member)
        self._members.clear()
        self._said = queue.SimpleQueue()

    def _let_idle_end(self) -> None:
        """Tell who waits for work that there is none, and give it the time that sending may take."""
        idle = [self._members[number].process for number in self.idle()]
        for process in idle:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        end = time.monotonic() + 2 * PATIENCE
        for process in idle:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))


def _close(member: _Member) -> None:
    if member.reader is not None:
        member.reader.join()
    for stream in (member.process.stdin, member.process.stdout):
        assert stream is not None
        try:
            stream.close()
        except BrokenPipeError:  # what was still to be written has no reader
            continue


def _ended(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    return f"it was ended by {signal.Signals(-status).name}"
