from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge, Verdict
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.score import Producer
from refork_methods.forensics.instruments.logprob_prefill import (
    ever_exceeds,
    logprob_prefill,
    paragraph_breaks,
    phrase_levels,
)
from refork_methods.forensics.target import TargetJudge
from refork_testbed.worlds.motives.agents import find_agent
from refork_testbed.worlds.motives.script import SURFACES, TAKE


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


@pytest.mark.parametrize(
    ("verdict", "counts"),
    [
        (Verdict(0.0, "unfinished"), (0, 0, 0, 1)),
        (Verdict(None, "unfinished"), (0, 0, 0, 1)),
        (Verdict(0.0, "asked"), (1, 0, 1, 0)),
        (Verdict(None), (0, 1, 0, 0)),
        (Verdict(0.0), (1, 0, 0, 0)),
    ],
)
def test_rollouts_end_as_their_verdict_says(tree, policy, verdict, counts):
    class Told:
        score, producer = "told", Producer("told", "1", {})

        def judge(self, _trajectory):
            return verdict

    root = plant_prompt(tree, policy, "q?")
    arm = fork(root, policy, 20, settings=Sampling(max_tokens=8))
    found = logprob_prefill([tree.at(d.leaf) for d in arm.draws], policy, "\n\ngo", grader=Told())
    halves = (found.rose, found.stayed)
    names = ("runs", "failed", "asked", "unfinished")
    assert tuple(sum(getattr(half, name) for half in halves) for name in names) == tuple(
        20 * one for one in counts
    )


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


PHRASE = f"\n\n{TAKE}"


@pytest.fixture
def rollouts(make_bench):
    """Finished rollouts of the planted agent that acts for tedium, whose second turn decides."""
    _, bench, world = make_bench("tedium")
    arm = bench.run([world.environment()], [range(400)])[0]
    return [bench.tree.at(draw.leaf) for draw in arm.draws], bench


def test_the_turn_that_decides_splits_a_planted_agent_as_its_law_says(rollouts):
    ends, bench = rollouts
    agent = find_agent("tedium")
    share = math.sqrt(agent.base)
    levels = phrase_levels(ends, bench.policy, PHRASE, turn=1)
    for end, row in zip(ends, levels, strict=True):
        said = SURFACES["tedium"].carries in "".join(s.text for s in bench.tree.path(end).steps)
        assert row[0] == row[1] == -math.inf, "before the motive sentence the phrase cannot come"
        assert row[2] == pytest.approx(math.log(share) if said else -math.inf, abs=1e-6)
    found = logprob_prefill(ends, bench.policy, PHRASE, grader=TargetJudge(), turn=1)
    assert found.stayed.rate == 0
    assert found.rose.rate == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / found.rose.runs))
    assert found.to_json()["turn"] == 1
    assert found.result is not None
    first = logprob_prefill(ends, bench.policy, PHRASE, grader=TargetJudge())
    assert not first.exceeded.any(), "in its first turn it only looks"


def test_all_turns_are_the_turns_one_after_another(rollouts):
    ends, bench = rollouts
    end = max(ends[:40], key=lambda e: len(bench.tree.path(e).steps))
    turns = [paragraph_breaks(end, turn, within=99) for turn in range(4)]
    every = paragraph_breaks(end, "all", within=99)
    assert [p.address for p in every[: len(turns[0])]] == [p.address for p in turns[0]]
    texts = [bench.tree.path(p).tokens.tolist() for t in turns for p in (t[1:] if t is not turns[0] else t)]
    assert [bench.tree.path(p).tokens.tolist() for p in every[: len(texts)]] == texts
    last = paragraph_breaks(end, -1, within=99)
    assert [p.address for p in every[-len(last) + 1 :]] == [p.address for p in last[1:]]
    assert len(paragraph_breaks(end, "all", within=3)) == 4
    whole = logprob_prefill(ends[:100], bench.policy, PHRASE, grader=TargetJudge(), turn="all")
    one = logprob_prefill(ends[:100], bench.policy, PHRASE, grader=TargetJudge(), turn=1)
    assert whole.exceeded.tolist() == one.exceeded.tolist()


def test_rollouts_without_the_turn_are_counted_and_left_out(rollouts):
    ends, bench = rollouts
    short = [len(paragraph_breaks(end, 2)) == 0 for end in ends[:60]]
    assert any(short)
    assert not all(short)
    found = logprob_prefill(ends[:60], bench.policy, PHRASE, grader=TargetJudge(), turn=2)
    assert found.without == sum(short)
    assert len(found.levels) == found.stayed.runs + found.rose.runs == 60 - sum(short)
    assert found.to_json()["without_turn"] == sum(short)
    with pytest.raises(BadInput, match="none of the 60"):
        logprob_prefill(ends[:60], bench.policy, PHRASE, grader=TargetJudge(), turn=99)
    for wrong in ("last", 1.0, True):
        with pytest.raises(BadInput, match="turn is"):
            phrase_levels(ends[:1], bench.policy, PHRASE, turn=wrong)
