"""Do the rounds of one instance depend on each other beyond the model, as those of easy and hard ones do?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Float, Int

from refork_methods.gate.records import Record, chains, completed, critic_names

#: Shuffles behind the p.
SHUFFLES: Final = 999
#: What the candidates' outcomes are called beside the critics.
OUTCOMES: Final = "outcomes"


@final
@dataclass(frozen=True, slots=True)
class Alike:
    """How alike two rounds of one instance are beyond the model, in the outcomes or in a critic's verdicts.

    ``p`` is adjusted for all that were tested. Both None where shuffling changes nothing.
    """

    correlation: float | None
    p: float | None


@final
@dataclass(frozen=True, slots=True)
class RoundsReport:
    """The test over all ``parts`` (outcomes, then critics); ``p`` None where nothing can be tested.

    ``instances`` have at least two candidates with an outcome.
    """

    instances: int
    p: float | None
    parts: Mapping[str, Alike]
    warnings: tuple[str, ...]


def rounds(
    records: Iterable[Record],
    critics: Sequence[str] | None = None,
    *,
    rate: float = 0.05,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> RoundsReport:
    """Test whether rounds of one instance depend on each other beyond the critic model.

    To the model an instance is nothing but its present candidate: what comes after it, and what critics say
    of it, depends on whether it is right and on nothing before. So three shuffles change nothing: of whole
    draws among instances; of what follows a candidate, among those of one step and outcome; of all verdicts
    on a candidate, among those of one step and outcome. Instances differ by the sum over them of squared
    sums of residuals, one for outcomes and one for each critic, each in its standard deviations over the
    shuffles; ``p`` is the share of shuffles whose largest is as large. A model that holds is rejected with a
    chance of at most ``rate``, in a sample of any size.

    Ours. The model of arXiv:2606.24453 has no difficulty, and its code tests none. In one chain of
    refinements for each instance most of a difficulty shows as persistence, which the kernel holds already:
    little is left to find, and little to lose.
    """
    everything = completed(records)
    names = tuple(critics) if critics is not None else critic_names(everything)
    table = _Table.of(everything, names)
    if table is None:
        alone = "no instance has two candidates with an outcome: whether its rounds depend cannot be tested"
        return RoundsReport(0, None, {}, (alone,))
    rng = np.random.default_rng(seed)
    found = np.array([table.sums(None), *(table.sums(rng) for _ in range(shuffles))])
    spread = found.std(axis=0)
    # The observed sum is one of them here as well, or the shuffles would not be its equals.
    moving = spread > 1e-9 * np.maximum(1.0, np.abs(found).max(axis=0))
    z = np.where(moving, (found - found.mean(axis=0)) / np.where(moving, spread, 1.0), -np.inf)
    top = z.max(axis=1)
    several = [int(n) for n in np.bincount(table.owner)]
    parts = {
        name: Alike(
            float((found[0, i] - found[1:, i].mean()) / table.pairs[i]),
            float((top >= z[0, i] - 1e-9).mean()),
        )
        if moving[i]
        else Alike(None, None)
        for i, name in enumerate((OUTCOMES, *names))
    }
    known = [part.p for part in parts.values() if part.p is not None]
    p = min(known) if known else None
    return RoundsReport(sum(n > 1 for n in several), p, parts, _words(parts, p, rate))


@final
@dataclass(frozen=True, slots=True)
class _Table:
    """Candidates with an outcome; arrays [candidates] but for ``grid``.

    ``grid`` [draws, steps] places them, -1 where none is, ``home`` [draws] says whose a draw is and ``owner``
    whose a candidate is. ``outcome`` and ``verdict`` [candidates, critics] are residuals in standard
    deviations, ``pairs`` [parts] the pairs of trials of one instance.
    """

    grid: Int[np.ndarray, "draws steps"]
    home: Int[np.ndarray, "draws"]
    owner: Int[np.ndarray, "candidates"]
    right: Int[np.ndarray, "candidates"]
    step: Int[np.ndarray, "candidates"]
    outcome: Float[np.ndarray, "candidates"]
    verdict: Float[np.ndarray, "candidates critics"]
    pairs: Float[np.ndarray, "parts"]

    @classmethod
    def of(cls, records: Sequence[Record], critics: Sequence[str]) -> _Table | None:
        draws = [[r for r in chain if r.right is not None] for chain in chains(records)]
        draws = [chain for chain in draws if chain]
        every = [r for chain in draws for r in chain]
        home = np.unique([chain[0].instance for chain in draws], return_inverse=True)[1]
        step = np.array([r.step or 0 for r in every], dtype=np.int64)
        if not every or int(np.bincount(np.repeat(home, [len(c) for c in draws])).max()) < 2:
            return None
        grid = np.full((len(draws), int(step.max()) + 1), -1)
        row = np.repeat(np.arange(len(draws)), [len(chain) for chain in draws])
        grid[row, step] = np.arange(len(every))
        owner = np.asarray(home)[row]
        right = np.array([int(bool(r.right)) for r in every])
        before = np.where(step > 0, grid[row, step - 1], -1)
        # A refinement of a candidate without an outcome is of neither kind: it is compared with its like.
        came = np.where(step == 0, 2, np.where(before < 0, 3, right[before]))
        outcome = _residuals(right.astype(np.float64), 4 * step + came)
        verdicts = np.array([[_number(r.verdicts.get(name)) for name in critics] for r in every])
        said = np.stack(
            [_residuals(column, 2 * step + right) for column in verdicts.reshape(len(every), -1).T], axis=1
        ) if critics else np.empty((len(every), 0))  # fmt: skip
        trials = [outcome, *said.T]
        pairs = [_pairs(owner, column != 0) for column in trials[:1]]
        pairs += [_pairs(owner[right == y], column[right == y] != 0) for column in trials[1:] for y in (0, 1)]
        together = [pairs[0], *(pairs[i] + pairs[i + 1] for i in range(1, len(pairs), 2))]
        return cls(grid, np.asarray(home), owner, right, step, outcome, said, np.maximum(together, 1.0))

    def sums(self, rng: np.random.Generator | None) -> Float[np.ndarray, "parts"]:
        """The squared sums of every instance's residuals, added up; shuffled where ``rng`` is given."""
        owner, judged = self.owner, self.owner
        if rng is not None:
            owner = self._moved(rng)
            stratum = 2 * self.step + self.right
            judged = np.empty_like(owner)
            judged[_mixed(stratum, rng)] = owner[np.argsort(stratum, kind="stable")]
        count = int(self.home.max()) + 1

        def squared(whose: Int[np.ndarray, "some"], values: Float[np.ndarray, "some"]) -> float:
            return float((np.bincount(whose, values, count) ** 2).sum())

        of_critics = [
            sum(squared(judged[self.right == y], column[self.right == y]) for y in (0, 1))
            for column in self.verdict.T
        ]
        return np.array([squared(owner, self.outcome), *of_critics])

    def _moved(self, rng: np.random.Generator) -> Int[np.ndarray, "candidates"]:
        """Whose each candidate is once draws, and what follows a candidate, were shuffled."""
        grid = self.grid[rng.permutation(len(self.grid))]
        for step in range(grid.shape[1] - 1):
            here = grid[:, step]
            rows = np.flatnonzero(here >= 0)
            outcome = self.right[here[rows]]
            there = rows[np.argsort(outcome, kind="stable")]
            grid[there, step + 1 :] = grid[rows[_mixed(outcome, rng)], step + 1 :]
        place = grid >= 0
        owner = np.empty_like(self.owner)
        owner[grid[place]] = np.broadcast_to(self.home[:, None], grid.shape)[place]
        return owner


def _mixed(stratum: Int[np.ndarray, "some"], rng: np.random.Generator) -> Int[np.ndarray, "some"]:
    """Places by stratum, in random order within each."""
    return np.asarray(np.lexsort((rng.random(stratum.size), stratum)))


def _number(verdict: bool | None) -> float:
    return np.nan if verdict is None else float(verdict)


def _residuals(
    values: Float[np.ndarray, "some"], stratum: Int[np.ndarray, "some"]
) -> Float[np.ndarray, "some"]:
    """What is left of each value after its stratum's mean, in its standard deviations; 0 where unknown."""
    made = np.zeros(values.size)
    for one in np.unique(stratum):
        mine = (stratum == one) & ~np.isnan(values)
        if mine.any() and values[mine].std() > 0:
            made[mine] = (values[mine] - values[mine].mean()) / values[mine].std()
    return made


def _pairs(owner: Int[np.ndarray, "some"], trial: np.ndarray) -> float:
    """Ordered pairs of different trials of one instance."""
    counts = np.bincount(owner[trial]) if trial.any() else np.zeros(1)
    return float((counts * (counts - 1)).sum())


def _words(parts: Mapping[str, Alike], p: float | None, rate: float) -> tuple[str, ...]:
    if p is None:
        return ("nothing varies that would show whether the rounds of an instance depend on each other",)
    if p >= rate:
        return ()
    found = ", ".join(
        f"{name} {part.correlation:+.2f}" for name, part in parts.items()
        if part.p is not None and part.p < rate and part.correlation is not None
    )  # fmt: skip
    return (
        f"rounds of one instance depend on each other beyond this model (p = {p:.2g}; correlation: {found}), "
        "as easy and hard ones do: the plan may earn far less than it promises; fit with --classes 2",
    )
