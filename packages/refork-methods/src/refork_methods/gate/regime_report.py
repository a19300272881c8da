"""A regime map as plain fields: marks for a table, what they mean, and a verdict in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refork.errors import BadInput
from refork.types import Json
from refork_methods.gate.ask import default_values, values_from
from refork_methods.gate.model import CriticModel, Prices
from refork_methods.gate.policy import Verify
from refork_methods.gate.regimes import BAYES, Comparison, RegimeMap, Rules, regime_map
from refork_methods.gate.rules import every_rule, simple_rules
from refork_methods.gate.sensitivity import sensitivity
from refork_methods.gate.vary import present

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
    told = found.to_json() | {
        "title": f"When planning pays: {horizon} candidates, verifying is {_ends(verify)}",
        "here": list(now),
        "marks": [[mark(cell) for cell in row] for row in found.cells],
        "legend": legend | {kind.mark: kind.words for kind in FAMILIES if kind in kinds},
        "verdict": _verdict(cells),
        "sensitivity": None,
    }
    if sensitive:
        rows = sensitivity(model, prices, horizon, verify, rules=RULES[rules])
        told["sensitivity"] = [row.to_json() for row in rows]
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
