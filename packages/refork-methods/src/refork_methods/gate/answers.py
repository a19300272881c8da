"""From numbers or a policy file to a problem, and the answers and maps as plain fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from refork.errors import BadInput
from refork.plain import to_json
from refork.types import Json
from refork_methods.gate.controller import BayesController
from refork_methods.gate.model import (
    GENERATE,
    UNITS,
    VERIFY,
    Critic,
    CriticModel,
    Kernel,
    Prices,
    present,
    read_policy,
)
from refork_methods.gate.policy import Choice, State, Verify, at_belief, fresh, observed, rejected
from refork_methods.gate.regimes import (
    BAYES,
    Comparison,
    RegimeMap,
    Rules,
    compare_rules,
    regime_map,
    sensitivity,
)
from refork_methods.gate.rules import every_rule, simple_rules
from refork_methods.gate.thresholds import critic_niche, ship_line, verify_line

# From numbers or a policy file to a problem, from verdicts to a state, and the answers as plain fields.

#: More cells than this and a range was mistyped.
MOST_VALUES = 100


def critic_from(text: str) -> Critic:
    """A critic from ``NAME=ALPHA,BETA,PRICE``. Raises BadInput for anything else, a missing side among it."""
    name, _, numbers = text.partition("=")
    parts = numbers.split(",")
    if not name or len(parts) != 3:
        raise BadInput(
            f"{text!r} is no critic", hint="NAME=P(pass|right),P(pass|wrong),PRICE as in test=0.9,0.45,2"
        )
    alpha, beta, price = (_number(part, f"critic {name!r}") for part in parts)
    return Critic(name, alpha, beta, price)


def setting(
    policy: Path | None,
    *,
    prior: float | None = None,
    critics: Sequence[str] = (),
    fix: float | None = None,
    breaks: float | None = None,
    amounts: Mapping[str, float] | None = None,
    reward: float | None = None,
    ship_loss: float | None = None,
    unit: str | None = None,
) -> tuple[CriticModel, Prices]:
    """A model and prices from a policy file, from numbers, or from a file with some numbers set anew.

    ``amounts`` prices ``verify``, ``generate`` and critics by name. Without a kernel, draws are independent.

    Raises: BadInput for no prior, an unknown name, or half a kernel.
    """
    model, prices = read_policy(policy) if policy is not None else (None, None)
    if model is None:
        if prior is None:
            raise BadInput(
                "there is no model",
                hint="name a policy file, or give --prior and --critic NAME=ALPHA,BETA,PRICE",
            )
        model = CriticModel(prior, (), Kernel.resample(prior))
    elif prior is not None:
        model = replace(model, prior=prior)
    if model.classes and (prior is not None or critics or fix is not None or breaks is not None):
        raise BadInput(
            "every class of difficulty of this policy has numbers of its own, so none can be given for all",
            hint="only prices can; or fit with --classes 1",
        )
    if critics:
        given = {critic.name: critic for critic in map(critic_from, critics)}
        if len(given) < len(critics):
            raise BadInput("a critic is given twice")
        kept = tuple(given.pop(c.name, c) for c in model.critics)
        model = replace(model, critics=kept + tuple(given.values()))
    if (fix is None) != (breaks is None):
        raise BadInput("a refine kernel needs both P(fix) and P(break)")
    if fix is not None and breaks is not None:
        model = replace(model, kernel=Kernel(fix, breaks))
    return _priced(model, prices or Prices(), amounts or {}, reward, ship_loss, unit)


def _priced(
    model: CriticModel,
    prices: Prices,
    amounts: Mapping[str, float],
    reward: float | None,
    ship_loss: float | None,
    unit: str | None,
) -> tuple[CriticModel, Prices]:
    for name in amounts:
        if name not in (VERIFY, GENERATE):
            model.critic(name)
    kind = prices.unit
    if unit is not None:
        kind = next((known for known in UNITS if known == unit), kind)
        if kind != unit:
            raise BadInput(f"unknown unit {unit!r}", hint=f"one of {', '.join(UNITS)}")
    priced = Prices(
        prices.reward if reward is None else reward,
        amounts.get(VERIFY, prices.verify),
        amounts.get(GENERATE, prices.generate),
        prices.ship_loss if ship_loss is None else ship_loss,
        kind,
    )
    critics = tuple(replace(c, price=amounts.get(c.name, c.price)) for c in model.critics)
    return replace(model, critics=critics), priced


def state_from(
    model: CriticModel,
    verdicts: Sequence[str] = (),
    *,
    belief: float | None = None,
    used: Sequence[str] = (),
    candidate: int = 0,
    refused: bool = False,
) -> State:
    """The state after verdicts ``CRITIC=pass`` or ``CRITIC=fail`` at a belief, the prior where none is given.

    ``used`` are critics whose verdict the belief has taken in already. Raises BadInput.
    """
    for name in used:
        model.critic(name)
    begun = replace(fresh(model), used=frozenset(used), candidate=candidate)
    state = begun if belief is None else at_belief(begun, belief)
    for text in verdicts:
        name, _, said = text.partition("=")
        if said not in ("pass", "fail"):
            raise BadInput(f"{text!r} is no verdict", hint="CRITIC=pass or CRITIC=fail")
        state = observed(state, model.critic(name), said == "pass")
    return rejected(state) if refused else state


def values_from(text: str) -> list[float]:
    """Numbers from ``LOW:HIGH:STEP``, both ends within, or with commas. Raises BadInput."""
    if ":" not in text:
        return [_number(part, "the values") for part in text.split(",")]
    parts = [_number(part, "the range") for part in text.split(":")]
    if len(parts) != 3 or parts[2] <= 0 or parts[1] < parts[0]:
        raise BadInput(f"{text!r} is no range", hint="LOW:HIGH:STEP, as in 0.1:0.9:0.05")
    # (0.7 - 0.1) / 0.1 is a hair below 6: without the nudge the upper end would be missing.
    count = math.floor((parts[1] - parts[0]) / parts[2] + 1e-9) + 1
    if count > MOST_VALUES:
        raise BadInput(f"{text!r} has {count} values", hint=f"at most {MOST_VALUES}")
    return [round(parts[0] + i * parts[2], 10) for i in range(count)]


def default_values(model: CriticModel, prices: Prices, name: str) -> list[float]:
    """Values to try: chances from 0.1 to 0.9, prices up to the reward or twice the present one."""
    kind = name.partition(":")[0]
    if kind in ("prior", "fix", "breaks", "alpha", "beta", "gap"):
        return [round(float(v), 2) for v in np.arange(0.10, 0.901, 0.1)]
    top = prices.reward if name == VERIFY else 2 * present(model, prices, name)
    return [round(top * share, 6) for share in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]


def answer_json(controller: BayesController, state: State, choice: Choice) -> Json:
    """The next action with everything that stands behind it; thresholds are those of one step ahead.

    ``plan`` compares a whole episode, from a fresh first candidate on, with the best simple rule.
    """
    model, prices = controller.model, controller.prices
    niches = {}
    for critic in model.critics:
        niche = critic_niche(critic, prices)
        niches[critic.name] = [niche.low, niche.high] if niche.exists else None
    compared = compare_rules(model, prices, controller.horizon, controller.verify)
    always = verify_line(prices)
    ship = ship_line(prices)
    return {
        "action": choice.action,
        "reason": choice.reason,
        "q": dict(choice.q),
        "bracket": None if choice.bracket is None else list(choice.bracket),
        "unit": prices.unit,
        "state": {
            "belief": state.belief, "used": sorted(state.used), "passed": sorted(state.passed),
            "candidate": state.candidate, "refused": state.rejected,
            "classes": [wrong + right for wrong, right in state.hidden],
        },
        "horizon": controller.horizon, "verify": controller.verify, "method": controller.method,
        "thresholds": {
            "verify": always if math.isfinite(always) else None, "critics": niches,
            "ship": ship if ship is not None and math.isfinite(ship) else None,
        },
        "plan": compared.to_json(),
    }  # fmt: skip


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is no number", where=what) from error


# A regime map as plain fields: marks for a table, what they mean, and a verdict in one sentence.

RULES: Mapping[str, Rules] = {"all": every_rule, "paper": simple_rules}


@dataclass(frozen=True, slots=True)
class Family:
    """Simple rules of one kind: how their names begin, the mark in tables and pictures, what they do."""

    starts: tuple[str, ...]
    mark: str
    words: str


FAMILIES = (
    Family(("stop",), "s", "stop"),
    Family(("always_verify",), "v", "verify at once"),
    Family(("gate", "reflexion"), "1", "one critic, then verify"),
    Family(("pipeline", "cascade"), "m", "several critics, then verify"),
    Family(("best_of", "self_refine"), "n", "refine unseen, then verify"),
)

OTHER = Family((), "?", "another rule")


def family(rule: str) -> Family:
    """The kind of a simple rule."""
    return next((kind for kind in FAMILIES if rule.startswith(kind.starts)), OTHER)


def mark(cell: Comparison) -> str:
    """The gain where planning wins, else the mark of the rule that is as good."""
    return f"{cell.gain:.1f}" if cell.winner == BAYES else family(cell.rule).mark


def map_json(
    model: CriticModel,
    prices: Prices,
    x: str = "prior",
    y: str = "verify",
    xs: str | None = None,
    ys: str | None = None,
    *,
    horizon: int = 3,
    verify: Verify = "terminal",
    rules: str = "all",
    sensitive: bool = False,
) -> tuple[RegimeMap, Json]:
    """A regime map and its report; ``xs`` and ``ys`` as ``values_from`` reads them.

    Raises: BadInput as ``regime_map``, and for an unknown set of rules.
    """
    if rules not in RULES:
        raise BadInput(f"unknown rules {rules!r}", hint=f"one of {', '.join(RULES)}")
    now = tuple(present(model, prices, name) for name in (x, y))
    across, up = (
        default_values(model, prices, name) if text is None else values_from(text)
        for name, text in ((x, xs), (y, ys))
    )
    found = regime_map(
        model, prices, across, up, x=x, y=y, horizon=horizon, verify=verify, rules=RULES[rules]
    )
    cells = [cell for row in found.cells for cell in row]
    kinds = {family(cell.rule) for cell in cells if cell.winner != BAYES}
    legend = {"1.0": "planning wins, by so much"} if any(c.winner == BAYES for c in cells) else {}
    told: Json = {
        "x": x, "xs": across, "y": y, "ys": up,
        "cells": [[cell.to_json() for cell in row] for row in found.cells],
        "title": f"When planning pays: {horizon} candidates, verifying is {_ends(verify)}",
        "here": list(now),
        "marks": [[mark(cell) for cell in row] for row in found.cells],
        "legend": legend | {kind.mark: kind.words for kind in FAMILIES if kind in kinds},
        "verdict": _verdict(cells),
        "sensitivity": None,
    }  # fmt: skip
    if sensitive:
        rows = sensitivity(model, prices, horizon, verify, rules=RULES[rules])
        told["sensitivity"] = [to_json(row) | {"regret": row.regret, "holds": row.holds} for row in rows]
    return found, told


def _ends(verify: Verify) -> str:
    return "the end" if verify == "terminal" else "tried again after a refusal"


def _verdict(cells: list[Comparison]) -> str:
    wins = sum(cell.winner == BAYES for cell in cells)
    best = max(cells, key=lambda cell: cell.gain)
    if not wins:
        return f"a simple rule is as good in all {len(cells)} cells"
    always = best.over_always_verify
    beside = "" if always is None else f"; there it gains {always:.1f} over always verifying"
    return (
        f"planning beats the best simple rule in {wins} of {len(cells)} cells, "
        f"by up to {best.gain:.1f} (over {best.rule}){beside}"
    )
