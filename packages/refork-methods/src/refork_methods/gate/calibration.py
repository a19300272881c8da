"""From records to a fitted policy, its replay and its scores, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from refork.errors import BadInput
from refork.plain import to_json
from refork.stats import newcombe, wilson
from refork.types import Json
from refork_methods.gate.controller import BayesController
from refork_methods.gate.difficulty import choose_classes
from refork_methods.gate.fit import CriticFit, Fit, fit, refuse_fitted
from refork_methods.gate.independence import MOST, IndependenceReport, independence
from refork_methods.gate.model import CriticModel, Prices, Rate, chance, read_policy
from refork_methods.gate.policy import Policy, Verify
from refork_methods.gate.records import (
    KINDS,
    Rates,
    Record,
    labelled,
    measured,
    price_of,
    prices_from,
    split,
    write_jsonl,
)
from refork_methods.gate.replay import (
    CalibrationCheck,
    Comparison,
    Costs,
    Replay,
    check_calibration,
    check_prediction,
    compare,
    cross_replay,
    replay,
)
from refork_methods.gate.rounds import RoundsReport, rounds
from refork_methods.gate.rules import every_rule
from refork_methods.gate.score import Scores

# Fits, replays and scores as plain data, for printing and for files.


def rate_json(rate: Rate) -> Json:
    """The rate acted on, with its credible interval where it was learned."""
    if isinstance(rate, float | int):
        return {"mean": float(rate), "low": None, "high": None}
    found = rate.interval()
    return {"mean": chance(rate), "low": found.low, "high": found.high}


def fit_json(
    fit: Fit, prices: Prices | None, tested: IndependenceReport | None, within: RoundsReport | None = None
) -> Json:
    """A fit with its counts, its intervals, and the tests: of the critics where there are two, of the rounds.

    Where the model has classes of difficulty it is no warning that rounds of an instance depend.
    """
    draws = fit.model.meta["draws"]
    return {
        "candidates": fit.right + fit.wrong,
        "right": fit.right,
        "wrong": fit.wrong,
        "instances": len(fit.model.meta["instances"]),
        "dropped": dict(fit.dropped),
        "prior": {
            **rate_json(fit.model.prior),
            "draws": draws["all"],
            "wilson": to_json(wilson(draws["right"], draws["all"])),
        },
        "critics": [_critic(one) for one in fit.critics],
        "kernel": {
            "fix": rate_json(fit.model.kernel.fix),
            "breaks": rate_json(fit.model.kernel.breaks),
            **fit.model.meta["kernel"],
        },
        "prices": to_json(prices),
        "independence": to_json(tested),
        "rounds": to_json(within),
        "classes": [_class(fit.model, number) for number in range(len(fit.model.classes))],
        "warnings": [
            *fit.warnings,
            *(() if tested is None else tested.warnings),
            *(() if within is None or fit.model.classes else within.warnings),
        ],
    }


def _class(model: CriticModel, number: int) -> Json:
    (share, prior), (fix, breaks) = model.classes[number], model.kernel.classes[number]
    critics = {c.name: {"alpha": c.classes[number][0], "beta": c.classes[number][1]} for c in model.critics}
    return {"share": share, "prior": prior, "fix": fix, "breaks": breaks, "critics": critics}


def _critic(one: CriticFit) -> Json:
    return {
        "name": one.critic.name,
        "alpha": {**rate_json(one.critic.alpha), "passed": one.right[0], "judged": one.right[1]},
        "beta": {**rate_json(one.critic.beta), "passed": one.wrong[0], "judged": one.wrong[1]},
        "gap": one.critic.gap,
        "gap_interval": to_json(newcombe(one.wrong, one.right).interval),
        "price": one.critic.price,
        "unknown": one.unknown,
    }


def replay_json(
    replays: Mapping[str, Replay],
    checks: Mapping[str, CalibrationCheck],
    comparisons: Mapping[str, Comparison],
) -> Json:
    """Every policy's utility and promise, best first, and the controllers beside the best simple rule."""
    rows: list[Json] = []
    for name, one in sorted(replays.items(), key=lambda item: -item[1].mean().estimate):
        check = checks[name]
        rows.append(
            {
                "policy": name,
                "rule": name not in comparisons,
                "utility": to_json(one.mean()),
                "solved": float(one.solved.mean()),
                "spent": float(one.spent.mean()),
                "predicted": check.predicted,
                "z": check.z,
                "ece": check.ece,
                "brier": check.brier,
                "actions": dict(one.actions),
                "failed_calls": one.failed_calls,
            }
        )
    first = next(iter(replays.values()))
    short = [f"{first.short} episodes with too few candidates were left out"] if first.short else []
    lost = [f"{n} candidates dropped: {why}" for why, n in first.dropped.items()]
    return {
        "instances": len(first.instances),
        "episodes": first.episodes,
        "short": first.short,
        "dropped": dict(first.dropped),
        "policies": rows,
        "comparisons": {
            name: {
                "best_rule": one.best.rule,
                "gap": to_json(one.best.gap),
                "over_always_verify": to_json(one.best.reference),
                "p": one.p,
                "detectable": one.detectable,
            }
            for name, one in comparisons.items()
        },
        "warnings": [*short, *lost, *first.warnings],
    }


def scores_json(scores: Scores) -> Json:
    """The scores beside each other, and the belief in every candidate."""
    return {
        "candidates": len(scores.records),
        "dropped": dict(scores.dropped),
        "scores": [
            {
                "score": row.name,
                "prr": row.prr.value,
                "areas": {"score": row.prr.area, "oracle": row.prr.oracle, "random": row.prr.random},
                "max_rejection": row.prr.max_rejection,
                "method": row.prr.method,
                "auroc": to_json(row.auroc),
                "ece": row.ece,
                "brier": row.brier,
            }
            for row in scores.rows
        ],
        "beliefs": [
            {
                "instance": record.instance,
                "candidate": record.candidate,
                "step": record.step,
                "belief": float(belief),
                "right": record.right,
            }
            for record, belief in zip(scores.records, scores.beliefs, strict=True)
        ],
    }


# What the commands do: fit records into a policy, replay every policy on others.

#: What is compared with the rules.
CONTROLLERS = ("dp", "greedy")


def rates_of(unit: str, rates: Mapping[str, float]) -> Rates:
    """Rates as named on a command line. Raises BadInput for an unknown unit or kind."""
    unknown = sorted(set(rates) - set(KINDS))
    if unknown:
        raise BadInput(f"there is no rate of {unknown[0]!r}", hint=f"one of {', '.join(KINDS)}")
    named: Any = unit
    return Rates(named, **rates)


def unit_of(policy: Path, unit: str | None) -> str:
    """The unit that a policy file's prices are in; the one given where it has none.

    Raises: BadInput where another one is given.
    """
    _, kept = read_policy(policy)
    if kept is not None and unit not in (None, kept.unit):
        raise BadInput(f"the policy's prices are in {kept.unit}, not {unit}", where=str(policy))
    return kept.unit if kept is not None else unit or "utility"


def classes_from(text: str) -> int | None:
    """A number of classes of difficulty, None for ``auto``. Raises BadInput."""
    if text == "auto":
        return None
    if not text.isdecimal() or not int(text):
        raise BadInput(f"{text!r} classes of difficulty", hint="1, 2, 3 or auto")
    return int(text)


def held_out(
    records: Sequence[Record], share: float | None, seed: int, test: Path | None
) -> tuple[Record, ...]:
    """The records to fit on; those of the instances held out are written to ``test``.

    Raises: BadInput for one of share and test without the other.
    """
    if share is None and test is None:
        return tuple(records)
    if share is None or test is None:
        raise BadInput("holding instances out needs both a share to fit on and a file for the rest")
    mine, rest = split(records, share, seed)
    write_jsonl(test, rest)
    return mine


def fit_records(
    records: Sequence[Record],
    given: Mapping[str, float],
    critics: Sequence[str] | None,
    *,
    changed_only: bool = False,
    reward: float | None = None,
    ship_loss: float | None = None,
    unit: str = "utility",
    classes: int | None = 1,
) -> tuple[Fit, Prices | None, IndependenceReport | None, RoundsReport]:
    """A fit, the prices where the reward is given, the test of critics where it can be made, that of rounds.

    ``classes`` of difficulty, None: as many as tell most of instances held out, up to three.

    Raises: BadInput as their parts, and for a price of what is not there.
    """
    count = choose_classes(records, critics, changed_only=changed_only) if classes is None else classes
    fitted = fit(records, given, critics=critics, changed_only=changed_only, classes=count)
    names = fitted.model.names
    strange = sorted(set(given) - {*names, "verify", "generate"})
    if strange:
        raise BadInput(f"there is no {strange[0]!r} to price", hint=f"{', '.join(names)}, verify, generate")
    prices = None
    if reward is not None:
        kind: Any = unit
        prices = prices_from(labelled(records).records, reward, given, ship_loss=ship_loss, unit=kind)
    tested = None
    if 1 < len(names) <= MOST and any(
        r.right is not None and all(r.verdicts.get(n) is not None for n in names) for r in records
    ):
        tested = independence(records, names)
    return fitted, prices, tested, rounds(records, names)


def replay_all(
    policy: Path,
    records: Sequence[Record],
    given: Mapping[str, float],
    *,
    reward: float | None = None,
    horizon: int = 3,
    verify: str = "terminal",
    recorded: bool = False,
    resamples: int = 1000,
    folds: int | None = None,
    seed: int = 0,
    unit: str = "utility",
) -> Json:
    """Both controllers and every simple rule of a policy file on records of other instances.

    With ``folds`` the records may be those it was fitted on: every fold is replayed by policies that were
    fitted anew without it, at the file's prices.

    Raises: BadInput for instances the policy was fitted on, prices that are unknown, or as :func:`replay`.
    """
    model, kept = read_policy(policy)
    prices = _prices(kept, records, given, reward, unit)
    model = replace(model, critics=tuple(replace(c, price=given.get(c.name, c.price)) for c in model.critics))
    way: Any = verify
    costs: Costs = "recorded" if recorded else "prices"
    settings: Any = {"horizon": horizon, "verify": way, "costs": costs}
    if folds is not None:
        ends, promised = cross_replay(
            lambda fitted: all_policies(fitted, prices, horizon, way), records,
            {critic.name: critic.price for critic in model.critics}, prices, folds=folds, seed=seed,
            changed_only=bool(model.meta.get("kernel", {}).get("changed_only")),
            classes=max(1, len(model.classes)), **settings,
        )  # fmt: skip
        checks = {name: check_prediction(ends[name], value) for name, value in promised.items()}
    else:
        refuse_fitted(model, records)
        policies = all_policies(model, prices, horizon, way)
        ends = {name: replay(one, records, model, prices, **settings) for name, one in policies.items()}
        checks = {
            name: check_calibration(ends[name], one, model, prices, horizon=horizon, verify=way)
            for name, one in policies.items()
        }
    return replay_json(ends, checks, _comparisons(ends, seed, resamples))


def all_policies(model: CriticModel, prices: Prices, horizon: int, verify: Verify) -> dict[str, Policy]:
    """The two controllers and every simple rule, our cascades among them."""
    return {
        "dp": BayesController(model, prices, horizon, verify),
        "greedy": BayesController(model, prices, horizon, verify, method="greedy"),
        **every_rule(model, horizon),
    }


def _comparisons(ends: Mapping[str, Replay], seed: int, resamples: int) -> dict[str, Comparison]:
    return {
        name: compare(
            ends,
            name,
            np.random.default_rng(seed),
            others=tuple(other for other in CONTROLLERS if other != name),
            resamples=resamples,
        )
        for name in CONTROLLERS
        if len(ends[name].instances) > 1
    }


def _prices(
    kept: Prices | None,
    records: Sequence[Record],
    given: Mapping[str, float],
    reward: float | None,
    unit: str,
) -> Prices:
    if kept is None:
        if reward is None:
            raise BadInput("the policy file has no prices", hint="give --reward, and --price verify=...")
        kind: Any = unit
        return prices_from(records, reward, given, unit=kind)
    seen = measured(())
    known = {"verify": kept.verify, "generate": kept.generate, **given}
    return replace(
        kept,
        reward=kept.reward if reward is None else reward,
        verify=price_of("verify", known, seen),
        generate=price_of("generate", known, seen),
    )
