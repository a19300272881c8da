"""How near predicted observations come to the real ones: shares with intervals, by domain, class and depth.

A turn without a valid prediction is a wrong one, of the least grade; what no judge graded has no grade.
Intervals count trajectories, since the turns of one are alike.

Source: arXiv 2606.24597 for the five dimensions, their scale and the mean of domains. Deviates where its
released scorer leaves out predictions that could not be parsed, which favours models that fail often:
:data:`SCORERS` has both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

import numpy as np

from refork.errors import BadInput
from refork.policies.base import Cost, total_cost
from refork.stats import Difference, Interval, clustered_difference, clustered_mean, macro_mean
from refork.types import Json
from refork_methods.simulate.reward import DIMENSIONS


@dataclass(frozen=True, slots=True)
class Grade:
    """A judge's grade on [0, 1], and its five dimensions (1 to 5) where it gives such."""

    score: float
    rubric: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTurn:
    """One turn's prediction beside what the environment said.

    ``turn`` counts from 1. ``deterministic``: the answer follows from what was said before. ``rule`` is 1 or
    0, None where no rule applies. ``grade`` is the judge's on [0, 1], None where ungraded, and 0 of a missing
    prediction; ``rubric`` are its five dimensions, where the judge gives such. ``padded``: words stand beside
    the reasoning and the one tag, as a simulator puts there that learned to flatter a judge.
    """

    key: str
    trajectory: str
    source: str
    domain: str
    turn: int
    turn_class: str
    action: str
    observation: str
    prediction: str | None
    exact: bool
    deterministic: bool | None = None
    rule: float | None = None
    grade: float | None = None
    rubric: Mapping[str, int] | None = None
    error: str | None = None
    padded: bool = False
    tries: int = 1
    cut: int = 0
    cost: Cost = field(default_factory=Cost)

    @property
    def valid(self) -> bool:
        """Whether there is a prediction at all."""
        return self.prediction is not None


#: What is measured of a turn, under its name; None: this turn does not count for it.
Measure: TypeAlias = Callable[[JudgedTurn], float | None]


def _exact_where_determined(turn: JudgedTurn) -> float | None:
    return float(turn.exact) if turn.deterministic else None


MEASURES: Mapping[str, Measure] = {
    "coverage": lambda turn: float(turn.valid),
    "exact": lambda turn: float(turn.exact),
    "exact_deterministic": _exact_where_determined,
    "rule": lambda turn: turn.rule,
    "rubric": lambda turn: turn.grade,
    **{
        # As a default, for a closure would see the loop's last name in all of them.
        f"rubric_{name}": lambda turn, name=name: (  # type: ignore[misc]
            (turn.rubric[name] - 1) / 4 if turn.rubric and turn.rubric.get(name, 0) > 0 else None
        )
        for name in DIMENSIONS
    },
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over ``n`` turns of ``trajectories`` trajectories, with its 95 % interval."""

    estimate: float
    low: float
    high: float
    n: int
    trajectories: int


@dataclass(frozen=True, slots=True)
class PerStep:
    """What one simulated step takes on average, retries included; None: not known of every step."""

    tokens_in: float | None
    tokens_out: float | None
    seconds: float | None
    money: float | None


#: Figures by measure; a measure that no turn counts for is left out.
Figures: TypeAlias = dict[str, Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """What a simulator is worth on some trajectories.

    ``micro``: over all turns; ``macro``: mean of the domains' means. ``per_step``: tokens and seconds of one
    simulated step, None where unknown. ``ungraded``: predictions that the judge gave no grade;
    ``retried`` and ``cut``: turns that took several tries, or whose context lacked its oldest turns.
    ``padded``: predictions with words beside reasoning and tag, the alarm of a judge that is being flattered.
    """

    name: str
    identity: Json
    judge: str | None
    turns: int
    trajectories: int
    micro: Figures
    macro: Figures
    domains: dict[str, Figures]
    classes: dict[str, Figures]
    depths: dict[str, Figures]
    sources: list[str]
    per_step: PerStep
    ungraded: int
    retried: int
    cut: int
    errors: dict[str, int]
    padded: int = 0
    scorers: dict[str, float | None] = field(default_factory=dict)

    @property
    def coverage(self) -> Figure:
        """Share of turns with a valid prediction."""
        return self.micro["coverage"]

    @property
    def exact(self) -> Figure:
        """Share of turns whose observation was predicted to the letter."""
        return self.micro["exact"]

    @property
    def exact_deterministic(self) -> Figure | None:
        """The same among turns whose answer is determined; None where no turn is known to be."""
        return self.micro.get("exact_deterministic")


#: The last depth of each group of depths.
_DEPTHS = ((1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"))


def depth_of(turn: int) -> str:
    """The group of depths that a turn (from 1) falls in."""
    return next((name for last, name in _DEPTHS if turn <= last), "9+")


def _figure(found: Interval, n: int, trajectories: int) -> Figure:
    return Figure(found.estimate, found.low, found.high, n, trajectories)


def figures(turns: Iterable[JudgedTurn]) -> Figures:
    """Every measure's mean over turns, clustered by trajectory."""
    held = list(turns)
    found: Figures = {}
    for name, measure in MEASURES.items():
        values = [(value, turn) for turn in held if (value := measure(turn)) is not None]
        if values:
            clusters = [(turn.source, turn.trajectory) for _, turn in values]
            interval = clustered_mean(np.array([value for value, _ in values]), clusters)
            found[name] = _figure(interval, len(values), len(set(clusters)))
    return found


def _macro(domains: Mapping[str, Figures]) -> Figures:
    found: Figures = {}
    for name in MEASURES:
        have = [part[name] for part in domains.values() if name in part]
        if have:
            parts = [Interval(one.estimate, one.low, one.high, 0.95, "") for one in have]
            n, trajectories = sum(one.n for one in have), sum(one.trajectories for one in have)
            found[name] = _figure(macro_mean(parts), n, trajectories)
    return found


def _grouped(turns: Sequence[JudgedTurn], key: Callable[[JudgedTurn], str]) -> dict[str, Figures]:
    groups: dict[str, list[JudgedTurn]] = {}
    for turn in turns:
        groups.setdefault(key(turn), []).append(turn)
    return {name: figures(groups[name]) for name in sorted(groups)}


def summarise(
    turns: Sequence[JudgedTurn],
    name: str,
    identity: Json | None = None,
    *,
    judge: str | None = None,
) -> Fidelity:
    """The fidelity that judged turns show. Raises BadInput where there are none."""
    if not turns:
        raise BadInput("there is no turn to judge", where="fidelity")
    domains = _grouped(turns, lambda turn: turn.domain)
    errors: dict[str, int] = {}
    for turn in turns:
        if not turn.valid:
            why = (turn.error or "no prediction")[:80]
            errors[why] = errors.get(why, 0) + 1
    return Fidelity(
        name=name,
        identity=identity or {},
        judge=judge,
        turns=len(turns),
        trajectories=len({(turn.source, turn.trajectory) for turn in turns}),
        micro=figures(turns),
        macro=_macro(domains),
        domains=domains,
        classes=_grouped(turns, lambda turn: turn.turn_class),
        depths=_grouped(turns, lambda turn: depth_of(turn.turn)),
        sources=sorted({turn.source for turn in turns}),
        per_step=_per_step(turns),
        ungraded=sum(turn.valid and turn.grade is None for turn in turns) if judge is not None else 0,
        retried=sum(turn.tries > 1 for turn in turns),
        cut=sum(turn.cut > 0 for turn in turns),
        errors=errors,
        padded=sum(turn.padded for turn in turns),
        scorers=scored(turns) if judge is not None else {},
    )


def _per_step(turns: Sequence[JudgedTurn]) -> PerStep:
    whole = total_cost([turn.cost for turn in turns])
    shares = {item.name: getattr(whole, item.name) for item in fields(PerStep)}
    return PerStep(**{name: None if value is None else value / len(turns) for name, value in shares.items()})


# -- the scores of the judge as one number, by several rules ------------------------------------------


def overall(
    grades: Sequence[float | None],
    valid: Sequence[bool],
    domains: Sequence[str],
    *,
    failed: Literal["wrong", "dropped"],
    over: Literal["turns", "domains"],
) -> float | None:
    """Mean grade on [0, 100]: failed predictions as 0 or left out, over turns or over domains' means.

    ``grades`` [turns] are on [0, 1], None where ungraded; those of valid predictions are left out either way.
    """
    held: dict[str, list[float]] = {}
    for grade, ok, domain in zip(grades, valid, domains, strict=True):
        if not ok and failed == "dropped":
            continue
        value = grade if ok else 0.0
        if value is not None:
            held.setdefault(domain, []).append(value)
    if not held:
        return None
    if over == "domains":
        return 100 * mean_of_domains({name: sum(part) / len(part) for name, part in held.items()})
    pooled = [value for part in held.values() for value in part]
    return 100 * sum(pooled) / len(pooled)


def mean_of_domains(scores: Mapping[str, float]) -> float:
    """Mean of the domains' scores, each of the same weight."""
    return sum(scores.values()) / len(scores)


#: Rules for one number. ``ours``: failed predictions count as wrong, domains alike. ``released``: what the
#: paper's scorer prints (failed ones dropped, turns alike); ``table``: what its table shows (dropped, domains
#: alike).
SCORERS: Mapping[str, tuple[Literal["wrong", "dropped"], Literal["turns", "domains"]]] = {
    "ours": ("wrong", "domains"),
    "released": ("dropped", "turns"),
    "table": ("dropped", "domains"),
}


def scored(turns: Sequence[JudgedTurn]) -> dict[str, float | None]:
    """The judge's grades as one number in [0, 100], by each of :data:`SCORERS`."""
    grades = [turn.grade for turn in turns]
    valid, domains = [turn.valid for turn in turns], [turn.domain for turn in turns]
    return {
        name: overall(grades, valid, domains, failed=failed, over=over)
        for name, (failed, over) in SCORERS.items()
    }


# Two simulators on the same turns, paired; and how far judges agree on simulators.


@dataclass(frozen=True, slots=True)
class Gap:
    """A measure of ``other`` minus that of ``base`` over ``n`` shared turns: 95 % interval and p.

    None where no difference can be told: fewer than two turns or trajectories.
    """

    base: float
    other: float
    difference: float
    low: float | None
    high: float | None
    p: float | None
    n: int
    trajectories: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two simulators on one set of turns, over all of them and by domain; each by measure."""

    base: str
    other: str
    overall: dict[str, Gap]
    domains: dict[str, dict[str, Gap]]


#: What is compared.
COMPARED = ("coverage", "exact", "exact_deterministic", "rule", "rubric")


def compare_simulators(
    base: Sequence[JudgedTurn],
    other: Sequence[JudgedTurn],
    *,
    names: tuple[str, str] = ("base", "other"),
) -> Comparison:
    """Differences of two evaluations of the same turns, paired by turn and clustered by trajectory.

    A turn counts for a measure where it does for both.

    Raises:
        BadInput: no shared turn, the same turn twice, or another observation under the same name.
    """
    one, two = _by_key(base), _by_key(other)
    shared = [(turn, two[key]) for key, turn in one.items() if key in two]
    if not shared:
        raise BadInput("the two evaluations share no turn", where="compare simulators")
    for a, b in shared:
        if a.observation != b.observation:
            raise BadInput("the two evaluations differ in what was really observed", where=f"turn {a.key}")
    domains: dict[str, list[tuple[JudgedTurn, JudgedTurn]]] = {}
    for pair in shared:
        domains.setdefault(pair[0].domain, []).append(pair)
    return Comparison(
        *names,
        overall=_gaps(shared),
        domains={name: _gaps(domains[name]) for name in sorted(domains)},
    )


def _by_key(turns: Sequence[JudgedTurn]) -> Mapping[str, JudgedTurn]:
    found = {turn.key: turn for turn in turns}
    if len(found) < len(turns):
        raise BadInput("an evaluation holds one turn twice", where="compare simulators")
    return found


def _gaps(pairs: Sequence[tuple[JudgedTurn, JudgedTurn]]) -> dict[str, Gap]:
    gaps = {name: _gap(pairs, MEASURES[name]) for name in COMPARED}
    return {name: gap for name, gap in gaps.items() if gap is not None}


def _gap(pairs: Sequence[tuple[JudgedTurn, JudgedTurn]], measure: Measure) -> Gap | None:
    x, y, clusters = [], [], []
    for a, b in pairs:
        left, right = measure(a), measure(b)
        if left is not None and right is not None:
            x.append(left)
            y.append(right)
            # With the source: two sources may number their trajectories alike.
            clusters.append((a.source, a.trajectory))
    if not x:
        return None
    held: Difference | None = None
    if len(set(clusters)) > 1:
        held = clustered_difference(np.array(x), np.array(y), clusters)
    means = sum(x) / len(x), sum(y) / len(y)
    return Gap(
        *means,
        means[1] - means[0],
        None if held is None else held.interval.low,
        None if held is None else held.interval.high,
        None if held is None else held.p,
        len(x),
        len(set(clusters)),
    )
