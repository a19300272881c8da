"""Forks and sweeps as plain data, for pictures and JSON."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ramify.core import stats
from ramify.core.errors import BadInput
from ramify.core.fork.arm import Fork, graded
from ramify.core.fork.potential import Sweep
from ramify.core.tree.node import Node
from ramify.core.types import Json

_Bands = tuple[list[float], list[float]]


def arm_summary(arm: Fork, score: str = "success", common: int = 5) -> Json:
    """One arm alone: draws, graded, errors, success with interval, most common first texts."""
    values = graded(arm.values(score))
    known = values[~np.isnan(values)]
    interval = stats.mean_interval(known) if len(known) else None
    starts = Counter(_first_text(arm, index) for index in range(min(len(arm.draws), 512)))
    return {
        "fork": arm.record.id,
        "point": arm.point.address,
        "draws": len(arm.draws),
        "graded": len(known),
        "errors": sum(d.end == "error" for d in arm.draws),
        "rate": interval.estimate if interval else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "most_common": starts.most_common(common),
        "simulated": arm.simulated,
        "simulator": arm.simulator,
        "tokens": arm.tokens,
        "seconds": arm.seconds,
    }


def _first_text(arm: Fork, index: int) -> str:
    walk = arm.tree.path(arm.draws[index].leaf)
    for step in walk:
        if step.node.fork == arm.record.id and step.node.kind == "action":
            return step.text
    return ""


def trace_report(result: Sweep) -> Json:
    """A swept trace: its steps, every token with its value before it, and the steepest fall."""
    rows = {(p.node.id, p.keep): j for j, p in enumerate(result.points)}
    bands = _bands(result)
    steps: list[Json] = []
    index = 0
    for step in result.walk:
        tokens: list[Json] = []
        node = step.node
        if node.kind == "action" and node.tokens is not None:
            for t in range(node.length if step.keep is None else step.keep):
                j = rows.get((node.id, t))
                tokens.append(_token(result, node, t, j, bands) | {"index": index})
                index += 1
        steps.append({"kind": node.kind, "node": node.id, "text": step.text, "tokens": tokens})
    return {
        "steps": steps,
        "outcome": result.outcome,
        "cliff": _cliff(result, steps, bands),
        "sampled": result.sampled,
        "served": result.served,
        "simulated": result.simulated,
        "tokens": result.tokens,
        "seconds": result.seconds,
    }


def _bands(result: Sweep) -> _Bands:
    low, high = [], []
    for total, count in zip(result.total, result.count, strict=True):
        if count == 0 or abs(total - round(total)) > 1e-9 or total > count:
            low.append(float("nan"))
            high.append(float("nan"))
            continue
        interval = stats.wilson(round(total), int(count))
        low.append(interval.low)
        high.append(interval.high)
    return low, high


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _token(result: Sweep, node: Node, t: int, j: int | None, bands: _Bands) -> Json:
    text = node.text_upto(t + 1)[len(node.text_upto(t)) :] if node.offsets is not None else ""
    chance = None if node.logprobs is None else float(np.exp(node.logprobs[t]))
    if j is None:
        return {"text": text, "p": chance, "value": None, "low": None, "high": None, "n": 0, "token": t}
    return {
        "text": text,
        "p": chance,
        "value": _number(result.value[j]),
        "low": _number(bands[0][j]),
        "high": _number(bands[1][j]),
        "n": int(result.count[j]),
        "token": t,
    }


def _cliff(result: Sweep, steps: list[Json], bands: _Bands) -> Json | None:
    """The steepest fall, None where the intervals on its two sides still overlap."""
    try:
        at = result.steepest()
    except BadInput:  # no two neighbours could be graded: there is no fall to show
        return None
    point = result.points[at]
    last = at + 1 == len(result.points)
    after = (np.nan if result.outcome is None else result.outcome) if last else float(result.value[at + 1])
    highest = after if last else bands[1][at + 1]
    # An unknown interval (NaN, of a graded score) compares false: then nothing is claimed.
    if not highest < bands[0][at]:
        return None
    flat = [(s["node"], t) for s in steps for t in s["tokens"]]
    index, text = next(
        (t["index"], t["text"]) for node, t in flat if node == point.node.id and t["token"] == point.keep
    )
    return {
        "token_index": index,
        "node": point.node.id,
        "token": point.keep,
        "text": text,
        "before": _number(float(result.value[at])),
        "after": _number(after),
    }
