"""From log-probs under two models to scores of steps and of a trajectory.

Appending a token never involves chance, so the advantage of a step is the **sum** of its tokens'
log-ratios, and that of a trajectory the sum of its steps': ``sum`` is exact. Everything else is a
heuristic (length control, weakest link), named as such.

``min`` and ``max`` are of the ratio of each token. ``min-of-each`` and ``max-of-each`` take the extreme
under either model apart and subtract, so the two may stand at different tokens: what the released code
of arXiv 2606.26080 computes under the names min and max.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput
from refork_methods.implicit.soft_values import Bools, Floats, Ints, check_beta

TokenRule = Literal["sum", "mean", "last", "min", "max", "min-of-each", "max-of-each"]
StepRule = Literal["sum", "mean", "last", "min", "max", "bottom10"]
CutRule = Literal["skip", "zero"]
TOKEN_RULES: tuple[TokenRule, ...] = get_args(TokenRule)
STEP_RULES: tuple[StepRule, ...] = get_args(StepRule)
EXACT = "sum"


@dataclass(frozen=True, slots=True)
class PairLogprobs:
    """Log-probs in nats of one token row under a policy and its reference, both [T] at temperature 1.

    ``step_id`` [T] says which action a token belongs to, 0 .. steps - 1, or -1 for tokens that the
    policy did not choose; those are never read. ``cut`` [steps] marks actions that are not whole.
    """

    policy: Floats
    reference: Floats
    step_id: Ints
    cut: Bools

    @property
    def steps(self) -> int:
        """How many actions there are, cut ones included."""
        return len(self.cut)


def pair_logprobs(
    policy: ArrayLike,
    reference: ArrayLike,
    step_id: ArrayLike,
    *,
    steps: int | None = None,
    cut: ArrayLike | None = None,
    names: list[str] | None = None,
    where: str | None = None,
) -> PairLogprobs:
    """Checked log-probs of one trajectory.

    Args:
        policy: nats [T].
        reference: nats [T].
        step_id: integers [T], -1 where the policy did not choose.
        steps: number of actions; default: the largest id and 1.
        cut: booleans [steps]; default: none is cut.
        names: text of every token, for messages.
        where: whose log-probs these are, for messages.

    Raises:
        BadInput: no action token; lengths that differ; a log-prob that is NaN, -inf or above 0, with the
            token named. Nothing is clipped: one such token would decide the whole score.
    """
    pol, ref = np.asarray(policy, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    ids = np.asarray(step_id, dtype=np.int64)
    if pol.ndim != 1 or pol.shape != ref.shape or pol.shape != ids.shape:
        raise BadInput(
            f"{pol.size} policy and {ref.size} reference log-probs of {ids.size} tokens", where=where
        )
    chosen = ids >= 0
    if not chosen.any():
        raise BadInput(
            "no token of this trajectory was chosen by the policy, so there is nothing to score",
            where=where,
            hint="mark the policy's own turns as actions (role assistant)",
        )
    count = int(ids.max()) + 1 if steps is None else steps
    if count <= ids.max():
        raise BadInput(f"step {int(ids.max())} of {count} steps", where=where)
    _check_values(pol, chosen, "policy", names, where)
    _check_values(ref, chosen, "reference", names, where)
    incomplete = np.zeros(count, dtype=bool) if cut is None else np.asarray(cut, dtype=bool).copy()
    if incomplete.shape != (count,):
        raise BadInput(f"{incomplete.size} cut marks for {count} steps", where=where)
    # A step of which no token is left has no score; a sum over nothing would call it 0.
    incomplete[np.bincount(ids[chosen], minlength=count) == 0] = True
    return PairLogprobs(pol, ref, ids, incomplete)


def _check_values(
    values: Floats, chosen: Bools, whose: str, names: list[str] | None, where: str | None
) -> None:
    # Float32 log-softmax may end a rounding error above 0.
    bad = np.flatnonzero(chosen & ~(np.isfinite(values) & (values <= 1e-4)))
    if not len(bad):
        return
    first = int(bad[0])
    token = f"token {first}" + (f" {names[first]!r}" if names is not None else "")
    value = values[first]
    hint = {
        "nan": "it was never computed, or the model overflowed: score the same tokens again in float32",
        "-inf": "the model rules out what was chosen: a filter was on, or it belongs to another family",
    }.get(str(value), "log-probs are natural logarithms of probabilities, 0 or less")
    raise BadInput(f"the {whose} gives {token} the log-prob {value:.4g}", where=where, hint=hint)


def token_advantages(pair: PairLogprobs, beta: float = 1.0) -> Floats:
    """Log-ratio times beta of every chosen token, [T]; NaN for tokens the policy did not choose."""
    ratio = check_beta(beta) * (pair.policy - pair.reference)
    return np.where(pair.step_id >= 0, ratio, np.nan)


def aggregate_tokens(values: Floats, step_id: Ints, steps: int, rule: TokenRule) -> Floats:
    """One number per step from values of its tokens, [steps]; NaN for a step without tokens.

    ``min-of-each`` and ``max-of-each`` are the plain extremes of these values here.
    """
    chosen = step_id >= 0
    inside, ids = values[chosen], step_id[chosen]
    count = np.bincount(ids, minlength=steps)
    found = np.full(steps, np.nan)
    some = count > 0
    if rule in ("sum", "mean"):
        total = np.bincount(ids, weights=inside, minlength=steps)
        found[some] = total[some] if rule == "sum" else total[some] / count[some]
    elif rule == "last":
        # NumPy keeps what is written last to a repeated index: the step's last token.
        found[ids] = inside
    elif rule in ("min", "min-of-each"):
        # fmin passes over the NaN that every place begins with; a step without tokens keeps it.
        np.fmin.at(found, ids, inside)
    elif rule in ("max", "max-of-each"):
        np.fmax.at(found, ids, inside)
    else:
        raise BadInput(f"unknown token rule {rule!r}", hint=f"known: {', '.join(TOKEN_RULES)}")
    return found


def step_advantages(
    pair: PairLogprobs, rule: TokenRule = "sum", beta: float = 1.0, cut: CutRule = "skip"
) -> Floats:
    """The score of every action, [steps], in units of beta.

    Exact only for ``sum``. An action that is cut is NaN (``skip``); under ``zero``, as in the released
    code, it counts with the tokens that are left, and as 0.0 where none is.

    Raises:
        BadInput: an unknown rule.
    """
    if cut not in ("skip", "zero"):
        raise BadInput(f"unknown rule for cut actions {cut!r}", hint="known: skip, zero")
    check_beta(beta)
    if rule.endswith("-of-each"):
        each = [aggregate_tokens(v, pair.step_id, pair.steps, rule) for v in (pair.policy, pair.reference)]
        found = beta * (each[0] - each[1])
    else:
        found = beta * aggregate_tokens(pair.policy - pair.reference, pair.step_id, pair.steps, rule)
    if cut == "zero":
        return np.where(np.isnan(found), 0.0, found)
    return np.where(pair.cut, np.nan, found)


def aggregate_steps(steps: ArrayLike, rule: StepRule = "sum") -> float:
    """One number of several step scores; NaN steps are left out, and NaN where none is left.

    ``bottom10`` is the mean of the lowest tenth, rounded up to at least one step.
    """
    given = np.asarray(steps, dtype=np.float64)
    known = given[~np.isnan(given)]
    if rule not in STEP_RULES:
        raise BadInput(f"unknown step rule {rule!r}", hint=f"known: {', '.join(STEP_RULES)}")
    if not len(known):
        return float("nan")
    if rule == "bottom10":
        return float(np.sort(known)[: -(-len(known) // 10)].mean())
    if rule == "last":
        return float(known[-1])
    if rule in ("sum", "mean"):
        return float(known.sum() if rule == "sum" else known.mean())
    return float(known.min() if rule == "min" else known.max())


def trajectory_score(
    pair: PairLogprobs,
    token: TokenRule = "sum",
    step: StepRule = "sum",
    beta: float = 1.0,
    cut: CutRule = "skip",
) -> float:
    """The score of a whole trajectory; with both rules ``sum`` it is return minus baseline minus luck."""
    return aggregate_steps(step_advantages(pair, token, beta, cut), step)


def sensitivity_grid(pair: PairLogprobs, beta: float = 1.0, cut: CutRule = "skip") -> dict[str, float]:
    """The trajectory's score under every pair of rules, by ``token/step``."""
    grid: dict[str, float] = {}
    for token in TOKEN_RULES:
        steps = step_advantages(pair, token, beta, cut)
        grid |= {f"{token}/{step}": aggregate_steps(steps, step) for step in STEP_RULES}
    return grid


def is_exact(token: str, step: str) -> bool:
    """Whether a pair of rules is the exact one, and not a heuristic."""
    return token == EXACT and step == EXACT


def refuse_all_zero(pairs: Iterable[PairLogprobs], where: str | None = None) -> None:
    """Refuse log-probs that are equal throughout: both came from one model.

    Raises:
        BadInput: no action token anywhere has a log-ratio other than 0.
    """
    if all((p.policy[p.step_id >= 0] == p.reference[p.step_id >= 0]).all() for p in pairs):
        raise BadInput(
            "policy and reference log-probs are the same everywhere, so every score would be 0",
            where=where,
            hint="the reference must be another checkpoint, not the policy that sampled",
        )
