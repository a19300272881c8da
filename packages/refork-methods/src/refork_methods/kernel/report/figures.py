"""Every number of a report, worked out once: Markdown, HTML and JSON print these and no others.

Source: arXiv 2606.26453 for the table of tools (how often one fires, how often a large gain follows, the mean
gain). How a try is ascribed to a tool is ours: by the tools that its move says it answers.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from refork.plain import to_json
from refork.report.words import one_line
from refork.types import Json
from refork_methods.kernel.bench.result import Stage
from refork_methods.kernel.report.folder import Node, Search
from refork_methods.kernel.roofline import Ceilings, Work, roof
from refork_methods.kernel.tool import Finding

#: At most so many kinds of failure are told apart, by stage and reason.
MOST_FAILURES = 12


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
    equal programs differ by; None where interval or noise is not known.
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


@final
@dataclass(frozen=True, slots=True)
class RoofPosition:
    """Where a kernel stands under the roof: useful flop and compulsory bytes a second, share of the roof.

    ``roof_share``: least possible seconds over its own, 1 at the roof.
    """

    flops: float
    bandwidth: float
    roof_share: float | None


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """A tool's finding on the original, on the best kernel, or on both."""

    tool: str
    before: Finding | None
    after: Finding | None

    @property
    def state(self) -> Literal["gone", "stays", "new"]:
        """What became of it."""
        return "gone" if self.after is None else "new" if self.before is None else "stays"


#: A gain over the parent above this is a large one.
LARGE = 1.5


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


def hit_table(nodes: Sequence[Node]) -> tuple[Hit, ...]:
    """A row for each tool that fired, the most used first."""
    known = {node.number: node for node in nodes}
    fires: dict[str, int] = defaultdict(int)
    tries: dict[str, list[tuple[Node, Node]]] = defaultdict(list)
    for node in nodes:
        for tool in _tools(node):
            fires[tool] += 1
        if node.parent is None:
            continue
        parent = known[node.parent]
        for tool in sorted(set(node.answers) & _tools(parent)):
            tries[tool].append((parent, node))
    rows = [_hit(tool, number, tries[tool]) for tool, number in fires.items()]
    return tuple(sorted(rows, key=lambda row: (-row.acted, -row.fires, row.tool)))


def gain_over(parent: Node, child: Node) -> float | None:
    """How many times as fast as its parent a kernel is; None unless both were timed and are right.

    Both are first set against the reference that was timed beside them, so that a machine that grew slower
    in between does not count.
    """
    before, after = parent.evaluated, child.evaluated
    if not (before.ok and after.ok and before.speedup and after.speedup):
        return None
    return after.speedup / before.speedup


def _tools(node: Node) -> set[str]:
    return {finding.tool for finding in node.findings or ()}


def _hit(tool: str, fires: int, tries: list[tuple[Node, Node]]) -> Hit:
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
        body: Json = to_json(self)
        for told, row in zip(body["compared"] or (), self.compared or (), strict=True):
            told["state"] = row.state
        return body


def granted(search: Search, best: Node | None) -> tuple[str, ...]:
    """What a kernel takes for granted by all moves on the way to it."""
    way = [] if best is None else [search.by_number[number] for number in search.path(best.number)]
    return tuple(dict.fromkeys(one for node in way for one in node.granted))


def figures(search: Search) -> Figures:
    """The numbers of a search."""
    nodes = search.nodes
    best = best_of(search)
    made = nodes[1:]
    failures, left = _failures(nodes)
    return Figures(
        name=name_of(search),
        state=str(search.facts.get("state") or ""),
        tried=len(made),
        right=sum(node.evaluated.ok for node in made),
        failed=dict(Counter(node.evaluated.stage for node in made if not node.evaluated.ok)),
        best=None if best is None else best.number,
        granted=granted(search, best),
        path=() if best is None else search.path(best.number),
        timing=_timing(search, best),
        original=roof_position(nodes[0].evaluated.seconds, search.work, search.ceilings) if nodes else None,
        reached=roof_position(_seconds(search, best), search.work, search.ceilings),
        compared=compare(nodes[0].findings, best.findings) if nodes and best else None,
        hits=hit_table(nodes),
        failures=failures,
        failures_left=left,
    )


def name_of(search: Search) -> str:
    """What the kernel is called."""
    problem = search.facts.get("problem")
    told = problem if isinstance(problem, dict) else {}
    return one_line(str(told.get("name") or told.get("entry") or search.folder.resolve().name), 60)


def best_of(search: Search) -> Node | None:
    """The winner of the last duel, else the right kernel with the largest speed-up; None: none is right."""
    if search.winner is not None:
        return search.by_number[search.winner]
    right = [node for node in search.nodes if node.evaluated.ok and node.evaluated.speedup is not None]
    return max(right, key=lambda node: (node.evaluated.speedup or 0.0, -node.number), default=None)


def roof_position(seconds: float | None, work: Work | None, ceilings: Ceilings | None) -> RoofPosition | None:
    """What a time means under the roof; None where the time or the work is not known."""
    if seconds is None or work is None or seconds <= 0:
        return None
    least = None if ceilings is None else roof(work, ceilings)
    return RoofPosition(
        work.flops / seconds, work.bytes / seconds, None if least is None else least / seconds
    )


def compare(
    before: tuple[Finding, ...] | None, after: tuple[Finding, ...] | None
) -> tuple[Compared, ...] | None:
    """Findings of two kernels side by side: what is gone, what stays, what is new, in this order."""
    if before is None or after is None:
        return None
    was = {finding.tool: finding for finding in reversed(before)}
    now = {finding.tool: finding for finding in reversed(after)}
    tools = [*dict.fromkeys(finding.tool for finding in (*before, *after))]
    rows = [Compared(tool, was.get(tool), now.get(tool)) for tool in tools]
    return tuple(sorted(rows, key=lambda row: ("gone", "stays", "new").index(row.state)))


def _seconds(search: Search, best: Node | None) -> float | None:
    if search.final is not None and search.final.ok:
        return search.final.seconds
    return None if best is None else best.evaluated.seconds


def _timing(search: Search, best: Node | None) -> Timing | None:
    if best is None:
        return None
    duel = search.final is not None and search.final.ok
    shown = search.final if search.final is not None and duel else best.evaluated
    noise = shown.noise or (None if search.ceilings is None else search.ceilings.noise)
    beyond = None
    if noise is not None and shown.low is not None and shown.speedup is not None:
        beyond = shown.low > 1 and shown.speedup > noise
    return Timing(
        best.number, shown.seconds, shown.reference_seconds, shown.speedup, shown.low, shown.high,
        len(shown.samples), shown.error, duel, beyond,
    )  # fmt: skip


def _failures(nodes: tuple[Node, ...]) -> tuple[tuple[Failure, ...], int]:
    """Failures by stage and reason, the most frequent first; and how many are of further kinds."""
    found: dict[tuple[Stage, str], list[Node]] = defaultdict(list)
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
