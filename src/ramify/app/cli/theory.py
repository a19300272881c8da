"""``ramify theory``."""

from __future__ import annotations

import typer

from ramify.app.cli import theory_score

app = typer.Typer(
    help="Theories of choice: scored on people by their priors, told apart, revised.", no_args_is_help=True
)
for part in (theory_score,):
    part.register(app)
# The web page for people, `serve` and `export`, registers its verbs below this line.
