"""Fine-tuning runs: supervised and by preference; recipe in, policy and curve out, resumable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart, digest, open_folder
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.train.lora import LoraSettings
from refork_methods.train.preference import Pair, PreferenceSettings, prefer
from refork_methods.train.run import Rates, local_policy, save_policy, with_lora
from refork_methods.train.schedule import Schedule
from refork_methods.train.sources import read_conversations, read_pairs, successes, tree_pairs
from refork_methods.train.supervised import conversation_examples, walk_examples
from refork_methods.train.tracker import JsonLines
from refork_methods.train.weighted import WeightedSettings, fit_weighted


class _Source(RecipePart):
    """Where the training data is: a tree or a file, one of them."""

    #: hf:DIR or organism:NAME; a local model.
    policy: str
    #: Take the data from this tree.
    tree: str | None = None
    #: Take the data from this JSON-lines file.
    data: str | None = None

    @model_validator(mode="after")
    def _one(self) -> _Source:
        if (self.tree is None) == (self.data is None):
            raise ValueError("name a tree or a data file, one of them")
        return self


class SftRates(Rates):
    """Rates of supervised fine-tuning; its own class, so that setting one key leaves the others."""

    #: The largest learning rate.
    peak: float = Field(default=1e-4, gt=0)
    #: How it falls after the warm-up.
    shape: Literal["constant", "linear", "cosine"] = "cosine"
    #: Steps of linear rise.
    warmup: int = Field(default=10, ge=0)


class DpoRates(Rates):
    """Rates of preference training."""

    #: The largest learning rate.
    peak: float = Field(default=5e-6, gt=0)
    #: How it falls after the warm-up.
    shape: Literal["constant", "linear", "cosine"] = "cosine"


class FitRecipe(RecipePart):
    """What every training of a fixed number of steps has."""

    #: Optimizer steps.
    steps: int = Field(default=100, ge=1)
    #: Examples of a step.
    rows: int = Field(default=16, ge=1)
    #: Examples computed at a time; default: all of a step.
    micro_rows: int | None = Field(default=None, ge=1)
    #: The learning rate.
    rate: Rates = SftRates()
    #: Of the optimizer.
    weight_decay: float = Field(default=0.01, ge=0)
    #: Train an adapter instead of all weights.
    lora: LoraSettings | None = None
    #: Steps between two checkpoints.
    checkpoint_every: int = Field(default=50, ge=0)
    #: Of the order.
    seed: int = 0

    def fit_settings(self) -> Json:
        """The keys of :class:`FitSettings`."""
        return {
            "steps": self.steps, "rows": self.rows, "micro_rows": self.micro_rows,
            "schedule": Schedule(**self.rate.model_dump()), "weight_decay": self.weight_decay,
            "every": self.checkpoint_every, "seed": self.seed,
        }  # fmt: skip


class SftRecipe(FitRecipe, _Source):
    """Supervised fine-tuning on conversations (``data``) or a tree's paths of ``least`` success or more."""

    #: Success that a trajectory of the tree has at least.
    least: float = 1.0
    #: The learning rate.
    rate: SftRates = SftRates()


class DpoRecipe(FitRecipe, _Source):
    """Preference training on pairs (``data``) or on a tree's forks whose branches differ by ``least``."""

    #: Difference of the branches of a fork at least.
    least: float = 0.25
    #: How far the policy may leave its reference; smaller is further.
    beta: float = Field(default=0.1, gt=0)
    #: Examples of a step.
    rows: int = Field(default=8, ge=1)
    #: The learning rate.
    rate: DpoRates = DpoRates()
    #: Of the optimizer.
    weight_decay: float = Field(default=0.0, ge=0)


def run_sft(recipe: SftRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Fine-tune a recipe's policy into ``folder``; again with the same recipe it goes on where it stopped."""
    policy = local_policy(recipe.policy)
    if recipe.data is not None:
        examples = conversation_examples(policy.codec, read_conversations(Path(recipe.data)))
    else:
        with Tree.open(str(recipe.tree), "r") as tree:
            examples = walk_examples(successes(tree, recipe.least))
    settings = WeightedSettings(**recipe.fit_settings())

    def go(model: Any, **rest: Any) -> list[Json]:
        return fit_weighted(model, examples, settings, stage="supervised training", **rest)

    facts = {"examples": len(examples), "learned tokens": int(sum(e.total for e in examples))}
    return _run(recipe, policy, folder, progress, go) | facts


def run_dpo(recipe: DpoRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Train a recipe's policy on preferences into ``folder``; the same call again resumes it."""
    policy = local_policy(recipe.policy)
    pairs: list[Pair]
    if recipe.data is not None:
        pairs = read_pairs(Path(recipe.data))
    else:
        with Tree.open(str(recipe.tree), "r") as tree:
            pairs = [pair for pair, _ in tree_pairs(tree, recipe.least)]
    settings = PreferenceSettings(beta=recipe.beta, **recipe.fit_settings())
    # The reference is the policy as it begins: of a resumed run, not as it was saved.
    reference = policy.model

    def go(model: Any, **rest: Any) -> list[Json]:
        return prefer(model, pairs, settings, reference=reference, **rest)

    return _run(recipe, policy, folder, progress, go) | {"pairs": len(pairs)}


def _run(
    recipe: SftRecipe | DpoRecipe, policy: Any, folder: Path, progress: Progress,
    go: Callable[..., list[Json]],
) -> Json:  # fmt: skip
    if recipe.lora is not None:
        policy = with_lora(policy, recipe.lora)
    resumed = open_folder(folder, recipe)
    told = JsonLines(folder / "metrics.jsonl")
    log = go(policy.model, folder=folder / "checkpoints", tracker=told, progress=progress)
    policy.refresh()
    save_policy(policy, folder / "policy")
    last = log[-max(1, len(log) // 10) :]
    summary = {
        "steps": len(log),
        "loss_first": log[0]["loss"],
        "loss_last": sum(row["loss"] for row in last) / len(last),
        "weights": policy.card.weights,
        "resumed": resumed,
        "digest": digest(recipe),
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary
