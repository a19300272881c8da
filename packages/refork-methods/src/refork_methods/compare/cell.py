"""One training run of a comparison: an arm, a world, a seed. Resumable; its curve is a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from refork.forking.arm import graded
from refork.growing import UUCB, grow
from refork.growing.selector import selector_named
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.registry import part
from refork.runs.recipe import digest
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import World
from refork.worlds.open import open_world
from refork_methods.compare.recipe import Arm, CompareRecipe, WorldPlan
from refork_methods.compare.table import Curve
from refork_methods.credit.methods import credit_method
from refork_methods.implicit.points import ImplicitValues
from refork_methods.train.loop import Grower, TreeTraining, finished_updates, train_policy

#: The stage of a cell's progress that counts what it is long by.
UPDATES: Final = "updates"


@dataclass(frozen=True, slots=True)
class Start:
    """Where all runs in a world begin: a model's folder, the world as that model knows it, how it samples."""

    folder: str
    world: str
    sampling: Sampling


def start_of(world_plan: WorldPlan, progress: Progress = silent) -> Start:
    """The tiny model of a place, built where it is not yet.

    Raises:
        BadInput: no model was made for the place's world, or none has the name.
        CannotDo: the testbed, which has the models, is not installed.
    """
    found: Start = part("compare.start", "refork-testbed")(world_plan.world, world_plan.organism, progress)
    return found


@dataclass(frozen=True, slots=True)
class Cell:
    """Which run: ``folder`` holds its checkpoints, tree and ``curve.json``."""

    recipe: CompareRecipe
    world_plan: WorldPlan
    arm: str
    seed: int
    folder: Path

    @property
    def file(self) -> Path:
        """Evaluations so far."""
        return self.folder / "curve.json"

    @property
    def rows(self) -> list[Json]:
        """Evaluations so far: ``update``, ``tokens`` and ``success`` per task."""
        return list(json.loads(self.file.read_text())) if self.file.exists() else []

    @property
    def done(self) -> bool:
        """Whether the last update was evaluated."""
        rows = self.rows
        return bool(rows) and rows[-1]["update"] == self.recipe.updates

    def mixed(self) -> float:
        """Mean share of task groups with different outcomes over the updates: those that could teach."""
        return float(np.mean([row["mixed"] for row in finished_updates(self.folder / "checkpoints")]))

    def curve(self) -> Curve:
        """The learning curve; an ungraded task is NaN."""
        rows = self.rows
        success = [[np.nan if v is None else v for v in row["success"]] for row in rows]
        return Curve(np.array([float(row["tokens"]) for row in rows]), np.array(success, dtype=np.float64))


def run_cell(cell: Cell, progress: Progress = silent) -> None:
    """Train and evaluate one cell; what its folder holds already is not done again.

    ``progress`` is told of rollouts, and of updates under the name :data:`UPDATES`.
    """
    if cell.done:
        return
    # Organisms are so small that a second thread mostly waits for the first.
    torch.set_num_threads(1)
    cell.folder.mkdir(parents=True, exist_ok=True)
    recipe, arm = cell.recipe, Arm.parse(cell.arm)
    start = start_of(cell.world_plan)
    world, settings = open_world(start.world), start.sampling
    policy = LocalPolicy.load(start.folder, reference=start.folder if arm.implicit else None)
    checkpoints = cell.folder / "checkpoints"

    def due(number: int) -> bool:
        return number % recipe.evaluate_every == 0 or number == recipe.updates

    def catch_up(update: Json) -> None:
        # An update is saved before it is evaluated: a run that was killed in between has no row of it.
        if due(update["number"]) and all(row["update"] != update["number"] for row in cell.rows):
            _evaluate(cell, policy, world, settings, update["number"], update["spent"])

    with Tree.open(cell.folder / "tree.db") as tree:
        done = finished_updates(checkpoints)
        progress(UPDATES, len(done), recipe.updates, tokens=done[-1]["spent"] if done else 0)
        if not done:
            _evaluate(cell, policy, world, settings, 0, 0)
        tasks = world.tasks("train", 40 * cell.world_plan.tasks * recipe.updates, cell.seed)
        for update in train_policy(
            tree, policy, world, tasks, training_of(cell), settings, progress,
            grower=arm_grower(arm, recipe, tree), credit=credit_method(arm.credit), folder=checkpoints,
            digest=_digest(cell), resumed=catch_up,
        ):  # fmt: skip
            progress(UPDATES, update.number, recipe.updates, tokens=update.spent)
            if due(update.number):
                _evaluate(cell, policy, world, settings, update.number, update.spent)


def training_of(cell: Cell) -> TreeTraining:
    """The training of a cell: the same for every arm but for its learning rate."""
    recipe = cell.recipe
    return TreeTraining(
        updates=recipe.updates, tasks=cell.world_plan.tasks, leaves=recipe.leaves,
            budget=cell.world_plan.budget,
        learning_rate=recipe.rates.get(cell.arm, cell.world_plan.learning_rate), seed=cell.seed,
    )  # fmt: skip


def arm_grower(arm: Arm, recipe: CompareRecipe, tree: Tree) -> Grower:
    """A selector per update for an arm."""
    shape: dict[str, Any] = {}
    if arm.selector != "independent":
        shape = {"roots": recipe.roots, "at_once": recipe.at_once}
    if arm.selector == "uucb":
        shape["value"] = "mixed"

    def grower(seed: int) -> Any:
        if arm.implicit:
            # New every update: the policy that the values speak of is another one.
            return UUCB(**(shape | {"value": ImplicitValues(tree)}), seed=seed)
        return selector_named(arm.selector, seed, **shape)

    return grower


def _digest(cell: Cell) -> str:
    return f"{digest(cell.recipe)}/{cell.world_plan.world}/{cell.arm}/{cell.seed}"


def _evaluate(
    cell: Cell, policy: LocalPolicy, world: World, settings: Sampling, update: int, tokens: int
) -> None:
    """Add held-out success per task to the curve; the same tasks and noise for every arm and update."""
    recipe = cell.recipe
    tasks = world.tasks("held-out", recipe.held_out, recipe.first_seed)
    with Tree.memory() as tree:
        groups = grow(
            tree, policy, world, tasks, draws=recipe.draws, settings=settings, seed=cell.seed,
            tasks_at_once=len(tasks),
        )  # fmt: skip
        values = [graded(group.values()) for group in groups]
    means = [float(np.nanmean(v)) if np.isfinite(v).any() else None for v in values]
    # Later rows are of updates that a stopped run makes again.
    rows = [row for row in cell.rows if row["update"] < update]
    rows.append({"update": update, "tokens": tokens, "success": means})
    scratch = cell.file.with_suffix(".part")
    scratch.write_text(json.dumps(rows) + "\n")
    scratch.replace(cell.file)
