"""Run a plan: every step asks its worker, in order, with exactly the context that the plan grants."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, final

from refork.chat import Reply
from refork.errors import BadInput, UserError
from refork.policies.base import Cost, total_cost
from refork.types import Json, Message
from refork_methods.route.conduct.plan import MOST_STEPS, Plan
from refork_methods.route.pool import Bill, WorkerPool

# What a worker of a workflow is shown, and what a conversation remembers from one workflow to the next.
#
# Inside a workflow a worker sees its own earlier steps and what the plan grants it, nothing else; otherwise
# the first worker's path steers all others. Across the workflows of one conversation, tool calls are shared.
#
# Source: arXiv:2606.21228, isolation inside a workflow and shared tool history across them; keys, order
# and the byte cap are ours, since none are stated.

#: ``granted``: the access list alone. ``workflow``: that and the worker's own steps. ``shared``: every step.
Isolation: TypeAlias = Literal["granted", "workflow", "shared"]
Sharing: TypeAlias = Literal["conversation", "nothing"]
#: Bytes of tool calls that a conversation keeps.
MOST_BYTES = 64_000


@dataclass(frozen=True, slots=True)
class EarlierStep:
    """An earlier step as it is shown: its number, subtask and output."""

    step: int
    subtask: str
    output: str


def visible(
    plan: Plan, step: int, outputs: Mapping[int, str], isolation: Isolation = "granted"
) -> tuple[EarlierStep, ...]:
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
    return tuple(EarlierStep(s, plan.subtasks[s - 1], outputs[s]) for s in steps if s in outputs)


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
        # Taken out first, so that a call made again counts as the newest when the oldest are forgotten.
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


# Run a plan: every step asks its worker, in order, with exactly the context that the plan grants.

#: Rounds of tool calls that one step may take.
MOST_ROUNDS = 8
#: Replies by (worker, context, draw): a call that was made is not paid for again.
ReplyCache = dict[tuple[str, str, int], Reply]


@final
@dataclass(frozen=True, slots=True)
class Tool:
    """A function that workers may call: its name, JSON schema of its arguments, and what it does."""

    name: str
    run: Callable[[Json], str] = field(repr=False)
    parameters: Json = field(default_factory=lambda: {"type": "object"})
    description: str = ""

    @property
    def schema(self) -> Json:
        """As an OpenAI function schema."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": about}


@dataclass(frozen=True, slots=True)
class StepRun:
    """One step as it ran. ``output`` None: it failed, and ``error`` says how.

    ``earlier_steps`` are the earlier steps in its context, ``messages`` the whole context as it was sent
    first.
    ``calls`` counts answers of workers, tool rounds and those of a workflow inside included; ``prices`` has
    the money of each answer of this step's worker. ``inside`` is the workflow of a conductor that the step
    asked.
    """

    step: int
    worker: str
    subtask: str
    earlier_steps: tuple[EarlierStep, ...]
    messages: tuple[Message, ...]
    output: str | None
    error: str | None = None
    calls: int = 0
    cost: Cost = field(default_factory=Cost)
    prices: tuple[float | None, ...] = ()
    tools: tuple[ToolRecord, ...] = ()
    inside: Json | None = None

    def to_json(self) -> Json:
        """Plain fields; the context as the numbers of the steps shown."""
        return {
            "step": self.step,
            "worker": self.worker,
            "subtask": self.subtask,
            "shown": [one.step for one in self.earlier_steps],
            "output": self.output,
            "error": self.error,
            "calls": self.calls,
            "cost": self.cost.to_json(),
            "tools": [record.to_json() for record in self.tools],
            **({} if self.inside is None else {"inside": self.inside}),
        }


@final
@dataclass(frozen=True, slots=True)
class Execution:
    """A plan that ran: its steps, and the answer, which is the last step's output (None: it failed)."""

    plan: Plan
    steps: tuple[StepRun, ...]

    @property
    def answer(self) -> str | None:
        """The last step's output."""
        return self.steps[-1].output

    @property
    def errors(self) -> tuple[StepRun, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.output is None)

    @property
    def calls(self) -> int:
        """Answers that workers gave."""
        return sum(step.calls for step in self.steps)

    @property
    def bill(self) -> Bill:
        """What the calls cost in money, the unknown ones counted."""
        return Bill.of(price for step in self.steps for price in step.prices)

    @property
    def cost(self) -> Cost:
        """Tokens and seconds of all calls; None where any is unknown."""
        return total_cost([step.cost for step in self.steps if step.calls])

    def to_json(self) -> Json:
        """The workflow with what became of it."""
        bill = self.bill
        return {
            "workflow": self.plan.to_json(),
            "answer": self.answer,
            "steps": [step.to_json() for step in self.steps],
            "calls": self.calls,
            "cost": self.cost.to_json(),
            "money": bill.total,
            "unpriced_calls": bill.unknown,
        }


def execute(
    plan: Plan,
    pool: WorkerPool,
    *,
    memory: OrchestrationMemory | None = None,
    tools: Sequence[Tool] = (),
    draw: int = 0,
    most: int = MOST_STEPS,
    cache: ReplyCache | None = None,
    uncached: frozenset[str] = frozenset(),
) -> Execution:
    """Run the steps of a plan in order.

    Without ``memory`` a step's context is exactly what its access list grants. What is shown stands as
    turns before the subtask: each earlier subtask as the user's, its output as the assistant's. A step that
    sees a failed one is not run; a failure ends nothing else. ``draw`` numbers repeated runs; each step has a
    draw of its own, so a worker asked twice is not bound to its first answer. Whatever a worker raises is its
    step's failure. ``cache`` remembers replies of
    all workers but those ``uncached``.

    Raises:
        BadInput: the plan cannot run with this pool, or two tools have one name.

    Source: arXiv:2512.04388 (steps, access, last output); context as turns is ours.
    """
    plan.validate(pool, most)
    named = {tool.name: tool for tool in tools}
    if len(named) < len(tools):
        raise BadInput("two tools have one name")
    workflow = memory.begin() if memory is not None else 0
    run = _Run(pool, named, memory, workflow, cache if cache is not None else {}, uncached)
    outputs: dict[int, str] = {}
    done: list[StepRun] = []
    for step in range(1, len(plan) + 1):
        made = run.step(plan, step, outputs, draw * most + step - 1)
        done.append(made)
        if made.output is not None:
            outputs[step] = made.output
    return Execution(plan, tuple(done))


def messages_for(
    subtask: str, earlier_steps: Sequence[EarlierStep], earlier: Sequence[ToolRecord] = ()
) -> list[Message]:
    """The context of a step: earlier tool calls, then what is shown as turns, then the subtask."""
    found: list[Message] = []
    if earlier:
        lines = [json.dumps(record.to_json(), ensure_ascii=False) for record in earlier]
        found.append({"role": "system", "content": "\n".join(["Earlier tool calls:", *lines])})
    for one in earlier_steps:
        found += [{"role": "user", "content": one.subtask}, {"role": "assistant", "content": one.output}]
    return [*found, {"role": "user", "content": subtask}]


@final
@dataclass(frozen=True, slots=True)
class _Run:
    pool: WorkerPool
    tools: Mapping[str, Tool]
    memory: OrchestrationMemory | None
    workflow: int
    cache: ReplyCache
    uncached: frozenset[str]

    def step(self, plan: Plan, step: int, outputs: Mapping[int, str], draw: int) -> StepRun:
        worker, subtask = plan.model_id[step - 1], plan.subtasks[step - 1]
        isolation = "granted" if self.memory is None else self.memory.isolation
        shown = visible(plan, step, outputs, isolation)
        earlier = () if self.memory is None else self.memory.before(self.workflow)
        messages = tuple(messages_for(subtask, shown, earlier))
        # A step that would miss an answer it was granted is not asked: its own would be of another question.
        failed = [other for other in plan.access_list[step - 1] if other not in outputs]
        if failed:
            error = f"needs the answer of step {failed[0]}, which failed"
            return StepRun(step, worker, subtask, shown, messages, None, error)
        return self._ask(StepRun(step, worker, subtask, shown, messages, None), draw)

    def _ask(self, bare: StepRun, draw: int) -> StepRun:
        said: list[Reply] = []
        used: list[ToolRecord] = []
        messages = list(bare.messages)
        output: str | None = None
        error: str | None = None
        try:
            for _ in range(MOST_ROUNDS):
                said.append(self._reply(bare.worker, messages, draw))
                if said[-1].finish == "error":
                    error = said[-1].text or "the answer is an error"
                    break
                calls = said[-1].message.get("tool_calls")
                if not isinstance(calls, list) or not calls:
                    output = said[-1].text
                    break
                messages.append(said[-1].message)
                messages += [self._use(call, used) for call in calls]
            else:
                error = f"still calling tools after {MOST_ROUNDS} rounds"
        except UserError as failure:
            error = str(failure)
        worker = self.pool[bare.worker]
        inside = next((one.note["workflow"] for one in said if one.note and "workflow" in one.note), None)
        return replace(
            bare, output=output, error=error, tools=tuple(used), inside=inside,
            calls=len(said) if inside is None else int(inside.get("calls", 0)),
            cost=total_cost([one.cost for one in said]), prices=tuple(worker.bill(one.cost) for one in said),
        )  # fmt: skip

    def _reply(self, worker: str, messages: Sequence[Message], draw: int) -> Reply:
        if worker in self.uncached:
            return self._call(worker, messages, draw)
        # The draw is part of the key: a worker asked the same twice may answer otherwise.
        key = (worker, json.dumps(messages, sort_keys=True, default=str), draw)
        if key not in self.cache:
            self.cache[key] = self._call(worker, messages, draw)
        return self.cache[key]

    def _call(self, worker: str, messages: Sequence[Message], draw: int) -> Reply:
        began = time.monotonic()
        schemas = [tool.schema for tool in self.tools.values()]
        reply = self.pool.call(worker, messages, tools=schemas, draw=draw)
        if reply.cost.seconds is not None:
            return reply
        return replace(reply, cost=replace(reply.cost, seconds=time.monotonic() - began))

    def _use(self, call: Json, used: list[ToolRecord]) -> Message:
        """Run one tool call; a fault is the tool's answer."""
        # Calls are a model's words: any of this may be of another kind than it should be.
        call = call if isinstance(call, dict) else {}
        asked = call.get("function")
        asked = asked if isinstance(asked, dict) else {}
        name, given = str(asked.get("name") or ""), asked.get("arguments") or {}
        try:
            arguments = json.loads(given) if isinstance(given, str) else given
            if not isinstance(arguments, dict):
                raise ValueError("arguments must be an object")
            if name not in self.tools:
                raise ValueError(f"there is no tool {name!r}")
            result = self._result(name, arguments)
            if self.memory is not None:
                used.append(self.memory.remember(self.workflow, name, arguments, result))
            else:
                used.append(ToolRecord(name, canonical(arguments), 0, result))
        except (ValueError, RecursionError, UserError) as error:
            result = f"error: {error}"
        return {"role": "tool", "tool_call_id": str(call.get("id") or ""), "content": result}

    def _result(self, name: str, arguments: Json) -> str:
        try:
            return self.tools[name].run(arguments)
        except Exception as error:  # a tool is the user's code: whatever it raises is what the worker is told
            raise BadInput(f"{type(error).__name__}: {error}") from error
