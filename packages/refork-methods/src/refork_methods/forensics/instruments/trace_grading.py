"""Trace grading: a judge places every trace on one task-specific scale, and two conditions are compared.

Source: arXiv:2606.26071, appendix E (a scale of 1 to 5; means only). The blinding, Mann-Whitney's test and
the chance of scoring higher with its interval are our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from refork.chat import ask
from refork.errors import BadInput
from refork.judge import Judge, Verdict
from refork.plain import to_json
from refork.policies.base import Policy, Sampling
from refork.stats import Interval, mean_interval
from refork.tree.node import Trajectory
from refork.tree.score import Producer
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.evidence import Result
from refork_methods.forensics.instruments.outcomes import grade, reply_text, same_model
from refork_methods.forensics.statistics import scale as scale_result


def read_grade(answer: str, low: int = 1, high: int = 5) -> int | None:
    """The one whole number of the scale in an answer; None where there is none, or two different ones.

    Raises: BadInput for a scale of fewer than two grades.
    """
    if low >= high:
        raise BadInput(f"a scale from {low} to {high} has no two grades")
    # Not the halves of a decimal: 4.5 is no grade, and neither 4 nor 5.
    found = {int(n) for n in re.findall(r"(?<![\d.])-?\d+(?![\d]|\.\d)", answer)}
    return found.pop() if len(found) == 1 and low <= min(found) <= high else None


@dataclass(frozen=True, slots=True)
class ScaleJudge:
    """A model that grades a trace by a question that holds ``{text}``; a grade outside the scale is none."""

    policy: Policy
    question: str
    low: int = 1
    high: int = 5
    score: str = "grade"
    text: Callable[[Trajectory], str] = reply_text
    settings: Sampling = field(default_factory=lambda: Sampling(temperature=0.0, max_tokens=32))

    def __post_init__(self) -> None:
        read_grade("", self.low, self.high)
        if "{text}" not in self.question:
            raise BadInput("the question must hold {text}", where=repr(self.question))

    @property
    def producer(self) -> Producer:
        """The model with its weights, the question and the scale."""
        card = self.policy.card
        config: Json = {"weights": card.weights or card.name, "question": self.question}
        config |= {"scale": [self.low, self.high], "settings": self.settings.to_json()}
        if self.text is not reply_text:
            config |= {"reads": getattr(self.text, "__qualname__", repr(self.text))}
        return Producer(f"scale:{card.name}", "1", config)

    def judge(self, trajectory: Trajectory) -> Verdict:
        """The grade of a trace."""
        prompt = self.question.replace("{text}", self.text(trajectory))
        answer = ask(self.policy, [prompt], self.settings)[0] or ""
        found = read_grade(answer, self.low, self.high)
        return Verdict(None if found is None else float(found), answer.strip()[:500])


@dataclass(frozen=True, slots=True)
class Graded:
    """Grades of two conditions by one judge: the arms with their values, both means, and the comparison."""

    base: Arm
    other: Arm
    means: tuple[Interval, Interval]
    result: Result
    ungraded: int
    warnings: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Plain fields."""
        found = self.result.interval
        return {
            "instrument": "trace grading",
            "arms": [
                {"name": a.name, "values": list(a.values), "mean": m.estimate, "low": m.low, "high": m.high}
                for a, m in zip((self.base, self.other), self.means, strict=True)
            ],
            "chance_other_higher": to_json(found),
            "p": self.result.p,
            "ungraded": self.ungraded,
            "warnings": list(self.warnings),
        }  # fmt: skip


def trace_grading(
    tree: Tree,
    base: Arm,
    other: Arm,
    judge: Judge,
    *,
    low: float = 1.0,
    high: float = 5.0,
    subject: Policy | None = None,
    seed: int = 0,
) -> Graded:
    """Grade the rollouts of two arms, in an order that does not tell the arms apart, and compare them.

    Both arms get the same judge in the same version, whatever graded them before. ``subject``: the policy
    that made the rollouts, to warn where it grades itself.

    Raises: BadInput where an arm has fewer than two grades, or a grade lies outside the scale.
    """
    nodes = [*base.nodes, *other.nodes]
    # Both arms mixed: a judge that drifts while it grades does so in both.
    order = np.random.default_rng(seed).permutation(len(nodes))
    verdicts = grade(tree, [nodes[int(i)] for i in order], judge)
    arms = []
    for arm in (base, other):
        values = tuple(float(v) for n in arm.nodes if (v := verdicts[n].value) is not None)
        outside = [v for v in values if not low <= v <= high]
        if outside:
            raise BadInput(f"grade {outside[0]:g} lies outside the scale {low:g} to {high:g}", where=arm.name)
        if len(values) < 2:
            raise BadInput(
                f"{len(values)} traces were graded; at least two are needed", where=f"arm {arm.name}"
            )
        arms.append(replace(arm, values=values))
    graded = sum(len(arm.values) for arm in arms)
    means = tuple(mean_interval(np.array(arm.values)) for arm in arms)
    return Graded(
        arms[0], arms[1], (means[0], means[1]), scale_result(arms[0], arms[1]), len(nodes) - graded,
        () if subject is None else same_model(judge, subject),
    )  # fmt: skip
