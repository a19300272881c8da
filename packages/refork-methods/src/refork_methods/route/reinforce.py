"""The plain rival of stage 2: REINFORCE with a baseline, on as many rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Float

from refork.errors import BadInput, CannotDo
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.route.acting import Drawn, Episodes, Rollouts
from refork_methods.route.evolve import EvolveSettings, recombination
from refork_methods.route.head import SelectionHead


@final
@dataclass(frozen=True, slots=True)
class ReinforceSettings:
    """``iterations`` of ``batch`` rollouts each; ``learning_rate`` of Adam, in units of the head's scale.

    Raises: BadInput for a value out of range.
    """

    iterations: int = 60
    batch: int = 288
    learning_rate: float = 0.1
    seed: int = 42

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.batch < 2:
            raise BadInput("REINFORCE needs an iteration and two rollouts in it, to have a baseline")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise BadInput(f"learning_rate is {self.learning_rate!r}; it must be positive")

    @classmethod
    def like(
        cls, settings: EvolveSettings, head: SelectionHead, learning_rate: float = 0.1
    ) -> ReinforceSettings:
        """As many iterations and rollouts as an evolution of the same head would take, and its seed."""
        size = recombination(head.weights.size, settings.population).population
        return cls(settings.iterations, size * settings.repeats, learning_rate, settings.seed)


@final
@dataclass(frozen=True, slots=True)
class Reinforced:
    """The trained head, the mean reward of every batch (of drawn workers), and the rollouts used."""

    head: SelectionHead
    rewards: tuple[float, ...]
    rollouts: int
    failed: int

    def to_json(self) -> Json:
        """Plain figures, without the weights."""
        return {"rollouts": self.rollouts, "failed": self.failed, "reward": list(self.rewards)}


def reinforce(
    start: SelectionHead,
    rollouts: Rollouts,
    settings: ReinforceSettings | None = None,
    *,
    progress: Progress = silent,
) -> Reinforced:
    """Raise the expected reward of drawn workers by its score-function gradient.

    A rollout's advantage is its reward minus the mean of the others' in the batch, the same for all its
    turns. Trains the head only: roles and offsets stay as they are.

    Raises: BadInput for an environment with other workers, or a choice whose state was not seen; CannotDo for
    a head with roles.
    """
    plan = settings or ReinforceSettings()
    if rollouts.workers != start.workers:
        raise BadInput(f"the environment's workers {rollouts.workers} are not the head's {start.workers}")
    if start.roles:
        raise CannotDo("REINFORCE trains worker rows only", hint="evolve a head with roles")
    scale = start.rms or 1.0
    w = torch.tensor(start.weights / scale, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=plan.learning_rate)
    rewards: list[float] = []
    failed = 0
    for number in range(plan.iterations):
        progress("REINFORCE", number, plan.iterations)
        rng = np.random.default_rng([plan.seed, 3, number])
        tasks, seed = rng.integers(rollouts.size, size=plan.batch), int(rng.integers(2**31))
        drawn = Drawn(start.with_weights(w.detach().numpy() * scale), rng, rollouts.open)
        episodes = rollouts(drawn, tasks, seed)
        _check_turns(drawn, episodes)
        loss = _loss(w, drawn, leave_one_out(episodes.reward), scale)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rewards.append(float(episodes.reward.mean()))
        failed += int(episodes.failed.sum())
    progress("REINFORCE", plan.iterations, plan.iterations)
    head = start.with_weights(w.detach().numpy() * scale)
    return Reinforced(head, tuple(rewards), plan.iterations * plan.batch, failed)


def _check_turns(drawn: Drawn, episodes: Episodes) -> None:
    """Every turn of a rollout must have been asked for now: a gradient needs its state."""
    rows = [one[1] for one in drawn.turns]
    asked = np.bincount(
        np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64), minlength=len(episodes)
    )
    if (asked < np.where(episodes.failed, 0, episodes.turns)).any() or not rows:
        raise BadInput(
            "some rollouts were not made now but taken from a record, so their states are not known",
            hint="use another seed or tree",
        )


def leave_one_out(rewards: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Each reward minus the mean of the others; they sum to 0."""
    return np.asarray((rewards - rewards.mean()) * rewards.size / (rewards.size - 1))


def _loss(w: torch.Tensor, drawn: Drawn, advantages: Float[np.ndarray, "n"], scale: float) -> torch.Tensor:
    states, rows, picks = (np.concatenate(part) for part in zip(*drawn.turns, strict=True))
    scores = torch.as_tensor(np.asarray(states, dtype=np.float64)) @ w.T * scale
    closed = ~torch.as_tensor(drawn.head.mask(drawn.open))
    logs = torch.log_softmax(scores.masked_fill(closed, -torch.inf), dim=1)
    chosen = logs[torch.arange(len(picks)), torch.as_tensor(picks)]
    loss: torch.Tensor = -(torch.as_tensor(advantages[rows]) * chosen).sum() / advantages.size
    return loss
