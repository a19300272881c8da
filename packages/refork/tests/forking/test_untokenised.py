"""Forks and sweeps of logs that nobody tokenised: a local model goes on wherever a message ends."""

from __future__ import annotations

import json

import numpy as np
import pytest

from refork.errors import CannotDo
from refork.forking import EditMessage, compare, fork, sweep
from refork.forking.report import trace_report
from refork.formats import import_file, reader_for
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.renderable import renderable
from refork.tree import Tree
from refork.types import token_array
from support.tool_talks import ALL, ONE, TOOL, TWO, policy, put

SHORT = Sampling(max_tokens=4)


def log(tmp_path, messages=TWO):
    tree = Tree.memory()
    file = put(tmp_path, messages)
    import_file(tree, file, reader_for(file))
    (trajectory,) = tree.paths(tree.leaves())
    assert all(step.node.tokens is None for step in trajectory)
    return tree, trajectory


def before_turns(trajectory):
    pairs = zip(trajectory.steps, trajectory.steps[1:], strict=False)
    return [a.node for a, b in pairs if b.node.kind == "action" and a.node.kind != "action"]


@pytest.mark.parametrize("name", ["hermes", "chatml", "strict", "none"])
def test_every_message_boundary_can_be_forked(tmp_path, name):
    tree, trajectory = log(tmp_path)
    actor = policy(ALL[name])
    for number, node in enumerate(before_turns(trajectory)):
        arm = fork(tree.at(node), actor, 3, settings=SHORT)
        assert [d.end for d in arm.draws] != ["error"] * 3
        (start,) = {w.steps[-2].node for w in arm.leaves()}
        assert (start.kind, start.parent) == ("rewrite", node.id)
        assert "no token ids" in start.extra["reason"]
        # Exact: what the model was shown is the template's rendering of the conversation, tools and all.
        messages = [*TWO][: {0: 2, 1: 4, 2: 6, 3: 9}[number]]
        whole = renderable(actor.codec, [{**messages[0], "tools": [TOOL]}, *messages[1:]])
        expected = actor.render([], token_array([]), list(whole.messages)).tokens
        np.testing.assert_array_equal(start.tokens, expected)
        noted = start.extra.get("token_ids", {}).get("approximate", [])
        assert tuple(noted) == whole.approximate
    assert list(tree.verify({"tiny": actor}, redraw=True)) == []
    # The same fork again draws nothing, and stores nothing.
    size = len(tree)
    again = fork(tree.at(before_turns(trajectory)[0]), actor, 3, settings=SHORT)
    assert (again.tokens, len(tree)) == (0, size)


def test_a_change_is_compared_with_its_control(tmp_path):
    tree, trajectory = log(tmp_path, ONE)
    actor = policy(ALL["hermes"])
    point = tree.at(trajectory.steps[2].node)
    judge = MatchJudge("[a-m]")
    base = fork(point, actor, 4, settings=SHORT, judge=judge)
    other = fork(point, actor, 4, EditMessage(1, "What is gone?"), settings=SHORT, judge=judge)
    (start,) = {w.steps[-2].node for w in other.leaves()}
    text = actor.codec.raw(start.tokens)
    assert "What is gone?" in text
    # The edit does not take the agent's tools away.
    assert "Looks." in text
    assert compare(base, other).draws == 4


def test_inside_and_behind_a_turn_the_error_names_where_it_begins(tmp_path):
    tree, trajectory = log(tmp_path, ONE)
    turn = next(s.node for s in trajectory if s.node.kind == "action")
    with pytest.raises(CannotDo, match="without token ids") as refused:
        fork(tree.at(turn), policy(ALL["hermes"]), 2, settings=SHORT)
    assert trajectory.root.id[:12] in str(refused.value.hint)


@pytest.mark.parametrize("name", ["hermes", "none"])
def test_turns_of_an_untokenised_log_are_swept(tmp_path, name):
    tree, trajectory = log(tmp_path, ONE)
    actor = policy(ALL[name])
    done = sweep(tree.at(trajectory.leaf), actor, 5, every="turn", settings=SHORT, judge=MatchJudge("[a-m]"))
    assert [p.node.id for p in done.points] == [n.id for n in before_turns(trajectory)]
    assert done.count.tolist() == [5, 5]
    report = trace_report(done)
    values = [t["value"] for step in report["steps"] for t in step["tokens"]]
    assert values == [float(v) for v in done.value]
    json.dumps(report)
    with pytest.raises(CannotDo, match="--every turn") as refused:
        sweep(tree.at(trajectory.leaf), actor, 5, settings=SHORT)
    assert "every turn" in str(refused.value.hint)


def test_the_values_of_a_swept_turn_are_those_of_forks_there(tmp_path):
    """Every draw of a turn's value is a draw from its boundary: none is reused across turns."""
    tree, trajectory = log(tmp_path, ONE)
    actor = policy(ALL["hermes"])
    judge = MatchJudge("[a-m]")
    done = sweep(tree.at(trajectory.leaf), actor, 6, every="turn", settings=SHORT, judge=judge)
    assert done.sampled == done.served == 12
    for point, total in zip(done.points, done.total, strict=True):
        arms = [record for record in tree.forks() if record.node == point.node.id]
        leaves = [d.leaf for arm in arms for d in tree.draws(arm.id)]
        assert sum(tree.score_map("success", leaves).values()) == total
