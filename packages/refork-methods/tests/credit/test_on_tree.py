import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode
from refork.tree.score import ForkRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import token_array
from refork_methods.credit.on_tree import stretches, tree_credit, tree_credits
from refork_methods.train.batch import trajectories_to_batch

NAN = float("nan")
WORLD = Producer("world:test", "1")


class Builder:
    """A tree of a task, actions with log-probs, and graded verdicts."""

    def __init__(self):
        self.tree = Tree.memory()
        self.tree.add_producer(WORLD)
        self.root = self.add(None, "task", 3)

    def add(self, parent, kind="action", size=0, **rest):
        tokens = token_array(range(1, size + 1)) if size else None
        given = {"text": "x" * size, "tokens": tokens, "offsets": tokens} if size else {}
        if kind == "action":
            given["logprobs"] = given["logprobs_t1"] = np.full(size, -1.0, dtype=np.float32)
        return self.tree.append(
            NewNode(kind=kind, parent=None if parent is None else parent.id, **given | rest)
        )[0]

    def verdict(self, parent, success, **rest):
        node = self.add(parent, "verdict", **rest)
        if success is not None:
            self.tree.add_scores([Score(node.id, "success", float(success), WORLD.id)])
        return node

    def arm(self, node, name, change=None, **extra):
        record = ForkRecord(name, node.id, None, change, {}, {}, None, 0, 0, extra)
        return self.tree.begin_fork(record).id


@pytest.fixture
def forked():
    """One action of 4 tokens that failed; two forks after 2 of them succeeded; one fork after 3 failed."""
    b = Builder()
    b.a = b.add(b.root, size=4)
    b.end = b.verdict(b.a, 0)
    b.kids = [b.add(b.a, size=2, keep=2), b.add(b.a, size=3, keep=2), b.add(b.a, size=1, keep=3)]
    b.ends = [b.verdict(kid, won) for kid, won in zip(b.kids, (1, 1, 0), strict=True)]
    return b


def credit_of(b, found):
    return {score.node: score.value for score in found.scores}


def test_a_token_counts_all_leaves_that_branch_at_or_after_it(forked):
    b = forked
    found = tree_credit(b.tree, b.root)
    assert found.value == 0.5
    given = credit_of(b, found)
    # After 1 and 2 tokens all four leaves lie below (0.5); after 3 the two failures; after 4 one.
    np.testing.assert_array_equal(given[b.a.id], [0, 0, -0.5, 0])
    np.testing.assert_array_equal(given[b.kids[0].id], [0.5, 0])
    np.testing.assert_array_equal(given[b.kids[1].id], [0.5, 0, 0])
    np.testing.assert_array_equal(given[b.kids[2].id], [0])
    assert given[b.end.id] == 0.0
    assert b.root.id not in given


def test_advantages_are_shared_by_a_stretch_and_fit_the_trainer(forked):
    b = forked
    found = tree_credit(b.tree, b.root)
    assert [trajectory.leaf.id for trajectory in found.trajectories] == [
        b.end.id,
        *(e.id for e in b.ends),
    ] or len(found.trajectories) == 4
    by_leaf = {w.leaf.id: a for w, a in zip(found.trajectories, found.advantages, strict=True)}
    task = [NAN] * 3
    np.testing.assert_array_equal(by_leaf[b.end.id], [*task, 0, 0, -0.5, 0])
    np.testing.assert_array_equal(by_leaf[b.ends[0].id], [*task, 0, 0, 0.5, 0.5])
    np.testing.assert_array_equal(by_leaf[b.ends[2].id], [*task, 0, 0, -0.5, 0])
    batch = trajectories_to_batch(found.trajectories, found.advantages)
    # Each of the 4 + 2 + 3 + 1 sampled tokens is learned once.
    assert int(batch.mask.sum()) == 10


def test_sibling_baseline(forked):
    b = forked
    found = tree_credit(b.tree, b.root, baseline="siblings")
    by_leaf = {w.leaf.id: a for w, a in zip(found.trajectories, found.advantages, strict=True)}
    # After two tokens: the node's own rest is worth 0, the forks 1 and 1.
    np.testing.assert_array_equal(by_leaf[b.end.id][3:], [NAN, NAN, -1, 0])
    np.testing.assert_array_equal(by_leaf[b.ends[0].id][5:], [0.5, 0.5])
    batch = trajectories_to_batch(found.trajectories, found.advantages)
    # Tokens without a sibling to compare with are not learned.
    assert int(batch.mask.sum()) == 8


def test_the_children_estimator(forked):
    b = forked
    # After 3 tokens: (0 + 0) / 2; after 2: (0 + 1 + 1) / 3.
    found = tree_credit(b.tree, b.root, estimator="children")
    assert found.value == pytest.approx(2 / 3)
    np.testing.assert_allclose(credit_of(b, found)[b.a.id], [0, 0, -2 / 3, 0])


def test_credit_telescopes_along_every_walk(forked):
    found = tree_credit(forked.tree, forked.root)
    given = credit_of(forked, found)
    for trajectory, outcome in zip(found.trajectories, found.outcomes, strict=True):
        total = sum(np.sum(np.atleast_1d(given.get(s.node.id, 0.0))[: s.keep]) for s in trajectory)
        assert total == outcome - found.value


def test_scores_are_written_once_and_go_when_their_source_is_retired(forked):
    b = forked
    found = tree_credit(b.tree, b.root)
    assert found.producer.reads == (WORLD.id,)
    assert found.write(b.tree) == len(found.scores)
    assert found.write(b.tree) == 0
    assert len(list(b.tree.scores(name="credit"))) == len(found.scores)
    lost = b.tree.retire(WORLD.id, "wrong judge")
    assert lost.scores["credit"] == len(found.scores)
    assert list(b.tree.scores(name="credit")) == []


def test_more_draws_are_another_version(forked):
    b = forked
    first = tree_credit(b.tree, b.root)
    first.write(b.tree)
    b.verdict(b.add(b.root, size=2), 1)
    second = tree_credit(b.tree, b.root)
    assert second.producer.id != first.producer.id
    assert second.value == 0.6
    assert second.write(b.tree) > 0


def test_ungraded_leaves_are_unknown_not_zero():
    b = Builder()
    known = b.add(b.root, size=2)
    unknown = b.add(b.root, size=2)
    b.verdict(known, 1)
    b.verdict(unknown, None)
    found = tree_credit(b.tree, b.root)
    assert found.value == 1.0
    assert len(found.trajectories) == 1
    assert set(credit_of(b, found)) == {known.id, found.trajectories[0].leaf.id}
    empty = Builder()
    empty.verdict(empty.add(empty.root, size=2), None)
    with pytest.raises(BadInput, match="no rollout"):
        tree_credit(empty.tree, empty.root)


def test_a_child_that_keeps_nothing_begins_where_its_parent_began():
    b = Builder()
    first = b.add(b.root, size=2)
    other = b.add(first, size=2, keep=0)
    b.verdict(first, 1)
    b.verdict(other, 0)
    found = tree_credit(b.tree, b.root)
    given = credit_of(b, found)
    np.testing.assert_array_equal(given[first.id], [0.5, 0])
    np.testing.assert_array_equal(given[other.id], [-0.5, 0])


def test_changed_edited_and_conditional_draws_do_not_count():
    b = Builder()
    plain = b.arm(b.root, "plain")
    changed = b.arm(b.root, "changed", {"kind": "ban"})
    swept = b.arm(b.root, "swept", exclude_first=1)

    def rollout(arm, draw, won, parent=None):
        key = NoiseKey(0, 0, draw)
        node = b.add(parent or b.root, size=2, fork=arm, noise=key, key=f"{arm}/{draw}/a")
        return node, b.verdict(node, won, fork=arm, key=f"{arm}/{draw}/v")

    good, _ = rollout(plain, 0, 1)
    rollout(plain, 1, 0)
    rollout(changed, 0, 1)
    rollout(swept, 0, 1)
    edit = b.add(b.root, size=1, key="edit/1", extra={"edit": "insert"}, logprobs=None, logprobs_t1=None)
    rollout(plain, 2, 1, parent=edit)
    found = tree_credit(b.tree, b.root)
    assert len(found.trajectories) == 2
    assert found.value == 0.5
    only = tree_credit(b.tree, b.root, forks={changed})
    assert (len(only.trajectories), only.value) == (1, 1.0)
    assert good.id in {s.node for s in found.scores}


def test_an_inner_node_with_a_score_is_no_leaf():
    b = Builder()
    node = b.add(b.root, size=2)
    b.tree.add_scores([Score(node.id, "success", 0.0, WORLD.id)])
    assert tree_credit(b.tree, b.root).value == 0.0
    # A fork in its middle leaves its end a leaf; one at its end does not.
    b.tree.add_scores([Score(b.add(node, size=1, keep=1).id, "success", 1.0, WORLD.id)])
    assert tree_credit(b.tree, b.root).value == 0.5
    b.verdict(node, 1)
    assert tree_credit(b.tree, b.root).value == 1.0


def test_stretches_of_a_plain_chain():
    b = Builder()
    a = b.add(b.root, size=2)
    cut = stretches([b.root, a, b.verdict(a, 1)])
    assert cut.parents.tolist() == [-1, 0, 1]
    assert cut.ends.tolist() == [3, 2, 0]
    assert cut.per_token(1, np.array([7.0, 8.0, 9.0])).tolist() == [8, 8]


def test_refusals(forked):
    with pytest.raises(BadInput, match="median"):
        tree_credit(forked.tree, forked.root, baseline="median")
    with pytest.raises(BadInput, match="no rollout"):
        tree_credit(forked.tree, forked.root, score="style")


def test_rollouts_under_other_settings_are_a_group_of_their_own():
    """Also where they begin inside a rollout of the first settings: neither says what the other is worth."""
    b = Builder()
    hot, cold = (Sampling(temperature=t).to_json() for t in (1.0, 0.5))
    a = b.add(b.root, size=4, settings=hot)
    b.verdict(a, 0)
    alone = tree_credits(b.tree, b.root)
    other = b.add(b.root, size=2, settings=hot | {"max_tokens": 9}, key="other")
    b.verdict(other, 1)
    before = tree_credit(b.tree, b.root)
    kids = [b.add(a, size=2, keep=2, settings=cold, key=name) for name in ("one", "two")]
    for kid, won in zip(kids, (1, 0), strict=True):
        b.verdict(kid, won)
    first, second = tree_credits(b.tree, b.root)
    assert (len(alone), len(alone[0].trajectories)) == (1, 1)
    assert (first.outcomes.tolist(), second.outcomes.tolist()) == ([0.0, 1.0], [1.0, 0.0])
    assert credit_of(b, first).keys() == credit_of(b, before).keys()
    for node, value in credit_of(b, first).items():
        np.testing.assert_array_equal(value, credit_of(b, before)[node])
    assert first.producer == before.producer != second.producer
    np.testing.assert_array_equal(np.concatenate(first.advantages), np.concatenate(before.advantages))
    given = credit_of(b, second)
    assert a.id not in given, "its rest is no rollout of theirs, so its credit there is not known throughout"
    np.testing.assert_array_equal([given[kid.id] for kid in kids], [[0.5, 0], [-0.5, 0]])
    assert first.write(b.tree) + second.write(b.tree) == len(first.scores) + len(second.scores)
    with pytest.raises(BadInput, match="2 sampling settings") as refused:
        tree_credit(b.tree, b.root)
    assert "tree_credits" in str(refused.value)


def test_outcomes_are_the_worlds_and_only_who_gave_them_is_read(forked):
    before = tree_credit(forked.tree, forked.root)
    forked.tree.add_producer(other := Producer("somebody else"))
    forked.tree.add_scores([Score(end.id, "success", 0.5, other.id) for end in forked.ends])
    after = tree_credit(forked.tree, forked.root)
    assert after.producer == before.producer
    assert after.outcomes.tolist() == before.outcomes.tolist()
    forked.tree.retire(WORLD.id, "wrong")
    assert tree_credit(forked.tree, forked.root).outcomes.tolist() == [0.5, 0.5, 0.5]
    assert tree_credit(forked.tree, forked.root).producer.reads == (other.id,)


def test_a_random_tree_equals_a_count_over_prefixes():
    """Values by brute force: of every token prefix, the mean outcome of all paths that begin with it."""
    rng = np.random.default_rng(5)
    b = Builder()
    actions = [b.add(b.root, size=int(rng.integers(1, 5))) for _ in range(3)]
    for _ in range(12):
        above = actions[int(rng.integers(len(actions)))]
        keep = int(rng.integers(1, above.length + 1))
        actions.append(
            b.add(above, size=int(rng.integers(1, 5)), keep=None if keep == above.length else keep)
        )
    for node in actions:
        b.verdict(node, rng.integers(2))
    found = tree_credit(b.tree, b.root)
    given = credit_of(b, found)
    paths = [
        [(s.node.id, t) for s in w for t in range(len(s.tokens if s.tokens is not None else ()))]
        for w in found.trajectories
    ]

    def value(prefix):
        mine = [o for p, o in zip(paths, found.outcomes, strict=True) if p[: len(prefix)] == prefix]
        return sum(mine) / len(mine)

    for path in paths:
        for end in range(4, len(path) + 1):
            node, token = path[end - 1]
            expected = value(path[:end]) - value(path[: end - 1])
            assert given[node][token] == pytest.approx(expected, abs=1e-12)
