"""Agents that begin alike and differ in what they read before the same lessons: predictions, or a control.

Warm-up is the prediction of the next observation in recorded episodes, after what decides it: the stage of
``world-model-sft``, for fewer steps and from a new model. The control reads the same episodes with their
observations, and what was said of them, dealt out anew among the turns of a world: the same tokens, all of
them learned as well, and nothing in them tells what an action does.

Source: arXiv 2606.24597 for the warm-up; the control and the sizes are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.packed import train_packed
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import Weighted, WeightedSettings, fit_weighted
from refork_testbed.models.planted import planted_model
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes.shell_agent_data import all_lessons
from refork_testbed.models.recipes.world_model_data import SHAPE, lessons, tokenizer_of
from refork_testbed.models.tokenizer import examples

Arm = Literal["predict", "control"]

#: What is read first, and the few lessons after it.
READING = WeightedSettings(
    steps=1_000,
    rows=3,
    schedule=Schedule(peak=6e-4, shape="cosine", warmup=100, final=0.1),
    betas=(0.9, 0.98),
    half=True,
)
ACTING = WeightedSettings(
    steps=400,
    rows=8,
    schedule=Schedule(peak=5e-4, shape="cosine", warmup=50, final=0.05),
    betas=(0.9, 0.98),
    half=True,
)
#: Solved tasks of each world.
EPISODES = 200


def begin(seed: int = 0, progress: Progress = silent) -> LocalPolicy:
    """A new small model, the same for every arm of a seed."""
    tokenizer = tokenizer_of(lessons(progress), SHAPE.context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LocalPolicy(planted_model(SHAPE, tokenizer), tokenizer, name="shell-agent")


def dealt(items: Sequence[EnvTrajectory], seed: int) -> list[EnvTrajectory]:
    """The episodes with the observations of each world, and their notes, shuffled over all its turns."""
    rng = np.random.default_rng(seed)
    pools: dict[str, list[tuple[str, str | None]]] = {}
    for source in sorted({item.source for item in items}):
        said = [
            (turn.observation, turn.note) for item in items if item.source == source for turn in item.turns
        ]
        pools[source] = [said[i] for i in rng.permutation(len(said))]
    dealt_out = []
    for item in items:
        drawn = [(turn, *pools[item.source].pop()) for turn in item.turns]
        turns = tuple(replace(turn, observation=text, note=note) for turn, text, note in drawn)
        dealt_out.append(replace(item, turns=turns))
    return dealt_out


def arm(policy: LocalPolicy, kind: Arm, seed: int, progress: Progress = silent) -> Made:
    """Read, then learn to act, in place; the log has both parts."""
    items = lessons(progress)
    read = items if kind == "predict" else dealt(items, seed)
    done = train_packed(policy, read, replace(READING, seed=seed), progress=progress)
    solved = examples(policy.codec.tokenizer, all_lessons(EPISODES, progress))
    data = [Weighted(item.tokens, item.mask.astype("float32")) for item in solved]
    log = fit_weighted(policy.model, data, replace(ACTING, seed=seed), stage="lessons", progress=progress)
    policy.refresh()
    tokens = sum(len(item.tokens) for item in data)
    how = (
        f"{len(done.log)} steps of {READING.rows} episodes read, last loss "
        f"{done.facts['loss_last']:.3f} nats, then {len(log)} steps of {ACTING.rows} of {len(data)} solved "
        f"episodes acted ({tokens} tokens), rates "
        f"{READING.schedule.peak} and {ACTING.schedule.peak}"
    )
    return Made([*done.log, *log], {"how": how, "read": done.facts})
