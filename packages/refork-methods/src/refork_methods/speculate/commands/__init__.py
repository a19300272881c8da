"""``refork speculate``."""

from __future__ import annotations

import typer

from refork_methods.speculate.commands import bench as speculate_bench
from refork_methods.speculate.commands import layout as speculate_layout
from refork_methods.speculate.commands import schedule as speculate_schedule
from refork_methods.speculate.commands import train as speculate_train

app = typer.Typer(
    help="Draw branches faster, losslessly: train a drafter, calibrate it, schedule it, prove it exact.",
    no_args_is_help=True,
)
for part in (speculate_train, speculate_layout, speculate_schedule, speculate_bench):
    part.register(app)
