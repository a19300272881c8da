"""An MCP server as a process of ours: its group ends with the connection, its last words are kept.

The official client's own transport ends a group only where its leader does not end by itself, and does not
tell how a server ended. It is used where there are no process groups.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, final

#: Seconds that a server has to end by itself, and then again before it is killed.
GRACE = 2.0
#: Seconds for what was said to be written before the server's input is closed.
_FLUSH: Final = 0.5
#: Bytes of one message, and messages that may come for one call: more is no answer but a flood.
LONGEST: Final = 8 << 20
MOST: Final = 10_000
_POLL: Final = 0.01
#: Seconds for the notice that a killed process has ended, on however busy a machine.
_NOTICE: Final = 60.0
_LAST: Final = 600
_SHOWN: Final = 200
#: JSON-RPC's code for what is no JSON.
_UNREADABLE: Final = -32700


@final
class Child:
    """A server's process; ``hide`` takes out of what it says what nobody is to read.

    ``over``: whether it neither speaks nor listens any more; None where that is not known.
    """

    def __init__(self, words: list[str], variables: dict[str, str], hide: Callable[[str], str]) -> None:
        self._words, self._variables, self._hide = words, variables, hide
        self._status: int | None = None
        self.over: bool | None = None
        self._strange = self._said = self._flood = ""
        self._heard = 0
        self._last = b""

    def ended(self, *, by_itself: bool) -> str:
        """How it ended, for an error: its status and what it last said; empty where it told nothing."""
        told = []
        if by_itself and self._status is not None:
            told.append(f"status {self._status}" if self._status >= 0 else f"signal {-self._status}")
        if self._flood:
            told.append(self._flood)
        elif self._strange:
            told.append(f"it wrote what is no message: {self._strange!r}")
        if self._said:
            told.append(f"it said: {self._said}")
        return "; ".join(told)

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """What the client reads and writes; the process runs as long."""
        try:
            async with self._others() if sys.platform == "win32" else self._ours() as pair:
                yield pair
        finally:
            self._said = _tail(self._hide(self._last.decode("utf-8", "replace").strip()))

    def asked(self) -> None:
        """Something was asked: what comes is counted anew."""
        self._heard = 0

    @asynccontextmanager
    async def _others(self) -> AsyncIterator[tuple[Any, Any]]:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        program, *words = self._words
        given = StdioServerParameters(command=program, args=words, env=self._variables)
        with tempfile.TemporaryFile() as errors:
            try:
                log: Any = errors  # it asks for its number alone
                async with stdio_client(given, errlog=log) as pair:
                    yield pair
            finally:
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2 * _LAST))
                self._last = errors.read()

    @asynccontextmanager
    async def _ours(self) -> AsyncIterator[tuple[Any, Any]]:
        import anyio
        from mcp.client.stdio import get_default_environment

        variables = get_default_environment() | self._variables
        process = await anyio.open_process(self._words, env=variables, start_new_session=True)
        heard, shown = anyio.create_memory_object_stream[Any](0)
        taken, said = anyio.create_memory_object_stream[Any](0)
        read, written, ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.over = False
        async with anyio.create_task_group() as group:
            group.start_soon(self._hear, process, heard, read)
            group.start_soon(self._watch, process, heard, read)
            group.start_soon(self._say, process, said, heard, written)
            group.start_soon(self._keep, process, ended)
            try:
                yield shown, taken
            finally:
                # Also where a caller was cancelled: a process would be left running.
                with anyio.CancelScope(shield=True):
                    shown.close()
                    taken.close()
                    with anyio.move_on_after(_FLUSH):
                        await written.wait()
                    await self._end(process, ended)
                group.cancel_scope.cancel()
        for stream in (heard, said):
            stream.close()

    async def _watch(self, process: Any, heard: Any, read: Any) -> None:
        """End the connection with the process, also where what it left running holds its output open."""
        import anyio

        await process.wait()
        with anyio.move_on_after(GRACE):
            await read.wait()
        self.over = True
        await heard.aclose()

    async def _keep(self, process: Any, ended: Any) -> None:
        """Read what it says to its user, and keep the end: however much it says, nothing fills up."""
        import anyio

        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError):
            while True:
                # More than is shown, so that nothing that is to be hidden is cut in two.
                self._last = (self._last + await process.stderr.receive())[-2 * _LAST :]
        ended.set()

    async def _hear(self, process: Any, heard: Any, read: Any) -> None:
        """Pass on what it says, a line each, until it says no more; what nobody hears is read too."""
        import anyio
        from mcp.shared.message import SessionMessage

        parts: list[bytes] = []
        length = 0
        ends = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)
        async with heard:
            with suppress(*ends):
                while not self._flood:
                    head, *begun = (await process.stdout.receive()).split(b"\n")
                    parts.append(head)
                    length += len(head)
                    if length > LONGEST:
                        self._flood = f"it wrote a message of more than {LONGEST >> 20} MiB"
                        break
                    for start in begun:
                        line, parts, length = b"".join(parts), [start], len(start)
                        self._heard += 1
                        if self._heard > MOST:
                            self._flood = f"it wrote more than {MOST:,} messages for one call"
                            break
                        message = self._read(line)
                        if message is not None:
                            # A server that cannot write cannot read that it is to end.
                            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                                await heard.send(SessionMessage(message))
            self.over = True
            read.set()

    def _read(self, line: bytes) -> Any:
        """The message of a line; None where it is none.

        An answer that cannot be read (half a character, too deep) is an error in its place: nobody is to wait
        for it.
        """
        from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

        try:
            return jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            said = self._hide(line.decode("utf-8", "replace").strip())
            self._strange = said[:_SHOWN] or self._strange
        try:
            body = json.loads(line)
        except (ValueError, RecursionError):
            return None
        number = body.get("id") if isinstance(body, dict) and "method" not in body else None
        if not isinstance(number, int | str) or isinstance(number, bool):
            return None
        wrong = ErrorData(code=_UNREADABLE, message="the server's answer cannot be read")
        return JSONRPCError(jsonrpc="2.0", id=number, error=wrong)

    async def _say(self, process: Any, said: Any, heard: Any, written: Any) -> None:
        """Write messages, a line each; a server that reads no more ends the connection."""
        import anyio

        try:
            async with said:
                async for sent in said:
                    line: str = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(line.encode() + b"\n")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            self.over = True
            await heard.aclose()
        finally:
            written.set()

    async def _end(self, process: Any, ended: Any) -> None:
        """Close its input, wait, then end its whole group: also what it left running."""
        import anyio

        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
        await _until(lambda: process.returncode is not None, GRACE)
        self._status = process.returncode
        if _signal(process.pid, signal.SIGTERM):
            await _until(lambda: process.returncode is not None and not _signal(process.pid, 0), GRACE)
            _signal(process.pid, signal.SIGKILL)
        # It is dead. What may still be on its way is the loop's own notice of that, from another thread:
        # without it the process would be left for the garbage collector to complain of.
        await _until(lambda: process.returncode is not None, _NOTICE)
        if process.returncode is not None:
            # What it said last is still in the pipe, which something that it left may hold open.
            with anyio.move_on_after(GRACE):
                await ended.wait()
            await process.aclose()


def _tail(text: str) -> str:
    """The end of a text, from the beginning of a line where there is one."""
    if len(text) <= _LAST:
        return text
    _, broken, rest = text[-_LAST:].partition("\n")
    return rest if broken else text[-_LAST:]


def _signal(group: int, number: int) -> bool:
    """Signal a process group; whether there is one."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member that is dead and not waited for, or another user's
        return True
    return True


async def _until(done: Callable[[], bool], seconds: float) -> None:
    """Wait until something holds, or no longer. ``wait`` would wait for the pipes' other holders as well."""
    import anyio

    with anyio.move_on_after(seconds):
        while not done():
            await anyio.sleep(_POLL)
