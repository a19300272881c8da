"""JSON of strangers: shapes of files, limits, encodings, and what a skipped item says."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.formats import rows
from refork.formats.rows import objects, read_items
from refork.json_guard import DEPTH, DIGITS, parse_json
from refork.tree.node import NewNode
from refork.tree.records import Position, Remark

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def found(path, raw: bytes) -> list[object]:
    path.write_bytes(raw)
    return [body for _, body in objects(path) if not isinstance(body, Position)]


def kinds(items: list[object]) -> list[str]:
    return ["skipped" if isinstance(one, Remark) else "read" for one in items]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), min_size=1, max_size=4))
def test_lines_arrays_and_documents_are_one_thing(tmp_path_factory, items):
    path = tmp_path_factory.mktemp("rows") / "x.json"
    bom = b"\xef\xbb\xbf"
    lines = "\n".join(json.dumps(one) for one in items).encode()
    assert found(path, lines) == found(path, bom + lines + b"\r\n\n") == items
    for indent in (None, 1):
        assert found(path, json.dumps(items, indent=indent).encode()) == items
        assert found(path, json.dumps(items[0], indent=indent).encode()) == items[:1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), min_size=2, max_size=4),
    st.integers(1, 60),
)
def test_a_cut_array_is_read_up_to_the_cut(tmp_path_factory, items, cut):
    path = tmp_path_factory.mktemp("rows") / "x.json"
    raw = json.dumps(items).encode()
    got = found(path, raw[: max(1, len(raw) - cut)])
    whole = [one for one in got if not isinstance(one, Remark)]
    assert whole == items[: len(whole)]
    assert len(got) - len(whole) <= 1


@pytest.mark.parametrize("between", ["", "\n", "\n\n, "])
def test_what_follows_an_array_is_told(tmp_path, between):
    array = json.dumps([{"a": 1}, {"b": "]"}])
    items = found(tmp_path / "x.json", f"{array}{between}{array}\n".encode())
    assert items[:2] == [{"a": 1}, {"b": "]"}]
    assert [(one.kind, one.what) for one in items[2:]] == [("skipped", "what follows the end of the array")]
    assert found(tmp_path / "y.json", f"{array} \n\n".encode()) == items[:2]


@pytest.mark.parametrize("before", ["", "\n", " \r\n\n"])
def test_a_first_line_that_is_longer_than_what_is_looked_at(tmp_path, monkeypatch, before):
    monkeypatch.setattr(rows, "_LOOK", 64)
    items = [{"a": "x" * 100}, {"b": 1}]
    raw = before + "\n".join(map(json.dumps, items)) + "\n"
    assert found(tmp_path / "x.jsonl", raw.encode()) == items


@pytest.mark.parametrize("text", ["]" * 2000, '\\"]' * 2000, "[" * 2000, "\\"])
def test_brackets_in_texts_do_not_hide_how_deep_values_nest(text):
    for depth, refused in ((DEPTH - 1, False), (DEPTH, True)):
        raw = f'{{"a": {json.dumps(text)}, "b": {"[" * depth}{"]" * depth}}}'.encode()
        if refused:
            with pytest.raises(BadInput, match="deeper"):
                parse_json(raw, "x")
        else:
            assert parse_json(raw, "x")["a"] == text


def test_a_cut_line_says_so(tmp_path):
    got = found(tmp_path / "x.jsonl", b'{"a":1}\n{"b":')
    assert got == [{"a": 1}, Remark("skipped", "the file ends within this line", f"{tmp_path / 'x.jsonl'}:2")]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":1} x', "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"a":' + b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1) + b"}", "nests deeper"),
        (b'{"a":' + b"[" * 200_000, "nests deeper"),
        (b'{"a":-' + b"7" * (DIGITS + 1) + b"}", "digits"),
    ],
)
def test_what_cannot_be_read_is_skipped_with_its_reason(tmp_path, raw, said):
    got = found(tmp_path / "x.jsonl", b'{"n":1}\n' + raw + b'\n{"n":2}\n')
    assert kinds(got) == ["read", "skipped", "read"]
    assert said in got[1].what
    assert ":2" in got[1].where


@pytest.mark.parametrize(
    "raw", ['{"a":1}'.encode("utf-16"), b"PK\x03\x04\0\0", b"\0" * 100, b"", b"\n\n", b"well"]
)
def test_files_that_are_no_text_are_refused(tmp_path, raw):
    with pytest.raises(BadInput) as caught:
        found(tmp_path / "x.jsonl", raw)
    assert "x.jsonl" in str(caught.value)


def test_a_line_beyond_the_limit_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "LINE", 100)
    got = found(tmp_path / "x.jsonl", b'{"a":1}\n{"b":"' + b"x" * 3_000_000 + b'"}\n{"c":1}')
    assert kinds(got) == ["read", "skipped", "read"]
    assert "more than 100 bytes" in got[1].what


def test_what_a_tree_cannot_hold_becomes_plain():
    value = parse_json(b'{"a":NaN,"b":[1e999,-Infinity],"c":"\\ud83d x","d":"\\ud83d\\ude00","e":1e300}', "x")
    assert value == {
        "a": None,
        "b": ["Infinity", "-Infinity"],
        "c": "\ufffd x",
        "d": "\U0001f600",
        "e": 1e300,
    }
    assert parse_json(b'{"a":"' + b"[" * 5000 + b'","b":"' + b"9" * 5000 + b'"}', "x")["b"] == "9" * 5000


def test_brackets_in_texts_take_no_time():
    raw = json.dumps({"a": '["{\\' * 400_000}).encode()
    start = time.process_time()
    parse_json(raw, "x")
    assert time.process_time() - start < 20  # seconds; a search that is not linear takes hours


def test_equal_items_are_told_apart_and_named_by_content(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"a":1,"b":2}\n{"b":2,"a":1}\n{"a":2}\n')
    names = []

    def item(body, name, where):
        names.append(name)
        yield NewNode(kind="task", key=name)

    assert len(list(read_items(file, "x", item))) == 3
    assert names[0][:-1] == names[1][:-1]
    assert [name[-2:] for name in names] == ["/0", "/1", "/0"]
