"""The recovery audit: do these traces ever teach a way back, and would they still after cleaning?

A visit *faces back* if it was arrived at by returning: there a way on must be found anew. A student is
supervised on the visits of the traces it is shown, as (state, facing) pairs; on a pair that never occurs it
keeps whatever it did before.

Source: the question is that of arXiv 2606.22938, where the backward rows have zero gradient under training on
shortest paths; its measures for arbitrary traces are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike

from refork import stats
from refork.errors import BadInput
from refork_methods.recovery.events import LABEL, Rule, labelled
from refork_methods.recovery.surgery import Erased
from refork_methods.recovery.traces import StateKey, Trace, erased, normalised_key, shorten, successful

#: A state and whether it was arrived at by going back.
Visit: TypeAlias = tuple[Hashable, bool]


@final
@dataclass(frozen=True, slots=True)
class Support:
    """What a set of traces supervises: decisions made, those that face back, and distinct ones of each."""

    traces: int
    decisions: int
    facing_back: int
    states: int
    states_back: int


@final
@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median, 90 % quantile and largest of some numbers; ``count`` of them."""

    count: int
    mean: float
    median: float
    high: float
    most: float

    @classmethod
    def of(cls, values: ArrayLike) -> Spread | None:
        """The spread of numbers; None where there are none."""
        x = np.asarray(values, dtype=np.float64)
        if not x.size:
            return None
        middle, high = np.quantile(x, [0.5, 0.9])
        return cls(x.size, float(x.mean()), float(middle), float(high), float(x.max()))


@final
@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What the audit found.

    ``with_recovery`` is the share of traces that met a state again after leaving it, with its 95 % Wilson
    interval. ``depth`` and ``lost`` are over excursions: states gone ahead, steps taken. ``events`` counts
    the traces and events of every rule. ``raw``, ``successful`` and ``shortened`` compare what all traces,
    the successful ones, and those without their excursions supervise. ``unsupervised`` lists (state, facing
    back, raw visits) that occur in the raw traces and never in the shortened ones, the most visited first;
    ``lost_share`` is the share of all steps spent on excursions, ``stalls`` the steps that changed nothing.
    """

    traces: int
    succeeded: int
    with_recovery: stats.Interval
    recovered_and_succeeded: int
    depth: Spread | None
    lost: Spread | None
    lost_share: float
    stalls: int
    events: dict[str, tuple[int, int]]
    raw: Support
    successful: Support
    shortened: Support
    unsupervised: tuple[tuple[str, bool, int], ...]
    warnings: tuple[str, ...]

    @property
    def removes_ways_back(self) -> bool:
        """Whether cleaning would take ways back out of the data."""
        return bool(self.unsupervised)


def visits(trace: Trace, key: StateKey) -> list[Visit]:
    """The (state, facing back) pair of every decision of a trace."""
    back = erased(trace, key).back
    return [(key(step), bool(back[i])) for i, step in enumerate(trace.steps)]


def support(traces: Sequence[Trace], key: StateKey) -> tuple[Support, Counter[Visit]]:
    """What traces supervise, and how often each (state, facing back) pair."""
    count: Counter[Visit] = Counter()
    for trace in traces:
        count.update(visits(trace, key))
    back = {visit: n for visit, n in count.items() if visit[1]}
    return Support(len(traces), count.total(), sum(back.values()), len(count), len(back)), count


def recovery_audit(
    traces: Sequence[Trace],
    *,
    key: StateKey = normalised_key,
    rules: Mapping[str, Rule] | None = None,
    threshold: float = 1.0,
) -> RecoveryReport:
    """Audit a data set of traces for recoveries.

    Args:
        traces: runs with outcomes.
        key: what makes two steps be in one state. Everything rests on it: a key that is too fine (a
            counter in the text) finds no recovery, one that is too coarse finds them everywhere.
        rules: further rules for going back by name, beside states met again; labels are used where they
            are.
        threshold: the least outcome that is a success.

    Raises:
        BadInput: no traces, or an outcome that is not a finite number.
    """
    if not traces:
        raise BadInput("there are no traces to audit", where="recovery audit")
    bad = next((trace for trace in traces if not np.isfinite(trace.outcome)), None)
    if bad is not None:
        raise BadInput(f"the outcome is {bad.outcome}; it must be a number", where=bad.name)
    won = successful(traces, threshold)
    found = [erased(trace, key) for trace in traces]
    recovered = [bool(one.recoveries) for one in found]
    excursions = [e for one in found for e in one.recoveries]
    raw, seen = support(traces, key)
    clean = [shorten(trace, key) for trace in won]
    shortened, kept = support(clean, key)
    missing = sorted(((v, n) for v, n in seen.items() if v not in kept), key=lambda item: -item[1])
    steps = sum(len(trace.steps) for trace in traces)
    return RecoveryReport(
        traces=len(traces),
        succeeded=len(won),
        with_recovery=stats.wilson(sum(recovered), len(traces)),
        recovered_and_succeeded=sum(
            r and t.outcome >= threshold for r, t in zip(recovered, traces, strict=True)
        ),
        depth=Spread.of([e.depth for e in excursions]),
        lost=Spread.of([e.lost for e in excursions]),
        lost_share=sum(e.lost for e in excursions) / max(steps, 1),
        stalls=sum(e.depth == 0 for one in found for e in one.excursions),
        events=_events(traces, rules or {}),
        raw=raw,
        successful=support(won, key)[0],
        shortened=shortened,
        unsupervised=tuple((str(state), back, n) for (state, back), n in missing),
        warnings=_warnings(found, raw.decisions, len({state for state, _ in seen}), len(won)),
    )


def _events(traces: Sequence[Trace], rules: Mapping[str, Rule]) -> dict[str, tuple[int, int]]:
    """Traces with an event and events, by rule."""
    marked = any(step.label is not None for trace in traces for step in trace.steps)
    if LABEL in rules and not marked:
        raise BadInput(
            "no trace carries backtrack labels",
            hint='mark steps with "backtrack": true or false, or use another rule',
        )
    counts = {}
    for name, rule in (dict(rules) | ({LABEL: labelled} if marked else {})).items():
        events = [len(rule(trace)) for trace in traces]
        counts[name] = (sum(map(bool, events)), sum(events))
    return counts


def _warnings(found: Sequence[Erased], decisions: int, states: int, won: int) -> tuple[str, ...]:
    said = []
    if not any(one.excursions for one in found):
        said.append("no state is ever met twice: either nothing ever goes back, or the state key is too fine")
    elif states <= max(2, decisions // 1000):
        said.append(f"only {states} states in {decisions} decisions: the state key may be too coarse")
    if won == 0:
        said.append("no trace succeeded, so there is nothing to imitate")
    elif won == len(found):
        said.append("every trace succeeded: was this set filtered, and what was taken out?")
    return tuple(said)
