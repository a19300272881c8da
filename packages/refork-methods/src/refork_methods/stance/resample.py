"""Continuation variance on a tree: cut recorded thinking, close it or let it go on, and label the answers.

Every arm is a fork at an exact token of a recorded rollout. Its seed is a hash of (prompt, prefix, cut,
mode), so arms are independent, and a draw that is on the tree is never drawn again: an interrupted run goes
on.

Source: arXiv 2606.25013 removes the rest of the thinking (``force_close``); resampling it (``free``) is our
own, and so is the choice to draw forced extra thinking once per prefix, which the source leaves open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, final

import numpy as np

from refork.errors import BadInput
from refork.forking.arm import Fork, ReadyArm, prepare, recorded_settings, run_jobs
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Node, Point
from refork.tree.tree import Tree
from refork_methods.stance.batches import run_batches
from refork_methods.stance.guards import Panel
from refork_methods.stance.label import (
    ANSWER_TOKENS,
    answer_settings,
    close_by_force,
    closing,
    label,
    read_turn,
)
from refork_methods.stance.marker import Marker, Span, never_opened, same_ids
from refork_methods.stance.prompts import Case, choose, rollouts
from refork_methods.stance.variance import (
    MODES,
    Group,
    Mode,
    Parts,
    Unit,
    VarianceAt,
    estimated_parts,
    variance_at,
)

#: Cut, mode and rollout of an arm; cut 0, no mode and the prompt for complete rollouts.
Name = tuple[float, Mode | None, str]
CUTS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)


@final
@dataclass(frozen=True, slots=True)
class Prefix:
    """A rollout that is cut: its prompt, its node and its thinking span."""

    case: Case
    node: Node
    span: Span


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One cut in one mode; cut 0 are complete rollouts, one group per prompt.

    ``parts``: the decomposition averaged over prompts, None where no prompt has two prefixes.
    """

    cut: float
    mode: Mode | None
    variance: VarianceAt | None
    parts: Parts | None
    groups: tuple[Group, ...]


@final
@dataclass(frozen=True, slots=True)
class Uncut:
    """Chosen rollouts that were not cut: thinking of no tokens, never opened, or never closed."""

    empty: int
    unopened: int
    unclosed: int


@final
@dataclass(frozen=True, slots=True)
class VarianceTable:
    """V at every cut, and what is missing from it.

    ``unopened``: rollouts that never open their thinking, so that where the answer begins is unknown;
    ``unclosed``: answers that never came because thinking never closed; ``unvoted``: answers that lack a
    guard's vote; ``errors``: failed draws; ``short``: prefixes that could not be extended. ``uncut``: chosen
    rollouts that were not cut. ``bare``: prompts without a rollout. ``ties``: even splits.
    """

    rows: tuple[Row, ...]
    unopened: int
    unclosed: int
    unvoted: int
    errors: int
    short: int
    uncut: Uncut
    bare: int
    ties: int

    def at(self, cut: float, mode: Mode | None = None) -> VarianceAt | None:
        """V of a cut in a mode. Raises BadInput where it was not measured."""
        for row in self.rows:
            if row.cut == cut and (row.mode == mode or cut == 0):
                return row.variance
        raise BadInput(f"V at {cut:g} in mode {mode} was not measured")


@dataclass(slots=True)
class _Work:
    """What the steps of one call share."""

    tree: Tree
    policy: Policy
    marker: Marker
    draws: int
    tokens: int
    seed: int
    progress: Progress
    short: int = 0

    def key(self, prefix: Prefix, cut: float, mode: str) -> int:
        return stream_of("continuation", self.seed, prefix.case.id, prefix.node.id, f"{cut:g}", mode) >> 33


def check_cuts(cuts: Sequence[float], modes: Sequence[str]) -> None:
    """Refuse cuts and modes that make no sense. Raises BadInput."""
    if not cuts or len(set(cuts)) < len(cuts) or any(not (c > 0 and np.isfinite(c)) for c in cuts):
        raise BadInput(
            f"cuts {list(cuts)} must be different shares above 0",
            where="cuts",
            hint="complete rollouts (0 %) are always shown beside them",
        )
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes or len(set(modes)) < len(modes):
        raise BadInput(f"unknown modes {list(modes)}", where="modes", hint="force_close, free or both")


def prefixes_of(
    cases: Sequence[Case], policy: Policy, marker: Marker, count: int, seed: int, force_unclosed: bool
) -> tuple[list[Prefix], Uncut]:
    """The rollouts that are cut, ``count`` per prompt by a seeded draw; and those chosen that are not.

    One that never closes its thinking is cut with ``force_unclosed`` alone.

    Raises: BadInput where no prompt has a rollout, or none of those chosen has thinking that can be cut.
    """
    found: list[Prefix] = []
    fates = {"empty": 0, "unopened": 0, "unclosed": 0}
    chosen = 0
    for case in cases:
        nodes = choose(rollouts(case, policy.card), count, case, seed)
        chosen += len(nodes)
        for node, trajectory in zip(nodes, case.tree.paths(nodes), strict=True):
            span = read_turn(trajectory, marker).span
            fate = uncut_fate(span, force_unclosed)
            if fate is None:
                found.append(Prefix(case, node, span))
            else:
                fates[fate] += 1
    if not chosen:
        raise BadInput("no rollout of this policy is under these prompts", hint="draw rollouts first")
    if not found:
        if fates["unopened"] == chosen:
            raise never_opened(chosen)
        raise BadInput(
            f"none of {chosen} rollouts can be cut: {fates['empty']} think nothing, "
            f"{fates['unopened']} never open their thinking, {fates['unclosed']} never close it",
            where="variance",
            hint="allow it to be closed by force (force_close), or raise the token limit",
        )
    return found, Uncut(**fates)


def uncut_fate(span: Span, force_unclosed: bool) -> str | None:
    """Why a thinking cannot be cut: unopened, unclosed or empty; None where it can."""
    if not span.opened:
        return "unopened"
    if not span.closed and not force_unclosed:
        return "unclosed"
    return None if span.length else "empty"


def continuation_variance(
    cases: Sequence[Case],
    policy: Policy,
    panel: Panel,
    marker: Marker,
    *,
    cuts: Sequence[float] = CUTS,
    n_prefix: int = 8,
    n_cont: int = 8,
    modes: Sequence[Mode] = MODES,
    force_unclosed: bool = False,
    answer_tokens: int = ANSWER_TOKENS,
    seed: int = 0,
    resamples: int = 1000,
    unit: Unit = "nested",
    progress: Progress = silent,
) -> VarianceTable:
    """V at every cut in every mode, and of the complete rollouts.

    A cut keeps ``max(1, floor(cut * length))`` thinking tokens of a recorded rollout; above 1 the thinking is
    first carried on by the share that is missing, its closing banned. ``force_close`` puts the marker there
    and draws ``n_cont`` answers of up to ``answer_tokens``; ``free`` lets the policy think on.
    ``force_unclosed`` closes by force what never closes by itself; without it such a trace is not cut, such a
    draw left out, and both are counted. At the end of a trace that never closed, both modes close by force.

    Raises: BadInput as ``check_cuts`` and ``prefixes_of``; CannotDo, Mismatch as ``fork``.
    """
    check_cuts(cuts, modes)
    if n_prefix < 1 or n_cont < 2:
        raise BadInput("at least one prefix per prompt and two continuations are needed", where="variance")
    if not cases:
        raise BadInput("there are no prompts", where="variance")
    prefixes, uncut = prefixes_of(cases, policy, marker, n_prefix, seed, force_unclosed)
    work = _Work(cases[0].tree, policy, marker, n_cont, answer_tokens, seed, progress)
    answers, errors = _answers(work, cases, prefixes, cuts, modes)
    if force_unclosed:
        leaves = [leaf for mine in answers.values() for leaf in mine]
        where = close_by_force(
            work.tree, leaves, policy, marker, tokens=answer_tokens, seed=seed, progress=progress
        )
        answers = {name: [where[leaf] for leaf in mine] for name, mine in answers.items()}
    leaves = [leaf for mine in answers.values() for leaf in mine]
    found = label(work.tree, leaves, policy, panel, marker, progress)
    counts = {name: found.counts(mine) for name, mine in answers.items()}
    whole = [Group(case.intent, case.id, "", *counts[0.0, None, case.id]) for case in cases]
    rows = [_row(0.0, None, whole, seed, resamples, unit)]
    for cut, mode in product(cuts, modes):
        mine = [
            Group(p.case.intent, p.case.id, p.node.id, *counts[cut, mode, p.node.id])
            for p in prefixes
            if (cut, mode, p.node.id) in counts
        ]
        rows.append(_row(cut, mode, mine, seed, resamples, unit))
    bare = sum(not answers[0.0, None, case.id] for case in cases)
    return VarianceTable(
        tuple(rows), len(found.unopened), len(found.unclosed), len(found.unvoted), errors, work.short, uncut,
        bare, found.ties,
    )  # fmt: skip


def _answers(
    work: _Work,
    cases: Sequence[Case],
    prefixes: Sequence[Prefix],
    cuts: Sequence[float],
    modes: Sequence[Mode],
) -> tuple[dict[Name, list[str]], int]:
    """The leaves of every arm and of the complete rollouts, and how many draws failed."""
    # The rollouts are listed first: what is drawn from here on hangs below them.
    found: dict[Name, list[str]] = {
        (0.0, None, case.id): [node.id for node in rollouts(case, work.policy.card)] for case in cases
    }
    starts = _starts(work, prefixes, cuts)
    total = len(starts) * len(modes)
    arms = run_batches(_jobs(work, starts, modes), total, "answering after cuts", work.progress)
    _check_prefixes(work.tree, starts, arms)
    errors = 0
    for name, arm in arms.items():
        # The tree may hold more draws of an arm, from an earlier run with more continuations.
        mine = [draw for draw in arm.draws if draw.draw < work.draws]
        found[name] = [draw.leaf for draw in mine if draw.end != "error"]
        errors += sum(draw.end == "error" for draw in mine)
    return found, errors


def _row(cut: float, mode: Mode | None, groups: list[Group], seed: int, resamples: int, unit: Unit) -> Row:
    key = stream_of("bootstrap", seed, f"{cut:g}", mode) >> 33
    value = variance_at(groups, seed=key, resamples=resamples, unit=unit)
    return Row(cut, mode, value, _mean_parts(groups), tuple(groups))


@final
@dataclass(frozen=True, slots=True)
class _Start:
    """Where the arms of one prefix at one cut begin; ``closed`` where only a forced closing can go on."""

    prefix: Prefix
    cut: float
    point: Point
    closed: bool


def _starts(work: _Work, prefixes: Sequence[Prefix], cuts: Sequence[float]) -> list[_Start]:
    starts = [
        _start(prefix, cut, work.tree.at(prefix.node, prefix.span.cut(cut)))
        for prefix in prefixes
        for cut in cuts
        if cut <= 1
    ]
    return starts + _extended(work, prefixes, [cut for cut in cuts if cut > 1])


def _start(prefix: Prefix, cut: float, point: Point) -> _Start:
    return _Start(prefix, cut, point, not point.mid_node)


def _extended(work: _Work, prefixes: Sequence[Prefix], cuts: Sequence[float]) -> list[_Start]:
    """Prefixes carried on past their own end, the closing banned; those that stop early count as short."""
    names, jobs = [], []
    for prefix in prefixes:
        for cut in cuts:
            extra = max(1, int(np.floor((cut - 1) * prefix.span.length + 1e-9)))
            point = work.tree.at(prefix.node, prefix.span.end)
            if not point.mid_node:
                work.short += 1
                continue
            sampling = recorded_settings(point, work.tree.path(point))
            # One token more than is kept: a point inside a step can be run on from, its end cannot.
            sampling = sampling.but(
                banned=(*sampling.banned, *work.marker.banned), max_tokens=extra + 1, stop=(), forced=()
            )
            seed = work.key(prefix, cut, "extend")
            jobs.append(prepare(point, work.policy, 1, settings=sampling, seed=seed, room=extra + 1))
            names.append((prefix, cut, extra))
    if not jobs:
        return []
    starts = []
    for (prefix, cut, extra), arm in zip(
        names, run_jobs(jobs, progress=work.progress, stage="thinking on"), strict=True
    ):
        draw = arm.draws[0]
        node = work.tree.node(draw.leaf)
        if draw.end == "error" or node.length <= extra:
            work.short += 1
            continue
        starts.append(_start(prefix, cut, work.tree.at(node, extra)))
    return starts


def _jobs(work: _Work, starts: Sequence[_Start], modes: Sequence[Mode]) -> Iterable[tuple[Name, ReadyArm]]:
    insert = closing(work.marker)
    for start in starts:
        own = recorded_settings(Point(start.prefix.node), work.tree.path(start.prefix.node))
        for mode in modes:
            seed = work.key(start.prefix, start.cut, mode)
            if mode == "force_close" or start.closed:
                job = prepare(
                    start.point, work.policy, work.draws, change=insert,
                    settings=answer_settings(own, work.tokens), seed=seed, room=work.tokens,
                )  # fmt: skip
            else:
                # Within its own thinking a turn keeps the recorded limit; further thinking has it anew.
                sampling = own.but(forced=(), banned_first=()) if start.cut > 1 else None
                room = None if sampling is None else sampling.max_tokens
                job = prepare(start.point, work.policy, work.draws, settings=sampling, seed=seed, room=room)
            yield (start.cut, mode, start.prefix.node.id), job


def _check_prefixes(tree: Tree, starts: Sequence[_Start], arms: dict[Name, Fork]) -> None:
    """Every arm ran on from the recorded prompt and thinking, id for id."""
    recorded = {(s.cut, s.prefix.node.id): s.point for s in starts}
    first = {name: arm.draws[0].leaf for name, arm in arms.items() if arm.draws}
    for (cut, _, node), trajectory in zip(first, tree.paths(list(first.values())), strict=True):
        point = recorded[cut, node]
        prefix = tree.path(point).tokens
        same_ids(prefix, trajectory.tokens[: len(prefix)], where=f"node {point.node.id[:12]}")


def _mean_parts(groups: Sequence[Group]) -> Parts | None:
    """The decomposition, averaged over prompts and then over pools."""
    prompts: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.answers >= 2:
            prompts.setdefault((group.pool, group.prompt), []).append(group)
    pools: dict[str, list[Parts]] = {}
    for (pool, _), mine in prompts.items():
        if len(mine) >= 2:
            k, n = np.array([g.refused for g in mine]), np.array([g.answers for g in mine])
            pools.setdefault(pool, []).append(estimated_parts(k, n))
    if not pools:
        return None
    table = np.array(
        [np.mean([(p.total, p.within, p.between) for p in parts], axis=0) for parts in pools.values()]
    )
    total, within, between = table.mean(axis=0)
    return Parts(float(total), float(within), float(between))
