"""The live line of long work: what it does, how far, how fast, what it waits for."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TextIO, cast, final

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from refork.cli.screen import open_console
from refork.runs.observe import current
from refork.visible import VisibleStream


@dataclass(slots=True)
class _Stage:
    """What was last told about a stage."""

    began: float
    done: int = 0
    total: int = 0
    first_tokens: int | None = None
    tokens: int | None = None
    waiting: str | None = None
    row: TaskID | None = None

    @property
    def ended(self) -> bool:
        """Whether all its units are done."""
        return self.done >= self.total > 0


@final
class LiveProgress:
    """Progress on a terminal as bars, elsewhere as few plain lines, both on standard error.

    Off a terminal it prints one line when a stage begins, one when its last unit is done, and one at
    most every ``every`` seconds between. The run that is under way hears everything.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        every: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or open_console(err=True)
        self._every = every
        self._clock = clock
        self._lock = threading.RLock()
        self._stages: dict[str, _Stage] = {}
        self._printed = float("-inf")
        self._bars = _bars(self._console) if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
            self._take_lines(self._console)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                self._mark_stopped()
        finally:
            self.close()

    def close(self) -> None:
        """Leave the last state on the screen and give the terminal back. Closing again does nothing."""
        if self._bars is None:
            return
        try:
            self._take_lines(None)
            self._bars.stop()
        finally:
            # A second Ctrl-C while stopping must not leave a terminal without its cursor.
            with contextlib.suppress(Exception):
                self._console.show_cursor(True)

    @staticmethod
    def _take_lines(console: Console | None) -> None:
        """What is printed meanwhile goes above the bars; with None, where it went before."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, VisibleStream):
                if stream.beside is not None:
                    stream.beside.flush()
                taker = None if console is None else FileProxy(console, stream.under)
                stream.beside = cast("TextIO | None", taker)

    def __call__(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        """``done`` of ``total`` units of ``stage``; ``tokens`` sampled so far; what is waited for."""
        run = current()
        if run is not None:
            run(stage, done, total, tokens=tokens, waiting=waiting)
        with self._lock:
            now = self._clock()
            # A wait may be told without a stage: it is the last one's.
            if not stage:
                stage = next(reversed(self._stages), "working")
                if stage in self._stages:
                    done, total = self._stages[stage].done, self._stages[stage].total
            known = self._stages.get(stage)
            news = known is None
            # A stage that counts less than before has begun again: its clock starts anew, its bar stays.
            if known is None or done < known.done:
                known = _Stage(began=now, row=None if known is None else known.row)
                self._stages[stage] = known
            before = known.ended
            news |= bool(waiting) and not known.waiting
            known.done, known.total, known.waiting = done, total, waiting
            if tokens is not None:
                known.tokens = tokens
                # Counts may begin with earlier work: the speed is of what came since.
                known.first_tokens = tokens if known.first_tokens is None else known.first_tokens
            if self._bars is not None:
                self._draw(self._bars, stage, known, now)
            elif news or (known.ended and not before) or now - self._printed >= self._every:
                self._printed = now
                self._console.print(_plain(stage, known, now), markup=False, highlight=False, soft_wrap=True)

    def _draw(self, bars: Progress, stage: str, known: _Stage, now: float) -> None:
        fields: dict[str, Any] = {
            "count": _count(known),
            "speed": _speed(known, now),
            "spent": _clock_text(now - known.began),
            "waiting": f"waiting: {known.waiting}" if known.waiting else "",
        }
        total = float(known.total) if known.total > 0 else None
        if known.row is None:
            known.row = bars.add_task(stage, total=total, completed=known.done, **fields)
        else:
            bars.update(known.row, total=total, completed=known.done, **fields)

    def _mark_stopped(self) -> None:
        """Say of unfinished stages that they stopped, so that the last picture does not claim they run."""
        for known in self._stages.values():
            if self._bars is not None and known.row is not None and not known.ended:
                self._bars.update(known.row, waiting="stopped")


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24, complete_style="cyan", finished_style="blue", pulse_style="cyan"),
        TextColumn("{task.fields[count]}", markup=False, justify="right"),
        TextColumn("{task.fields[spent]}", markup=False, style="dim", justify="right"),
        TextColumn("{task.fields[speed]}", markup=False, style="cyan", justify="right"),
        TextColumn("{task.fields[waiting]}", markup=False, style="yellow"),
        console=console,
        refresh_per_second=8,
        # Lines of others go the way that makes them visible: see LiveProgress.__enter__.
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _count(known: _Stage) -> str:
    return f"{known.done:,}/{known.total:,}" if known.total > 0 else f"{known.done:,}" if known.done else ""


def _speed(known: _Stage, now: float) -> str:
    """Tokens a second since the stage began; empty while not known."""
    spent = now - known.began
    if known.tokens is None or known.first_tokens is None or spent <= 0 or known.tokens <= known.first_tokens:
        return ""
    return f"{(known.tokens - known.first_tokens) / spent:,.0f} tok/s"


def _clock_text(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _plain(stage: str, known: _Stage, now: float) -> str:
    parts = [_count(known), _speed(known, now), _clock_text(now - known.began) if now > known.began else ""]
    waiting = f", waiting: {known.waiting}" if known.waiting else ""
    told = ", ".join(part for part in parts if part)
    return f"{stage}: {told}{waiting}" if told else f"{stage}{waiting}"
