"""MiniWoB pages: on a small folder with its interface, and on the package's own where it is installed."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo, MissingExtra
from refork.forking import fork
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds import World, open_world, resume
from refork.worlds.open import task_from_json, task_to_json
from refork_worlds import miniwob
from refork_worlds.miniwob import KEYS, Act, line, parse
from refork_worlds.web import browser
from support.miniwob_pages import write

WHY = browser.missing()
real = pytest.mark.skipif(WHY is not None, reason=WHY or "")
packaged = pytest.mark.skipif(
    importlib.util.find_spec("miniwob") is None,
    reason="MiniWoB's own pages need the extra miniwob",
)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pages") / "html")


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    browser.close()


def opened(html, page, options=""):
    return open_world(f"miniwob:{page}?html={html}{options}")


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        ("click 3", Act("click", (3,))),
        ("<think>click 1</think>\ntype 4: two words", Act("type", (4,), "two words")),
        ("select 5: b", Act("select", (5,), "b")),
        ("click at 10 20", Act("click", at=(10, 20))),
        ("drag 1 to 2", Act("drag", (1, 2))),
        ("Drag 1, 2 to 30 40", Act("drag", at=(1, 2, 30, 40))),
        ("press enter", Act("press", text="Enter")),
        ("press CONTROL+A", Act("press", text="Control+a")),
        ("press Control+V", None),
        ("hover 2", Act("hover", (2,))),
        ("scroll 2: down", Act("scroll", (2,), "down")),
        ("wait", Act("wait")),
        ('{"action": "click", "ref": 3}', Act("click", (3,))),
        ("submit", None),
        ("open: x.html", None),
        ("click", None),
        ("drag 1 to", None),
        ("", None),
    ],
)
def test_actions(turn, wanted):
    assert parse(turn) == wanted


@given(text=st.text(max_size=30))
def test_any_text_is_an_action_or_none(text):
    found = parse(text)
    assert found is None or found.kind in (
        "click",
        "type",
        "select",
        "press",
        "hover",
        "drag",
        "scroll",
        "wait",
    )
    assert found is None or found.kind != "press" or found.text in KEYS


def test_lines():
    assert line({"role": "button", "name": "ok", "states": []}) == "button name ok"
    field = {
        "role": "combobox",
        "name": "size",
        "value": "a b",
        "choices": ["a b", "c"],
        "states": ["focused"],
    }
    assert line(field) == "combobox name size value a b of a b c focused"
    dot = {"role": "circle", "name": "", "id": "c", "kind": "big", "colour": "rgb(1, 2, 3)", "states": []}
    assert line(dot | {"at": [1, 2, 3, 4]}) == 'circle id c class big colour "rgb(1, 2, 3)" at 1 2 size 3 4'


def test_tasks_are_seeded_and_split(html):
    world = opened(html, "press")
    assert isinstance(world, World)
    assert world.deterministic
    assert open_world(world.name) == world
    train, held = world.tasks("train", 40), world.tasks("held-out", 20)
    assert world.tasks("train", 9) == train[:9]
    assert {one.data["page_seed"] for one in train}.isdisjoint(one.data["page_seed"] for one in held)
    assert {one.data["mode"] for one in train} == {"train"}
    assert {one.data["mode"] for one in held} == {"test"}
    assert [one.id for one in world.tasks("train", 9, seed=1)] != [one.id for one in train[:9]]
    assert task_from_json(world, json.loads(json.dumps(task_to_json(train[0])))) == train[0]
    with pytest.raises(BadInput, match="this task is of press"):
        opened(html, "form").start(train[0], 0)
    with pytest.raises(BadInput, match="page_seed"):
        task_from_json(world, task_to_json(train[0]) | {"data": {**train[0].data, "page_seed": "7"}})
    with pytest.raises(CannotDo, match="restored"):
        world.restore(train[0], b"{}")


def test_the_version_changes_with_the_page_and_its_scripts(tmp_path):
    folder = write(tmp_path / "html")
    before = opened(folder, "press").version
    assert before == opened(folder, "press").version != opened(folder, "form").version
    (folder / "core" / "core.js").write_text("// other")
    miniwob._contents.cache_clear()
    assert opened(folder, "press").version != before


def test_what_cannot_be_opened_is_said(html, tmp_path, monkeypatch):
    for bad, why in (
        ("pres", "for example press"),
        ("press?turns=0", "at least 1"),
        ("press?pace=-1", "0 to 60000"),
        ("press?pace=fast", "cannot be"),
        ("press?colour=red", "unknown option"),
        (f"press?html={tmp_path}", "no MiniWoB pages"),
        ("../core/core", "no page"),
    ):
        name = bad if "html=" in bad else f"{bad}{'&' if '?' in bad else '?'}html={html}"
        with pytest.raises(BadInput, match=why):
            open_world(f"miniwob:{name}")
    monkeypatch.setattr(miniwob, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install 'miniwob>="):
        open_world("miniwob:click-test")


def test_no_browser_is_said_plainly(html, monkeypatch):
    monkeypatch.setenv(browser.VARIABLE, "/nowhere/chromium")
    world = opened(html, "press")
    with pytest.raises(CannotDo, match="no browser at '/nowhere/chromium'"):
        _ = world.start(world.tasks("train", 1)[0], 0).first


@real
def test_a_page_is_told_acted_on_and_graded(html):
    world = opened(html, "form", "&turns=20&pace=10")
    episode = world.start(world.tasks("train", 1)[0], 0)
    shown = re.sub(r"at \d+ \d+ size (\d+ \d+)", r"at X Y size \1", episode.first.text)
    assert shown.split("\n") == [
        "task Fill in.",
        "1 textbox name Name value old",
        "2 checkbox name agree",
        "3 combobox value red of red blue",
        "4 date id day",
        "5 textbox id note",
        "6 p name some bold words",
        "7 link name more",
        '8 circle id dot colour "rgb(255, 0, 0)" at X Y size 18 18',
        "9 div class bin at X Y size 9 9",
        "10 button name Send",
    ]
    for action, shown in (
        ("type 1: ada", "1 textbox name Name value ada focused"),
        ("click 2", "2 checkbox name agree checked focused"),
        ("select 3: blue", "3 combobox value blue of red blue"),
        ("type 4: 2020-02-03", "4 date value 2020-02-03 id day focused"),
        ("type 5: a b", "5 textbox value a b id note focused"),
    ):
        seen = episode.step(action)
        assert shown in seen.text.split("\n")
        assert "invalid" not in seen.info
    for action in ("select 3: green", "click 99", "select 1: blue", "press Control+V"):
        seen = episode.step(action)
        assert seen.text.startswith("nothing happens\ntask Fill in.")
        assert seen.info["invalid"]
    end = episode.step("click 10")
    assert (end.text, end.done, end.reward) == ("the task is done", True, 1.0)
    assert end.info["reason"] == "ada,true,blue,2020-02-03,a b"
    assert episode.step("wait") == end
    episode.close()
    episode = world.start(world.tasks("train", 1)[0], 0)
    assert "focused" not in episode.first.text
    episode.close()
    with pytest.raises(CannotDo, match="closed"):
        episode.step("wait")


@real
def test_clock_and_chance_are_the_pages_own_and_forks_are_exact(html):
    world = opened(html, "move", "&turns=4&pace=250")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    first = episode.first.text
    # A second to draw the problem, then 250 ms a turn, however long the browser took.
    assert "\n1 p name 10\n" in first
    seen = [episode.step(action) for action in ("wait", "click 2", "wait")]
    assert [one.text.split("\n")[1] for one in seen] == ["1 p name 12", "1 p name 15", "1 p name 17"]
    assert len({one.text.split("\n")[2] for one in seen}) == 3
    back, origin = resume(world, task, 7, ["wait", "click 2"], [one.text for one in seen[:2]])
    assert origin == "replayed"
    assert back.step("wait") == seen[2]
    end = back.step("wait")
    assert (end.text, end.done, end.reward) == ("the task is not done", True, -1.0)
    assert end.info["reason"] == "timed out"
    assert back.step("wait") == end
    back.close()
    episode.close()


@real
def test_frames_come_at_the_same_times_however_long_the_browser_took(html):
    world = opened(html, "frames")
    for _ in range(3):
        episode = world.start(world.tasks("train", 1)[0], 0)
        assert episode.first.text == "task Watch.\n1 p name 16048 1577923200048"
        episode.close()


@real
def test_pages_that_are_left_or_loaded_anew_end_too(html):
    world = opened(html, "leave", "&turns=3&pace=10")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    assert episode.step("click 3").text.startswith("dialog hello : accepted\ntask Stay.")
    assert not episode.step("click 2").done
    end = episode.step("wait")
    assert (end.done, end.reward, end.info["reason"]) == (True, -1.0, "timed out")
    episode.close()
    episode = world.start(task, 0)
    end = episode.step("click 1")
    assert (end.done, end.reward, end.info["reason"]) == (True, -1.0, "left the page")
    episode.close()


@real
def test_a_recorded_rollout_is_forked(html):
    world = opened(html, "press", "&turns=2&pace=10")
    sampling = Sampling(max_tokens=4)
    with Tree.memory() as tree:
        policy = ScriptedPolicy.from_replies(["wait", "hover 2"])
        trajectory = (
            grow(tree, policy, world, world.tasks("held-out", 1), draws=1, settings=sampling)[0]
            .forks[0]
            .leaves()[0]
        )
        assert "\ntask Press " in trajectory.root.text
        point = next(step.node for step in trajectory.steps if step.node.kind == "observation")
        arm = fork(tree.at(point), policy, 2, world=world)
        mine = [step.node for leaf in arm.leaves() for step in leaf if step.node.fork == arm.record.id]
        assert {node.origin for node in mine if node.kind == "observation"} == {"replayed"}


@real
@packaged
def test_the_packages_own_pages():
    world = open_world("miniwob:click-test-2")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    assert episode.first.text.split("\n") == [
        "task Click button ONE.",
        "1 button name ONE",
        "2 button name TWO",
    ]
    assert episode.step("click 1").reward == 1.0
    episode.close()


def number_of(text, role, name):
    """The number of the element of a role and a name."""
    wanted = f'"{name}"' if re.search(r"[\s\"#]", name) else name
    found = re.search(rf"^(\d+) {role} name {re.escape(wanted)}(?: |$)", text, re.MULTILINE)
    assert found, (role, name, text)
    return found[1]


def asked(text, pattern):
    found = re.search(pattern, text.split("\n")[0])
    assert found, text
    return found.groups()


def boxes(text):
    (names,) = asked(text, r"Select (.*) and click Submit")
    clicks = [f"click {number_of(text, 'checkbox', one)}" for one in names.split(", ") if one != "nothing"]
    return [*clicks, f"click {number_of(text, 'button', 'Submit')}"]


def option(text):
    (name,) = asked(text, r"Select (.*) and click Submit")
    return [f"click {number_of(text, 'radio', name)}", f"click {number_of(text, 'button', 'Submit')}"]


def listed(text):
    (name,) = asked(text, r"Select (.*) from the list")
    return [f"select 1: {name}", f"click {number_of(text, 'button', 'Submit')}"]


def clicked(role, pattern):
    return lambda text: [f"click {number_of(text, role, asked(text, pattern)[0])}"]


def fields(pattern, *order):
    """Write what is asked for into the fields in order, and press the last button."""

    def solution(text):
        said = asked(text, pattern)
        places = re.findall(r"^(\d+) textbox", text, re.MULTILINE)
        button = re.findall(r"^(\d+) button", text, re.MULTILINE)[-1]
        return [
            *(f"type {place}: {said[one]}" for place, one in zip(places, order, strict=True)),
            f"click {button}",
        ]

    return solution


#: A solution for each page, from what is seen first.
SOLUTIONS = {
    "click-test": lambda text: ["click 1"],
    "click-test-2": lambda text: ["click 1"],
    "click-button": clicked("button", r'the "(.*)" button'),
    "click-link": clicked("span", r'the link "(.*)"'),
    "click-tab": clicked("link", r"Click on (Tab #\d+)"),
    "click-dialog": lambda text: [f"click {number_of(text, 'button', 'Close')}"],
    "click-checkboxes": boxes,
    "click-option": option,
    "choose-list": listed,
    "focus-text": lambda text: ["click 1"],
    "login-user": fields(r'username "(.*)" and the password "(.*)" into', 0, 1),
    "enter-text": fields(r'Enter "(.*)" into', 0),
    "enter-password": fields(r'password "(.*)" into both', 0, 0),
}


@real
@packaged
@pytest.mark.parametrize("page", SOLUTIONS)
def test_the_packages_pages_are_solved_missed_and_forked(page):
    world = open_world(f"miniwob:{page}?turns=9")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    actions = SOLUTIONS[page](episode.first.text)
    seen = [episode.step(action) for action in actions]
    assert (seen[-1].done, seen[-1].reward) == (True, 1.0), (episode.first.text, actions, seen)
    assert all("invalid" not in one.info for one in seen)
    back, _ = resume(world, task, 0, actions[:-1], [one.text for one in seen[:-1]])
    assert back.step(actions[-1]) == seen[-1]
    brief = open_world(f"miniwob:{page}?turns=3")
    late = brief.start(brief.tasks("train", 1)[0], 0)
    missed = [late.step(action) for action in ("click at 159 209", "sing", "wait")]
    assert missed[1].info["invalid"]
    assert (missed[-1].done, missed[-1].reward) == (True, -1.0)
    for one in (episode, back, late):
        one.close()
