"""A trace of verifiers v1 as nodes: its message graph is a tree already, with token ids where they were kept.

Messages that no model said and that nothing branches off between are one node, as elsewhere. Of what a model
said, tokens that it did not sample (the template's, before and after) are the observation's: an action holds
what was sampled, with its log-probs. Rollouts of one prompt share its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork.formats.conversation import (
    asked_for,
    check_results,
    count_of,
    mapping,
    message_of,
    origin,
    tools_of,
)
from refork.formats.openai_chat import text_of
from refork.formats.sampled import draft_id, finish_of, known_numbers
from refork.plain import content_hash
from refork.policies.base import Cost
from refork.tree.node import NewNode, node_id
from refork.tree.records import Remark
from refork.types import FloatArray, Json, Message, NodeKind

#: Where ``info`` of our own traces says what a turn is made of, by the number of its node: where in the
#: node's token ids it starts, and its pieces as tokens, characters, whether put there, how many were forced.
PIECES: Final = "turn_pieces"
#: What of a trace's node the tree's nodes say themselves, and what of a message.
_SAID: Final = ("message", "token_ids", "mask", "logprobs")
_MESSAGE: Final = (
    *("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning"),
)


@final
@dataclass(slots=True)
class NodeRun:
    """A run of a trace's nodes that is one node here; ``sampled`` ones stand alone."""

    members: list[int]
    parent: NodeRun | None
    sampled: bool
    children: list[NodeRun] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True)
class NodeTokens:
    """Token ids of one trace node: what stood before and after what was sampled, and that."""

    before: list[int]
    sampled: list[int]
    after: list[int]


@final
@dataclass(frozen=True, slots=True)
class Pieces:
    """A turn in pieces: where in its node's ids it starts, and tokens, characters, given, forced of each."""

    start: int
    pieces: tuple[tuple[int, int, int, int], ...]

    @property
    def span(self) -> tuple[int, int]:
        """Begin and end of the turn in the node's token ids."""
        return self.start, self.start + sum(one[0] for one in self.pieces)

    @classmethod
    def of(cls, raw: Any, node: Json) -> Pieces | None:
        """What a trace says of a turn, where it fits the turn's text and token ids."""
        if not isinstance(raw, Mapping) or not isinstance(raw.get("pieces"), list) or not raw["pieces"]:
            return None
        rows, start = raw["pieces"], raw.get("start")
        sound = all(isinstance(row, list) and len(row) == 4 for row in rows)
        if not sound or any(type(one) is not int or one < 0 for row in [[start], *rows] for one in row):
            return None
        made = cls(int(start or 0), tuple((row[0], row[1], row[2], row[3]) for row in rows))
        text, ids = text_of(node["message"]), node.get("token_ids")
        alike = len(rows) == 1 or len(text) == sum(row[1] for row in rows)
        return made if alike and isinstance(ids, list) and made.span[1] <= len(ids) else None


def runs_of(nodes: Sequence[Json], where: str) -> list[NodeRun]:
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
    home: list[NodeRun] = []
    found: list[NodeRun] = []
    for number, node in enumerate(nodes):
        parent = node.get("parent")
        above = None if parent is None else home[parent]
        said = _is_said(node)
        alone = parent is not None and count[parent] == 1
        if above is not None and alone and not said and not above.sampled:
            above.members.append(number)
            home.append(above)
            continue
        part = NodeRun([number], above, said)
        if above is not None:
            above.children.append(part)
        home.append(part)
        found.append(part)
    return found


def tokens_of(nodes: Sequence[Json], pieces: Mapping[int, Pieces] | None = None) -> list[NodeTokens] | None:
    """Token ids of every node; None where one has none, or was sampled in pieces that nobody tells of.

    What a rollout ends with, and no model was shown, may have none.
    """
    found = []
    parents = {node.get("parent") for node in nodes}
    for number, node in enumerate(nodes):
        ids, mask = node.get("token_ids"), node.get("mask")
        if pieces and number in pieces:
            given = list(ids or ())
            first, last = pieces[number].span
            found.append(NodeTokens(given[:first], given[first:last], given[last:]))
            continue
        if not ids and number not in parents and not _is_said(node):
            found.append(NodeTokens([], [], []))
            continue
        if not ids or not isinstance(mask, list) or len(mask) != len(ids):
            return None
        if not all(isinstance(one, int) and 0 <= one < 1 << 31 for one in ids):
            return None
        first = mask.index(True) if True in mask else len(mask)
        last = len(mask) - mask[::-1].index(True) if True in mask else first
        # A hole in the mask: what was sampled is in pieces, and nobody says where each begins.
        if not all(mask[first:last]):
            return None
        found.append(NodeTokens(list(ids[:first]), list(ids[first:last]), list(ids[last:])))
    return found if any(map(_all, found)) else None


@final
class GraphReader:
    """Makes the nodes of one trace."""

    def __init__(self, body: Json, line: str, where: str) -> None:
        self.nodes: list[Json] = body["nodes"]
        self.line, self.where, self.tools = line, where, body.get("tools")
        # Refused here, with the trace's place: a tree would refuse the node, and with it the whole file.
        tools_of(self.tools, where)
        self.parts = runs_of(self.nodes, where)
        self.pieces = dict(self._pieces(body.get("info")))
        self.ids = tokens_of(self.nodes, self.pieces)
        self.logprobs = {
            number: known_numbers(node["logprobs"])
            for number, node in enumerate(self.nodes)
            if isinstance(node.get("logprobs"), list)
        }
        self.messages = [
            message_of(node["message"], f"{where}, node {n}") for n, node in enumerate(self.nodes)
        ]
        calls = body.get("calls")
        self.calls = {
            call["node"]: call
            for call in (calls if isinstance(calls, list) else [])
            if isinstance(call, dict) and isinstance(call.get("node"), int)
        }
        model = next((call["model"] for call in self.calls.values() if call.get("model")), body.get("model"))
        #: Where the trace comes from, as far as it says so.
        self.origin = origin("verifiers", model) if isinstance(model, str) and model else None
        self._ends: dict[int, str] = {}
        self._places: dict[int, str] = {}

    def _pieces(self, info: Any) -> Iterator[tuple[int, Pieces]]:
        told = info.get(PIECES) if isinstance(info, Mapping) else None
        for name, raw in (told if isinstance(told, Mapping) else {}).items():
            number = int(name) if name.isdecimal() else len(self.nodes)
            if number < len(self.nodes) and (made := Pieces.of(raw, self.nodes[number])) is not None:
                yield number, made

    def drafts(self) -> Iterator[tuple[NewNode, bool]]:
        """Drafts, parents first, and whether each is the last of a branch."""
        for part in self.parts:
            above = None if part.parent is None else self._ends[part.parent.members[0]]
            made = list(
                self._generated_nodes(part, above) if part.sampled else self._given_nodes(part, above)
            )
            for new_node in made[:-1]:
                yield new_node, False
            yield made[-1], not part.children
            self._ends[part.members[0]] = draft_id(made[-1])
            said = next((one for one in reversed(made) if one.kind == "action"), made[-1])
            self._places[part.members[0]] = draft_id(said)

    def branches(self) -> Iterator[list[Message]]:
        """The messages from a root to each leaf.

        Raises:
            BadInput: a tool's result that answers no call of its branch.
        """
        parents = {node.get("parent") for node in self.nodes}
        for leaf in (n for n in range(len(self.nodes)) if n not in parents):
            trajectory: list[Message] = []
            at: int | None = leaf
            while at is not None:
                trajectory.append(self.messages[at])
                at = self.nodes[at].get("parent")
            check_results(trajectory[::-1], self.where)
            yield trajectory[::-1]

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
                count = len(_all(self.ids[number]))
                form |= {"tokens": count} if count else {}
            found.append(form)
        return found

    def remarks(self) -> Iterator[Remark]:
        """What of the trace's tokens is not carried."""
        some = any(node.get("token_ids") for node in self.nodes)
        if self.ids is None and some:
            yield Remark(
                "lost", "token ids: not every message of the trace has them in one piece", self.where
            )
        if self.ids is not None and any(values is None for values in self.logprobs.values()):
            yield Remark("lost", "log-probs: not all of them are known", self.where)

    def _given_nodes(self, part: NodeRun, above: str | None) -> Iterator[NewNode]:
        messages = [self.messages[n] for n in part.members]
        ids: list[int] | None = None
        if self.ids is not None:
            ids = [i for n in part.members for i in _all(self.ids[n])] + self._shared(part)
        yield self._plain(part, above, messages, ids)

    def _plain(
        self, part: NodeRun, above: str | None, messages: list[Message], ids: list[int] | None
    ) -> NewNode:
        extra: Json = {"messages": messages} if len(messages) > 1 else {}
        kind: NodeKind = "observation"
        key = f"{self.line}/{part.members[0] if part.members else 'root'}"
        if above is None:
            kind = "task"
            # A prompt that nothing was said to is not one with equal ones.
            parts = [messages, self.tools, ids, *([self.origin] if self.origin else [])]
            key = f"chat/{content_hash(parts)}" if part.children else key
            extra |= {"tools": self.tools} if self.tools else {}
            extra |= {"origin": self.origin} if self.origin else {}
        return NewNode(
            kind=kind,
            parent=above,
            key=key,
            text="\n".join(filter(None, map(text_of, messages))),
            # Only the empty task before a first answer is known to have no ids; elsewhere they are unknown.
            tokens=np.array(ids, np.int32) if ids or (ids is not None and not messages) else None,
            message=messages[0] if len(messages) == 1 else None,
            origin="real",
            extra=extra,
        )

    def _shared(self, part: NodeRun) -> list[int]:
        """What the template put before every answer to a part, if it is the same."""
        if self.ids is None or not part.children or not all(child.sampled for child in part.children):
            return []
        before = [self.ids[child.members[0]].before for child in part.children]
        return before[0] if all(one == before[0] for one in before) else []

    def _generated_nodes(self, part: NodeRun, above: str | None) -> Iterator[NewNode]:
        number = part.members[0]
        message, logprobs = self.messages[number], self.logprobs.get(number)
        call = self.calls.get(number, {})
        if above is None:
            empty = NodeRun([], None, False, [part])
            root = self._plain(empty, None, [], None if self.ids is None else [])
            yield root
            above = draft_id(root)
        fields: Json = {}
        ids = None if self.ids is None else self.ids[number]
        if ids is not None:
            if ids.before and (part.parent is None or not self._shared(part.parent)):
                yield self._scaffold(above, f"{number}s", ids.before)
                above = node_id(above, None, "observation", f"{self.line}/{number}s")
            fields["tokens"] = np.array(ids.sampled, np.int32)
            if logprobs is not None and len(logprobs) == len(ids.sampled):
                fields["logprobs"] = logprobs
        key = f"{self.line}/{number}"
        made = NewNode(
            kind="action",
            parent=above,
            key=key,
            text=text_of(message),
            message=message,
            origin="real",
            **fields,
            **_turn_facts(call),
        )
        if ids is not None and number in self.pieces:
            *others, made = _in_pieces(made, self.pieces[number], logprobs)
            yield from others
        yield made
        if ids is not None and ids.after:
            yield self._scaffold(draft_id(made), f"{number}t", ids.after)

    def _scaffold(self, above: str, name: str, ids: list[int]) -> NewNode:
        return NewNode(
            kind="observation",
            parent=above,
            key=f"{self.line}/{name}",
            tokens=np.array(ids, np.int32),
            origin="real",
            extra={"scaffold": True},
        )


def _in_pieces(turn: NewNode, told: Pieces, logprobs: FloatArray | None) -> list[NewNode]:
    """A turn as the nodes that it was written from; the last one has its key."""
    found: list[NewNode] = []
    message, tokens = turn.message or {}, turn.tokens
    assert tokens is not None
    parent, at, character, drawn = turn.parent, 0, 0, 0
    # The format has log-probs of what the policy chose, and of nothing that was given or forced.
    known = np.zeros(0, np.float32) if logprobs is None else logprobs
    fits = len(known) == sum(size - forced for size, _, given, forced in told.pieces if not given)
    alone = len(told.pieces) == 1
    for number, (size, characters, given, forced) in enumerate(told.pieces):
        last = number == len(told.pieces) - 1
        text = turn.text if alone else turn.text[character : character + characters]
        own: Message | None = message if alone and not given else None
        if not alone and number == 0 and set(message) - {"role", "content"} and not given:
            own = message | {"content": text}
        chosen = 0 if given else size - forced
        values = known[drawn : drawn + chosen] if fits and not given else None
        settings = {
            **(turn.settings or {}),
            **({"forced": tokens[at : at + forced].tolist()} if forced else {}),
        }
        made = replace(
            turn,
            parent=parent,
            key=turn.key if last else f"{turn.key}/piece/{number}",
            text=text,
            message=own,
            tokens=tokens[at : at + size],
            # The log-probs of forced tokens have no place in the format.
            logprobs=values if not forced else None,
            settings=None if given else settings or None,
            policy=None if given else turn.policy,
            finish=turn.finish if last else None,
            cost=turn.cost if last else Cost(),
            extra={"edit": "insert"} if given else {},
        )
        found.append(made)
        parent, at, character, drawn = draft_id(made), at + size, character + characters, drawn + chosen
    return found


def _is_said(node: Json) -> bool:
    """Whether a model said what a node of a trace holds."""
    return bool(node.get("sampled", (node.get("message") or {}).get("role") == "assistant"))


def _all(ids: NodeTokens) -> list[int]:
    return [*ids.before, *ids.sampled, *ids.after]


def _turn_facts(call: Json) -> Json:
    """What a model call says of its turn."""
    usage, span = call.get("usage"), mapping(call.get("time"))
    start, end = span.get("start"), span.get("end")
    timed = isinstance(start, (int, float)) and isinstance(end, (int, float)) and end > start
    told: Json = {
        "cost": Cost(
            tokens_in=count_of(usage, "prompt_tokens", "input_tokens"),
            tokens_out=count_of(usage, "completion_tokens", "output_tokens"),
            seconds=float(end) - float(start) if timed and start is not None and end is not None else None,
        ),
        "finish": finish_of(call.get("finish_reason")),
    }
    if isinstance(call.get("sampling"), dict) and call["sampling"]:
        told |= asked_for(call["sampling"])
    return told | ({"policy": str(call["model"])} if call.get("model") else {})
