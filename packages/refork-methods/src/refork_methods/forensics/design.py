"""What is going to be run: arms, each an intervention under a name, and what they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from refork.errors import BadInput
from refork.plain import content_hash
from refork_methods.forensics.intervention import Intervention

#: Name of the arm in which nothing is edited.
BASE = "base"
#: What a test is for: vary one number, change one feature, several features, take the trigger away,
#: run another model, plant the behaviour, or read rollouts with one of the instruments.
Purpose: TypeAlias = Literal[
    "dose response", "counterfactual", "factorial", "control setting", "control model",
    "positive control", "observation",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """One arm to be run: its name, its intervention and, in a dose-response, its dose."""

    name: str
    intervention: Intervention
    dose: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What a draw of it is filed under: the intervention's digest and the arm's name."""
        # The name too: the arm of a control model edits nothing either, and holds no draws of the base.
        return self.intervention.id, self.name


@dataclass(frozen=True, slots=True)
class Design:
    """A test that predictions are made about, before it is run.

    ``arms[0]`` is what the others are compared with, unless there is only one.
    """

    name: str
    purpose: Purpose
    instrument: str
    arms: tuple[ArmPlan, ...]

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) < len(names):
            raise BadInput("a design needs arms, each under its own name", where=f"design {self.name!r}")

    @property
    def id(self) -> str:
        """Digest of purpose, instrument and arms; the name does not count."""
        arms = [[arm.name, arm.intervention.id, arm.dose] for arm in self.arms]
        return content_hash([self.purpose, self.instrument, arms])

    @classmethod
    def counterfactual(cls, intervention: Intervention) -> Self:
        """The unchanged arm and one edit."""
        pair = (ArmPlan(BASE, Intervention.none()), ArmPlan(intervention.name, intervention))
        return cls(intervention.name, "counterfactual", "rollouts", pair)

    @classmethod
    def dose_response(
        cls,
        path: str,
        grid: Sequence[float],
        *,
        now: float | None = None,
        name: str | None = None,
        instrument: str = "rollouts",
    ) -> Self:
        """One field at every value of a grid; ``now`` is the value it has, whose arm edits nothing."""
        if len(set(grid)) < 2 or len(set(grid)) < len(grid):
            raise BadInput("a dose-response needs two different doses or more, each once", where=path)
        names = {dose: f"{path}={dose:g}" for dose in grid}
        arms = tuple(
            ArmPlan(
                names[dose],
                Intervention.none() if dose == now else Intervention.edit(path, dose),
                float(dose),
            )
            for dose in grid
        )
        return cls(name or f"{path} varied", "dose response", instrument, arms)

    @classmethod
    def factorial(
        cls, cells: Sequence[Intervention], *, name: str = "factorial", instrument: str = "rollouts"
    ) -> Self:
        """The cells that :func:`refork_methods.forensics.factorial` gives; the unedited one is the base."""
        arms = tuple(ArmPlan(cell.name if cell.edits else BASE, cell) for cell in cells)
        return cls(name, "factorial", instrument, arms)

    @classmethod
    def observe(cls, instrument: str, arm: str | None = None, purpose: Purpose = "observation") -> Self:
        """One arm of an instrument that edits nothing."""
        return cls(arm or instrument, purpose, instrument, (ArmPlan(arm or instrument, Intervention.none()),))
