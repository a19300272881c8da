"""An MCP server in the standard library alone, which does what servers do that break."""

from __future__ import annotations

import sys
from urllib.parse import quote

import pytest

from refork.worlds.open import open_world

#: ``work`` tells a pipe that it works and does not answer until it was cancelled once, for which its last
#: word names a file; ``freeze`` hears nothing more, not even that it is to end.
SERVER = r"""
import json, os, signal, subprocess, sys, threading
from pathlib import Path

how = sys.argv[1:]
names = ["open", "look", "echo", "env", "die", "work", "freeze", "pids", "leave", "refuse", "strange", "half"]
if "dies" in how:
    print("no key in", os.environ.get("MCP_KEY"), file=sys.stderr)
    sys.exit(3)
if "chatty" in how:
    print("listening on port 80", flush=True)

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def text(words):
    return {"content": [{"type": "text", "text": words}]}

def called(name, given, number):
    if name == "open":
        names[:] = ["walk", *(other for other in names if other != "open")]
        send(method="notifications/tools/list_changed")
    elif name == "echo":
        return text(given["text"])
    elif name == "env":
        return text(str(os.environ.get(given["name"])))
    elif name == "die":
        print("I had the key", os.environ.get("MCP_KEY"), file=sys.stderr)
        os._exit(3)
    elif name == "work":
        if Path(how[-1]).exists():
            return text("done before")
        Path(how[-1] + ".id").write_text(json.dumps(number))
        Path(how[-1] + ".pipe").write_text(str(os.getpid()))
        return None
    elif name == "freeze":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b'{"jsonrpc": "2.0", "method": "notifications/message"}\n')
        while True:
            signal.pause()
    elif name == "pids":
        left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdin=-3)
        return text(f"{os.getpid()} {left.pid}")
    elif name == "leave":
        left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        Path(given["note"]).write_text(str(left.pid))
        os._exit(4)
    elif name == "strange":
        return {"content": "no list"}
    elif name == "half":
        return text("\ud800")
    return text("ok")

for line in sys.stdin:
    asked = json.loads(line)
    method, given = asked["method"], asked.get("params", {})
    if method == "notifications/cancelled":
        Path(how[-1]).write_text(json.dumps(given["requestId"]))
    if "id" not in asked or "silent" in how:
        continue
    if method == "initialize":
        tools = {"listChanged": True} if "declares" in how else {}
        told = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": tools},
                "serverInfo": {"name": "rough", "version": "1"}}
    elif method == "tools/list" and "slow" in how and "walk" in names:
        Path(how[-1] + ".pipe").write_text(str(os.getpid()))
        continue
    elif method == "tools/list":
        told = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif method == "tools/call" and given["name"] != "refuse":
        told = called(given["name"], given.get("arguments") or {}, asked["id"])
        if told is None:
            continue
    else:
        # The code of a closed connection, and maybe its words.
        words = (given.get("arguments") or {}).get("words", "no")
        send(id=asked["id"], error={"code": -32000, "message": words})
        continue
    send(id=asked["id"], result=told)
"""


@pytest.fixture
def rough(tmp_path):
    """Opens a world of the server: its words, and options of the specification."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)

    def opened(*how, **options):
        words = " ".join([sys.executable, str(script), *map(str, how)])
        more = "".join(f"&{name}={quote(str(value))}" for name, value in options.items())
        return open_world(f"tools:mcp?command={quote(words)}{more}")

    return opened
