"""Graph credit of paths: forks inside a step, shared beginnings, what is left out, and scores on the tree."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.tree.node import NewNode
from refork.tree.score import ForkRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import token_array
from refork_methods.credit.graph.advantages import METHODS, CreditSettings, node_values, step_advantages
from refork_methods.credit.graph.on_tree import ON_TREE, graph_advantages, graph_credit
from refork_methods.credit.graph.state_graph import StateGraph
from refork_methods.credit.graph.trajectory_steps import walk_steps
from refork_methods.train.batch import trajectories_to_batch

WORLD = Producer("world:test", "1")
MEAN = CreditSettings(norm="mean", over="trajectories")


class Builder:
    """A tree of tasks, actions of some tokens, observations with state keys, and graded verdicts."""

    def __init__(self):
        self.tree = Tree.memory()
        self.tree.add_producer(WORLD)
        self.ends = []

    def add(self, parent, kind="action", size=0, **rest):
        tokens = token_array(range(1, size + 1)) if size else None
        given = {"text": "x" * size, "tokens": tokens, "offsets": tokens} if size else {}
        if kind == "action" and size:
            given["logprobs"] = given["logprobs_t1"] = np.full(size, -1.0, dtype=np.float32)
        return self.tree.append(
            NewNode(kind=kind, parent=None if parent is None else parent.id, **given | rest)
        )[0]

    def end(self, parent, success):
        node = self.add(parent, "verdict")
        self.ends.append(node)
        if success is not None:
            self.tree.add_scores([Score(node.id, "success", float(success), WORLD.id)])
        return node

    def run(self, root, states, success, size=2):
        """Actions of ``size`` tokens, each followed by an observation of this state."""
        at = root
        for state in states:
            at = self.add(self.add(at, size=size), "observation", 1, state_key=state)
        return self.end(self.add(at, size=size), success)

    def walks(self):
        return self.tree.paths([node.id for node in self.ends])


@pytest.fixture
def merged():
    """Three runs from one task; the second passes the state that the first won from, and loses."""
    b = Builder()
    root = b.add(None, "task", 3, state_key="start")
    b.run(root, ["a", "b"], 1)
    b.run(root, ["a", "c"], 0)
    b.run(root, ["d"], 0)
    return b


@pytest.fixture
def forked():
    """An action of 4 tokens that lost; two forks after 2 of them won; one after 3 lost."""
    b = Builder()
    b.root = b.add(None, "task", 3)
    b.a = b.add(b.root, size=4)
    b.end(b.a, 0)
    b.kids = [b.add(b.a, size=2, keep=2), b.add(b.a, size=3, keep=2), b.add(b.a, size=1, keep=3)]
    for kid, won in zip(b.kids, (1, 1, 0), strict=True):
        b.end(kid, won)
    return b


@pytest.mark.parametrize("method", METHODS)
def test_whole_steps_get_what_the_arrays_say(merged, method):
    graph = StateGraph.from_arrays([0, 1, 2, 0, 1, 3, 0, 4], [3, 3, 2], [1.0, 0.0, 0.0])
    wanted = np.split(step_advantages(graph, method, ON_TREE), [3, 6])
    found = graph_advantages(merged.walks(), [1, 0, 0], method=method)
    for trajectory, row, steps in zip(merged.walks(), found, wanted, strict=True):
        spoken = [
            np.full(step.node.length, step.node.kind == "action")
            for step in trajectory
            if step.node.kind != "verdict" and step.tokens is not None
        ]
        mask = np.concatenate(spoken)
        assert np.isnan(row[~mask]).all()
        np.testing.assert_allclose(row[mask], np.repeat(steps, 2), atol=1e-12)


def test_a_fork_place_is_a_state_of_all_walks_through_it(forked):
    found = walk_steps(forked.walks(), [0, 1, 1, 0])
    graph = found.graph
    # [0:2] of the action, then: [2:3][3:4] to a loss, two forks to a win, [2:3] and a fork to a loss.
    assert np.bincount(graph.trajectories).tolist() == [3, 2, 2, 3]
    assert graph.states == 3
    values = node_values(graph, gamma=1.0)
    by_name = {graph.name(i): values[i] for i in range(len(values))}
    a = forked.a.id[:12]
    assert by_name[f"inside {a}:2"] == 0.5
    assert by_name[f"inside {a}:3"] == 0.0
    assert set(graph.togo.tolist()) == {1}


def test_tokens_before_and_after_a_fork_have_their_own_steps(forked):
    rows = graph_advantages(forked.walks(), [0, 1, 1, 0], settings=CreditSettings(norm="mean", gamma=1.0))
    assert [len(row) for row in rows] == [7, 7, 8, 7]
    prompt, shared, third, fourth = rows[0][:3], rows[0][3:5], rows[0][5], rows[0][6]
    assert np.isnan(prompt).all()
    assert shared[0] == shared[1]
    # The forks that won after two tokens gained; going on with the third token lost.
    assert (rows[1][5:] > 0).all()
    assert third < 0
    assert fourth < shared[0]
    # A shared token has one advantage, whichever walk it is learned in.
    for row in rows[1:3]:
        np.testing.assert_array_equal(row[3:5], shared)
    np.testing.assert_array_equal(rows[3][3:6], rows[0][3:6])


def test_shared_tokens_get_the_mean_over_the_walks_through_them(forked):
    trajectories, outcomes = forked.walks(), [0.0, 1.0, 1.0, 0.0]
    rows = graph_advantages(trajectories, outcomes, method="grpo", settings=MEAN)
    np.testing.assert_allclose(rows[0][3:5], 0.0, atol=1e-12)
    np.testing.assert_allclose(rows[0][5], -0.5)
    np.testing.assert_allclose(rows[1][5:], 0.5)


def test_forks_do_not_change_how_a_walk_is_discounted(forked):
    two = walk_steps(forked.walks(), [0, 1, 1, 0])
    values = node_values(two.graph)
    start = values[two.graph.nodes[0]]
    assert start == pytest.approx(0.95 * 0.5)


def test_the_order_of_walks_changes_nothing(forked):
    trajectories, outcomes = forked.walks(), [0, 1, 1, 0]
    rows = graph_advantages(trajectories, outcomes)
    order = [2, 0, 3, 1]
    again = graph_advantages([trajectories[i] for i in order], [outcomes[i] for i in order])
    for i, row in zip(order, again, strict=True):
        np.testing.assert_allclose(row, rows[i], atol=1e-12)


def test_a_child_that_keeps_nothing_begins_where_its_parent_began():
    b = Builder()
    root = b.add(None, "task", 1)
    first = b.add(root, size=3)
    b.end(first, 0)
    b.end(b.add(first, size=2, keep=0), 1)
    found = walk_steps(b.walks(), [0, 1])
    assert found.graph.states == 1
    assert np.bincount(found.graph.trajectories).tolist() == [1, 1]
    rows = graph_advantages(b.walks(), [0, 1], settings=MEAN)
    assert [row[1] < 0 for row in rows] == [True, False]


def test_a_turn_said_in_two_pieces_is_one_step_where_nothing_parts():
    b = Builder()
    root = b.add(None, "task", 1)
    b.end(b.add(b.add(root, size=2), size=2), 1)
    b.end(b.add(root, size=2), 0)
    found = walk_steps(b.walks(), [1, 0])
    assert len(found.graph) == 2
    rows = graph_advantages(b.walks(), [1, 0], method="grpo", settings=MEAN)
    np.testing.assert_allclose(rows[0][1:], 0.5)


def test_a_turn_that_stops_where_another_goes_on_parts_there():
    b = Builder()
    root = b.add(None, "task", 1)
    first = b.add(root, size=2)
    b.end(first, 0)
    b.end(b.add(first, size=2), 1)
    found = walk_steps(b.walks(), [0, 1])
    assert np.bincount(found.graph.trajectories).tolist() == [1, 2]


def test_a_rewritten_context_is_the_same_state_and_turn():
    b = Builder()
    root = b.add(None, "task", 1)
    whole = b.add(root, size=4)
    b.end(whole, 0)
    rewrite = b.add(whole, "rewrite", 2, keep=2)
    b.end(b.add(rewrite, size=3), 1)
    found = walk_steps(b.walks(), [0, 1])
    assert np.bincount(found.graph.trajectories).tolist() == [2, 2]
    assert set(found.graph.togo.tolist()) == {1}
    rows = graph_advantages(b.walks(), [0, 1], settings=MEAN)
    assert np.isnan(rows[1][3:5]).all()
    assert rows[0][3] < 0 < rows[1][5]


def test_ungraded_walks_get_nothing_and_count_for_nothing(merged):
    trajectories = merged.walks()
    rows = graph_advantages(trajectories, [1, 0, np.nan])
    two = graph_advantages(trajectories[:2], [1, 0])
    assert np.isnan(rows[2]).all()
    for row, other in zip(rows, two, strict=False):
        np.testing.assert_allclose(row, other)
    assert all(np.isnan(row).all() for row in graph_advantages(trajectories, [np.nan] * 3))
    assert graph_advantages([], []) == []


def test_tasks_are_groups_of_their_own(merged):
    alone = graph_advantages(merged.walks(), [1, 0, 0])
    other = merged.add(None, "task", 3, key="other", state_key="start")
    merged.run(other, ["a"], 1)
    merged.run(other, ["b"], 0)
    both = graph_advantages(merged.walks(), [1, 0, 0, 1, 0])
    for row, wanted in zip(both, alone, strict=False):
        np.testing.assert_allclose(row, wanted, atol=1e-12)


def test_anchors_of_observations():
    b = Builder()
    root = b.add(None, "task", 1)
    for when, key, won in (("12:01", "k", 1), ("12:02", "k", 0), ("12:01", None, 0)):
        shown = b.add(b.add(root, size=1), "observation", text=f"at {when} a red door", state_key=key)
        b.end(b.add(shown, size=1), won)
    states = {}
    for anchor in ("state", "tree", "exact", "normalised", lambda text: text[:2]):
        states[str(anchor)[:9]] = walk_steps(b.walks(), [1, 0, 0], anchor=anchor).graph.states - 1
    assert list(states.values()) == [2, 3, 2, 1, 1]
    assert walk_steps(b.walks(), [1, 0, 0], anchor="exact", fuzzy=0.6).graph.states == 2
    assert walk_steps(b.walks(), [1, 0, 0], anchor="exact", history=2).graph.states == 3
    with pytest.raises(BadInput, match="unknown anchor"):
        graph_advantages(b.walks(), [1, 0, 0], anchor="colour")
    with pytest.raises(BadInput, match="reads no text"):
        graph_advantages(b.walks(), [1, 0, 0], fuzzy=0.9)
    with pytest.raises(BadInput, match="history"):
        graph_advantages(b.walks(), [1, 0, 0], history=0)


@pytest.mark.parametrize(("outcomes", "words"), [([1.0], "but 1 outcomes"), ([1.0, 0.0, np.inf], "infinite")])
def test_bad_outcomes_are_refused(merged, outcomes, words):
    with pytest.raises(BadInput, match=words):
        graph_advantages(merged.walks(), outcomes)


def test_a_trainer_takes_them(merged, forked):
    for b, outcomes in ((merged, [1, 0, 0]), (forked, [0, 1, 1, 0])):
        batch = trajectories_to_batch(b.walks(), graph_advantages(b.walks(), outcomes))
        drawn = sum(n.length for n in b.tree.walk() if n.kind == "action")
        assert int(batch.mask.sum()) == drawn


def test_scores_of_a_tree(forked):
    credit = graph_credit(forked.tree)
    assert credit.outcomes.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert credit.producer.reads == (WORLD.id,)
    assert credit.write(forked.tree) == 4
    assert credit.write(forked.tree) == 0
    stored = {s.node: s.value for s in forked.tree.scores(name="advantage")}
    np.testing.assert_array_equal(stored[forked.a.id], credit.advantages[0][3:7])
    forked.tree.retire(WORLD.id, "wrong judge")
    assert not list(forked.tree.scores(name="advantage"))


def test_settings_make_another_producer(forked):
    ids = {
        graph_credit(forked.tree, method=m, settings=s).producer.id for m in METHODS for s in (ON_TREE, MEAN)
    }
    assert len(ids) == 10


def test_changed_arms_and_ungraded_tasks_are_left_out(forked):
    other = forked.add(None, "task", 1, key="ungraded")
    forked.end(forked.add(other, size=1), None)
    arm = forked.tree.begin_fork(
        ForkRecord("swap", forked.a.id, None, {"kind": "ban"}, {}, {}, None, 0, 0, {})
    )
    changed = forked.add(forked.a, size=1, fork=arm.id)
    forked.end(changed, 1)
    credit = graph_credit(forked.tree)
    assert len(credit.trajectories) == 4
    with pytest.raises(BadInput, match="no rollout below"):
        graph_credit(forked.tree, [other])
    with pytest.raises(BadInput, match="'quality' score"):
        graph_credit(forked.tree, score="quality")


def test_rollouts_under_other_settings_are_a_graph_of_their_own(merged):
    before = graph_credit(merged.tree)
    root = merged.walks()[0].root
    at = root
    for state in ("a", "b"):
        turn = merged.add(at, size=2, settings=Sampling(temperature=0.5).to_json(), key=f"cold {state}")
        at = merged.add(turn, "observation", 1, state_key=state)
    merged.end(merged.add(at, size=2, settings=Sampling(temperature=0.5).to_json(), key="cold"), 1)
    after = graph_credit(merged.tree)
    assert len(np.unique(after.graph.groups)) == 2
    for old, new in zip(before.advantages, after.advantages[:3], strict=True):
        np.testing.assert_array_equal(old, new)
    # Alone in its group, it is told from nobody: no part of its advantage is another setting's.
    alone = after.advantages[3][np.isfinite(after.advantages[3])]
    own = graph_advantages(merged.walks()[3:], [1.0])[0]
    np.testing.assert_array_equal(alone, own[np.isfinite(own)])


def test_turns_without_token_ids_get_one_number():
    b = Builder()
    root = b.add(None, "task", text="Go.")
    for word, won in (("left", 1), ("right", 0)):
        b.end(b.add(root, text=word), won)
    credit = graph_credit(b.tree, settings=MEAN)
    values = [score.value for score in credit.scores]
    assert values[0] == -values[1] > 0
    assert all(isinstance(value, float) for value in values)


def test_a_failed_run_leaves_the_tree_as_it_was(forked):
    before = len(list(forked.tree.records()))
    with pytest.raises(BadInput):
        graph_credit(forked.tree, method="ppo")
    assert len(list(forked.tree.records())) == before
