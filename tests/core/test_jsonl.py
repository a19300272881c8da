import pytest

from ramify.core.errors import BadInput
from ramify.core.jsonl import json_objects


def test_objects_come_with_their_places():
    lines = ['{"a": 1}\n', "\n", '{"b": null}\n']
    assert list(json_objects(lines, "log")) == [("log:1", {"a": 1}), ("log:3", {"b": None})]


@pytest.mark.parametrize(("line", "what"), [("{", "not JSON"), ("[1]", "not a JSON object")])
def test_a_bad_line_is_named(line, what):
    with pytest.raises(BadInput, match=what) as found:
        list(json_objects(['{"a": 1}', line], "log"))
    assert found.value.where == "log:2"
