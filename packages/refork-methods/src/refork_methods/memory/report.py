"""What a memory holds, for people and programs: overview, gate, exports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from refork.errors import BadInput
from refork.types import Json
from refork_methods.memory.gate import Recurrence, expected_tools
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.state import MemoryState
from refork_methods.memory.usage import ledger


def overview(state: MemoryState) -> Json:
    """Valid items, live tools, the ledger and the three accounts."""
    return {
        "events": state.events,
        "items": [item.to_json() for item in state.texts()],
        "tools": [
            {"name": t.name, "doc": t.doc, "plan": t.plan, "needs": list(t.needs)} for t in state.live_tools()
        ],
        "demoted": dict(state.demoted),
        "uses": [use.to_json() for use in ledger(state)],
        "accounts": state.accounts.to_json(),
    }


def gate_rows(memory: ExperienceMemory) -> Json:
    """Every valid plan with its distinct tasks since the last build, whether it is due, and its tool."""
    due = {plan.id for plan, _ in memory.due()}
    tools = {tool.plan: tool.name for tool in memory.state.live_tools()}
    rows = []
    for plan in memory.state.texts("plan"):
        gathered = memory.state.recurrence.get(plan.id, Recurrence())
        rows.append(
            {
                "plan": plan.id,
                "title": plan.body.splitlines()[0],
                "tasks": len(gathered.tasks),
                "due": plan.id in due,
                "tool": tools.get(plan.id),
                "refused": memory.state.refused.get(plan.id) or None,
            }
        )
    return {"theta": memory.gate.theta, "plans": rows}


@dataclass(frozen=True, slots=True)
class ThetaRow:
    """What one theta would have built on a log: tools, and those that no later task of the log would meet.

    ``met`` tasks would have met code; ``expected`` tools is the closed form for random tasks of these shares.
    """

    theta: int
    tools: int
    never_called: int
    met: int
    expected: float

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "theta": self.theta, "tools": self.tools, "never_called": self.never_called, "met": self.met,
            "expected": self.expected,
        }  # fmt: skip


def theta_rows(state: MemoryState, most: int = 8) -> list[ThetaRow]:
    """Every theta from 0 to ``most`` on the memory's own plans and the tasks that selected them.

    Every plan counts as codable. Raises BadInput where there is no plan.
    """
    if not (plans := state.texts("plan")):
        raise BadInput("the memory has no plan", hint="read runs first: refork memory ingest")
    counts = np.array([len(state.recurrence.get(plan.id, Recurrence()).counted) for plan in plans])
    tasks = int((counts + 1).sum())  # the task that a plan was made from is one more
    shares = (counts + 1) / tasks
    return [
        ThetaRow(
            theta,
            int((counts >= theta).sum()),
            int((counts == theta).sum()),
            int(np.maximum(0, counts - theta).sum()),
            expected_tools(tasks, shares, theta),
        )
        for theta in range(most + 1)
    ]


def export(
    state: MemoryState,
    folder: Path,
    kind: str,
    *,
    name: str | None = None,
    call: str | None = None,
    allow_secrets: bool = False,
) -> list[Path]:
    """Write the live tools (as skills the valid texts too) as "package", "skills" or "mcp"; the files.

    Raises:
        BadInput: another kind, nothing to export, or a folder that is not empty.
        CannotDo: something looks like a secret, unless ``allow_secrets``.
    """
    from refork_methods.memory.export import export_mcp, export_package, export_skills

    registry = ToolRegistry(state.live_tools())
    if kind == "package":
        return export_package(registry, folder, name=name or "memory_tools", allow_secrets=allow_secrets)
    if kind == "skills":
        return export_skills(registry, folder, items=state.texts(), allow_secrets=allow_secrets)
    if kind == "mcp":
        return export_mcp(
            registry, folder, call=call, name=name or "memory-tools", allow_secrets=allow_secrets
        )
    raise BadInput(f"{kind!r} is no kind of export", hint="package, skills or mcp")
