"""Traces out of a recorded tree, and a tree of chosen or shortened ones; only this file knows trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork.forking.arm import resolved_scores
from refork.tree.address import is_address
from refork.tree.node import NewNode, Node, Trajectory, node_id
from refork.tree.node import Step as Kept
from refork.tree.records import Record
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.sqlite import is_database
from refork.tree.tree import Tree
from refork_methods.recovery.jsonl import read_jsonl, write_jsonl
from refork_methods.recovery.traces import Step, Trace, label_of


def tree_traces(tree: Tree, score: str = "success") -> list[Trace]:
    """One trace per graded leaf of a tree.

    Actions are steps, those in a row one; the task or observation before one is what was seen. The outcome is
    the world's grade, else the newest. Leaves without the score are left out, for nobody said how they ended.

    Raises:
        BadInput: no leaf has the score.
    """
    leaves = list(tree.leaves())
    outcomes = resolved_scores(tree, score, [leaf.id for leaf in leaves])
    graded = [leaf for leaf in leaves if leaf.id in outcomes]
    if not graded:
        raise BadInput(
            f"no leaf of this tree has a {score!r} score, so no trace has an outcome",
            where=tree.uri or "tree in memory",
            hint=f"--score names another; this tree has: {tree.named_scores()}",
        )
    return [_trace(trajectory, outcomes[trajectory.leaf.id], score) for trajectory in tree.paths(graded)]


def _trace(trajectory: Trajectory, outcome: float, score: str) -> Trace:
    steps: list[Step] = []
    seen: list[Kept] = []
    kept_steps = (kept for kept in trajectory if kept.node.kind != "verdict")
    for acts, group in groupby(kept_steps, lambda kept: kept.node.kind == "action"):
        if acts:
            steps.append(_step(seen, list(group)))
            seen = []
        else:
            seen = list(group)
    end = _step(seen, []) if seen and steps else None
    return Trace(trajectory.leaf.id, tuple(steps), end, outcome, {"_form": "tree", "score": score})


def _step(seen: Sequence[Kept], turn: Sequence[Kept]) -> Step:
    return Step(
        state=seen[-1].text if seen else "",
        # Actions in a row are parts of one text, as where a turn was cut and carried on.
        action="".join(kept.text for kept in turn),
        recorded=seen[-1].node.state_key if seen else None,
        label=label_of(kept.node.extra.get("backtrack") for kept in turn),
        observed=tuple(seen),
        actions=tuple(turn),
    )


def write_tree(traces: Sequence[Trace], source: Tree, target: Tree) -> int:
    """Copy traces that came from ``source`` into another tree; how many nodes are new.

    Unchanged trajectories are copied whole, scores included. A shortened one becomes new nodes below the same
    task: its tokens are those recorded, its log-probs are not known (nobody sampled it), and its outcome is
    given by the producer ``shortened-trace``.

    Raises:
        BadInput: a trace that did not come from a tree.
    """
    foreign = next((t for t in traces if t.rest.get("_form") != "tree"), None)
    if foreign is not None:
        raise BadInput("this trace did not come from a tree", where=foreign.name)
    before = len(target)
    whole = [trace.name for trace in traces if not trace.changed]
    wanted = {step.node.id for trajectory in source.paths(whole) for step in trajectory}
    wanted |= {t.steps[0].observed[0].node.id for t in traces if t.changed and t.steps}
    target.load(_records(source, wanted))
    for trace in traces:
        if trace.changed:
            _append_shortened(trace, source, target)
    return len(target) - before


def _records(source: Tree, wanted: set[str]) -> Iterator[Record]:
    for record in source.records():
        if isinstance(record, Node) and record.id not in wanted:
            continue
        if isinstance(record, Score) and record.node not in wanted:
            continue
        if isinstance(record, DrawRecord) and record.leaf not in wanted:
            continue
        # An arm may start in a node that no chosen trajectory holds.
        if isinstance(record, ForkRecord) and record.node not in wanted:
            continue
        yield record


def _append_shortened(trace: Trace, source: Tree, target: Tree) -> None:
    pieces = [kept for step in trace.steps for kept in (*step.observed, *step.actions)]
    pieces += list(trace.end.observed) if trace.end is not None else []
    drafts: list[NewNode] = []
    parent = pieces[0].node.id
    for number, kept in enumerate(pieces[1:], start=1):
        key = f"shortened/{trace.name}/{number}"
        drafts.append(_draft(kept, parent, key))
        # A node's id follows from parent and key, so the whole chain is named before any of it is stored.
        parent = node_id(parent, None, kept.node.kind, key)
    read = [s.producer for s in source.scores(node=trace.name, name=str(trace.rest["score"]))]
    producer = Producer("shortened-trace", "1", {"score": trace.rest["score"]}, tuple(sorted(set(read))))
    target.add_producer(producer)
    reason = f"outcome of {trace.name[:12]}, from which detours were taken out"
    score = Score(parent, str(trace.rest["score"]), trace.outcome, producer.id, reason)
    target.commit(drafts, (), [score])


def _draft(kept: Kept, parent: str, key: str) -> NewNode:
    node = kept.node
    tokens = kept.tokens
    offsets = None if node.offsets is None else node.offsets[: kept.keep]
    return NewNode(
        kind=node.kind,
        parent=parent,
        key=key,
        text=kept.text,
        tokens=tokens,
        offsets=offsets,
        message=node.message if kept.keep is None else None,
        state_key=node.state_key,
        origin=node.origin,
        extra={"shortened_from": node.id},
    )


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The traces of a file, and whether it is a tree."""

    path: Path
    tree: bool
    traces: list[Trace]

    def write(self, traces: Sequence[Trace], out: Path) -> int:
        """Write traces of this file to another, in the same format; how many traces.

        Raises:
            BadInput: the other file exists.
        """
        if out.exists():
            raise BadInput("the file exists already", where=str(out), hint="name another")
        part = out.with_name(f".{out.name}.part")
        part.unlink(missing_ok=True)
        try:
            if self.tree:
                with Tree.open(self.path, "r") as source, Tree.open(part, "x") as target:
                    write_tree(traces, source, target)
            else:
                with part.open("w", encoding="utf-8") as lines:
                    write_jsonl(traces, lines)
            part.replace(out)
        finally:
            # With the journals that SQLite may have left beside the file.
            for left in out.parent.glob(f".{out.name}.part*"):
                left.unlink(missing_ok=True)
        return len(traces)


def read_traces(path: Path, *, outcome: str | None = None, score: str = "success") -> TraceFile:
    """The traces of a tree file, of OpenAI chat JSON lines, or of step-list JSON lines.

    Args:
        path: the file.
        outcome: field of a line that holds its outcome; None looks for outcome, success, reward.
        score: score of a tree's leaves that is their outcome.

    Raises:
        BadInput: no such file, no trace in it, or one without an outcome.
    """
    if not (is_address(path) or path.is_file()):
        raise BadInput("there is no such file", where=str(path))
    is_tree = is_database(path)
    found: list[Any]
    if is_tree:
        with Tree.open(path, "r") as tree:
            found = tree_traces(tree, score)
    else:
        found = read_jsonl(path, outcome)
    if not found:
        raise BadInput("the file holds no trace", where=str(path))
    return TraceFile(path, is_tree, found)
