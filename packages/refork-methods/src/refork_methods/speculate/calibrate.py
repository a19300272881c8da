"""Confidences as chances: sequential temperature scaling, and how well stated survivals hold.

Everything is measured on the cumulative product, the chance that a whole prefix of drafts survives.

Source: arXiv 2607.05147 (sequential temperature scaling).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.settings import present_mark
from refork.stats import auroc
from refork.stats.results import Array
from refork.types import Json
from refork_methods.decide import brier, calibration_error
from refork_methods.speculate.files import read_json, write_json
from refork_methods.speculate.rounds import Rounds

BINS = 20
"""Equal-width bins of the calibration error."""
GRID = np.geomspace(0.25, 4.0, 61)
"""Temperatures tried at each position (ours)."""
FEWEST = 500
"""With fewer rounds that reach a position it keeps the temperature before it (ours)."""
_FORMAT = "refork sequential temperature scaling 1"


@final
@dataclass(frozen=True, slots=True)
class SequentialTemperatureScaling:
    """Temperatures T[g], one per position; ``reached`` [g] says on how many rounds each was chosen.

    A round reaches a position when all drafts before it were kept and its own outcome is known. Each
    temperature keeps the order of confidences at its position.

    Source: arXiv 2607.05147; the grid and what is done with few rounds are ours.
    """

    temperatures: tuple[float, ...] = ()
    reached: tuple[int, ...] = ()

    def fit(
        self,
        logits: Float[Array, "N g"],
        prefix_mask: Bool[Array, "N g"],
        known: Bool[Array, "N g"] | None = None,
        *,
        fewest: int = FEWEST,
    ) -> SequentialTemperatureScaling:
        """Choose T_1 .. T_g in turn, each with those before it fixed, by the error of the cumulative product.

        ``prefix_mask[n, k]``: drafts 1 .. k of the round were all kept. ``known`` marks outcomes there are;
        by default all, so every round must have been verified whole (see :func:`calibrate` for logs).

        Raises:
            BadInput: shapes that differ, logits that are not finite, or a prefix kept after one that was not.
        """
        z, y, seen = _checked(logits, prefix_mask, known)
        before = np.ones(len(z))
        temperatures: list[float] = []
        counts: list[int] = []
        for k in range(z.shape[1]):
            use = seen[:, k]
            reach = int((use & (y[:, k - 1] if k else True)).sum())
            last = temperatures[-1] if temperatures else 1.0
            chosen = last if reach < fewest else _best(z[use, k], before[use], y[use, k])
            temperatures.append(chosen)
            counts.append(reach)
            before = before * _sigmoid(z[:, k] / chosen)
        return SequentialTemperatureScaling(tuple(temperatures), tuple(counts))

    def confidence(self, logits: Float[Array, "*n g"]) -> Float[np.ndarray, "*n g"]:
        """Calibrated conditional chances c.

        Raises:
            BadInput: NaN, or blocks of another length than was calibrated.
        """
        z = np.asarray(logits, dtype=np.float64)
        if np.isnan(z).any():
            raise BadInput("a confidence logit is NaN")
        if not self.temperatures:
            return _sigmoid(z)
        if z.shape[-1] != len(self.temperatures):
            raise BadInput(
                f"blocks of {z.shape[-1]} drafts, but {len(self.temperatures)} positions were calibrated"
            )
        return _sigmoid(z / np.array(self.temperatures))

    def apply(self, logits: Float[Array, "*n g"]) -> Float[np.ndarray, "*n g"]:
        """Survivals a: the chances that the first j drafts are all kept. Raises BadInput as confidence."""
        return np.asarray(np.cumprod(self.confidence(logits), axis=-1))

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "format": _FORMAT, "temperatures": list(self.temperatures), "reached": list(self.reached),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Json) -> SequentialTemperatureScaling:
        """Inverse of :meth:`to_json`. Raises BadInput for what is no such calibration."""
        try:
            made = cls(tuple(float(t) for t in data["temperatures"]), tuple(int(n) for n in data["reached"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"this is no calibration of a drafter: {error!r}") from error
        sound = all(np.isfinite(t) and t > 0 for t in made.temperatures)
        if (
            present_mark(data.get("format")) != _FORMAT
            or not sound
            or len(made.reached) != len(made.temperatures)
        ):
            raise BadInput("this is no calibration of a drafter", hint=_FORMAT)
        return made

    def save(self, path: Path) -> None:
        """Write the calibration, whole or not at all."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> SequentialTemperatureScaling:
        """Read a calibration. Raises BadInput as :meth:`from_json`."""
        try:
            return cls.from_json(read_json(path))
        except BadInput as error:
            raise BadInput(
                error.what, where=error.where or str(path), hint="refork speculate calibrate --out writes one"
            ) from error


@final
@dataclass(frozen=True, slots=True)
class PositionReport:
    """Stated against observed survival at one position (counted from 1).

    ``ece`` over equal-width bins, ``auroc`` None where an outcome occurred fewer than twice, ``kept`` the
    observed share, ``stated`` the mean of what was stated, over ``rounds`` whose outcome is known.
    """

    position: int
    rounds: int
    stated: float | None
    kept: float | None
    ece: float | None
    auroc: float | None
    brier: float | None


@final
@dataclass(frozen=True, slots=True)
class Calibrated:
    """Temperatures fitted on the earlier rounds of a log, and how survivals hold on the later ones."""

    scaling: SequentialTemperatureScaling
    fitted: int
    before: list[PositionReport]
    after: list[PositionReport]

    def to_json(self) -> Json:
        """Plain fields; mean errors over the positions."""
        return {
            "temperatures": list(self.scaling.temperatures), "reached": list(self.scaling.reached),
            "fitted_rounds": self.fitted,
            "ece_before": mean_ece(self.before), "ece_after": mean_ece(self.after),
            "before": report_json(self.before), "after": report_json(self.after),
        }  # fmt: skip


def calibrate(rounds: Rounds, held_out: float = 0.5, *, fewest: int = FEWEST) -> Calibrated:
    """Fit on the first part of a log and report on the last, the share ``held_out`` of its rounds.

    Raises:
        BadInput: a share outside (0, 1), a part without rounds, or rounds that a schedule cut.
    """
    first = int(len(rounds) * (1 - held_out)) if 0 < held_out < 1 else 0
    if not 0 < first < len(rounds):
        raise BadInput(f"{len(rounds)} rounds, of which {held_out} are held out, leave a part empty")
    refuse_cut(rounds)
    y, known = rounds.prefix_mask(), rounds.known()
    fit, rest = slice(0, first), slice(first, None)
    scaling = SequentialTemperatureScaling().fit(rounds.logits[fit], y[fit], known[fit], fewest=fewest)
    stated = [s.apply(rounds.logits[rest]) for s in (SequentialTemperatureScaling(), scaling)]
    before, after = (report(a, y[rest], known[rest]) for a in stated)
    return Calibrated(scaling, first, before, after)


def refuse_cut(rounds: Rounds) -> None:
    """Refuse rounds that were truncated by a policy that reads confidences."""
    cut = rounds.cut_by_schedule()
    if cut:
        names = sorted({s for s in rounds.schedule if s is not None and s != "fixed"})
        raise BadInput(
            f"{cut} of {len(rounds)} rounds were cut by the policy to be calibrated ({', '.join(names)})",
            hint="record rounds with the whole block verified (no schedule, or fixed) and calibrate on those",
        )


def report(
    survival: Float[Array, "N g"],
    prefix_mask: Bool[Array, "N g"],
    known: Bool[Array, "N g"] | None = None,
    bins: int = BINS,
) -> list[PositionReport]:
    """How well stated survivals hold at every position; None where nothing was observed.

    Raises:
        BadInput: survivals outside [0, 1], or shapes that differ.
    """
    a, y, seen = _checked(survival, prefix_mask, known)
    found = []
    for k in range(a.shape[1]):
        p, hit = a[seen[:, k], k], y[seen[:, k], k].astype(float)
        if not len(p):
            found.append(PositionReport(k + 1, 0, None, None, None, None, None))
            continue
        both = min(hit.sum(), len(hit) - hit.sum()) >= 2
        found.append(
            PositionReport(
                k + 1,
                len(p),
                float(p.mean()),
                float(hit.mean()),
                calibration_error(p, hit, bins),
                auroc(p, hit).estimate if both else None,
                brier(p, hit),
            )
        )
    return found


def mean_ece(positions: list[PositionReport]) -> float | None:
    """Mean calibration error over the positions that have one."""
    known = [p.ece for p in positions if p.ece is not None]
    return float(np.mean(known)) if known else None


def report_json(positions: list[PositionReport]) -> list[Json]:
    """Plain fields of a report."""
    return [asdict(p) for p in positions]


def _best(z: Array, before: Array, y: Array) -> float:
    """The temperature of the grid with the least calibration error; of equals the nearest to 1."""
    errors = [calibration_error(before * _sigmoid(z / t), y.astype(float), BINS) for t in GRID]
    order = np.lexsort((np.abs(np.log(GRID)), np.array(errors)))
    return float(GRID[order[0]])


def _sigmoid(z: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import expit

    return np.asarray(expit(z), dtype=np.float64)


def _checked(
    values: Array, prefix_mask: Array, known: Array | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Values, outcomes and which of them are known, all [N, g]."""
    x, y = np.asarray(values, dtype=np.float64), np.asarray(prefix_mask)
    if x.ndim != 2 or x.shape != y.shape or not x.size:
        raise BadInput(f"values {x.shape} and outcomes {y.shape} must both be [rounds, block]")
    if not np.isfinite(x).all():
        raise BadInput(f"{int((~np.isfinite(x)).sum())} confidence values are not finite")
    if not np.isin(y, (0, 1)).all():
        raise BadInput("outcomes must be 0 or 1")
    y = y.astype(bool)
    if (y[:, 1:] & ~y[:, :-1]).any():
        raise BadInput(
            "a longer prefix was kept than a shorter one", hint="give prefix masks, not accept bits"
        )
    seen = np.ones_like(y) if known is None else np.asarray(known, dtype=bool)
    if seen.shape != y.shape:
        raise BadInput(f"outcomes {y.shape}, of which {seen.shape} are known")
    return x, y, seen
