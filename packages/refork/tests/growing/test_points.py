from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput
from refork.forking import Remove, fork
from refork.growing import EVERY, UUCB, candidates, grow, grow_trees, plant
from refork.growing.report import groups_from_tree
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from support.worlds import TwoTurns

WORLD = TwoTurns()
POLICY = ScriptedPolicy.from_chain(
    {"": {" a": 0.6, " b": 0.4}, " a": {"": 1.0}, " b": {" c": 0.5, "": 0.5}, " c": {"": 1.0}}
)
LAW = Sampling(max_tokens=8, entropy_top_k=999)


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def drawn(tree, draws=40, world=WORLD):
    return grow(tree, POLICY, world, world.tasks("train", 1), draws=draws, settings=LAW)[0].forks[0].leaves()


def test_equal_prefixes_are_one_point(tree):
    trajectories = drawn(tree)
    known = candidates(tree, trajectories)
    first = ["".join(s.text for s in w.steps[1:2]) for w in trajectories]
    at_second_turn = [i for i in range(len(known)) if known.token[i] < 0 and known.depth[i] > known.depth[0]]
    assert len(at_second_turn) == len(set(first))
    assert sorted(known.leaves[at_second_turn]) == sorted(first.count(text) for text in set(first))
    assert known.children[at_second_turn].sum() == len(trajectories)
    assert known.drawn == len(trajectories)


def test_counts_entropies_and_unseen_tokens_are_exact(tree):
    known = candidates(tree, drawn(tree))
    coin = -0.6 * np.log(0.6) - 0.4 * np.log(0.4)
    turns = known.token < 0
    assert known.entropy[turns] == pytest.approx(np.full(turns.sum(), coin), abs=1e-6)
    assert known.entropy[~turns] == pytest.approx(np.full((~turns).sum(), np.log(2)), abs=1e-6)
    assert known.unseen[0] == pytest.approx(0, abs=1e-6)
    lone = candidates(tree, drawn(tree)[:1])
    assert lone.unseen[0] == pytest.approx(0.4, abs=0.21)
    assert lone.surprisal[0] == pytest.approx(-np.log(1 - lone.unseen[0]), abs=1e-6)


def test_certain_tokens_are_no_points_unless_every_one_is_asked_for(tree):
    trajectories = drawn(tree)
    few, all_ = candidates(tree, trajectories), candidates(tree, trajectories, inside=EVERY)
    assert len(all_) > len(few)
    assert candidates(tree, trajectories, inside=0).token.max() == -1


def test_other_states_are_other_points(tree):
    """The same words in a world whose coin fell otherwise: the state key keeps them apart."""
    trajectories = drawn(tree, 60, TwoTurns(luck=0.5))
    known = candidates(tree, trajectories, inside=0)
    states = {(w.steps[1].text, w.steps[2].node.state_key) for w in trajectories}
    assert len(known) == 1 + len(states)


def test_a_point_inside_a_turn_counts_forks_that_keep_as_much(tree):
    root = plant(tree, POLICY, WORLD, WORLD.tasks("train", 1))[0]
    base = fork(root, POLICY, 12, settings=LAW, world=WORLD)
    trajectory = next(w for w in base.leaves() if w.steps[1].text.startswith(" b"))
    more = fork(tree.at(trajectory.steps[1].node, 1), POLICY, 5, settings=LAW, world=WORLD)
    known = candidates(tree, [trajectory, *more.leaves()])
    row = next(i for i in range(len(known)) if known.token[i] == 1)
    assert (known.children[row], known.leaves[row]) == (6, 6)
    waiting = candidates(tree, [trajectory, *more.leaves()], pending={(known.node[row], 1): 2})
    assert waiting.children[row] == 8


def test_entropies_say_what_they_cover(tree):
    trajectories = drawn(tree)
    assert "999 likeliest" in candidates(tree, trajectories).note
    silent = [
        replace(w, steps=tuple(replace(s, node=replace(s.node, settings={})) for s in w.steps))
        for w in trajectories
    ]
    known = candidates(tree, silent)
    assert known.note is None
    with pytest.raises(BadInput, match="over how many tokens"):
        UUCB().terms(known)


class Talker:
    """A policy that takes chat messages only."""

    encode, decode, render = POLICY.encode, POLICY.decode, POLICY.render

    @property
    def card(self):
        return replace(POLICY.card, capabilities=frozenset(), tokenizer=None)

    def sample(self, requests, settings):
        for said in POLICY.sample(
            [replace(r, tokens=POLICY.encode("x")) for r in requests], settings.but(entropy_top_k=None)
        ):
            yield replace(said, logprobs=None, logprobs_t1=None)

    def logprobs(self, sequences):
        raise AssertionError


def test_policies_without_tokens_are_forked_between_turns(tree):
    groups, log = grow_trees(
        tree, Talker(), WORLD, WORLD.tasks("train", 2), selector=UUCB(entropy_coef=0, inside=0), leaves=6,
        settings=Sampling(max_tokens=8),
    )  # fmt: skip
    assert [len(g.values()) for g in groups] == [6, 6]
    assert any(not e.point.startswith(g.root.node.id) for g in groups for e in log)


def test_groups_of_a_tree(tree):
    grow_trees(tree, POLICY, WORLD, WORLD.tasks("train", 3), selector=UUCB(), leaves=7, settings=LAW)
    found = groups_from_tree(tree)
    assert [len(g.rewards) for g in found] == [7, 7, 7]
    assert all(2 <= len(g.independent) <= 7 for g in found)
    leaf = next(s.node for s in tree.scores(name="success"))
    other = Producer("another judge")
    tree.add_producer(other)
    tree.add_scores([Score(leaf, "success", 0.5, other.id)])
    assert len(groups_from_tree(tree)) == 3
    top = tree.path(leaf).root
    extra = next(n for n in tree.leaves(under=top) if n.id != leaf)
    for producer in tree.producers():
        if producer.name.startswith("world"):
            tree.retire(producer.id, "test")
    tree.add_producer(third := Producer("a third"))
    tree.add_scores([Score(extra.id, "success", 1.0, third.id)])
    with pytest.raises(BadInput, match="different producers"):
        groups_from_tree(tree)


def test_what_a_changed_fork_led_to_is_in_no_group_however_deep(tree):
    (group,) = grow(tree, POLICY, WORLD, WORLD.tasks("train", 1), draws=4, settings=LAW)
    (before,) = groups_from_tree(tree)
    turn = next(s.node for s in group.forks[0].leaves()[0] if s.node.kind == "action")
    changed = fork(tree.at(turn, 1), POLICY, 2, Remove(1), settings=LAW, world=WORLD)
    own = [s.node for leaf in changed.leaves() for s in leaf if s.node.fork == changed.record.id]
    deeper = next(node for node in own if node.kind == "action" and node.length)
    fork(tree.at(deeper, 1), POLICY, 3, settings=LAW, world=WORLD)
    assert groups_from_tree(tree) == [before]
    fork(tree.at(turn, 1), POLICY, 3, settings=LAW, world=WORLD)
    assert len(groups_from_tree(tree)[0].rewards) == 7, "a control's draws are in the group"


def test_draws_under_other_settings_are_a_group_of_their_own(tree):
    tasks = WORLD.tasks("train", 1)
    grow(tree, POLICY, WORLD, tasks, draws=4, settings=LAW)
    (before,) = groups_from_tree(tree)
    # What is recorded, or where a turn is cut, changes no distribution.
    grow(tree, POLICY, WORLD, tasks, draws=2, settings=LAW.but(entropy_top_k=None))
    assert [len(g.rewards) for g in groups_from_tree(tree)] == [6]
    grow(tree, POLICY, WORLD, tasks, draws=3, settings=LAW.but(temperature=0.5))
    first, second = groups_from_tree(tree)
    assert (len(first.rewards), len(second.rewards), len(second.independent)) == (6, 3, 3)
    assert (first.id, second.id) == (before.id, f"{before.id} (settings 2)")


@pytest.mark.parametrize("judge", [None, MatchJudge("a")])
def test_choices_go_by_the_runs_own_grades_whoever_grades_later(tree, judge):
    """Or the same call again would fork other points, and draw where all is recorded."""

    def run():
        return grow_trees(
            tree, POLICY, WORLD, WORLD.tasks("train", 2), selector=UUCB(), leaves=8, settings=LAW, judge=judge
        )  # fmt: skip

    groups, log = run()
    tree.add_producer(other := Producer("somebody else"))
    ends = [draw.leaf for group in groups for arm in group.forks for draw in arm.draws]
    before = tree.score_map("success", ends)
    tree.add_scores([Score(leaf, "success", 1.0 - value, other.id) for leaf, value in before.items()])
    again, choices = run()
    assert sum(group.tokens for group in again) == 0
    assert choices == log


def test_a_group_counts_by_its_world_whoever_graded_all_of_it_too(tree):
    groups = grow(tree, POLICY, WORLD, WORLD.tasks("train", 1), draws=4, settings=LAW)
    (before,) = groups_from_tree(tree)
    ends = [draw.leaf for arm in groups[0].forks for draw in arm.draws]
    for name in ("a", "b", "c"):
        by = tree.add_producer(Producer(name))
        tree.add_scores([Score(leaf, "success", 0.25, by) for leaf in ends])
    assert groups_from_tree(tree) == [before]
    tree.retire(next(p.id for p in tree.producers() if p.name.startswith("world:")), "wrong")
    tree.add_scores([Score(ends[0], "success", 0.5, tree.add_producer(Producer("d")))])
    assert groups_from_tree(tree)[0].rewards == (0.25,) * 4, "of those who graded all, the newest"
