"""Drafters from their folders: as a policy that draws with one, and as what a server drafts with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from refork.policies.local import LocalPolicy
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.checkpoint import load_draft
from refork_methods.speculate.context import Proposer, as_proposer
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.schedule import MEASURED, PrefixScheduler
from refork_methods.speculate.speculator import Listener, ModelSpeculator
from refork_methods.speculate.step_cost import StepCost
from refork_methods.speculate.verification import Rule


def _measured(cost: Path | None) -> PrefixScheduler | None:
    """The schedule of a cost table's file."""
    return None if cost is None else PrefixScheduler(StepCost.load(cost), beyond="cap", margin=MEASURED)


def _calibrated(file: Path | None) -> SequentialTemperatureScaling | None:
    return None if file is None else SequentialTemperatureScaling.load(file)


def open_drafter(folder: Path, target: LocalPolicy) -> Proposer:
    """The drafter of a folder, for this target.

    Raises:
        BadInput: there is no drafter.
        WrongTokenizer, WrongWeights: it was trained for another model.
    """
    return as_proposer(load_draft(folder, target))


def speculative(
    target: LocalPolicy,
    folder: Path,
    *,
    rule: Rule = "coupled",
    cost: Path | None = None,
    calibration: Path | None = None,
    max_draft_tokens: int | None = None,
    on_rounds: Listener | None = None,
) -> SpeculativeDecoder:
    """A target with the drafter of a folder, from files: a cost table schedules drafts by load.

    Raises:
        BadInput: a file that is not there or is something else.
        WrongTokenizer, WrongWeights: the drafter was trained for another model.
    """
    return SpeculativeDecoder(
        target,
        open_drafter(folder, target),
        rule=rule,
        max_draft_tokens=max_draft_tokens,
        scheduler=_measured(cost),
        calibration=_calibrated(calibration),
        on_rounds=on_rounds,
    )


def open_speculator(
    folder: Path,
    policy: LocalPolicy,
    *,
    rule: Literal["coupled", "rejection"],
    cost: Path | None,
    calibration: Path | None,
    most: int | None = None,
) -> ModelSpeculator:
    """The speculator of a drafter's folder, scheduled by a cost table where there is one.

    Raises:
        BadInput: there is no drafter, or no table or calibration.
        Mismatch: it was trained for another model.
    """
    return ModelSpeculator(
        open_drafter(folder, policy),
        rule=rule,
        scheduler=_measured(cost),
        calibration=_calibrated(calibration),
        max_draft_tokens=most,
        eos=policy.end_ids,
    )
