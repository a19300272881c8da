"""``refork route``."""

from __future__ import annotations

import typer

from refork.app.cli import route_conduct, route_data, route_fit, route_serve

app = typer.Typer(
    help="Which worker acts: outcome tables, a trained selection head, and workflows.", no_args_is_help=True
)
for part in (route_data, route_fit, route_conduct, route_serve):
    part.register(app)
