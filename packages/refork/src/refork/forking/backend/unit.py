"""A unit of work: some draws of one arm, as plain JSON. Doing it twice gives the same result twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, final

from refork.errors import CannotDo, InternalError
from refork.forking.arm import ReadyArm
from refork.forking.backend.wire import pack, pack_array, pack_bytes, unpack, unpack_producer, unpack_score
from refork.forking.context import world_noise
from refork.forking.run_on import Branch
from refork.policies.base import Policy
from refork.tree.node import NewNode, Node, Trajectory
from refork.tree.score import DrawRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import World

#: Says that driver and workers mean the same by a unit.
FORMAT: Final = 3

#: Of a trajectory's nodes a worker reads texts and token ids only; its last snapshot goes apart.
_UNREAD: Final = ("logprobs", "logprobs_t1", "ref_logprobs", "entropy", "snapshot", "cost")

#: Fields of a branch that are its draw's own.
_OWN: Final = ("noise", "attempt", "messages", "tokens", "episode", "origin", "cancelled")


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """Draws of the ``job``-th arm, as (number, attempt); ``arm`` is all that they share, as JSON."""

    job: int
    arm: str
    draws: tuple[tuple[int, str], ...]

    @property
    def text(self) -> str:
        """What a worker is sent."""
        # The arm is JSON already and most of the text: it is written once for all of its units.
        return f'{{"format": {FORMAT}, "draws": {json.dumps(self.draws)}, "arm": {self.arm}}}'

    def singles(self) -> list[Unit]:
        """The same draws, a unit for each."""
        return [Unit(self.job, self.arm, (draw,)) for draw in self.draws]


@final
@dataclass(frozen=True, slots=True)
class Result:
    """What a unit's draws are: everything that the driver writes, in order of draws."""

    new_nodes: list[NewNode]
    draws: list[DrawRecord]
    scores: list[Score]
    producers: list[Producer]
    tokens: int = 0
    ties: int = 0

    @classmethod
    def from_json(cls, data: Json) -> Result:
        """What a worker sent."""
        return cls(
            [unpack(NewNode, item) for item in data["drafts"]],
            [DrawRecord(**item) for item in data["draws"]],
            [unpack_score(item) for item in data["scores"]],
            [unpack_producer(item) for item in data["producers"]],
            data["tokens"],
            data["ties"],
        )


def units_of(jobs: Sequence[ReadyArm], size: int, spec_of: Callable[[Policy | World], str]) -> list[Unit]:
    """The units of all arms, in the order in which they are committed: arms as given, draws ascending.

    A draw's unit depends on its number alone, so the same draws are sampled together whatever is on the
    tree already up to a unit's end. ``spec_of`` says how a worker opens a policy or world.
    """
    units: list[Unit] = []
    for number, job in enumerate(jobs):
        if not job.branches:
            continue
        arm = json.dumps(_arm(job, spec_of))
        ordered = sorted(job.branches, key=lambda b: b.noise.draw)
        for _, some in groupby(ordered, key=lambda b: b.noise.draw // size):
            units.append(Unit(number, arm, tuple((b.noise.draw, b.attempt) for b in some)))
    return units


def _arm(job: ReadyArm, spec_of: Callable[[Policy | World], str]) -> Json:
    if job.simulator is not None:
        raise CannotDo(
            "a simulator answers in this process only", hint="leave the simulator or the backend away"
        )
    plan, first = job.plan, job.branches[0]
    card, world = plan.policy.card, plan.world
    if any(_shared(branch) != _shared(first) for branch in job.branches):
        raise InternalError("the branches of one arm differ in more than their draw")
    return {
        "policy": {"spec": spec_of(plan.policy), "weights": card.weights, "tokenizer": card.tokenizer},
        "world": None
        if world is None
        else {"spec": spec_of(world), "version": world.version, "name": world.name},
        "settings": plan.settings.to_json(),
        # A worker's store knows no arms: what it needs of them to replay goes with the answers.
        "walk": [
            [pack(_with_noise(job.point.tree, step.node), _UNREAD), step.keep] for step in plan.trajectory
        ],
        "snapshot": _snapshot(job.point.tree, plan.trajectory) if world is not None else None,
        "branch": _shared(first) | {"tokens": pack_array(first.tokens), "messages": first.messages},
        "noise": [first.noise.seed, first.noise.stream],
    }


def _with_noise(tree: Tree | None, node: Node) -> Node:
    return replace(node, noise=world_noise(tree, node)) if node.kind == "observation" else node


def _shared(branch: Branch) -> Json:
    names = [name for name in Branch.__dataclass_fields__ if name not in _OWN]
    return {name: getattr(branch, name) for name in names}


def _snapshot(tree: Tree | None, trajectory: Trajectory) -> Json | None:
    """The last snapshot of a trajectory, the only one that is restored."""
    for place in range(len(trajectory.steps) - 1, -1, -1):
        digest = trajectory.steps[place].node.snapshot
        if digest is not None and tree is not None:
            return {"step": place, "data": pack_bytes(tree.blob(digest))}
    return None
