"""``refork gate``."""

from __future__ import annotations

import typer

from refork_methods.gate.commands import act as gate_act
from refork_methods.gate.commands import data as gate_data
from refork_methods.gate.commands import live as gate_live

app = typer.Typer(
    help="When to verify, refine, or ship: a belief about the candidate, and what each check is worth.",
    no_args_is_help=True,
)
for part in (gate_act, gate_data, gate_live):
    part.register(app)
