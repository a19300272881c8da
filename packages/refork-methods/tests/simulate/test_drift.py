import json

import pytest

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey, uniforms
from refork.worlds.base import Observation
from refork_methods.simulate.actions import name_of, read_action
from refork_methods.simulate.drift import alarms, drift_rate
from support.shelf import Shelf, answer


def call(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"))


CONTRADICTIONS = {
    "repeat": ("terminal", [("cat a", "x"), ("cat a", "y")], (0, 1)),
    "repeat-after-another-file": ("terminal", [("cat a", "x"), ("rm b", ""), ("cat a", "y")], (0, 2)),
    "gone": ("terminal", [("ls", "a b c"), ("rm b", ""), ("ls", "a")], (0, 2)),
    "new": ("terminal", [("ls", "a"), ("touch b", ""), ("ls", "a b d")], (0, 2)),
    "missing": ("terminal", [("ls", "a b"), ("cat b", "cat: b: No such file or directory")], (0, 1)),
    "missing-in-folder": ("terminal", [("ls d", "a"), ("cat d/a", "d/a : No such file")], (0, 1)),
    "appeared": ("terminal", [("ls", "a"), ("cat b", "text")], (0, 1)),
    "lines": ("terminal", [("cat a", "x\ny"), ("wc -l a", "3 a")], (0, 1)),
    "query": ("tools", [(call("get_book", id=1), '{"id":1}'), (call("get_book", id=1), '{"id":2}')], (0, 1)),
    "value": (
        "tools",
        [
            (call("get_book", id=1), '{"id":1,"price":3}'),
            (call("list_books"), '{"rows":[{"id":1,"price":4}],"next":null}'),
        ],
        (0, 1),
    ),
    "count": (
        "tools",
        [(call("list_books"), '{"rows":[{"id":1}],"next":null}'), (call("count_books"), '{"count":2}')],
        (0, 1),
    ),
    "search": ("search", [("search: x", "1 a"), ("open: 1", "b"), ("search: x", "1 c")], (0, 2)),
}
SOUND = {
    "written": ("terminal", [("cat a", "x"), ("echo y > a", ""), ("cat a", "y")]),
    "moved": ("terminal", [("ls", "a"), ("cd d", ""), ("ls", "b"), ("cat b", "t")]),
    "removed": ("terminal", [("ls", "a b"), ("rm b", ""), ("ls", "a"), ("cat b", "b : No such file")]),
    "folder": ("terminal", [("ls d", "a"), ("rm -r d", ""), ("ls d", "ls: cannot access 'd'")]),
    "script": ("terminal", [("ls", "a"), ("python make.py", "ok"), ("ls", "a out")]),
    "glob": ("terminal", [("ls", "a.txt b.txt"), ("rm *.txt", ""), ("ls", "")]),
    "time": ("terminal", [("date", "Mon"), ("date", "Tue")]),
    "lines": ("terminal", [("cat a", "x\ny"), ("wc -l a", "2 a"), ("tee a", ""), ("wc -l a", "9 a")]),
    "update": (
        "tools",
        [
            (call("get_book", id=1), '{"id":1,"price":3}'),
            (call("update_book", id=1, price=4), '{"id":1,"price":4}'),
            (call("get_book", id=1), '{"id":1,"price":4}'),
        ],
    ),
    "page": (
        "tools",
        [(call("list_books"), '{"rows":[{"id":1}],"next":1}'), (call("count_books"), '{"count":2}')],
    ),
    "filters": (
        "tools",
        [
            (call("list_books", author=1), '{"rows":[{"id":1}],"next":null}'),
            (call("count_books"), '{"count":2}'),
        ],
    ),
    "perturbed": ("terminal", [("ls", "error: 503 service unavailable , try again"), ("ls", "a")]),
    "results": ("search", [("search: x", "1 a"), ("open: 1", "p"), ("search: y", "1 b"), ("open: 1", "q")]),
    "screen": ("phone", [('{"tap":1}', "on"), ('{"tap":1}', "off")]),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_planted_contradiction_is_found(name):
    domain, seen, turns = CONTRADICTIONS[name]
    found = alarms(domain, seen)
    assert found
    assert {(a.first, a.second) for a in found} == {turns}
    assert found[0].why
    assert found[0].to_json()["second"] == turns[1]


@pytest.mark.parametrize("name", SOUND)
def test_what_may_have_changed_is_no_alarm(name):
    assert alarms(*SOUND[name]) == []


def test_precision_and_recall_on_planted_drift():
    """A real folder never alarms; one whose ls forgets or invents a file does, unless nobody looks again."""
    world, truth, found = Shelf(), [], []
    moves = ["ls", "touch z", "rm a", "ls", "rm c", "ls"]
    for seed in range(200):
        numbers = uniforms([NoiseKey(seed, 5, 0)], 8)[0]
        files = world.tasks("train", 3)[seed % 3].data["files"]
        actions = [moves[int(n * len(moves))] for n in numbers]
        lie = int(numbers[0] * 1e6) % 8 if seed % 2 else None
        seen = []
        for turn in range(8):
            text = answer(files, actions[: turn + 1])
            if turn == lie and actions[turn] == "ls":
                text += " ghost"
            seen.append((actions[turn], text))
        looks = [turn for turn in range(8) if actions[turn] == "ls"]
        lied = lie is not None and actions[lie] == "ls" and len(looks) > 1
        truth.append(lied)
        found.append(bool(alarms("terminal", seen)))
    hits = sum(t and f for t, f in zip(truth, found, strict=True))
    assert sum(truth) > 20
    assert hits / sum(found) == 1.0
    assert hits / sum(truth) == 1.0


def test_the_drift_rate_has_an_interval():
    bad = alarms("terminal", CONTRADICTIONS["repeat"][1])
    rate = drift_rate([bad, [], [], bad])
    assert rate.estimate == 0.5
    assert rate.low < 0.5 < rate.high
    with pytest.raises(BadInput):
        drift_rate([])


def test_drift_stands_in_the_episodes_info():
    from support.shelf import model

    says = iter(["b c", "b"])
    texts = {}
    world = model(lambda prompt: [texts.setdefault(prompt, next(says, "b"))]).world(Shelf())
    episode = world.start(world.tasks("train", 1)[0], 0)
    first, second = (episode.step("ls") for _ in range(2))
    assert isinstance(first, Observation)
    assert "drift" not in first.info
    assert second.info["drift"][0]["rule"] == "repeat"


def test_actions_are_read_by_domain():
    assert read_action("terminal", "ls | wc -l").effect == "read"
    assert read_action("terminal", "cat a > b").touched == {"b"}
    assert read_action("terminal", "ls; rm a").touched is None
    assert read_action("swe", "git commit -m x").touched is None
    assert read_action("tools", call("delete_book", id=1)).effect == "write"
    assert read_action("web", "click 3").effect == "unknown"
    assert (name_of(call("f")), name_of("open: 3"), name_of("rm a")) == ("f", "open", "rm")
