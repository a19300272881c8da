import pytest

from refork.errors import BadInput
from refork.jsonl import json_objects, read_utf8, write_whole


def test_objects_come_with_their_places():
    lines = ['{"a": 1}\n', "\n", '{"b": null}\n']
    assert list(json_objects(lines, "log")) == [("log:1", {"a": 1}), ("log:3", {"b": None})]


@pytest.mark.parametrize(("line", "what"), [("{", "not JSON"), ("[1]", "not a JSON object")])
def test_a_bad_line_is_named(line, what):
    with pytest.raises(BadInput, match=what) as found:
        list(json_objects(['{"a": 1}', line], "log"))
    assert found.value.where == "log:2"


def test_what_is_no_text_is_named(tmp_path):
    (tmp_path / "a").write_text("ä\n", encoding="utf-8")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    assert read_utf8(tmp_path / "a") == "ä\n"
    for name, what in (
        ("b", "no text in UTF-8"),
        ("c", "cannot be read: No such file"),
        ("", "Is a directory"),
    ):
        with pytest.raises(BadInput, match=what) as found:
            read_utf8(tmp_path / name)
        assert found.value.where == str(tmp_path / name)


def test_a_file_is_written_whole_beside_what_another_writes(tmp_path):
    file = tmp_path / "a.json"
    (tmp_path / "a.json.part").mkdir()
    write_whole(file, "one")
    write_whole(file, "two")
    assert file.read_text() == "two"
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "\ud800")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.json", "a.json.part"]


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"SQLite format 3\0\xf8", "a database, as trees are"),
        (b"PK\x03\x04\x89", "an archive, as logs of inspect_ai are"),
        (b"PAR1\xff", "a Parquet file"),
        (b"\x1f\x8b", "packed by gzip"),
        (b'{\n "trajectory": []\n}', "one JSON document, not a JSON object a line"),
        (b'[{"a": 1}]', "this line is not a JSON object"),
    ],
)
def test_a_file_of_another_tool_is_named_and_what_reads_it(tmp_path, begin, what):
    file = tmp_path / "log"
    file.write_bytes(begin)
    with pytest.raises(BadInput, match=what) as found, file.open(encoding="utf-8") as lines:
        list(json_objects(lines, str(file)))
    assert found.value.hint
    # A later line that ends too soon is a damaged line, whatever stands before it.
    with pytest.raises(BadInput, match="this line is not JSON"):
        list(json_objects(["{}", "{"], "log"))


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfx")
    assert read_utf8(tmp_path / "a") == "x"
