"""Gate, staleness and comparison on what a user has stored: verdict files, evaluation logs, or a tree."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, final

from refork.errors import BadInput
from refork.tree import Producer, Score, Tree
from refork.tree.address import is_address
from refork.tree.scoring import chain
from refork_methods.evolve.compare import Comparison, compare_judges
from refork_methods.evolve.promote import Gate
from refork_methods.evolve.swap import LEAST_ANCHOR, Stale, SwapReport, Verdict, judge_gate, stale_scores
from refork_methods.evolve.verdict_files import (
    read_anchor,
    read_items,
    read_sources,
    read_verdicts,
    verdict_value,
)

_MAGIC: Final = b"SQLite format 3\x00"


def is_tree(file: Path) -> bool:
    """Whether a file is one of the kind that trees are stored in, or a tree's address."""
    if is_address(file):
        return True
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


@final
@dataclass(frozen=True, slots=True)
class TreeJudge:
    """A producer by what a user may call it: its name, or its name with eight digits of its id."""

    label: str
    producer: Producer


def tree_judges(tree: Tree) -> list[TreeJudge]:
    """Live producers with labels that tell them apart, in order of registration."""
    live = tree.producers()
    names = [one.name for one in live]
    return [
        TreeJudge(one.name if names.count(one.name) == 1 else f"{one.name}@{one.id[:8]}", one) for one in live
    ]


def find_judge(judges: Sequence[TreeJudge], name: str) -> TreeJudge:
    """The judge of a label, or of the beginning of a producer's id.

    Raises: BadInput where none, or several, fit.
    """
    exact = [one for one in judges if name in (one.label, one.producer.id)]
    fit = exact or [one for one in judges if one.producer.id.startswith(name) or one.producer.name == name]
    if len(fit) != 1:
        known = ", ".join(one.label for one in (fit or judges)[:12])
        raise BadInput(
            f"{'several judges fit' if fit else 'no live judge is'} {name!r} on this tree",
            hint=f"judges: {known or 'none'}",
        )
    return fit[0]


def tree_verdicts(
    tree: Tree, judge: TreeJudge, name: str | None = None, threshold: float | None = None
) -> list[Verdict]:
    """A judge's live scores as verdicts on nodes; the item is the node's id, the source the node's, if told.

    Raises: BadInput where it gives scores of several names and none is chosen, an array of values, or a
        value that is no verdict.
    """
    scores = list(tree.scores(producer=judge.producer.id, name=name))
    names = sorted({score.name for score in scores})
    if len(names) > 1 and len({score.node for score in scores}) < len(scores):
        raise BadInput(
            f"judge {judge.label!r} gives a node scores of {len(names)} names", hint=f"--name {names[0]}"
        )
    nodes = {node.id: node for node in tree.nodes(dict.fromkeys(score.node for score in scores))}
    found = []
    for score in scores:
        where = f"score {score.name} of node {score.node[:12]}"
        if not isinstance(score.value, float):
            raise BadInput("it has a value for every token, not a verdict", where=where)
        source = nodes[score.node].extra.get("source")
        value = verdict_value(score.value, where, threshold)
        found.append(
            Verdict(
                _id(score), judge.label, score.node, value,
                source if isinstance(source, str) else None,
            )
        )  # fmt: skip
    return found


def _id(score: Score) -> str:
    """A score's id in reports: node, name, and eight digits of its producer."""
    return f"{score.node}/{score.name}@{score.producer[:8]}"


def stale_on_tree(tree: Tree, old: TreeJudge, judged: Collection[str] = ()) -> Stale:
    """Scores that retiring a judge takes out of sight, with all that read it; ``judged`` as in a gate."""
    labels = {one.producer.id: one.label for one in tree_judges(tree)}
    reads = {one.id: one.reads for one in tree.producers()}
    gone = chain(reads, old.producer.id)
    ids: list[str] = []
    covered: list[str] = []
    waiting: dict[str, None] = {}
    for producer in gone:
        for score in tree.scores(producer=producer):
            ids.append(_id(score))
            if producer != old.producer.id:
                continue
            if score.node in judged:
                covered.append(ids[-1])
            else:
                waiting[score.node] = None
    total = sum(1 for _ in tree.scores())
    return Stale(
        tuple(labels[one] for one in gone), tuple(ids), tuple(covered), tuple(waiting), total - len(ids)
    )


@final
@dataclass(frozen=True, slots=True)
class SwapTerms:
    """The terms of a gate on files, as :class:`Gate` and :func:`judge_gate` say."""

    rule: str = "paired"
    rate: float = 0.05
    looks: int = 1
    margin: float | None = None
    threshold: float | None = None
    majority: bool = False
    name: str | None = None

    @property
    def gate(self) -> Gate:
        """The gate; raises BadInput for a rule that is not there."""
        rule: Any = self.rule
        return Gate(rule, rate=self.rate, looks=self.looks, minimum=LEAST_ANCHOR)

    @property
    def repeats(self) -> Literal["refuse", "majority"]:
        """What to do where a judge contradicts itself."""
        return "majority" if self.majority else "refuse"


def gate_files(
    files: Sequence[Path],
    old: str,
    new: str,
    anchor: Path | None,
    terms: SwapTerms | None = None,
    *,
    reads: Iterable[str] = (),
    seen: Path | None = None,
) -> SwapReport:
    """:func:`judge_gate` on files, or on one tree, whose producers say who read whom.

    Raises: BadInput, Mismatch: no anchor, files that cannot be read, and as ``judge_gate``.
    """
    told = terms or SwapTerms()
    if anchor is None:
        raise BadInput(
            "without true labels nothing says which judge is better", hint="--anchor FILE, or leave out --new"
        )
    truth, sources = read_anchor(anchor), read_sources(anchor)
    shown = read_items(seen) if seen is not None else ()
    tree = _tree(files)
    if tree is None:
        verdicts = _sourced(read_verdicts(files, told.threshold), sources)
        readers = parse_reads(reads)
        return judge_gate(
            verdicts, old, new, truth, gate=told.gate, margin=told.margin, reads=readers, seen=shown,
            repeats=told.repeats,
        )  # fmt: skip
    _no_reads(reads)
    with Tree.open(tree, "r") as opened:
        judges = tree_judges(opened)
        pair = find_judge(judges, old), find_judge(judges, new)
        verdicts = [one for judge in pair for one in tree_verdicts(opened, judge, told.name, told.threshold)]
        report = judge_gate(
            _sourced(verdicts, sources), pair[0].label, pair[1].label, truth, gate=told.gate,
            margin=told.margin, seen=shown, repeats=told.repeats,
        )  # fmt: skip
        judged = {one.item for one in verdicts if one.judge == pair[1].label}
        return replace(report, stale=stale_on_tree(opened, pair[0], judged))


def stale_files(
    files: Sequence[Path],
    old: str,
    *,
    new: str | None = None,
    reads: Iterable[str] = (),
    threshold: float | None = None,
    name: str | None = None,
) -> Stale:
    """Which stored scores go stale with a judge, whatever replaces it; ``new`` tells what it covers already.

    Raises: BadInput for a judge that is not there.
    """
    tree = _tree(files)
    if tree is not None:
        _no_reads(reads)
        with Tree.open(tree, "r") as opened:
            judges = tree_judges(opened)
            rival = [] if new is None else tree_verdicts(opened, find_judge(judges, new), name, threshold)
            return stale_on_tree(opened, find_judge(judges, old), {one.item for one in rival})
    verdicts = read_verdicts(files, threshold)
    known = sorted({verdict.judge for verdict in verdicts})
    for judge in (old, new):
        if judge is not None and judge not in known:
            raise BadInput(f"no verdicts of judge {judge!r}", hint=f"judges here: {', '.join(known)}")
    covered = {verdict.item for verdict in verdicts if verdict.judge == new}
    return stale_scores(verdicts, old, covered, parse_reads(reads))


def compare_files(files: Sequence[Path], anchor: Path | None, terms: SwapTerms | None = None) -> Comparison:
    """:func:`refork_methods.evolve.compare.compare_judges` on files, or on the judges of one tree.

    On a tree a producer without scores of verdicts (0 and 1) is no judge, and is left out.
    """
    told = terms or SwapTerms()
    truth = None if anchor is None else read_anchor(anchor)
    sources = {} if anchor is None else read_sources(anchor)
    tree = _tree(files)
    if tree is None:
        verdicts = read_verdicts(files, told.threshold)
    else:
        with Tree.open(tree, "r") as opened:
            verdicts = []
            for judge in tree_judges(opened):
                values = [s.value for s in opened.scores(producer=judge.producer.id, name=told.name)]
                if told.threshold is not None or any(v in (0.0, 1.0) for v in values if isinstance(v, float)):
                    verdicts += tree_verdicts(opened, judge, told.name, told.threshold)
    return compare_judges(_sourced(verdicts, sources), truth, repeats=told.repeats)


def write_stale(result: Stale, out: Path) -> None:
    """Stale scores as JSON lines: id, and whether the new judge has judged the item already."""
    covered = set(result.covered)
    lines = (json.dumps({"id": one, "covered": one in covered}, ensure_ascii=False) for one in result.ids)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def parse_reads(items: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """``DERIVED=JUDGE,JUDGE`` items; raises BadInput for others."""
    found: dict[str, tuple[str, ...]] = {}
    for item in items:
        name, sign, rest = item.partition("=")
        judges = tuple(part.strip() for part in rest.split(",") if part.strip())
        if not sign or not name.strip() or not judges:
            raise BadInput(f"--reads {item!r}", hint="--reads mean=judge-a,judge-b")
        found[name.strip()] = judges
    return found


def _no_reads(reads: Iterable[str]) -> None:
    if tuple(reads):
        raise BadInput("a tree knows which producer read which", hint="leave out --reads")


def _tree(files: Sequence[Path]) -> Path | None:
    """The one tree among the files; None where there is none."""
    trees = [file for file in files if is_tree(file)]
    if trees and len(files) > 1:
        raise BadInput(
            "a tree is gated alone", where=str(trees[0]), hint="refork tree merge puts two together"
        )
    return trees[0] if trees else None


def _sourced(verdicts: list[Verdict], sources: dict[str, str]) -> list[Verdict]:
    """The verdicts, with sources that only the anchor knows."""
    if not sources:
        return verdicts
    return [
        replace(one, source=sources[one.item]) if one.source is None and one.item in sources else one
        for one in verdicts
    ]
