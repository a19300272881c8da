"""Controls: what steers a simulator away from what it would say by itself.

A control can tell the model what to do (``instruction``) and change what it said (``after``). Both are
functions of the transcript and the noise alone, so a controlled episode is as repeatable as a plain one.

Source: arXiv 2606.24597 for control by instruction; changing the answer itself, which does not depend on the
model's obedience, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.environment import ActionObservation


@runtime_checkable
class Control(Protocol):
    """Steers a simulator's answers. It keeps no state: what it needs to know is in the transcript."""

    @property
    def name(self) -> str:
        """What it is called, for the record."""
        ...

    def to_json(self) -> Json:
        """All that its answers depend on."""
        ...

    def instruction(self, task: Task, history: Sequence[ActionObservation], action: str) -> str:
        """What the model is told in addition to its brief; empty where nothing."""
        ...

    def after(
        self, task: Task, history: Sequence[ActionObservation], action: str, predicted: str, noise: NoiseKey
    ) -> str:
        """What the simulator finally says, given what the model predicted."""
        ...


@runtime_checkable
class InstructsByTurn(Protocol):
    """A control whose instruction differs from draw to draw."""

    def instruction_at(
        self, task: Task, history: Sequence[ActionObservation], action: str, noise: NoiseKey
    ) -> str:
        """The instruction of one turn, in place of :meth:`Control.instruction`."""
        ...


@runtime_checkable
class SaysWhat(Protocol):
    """A control that can say what it does to an answer."""

    def did(
        self, task: Task, history: Sequence[ActionObservation], action: str, predicted: str, noise: NoiseKey
    ) -> Json | None:
        """What it did in words and numbers; None where it let the answer be."""
        ...


def instruct(
    control: Control | None, task: Task, history: Sequence[ActionObservation], action: str, noise: NoiseKey
) -> str:
    """A control's instruction for one turn; empty without a control."""
    if control is None:
        return ""
    if isinstance(control, InstructsByTurn):
        return control.instruction_at(task, history, action, noise)
    return control.instruction(task, history, action)


def steer(
    control: Control | None,
    task: Task,
    history: Sequence[ActionObservation],
    action: str,
    predicted: str,
    noise: NoiseKey,
) -> tuple[str, list[Json]]:
    """What is finally said, and what the control did to it (empty where nothing)."""
    if control is None:
        return predicted, []
    if isinstance(control, Controls):
        return control.steered(task, history, action, predicted, noise)
    said = control.after(task, history, action, predicted, noise)
    what = control.did(task, history, action, predicted, noise) if isinstance(control, SaysWhat) else None
    if said == predicted and what is None:
        return said, []
    return said, [{"control": control.name, "changed": said != predicted} | (what or {})]


@final
@dataclass(frozen=True, slots=True)
class Controls:
    """Several controls as one: instructions one after the other, answers changed in this order."""

    parts: tuple[Control, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise BadInput("there is no control to combine")

    @property
    def name(self) -> str:
        """The names of its parts."""
        return "+".join(part.name for part in self.parts)

    def to_json(self) -> Json:
        """Its parts, in order."""
        return {"controls": [part.to_json() for part in self.parts]}

    def instruction(self, task: Task, history: Sequence[ActionObservation], action: str) -> str:
        """All instructions, a line each."""
        return "\n".join(filter(None, (part.instruction(task, history, action) for part in self.parts)))

    def instruction_at(
        self, task: Task, history: Sequence[ActionObservation], action: str, noise: NoiseKey
    ) -> str:
        """All instructions for one turn."""
        return "\n".join(filter(None, (instruct(part, task, history, action, noise) for part in self.parts)))

    def after(
        self, task: Task, history: Sequence[ActionObservation], action: str, predicted: str, noise: NoiseKey
    ) -> str:
        """What the last one says."""
        return self.steered(task, history, action, predicted, noise)[0]

    def steered(
        self, task: Task, history: Sequence[ActionObservation], action: str, predicted: str, noise: NoiseKey
    ) -> tuple[str, list[Json]]:
        """What the last one says, and what each did."""
        done: list[Json] = []
        for part in self.parts:
            predicted, what = steer(part, task, history, action, predicted, noise)
            done += what
        return predicted, done
