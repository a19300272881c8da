"""Causal cuts on a tree: label the thinking of recorded rollouts, fork around every turn of stance, judge.

Source: arXiv 2606.25013. There a tie of the guards counts as a refusal in this replay and as compliance
elsewhere; here one panel with one declared rule labels everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput, BadPoint
from refork.forking.arm import ReadyArm, prepare, recorded_settings
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Node, Point
from refork_methods.stance.agreement import fleiss_kappa
from refork_methods.stance.batches import run_batches
from refork_methods.stance.cuts import Counts, CutTable, Locked, judge_cuts
from refork_methods.stance.guards import Panel
from refork_methods.stance.label import ANSWER_TOKENS, Labelled, answer_settings, closing, label, read_turn
from refork_methods.stance.marker import Marker, Span, never_opened
from refork_methods.stance.prompts import Case
from refork_methods.stance.segments import (
    LOOP,
    Annotator,
    BatchAnnotator,
    Chunk,
    Oscillation,
    annotate,
    chunks,
    majority,
    oscillations,
)

Chunker = Callable[[str], list[Chunk]]
#: What becomes of a trace; only those kept are forked.
FATES: Final = ("kept", "loop", "unresolved", "unopened", "unclosed")


@final
@dataclass(frozen=True, slots=True)
class StanceTrace:
    """A rollout with the stance of its thinking.

    ``ends``: tokens of the node that stand at the end of each chunk. ``labels``: NaN where the annotators did
    not agree. ``fate``: kept, loop, unresolved, unopened or unclosed.
    """

    case: Case
    node: Node
    chunks: tuple[Chunk, ...]
    ends: tuple[int, ...]
    votes: NDArray[np.float64]
    labels: NDArray[np.float64]
    fate: str

    def turns(self, least_before: int = 1, least_after: int = 1) -> list[Oscillation]:
        """Oscillations of a trace that was kept; none of another."""
        return oscillations(self.labels, least_before, least_after) if self.fate == "kept" else []


def stance_trace(
    case: Case,
    node: Node,
    marker: Marker,
    annotators: Sequence[Annotator | BatchAnnotator],
    *,
    chunker: Chunker = chunks,
    loop: int = LOOP,
    force_unclosed: bool = False,
) -> StanceTrace:
    """The stance of a rollout's thinking.

    Set apart unlabelled: a trace of more than ``loop`` chunks, one that never opens its thinking, and, unless
    ``force_unclosed``, one that never closes it.

    Raises: BadInput for an even number of annotators.
    """
    if len(annotators) % 2 == 0:
        raise BadInput("stance labels need an odd number of annotators", where="stance", hint="better three")
    turn = read_turn(case.tree.path(node), marker)
    none = np.zeros((0, len(annotators)))
    if not turn.span.closed and not (turn.span.opened and force_unclosed):
        fate = "unclosed" if turn.span.opened else "unopened"
        return StanceTrace(case, node, (), (), none, np.zeros(0), fate)
    text, ends = _thinking_text(node, turn.span)
    parts = chunker(text)
    # The first token that reaches a chunk's end is kept whole, also where it holds text of the next chunk.
    stops = tuple(turn.span.begin + 1 + int(np.searchsorted(ends, part.end)) for part in parts)
    if len(parts) > loop:
        return StanceTrace(case, node, tuple(parts), stops, none, np.zeros(0), "loop")
    votes = annotate(annotators, case.root.node.text, [part.text for part in parts])
    labels = majority(votes)
    fate = "unresolved" if np.isnan(labels).any() else "kept"
    return StanceTrace(case, node, tuple(parts), stops, votes, labels, fate)


def _thinking_text(node: Node, span: Span) -> tuple[str, NDArray[np.int64]]:
    """The thinking as text and the end of each of its tokens in it (characters)."""
    if node.offsets is None:
        raise BadPoint("this rollout records no token offsets", where=f"node {node.id[:12]}")
    start = int(node.offsets[span.begin - 1]) if span.begin else 0
    ends = np.asarray(node.offsets[span.begin : span.end], dtype=np.int64) - start
    return node.text[start : start + (int(ends[-1]) if len(ends) else 0)], ends


@final
@dataclass(frozen=True, slots=True)
class CutPosition:
    """Where a judged cut stands: prompt, rollout, and its tokens kept before and behind the turn."""

    prompt: str
    node: str
    before: int
    after: int


@final
@dataclass(frozen=True, slots=True)
class CausalCuts:
    """Judged cuts with their places, and counts of traces by fate.

    ``per_trace`` and ``meaningful_per_trace`` are means over kept traces, ``with_turns`` the share of them
    that has a turn, ``kappa`` Fleiss' of the annotators. ``left_out``: turns without a labelled answer on one
    side; ``unclosed``: draws that hold no answer, ``unvoted``: answers that lack a guard's vote.
    """

    table: CutTable
    positions: tuple[CutPosition, ...]
    traces: dict[str, int]
    per_trace: float | None
    meaningful_per_trace: float | None
    with_turns: stats.Interval | None
    kappa: float | None
    left_out: int
    unclosed: int
    unvoted: int
    ties: int


def causal_cuts(
    traces: Sequence[StanceTrace],
    policy: Policy,
    panel: Panel,
    marker: Marker,
    *,
    k: int = 100,
    alpha: float = 0.05,
    locked: Locked = "pre",
    least: tuple[int, int] = (1, 1),
    answer_tokens: int = ANSWER_TOKENS,
    seed: int = 0,
    progress: Progress = silent,
) -> CausalCuts:
    """Fork around every oscillation, close the thinking by force, draw ``k`` answers a side, and judge.

    All cuts given are one family. The cut behind one turn may be the cut before the next: it is drawn once.

    Raises: BadInput for no traces, none whose thinking opens and ends, or fewer than two answers a side; as
    ``fork``.
    """
    if not traces or k < 2:
        raise BadInput("causal cuts need a trace, and two answers a side", where="cuts")
    _need_usable(traces)
    turns = [(trace, turn) for trace in traces for turn in trace.turns(*least)]
    wanted = {(t.node.id, keep): t for t, turn in turns for keep in _keeps(t, turn)}
    jobs = _jobs(wanted, policy, marker, k, answer_tokens, seed)
    arms = run_batches(jobs, len(wanted), "answering around turns", progress)
    # An earlier run that asked for more answers may have left them on the tree.
    leaves = {
        name: [d.leaf for d in arm.draws if d.end != "error" and d.draw < k] for name, arm in arms.items()
    }
    asked = [leaf for mine in leaves.values() for leaf in mine]
    found = label(traces[0].case.tree, asked, policy, panel, marker, progress)
    counts, places = [], []
    for trace, turn in turns:
        keeps = _keeps(trace, turn)
        sides = [found.counts(leaves[trace.node.id, keep]) for keep in keeps]
        if all(answers for _, answers in sides):
            complied = [(answers - refused, answers) for refused, answers in sides]
            counts.append(Counts(complied[0], complied[1], turn.after.sign))
            places.append(CutPosition(trace.case.id, trace.node.id, *keeps))
    table = judge_cuts(counts, alpha=alpha, locked=locked)
    return _summary(traces, table, places, turns, found)


def _need_usable(traces: Sequence[StanceTrace]) -> None:
    fates = Counter(trace.fate for trace in traces)
    if fates["unopened"] == len(traces):
        raise never_opened(len(traces))
    if fates["unopened"] + fates["unclosed"] == len(traces):
        raise BadInput(
            f"none of {len(traces)} traces can be read: {fates['unclosed']} never close their thinking, "
            f"{fates['unopened']} never open it",
            where="cuts",
            hint="allow it to be closed by force (force_close), or raise the token limit",
        )


def _keeps(trace: StanceTrace, turn: Oscillation) -> tuple[int, int]:
    """Tokens of the rollout that stand at the cut before and at the cut behind a turn."""
    return trace.ends[turn.before.end - 1], trace.ends[turn.after.end - 1]


def _jobs(
    wanted: dict[tuple[str, int], StanceTrace], policy: Policy, marker: Marker, k: int, tokens: int, seed: int
) -> Iterator[tuple[tuple[str, int], ReadyArm]]:
    change = closing(marker)
    for (id_, keep), trace in wanted.items():
        tree = trace.case.tree
        own = recorded_settings(Point(trace.node), tree.path(trace.node))
        key = stream_of("causal cut", seed, trace.case.id, id_, keep) >> 33
        job = prepare(
            tree.at(trace.node, keep),
            policy,
            k,
            change=change,
            settings=answer_settings(own, tokens),
            seed=key,
            room=tokens,
        )
        yield (id_, keep), job


def _summary(
    traces: Sequence[StanceTrace],
    table: CutTable,
    places: Sequence[CutPosition],
    turns: Sequence[tuple[StanceTrace, Oscillation]],
    found: Labelled,
) -> CausalCuts:
    fates = {fate: sum(t.fate == fate for t in traces) for fate in FATES}
    kept = [trace for trace in traces if trace.fate == "kept"]
    votes = np.concatenate([t.votes for t in traces if len(t.votes)] or [np.zeros((0, 1))])
    votes = votes[~np.isnan(votes).any(axis=1)]
    # Traces are the units of this share: several turns in one trace are one trace with turns.
    moved = len({t.node.id for t, _ in turns})
    return CausalCuts(
        table, tuple(places), fates,
        len(turns) / len(kept) if kept else None,
        sum(cut.meaningful for cut in table.cuts) / len(kept) if kept else None,
        stats.wilson(moved, len(kept)) if kept else None,
        fleiss_kappa(votes) if len(votes) and votes.shape[1] > 1 else None,
        len(turns) - len(places), len(found.unclosed), len(found.unvoted), found.ties,
    )  # fmt: skip
