from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ramify.core.errors import BadInput, CannotDo
from ramify.core.fork import fork
from ramify.core.grow.plant import plant_prompt
from ramify.core.judge import MatchJudge
from ramify.core.policy.base import Sampling
from ramify.core.policy.scripted import ScriptedPolicy
from ramify.examine.forensics.instruments.logprob_prefill import (
    ever_exceeds,
    logprob_prefill,
    phrase_levels,
)


def test_a_rollout_is_split_by_its_first_breaks():
    levels = [np.array([-5.0, -6, -4, -9]), np.array([-5.0, -6, -7, -1]), np.array([-5.0])]
    assert ever_exceeds(levels, within=2).tolist() == [True, False, False]
    assert ever_exceeds(levels, within=3).tolist() == [True, True, False]
    assert ever_exceeds(levels, within=3, threshold=-2.0).tolist() == [False, True, False]
    with pytest.raises(BadInput, match="no level"):
        ever_exceeds([np.array([])])
    with pytest.raises(BadInput, match="at least 1"):
        ever_exceeds(levels, within=0)


LEAN = {"go": 0.9, "stay": 0.1}


def law(text):
    said = text.rsplit("?\n", 1)[-1]
    if not said:
        return {"up": 0.5, "down": 0.5}
    if said in ("up", "down"):
        return {"\n\n": 1.0}
    chance = 0.9 if said.startswith("up") else 0.1
    return {"go": chance, "stay": 1 - chance} if said.endswith("\n\n") else {"": 1.0}


@pytest.fixture
def policy():
    return ScriptedPolicy.from_text(law, ["up", "down", "\n\n", "go", "stay"])


def test_levels_are_the_exact_log_probs_and_split_the_rollouts(tree, policy):
    root = plant_prompt(tree, policy, "q?")
    arm = fork(root, policy, 40, settings=Sampling(max_tokens=8))
    ends = [tree.at(d.leaf) for d in arm.draws]
    levels = phrase_levels(ends, policy, "\n\ngo")
    for end, row in zip(ends, levels, strict=True):
        up = end.node.text.startswith("up")
        assert row[0] == -math.inf, "the phrase cannot follow the prompt"
        assert row[1] == pytest.approx(math.log(0.9 if up else 0.1), abs=1e-6)
    found = logprob_prefill(ends, policy, "\n\ngo", grader=MatchJudge("go"), threshold=math.log(0.5))
    ups = sum(e.node.text.startswith("up") for e in ends)
    assert found.rose.runs == ups
    assert found.rose.rate > found.stayed.rate
    assert found.result is not None
    assert found.result.p < 1e-4
    told = found.to_json()
    assert len(told["levels"]) == 40
    assert told["p"] == found.result.p
    one_sided = logprob_prefill(ends, policy, "\n\ngo", grader=MatchJudge("go"), threshold=1.0)
    assert one_sided.result is None, "no level exceeds probability 1"


def test_it_needs_log_probs_of_given_text(tree, policy):
    root = plant_prompt(tree, policy, "q?")
    ends = [tree.at(d.leaf) for d in fork(root, policy, 2).draws]
    with pytest.raises(BadInput, match="no tokens"):
        phrase_levels(ends, policy, "")
    with pytest.raises(BadInput, match="no rollout"):
        logprob_prefill([], policy, "x", grader=MatchJudge("go"))
    policy._card = replace(policy.card, capabilities=frozenset({"tokens", "paired"}))
    with pytest.raises(CannotDo, match="no log-probs"):
        phrase_levels(ends, policy, "go")
