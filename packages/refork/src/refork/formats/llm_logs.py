"""``logs.db`` of simonw/llm: conversations of every schema that it has had since its tables were split (0.4).

Which tables and columns a file has is asked of the file. Newer files (``turns``, since 0.32) hold a tree of
messages, of which forked threads share what they have in common: so they do here. What older releases logged
(``responses``) is read as conversations. The file is opened for reading only, and never changed.

Source: ``migrations.py`` and ``logs.py`` of llm 0.36.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote

from refork.errors import BadInput
from refork.foreign_sqlite import harden, real_tables, was_interrupted
from refork.formats.base import Head, whole
from refork.formats.conversation import amount_of, count_of, tool_call
from refork.formats.openai_chat import OpenAIChat, text_of
from refork.formats.tokenised import TokenContext, lacking
from refork.json_guard import parse_json
from refork.policies.base import Cost, Policy
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record, Remark
from refork.types import Json, Message, NodeKind

_SQLITE: Final = b"SQLite format 3\0"
_JSONS: Final = ("prompt_json", "options_json", "response_json", "token_details")


@final
class LLMLogs:
    """Reads llm's log database; token ids are recorded where a policy is given to tokenise with."""

    name = "llm"
    order = 73

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy
        self._chat = OpenAIChat(policy)

    def sniff(self, head: Head) -> bool:
        """Whether the file is an SQLite database: what is in it may be said anywhere in the file."""
        return head.data.startswith(_SQLITE)

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts of every conversation.

        Raises:
            BadInput: no database of llm, or one that is damaged.
        """
        try:
            with closing(_opened(path)) as db:
                tables = _tables(db)
                if not {"responses", "turns"} & tables.keys():
                    raise BadInput(
                        "there are no tables of llm in this database",
                        where=str(path),
                        hint="another tree is copied with `refork tree merge`",
                    )
                if "turns" in tables:
                    yield from MessageTree(db, tables, str(path), self._policy).records()
                if "responses" in tables:
                    yield from self._conversations(db, tables, path)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            # Messages of SQLite quote what is in the file, whatever it is.
            raise BadInput(
                f"this database cannot be read: {error}",
                where=str(path),
                hint="was the file cut, or is it open?",
            ) from error

    def _conversations(
        self, db: sqlite3.Connection, tables: Mapping[str, set[str]], path: Path
    ) -> Iterator[Record]:
        # A response that is a turn too was logged both ways.
        own = "WHERE r.id NOT IN (SELECT id FROM turns)" if "turns" in tables else ""
        sql = (
            f"SELECT coalesce(r.conversation_id, r.id) AS talk FROM responses r {own} "
            "GROUP BY talk ORDER BY min(r.rowid)"
        )
        names = [row["talk"] for row in db.execute(sql)]
        for name in names:
            where = f"{path}, conversation {name}"
            yield from whole(self._conversation(db, tables, name, own, where), where, "llm")

    def _conversation(
        self, db: sqlite3.Connection, tables: Mapping[str, set[str]], name: str, own: str, where: str
    ) -> Iterator[Record]:
        also = "AND" if own else "WHERE"
        sql = f"SELECT r.* FROM responses r {own} {also} coalesce(r.conversation_id, r.id) = ? ORDER BY r.id"
        messages: list[Message] = []
        told: list[Json] = []
        beside = _Beside(db, tables)
        system = first = None
        for row in db.execute(sql, (name,)):
            response = dict(row)
            first = first or response["id"]
            said = beside.system(response)
            if said and said != system:
                messages.append({"role": "system", "content": said})
                system = said
            messages += beside.asked(response)
            messages.append(beside.answer(response))
            told.append(_turn_facts(response, beside.instances(response)))
        # What may grow until the next import must not change what stands: the root tells of the conversation.
        root = {"conversation": dict(beside.row("conversations", name) or {"id": name})}
        tools = beside.tools(str(first)) if first is not None else []
        rest: Json = {"tools": tools} if tools else {}
        yield Remark("lost", f"{lacking(self._policy)}: the file has none", where)
        if beside.lost:
            yield Remark("lost", "contents of attachments", where, beside.lost)
        yield from self._chat.drafts(messages, rest, f"llm/{name}", where, root=root, facts=told)


def _opened(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; a file that another program has open is read as it is."""
    db = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
    try:
        harden(db)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA query_only = ON")
        # SQLite opens lazily: only a first read says whether this is a database.
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        db.close()
        raise
    # Texts that are no UTF-8 are read with marks in the place of what is none.
    db.text_factory = lambda data: data.decode("utf-8", errors="replace")
    return db


def _tables(db: sqlite3.Connection) -> dict[str, set[str]]:
    """The tables of a database with the names of their columns."""
    names = real_tables(db)
    return {name: {row["name"] for row in db.execute(f'PRAGMA table_info("{name}")')} for name in names}


@final
class _Beside:
    """What other tables say of responses, where the file has them; ``lost`` counts attachments left out."""

    def __init__(self, db: sqlite3.Connection, tables: Mapping[str, set[str]]) -> None:
        self._db, self._tables = db, tables
        self.lost = 0

    def _rows(self, table: str, sql: str, value: str) -> list[sqlite3.Row]:
        return self._db.execute(sql, (value,)).fetchall() if table in self._tables else []

    def row(self, table: str, name: str) -> sqlite3.Row | None:
        """A row of a table by its id."""
        found = self._rows(table, f"SELECT * FROM {table} WHERE id = ?", name)
        return found[0] if found else None

    def _fragments(self, kind: str, response: Json) -> list[str]:
        sql = (
            f"SELECT f.content FROM {kind}_fragments p JOIN fragments f ON f.id = p.fragment_id "
            'WHERE p.response_id = ? ORDER BY p."order"'
        )
        return [str(row[0]) for row in self._rows(f"{kind}_fragments", sql, response["id"])]

    def system(self, response: Json) -> str:
        """The system prompt of a response, with its fragments."""
        return "\n".join([*self._fragments("system", response), *filter(None, [response.get("system")])])

    def asked(self, response: Json) -> Iterator[Message]:
        """What was asked: results of tools, then the prompt with its fragments and attachments."""
        sql = "SELECT * FROM tool_results WHERE response_id = ? ORDER BY id"
        for row in self._rows("tool_results", sql, response["id"]):
            result = dict(row)
            message: Message = {"role": "tool", "name": result["name"], "content": result["output"] or ""}
            message |= {key: result[key] for key in ("tool_call_id", "exception") if result.get(key)}
            yield message
        text = "\n".join([*self._fragments("prompt", response), *filter(None, [response.get("prompt")])])
        sql = (
            "SELECT a.id, a.type, a.path, a.url, a.content IS NOT NULL AS held FROM prompt_attachments p "
            'JOIN attachments a ON a.id = p.attachment_id WHERE p.response_id = ? ORDER BY p."order"'
        )
        attached = []
        for row in self._rows("prompt_attachments", sql, response["id"]):
            self.lost += row["held"]
            attached.append({key: row[key] for key in ("id", "type", "path", "url") if row[key]})
        if text or attached:
            yield {"role": "user", "content": text, **({"attachments": attached} if attached else {})}

    def answer(self, response: Json) -> Message:
        """What the model said, with its calls."""
        sql = "SELECT name, arguments, tool_call_id FROM tool_calls WHERE response_id = ? ORDER BY id"
        rows = self._rows("tool_calls", sql, response["id"])
        calls = [tool_call(row["name"], row["arguments"], row["tool_call_id"]) for row in rows]
        message: Message = {"role": "assistant", "content": response.get("response") or ""}
        message |= {"tool_calls": calls} if calls else {}
        return message | ({"reasoning_content": response["reasoning"]} if response.get("reasoning") else {})

    def instances(self, response: Json) -> list[Json]:
        """The toolboxes that served a response's results."""
        sql = (
            "SELECT i.plugin, i.name, i.arguments, t.tool_call_id FROM tool_results t "
            "JOIN tool_instances i ON i.id = t.instance_id WHERE t.response_id = ? ORDER BY t.id"
        )
        return [dict(row) for row in self._rows("tool_instances", sql, response["id"])]

    def tools(self, response: str) -> list[Json]:
        """The tools that a response was offered, as OpenAI has them."""
        sql = (
            "SELECT t.id, t.name, t.description, t.input_schema FROM tool_responses o "
            "JOIN tools t ON t.id = o.tool_id WHERE o.response_id = ? ORDER BY t.id"
        )
        return [tool_of(row) for row in self._rows("tool_responses", sql, response)]


def _turn_facts(response: Json, instances: Sequence[Json]) -> Json:
    """What a response says beside its text."""
    kept = {key: value for key in _JSONS if (value := loaded(response.get(key))) not in (None, {}, [])}
    kept |= {key: response[key] for key in ("id", "datetime_utc", "schema_id") if response.get(key)}
    if response.get("resolved_model"):
        kept["model"] = response.get("model")
    kept |= {"tool_instances": list(instances)} if instances else {}
    model = response.get("resolved_model") or response.get("model")
    told: Json = {"cost": cost_of(response), "extra": {"response": kept}}
    return told | ({"policy": str(model)} if model else {})


# The tree of messages in a `logs.db` of llm 0.32 or newer: each message once, forks and all.


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
        ids = TokenContext(self._policy)
        for said, run in groupby(chain, lambda item: item[1]["role"] == "assistant"):
            items = list(run)
            for group in [[one] for one in items] if said else [items]:
                if not begun and said:
                    # A chain that begins with an answer has an empty task, as every trajectory has one.
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
        self, kind: NodeKind, parent: str | None, name: str, messages: Sequence[Message], ids: TokenContext
    ) -> Any:
        """Yield a node that was not written yet; its id."""
        key = name.removeprefix("llm/")
        tools = self._tools(messages, key) if kind == "task" else None
        if tools:
            ids.offer(tools)
        if kind == "action":
            tokens = dict(ids.goes_on(messages[0], ids.generated_fields(messages[0])))
        else:
            tokens = dict(ids.given_fields(messages))
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
            # In a damaged file a message may come after itself.
            "JOIN chain c ON m.hash = c.parent_hash WHERE up < 100000) SELECT * FROM chain ORDER BY up DESC"
        )
        found: list[tuple[str, Message]] = []
        rows = self._db.execute(sql, (tip,)).fetchall()
        if len({row["hash"] for row in rows}) < len(rows):
            raise BadInput("a message comes after itself")
        for row in rows:
            parts = self._parts(row["hash"])
            for message in _messages_of(row["role"], parts):
                told = (
                    {"provider_metadata": parse_json(row["told"].encode(), "its metadata")}
                    if row["told"]
                    else {}
                )
                found.append((str(row["hash"]), {**message, **told}))
        return found

    def _parts(self, message: str) -> list[Json]:
        sql = "SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position"
        parts = []
        for row in self._db.execute(sql, (message,)):
            part = parse_json(row["payload"].encode(), "a part of it") if row["payload"] else {}
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
        return parse_json(text.encode(), "")
    except BadInput:
        return text


def cost_of(row: Mapping[str, Any]) -> Cost:
    """Tokens and time of a response or a turn."""
    milliseconds = amount_of(row.get("duration_ms"))
    return Cost(
        tokens_in=count_of(row, "input_tokens"),
        tokens_out=count_of(row, "output_tokens"),
        seconds=None if milliseconds is None else milliseconds / 1000,
    )
