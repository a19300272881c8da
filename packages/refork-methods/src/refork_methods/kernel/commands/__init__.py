"""``refork kernel``."""

from __future__ import annotations

import typer

from refork.app.cli import kernel_diagnose, kernel_report, kernel_search, kernel_verify

app = typer.Typer(
    help="Kernels that get fast: calibrated, verified, diagnosed, searched.", no_args_is_help=True
)
for part in (kernel_verify, kernel_diagnose, kernel_search, kernel_report):
    part.register(app)
