"""``refork organism``: tiny models to try everything on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refork.cli.common import AsJson, print_json
from refork.types import Json

app = typer.Typer(help="Build tiny models from scratch, to try everything on.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="An organism; see `refork organism list`.")]


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """Say which organisms there are and whether they are built.

    Example: refork organism list --json
    """
    from refork_testbed.models import describe

    rows = describe()
    if as_json:
        print_json(rows)
        return
    cells = [(row["name"], "built" if row["built"] else "not built", _rates(row["measured"])) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for cell, row in zip(cells, rows, strict=True):
        columns = "  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True))
        where = f" ({row['world']})" if row["world"] else ""
        typer.echo(f"{columns}  {row['summary']}{where}")


def _rates(measured: Json | None) -> str:
    """The measured rates with their intervals: one, or one for each world or kind of turn."""
    if not measured:
        return "-"
    if "rate" in measured:
        return f"{measured['rate']:.2f} [{measured['low']:.2f}, {measured['high']:.2f}]"
    parts = next((part for part in measured.values() if isinstance(part, dict)), {})
    rates = [f"{name.partition('?')[0]} {_rates(row)}" for name, row in parts.items() if "rate" in row]
    return ", ".join(rates) or "-"


@app.command("build")
def build_command(
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", help="Folder; default: the cache.")] = None,
) -> None:
    """Build an organism, unless it is built already, and print its folder.

    Example: refork organism build household
    """
    from refork.cli.live import LiveProgress
    from refork_testbed.models import build

    with LiveProgress() as live:
        place = build(name, out, live)
    typer.echo(str(place))


@app.command("path")
def path_command(name: Name) -> None:
    """Print the folder where an organism lies, or will lie once it is built.

    Example: refork organism path household
    """
    from refork_testbed.models import path

    typer.echo(str(path(name)))
