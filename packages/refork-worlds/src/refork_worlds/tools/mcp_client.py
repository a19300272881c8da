"""One connection to an MCP server: what it lists, what it answers, and whether it is still there."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final

from refork.errors import BadInput, CannotDo, MissingExtra, ServerError, UserError
from refork.schemas import mismatch
from refork.types import Json
from refork_worlds.tools.call import compact
from refork_worlds.tools.mcp_changes import Listed
from refork_worlds.tools.mcp_child import LONGEST, Child
from refork_worlds.tools.mcp_content import contents_bytes, result_text
from refork_worlds.tools.mcp_link import Link
from refork_worlds.tools.mcp_server import WHERE, Server

__all__ = ["Connection", "Listed", "Result", "Server", "ServerBroken"]

T = TypeVar("T")
#: Linked resources of one result that are read, so that two never pass for one.
LINKS: Final = 16
#: Pages of a list of tools; a server that always has another one is not waited for.
_PAGES: Final = 100
#: Tools that a server may list, and letters of an error of its own that are told.
_TOOLS: Final = 2000
_SHOWN: Final = 500
#: What the client's transports say in the server's place.
_SAID_FOR_IT: Final = ("Connection closed", "Session terminated", "Server returned an error response")
_STREAM: Final = "SSE stream "


class ServerBroken(RuntimeError):
    """The server died or hung in the middle of an episode, which can then not be graded.

    No UserError: like whatever breaks in a world it ends one rollout, with the error on its tree, and no run.
    """


@dataclass(frozen=True, slots=True)
class Result:
    """What a call was answered; ``answered`` False: not by the tool, but in its place."""

    text: str
    ok: bool = True
    answered: bool = True


@final
class Connection:
    """A live client; :meth:`close` ends it, and the server's process with it.

    Raises:
        MissingExtra: the package mcp is not installed.
        BadInput: there is no such program, or a variable that the server is to get is not set.
        CannotDo: the command ended, or was not ready in time.
        ServerError: no server answers at the address, or it refuses.
    """

    def __init__(self, server: Server, target: Any = None) -> None:
        self.server = server
        self._child: Child | None = None
        self._statuses: list[int] = []
        self._why: list[str] = []
        self._broken: str | None = None
        if target is None and server.command:
            self._child = Child(server.words(), server.environment(), server.hidden)
            target = self._child.streams()
        elif target is None:
            target = _remote(server, self._statuses, self._why)
        self._link = Link()
        self._offer = _Offer(self._link, server.timeout)
        # A connection that nobody closed would keep its server.
        self._leave = weakref.finalize(self, self._link.close)
        try:
            self._link.open(target, server.start_timeout)
        except UserError:
            raise
        except Exception as error:  # the client lets whatever its transport raises through
            raise self._refused(error) from error
        # The client's own check of a stranger's schema has no end in time or memory.
        self._link.client.session.validate_tool_result = self._offer.check

    @property
    def changing(self) -> bool:
        """Whether the server says that its tools may change, or said that they did."""
        return self._link.changing

    def tools(self) -> tuple[Listed, ...]:
        """All tools, page by page; raises ServerBroken where the server does not list them."""
        return self._run(
            self._offer.read, "the tools were not listed in time", "the tools could not be listed: "
        )

    def _run(self, work: Callable[[], Awaitable[T]], late: str, failed: str = "") -> T:
        """What work in the loop gives; where it fails the server is given up."""
        self.check()
        try:
            return self._link.run(work)
        except TimeoutError as error:
            raise self._break(late) from error
        except Exception as error:
            raise self._break(f"{failed}{_reason(error)}") from error
        except BaseException:  # Ctrl-C: the server would go on with what nobody waits for
            self.close()
            raise

    def check(self) -> None:
        """Raise ServerBroken where the server broke before."""
        if self._broken is not None:
            raise ServerBroken(self._broken)

    def call(self, name: str, arguments: Json) -> Result:
        """The answer to a call; a wrong call is answered too.

        Raises:
            ServerBroken: the server is gone, or did not answer in time. It stays so.
        """
        self.check()
        unsendable = _unsendable(name, arguments)
        if unsendable:
            return Result(compact({"error": unsendable}), False, False)

        async def called() -> Result | Exception:
            return await self._call(name, arguments)

        self._statuses.clear()
        if self._child is not None:
            self._child.asked()
        late = f"the tool {name!r} was not answered in {self.server.timeout:g} s"
        answer = self._run(called, late)
        if isinstance(answer, Result):
            return answer
        if self._link.lost or self._gone(answer):
            raise self._break("") from answer
        return Result(compact({"error": self.server.hidden(_reason(answer))}), False, False)

    async def _call(self, name: str, arguments: Json) -> Result | Exception:
        """The answer, or what the client raised instead."""
        import anyio

        # The client's own timeout is per message; a tool that streams progress would pass it for ever.
        with anyio.fail_after(self.server.timeout):
            try:
                answer = await self._link.client.call_tool(name, arguments)
                return Result(result_text(answer, await self._linked(answer)), not answer.is_error)
            except Exception as error:
                return error

    async def _linked(self, answer: Any) -> dict[str, bytes]:
        """The contents of the resources that a result links to, as far as the server gives them."""
        from mcp import MCPError

        links = [block.uri for block in answer.content if block.type == "resource_link"]
        found: dict[str, bytes] = {}
        if self._link.client.server_capabilities.resources is None:
            return found
        for uri in dict.fromkeys(links[:LINKS]):
            try:
                found[uri] = contents_bytes((await self._link.client.read_resource(uri)).contents)
            except MCPError as error:
                if self._gone(error):
                    raise
        return found

    def _gone(self, error: Exception) -> bool:
        """Whether an error is the client's own word for a server that is not there any more."""
        from mcp import MCPError

        if not isinstance(error, MCPError):
            # Answers that break the protocol are answers still.
            return not isinstance(error, ValueError | RuntimeError)
        if self._child is not None and self._child.over is not None:
            # A server may use the client's words.
            return self._child.over
        if error.error.data is not None:
            return False
        return error.message in _SAID_FOR_IT or error.message.startswith(_STREAM)

    def _break(self, why: str) -> ServerBroken:
        """Close at once and say why (empty: it is gone); every later call says the same."""
        if self._broken is None:
            self.close()
            ended = self._link.reason
            words = self._last_words(by_itself=not why)
            why = why or (_reason(ended) if ended is not None else "it closed the connection")
            self._broken = self.server.hidden(f"the MCP server broke: {why}{words}")
        return ServerBroken(self._broken)

    def _refused(self, error: Exception) -> UserError:
        """Why no connection was made, as what the user can mend."""
        late = isinstance(error, TimeoutError)
        words = self._last_words(by_itself=not late)
        if self._child is not None:
            where = f"{WHERE}, command {self.server.hidden(self.server.command)!r}"
            if isinstance(error, OSError) and error.errno is not None:
                what = f"the MCP server cannot be started: {error.strerror}"
                return BadInput(what, where=where, hint="run the command in a terminal")
            if late:
                what = f"the MCP server was not ready in {self.server.start_timeout:g} s{words}"
                return CannotDo(what, where=where, hint="give it longer: start_timeout=SECONDS")
            hint = "run the command in a terminal; a variable that it needs is passed on by env=NAME"
            return CannotDo(f"the MCP server ended before it was ready{words}", where=where, hint=hint)
        reason = f"not ready in {self.server.start_timeout:g} s" if late else _reason(error)
        hint = "see that the server runs, and at this address"
        if any(status in (401, 403) for status in self._statuses):
            hint = "name the variable that holds its key: headers=Authorization:Bearer%20VARIABLE"
        where = self.server.url or WHERE
        what = self.server.hidden(f"the MCP server did not answer: {reason}{words}")
        return ServerError(what, where=where, hint=hint)

    def _last_words(self, *, by_itself: bool) -> str:
        """How the server ended, in brackets; empty where nothing is known."""
        told = f"HTTP {self._statuses[-1]}" if self._statuses else "".join(self._why[:1])
        if self._child is not None:
            told = self._child.ended(by_itself=by_itself)
        return f" ({told})" if told else ""

    def close(self) -> None:
        """Leave, end the server's process with all that it started, and the event loop's thread."""
        self._leave()


@final
class _Offer:
    """What a server lists, and whether it keeps to it. It does not hold the connection, which holds it."""

    def __init__(self, link: Link, seconds: float) -> None:
        self._link, self._seconds = link, seconds
        self._outputs: dict[str, Json | None] | None = None

    async def read(self) -> tuple[Listed, ...]:
        """All tools, page by page. Raises ValueError for more than anybody reads."""
        import anyio

        found: dict[str, Listed] = {}
        outputs: dict[str, Json | None] = {}
        cursor: str | None = None
        size = 0
        with anyio.fail_after(self._seconds):
            for _ in range(_PAGES):
                page = await self._link.client.list_tools(cursor=cursor)
                for tool in page.tools:
                    listed = Listed(tool.name, tool.description or "", dict(tool.input_schema))
                    found.setdefault(tool.name, listed)
                    outputs.setdefault(tool.name, tool.output_schema)
                    size += len(listed.line)
                if len(found) > _TOOLS or size > LONGEST:
                    raise ValueError(f"there are more than {_TOOLS:,}, or they take over {LONGEST >> 20} MiB")
                cursor = page.next_cursor
                if not cursor:
                    break
        self._outputs = outputs
        return tuple(found.values())

    async def check(self, name: str, answer: Any) -> None:
        """Raise RuntimeError where an answer is not what its tool's output schema promises."""
        import anyio.to_thread

        if self._outputs is None:
            await self.read()
        schema = (self._outputs or {}).get(name)
        if schema is None:
            return
        if answer.structured_content is None and "structured_content" not in answer.model_fields_set:
            raise RuntimeError("the answer has no structured content, which its tool's schema promises")
        wrong = await anyio.to_thread.run_sync(mismatch, schema, answer.structured_content)
        if wrong is not None:
            raise RuntimeError(f"the answer does not fit its tool's schema: {wrong}")


def _remote(server: Server, statuses: list[int], why: list[str]) -> AbstractAsyncContextManager[Any]:
    headers = server.http_headers()
    try:
        from refork_worlds.tools.mcp_remote import remote
    except ImportError as error:
        raise MissingExtra("mcp", "mcp") from error
    return remote(server, headers, statuses, why)


def _unsendable(name: str, arguments: Json) -> str:
    """Why no message can hold a call (half a character, too deep); empty where one can.

    Found out here, for a message that cannot be written would take the whole connection with it.
    """
    from mcp_types import JSONRPCRequest

    given = {"name": name, "arguments": arguments}
    try:
        JSONRPCRequest(jsonrpc="2.0", id=0, method="tools/call", params=given).model_dump_json()
    except ValueError:
        return "the call cannot be sent"
    return ""


def _reason(error: BaseException) -> str:
    """The innermost message of an error in one line; groups hide it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= _SHOWN else f"{said[: _SHOWN - 4]} ..."
