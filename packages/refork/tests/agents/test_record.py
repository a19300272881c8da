"""Programs recorded where they ask models: nothing is changed, nothing is lost, no key is kept."""

from __future__ import annotations

import json
import sqlite3
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from agents import provider as fake
from refork import agents
from refork.agents.endpoint import Upstream, listening, variables, without_keys
from refork.agents.tape import Tape, Wire, events_of
from refork.errors import BadInput, CannotDo
from refork.tree import Tree

KEY = "sk-live-0123456789abcdefghijklmnop"


class Recording:
    """A tape in memory with its endpoint and a provider behind it, while inside."""

    def __init__(self, tmp_path, script=()):
        self.tree, self.script, self.folder = Tree.open(tmp_path / "tape.db"), script, tmp_path

    def __enter__(self):
        self._provider = fake.serving(self.script)
        self.provider, address = self._provider.__enter__()
        given = dict.fromkeys(
            (
                "OPENAI_BASE_URL",
                "ANTHROPIC_BASE_URL",
                "GOOGLE_GEMINI_BASE_URL",
                "AZURE_OPENAI_ENDPOINT",
                "OLLAMA_HOST",
            ),
            address,
        )
        self.tape = Tape(self.tree, ["agent"], self.folder)
        self._endpoint = listening(Upstream(self.tape, given=given))
        self.address, self.endpoint = self._endpoint.__enter__()
        return self

    def __exit__(self, *error):
        self._endpoint.__exit__(*error)
        self._provider.__exit__(*error)
        self.tree.close()
        if self.endpoint.broken is not None:
            raise self.endpoint.broken

    def post(self, path, body, **more):
        return httpx.post(f"{self.address}/{path}", json=body, timeout=60, **more)

    @property
    def events(self):
        return events_of(self.tree, self.tape.run)

    def node(self, number):
        return self.tree.node(self.events[number].node)


BODIES = {
    "openai/chat/completions": {"messages": [{"role": "user", "content": "where?"}]},
    "openai/responses": {"input": "where?"},
    "anthropic/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "where?"}]},
    "gemini/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": "where?"}]}]},
    "ollama/api/chat": {"messages": [{"role": "user", "content": "where?"}]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_every_dialect_passes_byte_for_byte_and_is_read(tmp_path, path, stream):
    body = BODIES[path] if "gemini" in path else {"model": "m", "stream": stream, **BODIES[path]}
    if stream:
        path = path.replace(":generateContent", ":streamGenerateContent")
    with Recording(tmp_path, [("it is", fake.CALL)]) as one:
        answer = one.post(path, body, headers={"authorization": f"Bearer {KEY}", "x-goog-api-key": KEY})
        whole, pieces = next(make for end, make in fake.MADE.items() if path.endswith(end))(
            "it is", fake.CALL
        )
        assert answer.content == (b"".join(pieces) if stream else json.dumps(whole).encode())
        assert one.provider.asked[0][2] == body
        assert one.provider.headers[0]["authorization"] == f"Bearer {KEY}"
        (event,) = one.events
        assert event.wire.answer == answer.content
        assert json.loads(event.wire.body) == body
        node = one.node(0)
        assert (node.text, node.policy, node.finish, node.error) == ("it is", "m", "stop", None)
        assert (node.cost.tokens_in, node.cost.tokens_out) == (7, 3)
        (call,) = node.message["tool_calls"]
        assert call["function"]["name"] == "look"
        assert json.loads(call["function"]["arguments"]) == {"at": "door"}
        assert one.tree.node(node.parent).text == "where?"
    raw = (tmp_path / "tape.db").read_bytes()
    assert KEY.encode() not in raw
    assert b"session=secret" not in raw


def test_a_conversation_is_one_path_and_a_rewritten_one_says_so(tmp_path):
    with Recording(tmp_path) as one:
        talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one"}]
        for word in ("two", "three"):
            answer = one.post("openai/chat/completions", {"model": "m", "messages": talk}).json()
            said = answer["choices"][0]["message"]["content"]
            # As programs send it back: with fields that the answer did not have.
            talk += [
                {"role": "assistant", "content": said, "refusal": None},
                {"role": "user", "content": word},
            ]
        one.post("openai/chat/completions", {"model": "m", "messages": talk})
        other = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "other"}]
        one.post("openai/chat/completions", {"model": "m", "messages": other})
        short = [*talk[:2], {"role": "user", "content": "summary of what was said"}]
        one.post("openai/chat/completions", {"model": "m", "messages": short})
        assert [event.conversation for event in one.events] == [0, 0, 0, 1, 0]
        path = [(step.node.kind, step.node.text) for step in one.tree.path(one.node(2))]
        assert path[1:] == [
            ("observation", "be brief\none"), ("action", "answer 1"), ("observation", "two"),
            ("action", "answer 2"), ("observation", "three"), ("action", "answer 3"),
        ]  # fmt: skip
        rewrite = one.tree.node(one.node(4).parent)
        assert (rewrite.kind, rewrite.parent) == ("rewrite", one.node(2).id)
        assert rewrite.extra["messages"] == short


def test_results_of_anthropic_tools_go_on_with_their_conversation(tmp_path):
    ask = {"model": "m", "max_tokens": 9, "system": "be brief"}
    with Recording(tmp_path, [("I look", fake.CALL), ("a door", None)]) as one:
        talk = [{"role": "user", "content": "where?"}]
        said = one.post("anthropic/v1/messages", ask | {"messages": talk}).json()["content"]
        result = {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "text", "text": "wood"}],
        }
        talk += [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
        one.post("anthropic/v1/messages", ask | {"messages": talk})
        assert [event.conversation for event in one.events] == [0, 0]
        asked = one.tree.node(one.node(1).parent)
        assert asked.parent == one.node(0).id
        assert asked.message == {"role": "tool", "tool_call_id": "toolu_1", "content": "wood"}


def test_a_request_asked_again_is_one_prompt_with_two_answers(tmp_path):
    body = {"model": "m", "messages": [{"role": "user", "content": "one"}]}
    with Recording(tmp_path, [(429, {"error": {"message": "slow down"}})]) as one:
        statuses = [one.post("openai/chat/completions", body).status_code for _ in range(2)]
        assert statuses == [429, 200]
        assert one.node(0).parent == one.node(1).parent
        assert [one.node(k).error for k in (0, 1)] == ["HTTP 429", None]


def test_an_answer_that_breaks_off_is_recorded_as_far_as_it_came(tmp_path):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "one"}]}
    with Recording(tmp_path, ["hang up"]) as one:
        with pytest.raises(httpx.RemoteProtocolError):
            one.post("openai/chat/completions", body)
        assert "RemoteProtocolError" in one.node(0).error
        assert one.events[0].wire.answer.startswith(b"data: ")


def test_a_client_that_goes_away_is_an_event(tmp_path):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "one"}]}
    with Recording(tmp_path, [(" ".join(["word"] * 3000), None)]) as one:
        with httpx.stream("POST", f"{one.address}/openai/chat/completions", json=body, timeout=60) as answer:
            next(answer.iter_raw(64))
        for _ in range(600):
            if one.events:
                break
            threading.Event().wait(0.05)
        assert len(one.events) == 1


def test_what_is_no_conversation_is_recorded_as_it_came(tmp_path):
    with Recording(tmp_path) as one:
        got = httpx.get(f"{one.address}/gemini/v1beta/models?key={KEY}&page=2")
        one.post("openai/embeddings", {"model": "e", "input": ["a"]})
        one.post("openai/chat/completions", {"messages": "no list"})
        assert one.provider.asked[0][:2] == ("/v1beta/models", f"key={KEY}&page=2")
        assert [event.wire.query for event in one.events] == ["page=2", "", ""]
        assert one.events[0].wire.answer == got.content
        assert [one.tree.node(one.node(k).parent).text for k in range(3)] == [
            "other request", "other request", "chat request"
        ]  # fmt: skip
    assert KEY.encode() not in (tmp_path / "tape.db").read_bytes()


def test_nobody_else_is_answered(tmp_path):
    with Recording(tmp_path) as one:
        home = one.address.rsplit("/", 1)[0]
        assert httpx.post(f"{home}/openai/chat/completions", json={}).status_code == 404
        assert httpx.get(home).status_code == 404
        page = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert one.post("openai/chat/completions", {}, headers=page).status_code == 403
        assert one.post("nowhere/chat", {}).status_code == 404
        assert one.provider.asked == []


def test_requests_at_once_are_each_whole(tmp_path):
    with Recording(tmp_path) as one:

        def ask(number):
            said = {"model": "m", "messages": [{"role": "user", "content": f"{number} " * 200}]}
            one.post("openai/chat/completions", said)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asked = {json.loads(event.wire.body)["messages"][0]["content"].split()[0] for event in one.events}
        assert asked == {str(number) for number in range(12)}
        assert [event.number for event in one.events] == list(range(12))


def test_a_long_conversation_takes_room_for_what_is_new(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree:
        tape, talk = Tape(tree, ["agent"], tmp_path), []
        for number in range(40):
            # Texts that do not compress: what grew with the square would be 40 times as large.
            talk.append(
                {
                    "role": "user",
                    "content": "".join(map(chr, range(0x4E00 + 97 * number, 0x4E00 + 97 * number + 900))),
                }
            )
            body = json.dumps({"model": "m", "messages": talk}).encode()
            answer = json.dumps(fake.chat(f"answer {number}")[0]).encode()
            headers = {"content-type": "application/json"}
            tape.add(Wire("POST", "openai/chat/completions", "", body, 200, headers, (answer,)))
            talk.append({"role": "assistant", "content": f"answer {number}"})
        last = len(body)
        assert events_of(tree, tape.run)[-1].wire.body == body
        assert len({event.conversation for event in events_of(tree, tape.run)}) == 1
    blobs = sqlite3.connect(tmp_path / "tape.db").execute("SELECT sum(length(data)) FROM blobs").fetchone()[0]
    assert blobs < 2 * last


AGENT = """
    import json, sys, openai
    client = openai.OpenAI()
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    talk = [{"role": "user", "content": "task " + sys.argv[1]}]
    for turn in range(3):
        said = client.chat.completions.create(model="m", messages=talk, tools=tools).choices[0].message
        talk.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            break
        talk += [{"role": "tool", "tool_call_id": c.id, "content": "a door"} for c in said.tool_calls]
    print("done:", said.content)
    sys.exit(0 if said.content == "found" else 3)
"""


@pytest.fixture
def agent(tmp_path):
    file = tmp_path / "my agent.py"
    file.write_text(textwrap.dedent(AGENT))
    return [sys.executable, str(file)]


def test_a_program_of_the_openai_package_is_recorded_and_replayed(tmp_path, agent, capfd):
    with (
        Tree.open(tmp_path / "tape.db") as tree,
        fake.serving([("", fake.CALL), ("found", None)]) as (provider, url),
    ):
        run = agents.record(tree, [*agent, "3"], to=url, folder=tmp_path)
        assert (run.exit, run.output) == (0, "done: found\n")
        assert capfd.readouterr().out == "done: found\n"
        assert agents.runs_of(tree) == [run]
        assert agents.counts(tree, run) == {
            "exchanges": 2, "conversations": 1, "failed": 0, "tokens_in": 14, "tokens_out": 6
        }  # fmt: skip
        told = agents.replay(tree, run, quiet=True)
        assert (told.identical, told.output_equal, told.byte_equal) == (True, True, 2)
        assert len(provider.asked) == 2  # nobody was asked again
        assert capfd.readouterr().out == ""
        gone = agents.replay(tree, run, command=[*agent, "4"], quiet=True)
        assert not gone.identical
        where = gone.divergence
        assert (where.request, where.nearest, where.where) == (0, 0, "$.messages[0].content")
        assert (where.recorded, where.asked) == ('"task 3"', '"task 4"')
        assert len(provider.asked) == 2


GRAPH = """
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def look(at: str) -> str:
        "Look at a thing."
        return "wood"

    agent = create_agent(ChatOpenAI(model="m"), [look], system_prompt="be brief")
    for mode, part in agent.stream({"messages": [("user", "where?")]}, stream_mode=["messages", "values"]):
        pass
    print(part["messages"][-1].content)
"""


def test_a_langgraph_agent_is_recorded_as_it_is_and_replayed(tmp_path):
    pytest.importorskip("langchain_openai")
    (tmp_path / "graph.py").write_text(textwrap.dedent(GRAPH))
    with Tree.open(tmp_path / "tape.db") as tree:
        with fake.serving([("I look", fake.CALL), ("a door", None)]) as (provider, url):
            run = agents.record(tree, [sys.executable, "graph.py"], to=url, folder=tmp_path, quiet=True)
        assert run.output == "a door\n"
        assert [asked["stream"] for _, _, asked in provider.asked] == [True, True]
        assert agents.counts(tree, run)["conversations"] == 1
        last = tree.path(events_of(tree, run)[1].node).steps
        assert [step.text for step in last[1:]] == ["be brief\nwhere?", "I look", "wood", "a door"]
        # The tool has run once more, and nobody was asked.
        assert agents.replay(tree, run, quiet=True).identical


def test_a_program_that_asks_nobody_is_told_how(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree:
        with pytest.raises(CannotDo, match="asked no model that we could see") as told:
            agents.record(tree, [sys.executable, "-c", "print(1)"], quiet=True)
        assert "OPENAI_BASE_URL" in told.value.hint
        (run,) = agents.runs_of(tree)
        assert (run.exit, run.output) == (0, "1\n")


def test_bad_commands_and_addresses_are_refused_before_anything_runs(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree:
        for wrong, more in [
            ([], {}), (["no-such-program-at-all"], {}), (["true"], {"folder": tmp_path / "nowhere"}),
            (["true"], {"to": "localhost:8000"}),
        ]:  # fmt: skip
            with pytest.raises(BadInput):
                agents.record(tree, wrong, **more)
        with pytest.raises(BadInput, match="no run is recorded"):
            agents.find_run(tree, None)


def test_keys_of_the_environment_and_of_a_command_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["agent", "--api-key", KEY], tmp_path)
        assert "OPENAI_API_KEY" in tape.run.environment
        tape.end(1, f"the key {KEY} was refused\n")
        # Without it the program would be another.
        with pytest.raises(BadInput, match="held a secret"):
            agents.replay(tree, agents.find_run(tree, None))
    assert KEY.encode() not in (tmp_path / "tape.db").read_bytes()
    assert variables("http://x", {"OPENAI_API_KEY": KEY})["OPENAI_BASE_URL"] == "http://x/openai"
    assert "OPENAI_API_KEY" not in variables("http://x", {"OPENAI_API_KEY": KEY})
    assert without_keys("alt=sse&key=abc") == "alt=sse"


def test_a_tape_is_exported_and_imported_whole(tmp_path):
    with Recording(tmp_path) as one:
        one.post("openai/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "one"}]})
        one.tape.end(0, "done")
        with Tree.memory() as other:
            other.load(one.tree.records())
            assert agents.runs_of(other) == agents.runs_of(one.tree)
            assert events_of(other, one.tape.run) == one.events


def test_two_programs_on_one_tape_at_the_same_time(tmp_path):
    """Each process has the tape open by itself; their exchanges come between each other's."""
    barrier = "import os, pathlib, sys, time\nn = sys.argv[1]\n"
    barrier += "pathlib.Path('up' + n).touch()\n"
    barrier += "while not pathlib.Path('up' + str(1 - int(n))).exists(): time.sleep(0.01)\n"
    ask = (
        "import json, urllib.request as web\ntalk = []\nfor turn in range(6):\n"
        "    talk.append({'role': 'user', 'content': n + ' %d' % turn})\n"
        "    asked = json.dumps({'model': 'm', 'messages': talk}).encode()\n"
        "    request = web.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', asked)\n"
        "    request.add_header('content-type', 'application/json')\n"
        "    talk.append(json.load(web.urlopen(request))['choices'][0]['message'])\n"
    )
    (tmp_path / "agent.py").write_text(barrier + ask)
    tape = tmp_path / "tape.db"
    with Tree.open(tape):
        pass
    with fake.serving() as (_, address):

        def recorded(number):
            command = [sys.executable, "agent.py", str(number)]
            with Tree.open(tape) as tree:
                return agents.record(tree, command, to=address, folder=tmp_path, quiet=True)

        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(recorded, range(2)))
    with Tree.open(tape) as tree:
        assert [run.exit for run in runs] == [0, 0]
        assert [len(agents.exchanges(tree, run)) for run in runs] == [6, 6]
        assert list(tree.verify()) == []
        for run in runs:
            assert agents.replay(tree, run, quiet=True).identical
