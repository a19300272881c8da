"""``refork simulate``: learn an environment from its records, and act in what was learned."""

from __future__ import annotations

import typer

from refork_methods.simulate.commands import data as simulate_data
from refork_methods.simulate.commands import eval as simulate_eval
from refork_methods.simulate.commands import serve as simulate_serve
from refork_methods.simulate.commands import steer as simulate_steer
from refork_methods.simulate.commands import train as simulate_train

app = typer.Typer(help="A language model as the world: train, check, serve, steer.", no_args_is_help=True)
for _part in (simulate_data, simulate_train, simulate_eval, simulate_serve, simulate_steer):
    _part.register(app)
