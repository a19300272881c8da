"""AndroidWorld's and OSWorld's result files: screens, reasons apart, pickles that run nothing."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
import types
from dataclasses import dataclass

import numpy as np
import pytest

from refork.errors import BadInput
from refork.formats import folder_files, reader_for
from refork.tree import Tree
from refork.worlds.trajectories import trajectory_of
from refork_worlds.formats.androidworld import AndroidWorld
from refork_worlds.formats.osworld import OSWorld
from refork_worlds.formats.pickled import number, unpickled

MODULE = "android_world.env.representation_utils"


@pytest.fixture
def element(monkeypatch):
    """AndroidWorld's class for an element, under the name that its pickles give it."""

    @dataclass
    class UIElement:
        text: str | None = None
        content_description: str | None = None
        class_name: str | None = None
        is_clickable: bool | None = None
        is_checked: bool | None = None
        is_visible: bool | None = True

    UIElement.__module__, UIElement.__qualname__ = MODULE, "UIElement"
    for name in ("android_world", "android_world.env", MODULE):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules[MODULE].UIElement = UIElement
    return UIElement


def dumped(path, body):
    path.write_bytes(gzip.compress(pickle.dumps(body)))
    return path


def walk_of(reader, path):
    tree = Tree.memory()
    tree.load(reader.read(path))
    return [tree.path(leaf) for leaf in tree.leaves()]


def t3a(element):
    home = [
        element("WiFi", None, "android.widget.Switch", True, False),
        element("hidden", is_visible=False),
        element(None, "Back", "android.widget.ImageButton", True),
    ]
    on = [element("WiFi", None, "android.widget.Switch", True, True), *home[1:]]
    data = {
        "before_screenshot": [np.zeros((4, 4, 3), np.uint8)] * 2,
        "before_element_list": [home, on],
        "after_element_list": [on, None],
        "action_output": [
            'Reason: it is off\nAction: {"action_type": "click", "index": 0}',
            'Reason: done\nAction: {"action_type": "status", "goal_status": "complete"}',
        ],
    }
    return {
        "goal": "Turn wifi on",
        "episode_data": data,
        "is_successful": np.float64(1.0),
        "task_template": "Wifi",
    }


def test_androidworld_episodes_become_walks_without_androidworld(element, tmp_path, monkeypatch):
    dumped(tmp_path / "Wifi_0.pkl.gz", [t3a(element)])
    for name in ("android_world", "android_world.env", MODULE):
        monkeypatch.delitem(sys.modules, name)
    file = tmp_path / "Wifi_0.pkl.gz"
    (trajectory,) = walk_of(reader_for(file), file)
    found = trajectory_of(trajectory)
    first = "0 Switch text WiFi clickable\n2 ImageButton desc Back clickable"
    assert (found.source, found.domain, found.brief.task_description) == (
        "androidworld",
        "phone",
        "Turn wifi on",
    )
    assert found.brief.initial_state == first
    assert found.history() == (
        ('{"action_type": "click", "index": 0}', first.replace("clickable\n2", "clickable checked\n2")),
        ('{"action_type": "status", "goal_status": "complete"}', "the task is done"),
    )
    assert found.extra["reward"] == 1.0
    reasons = [s.node.message.get("reasoning_content") for s in trajectory.steps if s.node.kind == "action"]
    assert reasons == ["it is off", "done"]
    assert "it is off" not in json.dumps(found.to_json())


def test_androidworld_screens_are_read_from_m3a_prompts(tmp_path):
    one = 'UI element 0: {"index": 0, "text": "Save", "is_clickable": True, "is_editable": False}'
    two = 'UI element 1: {"index": 1, "text": "Name", "is_clickable": False, "is_editable": True}'
    data = {
        "action_prompt": [f"guide\n{one}\nmore"],
        "summary_prompt": [f"before\n{one}\nHere is the list for the after screenshot:\n{two}\nend"],
        "action_output": ["Reason: r\nAction: tap it"],
    }
    path = dumped(tmp_path / "x.pkl.gz", [{"goal": "g", "episode_data": data, "is_successful": float("nan")}])
    found = trajectory_of(walk_of(reader_for(path), path)[0])
    assert found.brief.initial_state == "0 View text Save clickable"
    assert found.history() == (("tap it", "1 EditText text Name editable"),)
    assert "reward" not in found.extra
    data |= {"action_prompt": [None], "summary_prompt": [None]}
    path = dumped(tmp_path / "y.pkl.gz", [{"goal": "g", "episode_data": data, "is_successful": 0.0}])
    with pytest.raises(BadInput, match="only screenshots") as caught:
        list(AndroidWorld().read(path))
    assert "before_element_list" in str(caught.value)


class Runs:
    """A pickle that runs a command when it is opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing(tmp_path):
    mark = tmp_path / "ran"
    path = dumped(tmp_path / "evil.pkl.gz", [{"goal": "g", "episode_data": Runs(mark)}])
    with pytest.raises(BadInput, match=r"names \w+\.system"):
        list(AndroidWorld().read(path))
    # A name that hides behind an allowed package is never looked up, let alone called.
    hidden = b"\x80\x04cnumpy.testing._private.utils\nrunstring\n(X\x05\x00\x00\x00touchtR."
    (tmp_path / "hidden.pkl.gz").write_bytes(gzip.compress(hidden))
    assert type(unpickled(tmp_path / "hidden.pkl.gz")).__mro__[1].__name__ == "PickledObject"
    assert not mark.exists()
    for bad in (b"", b"plain", gzip.compress(b"\x80\x04."), gzip.compress(pickle.dumps([1]))[:-9]):
        (tmp_path / "bad.pkl.gz").write_bytes(bad)
        with pytest.raises(BadInput, match=r"pickle|damaged"):
            unpickled(tmp_path / "bad.pkl.gz")
    assert number(unpickled(dumped(tmp_path / "n.pkl.gz", np.float32(0.5)))) == 0.5
    assert number(unpickled(dumped(tmp_path / "n.pkl.gz", np.float64("nan")))) is None


XML = """<desktop xmlns:s="https://accessibility.ubuntu.example.org/ns/state"
  xmlns:c="https://accessibility.ubuntu.example.org/ns/component"><frame name="Files">
  <push-button name="Save" s:showing="true" s:visible="true" s:enabled="true"
    c:screencoord="(10, 20)" c:size="(40, 10)"/>
  <entry name="File name" s:showing="true" s:visible="true" s:editable="true" s:focused="true"
    c:screencoord="(0, 0)" c:size="(100, 20)">%s</entry>
  <push-button name="Gone" s:showing="false" s:visible="true" s:enabled="true"
    c:screencoord="(1, 1)" c:size="(4, 4)"/>
  <panel name="no control" s:showing="true" s:visible="true" s:enabled="true"
    c:screencoord="(1, 1)" c:size="(4, 4)"/>
</frame></desktop>"""
SCREEN = "push-button name Save at 30 25\nentry name File name%s focused editable at 50 10"


def osworld(folder, trees, action="pyautogui.write('a')", **more):
    folder.mkdir(exist_ok=True)
    steps = [
        {"step_num": n + 1, "action": action, "response": "I see", "reward": 0, "done": False, "info": {}}
        | more
        for n in range(len(trees))
    ]
    for n, tree in enumerate(trees):
        steps[n] |= {"accessibility_tree": tree} if tree else {"screenshot_file": f"step_{n + 1}.png"}
    (folder / "traj.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return folder


def test_osworld_runs_become_walks(tmp_path):
    folder = osworld(tmp_path / "ex1", [XML % "", XML % "a b"], instruction="Save it")
    (folder / "step_0_x.xml").write_text(XML % "")
    (folder / "result.txt").write_text("1.0\n")
    plain = osworld(
        tmp_path / "ex2", ["tag\tname\nlabel\tx"], action={"action_type": "CLICK", "x": 1, "y": 2}
    )
    (plain / "task.json").write_text('{"instruction": "Look"}')
    trajectories = {
        trajectory.root.extra["line"]["example"]: trajectory_of(trajectory)
        for file, reader in folder_files(tmp_path)
        for trajectory in walk_of(reader, file)
    }
    first = trajectories["ex1"]
    assert (first.domain, first.brief.task_description, first.extra["reward"]) == ("desktop", "Save it", 1.0)
    assert first.brief.initial_state == SCREEN % ""
    assert first.history() == (
        ("pyautogui.write('a')", SCREEN % ""),
        ("pyautogui.write('a')", SCREEN % " text a b"),
    )
    assert "I see" not in json.dumps(first.to_json())
    assert trajectories["ex2"].history() == (
        ('{"action_type": "CLICK", "x": 1, "y": 2}', "tag\tname\nlabel\tx"),
    )
    assert reader_for(folder / "traj.jsonl").name == "osworld"


def test_osworld_without_trees_says_what_to_record(tmp_path):
    folder = osworld(tmp_path / "ex", ["", XML % ""])
    with pytest.raises(BadInput, match="no accessibility tree") as caught:
        list(OSWorld().read(folder))
    assert "traj.jsonl:1" in str(caught.value)
    assert 'obs["accessibility_tree"]' in str(caught.value)
    (folder / "step_1.xml").write_text(XML % "")
    assert len(trajectory_of(walk_of(OSWorld(), folder)[0]).turns) == 2
    (folder / "step_1.xml").write_text('<!DOCTYPE a [<!ENTITY b "c">]><a/>')
    with pytest.raises(BadInput, match="entities"):
        list(OSWorld().read(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no format"):
        reader_for(tmp_path / "empty")
    assert reader_for(folder).name == "osworld"
