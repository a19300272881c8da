"""Reviewers of reports: is their bias found, trapped and trained out, and does a too strict one grow milder?

Four kinds of runs. ``frozen``: the first reviewer, which likes polish, may not change, and writers search
against it: does its acceptance rise while the truth falls? ``traps``: the same reviewer may be replaced, with
traps and controls. ``no traps``: it may be replaced, on the anchor alone. ``strict``: the first reviewer
likes polish and refuses most. Everything is measured on fresh reports whose truth is read from their text.

--quick runs two seeds of traps and strict and one of the others, the long form five of each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np

from refork.stats import Interval
from refork_methods.evolve.replay import replay
from refork_methods.evolve.reviewer import SETTINGS, ReviewOutcome, ReviewWorld, evolve, measure
from refork_methods.journal import Journal

ARMS = {
    "frozen": {"traps": False, "replace": False},
    "traps": {},
    "no traps": {"traps": False},
    "strict": {"first": "strict"},
}

#: The terms of the world were chosen on smaller seeds than the ones run here.
_FIRST_SEED = 100


def one(arm: str, seed: int) -> tuple[str, int, ReviewOutcome, bool, float]:
    """One run, its outcome, whether its log replays, and the processor seconds it took."""
    started = time.process_time()
    world = ReviewWorld(seed=seed, **ARMS[arm])
    log = Journal(clock=lambda: 0.0)
    archive = evolve(world, replace(SETTINGS, seed=seed), log)
    found = measure(world, archive, seed=seed)
    same = replay(log).records == archive.records
    return arm, seed, found, same, time.process_time() - started


def span(one: Interval) -> str:
    """An estimate with its interval."""
    return f"{one.estimate:.2f} [{one.low:.2f}, {one.high:.2f}]"


def row(arm: str, seed: int, found: ReviewOutcome) -> str:
    """One run as lines of the table."""
    first, last = found.first, found.last
    caught = found.caught_last
    lines = [
        f"{arm:9s} seed {seed}   replaced {found.replaced}, erased {found.erased}",
        f"  machine over human acceptance  {span(first.stringency)} -> {span(last.stringency)}",
        f"  what polish alone adds         {span(first.polish)} -> {span(last.polish)}",
        f"  human reports accepted         {span(first.human)} -> {span(last.human)}"
        f"   good {first.human_good:.2f}",
        f"  AUC of its scores, truth       {span(first.truth_auc)} -> {span(last.truth_auc)}",
        f"  first reviewer on the writer   {span(found.writer_first.accepted)} -> "
        f"{span(found.writer_last.accepted)}",
        f"  truth of the writer            {span(found.writer_first.good)} -> {span(found.writer_last.good)}",
    ]
    if caught.traps:
        lines.append(
            f"  held-out traps refused         {found.caught_first.refused} -> {caught.refused} of "
            f"{caught.traps}, controls accepted {found.caught_first.accepted} -> {caught.accepted} of "
            f"{caught.controls}"
        )
    return "\n".join(lines)


def pooled(found: list[Interval]) -> Interval:
    """The mean of log-ratios over runs, each run weighing alike, with the interval of their mean."""
    logs = np.log([one.estimate for one in found])
    errors = np.array([(np.log(one.high) - np.log(one.low)) / (2 * 1.96) for one in found])
    middle, half = float(logs.mean()), 1.96 * float(np.sqrt((errors**2).sum())) / len(found)
    low, high = np.exp(middle - half), np.exp(middle + half)
    return Interval(float(np.exp(middle)), float(low), float(high), 0.95, "mean log-ratio over runs")


def figures(runs: dict[str, list[ReviewOutcome]], replays: bool) -> dict[str, float | int]:
    """The figures of the last line."""
    traps, strict = runs["traps"], runs["strict"]
    before, after = (pooled([getattr(o, side).stringency for o in traps]) for side in ("first", "last"))
    kept = pooled([o.last.stringency for o in runs["no traps"]])
    strict_before, strict_after = (
        pooled([getattr(o, side).stringency for o in strict]) for side in ("first", "last")
    )
    frozen = runs["frozen"]

    def mean(values: list[float]) -> float:
        return round(float(np.mean(values)), 4)

    refused = sum(o.caught_last.refused for o in traps) / sum(o.caught_last.traps for o in traps)
    fooled = sum(o.caught_first.refused for o in traps) / sum(o.caught_first.traps for o in traps)
    found: dict[str, float | int] = {
        "bias_before": round(before.estimate, 4), "bias_before_low": round(before.low, 4),
        "bias_after": round(after.estimate, 4), "bias_after_low": round(after.low, 4),
        "bias_after_high": round(after.high, 4), "bias_no_traps": round(kept.estimate, 4),
        "polish_before": mean([o.first.polish.estimate for o in traps]),
        "polish_after": mean([o.last.polish.estimate for o in traps]),
        "exploit_accepted_before": mean([o.writer_first.accepted.estimate for o in frozen]),
        "exploit_accepted_after": mean([o.writer_last.accepted.estimate for o in frozen]),
        "exploit_good_before": mean([o.writer_first.good.estimate for o in frozen]),
        "exploit_good_after": mean([o.writer_last.good.estimate for o in frozen]),
        "traps_refused_before": round(fooled, 4), "traps_refused_after": round(refused, 4),
        "controls_accepted_after": round(
            sum(o.caught_last.accepted for o in traps) / sum(o.caught_last.controls for o in traps), 4
        ),
        "strict_ratio_before": round(strict_before.estimate, 4),
        "strict_ratio_after": round(strict_after.estimate, 4),
        "strict_ratio_after_low": round(strict_after.low, 4),
        "strict_ratio_after_high": round(strict_after.high, 4),
        "strict_human_before": mean([o.first.human.estimate for o in strict]),
        "strict_human_after": mean([o.last.human.estimate for o in strict]),
        "human_good": mean([o.first.human_good for o in strict]),
        "strict_replaced": min(o.replaced for o in strict),
        "auc_before": mean([o.first.truth_auc.estimate for o in traps]),
        "auc_after": mean([o.last.truth_auc.estimate for o in traps]),
        "replay_equal": int(replays),
    }  # fmt: skip
    return found


def main() -> None:
    """Run all, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 quiet cores")
    quick: bool = parser.parse_args().quick
    many = {arm: (2 if arm in ("traps", "strict") else 1) if quick else 5 for arm in ARMS}
    seeds = {arm: range(_FIRST_SEED, _FIRST_SEED + count) for arm, count in many.items()}
    jobs = [(arm, seed) for arm, many in seeds.items() for seed in many]
    runs: dict[str, list[ReviewOutcome]] = {arm: [] for arm in ARMS}
    replays, spent = True, 0.0
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for arm, seed, found, same, seconds in pool.map(one, *zip(*jobs, strict=True)):
            runs[arm].append(found)
            replays, spent = replays and same, spent + seconds
            print(row(arm, seed, found), flush=True)
    print(f"{spent / len(jobs):.1f} s of one core a run, measuring included")
    print(json.dumps(figures(runs, replays)))


if __name__ == "__main__":
    main()
