"""The workers of a run: what each of them does, since when, how far it is, and which are lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Final, Literal, final

from refork.runs.record import GONE, RunRecord
from refork.types import Json

WorkerState = Literal["starting", "working", "idle", "silent", "lost", "ended"]
#: Lost workers that are listed one by one; all of them are counted.
_LISTED: Final = 50


@final
@dataclass(frozen=True, slots=True)
class Sign:
    """A worker's last sign of life: when it was heard, and how far its task is (None: it did not say)."""

    at: float
    pid: int | None = None
    host: str | None = None
    done: int | None = None
    stage: str | None = None


@final
@dataclass(slots=True)
class _Worker:
    """One worker. ``done`` of ``total`` is of its task; ``finished``, ``tokens``, ``errors`` of all tasks."""

    worker: int
    state: WorkerState
    since: float
    sign: float
    pid: int | None = None
    host: str | None = None
    task: str | None = None
    stage: str | None = None
    done: int = 0
    total: int = 0
    tasks: int = 0
    finished: int = 0
    tokens: int = 0
    errors: int = 0
    why: str | None = None


@final
class Roster:
    """What is known of workers, kept by the process that gives them work; a run that is on record shows it.

    Workers write nothing anywhere: all of this is what they answer and what they say between answers.
    ``unit`` is what their work is counted in. Methods may be called from any thread.
    """

    def __init__(self, unit: str = "draws", clock: Callable[[], float] = time.time) -> None:
        self.unit = unit
        self._clock = clock
        self._lock = threading.Lock()
        self._workers: dict[int, _Worker] = {}
        self._looked = 0.0
        self._gone: Counter[str] = Counter()

    def open(self) -> None:
        """Be shown by the run that is under way, if there is one: it listens to this method."""

    def look(self, signs: dict[int, Sign]) -> None:
        """Take note of the workers that there are, and of their last signs of life."""
        with self._lock:
            self._looked = self._clock()
            for number, sign in signs.items():
                one = self._workers.get(number)
                if one is None:
                    one = self._workers[number] = _Worker(number, "starting", sign.at, sign.at)
                if one.state == "starting" and sign.pid is not None:
                    one.state, one.since = "idle", sign.at
                one.sign = max(one.sign, sign.at)
                one.pid, one.host = sign.pid, sign.host
                if one.state == "working":
                    one.done = one.done if sign.done is None else min(sign.done, one.total)
                    one.stage = sign.stage

    def takes(self, worker: int, task: str, total: int) -> None:
        """A worker begins a task of so many units."""
        with self._lock:
            now = self._clock()
            one = self._workers.setdefault(worker, _Worker(worker, "idle", now, now))
            one.state, one.since, one.task, one.done, one.total = "working", now, task, 0, total
            one.stage = None

    def gives(self, worker: int, finished: int, *, tokens: int = 0, errors: int = 0) -> None:
        """A worker has ended its task: units of it that are done, and how many of those failed."""
        with self._lock:
            one = self._workers.get(worker)
            if one is None:
                return
            one.state, one.since = "idle", self._clock()
            one.sign = one.since
            one.task, one.stage, one.done, one.total = None, None, 0, 0
            one.tasks += 1
            one.finished += finished
            one.tokens += tokens
            one.errors += errors

    def lost(self, worker: int, why: str) -> None:
        """A worker is gone; its task stays to be read, for somebody else has to do it."""
        with self._lock:
            now = self._clock()
            one = self._workers.setdefault(worker, _Worker(worker, "lost", now, now))
            one.state, one.since, one.why = "lost", now, why
            gone = [number for number, known in self._workers.items() if known.state == "lost"]
            for number in gone[: max(0, len(gone) - _LISTED)]:
                old = self._workers.pop(number)
                self._gone.update(_counts(asdict(old)) | {"lost": 1, "workers": 1})

    def end(self) -> None:
        """The workers were sent home."""
        with self._lock:
            for one in self._workers.values():
                if one.state != "lost":
                    one.state, one.since = "ended", self._clock()
                    one.task = one.stage = None
                    one.done = one.total = 0

    def to_json(self) -> list[Json]:
        """The workers, those of before last; one that said nothing for long while we listened is silent."""
        with self._lock:
            shown = [asdict(one) | {"unit": self.unit} for one in self._workers.values()]
            looked = self._looked
        for one in shown:
            if one["state"] in ("working", "idle") and looked - one["sign"] > GONE:
                one["state"] = "silent"
        return sorted(shown, key=lambda one: int(one["worker"]))

    def forgotten(self) -> dict[str, int]:
        """What workers did that are not listed any more, as :func:`together` counts it."""
        with self._lock:
            return dict(self._gone)


def seen_json(record: RunRecord, now: float) -> Json:
    """A run as whoever looks now sees it: workers of one that was killed are gone with it."""
    state = record.state_at(now)
    data = record.to_json() | {"state": state}
    if state != "killed" or record.workers_together is None:
        return data
    workers = [
        one if one["state"] in ("lost", "ended") else one | {"state": "gone"} for one in record.workers
    ]
    # What the record counts beyond the workers that it lists: those that were lost long ago.
    forgotten = Counter(record.workers_together) - Counter(together(record.workers))
    return data | {"workers": workers, "workers_together": together(workers, dict(forgotten))}


def _counts(one: Json) -> dict[str, int]:
    return {name: int(one[name]) for name in ("tasks", "finished", "tokens", "errors")}


def together(workers: Iterable[Json], forgotten: dict[str, int] | None = None) -> Json:
    """All workers as one: how many in each state, and the sums of what they did."""
    sums: Counter[str] = Counter({"workers": 0, "tasks": 0, "finished": 0, "tokens": 0, "errors": 0})
    sums.update(forgotten or {})
    for one in workers:
        sums.update(_counts(one) | {"workers": 1, str(one["state"]): 1})
    return dict(sums)
