from __future__ import annotations

import json

import pytest

from refork.errors import BadInput
from refork_methods.forensics import Case, Design, Hypothesis, Incident, Prediction, Target
from refork_methods.forensics.commands import app
from refork_methods.forensics.target import TargetJudge
from refork_testbed.worlds.motives.agents import find_agent
from refork_testbed.worlds.motives.world import motive_world
from support.command import runner

POLICY = ("--policy", "scripted:motive-tedium")


forensics = runner(app)


def told(*arguments):
    return json.loads(forensics(*arguments, "--json"))


@pytest.fixture
def case(tmp_path):
    """A case about the tedium agent, with a dose-response that two motives predict."""
    agent = find_agent("tedium")
    world = motive_world(agent.scene)
    target = Target("commits without the hook", TargetJudge().producer)
    made = Case.create(tmp_path / "hook", Incident("hook", agent.policy().card, world.environment(), target))
    design = Design.dose_response("settings.errors", [0, 150, 258], now=258, name="amount of work")
    made.add_design(design)
    names = [arm.name for arm in design.arms]
    for name, rates in (("tedium", [0, 0.06, 0.131]), ("locked", [0.131] * 3)):
        curve = Prediction(design.id, "curve", rates=dict(zip(names, rates, strict=True)))
        made.add_hypothesis(Hypothesis(name, f"It is {name}.", predictions=(curve,)))
    return tmp_path / "hook"


def test_a_sweep_runs_what_the_case_registered_and_files_it(case):
    rows = told("sweep", case, *POLICY, "--n", 40)
    assert [row["design"] for row in rows] == ["amount of work"]
    assert [arm["dose"] for arm in rows[0]["arms"]] == [0, 150, 258]
    assert rows[0]["arms"][0]["hits"] == 0
    assert rows[0]["results"][0]["quantity"] == "trend"
    picture = (case / rows[0]["picture"].rsplit("/", 1)[1]).read_text()
    assert picture.startswith("<svg xmlns")
    assert "predicted: tedium" in picture
    assert Case.open(case).evidence[0].name == "amount of work"
    shown = forensics("sweep", case, *POLICY, "--n", 40)
    assert "Wilson" in shown
    assert "trend" in shown
    assert told("sweep", case, *POLICY, "--n", 40) == rows, "nothing was drawn again"


def test_a_path_and_a_grid_make_a_sweep_of_their_own(case):
    row = told("sweep", case, *POLICY, "--path", "settings.noise", "--grid", "0,0.05,0.3", "--n", 20)[0]
    assert [arm["runs"] + arm["unfinished"] for arm in row["arms"]] == [20, 20, 20]
    with pytest.raises(BadInput, match="belong together"):
        forensics("sweep", case, *POLICY, "--path", "settings.noise")
    with pytest.raises(BadInput, match="no dose"):
        forensics("sweep", case, *POLICY, "--path", "settings.noise", "--grid", "0,x")


def test_edits_alone_and_together(case):
    edit = ("--edit", 'settings.source="an engineer"')
    one = told("factorial", case, *POLICY, *edit, "--n", 20)[0]
    assert one["purpose"] == "counterfactual"
    assert one["results"][0]["quantity"] == "difference"
    two = told("factorial", case, *POLICY, *edit, "--edit", "settings.errors=100", "--n", 20)[0]
    assert two["purpose"] == "factorial"
    assert two["results"][0]["quantity"] == "interaction"
    with pytest.raises(BadInput, match="no edit"):
        forensics("factorial", case, *POLICY, "--edit", "nonsense")
    with pytest.raises(BadInput, match="is a dose response"):
        forensics("factorial", case, *POLICY, "--design", "amount of work")
    again = forensics("factorial", case, *POLICY, "--n", 20)
    assert "interaction" in again


def test_controls_and_the_base(case):
    base = told("controls", case, *POLICY, "--n", 20)[0]
    assert base["arms"][0]["runs"] + base["arms"][0]["unfinished"] == 200
    options = ("--control-model", "scripted:motive-locked@hook", "--planted", "scripted:motive-malign@hook")
    rows = told("controls", case, *POLICY, "--n", 20, "--without", "settings.errors=10", *options)
    assert [row["purpose"] for row in rows] == ["control setting", "control model", "positive control"]
    assert rows[0]["arms"][1]["hits"] == 0
    assert Case.open(case).controls["rollouts"].hits > 0


def test_a_rollout_is_resampled_sentence_by_sentence(case):
    with pytest.raises(BadInput, match="no rollout"):
        forensics("resample", case, *POLICY)
    forensics("controls", case, *POLICY, "--n", 20)
    found = told("resample", case, *POLICY, "--k", 10)
    assert found["telescoping_error"] < 1e-12
    assert found["outcome"] == 1.0
    assert (case / found["file"].rsplit("/", 1)[1]).exists()
    node = found["trace"]
    text = forensics("resample", case, *POLICY, "--k", 10, "--node", node, "--unit", "turn")
    assert "score" in text


def test_a_class_of_sentences_is_redrawn(case):
    found = told("resample", case, *POLICY, "--redraw", "huge task", "--n", 40)
    assert found["arms"][1]["hits"] == 0
    assert found["gave_up"] == 0
    shown = forensics("resample", case, *POLICY, "--redraw", "huge task", "--n", 40)
    assert "not checked" in shown


def test_another_grader_or_model_is_refused(case):
    with pytest.raises(BadInput, match="graded by"):
        forensics("controls", case, *POLICY, "--target-regex", "x")
    with pytest.raises(BadInput, match="about model"):
        forensics("controls", case, "--policy", "scripted:motive-loyal")
