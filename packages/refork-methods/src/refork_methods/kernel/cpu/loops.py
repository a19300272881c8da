"""Innermost loops of machine code: natural loops of its control flow that hold no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import networkx as nx


@final
@dataclass(frozen=True, slots=True)
class Instruction:
    """One line: address, mnemonic, operands in AT&T order, where it jumps or what it calls, the line."""

    address: int
    name: str
    operands: str
    line: str
    target: int | None = None
    callee: str = ""

    @property
    def jumps(self) -> bool:
        """Whether it may go on elsewhere in its function."""
        return self.name.startswith(("j", "loop"))

    @property
    def ends(self) -> bool:
        """Whether the next instruction does not follow it."""
        return self.name.startswith(("jmp", "ret", "ud2", "hlt"))


def innermost(body: Sequence[Instruction]) -> list[list[Instruction]]:
    """The loops that hold no other, by address of their heads.

    A step to an instruction through which every way to that step leads closes a loop; its body is what
    reaches the step without passing that head. Jumps back from code that gcc moved out of the way are none.
    """
    if not body:
        return []
    graph = _flow(body)
    parent = nx.immediate_dominators(graph, 0)
    loops: dict[int, set[int]] = {}
    for at, head in graph.edges:
        # A head is entered from outside and from its loop.
        if (graph.in_degree(head) > 1 or head == 0) and _dominates(parent, head, at):
            loops.setdefault(head, {head}).update(_body(graph, head, at))
    least = [
        head for head, inside in loops.items() if not any(other in inside for other in loops if other != head)
    ]
    return [[body[at] for at in sorted(loops[head])] for head in sorted(least)]


def _flow(body: Sequence[Instruction]) -> nx.DiGraph[int]:
    """Ways between instructions, by position; what cannot be reached is left out."""
    place = {one.address: at for at, one in enumerate(body)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(body)))
    for at, one in enumerate(body):
        if not one.ends and at + 1 < len(body):
            graph.add_edge(at, at + 1)
        if one.jumps and one.target in place:
            graph.add_edge(at, place[one.target])
    # Jump tables: what nothing else leads to is a case.
    cases = [at for at in graph if at and not graph.in_degree(at)]
    tables = [
        at for at, one in enumerate(body) if one.name.startswith("jmp") and one.operands.startswith("*")
    ]
    graph.add_edges_from((table, case) for table in tables for case in cases)
    found = nx.descendants(graph, 0) | {0}
    return graph.subgraph(found).copy()


def _dominates(parent: dict[int, int], head: int, at: int) -> bool:
    """Whether every way from the entry to ``at`` leads through ``head``."""
    while at != head:
        above = parent.get(at)
        if above is None or above == at:
            return False
        at = above
    return True


def _body(graph: nx.DiGraph[int], head: int, last: int) -> set[int]:
    """What reaches the loop's last instruction without passing the head."""
    inside, waiting = {last}, [last]
    while waiting:
        one = waiting.pop()
        if one == head:
            continue
        fresh = set(graph.predecessors(one)) - inside
        inside |= fresh
        waiting += fresh
    return inside
