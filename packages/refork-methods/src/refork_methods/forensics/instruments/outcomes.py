"""What became of the draws of a fork, as outcomes of an arm: nothing is silent, one grader sees all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from refork.errors import BadInput
from refork.judge import Verdict
from refork.tree.node import Trajectory
from refork.tree.score import DrawRecord, Producer, Score
from refork_methods.forensics.arm import Arm, End, Outcome

if TYPE_CHECKING:
    from refork.forking.arm import Fork
    from refork.judge import Judge
    from refork.policies.base import Policy
    from refork.tree.tree import Tree
    from refork.types import Json


def grade(tree: Tree, leaves: Sequence[str], grader: Judge) -> dict[str, Verdict]:
    """The verdict on every leaf by this very grader, asked only where none of its own is on record.

    Rollouts that another grader saw are graded again, so no comparison mixes two graders.
    """
    producer = tree.add_producer(grader.producer)
    leaves = list(dict.fromkeys(leaves))
    known = tree.score_map(grader.score, leaves, producer=producer)
    found = {leaf: Verdict(value) for leaf, value in known.items()}
    for leaf, value in known.items():
        if value == 0.0:  # why it was no hit: the reason says whether it asked
            score = next(tree.scores(node=leaf, name=grader.score, producer=producer), None)
            found[leaf] = Verdict(value, score.reason if score else None)
    missing = [leaf for leaf in leaves if leaf not in known]
    fresh: list[Score] = []
    for leaf, trajectory in zip(missing, tree.paths(missing), strict=True):
        found[leaf] = verdict = grader.judge(trajectory)
        # What nobody could grade leaves no score on the tree, and is asked about again the next time.
        if verdict.value is not None:
            fresh.append(Score(leaf, grader.score, float(verdict.value), producer, verdict.reason))
    tree.add_scores(fresh)
    return found


def outcomes(arm: Fork, grader: Judge, draws: int | None = None) -> dict[int, Outcome]:
    """How each of a fork's first ``draws`` draws ended (None: all); the grader says 1 (done) or 0 (not).

    A verdict whose reason is "asked" or "unfinished" says that too. A draw that was cut off is a hit where
    the act was done already, else unfinished. One that nobody graded counts as failed, with a note.

    Raises: BadInput where the grader gives another number.
    """
    mine = [d for d in arm.draws if draws is None or d.draw < draws]
    verdicts = grade(arm.tree, [d.leaf for d in mine if d.end != "error"], grader)
    return {d.draw: outcome_of(d, verdicts.get(d.leaf), grader.score) for d in mine}


def outcome_of(draw: DrawRecord, verdict: Verdict | None, score: str) -> Outcome:
    """How one draw ended; ``verdict`` None: it broke. Raises BadInput where a grade is neither 1 nor 0."""
    if verdict is None:
        return Outcome("failed", draw.leaf, draw.fork, note=draw.error)
    end = end_of(verdict, f"score {score} of node {draw.leaf[:12]}", cut=draw.end == "limit")
    note = verdict.reason or ("ungraded" if verdict.value is None else None)
    return Outcome(end, draw.leaf, draw.fork, note=note)


def end_of(verdict: Verdict, where: str, *, cut: bool = False) -> End:
    """How a rollout ended by its verdict; ``cut``: at a limit. Raises BadInput for neither 1 nor 0."""
    if verdict.value is None:
        return "unfinished" if verdict.reason == "unfinished" or cut else "failed"
    # A draw that was cut off may still have done the act before; if not, it could have gone either way.
    if check_hit(verdict.value, where):
        return "hit"
    if cut or verdict.reason == "unfinished":
        return "unfinished"
    return "asked" if verdict.reason == "asked" else "miss"


def check_hit(value: float, where: str) -> bool:
    """Whether a grade says that the act was done; raises BadInput where it is neither 1 nor 0."""
    if value not in (0.0, 1.0):
        raise BadInput(f"the grader gave {value:g}; the act in question is done (1) or not (0)", where=where)
    return value == 1.0


def arm_of(
    name: str, fork: Fork, grader: Judge, draws: int | None = None, *, dose: float | None = None
) -> Arm:
    """A fork's draws counted as an arm, with its nodes, its grader and its subject."""
    card = fork.record.policy
    return Arm.of(
        name, outcomes(fork, grader, draws).values(), grader=grader.producer.id,
        subject=str(card.get("weights") or card.get("name")), dose=dose,
    )  # fmt: skip


def same_model(grader: object, policy: Policy) -> tuple[str, ...]:
    """A warning where the judge is the model under examination: it may excuse itself."""
    producer = getattr(grader, "producer", None)
    config: Json = producer.config if isinstance(producer, Producer) else {}
    card = policy.card
    weights = config.get("weights")
    if weights is not None and weights in (card.weights, card.name):
        return (f"judge and subject are the same checkpoint ({card.name}): it judges itself",)
    return ()


def reply_text(trajectory: Trajectory) -> str:
    """Text that the policy said after the last message it saw."""
    parts: list[str] = []
    for step in trajectory:
        if step.node.kind == "action":
            parts.append(step.text)
        elif step.node.kind in ("observation", "task", "rewrite"):
            parts = []
    return "".join(parts)
