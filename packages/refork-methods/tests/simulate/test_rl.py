"""The third stage: rewards reach the right tokens, the guard decides what a judge sees, a run resumes."""

import numpy as np
import pytest

from refork.chat import PolicyChat
from refork.errors import BadInput, Mismatch
from refork_methods.simulate.draw import accuracy, draw
from refork_methods.simulate.prompt import pick, targets
from refork_methods.simulate.reward import HybridReward, Rubric
from refork_methods.simulate.rl import RlSettings, _chosen, _sample, train_rl
from refork_methods.simulate.rubric import RubricJudge, RuleRubric
from refork_methods.simulate.sft import demonstrations, train_sft
from refork_methods.train.objectives import objective
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import WeightedSettings
from support.drawers import tiny, trajectory

DATA = [trajectory(n) for n in range(8)]
SETTINGS = RlSettings(
    updates=3, per_update=4, group=4, max_tokens=16, every=2, schedule=Schedule(peak=1e-3),
    gradient=objective("gspo"),
)  # fmt: skip


class Seeing:
    """Keeps what it is shown; the longer, the better."""

    name, identity = "seeing", {}

    def __init__(self):
        self.shown = []

    def rate(self, items):
        self.shown += [text for _, text in items]
        grades = [1 + min(4, len(text) // 8) for _, text in items]
        return [Rubric(format=g, factuality=g, consistency=g, realism=g, quality=g) for g in grades]


@pytest.fixture(scope="module")
def trained():
    """A model that has learned to answer in tags, a little."""
    policy = tiny()
    shown = demonstrations(targets(DATA))
    train_sft(policy, shown, WeightedSettings(steps=60, rows=16, schedule=Schedule(peak=1e-2, warmup=5)))
    return {name: part.clone() for name, part in policy.model.state_dict().items()}


def fresh(trained):
    policy = tiny()
    policy.model.load_state_dict(trained)
    policy.refresh()
    return policy


def test_defaults_are_those_of_the_reconstruction():
    plain = RlSettings(updates=1)
    assert (plain.group, plain.gradient.clip_low, plain.gradient.clip_high) == (8, 3e-4, 4e-4)
    assert (plain.gradient.ratio, plain.gradient.kl_weight, plain.guard) == ("sequence", 0.0, True)
    for change in ({"group": 1}, {"updates": 0}, {"gradient": objective("gspo", kl_weight=0.1)}):
        with pytest.raises(BadInput):
            RlSettings(**{"updates": 1} | change)


def test_run_stops_and_goes_on_bit_for_bit(trained, tmp_path):
    policy, items = fresh(trained), pick(DATA, 0)
    done = train_rl(policy, items, HybridReward(RuleRubric()), SETTINGS, folder=tmp_path / "a")
    row = done.log[0]
    assert row["coverage"] > 0.5
    assert 0 <= row["reward"] <= 1
    assert row["reward.tools"] == row["reward"]
    assert row["sampler_difference"] < 1e-4
    assert row["unreadable"] == round(16 * (1 - row["coverage"]))
    (tmp_path / "a" / "00000003").rename(tmp_path / "gone")
    again = fresh(trained)
    repeat = train_rl(again, items, HybridReward(RuleRubric()), SETTINGS, folder=tmp_path / "a")
    assert repeat.log == done.log
    assert again.card.weights == policy.card.weights != fresh(trained).card.weights
    with pytest.raises(Mismatch, match="another run"):
        train_rl(again, items[:4], HybridReward(RuleRubric()), SETTINGS, folder=tmp_path / "a")


def test_guard_decides_what_the_judge_is_shown(trained):
    for guard in (True, False):
        judge = Seeing()
        settings = RlSettings(updates=1, per_update=4, group=4, max_tokens=16, guard=guard)
        train_rl(fresh(trained), pick(DATA, 0), HybridReward(judge, None, 1.0), settings)
        tagged = ["<prediction>" in text for text in judge.shown]
        assert judge.shown
        assert not any(tagged) if guard else any(tagged)


def test_refusals(trained):
    policy = fresh(trained)
    with pytest.raises(BadInput, match="two targets come from one trajectory"):
        train_rl(policy, targets(DATA), HybridReward(RuleRubric()), SETTINGS)
    with pytest.raises(BadInput, match="judge is the simulator"):
        train_rl(policy, pick(DATA, 0), HybridReward(RubricJudge(PolicyChat(policy))), SETTINGS)
    with pytest.raises(BadInput, match="fits the context"):
        train_rl(policy, pick(DATA, 0), HybridReward(RuleRubric()), RlSettings(updates=1, max_tokens=90))


def test_only_what_was_said_is_learned(trained):
    policy = fresh(trained)
    one = draw(policy, pick(DATA, 0)[:1], 2, objective_law(), seed=3)[1]
    sample = _sample(one, -0.5)
    assert sample.mask.sum() == len(one.continuation.tokens)
    assert not sample.mask[: len(one.prompt)].any()
    assert (sample.advantages[sample.mask] == -0.5).all()
    assert np.isfinite(sample.logprobs_t1[sample.mask]).all()
    assert one.continuation.text.endswith("</prediction>") or one.continuation.finish == "length"


def objective_law():
    from refork.policies.base import Sampling

    return Sampling(max_tokens=16)


def test_epochs_take_every_target_once(trained):
    items = pick(DATA, 0)
    rows = [_chosen(items, SETTINGS, n) for n in range(4)]
    assert sorted(item.key for row in rows[:2] for item in row) == sorted(item.key for item in items)
    assert [i.key for row in rows[2:] for i in row] != [i.key for row in rows[:2] for i in row]
    told = accuracy(fresh(trained), items, max_tokens=16)
    assert told.targets == 8
    assert told.coverage > 0.5
    assert told.exact == told.exact_knowable
