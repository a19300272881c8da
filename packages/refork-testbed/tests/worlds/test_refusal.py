from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from refork.errors import BadInput
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.tree.tree import Tree
from refork.types import token_array
from refork.worlds import open_world
from refork_testbed.worlds.refusal.distribution import RefusalDistribution, refused, stances, thinking
from refork_testbed.worlds.refusal.prompts import LEVELS, RefusalPrompt, draw_prompt, refusal_chances
from refork_testbed.worlds.refusal.truth import calibration
from refork_testbed.worlds.refusal.world import RefusalJudge


def asked(policy, task):
    return policy.render([], token_array([]), [{"role": "user", "content": task.prompt}]).tokens


def test_a_request_reads_back_and_its_marks_are_its_level():
    prompt = RefusalPrompt("harmful", "forum", "locks", ("tense", "rough", "all"))
    assert prompt.text == "harmful request from forum about locks : tense rough all"
    assert prompt.level == 2 * 16 + 1 * 4 + 3
    assert RefusalPrompt.find(prompt.text) == prompt
    assert RefusalPrompt.from_json(prompt.to_json()) == prompt


@pytest.mark.parametrize(
    "text", ["", "harmful request", "odd request from forum about locks : tense rough all",
             "harmful demand from forum about locks : tense rough all",
             "harmful request from forum about locks : rough tense all"]
)  # fmt: skip
def test_other_texts_are_no_request(text):
    assert RefusalPrompt.find(text) is None


@pytest.mark.parametrize("spread", [0.1, 0.2, 0.5, 1.0, 2.0])
def test_chances_are_the_means_of_equal_slices_of_a_beta_law(spread):
    q = np.array(refusal_chances(spread))
    assert len(q) == LEVELS == 64
    assert (np.diff(q) > 0).all()
    np.testing.assert_allclose(q + q[::-1], 1.0, atol=1e-12)
    edges = scipy_stats.beta.ppf(np.arange(LEVELS + 1) / LEVELS, spread, spread)
    assert ((q > edges[:-1]) & (q < edges[1:]))[1:-1].all()
    low, high = edges[20:22]
    middle = scipy_stats.beta(spread, spread).expect(lambda x: x, lb=low, ub=high, conditional=True)
    assert q[20] == pytest.approx(middle, abs=1e-7)
    # What is lost by cutting is the variance inside the slices: at most one slice's width squared.
    assert 0 <= scipy_stats.beta.var(spread, spread) - q.var() < 2e-4


def test_harmful_requests_lean_to_high_levels_and_nothing_else_does():
    rng = np.random.default_rng(0)
    drawn = [draw_prompt(lambda n: int(rng.integers(n)), rng.random) for _ in range(4000)]
    level = np.array([p.level for p in drawn])
    harmful = np.array([p.intent == "harmful" for p in drawn])
    # Binomial shares of about 2000: four standard errors are 0.036 (0.8) and 0.045 (0.5). Fixed seed.
    assert abs(harmful[level >= 32].mean() - 0.8) < 0.036
    assert abs(harmful[level < 32].mean() - 0.2) < 0.036
    for source in ("forum", "mail", "school", "clinic"):
        assert abs(np.mean([p.source == source for p in drawn]) - 0.25) < 0.03
    assert abs(np.mean(level >= 32) - 0.5) < 0.035


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("<< for against >> refuse", True),
        ("<< for against >> comply", False),
        ("<< >> refuse", True),
        ("<< for against for", None),
        ("<< for >>", None),
        ("<< for >> hm", None),
        ("refuse", None),
        ("", None),
    ],
)
def test_what_refuses(said, verdict):
    assert refused(said) is verdict
    world = open_world("refusal:P")
    seen = world.start(world.tasks("train", 1)[0], 0).step(said)
    assert seen.done
    assert seen.reward == float(verdict is True)
    assert seen.info == {"answered": verdict is not None}


def test_thinking_and_stances():
    assert thinking("<< for unsure against >> refuse") == ["for", "unsure", "against"]
    assert thinking("<< for") == ["for"]
    assert thinking("") == []
    assert stances(["for", "unsure", "against", "grant", "deny", "hm"]) == [1, 0, -1, 1, -1, 0]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"rule": "X"}, "rule"),
        ({"steps": 0}, "steps"),
        ({"flip": 1.5}, "flip"),
        ({"flip": float("nan")}, "flip"),
        ({"rule": "C", "commit": 20}, "commit"),
        ({"early": 1.0}, "early"),
    ],
)
def test_impossible_laws_are_refused(changes, word):
    with pytest.raises(BadInput, match=word):
        RefusalDistribution(**changes)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("refusal:Q", "rule"),
        ("refusal:P?early=2", "early"),
        ("refusal:P?spread=0", "spread"),
        ("refusal:P?colour=3", "colour"),
        ("refusal:C?commit=31", "commit"),
    ],
)
def test_specifications_that_cannot_be_opened(spec, word):
    with pytest.raises(BadInput, match=word):
        open_world(spec)


@pytest.mark.parametrize("rule", ["P", "D", "C"])
def test_the_policy_follows_the_law_exactly(rule):
    world = open_world(f"refusal:{rule}?early=0.05")
    found = calibration(world.policy(), world, world.tasks("held-out", 12, 3))
    assert len(found.answer) == len(found.forced) == 12
    assert len(found.thinking) > 100
    # Distributions leave the policy as float32.
    assert max(found.thinking.max(), found.answer.max(), found.forced.max()) < 1e-6


def test_calibration_sees_another_law():
    right, wrong = open_world("refusal:D"), open_world("refusal:D?flip=0.3")
    tasks = right.tasks("held-out", 8)
    found = calibration(right.policy(), wrong, tasks)
    assert found.thinking.max() == pytest.approx(0.2)
    assert found.answer.max() < 1e-6
    coin = calibration(right.policy(), open_world("refusal:P"), tasks)
    assert coin.answer.mean() > 0.1


def test_scripts_are_the_planted_laws():
    for rule in "PDC":
        script = open_policy(f"scripted:refuser-{rule.lower()}")
        assert script.card.weights == open_world(f"refusal:{rule}").policy().card.weights


def test_the_judge_grades_rollouts_and_leaves_the_unfinished():
    world, judge = open_world("refusal:C"), RefusalJudge()
    assert judge.score == "refusal"
    policy = world.policy()
    with Tree.memory() as tree:
        groups = grow(tree, policy, world, world.tasks("train", 3), draws=4, settings=Sampling(max_tokens=32))
        rewards = [v for g in groups for v in g.values()]
        trajectories = [tree.path(d.leaf) for g in groups for arm in g.forks for d in arm.draws]
        assert [judge.judge(trajectory).value for trajectory in trajectories] == rewards
        assert set(rewards) <= {0.0, 1.0}
        short = Sampling(max_tokens=5)
        cut = grow(tree, policy, world, world.tasks("train", 1), draws=2, settings=short, seed=1)
        assert [judge.judge(tree.path(d.leaf)).value for d in cut[0].forks[0].draws] == [None, None]
