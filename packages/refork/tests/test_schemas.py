"""Values by a stranger's schema: right, wrong, and schemas that would take for ever or fetch something."""

from __future__ import annotations

import io
import json
import sys
import threading

import pytest

pytest.importorskip("jsonschema")

from refork import schemas
from refork.errors import MissingExtra
from refork.schemas import Checker, mismatch

NAMES = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}
#: Each reference is made twice: 2 ** 40 places to look at, and none to find.
DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}}


def test_values_that_fit_and_where_others_do_not():
    assert mismatch(NAMES, {"names": ["ann"]}) is None
    assert mismatch(NAMES, {"names": ["ann", 5]}) == "$.names[1]: 5 is not of type 'string'"
    assert mismatch({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}, 2) == "$: 1 was expected"
    assert mismatch(True, 1) is None
    assert mismatch(False, 1) == "$: False schema does not allow 1"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nope"}, "its schema is none"),
        ({"pattern": "["}, "its schema is none"),
        (3, "its schema cannot be used"),
        ({"$ref": "#"}, "its schema cannot be used: RecursionError"),
        ({"$ref": "#/nowhere"}, "its schema refers to what it does not hold"),
        ({"$ref": "http://127.0.0.1:9/schema"}, "its schema refers to what it does not hold"),
        ({"$ref": "file:///etc/passwd"}, "its schema refers to what it does not hold"),
    ],
)
def test_a_schema_that_is_none_is_told_as_that(schema, said):
    assert mismatch(schema, "a").startswith(said)
    assert mismatch({}, "a") is None


def test_a_schema_that_never_ends_is_given_up_and_the_next_is_checked():
    checker = Checker(0.5)
    try:
        for schema in ({"pattern": "(a+)+$"}, {"$defs": DOUBLING, "$ref": "#/$defs/d0"}):
            assert checker.mismatch(schema, "a" * 60 + "!") == "it could not be checked in 0.5 s and 1024 MiB"
        patient = Checker()
        assert patient.mismatch({"type": "string"}, 1) == "$: 1 is not of type 'string'"
        patient.close()
        assert patient.mismatch({"type": "string"}, "a") is None  # closed, it begins again
        patient.close()
    finally:
        checker.close()


def test_a_process_that_ended_while_idle_says_nothing_of_the_next_value():
    checker = Checker()
    try:
        assert checker.mismatch({"type": "string"}, "a") is None
        checker._process.kill()
        checker._process.wait()
        assert checker.mismatch({"type": "string"}, "a") is None
    finally:
        checker.close()


def test_answers_are_one_short_line_of_plain_letters():
    said = mismatch({"type": "object", "required": ["a\n\x1b[31m"]}, {})
    assert said == r"$: 'a\n\x1b[31m' is a required property"
    long = mismatch({"maxLength": 3}, "x" * 1_000_000)
    assert len(long) == schemas.LONGEST
    assert long.endswith(" ...")


def test_what_is_no_json_is_told():
    deep = []
    for _ in range(200_000):
        deep = [deep]
    assert mismatch({}, deep) == "this is no JSON: RecursionError"
    assert mismatch({}, object()) == "this is no JSON: TypeError"
    while deep:  # one level at a time: Python frees nested lists in recursion
        deep = deep.pop()


def test_threads_may_ask_at_the_same_time():
    said = {}

    def ask(number):
        said[number] = mismatch({"const": number}, number % 3)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {0: None, 1: None, 2: None} | {n: f"$: {n} was expected" for n in (3, 4, 5)}


def test_its_process_answers_line_by_line():
    asked = b"".join(json.dumps(one).encode() + b"\n" for one in ([{}, 1], [{"type": "string"}, 1]))
    answers = io.BytesIO()
    schemas._serve(io.BytesIO(asked), answers)
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        None,
        "$: 1 is not of type 'string'",
    ]


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    answers = io.BytesIO()
    schemas._serve(io.BytesIO(b"[{}, 1]\n"), answers)

    class Process:
        stdin, stdout = io.BytesIO(), io.BytesIO(answers.getvalue())
        kill = poll = staticmethod(lambda: None)

    checker = Checker()
    monkeypatch.setattr(checker, "_started", Process)
    with pytest.raises(MissingExtra, match="jsonschema"):
        checker.mismatch({}, 1)
