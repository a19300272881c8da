"""Runs the arms of a design, base first, and writes what became of every draw into the case.

All draws are on the tree and all outcomes in the journal, so a call done again draws only what is missing. A
rollout that breaks is a failed draw, one that is cut off an unfinished one; neither is a miss.

Source: arXiv:2606.26071 runs dose-responses, counterfactuals, factorials and control models; shared noise
between arms, resuming and the recording of every draw are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.types import Json
from refork_methods.forensics import statistics
from refork_methods.forensics.arm import Arm, Outcome
from refork_methods.forensics.bench import Bench
from refork_methods.forensics.case import Case
from refork_methods.forensics.design import BASE, ArmPlan, Design
from refork_methods.forensics.document import look_up, parse_path
from refork_methods.forensics.evidence import EvidenceItem, Result
from refork_methods.forensics.hypothesis import Quantity
from refork_methods.forensics.instruments.outcomes import outcomes, same_model
from refork_methods.forensics.instruments.replies import subject_of
from refork_methods.forensics.intervention import Intervention
from refork_methods.forensics.rules import Concern

#: Rollouts of the base arm and of every other arm, unless something else is asked for.
BASE_DRAWS, ARM_DRAWS = 200, 100

#: Two arms that differ in one thing only share their noise, draw by draw.
_PAIRED = ("counterfactual", "control setting")
#: Designs that ask nothing of the unedited environment.
_ALONE = ("observation", "positive control")


@dataclass(frozen=True, slots=True)
class Ran:
    """A design that was run: its arms, what they show, and what a reader must be told."""

    design: Design
    arms: tuple[Arm, ...]
    results: tuple[Result, ...]
    warnings: tuple[str, ...] = ()

    @property
    def result(self) -> Result:
        """The design's own quantity: a difference, a trend, an interaction, a rate."""
        return self.results[0]


def environment_of(case: Case, plan: ArmPlan) -> Json:
    """The environment of an arm: the incident's with one verified edit.

    Raises: BadInput for an edit that has no effect or touches another field.
    """
    return plan.intervention.apply(case.incident.environment).environment


def run_arms(
    case: Case,
    bench: Bench,
    plans: Sequence[ArmPlan],
    draws: Sequence[int],
    *,
    paired: bool = False,
    progress: Progress = silent,
    stage: str = "rollouts",
) -> tuple[Arm, ...]:
    """Draw what the case does not hold of each arm's first ``draws`` rollouts; the arms in order.

    ``paired``: every arm uses the noise of the unedited arm, draw by draw. All arms are one batch.
    """
    wanted = [case.missing(plan, count) for plan, count in zip(plans, draws, strict=True)]
    open_ = [i for i, missing in enumerate(wanted) if missing]
    environments = [environment_of(case, plans[i]) for i in open_]
    stream = None
    if paired and open_:
        # Every arm takes the stream of the unedited root, so that draw i of all arms has the same noise.
        root = bench.restart.point(bench.tree, bench.policy, case.incident.environment)
        stream = stream_of(root.address)
    forks = bench.run(
        environments, [wanted[i] for i in open_],
        # The unedited arm has this stream by itself.
        streams=[stream if plans[i].intervention.edits else None for i in open_],
        progress=progress, stage=stage,
    ) if open_ else []  # fmt: skip
    mine = is_subject(case, bench.policy)
    subject = case.incident.subject if mine else subject_of(bench.policy)
    for i, fork in zip(open_, forks, strict=True):
        found = outcomes(fork, bench.grader)
        ended = {d: found[d] for d in wanted[i] if d in found}
        case.record(plans[i], ended, grader=bench.grader.producer.id, subject=subject)
    return tuple(case.arm(plan) for plan in plans)


def run_design(
    case: Case,
    bench: Bench,
    design: Design,
    n: int = ARM_DRAWS,
    *,
    base_draws: int | None = None,
    progress: Progress = silent,
) -> Ran:
    """Register a design if it is new, run its arms (an unedited one first), and say what they show.

    ``base_draws``: rollouts of the unedited arm, 200 or ``n`` where that is more.

    Raises: BadInput for a model, environment or grader that is not the case's.
    """
    _check_bench(case, bench)
    case.add_design(design)
    most = max(n, BASE_DRAWS) if base_draws is None else base_draws
    base = ArmPlan(BASE, Intervention.none())
    others = [plan for plan in design.arms if plan.key != base.key]
    compared = len(others) < len(design.arms)
    plain = [base] if compared or (case.base is None and design.purpose not in _ALONE) else []
    # The base first: whether there is anything to explain is known before edits are paid for.
    run_arms(case, bench, plain, [most] * len(plain), progress=progress, stage="rollouts, base")
    run_arms(
        case, bench, others, [n] * len(others), paired=design.purpose in _PAIRED, progress=progress,
        stage=f"rollouts, {design.name}",
    )  # fmt: skip
    return _ran(case, bench, design)


def is_subject(case: Case, policy: Policy) -> bool:
    """Whether a policy is the model of the case: by its weights where the case knows them, else by name."""
    model, card = case.incident.model, policy.card
    return model.weights == card.weights if model.weights is not None else model.name == card.name


def _check_bench(case: Case, bench: Bench) -> None:
    incident = case.incident
    if incident.target.grader.id != bench.grader.producer.id:
        raise BadInput(
            f"the case's grader is {incident.target.grader.name!r}, this one is "
            f"{bench.grader.producer.name!r}, or it has another version",
            where=incident.name,
            hint="one grader sees all arms: use the case's, or open a new case",
        )
    if not is_subject(case, bench.policy):
        raise BadInput(
            f"the case is about model {incident.model.name!r}, this is {bench.policy.card.name!r}",
            where=incident.name,
            hint="another model is a control model",
        )


def _ran(case: Case, bench: Bench, design: Design) -> Ran:
    arms = case.arms(design)
    held = case.state.draws
    pair = [held.get(plan.key, {}) for plan in design.arms]
    results = conclude(design, arms)
    if design.purpose in _PAIRED and len(arms) == 2:
        better = _paired_result(bench, arms, pair)
        results = (better, *results[1:]) if better is not None else results
    wanted = {p.quantity for h in case.hypotheses for p in h.predictions if p.design == design.id}
    more = (_other(q, arms) for q in sorted(wanted - {r.quantity for r in results}))
    results += tuple(r for r in more if r is not None)
    return Ran(design, arms, results, same_model(bench.grader, bench.policy))


def conclude(design: Design, arms: Sequence[Arm]) -> tuple[Result, ...]:
    """What arms show by the purpose of their design, its own quantity first.

    A factorial of two factors gives its interaction, then each single edit's difference to the unedited cell.

    Raises: BadInput where an arm has no ended rollout.
    """
    if design.purpose == "dose response":
        return (statistics.trend(arms),)
    if design.purpose == "factorial" and len(arms) == 4:
        differences = [statistics.difference(arms[0], a) for a in arms[1:]]
        return (statistics.interaction(arms[0], arms[1], arms[2], arms[3]), *differences)
    if len(arms) == 1:
        return (statistics.rate(arms[0]),)
    return tuple(statistics.difference(arms[0], other) for other in arms[1:])


def _other(quantity: Quantity, arms: Sequence[Arm]) -> Result | None:
    """A quantity that a prediction is about, where these arms can give it."""
    if quantity == "ratio" and len(arms) == 2:
        return statistics.ratio(arms[0], arms[1])
    if quantity == "rate":
        return statistics.rate(arms[-1])
    if quantity == "trend" and all(a.dose is not None for a in arms):
        return statistics.trend(arms)
    return None


def _paired_result(bench: Bench, arms: Sequence[Arm], draws: Sequence[dict[int, Outcome]]) -> Result | None:
    """The difference pair by pair, where both arms have as many draws, of the same noise, and all ended.

    Where the base has more rollouts than the edit, all of them count, and the arms are taken as independent.
    """
    both = sorted(draws[0].keys() & draws[1].keys())
    forks = [{o.fork for o in side.values()} for side in draws]
    if (
        not 2 <= len(both) == len(draws[0]) == len(draws[1])
        or any(len(f) != 1 or None in f for f in forks)
        or not bench.policy.card.can("paired")
    ):
        return None
    try:
        records = [bench.tree.fork_record(next(iter(f)) or "") for f in forks]
    except BadInput:  # the rollouts are on another tree: whether they share noise is not known here
        return None
    # Equal numbers of draws are pairs only where seed and stream are shared.
    same = (records[0].seed, records[0].stream) == (records[1].seed, records[1].stream)
    ends = {d[i].end for d in draws for i in both}
    if not same or not ends <= {"hit", "miss", "asked"}:
        return None
    x, y = (np.array([d[i].end == "hit" for i in both], dtype=np.float64) for d in draws)
    found = stats.paired_difference(x, y)
    return Result("difference", found.interval, tuple(arms), found.p, f"{found.interval.method}, paired")


def dose_design(case: Case, path: str, grid: Sequence[float], *, name: str | None = None) -> Design:
    """The design of a dose-response; the arm at the environment's own value edits nothing.

    Raises: BadInput for a field that is not there, or holds no number.
    """
    now = look_up(case.incident.environment, parse_path(path))
    if isinstance(now, bool) or not isinstance(now, int | float):
        raise BadInput(f"the field holds {now!r}; a dose is a number", where=path)
    return Design.dose_response(path, grid, now=float(now), name=name)


def control_setting(
    case: Case, bench: Bench, without: Intervention, n: int = ARM_DRAWS, *, progress: Progress = silent
) -> Ran:
    """The trigger taken away: the behaviour must vanish."""
    plans = (ArmPlan(BASE, Intervention.none()), ArmPlan(without.name, without))
    design = Design(f"control setting: {without.name}", "control setting", "rollouts", plans)
    return run_design(case, bench, design, n, progress=progress)


def control_model(
    case: Case, bench: Bench, other: Policy, n: int = ARM_DRAWS, *, progress: Progress = silent
) -> Ran:
    """Another model in the unchanged environment.

    Raises: BadInput where it is the same model.
    """
    if is_subject(case, other):
        raise BadInput("the control model is the model in question", where=other.card.name)
    _check_bench(case, bench)
    name = f"model {other.card.name}"
    base, arm = ArmPlan(BASE, Intervention.none()), ArmPlan(name, Intervention.none())
    design = Design(f"control {name}", "control model", "rollouts", (base, arm))
    case.add_design(design)
    run_arms(case, bench, [base], [max(n, BASE_DRAWS)], progress=progress, stage="rollouts, base")
    run_arms(case, bench.with_policy(other), [arm], [n], progress=progress, stage=f"rollouts, {name}")
    ran = _ran(case, bench, design)
    return replace(ran, warnings=ran.warnings + same_model(bench.grader, other))


def positive_control(
    case: Case,
    bench: Bench,
    agent: Policy,
    n: int = ARM_DRAWS,
    *,
    instrument: str = "rollouts",
    find: Callable[[Arm], Arm] | None = None,
    progress: Progress = silent,
) -> Ran:
    """An agent that is known to have the motive, in the same environment: does the instrument find it?

    ``find`` turns the agent's rollouts into the arm of what the instrument found; without it the act itself
    is what is looked for. The case then knows the instrument's sensitivity, and a search that found nothing
    says something.

    Raises: BadInput where the instrument gave nothing to count.
    """
    plan = ArmPlan(f"planted: {agent.card.name}", Intervention.none())
    design = Design(
        f"positive control of {instrument}: {agent.card.name}", "positive control", instrument, (plan,)
    )
    case.add_design(design)
    arms = run_arms(case, bench.with_policy(agent), [plan], [n], progress=progress, stage="rollouts, planted")
    found = arms[0] if find is None else find(arms[0])
    case.add_control(instrument, found)
    return Ran(design, (found,), (statistics.rate(found),), same_model(bench.grader, agent))


def file_evidence(
    case: Case, ran: Ran, *, confounds: Sequence[str] = (), note: str = ""
) -> tuple[tuple[EvidenceItem, ...], tuple[Concern, ...]]:
    """Write what a design showed as rows of the case, one per quantity; unpredicted ones are post hoc.

    Where an arm lost rollouts, the row takes the bounds. A positive control is no row. A row that is on
    record stands, also where more rollouts were drawn since: looking again is no new test.

    Raises: BadInput where a rule refuses the comparison.
    """
    items: list[EvidenceItem] = []
    told: list[Concern] = []
    if ran.design.purpose == "positive control":
        return (), ()
    predicted = _predicted(case, ran.design)
    for number, result in enumerate(ran.results):
        known = result.quantity in predicted or "curve" in predicted
        again = any(i.result.quantity == result.quantity for i in items)
        # The design's own quantity is always filed, any other only where somebody predicted it.
        if number and (again or result.quantity not in predicted):
            continue
        item = EvidenceItem(
            ran.design.name if not number else f"{ran.design.name}: {result.quantity}", ran.design.id,
            ran.design.instrument, _bounded(result), tuple(confounds), note=note,
        )  # fmt: skip
        if case.state.evidence.get(item.name, item).result != item.result:
            told.append(_stands(item.name))
            continue
        told += case.add_evidence(item, post_hoc=not known)
        items.append(item)
    return tuple(items), tuple(told)


def _stands(name: str) -> Concern:
    """A result that is looked at again with more rollouts is not a new one."""
    words = "the row on record stands, from the rollouts it was first computed of"
    return Concern(
        "looked at again", "warning", words, name, "open a new design to test it on fresh rollouts"
    )


def _predicted(case: Case, design: Design) -> set[Quantity]:
    """Quantities of a design that somebody predicted before its first result."""
    seen = case.state.result_seen(design)
    return {
        p.quantity
        for h in case.hypotheses
        for p in h.predictions
        if p.design == design.id and (seen is None or case.state.predicted_at[h.name, p.id] < seen)
    }


def _bounded(result: Result) -> Result:
    """The result with its bounds where rollouts of an arm failed."""
    if not any(arm.failed for arm in result.arms) or result.bounded:
        return result
    if result.quantity == "difference":
        return statistics.difference(result.arms[0], result.arms[1], bounds=True)
    return statistics.rate(result.arms[0], bounds=True) if result.quantity == "rate" else result
