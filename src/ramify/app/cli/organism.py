"""``ramify organism``: tiny models to try everything on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ramify.app.cli.common import print_json

app = typer.Typer(help="Build tiny models from scratch, to try everything on.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="An organism; see `ramify organism list`.")]


@app.command("list")
def list_command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say which organisms there are and whether they are built.

    Example: ramify organism list --json
    """
    from ramify.learn.organism import describe

    rows = describe()
    if as_json:
        print_json(rows)
        return
    for row in rows:
        state = "built" if row["built"] else "not built"
        measured = row["measured"]
        rate = f"{measured['rate']:.2f} [{measured['low']:.2f}, {measured['high']:.2f}]" if measured else "-"
        typer.echo(f"{row['name']:12s} {state:10s} {rate:18s} {row['world'] or '-':36s} {row['summary']}")


@app.command("build")
def build_command(
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", help="Folder; default: the cache.")] = None,
) -> None:
    """Build an organism, unless it is built already, and print its folder.

    Example: ramify organism build household
    """
    from ramify.app.cli.live import LiveProgress
    from ramify.learn.organism import build

    with LiveProgress() as live:
        place = build(name, out, live)
    typer.echo(str(place))


@app.command("path")
def path_command(name: Name) -> None:
    """Print the folder where an organism lies, or will lie once it is built.

    Example: ramify organism path household
    """
    from ramify.learn.organism import path

    typer.echo(str(path(name)))
