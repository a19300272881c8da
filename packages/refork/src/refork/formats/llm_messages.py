"""The tree of messages in a ``logs.db`` of llm 0.32 or newer: each message once, forks and all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, final

from refork.errors import BadInput
from refork.formats.base import whole
from refork.formats.conversation import tool_call
from refork.formats.openai_chat import text_of
from refork.formats.tokenised import TokenWalk, lacking
from refork.policies.base import Cost, Policy
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record, Remark
from refork.types import Json, Message, NodeKind


@final
class MessageTree:
    """Drafts of a message store: a run of messages that no model said is one node, an answer another."""

    def __init__(
        self, db: sqlite3.Connection, tables: Mapping[str, set[str]], where: str, policy: Policy | None
    ) -> None:
        self._db, self._tables, self._where = db, tables, where
        self._policy = policy
        self._written: set[str] = set()

    def records(self) -> Iterator[Record]:
        """Drafts of every chain of messages, those that are shared once.

        Raises:
            CannotDo: a policy is to tokenise a tool call, or its template rewrites what came before.
        """
        sql = (
            "SELECT m.hash FROM messages m WHERE NOT EXISTS "
            "(SELECT 1 FROM messages c WHERE c.parent_hash = m.hash) ORDER BY m.rowid"
        )
        tips = [str(row["hash"]) for row in self._db.execute(sql)]
        for tip in tips:
            where = f"{self._where}, message {tip[:12]}"
            yield from whole(self._chain(tip, where), where, "llm")
        if tips:
            yield Remark("lost", f"{lacking(self._policy)}: the file has none", self._where)

    def _chain(self, tip: str, where: str) -> Iterator[Record]:
        chain = self._messages(tip)
        parent: str | None = None
        begun = False
        ids = TokenWalk(self._policy)
        for said, run in groupby(chain, lambda item: item[1]["role"] == "assistant"):
            items = list(run)
            for group in [[one] for one in items] if said else [items]:
                if not begun and said:
                    # A chain that begins with an answer has an empty task, as every walk has one.
                    parent = yield from self._put("task", None, f"llm/{group[0][0]}/task", [], ids)
                kind: NodeKind = "action" if said else ("observation" if begun or parent else "task")
                begun = True
                name = f"llm/{group[-1][0]}"
                messages = [message for _, message in group]
                parent = yield from self._put(kind, parent, name, messages, ids)
        lost = sum(len(message.get("attachments", [])) for _, message in chain)
        if lost:
            yield Remark("lost", "contents of attachments", where, lost)

    def _put(
        self, kind: NodeKind, parent: str | None, name: str, messages: Sequence[Message], ids: TokenWalk
    ) -> Any:
        """Yield a node that was not written yet; its id."""
        key = name.removeprefix("llm/")
        tools = self._tools(messages, key) if kind == "task" else None
        if tools:
            ids.offer(tools)
        if kind == "action":
            tokens = dict(ids.goes_on(messages[0], ids.said(messages[0])))
        else:
            tokens = dict(ids.shown(messages))
        if kind == "task" and ids.tokenizer is not None:
            name = f"{name}/{ids.tokenizer}"
        id_ = node_id(parent, None, kind, name)
        if id_ in self._written:
            return id_
        self._written.add(id_)
        turns = self._turns(key) if kind == "action" else []
        extra: Json = {"messages": list(messages)} if len(messages) > 1 else {}
        extra |= tokens.pop("extra", {}) | ({"tools": tools} if tools else {})
        if kind == "task" and ids.tokenizer is not None:
            extra["tokenizer"] = ids.tokenizer
        fields: Json = {}
        if turns:
            first = turns[0]
            model = first.get("resolved_model") or first.get("model")
            fields = {"cost": cost_of(first)} | ({"policy": str(model)} if model else {})
            extra["turns"] = [self._turn(turn) for turn in turns]
        yield NewNode(
            kind=kind,
            parent=parent,
            key=name,
            text=tokens.pop("text", "\n".join(filter(None, map(text_of, messages)))),
            message=messages[0] if len(messages) == 1 else None,
            origin="real",
            extra=extra,
            **fields,
            **tokens,
        )
        return id_

    def _messages(self, tip: str) -> list[tuple[str, Message]]:
        """A chain from its root, each message with its hash."""
        sql = (
            "WITH RECURSIVE chain (hash, parent_hash, role, told, up) AS ("
            "SELECT hash, parent_hash, role, provider_metadata, 0 FROM messages WHERE hash = ? UNION ALL "
            "SELECT m.hash, m.parent_hash, m.role, m.provider_metadata, up + 1 FROM messages m "
            "JOIN chain c ON m.hash = c.parent_hash WHERE up < 100000) SELECT * FROM chain ORDER BY up DESC"
        )
        found: list[tuple[str, Message]] = []
        rows = self._db.execute(sql, (tip,)).fetchall()
        if len({row["hash"] for row in rows}) < len(rows):
            raise BadInput("a message comes after itself")
        for row in rows:
            parts = self._parts(row["hash"])
            for message in _messages_of(row["role"], parts):
                told = {"provider_metadata": json.loads(row["told"])} if row["told"] else {}
                found.append((str(row["hash"]), {**message, **told}))
        return found

    def _parts(self, message: str) -> list[Json]:
        sql = "SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position"
        parts = []
        for row in self._db.execute(sql, (message,)):
            part = json.loads(row["payload"]) if row["payload"] else {}
            part["type"] = row["type"]
            if row["text"] is not None:
                part["text"] = row["text"]
            pieces = part.pop("text_ref", None)
            if pieces is not None:
                part["text"] = "".join(self._piece(piece) for piece in pieces)
            parts.append(part)
        return parts

    def _piece(self, piece: Json) -> str:
        if "literal" in piece:
            return str(piece["literal"])
        row = self._db.execute("SELECT content FROM fragments WHERE id = ?", (piece["fragment"],)).fetchone()
        return "" if row is None else str(row["content"])

    def _turns(self, tip: str) -> list[Json]:
        """The calls that gave this answer: the same answer to the same messages is one message of llm's."""
        sql = "SELECT * FROM turns WHERE tip_message_hash = ? ORDER BY id"
        return [dict(row) for row in self._db.execute(sql, (tip,))]

    def _turn(self, turn: Json) -> Json:
        kept = {
            key: loaded(value) if key.endswith(("_json", "_details")) else value
            for key, value in turn.items()
        }
        kept = {key: value for key, value in kept.items() if value not in (None, {}, [])}
        sql = "SELECT * FROM threads WHERE id = ?"
        row = self._db.execute(sql, (turn.get("thread_id"),)).fetchone()
        thread = {} if row is None else {key: row[key] for key in row.keys() if row[key] is not None}  # noqa: SIM118
        return kept | ({"thread": thread} if thread else {})

    def _tools(self, messages: Sequence[Message], key: str) -> list[Json]:
        """The tools that the first call on these opening messages was offered."""
        sql = (
            "SELECT t.id, t.name, t.description, t.input_schema FROM turn_tools o "
            "JOIN tools t ON t.id = o.tool_id WHERE o.turn_id = "
            "(SELECT min(id) FROM turns WHERE parent_message_hash = ?) ORDER BY t.id"
        )
        return [tool_of(row) for row in self._db.execute(sql, (key,))] if messages else []


def _messages_of(role: str, parts: Sequence[Json]) -> Iterator[Message]:
    """A message of llm's as OpenAI's: results of tools are messages of their own."""
    texts, calls, thoughts, attached, results = [], [], [], [], []
    for part in parts:
        kind = part.get("type")
        if kind == "text":
            texts.append(str(part.get("text") or ""))
        elif kind == "reasoning":
            thoughts.append(str(part.get("text") or ""))
        elif kind == "tool_call":
            calls.append(tool_call(str(part.get("name")), part.get("arguments"), part.get("tool_call_id")))
        elif kind == "tool_result":
            told = {key: value for key, value in part.items() if key not in ("type", "output")}
            results.append({**told, "role": "tool", "content": str(part.get("output") or "")})
        else:
            attached.append(part)
    if role == "tool" or (results and not texts and not calls):
        yield from results or [{"role": "tool", "content": "".join(texts)}]
        return
    message: Message = {"role": role if role in ("system", "user", "assistant") else "user"}
    message["content"] = "".join(texts)
    message |= {"tool_calls": calls} if calls else {}
    message |= {"reasoning_content": "".join(thoughts)} if any(thoughts) else {}
    yield message | ({"attachments": attached} if attached else {})
    yield from results


def tool_of(row: sqlite3.Row) -> Json:
    """A row of the table of tools as OpenAI has it."""
    function: Json = {"name": row["name"], "description": row["description"] or ""}
    schema = loaded(row["input_schema"])
    return {"type": "function", "function": function | ({"parameters": schema} if schema else {})}


def loaded(text: Any) -> Any:
    """What a JSON text says; a text that is no JSON as it is."""
    if not isinstance(text, str) or not text:
        return text or None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def cost_of(row: Mapping[str, Any]) -> Cost:
    """Tokens and time of a response or a turn."""
    milliseconds = row.get("duration_ms")
    return Cost(
        tokens_in=row.get("input_tokens"),
        tokens_out=row.get("output_tokens"),
        seconds=None if milliseconds is None else milliseconds / 1000,
    )
