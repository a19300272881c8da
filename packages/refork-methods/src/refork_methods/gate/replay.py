"""What a policy would have earned on recorded candidates: no model is asked, no test is run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import numpy as np
from jaxtyping import Bool, Float

from refork.errors import BadInput
from refork.stats import paired_difference
from refork.stats.means import t_difference
from refork.stats.power import detectable_difference
from refork.stats.results import Array, Interval
from refork_methods.decide import BestRule, against_rules, brier, calibration_error
from refork_methods.decide.calibrate import Reliability, reliability
from refork_methods.gate.evaluate import CAP, promised
from refork_methods.gate.fit import fit_critics
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices, chance
from refork_methods.gate.policy import Policy, State, Verify, fresh, observed, regenerated, rejected, start_of
from refork_methods.gate.records import Record, chains, completed, labelled

#: What a call costs: the price of the model, or what this very call cost when it was recorded.
Costs: TypeAlias = Literal["prices", "recorded"]


@final
@dataclass(frozen=True, slots=True)
class Episode:
    """The candidates that one episode may see, in order: a draw and its refinements, or draws."""

    instance: str
    candidates: tuple[Record, ...]


def episodes(records: Iterable[Record]) -> list[Episode]:
    """Episodes of records: every draw with its numbered refinements is one, else all draws of an instance.

    A refinement whose predecessor is missing ends the episode before it; where the draw itself is missing the
    episode has no candidate.
    """
    found: list[Episode] = []
    draws: dict[str, list[Record]] = {}
    for chain in chains(records):
        if chain[0].step is None:
            draws.setdefault(chain[0].instance, []).append(chain[0])
            continue
        whole = [record for place, record in enumerate(chain) if record.step == place]
        found.append(Episode(chain[0].instance, tuple(whole)))
    return found + [Episode(name, tuple(mine)) for name, mine in draws.items()]


@final
@dataclass(frozen=True, slots=True)
class Replay:
    """A policy on recorded episodes; arrays [instances] hold means over the episodes of an instance.

    Utilities count from the first candidate on, whose own cost is spent whatever is decided. ``actions``:
    mean number per episode; ``failed_calls``: critic calls without a verdict. ``beliefs`` [candidates]: what
    was believed of each candidate when it was left, ``right`` its outcome. ``short`` episodes had fewer
    candidates than the horizon and were left out, ``dropped`` candidates had no outcome.
    """

    policy: str
    instances: tuple[str, ...]
    utilities: Float[Array, "instances"]
    solved: Float[Array, "instances"]
    spent: Float[Array, "instances"]
    actions: Mapping[str, float]
    failed_calls: int
    beliefs: Float[Array, "candidates"]
    right: Bool[Array, "candidates"]
    episodes: int
    short: int
    dropped: Mapping[str, int]
    warnings: tuple[str, ...] = ()

    def mean(self, level: float = 0.95) -> Interval:
        """Mean utility over instances with its t interval; without width for a single instance."""
        return mean_interval(self.utilities, level, "instance")

    @property
    def error(self) -> float:
        """Standard error of the mean utility over instances."""
        values = self.utilities
        return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("nan")


def mean_interval(values: Float[Array, "units"], level: float, unit: str) -> Interval:
    """The mean with its t interval over ``unit``s; without width for a single one."""
    centre = float(values.mean())
    if values.size < 2:
        return Interval(centre, centre, centre, level, f"one {unit}")
    error = float(values.std(ddof=1) / np.sqrt(values.size))
    freedom = float(values.size - 1)
    return t_difference(centre, centre, error, freedom, level=level, method=f"t over {unit}s").interval


def replay(
    policy: Policy,
    records: Iterable[Record],
    model: CriticModel,
    prices: Prices,
    *,
    horizon: int = 3,
    verify: Verify = "terminal",
    costs: Costs = "prices",
) -> Replay:
    """Run a policy over records with several candidates per instance.

    A failed critic call costs its price and moves no belief; a policy that is blind to beliefs goes on as if
    the critic had passed, never as if it had failed. Episodes with fewer than ``horizon`` candidates are left
    out, for every policy alike.

    Raises: BadInput where no episode is long enough, a policy takes an action that is not open, a critic has
        no verdict in any record, or a recorded cost is asked for that is unknown.
    Source: arXiv:2606.24453; a used critic is never paid for twice here, unlike in its code.
    """
    return _gathered([_play(policy, records, model, prices, horizon, verify, costs)])


def _play(
    policy: Policy,
    records: Iterable[Record],
    model: CriticModel,
    prices: Prices,
    horizon: int,
    verify: Verify,
    costs: Costs,
) -> _Played:
    kept = labelled(completed(records))
    found = episodes(kept.records)
    long_enough = [e for e in found if len(e.candidates) >= horizon]
    if not long_enough:
        most = max((len(e.candidates) for e in found), default=0)
        raise BadInput(
            f"no episode has {horizon} candidates with an outcome; the longest has {most}",
            hint=f"a shorter horizon, or more candidates per instance ({dict(kept.dropped)} dropped)",
        )
    rules = _Rules(policy, model, prices, horizon, verify, costs)
    ends = tuple((e.instance, _ReplayPath(rules, e).end()) for e in long_enough)
    return _Played(policy.name, ends, len(found) - len(ends), kept.dropped, _warnings(model, long_enough))


def _gathered(parts: Sequence[_Played]) -> Replay:
    """What was played, on different instances, as one replay."""
    ends = [end for part in parts for end in part.ends]
    names = tuple(dict.fromkeys(name for name, _ in ends))
    places = {name: number for number, name in enumerate(names)}
    place = np.array([places[name] for name, _ in ends])
    counts = np.bincount(place)
    visits = [visit for _, end in ends for visit in end.visits]
    taken: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for _, end in ends:
        taken.update(end.actions)
    for part in parts:
        dropped.update(part.dropped)

    # An instance with many episodes weighs no more than one with few.
    def by_instance(values: Sequence[float]) -> Float[np.ndarray, "instances"]:
        return np.asarray(np.bincount(place, weights=np.asarray(values, dtype=np.float64)) / counts)

    return Replay(
        parts[0].policy,
        names,
        by_instance([end.utility for _, end in ends]),
        by_instance([float(end.solved) for _, end in ends]),
        by_instance([end.spent for _, end in ends]),
        {name: n / len(ends) for name, n in sorted(taken.items())},
        sum(end.failed for _, end in ends),
        np.array([belief for belief, _ in visits]),
        np.array([right for _, right in visits], dtype=np.bool_),
        len(ends),
        sum(part.short for part in parts),
        dict(dropped),
        tuple(dict.fromkeys(words for part in parts for words in part.warnings)),
    )


def _warnings(model: CriticModel, found: Sequence[Episode]) -> tuple[str, ...]:
    anew = abs(chance(model.kernel.fix) - model.start) + abs(chance(model.kernel.breaks) - 1 + model.start)
    if anew > 1e-9 and any(e.candidates[0].step is None for e in found):
        return (
            "the candidates are draws of their own, and the model expects refinements: predicted values are "
            "for another process",
        )
    return ()


@final
@dataclass(frozen=True, slots=True)
class _End:
    utility: float
    spent: float
    solved: bool
    actions: Mapping[str, int]
    failed: int
    visits: tuple[tuple[float, bool], ...]


@final
@dataclass(frozen=True, slots=True)
class _Played:
    """A policy on the episodes of some instances, with what was left out."""

    policy: str
    ends: tuple[tuple[str, _End], ...]
    short: int
    dropped: Mapping[str, int]
    warnings: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class _Rules:
    """What holds in every episode of a replay."""

    policy: Policy
    model: CriticModel
    prices: Prices
    horizon: int
    verify: Verify
    costs: Costs

    def cost(self, action: str, record: Record) -> float:
        if self.costs == "recorded":
            if action not in record.costs:
                kinds = sorted(record.amounts.get(action, ()))
                raise BadInput(
                    f"what {action!r} cost here was "
                    + (f"recorded in {', '.join(kinds)} only" if kinds else "not recorded")
                    + ", and unknown is not 0",
                    where=record.location,
                    hint=f"give --rate {kinds[0]}=..., or replay with prices"
                    if kinds
                    else "replay with prices instead",
                )
            return record.costs[action]
        if action in (VERIFY, GENERATE):
            return self.prices.verify if action == VERIFY else self.prices.generate
        known: Mapping[str, float] = self.policy.charged
        return known[action] if action in known else self.model.critic(action).price


@final
class _ReplayPath:
    """One episode on its way. The belief is tracked here: a blind policy's own need not be one."""

    def __init__(self, rules: _Rules, episode: Episode) -> None:
        self.rules, self.episode = rules, episode
        self.state, self.tracked = start_of(rules.policy, rules.model), fresh(rules.model)
        self.number, self.spent, self.failed = 0, 0.0, 0
        self.taken: Counter[str] = Counter()
        self.visits: list[tuple[float, bool]] = []

    @property
    def record(self) -> Record:
        return self.episode.candidates[self.number]

    def end(self) -> _End:
        """Walk to the end."""
        action = STOP
        while self.taken.total() < CAP:
            action = self.rules.policy.act(self.state).action
            self.taken[action] += 1
            if action in (STOP, SHIP) or not self._goes_on(action):
                break
        self._leave()
        # An episode that stops on a right candidate has solved nothing: nobody ever knew.
        right = bool(self.record.right) and action in (VERIFY, SHIP)
        gained = self.rules.prices.reward if right else 0.0
        if action == SHIP:
            loss = self.rules.prices.ship_loss
            if loss is None:
                raise BadInput("shipping is not open: no loss is set", where=self.record.location)
            gained = gained if right else -loss
        return _End(gained - self.spent, self.spent, right, self.taken, self.failed, tuple(self.visits))

    def _goes_on(self, action: str) -> bool:
        rules = self.rules
        self.spent += self._cost(action)
        if action == VERIFY:
            if self.record.right or rules.verify == "terminal":
                return False
            self._leave()
            self.state, self.tracked = rejected(self.state), rejected(self.tracked)
        elif action == GENERATE:
            if self.number + 1 >= rules.horizon:  # paid for, and nothing left to act on
                return False
            self._leave()
            self.number += 1
            self.state = rules.policy.refine(self.state)
            self.tracked = regenerated(self.tracked, rules.model.kernel)
        else:
            self._ask(action)
        return True

    def _cost(self, action: str) -> float:
        """What an action costs here; what a draw cost is recorded with the candidate that was drawn."""
        if action != GENERATE:
            return self.rules.cost(action, self.record)
        if self.number + 1 < len(self.episode.candidates):
            return self.rules.cost(action, self.episode.candidates[self.number + 1])
        return self.rules.prices.generate  # beyond the records, where no cost was recorded

    def _leave(self) -> None:
        """Note what was believed of the candidate, unless the verifier has told."""
        if not self.state.rejected:
            self.visits.append((self.tracked.belief, bool(self.record.right)))

    def _ask(self, name: str) -> None:
        critic = self.rules.model.critic(name)
        if name not in self.record.verdicts:
            raise BadInput(f"there is no record of critic {name!r} here", where=self.record.location)
        verdict = self.record.verdicts[name]
        policy = self.rules.policy
        if verdict is None:
            # Paid for, and no news: a blind rule goes on as after a pass, or it would refine for a lost call.
            self.failed += 1
            blind = policy.blind
            self.state = policy.update(self.state, name, True) if blind else _used(self.state, name)
            return
        # A policy may ask twice; the same verdict on the same candidate is evidence once.
        if name not in self.state.used | self.tracked.used:
            self.tracked = observed(self.tracked, critic, verdict)
        self.state = policy.update(self.state, name, verdict)


def _used(state: State, critic: str) -> State:
    """The state after a call that gave no verdict: it will not be made again, and says nothing."""
    return replace(state, used=state.used | {critic})


# Replay without held-out records: every instance by a model that was fitted without it.

#: The policies that a fitted model gives, by name.
Policies: TypeAlias = Callable[[CriticModel], Mapping[str, Policy]]


def cross_replay(
    policies: Policies,
    records: Sequence[Record],
    critic_prices: Mapping[str, float],
    prices: Prices,
    *,
    folds: int | None = None,
    seed: int = 0,
    horizon: int = 3,
    verify: Verify = "terminal",
    costs: Costs = "prices",
    changed_only: bool = False,
    classes: int = 1,
) -> tuple[dict[str, Replay], dict[str, float]]:
    """Replays of policies, and what their models promised, averaged over instances.

    Only instances with an episode of ``horizon`` candidates are replayed; all are fitted on. They are dealt
    into ``folds`` (None: one instance each, leaving one out); those of a fold are replayed by policies whose
    model was fitted on all others.

    Raises: BadInput for fewer than two folds, more folds than instances, or as fit and replay.
    Source: arXiv:2606.24453 calibrates leaving one out; fewer folds are ours.
    """
    everything = completed(records)
    found = episodes(labelled(everything).records)
    names = sorted({e.instance for e in found if len(e.candidates) >= horizon})
    count = len(names) if folds is None else folds
    if not 2 <= count <= len(names):
        raise BadInput(f"{count} folds of {len(names)} instances", hint="2 up to one for each instance")
    order = np.random.default_rng(seed).permutation(len(names))
    parts: dict[str, list[_Played]] = {}
    totals: dict[str, float] = {}
    for fold in range(count):
        mine = {names[i] for i in order[fold::count]}
        rest = [r for r in everything if r.instance not in mine]
        model = fit_critics(
            rest, critic_prices, critics=list(critic_prices), changed_only=changed_only, classes=classes
        )
        held = [r for r in everything if r.instance in mine]
        for name, policy in policies(model).items():
            parts.setdefault(name, []).append(_play(policy, held, model, prices, horizon, verify, costs))
            value = promised(policy, model, prices, horizon, verify)
            totals[name] = totals.get(name, 0.0) + value * len(mine)
    # Instances without a long episode are in no fold; the others count their own short ones.
    alone = sum(e.instance not in set(names) for e in found)
    ends = {name: replace(one := _gathered(of), short=one.short + alone) for name, of in parts.items()}
    return ends, {name: total / len(names) for name, total in totals.items()}


# A replayed policy beside every simple rule, and its promises beside what happened.


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy minus the best simple rule and minus always-verify, paired over instances.

    ``p`` tests no difference to the best rule. ``detectable`` is the smallest difference to it that this
    many instances show in four of five such samples; None where all differences are equal.
    """

    policy: str
    best: BestRule
    p: float
    detectable: float | None
    instances: int


def compare(
    replays: Mapping[str, Replay],
    policy: str,
    rng: np.random.Generator,
    *,
    others: tuple[str, ...] = (),
    reference: str = "always_verify",
    level: float = 0.95,
    resamples: int = 1000,
) -> Comparison:
    """Put one replayed policy beside the others as rules (without ``others``), always-verify among them.

    Instances are resampled whole, so several episodes of one stay together.

    Raises: BadInput for a policy or reference that was not replayed, other instances, or fewer than two.
    Source: arXiv:2606.24453 (1000 resamples, 95 %); it reports the gap to always-verify only.
    """
    if policy not in replays:
        raise BadInput(f"{policy!r} was not replayed", hint=f"one of {', '.join(replays)}")
    mine = replays[policy]
    rules = {name: one for name, one in replays.items() if name != policy and name not in others}
    for name, one in rules.items():
        if one.instances != mine.instances:
            raise BadInput(f"{name} and {policy} were replayed on different instances")
    utilities = {name: one.utilities for name, one in rules.items()}
    best = against_rules(
        mine.utilities, utilities, rng, reference=reference, level=level, resamples=resamples
    )
    rule = utilities[best.rule]
    return Comparison(
        policy,
        best,
        paired_difference(rule, mine.utilities, level).p,
        detectable_difference(mine.utilities - rule, level=level),
        len(mine.instances),
    )


@final
@dataclass(frozen=True, slots=True)
class CalibrationCheck:
    """Whether a policy earns what its model says, and whether its beliefs come true.

    ``z``: (realised - predicted) over the standard error of the realised mean; None for one instance.
    ``ece`` and ``brier`` are of the beliefs in the candidates visited.
    """

    realised: Interval
    predicted: float
    z: float | None
    ece: float
    brier: float
    reliability: tuple[Reliability, ...]


def check_calibration(
    result: Replay,
    policy: Policy,
    model: CriticModel,
    prices: Prices,
    *,
    horizon: int = 3,
    verify: Verify = "terminal",
) -> CalibrationCheck:
    """Hold a replay against the value that the model predicts for its policy, by exact enumeration.

    Raises: BadInput as :func:`refork_methods.gate.evaluate.promised`.
    """
    return check_prediction(result, promised(policy, model, prices, horizon, verify))


def check_prediction(result: Replay, predicted: float) -> CalibrationCheck:
    """Hold a replay against a predicted mean utility."""
    error = result.error
    outcomes = result.right.astype(np.float64)
    return CalibrationCheck(
        result.mean(),
        predicted,
        (result.mean().estimate - predicted) / error if error > 0 else None,
        calibration_error(result.beliefs, outcomes),
        brier(result.beliefs, outcomes),
        tuple(reliability(result.beliefs, outcomes)),
    )
