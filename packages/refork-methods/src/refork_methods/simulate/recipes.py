"""What a training stage does, as a validated recipe: one class per stage, every key with its default."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from refork.errors import BadInput
from refork.runs.recipe import RecipePart, SamplingPart
from refork_methods.train.finetune import FitRecipe, SftRates
from refork_methods.train.lora import LoraSettings
from refork_methods.train.run import Rates

Stage = Literal["cpt", "sft", "rl"]


class StageRecipe(RecipePart):
    """What all stages have."""

    #: hf:DIR or organism:NAME; a local model.
    policy: str
    #: A folder of refork simulate data, or a JSON-lines file of trajectories.
    data: str
    #: Sources that are not trained on.
    held_out: tuple[str, ...] = ()
    #: Tokens of a context at most; default: the model's own.
    context: int | None = Field(default=None, ge=2)
    #: Train an adapter instead of all weights.
    lora: LoraSettings | None = None
    #: Write the adapter into the model, so that the next stage can add its own.
    merge: bool = False
    #: Steps or updates between two checkpoints.
    checkpoint_every: int = Field(default=50, ge=1)
    #: Held-out targets that are predicted before and after; 0: none.
    check: int = Field(default=64, ge=0)
    #: Tokens of an answer at most.
    max_tokens: int = Field(default=256, ge=1)
    #: Of order and noise.
    seed: int = 0


class Supervised(FitRecipe, StageRecipe):
    """What the first two stages have."""

    #: Optimizer steps.
    steps: int = Field(default=200, ge=1)
    #: The learning rate.
    rate: SftRates = SftRates()
    #: Compute in bfloat16.
    half: bool = False
    #: A file of other text that is trained on too.
    replay: str | None = None
    #: Its share in all tokens.
    replay_fraction: float = Field(default=0.0, ge=0, lt=1)


class CptRecipe(Supervised):
    """Continued pre-training: every turn a target, weighed by its class."""

    #: Weigh turns by their class; false: all alike.
    classes: bool = True
    #: Where classes begin.
    thresholds: dict[str, float] = Field(default_factory=dict)
    #: How much of each class is learned.
    shares: dict[str, float] = Field(default_factory=dict)


class CandidateSampling(SamplingPart):
    """How a teacher's candidates are sampled."""

    #: Tokens of a candidate at most.
    max_tokens: int = Field(default=512, ge=1)


class SftRecipe(Supervised):
    """Supervised fine-tuning with explicit reasoning."""

    #: Who writes candidates: self or a policy; default: the recorded observations with their notes.
    teacher: str | None = None
    #: rule, or the model that grades.
    judge: str = "rule"
    #: Candidates of a target.
    draws: int = Field(default=4, ge=1)
    #: Grade that the best candidate has at least.
    least: float = Field(default=0.75, ge=0, le=1)
    #: How candidates are drawn.
    sampling: CandidateSampling = CandidateSampling()
    #: Targets of each trajectory; default: all.
    per_trajectory: int | None = Field(default=None, ge=1)
    #: Only targets with a note.
    noted_only: bool = False


class RlRates(Rates):
    """Rates of reinforcement."""

    #: The largest learning rate.
    peak: float = Field(default=1e-5, gt=0)


class RlRecipe(StageRecipe):
    """Reinforcement on one target of each trajectory."""

    #: rule, or the model that grades.
    judge: str = "rule"
    #: Share of the judge in the reward.
    w: float = Field(default=0.9, ge=0, le=1)
    #: Which turns may be targets: any, or those whose answer is exact.
    turns: Literal["any", "exact"] = "any"
    #: Updates in all.
    updates: int = Field(default=50, ge=1)
    #: Targets of an update.
    per_update: int = Field(default=16, ge=1)
    #: Draws of each target.
    group: int = Field(default=8, ge=2)
    #: Parts of an update, one gradient step each.
    minibatches: int = Field(default=1, ge=1)
    #: The objective of the policy gradient.
    objective: str = "gspo"
    #: Its options.
    objective_options: dict[str, Any] = Field(default_factory=dict)
    #: How a group's advantages are normalised.
    normalise: Literal["std", "mean"] = "std"
    #: The learning rate.
    rate: RlRates = RlRates()
    #: Updates between two checkpoints.
    checkpoint_every: int = Field(default=5, ge=1)


RECIPES: dict[str, type[CptRecipe] | type[SftRecipe] | type[RlRecipe]] = {
    "cpt": CptRecipe,
    "sft": SftRecipe,
    "rl": RlRecipe,
}


def recipe_class(stage: str) -> type[CptRecipe] | type[SftRecipe] | type[RlRecipe]:
    """The recipe of a stage; raises BadInput where there is none of that name."""
    if stage not in RECIPES:
        raise BadInput(f"there is no stage {stage!r}", hint="stages: " + ", ".join(RECIPES))
    return RECIPES[stage]
