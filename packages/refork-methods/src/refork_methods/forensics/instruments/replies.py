"""Replies to something put at the end of a rollout: a question, a prefilled thought, the user's turn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import prepare, run_jobs
from refork.forking.change import Change
from refork.forking.context import conversation
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.node import NewNode, Point, Trajectory
from refork.types import Json, Message
from refork_methods.forensics.arm import Arm, End, Outcome
from refork_methods.forensics.design import Design
from refork_methods.forensics.evidence import EvidenceItem
from refork_methods.forensics.instruments.outcomes import same_model
from refork_methods.forensics.instruments.reading import Reader
from refork_methods.forensics.statistics import rate


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: where it is recorded, what it says, how it was read (None: the reader cannot say).

    ``rollout`` numbers the rollout that it follows. ``end``: ``done``, ``limit`` (cut off) or ``error``.
    """

    node: str
    fork: str
    rollout: int
    text: str
    label: str | None
    end: str


@dataclass(frozen=True, slots=True)
class Replies:
    """What an instrument of this kind found. ``upper_bound``: hits may be made by the instrument itself.

    ``reads`` says what the share of a label means, and what it does not. Rollouts are the units of the
    intervals where each has one reply; several replies to one rollout depend on each other, which
    ``warnings`` then says.
    """

    instrument: str
    asked: str
    labels: tuple[str, ...]
    replies: tuple[Reply, ...]
    grader: str
    subject: str
    reads: str
    confounds: tuple[str, ...] = ()
    upper_bound: bool = False
    warnings: tuple[str, ...] = ()

    def arm(self, hit: str, name: str | None = None) -> Arm:
        """The replies as an arm: those labelled ``hit`` against all other labelled ones.

        Raises: BadInput for a label that the reader cannot give.
        """
        if hit not in self.labels:
            raise BadInput(f"the reader gives no label {hit!r}", hint="labels: " + ", ".join(self.labels))
        ends = [Outcome(_end(r, hit), r.node, r.fork, note=r.label) for r in self.replies]
        return Arm.of(name or f"{self.instrument}: {hit}", ends, grader=self.grader, subject=self.subject)

    def shares(self, level: float = 0.95) -> dict[str, stats.Interval | None]:
        """Share of every label among labelled replies, Wilson interval; None where nothing was labelled."""
        arms = {label: self.arm(label) for label in self.labels}
        return {label: arm.interval(level) if arm.runs else None for label, arm in arms.items()}

    def evidence(
        self, hit: str, design: Design, *, name: str | None = None, looked_for: str | None = None
    ) -> EvidenceItem:
        """The share of a label as a row of a case, with this instrument's confounds and its upper-bound mark.

        ``design``: the registered design that was predicted about. ``looked_for``: set where the row is a
        search, whose few hits count only beside a positive control.

        Raises: BadInput for an unknown label, or where nothing was labelled.
        """
        arm = self.arm(hit, design.arms[0].name)
        return EvidenceItem(
            name or f"{design.name}: {hit}", design.id, design.instrument,
            rate(arm, bounds=arm.failed > 0), self.confounds, looked_for, self.upper_bound, self.reads,
        )  # fmt: skip

    def to_json(self) -> Json:
        """Plain fields."""
        arm = self.arm(self.labels[0])
        return {
            "instrument": self.instrument,
            "asked": self.asked,
            "reads": self.reads,
            "upper_bound": self.upper_bound,
            "shares": {
                label: None if i is None else {"rate": i.estimate, "low": i.low, "high": i.high}
                for label, i in self.shares().items()
            },
            "labelled": arm.runs,
            "unfinished": arm.unfinished,
            "failed": arm.failed,
            "confounds": list(self.confounds),
            "warnings": list(self.warnings),
            "replies": [
                {"node": r.node, "fork": r.fork, "rollout": r.rollout, "text": r.text, "label": r.label,
                 "end": r.end}
                for r in self.replies
            ],
        }  # fmt: skip


def _end(reply: Reply, hit: str) -> End:
    if reply.end == "error" or reply.label is None:
        return "unfinished" if reply.end == "limit" else "failed"
    return "hit" if reply.label == hit else "miss"


def last_said(end: Point) -> Point:
    """The end of what the policy said last on a trajectory; what closed the episode was never shown to it.

    A trajectory that ends with an open observation is left as it is: there the policy was still to answer.

    Raises: BadInput where the policy said nothing.
    """
    tree = end.tree
    if tree is None:
        raise BadInput("this point belongs to no tree; take it with tree.at(node)")
    trajectory = tree.path(end)
    for step in reversed(trajectory.context):
        if step.node.kind == "action":
            return Point(step.node, step.keep, tree)
        open_turn = step.node.tokens is not None and step.node.kind == "observation"
        if open_turn and trajectory.leaf.kind != "verdict":
            return Point(step.node, step.keep, tree)
    raise BadInput("the policy said nothing on this trajectory", where=f"node {end.node.id[:12]}")


def said_so_far(trajectory: Trajectory) -> tuple[Message, ...]:
    """The whole conversation of a trajectory, an open or finished turn of the policy at its end included."""
    talk = conversation(trajectory)
    if talk.pending is None:
        return talk.messages
    return (*talk.messages, {"role": "assistant", "content": talk.pending})


def put_message(end: Point, policy: Policy, content: str, instrument: str) -> Point:
    """A user message behind what the policy said last, recorded as an edit; the same message again is found.

    Raises: BadInput as :func:`last_said`.
    """
    at = last_said(end)
    tree = at.tree
    assert tree is not None
    trajectory = tree.path(at)
    before, message = said_so_far(trajectory), {"role": "user", "content": content}
    exact = policy.card.can("tokens")
    rendered = policy.render(list(before), trajectory.tokens, [message]) if exact else None
    # The key of the node: the same question asked again is found, and its replies are not drawn again.
    mark = hashlib.blake2b(json.dumps([instrument, content]).encode(), digest_size=8).hexdigest()
    extra: Json = {"edit": "question", "instrument": instrument}
    draft = NewNode(
        kind="observation", parent=at.node.id, keep=at.keep if at.mid_node else None, key=f"ask/{mark}",
        text=content, tokens=rendered.tokens if rendered and not rendered.rewrites else None,
        message=message, extra=extra,
    )  # fmt: skip
    node = tree.append([draft])[0]
    if rendered is None or not rendered.rewrites:
        return tree.at(node)
    whole = NewNode(
        kind="rewrite", parent=node.id, key=f"ask/{mark}/r", text=rendered.text, tokens=rendered.tokens,
        policy=policy.card.name,
        extra={"messages": [*before, message], "reason": "the chat template changed the context"},
    )  # fmt: skip
    return tree.at(tree.append([whole])[0])


def collect(
    points: Sequence[Point],
    policy: Policy,
    draws: int,
    reader: Reader,
    *,
    instrument: str,
    asked: str,
    reads: str,
    confounds: tuple[str, ...],
    upper_bound: bool = False,
    change: Change | None = None,
    settings: Sampling | None = None,
    room: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Replies:
    """``draws`` turns of the policy from every point, one batch, read.

    ``room``: tokens that each may have, where what the change puts in is no part of a turn of the policy's.

    Raises: BadInput without points; CannotDo where the policy cannot go on from there.
    """
    if not points:
        raise BadInput("there is no rollout to ask about")
    jobs = [prepare(p, policy, draws, change=change, settings=settings, seed=seed, room=room) for p in points]
    blank: list[Reply] = []
    for number, fork in enumerate(run_jobs(jobs, progress=progress, stage=instrument)):
        # A tree may hold more draws of this fork than were asked for now.
        wanted = [d for d in fork.draws if d.draw < draws]
        nodes = {n.id: n for n in fork.tree.nodes([d.leaf for d in wanted])}
        for draw in wanted:
            text = nodes[draw.leaf].text if draw.end != "error" else (draw.error or "")
            blank.append(Reply(draw.leaf, draw.fork, number, text, None, draw.end))
    # A broken draw said nothing that could be read, so it takes no label from the reader.
    read = iter(reader.read([r.text for r in blank if r.end != "error"]))
    replies = tuple(r if r.end == "error" else replace(r, label=next(read)) for r in blank)
    warnings = same_model(reader, policy)
    if draws > 1 and len(points) > 1:
        warnings += (
            f"{draws} replies to each rollout depend on each other: the intervals hold for one reply each",
        )
    return Replies(
        instrument, asked, reader.labels, replies, reader.producer.id, subject_of(policy), reads, confounds,
        upper_bound, warnings,
    )  # fmt: skip


def subject_of(policy: Policy) -> str:
    """The policy's weights digest, else its name."""
    return policy.card.weights or policy.card.name
