from __future__ import annotations

import json

import pytest

from refork.errors import BadInput
from refork.growing.plant import plant_prompt
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork_methods.stance.marker import marker_of
from refork_methods.stance.prompts import (
    Case,
    choose,
    draw_rollouts,
    no_thinking,
    plant_cases,
    read_prompts,
    recorded_cases,
    rollouts,
)

ROWS = [
    {"prompt": "how?", "intent": "harmful", "source": "set"},
    {"messages": [{"role": "user", "content": "why?"}], "intent": "benign"},
]


def test_prompts_are_read_and_planted_once():
    prompts = read_prompts([json.dumps(row) for row in ROWS])
    assert [(p.intent, p.source) for p in prompts] == [("harmful", "set"), ("benign", "")]
    policy, tree = ScriptedPolicy.from_replies(["yes"]), Tree.memory()
    cases = plant_cases(tree, policy, prompts)
    assert [c.id for c in plant_cases(tree, policy, prompts)] == [c.id for c in cases]
    assert cases[0].root.node.text == "how?"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"intent": "harmful"}, "a prompt needs"),
        ({"prompt": "", "intent": "harmful"}, "a prompt needs"),
        ({"prompt": "x", "messages": [], "intent": "harmful"}, "a prompt needs"),
        ({"prompt": "x", "intent": "rude"}, "intent is 'rude'"),
    ],
)
def test_lines_that_are_no_prompts(row, told):
    with pytest.raises(BadInput, match=told) as error:
        read_prompts([json.dumps(ROWS[0]), json.dumps(row)], "p.jsonl")
    assert "p.jsonl:2" in str(error.value)


def test_an_empty_file_and_a_tree_without_intents():
    with pytest.raises(BadInput, match="no prompts"):
        read_prompts([])
    with pytest.raises(BadInput, match="what was meant"):
        recorded_cases(Tree.memory())
    point = plant_prompt(Tree.memory(), ScriptedPolicy.from_replies(["yes"]), "q")
    with pytest.raises(BadInput, match="no tree"):
        _ = Case(point.__class__(point.node), "harmful").tree


def test_the_choice_depends_on_seed_and_prompt_alone(planted):
    made = planted("P", 2, 6)
    case = made.cases[0]
    nodes = rollouts(case, made.policy.card)
    assert len(nodes) == 6
    picked = [n.id for n in choose(nodes, 3, case, 0)]
    assert picked == [n.id for n in choose(nodes, 3, case, 0)]
    assert len(set(picked)) == 3
    assert len({tuple(n.id for n in choose(nodes, 3, case, seed)) for seed in range(5)}) > 1
    assert len(choose(nodes, 10, case, 0)) == 6
    draw_rollouts(made.cases, made.policy, 6, Sampling(max_tokens=32))
    assert [n.id for n in rollouts(case, made.policy.card)] == [n.id for n in nodes]


def test_no_thinking_closes_what_the_prompt_opened(planted):
    made = planted("P", 1, 1)
    assert no_thinking(made.cases[0], made.marker).ids == (*made.marker.open, *made.marker.close)
    tree = Tree.memory()
    policy = ScriptedPolicy.from_text(lambda text: {"": 1.0}, ["<think>", "</think>"])
    opened = Case(plant_prompt(tree, policy, "q <think>"), "harmful")
    marker = marker_of(policy)
    assert no_thinking(opened, marker).ids == tuple(marker.close)
