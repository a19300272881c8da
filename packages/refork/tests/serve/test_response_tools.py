"""Tools of `/v1/responses` that are no functions: what a model hears of them, and how its calls come back.

The requests of Codex are those of version 0.171.0, each the last one of a run under another model's name,
which decides what tools it offers. Their texts are shortened, and of their functions only some are left.
"""

import json
from pathlib import Path

import jsonschema
import openai
import pytest

from refork.chat import ScriptedChat
from refork.serve import create_app, serving
from refork.serve.engine_model import EngineModel
from refork.serve.response_tools import ResponseTools
from support.planted_live import chat_policy

CODEX = json.loads((Path(__file__).parent / "codex_requests.json").read_text())
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}
OWN = [
    {"type": "custom", "name": "note", "description": "Writes a note.", "format": GRAMMAR},
    {"type": "local_shell"},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
    {"type": "namespace", "name": "crm", "description": "", "tools": [{"type": "function", "name": "find"}]},
]
HOSTED = [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "tool_search"},
          {"type": "shell", "environment": {"type": "container_auto"}}, {"type": "odd one"}]  # fmt: skip
#: What a model calls, what it says, and the item that comes of it, without ids.
CALLS = [
    ("note", {"input": "x\ny"}, {"type": "custom_tool_call", "name": "note", "input": "x\ny"}),
    ("note", "no JSON", {"type": "custom_tool_call", "name": "note", "input": "no JSON"}),
    ("local_shell", {"command": ["ls", "-l"], "timeout_ms": 5},
     {"type": "local_shell_call",
      "action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": 5}}),
    ("shell", {"commands": ["ls"]},
     {"type": "shell_call", "environment": {"type": "local"},
      "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}}),
    ("apply_patch", {"type": "update_file", "path": "a", "diff": "@@"},
     {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a", "diff": "@@"}}),
    ("apply_patch", {"type": "delete_file", "path": "a", "diff": ""},
     {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}}),
    ("tool_search", {"query": "mail"},
     {"type": "tool_search_call", "execution": "client", "arguments": {"query": "mail"}}),
    ("crm__find", {"id": 3},
     {"type": "function_call", "name": "find", "namespace": "crm", "arguments": '{"id": 3}'}),
    ("local_shell", {"command": "ls"},
     {"type": "function_call", "name": "local_shell", "arguments": '{"command": "ls"}'}),
]  # fmt: skip


class Heard:
    """A chat model that keeps what it was asked, and calls what it is told to."""

    name = "m"

    def __init__(self):
        self.messages, self.tools, self.calls = (), (), []
        self._chat = ScriptedChat(lambda messages: {
            "role": "assistant", "content": "I go.", "tool_calls": self.calls,
        })  # fmt: skip

    def reply(self, messages, *, tools=(), draw=0):
        self.messages, self.tools = messages, tools
        return self._chat.reply(messages, tools=tools, draw=draw)

    def to_call(self, name, said):
        text = said if isinstance(said, str) else json.dumps(said)
        function = {"name": name, "arguments": text}
        self.calls = [{"id": "call_1", "type": "function", "function": function}]


@pytest.fixture(scope="module")
def heard():
    return Heard()


@pytest.fixture(scope="module")
def client(heard):
    from starlette.testclient import TestClient

    with TestClient(create_app({"m": heard}), base_url="http://localhost") as test:
        yield openai.OpenAI(
            api_key="none", base_url="http://localhost/v1", http_client=test, max_retries=0,
            _strict_response_validation=True,
        )  # fmt: skip


@pytest.mark.parametrize(("name", "said", "item"), CALLS)
def test_a_call_comes_back_as_its_tools_kind_whole_and_streamed(client, heard, name, said, item):
    heard.to_call(name, said)
    ask = {"model": "m", "input": "x", "tools": OWN}
    answer = client.responses.create(**ask)
    made = answer.output[-1].to_dict()
    assert made.pop("id")
    assert made.pop("call_id") == "call_1"
    assert made.pop("status") == "completed"
    assert made == item
    with client.responses.create(**ask, stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [one.to_dict() for one in done] == [one.to_dict() for one in events[-1].response.output]
    assert done[-1].to_dict().items() >= item.items()
    deltas = "".join(event.delta for event in events if event.type.endswith("_input.delta"))
    assert deltas == item.get("input", "")
    with client.responses.stream(**ask) as stream:
        stream.until_done()
        assert stream.get_final_response().output[-1].to_dict().items() >= item.items()


def test_what_is_said_of_a_tool_holds_its_description_and_its_grammar(client, heard):
    heard.to_call("note", {"input": "x"})
    client.responses.create(model="m", input="x", tools=OWN)
    told = {tool["function"]["name"]: tool["function"] for tool in heard.tools}
    assert list(told) == ["note", "local_shell", "shell", "apply_patch", "tool_search", "crm__find"]
    assert "Writes a note." in told["note"]["description"]
    assert "start: /x+/" in told["note"]["description"]
    for name, said, item in CALLS:
        if isinstance(said, dict) and "parameters" in told[name] and item["type"] != "function_call":
            jsonschema.validate(said, told[name]["parameters"])


def test_what_only_a_provider_runs_is_left_out_and_said(client, heard, caplog):
    heard.to_call("note", {"input": "x"})
    raw = client.responses.with_raw_response.create(model="m", input="x", tools=[*HOSTED, *OWN])
    assert raw.headers["refork-tools-left-out"] == "web_search, mcp, tool_search, shell, ..."
    assert {tool["function"]["name"] for tool in heard.tools} >= {"shell", "tool_search"}  # the client's own
    assert "web_search" in caplog.text
    raw = client.responses.with_raw_response.create(model="m", input="x", tools=OWN)
    assert "refork-tools-left-out" not in raw.headers


def test_of_tools_that_are_allowed_only_those_are_meant_that_are_there(client, heard):
    heard.to_call("note", {"input": "x"})
    known = [*HOSTED[:2], *OWN]
    some = {"type": "allowed_tools", "tools": [{"type": "web_search"}, {"type": "custom", "name": "note"}]}
    client.responses.create(model="m", input="x", tools=known, tool_choice={**some, "mode": "auto"})
    assert [tool["function"]["name"] for tool in heard.tools] == ["note"]
    none = {"type": "allowed_tools", "tools": [{"type": "web_search"}], "mode": "auto"}
    client.responses.create(model="m", input="x", tools=known, tool_choice=none)
    assert not heard.tools


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": HOSTED, "tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        ({"tools": HOSTED, "tool_choice": "required"}, "tool_choice"),
        (
            {
                "tools": [*HOSTED, *OWN],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "web_search"}],
                },
            },
            "tool_choice",
        ),
        ({"tools": OWN, "tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice"),
        ({"tools": OWN, "tool_choice": {"type": "custom", "name": "other"}}, "tool_choice"),
        ({"tools": OWN, "tool_choice": {"type": "function", "name": "find"}}, "tool_choice"),
        ({"tools": [*OWN, {"type": "custom"}]}, "tools.6"),
        ({"tools": [{"name": "x"}]}, "tools.0"),
        ({"tools": [{"type": "namespace", "name": "x", "tools": [{"type": "function"}]}]}, "tools.0.tools.0"),
        ({"tools": [{"type": "namespace", "name": "x"}]}, "tools.0.tools"),
        ({"input": [{"type": "additional_tools", "tools": [3]}]}, "input.0.tools.0"),
        ({"input": [{"type": "web_search_call", "id": "1"}]}, "input.0"),
        ({"input": [{"type": "configuration_update", "text": {"format": {"type": "text"}}}]}, "input.0"),
    ],
)
def test_what_cannot_be_had_or_read_is_refused_by_name(client, more, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/responses", body={"model": "m", "input": "x", **more}, cast_to=object)
    assert refused.value.param == param


@pytest.mark.parametrize("model", CODEX)
def test_what_codex_sends_is_read_whole(client, heard, model):
    body = CODEX[model]
    heard.to_call("exec_command", {"cmd": "ls"})
    left_out = ""
    with client.responses.with_streaming_response.create(**{**body, "model": "m"}) as raw:
        left_out = raw.headers.get("refork-tools-left-out", "")
        (done,) = [event for event in raw.parse() if event.type == "response.completed"]
    assert left_out == ("" if model == "gpt-6.2-sol" else "web_search")
    assert done.response.output[-1].type == "function_call"
    known = {tool["function"]["name"] for tool in heard.tools}
    assert known >= {
        "m": {"exec_command", "multi_agent_v1__close_agent"},
        "gpt-5.5": {"exec_command", "apply_patch", "tool_search", "multi_agent_v1__spawn_agent"},
        "gpt-6.2-sol": {"functions__exec", "clock__sleep", "collaboration__followup_task"},
    }.get(model, set())  # fmt: skip
    # Every call that it made stands before its output, under a name that the model was told.
    calls = [call for message in heard.messages for call in message.get("tool_calls") or []]
    outputs = {message["tool_call_id"]: message["content"] for message in heard.messages
               if message["role"] == "tool"}  # fmt: skip
    assert len(calls) >= 2
    assert {call["id"] for call in calls} == set(outputs)
    assert {call["function"]["name"] for call in calls} <= known
    assert all(json.loads(call["function"]["arguments"]) for call in calls)
    assert all(outputs.values())


def test_what_codex_patched_is_heard_as_it_was_said(client, heard):
    heard.to_call("exec_command", {"cmd": "ls"})
    client.responses.create(**{**CODEX["gpt-5.5"], "model": "m", "stream": False})
    calls = [call["function"] for message in heard.messages for call in message.get("tool_calls") or []]
    patch = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch\n"
    assert json.loads(calls[0]["arguments"]) == {"input": patch}
    assert any("multi_agent_v1__spawn_agent" in str(message["content"]) for message in heard.messages)


def test_outputs_of_other_kinds_are_heard(client, heard):
    heard.to_call("note", {"input": "x"})
    shell = {"type": "shell_call", "call_id": "1", "action": {"commands": ["ls"]}}
    out = [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    talk = [
        {"role": "user", "content": "x"}, shell,
        {"type": "shell_call_output", "call_id": "1", "output": out},
        {"type": "local_shell_call", "id": "lsh", "call_id": "2", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "2", "output": "b.txt"},
        {"type": "apply_patch_call", "call_id": "3", "status": "completed",
         "operation": {"type": "create_file", "path": "c.txt", "diff": "+c"}},
        {"type": "apply_patch_call_output", "call_id": "3", "status": "failed", "output": "no room"},
    ]  # fmt: skip
    client.responses.create(model="m", input=talk, tools=OWN)
    said = [(m["tool_call_id"], m["content"]) for m in heard.messages if m["role"] == "tool"]
    assert said == [("1", json.dumps(out)), ("2", "b.txt"), ("3", "failed\nno room")]
    calls = [call["function"] for m in heard.messages for call in m.get("tool_calls") or []]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("shell", {"commands": ["ls"]}), ("local_shell", {"command": ["ls"]}),
        ("apply_patch", {"type": "create_file", "path": "c.txt", "diff": "+c"}),
    ]  # fmt: skip


def test_a_local_model_is_held_to_a_call_of_the_kind_that_is_demanded():
    policy = chat_policy(context=6000)
    with serving({"m": EngineModel(policy, width=4)}) as address:
        client = openai.OpenAI(api_key="none", base_url=address, max_retries=0)
        ask = {"model": "m", "input": "x", "max_output_tokens": 300}
        for kind, choice in (
            ("custom_tool_call", {"type": "custom", "name": "note"}),
            ("apply_patch_call", {"type": "apply_patch"}),
            ("function_call", {"type": "function", "name": "find", "namespace": "crm"}),
        ):
            made = [
                client.responses.create(**ask, tools=OWN, tool_choice=choice, extra_body={"seed": seed})
                for seed in range(3)
            ]
            whole = [one for one in made if one.status == "completed"]
            assert whole
            assert all([item.type for item in one.output] == [kind] for one in whole)
        bad = [*OWN[:1], {"type": "namespace", "name": "n", "tools": [
            {"type": "function", "name": "x", "parameters": {"$ref": "#/no"}}]}]  # fmt: skip
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(**ask, tools=bad, tool_choice="required")
        assert refused.value.param == "tools.1.tools.0.parameters"


def test_of_two_tools_of_one_name_the_later_one_counts():
    given = [{"type": "function", "name": "x", "description": "old"}]
    more = [{"type": "additional_tools", "tools": [{"type": "function", "name": "x", "description": "new"}]}]
    (tool,) = ResponseTools.of(given, more).functions
    assert tool["description"] == "new"
