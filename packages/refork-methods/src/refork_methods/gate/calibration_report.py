"""Fits, replays and scores as plain data, for printing and for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refork.stats import newcombe, wilson
from refork.stats.results import Interval
from refork.types import Json
from refork_methods.gate.compare import CalibrationCheck, Comparison
from refork_methods.gate.fit import CriticFit, Fit
from refork_methods.gate.independence import IndependenceReport
from refork_methods.gate.model import Prices, Rate, chance
from refork_methods.gate.replay import Replay
from refork_methods.gate.score import Scores


def interval_json(interval: Interval | None) -> Json | None:
    """Estimate, ends, level and method."""
    if interval is None:
        return None
    return {
        "estimate": interval.estimate, "low": interval.low, "high": interval.high,
        "level": interval.level, "method": interval.method,
    }  # fmt: skip


def rate_json(rate: Rate) -> Json:
    """The rate acted on, with its credible interval where it was learned."""
    if isinstance(rate, float | int):
        return {"mean": float(rate), "low": None, "high": None}
    found = rate.interval()
    return {"mean": chance(rate), "low": found.low, "high": found.high}


def fit_json(fit: Fit, prices: Prices | None, tested: IndependenceReport | None) -> Json:
    """A fit with its counts, its intervals, and the test of independence where there are two critics."""
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
            "wilson": interval_json(wilson(draws["right"], draws["all"])),
        },
        "critics": [_critic(one) for one in fit.critics],
        "kernel": {
            "fix": rate_json(fit.model.kernel.fix),
            "breaks": rate_json(fit.model.kernel.breaks),
            **fit.model.meta["kernel"],
        },
        "prices": None if prices is None else prices.to_json(),
        "independence": None if tested is None else independence_json(tested),
        "warnings": [*fit.warnings, *(() if tested is None else tested.warnings)],
    }


def _critic(one: CriticFit) -> Json:
    return {
        "name": one.critic.name,
        "alpha": {**rate_json(one.critic.alpha), "passed": one.right[0], "judged": one.right[1]},
        "beta": {**rate_json(one.critic.beta), "passed": one.wrong[0], "judged": one.wrong[1]},
        "gap": one.critic.gap,
        "gap_interval": interval_json(newcombe(one.wrong, one.right).interval),
        "price": one.critic.price,
        "unknown": one.unknown,
    }


def independence_json(report: IndependenceReport) -> Json:
    """Strata, pooled test, pairs."""
    return {
        "critics": list(report.critics),
        "cases": report.cases,
        "incomplete": report.incomplete,
        "g2": report.g2,
        "df": report.df,
        "p": report.p,
        "strata": [
            {
                "right": s.right, "cases": s.cases, "g2": s.g2, "df": s.df, "p": s.p,
                "p_shuffled": s.p_shuffled, "degenerate": list(s.degenerate),
                "min_expected": s.min_expected, "low_cells": s.low_cells,
            }
            for s in report.strata
        ],
        "pairs": [
            {
                "first": p.first, "second": p.second, "v_right": p.v_right, "v_wrong": p.v_wrong,
                "agreement": p.agreement, "p": p.p, "p_adjusted": p.p_adjusted, "same": p.same,
            }
            for p in report.pairs
        ],
        "duplicates": [list(pair) for pair in report.duplicates],
    }  # fmt: skip


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
                "utility": interval_json(one.mean()),
                "solved": float(one.solved.mean()),
                "spent": float(one.spent.mean()),
                "predicted": check.predicted,
                "z": check.z,
                "spread": check.spread,
                "z_fitted": check.z_fitted,
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
        "comparisons": {name: comparison_json(one) for name, one in comparisons.items()},
        "warnings": [*short, *lost, *first.warnings],
    }


def comparison_json(one: Comparison) -> Json:
    """The gap to the best simple rule, with the gap to always-verify beside it."""
    return {
        "best_rule": one.best.rule,
        "gap": interval_json(one.best.gap),
        "over_always_verify": interval_json(one.best.reference),
        "p": one.p,
        "detectable": one.detectable,
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
                "auroc": interval_json(row.auroc),
                "ece": row.ece,
                "brier": row.brier,
            }
            for row in scores.rows
        ],
        "beliefs": [
            _belief(record, float(belief))
            for record, belief in zip(scores.records, scores.beliefs, strict=True)
        ],
    }


def _belief(record: Any, belief: float) -> Json:
    return {
        "instance": record.instance, "candidate": record.candidate, "step": record.step,
        "belief": belief, "right": record.right,
    }  # fmt: skip
