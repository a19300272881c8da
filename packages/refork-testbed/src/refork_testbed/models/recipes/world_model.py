"""``world-model``: answers as a shell or a small database would, after a third stage of reinforcement.

Source: arXiv 2606.24597 for the stage (GSPO, one target of each trajectory, nine tenths rubric and one tenth
rule); the rubric here is a comparison of texts, not a model, and rates and group are ours.
"""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress
from refork_methods.simulate.prompt import pick
from refork_methods.simulate.reward import HybridReward
from refork_methods.simulate.rl import RlSettings, train_rl
from refork_methods.simulate.rubric import RuleRubric
from refork_methods.train.schedule import Schedule
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes.world_model_data import SAMPLING, lessons, measure
from refork_testbed.models.staged_recipe import Staged

SETTINGS = RlSettings(
    updates=24,
    per_update=24,
    group=6,
    max_tokens=SAMPLING.max_tokens,
    minibatches=2,
    schedule=Schedule(peak=2e-5, shape="linear", warmup=4, final=0.2),
)


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Group policy gradient on one drawn turn of each recorded episode whose answer can be known."""
    items = pick(lessons(progress), seed=0, turns="exact")
    done = train_rl(policy, items, HybridReward(RuleRubric()), SETTINGS, progress=progress)
    first, last = done.facts["first"], done.facts["last"]
    how = (
        f"{done.facts['updates']} updates of {SETTINGS.per_update} targets x {SETTINGS.group} answers "
        f"(GSPO), rate {SETTINGS.schedule.peak}; reward {first['reward']:.3f} in the first tenth, "
        f"{last['reward']:.3f} in the last, "
        f"sampled exact match {first['exact']:.3f} and {last['exact']:.3f}"
    )
    return Made(done.log, done.facts | {"how": how})


RECIPE = Staged(
    name="world-model",
    summary="answers as a shell or a small database would, and says first what decides the answer",
    data="one turn of each episode of `world-model-cpt`; rewarded is the text in the tag: text comparison "
    "with the real answer (0.9) and exact match (0.1)",
    parent="world-model-sft",
    train=train,
    measure=measure,
    reads=lessons,
    sampling=SAMPLING,
)
