"""Plans that are due become tools: codifier, guard, and what the log says of it."""

from __future__ import annotations

from dataclasses import dataclass

from refork.errors import ServerError
from refork.policies.base import Cost
from refork.types import Json
from refork_methods.memory.codifier import codifier_input
from refork_methods.memory.gate import Recurrence
from refork_methods.memory.guard import Guard
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.tool import Tool

NOTHING = Cost(tokens_in=0, tokens_out=0, seconds=0.0)


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a plan that was due: the tools admitted, or why there is none.

    ``failed``: a model gave no usable reply, so nothing was recorded and the plan stays due.
    """

    plan: str
    tasks: tuple[str, ...]
    tools: tuple[Tool, ...] = ()
    reasons: tuple[str, ...] = ()
    failed: bool = False

    def to_json(self) -> Json:
        """Plan, tasks, tools whole, reasons."""
        return {
            "plan": self.plan,
            "tasks": list(self.tasks),
            "tools": [tool.to_json() for tool in self.tools],
            "reasons": list(self.reasons),
            "failed": self.failed,
        }


def codify_due(memory: ExperienceMemory, guard: Guard) -> list[Built]:
    """Make code of every plan that is due, and empty its buffer into its history.

    Rulings are written before the buffer is emptied: a crash between leaves the plan due or done, never lost.
    """
    return [_built(memory, plan, gathered, guard) for plan, gathered in memory.due()]


def _built(memory: ExperienceMemory, plan: MemoryItem, gathered: Recurrence, guard: Guard) -> Built:
    began = memory.clock()
    given = codifier_input(
        plan,
        gathered.queries,
        gathered.history,
        support=1 if memory.gate.eager else 2,
        taken=tuple(memory.state.tools),
    )
    codifier = memory.roles.codifier
    try:
        found = codifier.codify(given)
    except ServerError as error:
        return Built(plan.id, gathered.tasks, reasons=(str(error),), failed=True)
    spent = memory.spent(began, found.cost)
    admitted: list[Tool] = []
    reasons = [found.refused] if found.refused else []
    for tool in found.tools:
        entered, reason = _ruled(memory, tool, guard)
        admitted += [entered] if entered is not None else []
        reasons += [reason] if entered is None else []
    memory.record(
        "codify",
        {
            "plan": plan.id,
            "tasks": list(gathered.tasks),
            "queries": list(gathered.queries),
            "history": list(gathered.history),
            "by": codifier.name,
            "tools": [tool.name for tool in admitted],
            "refused": "" if admitted else "; ".join(reasons),
            "cost": spent,
        },
    )
    return Built(plan.id, gathered.tasks, tuple(admitted), tuple(reasons))


def _ruled(memory: ExperienceMemory, tool: Tool, guard: Guard) -> tuple[Tool | None, str]:
    """The tool as it entered, or None and why not."""
    ruling = guard.admit(tool, memory.state.live_tools())
    told = {"repaired": ruling.repaired, "cost": (ruling.cost if ruling.repaired else NOTHING).to_json()}
    if ruling.admitted:
        digests = guard.fingerprints(ruling.tool)
        memory.record("admit", {"tool": ruling.tool.to_json(), "functions": digests, **told})
        return ruling.tool, ""
    memory.record("reject", {"tool": ruling.tool.to_json(), "reason": ruling.reason, **told})
    return None, f"{tool.name}: {ruling.reason}"
