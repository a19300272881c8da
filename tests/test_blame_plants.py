"""Planted agents of benchmarks/blame.py: who is right to blame follows from their law, by which they run."""

import json

import pytest

from support.toolbox import load_benchmark

blame = load_benchmark("blame")
agent = blame.agent
KINDS = blame.KINDS


def two_turns(**given):
    """A plant of two turns that are wrong with chances 0.5 and 0.2."""
    law = {"reads": {}, "lost_by": ((0, 1),), "unsaved": 0.1, "recorded": (True, True), "orders": {}}
    return blame.Plant("p", "conjunction", (0.5, 0.2), **law | given)


def test_the_value_of_answers_is_the_law_s_sum():
    plant = two_turns()
    assert plant.value([]) == pytest.approx(0.9 * (1 - 0.5 * 0.2))
    assert plant.value([True]) == pytest.approx(0.9 * 0.8)
    assert plant.values()[-1] == 0.0
    assert plant.blamed() == {1}  # 0.09 at the first turn is less than what counts
    reading = two_turns(reads={1: (0, 0.95)})
    assert reading.value([True]) == pytest.approx(0.9 * 0.05)
    assert reading.value([False]) == pytest.approx(0.9)
    assert reading.blamed() == {0}


def test_a_fall_that_comes_back_is_not_to_blame():
    plant = two_turns(lost_by=((1,),), reads={1: (0, 0.7)}, recorded=(True, False))
    before, after, end = plant.values()
    assert before - after > 0.1
    assert end > before
    assert plant.blamed() == frozenset()


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_each_kind_has_its_own_step_to_blame(seed):
    made = {kind: blame.plant(kind, seed) for kind in KINDS}
    assert made["single"].blamed() == {t for (t,) in made["single"].lost_by if made["single"].recorded[t]}
    assert made["conjunction"].blamed() == set(made["conjunction"].lost_by[0])
    ((later, (first, _)),) = made["echo"].reads.items()
    assert made["echo"].blamed() == {first}
    assert made["echo"].recorded[later]
    ((repair, (slip, _)),) = made["recovered"].reads.items()
    assert made["recovered"].recorded[slip]
    assert not made["recovered"].recorded[repair]
    assert made["recovered"].blamed() == {made["recovered"].lost_by[1][0]}
    assert made["null"].blamed() == frozenset()
    assert made["null"].values() == [pytest.approx(1 - made["null"].unsaved)] * made["null"].steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_gets_the_recorded_answers_and_loses_by_them(kind):
    plant = blame.plant(kind, 1003)
    provider = blame.Provider([plant])
    talk = agent.loop(
        agent.opening(plant.orders),
        lambda messages: provider.answer(plant.name, "record-x", {"messages": messages}),
        agent.tools_of(plant.orders),
    )
    wrong = {turn for turn, is_wrong in enumerate(plant.recorded) if is_wrong}
    assert agent.wrong_turns(plant.orders, talk) == wrong
    assert provider.asked == {(plant.name, "record-x"): plant.steps}
    if kind != "null":
        assert not agent.succeeds(plant.orders | {"unsaved": 0.0}, talk)
    assert agent.succeeds(plant.orders | {"unsaved": 0.0, "lost_by": []}, talk)


def test_answers_are_the_law_s_and_the_same_for_whoever_asks():
    plant = blame.plant("single", 1000)
    turn = next(n for n, chance in enumerate(plant.errs) if chance > 0.1)
    provider = blame.Provider([plant])
    calls = [
        {"type": "tool_use", "input": {"turn": n, "total": plant.orders["right"][n]}} for n in range(turn)
    ]
    body = {"messages": [{"role": "assistant", "content": [call]} for call in calls]}
    asked = {
        who: [provider.answer(plant.name, who, body)["content"][0]["input"]["total"] for _ in range(4000)]
        for who in ("one", "other")
    }
    assert asked["one"] == asked["other"]
    wrong = sum(total != plant.orders["right"][turn] for total in asked["one"]) / 4000
    assert wrong == pytest.approx(plant.errs[turn], abs=0.03)


def test_the_last_line_has_no_figure_of_a_peer_that_was_not_run(capsys):
    causes, coins = ([blame.plant(kind, n) for n in range(1000, 1004)] for kind in ("single", "null"))
    said = [blame.Blame(one, tuple(one.blamed()), (), 10) for one in causes]
    said[0] = blame.Blame(causes[0], (), (), 10)
    said += [blame.Blame(one, (), (), 10) for one in coins]
    said[-1] = blame.Blame(coins[-1], (3,), (3,), 10)
    blame.report([*causes, *coins], {"refork": said}, {}, {})
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["top1"], told["false_blame_null"]) == (0.75, 0.25)
    assert told["ours"]["calls"] == 80
    missing = (
        "top1_best_peer",
        "best_peer",
        "false_blame_null_peer",
        "calls_ratio_to_peer",
        "tracefork_bench",
    )
    assert {told[key] for key in missing} == {None}
    worse = {"retrial_1": [blame.Blame(one.agent, (), (), 40) for one in said]}
    blame.report([*causes, *coins], {"refork": said} | worse, {"resolved": 1}, {})
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["best_peer"], told["top1_best_peer"], told["calls_ratio_to_peer"]) == (
        "retrial_1",
        0.0,
        0.25,
    )
