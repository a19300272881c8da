"""A run under way: what it is told, and what it writes of it once a second at most."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput, UserError
from refork.runs.otel import Telemetry
from refork.runs.profile import ProfileRow
from refork.runs.record import BEAT, RunRecord, prune, write_record
from refork.runs.sections import Section, SectionStack
from refork.runs.track import GRAMMAR, Follower
from refork.runs.workers import Roster, together

#: Seconds between two looks at what is new.
_TICK: Final = 1.0


@dataclass(slots=True)
class _Stage:
    """A stage that was told of: when it began, how far it was then, and when it was last spoken of."""

    began: float
    first: int
    first_tokens: int | None
    last: float
    done: int
    section: Section | None = None


@final
class Run:
    """A run under way, told of progress as a :class:`refork.progress.Progress`.

    ``rows`` is its profile, at the end.

    What watching costs is kept from what is watched: a record that cannot be written is given up.
    """

    def __init__(
        self, record: RunRecord, *, keep: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self.record = record
        self.telemetry: Telemetry | None = None
        self.recorder: SectionStack | None = None
        self.rows: list[ProfileRow] = []
        self.worker_rows: list[ProfileRow] = []
        self.complaints: list[str] = []
        self._said = 0
        self._given_up = False
        self._keep = keep
        self._clock = clock
        self._lock = threading.RLock()
        self._stages: dict[str, _Stage] = {}
        self._groups: dict[str, Section] = {}
        self._rosters: list[Roster] = []
        self._news = True
        self._written = 0.0
        self._follower: Follower | None = None
        self._polled = 0.0
        self._over = threading.Event()
        self._beat: threading.Thread | None = None

    @property
    def complaint(self) -> str | None:
        """What could not be watched, in words; None where all can."""
        return "; ".join(self.complaints) or None

    def complain(self, what: str) -> None:
        """Note that something could not be watched; the work goes on."""
        self.complaints.append(what)

    def unsaid(self) -> list[str]:
        """Complaints since the last call, for whoever says them."""
        new, self._said = self.complaints[self._said :], len(self.complaints)
        return new

    # What it is told

    def __call__(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        """``done`` of ``total`` units of ``stage``; an empty stage is the one under way."""
        with self._lock:
            now, record = self._clock(), self.record
            if not stage:
                record.waiting, self._news = waiting, True
                return
            # The time up to now belongs to the stage before, whoever speaks next.
            if record.stage and self.telemetry is not None and (spoken := self._stages.get(record.stage)):
                self.telemetry.stage(record.stage, now - spoken.last)
            known = self._stages.get(stage)
            # Fewer done than before: the stage begins again, and its speed is counted anew.
            if known is None or done < known.done:
                self._finish_stage(known)
                made = self._open_stage(stage)
                known = self._stages[stage] = _Stage(now, done, tokens, now, done, made)
            if known.first_tokens is None:
                known.first_tokens = tokens
            known.last, known.done = now, done
            if self.recorder is not None:
                self.recorder.stage = known.section
            spent = now - known.began
            record.stage, record.done, record.total = stage, done, total
            record.waiting = waiting
            record.rate = (done - known.first) / spent if spent > 0 and done > known.first else None
            record.eta = (total - done) / record.rate if record.rate and total >= done else None
            if tokens is not None and known.first_tokens is not None:
                record.tokens = tokens
                new = tokens - known.first_tokens
                record.tokens_per_second = new / spent if spent > 0 and new > 0 else None
            self._gauges()
            self._news = True
        # Outside the lock: a tracker may take seconds, and the record is to be written meanwhile.
        if self._follower is not None and now - self._polled >= _TICK:
            self._polled = now
            self._poll(self._follower)

    @contextmanager
    def following(self, asked: str, out: Path | None) -> Iterator[None]:
        """Tell a tracker of the curves that the run writes into ``out``. One that breaks is told no more.

        Raises:
            BadInput, MissingExtra: no such tracker, no folder, or it is not installed.
        """
        if out is None:
            raise BadInput("a tracker follows a run's folder, and none is named", hint=f"--out, {GRAMMAR}")
        self._follower = follower = Follower(asked, out)
        self._heed(follower)
        try:
            yield
        finally:
            self._follower = None
            try:
                follower.close()
            except Exception as error:  # whatever the tool raises: the work is done
                self.complain(f"the tracker {asked} broke: {error}")
            self._heed(follower)

    def _heed(self, follower: Follower) -> None:
        """Take over what a follower has to say."""
        for note in follower.notes:
            if note not in self.complaints:
                self.complain(note)

    def _poll(self, follower: Follower) -> None:
        record = self.record
        names = ("stage", "done", "total", "tokens", "tokens_per_second", "rollouts")
        try:
            follower.poll({name: getattr(record, name) for name in names})
        except Exception as error:  # what shows a curve must not end the work
            self._follower = None
            self.complain(f"the tracker {follower.asked} broke: {error}")
        self._heed(follower)

    def _gauges(self) -> None:
        if self.telemetry is None:
            return
        told = self.telemetry.gauges
        told["refork.progress.done"] = float(self.record.done)
        told["refork.progress.total"] = float(self.record.total)
        if self.record.tokens_per_second is not None:
            told["refork.tokens_per_second"] = self.record.tokens_per_second

    def draws(self, draws: Sequence[Any]) -> None:
        """Draws that were stored: how they ended."""
        ends = Counter(str(draw.end) for draw in draws)
        kinds = Counter(error_kind(draw.error) for draw in draws if draw.end == "error")
        with self._lock:
            self.record.rollouts += len(draws)
            for kind, count in kinds.items():
                self.record.errors[kind] = self.record.errors.get(kind, 0) + count
            for draw in draws:
                if (group := self._groups.get(draw.fork)) is not None:
                    group.add("refork.draws", 1)
                    group.add("refork.errors", int(draw.end == "error"))
                    group.marks["end"] = time.time_ns()
            self._news = True
        if self.telemetry is not None:
            self.telemetry.rollouts(ends)
            self.telemetry.errors(kinds)

    def shows(self, roster: Roster) -> None:
        """Workers that the record is to show from now on."""
        with self._lock:
            if roster not in self._rosters:
                self._rosters.append(roster)
            self._news = True

    def saved(self, where: str | None) -> None:
        """Something was stored for good."""
        with self._lock:
            self.record.saved, self.record.checkpoint, self._news = self._clock(), where, True

    def group(self, fork: str) -> None:
        """An arm of draws begins, or goes on."""
        if self.recorder is None:
            return
        with self._lock:
            if fork not in self._groups:
                made = self.recorder.open("group", "group", **{"refork.fork": fork})
                self._groups[fork] = made

    # Stages and groups are spans that others lie beside: open until the end, ended when last spoken of.

    def _open_stage(self, stage: str) -> Section | None:
        if self.recorder is None:
            return None
        return self.recorder.open(f"stage {stage}", "stage", **{"refork.stage": stage})

    def _finish_stage(self, stage: _Stage | None) -> None:
        if stage is not None and stage.section is not None and self.recorder is not None:
            stage.section.marks["end"] = int(stage.last * 1e9)
            self.recorder.close(stage.section)

    def finish_spans(self) -> None:
        """End what is open."""
        for stage in self._stages.values():
            self._finish_stage(stage)
        for group in self._groups.values():
            if self.recorder is not None:
                self.recorder.close(group)

    # The record

    def begin(self) -> None:
        """Write the first record, and a sign of life from now on."""
        if not self._keep:
            return
        self._write()
        if not self._given_up:
            prune(self._clock())
            self._beat = threading.Thread(target=self._live, name="refork-record", daemon=True)
            self._beat.start()

    def _live(self) -> None:
        while not self._over.wait(_TICK):
            if self._news or self._clock() - self._written >= BEAT:
                self._write()

    def _write(self) -> None:
        with self._lock:
            self._news, self._written = False, self._clock()
            self.record.updated = self._written
            self._checkpoint()
            self._workers()
            try:
                write_record(self.record)
            except OSError as error:
                if not self._given_up:
                    self.complain(f"no record is kept: {error.strerror}")
                self._given_up = True

    def _workers(self) -> None:
        """What the workers do: they tell their own process, which tells it here."""
        if not self._rosters:
            return
        forgotten: Counter[str] = Counter()
        for roster in self._rosters:
            forgotten.update(roster.forgotten())
        self.record.workers = [one for roster in self._rosters for one in roster.to_json()]
        self.record.workers_together = together(self.record.workers, forgotten)

    def _checkpoint(self) -> None:
        """The newest entry of the run's folder of checkpoints, where it has one."""
        if self.record.out is None:
            return
        folder = Path(self.record.folder, self.record.out, "checkpoints")
        try:
            with os.scandir(folder) as found:
                times = {one.name: one.stat().st_mtime for one in found if not one.name.startswith(".")}
        except OSError:  # it has none, or just removes an old one
            return
        if times:
            newest = max(times, key=lambda name: (times[name], name))
            self.record.saved, self.record.checkpoint = times[newest], str(folder / newest)

    def end(self, error: BaseException | None, status: int | None) -> None:
        """Write how it ended."""
        self._over.set()
        if self._beat is not None:
            self._beat.join()
        record = self.record
        record.ended, record.status = self._clock(), status
        record.waiting = record.eta = None
        record.state = _state(error, status)
        if record.state == "failed" and error is not None:
            said = error.what if isinstance(error, UserError) else str(error)
            record.error = f"{type(error).__name__}: {said}"
        if self._keep and not self._given_up:
            self._write()


def _state(error: BaseException | None, status: int | None) -> Any:
    if isinstance(error, KeyboardInterrupt) or status == 130:
        return "interrupted"
    # With status 1 a command ends that has found something: it has not failed.
    return "failed" if error is not None or status not in (None, 0, 1) else "done"


_WORLD_ERROR: Final = re.compile(r"world: (\w+)")
_STATUS: Final = re.compile(r"\bstatus (\d{3})\b")


def error_kind(message: str | None) -> str:
    """A short name for what a draw failed of: ``world.ValueError``, ``server.503``, ``draw``."""
    if found := _WORLD_ERROR.match(message or ""):
        return f"world.{found.group(1)}"
    if found := _STATUS.search(message or ""):
        return f"server.{found.group(1)}"
    return "draw"
