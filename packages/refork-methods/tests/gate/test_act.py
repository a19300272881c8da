from __future__ import annotations

import json

import pytest

from gate.gate_problems import IMPERFECT, model
from refork.errors import BadInput
from refork_methods.gate.commands import app
from refork_methods.gate.controller import BayesController
from refork_methods.gate.model import Prices, write_policy
from support.command import runner

NUMBERS = ["--prior", "0.6", "--fix", "0.25", "--breaks", "0.1"]
for critic in IMPERFECT:
    NUMBERS += ["--critic", f"{critic.name}={critic.right:g},{critic.wrong:g},{critic.price:g}"]


gate = runner(app)


def asked(*arguments):
    return json.loads(gate(*arguments, "--json"))


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "policy.json"
    write_policy(file, model(), Prices(verify=60))
    return file


def test_numbers_and_a_policy_file_give_the_same_answer(policy):
    first = asked("act", policy, "--verify", "retry")
    assert first == asked("act", *NUMBERS, "--price", "verify=60", "--verify", "retry")
    controller = BayesController(model(), Prices(verify=60), 3, "retry")
    choice = controller.act(controller.start())
    assert (first["action"], first["q"], first["reason"]) == (choice.action, dict(choice.q), choice.reason)
    assert first["plan"]["gain"] == pytest.approx(8.8 - 4.2125, abs=1e-3)
    assert first["plan"]["over_always_verify"] == pytest.approx(36.8)


def test_verdicts_move_the_belief(policy):
    told = asked("act", policy, "--verdict", "test=pass", "--verdict", "llm=fail")
    assert told["state"]["used"] == ["llm", "test"]
    assert told["state"]["passed"] == ["test"]
    assert told["state"]["belief"] == pytest.approx(0.75 * 0.2 / (0.75 * 0.2 + 0.25 * 0.65))
    later = asked("act", policy, "--belief", "0.3", "--used", "test", "--candidate", "2")
    assert "test" not in later["q"]
    assert "generate" not in later["q"]
    assert asked("act", policy, "--refused", "--verify", "retry")["state"]["belief"] == 0


def test_numbers_on_the_command_line_change_a_policy_file(policy):
    told = asked("act", policy, "--price", "verify=1", "--prior", "0.9", "--critic", "test=0.99,0.04,3")
    assert told["action"] == "verify"
    assert told["thresholds"]["verify"] == 0.01
    assert (
        asked("act", policy, "--belief", "0.95", "--ship-loss", "5", "--unit", "seconds")["action"] == "ship"
    )


def test_greedy_has_no_bracket(policy):
    assert asked("act", policy, "--method", "greedy")["bracket"] is None


def test_what_is_printed_says_action_reason_and_the_rule_beside(policy):
    told = gate("act", policy, "--verify", "retry")
    assert told.startswith("test: for 2, test moves the belief from 0.600 to 0.750")
    assert "over the best simple rule, cascade(test > llm), +36.80 over always verifying" in told
    assert "for syntax" not in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["act"], "no model"),
        (["act", *NUMBERS, "--price", "verify=-1"], "finite amount of 0 or more"),
        (["act", *NUMBERS, "--price", "lint=1"], "no critic 'lint'"),
        (["act", *NUMBERS, "--critic", "lint=0.9,2"], "is no critic"),
        (["act", *NUMBERS, "--critic", "lint=0.9,,2"], "is no number"),
        (["act", *NUMBERS, "--critic", "a=1,0,1", "--critic", "a=1,0,1"], "given twice"),
        (["act", "--prior", "0.5", "--fix", "0.2"], "both"),
        (["act", *NUMBERS, "--verdict", "test=maybe"], "no verdict"),
        (["act", *NUMBERS, "--verdict", "test=pass", "--verdict", "test=pass"], "already"),
        (["act", *NUMBERS, "--belief", "1.2"], "must lie in"),
        (["act", *NUMBERS, "--unit", "minutes"], "unknown unit"),
        (["act", *NUMBERS, "--verify", "never"], "unknown way of verifying"),
        (["act", *NUMBERS, "--method", "magic"], "unknown method"),
        (["act", "nowhere.json"], "no such file"),
        (["map", *NUMBERS, "--xs", "0.9:0.1:0.1"], "no range"),
        (["map", *NUMBERS, "--xs", "0:1:0.001"], "1001 values"),
        (["map", *NUMBERS, "--x", "luck"], "no parameter"),
        (["map", *NUMBERS, "--rules", "none"], "unknown rules"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, said):
    with pytest.raises(BadInput, match=said):
        gate(*arguments)


def test_a_map_is_a_table_a_picture_and_json(policy, tmp_path):
    picture = tmp_path / "map.svg"
    few = ["--xs", "0.4,0.6,0.8", "--ys", "1,30,60,95", "--verify", "retry"]
    printed = gate("map", policy, *few, "--svg", picture, "--sensitivity")
    assert "verify \\ prior  0.4  0.6  0.8" in printed
    assert "s  stop" in printed
    assert "planning beats the best simple rule in" in printed
    assert "if it were" in printed
    svg = picture.read_text()
    assert svg.startswith("<svg xmlns")
    assert "prior chance that a candidate is right" in svg
    assert "framed: the problem as it stands" in svg
    told = asked("map", policy, *few)
    assert told["marks"][0] == ["v", "v", "v"]
    assert told["marks"][2][1] == "4.6"
    assert told["sensitivity"] is None
    paper = asked("map", policy, *few, "--rules", "paper")
    assert paper["cells"][2][1]["gain"] >= told["cells"][2][1]["gain"]


def test_any_two_parameters_have_default_values(policy):
    told = asked("map", policy, "--x", "gap:test", "--y", "generate", "--ys", "5")
    assert told["xs"][0] == 0.1
    assert len(told["cells"][0]) == len(told["xs"])
