"""Where a server is: options, variables by their names alone, and servers behind an address."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from refork.errors import BadInput, CannotDo, ServerError
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from refork_worlds.tools.call import call_text
from refork_worlds.tools.mcp_client import Server, ServerBroken

pytest.importorskip("mcp")

SECRET = "sesame-4711"


class Remote(ThreadingHTTPServer):
    """An MCP server over HTTP in the standard library alone; ``answer`` is what it does with a call."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen = []
        self.left = 0
        self.numbers = []
        self.key = None
        self.answer = "ok"
        self.release = threading.Event()
        self.cancelled = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Quiet."""

    def reply(self, status, body=None, **headers):
        data = b"" if body is None else json.dumps({"jsonrpc": "2.0", **body}).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        # Who gave a call up has left.
        with suppress(BrokenPipeError):
            self.wfile.write(data)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.server.left += 1
        self.reply(200)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
        number, method = asked.get("id"), asked["method"]
        if self.server.key is not None and self.headers.get("Authorization") != self.server.key:
            return self.reply(401)
        if method == "notifications/cancelled":
            self.server.numbers.append(asked["params"]["requestId"])
            self.server.cancelled.set()
        if number is None:
            return self.reply(202)
        if method == "initialize":
            version = asked["params"]["protocolVersion"]
            told = {"protocolVersion": version, "capabilities": {"tools": {}}}
            told["serverInfo"] = {"name": "remote", "version": "1"}
            return self.reply(200, {"id": number, "result": told}, **{"Mcp-Session-Id": "one"})
        if method == "tools/list":
            tools = [{"name": "look", "inputSchema": {"type": "object"}}]
            return self.reply(200, {"id": number, "result": {"tools": tools}})
        if method != "tools/call":
            return self.reply(200, {"id": number, "error": {"code": -32601, "message": "no"}})
        if self.server.answer == "hang":
            self.server.numbers.append(number)
            self.server.release.wait()
        elif self.server.answer == "drop":
            self.connection.close()
            return None
        elif self.server.answer != "ok":
            return self.reply(self.server.answer)
        content = [{"type": "text", "text": "ok"}]
        return self.reply(200, {"id": number, "result": {"content": content}})


@pytest.fixture
def remote():
    server = Remote()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


def begun(spec):
    world = open_world(spec)
    return world.start(world.tasks("train", 1)[0], 0)


def test_headers_come_from_variables_and_are_written_nowhere(remote, monkeypatch, tmp_path):
    monkeypatch.setenv("MCP_KEY", SECRET)
    monkeypatch.setenv("MCP_TEAM", "blue")
    remote.key = f"Bearer {SECRET}"
    spec = f"tools:mcp?url={remote.url}&headers=Authorization:Bearer%20MCP_KEY,X-Team:MCP_TEAM&turns=1"
    world = open_world(spec)
    assert world.name == spec
    policy = ScriptedPolicy.from_replies([call_text("look")])
    with Tree.open(tmp_path / "grown.tree") as tree:
        (group,) = grow(
            tree, policy, world, world.tasks("train", 1), draws=1, settings=Sampling(max_tokens=80)
        )
        (trajectory,) = group.forks[0].leaves()
        assert trajectory.steps[2].text == "ok"
    assert all(seen["authorization"] == f"Bearer {SECRET}" for seen in remote.seen)
    assert all(seen["x-team"] == "blue" for seen in remote.seen)
    assert remote.left > 0
    for file in tmp_path.rglob("*"):
        assert SECRET.encode() not in file.read_bytes()


def test_a_refused_key_is_told_with_what_to_do(remote, monkeypatch):
    monkeypatch.setenv("MCP_KEY", SECRET)
    remote.key = "Bearer other"
    with pytest.raises(ServerError, match="HTTP 401") as told:
        open_world(f"tools:mcp?url={remote.url}").tools()
    assert "headers=Authorization" in told.value.hint
    with pytest.raises(ServerError, match="HTTP 401") as told:
        open_world(f"tools:mcp?url={remote.url}&headers=Authorization:Bearer%20MCP_KEY").tools()
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(("answer", "why"), [(404, "HTTP 404"), (502, "HTTP 502"), ("drop", "broke: ")])
def test_a_remote_server_that_is_gone_breaks_its_episode(remote, answer, why):
    episode = begun(f"tools:mcp?url={remote.url}")
    assert episode.step(call_text("look")).text == "ok"
    remote.answer = answer
    with pytest.raises(ServerBroken, match=why):
        episode.step(call_text("look"))
    episode.close()


def test_a_remote_call_that_takes_too_long_is_cancelled(remote):
    episode = begun(f"tools:mcp?url={remote.url}&timeout=1")
    remote.answer = "hang"
    with pytest.raises(ServerBroken, match="not answered in 1 s"):
        episode.step(call_text("look"))
    assert remote.cancelled.wait(900)
    assert remote.numbers[0] == remote.numbers[1]
    episode.close()


def test_nobody_at_the_address():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/mcp"
        with pytest.raises(ServerError, match="did not answer") as told:
            open_world(f"tools:mcp?url={url}").tools()
    assert told.value.where == url


def test_variables_are_passed_on_by_name_and_hidden_in_errors(rough, monkeypatch):
    monkeypatch.setenv("MCP_KEY", SECRET)
    monkeypatch.setenv("MCP_OTHER", "other")
    world = rough(env="MCP_KEY")
    assert SECRET not in world.name
    episode = world.start(world.tasks("train", 1)[0], 0)
    said = [episode.step(call_text("env", {"name": name})).text for name in ("MCP_KEY", "MCP_OTHER")]
    assert said == [SECRET, "None"]
    with pytest.raises(ServerBroken, match=r"I had the key \$MCP_KEY\)") as told:
        episode.step(call_text("die"))
    assert SECRET not in repr(told.value)
    with pytest.raises(CannotDo, match=r"no key in \$MCP_KEY\)"):
        rough("dies", env="MCP_KEY").tools()


def test_a_variable_that_is_not_set_is_named(rough, monkeypatch):
    monkeypatch.delenv("MCP_KEY", raising=False)
    with pytest.raises(BadInput, match="'MCP_KEY' is not set") as told:
        rough(env="MCP_KEY").tools()
    assert told.value.hint == "export MCP_KEY=... before you start"
    with pytest.raises(BadInput, match=r"'MCP_KEY' is not set \(tools:mcp, header X-Key\)"):
        open_world("tools:mcp?url=http://127.0.0.1:9/mcp&headers=X-Key:MCP_KEY").tools()
    for value in ("", "two\nlines", "ä", " x"):
        monkeypatch.setenv("MCP_KEY", value)
        with pytest.raises(BadInput, match="'MCP_KEY' holds no value for a header"):
            open_world("tools:mcp?url=http://127.0.0.1:9/mcp&headers=X-Key:MCP_KEY").tools()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ("", "a command or a url"),
        ("command=a&url=http://b", "a command or a url"),
        ("command=a&headers=X:Y", "headers are for a url"),
        ("url=http://a&env=X", "env is for a command"),
        ("url=ftp://a", "no http address"),
        ("url=http://%5Ba", "cannot be read"),
        ("url=https://me:sesame@a/mcp", "holds a name or a password"),
        ("url=http://a&headers=Authorization:Bearer%20sk-sesame", "Authorization does not name a variable"),
        ("url=http://a&headers=sk-sesame", "a header does not name a variable"),
        ("command=a&env=KEY=sesame", "no variable's name"),
        ("command=a&timeout=0", "timeout is 0"),
        ("command=a&timeout=1e999", "timeout is inf"),
        ("command=a&start_timeout=-1", "start_timeout is -1"),
        ("command=a&turns=0", "at least one turn"),
        ("command=a&submit=", "no name"),
    ],
)
def test_what_cannot_be_an_address_is_told_without_what_may_be_secret(options, match):
    with pytest.raises(BadInput, match=match) as told:
        open_world(f"tools:mcp?{options}")
    assert "sesame" not in str(told.value)


def test_what_is_hidden():
    server = Server(command="x", env=("MCP_KEY", "MCP_SHORT"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_KEY", SECRET)
        patch.setenv("MCP_SHORT", "1")
        assert server.hidden(f"1 {SECRET} 1") == "1 $MCP_KEY 1"
