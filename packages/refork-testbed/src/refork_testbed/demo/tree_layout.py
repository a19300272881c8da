"""Tree nodes to twigs with places: runs without a fork are joined, equal siblings drawn once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from refork.errors import BadInput
from refork_testbed.demo.data import TreeNode

#: Above this many endings, childless siblings of equal outcome are drawn as one.
DENSE = 44


@dataclass(frozen=True, slots=True)
class Twig:
    """A drawn branch: one or more events in a row, ``copies`` times, with what grows from it."""

    events: tuple[TreeNode, ...]
    children: tuple[Twig, ...]
    copies: int = 1
    mixed: bool = False

    @property
    def first(self) -> TreeNode:
        """The first event of the run."""
        return self.events[0]

    @property
    def success(self) -> float | None:
        """Mean success of the leaves below."""
        return next((e.success for e in self.events if e.success is not None), None)

    @property
    def leaves(self) -> int:
        """Leaves below, all copies together."""
        return self.first.leaves * self.copies

    @property
    def on_trace(self) -> bool:
        """Whether the swept run goes through here."""
        return self.first.on_trace

    @property
    def forked(self) -> bool:
        """Whether it began with a fork."""
        return self.first.forked


@dataclass(frozen=True, slots=True)
class Placed:
    """A twig with its column, its vertical middle, the height that is free for it, and its parent's place."""

    twig: Twig
    column: int
    y: float
    room: float
    parent: int | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Twigs in drawing order (parents first) and the height they need."""

    twigs: tuple[Placed, ...]
    columns: int
    height: float


def children_of(nodes: Sequence[TreeNode]) -> dict[str | None, list[TreeNode]]:
    """Nodes by parent, in the order given; roots under None.

    Raises: BadInput for a repeated id, an unknown parent or a cycle.
    """
    known = {node.id for node in nodes}
    if len(known) < len(nodes):
        raise BadInput("a node appears twice in the report's tree")
    found: dict[str | None, list[TreeNode]] = {}
    for node in nodes:
        if node.parent is not None and node.parent not in known:
            raise BadInput("a node of the report's tree has an unknown parent", where=f"node {node.id[:12]}")
        found.setdefault(node.parent, []).append(node)
    if len(parents_first(found)) < len(nodes):
        raise BadInput("the report's tree has a cycle")
    return found


def parents_first(children: Mapping[str | None, Sequence[TreeNode]]) -> list[TreeNode]:
    """Every node that a root leads to, each after its parent."""
    # The list grows while it is read: no recursion, however deep a tree is, and a cycle is never entered.
    order = list(children.get(None, ()))
    for node in order:
        order.extend(children.get(node.id, ()))
    return order


def twigs_of(nodes: Sequence[TreeNode], dense: bool = False) -> tuple[Twig, ...]:
    """The trees as twigs: successes first among siblings; see the module's first line.

    Raises: BadInput for nodes that are no tree.
    """
    children = children_of(nodes)
    made: dict[str, Twig] = {}
    names: dict[tuple[object, ...], int] = {}
    signs: dict[str, int] = {}
    for node in reversed(parents_first(children)):
        below = [made.pop(child.id) for child in children.get(node.id, ())]
        twig = _join(node, below, signs, names, dense)
        made[node.id] = twig
        signs[node.id] = _sign(twig, signs, names, dense)
    return tuple(made[root.id] for root in children.get(None, ()))


def _join(
    node: TreeNode,
    below: list[Twig],
    signs: dict[str, int],
    names: dict[tuple[object, ...], int],
    dense: bool,
) -> Twig:
    if len(below) == 1 and _same(node, below[0].first):
        only = below[0]
        return replace(only, events=(node, *only.events))
    merged: dict[int, Twig] = {}
    for twig in below:
        sign = signs[twig.first.id]
        if sign in merged:
            other = merged[sign]
            mixed = other.mixed or twig.mixed or _labels(twig) != _labels(other)
            merged[sign] = replace(other, copies=other.copies + twig.copies, mixed=mixed)
        else:
            merged[sign] = twig
    ranked = sorted(merged.values(), key=lambda t: -1.0 if t.success is None else t.success, reverse=True)
    return Twig((node,), tuple(ranked))


def _same(above: TreeNode, below: TreeNode) -> bool:
    """Whether two events in a row can be one branch: nothing told of them differs."""
    alike = above.success == below.success or above.success is None or below.success is None
    return alike and not below.forked and above.on_trace == below.on_trace and above.leaves == below.leaves


def _labels(twig: Twig) -> tuple[str, ...]:
    return tuple(e.label for e in twig.events)


def _sign(twig: Twig, signs: dict[str, int], names: dict[tuple[object, ...], int], dense: bool) -> int:
    """A number that equal subtrees share; the swept run is never merged with anything."""
    if twig.on_trace:
        key: tuple[object, ...] = ("alone", twig.first.id)
    elif dense and not twig.children:
        key = ("ending", twig.forked, twig.success)
    else:
        below = tuple((signs[t.first.id], t.copies) for t in twig.children)
        kinds = tuple((e.kind, e.label) for e in twig.events)
        key = ("same", kinds, twig.forked, twig.success, twig.first.leaves, below)
    return names.setdefault(key, len(names))


def endings(twigs: Sequence[Twig]) -> int:
    """Drawn branches without children."""
    todo, found = list(twigs), 0
    for twig in todo:
        todo.extend(twig.children)
        found += not twig.children
    return found


def layout(nodes: Sequence[TreeNode], tallest: float = 1000) -> Layout:
    """Places for the tree of ``nodes``: rows shrink so that about ``tallest`` pixels are enough.

    Raises: BadInput for nodes that are no tree.
    """
    roots = twigs_of(nodes)
    if endings(roots) > DENSE:
        roots = twigs_of(nodes, dense=True)
    row = min(27.0, max(7.0, tallest / max(1, endings(roots))))
    placed: list[Placed] = []
    _assign_rows(roots, row, placed)
    height = sum(p.room for p in placed if p.parent is None)
    return Layout(tuple(placed), 1 + max((p.column for p in placed), default=-1), height)


def _assign_rows(roots: Sequence[Twig], row: float, placed: list[Placed]) -> None:
    """Parents first; a twig's room is that of its endings, and the swept run's rows never shrink."""
    # By identity: equal twigs stand in several places, and comparing two compares all that grows from them.
    rooms: dict[int, float] = {}
    order = list(roots)
    for twig in order:
        order.extend(twig.children)
    for twig in reversed(order):
        own = max(row, 27.0 if twig.on_trace else 0.0)
        rooms[id(twig)] = max(own, sum(rooms[id(child)] for child in twig.children))
    todo: list[tuple[Twig, int, float, int | None]] = []
    top = 0.0
    for root in roots:
        todo.append((root, 0, top, None))
        top += rooms[id(root)]
    for twig, column, start, parent in todo:
        room = rooms[id(twig)]
        placed.append(Placed(twig, column, start + room / 2, room, parent))
        here, below = len(placed) - 1, start
        spare = (room - sum(rooms[id(child)] for child in twig.children)) / 2
        for child in twig.children:
            todo.append((child, column + 1, below + spare, here))
            below += rooms[id(child)]
