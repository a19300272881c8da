"""Training runs: recipe in; policy, tree, curve and summary out; resumable at any moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from pydantic import Field

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import graded
from refork.growing import grow
from refork.growing.selector import selector_named
from refork.policies.base import Sampling
from refork.policies.load import quiet
from refork.policies.local import LocalPolicy
from refork.policies.open import open_policy
from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart, SamplingPart, Tasks, digest, open_folder
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import World
from refork.worlds.open import open_world
from refork_methods.credit.methods import Credit, credit_method, fixed_pair
from refork_methods.train.loop import TreeTraining, finished_updates, train_policy
from refork_methods.train.lora import LoraSettings, add_lora
from refork_methods.train.objectives import objective
from refork_methods.train.schedule import Schedule
from refork_methods.train.tracker import JsonLines


class Rates(RecipePart):
    """The learning rate; see :class:`refork_methods.train.schedule.Schedule`."""

    #: The largest learning rate.
    peak: float = Field(default=5e-4, gt=0)
    #: How it falls after the warm-up.
    shape: Literal["constant", "linear", "cosine"] = "constant"
    #: Steps of linear rise.
    warmup: int = Field(default=0, ge=0)
    #: The rate that it falls to by the end, as a share of the peak.
    final: float = Field(default=0.0, ge=0, le=1)


class TrainTasks(Tasks):
    """Which tasks are trained on; its own class, so that setting the count leaves the split."""

    #: Which part of the world's tasks.
    split: Literal["train", "held-out"] = "train"
    #: How many tasks.
    count: int = Field(default=192, ge=1)


class Evaluation(RecipePart):
    """Held-out success: ``count`` tasks (0: none), ``draws`` rollouts each, every so many updates."""

    #: Held-out tasks; 0: nothing is measured.
    count: int = Field(default=0, ge=0)
    #: Rollouts of each.
    draws: int = Field(default=2, ge=1)
    #: Updates between two measurements.
    every: int = Field(default=4, ge=1)
    #: Address of their noise.
    seed: int = 0


class PolicyRecipe(RecipePart):
    """Group policy gradient on rollout trees: everything that decides what a run does."""

    #: The world's name.
    world: str
    #: hf:DIR or organism:NAME; a local model.
    policy: str
    #: Which points of a tree are forked.
    selector: str = "random"
    #: Its options.
    selector_options: dict[str, Any] = Field(default_factory=dict)
    #: How rollouts are credited.
    credit: str = "siblings"
    #: Its options.
    credit_options: dict[str, Any] = Field(default_factory=dict)
    #: The two fixed checkpoints of implicit credit.
    credit_pair: tuple[str, str] | None = None
    #: The objective of the policy gradient.
    objective: str = "plain"
    #: Its options.
    objective_options: dict[str, Any] = Field(default_factory=dict)
    #: Tasks that are trained on.
    tasks: TrainTasks = TrainTasks()
    #: Updates in all.
    updates: int = Field(default=8, ge=1)
    #: Tasks of each update, taken in turn.
    per_update: int = Field(default=24, ge=1)
    #: Rollouts of each task's tree.
    leaves: int = Field(default=8, ge=1)
    #: Go on with blocks of tasks until an update has sampled so many tokens.
    budget: int | None = Field(default=None, ge=1)
    #: Times over the rollouts.
    passes: int = Field(default=1, ge=1)
    #: Parts of each pass, one gradient step each.
    minibatches: int = Field(default=1, ge=1)
    #: A token that several rollouts share is learned once, with the mean of their advantages, or in each.
    shared: Literal["once", "each"] = "once"
    #: Rollouts that ran into their limit count, are masked, or lose reward over their last tokens.
    overlong: Literal["keep", "mask", "soft"] = "keep"
    #: Tokens beyond which the whole penalty of 1 is taken (soft).
    longest: int | None = Field(default=None, ge=1)
    #: Tokens before that over which it grows (soft).
    soft: int | None = Field(default=None, ge=1)
    #: The learning rate.
    rate: Rates = Rates()
    #: Of the optimizer.
    weight_decay: float = Field(default=0.0, ge=0)
    #: Train an adapter instead of all weights.
    lora: LoraSettings | None = None
    #: How rollouts are drawn; temperature 1 without filters.
    sampling: SamplingPart = SamplingPart()
    #: Success on held-out tasks.
    evaluation: Evaluation = Evaluation()
    #: Updates between two checkpoints.
    checkpoint_every: int = Field(default=1, ge=1)
    #: Address of tasks and noise.
    seed: int = 0


def training_of(recipe: PolicyRecipe) -> TreeTraining:
    """The settings of the loop that a recipe stands for."""
    return TreeTraining(
        updates=recipe.updates, tasks=recipe.per_update, leaves=recipe.leaves, passes=recipe.passes,
        minibatches=recipe.minibatches, budget=recipe.budget, schedule=Schedule(**recipe.rate.model_dump()),
        weight_decay=recipe.weight_decay, shared=recipe.shared, overlong=recipe.overlong,
        longest=recipe.longest, soft=recipe.soft, seed=recipe.seed,
        gradient=objective(recipe.objective, **recipe.objective_options),
    )  # fmt: skip


def credit_of(recipe: PolicyRecipe) -> Credit:
    """The credit method that a recipe names; raises BadInput for a pair that it has no use for."""
    if recipe.credit_pair is None:
        return credit_method(recipe.credit, **recipe.credit_options)
    if recipe.credit != "implicit":
        raise BadInput(f"credit {recipe.credit} takes no pair of models", hint="only implicit does")
    from refork_methods.implicit.pair import ImplicitPair

    options = dict(recipe.credit_options)
    beta = float(options.pop("beta", 1.0))
    trained, reference = (local_policy(spec) for spec in recipe.credit_pair)
    return fixed_pair(ImplicitPair(trained, reference, beta=beta), **options)


def plan_policy(recipe: PolicyRecipe) -> Json:
    """What a run would do, without a model; every name in the recipe is looked up."""
    world = open_world(recipe.world)
    training_of(recipe)
    credit_of(recipe)
    selector = selector_named(recipe.selector, recipe.seed, **recipe.selector_options)
    rollouts = recipe.per_update * recipe.leaves
    most = rollouts * world.max_turns * recipe.sampling.max_tokens
    return {
        "digest": digest(recipe),
        "world": f"{world.name} (version {world.version})",
        "policy": recipe.policy,
        "selector": selector.name,
        "credit": recipe.credit,
        "objective": recipe.objective,
        "updates": recipe.updates,
        "rollouts per update": "as the budget allows" if recipe.budget else rollouts,
        "tokens at most": (recipe.budget * recipe.updates + most) if recipe.budget else most * recipe.updates,
    }


def run_policy(recipe: PolicyRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Train a recipe's policy into ``folder``; the same call again goes on from its last checkpoint.

    The folder holds ``tree.db`` (all rollouts), ``checkpoints/``, ``metrics.jsonl``, ``policy/`` (the trained
    policy, or its adapter) and ``summary.json``.
    """
    plan, credit, name = training_of(recipe), credit_of(recipe), digest(recipe)
    selector = selector_named(recipe.selector, recipe.seed, **recipe.selector_options)
    world = open_world(recipe.world)
    tasks = world.tasks(recipe.tasks.split, recipe.tasks.count, recipe.tasks.seed)
    policy = _trainable(recipe)
    resumed = open_folder(folder, recipe)
    with Tree.open(folder / "tree.db") as tree:
        checkpoints = folder / "checkpoints"
        held_out = _Held(recipe, world, tree, folder / "evaluation.json", progress)
        if not finished_updates(checkpoints):
            held_out.measure(policy, 0)
        for update in train_policy(
            tree, policy, world, tasks, plan, recipe.sampling.sampling(), progress,
            grower=selector, credit=credit, folder=checkpoints, every=recipe.checkpoint_every,
            digest=name, tracker=JsonLines(folder / "metrics.jsonl"),
            resumed=lambda last: held_out.catch_up(policy, last["number"]),
        ):  # fmt: skip
            held_out.after(policy, update.number)
    save_policy(policy, folder / "policy")
    done = finished_updates(checkpoints)
    summary = {
        "updates": len(done),
        "success_first": done[0]["success"],
        "success_last": done[-1]["success"],
        "mixed_last": done[-1]["mixed"],
        "tokens": done[-1]["spent"],
        "held_out": held_out.rows,
        "weights": policy.card.weights,
        "resumed": resumed,
        "digest": name,
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def _trainable(recipe: PolicyRecipe) -> LocalPolicy:
    policy = local_policy(recipe.policy)
    return policy if recipe.lora is None else with_lora(policy, recipe.lora)


def local_policy(spec: str) -> LocalPolicy:
    """A policy whose weights can be trained; raises BadInput for any other."""
    policy = open_policy(spec)
    if not isinstance(policy, LocalPolicy):
        raise BadInput(f"{spec!r} cannot be trained", hint="training needs a local model: hf:DIR")
    return policy


def with_lora(policy: LocalPolicy, settings: LoraSettings) -> LocalPolicy:
    """The policy with a fresh adapter, which alone is trained."""
    model = add_lora(policy.model, settings)
    return LocalPolicy(model.eval(), policy.codec, name=policy.card.name, reference=policy.reference)


def save_policy(policy: LocalPolicy, folder: Path) -> None:
    """Write a policy, or its adapter, with its tokenizer."""
    with quiet():
        policy.model.save_pretrained(folder)
        policy.codec.tokenizer.save_pretrained(folder)


@final
class _Held:
    """Held-out success along a run, kept in a file so that a resumed run has all of it."""

    def __init__(
        self, recipe: PolicyRecipe, world: World, tree: Tree, file: Path, progress: Progress
    ) -> None:
        self._plan, self._updates = recipe.evaluation, recipe.updates
        self._sampling: Sampling = recipe.sampling.sampling()
        self._world, self._tree, self._file, self._progress = world, tree, file, progress
        self.rows: list[Json] = json.loads(file.read_text()) if file.exists() else []

    def after(self, policy: LocalPolicy, number: int) -> None:
        """Measure where it is time."""
        if number % self._plan.every == 0 or number == self._updates:
            self.measure(policy, number)

    def catch_up(self, policy: LocalPolicy, number: int) -> None:
        """Measure an update that is saved but, as the run was stopped in between, not measured."""
        if all(row["update"] != number for row in self.rows):
            self.after(policy, number)

    def measure(self, policy: LocalPolicy, number: int) -> None:
        """Success on the held-out tasks, with the same noise every time, so that measurements pair up."""
        if not self._plan.count:
            return
        tasks = self._world.tasks("held-out", self._plan.count, self._plan.seed)
        groups = grow(
            self._tree, policy, self._world, tasks, draws=self._plan.draws, settings=self._sampling,
            seed=self._plan.seed, progress=self._progress,
        )  # fmt: skip
        values: Sequence[Any] = [graded(group.values()) for group in groups]
        known = np.array([np.nanmean(v) for v in values if np.isfinite(v).any()])
        interval = stats.mean_interval(known)
        row = {"update": number, "success": interval.estimate, "low": interval.low, "high": interval.high}
        # Later rows are of updates behind the last checkpoint, which a resumed run makes again.
        self.rows = [*(r for r in self.rows if r["update"] < number), row]
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self.rows) + "\n")
        part.replace(self._file)
