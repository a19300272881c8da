"""An agent that practised in a simulator alone, in the real shell and the real databases.

``shell-agent`` practises for equally many updates in ``world-model`` and in the real worlds; both are
measured in the real ones on held-out tasks. The ratio is that of their successes: trained in the simulator
over trained in the real worlds. What the agent seems to reach inside the simulator, before any practice, is
printed beside: a simulator that accepts what the world would reject teaches just that.

Run: python benchmarks/sim_to_real.py [--quick | --agent NAME --updates N]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from refork import stats
from refork.forking.arm import graded
from refork.growing import grow
from refork.policies.local import LocalPolicy
from refork.tree.tree import Tree
from refork_methods.simulate.transfer import success_ratio
from refork_methods.train.loop import TreeTraining
from refork_testbed.models.build import build
from refork_testbed.models.recipes.shell_agent import (
    PLAN,
    SAMPLING,
    outcomes,
    practise,
    real_worlds,
    simulated_worlds,
)
from refork_testbed.models.recipes.world_model import WORLDS

Floats = NDArray[np.float64]
AGENTS = {"before": "shell-agent", "real": "shell-agent-real", "simulated": "shell-agent-sim"}


def success(policy: LocalPolicy, tasks: int, draws: int) -> dict[str, Floats]:
    """Mean success of each of some held-out tasks of every real world, [tasks]."""
    return {
        spec: np.mean([outcomes(policy, spec, tasks, seed=seed) for seed in range(draws)], axis=0)
        for spec in WORLDS
    }


def inside(policy: LocalPolicy, tasks: int, first: int) -> dict[str, float]:
    """Success by the simulator's own verdicts, on the first of the same held-out tasks of every world."""
    found = {}
    for spec, world in zip(WORLDS, simulated_worlds(simulator()), strict=True):
        with Tree.memory() as tree:
            asked = world.tasks("held-out", tasks, 0)[:first]
            groups = grow(tree, policy, world, asked, draws=1, settings=SAMPLING, seed=0, tasks_at_once=first)
            found[spec] = float(np.nanmean(graded([v for group in groups for v in group.values()])))
    return found


def simulator() -> LocalPolicy:
    """The world model."""
    return LocalPolicy.load(str(build("world-model")))


def trained(kind: str, plan: TreeTraining | None, agent: str) -> LocalPolicy:
    """An agent: from the cache where there is no plan, else trained here."""
    if plan is None and kind != "before":
        return LocalPolicy.load(str(build(AGENTS[kind])))
    policy = LocalPolicy.load(str(build(agent)))
    if kind == "before":
        return policy
    assert plan is not None
    practise(policy, real_worlds() if kind == "real" else simulated_worlds(simulator()), plan)
    return policy


def shown(value: float | None) -> str:
    """A figure, or that there is none."""
    return "none" if value is None else f"{value:.3f}"


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    parser.add_argument("--agent", default=AGENTS["before"], help="another organism to begin with")
    parser.add_argument("--updates", type=int, default=PLAN.updates, help="of each practice")
    given = parser.parse_args()
    quick: bool = given.quick
    if quick and (given.agent, given.updates) != (AGENTS["before"], PLAN.updates):
        parser.error("--agent and --updates are for the full form, which trains")
    plan = None if quick else replace(PLAN, updates=given.updates)
    torch.set_num_threads(1)
    for name in AGENTS.values():
        build(name)
    started = time.monotonic()
    tasks, draws = (60, 1) if quick else (200, 3)
    print(f"{'trained':12s}" + "".join(f"{spec:>24s}" for spec in WORLDS) + f"{'both':>10s}")
    values: dict[str, Floats] = {}
    for kind in AGENTS:
        found = success(trained(kind, plan, given.agent), tasks, draws)
        values[kind] = np.concatenate(list(found.values()))
        told = "".join(f"{each.mean():24.3f}" for each in found.values())
        print(f"{kind:12s}{told}{values[kind].mean():10.3f}", flush=True)
    for kind in ("real", "simulated"):
        gain = stats.paired_difference(values["before"], values[kind]).interval
        print(f"{kind} practice: {gain.estimate:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}], paired by task")
    ratio = success_ratio(values["real"], values["simulated"])
    print(
        f"simulated over real: {shown(ratio.ratio)} [{shown(ratio.low)}, {shown(ratio.high)}] "
        f"over {ratio.tasks} tasks, {given.updates} updates each"
    )
    few = min(tasks, 30)
    seen = inside(trained("before", plan, given.agent), tasks, few)
    real = np.mean([values["before"][start : start + few].mean() for start in (0, tasks)])
    told = ", ".join(f"{spec} {value:.3f}" for spec, value in seen.items())
    optimism = float(np.mean(list(seen.values())) - real)
    print(
        f"{few} tasks of each before practice, by the simulator's own verdicts: {told}; "
        f"{optimism:+.3f} over the real worlds'\n"
        f"{time.monotonic() - started:.0f} s"
    )
    print(
        json.dumps(
            {
                "ratio": None if ratio.ratio is None else round(ratio.ratio, 4),
                "ratio_low": None if ratio.low is None else round(ratio.low, 4),
                "optimism": round(optimism, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
