"""``refork simulate data``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, print_json

if TYPE_CHECKING:
    from refork_methods.simulate.prepare import Prepared, Row

Sources = Annotated[
    list[Path], typer.Argument(help="Trajectories, trees or logs.", show_default=False, metavar="SOURCES...")
]
Items = Annotated[
    list[str] | None,
    typer.Option("--thresholds", help="Bounds of turn classes, name=value; may be repeated."),
]
Balance = Annotated[
    int | None, typer.Option(help="At most so many turns of a domain; 0: as the smallest.", min=0)
]


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("data")(data)


def data(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.", show_default=False)],
    test_source: Annotated[list[Path] | None, typer.Option(help="A source to test on only.")] = None,
    test_fraction: Annotated[float, typer.Option(help="Share to test on, where no source is named.")] = 0.2,
    by: Annotated[str, typer.Option(help="Split by source or, in records of one world, by task.")] = "source",
    thresholds: Items = None,
    balance: Balance = None,
    replay: Annotated[Path | None, typer.Option(help="Other text against forgetting, JSON lines.")] = None,
    replay_fraction: Annotated[float, typer.Option(help="Its share of all characters.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    json: AsJson = False,
) -> None:
    """Check, filter, split and weigh environment trajectories, and write them to train on.

    Example: refork simulate data tools.db terminal.jsonl --out data --by task
    """
    from refork.cli.live import LiveProgress
    from refork_methods.simulate.prepare import Choices, prepare, write
    from refork_methods.simulate.turn_stats import Thresholds

    choices = Choices(
        thresholds=Thresholds.parse(thresholds or []),
        test_fraction=test_fraction,
        by=by,
        balance=balance,
        replay_fraction=replay_fraction,
        seed=seed,
    )
    with LiveProgress() as progress:
        prepared = prepare(sources, test_source or [], replay, choices, progress)
    write(prepared, out)
    if json:
        print_json({"folder": str(out), **prepared.to_json()})
    else:
        _tell(prepared, out)


def _tell(prepared: Prepared, out: Path) -> None:
    facts = prepared.to_json()
    typer.echo(f"{out}: {facts['train']} trajectories to train on, {facts['test']} to test on")
    refused = [problem for problem in prepared.problems if problem.refused and problem.kind != "doubled"]
    for problem in refused[:10]:
        typer.echo(f"refused: {problem}")
    for line in prepared.unread[:10]:
        typer.echo(f"not read: {line}")
    for kind, count in facts["problems"].items():
        typer.echo(f"{kind}: {count}")
    typer.echo(
        f"retry turns dropped: {prepared.dropped}; context only: {prepared.context_only}; "
        f"replay: {len(prepared.replay)} items, {prepared.replay_fraction:.1%} of characters"
    )
    kinds = list(prepared.table[0].shares) if prepared.table else []
    typer.echo("domain    trajectories  turns  targets  exact  weight  " + "  ".join(kinds))
    for row in prepared.table:
        typer.echo(_line(row))


def _line(row: Row) -> str:
    exact = "    -" if row.exact is None else f"{row.exact:5.0%}"
    shares = "  ".join(f"{share:>{len(kind)}.0%}" for kind, share in row.shares.items())
    return (
        f"{row.domain:<10}{row.trajectories:12d}  {row.turns:5d}  {row.targets:7d}  {exact}  "
        f"{row.weight:6.2f}  {shares}"
    )
