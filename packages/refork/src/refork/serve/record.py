"""The record: every answer is on a tree before the client gets its end.

One thread writes. What waits is written together, in one transaction that is synced to the disk before any of
its answers goes out; so an answer that a client holds whole is on the tree, whatever kills the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import TreeError, UserError
from refork.serve.exchange import Exchange
from refork.serve.exchange_nodes import Conversations, nodes_of
from refork.serve.metrics import Metrics
from refork.serve.refusal import Refused
from refork.tree.node import NewNode
from refork.tree.tree import Tree

_log = logging.getLogger("refork.server")
#: Exchanges that one transaction takes at most.
_TOGETHER = 64
_POLL_S = 0.01


@final
@dataclass(slots=True, eq=False)
class _Job:
    exchange: Exchange
    done: asyncio.Future[bool]
    loop: asyncio.AbstractEventLoop
    written: bool | None = None  # as it is counted; None: not yet

    def tell(self, written: bool) -> None:
        """Let whoever waits go on; he may have gone, and his loop too."""

        def settle() -> None:
            # A wait that timed out has cancelled it; a result would then raise in the reader's loop.
            if not self.done.done():
                self.done.set_result(written)

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(settle)


@final
class ExchangeRecorder:
    """Writes exchanges to a tree from one thread; ``waiting`` of them at most wait for it.

    An exchange that cannot be written (the disk is full, another program holds the tree) within ``wait_s``
    seconds is counted and logged, and its answer goes out all the same. With ``strict`` it does not: the
    client gets 503 in its place.

    Raises: TreeError where the tree cannot be opened for writing.
    """

    def __init__(
        self,
        tree: Path | Tree,
        *,
        strict: bool = False,
        wait_s: float = 30.0,
        waiting: int = 1024,
        metrics: Metrics | None = None,
    ) -> None:
        self._tree = tree if isinstance(tree, Tree) else Tree.open(tree, wait=wait_s)
        self._owned = not isinstance(tree, Tree)
        self._strict = strict
        self._wait_s = wait_s
        self._metrics = metrics
        self._talks = Conversations()
        self._queue: queue.Queue[_Job | None] = queue.Queue(waiting)
        self._counting = threading.Lock()
        self._closed = False
        self.written = 0
        self.failed = 0
        self._thread = threading.Thread(target=self._write, name="refork-record", daemon=True)
        self._thread.start()

    async def exchange(self, exchange: Exchange) -> None:
        """Put an exchange on record; returns when it is durable.

        Raises:
            Refused: 503, it is not on record and the recorder is strict.
        """
        loop = asyncio.get_running_loop()
        job = _Job(exchange, loop.create_future(), loop)
        try:
            async with asyncio.timeout(self._wait_s):
                while not self._offer(job):
                    # The queue is a thread's: the loop cannot wait for room in it.
                    await asyncio.sleep(_POLL_S)
                written = await job.done
        except TimeoutError:
            self._count(job, f"it was not written within {self._wait_s:g} s")
            written = bool(job.written)
        if self._strict and not written:
            said = "the answer could not be recorded, and this server gives none that is not"
            raise Refused(503, said, "server_error", "not_recorded")

    def close(self) -> None:
        """Write what waits, end the thread, give the tree back."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
            if self._owned:
                self._tree.close()

    def gauges(self) -> dict[str, float]:
        """For metrics: exchanges that wait to be written."""
        return {"record_waiting": float(self._queue.qsize())}

    def _offer(self, job: _Job) -> bool:
        if self._closed:
            self._count(job, "the recorder is closed")
            job.done.set_result(False)
            return True
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            return False
        return True

    # The writing thread

    def _write(self) -> None:
        over = False
        while not over:
            jobs = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while len(jobs) < _TOGETHER:
                    jobs.append(self._queue.get_nowait())
            over = None in jobs
            self._commit([job for job in jobs if job is not None])

    def _commit(self, jobs: list[_Job]) -> None:
        """Write jobs together; where one of them is bad, each alone, so that it cannot spoil the others."""
        if not jobs:
            return
        try:
            new_nodes: list[NewNode] = []
            leaves: list[list[str]] = []
            for job in jobs:
                made, nodes = nodes_of(job.exchange, self._talks.find(job.exchange))
                new_nodes += made
                leaves.append(nodes)
            self._tree.append(new_nodes)
        except Exception as error:
            # A tree that cannot be written fails for every exchange alike; only a bad one is worth finding.
            if len(jobs) > 1 and not isinstance(error, TreeError):
                for job in jobs:
                    self._commit([job])
                return
            if not isinstance(error, UserError):
                _log.exception("an exchange could not be recorded")
            for job in jobs:
                self._count(job, str(error))
                job.tell(False)
            return
        for job, nodes in zip(jobs, leaves, strict=True):
            self._count(job)
            self._talks.add(job.exchange, nodes)
            job.tell(True)

    def _count(self, job: _Job, why: str | None = None) -> None:
        """Count an exchange once, as written or as failed and why: a late one is written all the same."""
        with self._counting:
            if job.written is not None:
                return
            job.written = why is None
            self.written += job.written
            self.failed += not job.written
        if self._metrics is not None:
            self._metrics.recorded("written" if job.written else "failed")
        if why is not None:
            _log.error("exchange %s is not on record: %s", job.exchange.id, why)
