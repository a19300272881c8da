"""Real pages in a real browser: the tree says what a page holds, actions act, replays agree."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from refork.errors import BadInput, CannotDo
from refork.worlds import open_world, resume
from refork.worlds.environment import Environment
from refork_worlds.web import browser, site
from refork_worlds.web.actions import Action, parse
from refork_worlds.web.tree import nodes, text_of
from refork_worlds.web.world import Visitor, lines

WHY = browser.missing()
real = pytest.mark.skipif(WHY is not None, reason=WHY or "")


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    browser.close()


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        ("click 3", Action("click", 3)),
        ("type 4: two words", Action("type", 4, "two words")),
        ("<think>click 1</think>\nselect 5: b", Action("select", 5, "b")),
        ("open: shop.html", Action("open", None, "shop.html")),
        ("scroll up", Action("scroll", None, "up")),
        ("back", Action("back")),
        ("submit", Action("submit")),
        ('{"action": "type", "ref": 4, "text": "x"}', Action("type", 4, "x")),
        ("click", None),
        ("click 3 times", None),
        ("scroll left", None),
        ("click on the button", None),
        ('{"action": "click", "ref": "3"}', None),
        ("click ²", None),
        ("click " + "9" * 5000, None),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, None),
        ("", None),
    ],
)
def test_actions(turn, wanted):
    assert parse(turn) == wanted


def test_a_line_of_a_page_without_a_plain_number_is_no_reference():
    found = lines("3 button name save\n² button name x\n" + "9" * 5000 + " link name y")
    assert [one.ref for one in found] == [3]


def test_a_tree_becomes_lines_with_references():
    def node(number, role, name="", parent=None, children=(), **more):
        made = {
            "nodeId": str(number),
            "role": {"value": role},
            "name": {"value": name},
            "backendDOMNodeId": number,
        }
        made["childIds"] = [str(child) for child in children]
        return made | ({"parentId": str(parent)} if parent else {}) | more

    checked = {"properties": [{"name": "checked", "value": {"value": "mixed"}}]}
    tree = [
        node(1, "RootWebArea", "x", children=(2, 3, 5, 9)),
        node(2, "heading", "title", 1, (4,)),
        node(3, "LabelText", "", 1, (6, 7)),
        node(4, "StaticText", "title", 2),
        node(5, "checkbox", "all of it", 1, **checked),
        node(6, "StaticText", "name", 3),
        node(7, "combobox", "name", 3, (8,), value={"value": "b"}),
        node(8, "MenuListPopup", "", 7, (10, 11)),
        node(9, "button", "hidden", 1, ignored=True),
        node(10, "option", "a", 8),
        node(11, "option", "b", 8),
    ]
    assert text_of("x", nodes(tree)) == (
        "page x\nheading name title\n1 combobox name name value b of a b\n"
        "2 checkbox name all of it checked-mixed"
    )


def test_a_request_is_never_done_from_the_start():
    world = open_world("web")
    tasks = world.tasks("train", 120) + world.tasks("held-out", 40)
    assert {task.data["kind"] for task in tasks} == set(site.WORDING)
    assert all(site.wanted(task.data) != task.data["state"] for task in tasks)
    assert {t.id for t in tasks[:120]}.isdisjoint(t.id for t in tasks[120:])


def test_no_browser_is_said_plainly(monkeypatch):
    monkeypatch.setenv(browser.VARIABLE, "/nowhere/chromium")
    world = open_world("web")
    with pytest.raises(CannotDo, match="no browser at '/nowhere/chromium'") as caught:
        world.brief(world.tasks("train", 1)[0])
    assert "pip install 'playwright>=" in str(caught.value)
    assert "nowhere" in str(browser.missing())


def test_other_sites_and_folders_are_refused(tmp_path):
    with pytest.raises(BadInput, match="neither a folder"):
        open_world(f"web:{tmp_path}/none")
    with pytest.raises(BadInput, match="no page"):
        open_world(f"web:{tmp_path}")
    (tmp_path / "index.html").write_text("<h1>x</h1>")
    (tmp_path / "tasks.json").write_text('[{"prompt": "x"}]')
    with pytest.raises(BadInput, match="list of tasks"):
        open_world(f"web:{tmp_path}").tasks("train", 1)


@real
def test_visitors_solve_real_pages_and_a_replay_agrees():
    world = open_world("web")
    assert isinstance(world, Environment)
    assert world.deterministic
    task = next(t for t in world.tasks("train", 30) if t.data["kind"] == "language")
    episode, turns, seen = world.start(task, 0), [], []
    first = episode.first
    actor = world.agent(task, 0)
    assert isinstance(actor, Visitor)
    actor.kind = "solve"
    while (action := actor.act(seen)) is not None:
        turns.append(episode.step(action))
        seen.append((action, turns[-1].text))
    assert [turn.reward for turn in turns] == [None] * (len(turns) - 1) + [1.0]
    assert world.standing(task, seen) == (True, 1.0)
    assert all(turn.info["exact"] and turn.info["note"] for turn in turns)
    assert any(f"language {task.data['args'][0]}" in turn.info["note"] for turn in turns)
    assert max(len(turn.text.split()) for turn in turns) < 80
    # What the brief holds is what a page shows.
    assert first.text in world.brief(task).initial_state
    assert episode.snapshot() is None
    with pytest.raises(CannotDo):
        world.restore(task, b"")
    episode.close()
    again, origin = resume(world, task, 1, [a for a, _ in seen[:3]], [t for _, t in seen[:3]])
    assert origin == "replayed"
    assert again.step(seen[3][0]).text == seen[3][1]
    again.close()


@real
def test_a_folder_of_ones_own_with_its_own_tasks(tmp_path):
    page = """<title>one</title><p id=p>red</p><a href="two.html" target=_blank>go</a><a href="http://other.test/">out</a>
      <button onclick="alert('hi'); p.textContent='blue'">paint</button><input aria-label=word>
      <button disabled>no</button>"""
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "two.html").write_text("<title>two</title><table><tr><td>cell</td></tr></table>")
    (tmp_path / "secret.txt").write_text("x")
    (tmp_path / "tasks.json").write_text(
        json.dumps([{"prompt": f"paint {n}", "expect": "blue"} for n in range(8)])
    )
    world = open_world(f"web:{tmp_path}?turns=20")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    assert episode.first.text == (
        "page one\ntext red\n1 link name go\n2 link name out\n3 button name paint\n4 textbox name word\n"
        "5 button name no disabled"
    )
    painted = episode.step("click 3")
    assert painted.text.startswith("dialog hi : accepted\npage one\ntext blue")
    assert "exact" not in painted.info
    assert "4 textbox name word value a b" in episode.step("type 4: a b").text
    assert episode.step("select 4: x").info["invalid"]
    same = episode.step("scroll")
    assert (same.info["changed"], "invalid" in same.info) == (False, False)
    assert episode.step("click 2").text == same.text
    assert episode.step("open: http://other.test/").text.startswith("nothing happens")
    assert episode.step("open: file:///etc/hosts").text.startswith("nothing happens")
    assert episode.step("back").text.startswith("nothing happens")
    assert episode.step("open: two.html").text == "page two\ntext cell"
    assert "page one" in episode.step("back").text
    assert episode.step("click 1").text == "page two\ntext cell"
    assert "page missing" in episode.step("open: ../secret").text
    assert episode.step("submit").text == "the task is not done"
    episode.close()


@real
def test_the_browser_answers_any_thread_and_a_running_loop():
    world = open_world("web")
    task = world.tasks("train", 1)[0]

    def visit(_=None):
        episode = world.start(task, 0)
        text = episode.first.text
        episode.close()
        return text

    async def inside():
        return visit()

    here = asyncio.run(inside())
    with ThreadPoolExecutor(1) as pool:
        assert list(pool.map(visit, range(1))) == [here]
