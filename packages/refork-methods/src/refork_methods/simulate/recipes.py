"""What a training stage does, as a validated recipe: one class per stage, every key with its default."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from refork.errors import BadInput
from refork.runs.recipe import Law, RecipePart
from refork_methods.train.finetune import SftRates
from refork_methods.train.run import Lora, Rates

Stage = Literal["cpt", "sft", "rl"]


class StageRecipe(RecipePart):
    """What all stages have.

    ``data`` is a folder that ``refork simulate data`` wrote, or a JSON-lines file of trajectories. Those of
    ``held_out`` sources are not trained on. ``check``: how many held-out targets are predicted before and
    after (0: none). ``merge`` writes an adapter into the model, so that the next stage can add its own.
    """

    policy: str
    data: str
    held_out: tuple[str, ...] = ()
    context: int | None = Field(default=None, ge=2)
    lora: Lora | None = None
    merge: bool = False
    checkpoint_every: int = Field(default=50, ge=1)
    check: int = Field(default=64, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    seed: int = 0


class Supervised(StageRecipe):
    """What the first two stages have; ``half`` computes in bfloat16.

    ``replay_fraction`` is the share of other text in all tokens, whatever a data folder was measured in.
    """

    steps: int = Field(default=200, ge=1)
    rows: int = Field(default=16, ge=1)
    micro_rows: int | None = Field(default=None, ge=1)
    rate: SftRates = SftRates()
    weight_decay: float = Field(default=0.01, ge=0)
    half: bool = False
    replay: str | None = None
    replay_fraction: float = Field(default=0.0, ge=0, lt=1)


class CptRecipe(Supervised):
    """Continued pre-training: every turn a target, weighed by its class.

    ``classes`` False weighs all turns alike; ``thresholds`` and ``shares`` change where classes begin and how
    much of each is learned.
    """

    classes: bool = True
    thresholds: dict[str, float] = Field(default_factory=dict)
    shares: dict[str, float] = Field(default_factory=dict)


class CandidateLaw(Law):
    """How a teacher's candidates are sampled."""

    max_tokens: int = Field(default=512, ge=1)


class SftRecipe(Supervised):
    """Supervised fine-tuning with explicit reasoning.

    ``teacher`` None learns the recorded observations with the turns' notes; ``self`` is the policy, anything
    else a policy's name. A teacher's ``draws`` candidates are judged, the best is kept at ``least`` or more.
    ``per_trajectory`` targets of each trajectory are taken (None: all).
    """

    teacher: str | None = None
    judge: str = "rule"
    draws: int = Field(default=4, ge=1)
    least: float = Field(default=0.75, ge=0, le=1)
    sampling: CandidateLaw = CandidateLaw()
    per_trajectory: int | None = Field(default=None, ge=1)
    noted_only: bool = False


class RlRates(Rates):
    """Rates of reinforcement."""

    peak: float = Field(default=1e-5, gt=0)


class RlRecipe(StageRecipe):
    """Reinforcement on one target of each trajectory; ``w`` of the reward is the judge's."""

    judge: str = "rule"
    w: float = Field(default=0.9, ge=0, le=1)
    turns: Literal["any", "exact"] = "any"
    updates: int = Field(default=50, ge=1)
    per_update: int = Field(default=16, ge=1)
    group: int = Field(default=8, ge=2)
    minibatches: int = Field(default=1, ge=1)
    objective: str = "gspo"
    objective_options: dict[str, Any] = Field(default_factory=dict)
    normalise: Literal["std", "mean"] = "std"
    rate: RlRates = RlRates()
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
