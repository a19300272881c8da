"""Many episodes answered together: who asks while the model works is in its next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, final

from refork.worlds.base import Observation
from refork_methods.simulate.episode import SimulatedEpisode

_Due: TypeAlias = "tuple[SimulatedEpisode, str, asyncio.Future[Observation]]"


@final
class Rounds:
    """Steps of episodes in rounds of up to ``width``, one round after the other, in a thread of their own.

    A step whose client left before its round began is not made. Used from the event loop's thread only.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rounds = self.steps = self.running = 0
        self._waiting: deque[_Due] = deque()
        self._work: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def gauges(self) -> Mapping[str, float]:
        """Steps that are being answered and those that wait for the next round."""
        return {"running": self.running, "waiting": len(self._waiting)}

    async def step(self, episode: SimulatedEpisode, action: str) -> Observation:
        """What one step of one episode shows; raises what the model raised."""
        due: asyncio.Future[Observation] = asyncio.get_running_loop().create_future()
        self._waiting.append((episode, action, due))
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._run())
        return await due

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="refork-world")
        while self._waiting:
            part = self._next()
            if not part:
                continue
            self.running = len(part)
            episodes, actions = [one[0] for one in part], [one[1] for one in part]
            said: list[Observation | Exception]
            try:
                said = await loop.run_in_executor(
                    self._thread, SimulatedEpisode.step_together, episodes, actions
                )
            except Exception as error:
                said = [error] * len(part)
            self.running = 0
            self.rounds, self.steps = self.rounds + 1, self.steps + len(part)
            for (_, _, due), one in zip(part, said, strict=True):
                if due.done():
                    continue
                if isinstance(one, Exception):
                    due.set_exception(one)
                else:
                    due.set_result(one)

    def _next(self) -> list[_Due]:
        """The oldest steps that somebody still waits for."""
        part: list[_Due] = []
        while self._waiting and len(part) < self.width:
            one = self._waiting.popleft()
            if not one[2].done():
                part.append(one)
        return part

    async def stop(self) -> None:
        """Drop who waits; the round under way runs to its end."""
        while self._waiting:
            self._waiting.popleft()[2].cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
