"""``refork theory``."""

from __future__ import annotations

import typer

from refork_methods.theory.commands import check as theory_check
from refork_methods.theory.commands import export as theory_export
from refork_methods.theory.commands import people as theory_people
from refork_methods.theory.commands import run as theory_run
from refork_methods.theory.commands import score as theory_score
from refork_methods.theory.commands import serve as theory_serve

app = typer.Typer(
    help="Theories of choice: scored on people by their priors, told apart, revised.", no_args_is_help=True
)
for part in (theory_run, theory_score, theory_check):
    part.register(app)
for part in (theory_serve, theory_export, theory_people):  # the web page for people
    part.register(app)
