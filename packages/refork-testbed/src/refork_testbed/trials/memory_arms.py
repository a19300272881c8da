"""The arms of a memory compared on the world ``miniapps``: learning from the same runs, the same test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.policies.base import Cost
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.sandbox import Sandbox, SandboxResult
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_methods.memory.admission import AdmissionGuard
from refork_methods.memory.catalogue import schemas
from refork_methods.memory.grammar import read_turn
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.queries import best_match
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.roles.by_rule import RuleReflector
from refork_methods.memory.roles.lesson import Lesson, Reflection
from refork_methods.memory.roles.team import Roles
from refork_methods.memory.skeleton import Slot, slots_of
from refork_methods.memory.stream import Arm, Help, Outcome, StreamReport, StreamTask, arms, serve
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunStep, RunTrajectory
from refork_methods.memory.usage import demote_changed
from refork_testbed.worlds.miniapps.advice import Text, documented, statement
from refork_testbed.worlds.miniapps.agents import Agent, Run, play
from refork_testbed.worlds.miniapps.mind import Rates
from refork_testbed.worlds.miniapps.service import PASSWORDS, is_refused
from refork_testbed.worlds.miniapps.world import Caller, MiniAppsWorld

# The memory on the world ``miniapps``: its scripted agent in a stream, our items and tools as its own.
#
# In these apps a refused call is an answer; inside a tool it is raised, as the usual clients of services do.


def trajectory_of(task: Task, run: Run) -> RunTrajectory:
    """A run of the scripted agent as the memory reads it. Looks and calls as they were, notes left out."""
    steps: list[RunStep] = []
    for number, turn in enumerate(run.turns, 1):
        act = read_turn(turn.output)
        name = f"s{number}"
        if act.kind == "done":
            answer = {} if act.answer is None else {"answer": act.answer}
            steps.append(RunStep(name, turn.output, arguments=answer))
            continue
        if act.kind == "unreadable":
            steps.append(RunStep(name, turn.output, observation=turn.observation, failed=True))
            continue
        result = json.loads(turn.observation)
        function = f"tools.{act.name}" if act.kind == "tool" else act.name
        steps.append(
            RunStep(name, "", function, dict(act.arguments), result, turn.observation, is_refused(result))
        )
    context = task.prompt.replace(run.query, "")
    cost = Cost(tokens_in=None, tokens_out=None)
    return RunTrajectory(task.id, run.query, tuple(steps), run.reward == 1.0, cost, context)


@final
@dataclass(frozen=True)
class BoundTool:
    """One of our tools as the scripted agent takes it: it knows the requests that it is made for."""

    tool: Tool
    query: str
    slots: tuple[Slot, ...]
    registry: ToolRegistry
    sandbox: Sandbox

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def doc(self) -> str:
        """The tool's line."""
        return self.tool.doc

    @property
    def parameters(self) -> Json:
        """The tool's keywords."""
        return self.tool.parameters

    @property
    def digest(self) -> str:
        """What it is made of."""
        return self.tool.digest

    def bind(self, sentence: str) -> Mapping[str, Any] | None:
        """Its arguments for a request; None where it is not made for it."""
        found = best_match(self.query, sentence, self.slots)
        if not found.fits or found.stray:
            return None
        wanted = self.tool.parameters["properties"]
        try:
            return {name: _typed(text, wanted[name]["type"]) for name, text in found.bound if name in wanted}
        except ValueError:
            return None

    def run(self, arguments: Mapping[str, Any], call: Caller) -> Any:
        """Run it in the sandbox. Raises CannotDo where it gives no value."""

        def answered(name: str, keywords: Json) -> Any:
            found = call(name, keywords)
            if is_refused(found):
                raise CannotDo(f"{name} was refused: {found.get('message')}")
            return found

        result: SandboxResult = invoke(
            self.registry, self.sandbox, self.tool.name, arguments, answered, secrets=_password
        )
        if not result.ok:
            raise CannotDo(f"{result.kind}: {result.error}")
        return result.value


def _password(name: str) -> str | None:
    """What the prompt says of the secret "app.password"."""
    app, _, key = name.partition(".")
    return PASSWORDS.get(app) if key == "password" else None


def _typed(text: str, kind: str) -> Any:
    if kind == "integer":
        return int(text)
    return float(text) if kind == "number" else text


@final
@dataclass(frozen=True)
class MiniAppsAgent:
    """The scripted agent on one version of the apps. ``plans`` gives the plan that a tool was made from."""

    world: MiniAppsWorld
    tasks: Mapping[str, Task]
    plans: Callable[[str], MemoryItem]
    rates: Rates = field(default_factory=Rates)
    sandbox: Sandbox = field(default_factory=Sandbox)
    seed: int = 0
    name: str = "miniapps-scripted"

    def work(self, task: StreamTask, given: Help) -> Outcome:
        """One run; its noise is a function of the seed and the task, so arms are paired."""
        own = self.tasks[task.id]
        registry = ToolRegistry(given.tools)
        bound = tuple(self._bound(tool, registry) for tool in given.tools)
        texts = tuple(Text(item.kind, item.body) for item in given.texts)
        episode = self.world.with_tools(bound).start(own, 0)
        try:
            session = Agent(self.rates, texts, bound).open(own.prompt)
            run = play(session, episode, NoiseKey(self.seed, stream_of("memory", task.id), 0))
        finally:
            episode.close()
        read = trajectory_of(own, run)
        called = tuple(
            s.function.removeprefix("tools.") for s in read.steps if s.function.startswith("tools.")
        )
        failed = sum(step.failed for step in read.steps)
        return Outcome(read, run.reward == 1.0, run.steps, tuple(dict.fromkeys(called)), failed)

    def _bound(self, tool: Tool, registry: ToolRegistry) -> BoundTool:
        plan = self.plans(tool.plan)
        return BoundTool(tool, plan.query, slots_of(plan.skeleton), registry, self.sandbox)


@final
class DocumentedReflector:
    """The reflector by rule, and a fact for every convention that a run met: what the documentation says.

    ``facts`` is what the documentation of the version states (topic -> value).
    """

    name = "rule+documentation"

    def __init__(self, world: MiniAppsWorld, prompt: str) -> None:
        reads = {one.name for one in world.catalogue() if one.read_only}
        self._rule = RuleReflector(lambda name: name in reads or name.endswith(".login"))
        self._facts = documented(prompt)

    def reflect(self, run: RunTrajectory, given: Sequence[MemoryItem]) -> Reflection:
        """Lessons of a run."""
        found = self._rule.reflect(run, given)
        met = [(topic, step.id) for step in run.steps for topic in _topics(step)]
        # Reversed: of several steps that met a topic the first is the one that stays.
        first = dict(reversed(met))
        facts = [
            Lesson("fact", statement(topic, self._facts[topic]), (step,)) for topic, step in first.items()
        ]
        return Reflection((*found.lessons, *facts), found.cost)


def _topics(step: RunStep) -> tuple[str, ...]:
    """The conventions that a call meets."""
    met: list[str] = []
    if isinstance(step.result, Mapping) and "last_page" in step.result:
        met += ["paging", "first-page"]
    keys = set(step.arguments)
    met += ["zone"] if step.function.startswith("calendar.") and keys & {"zone", "time"} else []
    met += ["unit"] if "amount" in keys else []
    met += ["playlist"] if "playlist" in keys else []
    met += ["id"] if "user_id" in keys else []
    met += ["person"] if step.function == "pay.find_people" else []
    return tuple(met)


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
    empty = ExperienceMemory().state.items
    alone = MiniAppsAgent(train, _by_id(learning), empty.__getitem__, rates, sandbox, seed)
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
        plans = empty if memory is None else memory.state.items  # frozen from here on
        agent = MiniAppsAgent(world, _by_id(testing), plans.__getitem__, rates, sandbox, seed)
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
