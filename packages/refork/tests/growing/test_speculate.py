from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput
from refork.growing import UUCB, Independent, RandomNode, Speculation, grow_trees
from refork.growing.allocator import AdaptiveBudgetAllocator, WarmUp, allot, still_uniform
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.lock import LockWorld, lock_distribution
from refork.worlds.open import open_world

WORLD = open_world("household:1")
POLICY = ScriptedPolicy.from_replies(["go north", "go south", "go west", "go east", "take key"])
LAW = Sampling(max_tokens=12)
SELECTORS = [UUCB(), UUCB(at_once=2, entropy="unseen"), RandomNode(4, at_once=2), Independent()]


def trees(tree, selector, how=None, **more):
    tasks = WORLD.tasks("train", 2)
    budget = {} if "tokens" in more else {"leaves": 9}
    return grow_trees(
        tree, POLICY, WORLD, tasks, selector=selector, settings=LAW, speculation=how, **budget, **more
    )


def rows(tree):
    return sorted((n.id, n.parent, n.keep, n.text, n.state_key) for n in tree.walk())


def choices(log):
    """By task, in order: rounds of different tasks interleave differently."""
    return sorted(((e.task, e.round, e.point, e.choice.draws) for e in log), key=lambda row: row[:2])


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda s: s.name[:30])
def test_without_staleness_it_is_the_synchronous_run_leaf_for_leaf(selector):
    with Tree.memory() as one, Tree.memory() as two:
        groups, log = trees(one, selector)
        other, log2 = trees(two, selector, Speculation(staleness=0))
        assert choices(log2) == choices(log)
        assert rows(one) == rows(two)
        assert [g.values() for g in groups] == [g.values() for g in other]
        assert {entry.stale for entry in log2} == {0}


@pytest.mark.parametrize("selector", SELECTORS[:3], ids=lambda s: s.name[:30])
@pytest.mark.parametrize("keep", [0.0, 0.8, 1.0])
def test_staleness_is_bounded_and_every_leaf_is_drawn(selector, keep):
    with Tree.memory() as tree:
        groups, log = trees(tree, selector, Speculation(staleness=3, keep=keep))
        assert [len(g.values()) for g in groups] == [9, 9]
        assert 0 < max(entry.stale for entry in log) <= 3


def test_a_stale_run_resumes_to_the_same_choices():
    how = Speculation(staleness=4)
    with Tree.memory() as tree:
        groups, log = trees(tree, UUCB(), how)
        before = rows(tree)
        again, log2 = trees(tree, UUCB(), how)
        assert [(e.point, e.stale) for e in log2] == [(e.point, e.stale) for e in log]
        assert rows(tree) == before
        assert [g.values() for g in again] == [g.values() for g in groups]


def test_a_stale_run_that_was_interrupted_ends_in_the_same_tree():
    calls = 0

    def stop(stage, done, total, *, tokens=None, waiting=None):
        nonlocal calls
        calls += 1
        if calls == 15:
            raise KeyboardInterrupt

    how = Speculation(staleness=2, keep=1.0)
    with Tree.memory() as broken, Tree.memory() as whole:
        with pytest.raises(KeyboardInterrupt):
            trees(broken, UUCB(), how, progress=stop)
        assert choices(trees(broken, UUCB(), how)[1]) == choices(trees(whole, UUCB(), how)[1])
        assert rows(broken) == rows(whole)


def test_stale_runs_need_fewer_batches():
    def batches(how):
        calls = 0

        class Counted:
            card, encode, decode, render = POLICY.card, POLICY.encode, POLICY.decode, POLICY.render

            def sample(self, requests, settings):
                nonlocal calls
                calls += 1
                return POLICY.sample(requests, settings)

        with Tree.memory() as tree:
            grow_trees(
                tree, Counted(), WORLD, WORLD.tasks("train", 1), selector=UUCB(), leaves=9, settings=LAW,
                speculation=how,
            )  # fmt: skip
        return calls

    assert batches(Speculation(4)) < 0.8 * batches(None)


def test_refused_speculation():
    for bad in ({"staleness": -1}, {"keep": 1.5}):
        with pytest.raises(BadInput):
            Speculation(**bad)
    with Tree.memory() as tree, pytest.raises(BadInput, match="cannot be combined"):
        trees(tree, UUCB(), Speculation(), allocator=AdaptiveBudgetAllocator())


def test_the_chance_to_stay_uniform():
    assert still_uniform(4, 2, 3) == 0
    assert still_uniform(4, 0, 0) == pytest.approx(1)
    # Beta(1/2, 1/2): after one failure the next fails with probability 3/4.
    assert still_uniform(1, 0, 1) == pytest.approx(0.75)
    assert still_uniform(1, 1, 1) == pytest.approx(0.75)
    assert still_uniform(0, 0, 2) == pytest.approx(2 * 3 / 8)
    falls = [still_uniform(2, 0, m) for m in range(20)]
    assert (np.diff(falls) < 0).all()
    assert (np.diff(falls, 2) > 0).all()


def warm(task, leaves, wins):
    return WarmUp(task, leaves, wins, 0.0, 0.0, 0.0, 0.5, 0.5)


def test_leaves_go_from_mixed_groups_to_uniform_ones_under_the_cap():
    tasks = [warm("mixed", 4, 2), warm("fail", 4, 0), warm("pass", 4, 4)]
    given = allot(tasks, 16, [0.0, 0.5, 0.9])
    assert sum(given) <= 1.05 * 48
    assert given[0] == 8
    assert given[1] > 16
    assert given[1] + given[2] > 32
    assert allot([warm("a", 4, 2)] * 3, 16, [0.0] * 3) == [16] * 3
    for bad in ((tasks, 16, [0, 0, 2]), (tasks, 16, [0, 0])):
        with pytest.raises(BadInput):
            allot(*bad)
    for cap in (0.9, 1.2):
        with pytest.raises(BadInput, match="cap"):
            allot(tasks, 16, [0, 0, 0], cap=cap)
        with pytest.raises(BadInput, match="cap"):
            AdaptiveBudgetAllocator(cap=cap)


def test_the_allocator_learns_from_its_own_log_and_raises_the_mixed_share(tmp_path):
    world, policy = LockWorld(), ScriptedPolicy.from_text(_easy, name="easy")
    # Locks that this policy opens now and then: of one in 256 no group of eight leaves is ever mixed.
    tasks = [task for task in world.tasks("train", 800) if task.data["right"].count("a") >= 3][:40]
    distribution, mixed, spent = Sampling(max_tokens=32), {}, {}
    allocator = AdaptiveBudgetAllocator()
    for name, helper in (("plain", None), ("allotted", allocator)):
        found, leaves = [], 0
        for seed in range(2):
            with Tree.memory() as tree:
                groups, _ = grow_trees(
                    tree, policy, world, tasks, selector=UUCB(roots=4, at_once=4), leaves=8,
                    settings=distribution, seed=seed, allocator=helper,
                )  # fmt: skip
                found += [len(set(g.values())) > 1 for g in groups]
                leaves += sum(len(g.values()) for g in groups)
        mixed[name], spent[name] = np.mean(found), leaves
    assert spent["allotted"] <= 1.05 * spent["plain"]
    assert mixed["allotted"] > mixed["plain"]
    assert allocator.transfers
    assert len(allocator.log) == 80
    assert all(t.before == 8 != t.after for t in allocator.transfers)
    learned = allocator.predict([warm("x", 4, 0), warm("y", 4, 2)], 8)
    assert learned[1] == 0
    assert 0 < learned[0] < 1
    allocator.save(tmp_path / "log.json")
    other = AdaptiveBudgetAllocator()
    other.load(tmp_path / "log.json")
    assert (other.log, other.transfers) == (allocator.log, allocator.transfers)


def test_a_prompt_that_was_never_mixed_gives_its_leaves_to_one_that_was():
    """The warm-ups are equal; only what became of the prompts before tells them apart."""
    allocator = AdaptiveBudgetAllocator(cap=1.0)
    now = [replace(warm("hopeless", 4, 0), past_mixed=0.0), replace(warm("hard", 4, 0), past_mixed=0.9)]
    assert not allocator.learned
    assert allot(now, 16, allocator.predict(now, 16), cap=1.0) == [16, 16]
    for i in range(120):
        good = i % 2 == 0
        row = replace(now[int(good)], past_mixed=0.9 * good)
        # One in ten ended otherwise than its kind: the classes are not separable.
        allocator.log.append(replace(row, uniform=good if i % 20 < 2 else not good))
    assert allocator.learned
    chance = allocator.predict(now, 16)
    assert chance[0] > 0.8
    assert chance[1] < 0.2
    given = allot(now, 16, chance, cap=1.0)
    assert sum(given) == 32
    assert given[0] < given[1]


def _easy(text):
    return (
        {"a": 0.7, "b": 0.1, "c": 0.1, "d": 0.1}
        if len(lock_distribution(text)) == 4
        else lock_distribution(text)
    )


def test_the_allocator_moves_leaves_not_tokens():
    with Tree.memory() as tree, pytest.raises(BadInput, match="budget is in tokens"):
        trees(tree, UUCB(), tokens=400, allocator=AdaptiveBudgetAllocator())
