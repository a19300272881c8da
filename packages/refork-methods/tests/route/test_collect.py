from __future__ import annotations

import numpy as np
import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput, CannotDo, ServerError
from refork.growing.rollouts import grow
from refork.policies.base import PolicyCard, Sampling
from refork.policies.open import open_policy
from refork.tree import NewNode, Tree
from refork_methods.route.collect import (
    SwapPoint,
    label_by_fork,
    recorded_runs,
    swap_effects,
    swap_points,
)
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_methods.route.runs import label_alone, record_runs, speaker, turns_of
from refork_testbed.worlds.specialists import (
    ALONE,
    HARNESS,
    SpecialistsWorld,
    domain_of,
    specialist,
    success_of,
    turn_right,
)

LAW = Sampling(max_tokens=4)
WORLD, SINGLE = SpecialistsWorld(), SpecialistsWorld(alone=True)
POOL = WorkerPool(tuple(Worker(f"w{i}", specialist(i), price=Price(1e6, 2e6, 1)) for i in range(4)))
DRAWS = 4


def recorded(tasks=3, pool=POOL, draws=1):
    tree = Tree.memory()
    record_runs(tree, pool, WORLD, WORLD.tasks("train", tasks), draws=draws, settings=LAW)
    return tree


def by_domain(table):
    means, _ = table.means()
    where = np.array([domain_of(text) for text in table.texts])
    return np.array([means[where == d].mean(axis=0) for d in range(4)]).T, np.bincount(where, minlength=4)


@pytest.fixture(scope="module")
def labelled():
    tree = recorded(40)
    return tree, label_by_fork(tree, POOL, draws=DRAWS, score=turn_right)


def test_labels_by_fork_are_the_in_harness_skills_and_standalone_labels_are_not(labelled):
    forked, turns = by_domain(labelled[1].table)
    alone, tasks = by_domain(label_alone(Tree.memory(), POOL, SINGLE, SINGLE.tasks("train", 120), draws=DRAWS,
                                         settings=LAW).table)  # fmt: skip
    # 32 cells, each a share of at least 80 independent draws held against its planted chance at 5 SE: by
    # the normal approximation one of them leaves its band by chance less than once in 10,000 seeds.
    for found, planted, cases in ((forked, HARNESS, turns), (alone, ALONE, tasks)):
        assert DRAWS * cases.min() >= 80
        assert (np.abs(found - planted) < 5 * np.sqrt(planted * (1 - planted) / (DRAWS * cases))).all()
    # So a router taught by the fork earns the oracle's 0.729 and one taught standalone 0.3075.
    assert success_of(forked.argmax(axis=0).tolist()) == pytest.approx(0.729)
    assert success_of(alone.argmax(axis=0).tolist()) == pytest.approx(0.675**3)


def test_a_swap_s_effect_has_its_interval_and_the_right_sign():
    tree = Tree.memory()
    tasks = [task for task in WORLD.tasks("train", 130) if task.data["questions"][0][1] == "law"][:21]
    grow(tree, specialist(3), WORLD, tasks, draws=1, settings=LAW)
    found = label_by_fork(tree, POOL, turns=[0], draws=3, score=turn_right)
    effects = {(e.recorded, e.worker): e for e in found.effects}
    better = effects["w3", "w0"]  # 0.4 -> 0.9 in the harness, though w3 is the lawyer alone
    # 63 pairs of a difference with mean 0.5 and variance at most 0.25: 4 SE fail once in 16,000 seeds.
    assert abs(better.mean - 0.5) < 4 * np.sqrt(0.25 / 63)
    assert 0 < better.effect.low < better.mean < better.effect.high
    assert better.points == better.tasks == len(tasks) == 21
    assert better.to_json()["effect"]["low"] == better.effect.low
    # w2 and w3 have one skill in distribution and share their noise: paired, no draw differs.
    same = effects["w3", "w2"]
    assert (same.mean, same.effect.estimate) == (0.0, 0.0)
    assert same.effect.low < 0 < same.effect.high


def test_rows_carry_the_price_of_the_swapped_turn_and_a_text(labelled):
    table = labelled[1].table
    assert len(table) == 40 * 3 * 4 * DRAWS
    assert len(labelled[1].points) == len(table.queries) == 40 * 3
    row = next(table.rows())
    assert row.text.startswith("user: harness")
    assert row.latency is None  # scripted workers tell no seconds
    used = labelled[0].nodes([labelled[1].points[0].point.node.id])
    assert used
    assert row.cost > 1
    table.check_fit()


def test_labels_are_not_labelled_again_and_nothing_is_drawn_twice(labelled):
    tree, before = labelled
    nodes = len(tree)
    again = label_by_fork(tree, POOL, draws=DRAWS, score=turn_right)
    assert len(tree) == nodes
    assert list(again.table.rows()) == list(before.table.rows())
    assert len(recorded_runs(tree)) == 40


def test_an_interrupted_collection_goes_on_where_it_stopped():
    whole = label_by_fork(recorded(), POOL, draws=2)
    tree, told = recorded(), []

    def impatient(stage, done, total, **rest):
        told.append((done, total))
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_by_fork(tree, POOL, draws=2, progress=impatient)
    stopped = len(tree)
    finished = label_by_fork(tree, POOL, draws=2, progress=lambda *a, **k: told.append(a[1:]))
    assert stopped < len(tree)
    assert list(finished.table.rows()) == list(whole.table.rows())
    assert told[-1] == (72, 72)
    assert all(0 <= done <= total for done, total in told)


def test_only_the_worker_is_swapped_and_the_recorded_ones_follow():
    tree = recorded(1)
    (run,) = recorded_runs(tree)
    names = [speaker(nodes[0], POOL) for nodes in turns_of(run)]
    label_by_fork(tree, POOL, turns=[1], draws=1)
    said = {}
    for record in tree.forks():
        if record.change is not None:
            (trajectory,) = tree.paths([d.leaf for d in tree.draws(record.id)])
            heard = [speaker(nodes[0], POOL) for nodes in turns_of(trajectory)]
            said[heard[1]] = heard
    assert said == {name: [names[0], name, names[2]] for name in POOL.names}
    (point,) = swap_points(tree, POOL, [run], turns=[1], rest="swapped")
    assert (point.worker, point.rest, point.turn) == (names[1], (), 1)


def test_every_turn_redraws_under_the_one_who_is_recorded_as_its_speaker():
    tree = recorded(2)
    label_by_fork(tree, POOL, turns=[1], draws=2)
    policies = {f"scripted:specialist@{i}": specialist(i) for i in range(4)}
    assert list(tree.verify(policies, redraw=True)) == []
    swapped = policies | {"scripted:specialist@0": specialist(1)}
    assert list(tree.verify(swapped, redraw=True))  # so something was checked


def test_an_opted_out_worker_is_never_called_not_even_after_the_swap():
    tree = recorded(2)
    (gone,) = {speaker(recorded_turn, POOL) for recorded_turn in [turns_of(recorded_runs(tree)[0])[2][0]]}
    some = POOL.without(gone)
    with pytest.raises(BadInput, match="follows in this run and has opted out"):
        label_by_fork(tree, some, draws=1)
    found = label_by_fork(tree, some, draws=1, rest="swapped")
    assert gone not in found.table.workers
    forks = [r.id for r in tree.forks() if r.change is not None]
    trajectories = tree.paths([d.leaf for fork in forks for d in tree.draws(fork)])
    later = {
        n.extra.get("worker") for w in trajectories for turn in turns_of(w) for n in turn if n.fork in forks
    }
    assert later == set(some.open)


class Down:
    """A policy whose server never answers."""

    def __init__(self):
        card = specialist(0).card
        self.card = PolicyCard("down", "remote", None, card.tokenizer, card.vocabulary, card.capabilities)
        self.render = specialist(0).render

    def sample(self, requests, settings):
        raise ServerError("nobody answers")
        yield


def test_a_worker_that_fails_is_counted_and_the_others_stand():
    tree = recorded(2)
    pool = WorkerPool((*POOL.workers, Worker("down", Down())))
    found = label_by_fork(tree, pool, turns=[2], draws=2)
    assert [(f.worker, f.reason) for f in found.failures] == [("down", "nobody answers")] * 4
    assert len(found.table) == 2 * 4 * 2
    assert {e.worker for e in found.effects} <= set(POOL.names)
    alone = label_alone(tree, pool, SINGLE, SINGLE.tasks("train", 2), draws=1, settings=LAW)
    assert [(f.worker, f.repeat) for f in alone.failures] == [("down", 0)] * 2
    assert len(alone.table) == 8
    with pytest.raises(BadInput, match="'down' has no outcome"):
        found.table.check_fit()
    both = WorkerPool((*POOL.workers, Worker("down", Down()), Worker("out", Down()))).without(*POOL.names)
    with pytest.raises(ServerError, match="nobody answers"):
        label_by_fork(tree, both, turns=[2], draws=2)
    with pytest.raises(BadInput, match="none of the 4 draws gave an outcome: nobody answers"):
        label_alone(tree, both, SINGLE, SINGLE.tasks("train", 2), draws=1, settings=LAW)


def test_what_cannot_be_labelled_is_refused():
    tree = recorded(1)
    with pytest.raises(BadInput, match="at least 1"):
        label_by_fork(tree, POOL, draws=0)
    with pytest.raises(BadInput, match="no turn to swap"):
        label_by_fork(tree, POOL, turns=[7])
    with pytest.raises(BadInput, match="no turn -1"):
        label_by_fork(tree, POOL, turns=[0, -1])
    (first,) = recorded_runs(tree)
    nameless = NewNode(kind="action", text="hi", parent=first.root.id, key="x")
    (said,) = tree.append([nameless])
    assert speaker(said, WorkerPool((Worker("a"), Worker("b", specialist(0))))) is None
    others = WorkerPool((Worker("x", specialist(0)), Worker("y", specialist(0))))
    with pytest.raises(BadInput, match="not one worker of the pool"):
        label_by_fork(tree, others)
    with pytest.raises(CannotDo, match="'b' has no policy"):
        label_by_fork(tree, WorkerPool((*POOL.workers, Worker("b", chat=ScriptedChat([])))))
    with pytest.raises(BadInput, match="nobody graded"):
        label_by_fork(tree, POOL, draws=1, score="applause")


def test_runs_that_no_relay_recorded_are_read_by_the_policy_s_name():
    tree = Tree.memory()
    grow(tree, specialist(2), WORLD, WORLD.tasks("train", 1), draws=1, settings=LAW)
    found = label_by_fork(tree, POOL, turns=[0], draws=1)
    assert [point.worker for point in found.points] == ["w2"]
    assert found.points[0].rest == ("w2", "w2")


def test_an_imported_tree_is_labelled_and_labelled_once():
    source, tree = recorded(1), Tree.memory()
    (run,) = recorded_runs(source)
    parent = None
    for step in run:
        node = step.node
        kept = {"worker": node.extra["worker"]} if node.kind == "action" else {}
        extra = node.extra if node.kind == "task" else kept
        draft = NewNode(
            kind=node.kind, parent=parent, text=node.text, tokens=node.tokens, settings=node.settings,
            message=node.message, extra=extra, finish=node.finish, policy=node.policy,
            state_key=node.state_key,
        )  # fmt: skip
        parent = tree.append([draft])[0].id
    first = label_by_fork(tree, POOL, draws=1)
    assert len(first.points) == 3
    assert list(label_by_fork(tree, POOL, draws=1).table.rows()) == list(first.table.rows())
    assert len(recorded_runs(tree)) == 1


def point(query, task, worker):
    tree = Tree.memory()
    grow(tree, specialist(0), WORLD, WORLD.tasks("train", 1), draws=1, settings=LAW)
    return SwapPoint(query, task, 0, tree.at(next(tree.tasks())), worker, (), LAW)


def test_effects_count_every_task_once_and_leave_out_pairs_without_a_score():
    points = [point("t1#0", "t1", "a"), point("t1#1", "t1", "a"), point("t2#0", "t2", "a")]
    values = {
        ("t1#0", "a"): [0.0, 0.0], ("t1#0", "b"): [1.0, 1.0],
        ("t1#1", "a"): [0.0, None], ("t1#1", "b"): [0.0, 1.0],
        ("t2#0", "a"): [1.0, 1.0], ("t2#0", "b"): [0.0, 1.0],
    }  # fmt: skip
    (effect,) = swap_effects(points, ["a", "b"], values)
    # Task 1: mean of +1 and 0 is +0.5; task 2: -0.5.
    assert (effect.mean, effect.points, effect.tasks) == (0.0, 3, 2)
    assert effect.effect.estimate == 0.0
    (alone,) = swap_effects(points[2:], ["a", "b"], values)
    assert (alone.mean, alone.effect) == (-0.5, None)
    assert swap_effects(points, ["b"], values) == []


def test_scripts_of_other_tokenizers_are_labelled_by_their_messages():
    pool = WorkerPool((*POOL.workers[:2], Worker("polite", open_policy("scripted:greeter"))))
    tree = Tree.memory()
    record_runs(tree, pool, WORLD, WORLD.tasks("train", 2), settings=LAW)
    found = label_by_fork(tree, pool, draws=1, score=turn_right)
    means, counts = found.table.means()
    assert counts.min() == counts.max() == 1
    assert means[:, 2].max() == 0  # a greeting answers nothing
