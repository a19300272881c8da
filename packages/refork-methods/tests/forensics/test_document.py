from __future__ import annotations

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.plain import canonical, content_hash, from_json, to_json
from refork.stats import Interval
from refork_methods.forensics.document import (
    diff,
    look_up,
    parse_path,
    resolve,
    with_value,
    without,
    write_path,
)

DOCUMENT = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Fix it."}],
    "files": {"src/a.py": "x = 1", "b": ""},
    "settings": {"noise": 0.1, "errors": 258, "deep": {"on": True}},
}

PLAIN = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4)
VALUES = st.recursive(
    PLAIN,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("messages[1].content", ("messages", 1, "content")),
        ('files["src/a.py"]', ("files", "src/a.py")),
        ("messages[+]", ("messages", "+")),
        ('a["q\\"uote"][0]', ("a", 'q"uote', 0)),
    ],
)
def test_paths_read_and_write_back(path, steps):
    assert parse_path(path) == steps
    if "+" not in steps:
        assert parse_path(write_path(steps)) == steps


@pytest.mark.parametrize("path", ["", ".a", "a[", "a[-1]", "a[x]", "a..b", "a]"])
def test_paths_that_are_none(path):
    with pytest.raises(BadInput):
        parse_path(path)


def test_fields_that_are_not_there():
    for path in ("messages[9]", "files.none", "settings[0]", "messages.role"):
        with pytest.raises(BadInput, match="no field"):
            look_up(DOCUMENT, parse_path(path))
    with pytest.raises(BadInput, match="no such field"):
        with_value(DOCUMENT, ("messages", 7), {})
    with pytest.raises(BadInput, match="no such field"):
        with_value(DOCUMENT, ("messages", "role"), {})


def test_only_a_list_is_appended_to():
    assert resolve(DOCUMENT, parse_path("messages[+]")) == ("messages", 2)
    assert resolve({"a": {"+": 1}}, ("a", "+")) == ("a", "+")
    for path in ("settings[+]", "settings.noise[+]"):
        with pytest.raises(BadInput, match="appends to a list"):
            resolve(DOCUMENT, parse_path(path))


def test_changes_are_named_by_the_deepest_field():
    new = copy.deepcopy(DOCUMENT)
    new["settings"]["deep"]["on"] = False
    new["messages"].append({"role": "user", "content": "?"})
    del new["files"]["b"]
    found = {(c.kind, c.path) for c in diff(DOCUMENT, new)}
    assert found == {("changed", "settings.deep.on"), ("added", "messages[2]"), ("removed", "files.b")}


def test_types_count():
    assert diff({"a": 1}, {"a": 1.0})
    assert diff({"a": 1}, {"a": True})
    assert diff({"a": [1]}, {"a": {"0": 1}})[0].path == "a"


def test_which_of_equal_neighbours_went_is_decided_by_the_declared_one():
    before = {"m": ["a", "x", "x", "x", "b"]}
    after = {"m": ["a", "x", "x", "b"]}
    assert [c.path for c in diff(before, after, ("m", 2))] == ["m[2]"]
    assert [c.path for c in diff(before, after)] == ["m[3]"]


@given(VALUES, VALUES)
def test_no_change_is_seen_exactly_where_the_documents_are_equal(a, b):
    assert (diff({"v": a}, {"v": b}) == []) == (canonical(a) == canonical(b))
    assert diff({"v": a}, {"v": copy.deepcopy(a)}) == []


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.data())
def test_removing_one_element_is_one_change_at_its_index(values, data):
    index = data.draw(st.integers(0, len(values) - 1))
    document = {"m": values}
    found = diff(document, without(document, ("m", index)), ("m", index))
    assert [(c.kind, c.path) for c in found] == [("removed", f"m[{index}]")]


def test_hashes_do_not_depend_on_order_of_keys():
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 2})
    with pytest.raises(BadInput, match="plain JSON"):
        content_hash({"a": math.nan})


def test_infinite_ends_survive_storage():
    interval = Interval(math.inf, 2.0, math.inf, 0.95, "x")
    assert from_json(Interval, to_json(interval)) == interval
    with pytest.raises(BadInput, match="Interval low"):
        from_json(Interval, {**to_json(interval), "low": "far"})
