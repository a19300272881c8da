"""Audits: the call at which a rule went, who lost it, who broke it, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refork.compaction import SummaryCall, account
from refork.errors import BadInput
from refork_methods.pin import PinnedBuffer, PinnedCompactor
from refork_methods.pin.constraint import Constraint
from refork_methods.pin.strategies import HeadTail, Summarise, Truncate
from refork_methods.rot.audit import audit, audit_file
from refork_methods.rot.context_diff import context_diffs
from refork_methods.rot.readers import write_session
from refork_methods.rot.session import ModelCall, SessionLog, session_of
from refork_testbed.worlds.house_rules.summarisers import SUMMARISERS
from rot.rot_parts import RULE, SPEND, recorded

BUDGET = 300


def of(compactor, rules=(RULE,)):
    return audit(recorded(compactor), rules)


def test_a_truncated_rule_is_trimmed_at_a_named_call_and_then_broken():
    found = of(Truncate(BUDGET))
    rule = found.rules[0]
    assert rule.stated_at == 1
    assert rule.loss == "trimmed"
    assert rule.back_at is None
    before, at = found.calls[rule.lost_at - 2].rules[0], found.calls[rule.lost_at - 1].rules[0]
    assert (before.visible, at.visible, at.lost, at.shown) == (True, False, "trimmed", False)
    assert found.calls[rule.lost_at - 1].compacted
    assert rule.violated_at == (len(found.calls),)
    assert found.has_loss
    assert f"not visible from call {rule.lost_at} on: dropped before any summariser saw it" in rule.words
    assert rule.words.endswith(f"broken at call {len(found.calls)}")


def test_a_summarised_rule_is_omitted_and_a_kept_one_is_never_lost():
    lost = of(Summarise(SUMMARISERS["drops-rules"](), BUDGET)).rules[0]
    assert (lost.loss, bool(lost.violated_at)) == ("omitted", True)
    kept = of(Summarise(SUMMARISERS["keeps-keywords"](), BUDGET))
    assert kept.rules[0].lost_at is None
    assert not kept.has_loss
    assert not of(HeadTail(BUDGET)).has_loss


def test_a_pinned_session_holds_one_pinned_copy_in_every_call_after_the_first_compaction():
    found = of(PinnedCompactor(Truncate(BUDGET), PinnedBuffer((RULE,))))
    assert not found.has_loss
    compacted = next(i for i, row in enumerate(found.calls) if row.compacted)
    assert all(row.rules[0].pinned == 1 for row in found.calls[compacted:])
    assert found.warnings == ()


def test_without_an_account_the_loss_is_unrecorded_and_with_the_summarisers_call_it_is_not():
    log = recorded(Summarise(SUMMARISERS["drops-rules"](), BUDGET))
    pairs = [(call.context, call.answer) for call in log.calls]
    assert audit(session_of(pairs), [RULE]).rules[0].loss == "unrecorded"
    told = []
    for call in log.calls:
        for asked in call.compaction.calls if call.compaction else ():
            named = [m if m.get("id") else {**m, "id": "ask"} for m in asked.prompt]
            told.append((named, {"role": "assistant", "content": asked.answer}))
        told.append((call.context, call.answer))
    found = session_of(told)
    assert len(found.calls) == len(log.calls)
    assert audit(found, [RULE]).rules[0].loss == "omitted"


def test_a_rule_that_comes_back_is_said_to():
    u = {"role": "user", "content": SPEND.rule, "id": "p"}
    x = {"role": "user", "content": "Order ink.", "id": "x"}
    log = SessionLog("s", tuple(ModelCall(c, None) for c in ((u,), (x,), (x, u))))
    rule = audit(log, [RULE]).rules[0]
    assert (rule.stated_at, rule.lost_at, rule.back_at, rule.loss) == (1, 2, 3, "unrecorded")
    assert "back at call 3" in rule.words


def test_a_rule_in_the_system_message_leaves_nothing_to_measure():
    message = {"role": "system", "content": f"You help. {SPEND.rule}", "id": "s"}
    ask = {"role": "user", "content": "Order ink.", "id": "u"}
    found = audit(SessionLog("s", (ModelCall((message, ask), None),)), [RULE])
    assert any("nothing to measure" in w for w in found.warnings)
    assert any("no compaction fired" in w for w in found.warnings)
    assert not found.has_loss


def test_calls_before_a_rule_was_stated_break_nothing():
    log = recorded(Truncate(BUDGET))
    answer = log.calls[-1].answer
    early = ModelCall(({"role": "user", "content": "Buy it.", "id": "early"},), answer)
    found = audit(SessionLog("s", (early, *log.calls)), [RULE])
    assert (found.rules[0].stated_at, found.rules[0].violated_at) == (2, (len(log.calls) + 1,))
    assert found.calls[0].rules[0].violated is None


def test_what_cannot_be_told_is_said():
    other = Constraint("other", "Never on a Sunday.")
    found = of(HeadTail(BUDGET), (RULE, other))
    assert found.rules[1].words == "never stood in any context word for word"
    assert any(w.startswith("other: its text never stands") for w in found.warnings)
    assert any("no checker" in w for w in found.warnings)
    assert found.calls[0].rules[1].violated is None
    log = recorded(Truncate(BUDGET))
    broken = replace(log.calls[-1], answer={"role": "assistant", "content": '{"name": "purchase", "arg'})
    found = audit(SessionLog("s", (*log.calls[:-1], broken)), [RULE])
    assert found.rules[0].violated_at == ()
    assert any("cannot be read" in w for w in found.warnings)


def test_an_empty_summary_on_record_is_said():
    ask = {"role": "user", "content": SPEND.rule, "id": "u"}
    more = {"role": "user", "content": "Order ink.", "id": "m"}
    done = account([ask, more], [more], calls=[SummaryCall((ask,), " ")])
    found = audit(SessionLog("s", (ModelCall((ask,), None), ModelCall((more,), None, done))), [RULE])
    assert any("empty text" in w for w in found.warnings)


def test_what_cannot_be_audited_is_refused(tmp_path):
    log = recorded(HeadTail(BUDGET))
    with pytest.raises(BadInput, match="no rules"):
        audit(log, [])
    with pytest.raises(BadInput, match="two rules have the id 'spend'"):
        audit(log, [RULE, RULE])
    with pytest.raises(BadInput, match="none of the rules"):
        audit(log, [Constraint("other", "Never on a Sunday.")])
    with pytest.raises(BadInput, match="none of the rules"):
        audit_file(write_session(log, tmp_path / "s.jsonl"), [Constraint("other", "Never on a Sunday.")])

    def fails(call):
        raise ZeroDivisionError("bad checker")

    raising = replace(RULE, checker=fails)
    with pytest.raises(BadInput, match=r"the checker failed.*rule 'spend', call 10"):
        audit(recorded(Truncate(BUDGET)), [raising])


def test_contexts_before_and_after_are_told_message_by_message():
    log = recorded(Summarise(SUMMARISERS["drops-rules"](), BUDGET))
    first = context_diffs(log, [RULE])[0]
    before = {line.id: line for line in first.before}
    assert before["system"].state == "kept"
    assert before["policy"].state == "summarised"
    assert before["policy"].rules == ("spend",)
    written = [line for line in first.after if line.state == "written"]
    assert len(written) == 1
    assert "Summary of the conversation" in written[0].text
    assert first.after[-1].state == "arrived"
    trimmed = context_diffs(recorded(Truncate(BUDGET)), [RULE])[0]
    assert {line.state for line in trimmed.before} == {"kept", "trimmed"}
    bare = session_of([(c.context, c.answer) for c in log.calls])
    assert "gone" in {line.state for line in context_diffs(bare)[0].before}


def test_a_file_of_sessions_passes_over_those_without_the_rule(tmp_path):
    path = write_session(recorded(Truncate(BUDGET)), tmp_path / "s.jsonl")
    with path.open("a") as file:
        file.write('{"messages": [{"role": "user", "content": "Hi."}], "answer": "Hello.", "session": "z"}\n')
    told = audit_file(path, [RULE])
    assert told["skipped"] == ["z"]
    assert told["found"]
    assert told["sessions"][0]["rules"][0]["words"].startswith("stated at call 1")
    assert told["sessions"][0]["diffs"]
