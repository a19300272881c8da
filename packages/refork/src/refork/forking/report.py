"""Forks and sweeps as plain data, for pictures and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import Fork, graded
from refork.forking.effect import compare, is_paired
from refork.forking.potential import Sweep
from refork.tree.node import Node, Trajectory
from refork.types import Json

_Bands = tuple[list[float], list[float]]


def arm_summary(arm: Fork, score: str = "success") -> Json:
    """One arm alone: draws, graded, errors, success with interval, the five most common first texts."""
    values = graded(arm.values(score))
    known = values[~np.isnan(values)]
    interval = stats.mean_interval(known) if len(known) else None
    # Each first text is read with its whole trajectory, so of many draws only the first ones are.
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
        "most_common": starts.most_common(5),
        "simulated": arm.simulated,
        "simulator": arm.simulator,
        "tokens": arm.tokens,
        "seconds": arm.seconds,
    }


def _first_text(arm: Fork, index: int) -> str:
    found = _own(arm, arm.tree.path(arm.draws[index].leaf))
    return found[0].text if found else ""


def _own(arm: Fork, trajectory: Trajectory) -> list[Node]:
    """The turns, or the rest of one, that a draw itself said."""
    return [
        step.node for step in trajectory if step.node.fork == arm.record.id and step.node.kind == "action"
    ]


def said_report(base: Fork, other: Fork) -> Json:
    """Two arms compared by what they said, where nobody graded them: nothing here is about success.

    ``other_text`` and ``other_first_token``: share of the pairs that differ in what was drawn, and in its
    first token (None where arms share no noise, or no token ids are recorded). ``length``: the effect on
    tokens said, None where they were not counted or too few pairs ran.
    """

    def length(arm: Fork) -> dict[int, float | None]:
        return dict(zip([d.draw for d in arm.draws], arm.values(partial(_length, arm)), strict=True))

    paired = is_paired(base, other)
    texts, firsts = (_differing(base, other, what) if paired else None for what in (_text, _first_token))
    lengths = [length(arm) for arm in (base, other)]
    both = [d for d in lengths[0] if lengths[0][d] is not None and lengths[1].get(d) is not None]
    # The draws of both arms lie on different leaves, so one function of the leaf serves both.
    known = len(both) > 1
    effect = (
        compare(base, other, lambda trajectory: _length(_owner(base, other, trajectory), trajectory))
        if known
        else None
    )
    diff = other.diff or base.diff
    control, changed = arm_summary(base), arm_summary(other)
    return {
        "graded": 0,
        "what": diff.what if diff else "nothing",
        "before_text": diff.before if diff else "",
        "after_text": diff.after if diff else "",
        "point": base.point.address,
        "paired": paired,
        "draws": min(len(base.draws), len(other.draws)),
        "other_text": texts,
        "other_first_token": firsts,
        "length": None if effect is None else effect.to_json() | {"score": "tokens said"},
        "said": {"control": control, "changed": changed},
        "tokens": base.tokens + other.tokens,
        "seconds": base.seconds + other.seconds,
    }


def _owner(base: Fork, other: Fork, trajectory: Trajectory) -> Fork:
    return base if any(step.node.fork == base.record.id for step in trajectory) else other


def _length(arm: Fork, trajectory: Trajectory) -> float | None:
    sizes = [
        node.length if node.tokens is not None else node.cost.tokens_out for node in _own(arm, trajectory)
    ]
    return None if None in sizes else float(sum(size or 0 for size in sizes))


def _text(nodes: list[Node]) -> str:
    return "\n".join(node.text for node in nodes)


def _first_token(nodes: list[Node]) -> int | None:
    tokens = nodes[0].tokens if nodes else None
    return None if tokens is None or not len(tokens) else int(tokens[0])


def _differing(base: Fork, other: Fork, what: Callable[[list[Node]], object]) -> float | None:
    """Share of the pairs of draws of which both ran that differ in this; None where it is known of none."""
    said = []
    for arm in (base, other):
        alive = [d for d in arm.draws if d.end != "error"]
        trajectories = arm.tree.paths([d.leaf for d in alive])
        said.append(
            {d.draw: what(_own(arm, trajectory)) for d, trajectory in zip(alive, trajectories, strict=True)}
        )
    pairs = [(said[0][d], said[1][d]) for d in said[0].keys() & said[1].keys()]
    known = [(one, two) for one, two in pairs if one is not None and two is not None]
    return sum(one != two for one, two in known) / len(known) if known else None


def trace_report(result: Sweep) -> Json:
    """A swept trace: its steps, every token with its value before it, and the steepest fall."""
    rows = {(p.node.id, p.keep): j for j, p in enumerate(result.points)}
    bands = _bands(result)
    steps: list[Json] = []
    index = 0
    before: tuple[str, int] | None = None
    places: dict[int, tuple[int, str]] = {}
    for step in result.trajectory:
        tokens: list[Json] = []
        node = step.node
        opening = rows.get(before) if before is not None and node.kind == "action" else None
        if opening is not None and node.tokens is None:
            # A turn without token ids is valued as a whole, where it begins.
            tokens.append(_value(result, opening, bands, step.text, 0) | {"index": index})
            places[opening] = (index, step.text)
            index += 1
        if node.kind == "action" and node.tokens is not None:
            for t in range(node.length if step.keep is None else step.keep):
                j = rows.get((node.id, t))
                tokens.append(_token(result, node, t, j, bands) | {"index": index})
                if j is not None:
                    places[j] = (index, tokens[-1]["text"])
                index += 1
        before = (node.id, node.length if step.keep is None else step.keep)
        steps.append({"kind": node.kind, "node": node.id, "text": step.text, "tokens": tokens})
    return {
        "steps": steps,
        "outcome": result.outcome,
        "cliff": _cliff(result, places, bands),
        "sampled": result.sampled,
        "served": result.served,
        "simulated": result.simulated,
        "tokens": result.tokens,
        "seconds": result.seconds,
    }


def _bands(result: Sweep) -> _Bands:
    """Wilson's interval of every point's value; NaN where the scores are not counts of 0 and 1."""
    low, high = [], []
    for total, count in zip(result.total, result.count, strict=True):
        if count == 0 or not result.binary:
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
    return _value(result, j, bands, text, t) | {"p": chance}


def _value(result: Sweep, j: int, bands: _Bands, text: str, t: int) -> Json:
    return {
        "text": text,
        "p": None,
        "value": _number(result.value[j]),
        "low": _number(bands[0][j]),
        "high": _number(bands[1][j]),
        "n": int(result.count[j]),
        "token": t,
    }


def _cliff(result: Sweep, places: dict[int, tuple[int, str]], bands: _Bands) -> Json | None:
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
    index, text = places[at]
    return {
        "token_index": index,
        "node": point.node.id,
        "token": point.keep,
        "text": text,
        "before": _number(float(result.value[at])),
        "after": _number(after),
    }
