"""Reading session logs of every form."""

from __future__ import annotations

import json

import pytest

from refork.errors import BadInput
from refork.tree.tree import Tree
from refork_methods.pin.strategies import Truncate
from refork_methods.rot.on_tree import GovernanceProbe
from refork_methods.rot.readers import checkpoint_session, read_lines, read_sessions, write_session
from refork_methods.rot.session import ModelCall, SessionLog, content_ids
from refork_testbed.worlds.house_rules.agents import RuleAgent
from refork_testbed.worlds.house_rules.scenario import scenario
from refork_testbed.worlds.house_rules.tasks import TASKS

ASK, SAY = {"role": "user", "content": "Order ink."}, {"role": "assistant", "content": "Done."}


def write(path, *bodies):
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return path


def test_a_session_a_line_gives_a_call_for_every_assistant_turn(tmp_path):
    log = read_sessions(write(tmp_path / "s.jsonl", {"messages": [ASK, SAY, ASK, SAY]}))[0]
    assert [len(call.context) for call in log.calls] == [1, 3]
    open_end = read_sessions(write(tmp_path / "t.jsonl", {"messages": [ASK, SAY, ASK]}))[0]
    assert open_end.calls[-1].answer is None


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [ASK], "answer": SAY},
        {"messages": [ASK], "response": "Done."},
        {"request": {"messages": [ASK], "tools": []}, "response": {"choices": [{"message": SAY}]}},
    ],
)
def test_a_call_a_line_in_every_form(tmp_path, body):
    log = read_sessions(write(tmp_path / "c.jsonl", body))[0]
    assert log.calls[0].context[0]["content"] == "Order ink."
    assert log.calls[0].answer["content"] == "Done."


def test_calls_are_grouped_by_session(tmp_path):
    lines = [{"messages": [ASK], "answer": SAY, "session": name} for name in ("a", "b", "a")]
    found = read_sessions(write(tmp_path / "c.jsonl", *lines))
    assert [(log.name, len(log.calls)) for log in found] == [("a", 2), ("b", 1)]


def test_what_is_written_is_read_back(tmp_path):
    before = content_ids([ASK, {"role": "user", "content": "More."}, {"role": "user", "content": "Again."}])
    done = Truncate(5).compact(before)
    log = SessionLog("s", (ModelCall(before, SAY), ModelCall(done.messages, SAY, done)))
    assert read_sessions(write_session(log, tmp_path / "s.jsonl")) == [log]


def test_a_written_session_keeps_the_summarisers_calls(tmp_path):
    rule, go = {"role": "user", "content": "Never above 100."}, {"role": "user", "content": "Go."}
    asked = [rule, go, {"role": "user", "content": "Summarise the above."}]
    lines = [
        {"messages": [rule, go], "answer": "fine"},
        {"messages": asked, "answer": "Something is to be bought soon.", "by": "summariser"},
        {
            "messages": [{"role": "user", "content": "Summary: Something is to be bought soon."}],
            "answer": "ok",
        },
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (log,) = read_sessions(path)
    assert len(log.calls) == 2
    assert len(log.calls[1].compaction.calls) == 1
    (again,) = read_sessions(write_session(log, tmp_path / "back.jsonl"))
    assert again.calls == log.calls


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line"),
        ('{"messages": []}\n', "no messages"),
        ('{"messages": [{"content": "x"}]}\n', "needs a role"),
        ('{"messages": [{"role": "user", "content": "x"}], "answer": 3}\n', "no assistant message"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}\n', "no assistant turn"),
        ('{"messages": [{"role": "user", "content": "x"}], "answer": "y", "compaction": 1}\n', "no object"),
        ("not json\n", "not JSON"),
    ],
)
def test_a_bad_log_is_refused_by_line(text, message):
    with pytest.raises(BadInput, match=message):
        read_lines(text.splitlines(), "log.jsonl")


def test_files_that_are_no_log(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read_sessions(tmp_path / "none")
    with pytest.raises(BadInput, match="folder"):
        read_sessions(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BadInput, match="neither text nor a tree"):
        read_sessions(tmp_path / "x.bin")
    Tree.open(tmp_path / "empty.db").close()
    with pytest.raises(BadInput, match="policy's turn"):
        read_sessions(tmp_path / "empty.db")


def test_a_tree_of_forks_is_read_with_its_compaction(tmp_path):
    s = scenario("spend", 3, turns=8, wording="small")
    with Tree.open(tmp_path / "t.db") as tree:
        probe = GovernanceProbe(tree, RuleAgent(compact=True).policy())
        probe.fork_at_compaction(probe.record(s.messages), Truncate(60), s.rule, TASKS["spend"].checker, 1)
    found = read_sessions(tmp_path / "t.db")
    compacted = [log for log in found if any(call.compaction for call in log.calls)]
    assert len(found) == 2
    assert len(compacted) == 1
    history, asked = compacted[0].calls
    assert history.answer is None
    assert asked.compaction.reason.startswith("dropped the")
    assert "policy" in asked.compaction.trimmed
    assert history.context[0]["id"] == s.messages[0]["id"]


def test_a_saved_state_of_autogen_is_read_as_its_context_showed_it(tmp_path):
    context = pytest.importorskip("autogen_core.model_context")
    turns = ["Never buy above 100 USD.", "Understood.", "Order ink.", "Done."]
    messages = [
        {"content": text, "source": "user" if i % 2 == 0 else "agent", "type": kind}
        for i, (text, kind) in enumerate(zip(turns, ["UserMessage", "AssistantMessage"] * 2, strict=True))
    ]
    state = {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": messages}}
    buffered = context.BufferedChatCompletionContext(2).dump_component().model_dump()
    (tmp_path / "state.json").write_text(json.dumps({"state": state, "model_context": buffered}))
    log = read_sessions(tmp_path / "state.json")[0]
    assert [len(call.context) for call in log.calls] == [1, 2]
    assert log.calls[1].compaction.trimmed == ("m0",)


def test_a_langgraph_thread_is_read_with_its_compaction(tmp_path):
    pytest.importorskip("langgraph")
    from langchain_core.runnables import RunnableLambda
    from langgraph.checkpoint.memory import InMemorySaver

    from refork.chat import ScriptedChat
    from refork_methods.pin.frameworks.langchain_messages import LangChainChat
    from refork_methods.pin.frameworks.langgraph import summary_graph

    agent = LangChainChat(ScriptedChat(lambda m: f"answer {len(m)}"))
    graph = summary_graph(
        RunnableLambda(agent.invoke), LangChainChat(ScriptedChat(lambda m: "Ink was ordered.")),
        trigger=4, checkpointer=InMemorySaver(),
    )  # fmt: skip
    config = {"configurable": {"thread_id": "1"}}
    for text in ("Never buy above 100 USD.", "Order ink.", "Order paper.", "Buy a desk."):
        graph.invoke({"messages": [("user", text)]}, config)
    log = checkpoint_session(graph, config)
    assert len(log.calls) == 4
    assert log.calls[3].compaction is not None
    assert not log.calls[3].prompted
    assert "Ink was ordered." in log.calls[3].context[0]["content"]


def test_a_message_a_line_is_one_session(tmp_path):
    log = read_sessions(write(tmp_path / "chat.jsonl", ASK, SAY, ASK, SAY))[0]
    assert (log.name, [len(call.context) for call in log.calls]) == ("chat", [1, 3])
    (tmp_path / "one.jsonl").write_text(json.dumps(ASK))
    assert read_sessions(tmp_path / "one.jsonl")[0].calls[0].answer is None


def test_line_separators_of_unicode_and_a_byte_order_mark_part_no_lines(tmp_path):
    odd = {"role": "user", "content": "one\u2028two\x85three"}
    body = json.dumps({"messages": [odd], "answer": SAY}, ensure_ascii=False)
    (tmp_path / "odd.jsonl").write_text(f"\ufeff{body}\r\n{body}\n", encoding="utf-8")
    log = read_sessions(tmp_path / "odd.jsonl")[0]
    assert [call.context[0]["content"] for call in log.calls] == [odd["content"]] * 2
    assert read_sessions(write_session(log, tmp_path / "again.jsonl")) == [
        SessionLog("odd", log.calls, log.tools)
    ]


def test_a_thread_whose_node_pins_is_never_silently_a_loss(tmp_path):
    pytest.importorskip("langgraph")
    from langgraph.checkpoint.memory import InMemorySaver

    from refork.chat import ScriptedChat
    from refork_methods.pin import Constraint, PinnedBuffer
    from refork_methods.pin.frameworks.langchain_messages import LangChainChat
    from refork_methods.pin.frameworks.langchain_model import pinned_model
    from refork_methods.pin.frameworks.langgraph import summary_graph
    from refork_methods.rot.audit import audit

    rule = Constraint("spend", "Never buy above 100 USD.")
    buffer, seen = PinnedBuffer((rule,)), []
    scripted = ScriptedChat(lambda m: seen.append(list(m)) or "Done.")
    graph = summary_graph(
        pinned_model(LangChainChat(scripted), buffer), LangChainChat(ScriptedChat(lambda m: "Ink.")),
        trigger=4, checkpointer=InMemorySaver(),
    )  # fmt: skip
    config = {"configurable": {"thread_id": "1"}}
    for text in (f"One rule: {rule.text}", "Order ink.", "Order paper.", "Buy a desk."):
        graph.invoke({"messages": [("user", text)]}, config)
    assert all(buffer.check(shown).ok for shown in seen)

    blind = checkpoint_session(graph, config)
    kept = read_sessions(write_session(blind, tmp_path / "s.jsonl"))[0]
    for log in (blind, kept):
        told = audit(log, [rule])
        assert "not in the saved state from call" in told.rules[0].words
        assert any("checkpoint_session(..., pinned=buffer)" in note for note in told.warnings)

    known = checkpoint_session(graph, config, pinned=buffer)
    assert [[m["content"] for m in call.context] for call in known.calls] == [
        [m["content"] for m in shown] for shown in seen
    ]
    told = audit(known, [rule])
    assert not told.has_loss
    assert not any("checkpoint" in note for note in told.warnings)


def test_a_call_marked_as_the_summarisers_is_not_the_agents(tmp_path) -> None:
    user = {"role": "user", "content": "At most 100 USD."}
    said = {"role": "assistant", "content": "Noted."}
    asked = {"role": "user", "content": "Summarise the above."}
    lines = [
        {"messages": [user], "answer": said},
        {"messages": [user, said, asked], "answer": "Nothing of note.", "by": "summariser"},
    ]
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (log,) = read_sessions(path)
    assert [call.answer for call in log.calls] == [said]
    path.write_text(json.dumps(lines[0] | {"by": "me"}) + "\n")
    with pytest.raises(BadInput, match="by is 'me'"):
        read_sessions(path)
