"""Scheduling by load: as good as the best static choice at every load, and better somewhere?

Simulated requests with known conditional acceptances (the distribution is stated in
refork_methods.speculate.replay): every choice meets the same rounds and the same luck. Two step-cost
tables: max(1, B / 64), whose first 64 tokens are free, and one shaped like a measured table, a roofline
knee with a draft that has to be paid for. Static choices, each for all loads and steps, are: plain
decoding, 1 to 7 drafts, and four thresholds on the survival; the best of them is picked anew at every load,
knowing the outcome. vLLM's rule (one step stale, drafts always) runs beside ours.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from refork_methods.speculate.replay import Served, Traffic, serve, traffic
from refork_methods.speculate.schedule import Mode, PrefixScheduler, survival_of
from refork_methods.speculate.step_cost import StepCost, shapes

LOADS = (4, 8, 16, 32, 64, 128, 256)
OURS: tuple[Mode, ...] = ("early_stop", "stale_topk")
THRESHOLDS = (0.3, 0.5, 0.7, 0.9)
BLOCK = 7


def tables() -> dict[str, StepCost]:
    """The tables: free up to 64 tokens, and shaped like a measured one."""
    sizes = sorted({*shapes(64), *shapes(256 * (1 + BLOCK))})
    knee = {b: 8e-3 * float(np.hypot(1.0, b / 160)) + 6e-6 * b for b in sizes}
    draft = {r: 1.2e-3 + 6e-6 * r for r in shapes(256)}
    return {
        "max(1, B / 64)": StepCost.of({b: max(1.0, b / 64) for b in sizes}),
        "measured-like": StepCost.of(knee, draft),
    }


def static(what: Traffic, cost: StepCost) -> dict[str, Served]:
    """Every static choice on this traffic."""
    fixed = {
        f"{n} drafts": PrefixScheduler(None, "fixed", length=n) for n in range(1, BLOCK + 1)
    }  # fmt: skip
    cut = {f"survival {t}": PrefixScheduler(None, "static_threshold", threshold=t) for t in THRESHOLDS}
    found = {name: serve(what, cost, rule, may_skip=False)[0] for name, rule in (fixed | cut).items()}
    requests = what.logits.shape[1]
    return found | {"plain": Served(0.0, requests * float(cost.sps(np.array([requests]))[0]), 0)}


def one_table(name: str, cost: StepCost, steps: int) -> tuple[list[float], bool]:
    """Ratios of the worse of ours to the best static choice, load by load; and whether drafts fall."""
    print(f"\n{name}: tokens per second, drafts verified per request in brackets")
    print("requests  early stop          stale top-K         vLLM's rule         best static choice")
    worse: list[float] = []
    verified: dict[str, list[float]] = {mode: [] for mode in OURS}
    for requests in LOADS:
        what = traffic(requests, steps, BLOCK, seed=7)
        served = {mode: serve(what, cost, PrefixScheduler(cost, mode))[0] for mode in OURS}
        peer = serve(what, cost, PrefixScheduler(cost, "vllm"), may_skip=False)[0]
        choices = static(what, cost)
        best = max(choices, key=lambda key: choices[key].throughput)
        top = choices[best].throughput
        cells = [*(served[mode] for mode in OURS), peer]
        told = "".join(f"{s.throughput:8.4g} [{s.verified:4.2f}]     " for s in cells)
        print(f"{requests:8d}  {told}{top:8.4g} [{choices[best].verified:4.2f}] {best}")
        worse.append(min(served[mode].throughput / top for mode in OURS))
        for mode in OURS:
            verified[mode].append(served[mode].verified)
    falls = all(after <= before + 1e-9 for row in verified.values() for before, after in pairwise(row))
    print(f"ratio to the best static choice: {' '.join(f'{r:.3f}' for r in worse)}")
    print(f"verified drafts fall as requests grow: {'yes' if falls else 'NO'}")
    return worse, falls


def plan_ms(mode: Mode, repeats: int) -> float:
    """Median milliseconds of plan() for 256 requests with blocks of 7."""
    cost = tables()["measured-like"]
    scheduler = PrefixScheduler(cost, mode)
    rng = np.random.default_rng(0)
    blocks = [survival_of(rng.beta(4, 1, (256, BLOCK))) for _ in range(8)]
    times = []
    for turn in range(repeats):
        began = time.perf_counter()
        scheduler.plan(blocks[turn % len(blocks)])
        times.append(time.perf_counter() - began)
    return 1e3 * median(times)


def speeds(modes: Sequence[Mode], repeats: int) -> float:
    """The slowest rule's time; prints all."""
    found = {mode: plan_ms(mode, repeats) for mode in modes}
    told = ", ".join(f"{mode} {value:.3f} ms" for mode, value in found.items())
    print(f"\nplan() at 256 requests, blocks of 7, median of {repeats}: {told}")
    return max(found.values())


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    quick: bool = parser.parse_args().quick
    worst: list[float] = []
    falls = True
    for name, cost in tables().items():
        ratios, monotone = one_table(name, cost, 300 if quick else 1000)
        worst += ratios
        falls = falls and monotone
    slowest = speeds(("early_stop", "stale_topk", "context_only", "vllm"), 200 if quick else 2000)
    if not falls:
        raise SystemExit("verified drafts do not fall as the number of requests grows")
    print(
        json.dumps(
            {
                "min_over_static": round(min(worst), 4),
                "above_all_somewhere": round(max(worst), 4),
                "plan_ms": round(slowest, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
