"""A provider for real agent packages: it answers in four dialects, by a fixed plan, with words of chance.

The plan: visit north and south at once, then the cellar, then say so. A command line gets shell commands
in place of visits. Every answer holds a number drawn when it is given, so that an answer which was asked
for again is another one, and a replay with the recorded output got the recorded answers.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from refork.serve.local import http_server, running
from refork.types import Json

PLACES = ("north", "south", "cellar")
#: Tools of command lines that run a command, and the argument that takes it.
SHELLS = ("exec_command", "shell_command", "shell", "local_shell", "bash", "Bash", "run_shell_command")
#: Tools by which a framework ends.
ENDS = ("final_answer", "submit")
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Asked:
    """What the plan looks at: the way of asking, the tools by name, and all words of the conversation."""

    dialect: str
    stream: bool
    tools: Mapping[str, Json]
    words: str
    body: Json = field(repr=False)

    @property
    def task(self) -> str:
        """The errand's number, empty where the request has none: command lines ask for titles, too."""
        found = re.findall(r"Errand (\d+)", self.words)
        return found[-1] if found else ""

    @property
    def places(self) -> set[str]:
        """The places that a tool told of."""
        return set(re.findall(r"the (\w+) is quiet", self.words))


@dataclass(frozen=True)
class Saying:
    """An answer: text, and calls of tools by name."""

    text: str
    calls: tuple[tuple[str, Json], ...] = ()


def read(path: str, body: Json, before: str = "") -> Asked | None:
    """What is asked; None: no question of the four dialects. ``before``: what the server holds of it."""
    words = before + json.dumps(body, ensure_ascii=False)
    stream = bool(body.get("stream")) or "stream" in path.rsplit("/", 1)[-1]
    given = body.get("tools") or []
    if path.endswith("/chat/completions"):
        dialect = "chat"
        tools = {one["function"]["name"]: one["function"].get("parameters") or {} for one in given}
    elif path.endswith("/responses"):
        dialect = "responses"
        tools = {one["name"]: one.get("parameters") or {} for one in given if "name" in one}
    elif path.endswith("/messages"):
        dialect = "messages"
        tools = {one["name"]: one.get("input_schema") or {} for one in given}
    elif "enerateContent" in path:
        dialect = "gemini"
        told = [one for tool in given for one in tool.get("functionDeclarations") or []]
        tools = {one["name"]: one.get("parametersJsonSchema") or one.get("parameters") or {} for one in told}
    else:
        return None
    return Asked(dialect, stream, tools, words, body)


def plan(asked: Asked) -> Saying:
    """What the model says."""
    chance = secrets.randbelow(10**9)
    by_fields = "[[ ## " in asked.words  # DSPy asks for fields in a text, and offers no tools
    if not asked.task or not (asked.tools or by_fields):
        return Saying(f"a title {chance}")
    left = [place for place in PLACES if place not in asked.places]
    over = f"errand {asked.task} is done, receipt {chance}"
    if by_fields and "next_tool_name" in asked.words:
        name, given = ("visit", {"place": left[0]}) if left else ("finish", {})
        return _fields(
            next_thought=f"I think {chance}", next_tool_name=name, next_tool_args=json.dumps(given)
        )
    if by_fields:
        return _fields(reasoning="all is seen", answer=over)
    shell = next((name for name in SHELLS if name in asked.tools), None)
    if shell is not None and "visit" not in asked.tools:
        if left:
            return Saying(f"I go {chance}.", ((shell, _command(shell, asked, left[0])),))
        if "COMPLETE_TASK" in asked.words:  # mini-swe-agent ends by a command
            told = f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo '{over}'"
            return Saying(f"I end {chance}.", ((shell, {"command": told}),))
        return Saying(over)
    if left:
        together = left[:2] if len(left) == len(PLACES) else left[:1]
        return Saying(f"I go {chance}.", tuple(("visit", {"place": one}) for one in together))
    end = next((name for name in ENDS if name in asked.tools), None)
    return Saying("", ((end, {"answer": over}),)) if end else Saying(over)


def _fields(**said: str) -> Saying:
    told = [f"[[ ## {key} ## ]]\n{value}" for key, value in said.items()]
    return Saying("\n\n".join([*told, "[[ ## completed ## ]]"]))


def _command(name: str, asked: Asked, place: str) -> Json:
    """Arguments of a shell tool: what its schema wants, with the command under the name it has there."""
    fields: Json = asked.tools[name].get("properties") or {}
    line = f"echo {place} >> \"$VISITS\"; printf 'the %s is %s' {place} quiet"
    key = "cmd" if "cmd" in fields else "command"
    whole: Any = ["bash", "-c", line] if fields.get(key, {}).get("type") == "array" else line
    given: Json = {key: whole}
    for other in asked.tools[name].get("required") or []:
        kind = fields.get(other, {}).get("type")
        given.setdefault(other, {"boolean": False, "number": 9, "integer": 9}.get(kind, f"visit {place}"))
    return given


# -- the dialects ---------------------------------------------------------------------------------


def _sse(events: Sequence[Json], named: bool = False, done: bool = False) -> list[bytes]:
    pieces = [(f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in events]
    return [piece.encode() for piece in [*pieces, *(["data: [DONE]\n\n"] if done else [])]]


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def chat(said: Saying, model: str) -> tuple[Json, list[bytes]]:
    """A chat completion, whole and as a stream."""
    base = {"id": f"chatcmpl-{secrets.token_hex(8)}", "created": 1_790_000_000, "model": model}
    calls = [
        {"id": f"call_{secrets.token_hex(8)}", "type": "function",
         "function": {"name": name, "arguments": json.dumps(given)}}
        for name, given in said.calls
    ]  # fmt: skip
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    message: Json = {"role": "assistant", "content": said.text} | ({"tool_calls": calls} if calls else {})
    whole = base | {
        "object": "chat.completion", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }  # fmt: skip
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": half} for half in _halves(said.text) if half]
    for number, call in enumerate(calls):
        told: Json = call["function"]
        deltas.append({"tool_calls": [{"index": number, **call, "function": {**told, "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": number, "function": {"arguments": half}}]}
            for half in _halves(told["arguments"])
        ]
    made = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    made.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks: list[Json] = [base | {"object": "chat.completion.chunk", "choices": [one]} for one in made]
    chunks.append(base | {"object": "chat.completion.chunk", "choices": [], "usage": usage})
    return whole, _sse(chunks, done=True)


def responses(said: Saying, model: str) -> tuple[Json, list[bytes]]:
    """A response, whole and as a stream with all the events that clients wait for."""
    items: list[Json] = []
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        items.append(
            {"type": "message", "id": f"msg_{secrets.token_hex(8)}", "role": "assistant",
             "status": "completed", "content": [part]}
        )  # fmt: skip
    for name, given in said.calls:
        items.append(
            {"type": "function_call", "id": f"fc_{secrets.token_hex(8)}", "status": "completed",
             "call_id": f"call_{secrets.token_hex(8)}", "name": name, "arguments": json.dumps(given)}
        )  # fmt: skip
    whole: Json = {
        "id": f"resp_{secrets.token_hex(8)}", "object": "response", "created_at": 1_790_000_000,
        "model": model, "status": "completed", "output": items, "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None,
        "usage": {
            "input_tokens": 7, "output_tokens": 3, "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip
    events: list[Json] = [
        {
            "type": "response.created",
            "response": whole | {"output": [], "status": "in_progress", "usage": None},
        }
    ]
    for number, item in enumerate(items):
        at = {"output_index": number, "item_id": item["id"]}
        begun = item | {"status": "in_progress"}
        if item["type"] == "message":
            begun |= {"content": []}
            inside = at | {"content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            middle = [{"type": "response.content_part.added", "part": empty} | inside]
            middle += [
                {"type": "response.output_text.delta", "delta": half, "logprobs": []} | inside
                for half in _halves(said.text)
            ]
            middle.append({"type": "response.output_text.done", "text": said.text, "logprobs": []} | inside)
            middle.append({"type": "response.content_part.done", "part": item["content"][0]} | inside)
        else:
            begun |= {"arguments": ""}
            kind = "response.function_call_arguments"
            middle = [{"type": f"{kind}.delta", "delta": half} | at for half in _halves(item["arguments"])]
            middle.append({"type": f"{kind}.done", "arguments": item["arguments"], "name": item["name"]} | at)
        events.append({"type": "response.output_item.added", "output_index": number, "item": begun})
        events += middle
        events.append({"type": "response.output_item.done", "output_index": number, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return whole, _sse([one | {"sequence_number": k} for k, one in enumerate(events)], named=True)


def messages(said: Saying, model: str) -> tuple[Json, list[bytes]]:
    """A message of Anthropic's, whole and as a stream."""
    blocks: list[Json] = [{"type": "text", "text": said.text}] if said.text else []
    blocks += [
        {"type": "tool_use", "id": f"toolu_{secrets.token_hex(8)}", "name": name, "input": given}
        for name, given in said.calls
    ]
    stop = "tool_use" if said.calls else "end_turn"
    base: Json = {
        "id": f"msg_{secrets.token_hex(8)}", "type": "message", "role": "assistant", "model": model,
        "stop_sequence": None,
    }  # fmt: skip
    whole = base | {"content": blocks, "stop_reason": stop, "usage": {"input_tokens": 7, "output_tokens": 3}}
    start = base | {"content": [], "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": start}]
    for number, block in enumerate(blocks):
        if block["type"] == "text":
            empty, told = block | {"text": ""}, [("text_delta", "text", one) for one in _halves(said.text)]
        else:
            parts = _halves(json.dumps(block["input"]))
            empty, told = block | {"input": {}}, [("input_json_delta", "partial_json", one) for one in parts]
        events.append({"type": "content_block_start", "index": number, "content_block": empty})
        events += [
            {"type": "content_block_delta", "index": number, "delta": {"type": kind, key: one}}
            for kind, key, one in told
        ]
        events.append({"type": "content_block_stop", "index": number})
    ended = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}})
    events.append({"type": "message_stop"})
    return whole, _sse(events, named=True)


def gemini(said: Saying, model: str) -> tuple[Json, list[bytes]]:
    """A Gemini answer, whole and as a stream."""
    parts: list[Json] = [{"text": said.text}] if said.text else []
    parts += [{"functionCall": {"name": name, "args": given}} for name, given in said.calls]

    def one(some: list[Json], finish: str | None) -> Json:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": some}}
        usage = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
        ended = {"finishReason": finish} if finish else {}
        told = {"modelVersion": model, "responseId": secrets.token_hex(8), "usageMetadata": usage}
        return {"candidates": [candidate | ended], **told}

    return one(parts, "STOP"), _sse([*(one([part], None) for part in parts[:-1]), one(parts[-1:], "STOP")])


MADE = {"chat": chat, "responses": responses, "messages": messages, "gemini": gemini}


class Provider:
    """The provider as an application.

    ``asked``: every question, as it came. ``visits``: places that tools came to, under ``/visited``. An
    errand marked #flaky is first told to come again; one marked #broken has the stream of its second answer
    broken off once.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.others: list[str] = []
        self.visits: list[str] = []
        self._held: dict[str, str] = {}
        self._spoilt: set[tuple[str, str]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        path = scope["path"]
        if path.startswith("/visited/"):
            self.visits.append(path.removeprefix("/visited/"))
            await _give(send, 200, {})
        elif path.endswith("/v1/completions"):
            # It has chat alone; a server that is put before it looks for this.
            await _give(send, 404, {"error": {"message": "there are no plain completions here"}})
        else:
            await self._answer(path, json.loads(body) if body else {}, send)

    async def _answer(self, path: str, told: Json, send: Send) -> None:
        asked = read(path, told, self._held.get(str(told.get("previous_response_id")), ""))
        if asked is None:
            # Lists of models, counts of tokens.
            self.others.append(path)
            models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "nobody"}]}
            known: Json = {"input_tokens": 7} if path.endswith("count_tokens") else {"totalTokens": 7}
            await _give(send, 200, models if path.endswith("/models") else known)
            return
        self.asked.append(asked)
        if "#flaky" in asked.words and self._first(asked.task, "flaky"):
            slow = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
            await _give(send, 429, slow, {"retry-after-ms": "1", "retry-after": "0"})
            return
        model = str(asked.body.get("model") or path.rsplit("/", 1)[-1].partition(":")[0])
        whole, pieces = MADE[asked.dialect](plan(asked), model)
        if asked.dialect == "responses":
            self._held[whole["id"]] = asked.words
        if not asked.stream:
            await _give(send, 200, whole)
            return
        broken = "#broken" in asked.words and bool(asked.places) and self._first(asked.task, "broken")
        await _begin(send, 200, {"content-type": "text/event-stream"})
        for piece in pieces[:2] if broken else pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if not broken:
            await send({"type": "http.response.body", "body": b""})

    def _first(self, task: str, what: str) -> bool:
        new = (task, what) not in self._spoilt
        self._spoilt.add((task, what))
        return new


async def _begin(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _give(send: Send, status: int, body: Json, headers: Mapping[str, str] | None = None) -> None:
    await _begin(send, status, {"content-type": "application/json", **(headers or {})})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


@contextmanager
def serving() -> Iterator[tuple[Provider, str]]:
    """A provider while inside, and its address."""
    provider = Provider()
    server = http_server(lambda: provider, head_s=60.0, connections=64, drain_s=1, level="critical")
    with running(server, "127.0.0.1", 0, "") as address:
        yield provider, address
