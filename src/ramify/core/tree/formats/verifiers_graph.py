"""A trace of verifiers v1 as nodes: its message graph is a tree already, with token ids where they were kept.

Messages that no model said and that nothing branches off between are one node, as elsewhere. Of what a model
said, tokens that it did not sample (the template's, before and after) are the observation's: an action holds
what was sampled, with its log-probs. Rollouts of one prompt share its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from ramify.core.errors import BadInput
from ramify.core.plain import content_hash
from ramify.core.policy.base import Cost
from ramify.core.tree.formats.base import Remark
from ramify.core.tree.formats.conversation import check_results, message_of
from ramify.core.tree.formats.openai_chat import text_of
from ramify.core.tree.node import Draft, node_id
from ramify.core.types import Finish, Json, Message, NodeKind

#: What of a trace's node the tree's nodes say themselves, and what of a message.
_SAID: Final = ("message", "token_ids", "mask", "logprobs")
_MESSAGE: Final = (
    *("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning"),
)
_FINISH: Final[dict[str, Finish]] = {"stop": "stop", "tool_calls": "stop", "length": "length"}


@final
@dataclass(slots=True)
class Part:
    """A run of a trace's nodes that is one node here; ``sampled`` ones stand alone."""

    members: list[int]
    parent: Part | None
    sampled: bool
    children: list[Part] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of one trace node: what stood before and after what was sampled, and that."""

    before: list[int]
    sampled: list[int]
    after: list[int]


def parts_of(nodes: Sequence[Json], where: str) -> list[Part]:
    """The nodes that a trace's nodes become, parents first.

    Raises:
        BadInput: a parent that is no earlier node.
    """
    count = [0] * len(nodes)
    for number, node in enumerate(nodes):
        parent = node.get("parent")
        if parent is None:
            continue
        if isinstance(parent, bool) or not isinstance(parent, int) or not 0 <= parent < number:
            raise BadInput(f"node {number} has the parent {parent!r}, which is none before it", where=where)
        count[parent] += 1
    home: list[Part] = []
    found: list[Part] = []
    for number, node in enumerate(nodes):
        parent = node.get("parent")
        above = None if parent is None else home[parent]
        said = bool(node.get("sampled", (node.get("message") or {}).get("role") == "assistant"))
        alone = parent is not None and count[parent] == 1
        if above is not None and alone and not said and not above.sampled:
            above.members.append(number)
            home.append(above)
            continue
        part = Part([number], above, said)
        if above is not None:
            above.children.append(part)
        home.append(part)
        found.append(part)
    return found


def tokens_of(nodes: Sequence[Json]) -> list[Tokens] | None:
    """Token ids of every node; None where one has none, or was sampled in pieces."""
    found = []
    for node in nodes:
        ids, mask = node.get("token_ids"), node.get("mask")
        if not ids or not isinstance(mask, list) or len(mask) != len(ids):
            return None
        if not all(isinstance(one, int) and 0 <= one < 1 << 31 for one in ids):
            return None
        first = mask.index(True) if True in mask else len(mask)
        last = len(mask) - mask[::-1].index(True) if True in mask else first
        if not all(mask[first:last]):
            return None
        found.append(Tokens(list(ids[:first]), list(ids[first:last]), list(ids[last:])))
    return found


@final
class GraphReader:
    """Makes the nodes of one trace."""

    def __init__(self, body: Json, line: str, where: str) -> None:
        self.nodes: list[Json] = body["nodes"]
        self.line, self.where, self.tools = line, where, body.get("tools")
        self.parts = parts_of(self.nodes, where)
        self.ids = tokens_of(self.nodes)
        self.messages = [
            message_of(node["message"], f"{where}, node {n}") for n, node in enumerate(self.nodes)
        ]
        calls = body.get("calls")
        self.calls = {
            call["node"]: call
            for call in (calls if isinstance(calls, list) else [])
            if isinstance(call, dict) and isinstance(call.get("node"), int)
        }
        self._ends: dict[int, str] = {}
        self._places: dict[int, str] = {}

    def drafts(self) -> Iterator[tuple[Draft, bool]]:
        """Drafts, parents first, and whether each is the last of a branch."""
        for part in self.parts:
            above = None if part.parent is None else self._ends[part.parent.members[0]]
            made = list(self._said(part, above) if part.sampled else self._shown(part, above))
            for draft in made[:-1]:
                yield draft, False
            yield made[-1], not part.children
            self._ends[part.members[0]] = _id(made[-1])
            said = next((one for one in made if one.kind == "action"), made[-1])
            self._places[part.members[0]] = _id(said)

    def branches(self) -> Iterator[list[Message]]:
        """The messages from a root to each leaf.

        Raises:
            BadInput: a tool's result that answers no call of its branch.
        """
        parents = {node.get("parent") for node in self.nodes}
        for leaf in (n for n in range(len(self.nodes)) if n not in parents):
            walk: list[Message] = []
            at: int | None = leaf
            while at is not None:
                walk.append(self.messages[at])
                at = self.nodes[at].get("parent")
            check_results(walk[::-1], self.where)
            yield walk[::-1]

    def forms(self) -> list[Json]:
        """What the tree's nodes do not say of each of the trace's, and where in the tree it is.

        To be asked for once all drafts are made.
        """
        found = []
        sampled = {part.members[0] for part in self.parts if part.sampled}
        for number, node in enumerate(self.nodes):
            form = {key: value for key, value in node.items() if key not in _SAID}
            form["sampled"] = number in sampled
            form |= {"at": self._places[number]} if number in self._places else {}
            more = {k: v for k, v in node["message"].items() if k not in _MESSAGE and v is not None}
            form |= {"more": more} if more else {}
            if self.ids is not None and number not in sampled:
                form["tokens"] = len(_all(self.ids[number]))
            found.append(form)
        return found

    def remarks(self) -> Iterator[Remark]:
        """What of the trace's tokens is not carried."""
        some = any(node.get("token_ids") for node in self.nodes)
        if self.ids is None and some:
            yield Remark(
                "lost", "token ids: not every message of the trace has them in one piece", self.where
            )

    def _shown(self, part: Part, above: str | None) -> Iterator[Draft]:
        messages = [self.messages[n] for n in part.members]
        ids: list[int] | None = None
        if self.ids is not None:
            ids = [i for n in part.members for i in _all(self.ids[n])] + self._shared(part)
        yield self._plain(part, above, messages, ids)

    def _plain(self, part: Part, above: str | None, messages: list[Message], ids: list[int] | None) -> Draft:
        extra: Json = {"messages": messages} if len(messages) > 1 else {}
        kind: NodeKind = "observation"
        key = f"{self.line}/{part.members[0] if part.members else 'root'}"
        if above is None:
            kind = "task"
            # A prompt that nothing was said to is not one with equal ones.
            key = f"chat/{content_hash([messages, self.tools, ids])}" if part.children else key
            extra |= {"tools": self.tools} if self.tools else {}
        return Draft(
            kind=kind,
            parent=above,
            key=key,
            text="\n".join(filter(None, map(text_of, messages))),
            tokens=None if ids is None else np.array(ids, np.int32),
            message=messages[0] if len(messages) == 1 else None,
            origin="real",
            extra=extra,
        )

    def _shared(self, part: Part) -> list[int]:
        """What the template put before every answer to a part, if it is the same."""
        if self.ids is None or not part.children or not all(child.sampled for child in part.children):
            return []
        before = [self.ids[child.members[0]].before for child in part.children]
        return before[0] if all(one == before[0] for one in before) else []

    def _said(self, part: Part, above: str | None) -> Iterator[Draft]:
        number = part.members[0]
        message, node = self.messages[number], self.nodes[number]
        call = self.calls.get(number, {})
        if above is None:
            empty = Part([], None, False, [part])
            root = self._plain(empty, None, [], None if self.ids is None else [])
            yield root
            above = _id(root)
        fields: Json = {}
        ids = None if self.ids is None else self.ids[number]
        if ids is not None:
            if ids.before and (part.parent is None or not self._shared(part.parent)):
                yield self._scaffold(above, f"{number}s", ids.before)
                above = node_id(above, None, "observation", f"{self.line}/{number}s")
            fields["tokens"] = np.array(ids.sampled, np.int32)
            if len(node.get("logprobs") or ()) == len(ids.sampled):
                fields["logprobs"] = np.array(node["logprobs"], np.float32)
        made = Draft(
            kind="action",
            parent=above,
            key=f"{self.line}/{number}",
            text=text_of(message),
            message=message,
            origin="real",
            **fields,
            **_told(call),
        )
        yield made
        if ids is not None and ids.after:
            yield self._scaffold(_id(made), f"{number}t", ids.after)

    def _scaffold(self, above: str, name: str, ids: list[int]) -> Draft:
        return Draft(
            kind="observation",
            parent=above,
            key=f"{self.line}/{name}",
            tokens=np.array(ids, np.int32),
            origin="real",
            extra={"scaffold": True},
        )


def _all(ids: Tokens) -> list[int]:
    return [*ids.before, *ids.sampled, *ids.after]


def _id(draft: Draft) -> str:
    return node_id(draft.parent, draft.keep, draft.kind, str(draft.key))


def _told(call: Json) -> Json:
    """What a model call says of its turn."""
    usage = call.get("usage") if isinstance(call.get("usage"), dict) else {}
    span = call.get("time") if isinstance(call.get("time"), dict) else {}
    start, end = (span or {}).get("start"), (span or {}).get("end")
    timed = isinstance(start, (int, float)) and isinstance(end, (int, float)) and end > start
    told: Json = {
        "cost": Cost(
            tokens_in=_count(usage, "prompt_tokens", "input_tokens"),
            tokens_out=_count(usage, "completion_tokens", "output_tokens"),
            seconds=float(end) - float(start) if timed and start is not None and end is not None else None,
        ),
        "finish": _FINISH.get(str(call.get("finish_reason"))),
    }
    if isinstance(call.get("sampling"), dict) and call["sampling"]:
        told["settings"] = call["sampling"]
    return told | ({"policy": str(call["model"])} if call.get("model") else {})


def _count(usage: Any, *names: str) -> int | None:
    for name in names:
        value = (usage or {}).get(name)
        if isinstance(value, int) and 0 <= value < 1 << 53:
            return value
    return None
