"""An MCP server's command on the tape: what a program's client asks of it passes through here, line by line.

While a run is recorded every line passes byte for byte, and an answer is on the tape before the client has
it. Where the tape answers the server is not started at all. Without a run around it the server takes our
place. Notes of progress, and what a server asks of its client, are passed on and not recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, final

from refork.agents.program_side import PROTOCOL, VARIABLE, ToolRefused, ask
from refork.errors import BadInput

#: JSON-RPC's code of an error of the server's own.
_REFUSED: Final = -32000
#: How many parents are asked for the run's address.
_PARENTS: Final = 32


def wrap(command: Sequence[str]) -> int:
    """Serve an MCP server's command on standard input and output; the exit status of the server.

    Raises:
        BadInput: there is no such program.
    """
    if not command:
        raise BadInput("no command was given", hint="refork agent mcp-wrap -- python my_server.py")
    address = os.environ.get(VARIABLE) or _of_parents()
    try:
        if address is None:
            os.execvp(command[0], list(command))
        os.environ[VARIABLE] = address
        # The streams themselves: what a command prints is made fit for a screen.
        with open(0, "rb", closefd=False) as asked, open(1, "wb", closefd=False) as out:
            return Wrapped(command, asked, out).run()
    except OSError as error:
        raise BadInput(f"{command[0]} cannot be run: {error}") from error


def _of_parents() -> str | None:
    """The address in the environment of a process that we come from.

    Clients give a server a part of their environment alone, in which our variable is not.
    """
    process = os.getppid()
    for _ in range(_PARENTS):
        try:
            held = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            # The name of a program stands in parentheses, and may hold anything.
            after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
        except OSError:
            return None
        for one in held:
            name, _, value = one.partition(b"=")
            if name.decode("latin-1") == VARIABLE and value:
                return value.decode()
        process = int(after_name.split()[1])
    return None


@final
class Wrapped:
    """One client and, once it is needed, the server."""

    def __init__(self, command: Sequence[str], asked: BinaryIO, out: BinaryIO) -> None:
        self._command, self._in, self._out = list(command), asked, out
        self._server: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()
        #: Requests that the server answers, by their ids as JSON: the run's number of each.
        self._pending: dict[str, int] = {}
        #: How the client began, and what it noted since: a server that is started later must hear it.
        self._begun: bytes | None = None
        self._notes: list[bytes] = []
        self._unheard: str | None = None
        self._heard = threading.Event()
        self._closing = False

    def run(self) -> int:
        """Pass lines until the client or the server ends."""
        for line in self._in:
            self._from_client(line)
        if self._server is None:
            return 0
        assert self._server.stdin is not None
        assert self._reader is not None
        self._closing = True
        self._server.stdin.close()
        status = self._server.wait()
        self._reader.join()
        if self._server.stdout is not None:
            self._server.stdout.close()
        return status

    def _from_client(self, line: bytes) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict) or "method" not in told or "id" not in told:
            # A note, or an answer to what the server asked.
            if isinstance(told, dict) and "method" in told and self._server is None:
                self._notes.append(line)
            elif self._server is not None:
                self._send(line)
            return
        call, opens = self._call_of(told), told["method"] == "initialize"
        try:
            answer = ask("call", call)
        except ToolRefused as error:
            answer = {"do": "refuse", "why": str(error)}
        if answer["do"] == "run":
            with self._lock:
                self._pending[json.dumps(told["id"])] = answer["id"]
            self._start(opening=opens)
            self._send(line)
        elif answer["do"] == "give" and "json" in answer["result"]:
            self._begun = line if opens else self._begun
            self._say({"jsonrpc": "2.0", "id": told["id"], **answer["result"]["json"]})
        else:
            why = answer.get("why", "the tape has no answer")
            self._say({"jsonrpc": "2.0", "id": told["id"], "error": {"code": _REFUSED, "message": why}})

    def _call_of(self, told: dict[str, Any]) -> dict[str, Any]:
        parameters = told.get("params") or {}
        name, arguments, by = told["method"], parameters, "mcp-protocol"
        if name == "tools/call":
            name, arguments, by = str(parameters.get("name")), parameters.get("arguments") or {}, "mcp"
        elif isinstance(parameters, dict):
            # What a client says of itself, such as its version and tokens of progress, asks for nothing.
            arguments = {key: one for key, one in parameters.items() if key not in ("_meta", "clientInfo")}
        server = " ".join(self._command)
        return {"version": PROTOCOL, "name": name, "arguments": arguments, "by": by, "server": server}

    def _start(self, *, opening: bool) -> None:
        """Start the server where it does not run, and tell it what the client said to the tape."""
        if self._server is not None:
            return
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        # What it says on stderr is for whoever shows its client's, as without us.
        self._server = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, env=environment
        )
        self._reader = threading.Thread(target=self._from_server, daemon=True)
        if self._begun is not None and not opening:
            self._unheard = json.dumps(json.loads(self._begun)["id"])
        self._reader.start()
        if self._unheard is not None and self._begun is not None:
            self._send(self._begun)
            self._heard.wait()
        for note in self._notes:
            self._send(note)

    def _from_server(self) -> None:
        assert self._server is not None
        assert self._server.stdout is not None
        for line in self._server.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                told = None
            key = None
            if isinstance(told, dict) and "id" in told and "method" not in told:
                key = json.dumps(told["id"])
            if key is not None and key == self._unheard:
                self._unheard = None
                self._heard.set()
                continue
            with self._lock:
                number = None if key is None else self._pending.pop(key, None)
            if number is not None and isinstance(told, dict):
                kept = {name: one for name, one in told.items() if name not in ("jsonrpc", "id")}
                ask("result", {"id": number, "result": {"json": kept}})
            self._write(line)
        self._heard.set()
        if not self._closing:
            # It went by itself. The client must see that: whatever it waits for, it waits for in vain.
            self._out.flush()
            os._exit(self._server.wait())

    def _send(self, line: bytes) -> None:
        assert self._server is not None
        assert self._server.stdin is not None
        try:
            self._server.stdin.write(line)
            self._server.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which its reader tells

    def _say(self, told: dict[str, Any]) -> None:
        self._write(json.dumps(told, ensure_ascii=False).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with self._lock:
            self._out.write(line)
            self._out.flush()
