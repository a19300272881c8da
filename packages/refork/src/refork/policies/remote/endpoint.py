"""One OpenAI-compatible server: its address, its key, and its calls as plain JSON."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import openai

from refork.errors import BadInput, ServerError
from refork.policies.chat import tools_of
from refork.policies.remote.calls import Caller, CallFailed, Patience, TooLong, Unreadable, parsed
from refork.policies.sent import sent_message
from refork.settings import variable
from refork.types import IntArray, Json, Message, token_array

_OPENAI = "api.openai.com"
#: Bytes; log-probs of twenty tokens at each of a hundred thousand places are about half of it.
_LARGEST = 1 << 28
#: Characters of a value in an address that may be a key, and not a version or a switch.
_LEAST_SECRET = 8
#: Statuses of a gateway without a server.
_NOBODY_THERE = frozenset({502, 503, 504})


def server_name(url: str) -> str:
    """The address as it may be shown and stored: no user, password, query or fragment.

    Raises:
        BadInput: it is no http or https address.
    """
    parts = urlsplit(url)
    try:
        port_number = parts.port
    except ValueError:
        port_number = None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = url.rsplit("@", maxsplit=1)[-1]
        raise BadInput(f"{shown!r} is no server address", hint="write it as http://HOST:PORT/v1")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = f":{port_number}" if port_number else ""
    return urlunsplit((parts.scheme, host + port, parts.path.rstrip("/") or "/v1", "", ""))


def find_key(url: str, given: str | None) -> str:
    """The key to send: the argument, REFORK_API_KEY, or for OpenAI's own server OPENAI_API_KEY."""
    key = given or variable("REFORK_API_KEY")
    if not key and urlsplit(url).hostname == _OPENAI:
        key = os.environ.get("OPENAI_API_KEY")
    return key or ""


def _whole(answer: Any, seconds: float) -> bytes:
    """A body that comes whole in time and within a size: a read's own time-out begins anew with every byte.

    Raises:
        Unreadable: it broke off, or came too slowly.
        TooLong: it is longer than any true one.
    """
    parts, size, end = [], 0, time.monotonic() + seconds
    try:
        for part in answer.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _LARGEST or time.monotonic() > end:
                break
    except Exception as error:
        # The client names the failures of its HTTP library while it sends, not while a body is read.
        raise Unreadable(f"the answer broke off ({type(error).__name__})") from error
    if size > _LARGEST:
        raise TooLong(f"the answer is longer than {_LARGEST >> 20} MiB")
    if time.monotonic() > end:
        raise Unreadable("the answer came too slowly")
    return b"".join(parts)


@final
class Endpoint:
    """Calls of one server. The key is held by the client alone and shown nowhere."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        patience: Patience | None = None,
        on_wait: Callable[[str], None] | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        if not (math.isfinite(timeout) and timeout > 0):
            raise BadInput(f"timeout is {timeout}; it must be a number of seconds above 0")
        self.server = server_name(url)
        self.model = model
        key = find_key(url, api_key)
        parts = urlsplit(url)
        address = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/v1", parts.query, ""))
        # Retries are ours: they must be bounded, shared between threads, and spoken of.
        self._client = openai.OpenAI(api_key=key or "none", base_url=address, timeout=timeout, max_retries=0)
        self._timeout = timeout
        hidden = [value for _, value in parse_qsl(parts.query) if len(value) >= _LEAST_SECRET]
        secrets = [key, parts.password or "", *hidden]
        self.caller = Caller(
            self.server, patience or Patience(), secrets=secrets, on_wait=on_wait, sleep=sleep
        )

    def __repr__(self) -> str:
        return f"Endpoint({self.server!r}, {self.model!r})"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def completion(self, body: Json, what: str, extra: Json | None = None, model: str | None = None) -> Json:
        """Answer of ``/completions``; ``model`` stands for the endpoint's own."""
        create = self._client.completions.with_streaming_response.create
        return self._read(lambda: create(model=model or self.model, extra_body=extra, **body), what)

    def chat(self, body: Json, what: str, extra: Json | None = None, model: str | None = None) -> Json:
        """Answer of ``/chat/completions``; ``model`` stands for the endpoint's own.

        This is the one place where messages go to a server: what is only ours is left out here.
        """
        body = {**body, "messages": [sent_message(message) for message in body["messages"]]}
        create = self._client.chat.completions.with_streaming_response.create
        return self._read(lambda: create(model=model or self.model, extra_body=extra, **body), what)

    def embeddings(self, texts: list[str]) -> Json:
        """Answer of ``/embeddings``, vectors as plain numbers."""
        create = self._client.embeddings.with_streaming_response.create
        return self._read(
            lambda: create(model=self.model, input=texts, encoding_format="float"), "embeddings"
        )

    def models(self) -> list[Json]:
        """What the server lists as its models; empty where it has no such list."""
        try:
            answer = self._listed()
        except ServerError:
            return []
        listed = answer.get("data")
        return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []

    def answers(self) -> bool:
        """Whether a server is there, whatever it says; a gateway that finds none behind it is no server."""
        try:
            self._listed()
        except CallFailed as error:
            return error.last is not None and error.last not in _NOBODY_THERE
        except ServerError:
            return True
        return True

    def _listed(self) -> Json:
        # One try: nothing depends on it, and some servers always fail at it.
        return self._read(self._client.models.with_streaming_response.list, "list of models", tries=1)

    def tokenize(self, text: str | None = None, messages: list[Message] | None = None) -> IntArray | None:
        """Token ids by the server's own ``/tokenize`` (vLLM, llama.cpp); None where it has none."""
        body: Json = {"model": self.model, "add_special_tokens": False}
        tools = tools_of(messages or ())
        shown: Json = {"messages": [sent_message(message) for message in messages or ()]}
        shown |= {"tools": tools} if tools else {}
        if messages is None:
            body |= {"prompt": text, "content": text}
        else:
            body |= {"messages": messages, "add_generation_prompt": True} | (
                {"tools": tools} if tools else {}
            )
        answer = self._native("/tokenize", body)
        if messages and answer is not None and answer.get("tokens") == []:
            # llama.cpp's server passes messages over there, and renders them elsewhere.
            rendered = (self._native("/apply-template", shown) or {}).get("prompt")
            whole = {"content": rendered, "add_special": True, "parse_special": True}
            answer = self._native("/tokenize", whole) if isinstance(rendered, str) else None
        tokens = (answer or {}).get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(t, int) for t in tokens):
            return None
        return token_array(tokens)

    def detokenize(self, tokens: IntArray) -> str | None:
        """Text by the server's own ``/detokenize``; None where it has none."""
        answer = self._native("/detokenize", {"model": self.model, "tokens": [int(t) for t in tokens]}) or {}
        found = next((answer[k] for k in ("prompt", "content", "text") if k in answer), None)
        return found if isinstance(found, str) else None

    def _native(self, path: str, body: Json) -> Json | None:
        root = str(self._client.base_url).rstrip("/").removesuffix("/v1")
        kind = openai.HttpxBinaryResponseContent
        try:
            return self._read(
                lambda: nullcontext(self._client.post(root + path, cast_to=kind, body=body)), path
            )
        except CallFailed as error:
            if error.status is None:
                raise
            return None

    def _read(
        self, call: Callable[[], AbstractContextManager[Any]], what: str, tries: int | None = None
    ) -> Json:
        def read() -> Any:
            with call() as answer:
                return parsed(_whole(answer, self._timeout))

        answer = self.caller(read, what, tries)
        if not isinstance(answer, dict):
            raise ServerError("the answer is no JSON object", where=f"{self.server}, {what}")
        # Some gateways say 200 and mean an error of the server behind them.
        if answer.get("error") and not answer.get("choices"):
            raise CallFailed(
                f"the server answers with an error: {self.caller.clean(str(answer['error']))}",
                status=200,
                where=f"{self.server}, {what}",
            )
        return answer
