"""Sessions of Claude Code (``~/.claude/projects/*/*.jsonl``): a record a line, each below another one.

An answer of the model is written as one record for each block; the records of one answer are one turn again.
What was taken back and said otherwise is a branch. Where a session was compacted a rewrite has the summary,
with the messages that were kept. Sub-agents are trajectories, in the session's file or in theirs.

Source: the files that Claude Code 2.1 writes, and the requests that it makes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from refork.formats.base import Head
from refork.formats.conversation import amount_of, count_of, mapping, origin, tool_call
from refork.formats.grouped import Grouped
from refork.formats.log_reader import TraceReader
from refork.formats.sampled import finish_of
from refork.formats.spans import ModelCall, ToolRun, TracePath, model_of
from refork.policies.base import Cost, Policy
from refork.tree.records import Record, Remark
from refork.types import Json, Message

#: What is said of the whole session in each of its records.
_SESSION: Final = ("sessionId", "version", "cwd", "gitBranch", "userType", "entrypoint", "slug")
#: What of a record stands elsewhere.
_ELSEWHERE: Final = frozenset({*_SESSION, "message", "parentUuid", "type", "toolUseResult"})
#: Who says what no model said: errors of the interface, and answers to what was not asked.
_SYNTHETIC: Final = "<synthetic>"


@final
class ClaudeCode(TraceReader):
    """Reads sessions of Claude Code; token ids are recorded where a policy is given to tokenise with."""

    name, label, parts = "claude-code", "Claude Code", "records"
    order = 26

    def sniff(self, head: Head) -> bool:
        """Whether the file has records below one another, of a session."""
        start = head.text.lstrip()
        return start.startswith("{") and '"parentUuid"' in start and '"isSidechain"' in start

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep a record by its session; of one that cannot be read its place alone."""
        kind, message = body.get("type"), body.get("message")
        session, own = str(body.get("sessionId") or ""), str(body.get("uuid") or where)
        if not isinstance(kind, str):
            yield Remark("skipped", "this is no record of a session", where)
            return
        if kind in ("user", "assistant") and not _readable(message):
            yield Remark("skipped", f"the message of this {kind} record cannot be read", where)
            # What came after it still belongs to what came before.
            body = {key: body[key] for key in ("uuid", "parentUuid", "sessionId") if key in body}
            body["type"] = "unread"
        if not grouped.add(session, own, body):
            yield Remark("skipped", "another record of the same id", where)

    def trace(self, grouped: Grouped, trace: str) -> Iterator[Record]:
        """Drafts of one session: a trajectory for each end of it."""
        session = _Session(list(grouped.members(trace)))
        where = f"session {trace}"
        if not session.ends:
            yield Remark("skipped", "a session without a message", where)
            return
        yield Remark("lost", "system prompts and definitions of tools: a session has none", where)
        if session.loose:
            told = "records that belong to no message, such as titles and the state of the screen"
            yield Remark("lost", told, where, session.loose)
        if session.torn:
            told = "what stood before: the records are in another file, or were cut"
            yield Remark("lost", told, where, session.torn)
        for chain in session.ends:
            yield from _ConversationReader(trace, session.owners, self._policy).records(chain, where)


def _readable(message: Any) -> bool:
    content = mapping(message).get("content")
    blocks = isinstance(content, list) and all(isinstance(block, Mapping) for block in content)
    return isinstance(message, Mapping) and (isinstance(content, str) or blocks)


@dataclass(slots=True, eq=False)
class SessionEntry:
    """A turn of the model, with all its records, or one other record. ``above``: the uuid above it."""

    kind: str
    records: list[Json]
    above: str | None
    calls: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)


@final
class _Session:
    """The records of a session as chains from its beginning to each of its ends."""

    def __init__(self, records: Sequence[Json]) -> None:
        self._by_uuid: dict[str, SessionEntry] = {}
        self._results: dict[str, list[SessionEntry]] = {}
        #: Of each call of a tool the turn that asked for it.
        self.owners: dict[str, SessionEntry] = {}
        self.loose = self.torn = 0
        entries = self._entries(records)
        self._numbers = {id(entry): at for at, entry in enumerate(entries)}
        above = {entry.above for entry in entries if entry.above is not None}
        inner = {id(self._by_uuid[uuid]) for uuid in above if uuid in self._by_uuid}
        self.ends: list[list[SessionEntry]] = []
        seen: set[int] = set()
        # The last end first: an end that is part of a later one's chain (one of several results) is none.
        for entry in reversed(entries):
            if id(entry) not in inner and id(entry) not in seen:
                chain = self._chain(entry)
                seen |= set(map(id, chain))
                if any(one.kind in ("user", "assistant") for one in chain):
                    self.ends.append(chain)
        self.ends.reverse()

    def _entries(self, records: Sequence[Json]) -> list[SessionEntry]:
        entries: list[SessionEntry] = []
        turns: dict[str, SessionEntry] = {}
        for record in records:
            if not record.get("uuid"):
                self.loose += 1
                continue
            kind, message = record["type"], mapping(record.get("message"))
            turn = turns.get(str(message.get("id"))) if kind == "assistant" else None
            if turn is None:
                above = record.get("parentUuid") or record.get("logicalParentUuid")
                turn = SessionEntry(kind, [], None if above is None else str(above))
                entries.append(turn)
                if kind == "assistant" and message.get("id"):
                    turns[str(message["id"])] = turn
            turn.records.append(record)
            self._by_uuid[str(record["uuid"])] = turn
            blocks = message.get("content") if kind in ("user", "assistant") else None
            for block in blocks if isinstance(blocks, list) else ():
                if kind == "assistant" and block.get("type") == "tool_use":
                    turn.calls.add(str(block.get("id")))
                    self.owners.setdefault(str(block.get("id")), turn)
                elif block.get("type") == "tool_result":
                    turn.results.add(str(block.get("tool_use_id")))
        for entry in entries:
            for call in sorted(entry.results & self.owners.keys()):
                self._results.setdefault(call, []).append(entry)
        return entries

    def _chain(self, end: SessionEntry) -> list[SessionEntry]:
        """From the beginning to an end; results of calls that were made at once stand side by side in it."""
        path: list[SessionEntry] = []
        at: SessionEntry | None = end
        known: set[int] = set()
        while at is not None and id(at) not in known:
            known.add(id(at))
            path.append(at)
            after = None if at.above is None else self._by_uuid.get(at.above)
            self.torn += at.above is not None and after is None
            at = after
        chain: list[SessionEntry] = []
        placed: set[int] = set()
        for entry in reversed(path):
            beside = [one for call in sorted(entry.calls) for one in self._results.get(call, [])]
            # In the order of the file: sets have none of their own.
            beside.sort(key=self._number)
            for one in [entry, *beside]:
                if id(one) not in placed:
                    placed.add(id(one))
                    chain.append(one)
        return chain

    def _number(self, entry: SessionEntry) -> int:
        return self._numbers[id(entry)]


@final
class _ConversationReader:
    """One chain of records as the calls of models that it shows."""

    def __init__(self, trace: str, owners: Mapping[str, SessionEntry], policy: Policy | None) -> None:
        self._trace, self._owners, self._policy = trace, owners, policy
        self._context: list[Message] = []
        self._kept: list[Message] = []
        self._notes: list[Json] = []
        self._calls: list[ModelCall] = []
        self._runs: list[ToolRun] = []
        self._said: dict[str, Message] = {}

    def records(self, chain: Sequence[SessionEntry], where: str) -> Iterator[Record]:
        """Drafts of the chain."""
        for entry in chain:
            self._take(entry)
        first = next(one.records[0] for one in chain if one.kind in ("user", "assistant"))
        if not self._calls:
            yield Remark("skipped", "a conversation to which no model answered", where)
            return
        # Under another name: ids of sessions are secrets of web pages, and would be taken out.
        told = {"id": self._trace, **{key: first[key] for key in _SESSION[1:] if first.get(key) is not None}}
        agent = first.get("attributionAgent") or first.get("agentId")
        sidechain = bool(first.get("isSidechain"))
        agent = next(
            (r["attributionAgent"] for e in chain for r in e.records if "attributionAgent" in r), agent
        )
        self._calls[0].facts["extra"]["session"] = told | ({"agent": agent} if agent else {})
        came = origin(
            "claude-code",
            model_of(self._calls),
            version=first.get("version"),
            agent=(agent or "sidechain") if sidechain else None,
        )
        made = TracePath(None, self._runs, self._policy, came)
        made.add(self._calls)
        made.unanswered(self._context, f"{self._calls[-1].key}/after")
        yield from made.new_nodes

    def _take(self, entry: SessionEntry) -> None:
        record = entry.records[0]
        if entry.kind == "assistant":
            self._turn(entry)
        elif entry.kind == "user":
            self._user(record)
        else:
            if record.get("subtype") == "compact_boundary":
                kept = mapping(mapping(record.get("compactMetadata")).get("preservedMessages")).get("uuids")
                names = kept if isinstance(kept, list) else []
                self._kept = [self._said[str(uuid)] for uuid in names if str(uuid) in self._said]
                self._context = []
            self._notes.append({key: one for key, one in record.items() if key not in _SESSION})

    def _user(self, record: Json) -> None:
        if record.get("isCompactSummary"):
            self._context = []
        made = list(_user_messages(record["message"]))
        self._context += made
        for message in made:
            self._said.setdefault(str(record["uuid"]), message)
        if record.get("isCompactSummary"):
            # What was kept is read behind the summary.
            self._context += self._kept
            self._kept = []
        rest = _rest(record)
        calls = [str(one["tool_call_id"]) for one in made if one["role"] == "tool"]
        for message in made:
            if message["role"] == "tool":
                told: Json = {"id": message["tool_call_id"], **rest}
                if len(calls) == 1 and record.get("toolUseResult") is not None:
                    told["result"] = record["toolUseResult"]
                self._runs.append(ToolRun(str(message["tool_call_id"]), message, told))
        if not calls:
            self._notes.append(rest)

    def _turn(self, entry: SessionEntry) -> None:
        last, messages = entry.records[-1], [one["message"] for one in entry.records]
        message, others = _answer(messages)
        model = next((one["model"] for one in messages if isinstance(one.get("model"), str)), None)
        usage = mapping(last["message"].get("usage"))
        extra: Json = {"records": [_rest(one) for one in entry.records], "usage": dict(usage)}
        extra |= {"blocks": others} if others else {}
        if model == _SYNTHETIC and not last.get("isApiErrorMessage"):
            self._context.append(message)
            self._notes.append(extra)
            return
        failed = bool(last.get("isApiErrorMessage"))
        read = [count_of(usage, name) for name in _INPUT]
        facts: Json = {
            "policy": model if model != _SYNTHETIC else None,
            "cost": Cost(
                tokens_in=None if read[0] is None or failed else sum(one or 0 for one in read),
                tokens_out=None if failed else count_of(usage, "output_tokens"),
                money=amount_of(last.get("costUSD")),
            ),
            "finish": "error" if failed else finish_of(last["message"].get("stop_reason")),
            "error": str(message["content"]) if failed else None,
            "extra": {"claude_code": extra} | ({"notes": self._notes} if self._notes else {}),
        }
        self._notes = []
        said = [] if failed else [message]
        # By its last record: an answer that was read while it was written is another than the whole one.
        key = f"claude-code/{last['uuid']}"
        self._calls.append(ModelCall(key, list(self._context), said, facts))
        if not failed:
            self._context.append(message)
            for one in entry.records:
                self._said[str(one["uuid"])] = message


#: Tokens of a request, read anew, written to a cache and read from one.
_INPUT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _rest(record: Json) -> Json:
    """What a record says beside its message and what its session says."""
    return {key: one for key, one in record.items() if key not in _ELSEWHERE and one is not None}


def _answer(messages: Sequence[Mapping[str, Any]]) -> tuple[Message, list[Json]]:
    """The blocks of one answer as a message, and those that have no place in it."""
    texts, thoughts, calls, others = [], [], [], []
    for message in messages:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            kind = block.get("type")
            if kind == "text":
                texts.append(str(block.get("text") or ""))
            elif kind == "thinking":
                thoughts.append(str(block.get("thinking") or ""))
                others.append({key: one for key, one in block.items() if key != "thinking"})
            elif kind == "tool_use":
                calls.append(tool_call(str(block.get("name")), block.get("input"), str(block.get("id"))))
            else:
                others.append(dict(block))
    made: Message = {"role": "assistant", "content": "\n".join(texts)}
    made |= {"tool_calls": calls} if calls else {}
    return made | ({"reasoning_content": "\n".join(thoughts)} if any(thoughts) else {}), others


def _user_messages(message: Mapping[str, Any]) -> Iterator[Message]:
    """The messages of a user's record: results of tools, and what the user said or was made to say."""
    content = message["content"]
    if isinstance(content, str):
        yield {"role": "user", "content": content}
        return
    parts = []
    for block in content:
        if block.get("type") == "tool_result":
            failed = {"is_error": True} if block.get("is_error") else {}
            result = block.get("content")
            shown = _parts(result) if isinstance(result, list) else str(result or "")
            yield {"role": "tool", "tool_call_id": str(block.get("tool_use_id")), "content": shown, **failed}
        else:
            parts.append(block)
    if parts:
        yield {"role": "user", "content": _parts(parts)}


def _parts(blocks: Sequence[Any]) -> str | list[Json]:
    """Blocks as a text where they are texts, else as parts."""
    known = [
        block if isinstance(block, Mapping) else {"type": "text", "text": str(block)} for block in blocks
    ]
    if all(block.get("type") == "text" for block in known):
        return "\n".join(str(block.get("text") or "") for block in known)
    return [_part(block) for block in known]


def _part(block: Mapping[str, Any]) -> Json:
    source = mapping(block.get("source"))
    if block.get("type") == "image" and source.get("type") == "base64":
        address = f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": address}}
    return dict(block)
