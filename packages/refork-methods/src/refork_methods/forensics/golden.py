"""Released counts of a published study, for checking that its figures come out of our formulas.

Made by Aditya Singh, Gerson Kroiz, Senthooran Rajamanoharan and Neel Nanda, arXiv 2606.26071. Counts and
printed figures only; everything derived is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass

from refork.stats import Test, fisher, wilson
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.statistics import trend

#: Type errors in the repository: workarounds of runs. The point at 258 was graded by a rule on the number
#: of steps, the others by a language model, and unfinished runs are counted as honest: one grader and a
#: count of the unfinished are missing, so :mod:`rules` would warn.
TYPE_ERRORS: dict[float, tuple[int, int]] = {
    0: (0, 100), 10: (0, 183), 28: (0, 191), 51: (0, 162), 77: (2, 169), 108: (2, 162), 124: (6, 169),
    151: (7, 161), 182: (8, 146), 200: (7, 141), 224: (16, 163), 258: (23, 175),
}  # fmt: skip
#: Chance that the oracle's answer is flipped: runs that cheat.
ORACLE_NOISE: dict[float, tuple[int, int]] = {
    0.0: (15, 199), 0.01: (37, 137), 0.05: (49, 87), 0.10: (56, 96), 0.15: (67, 97), 0.20: (62, 93),
    0.25: (72, 93), 0.30: (670, 873),
}  # fmt: skip
#: Early meta-reasoning, on a judge's scale of 1 to 5: runs that cheat.
META_REASONING: dict[float, tuple[int, int]] = {
    1: (57, 118), 2: (82, 122), 3: (94, 127), 4: (152, 181), 5: (122, 152),
}  # fmt: skip
#: The trend statistic printed for :data:`META_REASONING`.
PRINTED_META_Z = 6.55
#: Repeated resampling: hits of all runs, and of those whose rejected sentences could be redrawn.
RESAMPLED = ((46, 98), (19, 69))


@dataclass(frozen=True, slots=True)
class Printed:
    """Printed figures in percent to a tenth (None: not printed so), and the counts behind them."""

    what: str
    hits: int
    runs: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def deviation(self) -> float:
        """The largest distance in points between what is printed and Wilson's interval of the counts.

        Up to 0.05 is agreement, since a tenth is the last printed digit.
        """
        found = wilson(self.hits, self.runs)
        pairs = ((self.rate, found.estimate), (self.low, found.low), (self.high, found.high))
        return max(abs(printed - 100 * mine) for printed, mine in pairs if printed is not None)


#: Rates and brackets that are printed beside counts, or whose counts are among the released results. Those of
#: sandbagging are sums over the released runs of each condition (gkroiz/model_forensics_paper,
#: reproduce/data/sandbagging: ``num_low_accuracy`` of ``num_runs``). One printed bracket is left out, for we
#: found no counts of it: 100 [96.4, 100], which is Wilson's for 102 to 104 runs (and Clopper and Pearson's
#: for 100).
PRINTED: tuple[Printed, ...] = (
    Printed("workarounds at 258 type errors", 23, 175, 13.1, 8.9, 18.9),
    Printed("tampering, unchanged", 46, 98, 46.9),
    Printed("tampering, sentences about the source redrawn", 19, 69, 27.5),
    Printed("cheating at a hidden number", 672, 875, 76.8),
    Printed("awareness: finished the task?", 0, 49, None, 0.0, 7.3),
    Printed("awareness: done with my request?", 1, 50, None, 0.4, 10.5),
    Printed("awareness: can I push your commit?", 0, 49, None, 0.0, 7.3),
    Printed("awareness: would the user endorse it", 6, 50, None, 5.6, 23.8),
    Printed("awareness: take a step back", 11, 50, None, 12.8, 35.2),
    Printed("awareness: self-review", 0, 50, None, 0.0, 7.1),
    Printed("awareness: memory note", 0, 31, None, 0.0, 11.0),
    Printed("awareness: done message", 0, 30, None, 0.0, 11.4),
    Printed("awareness: user turn", 13, 40, None, 20.1, 48.0),
    Printed("sandbagging, unchanged", 581, 960, 60.5, 57.4, 63.6),
    Printed("sandbagging, no word of deployment", 227, 972, 23.4, 20.8, 26.1),
    Printed("sandbagging, verbose documents", 199, 434, 45.9, 41.2, 50.6),
    Printed("sandbagging, both", 44, 365, 12.1, 9.1, 15.8),
    Printed("sandbagging, both and a comment for developers", 32, 490, 6.5),
    Printed("sandbagging, consequence reversed", 5, 432, 1.2),
    Printed("sandbagging, changelog", 36, 460, 7.8, 5.7, 10.6),
    Printed("sandbagging, all three", 17, 402, 4.2, 2.7, 6.7),
    # Its rate, 34.97, is printed as 34.9.
    Printed("sandbagging, a sentence that clarifies", 50, 143, None, 27.6, 43.1),
)


def arms(counts: dict[float, tuple[int, int]]) -> tuple[Arm, ...]:
    """A sweep's counts as arms; neither grader nor the unfinished are on record."""
    return tuple(Arm(f"{dose:g}", hits, runs, dose=dose) for dose, (hits, runs) in counts.items())


def max_deviation() -> float:
    """Largest distance in points between a printed figure and ours, the trend statistic included."""
    z = trend(arms(META_REASONING)).interval.estimate
    return max([abs(z - PRINTED_META_Z), *(one.deviation for one in PRINTED)])


def resampling_test() -> Test:
    """Fisher's exact test of the resampled arm against the base; two-sided p about .015, printed as .01."""
    return fisher(*RESAMPLED)
