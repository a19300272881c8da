"""``refork localize``."""

from __future__ import annotations

import typer

from refork_methods.localize.commands import run as localize_run
from refork_methods.localize.commands import transfer as localize_transfer

app = typer.Typer(help="Where the bug is: a case file from an issue and a repository.", no_args_is_help=True)
for part in (localize_run, localize_transfer):
    part.register(app)
