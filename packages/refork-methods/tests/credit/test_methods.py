import numpy as np
import pytest

from refork.errors import BadInput
from refork.growing import Independent, RandomNode, grow_trees
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.registry import names
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from refork_methods.credit.graph.on_tree import graph_advantages
from refork_methods.credit.methods import credit_method, group_credit, shared_mean, walk_length


def grown(selector, leaves=6):
    world = open_world("household:1")
    policy = ScriptedPolicy.from_replies(["go north", "go south", "go west", "go east", "take key"])
    with Tree.memory() as tree:
        groups, _ = grow_trees(
            tree, policy, world, world.tasks("train", 1), selector=selector, leaves=leaves,
            settings=Sampling(max_tokens=12),
        )  # fmt: skip
        return [trajectory for arm in groups[0].forks for trajectory in arm.leaves()]


@pytest.fixture(scope="module")
def forked():
    return grown(RandomNode(0, 3, 2))


@pytest.mark.parametrize("name", [name for name in names("credits") if name != "implicit"])
def test_every_method_fits_every_token_of_every_walk(forked, name):
    given = credit_method(name)(forked, [1.0, 0, 0, 1, 0, 0])
    assert [len(part) for part in given] == [walk_length(trajectory) for trajectory in forked]
    assert any(np.nan_to_num(part).any() for part in given)


def test_group_credit_is_the_group_advantage_on_every_token():
    trajectories = grown(Independent(), 3)
    given = group_credit(trajectories, [1.0, 0.0, np.nan], normalise="mean")
    assert set(given[0]) == {0.5}
    assert set(given[1]) == {-0.5}
    assert np.isnan(given[2]).all()
    # Over the deviation of 1 and 0, which is a half.
    same = [np.nan_to_num(np.unique(one)).tolist() for one in group_credit(trajectories, [1.0, 0.0, None])]
    assert same == [[1.0], [-1.0], [0.0]]


@pytest.mark.parametrize("name", ["gigpo", "hgpo", "graphgpo", "g2po"])
def test_a_name_of_graph_credit_is_its_method(forked, name):
    outcomes = [1.0, 0, 0, 1, 0, 0]
    for mine, theirs in zip(
        credit_method(name)(forked, outcomes), graph_advantages(forked, outcomes, method=name), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    other = graph_advantages(forked, outcomes, method="gigpo" if name != "gigpo" else "g2po")
    assert any((a != b).any() for a, b in zip(credit_method(name)(forked, outcomes), other, strict=True))


def test_unknown_names_and_options_are_refused(forked):
    with pytest.raises(BadInput, match="there is no credit 'ppo'"):
        credit_method("ppo")
    with pytest.raises(BadInput, match="no option 'gamma'"):
        credit_method("grpo", gamma=1)
    for taken in ("trajectories", "outcomes"):
        with pytest.raises(BadInput, match=f"no option '{taken}'") as refused:
            credit_method("grpo", **{taken: []})
        assert refused.value.hint == "options: normalise"
    with pytest.raises(BadInput, match="no option 'method'"):
        credit_method("g2po", method="grpo")
    with pytest.raises(BadInput, match="median"):
        group_credit(forked, np.zeros(6), normalise="median")
    with pytest.raises(BadInput, match="outcomes"):
        group_credit(forked, [1.0])


def test_shared_tokens_get_the_mean_of_their_walks(node, walk):
    task, said = node("t", "task", [1]), node("a", tokens=[3, 4], parent="t")
    other = node("b", tokens=[6], parent="a", keep=1)
    trajectories = [walk(task, said), walk(task, said, other, keeps=[None, 1])]
    first, second = shared_mean(trajectories, [[np.nan, 1.0, 2.0], [np.nan, -3.0, 4.0]])
    np.testing.assert_array_equal(first, [np.nan, -1.0, 2.0])
    np.testing.assert_array_equal(second, [np.nan, -1.0, 4.0])
    with pytest.raises(BadInput, match="2 advantages"):
        shared_mean(trajectories[:1], [[1.0, 2.0]])


def test_advantages_lie_where_the_tokens_do(node, walk):
    """Verdicts and what holds no tokens have none; a shared event may be kept in part."""
    shared = node("t", "task", [1]), node("n", "observation", None), node("a", tokens=[3, 4], parent="t")
    trajectories = [
        walk(*shared, node("v", "verdict", [9]), keeps=[None, None, 1]),
        walk(*shared, node("b", tokens=[6, 7], parent="a")),
        walk(node("u", "task", None)),
    ]
    assert [walk_length(one) for one in trajectories] == [2, 5, 0]
    first, second, third = shared_mean(trajectories, [[1.0, 2.0], [3.0, 4.0, 5.0, 6.0, 7.0], []])
    assert first.tolist() == [2.0, 3.0]
    assert second.tolist() == [2.0, 3.0, 5.0, 6.0, 7.0]
    assert third.tolist() == []


def test_alone_nothing_is_shared(node, walk):
    trajectories = [walk(node("t", "task", [1]), node("a", tokens=[3, 4], parent="t"))]
    for unknown in (np.nan, None):
        np.testing.assert_array_equal(shared_mean(trajectories, [[0.1, 0.2, unknown]])[0], [0.1, 0.2, np.nan])


def test_implicit_credit_adds_the_log_ratio_to_the_group_part(node, walk):
    task = node("t", "task", [1])
    shape = {"parent": "t", "ref_logprobs": np.full(2, -1.5, dtype=np.float32)}
    trajectories = [walk(task, node(name, tokens=[3, 4], **shape)) for name in "ab"]
    first, second = credit_method("implicit", coefficient=0.5, normalise="mean")(trajectories, [1.0, 0.0])
    # The policy's log-prob is -1, the reference's -1.5: a log-ratio of 0.5 per token.
    np.testing.assert_allclose(first[1:], 0.5 + 0.25)
    np.testing.assert_allclose(second[1:], -0.5 + 0.25)
    assert np.isnan(first[0])
