"""A conductor as a model: it is asked a query, writes a plan, has it run, and gives the last answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from refork.chat import ChatModel, Reply
from refork.errors import BadInput, ServerError
from refork.policies.base import Cost, total_cost
from refork.types import Finish, Json, Message
from refork_methods.route.conduct.execute import Execution, OrchestrationMemory, Tool, execute
from refork_methods.route.conduct.plan import MOST_STEPS, Plan
from refork_methods.route.pool import Price, Worker, WorkerPool

#: The name under which a plan may ask the conductor itself.
SELF = "self"
#: Draws of workers stay below this, so that every step of a plan has room for one of its own.
DRAWS = 1 << 28


def asked(query: str, names: Sequence[str]) -> str:
    """How a conductor is asked: the workers that are open, then the query."""
    return f"{','.join(names)}\n{query}"


@dataclass(frozen=True, slots=True)
class Conducted:
    """What came of a query: what the conductor wrote, the plan in it and its run, or the fault."""

    text: str
    plan: Plan | None = None
    execution: Execution | None = None
    fault: str | None = None
    cost: Cost = field(default_factory=Cost)

    @property
    def answer(self) -> str | None:
        """The answer; None without one."""
        return None if self.execution is None else self.execution.answer

    @property
    def why(self) -> str | None:
        """Why there is no answer."""
        if self.execution is None:
            return self.fault
        return self.execution.steps[-1].error

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "text": self.text,
            "fault": self.fault,
            "planning": self.cost.to_json(),
            **({} if self.execution is None else self.execution.to_json()),
        }


@final
class Nested:
    """A chat model that answers with a workflow: how a plan's step asks a conductor.

    The query is all that the step was shown and its subtask; the reply's note holds what ran.
    """

    name = SELF

    def __init__(self, run: Callable[[str, int], Conducted]) -> None:
        self._run = run

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The answer of the workflow; an error where it has none, with what it cost all the same."""
        del tools
        return reply_of(self._run("\n".join(str(m.get("content") or "") for m in messages), draw % DRAWS))


def reply_of(done: Conducted) -> Reply:
    """What came of a query as a chat reply, planning and workers paid; its finish tells a failure.

    What ran is the reply's note, ``workflow``: it is no part of the message, so nobody sends it on.
    """
    execution = done.execution
    costs = [done.cost]
    if execution is not None:
        costs.append(replace(execution.cost, money=execution.bill.total))
    failed = done.answer is None
    said = f"the workflow failed: {done.why}" if failed else done.answer
    message = {"role": "assistant", "content": said}
    finish: Finish = "error" if failed else "stop"
    return Reply(message, finish, total_cost(costs), {"workflow": done.to_json()})


@final
class Conductor:
    """Plans with ``writer`` and runs the plan with ``pool``.

    ``rounds`` above 1 offers the conductor itself as the worker ``self``, so many plans deep. ``memory`` is
    that of the conversation; plans inside plans are workflows of it too. ``price`` is the writer's.

    Raises: BadInput for no round, or a worker of the name ``self`` where that stands for the conductor.
    """

    def __init__(
        self,
        writer: ChatModel,
        pool: WorkerPool,
        *,
        rounds: int = 1,
        price: Price | None = None,
        memory: OrchestrationMemory | None = None,
        tools: Sequence[Tool] = (),
        most: int = MOST_STEPS,
    ) -> None:
        if rounds < 1:
            raise BadInput("a conductor needs at least one round")
        if rounds > 1 and SELF in pool.names:
            raise BadInput(f"a worker is named {SELF!r}, which stands for the conductor")
        self.writer, self.pool, self.rounds = writer, pool, rounds
        self._price = price
        self._memory, self._tools, self._most = memory, tuple(tools), most

    @property
    def name(self) -> str:
        """The writer's name."""
        return f"conductor:{self.writer.name}"

    def run(self, query: str, *, draw: int = 0) -> Conducted:
        """Plan and run one query; a plan that cannot run is a result, not an error.

        Raises: ServerError where the writer gives no answer.
        """
        return self._run(query, draw, self.rounds)

    def _run(self, query: str, draw: int, rounds: int) -> Conducted:
        pool = self.pool
        if rounds > 1:
            pool = with_self(pool, lambda inner, at: self._run(inner, at, rounds - 1))
        asked_ = [{"role": "user", "content": asked(query, pool.open)}]
        began = time.monotonic()
        said = self.writer.reply(asked_, draw=draw)
        cost = said.cost
        if cost.seconds is None:
            cost = replace(cost, seconds=time.monotonic() - began)
        if cost.money is None and self._price is not None:
            cost = replace(cost, money=self._price.of(cost))
        try:
            # Numbers in a plan count the open workers only: theirs are the names that the writer was shown.
            plan = Plan.parse(said.text, pool.open).validate(pool, self._most)
        except BadInput as fault:
            return Conducted(said.text, fault=fault.what, cost=cost)
        execution = execute(plan, pool, memory=self._memory, tools=self._tools, draw=draw, most=self._most)
        return Conducted(said.text, plan, execution, cost=cost)

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """Answer the last message, so that a conductor serves wherever a chat model does.

        Raises: ServerError where its plan cannot run or has no answer.
        """
        del tools
        query = str(messages[-1].get("content") or "") if messages else ""
        done = self.run(query, draw=draw)
        if done.answer is None:
            raise ServerError(f"no answer: {done.why}", where=self.name)
        return reply_of(done)


def with_self(pool: WorkerPool, run: Callable[[str, int], Conducted]) -> WorkerPool:
    """The pool with the conductor itself as its last worker."""
    return replace(pool, workers=(*pool.workers, Worker(SELF, chat=Nested(run))))
