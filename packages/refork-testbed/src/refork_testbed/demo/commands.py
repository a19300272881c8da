"""``refork demo``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refork.cli.common import print_json

FILES = {"report": "report.html", "summary": "summary.json", "tree": "tree.db"}


def demo_command(
    world: Annotated[
        str | None, typer.Option("--world", help="household:2, or reasoning-gym:chain_sum.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the run; default runs/demo.")] = None,
    settings: Annotated[list[str], typer.Option("--set", help="Override a setting, e.g. updates=4.")] = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Build an agent, find where it fails, prove why, make it better: three minutes, one report.

    Example: refork demo --world reasoning-gym:chain_sum
    """
    from refork.cli.live import LiveProgress
    from refork.runs.recipe import resolve
    from refork_testbed.demo import DemoRecipe, run_demo

    recipe = resolve(DemoRecipe, overrides=settings, world=world)
    name = "demo" if world is None else f"demo-{recipe.world.replace(':', '-')}"
    folder = out or Path("runs") / name
    with LiveProgress() as live:
        summary = run_demo(recipe, folder, live)
    if as_json:
        print_json(summary)
        return
    from refork.cli.screen import open_console
    from refork_testbed.demo.panel import summary_panel

    open_console().print(summary_panel(summary | {n: str(folder / f) for n, f in FILES.items()}))
