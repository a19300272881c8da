"""Rollouts of verifiers: ``results.jsonl`` (prompt, completion, reward), older JSON, v1's ``traces.jsonl``.

A row is a prompt and a completion, each a text or messages; tool calls may be JSON texts. A v1 trace is a
graph of messages and a tree here, with its token ids. Rewards and metrics become scores.

Source: the files that PrimeIntellect-ai/verifiers writes (``save_utils.py``, ``v1/trace.py``), read in 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import check_results, graded, grades, message_of, origin
from refork.formats.log_reader import LogReader
from refork.formats.verifiers_graph import GraphReader
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record
from refork.tree.score import Producer
from refork.types import Json, Message

_ROW = {"prompt", "completion"}
_MARKS = ("reward", "example_id", "answer", "metrics", "task")


@final
class Verifiers(LogReader):
    """Reads rollouts of verifiers; token ids are recorded where a policy is given to tokenise with."""

    name, label = "verifiers", "verifiers"
    order = 80

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a row, a trace, or the older JSON of rows."""
        start = head.text.lstrip()
        if not start.startswith(("{", "[")):
            return False
        body = head.first
        if body is None:
            rows = '"prompt"' in start and '"completion"' in start
            return (rows and any(f'"{mark}"' in start for mark in _MARKS)) or _cut_trace(start)
        first = body[0] if isinstance(body, list) and body else body
        return isinstance(first, dict) and (_is_row(first) or _is_trace(first) or "outputs" in first)

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write records as :class:`.verifiers_export.VerifiersWriter` does; returns how many lines."""
        from refork.formats.verifiers_export import VerifiersWriter

        return VerifiersWriter().write(records, out)

    def unpack(self, body: Any, where: str) -> list[Any]:
        """The rows of the older JSON: ``{"outputs": [...]}``, or lists by column."""
        if isinstance(body, dict) and isinstance(body.get("outputs"), list):
            return list(body["outputs"])
        if not isinstance(body, dict) or not _by_column(body):
            return [body]
        columns = {key: value for key, value in body.items() if isinstance(value, list)}
        count = len(body["prompt"])
        if any(len(value) != count for value in columns.values()):
            raise BadInput("the columns differ in length", where=where)
        return [{key: value[i] for key, value in columns.items()} for i in range(count)]

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """One rollout."""
        if isinstance(body.get("outputs"), list) or _by_column(body):
            # The older JSON on one line.
            for number, one in enumerate(self.unpack(body, where)):
                yield from self.item(one, f"{name}/{number}", f"{where}, row {number + 1}")
            return
        line = f"verifiers/{name}"
        yield from self._trace(body, line, where) if _is_trace(body) else self._row(body, line, where)

    def _row(self, body: Json, line: str, where: str) -> Iterator[Record]:
        if not set(body) >= _ROW:
            raise BadInput("a rollout has a prompt and a completion", where=where)
        messages = [*_messages(body["prompt"], "user", where, "prompt")]
        messages += _messages(body["completion"], "assistant", where, "completion")
        check_results(messages, where)
        rest = {key: value for key, value in body.items() if key not in _ROW}
        rest |= {"tools": rest.pop("tool_defs")} if rest.get("tool_defs") else {}
        metrics = body.get("metrics") if isinstance(body.get("metrics"), dict) else {}
        scores = {"reward": body.get("reward"), **(metrics or {})}
        producer = Producer("verifiers", "0", {"task": str(body.get("task") or "")})
        made = origin("verifiers", body.get("model"), task=body.get("task")) if body.get("model") else None
        new_nodes = self._chat.drafts(messages, rest, line, where, origin=made)
        yield from graded(new_nodes, producer, scores, _error(body.get("error")))

    def _trace(self, body: Json, line: str, where: str) -> Iterator[Record]:
        reader = GraphReader(body, line, where)
        branches = list(reader.branches())
        yield from reader.remarks()
        rest = {key: value for key, value in body.items() if key != "nodes" and (key != "tools" or not value)}
        errors = body.get("errors") or []
        ends: list[NewNode] = []
        if self._chat.tokenizer is not None and reader.ids is None:
            tools = {"tools": body["tools"]} if body.get("tools") else {}
            for number, messages in enumerate(branches):
                new_nodes = list(
                    self._chat.drafts(messages, tools, f"{line}/{number}", where, origin=reader.origin)
                )
                ends.append(new_nodes.pop())
                yield from new_nodes
        else:
            for new_node, last in reader.drafts():
                if last:
                    ends.append(new_node)
                else:
                    yield new_node
            # What nodes of the tree do not say of the trace's stands at the end of the first branch.
            rest["nodes"] = reader.forms()
        error = _error(errors[0] if errors else None)
        for number, end in enumerate(ends):
            kept = {"line": rest} if number == 0 else {"branch": number}
            if end.kind == "task" and str(end.key).startswith("chat/"):
                # The prompt may be that of other rollouts: what ended this one stands on a node of its own.
                yield end
                above = node_id(None, None, "task", str(end.key))
                ends[number] = NewNode(
                    kind="verdict", parent=above, key=f"{line}/{number}/end", origin="real"
                )
            ends[number] = replace(ends[number], extra=ends[number].extra | kept, error=error)
            yield ends[number]
        yield from _scores(body, ends)


def _scores(body: Json, ends: Sequence[NewNode]) -> Iterator[Record]:
    """Rewards and metrics of a trace, for the end of each branch; ``reward`` is the weighted sum."""
    given = body.get("rewards") or {}
    known = [one for one in given.values() if one is not None]
    rewards = {name: (one or {}).get("score") for name, one in given.items()}
    # Where a part was not computed the sum is not known.
    whole = bool(known) and all(one.get("score") is not None for one in known)
    total = sum(one["score"] * one.get("weight", 1.0) for one in known) if whole else None
    task = body.get("task") if isinstance(body.get("task"), dict) else {}
    producer = Producer("verifiers", "1", {"task": str((task or {}).get("type", ""))})
    for end in ends:
        yield from grades(end, producer, {**rewards, **(body.get("metrics") or {}), "reward": total})


def _is_row(body: Json) -> bool:
    return set(body) >= _ROW and any(mark in body for mark in _MARKS)


def _is_trace(body: Json) -> bool:
    nodes = body.get("nodes")
    return (
        isinstance(nodes, list)
        and "task" in body
        and all(isinstance(node, dict) and "message" in node for node in nodes)
    )


def _cut_trace(start: str) -> bool:
    return all(f'"{mark}"' in start for mark in ("verifiers", "task", "nodes", "message"))


def _by_column(body: Json) -> bool:
    """Whether the values are columns: a reward for each prompt."""
    return isinstance(body.get("reward"), list) and isinstance(body.get("prompt"), list)


def _messages(raw: Any, role: str, where: str, part: str) -> Iterator[Message]:
    if raw is None:
        return
    if isinstance(raw, str):
        yield {"role": role, "content": raw}
        return
    if not isinstance(raw, list):
        raise BadInput(f"the {part} is neither text nor messages", where=where)
    for number, message in enumerate(raw, start=1):
        yield message_of(message, f"{where}, {part} message {number}")


def _error(raw: Any) -> str | None:
    if isinstance(raw, dict):
        kind = raw.get("error") or raw.get("type") or "error"
        told = raw.get("message") or raw.get("error_chain_str") or ""
        return f"{kind}: {told}".rstrip(": ")
    return str(raw) if raw else None
