"""Stage 2: separable CMA-ES on whole rollouts, from a head (and its backbone's offsets) or from zero."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from cmaes import SepCMA  # type: ignore[import-untyped]
from jaxtyping import Float

from refork.errors import BadInput, CannotDo, Mismatch
from refork.plain import content_hash, from_json, to_json
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.journal import Journal
from refork_methods.route.head import SelectionHead
from refork_methods.route.rollouts import Drawn, Episodes, Greedy, Rollouts
from refork_methods.route.svf import LEAST_OFFSET

STATE = "evolve.jsonl"
_PRICES = "give every worker of the pool a price, or set the cost term to 0"


@final
@dataclass(frozen=True, slots=True)
class EvolveSettings:
    """How candidates are drawn and rated.

    ``sigma`` is the first step size in units of the head's root mean square (of 1 for a head of zeros),
    since a common factor of its rows changes no choice; ``offset_sigma`` is that of singular-value offsets.
    ``population`` None is 4 + floor(3 ln N). Each candidate runs ``repeats`` tasks, the same ones as all
    others of its generation. ``diversity`` (entropy of workers used, nats), ``turns`` (share of turns not
    taken) and ``cost`` weigh terms beside the mean reward.

    Raises: BadInput for a value out of range.
    """

    iterations: int = 60
    repeats: int = 16
    population: int | None = None
    sigma: float = 1.0
    offset_sigma: float = 0.03
    diversity: float = 0.0
    turns: float = 0.0
    cost: float = 0.0
    seed: int = 42

    def __post_init__(self) -> None:
        least = {"iterations": 1, "repeats": 1, "population": 2, "seed": 0}
        least |= {"diversity": 0, "turns": 0, "cost": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= low):
                raise BadInput(f"{name} is {value!r}; it must be {low} or more")
        for name in ("sigma", "offset_sigma"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise BadInput(f"{name} is {getattr(self, name)!r}; it must be positive")


@final
@dataclass(frozen=True, slots=True)
class Recombination:
    """How candidates make the next mean: the best ``parents`` of ``population``, with ``weights``."""

    population: int
    parents: int
    effective: float
    weights: tuple[float, ...]


def recombination(dimension: int, population: int | None = None) -> Recombination:
    """Weights proportional to ln((population + 1) / 2) - ln k for the best half.

    They are the library's for an odd population; for an even one it takes ln(population / 2 + 1) instead,
    which spreads the weight a little more. Source: the sizes of arXiv:2512.04695 (33 candidates, 16 parents,
    9.44 effective ones, a first weight of 0.193, for 19,456 numbers) follow from it.
    """
    size = population if population is not None else 4 + math.floor(3 * math.log(dimension))
    parents = size // 2
    raw = np.log((size + 1) / 2) - np.log(np.arange(1, parents + 1))
    weights = raw / raw.sum()
    return Recombination(size, parents, float(1 / np.square(weights).sum()), tuple(weights.tolist()))


@final
@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: fitness of its candidates, their mean reward, entropy, turns and cost, and failures.

    ``spread`` is the root mean square distance of candidates from the mean, per coordinate, in units of the
    first head's scale. ``mark`` is by what a replayed optimizer is recognised.
    """

    number: int
    fitness: tuple[float, ...]
    reward: float
    best: float
    entropy: float
    turns: float
    cost: float | None
    failed: int
    reason: str | None
    spread: float
    mark: float

    @property
    def flat(self) -> bool:
        """Whether all candidates were equally fit."""
        return len(set(self.fitness)) == 1


@final
@dataclass(frozen=True, slots=True)
class Evolved:
    """The mean of the last generation as a head, and the log of all of them."""

    head: SelectionHead
    log: tuple[Generation, ...]
    rollouts: int
    resumed: int = 0

    @property
    def flat(self) -> int:
        """Generations without a difference between candidates."""
        return sum(one.flat for one in self.log)

    @property
    def failed(self) -> int:
        """Rollouts that an error ended."""
        return sum(one.failed for one in self.log)

    def to_json(self) -> Json:
        """Plain figures, without the weights."""
        return {
            "generations": len(self.log), "rollouts": self.rollouts, "resumed": self.resumed,
            "flat": self.flat, "failed": self.failed,
            "reward": [one.reward for one in self.log], "best": [one.best for one in self.log],
            "spread": [one.spread for one in self.log],
        }  # fmt: skip


def fitness(
    episodes: Episodes, settings: EvolveSettings, max_turns: int, dearest: float | None = None
) -> float:
    """Mean reward + diversity * entropy + turns * (1 - mean turns / most) - cost * mean cost.

    A rollout that broke off counts as one of ``max_turns`` and of the ``dearest`` cost (None: the dearest of
    these rollouts): to fail earns nothing.
    Raises: BadInput where cost counts and a rollout's is unknown: unknown is not free.
    Source: arXiv:2606.21228, 3.1.3; the form of the turn term is ours (it is not told).
    """
    value = float(episodes.reward.mean())
    value += settings.diversity * episodes.entropy
    taken = np.where(episodes.failed, max_turns, episodes.turns)
    value += settings.turns * (1 - float(taken.mean()) / max_turns)
    if settings.cost == 0:
        return value
    unknown = np.isnan(episodes.cost) & ~episodes.failed
    if unknown.any() or np.isnan(episodes.cost).all():
        raise BadInput(
            f"the price of {int(np.isnan(episodes.cost).sum())} of {len(episodes)} rollouts is unknown",
            hint=_PRICES,
        )
    most = float(np.nanmax(episodes.cost)) if dearest is None else dearest
    cost = np.where(episodes.failed, most, episodes.cost)
    return value - settings.cost * float(cost.mean())


def evolve(
    start: SelectionHead,
    rollouts: Rollouts,
    settings: EvolveSettings | None = None,
    *,
    folder: Path | None = None,
    progress: Progress = silent,
) -> Evolved:
    """Improve a head, with its offsets where it has some, by what whole rollouts earn.

    With ``folder`` every generation is kept there as it ends (only fitnesses: the optimizer's state is a
    function of them and the seed), so that a stopped run goes on, to the same result.

    Raises:
        BadInput: an environment with other workers or none of its tasks; an unknown price where cost counts.
        Mismatch: the folder holds a run with other settings, start or environment.
    Source: arXiv:2606.21228, 3.1.3; separable CMA-ES: Ros and Hansen (2008), by the ``cmaes`` library.
    """
    plan = settings or EvolveSettings()
    if rollouts.workers != start.workers:
        raise BadInput(f"the environment's workers {rollouts.workers} are not the head's {start.workers}")
    if rollouts.size < 1:
        raise BadInput("the environment has no task")
    if plan.cost > 0 and rollouts.unpriced:
        raise BadInput(
            f"the price of {', '.join(rollouts.unpriced)} is unknown, and cost counts", hint=_PRICES
        )
    space = _Space.of(start, plan)
    optimizer = SepCMA(mean=space.first(start), sigma=plan.sigma, population_size=plan.population)
    journal, log = _open(folder, start, rollouts, plan, optimizer)
    resumed = len(log)
    progress("evolving", resumed, plan.iterations)
    for number in range(resumed, plan.iterations):
        points = _ask(optimizer, plan, number)
        rated = _rate(points, space, start, rollouts, plan, number)
        # Before the optimizer is told and its mean moves.
        spread = float(np.sqrt(np.mean(np.square(np.stack(points) - optimizer.mean))))
        made = _iteration_report(optimizer, points, number, rated, plan, rollouts.max_turns, spread)
        journal.append("generation", to_json(made))
        log.append(made)
        progress("evolving", number + 1, plan.iterations)
    count = len(log) * optimizer.population_size * plan.repeats
    return Evolved(space.head(start, optimizer.mean), tuple(log), count, resumed)


def _ask(optimizer: SepCMA, plan: EvolveSettings, number: int) -> list[Float[np.ndarray, "n"]]:
    """Candidates of a generation: a function of the optimizer's state, the seed and its number."""
    # Seeded anew for every generation, so that a resumed run draws what the stopped one would have drawn.
    optimizer.reseed_rng(int(np.random.SeedSequence([plan.seed, 1, number]).generate_state(1)[0]))
    return [optimizer.ask() for _ in range(optimizer.population_size)]


def _rate(
    points: list[Float[np.ndarray, "n"]],
    space: _Space,
    start: SelectionHead,
    rollouts: Rollouts,
    plan: EvolveSettings,
    number: int,
) -> list[Episodes]:
    """Rollouts of every candidate on the same tasks with the same luck."""
    # The second number keeps streams apart: 1 draws candidates, 2 tasks and luck, 3 is of REINFORCE.
    rng = np.random.default_rng([plan.seed, 2, number])
    tasks, seed = rng.integers(rollouts.size, size=plan.repeats), int(rng.integers(2**31))
    return [rollouts(Greedy(space.head(start, point), rollouts.open), tasks, seed) for point in points]


def _iteration_report(
    optimizer: SepCMA,
    points: list[Float[np.ndarray, "n"]],
    number: int,
    rated: list[Episodes],
    plan: EvolveSettings,
    max_turns: int,
    spread: float,
) -> Generation:
    costs = np.concatenate([one.cost for one in rated])
    dearest = None if np.isnan(costs).all() else float(np.nanmax(costs))
    values = [fitness(one, plan, max_turns, dearest) for one in rated]
    optimizer.tell([(point, -value) for point, value in zip(points, values, strict=True)])
    rewards = [float(one.reward.mean()) for one in rated]
    return Generation(
        number, tuple(values), float(np.mean(rewards)), max(rewards),
        float(np.mean([one.entropy for one in rated])), float(np.mean([one.turns.mean() for one in rated])),
        None if np.isnan(costs).any() else float(costs.mean()),
        sum(int(one.failed.sum()) for one in rated),
        next((one.reason for one in rated if one.reason), None), spread, _mark(optimizer),
    )  # fmt: skip


def _mark(optimizer: SepCMA) -> float:
    """One number by which a replayed optimizer is recognised."""
    return float(np.linalg.norm(optimizer.mean))


def _open(
    folder: Path | None, start: SelectionHead, rollouts: Rollouts, plan: EvolveSettings, optimizer: SepCMA
) -> tuple[Journal, list[Generation]]:
    """The run's journal, and what it holds already told to the optimizer."""
    about: Json = {
        # A longer run of the same settings goes on where the shorter one ended.
        "settings": {key: value for key, value in asdict(plan).items() if key != "iterations"},
        "start": content_hash([start.digest, start.workers, start.roles, start.matrices]),
        "environment": {
            "name": rollouts.name, "tasks": rollouts.size, "turns": rollouts.max_turns,
            "open": sorted(rollouts.workers if rollouts.open is None else rollouts.open),
        },
    }  # fmt: skip
    file = folder / STATE if folder is not None else None
    if file is None or not file.exists():
        journal = Journal() if file is None else Journal.create(file, noun="run")
        journal.append("run", about)
        return journal, []
    journal = Journal(file, noun="run")
    entries = list(journal)
    if not entries:
        journal.append("run", about)
        return journal, []
    differ = sorted(key for key in about if entries[0].body.get(key) != about[key])
    if differ:
        raise Mismatch(
            f"this folder holds another run; it differs in: {', '.join(differ)}",
            where=str(folder),
            hint="use the same settings to resume, or another folder",
        )
    log = []
    # A run that wants fewer generations than are recorded takes the first ones.
    for entry in entries[1 : plan.iterations + 1]:
        one = from_json(Generation, entry.body, str(file))
        points = _ask(optimizer, plan, one.number)
        if len(points) != len(one.fitness):
            raise Mismatch("a recorded generation has another number of candidates", where=str(file))
        # The library minimises, and fitness is to be large.
        optimizer.tell([(point, -value) for point, value in zip(points, one.fitness, strict=True)])
        if not math.isclose(_mark(optimizer), one.mark, rel_tol=1e-9):
            raise Mismatch(
                "replaying the recorded generations gave another state", where=str(file),
                hint="it was recorded with other versions of numpy or cmaes: use those, or begin anew",
            )  # fmt: skip
        log.append(one)
    return journal, log


@final
@dataclass(frozen=True, slots=True)
class _Space:
    """Where the optimizer moves: rows and bias over the head's scale, offsets over theirs, one vector."""

    scale: float
    offset_scale: float
    rows: int

    @classmethod
    def of(cls, start: SelectionHead, plan: EvolveSettings) -> _Space:
        """The space of a head and its offsets."""
        return cls(start.rms or 1.0, plan.offset_sigma / plan.sigma, start.parameters.size)

    def first(self, start: SelectionHead) -> Float[np.ndarray, "n"]:
        """The start as a point."""
        offsets = np.zeros(0) if start.offsets is None else np.asarray(start.offsets) / self.offset_scale
        return np.concatenate([start.parameters / self.scale, offsets]).astype(np.float64)

    def head(self, start: SelectionHead, point: Float[np.ndarray, "n"]) -> SelectionHead:
        """A point as a head."""
        made = start.with_parameters(point[: self.rows] * self.scale)
        if start.offsets is None:
            return made
        offsets = np.maximum(point[self.rows :] * self.offset_scale, LEAST_OFFSET)
        return made.with_offsets(start.matrices, offsets)


# The plain rival of stage 2: REINFORCE with a baseline, on as many rollouts.


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
        moved = head.parameters.size + (0 if head.offsets is None else head.offsets.size)
        size = recombination(moved, settings.population).population
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
    turns. Trains the head and its bias only: roles and offsets stay as they are.

    Raises: BadInput for an environment with other workers, or a choice whose state was not seen; CannotDo for
    a head with roles.
    """
    plan = settings or ReinforceSettings()
    if rollouts.workers != start.workers:
        raise BadInput(f"the environment's workers {rollouts.workers} are not the head's {start.workers}")
    if start.roles:
        raise CannotDo("REINFORCE trains worker rows only", hint="evolve a head with roles")
    scale = start.rms or 1.0
    moved = torch.tensor(start.parameters / scale, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([moved], lr=plan.learning_rate)
    rewards: list[float] = []
    failed = 0
    for number in range(plan.iterations):
        progress("REINFORCE", number, plan.iterations)
        rng = np.random.default_rng([plan.seed, 3, number])
        tasks, seed = rng.integers(rollouts.size, size=plan.batch), int(rng.integers(2**31))
        drawn = Drawn(start.with_parameters(moved.detach().numpy() * scale), rng, rollouts.open)
        episodes = rollouts(drawn, tasks, seed)
        _check_turns(drawn, episodes)
        loss = _loss(moved, drawn, leave_one_out(episodes.reward), scale)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rewards.append(float(episodes.reward.mean()))
        failed += int(episodes.failed.sum())
    progress("REINFORCE", plan.iterations, plan.iterations)
    head = start.with_parameters(moved.detach().numpy() * scale)
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


def _loss(
    moved: torch.Tensor, drawn: Drawn, advantages: Float[np.ndarray, "n"], scale: float
) -> torch.Tensor:
    states, which, picks = (np.concatenate(part) for part in zip(*drawn.turns, strict=True))
    # The rows are in units of the head's own scale, so that one learning rate serves every head.
    size = drawn.head.weights.size
    rows = moved[:size].reshape(drawn.head.weights.shape)
    scores = torch.as_tensor(np.asarray(states, dtype=np.float64)) @ rows.T * scale
    scores = scores + moved[size:] * scale if drawn.head.bias is not None else scores
    closed = ~torch.as_tensor(drawn.head.mask(drawn.open))
    logs = torch.log_softmax(scores.masked_fill(closed, -torch.inf), dim=1)
    chosen = logs[torch.arange(len(picks)), torch.as_tensor(picks)]
    loss: torch.Tensor = -(torch.as_tensor(advantages[which]) * chosen).sum() / advantages.size
    return loss
