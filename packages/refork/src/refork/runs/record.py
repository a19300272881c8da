"""A small file for every long run: who, what, how far, how it ended; whoever looks reads it from disk."""

from __future__ import annotations

import functools
import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, final

from refork.errors import BadInput
from refork.settings import home
from refork.types import Json

#: Says what the keys mean; a reader skips records of another format.
FORMAT: Final = 1
#: Seconds between two signs of life, and after how many a process that cannot be looked at counts as gone.
BEAT: Final = 5.0
GONE: Final = 30.0
#: Finished runs that are kept: so many, and so long (days).
KEPT_RECORDS: Final = 200
DAYS: Final = 30

State = Literal["running", "silent", "done", "interrupted", "failed", "killed"]
ENDED: Final = ("done", "interrupted", "failed", "killed")


def runs_folder() -> Path:
    """Where the records are: ``runs`` in REFORK_HOME, else in ``~/.cache/refork``."""
    return home() / "runs"


@final
@dataclass(slots=True)
class RunRecord:
    """One run. ``state`` is what its own process last wrote; :meth:`state_at` says what became of it since.

    Times are seconds since 1970. ``rate`` is units of the stage per second, ``eta`` seconds to its end.
    ``errors`` counts by kind, ``rollouts`` finished draws, ``saved`` is when something was last stored for
    good and ``checkpoint`` what. ``workers`` are the workers of the run and ``workers_together`` their sums,
    as a :class:`~refork.runs.workers.Roster` writes them. ``recipe`` is what ``--recipe`` and ``--set`` gave
    the command, by key. ``machine`` and ``birth`` tell the process from
    a later one of its number.
    """

    id: str
    command: str
    arguments: list[str]
    started: float
    user: str
    host: str
    pid: int
    machine: str
    birth: str
    folder: str
    out: str | None = None
    state: State = "running"
    updated: float = 0.0
    ended: float | None = None
    stage: str = ""
    done: int = 0
    total: int = 0
    rate: float | None = None
    eta: float | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None
    waiting: str | None = None
    rollouts: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    saved: float | None = None
    checkpoint: str | None = None
    status: int | None = None
    error: str | None = None
    profile: str | None = None
    workers: list[Json] = field(default_factory=list)
    workers_together: Json | None = None
    recipe: Json = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> Json:
        """Plain fields, with times that people read beside those that programs do."""
        shown = {
            f"{name}_at": None
            if when is None
            else datetime.fromtimestamp(when, UTC).isoformat("T", "seconds")
            for name, when in (("started", self.started), ("updated", self.updated), ("ended", self.ended))
        }
        return asdict(self) | shown

    def state_at(self, now: float) -> State:
        """Its state to whoever looks now: killed where the process is gone, silent where it says nothing."""
        if self.state != "running":
            return self.state
        silent = now - self.updated > GONE
        if self.machine == machine():
            alive = _birth(self.pid) == self.birth
            return ("silent" if silent else "running") if alive else "killed"
        return "killed" if silent else "running"


@functools.cache
def machine() -> str:
    """Names this boot of this machine, and this container's view of its processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        processes = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # a kernel that does not say
        boot = processes = ""
    return f"{socket.gethostname()}/{boot}/{processes}"


def _birth(pid: int) -> str:
    """When a process of this number began, in the kernel's ticks; empty where there is none.

    Where the kernel does not show it, whether there is one at all.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        return _exists(pid)
    except OSError:
        return ""
    # The name before the bracket may hold spaces and brackets itself; field 22 of the line is the beginning.
    state, *rest = text.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]  # a zombie runs no more


def _exists(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return "alive"
    return "alive"


def new_record(command: str, arguments: Sequence[str], out: str | None) -> RunRecord:
    """The record of a run that begins now in this process."""
    now = time.time()
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for this number, as in many containers
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    return RunRecord(
        id=f"{stamp}-{command.replace(' ', '-')}-{secrets.token_hex(3)}",
        command=command, arguments=list(arguments), started=now, updated=now, user=user,
        host=socket.gethostname(), pid=os.getpid(), machine=machine(), birth=_birth(os.getpid()),
        folder=str(Path.cwd()), out=out,
    )  # fmt: skip


def file_of(record: RunRecord) -> Path:
    """Where a record is written."""
    return runs_folder() / f"{record.id}.json"


def write_record(record: RunRecord) -> None:
    """Write it whole or not at all; nobody else may read what was typed."""
    file = file_of(record)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{record.pid}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        json.dump(record.to_json(), out)
        out.write("\n")
    part.replace(file)


_NAMES: Final = frozenset(f.name for f in fields(RunRecord))


def read_record(file: Path) -> RunRecord | None:
    """What a file says; None where it is gone, of another format or no record."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return None
        return RunRecord(**{name: value for name, value in data.items() if name in _NAMES})
    except (OSError, ValueError, TypeError, KeyError):  # one bad file must not hide the other runs
        return None


def records() -> list[RunRecord]:
    """All runs that are on record, the newest last."""
    found = (read_record(file) for file in runs_folder().glob("*.json"))
    return sorted((r for r in found if r is not None), key=lambda r: (r.started, r.id))


def find_record(name: str | None) -> RunRecord:
    """The run of an id, of a beginning that fits one only, of a process number or of an --out folder.

    None: the newest. Of several runs in one folder or process number, the newest.

    Raises:
        BadInput: there is none, or a beginning fits several.
    """
    known = records()
    if not known:
        raise BadInput("no run is on record", where=str(runs_folder()))
    if name is None:
        return known[-1]
    exact = [r for r in known if name in (r.id, str(r.pid)) or _same_folder(r, name)]
    if exact:
        return exact[-1]
    found = [r for r in known if r.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} runs begin with {name!r}" if found else f"no run is called {name!r}"
    raise BadInput(what, where=str(runs_folder()), hint="refork run list")


def _same_folder(record: RunRecord, name: str) -> bool:
    return record.out is not None and Path(record.folder, record.out).resolve() == Path(name).resolve()


def prune(now: float, keep: int = KEPT_RECORDS, days: float = DAYS) -> int:
    """Remove the records of runs that ended long ago, and the oldest beyond a number; how many.

    What runs is never removed. Files that a killed writer left are.
    """
    ended = [r for r in records() if r.state_at(now) in ENDED]
    cut = ended[: max(0, len(ended) - keep)]
    old = cut + [r for r in ended[len(cut) :] if now - (r.ended or r.updated) > days * 86400]
    for record in old:
        file_of(record).unlink(missing_ok=True)
        trace_file(record).unlink(missing_ok=True)
    for part in runs_folder().glob("*.part"):
        try:
            if now - part.stat().st_mtime > 3600:
                part.unlink()
        except FileNotFoundError:  # another process prunes, too
            continue
    return len(old)


def trace_file(record: RunRecord) -> Path:
    """Where a run's profile goes."""
    return runs_folder() / "profiles" / f"{record.id}.json"
