"""From submitted requests to read prompts: who may join, and whose prompt is read next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from refork.decoding.live_draw import RunningRequest
from refork.decoding.live_prompts import Prompts, Reading, begins_alike
from refork.decoding.plan import align
from refork.errors import ReforkError


@dataclass(slots=True, eq=False)
class _Batch:
    """Prompts being read, and the requests that wait for each of them, by its number."""

    reading: Reading
    branches: list[tuple[int, RunningRequest]]


@final
class Intake:
    """Requests that have said nothing yet, first come, first served."""

    def __init__(self, prompts: Prompts, width: int) -> None:
        self.prompts, self.width = prompts, width
        self._waiting: dict[int, RunningRequest] = {}
        self._batches: deque[_Batch] = deque()
        self._ready: list[RunningRequest] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._admitted())

    @property
    def bytes(self) -> int:
        """Keys and values of prompts that are not read to their end."""
        return sum(batch.reading.bytes for batch in self._batches)

    def add(self, branch: RunningRequest) -> None:
        """One more request."""
        self._waiting[branch.request_id] = branch

    def drop(self, request_id: int) -> bool:
        """Forget a request; whether it was here."""
        before = len(self)
        self._waiting.pop(request_id, None)
        for batch in self._batches:
            batch.branches = [pair for pair in batch.branches if pair[1].request_id != request_id]
        self._batches = deque(batch for batch in self._batches if batch.branches)
        return len(self) < before

    def admit(self, running: Sequence[RunningRequest], limit: Callable[[], int]) -> None:
        """Begin with requests that wait, as far as rows and memory go; ``limit`` bounds the passes."""
        inside = [*running, *self._admitted()]
        fresh: list[RunningRequest] = []
        for branch in list(self._waiting.values()):
            if len(inside) >= self.width or not self._fits(branch, inside, fresh):
                break
            tokens = branch.request.tokens
            known = self.prompts.find(tokens)
            if known is not None:
                branch.prompt = self.prompts.hold(known)
                self._ready.append(branch)
            elif not self._joins(branch):
                if any(begins_alike(tokens, batch.reading) for batch in self._batches):
                    # What is being read now need not be read again.
                    continue
                fresh.append(branch)
            del self._waiting[branch.request_id]
            inside.append(branch)
        if fresh:
            numbers: dict[bytes, int] = {}
            pairs = [(numbers.setdefault(b.request.tokens.tobytes(), len(numbers)), b) for b in fresh]
            distinct = {number: branch.request.tokens for number, branch in pairs}
            self._batches.append(_Batch(self.prompts.start(list(distinct.values()), limit), pairs))

    def advance(self) -> tuple[list[RunningRequest], list[tuple[RunningRequest, str]]]:
        """Run one pass over prompts: requests whose prompts are read, and those that failed, and why."""
        failed: list[tuple[RunningRequest, str]] = []
        if self._batches:
            batch = self._batches.popleft()
            try:
                prompts = self.prompts.advance(batch.reading)
            except (ReforkError, RuntimeError) as error:
                # One prompt that memory does not hold, or an edit that fails, must not end the others.
                failed = [(branch, str(error)) for _, branch in batch.branches]
            else:
                if prompts is None:
                    self._batches.append(batch)
                else:
                    for number, branch in batch.branches:
                        branch.prompt = self.prompts.hold(prompts[number])
                        self._ready.append(branch)
                    # Those who asked for some of them may have left.
                    for prompt in prompts:
                        self.prompts.release(prompt)
        ready, self._ready = self._ready, []
        return ready, failed

    def _admitted(self) -> list[RunningRequest]:
        return [*self._ready, *(branch for batch in self._batches for _, branch in batch.branches)]

    def _joins(self, branch: RunningRequest) -> bool:
        """Whether an equal prompt is being read; then they share it."""
        for batch in self._batches:
            number = batch.reading.place(branch.request.tokens)
            if number is not None:
                batch.branches.append((number, branch))
                return True
        return False

    def _fits(
        self, branch: RunningRequest, inside: Sequence[RunningRequest], fresh: Sequence[RunningRequest]
    ) -> bool:
        """Whether memory holds one more; somebody always may run."""
        if not inside:
            return True
        decoder = self.prompts.decoder
        longest = max(len(b.request.tokens) for b in (branch, *inside))
        most = max(b.limit for b in (branch, *inside))
        if len(inside) >= decoder.rows_within(longest, most):
            return False
        if self.prompts.find(branch.request.tokens) is not None:
            return True
        held = self.prompts.prefix_cache.bytes + self.bytes
        tokens = sum(align(len(b.request.tokens)) for b in (branch, *fresh))
        return held + tokens * decoder.backbone.shape.bytes_per_token <= decoder.memory // 2
