"""Move leaves between prompts: from those whose group is mixed already to those about to end uniform.

After the first rollouts of every prompt, a posterior of its success rate says how likely more leaves are to
mix its group; a logistic model, fitted again from the run's own log, corrects that likelihood with features
that the posterior does not see. Leaves then go greedily to the largest expected gain, under a hard cap.

Source: the idea (a learned allocator that rescues prompts about to end uniform, at under 5 % extra budget) is
arXiv 2605.05262; features, model and rule are ours.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.growing.growing import Growing, GrowSetup
from refork.growing.mass import is_constant
from refork.plain import from_json

Float64 = NDArray[np.float64]

#: What a run calls it in its folder.
FILE = "allocator.json"
#: No run uses more than this many times its base budget.
HARD_CAP = 1.05
#: Below so many logged groups of both kinds, the posterior alone decides.
_LEAST = 20
FEATURES = ("leaves", "wins", "mean_entropy", "max_entropy", "depth", "posterior", "past_mixed")


def still_uniform(leaves: int, wins: int, more: int, prior: float = 0.5) -> float:
    """Chance that ``leaves`` outcomes, ``wins`` of them successes, are still all equal after ``more`` draws.

    0 where they are mixed already; else a ratio of Beta functions under the prior Beta(prior, prior).
    """
    from scipy.special import betaln

    if 0 < wins < leaves:
        return 0.0
    same, other = (prior + leaves, prior)
    if leaves == 0:
        return math.exp(float(betaln(prior, prior + more) - betaln(prior, prior))) * (2 if more else 1)
    return math.exp(float(betaln(same + more, other) - betaln(same, other)))


@dataclass(frozen=True, slots=True)
class Transfer:
    """What an allocation changed for one task: leaves before and after."""

    task: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class WarmUp:
    """One task after its first round: what the model is told, and how it ended (None: not known yet)."""

    task: str
    leaves: int
    wins: int
    mean_entropy: float
    max_entropy: float
    depth: float
    posterior: float
    past_mixed: float
    uniform: bool | None = None

    def row(self) -> list[float]:
        """Features in the order of ``FEATURES``."""
        return [float(getattr(self, name)) for name in FEATURES]


def allot(
    tasks: Sequence[WarmUp],
    base: int,
    uniform: ArrayLike,
    *,
    floor: int | None = None,
    cap: float = HARD_CAP,
    prior: float = 0.5,
) -> list[int]:
    """Leaves of each task, warm-up ones included; their sum is at most ``cap * base * tasks``.

    Every task keeps ``floor`` (default: half the base) or what it has drawn; the rest goes, leaf by leaf, to
    the largest gain in the expected number of mixed groups. ``uniform`` [tasks] is the predicted chance of
    ending uniform at ``base`` leaves; the chance at other sizes follows the posterior, raised to the power
    that agrees with the prediction. Leaves that gain nothing go back to tasks below base.

    Raises:
        BadInput: a cap outside [1, 1.05], or chances outside [0, 1].
    """
    chance = np.asarray(uniform, dtype=np.float64).reshape(-1)
    if not 1.0 <= cap <= HARD_CAP:
        raise BadInput(f"the cap is {cap}; it must lie in [1, {HARD_CAP}]", where="allocator")
    if len(chance) != len(tasks) or not ((chance >= 0) & (chance <= 1)).all():
        raise BadInput("one chance in [0, 1] per task is needed", where="allocator")
    least = base // 2 if floor is None else floor
    given = [max(t.leaves, min(least, base)) for t in tasks]
    # A product that is whole but for its rounding must not lose a leaf to the floor.
    room = math.floor(cap * base * len(tasks) + 1e-9) - sum(given)
    curves = [_curve(t, base, float(p), prior) for t, p in zip(tasks, chance, strict=True)]
    heap = [(-(curve(g) - curve(g + 1)), i) for i, (curve, g) in enumerate(zip(curves, given, strict=True))]
    heapq.heapify(heap)
    while room > 0 and heap:
        loss, i = heapq.heappop(heap)
        if -loss <= 1e-9:
            break
        given[i] += 1
        room -= 1
        heapq.heappush(heap, (-(curves[i](given[i]) - curves[i](given[i] + 1)), i))
    for i in range(len(tasks)):
        back = min(max(base - given[i], 0), max(room, 0))
        given[i] += back
        room -= back
    return given


def _curve(task: WarmUp, base: int, chance: float, prior: float) -> Callable[[int], float]:
    """Chance of a uniform group by its number of leaves."""
    at_base = still_uniform(task.leaves, task.wins, max(base - task.leaves, 1), prior)
    # A sure prediction has a power of 0, with which no leaf gains anything, or the log of 0.
    inside = min(max(chance, 1e-6), 1 - 1e-6)
    power = math.log(inside) / math.log(at_base) if 0 < at_base < 1 else 1.0

    def curve(leaves: int) -> float:
        return float(still_uniform(task.leaves, task.wins, leaves - task.leaves, prior) ** power)

    return curve


@final
@dataclass(slots=True)
class AdaptiveBudgetAllocator:
    """Allots leaves after the warm-up of each batch of tasks, and learns from how their groups end.

    ``log`` holds every group seen, ``transfers`` every change made. Both are saved with :meth:`save`.

    Raises BadInput for a cap outside [1, 1.05].
    """

    cap: float = HARD_CAP
    floor: int | None = None
    prior: float = 0.5
    log: list[WarmUp] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    _open: list[WarmUp] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not 1.0 <= self.cap <= HARD_CAP:
            raise BadInput(f"the cap is {self.cap}; it must lie in [1, {HARD_CAP}]", where="allocator")

    def predict(self, tasks: Sequence[WarmUp], base: int) -> Float64:
        """Chance of ending uniform at ``base`` leaves, [tasks]: learned where the log suffices."""
        plain = np.array(
            [still_uniform(t.leaves, t.wins, max(base - t.leaves, 0), self.prior) for t in tasks]
        )
        learned = self._learned(tasks)
        if learned is None:
            return plain
        mixed = np.array([0 < t.wins < t.leaves for t in tasks])
        return np.where(mixed, 0.0, learned)

    def _known(self) -> tuple[list[WarmUp], NDArray[np.bool_]]:
        """Logged groups that the warm-up did not mix, which alone the model is for, and how they ended."""
        open_ = [t for t in self.log if t.uniform is not None and not 0 < t.wins < t.leaves]
        return open_, np.array([bool(t.uniform) for t in open_], dtype=bool)

    @property
    def learned(self) -> bool:
        """Whether the log suffices for the model; else the posterior alone decides."""
        labels = self._known()[1]
        return min(int(labels.sum()), int((~labels).sum())) >= _LEAST

    def _learned(self, tasks: Sequence[WarmUp]) -> Float64 | None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if not self.learned:
            return None
        open_, labels = self._known()
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        model.fit(np.array([t.row() for t in open_]), labels)
        return np.asarray(model.predict_proba(np.array([t.row() for t in tasks]))[:, 1], dtype=np.float64)

    def allot(self, plan: GrowSetup, growing: Sequence[Growing]) -> None:
        """Give every task its leaves, after the first round.

        Raises BadInput where the budget is in tokens: this allocator moves leaves.
        """
        base = growing[0].budget.leaves
        if base is None:
            raise BadInput("the allocator moves leaves; this budget is in tokens", where="allocator")
        tasks = [self._warm_up(plan, one) for one in growing]
        given = allot(
            tasks, base, self.predict(tasks, base), floor=self.floor, cap=self.cap, prior=self.prior
        )
        for one, task, leaves in zip(growing, tasks, given, strict=True):
            if leaves != base:
                self.transfers.append(Transfer(task.task, base, leaves))
            one.budget = replace(one.budget, leaves=leaves)
        self._open = tasks

    def _warm_up(self, plan: GrowSetup, one: Growing) -> WarmUp:
        values = one.outcomes(plan)
        known = one.known(plan)
        heights = known.entropy[np.isfinite(known.entropy)]
        past = [not t.uniform for t in self.log if t.task == one.task.id and t.uniform is not None]
        everyone = [not t.uniform for t in self.log if t.uniform is not None]
        # The past of a task counts beside two groups of the run's own mean: once mixed is not always mixed.
        mean = (sum(everyone) + 1) / (len(everyone) + 2)
        return WarmUp(
            one.task.id,
            len(values),
            sum(v >= 1.0 for v in values),
            float(heights.mean()) if len(heights) else 0.0,
            float(heights.max()) if len(heights) else 0.0,
            float(known.depth.max()),
            (sum(values) + self.prior) / (len(values) + 2 * self.prior),
            (sum(past) + 2 * mean) / (len(past) + 2),
        )

    def observe(self, plan: GrowSetup, growing: Sequence[Growing]) -> None:
        """Log how the groups of the last allotment ended."""
        for task, one in zip(self._open, growing, strict=True):
            values = one.outcomes(plan)
            if len(values) >= 2:
                self.log.append(replace(task, uniform=is_constant(values)))
        self._open = []

    def save(self, path: Path) -> None:
        """Write log and transfers as JSON."""
        data = {"log": [asdict(t) for t in self.log], "transfers": [asdict(t) for t in self.transfers]}
        path.write_text(json.dumps(data, indent=1) + "\n")

    def load(self, path: Path) -> None:
        """Go on from the log of :meth:`save`, or of a run's folder that holds one.

        Raises BadInput for what is no such file.
        """
        file = path / FILE if path.is_dir() else path
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            log, transfers = data["log"], data["transfers"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"there is no allocator's log to read: {error!r}",
                where=str(file),
                hint="allocator.json of a run",
            ) from error
        self.log = from_json(list[WarmUp], log, str(file))
        self.transfers = from_json(list[Transfer], transfers, str(file))
