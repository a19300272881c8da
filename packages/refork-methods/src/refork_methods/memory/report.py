"""What a memory holds, for people and programs: overview, gate, exports."""

from __future__ import annotations

from pathlib import Path

from refork.errors import BadInput
from refork.plain import to_json
from refork.types import Json
from refork_methods.memory.gate import Recurrence
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
        "uses": [to_json(use) for use in ledger(state)],
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
