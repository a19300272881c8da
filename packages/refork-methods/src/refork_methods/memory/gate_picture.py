"""What every theta would have built on a memory's own log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from refork.report import palette
from refork.report.charts import WIDE, Figure, altair, axis, data, legend_columns
from refork.report.words import rate
from refork_methods.memory.report import ThetaRow

_MET, _NOT = "tools that a later task meets", "tools that none does"
_FORM: Final = "closed form, all tools"
_COLOURS: Final = {_MET: palette.LIGHT[-1], _NOT: palette.LIGHT[0], _FORM: palette.ROLES["ink"]}


def gate_figure(rows: Sequence[ThetaRow], theta: int, title: str) -> Figure:
    """A bar of tools for every theta, split by whether a later task would have called them.

    The broken line is what the closed form expects of random tasks with the same shares; ``theta`` is framed.
    """
    told = tuple(
        (
            f"{row.theta}{' (in force)' if row.theta == theta else ''}", str(row.tools),
            str(row.never_called), _share(row), f"{row.expected:.3g}",
        )
        for row in rows
    )  # fmt: skip
    columns = ("theta", "Tools", "Never called", "Share", "Closed form")
    return Figure(title, columns, told, lambda width: _draw(rows, theta, width))


def _share(row: ThetaRow) -> str:
    return rate(row.never_called / row.tools if row.tools else None)


def _draw(rows: Sequence[ThetaRow], theta: int, width: int) -> Any:
    alt = altair()
    table = [
        {"theta": row.theta, "kind": kind, "from": low, "to": high,
         "told": f"theta {row.theta}: {high - low} {kind}"}
        for row in rows
        for kind, low, high in (
            (_MET, 0, row.tools - row.never_called), (_NOT, row.tools - row.never_called, row.tools),
        )
    ]  # fmt: skip
    shares = [
        {"theta": row.theta, "kind": _FORM, "y": row.expected, "share": _share(row)} for row in rows
    ]  # fmt: skip
    below = alt.Axis(title="theta: tasks that select a plan before it becomes code", labelAngle=0)
    x = alt.X("theta:O", axis=below)
    names = list(_COLOURS)
    scale = alt.Scale(domain=names, range=list(_COLOURS.values()))
    legend = alt.Legend(columns=legend_columns(names, width))
    hue = alt.Color("kind:N", sort=names, scale=scale, legend=legend)
    up: dict[str, Any] = {
        "axis": axis("number", width, "tools", tickMinStep=1),
        "scale": alt.Scale(domainMin=0),
    }
    bar = alt.Chart(data(table)).mark_bar(width={"band": 0.6}).encode(
        x=x, y=alt.Y("from:Q", **up), y2="to:Q", color=hue, description="told:N"
    )  # fmt: skip
    base = alt.Chart(data(shares))
    line = base.mark_line(strokeDash=[5, 4], strokeWidth=1.5, aria=False, point=alt.OverlayMarkDef(size=24))
    share = base.mark_text(dy=-10, fontSize=11, color=palette.LIGHT[0], aria=False)
    now = alt.Chart(data([{"theta": theta}])).mark_bar(
        filled=False, stroke=palette.ROLES["ink"], width={"band": 0.9}, cornerRadius=4, aria=False
    )
    layers = [bar, line.encode(x=x, y=alt.Y("y:Q", **up), color=hue)]
    layers.append(share.encode(x=alt.X("theta:O", axis=below), y=alt.value(0), text="share:N"))
    if any(row.theta == theta for row in rows):
        layers.append(now.encode(x=x, y=alt.value(0), y2=alt.value("height")))
    return alt.layer(*layers).properties(height=220 if width >= WIDE else 190)
