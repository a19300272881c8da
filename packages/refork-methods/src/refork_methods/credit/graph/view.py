"""The graph of merged states of one task: what is drawn of it, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from refork.report.words import one_line
from refork.tree.view import TreeView
from refork.types import Json
from refork.viewer.live.answers import number
from refork_methods.credit.graph.export import graph_json
from refork_methods.credit.graph.on_tree import graded_trajectories
from refork_methods.credit.graph.trajectory_steps import TrajectorySteps, walk_steps

Int64 = NDArray[np.int64]

#: States that are drawn, the most visited first; the others are counted.
DRAWN: Final = 120
#: Sweeps that put the states of a column beside those they come from.
_SWEEPS: Final = 6
_NAME: Final = 400


def state_nodes(view: TreeView, task: str, score: str | None) -> Json:
    """States that several rollouts of a task saw, as one node each: value, visits, edges, column and place.

    A state's value is the mean outcome of its visits, undiscounted; rollouts that a change led to are out.

    Raises:
        UnknownNode: no such task.
        BadInput: no rollout below it has a score of that name.
    """
    name = score or next(iter(view.score_names()), "success")
    trajectories, outcomes, _, _ = graded_trajectories(view.tree, [task], name)
    found = walk_steps(trajectories, outcomes)
    told = graph_json(found.graph, gamma=1.0)
    leaves = [trajectory.leaf.id for trajectory in trajectories]
    kept = _most_visited(told["nodes"])
    at = {node: place for place, node in enumerate(kept)}
    edges = [
        {
            "source": at[e["source"]],
            "target": at[e["target"]],
            "visits": e["visits"],
            "gain": number(e["gain"]),
        }
        for e in told["edges"]
        if e["source"] in at and e["target"] in at
    ]
    ends = [at[node] for node in kept if told["nodes"][node]["kind"] == "end"]
    columns, places = layers(len(kept), [(e["source"], e["target"]) for e in edges], _starts(found, at), ends)
    states = [
        _state(
            told["nodes"][node],
            columns[place],
            places[place],
            leaves[found.trajectories[_example(found, node)]],
        )
        for place, node in enumerate(kept)
    ]
    return {
        "score": name,
        "rollouts": len(found.trajectories),
        "steps": len(found.graph),
        "all": len(told["nodes"]),
        "states": states,
        "edges": edges,
        "version": view.version(),
    }


def _most_visited(nodes: Sequence[Json]) -> list[int]:
    ranked = sorted(range(len(nodes)), key=lambda i: (-nodes[i]["visits"], i))
    return sorted(ranked[:DRAWN])


def _starts(found: TrajectorySteps, at: dict[int, int]) -> list[int]:
    """Drawn states in which rollouts begin."""
    first = np.unique(found.graph.nodes[found.graph.positions == 0]).tolist()
    return [at[node] for node in first if node in at]


def _example(found: TrajectorySteps, node: int) -> int:
    """A trajectory through a node, the first."""
    graph = found.graph
    return int(graph.trajectories[np.argmax((graph.nodes == node) | (graph.nexts == node))])


def _state(node: Json, column: int, place: float, leaf: str) -> Json:
    told = {name: node[name] for name in ("kind", "visits", "trajectories", "outcome")}
    text = one_line(str(node["name"]), _NAME)
    return told | {
        "name": text,
        "value": number(node["value"]),
        "column": column,
        "place": place,
        "leaf": leaf,
    }


def layers(
    count: int, edges: Sequence[tuple[int, int]], starts: Sequence[int], ends: Sequence[int] = ()
) -> tuple[list[int], list[float]]:
    """A column for each state (its distance from a start) and its place in the column, from -1 to 1.

    States that no start leads to stand behind all others, and ``ends`` behind those. Within a column, states
    lie in the order of the mean place of what leads to them, so that few edges cross.
    """
    nexts: list[list[int]] = [[] for _ in range(count)]
    befores: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        nexts[source].append(target)
        befores[target].append(source)
    # Where no start is among the drawn states the first one stands in; the slice is empty for no state at
    # all.
    columns = _distances(nexts, starts or [0][:count])
    last = max((columns[state] for state in range(count) if state not in ends), default=-1) + 1
    for state in ends:
        columns[state] = last
    rows: dict[int, list[int]] = {}
    for state, column in enumerate(columns):
        rows.setdefault(column, []).append(state)
    places = [0.0] * count
    for sweep in range(_SWEEPS):
        near = befores if sweep % 2 == 0 else nexts
        for column in sorted(rows, reverse=bool(sweep % 2)):
            members = rows[column]
            middle = {
                s: float(np.mean([places[o] for o in near[s]])) if near[s] else places[s] for s in members
            }
            members.sort(key=lambda s: (middle[s], s))
            for rank, state in enumerate(members):
                places[state] = (2 * rank + 1) / len(members) - 1
    return columns, places


def _distances(nexts: Sequence[Sequence[int]], starts: Sequence[int]) -> list[int]:
    found = dict.fromkeys(starts, 0)
    front = list(found)
    for state in front:
        for other in nexts[state]:
            if other not in found:
                found[other] = found[state] + 1
                front.append(other)
    behind = max(found.values(), default=-1) + 1
    return [found.get(state, behind) for state in range(len(nexts))]
