"""One finished run of an agent as the memory reads it: a query, steps, an outcome, a cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json


@dataclass(frozen=True, slots=True)
class RunStep:
    """One turn: what the agent said, the function it called, and what came back.

    ``function`` is "app.function" or "tools.name", empty where no call was made. ``result`` is the returned
    value, ``observation`` the observation as text, ``failed`` whether the call was answered with an error.
    """

    id: str
    output: str = ""
    function: str = ""
    arguments: Json = field(default_factory=dict)
    result: Any = None
    observation: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class RunTrajectory:
    """A run: the task's id, its query, the steps, whether it succeeded (None: nobody judged), what it cost.

    ``context`` is what every task is told beside its query (accounts, rules).

    Raises BadInput without a query or an id, and where two steps share an id.
    """

    task: str
    query: str
    steps: tuple[RunStep, ...] = ()
    success: bool | None = None
    cost: Cost = field(default_factory=Cost)
    context: str = ""

    def __post_init__(self) -> None:
        if not self.task.strip():
            raise BadInput("a trajectory has no task id")
        if not self.query.strip():
            raise BadInput("a trajectory has no query", where=f"task {self.task!r}")
        names = [step.id for step in self.steps]
        if len(set(names)) < len(names):
            raise BadInput("two steps of a trajectory have one id", where=f"task {self.task!r}")

    def step(self, name: str) -> RunStep:
        """The step of an id. Raises BadInput where there is none."""
        for step in self.steps:
            if step.id == name:
                return step
        raise BadInput(f"the trajectory has no step {name!r}", where=f"task {self.task!r}")


def shortened(text: str, room: int) -> str:
    """The text, its middle left out where it is longer than ``room`` characters."""
    if len(text) <= room:
        return text
    head = max(1, (room * 2) // 3)
    tail = max(1, room - head)
    return f"{text[:head]} [{len(text) - head - tail} characters left out] {text[-tail:]}"


def step_line(step: RunStep, room: int = 160) -> str:
    """One step on one line: id, call or words, and the beginning of what came back."""
    if step.function:
        done = f"{step.function}({json.dumps(step.arguments, ensure_ascii=False, sort_keys=True)})"
    else:
        done = step.output
    back = step.observation or ("" if step.result is None else json.dumps(step.result, ensure_ascii=False))
    line = " ".join(shortened(done, room).split())
    told = " ".join(shortened(back, room).split())
    mark = "failed" if step.failed else "->"
    return f"[{step.id}] {line} {mark} {told}" if told or step.failed else f"[{step.id}] {line}"


def compact_view(run: RunTrajectory, opened: Sequence[str] = (), room: int = 160) -> str:
    """The trajectory as a reflector reads it: one line a step, the ``opened`` steps in full.

    Raises:
        BadInput: a step to open that the trajectory does not have.
    """
    for name in opened:
        run.step(name)
    outcome = {True: "succeeded", False: "failed", None: "not judged"}[run.success]
    lines = [f"query: {run.query}", f"outcome: {outcome}", f"steps: {len(run.steps)}"]
    for step in run.steps:
        lines.append(full_view(step) if step.id in opened else step_line(step, room))
    return "\n".join(lines)


def full_view(step: RunStep) -> str:
    """One step with nothing left out."""
    parts = [f"[{step.id}] in full"]
    if step.output:
        parts.append(f"said: {step.output}")
    if step.function:
        parts.append(
            f"called: {step.function}({json.dumps(step.arguments, ensure_ascii=False, sort_keys=True)})"
        )
    if step.result is not None:
        parts.append(f"returned: {json.dumps(step.result, ensure_ascii=False)}")
    if step.observation:
        parts.append(f"saw: {step.observation}")
    return "\n".join(parts)


def leaves(value: Any) -> Iterator[Any]:
    """The plain values inside an answer, depth first; None left out."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif value is not None:
        yield value
