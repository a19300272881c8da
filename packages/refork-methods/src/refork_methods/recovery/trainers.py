"""Three trainers of one row policy: imitation, reward, and imitation of a rewarded teacher.

A trainer takes a policy and returns another; ``curve`` is the exact expected hitting time as it went.

Source: arXiv 2606.22938. There the figure's optimiser is sign ascent at rate 0.01; sampled policy gradient
with a length penalty and its settings are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.progress import Progress, silent
from refork_methods.recovery.hitting import (
    expected_hitting_time,
    hitting_gradient,
    hitting_times,
    stuck_row,
)
from refork_methods.recovery.rows import ROWS, Float64, RowPolicy, base_odds
from refork_methods.recovery.sample import check_cap, count_moves, moves_of, sample_paths

RewardMode = Literal["exact", "sampled", "sign"]
Normalise = Literal["row", "path"]


@final
@dataclass(frozen=True, slots=True)
class Trained:
    """A policy after training, and (update, expected moves) along the way, the first before any update."""

    policy: RowPolicy
    curve: tuple[tuple[int, float], ...]

    @property
    def hitting_time(self) -> float:
        """Expected moves at the end."""
        return self.curve[-1][1]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SftSettings:
    """Full-batch gradient ascent on the log-likelihood of a table of moves.

    ``normalise``: each row's gradient is a mean over its own moves (``row``), or the sum over all moves
    divided by the number of ``paths`` (``path``: what a mean loss over tokens does, so rare rows learn
    slowly).
    """

    updates: int = 1000
    learning_rate: float = 1.0
    normalise: Normalise = "row"
    paths: int = 1

    def __post_init__(self) -> None:
        if self.updates < 1 or not self.learning_rate > 0 or self.paths < 1:
            raise BadInput("updates, paths and learning rate must be above 0", where="maze training")
        if self.normalise not in ("row", "path"):
            raise BadInput(f"unknown normalisation {self.normalise!r}", hint="known: row, path")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings:
    """Ascent on minus the expected hitting time.

    ``exact``: its gradient; ``sign``: the signs of that; ``sampled``: the score-function gradient of
    ``batch`` trajectories with reward 1[target] - moves / ``cap``, normalised over the batch.
    """

    mode: RewardMode = "sampled"
    updates: int = 300
    learning_rate: float = 0.2
    batch: int = 64
    cap: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("exact", "sampled", "sign"):
            raise BadInput(f"unknown mode {self.mode!r}", hint="known: exact, sampled, sign")
        if self.updates < 1 or not self.learning_rate > 0 or self.batch < 2:
            raise BadInput("updates and learning rate must be above 0, batch above 1", where="maze training")


def sft_gradient(policy: RowPolicy, moves: Float64, normalise: Normalise = "row", paths: int = 1) -> Float64:
    """Gradient of the log-likelihood of a table of moves in the logit gaps, [4, K].

    Args:
        policy: where to take it.
        moves: desired moves and turns of each row, [4, K, 2].
        normalise: see :class:`SftSettings`.
        paths: how many paths the moves come from.

    A row without moves has gradient 0.0 to the last bit: nothing teaches it.
    """
    p = policy.desired
    pull = moves[..., 0] * (1 - p) - moves[..., 1] * p
    if normalise == "path":
        return np.asarray(pull / paths)
    seen = moves.sum(-1)
    return np.asarray(np.divide(pull, seen, out=np.zeros_like(pull), where=seen > 0))


def sft(policy: RowPolicy, moves: Float64, settings: SftSettings | None = None) -> Trained:
    """Imitate a table of moves [4, K, 2], for instance :func:`golden_moves` or :func:`count_moves`.

    Raises:
        BadInput: a table of another shape, or empty.
    """
    chosen = settings or SftSettings()
    if moves.shape != (4, policy.graph.diamonds, 2) or not moves.sum() > 0:
        raise BadInput("there are no moves to imitate, or not in the shape [4, K, 2]", where="maze training")
    gaps = [policy.gaps.copy()]
    for _ in range(chosen.updates):
        here = RowPolicy(policy.graph, gaps[-1])
        gradient = sft_gradient(here, moves, chosen.normalise, chosen.paths)
        gaps.append(gaps[-1] + chosen.learning_rate * gradient)
    return _trained(policy, gaps)


def rlvr(policy: RowPolicy, settings: RewardSettings | None = None, progress: Progress = silent) -> Trained:
    """Improve a policy on the outcome reward with a length penalty; see :class:`RewardSettings`.

    Raises:
        BadInput: a cap below 2 K + 2, or a policy with infinite expected hitting time (exact, sign).
    """
    chosen = settings or RewardSettings()
    check_cap(policy.graph, chosen.cap)
    rng = np.random.default_rng(chosen.seed)
    gaps = [policy.gaps.copy()]
    for number in range(chosen.updates):
        here = RowPolicy(policy.graph, gaps[-1])
        if chosen.mode == "sampled":
            step = reward_gradient(here, chosen.batch, chosen.cap, rng)
        else:
            stuck = stuck_row(policy.graph.branches, here.odds)
            if stuck is not None:
                raise _overshot(f"the expected hitting time is infinite: state {stuck} never goes on", number)
            with np.errstate(all="ignore"):
                step = -hitting_gradient(policy.graph.branches, here.odds)[1]
            if not bool(np.isfinite(step).all()):
                raise _overshot("the gradient overflows", number)
            # After the check: the sign of an overflown gradient would be an ordinary step.
            step = np.sign(step) if chosen.mode == "sign" else step
        gaps.append(gaps[-1] + chosen.learning_rate * step)
        progress("reward training", number + 1, chosen.updates)
    return _trained(policy, gaps)


def _overshot(what: str, number: int) -> BadInput:
    return BadInput(
        what,
        where=f"maze training, update {number}",
        hint="take a smaller learning rate, or mode sign, whose steps have one size",
    )


def reward_gradient(policy: RowPolicy, batch: int, cap: int, rng: np.random.Generator) -> Float64:
    """Score-function gradient of the normalised reward over a batch of trajectories, [4, K].

    The reward of a trajectory is 1[target] - moves / cap; its advantage that minus the batch's mean, over the
    batch's deviation (0 where all are equal). The gradient is the mean over trajectories of
    advantage * sum over moves of (1[desired] - p).
    """
    trajectories = sample_paths(policy, batch, cap, rng)
    reward = trajectories.reached - trajectories.steps / cap
    spread = reward.std()
    # Equal rewards do not say which moves were the better ones.
    if spread == 0:
        return np.zeros_like(policy.gaps)
    advantage = (reward - reward.mean()) / spread
    row, wanted, whose = moves_of(trajectories)
    pull = advantage[whose] * (wanted - policy.desired.reshape(-1)[row])
    total = np.bincount(row, weights=pull, minlength=policy.gaps.size)
    return np.asarray(total.reshape(policy.gaps.shape) / batch)


def distill(
    teacher: RowPolicy,
    student: RowPolicy,
    traces: int,
    *,
    cap: int = 400,
    seed: int = 0,
    settings: SftSettings | None = None,
) -> Trained:
    """Train a student on sampled traces of a teacher that reached the target, recoveries kept.

    Raises:
        BadInput: a cap below 2 K + 2, or no trace of the teacher reached the target.
    """
    return sft(student, teacher_moves(teacher, traces, cap=cap, seed=seed), settings)


def teacher_moves(teacher: RowPolicy, traces: int, *, cap: int = 400, seed: int = 0) -> Float64:
    """Moves of sampled traces of a teacher that reached the target, [4, K, 2]: what distillation sees.

    Raises:
        BadInput: a cap below 2 K + 2, or no trace reached the target.
    """
    trajectories = sample_paths(teacher, traces, cap, np.random.default_rng(seed))
    if not bool(trajectories.reached.any()):
        raise BadInput(
            f"none of {traces} traces of the teacher reached the target in {cap} moves",
            where="maze training",
            hint="use a larger cap, or a better teacher",
        )
    return count_moves(trajectories.only(trajectories.reached))


def maximum_likelihood(start: RowPolicy, moves: Float64) -> RowPolicy:
    """The row policy under which a table of moves is likeliest; rows without moves stay as they were.

    A row all of whose moves were desired becomes sure (gap ``inf``), one that only turned ``-inf``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # Without moves this is inf - inf; such rows keep their own gap below.
        fitted = np.log(moves[..., 0]) - np.log(moves[..., 1]) + np.log(base_odds(start.graph))
    return RowPolicy(start.graph, np.where(moves.sum(-1) > 0, fitted, start.gaps))


@final
@dataclass(frozen=True, slots=True)
class RowSupport:
    """What a table of moves teaches: moves and desired moves of each row family, and rows without any.

    ``predicted`` is the expected hitting time of the maximum-likelihood policy, whose unseen rows stay as
    they began; ``stuck`` names the state that makes it infinite.
    """

    moves: dict[str, int]
    desired: dict[str, int]
    unseen: tuple[str, ...]
    predicted: float
    stuck: str | None


def row_support(start: RowPolicy, moves: Float64) -> RowSupport:
    """What a table of moves [4, K, 2] teaches a student that begins at ``start``."""
    seen = moves.sum(-1)
    found = expected_hitting_time(maximum_likelihood(start, moves))
    unseen = [f"{name}_{j}" for r, name in enumerate(ROWS) for j in np.flatnonzero(seen[r] == 0)]
    return RowSupport(
        {name: int(seen[r].sum()) for r, name in enumerate(ROWS)},
        {name: int(moves[r, :, 0].sum()) for r, name in enumerate(ROWS)},
        tuple(unseen),
        found.value,
        found.stuck,
    )


def _trained(policy: RowPolicy, gaps: list[NDArray[np.float64]]) -> Trained:
    with np.errstate(over="ignore"):
        odds = base_odds(policy.graph) * np.exp(-np.array(gaps))
    values = hitting_times(policy.graph.branches, odds)
    curve = tuple((number, float(value)) for number, value in enumerate(values))
    return Trained(RowPolicy(policy.graph, gaps[-1]), curve)
