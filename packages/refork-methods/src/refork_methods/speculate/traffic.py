"""Simulated serving steps with known acceptances, to compare schedules without a model.

The law: a request is of one of three kinds (mean acceptance 0.60, 0.80 and 0.92, equally likely) until it
ends, each step with probability 1/40. In every round the log-odds of its conditional acceptances are those
of its kind plus a normal deviate of the round (spread 1) and one of each position (spread 0.5). Confidences
are these chances themselves, so they are calibrated. All schedules meet the same rounds and the same luck.
The law is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.speculate.rounds import Round
from refork_methods.speculate.schedule import Lengths, Scheduler
from refork_methods.speculate.step_cost import StepCost

KINDS = (0.60, 0.80, 0.92)
ENDS = 1 / 40
_ROUND, _POSITION = 1.0, 0.5


@final
@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Steps [S]: ``logits`` [S, R, g] of true acceptances, ``kept`` [S, R] drafts if all are verified."""

    logits: Float[Array, "S R g"]
    kept: Int[Array, "S R"]

    @property
    def survival(self) -> Float[np.ndarray, "S R g"]:
        """True chances that the first j drafts survive."""
        return np.asarray(np.cumprod(_expit(self.logits), axis=2))


@final
@dataclass(frozen=True, slots=True)
class Served:
    """What a schedule made of traffic: drafts verified per request, tokens per second, undrafted steps."""

    verified: float
    throughput: float
    plain_steps: int


def traffic(requests: int, steps: int, block: int = 7, seed: int = 0) -> Traffic:
    """Rounds of ``requests`` concurrent requests over some steps, by the law above.

    Raises:
        BadInput: no request, step or draft.
    """
    if min(requests, steps, block) < 1:
        raise BadInput("traffic needs at least one request, one step and one draft")
    rng = np.random.default_rng([seed, requests])
    kinds = np.array(KINDS)
    kind = rng.integers(0, len(kinds), requests)
    odds = np.empty((steps, requests))
    for step in range(steps):
        fresh = rng.random(requests) < ENDS
        kind = np.where(fresh, rng.integers(0, len(kinds), requests), kind)
        odds[step] = np.log(kinds[kind] / (1 - kinds[kind]))
    odds += _ROUND * rng.standard_normal(odds.shape)
    logits = odds[..., None] + _POSITION * rng.standard_normal((steps, requests, block))
    survived = rng.random(logits.shape) < _expit(logits)
    return Traffic(logits, np.cumprod(survived, axis=2).sum(axis=2))


def serve(
    what: Traffic, cost: StepCost, scheduler: Scheduler, *, may_skip: bool = True
) -> tuple[Served, list[Lengths]]:
    """Run a schedule over traffic; its lengths at every step.

    A step without drafts takes no time to draft. Tokens are those really kept, and one more per request.
    """
    survival, chosen = what.survival, []
    tokens = seconds = 0.0
    plain = 0
    steps, requests, _ = what.logits.shape
    for step in range(steps):
        drafts = not may_skip or scheduler.drafts(requests)
        lengths = scheduler.plan(survival[step]) if drafts else np.zeros(requests, dtype=np.int64)
        plain += not drafts
        tokens += requests + float(np.minimum(what.kept[step], lengths).sum())
        batch = np.array([requests + lengths.sum()])
        seconds += float(cost.step(batch, requests if drafts else None)[0])
        chosen.append(lengths)
    verified = float(np.mean([lengths.mean() for lengths in chosen]))
    return Served(verified, tokens / seconds, plain), chosen


def log(
    what: Traffic, cost: StepCost, lengths: list[Lengths], schedule: str | None = None, first_step: int = 0
) -> list[Round]:
    """The rounds that a server would have recorded."""
    found = []
    requests = what.logits.shape[1]
    for step, chosen in enumerate(lengths):
        batch = int(requests + chosen.sum())
        seconds = float(cost.step(np.array([batch]), requests)[0])
        found += [
            Round(
                tuple(what.logits[step, row].tolist()), int(chosen[row]),
                int(min(chosen[row], what.kept[step, row])), schedule=schedule, step=first_step + step,
                tokens_in_batch=batch, seconds=seconds,
            )
            for row in range(requests)
        ]  # fmt: skip
    return found


def _expit(logits: Array) -> Array:
    from scipy.special import expit

    return np.asarray(expit(logits))
