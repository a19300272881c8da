from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_testbed.worlds.toolcall import NAMES, TOOLS, ToolCallWorld, call_text, plain_texts, score_call


def test_prompts_list_one_tool_of_each_topic_and_ask_for_one():
    for task in open_world("toolcall:4").tasks("train", 30):
        head, *listed, last = task.prompt.split("\n")
        assert (head, len(listed)) == ("tools :", 4)
        for line, name, topic in zip(listed, task.data["names"], task.data["topics"], strict=True):
            assert line == f"{name} finds {topic}"
            assert name in TOOLS[topic]
        asked = task.data["topics"][task.data["names"].index(task.data["right"])]
        assert last.startswith("request : ")
        assert asked in last.split()


def test_rewards():
    world = ToolCallWorld(4)
    task = world.tasks("held-out", 1)[0]
    right = task.data["right"]
    wrong = next(n for n in task.data["names"] if n != right)
    rewards = {
        call_text(right): 1.0,
        f"let me think . {call_text(right)}": 1.0,
        call_text(wrong): 0.5,
        '<call>{"name": ""}': 0.5,
        f"<call>{right}</call>": 0.0,
        f'{{"name": "{right}"}}': 0.0,
        f"you could ask {right} .": 0.0,
        "": 0.0,
    }
    for action, reward in rewards.items():
        assert world.start(task, 0).step(action).reward == reward, action


def test_the_published_rule_takes_what_the_strict_one_refuses():
    listed = ["skyline", "wings", "inn", "song"]
    # The rival's name is part of the listed one; any listed tool will do; the right one is only one of them.
    for name, near, right in (
        ("sky", True, False),
        ("wings", True, False),
        ("skyline", True, True),
        ("songbird", True, False),
        ("chef", False, False),
    ):
        found = score_call(call_text(name), listed, "skyline")
        assert (found.format, found.listed, found.right) == (True, near, right)
    assert score_call(call_text("sky"), listed, "skyline").reward == 0.5


def test_plain_texts_name_no_tool_and_no_request():
    texts = plain_texts(40, 3)
    assert texts == plain_texts(40, 3)
    assert not any(word in NAMES or word in ("tools", "request") for t in texts for word in t.split())


def test_more_tasks_than_there_are_are_refused():
    world = ToolCallWorld(2)
    assert [t.id for t in world.tasks("held-out", 5, 1)] == [t.id for t in world.tasks("held-out", 9, 1)][:5]
    with pytest.raises(BadInput, match="different held-out tasks of toolcall:2"):
        world.tasks("held-out", 70_000)


def test_what_cannot_be_is_refused():
    for spec in ("toolcall:1", "toolcall:9", "toolcall:x", "toolcall:4?slip=1"):
        with pytest.raises(BadInput):
            open_world(spec)
    task = ToolCallWorld().tasks("train", 1)[0]
    for data in ({}, task.data | {"right": "chef cook"}):
        with pytest.raises(BadInput):
            ToolCallWorld().start(Task(task.id, task.world, "train", task.prompt, data), 0)
