"""``refork theory``."""

from __future__ import annotations

import typer

from refork.app.cli import theory_check, theory_export, theory_people, theory_run, theory_score, theory_serve

app = typer.Typer(
    help="Theories of choice: scored on people by their priors, told apart, revised.", no_args_is_help=True
)
for part in (theory_run, theory_score, theory_check):
    part.register(app)
for part in (theory_serve, theory_export, theory_people):  # the web page for people
    part.register(app)
