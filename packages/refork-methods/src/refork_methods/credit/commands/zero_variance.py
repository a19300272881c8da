"""``refork collapse``: which groups of rollouts teach nothing, and what group size would."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json

app = typer.Typer(
    help="Which groups of rollouts teach nothing, and what group size would.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Source = Annotated[Path, typer.Argument(help="A tree file, or JSONL with group and reward.")]
ScoreName = Annotated[str, typer.Option("--score", help="The leaf score of a tree.")]
Passing = Annotated[float, typer.Option("--passing", help="Rewards from here count as success.")]
Graded = Annotated[bool, typer.Option("--graded", help="Rewards have a scale of their own, not 0/1 or -1/1.")]
Rates = Annotated[list[float], typer.Option("--pass-rate", help="A success rate; may be repeated.")]


def _report(source: Path, score: str, passing: float, graded: bool) -> dict[str, Any]:
    from refork.growing.report import groups_from_jsonl, groups_from_tree, zero_variance_report
    from refork.tree import Tree

    if existing(source).suffix in (".jsonl", ".ndjson"):
        groups = groups_from_jsonl(source)
    else:
        with Tree.open(source, "r") as tree:
            groups = groups_from_tree(tree, score)
    return zero_variance_report(groups, passing=passing, graded=graded)


@app.command()
def report(
    source: Source,
    score: ScoreName = "success",
    passing: Passing = 1.0,
    graded: Graded = False,
    at_most: Annotated[
        float | None, typer.Option("--at-most", help="Exit 1 if a larger share of groups collapsed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count groups that all fail, all pass, or are mixed; say what they offer a trainer.

    Example: `refork collapse report runs/a/tree.db`
    """
    found = _report(source, score, passing, graded)
    if as_json:
        print_json(found)
    else:
        from refork.cli.screen import open_console
        from refork_methods.credit.commands.zero_variance_view import report_card

        open_console().print(report_card(found))
    if at_most is not None and 1 - found["mixed"] / found["groups"] > at_most:
        raise typer.Exit(1)


@app.command()
def curve(
    source: Annotated[
        Path | None, typer.Argument(help="A tree file, or JSONL with group and reward.")
    ] = None,
    pass_rate: Rates = [],  # noqa: B006
    score: ScoreName = "success",
    passing: Passing = 1.0,
    graded: Graded = False,
    as_json: AsJson = False,
) -> None:
    """Print the share of mixed groups by group size: of recorded prompts, or of given success rates.

    Example: `refork collapse curve --pass-rate 0.01 --pass-rate 0.5`
    """
    from refork.errors import BadInput
    from refork.growing.report import SIZES
    from refork.growing.zero_variance import mixed_probability

    if (source is None) == (not pass_rate):
        raise BadInput("a curve is of a file or of success rates", hint="name a file, or give --pass-rate")
    if source is not None:
        points = _report(source, score, passing, graded)["curve"]
        if points is None:
            raise BadInput(
                "fewer than two prompts have two independent rollouts",
                where=str(source),
                hint="forks inside a tree are not independent draws of their prompt",
            )
    else:
        points = [
            {"size": n, "mixed": {f"{p:g}": float(mixed_probability(p, n)) for p in pass_rate}} for n in SIZES
        ]
    if as_json:
        print_json({"curve": points})
        return
    from refork.cli.screen import open_console
    from refork_methods.credit.commands.zero_variance_view import curve_table

    open_console().print(curve_table(points))


@app.command()
def size(
    pass_rate: Annotated[list[float], typer.Option("--pass-rate", help="A success rate; may be repeated.")],
    target: Annotated[float, typer.Option("--target", help="The wanted chance of a mixed group.")] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Print how many independent rollouts make a group mixed with the wanted chance.

    Example: `refork collapse size --pass-rate 0.02 --target 0.9`
    """
    from refork.growing.zero_variance import required_group_size

    sizes = {f"{p:g}": required_group_size(p, target) for p in pass_rate}
    if as_json:
        print_json({"target": target, "sizes": sizes})
        return
    for rate, needed in sizes.items():
        typer.echo(f"pass rate {rate}: {'never' if needed is None else f'{needed:,}'}")
