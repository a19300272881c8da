"""What a program asks in place of its provider: an endpoint on this machine, for one run, at a secret path.

What answers is given by the caller: the real provider (:class:`Upstream`), or a tape. Pages of browsers are
refused as by every server of ours, and who does not know the path gets nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Protocol, final
from urllib.parse import parse_qsl, urlencode, urlsplit

from refork.agents.proxy import LocalProxy
from refork.agents.step_names import HEADER
from refork.agents.steps import ToldSteps
from refork.agents.tape import Tape, Wire
from refork.errors import MissingExtra
from refork.json_guard import parse_json
from refork.serve.gate import Gate
from refork.serve.local import http_server, running
from refork.serve.refusal import Refused
from refork.types import Json

Send = Callable[[dict[str, Any]], Awaitable[None]]

#: Seconds that a provider may be silent; a model that thinks says nothing for minutes.
SILENT_S: Final = 900.0
#: Statuses by which a provider says that it does not answer now, or does not answer us.
FAILURES: Final = frozenset({401, 402, 403, 404, 408, 409, 425, 429, *range(500, 600)})
#: Bytes of a request's body.
LARGEST: Final = 256 << 20
#: Headers of an answer that are kept: what a client acts on. Cookies and the like are not.
_KEPT: Final = frozenset({
    "content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id",
    "openai-version", "anthropic-version",
})  # fmt: skip
#: Headers of a request that are its connection's own. Compressed answers could not be read.
_OWN: Final = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive", "te",
    "upgrade", "proxy-authorization", "proxy-connection", "expect",
})  # fmt: skip
#: Parameters of a query that are keys.
_KEYS: Final = frozenset({"key", "api_key", "api-key", "access_token", "token"})


@final
@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: the variables in which its programs look for an address, and where it is itself.

    ``keys``: programs want one of these variables to be there, whatever it holds.
    """

    name: str
    variables: tuple[str, ...]
    upstream: str
    keys: tuple[str, ...] = ()


PROVIDERS: Final = (
    Provider(
        "openai", ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1", ("OPENAI_API_KEY",)
    ),
    Provider(
        "anthropic", ("ANTHROPIC_BASE_URL",), "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ),
    Provider(
        "gemini", ("GOOGLE_GEMINI_BASE_URL",), "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    Provider("azure", ("AZURE_OPENAI_ENDPOINT",), ""),
    Provider("ollama", ("OLLAMA_HOST",), "http://127.0.0.1:11434"),
)  # fmt: skip


def variables(address: str, given: Mapping[str, str]) -> dict[str, str]:
    """What is set for a program so that it asks at ``address``; keys are named only where it has none."""
    found: dict[str, str] = {}
    for provider in PROVIDERS:
        found |= dict.fromkeys(provider.variables, f"{address}/{provider.name}")
        if provider.keys and not any(map(given.get, provider.keys)):
            found[provider.keys[0]] = "refork"
    # A proxy of the machine would be asked for an address that only this machine has.
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, [given.get(name, ""), "127.0.0.1", "localhost"]))
    return found


class Answering(Protocol):
    """Who answers a request: writes status, headers and pieces, and keeps what it wants to keep."""

    async def answer(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        """Answer one request; ``wire`` holds its method, path, query and body."""
        ...

    async def close(self) -> None:
        """Nothing is asked any more."""
        ...


class AnsweringTools(Protocol):
    """Who answers a program that shows a call of a tool, before it runs, or tells what came of it."""

    async def answer(self, path: str, message: Any) -> Json:
        """Answer ``call`` or ``result``."""
        ...

    async def close(self) -> None:
        """Nothing is shown any more."""
        ...


@final
class HttpReply:
    """The answer while it is sent. ``gone`` once the client has left."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.began = False
        self.gone = False

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        self.began = True
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._pass({"type": "http.response.start", "status": status, "headers": pairs})

    async def piece(self, data: bytes, more: bool = True) -> None:
        """Send a piece of the body."""
        await self._pass({"type": "http.response.body", "body": data, "more_body": more})

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send all at once."""
        await self.begin(status, headers)
        await self.piece(body, more=False)

    async def _pass(self, message: dict[str, Any]) -> None:
        if not self.gone:
            await self._send(message)


@final
class ProgramEndpoint:
    """An ASGI application: ``/SECRET/PROVIDER/...`` goes to who answers, all else is refused.

    ``/SECRET/tools/...`` goes to who answers calls of tools.
    """

    def __init__(
        self, answering: Answering, tools: AnsweringTools | None = None, proxy: LocalProxy | None = None
    ) -> None:
        self._answering, self._tools, self._gate, self._proxy = answering, tools, Gate(), proxy
        self._steps = ToldSteps()
        self.secret = secrets.token_urlsafe(16)
        self.requests = 0
        self.broken: BaseException | None = None

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """One request, or the server's own beginning and end."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                if self._proxy is not None:
                    await self._proxy.begin(self._by_name)
                await send({"type": "lifespan.startup.complete"})
            if self._proxy is not None:
                await self._proxy.end()
            await self._answering.close()
            if self._tools is not None:
                await self._tools.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await self._asked(scope, receive, HttpReply(send))

    def _by_name(self, host: str) -> Callable[[Any, Any, Send], Awaitable[None]]:
        """An application for what is asked of a host, through the proxy, which knows the program."""

        async def asked(scope: Any, receive: Any, send: Send) -> None:
            await self._answered(scope, f"{host}/{_path(scope).lstrip('/')}", receive, HttpReply(send))

        return asked

    async def _asked(self, scope: Any, receive: Any, reply: HttpReply) -> None:
        try:
            self._gate.check(scope)
        except Refused as refused:
            await reply.whole(refused.status, {"content-type": "text/plain"}, str(refused).encode())
            return
        _, secret, rest = (*_path(scope).split("/", 2), "", "")[:3]
        if not secrets.compare_digest(secret.encode(), self.secret.encode()):
            await reply.whole(404, {"content-type": "text/plain"}, b"there is nothing here")
            return
        await self._answered(scope, rest, receive, reply)

    async def _answered(self, scope: Any, rest: str, receive: Any, reply: HttpReply) -> None:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        if headers.get("upgrade", "").lower() == "websocket":
            # With this status programs ask by HTTP at once; any other makes them try again and again.
            told = b"web sockets are not recorded; ask over HTTP"
            await reply.whole(426, {"content-type": "text/plain"}, told)
            return
        of_tools = rest.startswith("tools/")
        # What is only looked at (is the server there? which models has it?) asks no model.
        self.requests += scope["method"] == "POST" and not of_tools
        body = await _body(receive)
        if body is None:
            return
        if len(body) > LARGEST:
            await reply.whole(413, {"content-type": "text/plain"}, b"this request is too large to record")
            return
        if of_tools and self._tools is not None:
            await self._tool_asked(self._tools, rest.removeprefix("tools/"), body, reply)
            return
        query = scope.get("query_string", b"").decode("latin-1")
        asked_by = self._steps.take(headers.pop(HEADER, None))
        wire = Wire(scope["method"], rest, query, body, began=time.time(), asked_by=asked_by)
        await self._model_asked(wire, headers, receive, reply)

    async def _model_asked(
        self, wire: Wire, headers: Mapping[str, str], receive: Any, reply: HttpReply
    ) -> None:
        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            reply.gone = True

        watching = asyncio.create_task(watch())
        try:
            await self._answering.answer(wire, headers, reply)
        except Exception as error:
            # Ours, and whoever runs the program must hear of it: the program would only see an odd answer.
            self.broken = error
            if not reply.began:
                told = f"refork could not answer: {error}".encode()
                await reply.whole(500, {"content-type": "text/plain", "x-should-retry": "false"}, told)
            raise
        finally:
            watching.cancel()

    async def _tool_asked(self, tools: AnsweringTools, path: str, body: bytes, reply: HttpReply) -> None:
        try:
            message = parse_json(body, "a tool call")
            told = json.dumps(
                self._steps.put(message) if path == "step" else await tools.answer(path, message)
            )
        except Exception as error:
            self.broken = error
            await reply.whole(
                500, {"content-type": "text/plain"}, f"refork could not answer: {error}".encode()
            )
            raise
        await reply.whole(200, {"content-type": "application/json"}, told.encode())


def _path(scope: Any) -> str:
    """A path as it was sent: a model's name may hold what is quoted in one."""
    raw: bytes = scope.get("raw_path", scope["path"].encode())
    return raw.split(b"?")[0].decode("latin-1")


async def _body(receive: Any) -> bytes | None:
    """A request's body, not much beyond what is taken; None: the client went away."""
    parts, size = [], 0
    while size <= LARGEST:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body"):
            break
    return b"".join(parts)


@contextmanager
def listening(
    answering: Answering, tools: AnsweringTools | None = None, proxy: LocalProxy | None = None
) -> Iterator[tuple[str, ProgramEndpoint]]:
    """Serve an endpoint from a thread while inside; gives the address that programs are told.

    With a ``proxy`` that is its address, so that a program which reaches one port alone reaches both.

    Raises:
        CannotDo: no address can be had.
        MissingExtra: uvicorn is not installed (extra ``serve``).
    """
    app = ProgramEndpoint(answering, tools, proxy)
    server = http_server(lambda: app, head_s=60.0, connections=512, drain_s=5, level="critical")
    with running(server, "127.0.0.1", 0, f"/{app.secret}") as address:
        if proxy is None:
            yield address, app
        else:
            proxy.endpoint = urlsplit(address).port or 0
            yield f"http://127.0.0.1:{proxy.port}/{app.secret}", app


def without_keys(query: str) -> str:
    """A query without the parameters that hold keys."""
    kept = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in _KEYS]
    return urlencode(kept)


def bases(to: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """Where each provider's requests go: to the one server, or where the environment says; "": nowhere."""
    found = {}
    for provider in PROVIDERS:
        own = next(filter(None, map(given.get, provider.variables)), provider.upstream)
        if provider.name == "ollama" and "://" not in own:
            own = f"http://{own}"
        # Programs of OpenAI's packages put their paths behind /v1, all others begin with it or have none.
        server = to if to is None or provider.name == "openai" else to.rstrip("/").removesuffix("/v1")
        found[provider.name] = (server or own).rstrip("/")
    return found


@final
class Upstream:
    """Passes requests on to their providers, or all to one server, and puts every exchange on a tape.

    ``to`` is the address of an OpenAI-compatible server, such as one of ``refork serve``, with its ``/v1``.
    ``hosts``: those that programs name themselves, and where what is asked of them goes; empty: to them.
    Streams are passed on as they come. The last piece of an answer goes out once the exchange is on the tape.
    ``then`` is told the number of exchanges after each. ``unanswered``: requests to models that the provider
    answered with one of ``FAILURES``, or not at all, and not when they were asked again; by digest, with the
    status (0: it broke off, or was not there) and words.

    Raises:
        MissingExtra: httpx is not installed.
    """

    def __init__(
        self,
        tape: Tape,
        *,
        to: str | None = None,
        given: Mapping[str, str] | None = None,
        then: Callable[[int], None] | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtra("httpx", "serve") from error
        self._tape, self._then, self._to, self._hosts = tape, then, to, hosts or {}
        self.unanswered: dict[str, tuple[int, str]] = {}
        self._bases = bases(to, os.environ if given is None else given)
        self._new: Callable[[], Any] = lambda: httpx.AsyncClient(
            verify=_trusted(),
            timeout=httpx.Timeout(30.0, read=SILENT_S, write=SILENT_S),
            follow_redirects=False,
        )
        self._client: Any = None
        self._failures = (httpx.HTTPError, httpx.InvalidURL)

    async def answer(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        """Ask the provider, pass on what it says, and put it on the tape."""
        name, base, _ = self._where(wire)
        if not base:
            told = f"there is no address for {name!r}: set {_variable(name)}, or name a server with --to"
            await reply.whole(404, {"content-type": "text/plain"}, told.encode())
            await self.put(replace(wire, query=without_keys(wire.query), failed=told))
            return
        ended = await self.ask(wire, headers, reply)
        await self.put(ended)
        if ended.failed is None:
            await reply.piece(ended.chunks[-1] if ended.chunks else b"", more=False)
        elif not reply.began:
            why = f"the provider did not answer: {ended.failed}".encode()
            await reply.whole(502, {"content-type": "text/plain"}, why)
        # Else as the provider did: without an end, by which the client sees that the answer is not whole.

    async def ask(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply | None = None) -> Wire:
        """Ask the provider; what it says, but the last piece, is passed on as it comes to ``reply``."""
        _, base, path = self._where(wire)
        passed = {key: value for key, value in headers.items() if key not in _OWN}
        passed["accept-encoding"] = "identity"
        url = f"{base or ''}/{path}" + (f"?{wire.query}" if wire.query else "")
        # Made in the loop that uses it, which is the server's.
        self._client = self._client or self._new()
        began = time.perf_counter()
        chunks: list[bytes] = []
        status, kept, failed = 0, {}, None
        try:
            async with self._client.stream(wire.method, url, headers=passed, content=wire.body) as answer:
                status = answer.status_code
                kept = {key: value for key, value in answer.headers.items() if key.lower() in _KEPT}
                if reply is not None:
                    await reply.begin(status, kept)
                # Raw: a server may compress all the same, and bytes are passed on as they are.
                async for piece in answer.aiter_raw():
                    if reply is not None and chunks:
                        await reply.piece(chunks[-1])
                    if reply is not None and reply.gone:
                        break
                    chunks.append(piece)
        except self._failures as error:
            failed = f"{type(error).__name__}: {error}".strip()
        ended = replace(
            wire,
            query=without_keys(wire.query),
            status=status,
            headers=kept,
            chunks=tuple(chunks),
            seconds=time.perf_counter() - began,
            aborted=reply is not None and reply.gone,
            failed=failed,
        )
        if status in FAILURES or failed is not None:
            if wire.method == "POST":
                said = failed or ended.answer[:200].decode("utf-8", "replace").strip()
                self.unanswered[wire.digest] = 0 if failed else status, said
        else:
            self.unanswered.pop(wire.digest, None)
        return ended

    async def put(self, wire: Wire) -> None:
        """Put an exchange on the tape."""
        event = await asyncio.to_thread(self._tape.add, wire)
        if self._then is not None:
            self._then(event.number + 1)

    def _where(self, wire: Wire) -> tuple[str, str | None, str]:
        """Who is asked, at which address, for what."""
        name, _, path = wire.path.partition("/")
        host = name.partition(":")[0]
        if name in self._bases or host not in self._hosts:
            return name, self._bases.get(name), path
        if self._to is not None:
            return name, self._to.rstrip("/").removesuffix("/v1"), f"v1/{path.rpartition('v1/')[2]}"
        return name, self._hosts[host] or f"https://{name}", path

    async def close(self) -> None:
        """Give back the connections."""
        if self._client is not None:
            await self._client.aclose()


def server_of(path: str, *, to: str | None = None, given: Mapping[str, str] | None = None) -> str | None:
    """Whose server answers the chat requests of a path, as its list of models says; None: it does not say.

    Raises: MissingExtra as :class:`Upstream`.
    """
    import httpx

    environment = os.environ if given is None else given
    base = bases(to, environment).get(path.partition("/")[0])
    if base is None:
        return None  # a host that a proxy met
    url = f"{base}/{path.partition('/')[2].removesuffix('chat/completions')}models"
    key = environment.get("OPENAI_API_KEY")
    try:
        told = httpx.get(url, headers={"authorization": f"Bearer {key}"} if key else {}, verify=_trusted())
        owners = {str(one["owned_by"]).lower() for one in told.json()["data"]}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
    return owners.pop() if len(owners) == 1 else None


@cache
def _trusted() -> Any:
    """Whom we believe to be a provider. Read once: a fork has a client for each draw."""
    import httpx

    return httpx.create_ssl_context()


def _variable(name: str) -> str:
    return next((one.variables[0] for one in PROVIDERS if one.name == name), "one of the known variables")
