"""When to verify, refine or stop: exact values, three regimes, and real repairs of real packages.

The anchors and the table of regimes are solved in rationals and by the grid solver. Then a planted repairer
works on packages whose critics (syntax, ruff, two public tests) and oracle (the hidden suite) really run:
rates are fitted on tasks of ten projects and used on tasks of ten others, live by the planned controller and
replayed by every simple rule on the same candidates. The prediction-rejection ratio of the beliefs is put
beside lm-polygraph's on the same scores. Draws of one task that depend on each other, as easy and hard tasks
make them, are warned of at fit and planned with classes of difficulty; on planted tasks, and on what a
mechanical repairer makes of real modules. Without --quick also a trained organism writes the repairs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
import types
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from parts.gate_live import PRICES, Live, cell_of, episodes_of, fitted, records_of
from parts.gate_within import within_part
from refork.plain import to_json
from refork.types import Json
from refork_methods.gate import BayesController, Critic, CriticModel, Kernel, Prices
from refork_methods.gate.evaluate import worth
from refork_methods.gate.fit import beliefs
from refork_methods.gate.released import released_policies
from refork_methods.gate.rules import every_rule, gates
from refork_methods.gate.score import prr
from refork_methods.gate.several import CauseProblem, cause_value
from refork_methods.gate.solve import in_floats, in_rationals
from refork_testbed.trials.gate_exact import solve_exact

SYNTAX = Critic("syntax", 1.0, 1.0, 1)
NEAR_ORACLE = (SYNTAX, Critic("test", 0.99, 0.04, 2), Critic("llm", 0.80, 0.45, 5))
IMPERFECT = (SYNTAX, Critic("test", 0.90, 0.45, 2), Critic("llm", 0.80, 0.35, 5))
KERNEL = Kernel(0.25, 0.10)
ANCHORS = (Fraction(131, 3), Fraction(268, 3), Fraction(391, 3), Fraction(42329, 300))
#: Critics, prior, price of verifying, planned value, best rule that judges candidates alone, always verify.
#: The last row's always-verify is the value at its own prior, .6; at .4 it would be -62.0.
TABLE = (
    ("near-oracle", NEAR_ORACLE, 0.6, 1, 72.3, 72.3, 72.3),
    ("near-oracle", NEAR_ORACLE, 0.4, 15, 46.0, 46.0, 30.2),
    ("near-oracle", NEAR_ORACLE, 0.6, 30, 46.1, 46.1, 23.0),
    ("imperfect", IMPERFECT, 0.6, 5, 65.5, 65.5, 65.5),
    ("imperfect", IMPERFECT, 0.6, 30, 35.1, 33.1, 23.0),
    ("imperfect", IMPERFECT, 0.4, 45, 8.5, 0.0, -31.2),
    ("imperfect", IMPERFECT, 0.6, 60, 8.8, 0.0, -28.0),
)


def anchors() -> int:
    """How many of the four published and derived values of the three-cause problem come out exactly."""
    third = Fraction(1, 3)
    failing = {
        name: tuple(Fraction(9, 10) if name == cause else Fraction(1, 5) for cause in "ABC") for name in "ABC"
    }
    problem = CauseProblem(
        (third, third, third), failing, Fraction(200), Fraction(3), Fraction(20), Fraction(1)
    )
    found = [cause_value(problem, tests) for tests in range(4)]
    print("three causes, 0 to 3 tests: " + ", ".join(map(str, found)))
    return sum(value == wanted for value, wanted in zip(found, ANCHORS, strict=True))


def regimes() -> Json:
    """The table of regimes: planned value, best rules, always-verify, and what controllers would buy."""
    worst, gap, bought = 0.0, np.inf, 0
    print("\ncritics      prior  verify  planned  best rule alone      all rules            always verify")
    for label, critics, prior, price, planned, rule, always in TABLE:
        model, prices = CriticModel(prior, critics, KERNEL), Prices(verify=price)
        exact = solve_exact(model, prices, 3, "retry").value()
        problem = in_rationals(model, prices, 3, "retry")
        alone = {name: worth(one, problem) for name, one in gates(model, 3).items()}
        everything = {name: worth(one, problem) for name, one in every_rule(model, 3).items()}
        best, all_best = max(alone, key=lambda k: alone[k]), max(everything, key=lambda k: everything[k])
        controller = BayesController(model, prices, 3, "retry")
        reached = worth(controller, in_floats(model, prices, 3, "retry"))
        gap = min(gap, float(exact - everything[all_best]), reached - float(everything[all_best]) + 1e-9)
        worst = max(
            worst, abs(float(exact) - planned), abs(float(alone[best]) - rule),
            abs(float(alone["always_verify"]) - always), abs(reached - float(exact)),
        )  # fmt: skip
        bought += buys_syntax(model, prices)
        print(
            f"{label:12s} {prior:.1f}  {price:6d}  {float(exact):7.2f}  {float(alone[best]):6.2f} {best:13s}"
            f"  {float(everything[all_best]):6.2f} {all_best:21s} {float(alone['always_verify']):7.2f}"
        )
    return {"table_max_dev": round(worst, 6), "dp_min_gap": round(gap, 9), "syntax_bought": bought}


def buys_syntax(model: CriticModel, prices: Prices) -> int:
    """In how many of 303 states a controller (planned, greedy) buys the critic that says nothing."""
    count = 0
    for method in ("dp", "greedy"):
        controller = BayesController(model, prices, 3, "retry", method=method)  # type: ignore[arg-type]
        for candidate in range(3):
            for belief in np.linspace(0, 1, 101):
                state = replace(controller.start(), belief=float(belief), candidate=candidate)
                count += controller.act(state).action == "syntax"
    return count


def peer() -> tuple[types.ModuleType, types.ModuleType]:
    """lm-polygraph's own files, without its package's start, which wants a score of other packages."""
    found = importlib.util.find_spec("lm_polygraph")
    if found is None or found.submodule_search_locations is None:
        raise SystemExit("lm-polygraph is not installed; make bench installs it")
    package = types.ModuleType("lm_polygraph_metrics")
    package.__path__ = [str(Path(found.submodule_search_locations[0]) / "ue_metrics")]
    sys.modules[package.__name__] = package
    first, second = (
        importlib.import_module(f"{package.__name__}.{part}") for part in ("pred_rej_area", "ue_metric")
    )
    return first, second


def prr_difference(score: np.ndarray, right: np.ndarray) -> float:
    """Largest difference between our ratio and lm-polygraph's on the same scores, at three shares."""
    area, metric = peer()
    worst = 0.0
    for share in (0.3, 0.5, 1.0):
        theirs = area.PredictionRejectionArea(max_rejection=share)
        value = metric.normalize_metric(
            theirs(list(-score), list(right)), theirs(list(-right), list(right)),
            metric.get_random_scores(theirs, right),
        )  # fmt: skip
        ours = prr(score, right, share, random="monte-carlo", ties="sorted").value
        worst = max(worst, abs(float(value) - ours))
    return worst


def tell_model(model: CriticModel) -> None:
    """The fitted rates."""
    print(f"\nfitted on real repairs: prior {model.start:.3f}, kernel {to_json(model.kernel)}")
    for critic in model.critics:
        print(f"  {critic.name:8s} P(pass | right) {critic.right:.3f}  P(pass | wrong) {critic.wrong:.3f}")


def tell_cell(name: str, cell: Live) -> None:
    """One cell: prediction against what happened, and the rules."""
    best = cell.comparison.best
    assert best.reference is not None
    print(
        f"{name:6s} predicted {cell.predicted:7.2f}  realised {cell.realised:7.2f} over {cell.episodes} "
        f"episodes (z {cell.z:+.2f});  replayed {best.mean:7.2f}, best rule {best.rule} "
        f"{best.means[best.rule]:.2f}: {best.gap.estimate:+.2f} [{best.gap.low:+.2f}, {best.gap.high:+.2f}]; "
        f"always-verify {best.reference.estimate:+.2f}"
    )


def live(quick: bool) -> Json:
    """Real repairs: fit on one half of the projects, act on the other."""
    fit_tasks, tasks, draws = (70, 70, 1) if quick else (100, 100, 3)
    with ProcessPoolExecutor(max_workers=2) as pool:
        calibration = pool.submit(records_of, "train", fit_tasks, draws)
        held = pool.submit(records_of, "held-out", tasks, draws)
        model = fitted(calibration.result())
        named = ("paper",) if quick else tuple(PRICES)
        acting = {n: pool.submit(episodes_of, "held-out", tasks, draws, model, PRICES[n]) for n in named}
        records = held.result()
        cells = {name: cell_of(model, PRICES[name], job.result(), records) for name, job in acting.items()}
    tell_model(model)
    for name, cell in cells.items():
        tell_cell(name, cell)
    found = beliefs(model, records)
    score = np.array(list(found.values()))
    outcome = {(r.instance, r.candidate, r.step): r.right for r in records}
    right = np.array([float(bool(outcome[key])) for key in found])
    asked = sum(buys_syntax(model, PRICES[name]) for name in named)
    worst = max(cells.values(), key=lambda cell: abs(cell.z))
    low = min(cell.comparison.best.gap.low for cell in cells.values())
    print(f"beliefs of {score.size} candidates: prediction-rejection ratio {prr(score, right).value:.3f}")
    return {
        "live_z": round(abs(worst.z), 3),
        "live_low": round(low, 3),
        "live_over_always_verify": round(min(_over_always(c) for c in cells.values()), 3),
        "live_syntax_bought": asked,
        "live_prr": round(prr(score, right).value, 3),
        "prr_diff": prr_difference(score, right),
    }


def _over_always(cell: Live) -> float:
    reference = cell.comparison.best.reference
    assert reference is not None
    return reference.estimate


def released() -> Json:
    """What the reference release's policies would reach here, their oddities kept, beside the optimum."""
    model, prices = CriticModel(0.6, IMPERFECT, KERNEL), Prices(verify=30)
    problem = in_floats(model, prices, 3, "terminal")
    ours = worth(BayesController(model, prices, 3, "terminal"), problem)
    theirs = {name: worth(one, problem) for name, one in released_policies(model, prices, 3).items()}
    print(f"\nas released (terminal, imperfect critics, verify 30), the optimum is {ours:.2f}:")
    print("  " + ", ".join(f"{name} {value:.2f}" for name, value in theirs.items()))
    return {"optimum": round(ours, 3)}


def main() -> None:
    """Run and print; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="70 tasks a side, one draw, one price")
    args = parser.parse_args()
    began = time.perf_counter()
    told: Json = {"anchors_ok": anchors()}
    told |= regimes()
    told |= released()
    told |= within_part(args.quick)
    told |= live(args.quick)
    if not args.quick:
        from parts.gate_organism import organism_part

        told |= organism_part()
    print(f"\n{time.perf_counter() - began:.0f} s")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
