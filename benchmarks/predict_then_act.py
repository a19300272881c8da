"""Does an agent that first learned to predict act better than one that read as much of a control?

The same small policy, the same few lessons, the same held-out tasks in the real shell and the real databases.
Before the lessons one arm predicts the next observation of recorded episodes; the other reads the same
episodes with their observations shuffled over all turns of their world: equal tokens, equally many learned.

Run: python benchmarks/predict_then_act.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from numpy.typing import NDArray

from refork import stats
from refork.policies.local import LocalPolicy
from refork_testbed.models.build import build
from refork_testbed.models.recipes.shell_agent import arm, begin, outcomes
from refork_testbed.models.recipes.world_model import WORLDS

Floats = NDArray[np.float64]
ARMS = {"predict": "shell-agent-warm", "control": "shell-agent-control"}
SEEDS = (1, 2, 3)


def success(policy: LocalPolicy, tasks: int, draws: int) -> dict[str, Floats]:
    """Mean success of each of some held-out tasks of every world, [tasks]."""
    return {
        spec: np.mean([outcomes(policy, spec, tasks, seed=seed) for seed in range(draws)], axis=0)
        for spec in WORLDS
    }


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    quick: bool = parser.parse_args().quick
    torch.set_num_threads(1)
    folders = {kind: build(name) for kind, name in ARMS.items()}
    started = time.monotonic()
    tasks, draws = (80, 1) if quick else (200, 2)
    print(f"{'':12s}" + "".join(f"{spec:>24s}" for spec in WORLDS))
    rows: dict[str, list[Floats]] = {kind: [] for kind in ARMS}
    for seed in (0,) if quick else (0, *SEEDS):
        for kind in ARMS:
            if seed == 0:
                policy = LocalPolicy.load(str(folders[kind]))
            else:
                policy = begin(seed)
                arm(policy, kind, seed)  # type: ignore[arg-type]
            found = success(policy, tasks, draws)
            rows[kind].append(np.concatenate(list(found.values())))
            told = "".join(f"{values.mean():24.3f}" for values in found.values())
            print(f"{kind:8s} {seed:3d}{told}", flush=True)
    # A task is the unit: its mean over seeds and draws, so that runs of one task are not counted as several.
    means = {kind: np.mean(found, axis=0) for kind, found in rows.items()}
    gain = stats.paired_difference(means["control"], means["predict"]).interval
    print(
        f"\npredicting first: {means['control'].mean():.3f} -> {means['predict'].mean():.3f}, "
        f"{gain.estimate:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] over {len(means['predict'])} tasks, paired"
    )
    print(f"{time.monotonic() - started:.0f} s")
    print(json.dumps({"gain": round(float(gain.estimate), 4), "gain_low": round(float(gain.low), 4)}))


if __name__ == "__main__":
    main()
