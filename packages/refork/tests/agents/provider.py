"""A provider of every dialect, as an application: it answers from a script and keeps what it was asked."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

from refork.serve.local import http_server, running

CALL = {"name": "look", "arguments": '{"at": "door"}'}


def sse(*events, done=False):
    """Server-sent events as bytes, one piece each."""
    named = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return [*named, b"data: [DONE]\n\n"] if done else named


def chat(text, call=None):
    """A chat completion, whole and as chunks."""
    calls = [{"id": "call_1", "type": "function", "function": call}] if call else None
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    finish = "tool_calls" if call else "stop"
    base = {"id": "c", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    whole = base | {
        "object": "chat.completion", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }  # fmt: skip
    deltas = [{"role": "assistant", "content": word} for word in re.findall(r"\s*\S+", text)]
    if call:
        half = len(call["arguments"]) // 2
        first = {"index": 0, "id": "call_1", "type": "function", "function": call | {"arguments": ""}}
        parts = [
            {"index": 0, "function": {"arguments": part}}
            for part in (call["arguments"][:half], call["arguments"][half:])
        ]
        deltas += [{"tool_calls": [part]} for part in (first, *parts)]
    chunks = [
        base
        | {
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        for delta in deltas
    ]
    last = {"index": 0, "delta": {}, "finish_reason": finish}
    chunks += [base | {"object": "chat.completion.chunk", "choices": [last]}]
    chunks += [base | {"object": "chat.completion.chunk", "choices": [], "usage": usage}]
    return whole, sse(*chunks, done=True)


def messages(text, call=None):
    """An Anthropic message, whole and as events."""
    blocks = [{"type": "text", "text": text}] if text else []
    if call:
        blocks.append(
            {
                "type": "tool_use",
                "id": "toolu_1",
                "name": call["name"],
                "input": json.loads(call["arguments"]),
            }
        )
    stop = "tool_use" if call else "end_turn"
    base = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    whole = base | {"content": blocks, "stop_reason": stop, "usage": {"input_tokens": 7, "output_tokens": 3}}
    start = base | {"content": [], "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
    events = [{"type": "message_start", "message": start}]
    for number, block in enumerate(blocks):
        empty = {"text": ""} if block["type"] == "text" else {"input": {}}
        events.append({"type": "content_block_start", "index": number, "content_block": block | empty})
        if block["type"] == "text":
            deltas = [
                {"type": "text_delta", "text": letter} for letter in (block["text"][:2], block["text"][2:])
            ]
        else:
            told = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in (told[:4], told[4:])]
        events += [{"type": "content_block_delta", "index": number, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": number})
    ended = {"stop_reason": stop, "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    stream = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    return whole, stream


def responses(text, call=None):
    """A response of OpenAI's newer interface, whole and as events."""
    items = []
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        items.append(
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        )
    if call:
        items.append({"type": "function_call", "id": "f", "call_id": "call_1", "status": "completed", **call})
    whole = {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": items,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": {
            "input_tokens": 7, "output_tokens": 3, "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip
    created = {
        "type": "response.created",
        "sequence_number": 0,
        "response": whole | {"output": [], "status": "in_progress"},
    }
    delta = {
        "type": "response.output_text.delta", "sequence_number": 1, "item_id": "m", "output_index": 0,
        "content_index": 0, "delta": text, "logprobs": [],
    }  # fmt: skip
    completed = {"type": "response.completed", "sequence_number": 2, "response": whole}
    return whole, sse(created, delta, completed)


def gemini(text, call=None):
    """A Gemini answer, whole and as events."""
    parts = [{"text": text}] if text else []
    if call:
        parts.append({"functionCall": {"name": call["name"], "args": json.loads(call["arguments"])}})
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 3}

    def one(some, finish):
        return {
            "candidates": [{"content": {"role": "model", "parts": some}, "finishReason": finish}],
            "usageMetadata": usage,
        }

    return one(parts, "STOP"), sse(*(one([part], None) for part in parts[:-1]), one(parts[-1:], "STOP"))


def ollama(text, call=None):
    """An Ollama answer, whole and as lines."""
    calls = (
        [{"function": {"name": call["name"], "arguments": json.loads(call["arguments"])}}] if call else None
    )
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    end = {"model": "m", "done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3}
    lines = [
        {"model": "m", "message": message, "done": False},
        end | {"message": {"role": "assistant", "content": ""}},
    ]
    return end | {"message": message}, [json.dumps(line).encode() + b"\n" for line in lines]


MADE = {
    "/chat/completions": chat, "/messages": messages, "/responses": responses, "enerateContent": gemini,
    "/api/chat": ollama,
}  # fmt: skip


class Provider:
    """``script``: answers, (text, call), (status, JSON) or "hang up"; then it counts what it was asked.

    Or a function of what is asked that gives one. ``owner``: whose server it says that it is.
    """

    def __init__(self, script=(), owner=None):
        self.script = script if callable(script) else list(script)
        self.owner, self.asked, self.headers = owner, [], []

    def _next(self, asked):
        if callable(self.script):
            return self.script(asked)
        return self.script.pop(0) if self.script else (f"answer {len(self.asked)}", None)

    async def _body(self, receive):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        return body

    async def _models(self, send):
        """Whoever looks what there is asks no model."""
        told = json.dumps({"data": [{"id": "m", "owned_by": self.owner or "nobody"}]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": told})

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        asked = json.loads(await self._body(receive) or b"{}")
        path = scope["path"]
        if scope["method"] == "GET" and path == "/models":
            await self._models(send)
            return
        self.asked.append((path, scope["query_string"].decode(), asked))
        self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
        said = self._next(asked)
        make = next((make for end, make in MADE.items() if path.endswith(end)), None)
        status, kind, pieces = 200, b"application/json", [json.dumps({"data": [len(self.asked)]}).encode()]
        if said == "hang up":
            kind, pieces = b"text/event-stream", chat("this is never whole")[1][:2]
        elif isinstance(said[0], int):
            status, pieces = said[0], [json.dumps(said[1]).encode()]
        elif make is not None:
            whole, stream = make(*said)
            streamed = asked.get("stream") or "stream" in path
            kind = b"text/event-stream" if streamed else b"application/json"
            kind = b"application/x-ndjson" if streamed and make is ollama else kind
            pieces = stream if streamed else [json.dumps(whole).encode()]
        headers = [(b"content-type", kind), (b"x-request-id", b"req_1"), (b"set-cookie", b"session=secret")]
        if status == 429:
            headers.append((b"retry-after-ms", b"1"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if said != "hang up":
            await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving(script=(), owner=None):
    """A provider while inside, and its address."""
    provider = Provider(script, owner)
    server = http_server(lambda: provider, head_s=60.0, connections=64, drain_s=1, level="critical")
    with running(server, "127.0.0.1", 0, "") as address:
        yield provider, address
