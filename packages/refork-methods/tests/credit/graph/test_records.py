"""Reading recorded trajectories: three kinds of lines, and everything that is refused."""

import json

import pytest

from refork.errors import BadInput
from refork_methods.credit.graph.advantages import step_advantages
from refork_methods.credit.graph.records import (
    Recorded,
    RecordedStep,
    check_records,
    parse_records,
    read_records,
)
from refork_methods.credit.graph.state_graph import StateGraph


def line(name="a", group="g", steps=("s", "t"), reward=1.0, **more):
    data = {
        "group_id": group,
        "traj_id": name,
        "steps": [{"observation": s} for s in steps],
        "reward": reward,
    }
    return json.dumps(data | more)


def row(traj, step, seen="s", reward=10.0, **more):
    return json.dumps(
        {"uid": "p", "traj_uid": traj, "step": step, "anchor_obs": seen, "episode_rewards": reward, **more}
    )


def test_a_line_per_trajectory():
    found = parse_records([line(), "", line("b", reward=False, task_id="t")])
    assert [(r.task, r.group, r.name, r.reward, len(r.steps)) for r in found] == [
        ("g", "g", "a", 1.0, 2),
        ("t", "g", "b", 0.0, 2),
    ]


def test_all_fields_of_a_step():
    step = {
        "observation": {"x": 1},
        "anchor": 7,
        "action": "go",
        "valid": False,
        "token_ids": [1, 2],
        "mask": [0, 1],
    }
    (found,) = parse_records([line(steps=()).replace('"steps": []', f'"steps": [{json.dumps(step)}]')])
    assert found.steps[0] == RecordedStep({"x": 1}, "7", "go", False, None, (1, 2), (False, True))


def test_rewards_per_step_sum_to_the_episode():
    steps = [{"observation": "s", "reward": 1}, {"observation": "t", "reward": 0.5}]
    text = json.dumps({"group_id": "g", "steps": steps})
    (found,) = parse_records([text])
    assert found.reward == 1.5
    assert found.per_step


def test_conversations():
    talk = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "left", "tool_calls": [{"id": 1}]},
        {"role": "tool", "content": "a wall"},
        {"role": "assistant", "content": "right"},
    ]
    (found,) = parse_records([json.dumps({"group_id": "g", "messages": talk, "reward": 1})])
    assert [step.observation for step in found.steps] == ["be brief\ngo", "a wall"]
    assert found.steps[0].action.startswith("left\n[")


def test_rows_per_step_in_any_order_and_repeated_rows_count_once():
    rows = [row("a", 1, "t"), row("a", 0), row("b", 0, reward=0.0, is_action_valid=False)]
    padded = [*rows, rows[0], rows[2]]
    once, again = parse_records(rows), parse_records(padded)
    assert once == again
    assert [s.observation for s in once[0].steps] == ["s", "t"]
    assert not once[1].steps[0].valid
    found = step_advantages(StateGraph.from_trajectories(again))
    assert found.tolist() == step_advantages(StateGraph.from_trajectories(once)).tolist()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no trajectory"),
        (["{}}"], "not JSON"),
        (["{"], "one JSON document"),
        (["[1]"], "not a JSON object"),
        ([line(group=None)], "no group_id"),
        ([line(group="")], "no group_id"),
        ([line(steps=())], "no steps"),
        ([line(), line()], "two trajectories of this name"),
        ([line(reward=float("nan"))], "reward is nan"),
        ([line(reward=float("inf"))], "reward is inf"),
        ([line(reward="good")], "not a number"),
        ([line(reward=None)], "no reward"),
        ([line().replace('"steps"', '"step"')], "neither steps nor messages"),
        ([line().replace('[{"observation": "s"}', "[5")], "not an object"),
        ([line().replace('"observation": "s"', '"seen": "s"')], "neither an observation"),
        ([line().replace('"observation": "s"', '"observation": null')], "neither an observation"),
        ([row("a", 0).replace('"anchor_obs": "s"', '"anchor_obs": null')], "neither an observation"),
        (
            [line().replace('"observation": "s"', '"observation": "s", "valid": "no"')],
            "neither true nor false",
        ),
        ([line().replace('"observation": "s"', '"anchor": [1]')], "is a name"),
        (
            [line().replace('"observation": "s"', '"observation": "s", "reward": 1')],
            "per episode and per step",
        ),
        (
            [line(reward=None).replace('"observation": "s"', '"observation": "s", "reward": 1')],
            "1 of 2 steps have a reward",
        ),
        (
            [line(reward=None, steps=("s",)).replace('"s"', '"s", "reward": 1'), line("b")],
            "per step in some trajectories",
        ),
        (
            [line().replace('"observation": "s"', '"observation": "s", "mask": [1]')],
            "mask of 1 entries for no",
        ),
        (
            [line().replace('"observation": "s"', '"observation": "s", "tokens": [1, 2], "mask": [1]')],
            "mask of 1 entries for 2",
        ),
        ([json.dumps({"group_id": "g", "messages": [1], "reward": 1})], "not a list of objects"),
        ([row("a", 0).replace('"step": 0, ', "")], "no step number"),
        ([row("a", 0), row("a", 0, "t")], "two different rows"),
        ([row("a", 1)], "not numbered"),
        ([row("a", 0), row("a", 1, reward=0.0)], "disagree about"),
    ],
)
def test_what_is_refused(lines, words):
    with pytest.raises(BadInput, match=words) as caught:
        parse_records(lines, "file")
    assert caught.value.where


def test_what_is_null_is_not_given():
    """As if the field were not there: no task called None, no invalid step, no text that says null."""
    given = json.loads(line())
    for field in ("task_id", "traj_id"):
        assert parse_records([json.dumps(given | {field: None})]) == parse_records(
            [json.dumps({key: value for key, value in given.items() if key != field})]
        )
    step = given["steps"][0] | {"valid": None}
    (found,) = parse_records([json.dumps(given | {"steps": [step, *given["steps"][1:]]})])
    assert found.steps[0].valid
    per_step = json.loads(row("a", 0)) | {"task_id": None, "is_action_valid": None, "anchor_obs": None}
    (found,) = parse_records([json.dumps(per_step | {"observation": "here"})])
    assert (found.task, found.steps[0].valid, found.steps[0].observation) == (found.group, True, "here")
    talk = [
        {"role": "user", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "a"}]},
    ]
    (found,) = parse_records([json.dumps({"group_id": "g", "messages": talk, "reward": 1})])
    assert (found.steps[0].observation, found.steps[0].action) == ("", '[{"name": "a"}]')


def test_files(tmp_path):
    file = tmp_path / "runs.jsonl"
    file.write_text(line() + "\n" + line("b", reward=0) + "\n")
    assert [r.name for r in read_records(file)] == ["a", "b"]
    for bad in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(BadInput, match="cannot be read"):
            read_records(bad)


def test_records_made_in_python_are_checked_too():
    with pytest.raises(BadInput, match="names no group"):
        check_records([Recorded("t", "", "a", (RecordedStep("s"),), 1.0)])
