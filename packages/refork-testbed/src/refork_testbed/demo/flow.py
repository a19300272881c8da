"""The stages of the main job, each one call into the library."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from refork import stats
from refork.errors import BadInput
from refork.forking import Effect, Remove, Sweep, compare, fork_both, potential_scores, sweep, trace_report
from refork.forking.arm import graded
from refork.growing import Group, grow
from refork.plain import to_json
from refork.policies.base import Sampling
from refork.policies.load import quiet
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart, SamplingPart, digest, open_folder
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import World
from refork.worlds.open import open_world
from refork_methods.train.loop import TreeTraining, Update, train_policy
from refork_testbed.demo.page import render
from refork_testbed.demo.pages import report_data
from refork_testbed.demo.pick import surprising_failures
from refork_testbed.models import build, find, tiny_model_for


class DemoRecipe(RecipePart):
    """Everything the main job depends on.

    ``organism`` None: the one that belongs to the world. ``sampling`` None: as the organism was measured.
    ``learning_rate`` None: 5e-4, but 1e-4 where a task is one long answer, whose tokens share one outcome.
    """

    world: str = "household:2"
    organism: str | None = None
    held_out: int = Field(default=96, ge=4)
    rollouts: int = Field(default=4, ge=2)
    sweeps: int = Field(default=4, ge=1)
    sweep_draws: int = Field(default=48, ge=16)
    effect_draws: int = Field(default=128, ge=16)
    updates: int = Field(default=8, ge=1)
    train_tasks: int = Field(default=24, ge=1)
    leaves: int = Field(default=8, ge=2)
    learning_rate: float | None = Field(default=None, gt=0)
    evaluate_every: int = Field(default=2, ge=1)
    seed: int = 0
    sampling: SamplingPart | None = None


@dataclass(slots=True)
class Stage:
    """One stage, for the report: what it did and how long it took."""

    title: str
    detail: str
    seconds: float


@dataclass(slots=True)
class Demo:
    """What the job has found so far."""

    recipe: DemoRecipe
    world: World
    policy: LocalPolicy
    settings: Sampling
    tree: Tree
    progress: Progress
    stages: list[Stage] = field(default_factory=list)
    curve: list[tuple[int, stats.Interval, int]] = field(default_factory=list)
    tokens: int = 0
    weights: list[str] = field(default_factory=list)
    graded: list[int] = field(default_factory=list)

    def stage(self, title: str, detail: str, started: float) -> None:
        """Note a finished stage."""
        self.stages.append(Stage(title, detail, time.monotonic() - started))

    def evaluate(self, update: int) -> list[Group]:
        """Success on the held-out tasks, the same noise every time, so that evaluations pair up."""
        tasks = self.world.tasks("held-out", self.recipe.held_out, self.recipe.seed)
        groups = grow(
            self.tree, self.policy, self.world, tasks, draws=self.recipe.rollouts,
            settings=self.settings, seed=self.recipe.seed, tasks_at_once=len(tasks),
            progress=_named(self.progress, f"held-out success after {update} updates"),
        )  # fmt: skip
        self.tokens += sum(group.tokens for group in groups)
        means = task_means(groups)
        known = means[~np.isnan(means)]
        if not known.size:
            raise BadInput(
                f"no rollout of the {len(tasks)} held-out tasks was graded",
                where=self.world.name,
                hint="see why with `refork tree path`",
            )
        self.curve.append((update, stats.mean_interval(known), self.tokens))
        self.graded.append(known.size)
        self.weights.append(str(self.policy.card.weights))
        return groups


def task_means(groups: Sequence[Group]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Mean success per task, NaN where none was graded: tasks are the independent units, not rollouts."""
    known = [values[~np.isnan(values)] for values in (graded(group.values()) for group in groups)]
    return np.array([values.mean() if values.size else np.nan for values in known], dtype=np.float64)


def task_gain(before: Sequence[Group], after: Sequence[Group]) -> tuple[stats.Difference, int]:
    """Difference of mean success over the tasks that were graded before and after, and how many these are."""
    x, y = task_means(before), task_means(after)
    both = ~np.isnan(x) & ~np.isnan(y)
    return stats.paired_difference(x[both], y[both]), int(both.sum())


def _named(progress: Progress, name: str) -> Progress:
    def report(
        stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        progress(name, done, total, tokens=tokens, waiting=waiting)

    return report


def _explain(demo: Demo, groups: list[Group]) -> tuple[Sweep, Effect]:
    """Sweep failures of tasks that are often solved, take the steepest fall, remove its token, compare."""
    recipe, started = demo.recipe, time.monotonic()
    swept: list[Sweep] = []
    for failure in surprising_failures(groups)[: recipe.sweeps]:
        result = sweep(
            demo.tree.at(failure.trajectory.leaf), demo.policy, recipe.sweep_draws, world=demo.world,
            seed=recipe.seed, progress=demo.progress,
        )  # fmt: skip
        producer, scores = potential_scores(result, demo.policy, recipe.seed, recipe.sweep_draws)
        demo.tree.add_producer(producer)
        demo.tree.add_scores(scores)
        demo.tokens += result.tokens
        swept.append(result)
    result = max(swept, key=lambda one: float(np.nanmax(one.drops())))
    points, sampled = sum(len(s.points) for s in swept), sum(s.sampled for s in swept)
    detail = f"{len(swept)} failed runs, {points} points, {sampled} continuations; the steepest is shown"
    demo.stage("Swept failed runs", detail, started)
    started = time.monotonic()
    cliff = result.points[result.steepest()]
    # Fresh noise: the draws that found the token must not be the ones that prove it.
    fresh = recipe.seed + 1
    behind = demo.tree.at(cliff.node, cliff.keep + 1)
    base, other = fork_both(
        behind, demo.policy, recipe.effect_draws, Remove(1), world=demo.world, seed=fresh,
        progress=_named(demo.progress, "proving the effect"),
    )  # fmt: skip
    effect = compare(base, other)
    demo.tokens += effect.tokens
    demo.stage("Proved the effect", f"{recipe.effect_draws} fresh pairs of draws", started)
    return result, effect


def _sentence(result: Sweep) -> str | None:
    """The clear fall of the swept run in words, None where there is none."""
    cliff = trace_report(result)["cliff"]
    if cliff is None:
        return None
    return (
        f"after {cliff['text'].strip()!r} the chance of success falls "
        f"from {cliff['before']:.0%} to {cliff['after']:.0%}"
    )


def _train(demo: Demo) -> tuple[list[Update], list[Group]]:
    recipe, started = demo.recipe, time.monotonic()
    tasks = demo.world.tasks("train", recipe.updates * recipe.train_tasks, recipe.seed)
    plan = TreeTraining(
        updates=recipe.updates, tasks=recipe.train_tasks, leaves=recipe.leaves,
        learning_rate=recipe.learning_rate or (5e-4 if demo.world.max_turns > 1 else 1e-4), seed=recipe.seed,
    )  # fmt: skip
    updates: list[Update] = []
    groups: list[Group] = []
    for update in train_policy(demo.tree, demo.policy, demo.world, tasks, plan, demo.settings, demo.progress):
        updates.append(update)
        demo.tokens += update.tokens
        if update.number % recipe.evaluate_every == 0 or update.number == recipe.updates:
            groups = demo.evaluate(update.number)
    rollouts = recipe.updates * recipe.train_tasks * recipe.leaves
    demo.stage("Trained on step credit", f"{recipe.updates} updates, {rollouts} rollouts", started)
    return updates, groups


def command_of(recipe: DemoRecipe, folder: Path) -> str:
    """The command line that runs a recipe into a folder."""
    words = ["refork", "demo", "--world", recipe.world, "--out", str(folder)]
    for key, value in recipe.model_dump(mode="json", exclude_defaults=True, exclude={"world"}).items():
        parts = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        for name, part in parts.items():
            words += ["--set", f"{name}={part if isinstance(part, str) else json.dumps(part)}"]
    return shlex.join(words)


def _world_of(recipe: DemoRecipe, name: str) -> str:
    """A bare name means the world as its organism was trained for: how it marks its answer, for one."""
    own = find(name).world or ""
    return own if own.partition("?")[0] == recipe.world else recipe.world


def run_demo(recipe: DemoRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Run the main job into a folder and return its summary; the same call again resumes it."""
    began = time.monotonic()
    open_folder(folder, recipe)
    # Organisms are so small that a second thread mostly waits for the first.
    torch.set_num_threads(1)
    name = recipe.organism or tiny_model_for(recipe.world)
    world = open_world(_world_of(recipe, name))
    place = build(name, progress=_named(progress, "building the agent"))
    policy = LocalPolicy.load(str(place))
    with Tree.open(folder / "tree.db") as tree:
        settings = recipe.sampling.sampling() if recipe.sampling else find(name).sampling
        demo = Demo(recipe, world, policy, settings, tree, progress)
        demo.stage("Built the agent", f"organism {name!r}, trained from scratch", began)
        started = time.monotonic()
        before = demo.evaluate(0)
        demo.stage("Grew held-out rollouts", f"{recipe.held_out} tasks x {recipe.rollouts}", started)
        result, effect = _explain(demo, before)
        updates, after = _train(demo)
        gain, paired = task_gain(before, after)
        summary = {
            "world": world.name,
            "organism": name,
            "success_before": demo.curve[0][1].estimate,
            "success_after": demo.curve[-1][1].estimate,
            "gain": gain.interval.estimate,
            "gain_low": gain.interval.low,
            "gain_high": gain.interval.high,
            "gain_p": gain.p,
            "tasks": paired,
            "effect": effect.difference,
            "ci_low": effect.low,
            "ci_high": effect.high,
            "effect_p": effect.p,
            "change": effect.what,
            "cliff": _sentence(result),
            "point": effect.point,
            "tokens": demo.tokens,
            "seconds": round(time.monotonic() - began, 1),
            "weights_before": demo.weights[0],
            "weights_after": demo.weights[-1],
            "recipe": digest(recipe),
            "command": command_of(recipe, folder),
        }
        # While the tree is open: the report reads from it.
        data = report_data(demo, summary, result, effect, gain, updates)
    with quiet():
        policy.model.save_pretrained(folder / "policy")
        policy.codec.tokenizer.save_pretrained(folder / "policy")
    (folder / "report.html").write_text(render(data), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(to_json(data), indent=1) + "\n")
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary
