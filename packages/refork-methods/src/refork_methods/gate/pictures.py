"""Where choosing with care pays, and what every policy earned in a replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from refork.report import palette
from refork.report.charts import Across, Cell, Figure, Row, heat, intervals
from refork.report.words import mean, span
from refork_methods.gate.answers import FAMILIES, OTHER, family, mark
from refork_methods.gate.regimes import BAYES, TIE, Comparison, RegimeMap

_BLUE, _BRICK = palette.LIGHT[-1], palette.LIGHT[0]
#: One colour per family of simple rules; their marks keep them apart without it.
_COLOURS: Final = {
    "s": "#e4e1dc",
    "v": "#e9cf8f",
    "1": "#c9dcc0",
    "m": "#a3bfa6",
    "n": "#e3bfae",
    "?": "#f4f4f4",
}
#: Steps of the gain, as shares of the largest on the map.
_BLUES: Final = ("#cfe3ec", "#a3cbdb", "#6fadc6", "#3f8aab", _BLUE)


def regime_figure(regimes: RegimeMap, title: str, here: tuple[float, float] | None = None) -> Figure:
    """One cell per problem, coloured by who wins it; ``here`` frames the present one.

    A blue cell shows by how much planning beats the best simple rule; any other shows which rule is as good.
    """
    most = max(cell.gain for row in regimes.cells for cell in row)
    framed = None if here is None else (_cell_index(regimes.xs, here[0]), _cell_index(regimes.ys, here[1]))
    cells = [
        _cell(regimes.cells[j][i], x, y, most, framed == (i, j))
        for j, y in reversed(list(enumerate(regimes.ys)))
        for i, x in enumerate(regimes.xs)
    ]
    present = {family(cell.rule) for row in regimes.cells for cell in row if cell.winner != BAYES}
    key = [
        (_COLOURS[kind.mark], f"{kind.mark}: {kind.words}") for kind in (*FAMILIES, OTHER) if kind in present
    ]
    if any(cell.winner == BAYES for row in regimes.cells for cell in row):
        told = f"planning wins, by up to {most:.1f} (a gain below {TIE:.1%} of the reward is a tie)"
        key = [(_BLUES[2], told), *key]
    if any(cell.framed for cell in cells):
        key.append((_BRICK, "framed: the problem as it stands"))
    return heat(cells, name=title, x=_words(regimes.x), y=_words(regimes.y), key=key)


def _cell(cell: Comparison, x: float, y: float, most: float, framed: bool) -> Cell:
    if cell.winner == BAYES:
        step = min(len(_BLUES) - 1, int(len(_BLUES) * cell.gain / most))
        told = f"planning gains {cell.gain:.2f} over {cell.rule}"
        return Cell(
            f"{x:g}", f"{y:g}", mark(cell), _BLUES[step], told, "#fff" if step >= 3 else "#223344", framed
        )
    return Cell(
        f"{x:g}",
        f"{y:g}",
        mark(cell),
        _COLOURS[family(cell.rule).mark],
        f"{cell.rule} is as good",
        "#5a554d",
        framed,
    )


def _cell_index(values: Sequence[float], value: float) -> int | None:
    """The cell a value lies in; None outside the map by more than half a cell."""
    order = sorted(range(len(values)), key=lambda i: abs(values[i] - value))
    step = max(values) - min(values)
    near = step / max(1, len(values) - 1) / 2 + 1e-9
    return order[0] if abs(values[order[0]] - value) <= near else None


def _words(name: str) -> str:
    kind, _, critic = name.partition(":")
    known = {
        "prior": "prior chance that a candidate is right",
        "verify": "price of the verifier",
        "generate": "price of a new candidate",
        "reward": "reward of a right candidate",
        "ship_loss": "loss of shipping a wrong one",
        "fix": "P(fix), of refining a wrong one",
        "breaks": "P(break), of refining a right one",
        "gap": f"gap of {critic}: P(pass | right) - P(pass | wrong)",
        "alpha": f"P(pass | right) of {critic}",
        "beta": f"P(pass | wrong) of {critic}",
        "price": f"price of {critic}",
    }
    return known.get(kind, name)


def replay_figure(report: dict[str, Any]) -> Figure:
    """A row for every policy, best first; the broken line is the best simple rule."""
    best = next((row for row in report["policies"] if row["rule"]), None)
    across = Across(
        "number", name="utility per episode", ring="what the model predicts", step=28,
        mark=(best["utility"]["estimate"], "best simple rule") if best is not None else None,
        key=[(_BLUE, "controller"), (_BRICK, "simple rule, 95 % interval over instances")],
    )  # fmt: skip
    name = f"Mean utility on {report['instances']} held-out instances"
    return intervals([_policy(row) for row in report["policies"]], name=name, across=across, value="Utility")


def _policy(row: dict[str, Any]) -> Row:
    found = row["utility"]
    text = f"{mean(found['estimate'])}  ({span(found['low'], found['high'], 'mean')})"
    colour = _BRICK if row["rule"] else _BLUE
    return Row(
        row["policy"], found["estimate"], found["low"], found["high"], text, colour, ring=row["predicted"]
    )
