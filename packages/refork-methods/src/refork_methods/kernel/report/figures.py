"""Every number of a report, worked out once: Markdown, HTML and JSON print these and no others.

Source: arXiv 2606.26453 for the table of tools (how often one fires, how often a large gain follows, the mean
gain). How a try is ascribed to a tool is ours: by the tools that its move says it answers.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.report.words import one_line
from refork.types import Json
from refork_methods.kernel.bench.result import Evaluated, Stage
from refork_methods.kernel.roofline import Ceilings, Work, roof
from refork_methods.kernel.search.folder import (
    SEARCH,
    History,
    SearchNode,
    fastest,
    granted_by,
    path_to,
    read_facts,
    read_history,
)
from refork_methods.kernel.tool import Finding

#: At most so many kinds of failure are told apart, by stage and reason.
MOST_FAILURES = 12
#: A gain over the parent above this is a large one.
LARGE = 1.5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A stored search. ``facts`` is its ``search.json``, ``history`` all that was tried.

    ``final`` is the last duel, of kernel ``winner`` against the reference; both None where there was none.
    """

    folder: Path
    facts: Json
    history: History
    ceilings: Ceilings | None
    work: Work | None
    final: Evaluated | None
    winner: int | None

    @property
    def nodes(self) -> list[SearchNode]:
        """Every kernel, the original first."""
        return self.history.nodes

    def findings(self, number: int) -> tuple[Finding, ...] | None:
        """What was found on a kernel; None where it was not diagnosed."""
        seen = self.history.observations.get(number)
        return None if seen is None else seen.findings

    def part(self, name: str) -> Json:
        """An object of the facts, empty where it is not there."""
        found = self.facts.get(name)
        return found if isinstance(found, dict) else {}


def read_search(folder: Path) -> Search:
    """Read a search's folder, also of one that still runs, was stopped or has tried nothing yet.

    Raises:
        BadInput: not the folder of a search, or a line of it that is not ours.
    """
    facts, where = read_facts(folder), str(folder / SEARCH)
    history = read_history(folder)
    winner = facts.get("best")
    # A search that goes on after its end has a duel of before.
    ended = bool(facts.get("final")) and facts.get("state") == "done"
    if ended and not (isinstance(winner, int) and 0 <= winner < len(history.nodes)):
        raise BadInput(f"the best is node {winner}, which is not there", where=where)
    problem = facts["problem"] if isinstance(facts["problem"], dict) else {}
    work = {"flops": problem.get("flops") or 0.0, "bytes": problem.get("bytes")}
    return Search(
        folder=folder,
        facts=facts,
        history=history,
        ceilings=from_json(Ceilings, facts["ceilings"], where) if facts.get("ceilings") else None,
        work=None if not work["bytes"] else from_json(Work, work, where),
        final=Evaluated.from_json(facts["final"], where) if ended else None,
        winner=winner if ended else None,
    )


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """Kernels that failed in one way: how many, and the first of them by number."""

    stage: Stage
    why: str
    count: int
    nodes: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """The best kernel against the reference: seconds of one call, and the speed-up with its interval.

    ``duel``: from the last, longer comparison; else from the search itself, where the luckiest of many is
    taken and the number flatters. ``beyond_noise``: the interval lies above 1, and the speed-up above what
    equal programs differ by; None where interval or noise is not known. ``warm``: the speed-up of calls that
    find their arrays in the caches; ``slower_warm``: they take longer than the original's: no proven gain.
    """

    node: int
    seconds: float | None
    reference_seconds: float | None
    speedup: float | None
    low: float | None
    high: float | None
    samples: int
    error: float | None
    duel: bool
    beyond_noise: bool | None
    warm: float | None = None
    slower_warm: bool = False


@final
@dataclass(frozen=True, slots=True)
class RoofPosition:
    """Where a kernel stands under the roof: useful flop and compulsory bytes a second, share of the roof.

    ``flops`` is None where none are declared; the roof is then the memory's alone. ``roof_share``: least
    possible seconds over its own, 1 at the roof.
    """

    flops: float | None
    bandwidth: float
    roof_share: float | None


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """What became of a tool's finding on the original, and the finding: on the best kernel where it stays."""

    tool: str
    state: Literal["gone", "stays", "new"]
    finding: Finding


@final
@dataclass(frozen=True, slots=True)
class Hit:
    """One tool over a search.

    ``fires``: kernels on which it found something. ``acted``: tries that answered it, on such a kernel.
    ``right``: those that gave a right kernel. ``large``: the share of the tries from a right kernel that
    made it more than 1.5 times as fast, a failed try counting as none. ``gain``: the geometric mean of
    the parent's seconds over the child's, over right ones. None: no try to tell from.
    """

    tool: str
    fires: int
    acted: int
    right: int
    large: float | None
    gain: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The numbers. ``tried`` and all counts leave the original out; ``state`` is running, stopped or done.

    ``best`` and ``path`` are None and empty where no kernel is right, the original included.

    ``compared`` is None where the original or the best kernel was not diagnosed. ``granted`` is what the best
    kernel takes for granted, each once, in the order of the moves.
    """

    name: str
    state: str
    tried: int
    right: int
    failed: dict[str, int]
    best: int | None
    path: tuple[int, ...]
    timing: Timing | None
    original: RoofPosition | None
    reached: RoofPosition | None
    compared: tuple[Compared, ...] | None
    hits: tuple[Hit, ...]
    failures: tuple[Failure, ...]
    failures_left: int
    granted: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Plain JSON."""
        data: Json = to_json(self)
        return data


def figures(search: Search) -> Figures:
    """The numbers of a search."""
    nodes, made = search.nodes, search.nodes[1:]
    best = search.winner
    if best is None:
        best = next((node.number for node in fastest(nodes)), None)
    shown = None if best is None else search.final or nodes[best].evaluated
    failures, left = _failures(nodes)
    problem = search.part("problem")
    name = problem.get("name") or problem.get("entry") or search.folder.resolve().name
    return Figures(
        name=one_line(str(name), 60),
        state=str(search.facts.get("state") or ""),
        tried=len(made),
        right=sum(node.evaluated.ok for node in made),
        failed=dict(Counter(node.evaluated.stage for node in made if not node.evaluated.ok)),
        best=best,
        granted=() if best is None else granted_by(nodes, best, shown),
        path=() if best is None else path_to(nodes, best),
        timing=None if best is None or shown is None else _timing(search, best, shown),
        original=roof_position(nodes[0].evaluated.seconds, search) if nodes else None,
        reached=None if shown is None else roof_position(shown.seconds, search),
        compared=None if best is None else compare(search.findings(0), search.findings(best)),
        hits=hit_table(search),
        failures=failures,
        failures_left=left,
    )


def hit_table(search: Search) -> tuple[Hit, ...]:
    """A row for each tool that fired, the most used first."""
    fires: Counter[str] = Counter()
    tries: defaultdict[str, list[tuple[SearchNode, SearchNode]]] = defaultdict(list)
    fired = {node.number: {one.tool for one in search.findings(node.number) or ()} for node in search.nodes}
    for node in search.nodes:
        fires.update(fired[node.number])
        if node.proposal is not None:
            # A move may answer tools that found nothing on its parent: these had no part in the try.
            for tool in set(node.proposal.answers) & fired[node.parent]:
                tries[tool].append((search.nodes[node.parent], node))
    rows = [_hit(tool, number, tries[tool]) for tool, number in fires.items()]
    return tuple(sorted(rows, key=lambda row: (-row.acted, -row.fires, row.tool)))


def _hit(tool: str, fires: int, tries: list[tuple[SearchNode, SearchNode]]) -> Hit:
    gains = [gain_over(parent, child) for parent, child in tries if parent.evaluated.ok]
    known = [gain for gain in gains if gain is not None]
    return Hit(
        tool,
        fires,
        len(tries),
        sum(child.evaluated.ok for _, child in tries),
        sum(gain > LARGE for gain in known) / len(gains) if gains else None,
        math.exp(sum(math.log(gain) for gain in known) / len(known)) if known else None,
    )


def gain_over(parent: SearchNode, child: SearchNode) -> float | None:
    """How many times as fast as its parent a kernel is; None unless both were timed and are right.

    Both are first set against the reference that was timed beside them, so that a machine that grew slower
    in between does not count.
    """
    before, after = parent.evaluated, child.evaluated
    if not (before.ok and after.ok and before.least and after.least):
        return None
    return after.least / before.least


def roof_position(seconds: float | None, search: Search) -> RoofPosition | None:
    """What a time means under the roof; None where the time or the work is not known."""
    work = search.work
    if not seconds or work is None:
        return None
    share = None if search.ceilings is None else roof(work, search.ceilings) / seconds
    undeclared = search.part("problem").get("flops") is None
    return RoofPosition(None if undeclared else work.flops / seconds, work.bytes / seconds, share)


def compare(
    before: tuple[Finding, ...] | None, after: tuple[Finding, ...] | None
) -> tuple[Compared, ...] | None:
    """Findings of two kernels side by side: what is gone, what stays, what is new, in this order."""
    if before is None or after is None:
        return None
    was = {finding.tool: finding for finding in before}
    now = {finding.tool: finding for finding in after}
    return (
        *(Compared(tool, "gone", finding) for tool, finding in was.items() if tool not in now),
        *(Compared(tool, "stays", now[tool]) for tool in was if tool in now),
        *(Compared(tool, "new", finding) for tool, finding in now.items() if tool not in was),
    )


def _timing(search: Search, best: int, shown: Evaluated) -> Timing:
    noise = shown.noise or (None if search.ceilings is None else search.ceilings.noise)
    beyond = None
    if noise is not None and shown.low is not None and shown.speedup is not None:
        beyond = replace(shown, noise=noise).faster
    return Timing(
        best, shown.seconds, shown.reference_seconds, shown.speedup, shown.low, shown.high,
        len(shown.samples), shown.error, shown is search.final, beyond, shown.warm, shown.slower_warm,
    )  # fmt: skip


def _failures(nodes: list[SearchNode]) -> tuple[tuple[Failure, ...], int]:
    """Failures by stage and reason, the most frequent first; and how many are of further kinds."""
    found: defaultdict[tuple[Stage, str], list[SearchNode]] = defaultdict(list)
    for node in nodes:
        if not node.evaluated.ok:
            # Line numbers, places and values differ where the cause is the same.
            kind = re.sub(r"\d+", "0", one_line(node.evaluated.why, 240))
            found[node.evaluated.stage, kind].append(node)
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[1][0].number))
    kept = [
        Failure(
            stage,
            one_line(at[0].evaluated.why, 240) or "no reason was given",
            len(at),
            tuple(node.number for node in at[:5]),
        )
        for (stage, _), at in ranked[:MOST_FAILURES]
    ]
    return tuple(kept), sum(len(at) for _, at in ranked[MOST_FAILURES:])
