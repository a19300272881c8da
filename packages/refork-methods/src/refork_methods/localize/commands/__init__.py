"""``refork localize``."""

from __future__ import annotations

import typer

from refork.app.cli import localize_run, localize_transfer

app = typer.Typer(help="Where the bug is: a case file from an issue and a repository.", no_args_is_help=True)
for part in (localize_run, localize_transfer):
    part.register(app)
