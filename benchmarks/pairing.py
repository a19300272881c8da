"""What pairing is worth: how much wider the unpaired interval is, and whether the paired one covers.

A scripted agent whose true success is known exactly says a few words and a verdict. Three changes of its
first word: one with no true effect, one with a small effect, one with a large one. Both arms share their
noise; the same draws are then analysed as if they did not. Both couplings; coverage over repetitions.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from refork import MatchJudge, Replace, Sampling, ScriptedPolicy, Tree, compare, fork, plant_prompt

FILLER = [" w1", " w2", " w3", " w4"]
#: Opening word -> chance to be right. The truth of every comparison below.
CHANCE = {" plain": 0.50, " twin": 0.50, " better": 0.56, " best": 0.85}
CHANGES = {"null": " twin", "small": " better", "large": " best"}


def agent() -> ScriptedPolicy:
    """A chain: opening word, some filler words, verdict; the filler's name remembers the opening."""
    table: dict[str, dict[str, float]] = {"": {" plain": 1.0}}
    for opening, chance in CHANCE.items():
        mark = opening[1]
        own = [f"{word}{mark}{opening[-1]}" for word in FILLER]
        # Another opening also talks a little longer, so draws part ways even where success is equal.
        stop = 0.28 if opening == " plain" else 0.22
        distribution = dict.fromkeys(own, (1 - stop) / len(own))
        end = {" right": stop * chance, " wrong": stop * (1 - chance)}
        table[opening] = distribution | end
        for word in own:
            table[word] = distribution | end
    table[" right"] = {"": 1.0}
    table[" wrong"] = {"": 1.0}
    return ScriptedPolicy.from_chain(table)


def measure(coupling: str, change: str, draws: int, repeats: int) -> dict[str, float]:
    """Mean widths and coverage of the true difference over repetitions with seeds 0, 1, ..."""
    truth = CHANCE[CHANGES[change]] - CHANCE[" plain"]
    policy = agent()
    widths, unpaired, covered = [], [], []
    settings = Sampling(max_tokens=64, coupling=coupling)  # type: ignore[arg-type]
    for seed in range(repeats):
        with Tree.memory() as tree:
            start = plant_prompt(tree, policy, "Go.")
            leaf = fork(start, policy, 1, settings=settings, seed=seed).leaves()[0].leaf
            point = tree.at(leaf, 1)
            judge = MatchJudge("right")
            base = fork(point, policy, draws, settings=settings, judge=judge, seed=seed)
            swap = Replace(1, text=CHANGES[change])
            other = fork(point, policy, draws, swap, settings=settings, judge=judge, seed=seed)
            effect = compare(base, other)
        widths.append(effect.high - effect.low)
        unpaired.append(effect.unpaired_high - effect.unpaired_low)
        covered.append(effect.low <= truth <= effect.high)
    return {
        "paired_width": float(np.mean(widths)),
        "unpaired_width": float(np.mean(unpaired)),
        "ratio": float(np.mean(unpaired) / np.mean(widths)),
        "coverage": float(np.mean(covered)),
        "truth": truth,
    }


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    parser.add_argument("--draws", type=int, default=64)
    options = parser.parse_args()
    repeats = {"inverse": 500, "gumbel": 20 if options.quick else 500}
    cases = [(coupling, change) for coupling in repeats for change in CHANGES]
    started = time.monotonic()
    with ProcessPoolExecutor(max_workers=2) as pool:
        waiting = {
            case: pool.submit(measure, case[0], case[1], options.draws, repeats[case[0]]) for case in cases
        }
        rows = {case: future.result() for case, future in waiting.items()}
    print("coupling  change   truth   paired  unpaired  ratio  coverage")
    for (coupling, change), row in rows.items():
        print(
            f"{coupling:9s} {change:7s} {row['truth']:6.2f} {row['paired_width']:8.3f} "
            f"{row['unpaired_width']:9.3f} {row['ratio']:6.2f} {row['coverage']:9.3f}"
        )
    print(f"{options.draws} draws an arm, {repeats} repetitions, {time.monotonic() - started:.0f} s")
    inverse = {change: rows["inverse", change] for change in CHANGES}
    print(
        json.dumps(
            {f"ratio_{change}": round(row["ratio"], 3) for change, row in inverse.items()}
            | {f"ratio_{change}_gumbel": round(rows["gumbel", change]["ratio"], 3) for change in CHANGES}
            | {
                "coverage": round(float(np.mean([row["coverage"] for row in inverse.values()])), 4),
                "coverage_each": {change: row["coverage"] for change, row in inverse.items()},
                "repetitions": repeats["inverse"],
            }
        )
    )


if __name__ == "__main__":
    main()
