"""What the recipe of one stage of a chain is: where it begins, how it is trained, how it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refork.policies.base import Sampling
from refork.progress import Progress
from refork.types import Json
from refork.worlds.environment import EnvTrajectory
from refork_testbed.models.recipe import Made

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """One organism that a function trains in place, from a new model or from another organism.

    ``begin`` gives the new model where there is no ``parent``. ``train`` is called with the policy; the
    ``how`` of the facts that it leaves is the card's line on it. ``measure`` says in ``told`` how well the
    organism does, on what it never saw; ``world`` is the one that it acts in, if it acts. ``reads`` gives the
    trajectories that it learned from, if they are such: they are named beside the weights, and evaluations
    refuse them.
    """

    name: str
    summary: str
    data: str
    train: Callable[[LocalPolicy, Progress], Made]
    measure: Callable[[LocalPolicy, Progress], Json]
    parent: str | None = None
    begin: Callable[[Progress], LocalPolicy] | None = None
    reads: Callable[[], Iterable[EnvTrajectory]] | None = None
    world: str | None = None
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=128))
    seed: int = 0
