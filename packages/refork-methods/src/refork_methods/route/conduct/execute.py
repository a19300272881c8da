"""Run a plan: every step asks its worker, in order, with exactly the context that the plan grants."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, final

from refork.chat import Reply
from refork.errors import BadInput, UserError
from refork.policies.base import Cost, total_cost
from refork.types import Json, Message
from refork_methods.route.conduct.plan import MOST_STEPS, Plan
from refork_methods.route.pool import Bill, WorkerPool

# What a worker of a workflow is shown.
#
# Inside a workflow a worker sees its own earlier steps and what the plan grants it, nothing else; otherwise
# the first worker's path steers all others. Source: arXiv:2606.21228.

#: ``granted``: the access list alone. ``workflow``: that and the worker's own steps. ``shared``: every step.
Isolation: TypeAlias = Literal["granted", "workflow", "shared"]


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


# Run a plan: every step asks its worker, in order, with exactly the context that the plan grants.

#: Replies by (worker, context, draw): a call that was made is not paid for again.
ReplyCache = dict[tuple[str, str, int], Reply]


@dataclass(frozen=True, slots=True)
class StepRun:
    """One step as it ran. ``output`` None: it failed, and ``error`` says how.

    ``earlier_steps`` are the earlier steps in its context, ``messages`` the whole context as it was sent.
    ``calls`` counts answers of workers, those of a workflow inside included; ``prices`` has the money of each
    answer of this step's worker. ``inside`` is the workflow of a conductor that the step asked.
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
    isolation: Isolation = "granted",
    draw: int = 0,
    most: int = MOST_STEPS,
    cache: ReplyCache | None = None,
    uncached: frozenset[str] = frozenset(),
) -> Execution:
    """Run the steps of a plan in order.

    By default a step's context is exactly what its access list grants. What is shown stands as turns before
    the subtask: each earlier subtask as the user's, its output as the assistant's. A step that
    sees a failed one is not run; a failure ends nothing else. ``draw`` numbers repeated runs; each step has a
    draw of its own, so a worker asked twice is not bound to its first answer. ``cache`` remembers replies of
    all workers but those ``uncached``.

    Raises:
        BadInput: the plan cannot run with this pool, or an unknown isolation.

    Source: arXiv:2512.04388 (steps, access, last output); context as turns is ours.
    """
    plan.validate(pool, most)
    run = _Run(pool, isolation, cache if cache is not None else {}, uncached)
    outputs: dict[int, str] = {}
    done: list[StepRun] = []
    for step in range(1, len(plan) + 1):
        made = run.step(plan, step, outputs, draw * most + step - 1)
        done.append(made)
        if made.output is not None:
            outputs[step] = made.output
    return Execution(plan, tuple(done))


def messages_for(subtask: str, earlier_steps: Sequence[EarlierStep]) -> list[Message]:
    """The context of a step: what is shown as turns, then the subtask."""
    found: list[Message] = []
    for one in earlier_steps:
        found += [{"role": "user", "content": one.subtask}, {"role": "assistant", "content": one.output}]
    return [*found, {"role": "user", "content": subtask}]


@final
@dataclass(frozen=True, slots=True)
class _Run:
    pool: WorkerPool
    isolation: Isolation
    cache: ReplyCache
    uncached: frozenset[str]

    def step(self, plan: Plan, step: int, outputs: Mapping[int, str], draw: int) -> StepRun:
        worker, subtask = plan.model_id[step - 1], plan.subtasks[step - 1]
        shown = visible(plan, step, outputs, self.isolation)
        messages = tuple(messages_for(subtask, shown))
        # A step that would miss an answer it was granted is not asked: its own would be of another question.
        failed = [other for other in plan.access_list[step - 1] if other not in outputs]
        if failed:
            error = f"needs the answer of step {failed[0]}, which failed"
            return StepRun(step, worker, subtask, shown, messages, None, error)
        return self._ask(StepRun(step, worker, subtask, shown, messages, None), draw)

    def _ask(self, bare: StepRun, draw: int) -> StepRun:
        try:
            said = self._reply(bare.worker, bare.messages, draw)
        except UserError as failure:
            return replace(bare, error=str(failure))
        failed = said.finish == "error"
        inside = (said.note or {}).get("workflow")
        return replace(
            bare,
            output=None if failed else said.text,
            error=(said.text or "the answer is an error") if failed else None,
            inside=inside,
            calls=1 if inside is None else int(inside.get("calls", 0)),
            cost=said.cost,
            prices=(self.pool[bare.worker].bill(said.cost),),
        )

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
        reply = self.pool.call(worker, messages, draw=draw)
        if reply.cost.seconds is not None:
            return reply
        return replace(reply, cost=replace(reply.cost, seconds=time.monotonic() - began))
