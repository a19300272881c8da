"""Are the critics independent given the outcome, as counting each one's evidence in full supposes?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, final

import numpy as np
from jaxtyping import Bool, Float

from refork.errors import BadInput, CannotDo
from refork.stats import benjamini_hochberg
from refork.stats.results import Array
from refork_methods.gate.records import Record, critic_names, labelled

#: Below this many expected cases in a cell, the chi-squared distribution of G^2 is not to be trusted.
FEWEST_EXPECTED: Final = 5.0
#: From this Cramer's V on, in every stratum that can tell, two critics count as one.
SAME: Final = 0.9
#: More critics have more cells than any sample has cases.
MOST: Final = 12
#: Shuffles behind a permutation p.
SHUFFLES: Final = 999


@final
@dataclass(frozen=True, slots=True)
class Stratum:
    """The test within right or wrong candidates.

    ``g2`` over the cells of all critics that both pass and fail there, ``df`` its degrees of freedom, ``p``
    by the chi-squared distribution; ``p_shuffled`` by shuffling every critic's verdicts, where expected
    counts are low. None where fewer than two critics vary. ``degenerate``: critics that always pass or always
    fail.
    """

    right: bool
    cases: int
    g2: float | None
    df: int
    p: float | None
    p_shuffled: float | None
    degenerate: tuple[str, ...]
    min_expected: float | None
    low_cells: int

    @property
    def low(self) -> bool:
        """Whether a cell expects fewer than five cases."""
        return self.low_cells > 0


@final
@dataclass(frozen=True, slots=True)
class Pair:
    """Two critics: Cramer's V among right and among wrong candidates, None where one does not vary.

    ``p`` of the pooled G^2 of the two, ``p_adjusted`` over all pairs (false discovery rate). ``agreement`` is
    the share of cases with one verdict; ``same`` where the two tell the same, or the opposite, given the
    outcome.
    """

    first: str
    second: str
    v_right: float | None
    v_wrong: float | None
    agreement: float
    p: float | None
    p_adjusted: float | None
    same: bool


@final
@dataclass(frozen=True, slots=True)
class IndependenceReport:
    """Both strata, the two pooled, all pairs, and what to do about it in words.

    ``cases`` have a verdict of every critic; ``incomplete`` have not and are left out.
    """

    critics: tuple[str, ...]
    cases: int
    incomplete: int
    strata: tuple[Stratum, Stratum]
    g2: float | None
    df: int
    p: float | None
    pairs: tuple[Pair, ...]
    warnings: tuple[str, ...]

    @property
    def duplicates(self) -> tuple[tuple[str, str], ...]:
        """Pairs whose second tells nothing that the first did not."""
        return tuple((pair.first, pair.second) for pair in self.pairs if pair.same)


def independence(
    records: Iterable[Record], critics: Sequence[str] | None = None, *, rate: float = 0.05, seed: int = 0
) -> IndependenceReport:
    """Test whether critics are independent given the outcome: G^2 over their 2^K cells in each stratum.

    A critic that does not vary in a stratum is taken out of its test, so df = 2^K - 1 - K of those that do (4
    critics: 11, both strata 22). The paper's code keeps 11 there, which makes the test too mild. Cases are
    taken as independent; several candidates of one instance are not quite, which makes it too strict.

    Raises: BadInput for fewer than two critics, an unknown one, or no case with an outcome and every verdict;
        CannotDo for more than twelve critics.
    Source: arXiv:2606.24453; pooled pairs, their false discovery rate, shuffles and duplicates are ours.
    """
    with_outcome = labelled(records).records
    names = tuple(critics) if critics is not None else critic_names(with_outcome)
    if len(names) < 2:
        raise BadInput(f"{len(names)} critics cannot depend on each other", hint="at least two")
    if len(names) > MOST:
        raise CannotDo(f"{len(names)} critics have {2 ** len(names):,} cells", hint=f"test {MOST} at a time")
    whole = [r for r in with_outcome if all(r.verdicts.get(name) is not None for name in names)]
    if not whole:
        raise BadInput("no candidate has an outcome and a verdict of every critic", hint=", ".join(names))
    table = np.array([[bool(r.verdicts[name]) for name in names] for r in whole], dtype=np.bool_)
    right = np.array([bool(r.right) for r in whole])
    rng = np.random.default_rng(seed)
    strata = (
        _stratum(table[right], names, True, rng),
        _stratum(table[~right], names, False, rng),
    )
    tested = [one for one in strata if one.g2 is not None]
    g2 = sum(one.g2 or 0.0 for one in tested) if tested else None
    df = sum(one.df for one in tested)
    pairs = _pairs(table, right, names)
    warnings = _words(strata, pairs, rate)
    left_out = len(with_outcome) - len(whole)
    return IndependenceReport(names, len(whole), left_out, strata, g2, df, _p(g2, df), pairs, warnings)


def g_squared(table: Bool[Array, "cases critics"]) -> tuple[float, int, Float[np.ndarray, "cells"]]:
    """G^2 of mutual independence over all cells, its degrees of freedom, and the expected counts.

    Every column must vary: a cell that cannot be reached has no expectation to compare with.
    """
    cases, critics = table.shape
    # The first critic is the highest bit, which is the order in which np.outer lays out the expected counts.
    cells = table.astype(np.int64) @ (1 << np.arange(critics)[::-1])
    seen = np.bincount(cells, minlength=1 << critics).astype(np.float64)
    rates = table.mean(axis=0)
    expected = np.array([float(cases)])
    for passing in rates:
        expected = np.outer(expected, [1 - passing, passing]).reshape(-1)
    # An empty cell adds 0 to G^2, as x log x does in the limit; computed, it would be NaN.
    held = seen > 0
    g2 = 2 * float((seen[held] * np.log(seen[held] / expected[held])).sum())
    return max(g2, 0.0), (1 << critics) - 1 - critics, expected


def _stratum(
    table: Bool[Array, "cases critics"], names: Sequence[str], right: bool, rng: np.random.Generator
) -> Stratum:
    moving = [i for i in range(len(names)) if len(table) and table[:, i].any() and not table[:, i].all()]
    still = tuple(name for i, name in enumerate(names) if i not in moving)
    if len(moving) < 2:
        return Stratum(right, len(table), None, 0, None, None, still, None, 0)
    live = table[:, moving]
    g2, df, expected = g_squared(live)
    low = int((expected < FEWEST_EXPECTED).sum())
    shuffled = None
    if low:
        # permuted shuffles every column apart, so the pass rates stay and only the dependence goes.
        # permutation would move whole rows and change nothing.
        draws = [g_squared(rng.permuted(live, axis=0))[0] for _ in range(SHUFFLES)]
        # The allowance lets a shuffle with the same table count as a tie, however its sum was rounded.
        shuffled = (1 + sum(draw >= g2 - 1e-9 for draw in draws)) / (SHUFFLES + 1)
    return Stratum(right, len(table), g2, df, _p(g2, df), shuffled, still, float(expected.min()), low)


def _p(g2: float | None, df: int) -> float | None:
    from scipy.stats import chi2

    return None if g2 is None or df == 0 else float(chi2.sf(g2, df))


def _pairs(
    table: Bool[Array, "cases critics"], right: Bool[Array, "cases"], names: Sequence[str]
) -> tuple[Pair, ...]:
    found: list[tuple[str, str, float | None, float | None, float, float | None]] = []
    for i, j in combinations(range(len(names)), 2):
        both = table[:, [i, j]]
        parts = [both[right], both[~right]]
        moving = [part for part in parts if len(part) and (part.any(axis=0) & ~part.all(axis=0)).all()]
        g2 = sum(g_squared(part)[0] for part in moving) if moving else None
        v_right, v_wrong = (_cramer(part) for part in parts)
        found.append(
            (
                names[i],
                names[j],
                v_right,
                v_wrong,
                float((both[:, 0] == both[:, 1]).mean()),
                # Two critics leave 4 - 1 - 2 = 1 degree of freedom in each stratum that counts.
                _p(g2, len(moving)),
            )
        )
    tested = [p for *_, p in found if p is not None]
    adjusted = iter(benjamini_hochberg(np.array(tested)).p.tolist() if tested else ())
    return tuple(
        Pair(a, b, vr, vw, agreement, p, None if p is None else next(adjusted), _same(vr, vw))
        for a, b, vr, vw, agreement, p in found
    )


def _cramer(part: Bool[Array, "cases two"]) -> float | None:
    from scipy.stats.contingency import association

    if not len(part) or not (part.any(axis=0) & ~part.all(axis=0)).all():
        return None
    counts = np.bincount(part.astype(np.int64) @ np.array([2, 1]), minlength=4).reshape(2, 2)
    return float(association(counts, method="cramer"))


def _same(v_right: float | None, v_wrong: float | None) -> bool:
    known = [v for v in (v_right, v_wrong) if v is not None]
    return bool(known) and min(known) >= SAME


def _words(strata: tuple[Stratum, Stratum], pairs: Sequence[Pair], rate: float) -> tuple[str, ...]:
    said: list[str] = []
    for one in strata:
        side = "right" if one.right else "wrong"
        if one.degenerate:
            said.append(
                f"among {side} candidates {', '.join(one.degenerate)} never varies: its independence cannot "
                "be tested there"
            )
        if one.low:
            said.append(
                f"among {side} candidates {one.low_cells} cells expect fewer than {FEWEST_EXPECTED:g} cases: "
                "read the p by shuffling"
            )
        p = one.p_shuffled if one.p_shuffled is not None else one.p
        if p is not None and p < rate:
            said.append(
                f"among {side} candidates the critics are not independent (p = {p:.2g}): beliefs will be "
                "too sure"
            )
    for pair in pairs:
        if pair.same:
            said.append(
                f"{pair.first} and {pair.second} tell the same given the outcome: keep one, or its evidence "
                "counts twice"
            )
        elif pair.p_adjusted is not None and pair.p_adjusted < rate:
            strongest = max(v for v in (pair.v_right, pair.v_wrong) if v is not None)
            said.append(
                f"{pair.first} and {pair.second} depend on each other given the outcome (Cramer's V up to "
                f"{strongest:.2f}, adjusted p = {pair.p_adjusted:.2g})"
            )
    return tuple(said)
