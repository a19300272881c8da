"""OpenAI chat JSONL: ``{"messages": [...]}`` a line, with ``tools`` and other keys if it has them.

The messages up to the first assistant turn are one task node, an assistant turn is an action, what
comes between two of them one observation. Equal beginnings are one node; turns of two lines
are kept apart, for how often something was said is data. Importing a file twice changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Any, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import tools_of
from refork.formats.rows import read_items
from refork.formats.tokenised import TokenContext
from refork.policies.base import Policy
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record
from refork.types import Json, Message, NodeKind


def _digest(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def text_of(message: Message) -> str:
    """The text of a message: its content, text parts joined, and its tool calls as JSON lines."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = [json.dumps(call.get("function", call), ensure_ascii=False) for call in _calls(message)]
    return "\n".join(part for part in (str(content or ""), *calls) if part)


def _calls(message: Message) -> list[Json]:
    calls = message.get("tool_calls") or []
    return [call for call in calls if isinstance(call, dict)]


def _messages(body: Json, where: str) -> tuple[list[Message], Json]:
    """The messages of a line, and all else it says."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadInput("this line has no messages", where=where, hint='expected {"messages": [...]}')
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadInput("a message needs a role and a content", where=where)
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise BadInput("the content of a message is neither text nor parts", where=where)
        calls = message.get("tool_calls")
        if calls and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
            raise BadInput("the tool calls of a message are no list of objects", where=where)
    return messages, {key: value for key, value in body.items() if key != "messages"}


@final
class OpenAIChat:
    """Reads OpenAI chat JSONL; token ids are recorded where a policy is given to tokenise with."""

    name, label = "openai-chat", "OpenAI's chat format"
    order = 90
    #: What the format never records.
    lacks = ("log-probs", "times")

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    def sniff(self, head: Head) -> bool:
        """Whether the first line, or the first item of an array, is an object with messages."""
        body = head.first
        if body is None:
            # A long first line may be cut by the sniffing window.
            first = head.text.lstrip(" \t\r\n[")
            return first.startswith("{") and '"messages"' in first[:4096]
        body = body[0] if isinstance(body, list) and body else body
        return isinstance(body, dict) and isinstance(body.get("messages"), list)

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write records as :class:`.chat_export.OpenAIChatWriter` does; returns how many lines."""
        from refork.formats.chat_export import OpenAIChatWriter

        return OpenAIChatWriter().write(records, out)

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts of every line, in order; a line without messages is skipped."""
        return read_items(path, self.label, self.item)

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """One line."""
        messages, rest = _messages(body, where)
        yield from self.drafts(messages, rest, f"chat/{name}", where, apart=True)

    def drafts(
        self,
        messages: Sequence[Message],
        rest: Json,
        line: str,
        where: str,
        *,
        root: Json | None = None,
        facts: Sequence[Json] = (),
        copied: Collection[int] = (),
        apart: bool = False,
        origin: Json | None = None,
        opening: int | None = None,
    ) -> Iterator[NewNode]:
        """One conversation as a task, actions and observations; other formats are made into it.

        ``rest`` is kept with the last node (its ``tools`` with the first), ``root`` with the task; ``facts``
        has further fields of each assistant turn. ``line`` names the conversation in its file. Turns at
        places in ``copied`` were said elsewhere and are shown here. ``apart`` keeps a conversation in which
        nothing was said from being one with equal prompts. ``origin`` says where it comes from: equal prompts
        of other origins are other tasks. ``opening``: so many messages are the task, and what follows before
        the first turn, which differs from run to run, is an observation. Where nothing was said, what
        ``rest`` tells stands on a verdict of its own, since the task may be that of others.
        """
        spoke = [m["role"] == "assistant" and at not in copied for at, m in enumerate(messages)]
        pairs = groupby(zip(spoke, messages, strict=True), lambda pair: pair[0])
        groups = [(said, [message for _, message in group]) for said, group in pairs]
        lead = [] if groups[0][0] else groups.pop(0)[1]
        if opening is not None and lead[opening:]:
            groups.insert(0, (False, lead[opening:]))
            lead = lead[:opening]
        rest = dict(rest)
        if tools := tools_of(rest.get("tools"), where):
            del rest["tools"]
        if origin is None:
            answered = next((one["policy"] for one in facts if one.get("policy")), rest.get("model"))
            origin = {"model": str(answered)} if isinstance(answered, str) and answered else None
        turns = [
            (said, turn) for said, group in groups for turn in ([[m] for m in group] if said else [group])
        ]
        ids = TokenContext(self._policy, tools or ())
        parent: str | None = None
        spoken = 0
        alone = apart and not turns
        for number, (said, group) in enumerate([(False, lead), *turns]):
            kind: NodeKind = "task" if number == 0 else ("action" if said else "observation")
            # Equal prompts are one node, unless tools, tokens or origin tell them apart; turns never are.
            parts = (lead, tools, self.tokenizer, *([root] if root else []), *([origin] if origin else []))
            key = f"{line}/{number}" if number or alone else f"chat/{_digest(*parts)}"
            fields: Json = {"text": "\n".join(filter(None, map(text_of, group)))}
            fields |= (
                ids.goes_on(group[0], ids.generated_fields(group[0])) if said else ids.given_fields(group)
            )
            extra: Json = {"messages": group} if len(group) > 1 else {}
            extra |= fields.pop("extra", {})
            if number == 0:
                extra |= {"tools": tools} if tools else {}
                extra |= {"tokenizer": self.tokenizer} if self.tokenizer else {}
                extra |= {"origin": origin} if origin else {}
                extra |= root or {}
            if number == len(turns) and (number or alone) and rest:
                extra |= {"line": rest}
            if said and spoken < len(facts):
                more = dict(facts[spoken])
                extra |= more.pop("extra", {})
                fields = fields | more
            spoken += said
            message = group[0] if len(group) == 1 else None
            if fields.get("error") and not fields["text"]:
                message = None  # A call that failed said nothing.
            yield NewNode(
                kind=kind, parent=parent, key=key, message=message, extra=extra, origin="real", **fields
            )
            parent = node_id(parent, None, kind, key)
        if not turns and not alone and rest:
            yield NewNode(
                kind="verdict", parent=parent, key=f"{line}/end", origin="real", extra={"line": rest}
            )

    @property
    def tokenizer(self) -> str | None:
        """Digest of the tokenizer that texts are tokenised with; None where none is."""
        return None if self._policy is None else self._policy.card.tokenizer
