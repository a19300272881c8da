"""One connection to an MCP server: what it lists, what it answers, and whether it is still there."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import math
import os
import re
import shlex
import shutil
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final
from urllib.parse import urlsplit

from refork.errors import BadInput, CannotDo, MissingExtra, ServerError, UserError
from refork.schemas import mismatch
from refork.types import Json
from refork_worlds.tools.call import compact
from refork_worlds.tools.mcp_child import LONGEST, Child

# Tools that a server takes away, adds or alters during an episode, told in a text and read from it.


CAME: Final = "tools came :"
CHANGED: Final = "tools changed :"
WENT: Final = "tools went :"


@dataclass(frozen=True, slots=True)
class Listed:
    """One tool of a server."""

    name: str
    doc: str
    parameters: Json

    @property
    def line(self) -> str:
        """What a policy is told of it: one line of JSON."""
        doc = {"description": self.doc} if self.doc else {}
        return compact({"name": self.name, **doc, "arguments": self.parameters})


def describe_changes(before: Mapping[str, Listed], now: Mapping[str, Listed]) -> str:
    """What became of the tools, each part in the order of their names; empty where nothing did."""
    came = [now[name].line for name in sorted(set(now) - set(before))]
    both = sorted(set(now) & set(before))
    changed = [now[name].line for name in both if now[name].line != before[name].line]
    went = [compact(name) for name in sorted(set(before) - set(now))]
    parts = ((CAME, came), (CHANGED, changed), (WENT, went))
    return "\n".join(line for head, lines in parts if lines for line in (head, *lines))


def after(tools: Sequence[Listed], texts: Iterable[str]) -> tuple[Listed, ...]:
    """The tools that are left after all that these texts tell of them."""
    found = {tool.name: tool for tool in tools}
    for text in texts:
        head = ""
        for line in text.split("\n"):
            if line in (CAME, CHANGED, WENT):
                head = line
            elif head:
                head = head if _take(found, head, line) else ""
    return tuple(found.values())


def _take(found: dict[str, Listed], head: str, line: str) -> bool:
    """Note a line below a heading; False where it is none of its lines."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if head == WENT and isinstance(body, str):
        found.pop(body, None)
        return True
    if head == WENT or not isinstance(body, dict) or not isinstance(body.get("arguments"), dict):
        return False
    name = str(body.get("name"))
    found[name] = Listed(name, str(body.get("description", "")), body["arguments"])
    return True


# Where an MCP server is, how long it may take, and which variables it is given: by name, never by value.


WHERE: Final = "tools:mcp"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A header's name, then a scheme where there is one, then the name of a variable.
_HEADER = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*):(?:([A-Za-z][A-Za-z0-9-]*) )?([A-Za-z_][A-Za-z0-9_]*)")
_HEADER_HINT = "headers=NAME:VARIABLE or headers=Authorization:Bearer%20VARIABLE, several with commas"


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is: a command that speaks on its standard streams, or a URL.

    ``timeout`` is for each call, ``start_timeout`` until it is ready, both in seconds. ``headers`` are
    ``Name:VARIABLE`` or ``Name:Scheme VARIABLE``, ``env`` names of variables that a command is given; their
    values are read when a connection is made.
    """

    command: str = ""
    url: str = ""
    timeout: float = 20.0
    start_timeout: float = 60.0
    headers: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.command.strip()) == bool(self.url.strip()):
            raise BadInput("an MCP server is a command or a url", hint="tools:mcp?command=... or url=...")
        for name, limit in (("timeout", self.timeout), ("start_timeout", self.start_timeout)):
            if not (limit > 0 and math.isfinite(limit)):
                raise BadInput(f"{name} is {limit}; it must be above 0 and finite", where=WHERE)
        if self.url:
            self._check_url()
        elif self.headers:
            raise BadInput(
                "headers are for a url", where=WHERE, hint="a command is given variables: env=NAME"
            )
        for header in self.headers:
            if not _HEADER.fullmatch(header):
                # Not shown: it may be the secret itself, put in by a shell.
                name = header.partition(":")[0] if ":" in header else "a header"
                raise BadInput(f"{name} does not name a variable", where=WHERE, hint=_HEADER_HINT)
        for variable in self.env:
            if not _VARIABLE.fullmatch(variable):
                raise BadInput("env holds what is no variable's name", where=WHERE, hint="env=NAME,NAME")

    def _check_url(self) -> None:
        if self.env:
            raise BadInput("env is for a command", where=WHERE, hint="a url is given headers=NAME:VARIABLE")
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            raise BadInput("the url cannot be read", where=WHERE) from None
        if parts.username is not None or parts.password is not None:
            raise BadInput(
                "the url holds a name or a password, which would be written into every tree",
                where=WHERE,
                hint="headers=Authorization:Basic%20VARIABLE",
            )
        if not known:
            raise BadInput(f"{self.url!r} is no http address", where=WHERE, hint="url=https://HOST/PATH")

    def words(self) -> list[str]:
        """The command's words; raises BadInput where there is no such program."""
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise BadInput(f"the command cannot be split: {error}", where=WHERE) from error
        if not words or shutil.which(words[0]) is None:
            raise BadInput(
                f"there is no program {words[0] if words else ''!r} to start the MCP server",
                where=f"{WHERE}, command {self.command!r}",
                hint="install it, or give its whole path",
            )
        return words

    def environment(self) -> dict[str, str]:
        """The variables that ``env`` names; raises BadInput where one is not set."""
        return {name: _value(name, "env") for name in self.env}

    def http_headers(self) -> dict[str, str]:
        """The headers with their values; raises BadInput where a variable is not set or cannot be one."""
        found: dict[str, str] = {}
        for header in self.headers:
            matched = _HEADER.fullmatch(header)
            assert matched is not None
            name, scheme, variable = matched.groups()
            value = _value(variable, f"header {name}")
            if not value or not value.isascii() or not value.isprintable() or value != value.strip():
                what = f"the environment variable {variable!r} holds no value for a header"
                raise BadInput(what, where=f"{WHERE}, header {name}", hint="one line of plain characters")
            found[name] = f"{scheme} {value}" if scheme else value
        return found

    def hidden(self, text: str) -> str:
        """A text of the server without the values of the variables that it was given."""
        names = [*self.env, *(header.rpartition(":")[2].rpartition(" ")[2] for header in self.headers)]
        # The longest value first: a shorter one may be part of it.
        for name in sorted(names, key=lambda one: -len(os.environ.get(one, ""))):
            value = os.environ.get(name, "")
            # What is shorter is no secret, and would be found in any text.
            if len(value) >= _SHORTEST:
                text = text.replace(value, f"${name}")
        return text


_SHORTEST: Final = 6


def _value(name: str, place: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise BadInput(
            f"the environment variable {name!r} is not set",
            where=f"{WHERE}, {place}",
            hint=f"export {name}=... before you start",
        )
    return value


# What a tool answered, as text: two answers that differ never read the same.
#
# Text stands as it is. What is no text is named by its kind, MIME type, size and the first digits of its
# sha256. A linked resource is named so where its contents were read.


#: Hex digits of a digest that are shown.
DIGITS = 16
_UNTYPED = "no MIME type"


def result_text(answer: Any, linked: Mapping[str, bytes]) -> str:
    """The blocks of a result as lines, then structured content that no block says.

    ``linked``: the bytes of linked resources by their URI, as far as they were read.
    """
    lines: list[str] = []
    texts: list[str] = []
    for block in answer.content:
        if block.type == "text":
            texts.append(block.text)
            lines.append(block.text)
        elif block.type == "resource":
            lines.append(_embedded(block.resource))
        elif block.type == "resource_link":
            lines.append(_link(block, linked.get(block.uri)))
        else:
            lines.append(f"[{block.type} {_line(block.mime_type)}, {_encoded(block.data)}]")
    structured = answer.structured_content
    if structured is not None and not _repeated_in(structured, texts):
        lines.append(compact(structured))
    return "\n".join(lines)


def contents_bytes(contents: Sequence[Any]) -> bytes:
    """The bytes of a resource that was read, one part after the other."""
    return b"".join(
        one.text.encode() if getattr(one, "text", None) is not None else _decoded(one.blob)[0]
        for one in contents
    )


def _embedded(inner: Any) -> str:
    head = f"resource {_line(inner.uri)}, {_line(inner.mime_type or _UNTYPED)}"
    text = getattr(inner, "text", None)
    return f"[{head}, {_encoded(inner.blob)}]" if text is None else f"[{head}]\n{text}"


def _link(block: Any, data: bytes | None) -> str:
    parts = [f"resource link {_line(block.uri)}", _line(block.name), _line(block.mime_type or _UNTYPED)]
    if data is not None:
        parts.append(_sized(data))
    elif block.size is not None:
        parts.append(f"{block.size} bytes as the server says")
    return f"[{', '.join(parts)}]"


def _encoded(text: str) -> str:
    data, whole = _decoded(text)
    return _sized(data) if whole else f"{_sized(data)} of what is no base64"


def _decoded(text: str) -> tuple[bytes, bool]:
    """The bytes that base64 stands for; the text itself and False where it is none."""
    try:
        return base64.b64decode("".join(text.split()), validate=True), True
    except (binascii.Error, ValueError):
        return text.encode(), False


def _sized(data: bytes) -> str:
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:DIGITS]}"


def _line(text: str) -> str:
    """On one line, so that a name cannot pass for what follows it."""
    return " ".join(text.split())


def _repeated_in(structured: Any, texts: Sequence[str]) -> bool:
    """Whether text blocks say it already, as servers are asked to; SDKs wrap what is no object in result."""
    inside = structured["result"] if isinstance(structured, dict) and set(structured) == {"result"} else None
    if isinstance(inside, list) and 0 < len(inside) == len(texts) and all(map(_says, texts, inside)):
        return True
    return any(_says(text, structured) or (inside is not None and _says(text, inside)) for text in texts)


def _says(text: str, value: Any) -> bool:
    if text == value:
        return True
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


# A live client of an MCP server, used from ordinary code: an event loop of its own in a thread.


#: Seconds that a call which was given up has to tell its server so.
_COURTESY: Final = 6.0


@final
class Link:
    """A client that lives in another thread until :meth:`close`.

    ``changing``: the server says that its tools may change, or said that they did.

    Raises:
        MissingExtra: the package mcp is not installed.
    """

    def __init__(self) -> None:
        try:
            import mcp  # noqa: F401
            from anyio.from_thread import start_blocking_portal
        except ImportError as error:
            raise MissingExtra("mcp", "mcp") from error
        for name in ("mcp", "client"):
            # What the client logs is told in our errors; who sets up logging still gets it.
            logger = logging.getLogger(name)
            if not logger.handlers:
                logger.addHandler(logging.NullHandler())
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._loop: int = self._portal.call(threading.get_ident)
        self._life: Future[None] | None = None
        self._scope: Any = None
        self._leave: Any = None
        self._over = False
        self.client: Any = None
        self.changing = False

    def open(self, target: Any, seconds: float) -> None:
        """Connect; raises what the client raises, and TimeoutError."""
        ready: Future[None] = Future()

        def over(life: Future[None]) -> None:
            if not ready.done():
                ready.set_exception(_error(life) or ConnectionError("the connection ended"))

        try:
            self._life = self._portal.start_task_soon(self._live, target, ready)
            self._life.add_done_callback(over)
            ready.result(seconds)
        except BaseException:
            self.close(at_once=True)
            raise

    async def _live(self, target: Any, ready: Future[None]) -> None:
        import anyio
        from mcp import Client
        from mcp_types import ToolListChangedNotification

        async def hear(message: Any) -> None:
            self.changing = self.changing or isinstance(message, ToolListChangedNotification)

        if self._over:
            return
        self._leave = anyio.Event()
        with anyio.CancelScope() as self._scope:
            # Nothing is kept from one listing of tools to the next.
            async with Client(target, cache=None, message_handler=hear) as client:
                tools = client.server_capabilities.tools
                self.changing = self.changing or bool(tools is not None and tools.list_changed)
                self.client = client
                if ready.set_running_or_notify_cancel():
                    ready.set_result(None)
                await self._leave.wait()

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._life is None or self._life.done()

    @property
    def reason(self) -> BaseException | None:
        """What ended the connection, where that is known."""
        return _error(self._life) if self._life is not None and self._life.done() else None

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of work in the loop. What breaks it off here (Ctrl-C) cancels it there, and is raised.

        Raises:
            RuntimeError: the link is closed.
        """
        import anyio

        done = threading.Event()
        scopes: list[anyio.CancelScope] = []
        given_up = False

        async def watched() -> T:
            try:
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    if given_up:
                        scope.cancel()
                    return await work()
            finally:
                done.set()
            raise RuntimeError("it was given up")

        def give_up() -> None:
            for scope in scopes:
                scope.cancel()

        try:
            return self._portal.start_task_soon(watched).result()
        except Exception:
            raise
        except BaseException:
            # It may come before there is a future: the work is begun in the other thread.
            given_up = True
            with suppress(RuntimeError):
                self._portal.start_task_soon(give_up)
                done.wait(_COURTESY)
            raise

    def close(self, *, at_once: bool = False) -> None:
        """End the client and its thread; ``at_once`` without taking leave. A second time does nothing."""
        if threading.get_ident() == self._loop:
            # What nobody holds is collected in any thread, and this one cannot wait for its own end.
            threading.Thread(target=self.close, daemon=True).start()
            return
        self._over = True
        # A loop that has stopped has nothing to leave.
        with suppress(RuntimeError):
            self._portal.start_task_soon(self._end, at_once)
        self._stack.close()

    def _end(self, at_once: bool) -> None:
        if self._leave is not None:
            self._leave.set()
        if at_once and self._scope is not None:
            self._scope.cancel()


def _error(life: Future[None]) -> BaseException | None:
    return None if life.cancelled() else life.exception()


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
