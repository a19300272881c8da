"""Sampled trajectories told in the words of the maze world, as traces."""

from __future__ import annotations

import numpy as np

from refork_methods.recovery.chain import TARGET
from refork_methods.recovery.graph import Move, PathStar, State
from refork_methods.recovery.maze import MazeGame
from refork_methods.recovery.sample import SampledPaths
from refork_methods.recovery.traces import Step, Trace


def maze_traces(graph: PathStar, paths: SampledPaths, rng: np.random.Generator) -> list[Trace]:
    """Walks as step-list traces; the target, the dead branches and the parallel edges are drawn uniformly.

    The texts are those of the world ``maze:W,K,L`` with branches named 0 to W - 1, so they can be replayed
    there. The outcome is 1 where the target was reached.
    """
    return [_trace(graph, paths, number, rng) for number in range(len(paths))]


def _trace(graph: PathStar, trajectories: SampledPaths, number: int, rng: np.random.Generator) -> Trace:
    target = int(rng.integers(graph.branches))
    game = MazeGame(graph, tuple(range(graph.branches)), target)
    path = trajectories.states[: int(trajectories.steps[number]) + 1, number]
    here = game.begin
    steps = []
    for there in path[1:].tolist():
        move = _move(graph, here.state, trajectories.chain.names[there], target, rng)
        action = f"go {move.kind}" + (f" {move.number}" if move.number >= 0 else "")
        state = game.view(here)
        steps.append(Step(state, action, observed=("state", state), actions=({"action": action},)))
        after = game.act(here, action)
        assert after is not None
        here = after
    reached = float(path[-1] == TARGET)
    end = game.view(here)
    rest = {"end": end, "outcome": reached, "_form": "steps"}
    return Trace(f"trajectory {number}", tuple(steps), Step(end, ""), reached, rest)


def _move(graph: PathStar, here: State, name: str, target: int, rng: np.random.Generator) -> Move:
    """A move that leads from a state to the named chain state, drawn among equal ones."""
    if here.node.role == "fork":
        if "dead" not in name:
            return Move("branch", target)
        number = int(rng.integers(graph.branches - 1))
        # One number fewer was drawn from: those from the target on move up, past it.
        return Move("branch", number + (number >= target))
    fitting = []
    for move in graph.moves(here.node):
        after = graph.follow(here.node, move)
        if after is not None and _fits(graph, after, name):
            fitting.append(move)
    return fitting[int(rng.integers(len(fitting)))]


def _fits(graph: PathStar, state: State, name: str) -> bool:
    row = graph.row(state)
    if row is not None:
        return name.startswith(f"{row}_{state.node.diamond} ")
    return name in {"fork": ("fork",), "leaf": ("dead leaf", "target")}.get(state.node.role, ())
