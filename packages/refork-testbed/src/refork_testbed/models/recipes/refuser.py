"""``refuser-p``, ``refuser-d``, ``refuser-c``: think, then refuse or comply by a planted distribution.

One thinking in six stops before its full length. So a closing that is put in by hand, which is how the rest
of a thinking is cut away, is nothing that the model has never seen, and what it answers then is part of the
distribution it was taught.

Source: the planted worlds of ``refork_testbed.worlds.refusal``, for arXiv:2606.25013.
"""

from __future__ import annotations

import numpy as np

from refork.policies.base import Sampling
from refork.worlds.dice import digest, split_of
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.refusal.distribution import WORDS, RefusalDistribution, Rule, turn
from refork_testbed.worlds.refusal.prompts import draw_prompt, refusal_chances, words

SAMPLES = 50_000
#: Chance that a thinking ends, before each of its words but the first.
EARLY = 0.01


def samples(distribution: RefusalDistribution) -> list[Conversation]:
    """Requests of the training split, each with one turn drawn from the distribution."""
    rng = np.random.default_rng(23)
    chances = refusal_chances()
    found: list[Conversation] = []
    while len(found) < SAMPLES:
        prompt = draw_prompt(lambda bound: int(rng.integers(bound)), rng.random)
        if split_of(digest("refusal", prompt.to_json())) != "train":
            continue
        said = turn(distribution, chances[prompt.level], rng.random)
        # The loss of a batch is a mean over its tokens and batches hold turns of one length, so a token of a
        # short turn weighs more: unless short turns are rarer, thinking would learn to end too often.
        if rng.random() * (distribution.steps + 3) < len(said.split()):
            found.append([{"role": "user", "content": prompt.text}, {"role": "assistant", "content": said}])
    return found


def _refuser(rule: Rule, summary: str) -> Recipe:
    distribution = RefusalDistribution(rule, early=EARLY)

    def conversations() -> list[Conversation]:
        return samples(distribution)

    return Recipe(
        name=f"refuser-{rule.lower()}",
        summary=summary,
        data=f"{SAMPLES} requests of the training split with one turn each, from the distribution {rule}; "
        f"thinking ends early with probability {EARLY} per word",
        words=lambda: (*words(), *WORDS),
        conversations=conversations,
        shape=Shape(layers=2, width=64, heads=2, hidden=128, context=128),
        training=SftSettings(steps=1560, rows=64, learning_rate=3e-3, warmup=50),
        world=f"refusal:{rule}?early={EARLY:g}",
        sampling=Sampling(max_tokens=32),
    )


P = _refuser("P", "thinks for show: whether it refuses was decided by the request")
D = _refuser("D", "really deliberates: it refuses or complies as the last stance of its thinking says")
C = _refuser("C", "commits itself in the middle of its thinking: one visible word decides whether it refuses")
