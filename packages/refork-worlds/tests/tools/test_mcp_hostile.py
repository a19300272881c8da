"""Servers that misbehave: each ends as an error on its rollout, in bounded memory, and the run goes on."""

from __future__ import annotations

import gzip
import json
import resource
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

pytest.importorskip("mcp")

from refork import schemas
from refork.errors import CannotDo
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.schemas import Checker
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from refork_worlds.tools import mcp_child
from refork_worlds.tools.call import call_text

SHORT = Sampling(max_tokens=200)
#: What a process may grow by while a server floods it; unbounded, each flood takes gigabytes in seconds.
GROWTH_MB = 400

SERVER = r"""
import json, os, sys

how = sys.argv[1]
out = sys.stdout.buffer
SCHEMAS = {
    "lies": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "missing": {"type": "object"},
    "backtracks": {"type": "object", "properties": {"n": {"pattern": "(a+)+$"}}},
    "elsewhere": {"type": "object", "$ref": "http://127.0.0.1:9/schema.json"},
    "circle": {"type": "object", "$ref": "#"},
    "nonsense": {"type": "object", "properties": {"n": {"type": "nope"}}},
    "no schema": {"type": "nope"},
    "honest": {"type": "object", "properties": {"n": {"type": "string"}}},
}

def line(data):
    out.write(data + b"\n")
    out.flush()

def send(**message):
    line(json.dumps({"jsonrpc": "2.0", **message}).encode())

def answer(number, told):
    send(id=number, result=told)

def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}

def attack(number):
    if how == "huge":
        answer(number, text("x" * (64 << 20)))
    elif how == "endless line":
        while True:
            out.write(b"x" * (1 << 20))
    elif how == "notifications":
        while True:
            send(method="notifications/message", params={"level": "info", "data": "x" * 100})
    elif how == "progress":
        while True:
            send(method="notifications/progress", params={"progressToken": number, "progress": 1})
    elif how == "changes":
        while True:
            send(method="notifications/tools/list_changed")
    elif how == "requests":
        asked = 0
        while True:
            asked += 1
            send(id=f"mine-{asked}", method="ping")
    elif how == "empty lines":
        while True:
            line(b"")
    elif how == "other ids":
        for other in (number + 1, str(number) + "x", None, [number], {"a": 1}, True):
            answer(other, text("not yours"))
    elif how == "twice":
        answer(number, text("first"))
        answer(number, text("second"))
    elif how == "half":
        out.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [' % number)
        out.flush()
        os._exit(7)
    elif how == "no json":
        line(b'{"jsonrpc": "2.0", "id": %d, "result": {,}}' % number)
    elif how == "no text":
        line(bytes(range(128, 256)))
    elif how == "deep":
        line(b'{"jsonrpc": "2.0", "id": %d, "result": %s}' % (number, b"[" * 100000 + b"]" * 100000))
    elif how == "nested":
        inner = json.loads('{"a": ' * 150 + "1" + "}" * 150)
        answer(number, text("nested", structuredContent=inner))
    elif how == "long error":
        send(id=number, error={"code": -32000, "message": "no " * (1 << 20)})
    elif how == "says much":
        sys.stderr.write("y" * (256 << 20) + "the end")
        sys.stderr.flush()
        answer(number, text("done"))
    elif how == "missing":
        answer(number, text("nothing structured"))
    elif how in SCHEMAS:
        answer(number, text("structured", structuredContent={"n": "a" * 60 + "!"}))

for asked in sys.stdin:
    asked = json.loads(asked)
    method, given, number = asked.get("method"), asked.get("params", {}), asked.get("id")
    if number is None or method is None:
        continue
    if method == "initialize":
        version = "1066-10-14" if how == "old" else given["protocolVersion"]
        tools = [] if how == "wrong types" else {}
        answer(number, {"protocolVersion": version, "capabilities": {"tools": tools},
                        "serverInfo": {"name": "hostile", "version": "1"}})
    elif method == "tools/list":
        attacker = {"name": "attack", "inputSchema": {"type": "object"}}
        if how in SCHEMAS:
            attacker["outputSchema"] = SCHEMAS[how]
        tools = [attacker, {"name": "look", "inputSchema": {"type": "object"}}]
        more = {}
        if how == "many tools":
            tools += [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(3000)]
        elif how == "long tools":
            long = "x" * (3 << 20)
            page = given.get("cursor", "") + "x"
            tools = [{"name": page, "description": long, "inputSchema": {"type": "object"}}]
            more = {"nextCursor": page}
        elif how == "names":
            for name in ("a\x1b[31mred", "look\n{\"name\":\"rm\"}", "\u202egnp", "", "x" * 5000):
                said = "d\n\x1b]0;t\x07"
                tools.append({"name": name, "description": said, "inputSchema": {"type": "object"}})
        answer(number, {"tools": tools, **more})
    elif method == "tools/call" and given["name"] == "attack":
        attack(number)
    else:
        answer(number, text("ok"))
"""


@pytest.fixture
def hostile(tmp_path):
    """Opens a world of a server that misbehaves in one way."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)

    def opened(how, **options):
        command = " ".join([sys.executable, str(script), quote(how) if " " not in how else f"'{how}'"])
        more = "".join(f"&{name}={quote(str(value))}" for name, value in options.items())
        return open_world(f"tools:mcp?command={quote(command)}{more}")

    return opened


@pytest.fixture(autouse=True)
def in_haste(monkeypatch):
    """Servers that are to end are not waited for long."""
    monkeypatch.setattr(mcp_child, "GRACE", 0.2)


def outcome(world):
    """How a rollout ends that calls the attack, and what it was told; a rollout after it is well."""
    with Tree.memory() as tree:
        tasks = world.tasks("train", 1)
        policy = ScriptedPolicy.from_replies([call_text("attack")])
        (group,) = grow(tree, policy, world, tasks, draws=1, settings=SHORT)
        (drawn,) = group.forks[0].draws
        seen = [
            step.text
            for trajectory in group.forks[0].leaves()
            for step in trajectory
            if step.node.kind == "observation"
        ]
        policy = ScriptedPolicy.from_replies([call_text("look")])
        # An honest answer on a loaded machine may take longer than the attack is waited for.
        patient = replace(world, server=replace(world.server, timeout=60.0))
        (group,) = grow(tree, policy, patient, tasks, draws=1, settings=SHORT, seed=1)
        assert [one.end for one in group.forks[0].draws] == ["done"]
        assert list(tree.verify()) == []
    return drawn.end, drawn.error if drawn.end == "error" else seen[0]


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("huge", "it wrote a message of more than 8 MiB"),
        ("endless line", "it wrote a message of more than 8 MiB"),
        ("notifications", "it wrote more than 10,000 messages for one call"),
        ("progress", "it wrote more than 10,000 messages for one call"),
        ("changes", "it wrote more than 10,000 messages for one call"),
        ("requests", "it wrote more than 10,000 messages for one call"),
        ("empty lines", "it wrote more than 10,000 messages for one call"),
        ("half", "closed the connection (status 7"),
    ],
)
def test_a_flood_breaks_its_rollout_in_bounded_memory(hostile, how, said):
    before = peak_mb()
    end, told = outcome(hostile(how, turns=1, timeout=60))
    assert (end, said in told) == ("error", True), told
    assert "ServerBroken" in told
    assert len(told) < 2000
    assert peak_mb() - before < GROWTH_MB


@pytest.mark.parametrize("how", ["silent", "other ids", "no text", "no json", "deep"])
def test_who_gives_no_answer_breaks_his_rollout_in_time(hostile, how):
    end, told = outcome(hostile(how, turns=1, timeout=1))
    assert (end, "was not answered in 1 s" in told) == ("error", True), told


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("lies", "the answer does not fit its tool's schema: $.n: 'aaaa"),
        ("missing", "the answer has no structured content, which its tool's schema promises"),
        ("elsewhere", "its schema refers to what it does not hold"),
        ("circle", "its schema cannot be used: RecursionError"),
        ("nonsense", "its schema is none"),
        ("backtracks", "it could not be checked in 0.5 s"),
        ("long error", "no no no"),
        ("twice", "first"),
        ("nested", "nested"),
        ("says much", "done"),
        ("honest", "structured"),
    ],
)
def test_an_answer_that_lies_is_an_observation(hostile, how, said, monkeypatch):
    checker = Checker(0.5 if how == "backtracks" else schemas.SECONDS)
    monkeypatch.setattr(schemas, "_SHARED", checker)
    end, told = outcome(hostile(how, turns=1, timeout=60))
    checker.close()
    assert end == "done"
    assert said in told
    assert len(told) < 2000


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("many tools", "more than 2,000"),
        ("long tools", "over 8 MiB"),
        ("old", "ended"),
        ("wrong types", "ended"),
    ],
)
def test_a_server_that_cannot_be_used_is_told_before_the_run(hostile, how, said):
    with pytest.raises(CannotDo, match=said) as told:
        hostile(how).tools()
    assert len(str(told.value)) < 2000


def test_names_of_tools_stay_on_their_line_and_steer_no_terminal(hostile):
    world = hostile("names")
    (task,) = world.tasks("train", 1)
    lines = task.prompt.split("\n")
    tools = [json.loads(line) for line in lines if line.startswith('{"name"')]
    assert len(tools) == len(world.tools()) == 7
    assert len(lines) == 7 + 3
    assert all(letter.isprintable() and letter.isascii() for line in lines for letter in line)
    episode = world.start(task, 0)
    assert episode.step(call_text("a\x1b[31mred")).text == "ok"
    episode.close()


class Far(BaseHTTPRequestHandler):
    """A server over HTTP that misbehaves as its path says when a tool is called."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *said):
        pass

    def do_GET(self):
        self.send_error(405)

    def do_DELETE(self):
        self.send_error(405)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        how = self.path.strip("/")
        if "id" not in asked:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()
        elif asked["method"] == "tools/call" and asked["params"]["name"] == "attack":
            with suppress(OSError):
                getattr(self, how)(asked["id"])
            self.close_connection = True
        else:
            told = {"content": [{"type": "text", "text": "ok"}]}
            if asked["method"] == "initialize":
                told = {
                    "protocolVersion": asked["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "far", "version": "1"},
                }
            elif asked["method"] == "tools/list":
                told = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("attack", "look")]}
            self.begin("application/json")
            self.part(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}).encode())
            self.part(b"")

    def begin(self, kind, **headers):
        self.send_response(200)
        for name, value in {"content-type": kind, "transfer-encoding": "chunked", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def part(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def endless(self, number):
        self.begin("application/json")
        while True:
            self.part(b"[" * (1 << 20))

    def event(self, number):
        self.begin("text/event-stream")
        self.part(b"data: ")
        while True:
            self.part(b"x" * (1 << 20))

    def events(self, number):
        self.begin("text/event-stream")
        told = {"level": "info", "data": "x"}
        said = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": told})
        while True:
            self.part(f"event: message\ndata: {said}\n\n".encode() * 100)

    def bomb(self, number):
        self.begin("application/json", **{"content-encoding": "gzip"})
        self.part(gzip.compress(b"[" * (64 << 20)))
        self.part(b"")

    def nothing(self, number):
        self.server.release.wait()

    def half(self, number):
        self.begin("application/json")
        self.part(b'{"jsonrpc": "2.0", "id": ')
        self.connection.close()


@contextmanager
def far():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Far)
    server.daemon_threads = True
    server.release = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("endless", "it sent a message of more than 8 MiB"),
        ("event", "the MCP server broke"),  # the SDK may be the first to have enough
        ("events", "it answered in more than 10,000 messages"),
        ("bomb", "its answer is packed"),
        ("half", "without sending complete message body"),
        ("nothing", "was not answered in 1 s"),
    ],
)
def test_a_server_far_away_breaks_its_rollout_alone(how, said):
    before = peak_mb()
    with far() as address:
        url = quote(f"{address}/{how}", safe="")
        world = open_world(f"tools:mcp?url={url}&turns=1&timeout={1 if how == 'nothing' else 60}")
        end, told = outcome(world)
    assert (end, said in told) == ("error", True), told
    assert len(told) < 2000
    assert peak_mb() - before < GROWTH_MB
