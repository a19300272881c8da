"""A trace's calls of models as one path: what each was shown beyond the last, what it said, what tools gave.

A call whose context does not go on from the one before (another agent's, or one that was compacted) begins
with a ``rewrite`` node that carries the whole of its context, so a trace stays one trajectory in its order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, final

from refork.formats.openai_chat import text_of
from refork.formats.sampled import draft_id
from refork.formats.tokenised import TokenContext
from refork.plain import content_hash
from refork.policies.base import Policy
from refork.tree.node import NewNode
from refork.types import Json, Message, NodeKind


@final
@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model.

    ``inputs``: its whole context; ``outputs``: its answers, of which a later call may go on from one.
    ``facts``:
    further fields of a draft, with ``extra``. ``choices``: what is to be kept with each answer alone.
    """

    key: str
    inputs: Sequence[Message]
    outputs: Sequence[Message]
    facts: Json = field(default_factory=dict)
    choices: Sequence[Json] = ()


@final
@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a tool: the message of its result, and what is known of the run."""

    call: str | None
    result: Message | None
    facts: Json


@final
class TracePath:
    """Drafts of a trace, call by call; ``main`` has the calls' continued answers by their keys."""

    def __init__(
        self,
        tools: Any = None,
        runs: Sequence[ToolRun] = (),
        policy: Policy | None = None,
        origin: Json | None = None,
    ) -> None:
        self.new_nodes: list[NewNode] = []
        self.main: dict[str, NewNode] = {}
        self._tools = tools
        self._ids = TokenContext(policy, tools or ())
        self._root: Json = {"tokenizer": self._ids.tokenizer} if policy is not None else {}
        self._root |= {"origin": origin} if origin else {}
        # A tool that was tried again ran twice for one call.
        self._runs: dict[str, list[ToolRun]] = {}
        for run in runs:
            if run.call is not None:
                self._runs.setdefault(run.call, []).append(run)
        self._nameless = [run.facts for run in runs if run.call is None]
        self._context: list[Message] = []
        self._end: NewNode | None = None

    def add(self, calls: Sequence[ModelCall]) -> None:
        """Append calls in their order."""
        for number, call in enumerate(calls):
            after = calls[number + 1] if number + 1 < len(calls) else None
            self._show(call)
            self._say(call, after)

    @classmethod
    def of(
        cls, calls: Sequence[ModelCall], tools: Any, runs: Sequence[ToolRun], policy: Policy | None,
        origin: Json | None, key: str,
    ) -> TracePath:  # fmt: skip
        """The drafts of all calls of a trace, and of the results that no call was shown, under a key."""
        made = cls(tools, runs, policy, origin)
        made.add(calls)
        made._finish(key)
        return made

    def _finish(self, key: str) -> None:
        """Append results of tools that no later call was shown."""
        seen = {str(m["tool_call_id"]) for m in self._context if m.get("tool_call_id") is not None}
        asked = {str(c.get("id")) for m in self._context for c in m.get("tool_calls") or []}
        given = [
            [run.result for run in runs if run.result is not None]
            for name, runs in self._runs.items()
            if name in asked - seen
        ]
        left = [results[-1] for results in given if results]
        if left and self._end is not None:
            self._append("observation", left, f"{key}/results")

    def unanswered(self, inputs: Sequence[Message], key: str) -> None:
        """Append what a context has beyond the last answer, under a key: nothing was said to it."""
        if len(inputs) > len(self._context):
            self._show(ModelCall(key, inputs, ()))

    def last(self, trace: Json, error: str | None = None) -> None:
        """Keep what is said of the trace with the path's end, and the runs of tools that have no place."""
        if self._end is None:
            return
        placed = [told for new_node in self.new_nodes for told in new_node.extra.get("tool_spans", [])]
        loose = [
            *self._nameless,
            *(run.facts for runs in self._runs.values() for run in runs if run.facts not in placed),
        ]
        trace = trace | ({"tools": loose} if loose else {})
        # No two drafts of a path have one key, so the comparison ends before it comes to arrays.
        at = self.new_nodes.index(self._end)
        ended = replace(self._end, extra=self._end.extra | {"trace": trace}, error=self._end.error or error)
        self.new_nodes[at] = self._end = ended

    def scored_node(self, key: str, part: str) -> str:
        """The node that a score of a part is for: a call's answer, what a run of a tool gave, or the end."""
        if key in self.main:
            return draft_id(self.main[key])
        for new_node in self.new_nodes:
            if any(told["id"] == part for told in new_node.extra.get("tool_spans", [])):
                return draft_id(new_node)
        return draft_id(self._end or self.new_nodes[-1])

    def _show(self, call: ModelCall) -> None:
        shown = list(call.inputs)
        if self._end is None:
            self._begin(shown, call.key)
        elif not shown:
            # The content was not captured: nothing says that the context was another one.
            self._ids.lose()
            return
        elif goes_on(self._context, shown):
            self._turns(shown[len(self._context) :], call.key)
        else:
            self._ids.begin()
            self._append("rewrite", shown, f"{call.key}/context", {"reason": "another context"})
            self._context = []
        self._context += shown[len(self._context) :]

    def _begin(self, shown: Sequence[Message], key: str) -> None:
        count = next((i for i, m in enumerate(shown) if m["role"] == "assistant"), len(shown))
        opening = list(shown[:count])
        extra = ({"tools": self._tools} if self._tools else {}) | self._root
        name = content_hash([opening, self._tools, self._root]) if opening else key
        if not shown:
            self._ids.lose()
        self._append("task", opening, f"task/{name}", extra)
        self._context = opening
        self._turns(shown[count:], key)

    def _turns(self, messages: Sequence[Message], key: str) -> None:
        """Messages that a call was shown: other assistant turns, and observations between them."""
        number = 0
        for said, run in groupby(messages, lambda message: message["role"] == "assistant"):
            group = list(run)
            for part in [[one] for one in group] if said else [group]:
                self._append("action" if said else "observation", part, f"{key}/shown/{number}")
                number += 1

    def _append(
        self, kind: NodeKind, messages: Sequence[Message], key: str, extra: Json | None = None
    ) -> None:
        kept: Json = {"messages": list(messages)} if len(messages) > 1 or kind == "rewrite" else {}
        runs = [run.facts for m in messages for run in self._runs.get(str(m.get("tool_call_id")), [])]
        kept |= {"tool_spans": runs} if any(runs) and kind == "observation" else {}
        if kind == "action":
            ids = dict(self._ids.goes_on(messages[0], self._ids.generated_fields(messages[0])))
        else:
            ids = dict(self._ids.given_fields(messages))
        kept |= ids.pop("extra", {})
        self._put(
            NewNode(
                kind=kind,
                parent=None if self._end is None else draft_id(self._end),
                key=key,
                text=ids.pop("text", "\n".join(filter(None, map(text_of, messages)))),
                message=messages[0] if len(messages) == 1 and kind != "rewrite" else None,
                origin="real",
                extra=kept | (extra or {}),
                **ids,
            )
        )

    def _put(self, new_node: NewNode) -> None:
        self.new_nodes.append(new_node)
        self._end = new_node

    def _say(self, call: ModelCall, after: ModelCall | None) -> None:
        """The answers of a call as siblings; the path goes on from the one that the next call was shown."""
        above = self._end
        parent = None if above is None else draft_id(above)
        said = list(call.outputs) or [{"role": "assistant", "content": ""}]
        if not call.outputs:
            self._ids.lose()
        ids = [self._ids.generated_fields(message) for message in said]
        chosen = 0
        # Of several answers the trace goes on from the one that the next call repeats; else from the first.
        if after is not None:
            fits = [n for n, one in enumerate(said) if goes_on([*self._context, one], after.inputs)]
            chosen = fits[0] if fits else 0
        for number, message in enumerate(said):
            told = dict(call.facts)
            own = call.choices[number] if number < len(call.choices) else {}
            fields = dict(ids[number])
            extra = {**told.pop("extra", {}), **({"choice": number} if len(said) > 1 else {})}
            extra |= fields.pop("extra", {})
            told |= {key: value for key, value in own.items() if key != "extra"}
            new_node = NewNode(
                kind="action",
                parent=parent,
                key=call.key if number == 0 else f"{call.key}/{number}",
                text=fields.pop("text", text_of(message)),
                message=message if call.outputs else None,
                origin="real",
                extra=extra | own.get("extra", {}),
                **told,
                **fields,
            )
            self.new_nodes.append(new_node)
            if number == chosen:
                self._end = self.main[call.key] = new_node
        if call.outputs:
            self._context.append(said[chosen])
            self._ids.goes_on(said[chosen], ids[chosen])


def model_of(calls: Sequence[ModelCall]) -> Any:
    """The model of the first call that names one."""
    return next((call.facts["policy"] for call in calls if call.facts.get("policy")), None)


def goes_on(before: Sequence[Message], inputs: Sequence[Message]) -> bool:
    """Whether a context begins with all messages of another one."""
    if len(before) > len(inputs):
        return False
    return all(
        one is other or _content(one) == _content(other) for one, other in zip(before, inputs, strict=False)
    )


def _content(message: Message) -> Any:
    """What a message says, without what instruments add or leave out when they repeat it."""
    calls = [
        (call.get("id"), call["function"]["name"], _value(call["function"].get("arguments")))
        for call in message.get("tool_calls") or []
    ]
    content = message.get("content")
    if isinstance(content, list):
        content = [_part(part) for part in content]
    # Reasoning and names are left out: providers drop them when a context is sent again.
    return message["role"], content or "", calls, message.get("tool_call_id")


def _part(part: Any) -> Any:
    return {k: v for k, v in part.items() if v is not None} if isinstance(part, Mapping) else part


def _value(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
