"""A growing run: recipe in, tree and summary out, resumable at any moment."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import graded
from refork.growing.allocator import FILE, AdaptiveBudgetAllocator
from refork.growing.growing import Logged, own_turns
from refork.growing.rollouts import Group, grow, grow_trees
from refork.growing.selector import Selector, selector_named
from refork.growing.speculate import Speculation
from refork.policies.base import Policy
from refork.policies.open import open_policy
from refork.progress import Progress, silent
from refork.registry import find
from refork.runs.recipe import GrowRecipe, Selection, digest, open_folder
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task, World
from refork.worlds.open import open_world

if TYPE_CHECKING:
    from refork.forking.backend import Backend


def make_selector(chosen: Selection) -> Selector:
    """The selector that a recipe names; ``inside`` None means its own default.

    Raises BadInput for a name that there is not, and for settings it refuses.
    """
    settings = chosen.model_dump(exclude={"kind", "seed", "staleness", "allocate", "allocator", "options"})
    if chosen.kind not in Selection.OWN:
        plain = Selection().model_dump()
        if strays := [name for name, value in settings.items() if value != plain[name]]:
            raise BadInput(
                f"selector.{strays[0]} is a setting of {', '.join(Selection.OWN[1:])}",
                where=f"selector {chosen.kind}",
                hint=f"--set selector.options.{strays[0]}=...",
            )
        return selector_named(chosen.kind, chosen.seed, **chosen.options)
    its = set(inspect.signature(find("selectors", chosen.kind)).parameters)
    given = {name: value for name, value in settings.items() if name in its}
    if chosen.inside is None:
        given.pop("inside", None)
    return selector_named(chosen.kind, chosen.seed, **given | chosen.options)


def _checked(recipe: GrowRecipe) -> GrowRecipe:
    """The recipe, if its settings make sense together."""
    if recipe.selector is None:
        if recipe.leaves is not None or recipe.budget_tokens is not None:
            raise BadInput(
                "leaves and budget_tokens are budgets of trees, and no selector is chosen",
                where="recipe",
                hint="--selector uucb, or --draws for independent rollouts",
            )
        return recipe
    if recipe.max_turns is not None:
        raise BadInput("max_turns cannot be set for trees: the world's own limit holds", where="recipe")
    if recipe.leaves is not None and recipe.budget_tokens is not None:
        raise BadInput("one budget binds: leaves or budget_tokens", where="recipe")
    make_selector(recipe.selector)
    return recipe


def plan_grow(recipe: GrowRecipe) -> Json:
    """What a run would do, without a model: tasks, rollouts, and the most it could sample."""
    _checked(recipe)
    world = open_world(recipe.world)
    tasks = world.tasks(recipe.tasks.split, recipe.tasks.count, recipe.tasks.seed)
    turns = recipe.max_turns or world.max_turns
    each = (recipe.leaves or recipe.draws) if recipe.selector else recipe.draws
    rollouts: int | str = len(tasks) * each
    tokens = len(tasks) * each * turns * recipe.sampling.max_tokens
    if recipe.budget_tokens is not None:
        rollouts, tokens = "as the tokens allow", len(tasks) * recipe.budget_tokens
    return {
        "digest": digest(recipe),
        "world": f"{world.name} (version {world.version})",
        "policy": recipe.policy,
        "selector": make_selector(recipe.selector).name if recipe.selector else "independent",
        "tasks": len(tasks),
        "rollouts": rollouts,
        "turns at most": rollouts * turns if isinstance(rollouts, int) else rollouts,
        "tokens at most": tokens,
    }


def run_grow(
    recipe: GrowRecipe, folder: Path, progress: Progress = silent, backend: Backend | None = None,
    tree_path: Path | None = None,
) -> Json:  # fmt: skip
    """Grow the recipe's rollouts into ``folder/tree.db``; again with the same recipe it resumes.

    ``backend`` says who draws; it is no part of the recipe, so another one may go on. Nor is ``tree_path``,
    where the rollouts go instead: a file, or a tree on a server that several runs share.
    """
    _checked(recipe)
    world = open_world(recipe.world)
    policy = open_policy(recipe.policy) if backend is None else backend.open(recipe.policy)
    trees = None if recipe.selector is None else _Trees(recipe, recipe.selector, folder, backend)
    allocator = None if trees is None else trees.allocator()  # refused before there is a folder
    resumed = open_folder(folder, recipe)
    tasks = world.tasks(recipe.tasks.split, recipe.tasks.count, recipe.tasks.seed)
    with Tree.open(tree_path or folder / "tree.db") as tree:
        more: Json = {}
        if trees is None:
            groups = grow(
                tree, policy, world, tasks, draws=recipe.draws, settings=recipe.sampling.sampling(),
                seed=recipe.seed, max_turns=recipe.max_turns, progress=progress,
                backend=backend,
            )  # fmt: skip
        else:
            groups, more = trees.run(tree, policy, world, tasks, progress, allocator)
        summary = _summary(groups, folder) | more | {"resumed": resumed, "digest": digest(recipe)}
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


@dataclass(frozen=True, slots=True)
class _Trees:
    """A run that grows trees; the choices with their terms are written beside the tree."""

    recipe: GrowRecipe
    chosen: Selection
    folder: Path
    backend: Backend | None = None

    @property
    def before(self) -> Path:
        """What the run's allocator had learned as it began: made again, the run must move the same leaves."""
        return self.folder / "allocator-before.json"

    def allocator(self) -> AdaptiveBudgetAllocator | None:
        """The run's allocator with what it learned from before; None where leaves stay where they are."""
        chosen = self.chosen
        if not chosen.allocate and chosen.allocator is None:
            return None
        found = AdaptiveBudgetAllocator()
        if chosen.allocator is not None:
            found.load(self.before if self.before.exists() else Path(chosen.allocator))
            found.transfers.clear()
        return found

    def run(
        self, tree: Tree, policy: Policy, world: World, tasks: Sequence[Task], progress: Progress,
        allocator: AdaptiveBudgetAllocator | None,
    ) -> tuple[list[Group], Json]:  # fmt: skip
        recipe, chosen = self.recipe, self.chosen
        selector = make_selector(chosen)
        if allocator is not None and chosen.allocator is not None:
            allocator.save(self.before)
        known = 0 if allocator is None else len(allocator.log)
        learned = allocator is not None and allocator.learned
        tokens = recipe.budget_tokens
        groups, log = grow_trees(
            tree, policy, world, tasks, selector=selector, tokens=tokens,
            leaves=None if tokens is not None else recipe.leaves or recipe.draws,
            settings=recipe.sampling.sampling(), seed=recipe.seed, allocator=allocator,
            speculation=None if chosen.staleness is None else Speculation(chosen.staleness),
            progress=progress, backend=self.backend,
        )  # fmt: skip
        _write_choices(self.folder / "choices.jsonl", log)
        values = [{v for v in group.values() if v is not None} for group in groups]
        told: Json = {}
        if allocator is not None:
            moved = len(allocator.transfers)
            allocator.save(self.folder / FILE)
            told = {"allocator": {"groups": known, "learned": learned, "moved": moved}}
        return groups, told | {
            "selector": selector.name,
            "mixed": sum(len(found) > 1 for found in values),
            "biased": groups[0].biased,
            "leaves_per_task": float(np.mean([len(group.values()) for group in groups])),
            "tokens_per_task": float(np.mean([_recorded_tokens(group) for group in groups])),
        }


def _recorded_tokens(group: Group) -> int:
    """Tokens of all of a group's own draws, sampled now or before."""
    pairs = ((d, w) for arm in group.forks for d, w in zip(arm.draws, arm.leaves(), strict=True))
    return sum(sum(own_turns(trajectory, record.fork, record.draw)) for record, trajectory in pairs)


def _write_choices(path: Path, log: Sequence[Logged]) -> None:
    lines = [json.dumps(asdict(entry)) for entry in log]
    # Replaced as a whole, so that a run which ends here leaves the former choices and not half of these.
    temporary = path.with_suffix(".tmp")
    temporary.write_text("\n".join(lines) + "\n")
    temporary.replace(path)


def _summary(groups: Sequence[Group], folder: Path) -> Json:
    """Counts and the mean success; of trees, over rollouts that began at the task."""
    trees = any(arm.point != group.root for group in groups for arm in group.forks)
    arms = [arm for group in groups for arm in group.forks]
    everyone = graded([v for arm in arms for v in arm.values()])
    # Leaves below a chosen point are many where the selector liked it, and say little of the task.
    known = [
        (number, value)
        for number, group in enumerate(groups)
        for arm in group.forks
        if not trees or arm.point == group.root
        for value in arm.values()
        if value is not None
    ]
    if not known:
        raise BadInput(
            f"none of the {len(everyone)} rollouts was graded",
            where=str(folder),
            hint="see `refork tree show`: the draws' errors are recorded there",
        )
    # Rollouts of one task are alike: what the interval counts is tasks.
    interval = stats.clustered_mean(np.array([value for _, value in known]), [task for task, _ in known])
    return {
        "tasks": len(groups),
        "rollouts": len(everyone),
        "graded": int((~np.isnan(everyone)).sum()),
        "errors": sum(d.end == "error" for arm in arms for d in arm.draws),
        "rate": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "tokens": sum(group.tokens for group in groups),
    }
