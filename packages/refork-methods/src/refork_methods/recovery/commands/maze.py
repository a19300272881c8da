"""``refork maze``: exact hitting times on the path-star maze, three trainers, measuring a policy on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json

app = typer.Typer(help="The maze in which turning back is learned or not.", no_args_is_help=True)

Shape = Annotated[str, typer.Argument(metavar="W,K,L", help="Branches, diamonds, parallel edges.")]
PolicyFile = Annotated[Path | None, typer.Option("--policy", help="Maze policy; default: the uniform walk.")]


def _load(file: Path, shape: str | None = None) -> Any:
    from refork.errors import BadInput
    from refork_methods.recovery.reports import parse_shape, read_policy

    policy = read_policy(existing(file))
    if shape is not None and parse_shape(shape) != policy.graph:
        raise BadInput("the policy belongs to a maze of another shape", where=str(file))
    return policy


@app.command()
def solve(
    shape: Shape,
    policy: PolicyFile = None,
    method: Annotated[str, typer.Option("--method", help="recurrence, exact or sparse.")] = "recurrence",
    paths: Annotated[int, typer.Option("--walks", help="Also sample so many walks of the policy.")] = 0,
    cap: Annotated[int, typer.Option("--cap", help="Moves after which such a walk is cut.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Print exact expected hitting times: uniform, optimal, after endless SFT, and of a policy.

    Example: refork maze solve 15,15,5
    """
    from refork_methods.recovery.reports import parse_shape, solve_report

    chosen = None if policy is None else _load(policy, shape)
    report = solve_report(parse_shape(shape), chosen, method, paths, cap)
    if as_json:
        print_json(report)
        return
    walked = report.pop("walked", None)
    for name, value in report.items():
        shown = f"{value:,.6g}" if isinstance(value, float) else str(value)
        typer.echo(f"{name.replace('_', ' '):28s} {shown}")
    if walked is not None:
        _print_walked(walked)


@app.command()
def train(
    shape: Shape,
    method: Annotated[str, typer.Option("--method", help="sft, rlvr or distill.")] = "rlvr",
    mode: Annotated[str, typer.Option("--mode", help="rlvr: sampled, exact or sign.")] = "sampled",
    policy: PolicyFile = None,
    teacher: Annotated[Path | None, typer.Option("--teacher", help="distill: the policy to imitate.")] = None,
    updates: Annotated[int | None, typer.Option("--updates", help="Default: rlvr 300, else 1000.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Default: 0.2 sampled, 0.01, sft 1.")] = None,
    batch: Annotated[int, typer.Option("--batch", help="rlvr: walks per update.")] = 64,
    cap: Annotated[int, typer.Option("--cap", help="Moves after which a walk is cut.")] = 400,
    traces: Annotated[int, typer.Option("--traces", help="distill: traces of the teacher.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of everything that is drawn.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Write the policy here.")] = None,
    write_traces: Annotated[
        Path | None, typer.Option("--write-traces", help="Write --traces walks of the result here.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the curve of H here (SVG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a policy of the maze: imitate shortest paths, learn from reward, or imitate a teacher.

    Example: refork maze train 3,3,3 --method rlvr --out teacher.json
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork_methods.recovery.reports import parse_shape, save_policy, save_traces, train_by

    graph = parse_shape(shape)
    if method == "distill" and teacher is None:
        raise BadInput("distill needs a teacher", hint="give --teacher FILE")
    with LiveProgress() as live:
        result, report = train_by(
            method, graph, start=None if policy is None else _load(policy, shape),
            teacher=None if teacher is None else _load(teacher, shape), mode=mode, updates=updates,
            rate=rate, batch=batch, cap=cap, traces=traces, seed=seed, progress=live,
        )  # fmt: skip
    if out is not None:
        save_policy(result, out)
    if write_traces is not None:
        save_traces(result, traces, cap, seed, write_traces)
    if plot is not None:
        from refork.report.charts import Dot, Line, Plane, curves

        line = Line("moves", [Dot(x, y) for x, y in report["curve"]], marks=False)
        plane = Plane("update", "expected moves to the target", unit="number", log=True)
        plot.write_text(curves([line], name=f"{report['method']} on the maze {shape}", plane=plane).svg())
    if as_json:
        print_json(report)
        return
    typer.echo(f"expected moves {report['before']:,.6g} -> {report['after']:,.6g}")
    for name, row in report["desired"].items():
        typer.echo(f"P(desired) {name}  " + " ".join(f"{p:.4f}" for p in row))
    unseen = report.get("support", {}).get("unseen", [])
    if unseen:
        typer.echo("nothing taught the rows " + ", ".join(unseen))


@app.command()
def measure(
    world: Annotated[str, typer.Argument(help="A maze world, e.g. maze:3,2,2?cap=60.")],
    policy: Annotated[str, typer.Option("--policy", help="hf:DIR or another policy with log-probs.")],
    tasks: Annotated[int, typer.Option("--tasks", help="Held-out mazes to walk.")] = 50,
    read: Annotated[int, typer.Option("--read", help="Mazes in which rows are read.")] = 4,
    seed: Annotated[int, typer.Option("--seed", help="Of the walks.")] = 0,
    tree: Annotated[Path | None, typer.Option("--tree", help="Record the walks here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read a language model's rows on a maze, and measure its hitting time with cut walks taken as cut.

    Example: refork maze measure 'maze:3,2,2?cap=60' --policy hf:DIR --tasks 100
    """
    from refork.cli.live import LiveProgress
    from refork.policies.open import open_policy
    from refork.worlds.open import open_world
    from refork_methods.recovery.reports import measure_report

    with LiveProgress() as live:
        report = measure_report(open_policy(policy), open_world(world), tasks, read, seed, tree, live)
    if as_json:
        print_json(report)
        return
    for name, row in report["desired"].items():
        typer.echo(f"P(desired) {name}  " + " ".join(f"{p:.3f}" for p in row))
    typer.echo(f"predicted from the rows     {report['predicted']:,.6g} moves")
    _print_walked(report["walked"])


def _print_walked(walked: Any) -> None:
    typer.echo(
        f"walked {walked['count']}, cut {walked['censored']} at {walked['horizon']:g}: at least "
        f"{walked['restricted']:.1f} [{walked['low']:.1f}, {walked['high']:.1f}] moves on average"
    )
    tail = walked["mean"]
    typer.echo("with an exponential tail    " + ("not known" if tail is None else f"{tail:,.1f} moves"))
