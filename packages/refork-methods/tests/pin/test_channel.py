"""Pinned rules change only by the operator's signature."""

from __future__ import annotations

import dataclasses

import pytest

from refork.errors import BadInput, NotSigned
from refork_methods.pin import Constraint, OperatorChannel, PinnedBuffer, SignedChange, changed, next_version

KEY = b"k" * 32
CHANNEL = OperatorChannel(KEY)
RULE = Constraint("spend", "Never buy for more than 100 USD.")
BUFFER = PinnedBuffer((RULE,))
RAISED = Constraint("spend", "Never buy for more than 500 USD.", version=2)


def test_a_signed_change_is_taken_once() -> None:
    change = CHANNEL.sign("replace", RAISED)
    after = changed(BUFFER, [change], CHANNEL)
    assert after.constraints == (RAISED,)
    assert after.digest != BUFFER.digest
    with pytest.raises(NotSigned, match="next is 3"):
        changed(after, [change], CHANNEL)


def test_a_removed_rule_cannot_be_brought_back_by_an_old_change() -> None:
    added = CHANNEL.sign("add", Constraint("mail", "No mail."))
    gone = CHANNEL.sign("remove", Constraint("mail", "No mail.", version=2))
    after = changed(BUFFER, [added, gone], CHANNEL)
    assert [c.id for c in after.constraints] == ["spend"]
    with pytest.raises(NotSigned):
        changed(after, [added], CHANNEL)
    assert next_version(after, "mail") == 3
    again = changed(after, [CHANNEL.sign("add", Constraint("mail", "No mail.", version=3))], CHANNEL)
    assert [c.id for c in again.constraints] == ["spend", "mail"]


@pytest.mark.parametrize(
    "forge",
    [
        lambda c: dataclasses.replace(c, mac="0" * 64),
        lambda c: dataclasses.replace(c, mac="é" * 64),
        lambda c: dataclasses.replace(c, mac="\ud800"),
        lambda c: dataclasses.replace(c, action="remove"),
        lambda c: dataclasses.replace(c, constraint=Constraint("spend", "No limit.", version=2)),
        lambda c: dataclasses.replace(c, constraint=dataclasses.replace(c.constraint, version=3)),
        lambda c: dataclasses.replace(c, constraint=dataclasses.replace(c.constraint, id="other")),
        lambda c: dataclasses.replace(c, constraint=dataclasses.replace(c.constraint, tool="purchase")),
        lambda c: OperatorChannel(b"another key of 32 bytes, at least").sign("replace", c.constraint),
    ],
)
def test_anything_else_is_refused_and_nothing_changes(forge) -> None:
    with pytest.raises(NotSigned):
        changed(BUFFER, [forge(CHANNEL.sign("replace", RAISED))], CHANNEL)
    assert BUFFER.constraints == (RULE,)


def test_adding_what_is_there_and_removing_what_is_not() -> None:
    with pytest.raises(BadInput, match="pinned already"):
        changed(BUFFER, [CHANNEL.sign("add", RAISED)], CHANNEL)
    with pytest.raises(BadInput, match="is not pinned"):
        changed(BUFFER, [CHANNEL.sign("remove", Constraint("mail", "x"))], CHANNEL)


def test_changes_survive_storage_and_bad_ones_are_named() -> None:
    change = CHANNEL.sign("replace", RAISED)
    assert SignedChange.from_json(change.to_json()) == change
    for bad in ({}, {"action": "add", "constraint": {"id": "a"}, "mac": ""}):
        with pytest.raises(BadInput, match="not a signed change"):
            SignedChange.from_json(bad)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(BadInput, match="15 bytes"):
        OperatorChannel(b"k" * 15)
