"""One OpenAI-compatible server: its address, its key, and its calls as plain JSON."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final
from urllib.parse import urlsplit, urlunsplit

import openai

from ramify.core.errors import BadInput, ServerError
from ramify.core.policy.remote_call import Caller, CallFailed, Patience
from ramify.core.types import IntArray, Json, Message, token_array

_OPENAI = "api.openai.com"


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
    """The key to send: the argument, RAMIFY_API_KEY, or for OpenAI's own server OPENAI_API_KEY."""
    key = given or os.environ.get("RAMIFY_API_KEY")
    if not key and urlsplit(url).hostname == _OPENAI:
        key = os.environ.get("OPENAI_API_KEY")
    return key or ""


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
        self.server = server_name(url)
        self.model = model
        key = find_key(url, api_key)
        parts = urlsplit(url)
        address = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/v1", parts.query, ""))
        # Retries are ours: they must be bounded, shared between threads, and spoken of.
        self._client = openai.OpenAI(api_key=key or "none", base_url=address, timeout=timeout, max_retries=0)
        self.caller = Caller(self.server, patience or Patience(), secret=key, on_wait=on_wait, sleep=sleep)

    def __repr__(self) -> str:
        return f"Endpoint({self.server!r}, {self.model!r})"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def completion(self, body: Json, what: str, extra: Json | None = None) -> Json:
        """Answer of ``/completions``."""
        create = self._client.completions.with_raw_response.create
        return self._read(lambda: create(model=self.model, extra_body=extra, **body), what)

    def chat(self, body: Json, what: str) -> Json:
        """Answer of ``/chat/completions``."""
        create = self._client.chat.completions.with_raw_response.create
        return self._read(lambda: create(model=self.model, **body), what)

    def embeddings(self, texts: list[str]) -> Json:
        """Answer of ``/embeddings``, vectors as plain numbers."""
        create = self._client.embeddings.with_raw_response.create
        return self._read(
            lambda: create(model=self.model, input=texts, encoding_format="float"), "embeddings"
        )

    def context(self) -> int | None:
        """The model's context length in tokens, where the list of models says it."""
        try:
            # One try: nothing depends on it, and some servers always fail at it.
            answer = self._read(self._client.models.with_raw_response.list, "list of models", tries=1)
        except ServerError:
            return None
        listed = answer.get("data")
        for item in listed if isinstance(listed, list) else []:
            if isinstance(item, dict) and item.get("id") == self.model:
                found = item.get("max_model_len") or (item.get("meta") or {}).get("n_ctx_train")
                return found if isinstance(found, int) else None
        return None

    def tokenize(self, text: str | None = None, messages: list[Message] | None = None) -> IntArray | None:
        """Token ids by the server's own ``/tokenize`` (vLLM, llama.cpp); None where it has none."""
        body: Json = {"model": self.model, "add_special_tokens": False}
        if messages is None:
            body |= {"prompt": text, "content": text}
        else:
            body |= {"messages": messages, "add_generation_prompt": True}
        answer = self._native("/tokenize", body)
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
        try:
            return self._read(lambda: self._client.post(root + path, cast_to=object, body=body), path)
        except CallFailed as error:
            if error.status is None:
                raise
            return None

    def _read(self, call: Callable[[], Any], what: str, tries: int | None = None) -> Json:
        answer = self.caller(call, what, tries)
        if hasattr(answer, "http_response"):
            try:
                answer = answer.http_response.json()
            except ValueError:
                raise ServerError("the answer is no JSON", where=f"{self.server}, {what}") from None
        if not isinstance(answer, dict):
            raise ServerError("the answer is no JSON object", where=f"{self.server}, {what}")
        return answer
