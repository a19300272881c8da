"""Where the time went: a table of a run's own thread, and a trace of all threads and workers for viewers."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from refork.runs.sections import Section
from refork.types import Json

#: Stretches that a trace keeps; beyond, the shortest go.
_MOST: Final = 50_000
#: What the run did outside of every seam.
OTHER: Final = "everything else"


@final
@dataclass(frozen=True, slots=True)
class ProfileRow:
    """Seconds that a kind of work took by itself, and how often it was done."""

    name: str
    seconds: float
    share: float
    calls: int

    def to_json(self) -> Json:
        """Plain fields."""
        return {"name": self.name, "seconds": self.seconds, "share": self.share, "calls": self.calls}


@final
class Profile:
    """Adds up sections of the thread that began it, and keeps the stretches of all threads.

    Every nanosecond of a thread is in one row only: the innermost section's. ``since`` is the wall clock at
    the beginning, which traces of several processes share.
    """

    def __init__(self, began: int, since: float, most: int = _MOST) -> None:
        self._began = began
        self._since = since
        self._most = most
        self._home = threading.get_ident()
        self._lock = threading.Lock()
        self._own: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._ran: list[tuple[int, int, str, int, Section]] = []
        self._least = 0
        self.left_out = 0

    def opened(self, section: Section) -> None:
        """Count it, where it is of this thread."""
        if threading.get_ident() == self._home:
            self._calls[_row(section)] = self._calls.get(_row(section), 0) + 1

    def ran(self, section: Section, began: int, ended: int, own: int) -> None:
        """Add its own time, and keep the stretch if it is not among the shortest."""
        here = threading.get_ident()
        if here == self._home:
            self._own[_row(section)] = self._own.get(_row(section), 0) + own
        if ended - began < self._least:
            self.left_out += 1
            return
        with self._lock:
            self._ran.append((began, ended, section.name, here, section))
            if len(self._ran) > self._most:
                self._thin()

    def _thin(self) -> None:
        lengths = sorted(ended - began for began, ended, *_ in self._ran)
        # Above the median: were equal ones kept, a full list could stay full and be thinned for each new one.
        self._least = lengths[len(lengths) // 2] + 1
        kept = [item for item in self._ran if item[1] - item[0] >= self._least]
        self.left_out += len(self._ran) - len(kept)
        self._ran = kept

    def closed(self, section: Section) -> None:
        """Nothing to do."""

    def rows(self) -> list[ProfileRow]:
        """The table, longest first."""
        whole = sum(self._own.values()) or 1
        found = [
            ProfileRow(name, spent / 1e9, spent / whole, self._calls.get(name, 0))
            for name, spent in self._own.items()
        ]
        return sorted(found, key=lambda row: (-row.seconds, row.name))

    def events(self) -> list[Json]:
        """Complete events of the trace-event format, in microseconds of the wall clock."""
        process = os.getpid()
        threads = {self._home: 0}
        found: list[Json] = []
        # The outer one first where both begin at once: viewers nest what comes later.
        for began, ended, name, thread, section in sorted(self._ran, key=lambda item: (item[0], -item[1])):
            number = threads.setdefault(thread, len(threads))
            event: Json = {
                "name": name,
                "cat": section.kind,
                "ph": "X",
                "ts": self._since * 1e6 + (began - self._began) / 1e3,
                "dur": (ended - began) / 1e3,
                "pid": process,
                "tid": number,
            }
            if section.kind != "time":
                event["args"] = {
                    k: v for k, v in section.attributes.items() if isinstance(v, int | float | str)
                }
            found.append(event)
        return found

    def to_json(self) -> Json:
        """All of it, for another process to put together."""
        return {
            "pid": os.getpid(),
            "rows": [row.to_json() for row in self.rows()],
            "left_out": self.left_out,
            "events": self.events(),
        }


def _row(section: Section) -> str:
    return OTHER if section.kind in ("run", "stage", "unit") else section.name


def together(parts: Iterable[Json]) -> list[ProfileRow]:
    """One table of several processes' own threads."""
    seconds: dict[str, float] = {}
    calls: dict[str, int] = {}
    for part in parts:
        for row in part["rows"]:
            seconds[row["name"]] = seconds.get(row["name"], 0.0) + row["seconds"]
            calls[row["name"]] = calls.get(row["name"], 0) + row["calls"]
    whole = sum(seconds.values()) or 1.0
    rows = [ProfileRow(name, spent, spent / whole, calls[name]) for name, spent in seconds.items()]
    return sorted(rows, key=lambda row: (-row.seconds, row.name))


def trace_of(name: str, own: Json, workers: Sequence[Json]) -> Json:
    """A trace of a run and its workers, which Perfetto, chrome://tracing and speedscope open."""
    events: list[Json] = []
    first = min((e["ts"] for part in (own, *workers) for e in part["events"]), default=0.0)
    for number, part in enumerate((own, *workers)):
        title = name if number == 0 else f"worker {number}"
        events.append(_named("process_name", part["pid"], 0, title))
        events.append(_named("thread_name", part["pid"], 0, title))
        events += [event | {"ts": event["ts"] - first} for event in part["events"]]
    left_out = sum(part["left_out"] for part in (own, *workers))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"run": name, "shortest stretches left out": left_out},
    }


def _named(what: str, process: int, thread: int, name: str) -> Json:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}


def write_json(path: Path, data: Any) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(data) + "\n", encoding="utf-8")
    part.replace(path)


def read_parts(folder: Path) -> list[Json]:
    """What workers have left in a folder."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
