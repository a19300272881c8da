"""Speculative expansion: begin new rollouts of a task while others of it still run, on scores a little old.

In rounds, a batch waits for its longest rollout. Here each task goes on as soon as no more than ``staleness``
of its rollouts are still unknown to the selector. Branches on their way count as children at once, so counts
are never stale; only outcomes are. Time is counted in turns, and a rollout found on the tree takes the turns
it took when it was drawn, so a resumed call makes the same choices.

Source: the idea is arXiv 2605.05262; this form is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.forking.arm import Fork, ReadyArm
from refork.forking.run_on import Branch, run_on, world_producer
from refork.growing.growing import Growing, GrowSetup, Logged, own_turns
from refork.growing.selector import Candidates
from refork.judge import Judge
from refork.progress import Progress
from refork.tree.score import DrawRecord


@dataclass(frozen=True, slots=True)
class Speculation:
    """``staleness``: outcomes a choice may be ignorant of (0: the same leaves as in rounds).

    ``keep``: a rollout on its way is given up between turns once its point's score has fallen below this
    share of the best (0: never; selectors that score only).

    Raises BadInput for a negative staleness or a share outside [0, 1].
    """

    staleness: int = 4
    keep: float = 0.8

    def __post_init__(self) -> None:
        if self.staleness < 0 or not 0 <= self.keep <= 1:
            raise BadInput(
                f"staleness is {self.staleness} and keep {self.keep}", hint="staleness >= 0, keep in [0, 1]"
            )


@runtime_checkable
class Scoring(Protocol):
    """A selector that gives every candidate a score."""

    def terms(
        self, known: Candidates, children: NDArray[np.int64] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Terms of every candidate, ``score`` among them; ``children`` stands in for the known counts."""
        ...


@dataclass(slots=True)
class _Flight:
    """A draw on its way: whose, from where, and when it ends if that is on record."""

    owner: int
    key: tuple[str, int]
    point_key: tuple[str, int]
    branch: Branch | None
    record: DrawRecord | None
    begun: int
    lands: int
    speculative: bool


@dataclass(slots=True)
class _Tower:
    """Who is on their way, and what happens after each turn of the batch."""

    plan: GrowSetup
    growing: Sequence[Growing]
    how: Speculation
    log: list[Logged]
    clock: int = 0
    rounds: list[int] = field(default_factory=list)
    flights: list[_Flight] = field(default_factory=list)
    jobs: dict[str, ReadyArm] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)

    def refill(self, ended: Sequence[DrawRecord]) -> list[Branch]:
        """Land what ended, give up what is no longer worth it, and begin what each task may begin now."""
        landed = {(record.fork, record.draw): record for record in ended}
        while True:
            touched = self._land(landed)
            landed = {}
            for owner in touched:
                self._give_up(owner)
            fresh = [b for i in range(len(self.growing)) for b in self._begin(i)]
            running = fresh or any(f.branch is not None for f in self.flights)
            if running or not self.flights:
                self.clock += 1
                return fresh
            self.clock = min(f.lands for f in self.flights)  # only recorded draws are on their way

    def _land(self, landed: dict[tuple[str, int], DrawRecord]) -> list[int]:
        """Tasks that learned something, those of which rollouts ended."""
        still, touched = [], set()
        for flight in self.flights:
            record = landed.get(flight.key)
            if record is None and flight.record is not None and flight.lands <= self.clock:
                record = flight.record
            if record is None:
                still.append(flight)
                continue
            one = self.growing[flight.owner]
            one.take(self.plan, [record])
            self._leave(one, flight)
            touched.add(flight.owner)
        self.flights = still
        return sorted(touched)

    def _leave(self, one: Growing, flight: _Flight) -> None:
        one.reserved.pop(flight.key, None)
        one.pending[flight.point_key] -= 1
        if not one.pending[flight.point_key]:
            del one.pending[flight.point_key]

    def _give_up(self, owner: int) -> None:
        """Cancel speculative draws whose points fell behind; their leaves may be drawn elsewhere."""
        selector, one = self.plan.selector, self.growing[owner]
        mine = [f for f in self.flights if f.owner == owner and f.speculative]
        if not mine or not isinstance(selector, Scoring) or self.how.keep == 0:
            return
        for flight in mine:
            known = one.known(self.plan)
            rows = {(n, int(t)): i for i, (n, t) in enumerate(zip(known.node, known.token, strict=True))}
            row = rows.get(flight.point_key)
            if row is None:
                continue
            without = known.children.copy()
            without[row] -= 1  # the draw itself is no reason against it
            score = selector.terms(known, without)["score"]
            if score[row] < self.how.keep * score.max():
                self._cancel(one, flight)

    def _cancel(self, one: Growing, flight: _Flight) -> None:
        end = flight.record.leaf if flight.record is not None else ""
        if flight.branch is not None:
            flight.branch.cancelled = True
            end = flight.branch.at
        # What it said so far was paid for.
        # Of a recorded draw only those turns that it would have said by now.
        said = own_turns(self.plan.tree.path(end), *flight.key)[: self.clock - flight.begun]
        one.spent[flight.key] = sum(said)
        one.dropped.add(flight.key)
        self.flights.remove(flight)
        self._leave(one, flight)

    def _begin(self, owner: int) -> list[Branch]:
        """Choices of one task, while few enough of its rollouts are still unknown."""
        one = self.growing[owner]
        fresh: list[Branch] = []
        while True:
            stale = sum(f.owner == owner for f in self.flights)
            # After the roots a choice needs something to go by: the first of them has to end.
            if stale > self.how.staleness or (self.rounds[owner] and not one.trajectories and stale):
                return fresh
            picks = one.choose(self.plan, self.rounds[owner])
            if not picks:
                return fresh
            for pick, point in picks:
                job, draws = one.job(self.plan, point, pick.draws)
                self.jobs[job.record.id] = job
                self.owners[job.record.id] = owner
                entry = Logged(one.task.id, self.rounds[owner], pick, point.address, stale)
                self.log.append(entry)
                place = (point.node.id, point.token if point.mid_node and point.token is not None else -1)
                fresh += self._fly(owner, job, draws, place, pick.terms.get("cost", 0.0), stale > 0)
            self.rounds[owner] += 1

    def _fly(
        self, owner: int, job: ReadyArm, draws: Sequence[int], place: tuple[str, int], cost: float, late: bool
    ) -> list[Branch]:
        one, tree = self.growing[owner], self.plan.tree
        branches = {b.noise.draw: b for b in job.branches}
        records = {d.draw: d for d in tree.draws(job.record.id)}
        for draw in draws:
            branch, record = branches.get(draw), records.get(draw)
            turns = 0 if record is None else len(own_turns(tree.path(record.leaf), record.fork, draw))
            key = (job.record.id, draw)
            lands = self.clock + max(turns, 1)
            self.flights.append(_Flight(owner, key, place, branch, record, self.clock, lands, late))
            one.pending[place] = one.pending.get(place, 0) + 1
            one.reserved[key] = cost
        return list(branches.values())


def grow_speculatively(
    plan: GrowSetup,
    growing: Sequence[Growing],
    how: Speculation,
    log: list[Logged],
    *,
    judge: Judge | None,
    progress: Progress,
) -> None:
    """Grow all tasks as one stream of branches; arms and log are left in ``growing`` and ``log``."""
    tower = _Tower(plan, growing, how, log, rounds=[0] * len(growing))
    totals = run_on(
        plan.tree, [], plan.policy, plan.settings,
        producer=world_producer(plan.world.name, plan.world.version), judge=judge,
        progress=progress, stage="growing", refill=tower.refill,
    )  # fmt: skip
    for fork, job in tower.jobs.items():
        drawn = tuple(sorted(plan.tree.draws(fork), key=lambda d: d.draw))
        arm = Fork(
            plan.tree, job.record, job.point, drawn, job.diff, totals.tokens.get(fork, 0),
            totals.ties.get(fork, 0),
        )  # fmt: skip
        growing[tower.owners[fork]].add_arm(arm)
