"""Sessions: ids by content, inferred compactions, the summariser's own calls found in a log."""

from __future__ import annotations

import pytest

from refork.compaction import SummaryCall, account
from refork.errors import BadInput
from refork_methods.rot.session import (
    ModelCall,
    SessionLog,
    compaction_from_json,
    compaction_json,
    content_ids,
    session_of,
)


def user(text, **more):
    return {"role": "user", "content": text, **more}


def said(text):
    return {"role": "assistant", "content": text}


RULE = user("Rule: never buy above 100 USD.")
FIRST = [RULE, user("Order paper.")]
SECOND = [*FIRST, said("Paper is ordered."), user("Order ink.")]
SHORT = [
    {"role": "system", "content": "Summary: paper was ordered."},
    user("Order ink."),
    said("Done."),
    user("Buy a desk."),
]


def test_equal_messages_have_one_id_in_all_calls_and_two_in_one():
    named = content_ids([user("a"), user("a"), said("a"), user("b", id="given")])
    assert named[0]["id"].rpartition(".")[0] == named[1]["id"].rpartition(".")[0]
    assert len({m["id"] for m in named}) == 4
    assert named[3]["id"] == "given"
    assert content_ids([user("a")])[0]["id"] == named[0]["id"]
    with pytest.raises(BadInput, match="no id"):
        ModelCall((user("a"),), None)
    with pytest.raises(BadInput, match="no model call"):
        SessionLog("empty", ())


def test_a_shortened_context_is_a_compaction_of_unknown_sight():
    log = session_of([(FIRST, said("Paper is ordered.")), (SECOND, said("Done.")), (SHORT, said("ok"))])
    done = log.calls[2].compaction
    assert log.calls[1].compaction is None
    assert done is not None
    assert not log.calls[2].prompted
    assert done.calls == ()
    rule = log.calls[0].context[0]["id"]
    assert rule in done.dropped
    assert done.inserted == (log.calls[2].context[0]["id"],)


def test_the_summarisers_own_call_is_found_and_is_no_call_of_the_agent():
    asked = [*FIRST, said("Paper is ordered."), user("Summarise the above.")]
    log = session_of(
        [
            (FIRST, said("Paper is ordered.")),
            (SECOND, said("Done.")),
            (asked, said("paper was ordered.")),
            (SHORT, said("ok")),
        ]
    )
    assert len(log.calls) == 3
    done = log.calls[2].compaction
    assert done is not None
    assert done.summary == "paper was ordered."
    assert log.calls[0].context[0]["id"] in done.summarised


@pytest.mark.parametrize("role", ["tool", "assistant"])
def test_a_sub_agents_answer_is_no_summary(role):
    answer = {"role": role, "content": "Forty desks are in stock."}
    calls = [
        (FIRST, said("I ask the store.")),
        ([user("How many desks?")], said("Forty desks are in stock.")),
        ([*FIRST, said("I ask the store."), answer], said("There are forty.")),
    ]
    assert len(session_of(calls).calls) == 3


def test_a_recorded_compaction_is_kept_and_survives_json():
    before = content_ids(SECOND)
    after = content_ids(SHORT)
    done = account(before, after, seen=[before[0]["id"]], calls=[SummaryCall((RULE,), "s")], reason="r")
    log = session_of([ModelCall(before, said("x")), ModelCall(after, said("y"), done)])
    assert log.calls[1].compaction is done
    assert log.calls[1].prompted
    again = compaction_from_json(compaction_json(done), after)
    assert again == done
    with pytest.raises(BadInput, match="no account"):
        compaction_from_json({"seen": []}, after)


def quoting(history, ask="Summarise this."):
    return [user(ask + "\n" + "\n".join(f"{m['role']}: {m['content']}" for m in history))]


def rolling(answers, summary, keep):
    """An agent that answers turn by turn, its history summarised over three messages: calls, and whose."""
    calls, mine, history = [], [], []
    for number, answer in enumerate(answers):
        history.append(user(f"Note {number}: the parcel is in room {number}."))
        if len(history) > 3:
            old, history = history[:-keep], history[-keep:]
            calls.append((quoting(old), said(summary(number))))
            mine.append(False)
            history.insert(0, user(f"What happened before: {summary(number)}"))
        calls.append((list(history), said(answer)))
        mine.append(True)
        history.append(said(answer))
    return calls, mine


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("answer", ["Noted.", "I have put down note {}.", "Parcels lie in rooms {}."])
@pytest.mark.parametrize("summary", ["Parcels lie in rooms.", "Noted. So far {} parcels.", "Notes up to {}."])
def test_an_answer_that_a_summarisers_prompt_quotes_is_no_summary(keep, answer, summary):
    calls, mine = rolling([answer.format(i) for i in range(11)], summary.format, keep)
    log = session_of(calls)
    assert mine.count(False) > 3
    assert [call.context[-1]["content"] for call in log.calls] == [
        shown[-1]["content"] for (shown, _), own in zip(calls, mine, strict=True) if own
    ]
    assert sum(len(c.compaction.calls) for c in log.calls if c.compaction) == mine.count(False)


def test_a_summary_of_summaries_is_found_with_its_parts():
    parts = [quoting(FIRST, "Summarise part one."), quoting(SECOND[2:], "Summarise part two.")]
    both = [user("Join these:\nPaper was asked for.\nInk was asked for.")]
    log = session_of(
        [
            (FIRST, said("Paper is ordered.")),
            (SECOND, said("Done.")),
            (parts[0], said("Paper was asked for.")),
            (parts[1], said("Ink was asked for.")),
            (both, said("paper was ordered.")),
            (SHORT, said("ok")),
        ]
    )
    assert len(log.calls) == 3
    assert len(log.calls[2].compaction.calls) == 3


def test_an_answer_that_calls_tools_is_the_agents():
    acts = said("paper was ordered.") | {"tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}
    log = session_of([(FIRST, said("Fine.")), (SECOND, acts), (SHORT, said("ok"))])
    assert len(log.calls) == 3
