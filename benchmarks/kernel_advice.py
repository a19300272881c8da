"""What advice buys a search for a fast kernel, and what a tree buys it where every first step loses.

Advice: 216 versions of a 256-square float matrix product, real C (parts/kernel_space.py). Each was compiled,
checked and timed against the start, and the real tools were asked about it; both are stored with the
machine's facts in parts/kernel_space_256.json, made by the long form. The shipped hill climbing and rewriting
writer then search that table, 400 seeds with the tools' findings and 400 without.

Trap: a hidden chain of three moves of which the first two lose; every other move loses too. The shipped
search tree against the shipped hill climbing.

The quick form reads the stored table and times a few of its points again; the long form first times and
diagnoses what the table lacks (all of it, where the file was removed).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from parts import kernel_space
from parts.kernel_space import POINTS, PROBLEM, START, Point, Row, Space, read_table
from refork import stats
from refork_methods.kernel.bench import Bench, Candidate, calibrate
from refork_methods.kernel.search.loop import SearchLoop
from refork_methods.kernel.search.model import Feedback, KernelSearchSettings
from refork_methods.kernel.search.rewriting import RewriteWriter
from refork_methods.kernel.search.strategy import SearchSettings
from refork_methods.kernel.tool import Finding
from support.kernel_search_fakes import TableEvaluator, WordWriter

AT = (5, 10, 20, 30)
SEEDS = 400
AGAIN = 6


def climb(table: dict[Point, Row], feedback: Feedback, seed: int) -> list[float]:
    """Best speed-up after each number of evaluations."""
    space = Space()

    def of(one: Candidate) -> Row:
        return table[space.at[one.digest]]

    def findings(one: Candidate) -> tuple[Finding, ...]:
        return of(one).findings

    settings = KernelSearchSettings(evaluations=max(AT), search="hill", feedback=feedback, seed=seed, batch=1)
    evaluator = TableEvaluator(lambda one: of(one).evaluated.speedup, findings)
    writer = RewriteWriter(space, settings.unguided)
    loop = SearchLoop("matmul", START.candidate, settings, evaluator, writer)
    loop.run()
    best = np.maximum.accumulate([node.evaluated.speedup or 0.0 for node in loop.nodes])
    return [float(best[min(at, best.size - 1)]) for at in AT]


def advice(table: dict[Point, Row], seeds: int) -> dict[str, float]:
    """Both arms on the same seeds: the table, the ratio of their geometric means, a one-sided test."""
    arms: dict[str, np.ndarray] = {}
    for feedback in ("diagnosed", "none"):
        arms[feedback] = np.log([climb(table, feedback, seed) for seed in range(seeds)])
    top = max(row.evaluated.speedup or 0.0 for row in table.values())
    print(f"\n216 versions; the best is {top:.1f} times as fast as the start. Hill climbing, {seeds} seeds,")
    print("geometric mean of the best speed-up so far:")
    print("  evaluations   diagnosed   none    ratio [95 %]           p, one-sided   (on another machine)")
    stated = {5: (24.1, 13.4), 10: (40.6, 37.0), 20: (51.4, 56.1), 30: (55.3, 60.2)}
    figures: dict[str, float] = {}
    for column, at in enumerate(AT):
        mine, plain = arms["diagnosed"][:, column], arms["none"][:, column]
        span = stats.paired_t(plain, mine).interval
        test = stats.wilcoxon(plain, mine, alternative="greater")
        low, high = math.exp(span.low), math.exp(span.high)
        print(
            f"  {at:11d}   {math.exp(mine.mean()):9.2f} {math.exp(plain.mean()):6.2f}    "
            f"{math.exp(span.estimate):.3f} [{low:.3f}, {high:.3f}]   {test.p:.2g}"
            f"   ({stated[at][0]} v {stated[at][1]})"
        )
        figures[f"gain_at_{at}"] = round(math.exp(span.estimate), 3)
        figures[f"diagnosed_at_{at}"] = round(math.exp(mine.mean()), 2)
        figures[f"none_at_{at}"] = round(math.exp(plain.mean()), 2)
    return figures | {"best_of_space": round(top, 2)}


def trapped(seed: int, evaluations: int, kind: str, moves: int) -> bool:
    """Whether a search finds the third of three moves of which the first two only lose."""
    rng = np.random.default_rng(seed)
    secret = rng.integers(moves, size=3).astype(str).tolist()

    def speed(one: Candidate) -> float:
        words = one.source.split()
        hits = [words[: i + 1] == secret[: i + 1] for i in range(len(words))]
        return math.prod((6.0 if i == 2 else 0.8) if hit else 0.95 for i, hit in enumerate(hits))

    told: dict[str, Any] = {"search": kind, "feedback": "none"}
    settings = KernelSearchSettings(
        evaluations=evaluations, seed=seed, batch=1, tree=SearchSettings(), **told
    )
    writer = WordWriter([str(move) for move in range(moves)], longest=3)
    loop = SearchLoop("trap", Candidate("", ()), settings, TableEvaluator(speed), writer)
    loop.run()
    return loop.best.candidate.source.split() == secret


def trap(seeds: int) -> dict[str, float]:
    """Shares of seeds that find the way out."""
    print(f"\ntrap: three moves deep, the first two lose .8, the third wins 6; {seeds} seeds")
    figures: dict[str, float] = {}
    rows: tuple[tuple[str, str, int, int, str], ...] = (
        ("hill climbing", "hill", 4, 200, "greedy_trap"), ("tree", "mcts", 4, 60, "mcts_trap_60"),
        ("tree", "mcts", 4, 120, "mcts_trap"), ("tree", "mcts", 5, 120, "mcts_trap_5_120"),
        ("tree", "mcts", 5, 200, "mcts_trap_5_200"),
    )  # fmt: skip
    stated = {"greedy_trap": 0.0, "mcts_trap_60": 0.49, "mcts_trap": 1.0, "mcts_trap_5_120": 0.62,
              "mcts_trap_5_200": 1.0}  # fmt: skip
    for name, kind, moves, evaluations, key in rows:
        share = float(np.mean([trapped(seed, evaluations, kind, moves) for seed in range(seeds)]))
        print(f"  {name:13s} {moves} moves, {evaluations:3d} evaluations: {share:.3f}   ({stated[key]:g})")
        figures[key] = round(share, 4)
    return figures


def again(table: dict[Point, Row]) -> dict[str, float]:
    """A few points timed afresh on this machine, against what is stored."""
    chosen = [POINTS[int(at)] for at in np.linspace(0, len(POINTS) - 1, AGAIN)]
    known = calibrate()
    with tempfile.TemporaryDirectory() as scratch, Bench(PROBLEM, Path(scratch), calibration=known) as bench:
        found = bench.duel([point.candidate for point in chosen], repeats=7)
    print(f"\n{AGAIN} points timed afresh: stored speed-up, now")
    off = []
    for point, told in zip(chosen, found, strict=True):
        stored = table[point].evaluated.speedup or math.nan
        now = told.speedup or math.nan
        off.append(abs(math.log(now / stored)))
        print(f"  {point.name:36s} {stored:7.2f} {now:7.2f}")
    return {"off_when_timed_again": round(math.exp(float(np.median(off))) - 1, 3)}


def timed(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Its figures; how long it took is printed."""
    started = time.monotonic()
    figures = work()
    print(f"  {time.monotonic() - started:.0f} s", flush=True)
    return figures


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the stored table; ends within 50 s")
    quick: bool = parser.parse_args().quick
    if not quick:
        kernel_space.fill()
    machine, table = read_table()
    print(
        f"table of {machine['made']}: {machine['processor']}, {machine['gcc']}, noise {machine['noise']:.3f}"
    )
    figures = timed(lambda: advice(table, SEEDS))
    figures |= timed(lambda: trap(300 if quick else 1000))
    figures |= timed(lambda: again(table))
    print(json.dumps(figures | {"points": len(table), "seeds": SEEDS}))


if __name__ == "__main__":
    main()
