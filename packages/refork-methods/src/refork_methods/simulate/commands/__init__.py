"""``refork simulate``: learn an environment from its records, and act in what was learned."""

from __future__ import annotations

import typer

from refork.app.cli import simulate_data, simulate_eval, simulate_serve, simulate_steer, simulate_train

app = typer.Typer(help="A language model as the world: train, check, serve, steer.", no_args_is_help=True)
for _part in (simulate_data, simulate_train, simulate_eval, simulate_serve, simulate_steer):
    _part.register(app)
