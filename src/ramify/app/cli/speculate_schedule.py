"""``ramify speculate``: calibrate, profile, check-lossless, replay."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the verbs to ``ramify speculate``."""
