"""The arms of a memory compared on the world ``miniapps``: learning from the same runs, the same test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.sandbox import Sandbox
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_methods.memory.admission import AdmissionGuard
from refork_methods.memory.catalogue import schemas
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.roles.team import Roles
from refork_methods.memory.stream import Arm, Help, StreamReport, StreamTask, arms, serve
from refork_methods.memory.usage import demote_changed
from refork_testbed.trials.memory_miniapps import DocumentedReflector, MiniAppsAgent
from refork_testbed.worlds.miniapps.mind import Rates
from refork_testbed.worlds.miniapps.world import MiniAppsWorld


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One arm: how it did on the test, and the memory that it used (None for the arm without one)."""

    report: StreamReport
    memory: ExperienceMemory | None

    def to_json(self) -> Json:
        """Figures, tools and accounts."""
        told: Json = {"figures": self.report.to_json()}
        if self.memory is not None:
            state = self.memory.state
            told |= {
                "texts": len(state.texts()),
                "tools": [tool.name for tool in state.live_tools()],
                "accounts": state.accounts.to_json(),
            }
        return told


def compare_arms(
    names: Sequence[str],
    train: MiniAppsWorld | str,
    test: MiniAppsWorld | str | None = None,
    *,
    tasks: int = 90,
    held_out: int = 90,
    theta: int = 3,
    seed: int = 0,
    rates: Rates | None = None,
    watch: bool = True,
    progress: Progress = silent,
) -> dict[str, ArmRun]:
    """Each arm learns from the same runs of an agent without memory, then works on the test, memory frozen.

    ``test`` may be another version of the apps than ``train``: a shift. ``watch``: gated code whose functions
    are documented otherwise there is text again before the test (ours; the other arms stay as they are).

    Raises:
        BadInput: an unknown arm, or a world that is not ``miniapps``.
    """
    known = arms(theta)
    strange = [name for name in names if name not in known]
    if strange or not names:
        raise BadInput(f"there is no arm {(strange or [''])[0]!r}", hint=f"arms: {', '.join(known)}")
    train = tool_world(train)
    world = train if test is None else tool_world(test)
    rates, sandbox = rates or Rates(), Sandbox()
    learning = _shuffled(train.tasks("train", tasks, seed), seed)
    testing = world.tasks("held-out", held_out, seed)
    alone = MiniAppsAgent(train, _by_id(learning), _no_plans, rates, sandbox, seed)
    recorded = {task.id: alone.work(_stream(task), Help()) for task in learning}
    found: dict[str, ArmRun] = {}
    for name in names:
        arm = known[name]
        memory = _memory(arm, train, learning) if arm.remembers else None
        if memory is not None:
            guard = AdmissionGuard(schemas(train), sandbox)
            serve(
                alone, [_stream(task) for task in learning], arm, memory,
                guard=guard, recorded=recorded, learn=True, progress=progress,
            )  # fmt: skip
            if watch and arm.gate is not None and not arm.gate.eager:
                demote_changed(memory, schemas(world))
        agent = MiniAppsAgent(world, _by_id(testing), _plans(memory), rates, sandbox, seed)
        report = serve(agent, [_stream(task) for task in testing], arm, memory, progress=progress)
        found[name] = ArmRun(report, memory)
    return found


def tool_world(spec: MiniAppsWorld | str) -> MiniAppsWorld:
    """The world of a specification, or itself. Raises BadInput where it is not ``miniapps``."""
    world = open_world(spec) if isinstance(spec, str) else spec
    if not isinstance(world, MiniAppsWorld):
        raise BadInput(f"{spec!r} has no tools to give an agent", hint="miniapps, with its options")
    return world


def _memory(arm: Arm, world: MiniAppsWorld, tasks: Sequence[Task]) -> ExperienceMemory:
    roles = Roles(reflector=DocumentedReflector(world, tasks[0].prompt))
    return ExperienceMemory(roles=roles, gate=arm.gate)


def _stream(task: Task) -> StreamTask:
    return StreamTask(task.id, str(task.data["query"]), str(task.data["scenario"]))


def _by_id(tasks: Sequence[Task]) -> dict[str, Task]:
    return {task.id: task for task in tasks}


def _shuffled(tasks: Sequence[Task], seed: int) -> list[Task]:
    """The tasks in a random order: instances of one scenario do not come in a row."""
    return [tasks[place] for place in np.random.default_rng(seed).permutation(len(tasks))]


def _no_plans(name: str) -> MemoryItem:
    raise BadInput(f"there is no plan {name!r}")


@final
class _Plans:
    """The plan of a tool, by its id."""

    def __init__(self, memory: ExperienceMemory) -> None:
        self._memory = memory

    def __call__(self, name: str) -> MemoryItem:
        return self._memory.state.items[name]


def _plans(memory: ExperienceMemory | None) -> _Plans:
    return _Plans(memory or ExperienceMemory())
