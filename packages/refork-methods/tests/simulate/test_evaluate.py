"""Fidelity on planted simulators: what comes out is what was put in."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork.growing.recorder import record, trajectories
from refork.policies.open import open_policy
from refork.tree.tree import Tree
from refork.worlds.environment import Brief, EnvTrajectory, Transition
from refork.worlds.open import open_world
from refork_methods.simulate.actions import name_of
from refork_methods.simulate.baselines import CommonAnswer, CopyLast, NearestTurn
from refork_methods.simulate.evaluate import evaluate
from refork_methods.simulate.fidelity import (
    SCORERS,
    JudgedTurn,
    compare_simulators,
    mean_of_domains,
    overall,
    summarise,
)
from refork_methods.simulate.on_tree import on_tree, write_scores
from refork_methods.simulate.prompt import Prediction, Target, targets
from refork_methods.simulate.rubric import EDGES, RubricJudge, RuleRubric, shares
from refork_methods.simulate.rules import check
from refork_methods.simulate.world import WorldModel
from refork_testbed.trials.planted_simulator import PlantedSimulator


@pytest.fixture(scope="module")
def recorded():
    """A tree of 24 episodes of the tools world, and the world."""
    world = open_world("tools:library")
    tasks = world.tasks("held-out", 24)
    tree = Tree.memory()
    record(world, tasks, tree)
    return world, tasks, tree, list(trajectories(tree))


def test_the_rule_judge_does_not_praise_who_is_seldom_right(recorded):
    world, tasks, _, items = recorded
    nearest = NearestTurn(items[12:], exact_first=False, neighbours=1, context=1.0)
    for model in (PlantedSimulator(world, tasks, wrong=0.95), CopyLast(), nearest):
        told = evaluate(model, items[:12], judge=RuleRubric()).fidelity.micro
        kind = evaluate(model, items[:12], judge=RuleRubric(slope=True)).fidelity.micro
        exact, rubric = told["exact"].estimate, told["rubric"].estimate
        assert exact <= rubric <= exact + 0.25 * (1 - exact)
        assert rubric - exact < 0.15 < 0.3 < kind["rubric"].estimate - exact


def test_other_tasks_answers_seldom_reach_the_edges():
    world = open_world("tools")
    with Tree.memory() as tree:
        record(world, world.tasks("train", 60), tree)
        found = targets(trajectories(tree))
    kinds: dict = {}
    for item in found:
        kinds.setdefault(name_of(item.action), []).append(item)
    near = []
    for at, item in enumerate(found):
        others = [o for o in kinds[name_of(item.action)] if o.trajectory.id != item.trajectory.id]
        said = others[at % len(others)].truth if others else item.truth
        if said != item.truth:
            near.append([shares(said, item)[name] >= EDGES[name] for name in ("factuality", "quality")])
    # Of 1,790 turns .21 and .15 were; of these 266 one in a thousand draws would have more than .3.
    assert (np.mean(near, axis=0) < 0.3).all()


def test_a_perfect_simulator_is_perfect_and_planted_faults_are_found(recorded):
    world, tasks, _, items = recorded
    best = evaluate(PlantedSimulator(world, tasks), items, judge=RuleRubric())
    assert best.fidelity.exact.estimate == best.fidelity.coverage.estimate == 1.0
    assert best.fidelity.micro["rubric"].estimate == best.fidelity.micro["rule"].estimate == 1.0
    assert best.fidelity.exact.low < 1
    assert best.fidelity.turns == sum(len(item.turns) for item in items)
    assert best.fidelity.padded == 0
    flattering = PlantedSimulator(world, tasks)
    own = flattering.predict
    flattering.predict = lambda asked: [
        replace(one, raw=f"As you will see, faultless: <prediction>{one.text}</prediction>")
        for one in own(asked)
    ]
    alarmed = evaluate(flattering, items[:2]).fidelity
    assert alarmed.padded == alarmed.turns
    faulty = evaluate(PlantedSimulator(world, tasks, wrong=0.3, silent=0.2), items, judge=RuleRubric())
    # Coverage 0.8 and exact 0.5 of about 170 turns: off by 0.15 with a chance under 1e-4.
    assert faulty.fidelity.coverage.estimate == pytest.approx(0.8, abs=0.15)
    assert faulty.fidelity.exact.estimate == pytest.approx(0.5, abs=0.15)
    assert faulty.fidelity.errors == {"planted silence": sum(not turn.valid for turn in faulty.turns)}
    assert all(turn.grade == 0 and not turn.exact for turn in faulty.turns if not turn.valid)
    scores = faulty.fidelity.scorers
    assert scores["released"] > scores["ours"] + 5  # dropping failures flatters


def test_prediction_is_of_one_turn_given_the_real_history_in_batches(recorded):
    world, tasks, _, items = recorded
    asked = []

    class Spy(PlantedSimulator):
        def predict(self, items):
            asked.append(len(items))
            return super().predict(items)

    spy = Spy(world, tasks)
    one = evaluate(spy, items, turns="one", batch=10)
    assert asked == [10, 10, 4]
    assert one.fidelity.turns == one.fidelity.trajectories == 24
    assert {t.key for t in evaluate(spy, items[::-1], turns="one").turns} == {t.key for t in one.turns}
    two = evaluate(spy, items, turns=2, seed=1)
    assert max(Counter(turn.trajectory for turn in two.turns).values()) == 2


def test_a_stopped_evaluation_goes_on_and_asks_nothing_twice(recorded, tmp_path):
    world, tasks, _, items = recorded
    model = PlantedSimulator(world, tasks, wrong=0.2)
    whole = evaluate(model, items[:6], judge=RuleRubric(), folder=tmp_path, batch=8)

    class Gone(PlantedSimulator):
        def predict(self, asked):
            raise AssertionError("it was answered before")

    again = evaluate(Gone(world, tasks, wrong=0.2), items[:6], judge=RuleRubric(), folder=tmp_path)
    assert again.turns == whole.turns
    lines = (tmp_path / "predictions.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "predictions.jsonl").write_bytes(lines[0] + lines[1][:40])  # a crash cut the second batch
    assert evaluate(model, items[:6], judge=RuleRubric(), folder=tmp_path).turns != ()
    with pytest.raises(AssertionError):
        evaluate(Gone(world, tasks, wrong=0.1), items[:6], folder=tmp_path)  # another model asks anew


def test_what_a_server_failed_to_answer_is_asked_again(recorded, tmp_path):
    world, tasks, _, items = recorded
    model = PlantedSimulator(world, tasks)

    class Down(PlantedSimulator):
        def predict(self, asked):
            return [Prediction(None, "", error="no server") for _ in asked]

    assert evaluate(Down(world, tasks), items[:2], folder=tmp_path).fidelity.coverage.estimate == 0
    assert evaluate(model, items[:2], folder=tmp_path).fidelity.exact.estimate == 1


def test_scores_on_the_tree_have_their_producer_and_shared_turns_count_once(recorded):
    world, tasks, tree, _ = recorded
    held = on_tree(tree)
    found = evaluate(PlantedSimulator(world, tasks, wrong=0.3), held.trajectories)
    new = write_scores(tree, found, held.nodes)
    scores = list(tree.scores(name="fidelity.exact"))
    assert new == len(scores) + len(list(tree.scores(name="fidelity.coverage"))) + len(
        list(tree.scores(name="fidelity.rule"))
    )
    assert sum(s.value for s in scores) == sum(t.exact for t in found.turns)
    assert write_scores(tree, found, held.nodes) == 0
    # Grades of another judge are other grades, whatever it is called.
    for identity in ({"judge": 1}, {"judge": 2}):
        assert write_scores(tree, replace(found, judge=identity), held.nodes) == new
    for other in {score.producer for score in tree.scores(name="fidelity.exact")} - {
        s.producer for s in scores
    }:
        tree.retire(other, "another judge")
    (producer,) = {score.producer for score in scores}
    tree.retire(producer, "wrong on purpose")
    assert not list(tree.scores(name="fidelity.exact"))


def test_baselines_and_their_paired_difference(recorded):
    world, tasks, _, items = recorded
    train = list(items[:16])
    test = items[16:]
    model = evaluate(PlantedSimulator(world, tasks, wrong=0.1), test)
    nearest = evaluate(NearestTurn(train), test)
    copy = evaluate(CopyLast(), test)
    common = evaluate(CommonAnswer(train), test)
    assert copy.turns[0].prediction == ""
    assert copy.turns[1].prediction == test[0].turns[0].observation
    assert nearest.fidelity.coverage.estimate == common.fidelity.coverage.estimate == 1.0
    seen = evaluate(NearestTurn(train, neighbours=1, history=99), train)
    assert seen.fidelity.exact.estimate > 0.9  # its own turn is the nearest
    told = compare_simulators(nearest.turns, model.turns, names=("nearest", "model"))
    gap = told.overall["exact"]
    assert gap.difference == pytest.approx(model.fidelity.exact.estimate - nearest.fidelity.exact.estimate)
    assert 0 < gap.low < gap.difference < gap.high
    assert gap.p < 0.01
    assert gap.trajectories == 8
    assert set(told.domains) == {"tools"}
    with pytest.raises(BadInput, match="share no turn"):
        compare_simulators(model.turns, evaluate(CopyLast(), train).turns)


def test_refusals(recorded, tmp_path):
    world, tasks, _, items = recorded
    policy = open_policy("scripted:coin")
    with pytest.raises(BadInput, match="judge is the simulator"):
        evaluate(WorldModel(policy), items, judge=RubricJudge.of(open_policy("scripted:coin")))
    model = PlantedSimulator(world, tasks)
    record_ = tmp_path / "training.json"
    record_.write_text(json.dumps({"data": {"sources": [items[0].source]}}))
    with pytest.raises(BadInput, match="shows memory"):
        evaluate(model, items, model_folder=tmp_path / "policy")
    record_.write_text(json.dumps({"data": {"sources": [], "tasks": {items[0].source: [tasks[3].id]}}}))
    with pytest.raises(BadInput, match=tasks[3].id):
        evaluate(model, items, model_folder=tmp_path)
    record_.write_text(json.dumps({"data": {"sources": ["elsewhere"]}}))
    assert evaluate(model, items[:1], model_folder=tmp_path).fidelity.exact.estimate == 1
    for bad in ([], [items[0], items[0]]):
        with pytest.raises(BadInput):
            evaluate(model, bad)


def test_the_papers_scorers_and_ours():
    """arXiv 2606.24597: the table's figure of the 35B model is the mean of its seven domains."""
    table = dict(zip("abcdefg", (64.79, 36.69, 53.96, 65.63, 58.17, 49.55, 65.92), strict=True))
    assert sum(table.values()) == pytest.approx(394.71)
    assert mean_of_domains(table) == pytest.approx(56.39, abs=0.005)
    grades, valid = [1.0, 0.5, None, 0.0, 0.0], [True, True, True, False, True]
    domains = ["x", "x", "x", "x", "y"]
    found = {
        name: overall(grades, valid, domains, failed=failed, over=over)
        for name, (failed, over) in SCORERS.items()
    }
    assert found == pytest.approx({"ours": 25.0, "released": 50.0, "table": 37.5})
    assert overall([None], [True], ["x"], failed="wrong", over="turns") is None


def test_an_ungraded_turn_is_none_and_not_zero():
    item = EnvTrajectory(id="t", source="s", brief=Brief(), turns=(Transition("a", "b"),))
    silent = RubricJudge(ScriptedChat(lambda m: "no grades"), retries=0)
    found = evaluate(CopyLast(), [item], judge=silent).fidelity
    assert found.ungraded == 1
    assert "rubric" not in found.micro
    assert found.scorers["ours"] is None
    assert found.domains.keys() == {"other"}
    assert found.exact_deterministic is None


def test_macro_weighs_domains_alike_and_groups_cover_all_turns():
    def turn(n, domain, exact):
        return JudgedTurn(
            key=f"{n}", trajectory=f"{n}", source="s", domain=domain, turn=1 + n % 12, turn_class="other",
            action="", observation="x", prediction="x" if exact else None, exact=exact,
        )  # fmt: skip

    turns = [turn(n, "terminal", True) for n in range(9)] + [turn(9, "tools", False)]
    found = summarise(turns, "planted")
    assert found.micro["exact"].estimate == 0.9
    assert found.macro["exact"].estimate == 0.5
    assert found.macro["exact"].low > 0
    assert sum(g["exact"].n for g in found.depths.values()) == 10
    assert list(found.depths) == ["1", "2", "3-4", "5-8", "9+"]


def test_rules_by_domain():
    def target(domain, truth):
        item = EnvTrajectory(
            id="t", source="s", brief=Brief(), turns=(Transition("do", truth),), domain=domain
        )
        return Target(item, 0)

    tools = target("tools", '{"id":1,"rows":[{"a":2}]}')
    assert check('{"id":7,"rows":[{"a":0}]}', tools) == 1.0
    assert check('{"id":"7","rows":[]}', tools) == check("oops", tools) == check(None, tools) == 0.0
    assert check("2 passed, 1 failed", target("swe", "1 failed, 2 passed")) == 1.0
    assert check("3 passed", target("swe", "1 failed, 2 passed")) == 0.0
    assert check("cat: a: No such file", target("terminal", "cat: b: No such file")) == 1.0
    assert check("fine", target("terminal", "cat: b: No such file")) == 0.0
    assert check("", target("terminal", "")) == 1.0
