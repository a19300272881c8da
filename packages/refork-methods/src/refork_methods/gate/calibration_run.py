"""What the commands do: fit records into a policy, replay every policy on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from refork.errors import BadInput
from refork.types import Json
from refork_methods.gate.calibration_report import replay_json
from refork_methods.gate.compare import Comparison, check_calibration, check_prediction, compare
from refork_methods.gate.controller import BayesController
from refork_methods.gate.crossfit import cross_replay
from refork_methods.gate.fit import Fit, fit, refuse_fitted
from refork_methods.gate.independence import MOST, IndependenceReport, independence
from refork_methods.gate.model import CriticModel, Prices, read_policy
from refork_methods.gate.policy import Policy, Verify
from refork_methods.gate.prices import KINDS, Rates, measured, price_of, prices_from
from refork_methods.gate.readers.jsonl import write_jsonl
from refork_methods.gate.records import Record, labelled, split
from refork_methods.gate.replay import Costs, Replay, replay
from refork_methods.gate.rules import every_rule

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
) -> tuple[Fit, Prices | None, IndependenceReport | None]:
    """A fit, the prices where the reward is given, and the test of independence where it can be made.

    Raises: BadInput as their parts, and for a price of what is not there.
    """
    fitted = fit(records, given, critics=critics, changed_only=changed_only)
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
    return fitted, prices, tested


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
    posterior_draws: int = 0,
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
    if folds is not None:
        ends, promised = cross_replay(
            lambda fitted: all_policies(fitted, prices, horizon, way),
            records,
            {critic.name: critic.price for critic in model.critics},
            prices,
            folds=folds,
            seed=seed,
            horizon=horizon,
            verify=way,
            costs=costs,
            changed_only=bool(model.meta.get("kernel", {}).get("changed_only")),
        )
        checks = {name: check_prediction(ends[name], value) for name, value in promised.items()}
    else:
        refuse_fitted(model, records)
        policies = all_policies(model, prices, horizon, way)
        ends = {
            name: replay(one, records, model, prices, horizon=horizon, verify=way, costs=costs)
            for name, one in policies.items()
        }
        checks = {
            name: check_calibration(
                ends[name], one, model, prices, horizon=horizon, verify=way,
                posterior_draws=posterior_draws, seed=seed,
            )
            for name, one in policies.items()
        }  # fmt: skip
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
