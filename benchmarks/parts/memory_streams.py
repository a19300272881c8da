"""The arms on the world ``miniapps``: one experience, five memories of it, a repeated and a shifted test."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parts.memory_accounts import CountedAgent, CountedCodifier, CountedManager, CountedReflector
from refork.sampling.noise import NoiseKey
from refork.sandbox import Sandbox
from refork.worlds.base import Task
from refork_methods.memory.admission import AdmissionGuard
from refork_methods.memory.catalogue import schemas
from refork_methods.memory.gate import zipf
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.roles.team import Roles
from refork_methods.memory.stream import Arm, Help, Row, StreamReport, StreamTask, arms, serve
from refork_methods.memory.usage import demote_changed
from refork_testbed.trials.memory_arms import DocumentedReflector, MiniAppsAgent
from refork_testbed.worlds.miniapps.agents import expert, play
from refork_testbed.worlds.miniapps.mind import Rates
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.world import MiniAppsWorld

THETA = 3
ARMS = ("none", "text", "code", "eager", "metis")
#: One convention changes in a shifted stream; seeds take turns.
SHIFTS = ("pages", "cents", "ids")


@dataclass(frozen=True)
class Tested:
    """One arm on one stream: its rows, mean words of execution and of selection a task."""

    rows: tuple[Row, ...]
    execution: float
    selection: float

    @property
    def tgc(self) -> float:
        """Share of tasks done."""
        return sum(row.success for row in self.rows) / len(self.rows)

    @property
    def sgc(self) -> float:
        """Share of scenarios of which all three instances were done."""
        return StreamReport("", self.rows).families or 0.0

    @property
    def steps(self) -> float:
        """Mean turns of a task."""
        return sum(row.steps for row in self.rows) / len(self.rows)

    @property
    def called(self) -> set[str]:
        """Tools that a task called."""
        return {name for row in self.rows for name in row.called}


@dataclass(frozen=True)
class Learned:
    """What an arm had learned: words of reflection and of code, tools, texts."""

    reflection: int
    code: int
    tools: int
    texts: int


@dataclass(frozen=True)
class Comparison:
    """One seed: every arm learned from the same runs, and was tested twice with its memory frozen.

    ``unwatched`` is the gated arm on the shifted stream without demotion, as published. ``touched`` are the
    shifted tasks whose right way calls a function that changed, ``few`` the repeated ones whose kind came too
    seldom in the experience for the gate to open: one task makes the plan, THETA more select it.
    """

    seed: int
    shift: str
    learned: Mapping[str, Learned]
    repeated: Mapping[str, Tested]
    shifted: Mapping[str, Tested]
    unwatched: Tested
    touched: frozenset[str]
    few: frozenset[str]


def compare(seed: int, tasks: int) -> Comparison:
    """All arms of one seed."""
    shift = SHIFTS[seed % len(SHIFTS)]
    train = MiniAppsWorld(templates="seen")
    moved = MiniAppsWorld("new", Shift.parse(shift), f"shift={shift}")
    with Sandbox() as sandbox:
        memories = _learn(train, tasks, seed, sandbox)
        repeated = {name: _test(name, one, train, tasks, seed, sandbox) for name, one in memories.items()}
        learned = {name: _learned(one) for name, one in memories.items() if one is not None}
        unwatched = _test("metis", memories["metis"], moved, tasks, seed, sandbox)
        gated = memories["metis"]
        if gated is not None:
            demote_changed(gated, schemas(moved))
        shifted = {name: _test(name, one, moved, tasks, seed, sandbox) for name, one in memories.items()}
    touched = _touched(train, moved, moved.tasks("held-out", tasks, seed))
    return Comparison(seed, shift, learned, repeated, shifted, unwatched, touched, _few(train, tasks, seed))


def _few(world: MiniAppsWorld, count: int, seed: int) -> frozenset[str]:
    seen = Counter(str(task.data["template"]) for task in world.tasks("train", count, seed))
    held = world.tasks("held-out", count, seed)
    return frozenset(task.id for task in held if seen[str(task.data["template"])] <= THETA)


def _touched(before: MiniAppsWorld, now: MiniAppsWorld, tasks: Sequence[Task]) -> frozenset[str]:
    """Tasks of which an agent that makes no mistake calls a function that is documented otherwise now."""
    was = schemas(before)
    changed = {name for name, told in schemas(now).items() if told != was.get(name)}
    found = set()
    for task in tasks:
        episode = now.start(task, 0)
        run = play(expert(task.prompt), episode, NoiseKey(0, 0, 0))
        episode.close()
        if run.reward != 1.0:
            raise RuntimeError(f"the expert failed at {task.data['query']!r}")
        if changed & {str(call["function"]) for turn in run.turns for call in turn.calls}:
            found.add(task.id)
    return frozenset(found)


def _learn(
    world: MiniAppsWorld, count: int, seed: int, sandbox: Sandbox
) -> dict[str, ExperienceMemory | None]:
    """Runs of an agent without memory, recorded once; each arm reads them in the same order."""
    drawn = world.tasks("train", count, seed)
    tasks = [drawn[place] for place in np.random.default_rng(seed).permutation(len(drawn))]
    alone = MiniAppsAgent(world, {task.id: task for task in tasks}, _none, Rates(), sandbox, seed)
    recorded = {task.id: alone.work(_stream(task), Help()) for task in tasks}
    found: dict[str, ExperienceMemory | None] = {}
    for name in ARMS:
        arm = arms(THETA)[name]
        if not arm.remembers:
            found[name] = None
            continue
        memory = found[name] = _memory(arm, world, tasks)
        guard = AdmissionGuard(schemas(world), sandbox)
        stream = [_stream(task) for task in tasks]
        serve(alone, stream, arm, memory, guard=guard, recorded=recorded, learn=True)
    return found


def _memory(arm: Arm, world: MiniAppsWorld, tasks: Sequence[Task]) -> ExperienceMemory:
    reflector = CountedReflector(DocumentedReflector(world, tasks[0].prompt))
    roles = Roles(reflector=reflector, manager=CountedManager(), codifier=CountedCodifier())
    return ExperienceMemory(roles=roles, gate=arm.gate)


def _learned(memory: ExperienceMemory) -> Learned:
    """The build account in two parts, from the log."""
    spent = {"reflect": 0, "codify": 0}
    for entry in memory.log:
        if entry.kind in spent:
            cost = entry.body["cost"]
            spent[entry.kind] += cost["tokens_in"] + cost["tokens_out"]
    state = memory.state
    if state.accounts.build.tokens != sum(spent.values()):
        raise RuntimeError("the build account is not the sum of the log")
    return Learned(spent["reflect"], spent["codify"], len(state.live_tools()), len(state.texts()))


def _test(
    name: str, memory: ExperienceMemory | None, world: MiniAppsWorld, count: int, seed: int, sandbox: Sandbox
) -> Tested:
    """The arm on held-out tasks; nothing is learned."""
    tasks = {task.id: task for task in world.tasks("held-out", count, seed)}
    inner = MiniAppsAgent(world, tasks, _Plans(memory), Rates(), sandbox, seed)
    agent = CountedAgent(inner, {task.id: task.prompt for task in tasks.values()})
    before = 0.0 if memory is None else memory.state.accounts.selection.tokens or 0.0
    report = serve(agent, [_stream(task) for task in tasks.values()], arms(THETA)[name], memory)
    after = 0.0 if memory is None else memory.state.accounts.selection.tokens or 0.0
    return Tested(report.rows, sum(agent.costs) / count, (after - before) / count)


class _Plans:
    """The plan of a tool."""

    def __init__(self, memory: ExperienceMemory | None) -> None:
        self._memory = memory

    def __call__(self, name: str) -> MemoryItem:
        if self._memory is None:
            return _none(name)
        return self._memory.state.items[name]


def _none(name: str) -> MemoryItem:
    raise RuntimeError(f"there is no plan {name!r}")


def _stream(task: Task) -> StreamTask:
    return StreamTask(task.id, str(task.data["query"]), str(task.data["scenario"]))


def live(theta: int, tasks: int, seed: int) -> tuple[int, int]:
    """A stream in which templates recur by Zipf's law, the agent with its tools: built, never invoked."""
    world = MiniAppsWorld(templates="seen")
    rng = np.random.default_rng(seed)
    names = rng.permutation(sorted({str(t.data["template"]) for t in world.tasks("train", 60, seed)}))
    drawn = [str(names[f]) for f in rng.choice(len(names), size=tasks, p=zipf(len(names)))]
    rounds = -(-max(Counter(drawn).values()) // 3)
    stock: dict[str, list[Task]] = {name: [] for name in names}
    for task in world.tasks("train", 60 * rounds, seed):
        stock[str(task.data["template"])].append(task)
    row = [stock[name].pop() for name in drawn]
    arm = arms(theta)["metis"] if theta else arms()["eager"]
    with Sandbox() as sandbox:
        roles = Roles(reflector=DocumentedReflector(world, row[0].prompt))
        memory = ExperienceMemory(roles=roles, gate=arm.gate)
        agent = MiniAppsAgent(world, {t.id: t for t in row}, _Plans(memory), Rates(), sandbox, seed)
        guard = AdmissionGuard(schemas(world), sandbox)
        report = serve(agent, [_stream(t) for t in row], arm, memory, guard=guard, learn=True)
    built = {tool.name for tool in memory.state.live_tools()}
    return len(built), len(built - {name for one in report.rows for name in one.called})


def one_thread() -> None:
    """What a worker process starts with."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
