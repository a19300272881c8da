"""A critic model from calibration records: Beta posteriors of every rate, and what to distrust in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.plain import content_hash, to_json
from refork.types import Json
from refork_methods.decide import BetaRate
from refork_methods.gate.difficulty import BROKEN, FIRST, FIXED, count_trials, fit_classes
from refork_methods.gate.model import Critic, CriticModel, Kernel, chance
from refork_methods.gate.policy import State, at_belief, fresh, observed, regenerated
from refork_methods.gate.records import (
    Labelled,
    Record,
    chains,
    completed,
    critic_names,
    labelled,
    measured,
    price_of,
)

# What refining does to a candidate, counted on recorded refinement steps.


@final
@dataclass(frozen=True, slots=True)
class StepCounts:
    """Refinement steps from ``wrong`` candidates, ``fixed`` of them, and from ``right`` ones, ``broken``.

    ``unchanged`` steps left the artifact as it was; ``lost`` steps have an end without an outcome or lack
    their neighbour.
    """

    wrong: int
    fixed: int
    right: int
    broken: int
    unchanged: int
    lost: int

    @property
    def pairs(self) -> int:
        """Steps that were counted."""
        return self.wrong + self.right

    def kernel(self) -> Kernel:
        """Posterior rates under the uniform prior."""
        return Kernel(BetaRate(self.fixed, self.wrong), BetaRate(self.broken, self.right))


def count_steps(records: Iterable[Record], *, changed_only: bool = False) -> StepCounts:
    """Count what every refinement step did; a step leads from step s to s + 1 of one draw.

    ``changed_only`` counts those whose artifact changed, by SHA-256.

    Raises: BadInput for a step without an artifact where it must have changed.
    Source: arXiv:2606.24453.
    """
    found = {"wrong": 0, "fixed": 0, "right": 0, "broken": 0}
    unchanged = lost = 0
    for chain in chains(records):
        for before, then in pairwise(chain):
            if before.step is None or then.step is None:
                continue
            if then.step != before.step + 1 or before.right is None or then.right is None:
                lost += 1
                continue
            known = before.artifact is not None and then.artifact is not None
            if changed_only and not known:
                raise BadInput(
                    "whether this step changed the candidate cannot be told without its artifact",
                    where=then.location,
                    hint='"patch": the text, or "artifact": its SHA-256',
                )
            if known and before.artifact == then.artifact:
                unchanged += 1
                if changed_only:
                    continue
            # An unchanged candidate counts, as neither fixed nor broken: without it both rates would be
            # higher.
            found["right" if before.right else "wrong"] += 1
            found["broken"] += before.right and not then.right
            found["fixed"] += not before.right and then.right
    return StepCounts(**found, unchanged=unchanged, lost=lost)


# A critic model from calibration records: Beta posteriors of every rate, and what to distrust in it.

#: Below this many records of a stratum, a rate from it is widened and warned about.
FEWEST: Final = 5


@final
@dataclass(frozen=True, slots=True)
class CriticFit:
    """One critic's counts: (passed, judged) among right and among wrong candidates, and failed calls."""

    critic: Critic
    right: tuple[int, int]
    wrong: tuple[int, int]
    unknown: int


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model with the counts behind it, what was dropped, and warnings in words."""

    model: CriticModel
    critics: tuple[CriticFit, ...]
    right: int
    wrong: int
    dropped: Mapping[str, int]
    warnings: tuple[str, ...]


def fit_critics(
    records: Iterable[Record],
    prices: Mapping[str, float] | None = None,
    *,
    critics: Sequence[str] | None = None,
    kernel: Kernel | None = None,
    changed_only: bool = False,
    classes: int = 1,
) -> CriticModel:
    """The model of :func:`fit`, whose ``meta`` holds its warnings."""
    made = fit(records, prices, critics=critics, kernel=kernel, changed_only=changed_only, classes=classes)
    return made.model


def fit(
    records: Iterable[Record],
    prices: Mapping[str, float] | None = None,
    *,
    critics: Sequence[str] | None = None,
    kernel: Kernel | None = None,
    changed_only: bool = False,
    classes: int = 1,
) -> Fit:
    """Fit prior, critics and kernel on records; each rate is a Beta posterior under the uniform prior.

    Candidates without an outcome are dropped and counted; a critic's failed calls say nothing of it. The
    prior is the rate of right among draws, refinements left out. ``prices`` stand in for measured costs. A
    rate from fewer than five records keeps its mean and gets half the evidence, so a wider interval. The
    kernel is ``kernel``, else fitted on the refinement steps, else (there are none) drawing anew. ``classes``
    of difficulty have chances of their own beside those of all instances together, fitted by EM.

    Raises: BadInput for no record with an outcome, only right or only wrong ones, a critic judged in one of
        the two only, an unknown critic, an unknown price.
    Source: arXiv:2606.24453 (posterior means, drawing anew); widening is ours.
    """
    everything = completed(records)
    kept = labelled(everything)
    known = critic_names(kept.records)
    chosen = tuple(critics) if critics is not None else known
    right = [r for r in kept.records if r.right]
    wrong = [r for r in kept.records if not r.right]
    if not right or not wrong:
        raise BadInput(
            f"{len(right)} right and {len(wrong)} wrong candidates: both are needed to tell them apart",
            hint="; ".join(f"{n} dropped: {why}" for why, n in kept.dropped.items())
            or "collect more records",
        )
    for name in chosen:
        if name not in known:
            raise BadInput(f"no record has critic {name!r}", hint=f"one of {', '.join(known) or 'none'}")
    seen, given = measured(kept.records), dict(prices or {})
    fits = tuple(_critic(name, right, wrong, price_of(name, given, seen)) for name in chosen)
    draws = [r for r in kept.records if r.fresh]
    prior = _rate(sum(bool(r.right) for r in draws), len(draws))
    warnings = _warnings(fits, len(right), len(wrong), kept.dropped)
    if not draws:
        warnings += ("no first draw has an outcome, so nothing is known of the prior: it stands at a half",)
    steps = count_steps(everything, changed_only=changed_only)
    source = "given" if kernel is not None else "steps" if steps.pairs else "resample"
    if kernel is None:
        kernel = steps.kernel() if steps.pairs else Kernel.resample(prior)
    if source == "steps" and min(steps.wrong, steps.right) < FEWEST:
        warnings += (f"the kernel rests on {steps.wrong} steps from wrong, {steps.right} from right ones",)
    meta = _meta(kept, fits, warnings) | {
        "draws": {"right": sum(bool(r.right) for r in draws), "all": len(draws)},
        "kernel": {"from": source, **to_json(steps), "changed_only": changed_only},
    }
    model = CriticModel(prior, tuple(one.critic for one in fits), kernel, meta)
    if classes != 1:
        model = _with_classes(model, everything, classes, source, changed_only=changed_only)
        fits = tuple(replace(f, critic=c) for f, c in zip(fits, model.critics, strict=True))
    return Fit(model, fits, len(right), len(wrong), kept.dropped, warnings)


def _with_classes(
    model: CriticModel, records: Sequence[Record], count: int, kernel: str, *, changed_only: bool
) -> CriticModel:
    """The model with classes of difficulty; ``kernel`` says where its kernel is from."""
    found = fit_classes(count_trials(records, model.names, changed_only=changed_only), count)
    chances = found.chances.tolist()
    moves = {
        "steps": [(c[FIXED], c[BROKEN]) for c in chances],
        "resample": [(c[FIRST], 1 - c[FIRST]) for c in chances],
        "given": [(chance(model.kernel.fix), chance(model.kernel.breaks))] * count,
    }[kernel]
    critics = tuple(
        replace(critic, classes=tuple((c[3 + 2 * i], c[4 + 2 * i]) for c in chances))
        for i, critic in enumerate(model.critics)
    )
    return replace(
        model,
        critics=critics,
        kernel=replace(model.kernel, classes=tuple(moves)),
        classes=tuple(zip(found.shares.tolist(), (c[FIRST] for c in chances), strict=True)),
    )


def _meta(kept: Labelled, fits: Sequence[CriticFit], warnings: Sequence[str]) -> Json:
    right = sum(bool(r.right) for r in kept.records)
    return {
        "candidates": len(kept.records),
        "right": right,
        "wrong": len(kept.records) - right,
        "dropped": dict(kept.dropped),
        "counts": {
            one.critic.name: {"right": list(one.right), "wrong": list(one.wrong), "unknown": one.unknown}
            for one in fits
        },
        "instances": sorted({instance_key(r.instance) for r in kept.records}),
        "warnings": list(warnings),
    }


@lru_cache(maxsize=65536)
def instance_key(instance: str) -> str:
    """A short digest of an instance's name, by which a policy file knows what it was fitted on."""
    return content_hash(instance)[:12]


def refuse_fitted(model: CriticModel, records: Iterable[Record]) -> None:
    """Refuse records of instances that the model was fitted on. Raises BadInput."""
    refuse_instances(model, (record.instance for record in records), "records")


def refuse_instances(model: CriticModel, instances: Iterable[str], of: str) -> None:
    """Refuse instances (``of`` records, of tasks) that the model was fitted on. Raises BadInput."""
    mine = set(model.meta.get("instances") or ())
    both = sorted({name for name in instances if instance_key(name) in mine})
    if both:
        raise BadInput(
            f"the policy was fitted on {len(both)} instances of these {of}: {', '.join(both[:3])}",
            hint="hold some out: refork gate fit --share 0.75 --test FILE; or leave one out",
        )


def belief_in(model: CriticModel, record: Record, start: float | None = None) -> float:
    """The belief in a candidate after all that its critics said, from ``start`` or the prior."""
    state = fresh(model)
    return _judged(model, record, state if start is None else at_belief(state, start)).belief


def _judged(model: CriticModel, record: Record, state: State) -> State:
    for critic in model.critics:
        passed = record.verdicts.get(critic.name)
        if passed is not None:
            state = observed(state, critic, passed)
    return state


def beliefs(model: CriticModel, records: Iterable[Record]) -> dict[tuple[str, str, int | None], float]:
    """The belief in every candidate; a refinement's starts from the belief in what it refined."""
    found: dict[tuple[str, str, int | None], float] = {}
    for chain in chains(records):
        state, at = fresh(model), 0
        for record in chain:
            # A step that was not recorded still refined the candidate.
            for _ in range((record.step or 0) - at):
                state = regenerated(state, model.kernel)
            at = record.step or 0
            state = _judged(model, record, state)
            found[record.instance, record.candidate, record.step] = state.belief
    return found


def leave_one_out(
    records: Sequence[Record],
    *,
    critics: Sequence[str] | None = None,
    changed_only: bool = False,
    classes: int = 1,
) -> tuple[tuple[Record, ...], Float[np.ndarray, "cases"]]:
    """Beliefs in candidates by models that were fitted without their instance, in the order of the records.

    Records without an outcome are not among them; what critics said of these still moves the beliefs in
    their refinements. Raises: BadInput as :func:`fit`, also where the records
    without one instance cannot be fitted.
    """
    everything = completed(records)
    kept = labelled(everything).records
    # Beliefs do not look at prices.
    free = dict.fromkeys(critics if critics is not None else critic_names(kept), 0.0)
    by: dict[tuple[str, str, int | None], float] = {}
    groups: dict[str, list[Record]] = {}
    for record in everything:
        groups.setdefault(record.instance, []).append(record)
    for name in dict.fromkeys(record.instance for record in kept):
        mine, rest = groups[name], [r for r in everything if r.instance != name]
        model = fit_critics(rest, free, critics=critics, changed_only=changed_only, classes=classes)
        by |= beliefs(model, mine)
    return kept, np.array([by[r.instance, r.candidate, r.step] for r in kept])


def _rate(successes: int, trials: int) -> BetaRate:
    """The posterior under the uniform prior; from few trials the same mean at half the weight."""
    if trials >= FEWEST:
        return BetaRate(successes, trials)
    # Counts and prior halved together: the mean stays that of the uniform prior, the interval widens.
    return BetaRate(successes / 2, trials / 2, 0.5, 0.5)


def _critic(name: str, right: Sequence[Record], wrong: Sequence[Record], price: float) -> CriticFit:
    counts = []
    for side, what in ((right, "right"), (wrong, "wrong")):
        said = [r.verdicts[name] for r in side if r.verdicts.get(name) is not None]
        if not said:
            raise BadInput(
                f"critic {name!r} judged no {what} candidate, so one side of its table is missing",
                hint="leave it out, or collect its verdicts",
            )
        counts.append((sum(map(bool, said)), len(said)))
    unknown = sum(r.verdicts.get(name) is None for r in (*right, *wrong))
    critic = Critic(name, _rate(*counts[0]), _rate(*counts[1]), price)
    return CriticFit(critic, counts[0], counts[1], unknown)


def _warnings(
    fits: Sequence[CriticFit], right: int, wrong: int, dropped: Mapping[str, int]
) -> tuple[str, ...]:
    said = [f"{n} candidates dropped: {why}" for why, n in dropped.items()]
    said += [
        f"only {n} {what} candidates: rates among them are widened"
        for n, what in ((right, "right"), (wrong, "wrong"))
        if n < FEWEST
    ]
    for one in fits:
        name = one.critic.name
        for (_, judged), total, what in ((one.right, right, "right"), (one.wrong, wrong, "wrong")):
            if judged < FEWEST <= total:
                said.append(f"{name} judged only {judged} {what} candidates: its rate there is widened")
        if one.unknown:
            said.append(f"{name}: {one.unknown} calls without a verdict, left out of its rates")
        if one.critic.gap < 0:
            said.append(f"{name} passes wrong candidates more often than right ones")
    return tuple(said)
