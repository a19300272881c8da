"""Requests that real packages sent, shortened: what is another each time is no difference."""

from __future__ import annotations

import copy
import json
import sys

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import provider as fake
from agents.test_record import Recording
from refork import agents
from refork.agents.dialects import canonical
from refork.agents.tape import Tape, Wire, events_of
from refork.errors import CannotDo
from refork.tree import Tree

TURN = "01a2224b-a5ba-75b3-b734-ee232d1233ce"
RESULT = (
    "Chunk ID: 5930dd\nWall time: 0.0000 seconds\nProcess exited with code 0\nOutput:\nthe north is quiet"
)
#: Codex 0.171.0, the second request of a run.
CODEX = {
    "model": "m", "stream": True, "store": False, "prompt_cache_key": TURN,
    "client_metadata": {"turn_id": TURN, "session_id": TURN},
    "input": [
        {"type": "message", "id": "msg_01a2224b-a64e-7503-b126-d4450ed9e474", "role": "user",
         "content": [{"type": "input_text", "text": "visit the north"}],
         "internal_chat_message_metadata_passthrough": {"turn_id": TURN, "create_time": 1795871712.846404}},
        {"type": "function_call", "status": "completed", "id": "fc_23aa377ff0ca15e7", "name": "exec_command",
         "arguments": '{"cmd": "ls"}', "call_id": "call_afb774b4b6e8b475",
         "internal_chat_message_metadata_passthrough": {"turn_id": TURN}},
        {"type": "function_call_output", "id": "fco_01a2224b-a79e-79b3-b2f7-d45e577f71da",
         "call_id": "call_afb774b4b6e8b475", "output": RESULT,
         "internal_chat_message_metadata_passthrough": {"turn_id": TURN, "create_time": 1795871713.182591}},
    ],
}  # fmt: skip
SHELL = "Command: ls\nOutput: quiet\nError: (none)\nExit Code: 0\nSignal: 0\nProcess Group PGID: 13063"
#: Qwen Code 0.15.10, a result of its shell.
QWEN = {
    "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 8000,
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "visit the north"}]},
        {"role": "assistant", "content": "I go.", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "run_shell", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": SHELL}]},
    ],
}  # fmt: skip

#: Gemini's command line 0.61.0, which makes up ids of calls from the clock.
GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "visit the north"}]},
        {"role": "model", "parts": [{"text": "I go."}, {"functionCall": {
            "name": "run_shell", "args": {"command": "ls"}, "id": "run_1795873116154_0"}}]},
        {"role": "user", "parts": [{"functionResponse": {
            "name": "run_shell", "response": {"output": "quiet"},
            "id": "run_1795873116154_0"}}]},
    ],
}  # fmt: skip
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Chunk ID: 1a\nis what?"}]}
STREAM = "gemini/v1beta/models/m:streamGenerateContent"


@pytest.mark.parametrize(
    ("path", "body", "old", "new", "equal"),
    [
        ("openai/responses", CODEX, TURN, "01a22249-136d-7f21-96dc-294a47a5100c", True),
        ("openai/responses", CODEX, "1795871713.182591", "1795871999.5", True),
        ("openai/responses", CODEX, "msg_01a2224b-a64e", "msg_55c52a53-e0aa", True),
        ("openai/responses", CODEX, "fco_01a2224b", "fco_55c52a53", True),
        ("openai/responses", CODEX, "Chunk ID: 5930dd", "Chunk ID: e479eb", True),
        ("openai/responses", CODEX, "Wall time: 0.0000", "Wall time: 12.5031", True),
        ("openai/responses", CODEX, "exited with code 0", "exited with code 1", False),
        ("openai/responses", CODEX, "the north is quiet", "the north is loud", False),
        ("openai/responses", CODEX, "visit the north", "visit the south", False),
        (STREAM, GEMINI, "1795873116154", "1795873163291", True),
        (STREAM, GEMINI, "quiet", "loud", False),
        ("openai/chat/completions", QWEN, "PGID: 13063", "PGID: 9", True),
        ("openai/chat/completions", QWEN, "Exit Code: 0", "Exit Code: 2", False),
        # What a person says is heard, whatever it looks like.
        ("openai/chat/completions", ASKED, "Chunk ID: 1a", "Chunk ID: 2b", False),
    ],
)
def test_what_command_lines_make_up_each_time_is_no_difference(path, body, old, new, equal):
    told = json.dumps(body)
    assert old in told
    other = json.loads(told.replace(old, new))
    assert (canonical(path, other) == canonical(path, body)) is equal


def test_names_of_items_are_told_apart_all_the_same():
    crossed = copy.deepcopy(CODEX)
    crossed["input"][2]["call_id"] = "call_of_another"
    assert canonical("openai/responses", crossed) != canonical("openai/responses", CODEX)
    # Such a name elsewhere is what a model may hear.
    one, other = ({"input": [{"type": "image", "id": name}]} for name in "ab")
    assert canonical("openai/embeddings", one) != canonical("openai/embeddings", other)


def responded(name, text, body):
    """An exchange whose answer has a name."""
    answer = json.dumps(fake.responses(text)[0] | {"id": name}).encode()
    asked = json.dumps({"model": "m", "store": True, **body}).encode()
    return Wire("POST", "openai/responses", "", asked, 200, {"content-type": "application/json"}, (answer,))


def test_an_answer_that_a_request_names_goes_on_with_its_conversation(tmp_path):
    result = [{"type": "function_call_output", "call_id": "call_1", "output": "wood"}]
    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["agent"], tmp_path)
        tape.add(responded("r1", "I look", {"instructions": "be brief", "input": "where?"}))
        # Asked once more from there, it is one prompt with two answers.
        tape.add(responded("r2", "a door", {"previous_response_id": "r1", "input": result}))
        tape.add(responded("r3", "a gate", {"previous_response_id": "r1", "input": result}))
        tape.add(responded("r4", "and so on", {"previous_response_id": "r3", "input": "go"}))
        tape.add(responded("r5", "what?", {"previous_response_id": "of another program", "input": result}))
        events = events_of(tree, tape.run)
        assert [event.conversation for event in events] == [0, 0, 0, 0, 1]
        path = [step.text for step in tree.path(events[3].node)]
        assert path[1:] == ["be brief\nwhere?", "I look", "wood", "a gate", "go", "and so on"]
        assert tree.node(events[1].node).parent == tree.node(events[2].node).parent
        assert tree.node(tree.node(events[4].node).parent).text == "responses request"


def test_what_a_fork_goes_on_from_is_known_by_the_answers_name(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["agent"], tmp_path)
        tape.add(responded("r1", "I look", {"input": "where?"}))
        draw = Tape(tree, ["agent"], tmp_path, draw=(tape.last, "draw"))
        draw.goes_on(events_of(tree, tape.run))
        event = draw.add(responded("r2", "a door", {"previous_response_id": "r1", "input": "and then?"}))
        assert tree.node(tree.node(event.node).parent).text == "and then?"


def test_a_web_socket_is_refused_so_that_programs_ask_by_http(tmp_path):
    with Recording(tmp_path) as one:
        wanted = {
            "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        }  # fmt: skip
        assert httpx.get(f"{one.address}/openai/responses", headers=wanted).status_code == 426
        assert (one.provider.asked, one.events, one.endpoint.requests) == ([], [], 0)


def test_a_program_that_only_looks_whether_the_server_is_there_asked_no_model(tmp_path):
    code = (
        "import os, httpx; httpx.head(os.environ['ANTHROPIC_BASE_URL']); print('no key'); raise SystemExit(3)"
    )
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, address):
        with pytest.raises(CannotDo, match=r"status 3 and asked no model.*it last said 'no key'") as told:
            agents.record(tree, [sys.executable, "-c", code], to=address, quiet=True)
        # Addresses, in their order, and no keys.
        assert "one of OPENAI_BASE_URL, OPENAI_API_BASE, ANTHROPIC_BASE_URL" in told.value.hint
        assert "API_KEY" not in told.value.hint
        (run,) = agents.runs_of(tree)
        assert run.exit == 3


def test_a_program_finds_its_folder_in_pwd(tmp_path):
    asking = "import os, httpx; httpx.post(os.environ['OPENAI_BASE_URL'] + '/embeddings', json={}); "
    asking += "print(os.environ['PWD'])"
    (tmp_path / "here").mkdir()
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, address):
        run = agents.record(
            tree, [sys.executable, "-c", asking], to=address, folder=tmp_path / "here", quiet=True
        )
    assert run.output == f"{tmp_path / 'here'}\n"


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "id", "input", "messages", "tools", "content", "name", "args", "properties"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(
    body=ANY_JSON,
    path=st.sampled_from(["openai/responses", "openai/chat/completions", "gemini/v1/x", "other"]),
)
def test_whatever_a_request_holds_it_is_compared(body, path):
    """Programs send what they like: a tool with a parameter called ``type`` has a schema there."""
    assert canonical(path, body) == canonical(path, json.loads(json.dumps(body)))


def test_a_parameter_called_type_is_part_of_what_is_asked():
    def body(kind):
        schema = {"type": "object", "properties": {"type": {"type": kind}, "role": {"type": "string"}}}
        return {
            "model": "m",
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        }

    assert canonical("openai/chat/completions", body("string")) != canonical(
        "openai/chat/completions", body("number")
    )
