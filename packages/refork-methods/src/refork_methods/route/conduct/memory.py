"""What a worker of a workflow is shown, and what a conversation remembers from one workflow to the next.

Inside a workflow a worker sees its own earlier steps and what the plan grants it, nothing else; otherwise the
first worker's path steers all others. Across the workflows of one conversation, tool calls are shared.

Source: arXiv:2606.21228, isolation inside a workflow and shared tool history across them; keys, order and the
byte cap are ours, since none are stated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.route.conduct.plan import Plan

#: ``granted``: the access list alone. ``workflow``: that and the worker's own steps. ``shared``: every step.
Isolation: TypeAlias = Literal["granted", "workflow", "shared"]
Sharing: TypeAlias = Literal["conversation", "nothing"]
#: Bytes of tool calls that a conversation keeps.
MOST_BYTES = 64_000


@dataclass(frozen=True, slots=True)
class Shown:
    """An earlier step as it is shown: its number, subtask and output."""

    step: int
    subtask: str
    output: str


def visible(
    plan: Plan, step: int, outputs: Mapping[int, str], isolation: Isolation = "granted"
) -> tuple[Shown, ...]:
    """What step ``step`` (from 1) is shown of this workflow, given the outputs of the steps before it.

    ``granted`` shows exactly {(subtask_j, output_j): j in access_list[step]}, in the list's order. The
    others show the steps in order: with ``workflow`` those granted or done by the same worker, with
    ``shared`` all. Steps without an output are left out.

    Raises: BadInput for an unknown isolation.
    """
    access, worker = plan.access_list[step - 1], plan.model_id[step - 1]
    if isolation == "granted":
        steps = list(access)
    elif isolation == "workflow":
        steps = [s for s in range(1, step) if s in access or plan.model_id[s - 1] == worker]
    elif isolation == "shared":
        steps = list(range(1, step))
    else:
        raise BadInput(f"unknown isolation {isolation!r}", hint="granted, workflow or shared")
    return tuple(Shown(s, plan.subtasks[s - 1], outputs[s]) for s in steps if s in outputs)


def canonical(arguments: Json) -> str:
    """Arguments of a tool call as JSON with sorted keys: equal calls have equal text."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """One tool call of a workflow and what came back."""

    tool: str
    arguments: str
    workflow: int
    result: str

    @property
    def bytes(self) -> int:
        """Its size in UTF-8."""
        return sum(len(part.encode()) for part in (self.tool, self.arguments, self.result))

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "tool": self.tool,
            "arguments": json.loads(self.arguments),
            "workflow": self.workflow,
            "result": self.result,
        }


@final
class OrchestrationMemory:
    """The memory of one conversation, keyed by tool, canonical arguments and workflow.

    ``isolation`` is how the workers of a workflow see each other, ``share`` whether a workflow is shown the
    tool calls of those before it. Above ``most_bytes`` the oldest calls are forgotten; ``forgotten`` counts
    them, those that were too large to keep at all included.

    Raises: BadInput for an unknown isolation or sharing, or a negative cap.
    """

    def __init__(
        self,
        isolation: Isolation = "workflow",
        share: Sharing = "conversation",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        if isolation not in ("granted", "workflow", "shared") or share not in ("conversation", "nothing"):
            raise BadInput(
                f"isolation {isolation!r}, share {share!r}",
                hint="isolation: granted, workflow or shared; share: conversation or nothing",
            )
        if most_bytes < 0:
            raise BadInput(f"a cap of {most_bytes} bytes", hint="0 or more")
        self.isolation: Isolation = isolation
        self.share: Sharing = share
        self.most_bytes = most_bytes
        self.forgotten = 0
        self._workflows = 0
        self._calls: dict[tuple[str, str, int], ToolRecord] = {}

    def begin(self) -> int:
        """The number of a new workflow, from 1."""
        self._workflows += 1
        return self._workflows

    def remember(self, workflow: int, tool: str, arguments: Json, result: str) -> ToolRecord:
        """Keep a tool call; the same call again in the same workflow replaces its result.

        Raises: BadInput for a workflow that was not begun.
        """
        if not 1 <= workflow <= self._workflows:
            raise BadInput(f"workflow {workflow} was not begun")
        record = ToolRecord(tool, canonical(arguments), workflow, result)
        key = (tool, record.arguments, workflow)
        self._calls.pop(key, None)
        self._calls[key] = record
        while self.bytes > self.most_bytes:
            self._calls.pop(next(iter(self._calls)))
            self.forgotten += 1
        return record

    @property
    def bytes(self) -> int:
        """Bytes of all calls that are kept."""
        return sum(record.bytes for record in self._calls.values())

    def before(self, workflow: int) -> tuple[ToolRecord, ...]:
        """The calls of earlier workflows that this one is shown, oldest first; never its own."""
        if self.share == "nothing":
            return ()
        return tuple(record for record in self._calls.values() if record.workflow < workflow)
