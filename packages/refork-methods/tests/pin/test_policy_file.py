"""Policy files."""

from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_methods.pin import Constraint, OperatorChannel, change_line, read_changes, read_policy


def test_rules_are_read(tmp_path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "rules:\n  - {id: spend, text: At most 100 USD., kind: soft, tool: purchase}\n  - {id: b, text: B}\n"
    )
    assert read_policy(path) == (
        Constraint("spend", "At most 100 USD.", tool="purchase"),
        Constraint("b", "B"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: []", "no rules"),
        ("just text", "no rules"),
        ("rules: [{id: a}]", "rule 1"),
        ("rules: [{id: a, text: x}, {id: a, text: y}]", "two rules"),
        ("rules: [{id: a, text: x, tol: y}]", "tol"),
        ("rules: [{id: a, text: 7}]", "text"),
        ("rules: [{id: 'a b', text: x}]", "rule 1"),
        ("rules: [{id: a, text: x, cheker: 1}]", "no field 'cheker'"),
        ("rules: [{id: a, text: x, checker: {tool: t, forbid: {amout: 1}}}]", "rule 1, checker"),
        ("rules: [", "not YAML"),
    ],
)
def test_bad_files_are_refused_with_the_place(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message) as caught:
        read_policy(path)
    assert "policy.yaml" in str(caught.value)


def test_a_missing_file(tmp_path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_policy(tmp_path / "none.yaml")


def test_changes_are_read_back(tmp_path) -> None:
    change = OperatorChannel(b"k" * 16).sign("add", Constraint("a", "é"))
    path = tmp_path / "changes.jsonl"
    path.write_text(change_line(change) + "\n")
    assert read_changes(path) == [change]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe", "not text"),
        (b"{}", "changes.jsonl:1"),
        (b"x", "changes.jsonl:1"),
    ],
)
def test_bad_changes_are_refused_with_the_place(tmp_path, data: bytes | None, message: str) -> None:
    path = tmp_path / "changes.jsonl"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadInput, match=message):
        read_changes(path)


def test_a_change_may_hold_any_line_separator(tmp_path) -> None:
    change = OperatorChannel(b"k" * 16).sign("add", Constraint("a", "one\u2028two\x85three"))
    (tmp_path / "changes.jsonl").write_text(change_line(change) + "\n")
    assert read_changes(tmp_path / "changes.jsonl") == [change]
