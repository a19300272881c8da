"""Arms that a tree holds, as forks again: effects of changes that were drawn earlier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from refork.errors import BadInput
from refork.forking.arm import Fork
from refork.forking.change import Diff
from refork.tree.node import Node, Point
from refork.tree.score import ForkRecord
from refork.tree.tree import Tree
from refork.types import Json

#: What a record's extra says of how its draws went, the likeness that matters most first.
_HOW = ("simulator", "turns", "room")


@dataclass(frozen=True, slots=True)
class Pair:
    """A changed arm and the control it is held against: same point, seed and noise."""

    control: ForkRecord
    changed: ForkRecord


def recorded_arm(tree: Tree, fork: str) -> Fork:
    """The arm of an id with its finished draws, as they are on the tree.

    Raises:
        BadInput: there is no such arm.
    """
    record = tree.fork_record(fork)
    point = tree.at(record.node, record.token)
    diff = None if record.change is None else change_in_words(record.change, point)
    return Fork(tree, record, point, tuple(tree.draws(fork)), diff)


def recorded_pair(tree: Tree, control: str, changed: str) -> tuple[Fork, Fork]:
    """Two recorded arms of one point, the control first.

    Raises:
        BadInput: no such arm, or arms of different points.
    """
    base, other = recorded_arm(tree, control), recorded_arm(tree, changed)
    if (base.record.node, base.record.token) != (other.record.node, other.record.token):
        raise BadInput("these arms start at different points", where=f"forks {control[:12]}, {changed[:12]}")
    return base, other


def pairs(records: Iterable[ForkRecord]) -> list[Pair]:
    """Every changed arm that has a control, in order of recording.

    Where several controls share point and noise, the one with the changed arm's policy, settings, world and
    limits is taken, else its policy's and settings', else its policy's, else the first. Arms of a sweep,
    which exclude a first token, are no whole distributions and are left out.
    """
    groups: dict[tuple[Any, ...], list[ForkRecord]] = {}
    for record in records:
        if "exclude_first" not in record.extra:
            key = (record.node, record.token, record.seed, record.stream)
            groups.setdefault(key, []).append(record)
    found = []
    for group in groups.values():
        controls = [record for record in group if record.change is None]
        found += [Pair(_nearest(controls, r), r) for r in group if r.change is not None and controls]
    return found


def _nearest(controls: Sequence[ForkRecord], changed: ForkRecord) -> ForkRecord:
    def likeness(control: ForkRecord) -> list[bool]:
        parts = [
            (one.policy, one.settings, one.world, *map(one.extra.get, _HOW)) for one in (control, changed)
        ]
        same = [mine == other for mine, other in zip(*parts, strict=True)]
        # All alike, or as far as possible; then whatever else is alike.
        return [all(same[:end]) for end in range(len(same), 0, -1)] + same

    return max(controls, key=likeness)  # the first of equals


def change_in_words(change: Json, point: Point) -> Diff:
    """What a stored change did, without the policy that made it: token ids stand for themselves."""
    kind = str(change.get("kind"))
    content = _content(change)
    if kind == "remove":
        return Diff(f"remove {change['tokens']} token(s)", _before(point, change["tokens"]), "")
    if kind == "replace":
        return Diff(f"replace {change['tokens']} token(s)", _before(point, change["tokens"]), content)
    if kind == "ban":
        return Diff(f"ban {'always' if change.get('always') else 'as the next token'}", content, "")
    if kind == "message":
        return Diff(f"edit message {change['index']}", "", str(change["content"]))
    if kind == "set":
        return Diff("settings", "", ", ".join(f"{k}={v}" for k, v in change["values"].items()))
    if kind in ("policy", "world"):
        return Diff(kind, "", str(change["name"]))
    if kind == "compose":
        parts = [change_in_words(one, point) for one in change["changes"]]
        texts = (" + ".join(p.what for p in parts), " | ".join(p.before for p in parts))
        return Diff(*texts, " | ".join(p.after for p in parts))
    return Diff(kind, "", content)


def _content(change: Json) -> str:
    if change.get("text") is not None:
        return str(change["text"])
    ids = change.get("ids")
    return "" if ids is None else "tokens " + " ".join(map(str, ids))


def _before(point: Point, tokens: int) -> str:
    """The last tokens before a point as text; their ids where the node records no offsets."""
    node: Node = point.node
    start = max(point.keep - tokens, 0)
    if node.offsets is None:
        ids = [] if node.tokens is None else node.tokens[start : point.keep].tolist()
        return "tokens " + " ".join(map(str, ids)) if ids else ""
    return node.text_upto(point.keep)[len(node.text_upto(start)) :]
