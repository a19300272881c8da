"""Runs of live episodes and of calibration: rows, resuming, what is refused."""

import json

import pytest

from refork.errors import BadInput, CannotDo, ServerError
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_methods.gate.controller import BayesController
from refork_methods.gate.live import Verdict, collect_file, collected_json
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices, write_policy
from refork_methods.gate.on_tree import (
    Setting,
    TreeWriter,
    critic_producer,
    policy_named,
    run_live,
    setting_from,
)
from refork_methods.gate.records import read_jsonl
from refork_testbed.trials.gate_repairs import live_repairs, repair_only

MODEL = CriticModel(0.6, (Critic("test", 0.9, 0.45, 2.0), Critic("llm", 0.8, 0.35, 5.0)), Kernel(0.25, 0.1))
PRICES = Prices()


class PlantedBench:
    """Turns that are R or W, on a tree; counts what is really asked."""

    def __init__(self, tree):
        self.tree, self.settings, self.calls, self.seed = tree, Sampling(max_tokens=3), 0, 0
        self.policy = ScriptedPolicy.from_text(
            lambda text: {"": 1.0} if text[-1:] in "RW" and text else {"R": 0.6, "W": 0.4}
        )

    @property
    def producers(self):
        return {name: critic_producer(name) for name in MODEL.names}

    def root(self, task):
        from refork.growing.plant import plant_prompt

        return plant_prompt(self.tree, self.policy, task.prompt)

    def open(self, task):
        def check(candidate):
            self.calls += 1
            return Verdict(candidate.text == "R")

        def draw(number):
            write = TreeWriter(self.root(task), self.policy, self.settings, seed=self.seed, draw=number)
            return write, dict.fromkeys(MODEL.names, check), check

        return draw


TASKS = [Task(id=f"t{n}", world="planted", split="held-out", prompt=f"write {n} ") for n in range(4)]


def test_a_run_is_read_from_the_tree_the_second_time():
    with Tree.memory() as tree:
        bench = PlantedBench(tree)
        setting = Setting(policy_named("dp", MODEL, PRICES, 3, "retry"), MODEL, PRICES, 3, "retry")
        first = run_live(tree, bench, TASKS[:2], setting, draws=2)
        asked, nodes = bench.calls, len(tree)
        again = run_live(tree, bench, TASKS[:2], setting, draws=2)
        assert (bench.calls, len(tree)) == (asked, nodes)
        assert again.utilities == first.utilities
        assert all(row.recorded for row in again.rows)
        more = run_live(tree, bench, TASKS, setting, draws=2)
        assert [row.recorded for row in more.rows] == [True] * 4 + [False] * 4
        told = more.to_json()
        assert (told["recorded"], told["tasks"], len(told["rows"])) == (4, 4, 8)
        assert json.dumps(told)


def test_another_horizon_on_the_same_tree_is_another_producer():
    with Tree.memory() as tree:
        bench = PlantedBench(tree)
        for horizon in (1, 3):
            for name in ("dp", "gate(test)"):
                chosen = policy_named(name, MODEL, PRICES, horizon, "retry")
                found = run_live(tree, bench, TASKS, Setting(chosen, MODEL, PRICES, horizon, "retry"))
                assert len(found.utilities) == 4


def test_another_writer_on_the_same_tree_plays_episodes_of_its_own():
    setting = Setting(policy_named("dp", MODEL, PRICES, 3, "retry"), MODEL, PRICES, 3, "retry")
    wrong = ScriptedPolicy.from_text(
        lambda text: {"": 1.0} if text[-1:] in "RW" and text else {"W": 1.0}, name="always wrong"
    )
    changes = ({}, {"policy": wrong}, {"settings": Sampling(max_tokens=4)}, {"seed": 1})
    with Tree.memory() as tree:
        benches = [PlantedBench(tree) for _ in changes]
        for bench, change in zip(benches, changes, strict=True):
            for name, value in change.items():
                setattr(bench, name, value)
            first = run_live(tree, bench, TASKS[:2], setting, draws=2)
            assert not any(row.recorded for row in first.rows)
            assert bench.calls > 0
        for bench in benches:
            asked = bench.calls
            again = run_live(tree, bench, TASKS[:2], setting, draws=2)
            assert all(row.recorded for row in again.rows)
            assert bench.calls == asked
            if bench.policy is wrong:
                assert all(row.outcome != "right" for row in again.rows)


def test_planning_ahead_over_fewer_critics_is_another_producer():
    def settings(lookahead):
        planner = BayesController(MODEL, PRICES, 3, "retry", lookahead=lookahead)
        return Setting(planner, MODEL, PRICES, 3, "retry").producer({})

    named = Setting(policy_named("dp", MODEL, PRICES, 3, "retry"), MODEL, PRICES, 3, "retry").producer({})
    assert settings(None) == named
    assert len({settings(n).id for n in (None, 0, 1)}) == 3


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(BadInput, match="there is no policy 'hello'"):
        policy_named("hello", MODEL, PRICES)
    write_policy(tmp_path / "bare.json", MODEL)
    with pytest.raises(BadInput, match="no prices"):
        setting_from(tmp_path / "bare.json")
    write_policy(tmp_path / "policy.json", MODEL, PRICES)
    measured = setting_from(tmp_path / "policy.json", "gate(test)", measured=True)
    with Tree.memory() as tree:
        bench = PlantedBench(tree)
        with pytest.raises(BadInput, match="0 tasks"):
            run_live(tree, bench, [], measured)
        with pytest.raises(BadInput, match="prices are in utility"):
            live_repairs(tree, open_world("repair"), bench.policy, measured, tasks=1)
    with pytest.raises(CannotDo, match="no critics"):
        repair_only(open_world("lock"))


def opened(log, fails_at=None):
    def write(previous, told):
        number = 0 if previous is None else previous + 1
        log.append(number)
        if len(log) == fails_at:
            raise KeyboardInterrupt
        return number, None

    return lambda draw: (write, {"test": lambda c: Verdict(c > 0, 0.5)}, lambda c: Verdict(c > 0, 60.0))


def collect(path, log, source="a", **more):
    instances = {name: opened(log, **more) for name in ("i", "j")}
    return collect_file(path, instances, str, source=source, unit="seconds", steps=2)


def test_a_collection_that_was_stopped_goes_on(tmp_path):
    path, log = tmp_path / "records.jsonl", []
    with pytest.raises(KeyboardInterrupt):
        collect(path, log, fails_at=4)
    assert len(path.read_text().splitlines()) == 2
    with path.open("a") as out:
        out.write('{"instance": "j", "cand')  # the power went
    log.clear()
    found = collect(path, log)
    assert log == [0, 1]
    assert collected_json(found) == {"candidates": 4, "instances": 2, "right": 2, "unknown": 0}
    assert len(read_jsonl(path)) == 4
    assert json.loads(path.read_text().splitlines()[0])["costs"]["verify"] == {"seconds": 60.0}
    collect(path, log)
    assert log == [0, 1]
    with pytest.raises(BadInput, match="another source"):
        collect(path, log, source="b")


def failing(fails):
    """A writer whose server fails at a step in some draws."""

    def open_draw(draw):
        write, critics, verify = opened([])(draw)

        def broken(previous, told):
            if draw in fails and (previous is not None or fails[draw] == 0):
                raise ServerError("no answer", where="http://there")
            return write(previous, told)

        return broken, critics, verify

    return open_draw


def test_chains_that_a_failing_writer_cut_short_are_told(tmp_path):
    cut, waited = [], []

    def progress(stage, done, total, *, tokens=None, waiting=None):
        waited.append(waiting)

    found = collect_file(
        tmp_path / "a.jsonl", {"i": failing({1: 0, 2: 1})}, str, source="a", unit="seconds", draws=4, steps=2,
        failed=cut.append, progress=progress,
    )  # fmt: skip
    assert len(found) == 2 + 0 + 1 + 2
    assert [error.what for error in cut] == ["no answer"] * 2
    assert waited[0] is None
    assert waited[-1] == "2 chains ended early: no answer"


def test_a_writer_that_gives_nothing_at_all_is_an_error_and_no_empty_result(tmp_path):
    with pytest.raises(ServerError, match="no answer"):
        collect_file(tmp_path / "a.jsonl", {"i": failing({0: 0})}, str, source="a", unit="seconds", steps=2)
