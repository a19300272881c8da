"""Is a search better when it is told more? Outcomes of the same kernels and seeds, paired by feedback.

Source: arXiv 2606.26453 for the three arms and the signed-rank test; one-sided, corrected for the three
comparisons (Holm), and over the means of kernels is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TypeAlias, final

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork_methods.kernel.bench.result import Evaluated
from refork_methods.kernel.search.folder import SEARCH, read_facts

#: The order in which the first of two arms is expected to be the better one.
ARMS = ("diagnosed", "none", "raw")
#: A kernel, and which search of it: its seed, or its kind, writer and seed.
Case: TypeAlias = tuple[str, int | str]


@final
@dataclass(frozen=True, slots=True)
class ArmTest:
    """One arm against another. ``ratio``: geometric mean of the speed-ups' ratio, with its 95 % interval.

    ``p``: one-sided, that ``better`` is no better; ``adjusted``: by Holm over all comparisons. All are over
    ``kernels``, each of which counts as the mean of its cases; where there is one alone they are over its
    ``cases``, and hold for it alone.
    """

    better: str
    other: str
    kernels: int
    cases: int
    ratio: float
    low: float
    high: float
    p: float
    adjusted: float


def compare_arms(speedups: Mapping[str, Mapping[Case, float]]) -> list[ArmTest]:
    """Each pair of arms on the cases that both have; ``speedups[arm][kernel, seed]``, 1 where none was found.

    Raises:
        BadInput: fewer than two arms, two common cases, or a speed-up that is not above 0.
    """
    order = [arm for arm in ARMS if arm in speedups] + sorted(speedups.keys() - set(ARMS))
    if len(order) < 2:
        raise BadInput(
            f"arms: {order}", where="compare arms", hint="two at least, of the same kernels and seeds"
        )
    rows = []
    for better, other in combinations(order, 2):
        common = sorted(speedups[better].keys() & speedups[other].keys(), key=str)
        if len(common) < 2:
            raise BadInput(f"{better} and {other} have {len(common)} cases in common", where="compare arms")
        mine, theirs = (np.array([speedups[arm][case] for case in common]) for arm in (better, other))
        if not (np.all(mine > 0) and np.all(theirs > 0)):
            raise BadInput("a speed-up that is not above 0", where=f"arms {better} and {other}")
        # In logs a gain of 2 and a loss of 2 weigh alike.
        base, above = np.log(theirs), np.log(mine)
        kernels = np.array([kernel for kernel, _ in common])
        names = np.unique(kernels)
        if len(names) > 1:
            # What a kernel gains by is common to its seeds: as cases of their own they would feign evidence.
            base, above = (np.array([one[kernels == name].mean() for name in names]) for one in (base, above))
        test = stats.wilcoxon(base, above, alternative="greater")
        rows.append((better, other, len(names), len(common), stats.paired_t(base, above).interval, test.p))
    adjusted = stats.holm(np.array([row[-1] for row in rows])).p
    return [
        ArmTest(
            better, other, kernels, cases, math.exp(span.estimate), math.exp(span.low), math.exp(span.high),
            p, float(up),
        )
        for (better, other, kernels, cases, span, p), up in zip(rows, adjusted, strict=True)
    ]  # fmt: skip


def read_arms(folders: Iterable[Path]) -> dict[str, dict[Case, float]]:
    """Final speed-ups of finished searches by feedback, from folders or folders of folders.

    One that found nothing faster counts as 1.

    Raises:
        BadInput: no finished search there, or two of the same arm, kernel, kind, writer and seed.
    """
    found: dict[str, dict[Case, float]] = {}
    for top in folders:
        for file in sorted(top.rglob(SEARCH)):
            facts = read_facts(file.parent)
            if facts.get("state") != "done" or not facts.get("final"):
                continue
            settings, problem = facts["settings"], facts["problem"]
            writer = str(facts["writer"]).partition("(")[0]
            kind = f"{settings['search']} {settings['evaluations']} {writer}"
            arm = found.setdefault(settings["feedback"], {})
            case = (f"{problem['name']} {problem['digest']}", f"{kind} {int(settings['seed'])}")
            if case in arm:
                raise BadInput("this search is there twice", where=str(file.parent))
            final = Evaluated.from_json(facts["final"])
            arm[case] = max(1.0, final.speedup or 1.0) if final.ok else 1.0
    if not found:
        raise BadInput("there is no finished search", where=", ".join(map(str, folders)))
    return found
