"""``refork maze``: exact hitting times on the path-star maze, three trainers, and a dose of recoveries."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AsJson, existing, print_json

if TYPE_CHECKING:
    from refork_methods.recovery.graph import PathStar
    from refork_methods.recovery.rows import RowPolicy

app = typer.Typer(help="The maze in which turning back is learned or not.", no_args_is_help=True)

Shape = Annotated[str, typer.Argument(metavar="W,K,L", help="Branches, diamonds, parallel edges.")]
#: Moves after which a walk in training is cut.
CAP = 400


def _graph(text: str) -> PathStar:
    from refork.errors import BadInput
    from refork_methods.recovery.rows import path_star

    parts = text.removeprefix("maze:").split(",")
    if len(parts) != 3 or not all(part.strip().lstrip("-").isdigit() for part in parts):
        raise BadInput(f"{text!r} is not W,K,L", where="maze", hint="for example 3,3,3")
    return path_star(*(int(part) for part in parts))


def _policy(file: Path, graph: PathStar | None = None) -> RowPolicy:
    from refork.errors import BadInput
    from refork.jsonl import read_utf8
    from refork_methods.recovery.rows import RowPolicy

    try:
        policy = RowPolicy.from_json(json.loads(read_utf8(existing(file))))
    except ValueError as error:
        raise BadInput(f"this is not a maze policy: {error}", where=str(file)) from error
    if graph is not None and graph != policy.graph:
        raise BadInput("the policy belongs to a maze of another shape", where=str(file))
    return policy


@app.command()
def solve(
    shape: Shape,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Maze policy; default: the uniform walk.")
    ] = None,
    method: Annotated[
        Literal["recurrence", "exact", "sparse"], typer.Option("--method", help="How H is computed.")
    ] = "recurrence",
    paths: Annotated[int, typer.Option("--walks", help="Also sample so many paths of the policy.")] = 0,
    cap: Annotated[int, typer.Option("--cap", help="Moves after which such a trajectory is cut.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Print exact expected hitting times: uniform, optimal, after endless SFT, and of a policy.

    Example: refork maze solve 15,15,5
    """
    import numpy as np

    from refork_methods.recovery import closed
    from refork_methods.recovery.hitting import expected_hitting_time
    from refork_methods.recovery.rows import RowPolicy
    from refork_methods.recovery.sample import sampled_hitting_time

    graph = _graph(shape)
    w, k, wide = graph.branches, graph.diamonds, graph.edges
    report: dict[str, Any] = {
        "uniform": float(closed.base_hitting_time(w, k, wide)),
        "optimal": closed.optimal_hitting_time(w, k),
        "sft_limit": float(closed.sft_limit_hitting_time(w, k, wide)),
        "growth_per_diamond": float(closed.growth_per_diamond(wide)),
        "search_after_sft": closed.search_cost(RowPolicy.golden_limit(graph)),
        "search_after_rlvr": closed.search_cost(RowPolicy.optimal(graph)),
    }
    chosen = RowPolicy.base(graph) if policy is None else _policy(policy, graph)
    found = expected_hitting_time(chosen, method)
    if policy is not None:
        report |= {"policy": found.value, "stuck": found.stuck}
    if found.exact is not None:
        report["exact"] = str(found.exact)
    walked = None
    if paths:
        walked = sampled_hitting_time(chosen, paths, cap, np.random.default_rng(0))
    if as_json:
        print_json(report | ({} if walked is None else {"walked": asdict(walked)}))
        return
    for name, value in report.items():
        shown = f"{value:,.6g}" if isinstance(value, float) else str(value)
        typer.echo(f"{name.replace('_', ' '):28s} {shown}")
    if walked is not None:
        typer.echo(
            f"walked {walked.count}, cut {walked.censored} at {walked.horizon:g}: at least "
            f"{walked.restricted:.1f} [{walked.low:.1f}, {walked.high:.1f}] moves on average"
        )


@app.command()
def train(
    shape: Shape,
    method: Annotated[
        Literal["sft", "rlvr", "distill"], typer.Option("--method", help="What is learned from.")
    ] = "rlvr",
    mode: Annotated[
        Literal["sampled", "exact", "sign"], typer.Option("--mode", help="rlvr: the gradient.")
    ] = "sampled",
    teacher: Annotated[Path | None, typer.Option("--teacher", help="distill: the policy to imitate.")] = None,
    updates: Annotated[int | None, typer.Option("--updates", help="Default: rlvr 300, else 1000.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Default: 0.2 sampled, 0.01, sft 1.")] = None,
    traces: Annotated[int, typer.Option("--traces", help="distill: traces of the teacher.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of everything that is drawn.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Write the policy here.")] = None,
    write_traces: Annotated[
        Path | None, typer.Option("--write-traces", help="Write --traces trajectories of the result here.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the curve of H here (SVG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a policy of the maze: imitate shortest paths, learn from reward, or imitate a teacher.

    Example: refork maze train 3,3,3 --method rlvr --out teacher.json
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork_methods.recovery.rows import ROWS, RowPolicy
    from refork_methods.recovery.sample import golden_moves
    from refork_methods.recovery.trainers import (
        RewardSettings,
        SftSettings,
        rlvr,
        row_support,
        sft,
        teacher_moves,
    )

    graph = _graph(shape)
    start = RowPolicy.base(graph)
    moves = golden_moves(graph)
    if method == "distill":
        if teacher is None:
            raise BadInput("distill needs a teacher", hint="give --teacher FILE")
        moves = teacher_moves(_policy(teacher, graph), traces, cap=CAP, seed=seed)
    with LiveProgress() as live:
        if method == "rlvr":
            plain = 0.2 if mode == "sampled" else 0.01
            settings = RewardSettings(
                mode=mode, updates=300 if updates is None else updates,
                learning_rate=plain if rate is None else rate, cap=CAP, seed=seed,
            )  # fmt: skip
            found = rlvr(start, settings, live)
        else:
            imitation = SftSettings(
                updates=1000 if updates is None else updates, learning_rate=1.0 if rate is None else rate
            )
            found = sft(start, moves, imitation)
    report: dict[str, Any] = {
        "method": method if method != "rlvr" else f"rlvr ({mode})",
        "before": found.curve[0][1],
        "after": found.hitting_time,
        "desired": dict(zip(ROWS, found.policy.desired.tolist(), strict=True)),
        "curve": found.curve,
        "support": None if method == "rlvr" else asdict(row_support(start, moves)),
    }
    if out is not None:
        out.write_text(json.dumps(found.policy.to_json(), indent=2) + "\n")
    if write_traces is not None:
        _write_traces(found.policy, traces, seed, write_traces)
    if plot is not None:
        from refork.report.charts import Dot, Line, Plane, curves

        line = Line("moves", [Dot(x, y) for x, y in found.curve], marks=False)
        plane = Plane("update", "expected moves to the target", unit="number", log=True)
        drawn = curves([line], name=f"{report['method']} on the maze {shape}", plane=plane).svg()
        plot.write_text(drawn, encoding="utf-8")
    if as_json:
        print_json(report)
        return
    typer.echo(f"expected moves {report['before']:,.6g} -> {report['after']:,.6g}")
    for name, row in report["desired"].items():
        typer.echo(f"P(desired) {name}  " + " ".join(f"{p:.4f}" for p in row))
    if report["support"] and report["support"]["unseen"]:
        typer.echo("nothing taught the rows " + ", ".join(report["support"]["unseen"]))


def _write_traces(policy: RowPolicy, count: int, seed: int, file: Path) -> None:
    """Sampled trajectories of a policy as step-list JSON lines."""
    import numpy as np

    from refork_methods.recovery.jsonl import write_jsonl
    from refork_methods.recovery.render import maze_traces
    from refork_methods.recovery.sample import sample_paths

    # Not the stream of `seed` alone, which training and the teacher's traces are drawn from.
    rng = np.random.default_rng([seed, 1])
    trajectories = sample_paths(policy, count, CAP, rng)
    with file.open("w", encoding="utf-8") as out:
        write_jsonl(maze_traces(policy.graph, trajectories, rng), out)


@app.command()
def dose(
    teacher: Annotated[Path, typer.Argument(help="A maze policy whose traces students imitate.")],
    fractions: Annotated[str, typer.Option("--fractions", help="Shares, with commas.")] = "0,0.01,0.05,0.1",
    paths: Annotated[int, typer.Option("--paths", help="Paths in each training set.")] = 1000,
    seeds: Annotated[int, typer.Option("--seeds", help="Mixes drawn per fraction.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Say how many recoveries among shortest paths are enough: predicted, and measured on drawn mixes.

    Example: refork maze dose teacher.json --fractions 0,0.01,0.05
    """
    from refork.errors import BadInput
    from refork_methods.recovery.dose import maze_dose

    try:
        shares = [float(part) for part in fractions.split(",")]
    except ValueError:
        raise BadInput(f"{fractions!r} is not a list of fractions", hint="for example 0,0.01,0.05") from None
    rows = maze_dose(_policy(teacher), shares, paths=paths, seeds=range(seeds))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    typer.echo("fraction  traces  predicted  measured (expected moves)")
    for row in rows:
        drawn = " ".join(f"{value:.6g}" for value in row.measured)
        typer.echo(f"{row.fraction:8g} {row.recoveries:7d} {row.predicted:10.6g}  {drawn}")
