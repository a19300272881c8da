"""Sessions of Codex (``~/.codex/sessions/**/rollout-*.jsonl``): a line is an item or an event.

The items that the model gave in one answer are one turn. Where the session was compacted a rewrite has the
history that took the place of the one before. A sub-agent's session is a file, and a trajectory, of its own.

Source: the files that Codex 0.171 writes, and the requests that it makes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from refork.formats.base import Head
from refork.formats.conversation import asked_for, count_of, mapping, origin, tool_call
from refork.formats.grouped import Grouped
from refork.formats.log_reader import TraceReader
from refork.formats.spans import ModelCall, ToolRun, TracePath, model_of
from refork.plain import content_hash
from refork.policies.base import Cost, Policy
from refork.tree.records import Record, Remark
from refork.types import Json, Message

_LINES: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
#: Items that a model gives. Calls that a server answers itself have no result of their own.
_CALLS: Final = ("function_call", "custom_tool_call", "local_shell_call")
_SAMPLED: Final = (*_CALLS, "reasoning", "web_search_call", "image_generation_call", "tool_search_call")
_RESULTS: Final = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
#: Of a compaction, what stands elsewhere.
_TOLD: Final = ("replacement_history", "latest_token_usage_record")
#: Events that repeat an item.
_REPEATED: Final = ("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content")
_REPEATED_ITEMS: Final = ("UserMessage", "AgentMessage", "Reasoning")
_WHOLE: Final = "session"


@final
class Codex(TraceReader):
    """Reads sessions of Codex; token ids are recorded where a policy is given to tokenise with."""

    name, label, parts = "codex", "Codex", "lines"
    order = 27

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a line of a session."""
        first = head.first
        if isinstance(first, dict):
            return first.get("type") in _LINES and isinstance(first.get("payload"), dict)
        # The first line has the instructions, and may be cut.
        start = head.text.lstrip()[:4096]
        return start.startswith("{") and '"payload"' in start and '"session_meta"' in start

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep a line; one that cannot be read is skipped, and those after it are not."""
        payload = body.get("payload")
        if not isinstance(body.get("type"), str) or not isinstance(payload, Mapping):
            yield Remark("skipped", "this is no line of a session", where)
        elif body["type"] == "response_item" and (wrong := _wrong(payload)):
            yield Remark("skipped", wrong, where)
        else:
            grouped.add(_WHOLE, where, body)

    def trace(self, grouped: Grouped, trace: str) -> Iterator[Record]:
        """Drafts of the session."""
        yield from _SessionLines(self._policy).records(list(grouped.members(trace)), trace)


def _wrong(item: Mapping[str, Any]) -> str | None:
    """Why an item cannot be read."""
    kind = item.get("type")
    if kind == "message" and not (
        isinstance(item.get("role"), str) and isinstance(item.get("content"), str | list)
    ):
        return "this message has no role or no content"
    if kind in _CALLS and not isinstance(item.get("call_id"), str):
        return "this call has no id"
    return None


@final
class _SessionLines:
    """The lines of a session as the calls of models that they show."""

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy
        self._meta: Json = {}
        self._system: list[Message] = []
        self._context: list[Message] = []
        self._turn: Json = {}
        self._items: list[Json] = []
        self._notes: list[Json] = []
        self._calls: list[ModelCall] = []
        self._runs: list[ToolRun] = []
        self._asked: set[str] = set()
        self._failed: str | None = None
        self._remarks: list[Remark] = []
        self._name = ""

    def records(self, lines: Sequence[Json], where: str) -> Iterator[Record]:
        """Drafts of all lines."""
        meta = next(
            (mapping(one["payload"]) for one in lines if one["type"] == "session_meta"), mapping(None)
        )
        self._name = str(meta.get("id") or content_hash(list(lines[:1])))
        for line in lines:
            self._line(line, where)
        self._flush(None)
        self._fail(self._failed)
        yield Remark("lost", "definitions of tools: a session has none", where)
        yield from self._remarks
        if not self._calls:
            yield Remark("skipped", "a session to which no model answered", where)
            return
        told = {key: one for key, one in self._meta.items() if key != "base_instructions"}
        self._calls[0].facts["extra"]["session"] = told
        came = origin(
            "codex", model_of(self._calls), version=self._meta.get("cli_version"), agent=_agent(self._meta)
        )
        made = TracePath(None, self._runs, self._policy, came)
        made.add(self._calls)
        made.unanswered(self._context, f"{self._calls[-1].key}/after")
        yield from made.new_nodes

    def _line(self, line: Json, where: str) -> None:
        # What repeats the session's id.
        repeated = [key for key in ("session_id", "thread_id") if line["payload"].get(key) == self._name]
        payload = {key: one for key, one in line["payload"].items() if key not in repeated}
        kind, line = line["type"], line | {"payload": payload}
        if kind == "response_item":
            self._item(payload)
        elif kind == "event_msg":
            self._event(line, payload)
        elif kind == "session_meta" and not self._meta:
            self._meta = payload
            given = mapping(payload.get("base_instructions")).get("text") or payload.get("instructions")
            self._system = [{"role": "system", "content": given}] if isinstance(given, str) and given else []
            self._context = [*self._system]
        elif kind == "token_usage_record":
            self._flush(mapping(payload.get("usage")), line)
        elif kind == "compacted":
            self._compacted(payload, where)
        else:
            if kind == "turn_context":
                self._turn = payload
            self._notes.append(line)

    def _item(self, item: Json) -> None:
        kind = item.get("type")
        if kind in _SAMPLED or (kind == "message" and item.get("role") == "assistant"):
            self._items.append(item)
            return
        self._flush(None)
        made = _given(item)
        if made is None:
            self._notes.append({"type": "response_item", "payload": item})
        else:
            self._context = _with(self._context, made)

    def _event(self, line: Json, event: Json) -> None:
        kind, item = event.get("type"), mapping(event.get("item"))
        call = item.get("id") or event.get("call_id")
        if kind == "token_count":
            # Older sessions say nowhere else what an answer took.
            self._count(mapping(mapping(event.get("info")).get("last_token_usage")))
        elif kind in _REPEATED or item.get("type") in _REPEATED_ITEMS:
            return
        elif isinstance(call, str) and (
            call in self._asked or any(call == i.get("call_id") for i in self._items)
        ):
            self._runs.append(ToolRun(call, None, {"id": call, "event": line}))
        else:
            self._notes.append(line)
        if kind in ("error", "task_complete", "turn_aborted"):
            self._flush(None)
            told = mapping(event.get("error")).get("message") or (
                event.get("message") if kind == "error" else None
            )
            self._failed = str(told) if told else self._failed
            if kind != "error":
                self._fail(self._failed)

    def _fail(self, error: str | None) -> None:
        """An answer that did not come."""
        self._failed = None
        if error is not None:
            self._call([], {}, {"finish": "error", "error": error})

    def _count(self, usage: Mapping[str, Any]) -> None:
        self._flush(usage) if self._items else None
        last = self._calls[-1].facts if self._calls else None
        if last is not None and last["cost"].tokens_in is None and not last.get("error"):
            last["cost"] = _cost(usage)

    def _flush(self, usage: Mapping[str, Any] | None, line: Json | None = None) -> None:
        """The items of an answer are all there."""
        if not self._items:
            self._notes += [] if line is None else [line]
            return
        items, self._items = self._items, []
        message, others = _answer(items)
        self._asked |= {str(one["call_id"]) for one in items if one.get("type") in _CALLS}
        told: Json = {"ids": [one.get("id") for one in items]}
        told |= {"items": others} if others else {}
        told |= {} if line is None else {"usage": line["payload"]}
        self._call([message], told, {"cost": _cost(usage or {})})
        self._context.append(message)

    def _call(self, said: list[Message], told: Json, facts: Json) -> None:
        asked = asked_for({"reasoning_effort": self._turn.get("effort")})
        model = self._turn.get("model")
        extra = asked.pop("extra", {}) | ({"codex": told} if told else {})
        extra |= {"notes": self._notes} if self._notes else {}
        self._notes = []
        whole: Json = {"policy": model if isinstance(model, str) else None, "cost": Cost(), "extra": extra}
        key = f"codex/{self._name}/{len(self._calls)}"
        self._calls.append(ModelCall(key, list(self._context), said, whole | asked | facts))

    def _compacted(self, payload: Json, where: str) -> None:
        self._flush(None)
        history = payload.get("replacement_history")
        if isinstance(history, list):
            made = [_given(item) if isinstance(item, Mapping) else None for item in history]
            if hidden := sum(one is None for one in made):
                told = "items of a compacted history that are encrypted, or are no message"
                self._remarks.append(Remark("lost", told, where, hidden))
            self._context = [*self._system]
            for one in filter(None, made):
                self._context = _with(self._context, one)
        else:
            told = "which messages were kept when a session was compacted: those of the user stand for them"
            self._remarks.append(Remark("lost", told, where))
            users = [one for one in self._context if one["role"] == "user"]
            summary: Message = {"role": "user", "content": str(payload.get("message") or "")}
            self._context = [*self._system, *users, summary]
        rest = {key: one for key, one in payload.items() if key not in _TOLD}
        self._notes.append({"type": "compacted", "payload": rest})


def _with(context: list[Message], message: Message) -> list[Message]:
    """A context and one more message. What a developer says first goes on from the instructions.

    Templates of chat models take one system message, at the beginning.
    """
    texts = [one["content"] for one in (*context, message)]
    if (
        len(context) == 1
        and message["role"] == context[0]["role"] == "system"
        and all(isinstance(text, str) for text in texts)
    ):
        return [{"role": "system", "content": "\n\n".join(texts)}]
    context.append(message)
    return context


def _agent(meta: Mapping[str, Any]) -> str | None:
    """Which sub-agent a session is of; None: of none."""
    source = mapping(meta.get("source")).get("subagent")
    if source is None:
        return None
    named = next(iter(source.values()), None) if isinstance(source, Mapping) and source else source
    return str(mapping(named).get("agent_role") or meta.get("agent_role") or source)


def _cost(usage: Mapping[str, Any]) -> Cost:
    return Cost(tokens_in=count_of(usage, "input_tokens"), tokens_out=count_of(usage, "output_tokens"))


def _answer(items: Sequence[Json]) -> tuple[Message, list[Json]]:
    """The items of one answer as a message, and those that have no place in it."""
    texts, thoughts, calls, others = [], [], [], []
    for item in items:
        kind = item.get("type")
        if kind == "message":
            texts.append(str(_content(item["content"])))
        elif kind == "reasoning":
            thoughts.append("\n".join(filter(None, (_text(item.get("summary")), _text(item.get("content"))))))
            others.append(item)
        elif kind in _CALLS:
            given = item.get("arguments")
            if kind == "custom_tool_call":
                given = {"input": item.get("input")}
            elif kind == "local_shell_call":
                given = item.get("action")
            space = item.get("namespace")
            name = str(item.get("name") or "local_shell")
            calls.append(tool_call(f"{space}.{name}" if space else name, given, item["call_id"]))
        else:
            others.append(item)
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    message |= {"tool_calls": calls} if calls else {}
    return message | ({"reasoning_content": "\n".join(thoughts)} if any(thoughts) else {}), others


def _given(item: Mapping[str, Any]) -> Message | None:
    """An item that the model was shown, as a message; None: it is none, or cannot be read."""
    kind, role = item.get("type"), item.get("role")
    if kind == "message" and isinstance(item.get("content"), str | list):
        known = {"developer": "system"}.get(str(role), str(role))
        known = known if known in ("system", "user", "assistant") else "user"
        return {"role": known, "content": _content(item["content"])}
    if kind in _RESULTS:
        output = item.get("output")
        output = output.get("content") if isinstance(output, Mapping) else output
        shown = _content(output) if isinstance(output, list) else str(output or "")
        return {"role": "tool", "tool_call_id": str(item.get("call_id")), "content": shown}
    return None


def _content(content: Any) -> str | list[Json]:
    """Parts as a text where they are texts, else as parts in the chat interface's form."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, Mapping)]
    if all(isinstance(part.get("text"), str) for part in parts):
        return _text(parts)
    return [
        {"type": "image_url", "image_url": {"url": part["image_url"]}}
        if part.get("type") == "input_image" and isinstance(part.get("image_url"), str)
        else {"type": "text", "text": part["text"]}
        if isinstance(part.get("text"), str)
        else dict(part)
        for part in parts
    ]


def _text(parts: Any) -> str:
    known = parts if isinstance(parts, list) else []
    return "\n".join(str(one.get("text") or "") for one in known if isinstance(one, Mapping))
