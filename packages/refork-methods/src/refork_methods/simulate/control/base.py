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


@final
@dataclass(frozen=True, slots=True)
class Moment:
    """Where a control acts: a task, the turns before, the action, and the noise of its answer."""

    task: Task
    history: Sequence[ActionObservation]
    action: str
    noise: NoiseKey


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

    def instruction(self, at: Moment) -> str:
        """What the model is told in addition to its brief; empty where nothing."""
        ...

    def after(self, at: Moment, predicted: str) -> tuple[str, Json | None]:
        """What the simulator finally says, given what the model predicted; and what was done to it.

        The second is in words and numbers; None where there is nothing to say but whether the text changed.
        """
        ...


def steer(control: Control | None, at: Moment, predicted: str) -> tuple[str, list[Json]]:
    """What is finally said, and what each control did to it (empty where nothing)."""
    done: list[Json] = []
    if control is None:
        return predicted, done
    for part in control.parts if isinstance(control, Controls) else (control,):
        said, what = part.after(at, predicted)
        if said != predicted or what is not None:
            done.append({"control": part.name, "changed": said != predicted} | (what or {}))
        predicted = said
    return predicted, done


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

    def instruction(self, at: Moment) -> str:
        """All instructions, a line each."""
        return "\n".join(filter(None, (part.instruction(at) for part in self.parts)))

    def after(self, at: Moment, predicted: str) -> tuple[str, Json | None]:
        """What the last one says; :func:`steer` tells what each did."""
        return steer(self, at, predicted)[0], None
