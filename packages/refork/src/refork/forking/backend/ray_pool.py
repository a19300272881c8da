"""Workers as actors of a Ray cluster: on this machine, or on as many as the cluster has."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

from refork.errors import MissingExtra, ServerError
from refork.forking.backend.pool import Died, Event, Starts, UnitAnswer
from refork.forking.backend.worker import Worker
from refork.runs.record import BEAT
from refork.runs.workers import Sign
from refork.types import Json

_DEATHS: Final = "A worker died or was killed|Raylet is terminated|The node with node id|marked dead"


def import_ray() -> Any:
    """Ray's module; nothing is reported to its makers.

    Raises:
        MissingExtra: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # It prints deaths on standard output, where a command's data goes; the schedule speaks of them.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _DEATHS)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    return ray


@final
@dataclass(slots=True)
class _Member:
    """An actor; ``waiting`` is the answer that is due, ``pid`` is known once it has begun."""

    actor: Any
    waiting: Any
    heard: float
    pid: int | None = None
    host: str | None = None
    units: int = 0
    sign: Json = field(default_factory=dict)


@final
class Board:
    """An actor that keeps the workers' signs of life: a worker at work answers no call."""

    def __init__(self) -> None:
        self._signs: dict[int, Json] = {}
        self._count = 0

    def put(self, worker: int, sign: Json) -> None:
        """Keep a sign; its number tells it from the one before."""
        self._count += 1
        self._signs[worker] = sign | {"number": self._count}

    def read(self) -> dict[int, Json]:
        """The last sign of every worker."""
        return self._signs


@final
@dataclass(slots=True)
class RayPool:
    """Actors with ``threads`` processors (and ``gpus`` GPUs) each, spread over the nodes.

    ``address``: a running cluster's, None for the one that Ray finds or else begins here. ``workers`` None:
    as many as the cluster has room for now. Ray itself never retries: that is the schedule's work.
    """

    address: str | None
    workers: int | None
    threads: int
    gpus: float = 0.0
    _members: dict[int, _Member] = field(default_factory=dict)
    _starts: Starts = field(default_factory=Starts)
    _number: int = 0
    _ray: Any = None
    _ours: bool = False
    _board: Any = None
    _read: Any = None
    _asked: float = 0.0

    @property
    def size(self) -> int:
        """Workers that there should be."""
        return self.workers or 1

    def start(self) -> None:
        """Join the cluster, and begin what actors are missing."""
        if self._ray is None:
            self._join()
        if self.workers is None:
            self.workers = self._room()
        while len(self._members) < self.workers:
            self._begin()

    def _join(self) -> None:
        ray = import_ray()
        if not ray.is_initialized():
            try:
                with warnings.catch_warnings():
                    # Ray leaves log files and sockets open, and speaks of versions to come.
                    warnings.simplefilter("ignore")
                    ray.init(
                        address=self.address, include_dashboard=None if self.address else False,
                        log_to_driver=False, logging_level="error",
                    )  # fmt: skip
            except (ConnectionError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
                raise ServerError(
                    f"no Ray cluster answers: {error}",
                    where=self.address or "this machine",
                    hint="begin one with `ray start --head`; if it asks for a token, set RAY_AUTH_MODE=token "
                    "and RAY_AUTH_TOKEN",
                ) from error
            self._ours = True
        self._ray = ray
        # It needs no processor, and one that goes down with its node begins again, empty, on another.
        self._board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()

    def _room(self) -> int:
        has = self._ray.cluster_resources()
        room = has.get("CPU", 1.0) // self.threads
        if self.gpus:
            room = min(room, has.get("GPU", 0.0) // self.gpus)
        return max(int(room), 1)

    def _begin(self) -> None:
        number, self._number = self._number, self._number + 1
        kind = self._ray.remote(
            num_cpus=self.threads, num_gpus=self.gpus, max_restarts=0, max_task_retries=0,
            scheduling_strategy="SPREAD",
        )(Worker)  # fmt: skip
        report = partial(_put, self._board, number)
        actor = kind.remote(self.threads, path=tuple(sys.path), report=report)
        self._members[number] = _Member(actor, actor.hello.remote(), time.time())

    def idle(self) -> list[int]:
        """Actors that can take a unit now."""
        return [n for n, member in self._members.items() if member.waiting is None]

    def alive(self) -> dict[int, int]:
        """Process ids of the actors that have begun, on their nodes."""
        return {n: member.pid for n, member in self._members.items() if member.pid is not None}

    def signs(self) -> dict[int, Sign]:
        """When each actor was last heard of, and the draws of its unit that it said were done."""
        self._look()
        return {
            n: Sign(m.heard, m.pid, m.host, m.sign.get("done") if m.sign.get("unit") == m.units else None)
            for n, m in self._members.items()
        }

    def _look(self) -> None:
        """Ask the board now and then, without waiting for it."""
        now = time.time()
        if self._read is None and now - self._asked >= BEAT / 2:
            self._read, self._asked = self._board.read.remote(), now
        if self._read is None or not self._ray.wait([self._read], timeout=0)[0]:
            return
        read, self._read = self._read, None
        try:
            signs = self._ray.get(read)
        except self._ray.exceptions.RayError:  # it is beginning again elsewhere: asked again next time
            return
        for number, sign in signs.items():
            member = self._members.get(number)
            if member is not None and sign["number"] != member.sign.get("number"):
                member.sign, member.heard = sign, now

    def give(self, worker: int, text: str) -> None:
        """Let an actor do a unit."""
        member = self._members[worker]
        member.units += 1
        member.waiting = member.actor.run.remote(text)

    def wait(self, seconds: float) -> list[Event]:
        """What actors answered, and which are gone with their process, their node or for want of memory."""
        due = {member.waiting: n for n, member in self._members.items() if member.waiting is not None}
        if not due:
            return []
        ready, _ = self._ray.wait(list(due), num_returns=1, timeout=seconds)
        if ready and len(due) > 1:
            ready, _ = self._ray.wait(list(due), num_returns=len(due), timeout=0)
        return [event for ref in ready if (event := self._hear(due[ref])) is not None]

    def _hear(self, number: int) -> Event | None:
        member = self._members[number]
        try:
            answer = self._ray.get(member.waiting)
        except self._ray.exceptions.RayError as error:
            del self._members[number]
            # The answer may be lost where its worker is not; that worker is not trusted again.
            self._ray.kill(member.actor)
            why = _reason(error)
            if member.pid is None:
                self._starts.died(why)
            self._begin()
            return Died(number, why)
        member.waiting, member.heard = None, time.time()
        if member.pid is None:
            member.pid, member.host = int(answer["pid"]), str(answer["host"])
            self._starts.began()
            return None
        return UnitAnswer(number, answer)

    def close(self) -> None:
        """End all actors, and leave the cluster where it was joined here."""
        for member in self._members.values():
            self._ray.kill(member.actor)
        self._members.clear()
        if self._board is not None:
            self._ray.kill(self._board)
            self._board = self._read = None
        if self._ours:
            self._ray.shutdown()
            self._ours = False
        self._ray = None


def _put(board: Any, worker: int, sign: Json) -> None:
    board.put.remote(worker, sign)


def _reason(error: Exception) -> str:
    """The first sentence of what Ray says of a death."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
