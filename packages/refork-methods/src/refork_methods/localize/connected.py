"""Files that a file imports and files that import it, as far as asked."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from refork.errors import BadInput
from refork_methods.localize.facts import ToolResult
from refork_methods.localize.index import RepoIndex

MOST = 100
"""Files that each direction shows at most."""

_FARTHEST = 5


def reached(graph: "nx.DiGraph[str]", path: str, hops: int) -> dict[str, int]:
    """File -> how many imports away it is, up to ``hops``; the file itself is left out."""
    found: dict[str, int] = nx.single_source_shortest_path_length(graph, path, cutoff=hops)
    return {other: far for other, far in found.items() if far}


def connected(index: RepoIndex, path: str, hops: int = 1) -> ToolResult:
    """The files a file imports and those that import it, inside the repository, with the lines that say so.

    Raises: BadInput where there is no such file or ``hops`` is not within 1 to 5.
    """
    if not 1 <= hops <= _FARTHEST:
        raise BadInput(f"hops is 1 to {_FARTHEST}")
    name = index.snapshot.resolve(path)
    graph = index.imports
    up = reached(graph.reverse(copy=False), name, hops)
    down = reached(graph, name, hops)
    out = [
        f"{name}: {len(down)} imported, {len(up)} importing, within {hops} {'hop' if hops == 1 else 'hops'}"
    ]
    cut = _section(
        out, "imports", down, {other: graph.edges[name, other] for other in down if down[other] == 1}
    )
    cut += _section(
        out, "imported by", up, {other: graph.edges[other, name] for other in up if up[other] == 1}
    )
    facts = index.files[name]
    if facts.error is not None:
        out.append(f"note: imports may be missing ({facts.error})")
    elif facts.language is None:
        out.append("note: imports are not read from files of this kind")
    return ToolResult("\n".join(out) + "\n", cut=cut)


def _section(
    out: list[str], title: str, found: dict[str, int], direct: Mapping[str, Mapping[str, object]]
) -> int:
    """Write one direction, nearest first; returns how many are left out."""
    out.append(f"{title}:" if found else f"{title}: none")
    for other, far in sorted(found.items(), key=lambda item: (item[1], item[0]))[:MOST]:
        out.append(f"  {other} ({_said(direct[other]) if far == 1 else f'{far} hops'})")
    cut = max(0, len(found) - MOST)
    if cut:
        out.append(f"  {cut} more not shown")
    return cut


def _said(edge: Mapping[str, object]) -> str:
    lines, names = edge["lines"], edge["names"]
    assert isinstance(lines, tuple)
    assert isinstance(names, tuple)
    told = f"line {', '.join(map(str, lines[:4]))}{' …' if len(lines) > 4 else ''}"
    return f"{told}: {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" if names else told
