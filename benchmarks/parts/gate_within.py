"""Rounds of one instance that depend on each other: whether fit warns, and what a plan promises and earns.

Planted tasks are easy or hard for all their draws, at rates that were set beforehand; real ones are what a
mechanical repairer finds in real modules. How many classes of difficulty to fit is chosen on other samples
than those reported: on other seeds of the planted tasks, on the projects fitted on of the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parts.gate_draws import COSTS, draws_of
from parts.gate_live import PRICES as CELLS
from refork.types import Json
from refork_methods.gate import BayesController, Critic, CriticModel, Kernel, Prices, every_rule
from refork_methods.gate.difficulty import choose_classes
from refork_methods.gate.evaluate import promised
from refork_methods.gate.fit import fit_critics
from refork_methods.gate.planted import planted_records
from refork_methods.gate.records import Record
from refork_methods.gate.replay import Comparison, check_calibration, compare, replay
from refork_methods.gate.rounds import rounds

CRITICS = (("test", 0.90, 0.45, 2.0), ("review", 0.80, 0.35, 5.0))
#: Shares and priors of easy and hard tasks. The same writer with no such classes has their mean for all.
SHARES, PRIORS = (0.6, 0.4), (0.9, 0.2)
PRICES = Prices(verify=60)
HORIZON, DRAWS = 3, 3
RATE, SHUFFLES = 0.05, 199
CHOSEN_ON, FITTED_ON, REPLAYED_ON = range(900, 903), 1, 2
#: Real tasks have four draws; they are verified at each price of the live part.
REAL_DRAWS = 4


def easy_and_hard() -> CriticModel:
    """Draws of their own, critics alike on easy and hard tasks."""
    prior = sum(share * p for share, p in zip(SHARES, PRIORS, strict=True))
    critics = tuple(Critic(name, a, b, price, ((a, b),) * 2) for name, a, b, price in CRITICS)
    kernel = Kernel(prior, 1 - prior, tuple((p, 1 - p) for p in PRIORS))
    return CriticModel(prior, critics, kernel, {}, tuple(zip(SHARES, PRIORS, strict=True)))


def warned(model: CriticModel, samples: int, seed: int, instances: int = 60) -> float:
    """In what share of samples of so many instances fit warns that rounds depend."""
    found = [
        rounds(planted_records(model, instances, draws=DRAWS, steps=1, seed=seed + n), shuffles=SHUFFLES,
               rate=RATE).p
        for n in range(samples)
    ]  # fmt: skip
    return float(np.mean([p is not None and p < RATE for p in found]))


def replayed(
    plan: BayesController, held: Sequence[Record], horizon: int
) -> tuple[Comparison, float, float | None]:
    """A plan beside every rule on recorded draws, what it promised, and its z."""
    model, prices = plan.model, plan.prices
    ends = {
        name: replay(policy, held, model, prices, horizon=horizon, verify="retry")
        for name, policy in ({"dp": plan} | every_rule(model, horizon)).items()
    }
    check = check_calibration(ends["dp"], plan, model, prices, horizon=horizon, verify="retry")
    return compare(ends, "dp", np.random.default_rng(0), resamples=2000), check.predicted, check.z


def planted_part(quick: bool) -> Json:
    """Power, false alarms, and a plan without and with classes on easy and hard tasks."""
    true = easy_and_hard()
    alarms = 60 if quick else 400
    told: Json = {
        "within_instance_warned": warned(true, 20 if quick else 100, 1000),
        "within_instance_false_alarm": warned(true.alike, alarms, 2000),
    }
    chosen = [choose_classes(_sample(true, seed)) for seed in CHOSEN_ON]
    count = int(np.median(chosen))
    records, held = _sample(true, FITTED_ON), _sample(true, REPLAYED_ON, 400)
    costs = {name: price for name, _, _, price in CRITICS}
    best = max(promised(r, true, PRICES, HORIZON, "retry") for r in every_rule(true, HORIZON).values())
    print(f"\neasy and hard tasks, {count} classes chosen on other seeds; best simple rule {best:.2f}")
    for name, classes in (("alike", 1), ("classes", count)):
        plan = BayesController(fit_critics(records, costs, classes=classes), PRICES, HORIZON, "retry")
        earned = promised(plan, true, PRICES, HORIZON, "retry")
        told |= {
            f"within_promised_{name}": round(plan.value()[0], 3),
            f"within_earned_{name}": round(earned, 3),
        }
        found, _, z = replayed(plan, held, HORIZON)
        gap = found.best.gap
        print(f"  {name:8s} promises {plan.value()[0]:6.2f}, earns {earned:6.2f} (exact); replayed "
              f"{found.best.mean:6.2f} (z {z:+.1f}), minus {found.best.rule} {gap.estimate:+.2f} "
              f"[{gap.low:+.2f}, {gap.high:+.2f}]")  # fmt: skip
        told[f"within_low_{name}"] = round(gap.low, 3)
    return told


def _sample(model: CriticModel, seed: int, instances: int = 150) -> tuple[Record, ...]:
    return planted_records(model, instances, draws=DRAWS, steps=1, seed=seed, prefix=f"{seed}-")


def real_part(tasks: int) -> Json:
    """The mechanical repairer: fitted on one half of the projects, replayed on the other."""
    return real_figures(draws_of("train", tasks, REAL_DRAWS), draws_of("held-out", tasks, REAL_DRAWS))


def real_figures(records: Sequence[Record], held: Sequence[Record]) -> Json:
    """Whether fit warns, and plans without and with classes on the other projects, at every price."""
    report = rounds(records)
    count = choose_classes(records)
    told: Json = {"real_within_p": report.p, "real_within_classes": count}
    print(f"\nreal draws: p {report.p}, {count} classes chosen where they are fitted")
    for name, classes in (("alike", 1), ("classes", count)):
        model = fit_critics(records, COSTS, classes=classes)
        zs = []
        for cell, prices in CELLS.items():
            plan = BayesController(model, prices, REAL_DRAWS, "retry")
            found, predicted, z = replayed(plan, held, REAL_DRAWS)
            gap = found.best.gap
            zs.append(z or 0.0)
            print(f"  {cell:6s} {name:8s} promises {predicted:6.2f}, earns {found.best.mean:6.2f} over "
                  f"{found.instances} tasks (z {zs[-1]:+.2f}), minus {found.best.rule} {gap.estimate:+.2f} "
                  f"[{gap.low:+.2f}, {gap.high:+.2f}]")  # fmt: skip
            told |= {
                f"real_{cell}_promised_{name}": round(predicted, 3),
                f"real_{cell}_earned_{name}": round(found.best.mean, 3),
                f"real_{cell}_gap_{name}": round(gap.estimate, 3),
                f"real_{cell}_low_{name}": round(gap.low, 3),
            }
        told[f"real_within_z_{name}"] = round(max(map(abs, zs)), 3)
    return told


def within_part(quick: bool) -> Json:
    """All of it."""
    return planted_part(quick) | real_part(60)
