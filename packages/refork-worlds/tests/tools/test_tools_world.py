"""The tools world: real constraints, grading by state and answer, exact forks, splits by composition."""

from __future__ import annotations

import json
import re

import pytest

from refork.errors import BadInput
from refork.worlds.environment import Environment
from refork.worlds.open import open_world, task_from_json, task_to_json
from refork_worlds.tools.call import call_text, read_call
from refork_worlds.tools.goals import ASKS, CHANGES, HELD_OUT, Goal, Part, after
from refork_worlds.tools.schema import DATABASES, PEOPLE, THINGS
from refork_worlds.tools.service import Service, tools_of
from refork_worlds.tools.store import Store
from refork_worlds.tools.world import MAX_TURNS, ToolsWorld

ROWS = {
    "books": [
        {"id": i, "title": title, "copies": i} for i, title in enumerate(("fox", "owl", "elk", "bee"), 1)
    ],
    "members": [{"id": 1, "name": "ada", "level": "gold"}],
    "loans": [{"id": 1, "book": 2, "member": 1, "days": 5}, {"id": 2, "book": 2, "member": 1, "days": 4}],
}


@pytest.fixture(scope="module")
def world():
    return open_world("tools")


def answers(*calls, rows=ROWS):
    service = Service(Store(DATABASES["library"], rows))
    found = [service.call(name, arguments) for name, arguments in calls]
    service.store.close()
    return [answer.text for answer in found]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("get_book", {"id": 2}, '{"id":2,"title":"owl","copies":2}'),
        ("get_book", {"id": 9}, '{"error":"no book 9"}'),
        ("get_book", {}, '{"error":"id is missing"}'),
        ("get_book", {"id": "two"}, '{"error":"id must be a number"}'),
        ("get_book", {"id": True}, '{"error":"id must be a number"}'),
        ("get_book", {"id": 1, "page": 2}, '{"error":"there is no argument page"}'),
        ("get_book", {"id": 0}, '{"error":"id must be at least 1"}'),
        ("find_book", {}, '{"error":"there is no such tool"}'),
        ("list_books", {"limit": 9}, '{"error":"limit must be at most 5"}'),
        ("list_books", {"offset": 3}, '{"rows":[{"id":4,"title":"bee","copies":4}],"next":null}'),
        ("list_books", {"limit": 1}, '{"rows":[{"id":1,"title":"fox","copies":1}],"next":1}'),
        ("search_books", {"text": "OW"}, '{"rows":[{"id":2,"title":"owl","copies":2}],"next":null}'),
        ("search_books", {"text": "%"}, '{"rows":[],"next":null}'),
        ("create_book", {"title": "owl", "copies": 1}, '{"error":"title owl is taken"}'),
        ("create_book", {"title": "cat", "copies": 1}, '{"id":5,"title":"cat","copies":1}'),
        ("create_loan", {"book": 7, "member": 1, "days": 2}, '{"error":"no book 7"}'),
        ("update_member", {"id": 1, "level": "blue"}, '{"error":"level must be basic or gold"}'),
        ("update_book", {"id": 1}, '{"error":"nothing to change"}'),
        ("update_book", {"id": 1, "title": "\ud800"}, '{"error":"title is wrong"}'),
        ("delete_book", {"id": 2}, '{"error":"book 2 is in use"}'),
        ("delete_book", {"id": 1}, '{"deleted":1}'),
        ("count_loans", {"book": 2}, '{"count":2}'),
        ("sum_loans", {"column": "days", "book": 2}, '{"sum":9}'),
        ("sum_loans", {"column": "book"}, '{"error":"column must be days"}'),
    ],
)
def test_calls_are_typed_constrained_and_answered_in_fixed_words(name, arguments, said):
    assert answers((name, arguments)) == [said]


def test_ids_follow_the_largest_and_pages_follow_next():
    said = answers(
        ("delete_book", {"id": 4}), ("create_book", {"title": "ant", "copies": 0}), ("list_books", {})
    )
    assert json.loads(said[1])["id"] == 4
    assert json.loads(said[2])["next"] == 3


def test_every_solution_is_accepted_and_standing_reads_it_from_texts(world):
    assert isinstance(world, Environment)
    said = set()
    for split in ("train", "held-out"):
        for task in world.tasks(split, 40):
            for seed in range(2):
                actor, episode, seen = world.agent(task, seed), world.start(task, 0), []
                shown = episode.first
                while not shown.done and (action := actor.act(seen)) is not None:
                    shown = episode.step(action)
                    seen.append((action, shown.text))
                    assert world.standing(task, seen) == (shown.done, shown.reward)
                    said.add(shown.text)
                    assert shown.info["exact"]
                    assert shown.text.isascii()
                assert shown.done
                assert len(seen) <= MAX_TURNS
                if actor.kind == "solver":
                    assert shown.reward == 1.0
    assert {"accepted", "rejected"} <= said


def test_a_submission_is_judged_by_all_rows_and_the_answer():
    part = Part("set", "", "books", 1, "copies", 7, (("books", "1", "fox"),))
    asked = Part("value", "", "books", 2, "copies", 2, (("books", "2", "owl"),))
    goal = Goal(DATABASES["library"], ROWS, (part, asked), after(ROWS, part))
    assert goal.answer == "2"
    assert not goal.reached(ROWS)
    assert goal.reached(after(ROWS, part))
    more = after(ROWS, part)
    more["members"][0]["level"] = "basic"
    assert not goal.reached(more)


def test_snapshot_and_restore_continue_alike_and_the_task_survives_json(world):
    task = world.tasks("train", 3)[2]
    task = task_from_json(world, json.loads(json.dumps(task_to_json(task), sort_keys=True)))
    actor, episode, seen = world.agent(task, 4), world.start(task, 0), []
    for _ in range(2):
        seen.append((actor.act(seen), episode.step(actor.act(seen)).text))
    again = world.restore(task, episode.snapshot())
    for action in (actor.act(seen), call_text("submit", {"answer": "x"}), "more"):
        assert episode.step(action) == again.step(action)
    assert again.step("more").text == "the episode is over"
    with pytest.raises(BadInput, match="of task"):
        world.restore(world.tasks("train", 1)[0], episode.snapshot())
    broken = json.loads(episode.snapshot())
    next(iter(broken["rows"].values()))[0]["id"] = "one"
    with pytest.raises(BadInput, match="not a snapshot"):
        world.restore(task, json.dumps(broken).encode())


def test_the_splits_share_no_composition_and_held_out_kinds_are_known(world):
    kinds = {
        s: {tuple(p["kind"] for p in t.data["parts"]) for t in world.tasks(s, 60)}
        for s in ("train", "held-out")
    }
    assert kinds["held-out"] <= HELD_OUT
    assert not kinds["train"] & HELD_OUT
    others = {pair for pair in ((a, b) for a in CHANGES for b in CHANGES + ASKS) if pair not in HELD_OUT}
    assert all(
        any(a == kind for a, _ in others) or any(b == kind for _, b in others) for kind in CHANGES + ASKS
    )
    assert world.tasks("train", 5) == world.tasks("train", 9)[:5]


def test_texts_are_made_of_the_vocabulary():
    world = ToolsWorld(("shop",))
    words, pieces = set(world.vocabulary()), 0
    tokens = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9\s]+")
    missed = set()
    for task in world.tasks("held-out", 20, seed=5):
        actor, episode, seen = world.agent(task, 1), world.start(task, 0), []
        while (action := actor.act(seen)) is not None and len(seen) < MAX_TURNS:
            seen.append((action, episode.step(action).text))
        found = tokens.findall(" ".join([task.prompt, world.brief(task).text, *sum(seen, ())]))
        pieces += len(found)
        missed |= set(found) - words
    assert pieces > 4000
    assert not missed
    assert not [a for pool in (THINGS, PEOPLE) for a in pool for b in pool if a != b and a in b]


def test_a_turn_is_read_after_thoughts_and_in_fences():
    said = call_text("get_book", {"id": 1})
    assert read_call(f"<think>{call_text('x')}</think> I look\n```json\n{said}\n```") == (
        "get_book",
        {"id": 1},
    )
    assert read_call('{"name":"get_book","arguments":"{\\"id\\": 1}"}') == ("get_book", {"id": 1})
    for wrong in ("", "get_book", "[1]", '{"name":1}', '{"name":"x","arguments":[]}', "[" * 5000):
        with pytest.raises(BadInput):
            read_call(wrong)
    assert tools_of(DATABASES["library"])["get_book"].parameters["required"] == ["id"]
    with pytest.raises(BadInput, match="no database"):
        open_world("tools:bank")
