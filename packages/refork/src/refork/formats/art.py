"""Trajectories of ART (OpenPipe): JSON lines of groups or of single trajectories, and its Parquet logs.

A group's trajectories share the node of their prompt. A choice of the model is an action that was trained on
(``trainable``), with its token ids and log-probs where the server named its tokens by their ids. Additional
histories of a trajectory are trajectories of their own; its reward and metrics are scores of the main one.

Source: ``trajectories.py``, ``utils/trajectory_logging.py`` and ``trajectory_migration.py`` of ART 0.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import whole_message
from refork.formats.base import Head
from refork.formats.conversation import check_results, graded
from refork.formats.log_reader import RowReader
from refork.formats.sampled import finish_of, finite, known_numbers
from refork.json_guard import parse_json
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json, Message, token_array

_PRODUCER: Final = Producer("art")
_MARK: Final = "token_id:"
_FLAT: Final = ("metrics", "metadata", "tools", "additional_histories", "group_metadata", "group_metrics")
_OWN: Final = ("messages_and_choices", "messages", "tools", "additional_histories")


@final
class ART(RowReader):
    """Reads ART's trajectories; token ids are recorded where the file has them, or a policy tokenises."""

    name, label = "art", "ART"
    order = 61

    def sniff(self, head: Head) -> bool:
        """Whether the first line is a group or a trajectory of ART."""
        if isinstance(head.first, dict):
            listed = head.first.get("trajectories")
            first = listed[0] if isinstance(listed, list) and listed else head.first
            return isinstance(first, dict) and "messages_and_choices" in first
        start = head.text.lstrip()
        return start.startswith("{") and '"messages_and_choices"' in start

    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these keys are ART's."""
        return columns >= {"group_index", "messages", "reward"} or "messages_and_choices" in columns

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """Records of a group, a trajectory, or a row of the Parquet log."""
        if "trajectories" not in body:
            yield from self._trajectory(_unflattened(body, where), f"art/{name}", where, {})
            return
        if not isinstance(body["trajectories"], list):
            raise BadInput("the trajectories of the group are no list", where=where)
        group = {key: value for key, value in body.items() if key != "trajectories" and value}
        for number, one in enumerate(body["trajectories"]):
            place = f"{where}, trajectory {number + 1}"
            if not isinstance(one, dict):
                raise BadInput("a trajectory is not an object", where=place)
            kept = {"group": group} if group else {}
            yield from self._trajectory(one, f"art/{name}/{number}", place, kept)

    def _trajectory(self, body: Json, line: str, where: str, group: Json) -> Iterator[Record]:
        rest = {key: value for key, value in body.items() if key not in _OWN} | group
        listed = body.get("messages_and_choices", body.get("messages"))
        metrics = body.get("metrics")
        scores: Json = dict(finite(metrics)) if isinstance(metrics, Mapping) else {}
        scores |= {"reward": body.get("reward")}
        yield from self._history(listed, rest, body.get("tools"), line, where, scores)
        for number, one in enumerate(body.get("additional_histories") or [], start=1):
            if not isinstance(one, dict):
                raise BadInput("an additional history is not an object", where=where)
            more = {key: value for key, value in one.items() if key not in _OWN} | {"history": number}
            listed = one.get("messages_and_choices")
            yield from self._history(listed, more, one.get("tools"), f"{line}/history/{number}", where, {})

    def _history(
        self, listed: Any, rest: Json, tools: Any, line: str, where: str, scores: Json
    ) -> Iterator[Record]:
        if not isinstance(listed, list) or not listed:
            raise BadInput("a trajectory has no messages", where=where)
        messages: list[Message] = []
        told: list[Json] = []
        for number, raw in enumerate(listed, start=1):
            message, fields, remark = _choice_message(raw, f"{where}, message {number}")
            messages.append(message)
            if message["role"] == "assistant":
                told.append(fields)
            if remark is not None:
                yield remark
        check_results(messages, where)
        if any("tokens" in fields for fields in told):
            yield Remark("lost", "times: the file has none", where)
        rest = rest | ({"tools": tools} if tools else {})
        yield from graded(self._chat.drafts(messages, rest, line, where, facts=told), _PRODUCER, scores)


def _unflattened(row: Json, where: str) -> Json:
    """A row of the Parquet log, in which objects are JSON texts."""
    made = dict(row)
    for key in _FLAT:
        if isinstance(made.get(key), str):
            made[key] = parse_json(made[key].encode(), f"{where}, {key}")
    for message in made.get("messages") or []:
        if isinstance(message, dict) and isinstance(message.get("tool_calls"), str):
            message["tool_calls"] = parse_json(message["tool_calls"].encode(), f"{where}, tool_calls")
    return made


def _choice_message(raw: Any, where: str) -> tuple[Message, Json, Remark | None]:
    """A message, what a choice says beside it, and what of that is lost."""
    if not isinstance(raw, Mapping):
        raise BadInput("a message is not an object", where=where)
    inner = raw.get("message")
    if not isinstance(inner, Mapping):
        body = dict(raw)
        trained = body.pop("trainable", None)
        message = whole_message(body, where)
        lost = Remark("lost", "token ids, log-probs and times: the file has none", where)
        says = message["role"] == "assistant"
        told: Json = {"extra": {"trainable": True}} if trained is True else {}
        return message, told, lost if says else None
    kept = {
        key: value for key, value in raw.items() if key not in ("message", "logprobs") and value is not None
    }
    told = {"finish": finish_of(raw.get("finish_reason")), "extra": {"trainable": True, "choice": kept}}
    arrays, remark = _tokens(raw.get("logprobs"), where)
    return whole_message({"role": "assistant", **inner}, where), told | arrays, remark


def _tokens(logprobs: Any, where: str) -> tuple[Json, Remark | None]:
    """Ids and log-probs of a choice, if the server named tokens by their ids."""
    items = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(items, list) or not items:
        return {}, Remark("lost", "token ids, log-probs and times: the file has none", where)
    names = [item.get("token") if isinstance(item, Mapping) else None for item in items]
    if not all(isinstance(name, str) and name.startswith(_MARK) for name in names):
        return {}, Remark("lost", "log-probs of tokens without ids", where)
    ids = [int(str(name).removeprefix(_MARK)) for name in names]
    if not 0 <= min(ids) <= max(ids) < 2**31:
        raise BadInput("a token id is below 0 or beyond 32 bits", where=where)
    values = known_numbers([item.get("logprob") for item in items])
    arrays: Json = {"tokens": token_array(ids)}
    if values is None:
        return arrays, Remark("lost", "log-probs: not all of them are known", where)
    return arrays | {"logprobs": values}, None
