"""Half of a surrogate pair, which JSON can spell and no text can hold, is one draw's matter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refork.forking import fork
from refork.forking.run_on import HALVES, whole_text, whole_texts
from refork.growing import grow
from refork.judge import MatchJudge, Verdict
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.base import Observation
from support.chain import PLAIN
from support.worlds import TwoTurns

HALF = "\ud83d"


class Odd:
    """A policy of which every third reply holds half of a pair."""

    def __init__(self, policy, **where):
        self.policy, self.where = policy, where

    def __getattr__(self, name):
        return getattr(self.policy, name)

    @property
    def card(self):
        return self.policy.card

    def sample(self, requests, settings):
        for said in self.policy.sample(requests, settings):
            if said.index % 3:
                yield said
            elif "error" in self.where:
                yield replace(said, error=f"odd {HALF}", finish="error")
            else:
                text = HALF + said.text[1:]
                message = {"role": "assistant", "content": text, "more": [{HALF: (HALF, 1, None)}]}
                yield replace(said, text=text, message=message)


def test_halves_are_replaced_one_for_one():
    assert whole_text(f"a{HALF}b\udc00😀") == "a\ufffdb\ufffd😀"
    assert whole_texts({HALF: [HALF, 1, {"a": (HALF,)}], "b": None}) == {
        "\ufffd": ["\ufffd", 1, {"a": ["\ufffd"]}],
        "b": None,
    }


def test_a_reply_with_half_a_pair_is_kept_and_marked_and_the_others_run_on(tree, start, policy, judge):
    arm = fork(start, Odd(policy), 9, settings=PLAIN, judge=judge)
    plain = fork(start_of(policy), policy, 9, settings=PLAIN, judge=judge)
    assert len(arm.draws) == 9
    assert {d.end for d in arm.draws} == {"done"}
    for number, (trajectory, other) in enumerate(zip(arm.leaves(), plain.leaves(), strict=True)):
        odd = number % 3 == 0
        assert trajectory.leaf.text == ("\ufffd" + other.leaf.text[1:] if odd else other.leaf.text)
        assert trajectory.leaf.extra.get("mended") == (HALVES if odd else None)
        assert trajectory.leaf.tokens.tolist() == other.leaf.tokens.tolist()
    assert list(tree.verify({})) == []


def start_of(policy):
    from refork.growing.plant import plant_prompt

    return plant_prompt(Tree.memory(), policy, "Well?")


def test_an_error_with_half_a_pair_is_that_draws_error(start, policy, judge):
    arm = fork(start, Odd(policy, error=True), 6, settings=PLAIN, judge=judge)
    assert [d.end == "error" for d in arm.draws] == [True, False, False] * 2
    assert arm.draws[0].error == "odd \ufffd"


class Reasons(MatchJudge):
    def judge(self, trajectory):
        return Verdict(1.0, f"because {HALF}")


def test_a_judges_reason_with_half_a_pair_is_stored(tree, start, policy):
    arm = fork(start, policy, 3, settings=PLAIN, judge=Reasons("x"))
    assert arm.values() == [1.0] * 3
    assert {s.reason for s in tree.scores(name="success")} == {"because \ufffd"}


class OddWorld(TwoTurns):
    """Answers with half a pair after the first turn, or breaks with one."""

    breaks = False

    def start(self, task, seed):
        return OddEpisode(super().start(task, seed), self.breaks)

    def restore(self, task, snapshot):
        return OddEpisode(super().restore(task, snapshot), self.breaks)


class OddEpisode:
    def __init__(self, inner, breaks):
        self.inner, self.breaks = inner, breaks
        self.first = inner.first

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def step(self, action):
        seen = self.inner.step(action)
        if self.breaks:
            raise ValueError(f"broken {HALF}")
        if seen.done:
            return seen
        return Observation(f"seen {HALF}", f"key {HALF}", info={"more": {HALF: [HALF]}})


class Breaks(OddWorld):
    breaks = True


@pytest.mark.parametrize("world", [OddWorld(), Breaks()], ids=["answers", "breaks"])
def test_a_worlds_answer_with_half_a_pair_ends_no_run(tree, world):
    policy = ScriptedPolicy.from_replies([" a", " b"])
    (group,) = grow(tree, policy, world, world.tasks("train", 1), draws=4, settings=Sampling(max_tokens=4))
    draws = group.forks[0].draws
    if world.breaks:
        assert {d.end for d in draws} == {"error"}
        assert "broken \ufffd" in str(draws[0].error) or "broken \\ud83d" in str(draws[0].error)
        return
    assert {d.end for d in draws} == {"done"}
    seen = [n for n in tree.walk() if n.kind == "observation" and n.text.startswith("seen")]
    assert {n.text for n in seen} == {"seen \ufffd"}
    assert all(n.extra["mended"] == HALVES and n.extra["more"] == {"\ufffd": ["\ufffd"]} for n in seen)
