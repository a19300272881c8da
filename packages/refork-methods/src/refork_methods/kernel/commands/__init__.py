"""``refork kernel``."""

from __future__ import annotations

import typer

from refork_methods.kernel.commands import diagnose as kernel_diagnose
from refork_methods.kernel.commands import report as kernel_report
from refork_methods.kernel.commands import search as kernel_search
from refork_methods.kernel.commands import verify as kernel_verify

app = typer.Typer(
    help="Kernels that get fast: calibrated, verified, diagnosed, searched.", no_args_is_help=True
)
for part in (kernel_verify, kernel_diagnose, kernel_search, kernel_report):
    part.register(app)
