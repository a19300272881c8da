"""Rollouts of turns with roles: what a trainer sees, exact values of a planted loop, roles that learn."""

import numpy as np
import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput, CannotDo, ServerError
from refork_methods.route.conduct.coins import every_outcome
from refork_methods.route.conduct.world import FileQueries, Query
from refork_methods.route.evolve import EvolveSettings, evolve
from refork_methods.route.head import HeadCard, SelectionHead, save_head
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_methods.route.rollouts import Greedy, starting_head
from refork_methods.route.training import trial
from refork_methods.route.turn_rollouts import TurnRollouts, open_turns
from refork_methods.route.turns import ROLES, run_turns
from refork_testbed.trials.casting import (
    CAST,
    OBSERVED,
    WIDTH,
    Numbers,
    best_value,
    cast_pool,
    observed,
    read,
    value,
    value_of,
)

POOL = cast_pool()
ZERO = SelectionHead.zero(POOL.names, WIDTH, ROLES)


def rollouts(**more):
    return TurnRollouts.of(POOL, Numbers(), read, **{"held_out": False, "count": 64} | more)


def taught():
    """The head of the cast that is best."""
    rows = np.zeros((len(POOL.names) + len(ROLES), WIDTH))
    for sight, (worker, role) in CAST.items():
        place = OBSERVED.index(sight)
        rows[POOL.names.index(worker), place] = rows[len(POOL.names) + ROLES.index(role), place] = 9.0
    return ZERO.with_weights(rows)


def test_the_planted_values_are_those_of_every_way_that_the_coins_of_the_real_loop_fall():
    head = taught()
    assert value_of(head) == value(CAST.__getitem__) == pytest.approx(0.76 + 0.22 * 0.8)
    assert value_of(ZERO) == pytest.approx(0.3), "planner in the role of a worker, for both are first"
    assert value(lambda sight: ("maker", "worker")) == pytest.approx(0.5)

    def run(coins):
        pool = cast_pool(coins)

        def cast(messages):
            state = read([messages])
            return head.probabilities(state)[0], head.role_probabilities(state)[0]

        return run_turns([{"role": "user", "content": "7"}], pool, cast).answer == "7"

    exact = sum(chance for chance, right in every_outcome(run) if right)
    assert exact == pytest.approx(value_of(head), abs=1e-12)


def test_no_cast_earns_more_than_the_planted_one():
    assert best_value() == pytest.approx(value(CAST.__getitem__))


def test_a_rollout_is_a_function_of_question_place_and_seed():
    env = rollouts()
    tasks = np.array([3, 3, 5])
    one, two = (env(Greedy(taught()), tasks, 4) for _ in range(2))
    assert one.reward.tolist() == two.reward.tolist()
    assert (one.uses == two.uses).all()
    assert one.turns.max() <= env.max_turns == 5
    # Money: each call costs one, and a loop's bill is its turns.
    assert one.cost.tolist() == one.turns.tolist()
    many = env(Greedy(taught()), np.zeros(400, dtype=int), 1).reward
    # Equal questions are draws of their own: 400 of a chance of 0.936, four standard errors.
    assert abs(many.mean() - 0.936) < 4 * (0.936 * 0.064 / 400) ** 0.5
    assert rollouts().name == env.name != rollouts(count=32).name


def test_evolution_teaches_the_role_rows():
    """From zeros, on one seed; six seeds are in the benchmark."""
    made = evolve(ZERO, rollouts(), EvolveSettings(iterations=8, repeats=6, diversity=0.15, seed=1))
    roles = made.head.weights[len(POOL.names) :]
    assert np.abs(roles).max() > 0
    assert value_of(made.head) > value(lambda sight: ("maker", "worker"))


def test_a_trial_holds_the_head_against_every_worker_alone_in_its_roles():
    told = trial({"taught": taught(), "start": ZERO}, rollouts(held_out=True), 64, 0)
    assert told["mean"] > 0.8
    # In the roles of the head: alone, the planner says every answer, and accepts it.
    assert told["means"]["always planner"] == pytest.approx(0.3, abs=0.25)
    assert told["verdict"]["outcome"] == "wins"


def test_a_head_of_workers_gets_role_rows_of_zero(tmp_path):
    plain = SelectionHead(np.ones((3, WIDTH)), POOL.names, bias=np.ones(3))
    save_head(tmp_path, plain, HeadCard(POOL.names))
    head, _ = starting_head(tmp_path, POOL.names, WIDTH, None, roles=ROLES)
    assert (head.roles, head.weights.shape, head.bias.tolist()) == (ROLES, (6, WIDTH), [1, 1, 1, 0, 0, 0])
    assert starting_head(None, POOL.names, WIDTH, None, roles=ROLES)[0].roles == ROLES
    with pytest.raises(BadInput, match="--pool"):
        open_turns(tmp_path, None, None, tasks=1, test=1, seed=0)


def down(messages):
    raise ServerError("nobody answers")


def test_failures_are_failed_rollouts_and_wrong_heads_are_refused():
    def env(reply, grade, **more):
        workers = (Worker(n, chat=ScriptedChat(reply, n), price=Price(0, 0, 1)) for n in "ab")
        return TurnRollouts(
            WorkerPool(tuple(workers)),
            [Query("q", "1+1")],
            grade,
            lambda talks: np.ones((len(talks), 1)),
            **more,
        )

    head = SelectionHead.zero(("a", "b"), 1, ROLES)
    tasks = np.array([0])
    good = env(lambda messages: "2", lambda query, answer: float(answer == "2"), most=2)(
        Greedy(head), tasks, 0
    )
    assert (good.reward.tolist(), good.turns.tolist()) == ([1.0], [2])
    thinks = head.with_weights(np.array([[0.0], [0], [0], [1], [0]]))
    never = env(lambda messages: "hm", lambda query, answer: 1.0)(Greedy(thinks), tasks, 0)
    assert (never.reward.tolist(), never.failed.tolist()) == ([0.0], [False]), "nobody was told to work"
    for broken in (
        env(down, lambda query, answer: 1.0),
        env(lambda messages: "2", lambda query, answer: None),
    ):
        with pytest.raises(CannotDo, match="all 1 rollouts failed"):
            broken(Greedy(head), tasks, 0)
    with pytest.raises(BadInput, match="roles are"):
        env(down, None)(Greedy(SelectionHead.zero(("a", "b"), 1)), tasks, 0)
    with pytest.raises(BadInput, match="nothing reads"):
        env(down, None)(Greedy(head.with_offsets(("m",), np.zeros(2))), tasks, 0)
    for queries, most in (([], 5), ([Query("q", "x")], 0)):
        with pytest.raises(BadInput, match="at least one turn"):
            TurnRollouts(POOL, queries, None, read, most=most)
    with pytest.raises(BadInput, match="one id"):
        TurnRollouts(POOL, [Query("q", "x"), Query("q", "y")], None, read)


def test_questions_of_a_file_are_graded_by_their_answers():
    rows = [{"query": f"say {i}", "answer": str(i)} for i in range(40)]
    env = TurnRollouts.of(
        WorkerPool(tuple(Worker(n, chat=ScriptedChat(lambda m: m[0]["content"][4:], n)) for n in "ab")),
        FileQueries(rows), lambda talks: np.ones((len(talks), 1)), held_out=False, count=500,
    )  # fmt: skip
    assert env.size < 40, "each question once, and those held out not at all"
    assert env.unpriced == ("a", "b")
    told = env(Greedy(SelectionHead.zero(("a", "b"), 1, ROLES)), np.arange(3), 0)
    assert told.reward.tolist() == [1.0, 1.0, 1.0]
    assert observed([{"role": "user", "content": "x"}]) == (False, "start")
