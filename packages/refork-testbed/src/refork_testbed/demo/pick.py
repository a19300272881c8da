"""Which recorded failure is worth a closer look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refork.errors import BadInput
from refork.growing.rollouts import Group
from refork.tree.node import Trajectory


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed trajectory of a task that the policy often solves; ``rate`` is its group's success."""

    group: Group
    trajectory: Trajectory
    rate: float


def surprising_failures(groups: Sequence[Group], score: str = "success") -> list[Failure]:
    """Failed trajectories, those of the most often solved tasks first, the shortest of a task first.

    Where the chance at the start was high, something along the way lost it. Raises BadInput where no
    graded group holds both a success and a failure.
    """
    found: list[Failure] = []
    for group in groups:
        known = [v for v in group.values(score) if v is not None]
        rate = sum(known) / len(known) if known else 0.0
        if not 0 < rate < 1:
            continue
        failed = [
            trajectory
            for arm in group.forks
            for trajectory, value in zip(arm.leaves(), arm.values(score), strict=True)
            if value == 0.0
        ]
        if failed:
            found.append(Failure(group, min(failed, key=len), rate))
    if not found:
        raise BadInput(
            "no task was solved in some rollouts and failed in others, so no failure can be explained",
            hint="use more tasks or rollouts, or a policy that sometimes succeeds",
        )
    return sorted(found, key=lambda f: (-f.rate, len(f.trajectory)))
