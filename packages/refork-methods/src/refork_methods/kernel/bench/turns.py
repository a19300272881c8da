"""Samples of the original and of candidates in turns, each call on inputs of its own, each result checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

import numpy as np

from refork.progress import Progress
from refork_methods.kernel.bench.check import Arrays, RejectedError, called, judge
from refork_methods.kernel.bench.draw import Batch, draw_batch
from refork_methods.kernel.bench.layout import Placed, place
from refork_methods.kernel.bench.original import Original, must_run
from refork_methods.kernel.bench.process import MOST, FailedError, Host
from refork_methods.kernel.bench.result import Limits
from refork_methods.kernel.problem import Problem

#: Both the original and a candidate may be off by the tolerance, each to its side.
BOTH = 2.0
_PILOTS = 4


@final
class Turns:
    """Takes samples of ``original`` and ``hosts``: candidates by number, checked before.

    One that fails is out from then on.
    """

    def __init__(
        self,
        problem: Problem,
        original: Original,
        hosts: dict[int, Host],
        limits: Limits,
        rng: Callable[[], np.random.Generator],
        progress: Progress,
    ) -> None:
        self.problem, self.limits = problem, limits
        self.calls = 1
        self._fit, self._original = original, original.host
        self._hosts, self._rng, self._progress = dict(hosts), rng, progress
        self._out: dict[int, RejectedError] = {}
        self._taken: list[tuple[float, dict[int, float]]] = []
        self._idle = 0.0  # of the original: a candidate may not say what is to be taken off its time

    def take(self, repeats: int) -> None:
        """Find out how many calls a sample needs, then take the samples.

        Raises:
            CannotDo: the original failed.
        """
        if not self._hosts:
            return
        try:
            self._idle = min(self._original.run(0).cpu for _ in range(5))
        except FailedError as failed:
            raise must_run(failed, self.problem.name) from None
        for _ in range(_PILOTS):
            self._turn(0)
            wanted = self._wanted()
            settled = wanted <= self.calls * 1.5
            self.calls = max(self.calls, wanted)
            if settled:
                break
        self._turn(1)  # the pages of all calls are there from now on
        self._taken.clear()
        for turn in range(repeats):
            if not self._hosts:
                return
            self._progress("timing", turn, repeats)
            self._turn(turn)
        self._progress("timing", repeats, repeats)

    def stands(self, number: int) -> None:
        """Nothing where a candidate came through.

        Raises:
            RejectedError: it failed in a turn.
        """
        if number in self._out:
            raise self._out[number]

    def samples(self, number: int) -> tuple[list[float], list[float]]:
        """Seconds of one call in each turn, of the original and of a candidate."""
        return [theirs for theirs, _ in self._taken], [ours[number] for _, ours in self._taken]

    def _wanted(self) -> int:
        """Calls so that the fastest fills a sample, as far as arrays and the original let."""
        if not self._taken or not self._hosts:
            return 1
        theirs, ours = self._taken[-1]
        enough = math.ceil(self.limits.sample / max(min(*ours.values(), theirs, math.inf), 1e-9))
        room = self.limits.arrays // max(self._original.layout.touched, 1)
        return max(1, min(enough, MOST, room, int(self.limits.longest / max(theirs, 1e-9))))

    def _turn(self, turn: int) -> None:
        """One sample of each on the same fresh inputs, who is first changing from turn to turn."""
        rng = self._rng()
        batch = draw_batch(self.problem, self.calls, rng, "nan" if turn % 2 else "number")
        placed = place(self._original.layout, rng)
        order = [-1, *self._hosts]
        order = order[turn % len(order) :] + order[: turn % len(order)]
        found: dict[int, Arrays] = {}
        seconds: dict[int, float] = {}
        for number in order:
            if number < 0:
                try:
                    found[number], seconds[number] = self._called(self._original, batch, placed)
                except (FailedError, RejectedError) as failed:
                    raise must_run(failed, self.problem.name) from None
                continue
            with self._alone(number):
                found[number], seconds[number] = self._called(self._hosts[number], batch, placed)
        for number, host in list(self._hosts.items()):
            with self._alone(number):
                self._judged(host, batch, found[number], found[-1])
        self._taken.append((seconds.pop(-1), seconds))

    def _judged(self, host: Host, batch: Batch, found: Arrays, theirs: Arrays) -> None:
        """Near the original's results, or else near the precise ones: where terms cancel, both may be off."""
        scales = self._fit.scales
        try:
            judge(self.problem, host, batch, found, theirs, scales=scales, slack=BOTH)
        except RejectedError:
            precise = self._fit.expected(batch)
            judge(self.problem, host, batch, found, precise, scales=scales, beside=theirs)

    def _called(self, host: Host, batch: Batch, placed: Placed) -> tuple[Arrays, float]:
        """What came of a batch, and seconds of the processor for one call."""
        found, took = called(host, batch, placed)
        return found, max(took.cpu - self._idle, took.cpu / 2) / batch.calls

    @contextmanager
    def _alone(self, number: int) -> Iterator[None]:
        """For what is one candidate's own: its failure takes out no other."""
        try:
            yield
        except FailedError as failed:
            why = f"while it was timed: {failed}"
            self._drop(number, RejectedError("cheat" if failed.cheat else "run", why, cheat=failed.cheat))
        except RejectedError as refused:
            cheat = refused.cheat or "wrong-later"
            why = f"while it was timed: {refused}"
            self._drop(number, RejectedError(refused.stage, why, cheat=cheat, error=refused.error))

    def _drop(self, number: int, why: RejectedError) -> None:
        self._out[number] = why
        self._hosts.pop(number, None)
