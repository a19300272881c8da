"""``refork route``."""

from __future__ import annotations

import typer

from refork_methods.route.commands import conduct as route_conduct
from refork_methods.route.commands import data as route_data
from refork_methods.route.commands import fit as route_fit
from refork_methods.route.commands import serve as route_serve

app = typer.Typer(
    help="Which worker acts: outcome tables, a trained selection head, and workflows.", no_args_is_help=True
)
for part in (route_data, route_fit, route_conduct, route_serve):
    part.register(app)
