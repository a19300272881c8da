"""Which reference should a policy be graded with: the one it was trained from, or one between the two?

Pairs that are really trained (see step_grader.py): a small transformer fine-tuned on demonstrations, kept as
reference, and two policies trained from it by group policy gradient with a KL price, on other tasks and with
other chance. For each share alpha and each way of merging, the first policy is graded with the merged
reference: AUROC of the summed log-ratios and what best-of-8 earns, on the same held-out trajectories. The
second policy is there for EMR, which merges several. Alpha and method are the paper's grid, none is chosen.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from refork.policies.local import LocalPolicy
from refork.stats import auroc
from refork.tree.node import Trajectory
from refork_methods.implicit.aggregate import trajectory_score
from refork_methods.implicit.choose import select_best
from refork_methods.implicit.merge import MERGE_METHODS, merged_model
from refork_methods.implicit.on_tree import model_pairs
from refork_methods.implicit.pair import ImplicitPair
from refork_methods.train.batch import trajectories_to_batch
from refork_methods.train.objectives import PolicyGradientSettings
from refork_methods.train.policy_gradient import group_advantages, policy_gradient_step
from step_grader import NEURAL_BETA, Hall, fine_tuned, rollouts

ALPHAS = (0.2, 0.4, 0.6, 0.8)
Walked = list[tuple[Trajectory, float]]


def reinforced(reference: LocalPolicy, updates: int, seed: int) -> LocalPolicy:
    """A copy of the reference after so many updates; the seed says its tasks and its chance."""
    policy = LocalPolicy(
        copy.deepcopy(reference.model), reference.codec.tokenizer, name=f"policy {seed}", reference=reference
    )
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3, weight_decay=0.0)
    settings = PolicyGradientSettings(kl_weight=NEURAL_BETA)
    for number in range(1, updates + 1):
        tasks = Hall().tasks("train", 4, 1000 * seed + 4 * number)
        trajectories = rollouts(policy, tasks, 24, seed * 10_000 + number)
        names = [trajectory.root.id for trajectory, _ in trajectories]
        earned = group_advantages([outcome for _, outcome in trajectories], names, "mean")
        batch = trajectories_to_batch([trajectory for trajectory, _ in trajectories], list(earned))
        policy_gradient_step(policy.model, optimizer, batch, settings)
        policy.refresh()
    return policy


def grade(walked: Walked, policy: LocalPolicy, reference: LocalPolicy, cache: Path) -> dict[str, float]:
    """AUROC of summed log-ratios with its interval, and best-of-8 beside the mean."""
    pair = ImplicitPair(policy, reference, beta=NEURAL_BETA, cache=cache)
    scores = np.array([trajectory_score(p) for p in model_pairs([t for t, _ in walked], pair)])
    outcomes = np.array([outcome for _, outcome in walked])
    tasks = [t.root.extra["task"]["id"] for t, _ in walked]
    found, best = auroc(scores, outcomes), select_best(scores, tasks, outcomes, seed=1)
    return {
        "auroc": found.estimate,
        "low": found.low,
        "high": found.high,
        "best": best.expected,
        "mean": best.mean,
    }


def study(seed: int, updates: int, tasks: int, cache: Path) -> dict[str, Any]:
    """Every merged reference of one pair, on trajectories of the reference and of both in equal parts."""
    _, reference = fine_tuned(seed)
    policy, other = (reinforced(reference, updates, 10 * seed + number) for number in (1, 2))
    held_out = Hall().tasks("held-out", tasks, 100)
    mine, its = rollouts(policy, held_out, 4, 2001 + seed), rollouts(reference, held_out, 8, 2000 + seed)
    sets = {"reference": its, "mixture": [*(w for i, w in enumerate(its) if i % 8 < 4), *mine]}
    merged: dict[str, LocalPolicy] = {"none": reference}
    for method in MERGE_METHODS:
        for alpha in ALPHAS:
            model = merged_model(
                policy.model, copy.deepcopy(reference.model), alpha, method, seed=seed,
                others=[other.model] if method == "emr" else (),
            )  # fmt: skip
            merged[f"{method} {alpha}"] = LocalPolicy(model, reference.codec.tokenizer, name=method)
    told: dict[str, Any] = {}
    print(
        f"\nseed {seed}, {updates} updates       trajectories of the reference         of both in equal parts"
    )
    print("merged           AUROC [95 %]          best of 8   AUROC [95 %]          best of 8")
    for name, model in merged.items():
        rows = {kind: grade(walked, policy, model, cache) for kind, walked in sets.items()}
        cells = [
            f"{r['auroc']:.3f} [{r['low']:.3f}, {r['high']:.3f}]  {r['best']:.3f}" for r in rows.values()
        ]
        print(f"{name:15s}  {'      '.join(cells)}", flush=True)
        told[name] = rows
    return told


def gains(runs: list[dict[str, Any]], kind: str) -> NDArray[np.float64]:
    """AUROC of every merged reference minus that of the reference itself, [seeds, merged]."""
    return np.array(
        [[run[n][kind]["auroc"] - run["none"][kind]["auroc"] for n in run if n != "none"] for run in runs]
    )


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    parser.add_argument("--seeds", type=int, default=1, help="references, each with two policies")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    seeds, updates, tasks = (1, 6, 12) if options.quick else (options.seeds, 40, 60)
    with tempfile.TemporaryDirectory() as cache:
        runs = [study(seed, updates, tasks, Path(cache)) for seed in range(seeds)]
    figures: dict[str, Any] = {"runs": runs}
    for kind in ("reference", "mixture"):
        change, plain = gains(runs, kind), [run["none"][kind]["auroc"] for run in runs]
        figures[kind] = {
            "auroc": float(np.mean(plain)),
            "best_gain": float(change.mean(0).max()),
            "worst_gain": float(change.mean(0).min()),
            "far_gain": {
                m: float(np.mean([r[f"{m} 0.8"][kind]["auroc"] for r in runs]) - np.mean(plain))
                for m in MERGE_METHODS
            },
            "near_gain": {
                m: float(np.mean([r[f"{m} 0.2"][kind]["auroc"] for r in runs]) - np.mean(plain))
                for m in MERGE_METHODS
            },
        }
    print(f"{time.monotonic() - started:.0f} s")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
