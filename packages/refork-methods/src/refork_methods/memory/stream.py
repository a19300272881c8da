"""Streams of tasks with and without a memory: one agent, five arms, learning from the same runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from refork.errors import BadInput
from refork.plain import to_json
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.memory.admission import Guard
from refork_methods.memory.gate import RecurrenceGate
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import ExperienceMemory, Selection, codify_due
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunTrajectory
from refork_methods.memory.usage import demote_failing

# The agent seam of a stream: somebody who works on a task with the texts and tools that a memory gives.


@dataclass(frozen=True, slots=True)
class Help:
    """What an agent is given beside the task: texts to read, tools to call."""

    texts: tuple[MemoryItem, ...] = ()
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One task of a stream: its id (unique in the stream), its query, and the family it is an instance of."""

    id: str
    query: str
    family: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run and how it was graded; ``called`` are names of the tools that it invoked."""

    run: RunTrajectory
    success: bool
    steps: int
    called: tuple[str, ...] = ()
    failed_calls: int = 0
    notes: tuple[str, ...] = field(default=())


@runtime_checkable
class StreamAgent(Protocol):
    """Works on tasks."""

    @property
    def name(self) -> str:
        """Who acts, for the record."""
        ...

    def work(self, task: StreamTask, given: Help) -> Outcome:
        """One run of the task; the same task and help give the same outcome."""
        ...


# Source: the arms are those that arXiv:2606.24151 compares; the runner is ours, over any agent that takes
# texts and tools.


@dataclass(frozen=True, slots=True)
class Arm:
    """What an agent is given: texts, tools, and when code is made (None: never)."""

    name: str
    texts: bool
    tools: bool
    gate: RecurrenceGate | None

    @property
    def remembers(self) -> bool:
        """Whether there is a memory at all."""
        return self.texts or self.tools


def arms(theta: int = 3) -> dict[str, Arm]:
    """none, text only, code only (made at once), eager (both, code at once) and metis (both, gated)."""
    eager = RecurrenceGate.at_once()
    found = (
        Arm("none", False, False, None),
        Arm("text", True, False, None),
        Arm("code", False, True, eager),
        Arm("eager", True, True, eager),
        Arm("metis", True, True, RecurrenceGate(theta)),
    )
    return {arm.name: arm for arm in found}


@dataclass(frozen=True, slots=True)
class Row:
    """One task of one arm."""

    task: str
    family: str
    success: bool
    steps: int
    texts: int
    tools: int
    called: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What an arm did on a stream."""

    arm: str
    rows: tuple[Row, ...]

    @property
    def completed(self) -> float | None:
        """Share of tasks done (TGC); None without tasks."""
        return sum(row.success for row in self.rows) / len(self.rows) if self.rows else None

    @property
    def families(self) -> float | None:
        """Share of families of which every task was done (SGC); None without tasks."""
        done: dict[str, bool] = {}
        for row in self.rows:
            done[row.family] = done.get(row.family, True) and row.success
        return sum(done.values()) / len(done) if done else None

    @property
    def steps(self) -> float | None:
        """Mean turns of a task; None without tasks."""
        return sum(row.steps for row in self.rows) / len(self.rows) if self.rows else None

    def to_json(self) -> Json:
        """The figures and the rows."""
        return {
            "arm": self.arm, "tasks": len(self.rows), "completed": self.completed,
            "families_completed": self.families, "steps": self.steps,
            "rows": [to_json(row) for row in self.rows],
        }  # fmt: skip


def serve(
    agent: StreamAgent,
    tasks: Sequence[StreamTask],
    arm: Arm,
    memory: ExperienceMemory | None = None,
    *,
    guard: Guard | None = None,
    recorded: Mapping[str, Outcome] | None = None,
    learn: bool = False,
    demote: float | None = None,
    progress: Progress = silent,
) -> StreamReport:
    """Run the tasks in order, each with what the memory chooses for it.

    ``learn``: after each task the memory reflects, and codes what is due through ``guard``. ``recorded``:
    outcomes that take the place of running the agent, so that all arms learn from the same runs. ``demote``:
    level of the test that makes failing code text again; looked at after every task, so it errs more often.

    Raises:
        BadInput: two tasks of one id, an arm that needs a memory or a guard and has none.
    """
    _check(tasks, arm, memory, guard, learn)
    rows: list[Row] = []
    for place, task in enumerate(tasks):
        progress(f"arm {arm.name}", place, len(tasks))
        chosen = _chosen(memory, task, arm) if memory is not None and arm.remembers else Selection(task.query)
        given = Help(chosen.items, chosen.tools)
        outcome = recorded[task.id] if recorded is not None else agent.work(task, given)
        # A recorded outcome is shared by all arms, and may have called what this arm does not give.
        called = tuple(name for name in outcome.called if name in {tool.name for tool in chosen.tools})
        if memory is not None and arm.remembers:
            memory.observe(
                task.id,
                chosen,
                called=called,
                success=outcome.success,
                steps=outcome.steps,
                cost=outcome.run.cost,
            )
            if demote is not None:
                demote_failing(memory, demote)
            if learn:
                memory.reflect(outcome.run)
                if arm.gate is not None and guard is not None:
                    codify_due(memory, guard)
        rows.append(
            Row(
                task.id,
                task.family,
                outcome.success,
                outcome.steps,
                len(given.texts),
                len(given.tools),
                called,
            )
        )
    progress(f"arm {arm.name}", len(tasks), len(tasks))
    return StreamReport(arm.name, tuple(rows))


def _check(
    tasks: Sequence[StreamTask], arm: Arm, memory: ExperienceMemory | None, guard: Guard | None, learn: bool
) -> None:
    names = [task.id for task in tasks]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"two tasks have the id {twice!r}")
    if arm.remembers and memory is None:
        raise BadInput(f"the arm {arm.name!r} needs a memory")
    if learn and arm.gate is not None and guard is None:
        raise BadInput(f"the arm {arm.name!r} makes code, so it needs a guard")
    if memory is not None and arm.gate is not None and memory.gate != arm.gate:
        raise BadInput(f"the memory's gate is not that of the arm {arm.name!r}", hint="open it with arm.gate")


def _chosen(memory: ExperienceMemory, task: StreamTask, arm: Arm) -> Selection:
    """What the arm lets through of the memory's choice."""
    found = memory.select(task.query, task=task.id)
    items = [item.id for item in found.items] if arm.texts else []
    tools = [tool.name for tool in found.tools] if arm.tools else []
    return memory.selection(task.query, items, tools)
