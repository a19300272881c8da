"""What a control does to a policy: its success in the simulator with and without it, draw by draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.forking.arm import graded
from refork.growing import Group, grow
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.stats import clustered_difference
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task, World


@final
@dataclass(frozen=True, slots=True)
class ControlEffect:
    """Success under a control minus without it, with its 95 % interval; tasks are what is counted.

    ``draws`` pairs share task, draw and noise; ``ungraded`` pairs were left out. All of it is simulated.
    ``changed`` is the share of controlled answers that the control did something to, ``drift`` the share of
    episodes with a drift alarm (without, with).
    """

    plain: float
    controlled: float
    difference: float
    low: float
    high: float
    p: float
    tasks: int
    draws: int
    ungraded: int
    changed: float
    drift: tuple[float, float]

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self) | {"drift": list(self.drift), "simulated": True}

    @property
    def sentence(self) -> str:
        """The effect in words."""
        return (
            f"in the simulator, success {self.plain:.3f} without and {self.controlled:.3f} with the control: "
            f"{self.difference:+.3f} (95 % interval {self.low:+.3f} to {self.high:+.3f}; {self.draws} pairs, "
            f"{self.tasks} tasks, {self.ungraded} ungraded); it touched {100 * self.changed:.0f} % of them"
        )


def compare_control(
    policy: Policy, plain: World, controlled: World, tasks: Sequence[Task], *, draws: int,
    settings: Sampling, seed: int = 0, tree: Tree | None = None, progress: Progress = silent,
) -> ControlEffect:  # fmt: skip
    """The same rollouts in two worlds that differ in their control; a given tree keeps them.

    Raises:
        BadInput: fewer than two tasks have a graded pair.
    """
    if tree is None:
        with Tree.memory() as own:
            return compare_control(
                policy, plain, controlled, tasks, draws=draws, settings=settings, seed=seed, tree=own,
                progress=progress,
            )  # fmt: skip
    arms = [
        grow(tree, policy, world, tasks, draws=draws, settings=settings, seed=seed, progress=progress)
        for world in (plain, controlled)
    ]
    x, y = (graded([value for group in arm for value in group.values()]) for arm in arms)
    names = [task.id for task in tasks for _ in range(draws)]
    known = ~(np.isnan(x) | np.isnan(y))
    clusters = [name for name, good in zip(names, known, strict=True) if good]
    if len(set(clusters)) < 2:
        raise BadInput("fewer than two tasks have a graded pair", hint="more tasks, or longer turns")
    found = clustered_difference(x[known], y[known], clusters)
    interval = found.interval
    return ControlEffect(
        plain=float(x[known].mean()), controlled=float(y[known].mean()),
        difference=interval.estimate, low=interval.low, high=interval.high, p=found.p,
        tasks=len(set(clusters)), draws=int(known.sum()), ungraded=int((~known).sum()),
        changed=_marked(arms[1], "control")[0],
        drift=(_marked(arms[0], "drift")[1], _marked(arms[1], "drift")[1]),
    )  # fmt: skip


def _marked(arm: Sequence[Group], key: str) -> tuple[float, float]:
    """Shares of answers and of episodes that have a key in their info."""
    episodes = [
        [key in step.node.extra for step in walk if step.node.kind == "observation"]
        for group in arm
        for fork in group.forks
        for walk in fork.leaves()
    ]
    answers = [mark for one in episodes for mark in one]
    return sum(answers) / max(len(answers), 1), sum(map(any, episodes)) / max(len(episodes), 1)
