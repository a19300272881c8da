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
