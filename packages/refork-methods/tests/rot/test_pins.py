"""Checking a log for pinned rules."""

from __future__ import annotations

import json

from refork_methods.pin import Constraint, PinnedBuffer
from refork_methods.rot.pins import check_pins

BUFFER = PinnedBuffer((Constraint("spend", "At most 100 USD."), Constraint("mail", "No mail.")))
HELLO = {"role": "user", "content": "Hello."}
ANSWER = {"role": "assistant", "content": "Yes."}


def test_every_call_is_checked_and_faults_are_named(tmp_path) -> None:
    good = BUFFER.apply([HELLO])
    half = [{**good[0], "content": good[0]["content"].replace("No mail.", "Any mail.")}, HELLO]
    twice = [*good, {"role": "user", "content": BUFFER.constraints[0].entry}]
    inputs = [good, [HELLO], half, twice, BUFFER.apply(twice)]
    log = tmp_path / "calls.jsonl"
    log.write_text(
        "".join(json.dumps({"messages": m, "answer": ANSWER, "session": "s"}) + "\n" for m in inputs)
    )
    found = check_pins(log, BUFFER)
    assert [call.ok for call in found] == [True, False, False, False, True]
    assert [call.fault for call in found] == ["", "missing spend, mail", "missing mail", "doubled spend", ""]
    assert found[1].to_json()["call"] == 2
    assert found[1].where == "s, call 2"


def test_an_altered_lead_is_a_fault(tmp_path) -> None:
    block = BUFFER.apply([HELLO])[0]
    log = tmp_path / "calls.jsonl"
    weak = {**block, "content": block["content"].replace("They hold", "They may hold")}
    log.write_text(json.dumps({"messages": [weak, HELLO], "answer": ANSWER}) + "\n")
    assert check_pins(log, BUFFER)[0].fault == "the block's bytes are not the operator's"
