"""One small tree for all tests of the viewer: forks inside steps, effects, two judges, hostile texts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from refork import MatchJudge, Remove, Sampling, ScriptedPolicy, Tree, fork, plant_prompt
from refork.tree import NewNode, Producer, Score

CHAIN = {
    "": {" think": 0.5, " guess": 0.5},
    " think": {" right": 0.9, " wrong": 0.1},
    " guess": {" right": 0.2, " wrong": 0.8},
    " right": {"": 1.0},
    " wrong": {"": 1.0},
}
#: What a page must never run, turn round or choke on.
HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\u202egnp.exe\u202c "
    "\x00\x1b[31m{{7*7}} ${window.hacked = 3} </script><!-- \ufeff"
)


def policy():
    return ScriptedPolicy.from_chain(CHAIN)


def grow(file):
    """The tree's file with what tests look for in it."""
    judge, actor = MatchJudge("right"), policy()
    with Tree.open(file, "x") as tree:
        start = plant_prompt(tree, actor, "Well?")
        base = fork(start, actor, 12, settings=Sampling(max_tokens=8, entropy_top_k=4), judge=judge)
        guess = next(trajectory for trajectory in base.leaves() if " guess" in trajectory.leaf.text)
        point = tree.at(guess.leaf, 1)
        control = fork(point, actor, 24, judge=judge)
        changed = fork(point, actor, 24, Remove(1), judge=judge)
        strict = tree.add_producer(Producer("strict", "2", {"least": 2}))
        tree.add_scores([Score(guess.leaf.id, "success", 0.25, strict, reason="a lucky guess")])
        credit = tree.add_producer(Producer("credit"))
        length = guess.leaf.length
        tree.add_scores([Score(guess.leaf.id, "advantage", np.linspace(-1, 1, length), credit)])
        evil = tree.append(NewNode(kind="task", key="evil", text=HOSTILE, extra={"world": HOSTILE}))[0]
        long = NewNode(kind="action", parent=evil.id, key="long", text="x" * 1_000_000, policy=HOSTILE)
        step = tree.append(long)[0]
        broken = NewNode(kind="observation", parent=step.id, key="e", text="", error=HOSTILE, state_key="s")
        tree.append(broken)
        return SimpleNamespace(
            file=file, task=start.node.id, evil=evil.id, long=step.id, guess=guess.leaf.id,
            control=control.record.id, changed=changed.record.id,
        )  # fmt: skip
