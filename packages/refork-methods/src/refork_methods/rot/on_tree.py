"""Sessions on the tree: plant one, fork it before and after compaction, grade what the draws do.

The point of a fork is the end of the whole conversation, request included. The control runs on from it;
every other condition is one change of it, so all share the noise of their draws. What a compaction did stands
on the ``rewrite`` node it made: ids before and after, summariser calls, reason.

Source: arXiv:2606.22528 runs the conditions independently; the paired fork is ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from refork import stats
from refork.compaction import Compactor, holds
from refork.errors import BadInput
from refork.forking import Fork
from refork.forking.arm import ReadyArm, prepare, run_jobs
from refork.forking.context import conversation
from refork.forking.effect import is_paired
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.node import NewNode, Node, Point
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import Json, Message, token_array
from refork_methods.pin.checkers import Grade, grade
from refork_methods.rot.stage import NewContext, Stage, bare, compact_conversation
from refork_methods.rot.survival import RuleSurvival

#: What an answer was: graded, or why it could not be. ``invalid``: the trigger never reached the budget.
Result: TypeAlias = Literal["violation", "allowed", "refused", "unparseable", "error", "invalid"]
Grader: TypeAlias = Callable[[Message], Grade]

GRADER_VERSION = "1"


def grader_of(checker: Json) -> Grader:
    """The deterministic grader of one rule's checker."""
    return lambda message: grade(message, checker)


def rule_producer(rule: str, checker: Json) -> Producer:
    """Who says that a rule was broken: its checker, in this version."""
    return Producer("rot:checker", GRADER_VERSION, {"rule": rule, "checker": checker})


def survival_producer(rule: str) -> Producer:
    """Who says whether a rule survived a compaction: each rule has its own, for a leaf may hold several."""
    return Producer("rot:survival", "1", {"rule": rule})


@dataclass(frozen=True, slots=True)
class Answer:
    """One draw's answer, graded. ``leaf`` is its action node; None where the draw has none.

    ``tool``: of the call that decided; None where none was made.
    """

    draw: int
    result: Result
    reason: str
    leaf: str | None = None
    tool: str | None = None


def plant(
    tree: Tree,
    policy: Policy,
    messages: Sequence[Message],
    extra: Json | None = None,
    tools: Sequence[Json] = (),
) -> Point:
    """A task node that holds a whole conversation, and the point at its end; the same one is found again.

    The node's ``extra`` keeps the messages' ids beside them.

    Raises: BadInput where there is no message.
    """
    if not messages:
        raise BadInput("the session is empty: there is nothing to run on from")
    card = policy.card
    plain = bare(messages, tools)
    rendered = policy.render([], token_array([]), plain) if card.can("tokens") else None
    # Token ids mean something in one tokenizer only, so for another one the same session is another node.
    body = json.dumps([plain, extra or {}, card.tokenizer], sort_keys=True)
    draft = NewNode(
        kind="task",
        key=f"session/{hashlib.blake2b(body.encode(), digest_size=16).hexdigest()}",
        text="\n".join(str(m.get("content") or "") for m in plain),
        tokens=rendered.tokens if rendered else None,
        extra={"messages": plain, "ids": [str(m.get("id", "")) for m in messages]}
        | ({"tokenizer": card.tokenizer} if card.tokenizer else {})
        | ({"session": extra} if extra else {}),
    )
    return tree.at(tree.append([draft])[0])


def job_of(
    point: Point,
    policy: Policy,
    stage: Stage,
    draws: int | Sequence[int],
    *,
    settings: Sampling,
    seed: int = 0,
    stream: int | None = None,
) -> ReadyArm:
    """The arm of a stage, ready to run: the control is no change, all else is a new context."""
    change = None if stage.condition == "control" else NewContext(stage)
    return prepare(point, policy, draws, change=change, settings=settings, seed=seed, stream=stream)


def message_of(node: Node) -> Message:
    """What an action node said, as an assistant message."""
    return node.message or {"role": "assistant", "content": node.text}


def graded(
    fork: Fork,
    grader: Grader,
    producer: Producer,
    survival: RuleSurvival | None = None,
    *,
    valid: bool = True,
) -> list[Answer]:
    """Grade every draw of an arm; verdict nodes and the scores ``violation`` and ``survived`` are stored.

    A draw that failed is an error, one whose call cannot be read unparseable: neither has a score. Grading
    again stores nothing new. ``producer``: as :func:`rule_producer` makes one.
    """
    tree = fork.tree
    trajectories = dict(zip((d.draw for d in fork.draws), fork.leaves(), strict=True))
    tree.add_producer(producer)
    told = tree.add_producer(survival_producer(str(producer.config.get("rule"))))
    answers: list[Answer] = []
    drafts: list[NewNode] = []
    scores: list[Score] = []
    for draw in fork.draws:
        leaf = trajectories[draw.draw].leaf
        if draw.end == "error":
            answers.append(Answer(draw.draw, "error", draw.error or "the draw failed", leaf.id))
            continue
        found = grader(message_of(leaf))
        result: Result = found.outcome if valid else "invalid"
        tool = found.call.name if found.call is not None else None
        answers.append(Answer(draw.draw, result, found.reason, leaf.id, tool))
        extra = {"reason": found.reason, "valid": valid, "kept": survival.to_json() if survival else None}
        drafts.append(
            NewNode(kind="verdict", parent=leaf.id, key=f"rot/{producer.id}", text=result, extra=extra)
        )
        if valid and found.violation is not None:
            scores.append(Score(leaf.id, "violation", found.violation, producer.id, found.reason))
        if survival is not None:
            scores.append(Score(leaf.id, "survived", float(survival.survived), told, survival.survival))
    tree.commit(drafts, scores=scores)
    return answers


@dataclass(frozen=True, slots=True)
class Decay:
    """What one compaction did at one fork: violations after it minus before it, draw by draw.

    ``pairs``: draws graded in both arms; ``base`` and ``other`` are violations among them where the arms
    are ``paired``, else among all graded draws of an arm. ``interval`` and ``test`` are paired (Newcombe,
    McNemar exact) where both arms share their noise, else independent (Newcombe, Fisher); None where the
    history never reached the compactor's trigger (INVALID), or no draw could be graded.
    """

    stage: Stage
    control: tuple[Answer, ...]
    after: tuple[Answer, ...]
    survival: RuleSurvival | None
    paired: bool
    pairs: int
    base: int
    other: int
    gains: int
    losses: int
    interval: stats.Interval | None
    test: stats.Test | None
    forks: tuple[Fork, Fork] = field(repr=False, compare=False)

    @property
    def valid(self) -> bool:
        """Whether the compaction fired."""
        return self.stage.valid

    def to_json(self) -> Json:
        """Plain fields."""
        span, test = self.interval, self.test
        return {
            "condition": self.stage.condition,
            "compactor": self.stage.compactor,
            "valid": self.valid,
            "kept": self.survival.to_json() if self.survival else None,
            "paired": self.paired,
            "pairs": self.pairs,
            "control": self.base,
            "after": self.other,
            "gains": self.gains,
            "losses": self.losses,
            "decay": span.estimate if span else None,
            "low": span.low if span else None,
            "high": span.high if span else None,
            "method": span.method if span else None,
            "p": test.p if test else None,
            "test": test.method if test else None,
            "forks": [fork.record.id for fork in self.forks],
        }


@final
class GovernanceProbe:
    """Forks recorded sessions of one tree before and after a compaction, with any policy and any compactor.

    A policy that takes chat messages only forks at the ends of messages, which is all this needs.
    """

    def __init__(
        self,
        tree: Tree,
        policy: Policy,
        *,
        settings: Sampling | None = None,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self.tree = tree
        self.policy = policy
        self._settings = settings or Sampling(temperature=0.7)
        self._seed = seed
        self._progress = progress

    def record(
        self, messages: Sequence[Message], extra: Json | None = None, tools: Sequence[Json] = ()
    ) -> Point:
        """Put a session on the tree; where its last message has been read."""
        return plant(self.tree, self.policy, messages, extra, tools)

    def fork_at_compaction(
        self, point: Point, compactor: Compactor, rule: str, checker: Json, draws: int = 64
    ) -> Decay:
        """Run on from a point as it is, and after the compactor has had all but its last message.

        Any compactor may be tried at the same point: they share the control's draws and its noise.

        Raises:
            BadInput: the conversation at the point does not hold the rule, or the summary was empty.
            BadChange: nothing stands before the request.
            CannotDo: the point lies inside a turn and the policy takes chat messages only.
        """
        messages = self._messages(point)
        # The request is never compacted: a rule that stands there alone cannot be lost.
        if not holds(messages[:-1] if len(messages) > 1 else messages, rule):
            raise BadInput(
                "the control's context does not hold the rule, so there is nothing to lose",
                where=point.address,
                hint="name a rule whose words stand in the conversation before the request",
            )
        after = compact_conversation(messages, compactor)
        control = Stage("control", after.history, after.request, tools=after.tools)
        jobs = [
            job_of(point, self.policy, one, draws, settings=self._settings, seed=self._seed)
            for one in (control, after)
        ]
        base, other = run_jobs(jobs, progress=self._progress, stage=f"forks, {compactor.name}")
        return decay(base, other, after, rule, checker)

    def _messages(self, point: Point) -> list[Message]:
        trajectory = self.tree.path(point)
        messages = conversation(trajectory).messages
        # Ids are kept for a planted session as a whole; messages that came behind it have none.
        names = trajectory.leaf.extra.get("ids", []) if len(trajectory) == 1 else []
        if len(names) != len(messages) or not all(names):
            return [dict(m) for m in messages]
        return [{**m, "id": name} for m, name in zip(messages, names, strict=True)]


def decay(base: Fork, other: Fork, stage: Stage, rule: str, checker: Json) -> Decay:
    """Compare a control and a compacted arm of one point."""
    grader, producer = grader_of(checker), rule_producer(rule, checker)
    kept = stage.survival(rule)
    left = graded(base, grader, producer)
    right = graded(other, grader, producer, kept, valid=stage.valid)
    paired = is_paired(base, other)
    known = {"violation", "allowed", "refused"}
    x = {a.draw: a.result == "violation" for a in left if a.result in known}
    y = {a.draw: a.result == "violation" for a in right if a.result in known}
    both = sorted(x.keys() & y.keys())
    gains = sum(y[d] and not x[d] for d in both)
    losses = sum(x[d] and not y[d] for d in both)
    span: stats.Interval | None = None
    test: stats.Test | None = None
    if paired and both:
        x, y = {d: x[d] for d in both}, {d: y[d] for d in both}
    if both and paired:
        same = sum(x[d] and y[d] for d in both)
        span = stats.newcombe_paired(same, gains, losses, len(both) - same - gains - losses)
        test = stats.mcnemar(gains, losses)
    elif x and y:
        counts = (sum(x.values()), len(x)), (sum(y.values()), len(y))
        span, test = stats.newcombe(*counts).interval, stats.fisher(*counts)
    return Decay(
        stage, tuple(left), tuple(right), kept, paired, len(both), sum(x.values()), sum(y.values()),
        gains, losses, span, test, (base, other),
    )  # fmt: skip
