"""``refork kernel report``: a stored search as a page with pictures, and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, existing, print_json

if TYPE_CHECKING:
    from refork_methods.kernel.report import Written

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a search.")]
Out = Annotated[Path | None, typer.Option(help="Write the report here. Default: the search's folder.")]


def report(folder: Folder, out: Out = None, as_json: AsJson = False) -> None:
    """Write report.html and report.md of a search: roofline, tree, best kernel, what advice brought.

    Nothing is measured anew. Example: refork kernel report runs/matmul
    """
    from refork_methods.kernel.report import write_report

    written = write_report(existing(folder), out)
    if as_json:
        print_json(written.to_json())
    else:
        _print(written)


def _print(written: Written) -> None:
    from refork_methods.kernel.report.sentences import headline, standing, tried

    typer.echo(headline(written.figures))
    typer.echo(" ".join(part for part in (tried(written.figures), standing(written.figures)) if part))
    typer.echo(str(written.html))
    typer.echo(str(written.markdown))


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(report)
