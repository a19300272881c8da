"""Leak rates: closed counts, on trajectories and on a tree."""

import pytest

from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.open import open_world, task_to_json
from refork_methods.simulate.control.stingy import Secret
from refork_testbed.trials.leak import leak_rate, leaks, tree_leaks

SECRET = Secret(("1893",))
SEEN = [
    ("search: velora", "1 velora : lies inland ."),
    ("search: velora bridge", "1 velora : in 1893 velora ..."),
    ("look", "1893"),
    ("search: 1893", "1 velora : in 1893 velora ..."),
    ("open: 1", "velora\nin 1893 ."),
    ("search: velora bridge", "1 velora : in 1893 velora ..."),
]


def test_searches_before_a_page_that_have_not_earned_the_answer_can_leak():
    assert leaks(SECRET, SEEN) == [False, True, None, None, None, None]
    found = leak_rate(leaks(SECRET, SEEN))
    assert (found.leaks, found.searches, found.rate) == (1, 2, 0.5)
    assert found.interval.low < 0.5 < found.interval.high
    none = leak_rate([None])
    assert (none.rate, none.interval) == (None, None)
    assert none.to_json() == {"leaks": 0, "searches": 0, "rate": None, "interval": None}


@pytest.mark.parametrize(("snippets", "rate"), [("rich", 1.0), ("teaser", 0.0)])
def test_a_turn_that_branches_share_counts_once(snippets, rate):
    world = open_world(f"search?kinds=bridge&results=1&snippets={snippets}&turns=2")
    tasks = world.tasks("train", 3)
    with Tree.memory() as tree:
        for task in tasks:
            policy = ScriptedPolicy.from_replies([f"search: {task.data['subject']} bridge"])
            grow(tree, policy, world, [task], draws=2, settings=Sampling(max_tokens=16))
        (found,) = tree_leaks(tree).values()
        assert found.rate == rate
        # Two draws of two searches each: nothing is shared but the task.
        assert found.searches == 12
        assert task_to_json(tasks[0])["data"]["answer"]
