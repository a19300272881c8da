from __future__ import annotations

from collections.abc import Iterator

import pytest

from refork.forking.backend import Backend, open_backend
from refork.policies.base import Policy
from refork.policies.open import open_policy
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from support.chain import PLAIN
from support.exported import exported


@pytest.fixture(scope="module")
def processes() -> Iterator[Backend]:
    with open_backend("processes:2?unit=4") as backend:
        yield backend


class Work:
    """Rollouts of two tasks, and two arms of a fork in the middle of a turn of one of them."""

    draws = 24

    def __init__(self, policy: str = "scripted:specialist@0", world: str = "specialists") -> None:
        self.policy, self.world = policy, world

    def into(self, tree: Tree, backend: Backend | None, progress=None) -> None:
        from refork.forking import Remove, fork
        from refork.growing.rollouts import grow
        from refork.progress import silent

        told = progress or silent
        world = open_world(self.world)
        actor: Policy = open_policy(self.policy) if backend is None else backend.open(self.policy)
        tasks = world.tasks("held-out", 2, 0)
        groups = grow(
            tree, actor, world, tasks, draws=self.draws, settings=PLAIN.but(max_tokens=24), seed=1,
            progress=told, backend=backend,
        )  # fmt: skip
        leaf = groups[0].forks[0].leaves()[0]
        turn = [step.node for step in leaf if step.node.kind == "action"][-1]
        point = tree.at(turn, turn.length // 2)
        for change in (None, Remove(1)):
            fork(point, actor, 8, change, world=world, backend=backend, progress=told)

    def export(self, backend: Backend | None, progress=None) -> bytes:
        with Tree.memory() as tree:
            self.into(tree, backend, progress)
            return exported(tree)


@pytest.fixture(scope="session")
def work() -> Work:
    return Work()


@pytest.fixture(scope="module")
def alone(work: Work) -> bytes:
    """The export of the work done by one worker in this process."""
    with open_backend("serial?unit=4") as backend:
        return work.export(backend)
