"""A drafter as a server drafts with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from refork.errors import CannotDo
from refork.policies.local import LocalPolicy
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.checkpoint import load_draft
from refork_methods.speculate.model import DraftModel
from refork_methods.speculate.schedule import MEASURED, PrefixScheduler
from refork_methods.speculate.speculator import ModelSpeculator
from refork_methods.speculate.step_cost import StepCost


def open_speculator(
    folder: Path,
    policy: LocalPolicy,
    *,
    rule: Literal["coupled", "rejection"],
    cost: Path | None,
    calibration: Path | None,
    most: int | None,
) -> ModelSpeculator:
    """The speculator of a drafter's folder, scheduled by a cost table where there is one.

    Raises:
        BadInput: there is no drafter, or no table or calibration.
        Mismatch: it was trained for another model.
        CannotDo: its layout is not one that a batch of branches can be drafted with.
    """
    draft = load_draft(folder, policy)
    if not isinstance(draft, DraftModel):
        raise CannotDo(
            "this kind of drafter cannot draft for a batch of branches",
            where=str(folder),
            hint="train one of kind dspark or dflash",
        )
    return ModelSpeculator(
        draft,
        rule=rule,
        scheduler=None
        if cost is None
        else PrefixScheduler(StepCost.load(cost), beyond="cap", margin=MEASURED),
        calibration=None if calibration is None else SequentialTemperatureScaling.load(calibration),
        max_draft_tokens=most,
        eos=policy.end_ids,
    )
