"""Quality against cost of routers and their baselines, and a run of stage 2 beside its rival."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from refork.report import palette
from refork.report.charts import (
    Across,
    Figure,
    Level,
    Plane,
    Row,
    Spot,
    Trail,
    intervals,
    scatter,
)
from refork.report.words import mean, span
from refork_methods.route.frontier import FrontierReport, Option

_BLUE, _BRICK = palette.LIGHT[-1], palette.LIGHT[0]
_KINDS: Final = {
    "one call, one worker or chance": palette.LIGHT[5], "router": _BLUE, "votes": _BRICK,
    "retries with a perfect verifier": palette.SERIES[4],
}  # fmt: skip


def frontier_figure(report: FrontierReport, title: str = "Quality and cost") -> Figure:
    """Every option at its cost and mean reward with its 95 % interval.

    The line joins what nothing beats; a mixture of its options buys any point on it. The dashed level is the
    oracle, which needs hindsight. What has no known price stands in a picture of its own.
    """
    routers = {router.name for router in report.routers}
    shown = [option for option in report.options if option.name != "oracle"]
    best = next(option for option in report.options if option.name == "oracle").quality.estimate
    priced = [option for option in shown if option.cost is not None]
    unpriced = sorted((o for o in shown if o.cost is None), key=lambda o: -o.quality.estimate)
    rows = [
        Row(o.name, o.quality.estimate, o.quality.low, o.quality.high, _reward(o), _KINDS[_kind(o, routers)])
        for o in unpriced
    ]
    across = Across("number", mark=(best, f"oracle {best:.3f}"), step=28)
    aside = intervals(rows, name="Price unknown (not 0)", across=across, value="Mean reward")
    if not priced:
        return replace(aside, name=f"{title}: no price is known", note=_summary_note(report))
    kept = sorted(
        (option.cost, option.quality.estimate)
        for option, on in zip(report.options, report.on_frontier, strict=True)
        if on and option.cost is not None
    )
    dearest = max(option.cost or 0.0 for option in priced)
    trail = [*kept, (dearest, kept[-1][1])] if kept else []  # more money buys nothing more
    figure = scatter(
        [_spot(option, routers) for option in priced], name=title, colours=_KINDS,
        plane=Plane(
            "money per query", "mean reward", unit="number", height=340,
            levels=[Level(best, f"oracle {best:.3f}")],
        ),
        trails=[Trail(trail, _BLUE)] if len(trail) > 1 else [],
    )  # fmt: skip
    return replace(figure, note=_summary_note(report), more=(aside,) if rows else ())


def _summary_note(report: FrontierReport) -> str:
    parts = [f"{report.queries} queries of {report.tasks} tasks"]
    alone = report.area.get("workers alone")
    if alone is not None:
        parts.append(f"area under the curve: workers alone {alone:.3f}")
        gained = [(router.name, report.area.get(router.name)) for router in report.routers]
        parts += [f"with {name} {area:.3f}" for name, area in gained if area is not None]
    return ", ".join(parts)


def _kind(option: Option, routers: set[str]) -> str:
    plain, router, votes, retries = _KINDS
    if option.name in routers:
        return router
    return plain if option.calls <= 1 else votes if option.attainable else retries


def _reward(option: Option) -> str:
    return f"{mean(option.quality.estimate)}  ({span(option.quality.low, option.quality.high, 'mean')})"


def _spot(option: Option, routers: set[str]) -> Spot:
    price = f"{option.cost:.4g} per query"
    seconds = "seconds unknown" if option.latency is None else f"{option.latency:.3g} s"
    low, high = option.quality.low, option.quality.high
    told = f"reward {_reward(option)}, {price}, {seconds}"
    return Spot(
        option.cost or 0.0, option.quality.estimate, _kind(option, routers), option.name, low, high, told
    )
