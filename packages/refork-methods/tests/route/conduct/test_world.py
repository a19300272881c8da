"""Conducting as a world: rewards, sub-pools, recursion, snapshots and exact expectations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from refork.chat import Reply, ScriptedChat
from refork.errors import BadInput, ServerError
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.types import Json, Message
from refork.worlds.base import Episode, Task, World
from refork.worlds.dice import split_of
from refork_methods.route.conduct.coins import Coins
from refork_methods.route.conduct.evaluate import Written, evaluate, expected_quality, written_plans
from refork_methods.route.conduct.world import ConductWorld, FileQueries, Query, Reward
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_testbed.trials.conducting import Expressions, expression_pool
from refork_testbed.worlds.expressions import SKILLS, closed_forms

WORLD = ConductWorld(Expressions(), expression_pool())
ONES = WorkerPool(tuple(Worker(n, chat=ScriptedChat(lambda m: "99", n)) for n in "AB"))


def exact(coins: Coins) -> ConductWorld:
    return ConductWorld(Expressions(), expression_pool(coins))


def task_of(text: str, world: ConductWorld = WORLD) -> Task:
    return world.task(Query(text, text))


def test_it_is_a_world_with_episodes() -> None:
    assert isinstance(WORLD, World)
    task = WORLD.tasks("held-out", 1)[0]
    assert isinstance(WORLD.start(task, 0), Episode)
    assert task.prompt == f"A,B,C,D\n{task.data['query']['text']}"
    assert (WORLD.name, WORLD.max_turns, WORLD.deterministic) == ("conduct:expressions", 1, False)
    assert ConductWorld(Expressions(), expression_pool(), Reward(0.05)).version != WORLD.version


def test_prices_and_workers_are_part_of_the_version() -> None:
    def world(price: Price | None, name: str = "m") -> ConductWorld:
        chats = [ScriptedChat(lambda m: "99", who) for who in (name, "n")]
        pool = (Worker("A", chat=chats[0], price=price), Worker("B", chat=chats[1]))
        return ConductWorld(Expressions(), WorkerPool(pool), Reward(per_money=0.1))

    worlds = [
        world(None),
        world(Price(0, 0, 0)),
        world(Price(0, 0, 1)),
        world(Price(1, 0, 0)),
        world(None, "o"),
    ]
    assert len({one.version for one in worlds}) == 5
    assert world(Price(0, 0, 1)).version == worlds[2].version


def test_another_text_or_answer_is_another_task() -> None:
    rows = [{"query": "2+2", "answer": "4"}, {"query": "2+2", "answer": "5"}, {"query": "2+3", "answer": "4"}]
    ids = set()
    for row in [*rows, rows[0]]:
        queries = FileQueries([row], "file")
        world = ConductWorld(queries, ONES)
        (query,) = queries.draw(split_of(str(row["query"])), 1, 0)
        ids.add(world.task(query).id)
    assert len(ids) == 3


def test_a_worker_that_raises_leaves_a_plan_ungraded_also_below_the_conductor_itself() -> None:
    def fails(messages: Sequence[Message]) -> str:
        raise ConnectionError("refused")

    pool = WorkerPool(
        (Worker("A", chat=ScriptedChat(fails, "A")), Worker("B", chat=ScriptedChat(["9"], "B")))
    )
    world = ConductWorld(Expressions(), pool, rounds=2)
    seen = world.start(task_of("3+4*2", world), 0).step("[A][3+4*2][[]]")
    assert (seen.done, seen.reward, seen.info["runs"]) == (True, None, True)
    assert "ConnectionError: refused" in str(seen.info["errors"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no plan",
        "[A,B][3+4,_*2][[2],[]]",
        "[A,B][3+4,_*2][[],[2]]",
        "[A][3+4,_*2][[],[1]]",
        "[Z,B][3+4,_*2][[],[1]]",
        "[A,A,A,A,A,A][1,1,1,1,1,1][[],[],[],[],[],[]]",
    ],
)
def test_a_plan_that_cannot_run_earns_nothing(text: str) -> None:
    seen = WORLD.start(task_of("3+4*2"), 0).step(text)
    assert (seen.reward, seen.done, seen.info["runs"]) == (0.0, True, False)
    assert WORLD.play(task_of("3+4*2"), text).reward == 0.0
    assert expected_quality(exact, task_of("3+4*2"), text) == 0.0


def test_the_reward_takes_three_values() -> None:
    task, values = task_of("3+4*2"), set()
    for seed in range(40):
        for text in ("[A,B][3+4,_*2][[],[1]]", "[D][3+4*2][[]]", "nothing"):
            values.add(WORLD.start(task, seed).step(text).reward)
    assert values == {0.0, 0.5, 1.0}


def test_the_reward_of_a_run() -> None:
    done = WORLD.play(task_of("3+4*2"), "[A,B][3+4,_*2][[],[1]]").execution
    assert done is not None
    assert done.calls == 2
    assert [Reward().of(done, q) for q in (0.0, 1.0)] == [0.5, 1.0]
    assert Reward(per_call=0.05).of(done, 1.0) == pytest.approx(0.9)
    assert Reward().of(None, None) == 0.0
    assert Reward(per_call=0.05).of(None, 0.0) == 0.0
    assert Reward().of(done, None) is None
    for bad in (float("nan"), 1.5, -0.1):
        with pytest.raises(BadInput, match="quality"):
            Reward().of(done, bad)
    with pytest.raises(BadInput, match="no plan"):
        Reward(per_call=0.1)
    with pytest.raises(BadInput):
        Reward(per_money=float("inf"))


def test_an_unknown_price_is_unknown_not_free() -> None:
    plan = "[A,B][3+4,_*2][[],[1]]"
    unknown = ConductWorld(Expressions(), expression_pool(), Reward(per_money=0.1))
    assert unknown.play(task_of("3+4*2", unknown), plan).reward is None
    known = ConductWorld(Expressions(), expression_pool(price=1.0), Reward(per_money=0.1))
    played = known.play(task_of("3+4*2", known), plan)
    assert played.quality is not None
    assert played.reward == pytest.approx(0.3 + 0.5 * played.quality)


def test_a_workers_failure_is_not_graded() -> None:
    class Failing:
        name = "A"

        def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
            raise ServerError("down")

    pool = WorkerPool((Worker("A", chat=Failing()), Worker("B", chat=ScriptedChat(lambda m: "1", "B"))))
    world = ConductWorld(Expressions(), pool)
    seen = world.start(task_of("3+4*2", world), 0).step("[A][3+4*2][[]]")
    assert seen.reward is None
    assert seen.done
    assert "down" in seen.info["errors"][0]
    result = evaluate(world, [Written(task_of("3+4*2", world), "[A][3+4*2][[]]", 0)])
    assert result.failed == 1
    assert result.run.estimate == 1.0
    # Nothing was graded, so how many are right was not found out: that is not 0.
    assert (result.accuracy, result.to_json()["accuracy"]) == (None, None)


def test_expected_quality_is_the_closed_form() -> None:
    for text, plan, chance in [
        ("3+4*2", "[A,B][3+4,_*2][[],[1]]", 0.9025),
        ("3+4*2", "[A,B][3+4,_*2][[],all]", 0.9025),
        ("3+4*2", "[A,B][3+4,_*2][[],[]]", 0.0),
        ("3+4*2", "[A][3+4*2][[]]", 0.475),
        ("3+4+2", "[A][3+4+2][[]]", 0.9025),
        ("3+4+2", "[A,A][3+4,_+2][[],[1]]", 0.9025),
        ("3+4*2", "[C,D][3+4,_*2][[],[1]]", 0.33),
        ("3+4*2", "[D,A,B][3+4,3+4,_*2][[],[],[2]]", 0.9025),
        ("3+4*2", "[A,B][3+4,_*3][[],[1]]", 0.0),
    ]:
        assert expected_quality(exact, task_of(text), plan) == pytest.approx(chance, abs=1e-12), plan


def test_the_best_plans_reach_the_best_two_step_workflow() -> None:
    best = {"+": "A", "*": "B"}
    written = []
    for task in WORLD.tasks("held-out", 60):
        text = task.data["query"]["text"]
        a, first, b, second, c = text
        written.append(
            Written(task, f"[{best[first]},{best[second]}][{a}{first}{b},_{second}{c}][[],[1]]", 0)
        )
    found = evaluate(WORLD, written, exact)
    assert found.expected == pytest.approx(closed_forms().steps) == 0.9025
    assert found.accuracy is not None
    # 60 sampled answers at 0.9025: outside 4 standard errors in fewer than 1 of 1,000 seeds.
    assert abs(found.accuracy.estimate - 0.9025) < 4 * (0.9025 * 0.0975 / 60) ** 0.5
    assert found.calls == 2.0
    assert found.run.estimate == 1.0
    assert found.money is None
    assert found.to_json()["expected"] == found.expected
    with pytest.raises(BadInput):
        evaluate(WORLD, [])


def test_plans_for_one_query_count_once_in_an_interval() -> None:
    world = ConductWorld(FileQueries([{"query": f"q{n}", "answer": str(n)} for n in range(20)]), ONES)
    tasks = world.tasks("train", 8, 0)
    once = evaluate(world, [Written(one, "[A][do it][[]]", 0) for one in tasks])
    # The collection is gone through again where more is asked for than it has.
    again = evaluate(world, [Written(one, "[A][do it][[]]", draw) for one in tasks for draw in range(9)])
    assert once.accuracy is not None
    assert again.accuracy is not None
    assert (again.plans, again.accuracy.estimate) == (72, once.accuracy.estimate)
    assert (again.accuracy.low, again.accuracy.high) == pytest.approx(
        (once.accuracy.low, once.accuracy.high), abs=1e-9
    )
    assert again.run.low == pytest.approx(once.run.low)


def test_sub_pools_are_seeded_named_in_the_prompt_and_kept_to() -> None:
    world = ConductWorld(Expressions(), expression_pool(), sizes=(3,))
    tasks = world.tasks("train", 40, seed=5)
    assert [t.data["open"] for t in tasks] == [t.data["open"] for t in world.tasks("train", 40, seed=5)]
    offered = {tuple(task.data["open"]) for task in tasks}
    assert len(offered) == 4
    assert all(len(names) == 3 for names in offered)
    for task in tasks[:8]:
        assert task.prompt.splitlines()[0] == ",".join(task.data["open"])
        (absent,) = set(SKILLS) - set(task.data["open"])
        text = task.data["query"]["text"]
        assert world.start(task, 0).step(f"[{absent}][{text}][[]]").reward == 0.0
        assert "opted out" in str(world.play(task, f"[{absent}][{text}][[]]").fault)
    for bad in (0, 5):
        with pytest.raises(BadInput):
            ConductWorld(Expressions(), expression_pool(), sizes=(4, bad))


def test_a_seed_decides_the_draw_and_a_snapshot_brings_it_back() -> None:
    task, plan = task_of("3+4*2"), "[D][3+4*2][[]]"
    rewards = [WORLD.start(task, seed).step(plan).reward for seed in range(20)]
    assert rewards == [WORLD.start(task, seed).step(plan).reward for seed in range(20)]
    assert len(set(rewards)) == 2
    episode = WORLD.start(task, 0)
    episode.reseed(7)
    fresh = WORLD.restore(task, episode.snapshot())
    assert fresh.step(plan) == episode.step(plan) == WORLD.start(task, 7).step(plan)
    assert WORLD.restore(task, episode.snapshot()).step("x") == episode.step("x")
    episode.close()
    with pytest.raises(BadInput, match="of task"):
        WORLD.restore(task_of("3+4+2"), episode.snapshot())
    with pytest.raises(BadInput, match="not a snapshot"):
        WORLD.restore(task, b"{}")


def test_a_plan_may_ask_the_conductor_itself() -> None:
    world = ConductWorld(Expressions(), expression_pool(), rounds=2)
    task = world.task(Query("3+4*2", "3+4*2"))
    assert task.prompt == "A,B,C,D,self\n3+4*2"
    assert world.max_turns == 6
    for seed in range(6):
        episode = world.start(task, seed)
        asked = episode.step("[A,self][3+4,_*2][[],[1]]")
        first = asked.text.splitlines()[2]
        assert not asked.done
        assert asked.reward is None
        assert asked.text == f"A,B,C,D\n3+4\n{first}\n_*2"  # the last round no longer offers itself
        done = episode.step(f"[B][{first}*2][[]]")
        assert done.done
        assert done.reward in (0.5, 1.0)
        assert done.info["calls"] == 2
        assert episode.step("anything") == done
    refused = world.start(task, 0)
    refused.step("[self][3+4*2][[]]")
    assert refused.step("[self][3+4*2][[]]").reward == 0.0
    again = world.restore(task, refused.snapshot())
    assert again.step("x").reward == 0.0
    with pytest.raises(BadInput, match="more than a plan earns"):
        ConductWorld(Expressions(), expression_pool(), Reward(0.09), most=6)
    with pytest.raises(BadInput, match="self"):
        ConductWorld(Expressions(), WorkerPool.of("self", "B"), rounds=2)
    with pytest.raises(BadInput):
        ConductWorld(Expressions(), expression_pool(), rounds=0)


def test_plans_of_a_policy_are_read_from_its_rollouts() -> None:
    policy = ScriptedPolicy.from_replies(["[A][1+1+1][[]]", "no plan"])
    tasks = WORLD.tasks("held-out", 3)
    plans = written_plans(policy, WORLD, tasks, draws=8, settings=Sampling(max_tokens=40), seed=1)
    assert len(plans) == 24
    assert {p.text for p in plans} == {"[A][1+1+1][[]]", "no plan"}
    assert [p.draw for p in plans[:8]] == list(range(8))
    assert 0 < evaluate(WORLD, plans).run.estimate < 1


def test_queries_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    rows = [f'{{"query": "q{n}", "answer": "Yes  {n}"}}' for n in range(12)]
    file.write_text("\n".join(rows) + "\n")
    queries = FileQueries.read(file)
    train, held = queries.draw("train", 20, 0), queries.draw("held-out", 5, 0)
    assert {q.text for q in train}.isdisjoint({q.text for q in held})
    assert len(train) == 20
    query = next(q for q in train if q.text == train[0].text)
    assert queries.quality(query, f" yes {query.data['answer'].split()[-1]}\n") == 1.0
    assert queries.quality(query, "no") == 0.0
    for bad in (
        [],
        [{"query": "a"}],
        [{"answer": "a"}],
        [{"query": "a", "answer": "b", "id": 1}, {"query": "c", "answer": "b", "id": 1}],
    ):
        with pytest.raises(BadInput):
            FileQueries(bad)
    one = FileQueries([{"query": "q0", "answer": "x"}])
    (other,) = {"train", "held-out"} - {split_of("q0")}
    with pytest.raises(BadInput, match="more queries"):
        one.draw("train" if other == "train" else "held-out", 1, 0)


def test_tasks_are_the_same_for_the_same_seed() -> None:
    first, again = WORLD.tasks("train", 5, 3), WORLD.tasks("train", 5, 3)
    assert first == again
    assert first != WORLD.tasks("train", 5, 4)
    assert {t.split for t in first} == {"train"}
    assert [WORLD.start(t, 0).step("x").reward for t in first] == [0.0] * 5
