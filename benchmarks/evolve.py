"""Judges that evolve with the agents they judge: exact values, erasure, false replacement, and whole runs.

Whole runs are in the scripted world, where the truth is known: a judge that loves gloss accepts machine-made
papers more readily than human ones of the same quality. With traps (work that fooled it, relabelled, and as
many verified controls) its successors become even-handed; without them they do not. Both arms run with the
same seeds. Ratios are geometric means over seeds. Every run is replayed from its log alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from refork.stats import mean_interval
from refork_methods.evolve.belief import best_belief
from refork_methods.evolve.clades import metaproductivity
from refork_methods.evolve.replay import replay
from refork_methods.evolve.scripted.coevolution import World, coevolve
from refork_methods.evolve.scripted.world import SETTINGS, first_judge
from refork_methods.evolve.search import Settings
from refork_methods.journal import Journal
from refork_testbed.trials.evolve import (
    CoevolutionOutcome,
    erasure_effect,
    false_replacement,
    measure,
)

#: Published quantiles of Beta(1 + S, 1 + F), to four digits, by (S, F).
BELIEFS = {(1, 0): 0.2236, (18, 2): 0.7294, (0, 0): 0.05}
CHALLENGERS = (1, 4, 16)
TRAPS, ALONE, FROZEN, STRICT = "with traps", "without traps", "frozen judge", "too strict at first"


@dataclass(frozen=True)
class Job:
    """One run of one arm."""

    arm: str
    seed: int

    @property
    def world(self) -> World:
        """Its world."""
        if self.arm == STRICT:
            return World(first_judge("strict"), seed=self.seed, traps=False)
        judge = first_judge("glossy")
        return World(judge, seed=self.seed, traps=self.arm == TRAPS, replace=self.arm != FROZEN)

    @property
    def settings(self) -> Settings:
        """Its settings; calibration of a strict judge shows within fewer outcomes."""
        whole = replace(SETTINGS, seed=self.seed)
        return replace(whole, budget=600, first=128) if self.arm == STRICT else whole


@dataclass(frozen=True)
class Done:
    """What came of it, whether its log replays, and the records erased over the budget."""

    job: Job
    outcome: CoevolutionOutcome
    replays: bool
    erased: float


def play(job: Job) -> Done:
    """Run, measure on the truth, and replay."""
    clock = count()
    log = Journal(clock=lambda: float(next(clock)))
    archive = coevolve(job.world, job.settings, log)
    again = replay(log)
    same = (again.records, again.erased, again.decisions) == (
        archive.records, archive.erased, archive.decisions,
    )  # fmt: skip
    found = measure(job.world, archive, seed=job.seed)
    return Done(job, found, same, found.erased / job.settings.budget)


def exact() -> float:
    """The largest error of the exact values: beliefs to their four digits, clades' productivity exactly."""
    errors = [abs(round(best_belief(*counts), 4) - value) for counts, value in BELIEFS.items()]
    parents = [-1, 0, 1, 1, 0, 4, 4]
    good, bad = np.array([0, 3, 8, 9, 4, 1, 2]), np.array([0, 2, 2, 1, 1, 9, 8])
    cmp = metaproductivity(parents, good, bad)
    return max(*errors, abs(cmp[1] - 0.80), abs(cmp[4] - 0.28))


def geometric(found: list[Done]) -> tuple[float, float, float]:
    """The geometric mean of the last judges' ratios with its 95 % interval (t, on logarithms)."""
    logs = np.log([one.outcome.last.stringency.estimate for one in found])
    got = mean_interval(logs)
    return float(np.exp(got.estimate)), float(np.exp(got.low)), float(np.exp(got.high))


def in_band(found: list[Done]) -> int:
    """How many runs ended with a ratio of .85 to 1.15."""
    return sum(0.85 <= one.outcome.last.stringency.estimate <= 1.15 for one in found)


def print_arm(arm: str, found: list[Done]) -> tuple[float, float, float]:
    """Print one arm; the geometric mean of its last judges' ratios, with its interval."""
    mean, low, high = geometric(found)
    ends = [one.outcome.last for one in found]
    gain = [one.outcome.last.accuracy - one.outcome.first.accuracy for one in found]
    writer = float(np.mean([one.outcome.writer_quality for one in found]))
    takes = float(np.mean([one.human_acceptance for one in ends]))
    inside = in_band(found)
    print(
        f"{arm:<20} {mean:.3f} [{low:.3f}, {high:.3f}]  {inside:2d} of {len(found):2d}  {min(gain):+.3f}  "
        f"{np.mean(gain):+.3f}  {takes:.2f}  {writer:.3f}  {np.mean([o.outcome.replaced for o in found]):.1f}"
    )
    print("  ratios by seed: " + " ".join(f"{one.stringency.estimate:.2f}" for one in ends))
    return mean, low, high


def main() -> None:
    """Measure, print, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer seeds; ends within 50 s on 2 cores")
    quick = parser.parse_args().quick
    started = time.monotonic()
    error = exact()
    print(f"exact values: largest error {error:.2g}")
    erasure = erasure_effect(12)
    kept, erased = (erasure.pinned_keep, erasure.truth_keep), (erasure.pinned_erase, erasure.truth_erase)
    print("ranks after a judge's change, with those before and with the true ones: "
          f"{kept[0]:.3f}, {kept[1]:.3f} with old outcomes kept; "
          f"{erased[0]:.3f}, {erased[1]:.3f} erased")  # fmt: skip
    rates = [false_replacement(n, repetitions=4000 if quick else 20_000) for n in CHALLENGERS]
    for one in rates:
        print(f"{one.challengers:2d} equal challengers: best belief replaces {one.best_belief.estimate:.3f}, "
              f"paired {one.paired.estimate:.4f} [{one.paired.low:.4f}, {one.paired.high:.4f}]")  # fmt: skip
    seeds = range(6) if quick else range(20)
    arms = {
        TRAPS: seeds,
        ALONE: seeds,
        FROZEN: range(0 if quick else 10),
        STRICT: range(2 if quick else 10),
    }
    jobs = [Job(arm, seed) for arm, some in arms.items() for seed in some]
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        done = list(pool.map(play, jobs))
    start = float(
        np.exp(np.mean([np.log(d.outcome.first.stringency.estimate) for d in done if d.job.arm == TRAPS]))
    )
    print(f"\nfirst judge's ratio {start:.3f}; of the last judges, over seeds:")
    print("arm                  ratio                 in band   accuracy gain   takes  writer  replaced")
    print("                                           .85-1.15  least   mean    human  quality")
    ends = {arm: print_arm(arm, [d for d in done if d.job.arm == arm]) for arm in arms if arms[arm]}
    strict = [d.outcome for d in done if d.job.arm == STRICT]
    milder = sum(o.replaced > 0 and o.last.human_acceptance > 2 * o.first.human_acceptance for o in strict)
    print(f"a too strict judge gave way to a milder one in {milder} of {len(strict)} runs")
    print(f"{sum(d.replays for d in done)} of {len(done)} logs replay; {time.monotonic() - started:.0f} s")
    (end, low, high), (alone, alone_low, _) = ends[TRAPS], ends[ALONE]
    figures = {
        "seeds": len(seeds),
        "budget": SETTINGS.budget,
        "bb_error": round(error, 6),
        "spearman_keep": round(erasure.pinned_keep, 3),
        "spearman_erase": round(erasure.pinned_erase, 3),
        "truth_keep": round(erasure.truth_keep, 3),
        "truth_erase": round(erasure.truth_erase, 3),
        "false_best_belief": [round(one.best_belief.estimate, 3) for one in rates],
        "false_paired": round(max(one.paired.estimate for one in rates), 4),
        "erased_over_budget": round(max(d.erased for d in done), 3),
        "stringency_start": round(start, 3),
        "stringency_end": round(end, 3),
        "stringency_end_low": round(low, 3),
        "stringency_end_high": round(high, 3),
        "in_band": in_band([d for d in done if d.job.arm == TRAPS]),
        "stringency_no_traps": round(alone, 3),
        "stringency_no_traps_low": round(alone_low, 3),
        "replay_equal": all(d.replays for d in done),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
