"""How much of an update is signal: gradients of independent batches of one arm, before any training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from refork_methods.compare.cell import Cell, arm_grower, start_of, training_of
from refork_methods.compare.recipe import Arm, CompareRecipe, WorldPlan
from refork_methods.credit.methods import credit_method
from refork_methods.train.loop import train_policy

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Signal:
    """Of gradients g of independent batches: ``share`` estimates |E g|^2 / E |g|^2, in [0, 1] up to noise.

    ``alignment`` is the cosine of their mean with another arm's mean gradient, corrected for noise.
    """

    share: float
    alignment: float
    batches: int


def signal_of(gradients: ArrayLike, reference: ArrayLike) -> Signal:
    """Signal of gradients [k, n] and their alignment with the mean of reference gradients [m, n].

    Products of different batches alone enter |E g|^2, so it is unbiased; where the estimate is not above 0
    the alignment is NaN, and so is the share where all gradients are 0. ``reference`` must hold other batches
    than ``gradients``.

    Raises BadInput for fewer than two batches on either side.
    """
    g, r = np.asarray(gradients, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if len(g) < 2 or len(r) < 2:
        raise BadInput("signal needs at least two batches of each arm", where="gradients")
    own, other = _squared_mean(g), _squared_mean(r)
    cross = float(g.mean(axis=0) @ r.mean(axis=0))
    alignment = cross / np.sqrt(own * other) if own > 0 and other > 0 else float("nan")
    size = float((g * g).sum(axis=1).mean())
    return Signal(own / size if size > 0 else float("nan"), float(alignment), len(g))


def _squared_mean(g: Float64) -> float:
    """Unbiased |E g|^2 of independent rows."""
    total = g.sum(axis=0)
    pairs = len(g) * (len(g) - 1)
    return float((total @ total - (g * g).sum()) / pairs)


def arm_gradients(
    recipe: CompareRecipe, world_plan: WorldPlan, arm: str, batches: int, first_seed: int
) -> Float64:
    """First-update gradients of an arm at the starting weights, [batches, parameters], a seed each."""
    start, parsed = start_of(world_plan), Arm.parse(arm)
    world = open_world(start.world)
    rows = []
    for seed in range(first_seed, first_seed + batches):
        policy = LocalPolicy.load(start.folder, reference=start.folder if parsed.implicit else None)
        cell = Cell(recipe.model_copy(update={"updates": 1}), world_plan, arm, seed, Path())
        tasks = world.tasks("train", 40 * world_plan.tasks, seed)
        with Tree.memory() as tree:
            for _ in train_policy(
                tree, policy, world, tasks, training_of(cell), start.sampling,
                grower=arm_grower(parsed, recipe, tree), credit=credit_method(parsed.credit),
            ):  # fmt: skip
                pass
        rows.append(_gradient(policy.model))
    return np.stack(rows)


def _gradient(model: Any) -> Float64:
    """What the last step left in the parameters, clipped as the step was."""
    parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
    return np.asarray(torch.cat([part.reshape(-1) for part in parts]).double().numpy())
