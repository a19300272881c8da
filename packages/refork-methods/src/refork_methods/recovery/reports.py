"""What the command line prints of the maze and of doses, as plain data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from refork.errors import BadInput
from refork.jsonl import read_utf8
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.recovery import closed
from refork_methods.recovery.dose import coverage_dose, maze_dose
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.hitting import Method, expected_hitting_time
from refork_methods.recovery.jsonl import write_jsonl
from refork_methods.recovery.on_tree import read_traces
from refork_methods.recovery.render import maze_traces
from refork_methods.recovery.rows import ROWS, Float64, RowPolicy, path_star
from refork_methods.recovery.sample import golden_moves, sample_paths, sampled_hitting_time
from refork_methods.recovery.traces import state_key
from refork_methods.recovery.trainers import (
    RewardSettings,
    SftSettings,
    Trained,
    distill,
    maximum_likelihood,
    rlvr,
    sft,
    teacher_moves,
)

if TYPE_CHECKING:
    from refork.policies.base import Policy
    from refork.worlds.base import World


def parse_shape(text: str) -> PathStar:
    """The maze of ``W,K,L``.

    Raises:
        BadInput: not three whole numbers of at least 1.
    """
    parts = text.removeprefix("maze:").split(",")
    if len(parts) != 3 or not all(part.strip().lstrip("-").isdigit() for part in parts):
        raise BadInput(f"{text!r} is not W,K,L", where="maze", hint="for example 3,3,3")
    return path_star(*(int(part) for part in parts))


def read_policy(file: Path) -> RowPolicy:
    """A maze policy that :func:`save_policy` wrote.

    Raises:
        BadInput: no such file, or no maze policy in it.
    """
    try:
        return RowPolicy.from_json(json.loads(read_utf8(file)))
    except ValueError as error:
        raise BadInput(f"this is not a maze policy: {error}", where=str(file)) from error


def solve_report(
    graph: PathStar, policy: RowPolicy | None, method: str, paths: int = 0, cap: int = 1000
) -> Json:
    """Exact expected moves of the maze's landmarks, of a policy where one is given, and of sampled walks."""
    w, k, wide = graph.branches, graph.diamonds, graph.edges
    report: Json = {
        "uniform": float(closed.base_hitting_time(w, k, wide)),
        "optimal": closed.optimal_hitting_time(w, k),
        "sft_limit": float(closed.sft_limit_hitting_time(w, k, wide)),
        "growth_per_diamond": float(closed.growth_per_diamond(wide)),
        "search_after_sft": closed.search_cost(RowPolicy.golden_limit(graph)),
        "search_after_rlvr": closed.search_cost(RowPolicy.optimal(graph)),
    }
    found = expected_hitting_time(policy or RowPolicy.base(graph), cast("Method", method))
    if policy is not None:
        report |= {"policy": found.value, "stuck": found.stuck}
    if found.exact is not None:
        report["exact"] = str(found.exact)
    if paths:
        drawn = sampled_hitting_time(policy or RowPolicy.base(graph), paths, cap, np.random.default_rng(0))
        report["walked"] = asdict(drawn)
    return report


def train_by(
    method: str,
    graph: PathStar,
    *,
    start: RowPolicy | None = None,
    teacher: RowPolicy | None = None,
    mode: str = "sampled",
    updates: int | None = None,
    rate: float | None = None,
    batch: int = 64,
    cap: int = 400,
    traces: int = 100,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[RowPolicy, Json]:
    """Train by the name of a method; the policy, and what to print of it.

    Raises:
        BadInput: an unknown method or mode, or distillation without a teacher.
    """
    begin = start or RowPolicy.base(graph)
    imitation = SftSettings(updates=updates or 1000, learning_rate=rate or 1.0)

    def reward() -> Trained:
        plain = 0.2 if mode == "sampled" else 0.01
        settings = RewardSettings(
            mode=cast("Any", mode), updates=updates or 300, learning_rate=rate or plain, batch=batch,
            cap=cap, seed=seed,
        )  # fmt: skip
        return rlvr(begin, settings, progress)

    def imitate() -> Trained:
        if teacher is None:
            raise BadInput("distillation needs a teacher", where="maze training")
        return distill(teacher, begin, traces, cap=cap, seed=seed, settings=imitation)

    methods: dict[str, Callable[[], Trained]] = {
        "sft": lambda: sft(begin, golden_moves(graph), imitation),
        "rlvr": reward,
        "distill": imitate,
    }
    if method not in methods:
        raise BadInput(f"unknown method {method!r}", hint="methods: " + ", ".join(methods))
    found = methods[method]()
    support: Json = {}
    if method != "rlvr":
        moves = golden_moves(graph)
        if method == "distill" and teacher is not None:
            moves = teacher_moves(teacher, traces, cap=cap, seed=seed)
        support = {"support": row_support(begin, moves)}
    return found.policy, {
        "method": method if method != "rlvr" else f"rlvr ({mode})",
        "before": found.curve[0][1],
        "after": found.hitting_time,
        "desired": _rows(found.policy.desired),
        "curve": [list(point) for point in found.curve],
        **support,
    }


def row_support(start: RowPolicy, moves: Float64) -> Json:
    """What a table of moves [4, K, 2] teaches: moves by family, rows without any, and the fit to ``start``.

    Predicted is the expected hitting time of the maximum-likelihood policy, whose unseen rows stay frozen.
    """
    seen = moves.sum(-1)
    found = expected_hitting_time(maximum_likelihood(start, moves))
    return {
        "moves": {name: int(seen[r].sum()) for r, name in enumerate(ROWS)},
        "desired": {name: int(moves[r, :, 0].sum()) for r, name in enumerate(ROWS)},
        "unseen": [
            f"{name}_{j}" for r, name in enumerate(ROWS) for j in range(moves.shape[1]) if seen[r, j] == 0
        ],
        "predicted_hitting_time": found.value,
        "stuck": found.stuck,
    }


def _rows(table: Any) -> Json:
    return {name: [float(p) for p in row] for name, row in zip(ROWS, table, strict=True)}


def save_policy(policy: RowPolicy, file: Path) -> None:
    """Write a policy as JSON."""
    file.write_text(json.dumps(policy.to_json(), indent=2) + "\n")


def save_traces(policy: RowPolicy, count: int, cap: int, seed: int, file: Path) -> None:
    """Write sampled walks of a policy as step-list JSON lines."""
    rng = np.random.default_rng([seed, 1])
    walks = sample_paths(policy, count, cap, rng)
    with file.open("w", encoding="utf-8") as out:
        write_jsonl(maze_traces(policy.graph, walks, rng), out)


def measure_report(
    policy: Policy, world: World, tasks: int, read: int, seed: int, tree: Path | None, progress: Progress
) -> Json:
    """Rows read from a policy's log-probs, the hitting time they predict, and the walked one."""
    from contextlib import ExitStack

    from refork.tree.tree import Tree
    from refork_methods.recovery.measure import Maze, measure_hitting, read_rows

    maze = cast("Maze", world)
    rows = read_rows(policy, maze, world.tasks("held-out", read), progress)
    with ExitStack() as stack:
        store = None if tree is None else stack.enter_context(Tree.open(tree))
        walked = measure_hitting(
            policy, maze, world.tasks("held-out", tasks), seed=seed, tree=store, progress=progress
        )
    predicted = expected_hitting_time(rows.policy(maze))
    return {
        "desired": _rows(rows.desired),
        "mass": float(rows.mass.min()),
        "states_read": rows.states,
        "predicted": predicted.value,
        "stuck": predicted.stuck,
        "walked": asdict(walked),
    }


def parse_fractions(text: str) -> list[float]:
    """Numbers with commas between them.

    Raises:
        BadInput: not numbers in [0, 1].
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"{text!r} is not a list of fractions", hint="for example 0,0.01,0.05") from None
    if not all(0 <= value <= 1 for value in found):
        raise BadInput("fractions must lie in [0, 1]", where="dose")
    return found


def dose_report(
    traces: Path | None,
    teacher: Path | None,
    fractions: str,
    *,
    paths: int = 1000,
    seeds: int = 3,
    key: str = "normalised",
    outcome: str | None = None,
    score: str = "success",
    threshold: float = 1.0,
) -> list[Json]:
    """One record per fraction, of a trace file's coverage or of a maze teacher's students.

    Raises:
        BadInput: neither or both of the two, or what reading them raises.
    """
    shares = parse_fractions(fractions)
    if (traces is None) == (teacher is None):
        raise BadInput("give either a trace file or --teacher", where="dose")
    if traces is not None:
        read = read_traces(traces, outcome=outcome, score=score)
        rows = coverage_dose(read.traces, shares, key=state_key(key), threshold=threshold, seeds=range(seeds))
        return [asdict(row) for row in rows]
    assert teacher is not None
    policy = read_policy(teacher)
    return [asdict(row) for row in maze_dose(policy, shares, paths=paths, seeds=range(seeds))]
