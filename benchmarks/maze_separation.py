"""What reward teaches and imitation of shortest paths does not: turning back. Exact wherever it can be.

On the path-star maze: exact hitting times against their closed forms and against a dense solve of the 122
states; sampled reward training, imitation of shortest paths, distillation, a dose of one per cent of
recoveries, and the teacher's traces with their detours cut out. Beside it the search agent, simulated against
its closed form, and a tiny transformer trained three ways.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import time
from collections.abc import Callable

import numpy as np

from refork_methods.recovery.censored import censored_mean
from refork_methods.recovery.chain import SOURCE, TARGET, transition_matrix
from refork_methods.recovery.closed import (
    base_hitting_time,
    growth_per_diamond,
    optimal_hitting_time,
    search_cost,
    sft_limit_hitting_time,
)
from refork_methods.recovery.dose import golden_student, maze_dose
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.hitting import expected_hitting_time
from refork_methods.recovery.rows import BACKWARD, RowPolicy
from refork_methods.recovery.sample import count_moves, golden_moves, sample_paths
from refork_methods.recovery.trainers import RewardSettings, distill, rlvr, sft
from refork_testbed.trials.maze import (
    NodeTransformer,
    network_rlvr,
    network_sft,
    pretrain,
    simulate_search,
)

LARGE = PathStar(15, 15, 5)
SMALL = PathStar(3, 3, 3)


def dense(policy: RowPolicy) -> float:
    """The rival: build the 122 states after the source as a dense matrix and solve it."""
    matrix = transition_matrix(policy).toarray()
    inside = [i for i in range(len(matrix)) if i not in (SOURCE, TARGET)]
    system = np.eye(len(inside)) - matrix[np.ix_(inside, inside)]
    return 1 + float(np.linalg.solve(system, np.ones(len(inside)))[0])


def clock(work: Callable[[], object], times: int = 50) -> float:
    """Median milliseconds of a call."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - started))
    return float(np.median(taken))


def closed_form_error() -> float:
    """Largest relative difference of closed forms and the recurrence, W, K, L in 2 .. 6."""
    worst = 0.0
    for w, k, wide in itertools.product(range(2, 7), repeat=3):
        graph = PathStar(w, k, wide)
        for policy, truth in (
            (RowPolicy.base(graph), base_hitting_time(w, k, wide)),
            (RowPolicy.optimal(graph), optimal_hitting_time(w, k)),
            (RowPolicy.golden_limit(graph), sft_limit_hitting_time(w, k, wide)),
        ):
            value = expected_hitting_time(policy).value
            worst = max(worst, abs(value - float(truth)) / float(truth))
    return worst


def exact_part() -> dict[str, float | int]:
    """Published and closed values, and the time of three ways to the exact value."""
    base, limit = RowPolicy.base(LARGE), RowPolicy.golden_limit(LARGE)
    exact = expected_hitting_time(base, "exact").exact
    assert exact is not None
    sign = rlvr(base, RewardSettings(mode="sign", updates=1200, learning_rate=0.01))
    truth = float(sft_limit_hitting_time(15, 15, 5))
    print("exact hitting times at W, K, L = 15, 15, 5")
    print(f"  uniform walk              {exact} (recurrence {expected_hitting_time(base).value:.9f})")
    print(f"  sign ascent, 1200 updates {sign.hitting_time:.4f}")
    print(f"  SFT limit                 {truth:.6e}")
    print("  way                 uniform walk      SFT limit     rel. error there       ms")
    ways: tuple[tuple[str, Callable[[RowPolicy], float]], ...] = (
        ("recurrence", lambda p: expected_hitting_time(p).value),
        ("dense, 122 states", dense),
    )
    times = {}
    for name, way in ways:
        times[name] = clock(lambda way=way: way(base))  # type: ignore[misc]
        value = way(limit)
        print(
            f"  {name:18s} {way(base):13.6f} {value:14.6e} {abs(value - truth) / truth:19.1e} "
            f"{times[name]:9.3f}"
        )
    sparse = clock(lambda: expected_hitting_time(base, "sparse"))
    solved = expected_hitting_time(base, "sparse").value
    print(f"  {'sparse':18s} {solved:13.6f} {'refused':>14s} {'':19s} {sparse:9.3f}")
    return {
        "base": int(exact) if exact.denominator == 1 else float(exact),
        "rlvr_sign_1200": round(sign.hitting_time, 6),
        "sft_333": round(float(sft_limit_hitting_time(3, 3, 3)), 3),
        "max_rel_err": closed_form_error(),
        "recurrence_ms": round(times["recurrence"], 4),
        "dense_ms": round(times["dense, 122 states"], 4),
        "dense_error_sft": abs(dense(limit) - truth) / truth,
    }


def sampled_part(seeds: int) -> dict[str, object]:
    """Reward training, imitation, distillation and doses on the small maze; base 326, optimum 36."""
    base = RowPolicy.base(SMALL)
    rows, teachers = [], []
    for seed in range(seeds):
        started = time.perf_counter()
        teacher = rlvr(base, RewardSettings(seed=seed))
        taken = time.perf_counter() - started
        teachers.append(teacher.policy)
        students = [distill(teacher.policy, base, n, seed=seed).hitting_time for n in (5, 20, 100)]
        cut = golden_student(teacher.policy, 1000, seed=seed)
        rows.append((teacher.hitting_time, *students, cut, taken))
    golden = sft(base, golden_moves(SMALL, 500)).hitting_time
    print(f"\nW = K = L = 3: uniform 326, optimum 36, shortest paths imitated {golden:.1f}")
    print("  seed    reward   5 traces  20 traces 100 traces  cut traces        s")
    for seed, row in enumerate(rows):
        print(f"  {seed:4d} {row[0]:9.1f} " + " ".join(f"{v:10.1f}" for v in row[1:5]) + f" {row[5]:9.2f}")
    doses = maze_dose(teachers[0], [0, 0.01, 0.05, 0.1, 1.0])
    print("  share of 1000 paths with recoveries   predicted   measured, three mixes")
    for dose in doses:
        drawn = " ".join(f"{v:9.1f}" for v in dose.measured)
        print(f"  {dose.fraction:35.2f} {dose.predicted:11.1f}   {drawn}")
    return {
        "sampled_rl": [round(row[0], 3) for row in rows],
        "sampled_rl_worst": round(max(row[0] for row in rows), 3),
        "distilled_20": [round(row[2], 3) for row in rows],
        "golden_sft": round(golden, 3),
        "dose_1pct": round(max(doses[1].measured), 3),
        "shortened": round(min(row[4] for row in rows), 3),
    }


def search_part(episodes: int) -> dict[str, float]:
    """The search agent, simulated and by its closed form, at W, K, L = 10, 8, 5."""
    graph = PathStar(10, 8, 5)
    print(f"\nsearch agent at 10, 8, 5 ({episodes} episodes)    simulated      closed    walking")
    worst = 0.0
    for name, policy in (
        ("after SFT", RowPolicy.golden_limit(graph)),
        ("after reward", RowPolicy.optimal(graph)),
    ):
        found = simulate_search(policy, episodes, np.random.default_rng(0))
        error = found.cost.std() / math.sqrt(episodes)
        gap = abs(found.cost.mean() - search_cost(policy)) / error
        worst = max(worst, float(gap))
        moves = expected_hitting_time(policy).value
        print(
            f"  {name:38s} {found.cost.mean():7.1f} +- {error:3.1f} {search_cost(policy):9.1f} {moves:10.4g}"
        )
    return {"search_gap_in_errors": round(worst, 2)}


def scaling_part() -> dict[str, float]:
    """Slope of log H per diamond after SFT, beside the closed rate, at W = L = 3."""
    hits = [float(sft_limit_hitting_time(3, k, 3)) for k in range(4, 7)]
    slope = float(np.polyfit(range(4, 7), np.log(hits), 1)[0])
    rate = math.log(growth_per_diamond(3))
    print(f"\nlog H per diamond after SFT, K = 4 .. 6: {slope:.4f}; ln((L + 1)^2 / L) = {rate:.4f}")
    return {"slope_ratio": round(slope / rate, 4)}


def network_part(walkers: int) -> dict[str, object]:
    """A two-layer transformer over node tokens, four ways; trajectories are cut at 400 moves."""
    start = NodeTransformer(SMALL)
    pretrain(start)
    nets = {name: copy.deepcopy(start) for name in ("reward", "distilled", "base", "shortest paths")}
    network_rlvr(nets["reward"])
    trajectories = sample_paths(nets["reward"].policy(), 100, 400, np.random.default_rng(3))
    network_sft(nets["distilled"], count_moves(trajectories.only(trajectories.reached)))
    network_sft(nets["shortest paths"], golden_moves(SMALL))
    print(f"\ntiny transformer at 3, 3, 3 ({walkers} trajectories cut at 400)")
    print("                    exact H     cut  restricted mean [95 %]     least P(desired), rows b and d")
    exact = {}
    for name, net in nets.items():
        policy = net.policy()
        exact[name] = expected_hitting_time(policy).value
        drawn = sample_paths(policy, walkers, 400, np.random.default_rng(1))
        mean = censored_mean(drawn.steps, drawn.reached)
        print(
            f"  {name:15s} {exact[name]:9.4g} {mean.censored:7d}  {mean.restricted:7.1f} "
            f"[{mean.low:.1f}, {mean.high:.1f}] {policy.desired[list(BACKWARD)].min():20.3f}"
        )
    return {"network": {name: round(value, 2) for name, value in exact.items()}}


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    options = parser.parse_args()
    started = time.monotonic()
    figures: dict[str, object] = dict(exact_part())
    figures |= sampled_part(3 if options.quick else 10)
    figures |= search_part(6000 if options.quick else 20_000)
    figures |= scaling_part()
    figures |= network_part(2000)
    print(f"\n{time.monotonic() - started:.0f} s")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
