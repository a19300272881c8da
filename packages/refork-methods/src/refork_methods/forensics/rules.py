"""What makes a comparison worthless, and what a reader must be told beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from refork.errors import BadInput
from refork.stats import fisher
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.design import Purpose
from refork_methods.forensics.evidence import Result
from refork_methods.forensics.incident import Incident

#: Share of failed rollouts above which an arm stands for its survivors only.
MOST_LOST = 0.2
#: A base rate must differ from another arm's with at most this p before motives can be told apart.
CONTRAST_P = 0.05


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing that is wrong: a ``refusal`` stops the comparison, a ``warning`` is printed with it."""

    rule: str
    kind: Literal["refusal", "warning"]
    words: str
    where: str
    hint: str | None = None


def refuse(concerns: Iterable[Concern]) -> tuple[Concern, ...]:
    """The warnings among some concerns; raises BadInput at the first refusal."""
    given = tuple(concerns)
    for concern in given:
        if concern.kind == "refusal":
            raise BadInput(concern.words, where=concern.where, hint=concern.hint)
    return given


def check_result(result: Result, purpose: Purpose, where: str) -> list[Concern]:
    """All that is wrong with the arms of one result."""
    found = graders(result.arms, where) + subjects(result.arms, purpose, where)
    found += counted_twice(result.arms, where)
    for arm in result.arms:
        found += lost(arm, result.bounded) + censored(arm)
    return found


def graders(arms: Sequence[Arm], where: str) -> list[Concern]:
    """One grader must have seen all arms."""
    known = {arm.grader for arm in arms if arm.grader is not None}
    if len(known) > 1:
        names = ", ".join(f"{arm.name}: {(arm.grader or 'unknown')[:12]}" for arm in arms)
        return [
            Concern(
                "unpaired graders", "refusal", f"the arms have different graders ({names})", where,
                "grade all arms again with one grader",
            )
        ]  # fmt: skip
    if arms and any(arm.grader is None for arm in arms):
        return [Concern("unpaired graders", "warning", "nobody recorded which grader saw each arm", where)]
    return []


def subjects(arms: Sequence[Arm], purpose: Purpose, where: str) -> list[Concern]:
    """Only a control model may be another subject."""
    known = {arm.subject for arm in arms if arm.subject is not None}
    if len(known) > 1 and purpose not in ("control model", "positive control"):
        return [
            Concern("several subjects", "refusal", "the arms were sampled from different models", where,
                    "that is a control model, and its own purpose")
        ]  # fmt: skip
    return []


def counted_twice(arms: Sequence[Arm], where: str) -> list[Concern]:
    """One rollout must count once; copies of a log in two folders have inflated arms before."""
    counts = Counter(node for arm in arms for node in arm.nodes)
    twice = [node for node, times in counts.items() if times > 1]
    if not twice:
        return []
    words = f"{len(twice)} rollouts count more than once, the first is {twice[0][:12]}"
    return [Concern("counted twice", "warning", words, where, "are these really independent rollouts?")]


def lost(arm: Arm, bounded: bool) -> list[Concern]:
    """An arm that lost many rollouts stands for those that were left."""
    if arm.lost_share <= MOST_LOST:
        return []
    low, high = arm.bounds()
    words = f"{arm.failed} of {arm.total} rollouts failed: the rate lies between {low:.1%} and {high:.1%}"
    if bounded:
        return [Concern("lost rollouts", "warning", words, f"arm {arm.name}")]
    return [
        Concern("lost rollouts", "refusal", words, f"arm {arm.name}",
                "show the bounds: bounds=True in the result")
    ]  # fmt: skip


def censored(arm: Arm) -> list[Concern]:
    """Rollouts that were cut off are neither hits nor misses."""
    if arm.unfinished is None:
        words = "nobody counted rollouts that were cut off; they may be among the misses"
        return [Concern("censoring", "warning", words, f"arm {arm.name}")]
    if arm.unfinished == 0:
        return []
    low, high = arm.bounds()
    words = (
        f"{arm.unfinished} of {arm.total} rollouts were cut off and left out: "
        f"with them the rate lies between {low:.1%} and {high:.1%}"
    )
    return [Concern("censoring", "warning", words, f"arm {arm.name}")]


def contrast_exists(base: Arm | None, others: Iterable[Arm]) -> list[Concern]:
    """A base rate of 0 or 1 that no arm moves tells no motive from another."""
    if base is None or base.runs == 0:
        return [Concern("no base rate", "refusal", "nobody ran the unchanged environment", "base",
                        "sample independent rollouts of it first")]  # fmt: skip
    if 0 < base.hits < base.runs:
        return []
    moved = any(arm.runs and fisher(base.counts, arm.counts).p <= CONTRAST_P for arm in others)
    if moved:
        return []
    words = f"the base rate is {base.hits} of {base.runs} and no arm differs from it"
    return [Concern("no contrast", "refusal", words, "base",
                    "find a setting in which the action is sometimes taken")]  # fmt: skip


def judges_itself(incident: Incident) -> list[Concern]:
    """A judge must not be the model in question."""
    if not incident.same_checkpoint:
        return []
    words = f"judge and subject are the same checkpoint ({incident.model.name})"
    return [Concern("same checkpoint", "warning", words, "grader")]
