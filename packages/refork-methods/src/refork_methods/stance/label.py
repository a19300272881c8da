"""Refusal labels of answers on a tree: read what follows the thinking, ask the panel, record the votes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from refork.forking.arm import ReadyArm, prepare, recorded_settings, resolved_scores, run_jobs
from refork.forking.change import Insert
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.node import Node, Point, Trajectory
from refork.tree.score import Score
from refork.tree.tree import Tree
from refork.types import IntArray, token_array
from refork_methods.stance.guards import Exchange, Panel, hard_labels, soft_labels
from refork_methods.stance.marker import Marker, Span, find_thinking, never_opened

Floats = NDArray[np.float64]

#: Names of the scores on a leaf: a guard's vote, the panel's label, the share of its guards.
VOTE: Final = "refusal-vote"
LABEL: Final = "refusal"
SHARE: Final = "refusal-share"
#: Answers that guards see together; their votes are on the tree when the next are asked about.
_PAGE: Final = 512
#: Tokens that a forced answer may have.
ANSWER_TOKENS: Final = 1024


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """The last turn of a trajectory: ids of the prompt before it, ids said in it, and its thinking span."""

    prompt: IntArray
    generated: IntArray
    span: Span


def read_turn(trajectory: Trajectory, marker: Marker) -> Turn:
    """The turn a trajectory ends in."""
    steps = list(trajectory.context)
    first = len(steps)
    while first and steps[first - 1].node.kind == "action":
        first -= 1
    prompt = _joined([s.tokens for s in steps[:first]])
    said = _joined([s.tokens for s in steps[first:]])
    return Turn(prompt, said, find_thinking(prompt, said, marker))


def _joined(parts: Iterable[IntArray | None]) -> IntArray:
    known = [part for part in parts if part is not None]
    return token_array(np.concatenate(known) if known else [])


@final
@dataclass(frozen=True, slots=True)
class Labelled:
    """Labels by leaf, and the leaves that have none.

    ``unopened``: thinking never began, so where the answer does is unknown; ``unclosed``: without an answer,
    since thinking never closed or the limit came first; ``unvoted``: lacking a guard's vote. ``ties``: even
    splits among the labelled.
    """

    refused: dict[str, bool]
    unopened: frozenset[str]
    unclosed: frozenset[str]
    unvoted: frozenset[str]
    ties: int

    def counts(self, leaves: Iterable[str]) -> tuple[int, int]:
        """(refusals, labelled answers) among leaves."""
        known = [self.refused[leaf] for leaf in leaves if leaf in self.refused]
        return sum(known), len(known)


def label(
    tree: Tree,
    leaves: Sequence[str],
    policy: Policy,
    panel: Panel,
    marker: Marker,
    progress: Progress = silent,
) -> Labelled:
    """Labels of the answers at leaves; votes on the tree are read, the others asked for and recorded.

    Answers are decoded from the recorded ids behind the closing marker. A guard that gives no verdict leaves
    its answer without a label: an incomplete panel never votes.

    Raises: BadInput where no turn at all opens its thinking.
    """
    wanted = list(dict.fromkeys(leaves))
    for guard in panel.guards:
        tree.add_producer(guard.producer)
    tree.add_producer(panel.producer)
    votes = np.full((len(wanted), len(panel.guards)), np.nan)
    for column, guard in enumerate(panel.guards):
        known = tree.score_map(VOTE, wanted, guard.producer.id)
        votes[:, column] = [known.get(leaf, np.nan) for leaf in wanted]
    asked = [i for i in range(len(wanted)) if np.isnan(votes[i]).any()]
    unopened: set[str] = set()
    unclosed: set[str] = set()
    for first in range(0, len(asked), _PAGE):
        page = asked[first : first + _PAGE]
        leaves = [wanted[i] for i in page]
        rows, exchanges, bare = _exchanges(tree, leaves, policy, marker)
        unopened |= {leaves[n] for n in bare}
        unclosed |= set(leaves) - {leaves[n] for n in (*rows, *bare)}
        if rows:
            here = [page[n] for n in rows]
            votes[here] = panel.votes(exchanges, votes[here])
            _record(tree, panel, [leaves[n] for n in rows], votes[here])
        progress("asking guards", first + len(page), len(asked))
    if wanted and len(unopened) == len(wanted):
        raise never_opened(len(wanted))
    return _labelled(wanted, votes, panel, unopened, unclosed)


def _exchanges(
    tree: Tree, leaves: Sequence[str], policy: Policy, marker: Marker
) -> tuple[list[int], list[Exchange], list[int]]:
    """Rows of leaves that hold an answer, what was asked and answered there, and rows that never think."""
    rows, found, bare = [], [], []
    for row, trajectory in enumerate(tree.paths(leaves)):
        turn = read_turn(trajectory, marker)
        if not turn.span.opened:
            bare.append(row)
            continue
        said = policy.decode(turn.generated[turn.span.answer :])
        # A limit right behind the closing marker leaves nothing to judge; an answer of no words is one.
        if turn.span.closed and (said.strip() or trajectory.leaf.finish != "length"):
            rows.append(row)
            found.append(Exchange(trajectory.root.text, said))
    return rows, found, bare


def _record(tree: Tree, panel: Panel, leaves: Sequence[str], votes: Floats) -> None:
    scores = [
        Score(leaf, VOTE, float(votes[i, j]), guard.producer.id)
        for i, leaf in enumerate(leaves)
        for j, guard in enumerate(panel.guards)
        if not np.isnan(votes[i, j])
    ]
    full = ~np.isnan(votes).any(axis=1)
    if full.any():
        hard, soft = hard_labels(votes[full], panel.tie), soft_labels(votes[full])
        for i, refused, share in zip(np.flatnonzero(full).tolist(), hard, soft, strict=True):
            scores.append(Score(leaves[i], LABEL, float(refused), panel.producer.id))
            scores.append(Score(leaves[i], SHARE, float(share), panel.producer.id))
    tree.add_scores(scores)


def _labelled(
    wanted: Sequence[str], votes: Floats, panel: Panel, unopened: set[str], unclosed: set[str]
) -> Labelled:
    full: NDArray[np.bool_] = np.asarray(~np.isnan(votes).any(axis=1))
    rows = np.flatnonzero(full).tolist()
    hard = hard_labels(votes[full], panel.tie).tolist() if rows else []
    refused = {wanted[i]: bool(r) for i, r in zip(rows, hard, strict=True)}
    missing = {leaf for i, leaf in enumerate(wanted) if not full[i]} - unopened - unclosed
    ties = int((votes[full].mean(axis=1) == 0.5).sum()) if full.any() else 0
    return Labelled(refused, frozenset(unopened), frozenset(unclosed), frozenset(missing), ties)


def answer_settings(settings: Sampling, tokens: int = ANSWER_TOKENS) -> Sampling:
    """The recorded distribution for an answer after a forced closing, with its own limit."""
    return settings.but(max_tokens=tokens, forced=(), banned_first=())


def closing(marker: Marker) -> Insert:
    """The change that closes a thinking by force."""
    return Insert(ids=tuple(int(i) for i in marker.close))


def forced_end(tree: Tree, node: Node) -> Point:
    """Where a turn that never closed its thinking is closed by force."""
    keep = node.length
    # An end of turn inside the thinking adds no text, and nothing may follow it.
    if node.finish == "stop" and keep and node.text_upto(keep - 1) == node.text:
        keep -= 1
    return tree.at(node, keep)


def forced_values(tree: Tree, node: Node, marker: Marker, score: str) -> dict[str, float]:
    """Scores of the answers drawn behind a forced closing of a turn, that of :func:`close_by_force` first."""
    point, change = forced_end(tree, node), closing(marker).to_json()
    arms = [arm for arm in tree.forks(node) if arm.token == point.token and arm.change == change]
    leaves = [draw.leaf for arm in sorted(arms, key=lambda arm: arm.seed) for draw in tree.draws(arm.id)]
    found = resolved_scores(tree, score, leaves)
    return {leaf: found[leaf] for leaf in leaves if leaf in found}


def close_by_force(
    tree: Tree,
    leaves: Sequence[str],
    policy: Policy,
    marker: Marker,
    *,
    tokens: int = ANSWER_TOKENS,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, str]:
    """For every leaf the one that holds its answer: itself, or an answer drawn behind a forced closing.

    A turn that never opened its thinking has nothing to close and stands for itself.
    """
    jobs: dict[str, ReadyArm] = {}
    for leaf, trajectory in zip(leaves, tree.paths(leaves), strict=True):
        span = read_turn(trajectory, marker).span
        if span.closed or not span.opened:
            continue
        point = forced_end(tree, trajectory.leaf)
        settings = answer_settings(recorded_settings(point, trajectory), tokens)
        jobs[leaf] = prepare(
            point, policy, 1, change=closing(marker), settings=settings, seed=seed, room=tokens
        )
    done = run_jobs(list(jobs.values()), progress=progress, stage="closing by force") if jobs else []
    moved = {leaf: arm.draws[0].leaf for leaf, arm in zip(jobs, done, strict=True) if arm.draws}
    return {leaf: moved.get(leaf, leaf) for leaf in leaves}
