"""Trajectories of mini-swe-agent: a bare list of messages, its format 1, and 1.1 with extras of each message.

Messages of the Responses API are read as assistant turns with their calls; the message ``exit`` of newer
releases is how the run ended and no part of the conversation.

Source: ``agents/default.py`` and ``models`` of mini-swe-agent 1.0 to 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import whole_message
from refork.formats.base import Head, whole
from refork.formats.conversation import (
    amount_of,
    asked_for,
    check_results,
    count_of,
    graded,
    mapping,
    origin,
    tool_call,
)
from refork.formats.openai_chat import OpenAIChat
from refork.formats.rows import read_items
from refork.json_guard import document
from refork.plain import content_hash
from refork.policies.base import Cost, Policy
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json, Message

_MARK: Final = "mini-swe-agent"
_DONE: Final = ("", "Submitted", "submitted")


@final
class MiniSWEAgent:
    """Reads mini-swe-agent's trajectories; ids are recorded where a policy is given to tokenise with."""

    name = "mini-swe-agent"
    order = 31

    def __init__(self, policy: Policy | None = None) -> None:
        self._chat = OpenAIChat(policy)

    def sniff(self, head: Head) -> bool:
        """Whether the file says that it is one, or is a list of messages under such a name."""
        start = head.text.lstrip()
        if start.startswith("{") and '"messages"' in start:
            # The mark is the last key of the file.
            return f'"{_MARK}' in start or '"mini_version"' in start or head.name.endswith(".traj.json")
        return start.startswith("[") and head.name.endswith(".traj.json") and '"role"' in start

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts of every trajectory.

        Raises:
            BadInput: the file is no JSON, or was cut: it is one object.
        """
        if Head.of(path).text.lstrip().startswith("["):
            body = {"messages": document(path), "trajectory_format": f"{_MARK}-0"}
            name = f"{content_hash(body)}/0"
            yield from whole(self._run(body, name, str(path)), str(path), _MARK)
            return
        yield from read_items(path, _MARK, self._run)

    def _run(self, body: Json, name: str, where: str) -> Iterator[Record]:
        listed = body.get("messages")
        if not isinstance(listed, list) or not listed:
            raise BadInput("there are no messages", where=where)
        messages: list[Message] = []
        told: list[Json] = []
        left: Json = {}
        for number, raw in enumerate(listed, start=1):
            place = f"{where}, message {number}"
            if isinstance(raw, Mapping) and raw.get("role") == "exit":
                left = {"exit": dict(raw)}
                continue
            message, extra = _message(raw, place)
            if message["role"] == "assistant":
                told.append(_turn_facts(extra, body))
            elif extra:
                message["extra"] = extra
            messages.append(message)
        if not messages:
            raise BadInput("there are no messages but the exit", where=where)
        check_results(messages, where)
        timed = any("timestamp" in one.get("extra", {}).get("step", {}) for one in told)
        lost = "token ids and log-probs" if timed else "token ids, log-probs and times"
        yield Remark("lost", f"{lost}: the file has none", where)
        rest = {key: value for key, value in body.items() if key != "messages"} | left
        info = mapping(body.get("info"))
        producer = Producer(_MARK, str(info.get("mini_version") or "0"))
        model = next((one["policy"] for one in told if one.get("policy")), None)
        made = origin(_MARK, model, version=info.get("mini_version"))
        new_nodes = self._chat.drafts(messages, rest, f"{_MARK}/{name}", where, facts=told, origin=made)
        status = info.get("exit_status")
        error = None if status is None or status in _DONE else f"exit: {status}"
        yield from graded(new_nodes, producer, {}, error)


def _message(raw: Any, where: str) -> tuple[Message, Json]:
    """A message in OpenAI's form, and what its ``extra`` says."""
    if not isinstance(raw, Mapping):
        raise BadInput("a message is not an object", where=where)
    body = dict(raw)
    extra = body.pop("extra", None)
    extra = dict(extra) if isinstance(extra, Mapping) else ({} if extra is None else {"extra": extra})
    if "role" not in body and isinstance(body.get("output"), list):
        output = body.pop("output")
        return _responded(output, where), extra | {"response": body}
    if body.get("type") == "function_call_output":
        content = body.get("output")
        text = content if isinstance(content, str) else _parts(content)
        return {"role": "tool", "tool_call_id": str(body.get("call_id")), "content": text}, extra
    return whole_message(body, where), extra


def _responded(output: Sequence[Any], where: str) -> Message:
    """The items of a Responses API answer as one assistant message."""
    texts, calls, thoughts = [], [], []
    for item in output:
        if not isinstance(item, Mapping):
            raise BadInput("an item of a response is not an object", where=where)
        kind = item.get("type")
        if kind == "message":
            texts.append(_parts(item.get("content")))
        elif kind == "function_call":
            calls.append(tool_call(str(item.get("name")), item.get("arguments"), item.get("call_id")))
        elif kind == "reasoning":
            thoughts.append(_parts(item.get("summary")) or _parts(item.get("content")))
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    message |= {"tool_calls": calls} if calls else {}
    return message | ({"reasoning_content": "\n".join(thoughts)} if any(thoughts) else {})


def _parts(raw: Any) -> str:
    """The text of a content that is text or parts."""
    if isinstance(raw, str):
        return raw
    found = [str(part.get("text") or "") for part in raw or [] if isinstance(part, Mapping)]
    return "".join(found)


def _turn_facts(extra: Json, body: Json) -> Json:
    """What a turn says beside its text: the model, its cost and usage; the rest stays as it is."""
    usage = mapping(extra.get("response")).get("usage")
    config = mapping(mapping(mapping(body.get("info")).get("config")).get("model"))
    model, asked = config.get("model_name"), asked_for(config.get("model_kwargs"))
    told: Json = {
        "cost": Cost(
            tokens_in=count_of(usage, "prompt_tokens", "input_tokens"),
            tokens_out=count_of(usage, "completion_tokens", "output_tokens"),
            money=amount_of(extra.get("cost")),
        ),
        **asked,
        "extra": asked.get("extra", {}) | ({"step": extra} if extra else {}),
    }
    return told | ({"policy": str(model)} if model else {})
