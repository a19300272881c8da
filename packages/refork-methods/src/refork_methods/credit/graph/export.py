"""A state graph as JSON or GraphML, with values, visits and edge gains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from refork.errors import BadInput
from refork.types import Json
from refork_methods.credit.graph.advantages import node_values
from refork_methods.credit.graph.edges import distinct_trajectories, edges
from refork_methods.credit.graph.state_graph import StateGraph


def graph_json(graph: StateGraph, gamma: float = 0.95, win: float | None = None) -> Json:
    """Nodes (name, value, visits, trajectories, outcome of an end) and edges (visits, gain) as JSON."""
    values, visits = node_values(graph, gamma, "every", win), graph.visits()
    passing = distinct_trajectories(graph, graph.nodes, len(graph.graphs))
    found = edges(graph)
    gains = values[found.targets] - values[found.sources]
    nodes = [
        {
            "id": i,
            "graph": int(graph.graphs[i]),
            "kind": "state" if graph.labels[i] >= 0 else "end",
            "name": graph.name(i),
            "value": float(values[i]),
            "visits": int(visits[i]),
            "trajectories": int(passing[i] if graph.labels[i] >= 0 else visits[i]),
            "outcome": None if np.isnan(graph.ends[i]) else float(graph.ends[i]),
        }
        for i in range(len(graph.graphs))
    ]
    links = [
        {"source": s, "target": t, "visits": n, "trajectories": m, "gain": gain}
        for s, t, n, m, gain in zip(
            found.sources.tolist(),
            found.targets.tolist(),
            found.visits.tolist(),
            found.trajectories.tolist(),
            gains.tolist(),
            strict=True,
        )
    ]
    return {"gamma": gamma, "win": win, "nodes": nodes, "edges": links}


def to_networkx(graph: StateGraph, gamma: float = 0.95, win: float | None = None) -> Any:
    """A ``networkx.DiGraph`` with the attributes of :func:`graph_json`; those that are None left out."""
    import networkx as nx

    data = graph_json(graph, gamma, win)
    made = nx.DiGraph(gamma=gamma)
    for node in data["nodes"]:
        made.add_node(node["id"], **{k: v for k, v in node.items() if k != "id" and v is not None})
    for edge in data["edges"]:
        made.add_edge(edge.pop("source"), edge.pop("target"), **edge)
    return made


def write_graph(graph: StateGraph, path: Path, gamma: float = 0.95, win: float | None = None) -> None:
    """Write ``.graphml`` (what graph viewers read) or ``.json``; the file appears once it is whole.

    Raises:
        BadInput: another ending, or a file that cannot be written.
    """
    if path.suffix not in (".graphml", ".json"):
        raise BadInput(
            f"{path.suffix or 'no ending'!r} is not known", where=str(path), hint=".graphml or .json"
        )
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix == ".json":
            part.write_text(json.dumps(graph_json(graph, gamma, win)), encoding="utf-8")
        else:
            import networkx as nx

            nx.write_graphml(_printable(to_networkx(graph, gamma, win)), part)
        part.replace(path)  # in one step: a viewer never opens half a graph
    except OSError as error:
        raise BadInput(f"the file cannot be written: {error.strerror}", where=str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def _printable(made: Any) -> Any:
    """Names without the control characters that XML forbids."""
    for _, data in made.nodes(data=True):
        data["name"] = "".join(c for c in data["name"] if c.isprintable() or c in "\n\t")
    return made
