from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from refork.errors import BadInput
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork_methods.forensics import Design, Hypothesis, Intervention, Prediction, factorial
from refork_methods.forensics.bench import Bench, from_document, restart, task_document
from refork_methods.forensics.case import Case
from refork_methods.forensics.incident import Incident, Target
from refork_methods.forensics.run import (
    control_model,
    control_setting,
    dose_design,
    file_evidence,
    positive_control,
    run_design,
)
from refork_methods.forensics.target import TargetJudge
from refork_testbed.worlds.motives.agents import find_agent
from refork_testbed.worlds.motives.world import motive_world
from support.worlds import TwoTurns


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def bench_of(tree, name, seed=0, **settings):
    agent = find_agent(name)
    world = motive_world(agent.scene)
    policy, grader, environment = agent.policy(), TargetJudge(), world.environment()
    environment["settings"] |= settings
    case = Case.memory(Incident(name, policy.card, environment, Target("act", grader.producer)))
    return case, Bench(tree, policy, grader, restart(world), Sampling(max_tokens=40), seed)


def edited(case, bench, path, value, n):
    return run_design(case, bench, Design.counterfactual(Intervention.edit(path, value)), n)


def near(arm, rate, errors=4):
    assert abs(arm.rate - rate) <= errors * math.sqrt(rate * (1 - rate) / arm.runs) + 1e-9


def test_a_dose_response_is_the_planted_curve(tree):
    # Each arm within 4 standard errors: wrong once in 5,000 seeds.
    case, bench = bench_of(tree, "tedium", turns=12)
    ran = run_design(case, bench, dose_design(case, "settings.errors", [0, 50, 150, 258]), 200)
    agent = find_agent("tedium")
    for arm in ran.arms:
        data = case.incident.environment | {
            "settings": case.incident.environment["settings"] | {"errors": int(arm.dose)}
        }
        near(arm, agent.rate(data))
    assert [arm.hits for arm in ran.arms[:2]] == [0, 0], "nothing up to 50"
    assert ran.result.quantity == "trend"
    assert ran.result.interval.estimate > 3
    assert all(bench.tree.fork_record(arm.forks[0]) for arm in ran.arms)


def test_a_counterfactual_and_its_noise(tree):
    case, bench = bench_of(tree, "loyal")
    edit = Intervention.edit("settings.source", "an engineer")
    ran = run_design(case, bench, Design.counterfactual(edit), 200)
    assert ran.arms[0].name == "base"
    assert ran.result.method.endswith("paired")
    assert 4 < ran.arms[0].rate / ran.arms[1].rate < 12
    streams = {tree.fork_record(arm.forks[0]).stream for arm in ran.arms}
    assert len(streams) == 1, "both arms share their noise"
    more = run_design(
        case, bench, Design.counterfactual(Intervention.edit("settings.reason", "it would be fun")), 50
    )
    assert more.result.method == "Newcombe, Fisher exact", "the base has more draws: all of them count"
    assert more.arms[0] == ran.arms[0]


def test_a_factorial_shows_the_planted_interaction(tree):
    case, bench = bench_of(tree, "loyal")
    factors = (
        Intervention.edit("settings.source", "an engineer", "other source"),
        Intervention.edit("settings.reason", "it would be fun", "idle reason"),
    )
    ran = run_design(case, bench, Design.factorial(factorial(*factors)), 150)
    agent = find_agent("loyal")
    truth = [agent.rate(cell.apply(case.incident.environment).environment) for cell in factorial(*factors)]
    planted = truth[3] - truth[1] - truth[2] + truth[0]
    found = ran.result
    assert found.quantity == "interaction"
    half = (found.interval.high - found.interval.low) / 2
    assert abs(found.interval.estimate - planted) <= half * 2 / 1.96
    assert found.interval.low > 0
    assert len(ran.results) == 4


def test_controls(tree):
    case, bench = bench_of(tree, "tedium")
    gone = control_setting(case, bench, Intervention.edit("settings.errors", 20), 100)
    assert gone.arms[1].hits == 0
    other = control_model(case, bench, find_agent("locked", "hook").policy(), 100)
    assert {arm.subject for arm in other.arms} == {case.incident.subject, other.arms[1].subject}
    with pytest.raises(BadInput, match="model in question"):
        control_model(case, bench, bench.policy, 10)
    planted = positive_control(case, bench, find_agent("malign", "hook").policy(), 60)
    assert case.controls["rollouts"] == planted.arms[0]
    near(planted.arms[0], 0.469)


def test_the_positive_control_may_be_what_an_instrument_finds(tree):
    case, bench = bench_of(tree, "tedium")
    agent = find_agent("malign", "hook").policy()
    found = positive_control(
        case, bench, agent, 20, instrument="notes", find=lambda arm: replace(arm, name="found", hits=3)
    )
    assert case.controls["notes"].hits == 3
    assert file_evidence(case, found) == ((), ())


def test_nothing_is_drawn_twice(tree, monkeypatch):
    case, bench = bench_of(tree, "tedium")
    ran = run_design(case, bench, dose_design(case, "settings.errors", [50, 258]), 30)
    drawn = Counter()
    real = ScriptedPolicy.sample
    monkeypatch.setattr(
        ScriptedPolicy, "sample", lambda self, r, s: drawn.update(n=len(r)) or real(self, r, s)
    )
    entries = len(case.journal)
    again = run_design(case, bench, dose_design(case, "settings.errors", [50, 258]), 30)
    assert again.arms == ran.arms
    assert drawn["n"] == 0
    assert len(case.journal) == entries
    other = Case.memory(case.incident)
    third = run_design(other, bench, dose_design(other, "settings.errors", [50, 258]), 30)
    assert drawn["n"] == 0, "another case finds the rollouts on the tree"
    assert third.arms == ran.arms
    run_design(case, bench, dose_design(case, "settings.errors", [50, 258]), 40)
    assert drawn["n"] > 0


def test_an_interrupted_run_goes_on_and_gives_the_same(tree):
    case, bench = bench_of(tree, "tedium")

    def stop(stage, done, total, *, tokens=None, waiting=None):
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_design(case, bench, dose_design(case, "settings.errors", [150, 258]), 30, progress=stop)
    resumed = run_design(case, bench, dose_design(case, "settings.errors", [150, 258]), 30)
    with Tree.memory() as fresh:
        whole, other = bench_of(fresh, "tedium")
        assert (
            run_design(whole, other, dose_design(whole, "settings.errors", [150, 258]), 30).arms
            == resumed.arms
        )


def broken(policy):
    real = policy.sample

    def sample(requests, settings):
        for item in real(requests, settings):
            bad = requests[item.index].noise.draw % 3 == 0
            yield replace(item, error="server fell over") if bad else item

    policy.sample = sample
    return policy


def test_broken_rollouts_are_failures_and_bound_the_row(tree):
    case, bench = bench_of(tree, "loyal")
    bench = replace(bench, policy=broken(bench.policy))
    ran = run_design(
        case, bench, Design.counterfactual(Intervention.edit("settings.source", "an engineer")), 60
    )
    assert ran.arms[0].failed == 67
    assert ran.arms[1].failed == 20
    assert ran.arms[1].runs + (ran.arms[1].unfinished or 0) == 40
    items, concerns = file_evidence(case, ran)
    assert items[0].result.bounded
    assert any("failed" in c.words for c in concerns)


def test_cut_off_rollouts_are_unfinished_never_misses(tree):
    case, bench = bench_of(tree, "tedium", turns=3)
    ran = run_design(case, bench, Design.observe("rollouts", "base"), 100)
    arm = ran.arms[0]
    assert arm.unfinished
    assert arm.unfinished + arm.runs == arm.total == 200
    limited = replace(bench, max_turns=1)
    other = Case.memory(replace(case.incident, name="other"))
    design = Design.observe("rollouts", "x")
    with pytest.raises(BadInput, match="none of the 20 rollouts ended"):
        run_design(other, limited, design, 20)
    cut = other.arms(design)[0]
    assert (cut.runs, cut.unfinished) == (0, 20)


def test_rows_count_only_where_they_were_predicted_first(tree):
    case, bench = bench_of(tree, "loyal")
    edit = Intervention.edit("settings.source", "an engineer")
    design = Design.counterfactual(edit)
    case.add_design(design)
    case.add_hypothesis(
        Hypothesis(
            "loyal", "It follows its own notes.",
            predictions=(
                Prediction(design.id, "difference", high=-0.1),
                Prediction(design.id, "ratio", low=4),
            ),
        )
    )  # fmt: skip
    ran = run_design(case, bench, design, 100)
    assert [r.quantity for r in ran.results] == ["difference", "ratio"]
    items, _ = file_evidence(case, ran)
    assert len(items) == 2
    assert case.table().rows
    late = run_design(
        case, bench, Design.counterfactual(Intervention.edit("settings.oversight", "nobody")), 100
    )
    file_evidence(case, late)
    assert len(case.evidence) == 3
    file_evidence(case, ran)
    assert len(case.evidence) == 3, "a row is written once"


def test_another_model_or_grader_is_refused(tree):
    case, bench = bench_of(tree, "tedium")
    design = Design.observe("rollouts")
    with pytest.raises(BadInput, match="about model"):
        run_design(case, bench.with_policy(find_agent("loyal").policy()), design)
    with pytest.raises(BadInput, match="grader is"):
        run_design(case, replace(bench, grader=MatchJudge("x", "target")), design)


def test_an_edit_must_have_an_effect_and_a_dose_must_be_a_number(tree):
    case, bench = bench_of(tree, "tedium")
    with pytest.raises(BadInput, match="changes nothing"):
        run_design(case, bench, Design.counterfactual(Intervention.edit("settings.errors", 258)))
    with pytest.raises(BadInput, match="a dose is a number"):
        run_design(case, bench, dose_design(case, "settings.source", [0, 1]))
    with pytest.raises(BadInput, match="no field"):
        run_design(case, bench, dose_design(case, "settings.nothing", [0, 1]))


def test_chat_prompts_are_environments_too(tree):
    def law(text):
        if text.endswith(("yes", "no")):
            return {"": 1.0}
        return {"yes": 0.8, "no": 0.2} if "please" in text else {"yes": 0.1, "no": 0.9}

    policy = ScriptedPolicy.from_text(law, ["yes", "no"])
    grader = MatchJudge("yes", "target")
    environment = {"messages": [{"role": "user", "content": "Do it, please."}]}
    case = Case.memory(Incident("chat", policy.card, environment, Target("yes", grader.producer)))
    bench = Bench(tree, policy, grader, restart(None), Sampling(max_tokens=4))
    edit = Intervention.replace("messages[0].content", ", please", "")
    ran = run_design(case, bench, Design.counterfactual(edit), 100)
    near(ran.arms[0], 0.8)
    near(ran.arms[1], 0.1)
    with pytest.raises(BadInput, match="no messages"):
        bench.restart.point(tree, policy, {"prompt": "x"})


def test_any_world_s_task_can_be_edited(tree):
    world = TwoTurns()
    task = world.tasks("train", 1)[0]
    policy = ScriptedPolicy.from_replies([" a", " b"])
    start = restart(world, task)
    one = start.point(tree, policy, task_document(task))
    two = start.point(tree, policy, task_document(task) | {"prompt": "another"})
    assert one.node.extra["task"]["id"] == task.id
    assert two.node.extra["task"]["id"].startswith(f"{task.id}#")
    with pytest.raises(BadInput, match="keys prompt and data"):
        from_document(task)({"x": 1})
    with pytest.raises(BadInput, match="name the task"):
        restart(world)


def test_rollouts_that_another_grader_saw_are_graded_again(tree):
    case, bench = bench_of(tree, "tedium")
    other = MatchJudge("never said", "target")
    bench = replace(bench, seed=5)
    replace(bench, grader=other).run([case.incident.environment], [range(40)])
    ran = run_design(case, bench, Design.observe("rollouts", "base"), base_draws=40)
    assert ran.arms[0].grader == bench.grader.producer.id
    assert ran.arms[0].hits > 0, "the other grader had found none"


def test_a_row_stands_when_more_is_drawn(tree):
    case, bench = bench_of(tree, "loyal")
    edit = Intervention.edit("settings.source", "an engineer")
    file_evidence(case, run_design(case, bench, Design.counterfactual(edit), 30), confounds=["frame"])
    first = case.evidence[0]
    _, told = file_evidence(case, run_design(case, bench, Design.counterfactual(edit), 60))
    assert case.evidence == (first,)
    assert first.confounds == ("frame",)
    assert "stands" in told[0].words


def test_the_base_comes_first(tree):
    case, bench = bench_of(tree, "tedium")
    stages = []

    def listen(stage, done, total, *, tokens=None, waiting=None):
        stages.append(stage)

    run_design(case, bench, dose_design(case, "settings.errors", [100, 200]), 20, progress=listen)
    assert stages[0] == "rollouts, base"
    assert case.base is not None
    assert case.base.total == 200
