"""Stingy: what earns an answer, and that nothing unearned stands in a list of results."""

import json

import pytest

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_methods.simulate.control.base import Control, Moment, steer
from refork_methods.simulate.control.stingy import Secret, Stingy, items_stated, query_of, teased, unearned

NOISE = NoiseKey(0, 0, 0)
SECRET = Secret(("1893", "Mira Oberg"), {"Mira Oberg": ("M. Oberg",)}, ("orvel works",))
LIST = "1 velora : in 1,893 velora ...\n2 mira oberg : m oberg and MIRA  OBERG , 18930\npage 1 of 1893"


def told(control, task, seen, action, predicted):
    """What a control makes of an answer."""
    return control.after(Moment(task, seen, action, NOISE), predicted)[0]


def task(**data) -> Task:
    return Task("t", "search", "train", "?", data)


@pytest.mark.parametrize(
    ("query", "seen", "left"),
    [
        ("velora", [], ("1893", "Mira Oberg")),
        # The query says an item, or an alias of it: that item is earned, the other is not.
        ("velora 1893", [], ("Mira Oberg",)),
        ("m oberg velora", [], ("1893",)),
        ("velora 18930", [], ("1893", "Mira Oberg")),
        # It says the name that leads to the answer and that the question does not tell.
        ("founder of Orvel Works", [], ()),
        ("orvel", [], ("1893", "Mira Oberg")),
        # A page has shown an item; a list of results has not, and neither has a page that is not there.
        ("velora", [("open: 1", "velora\nin 1893 .")], ("Mira Oberg",)),
        ("velora", [("search: velora", "1 velora : in 1893 .")], ("1893", "Mira Oberg")),
        ("velora", [("open: 1893", "no such page 1893")], ("1893", "Mira Oberg")),
    ],
)
def test_what_a_query_has_earned(query, seen, left):
    assert unearned(SECRET, seen, query) == left


def test_unearned_items_are_taken_out_in_any_way_of_saying_them():
    found = teased(SECRET, SECRET.items, LIST)
    # Numbering, the line that counts pages, and other numbers stay as they are.
    assert found == "1 velora : in ... velora ...\n2 ... : ... and ... , 18930\npage 1 of 1893"
    assert items_stated(SECRET, SECRET.items, LIST) == SECRET.items
    assert not items_stated(SECRET, SECRET.items, found)
    assert teased(SECRET, (), LIST) == LIST
    assert teased(Secret(("5",)), ("5",), "5. a : costs 5 crowns\npage 5 of 5") == (
        "5. a : costs ... crowns\npage 5 of 5"
    )
    assert teased(Secret(("a b", "b c")), ("a b", "b c"), "1 x : a b c a b") == "1 x : ..."


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("1893 was the year it opened", "... was the year it opened"),
        ("1893: the year it opened", "...: the year it opened"),
        ("  1893 velora : a works", "  ... velora : a works"),
        ("3) 1893 was the year", "3) ... was the year"),
    ],
)
def test_a_line_that_begins_with_the_answer_says_it(line, left):
    secret = Secret(("1893", "3"))
    assert items_stated(secret, ("1893", "3"), line) == ("1893",)
    assert teased(secret, secret.items, line) == left


@pytest.mark.parametrize(
    ("action", "query"),
    [
        ("search: velora", "velora"),
        ("<think>search: no</think>\nsearch: velora ; page 2", "velora"),
        (json.dumps({"name": "web_search", "arguments": {"query": "velora"}}), "velora"),
        (json.dumps({"name": "fetch", "arguments": {"url": "x"}}), None),
        ("open: 1", None),
        ("{not json", None),
    ],
)
def test_queries_are_read_from_words_and_from_calls(action, query):
    assert query_of(action) == query


def test_it_acts_on_searches_alone_and_says_what_it_did():
    stingy = Stingy()
    assert isinstance(stingy, Control)
    mine = task(answer=["1893"])
    text, done = steer(stingy, Moment(mine, [], "search: velora", NOISE), LIST)
    assert "1,893" not in text
    assert done == [{"control": "stingy", "changed": True, "items": 1}]
    for action in ("open: 1", "answer: 1893", "search: velora 1893"):
        assert steer(stingy, Moment(mine, [], action, NOISE), LIST) == (LIST, [])
        assert stingy.instruction(Moment(mine, [], action, NOISE)) == ""
    assert "1893" in stingy.instruction(Moment(mine, [], "search: velora", NOISE))
    assert Stingy(tell=False).instruction(Moment(mine, [], "search: velora", NOISE)) == ""
    # What is given goes before what the task says; the record holds it all.
    given = Stingy(("oberg",), needs=("x",), teaser="[more]")
    assert told(given, mine, [], "search: v", "1 v : Oberg , 1893") == "1 v : [more] , 1893"
    assert told(given, mine, [], "search: x", LIST) == LIST
    assert json.loads(json.dumps(given.to_json())) == {
        "control": "stingy", "answer": ["oberg"], "needs": ["x"], "teaser": "[more]", "tell": True,
    }  # fmt: skip


def test_without_an_answer_it_refuses():
    with pytest.raises(BadInput, match="no reference answer"):
        told(Stingy(), task(), [], "search: x", LIST)
    for bad in ("", "...", []):
        with pytest.raises(BadInput):
            Stingy(bad)
    with pytest.raises(BadInput, match="no item"):
        Secret(("a",), {"b": ["c"]})


def test_no_rich_snippet_of_a_real_world_survives_it():
    world, hit = open_world("search?results=3"), 0
    for one in world.tasks("train", 40, 2):
        query = f"search: {one.prompt}"
        said = world.start(one, 0).step(query).text
        found = told(Stingy(), one, [], query, said)
        secret = Stingy().secret(one)
        assert not items_stated(secret, unearned(secret, [], one.prompt), found)
        hit += found != said
    assert hit > 10
