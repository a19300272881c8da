"""``refork memory export`` and ``replay``: tools and lessons elsewhere, and the arms compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, print_json
from refork_methods.memory.commands.memory import Store, Theta, app, open_memory

__all__ = ["app"]


@app.command("export")
def export_to(
    store: Store,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is empty or not there.")],
    kind: Annotated[str, typer.Option("--as", help="package, skills or mcp.")] = "package",
    name: Annotated[str | None, typer.Option(help="Name of the package or server.")] = None,
    call: Annotated[
        str | None, typer.Option(help="mcp: module:function that answers for the environment.")
    ] = None,
    allow_secrets: Annotated[
        bool, typer.Option("--allow-secrets", help="Write also what looks like a password, key or token.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the tools as a Python package, tools and texts as SKILL.md folders, or an MCP server.

    Example: refork memory export memories/pay skills --as skills
    """
    from refork_methods.memory.report import export

    state = open_memory(store, new=False).state
    files = export(state, out, kind, name=name, call=call, allow_secrets=allow_secrets)
    if as_json:
        print_json([str(file) for file in files])
        return
    for file in files:
        typer.echo(file)


@app.command()
def replay(
    arm: Annotated[
        str, typer.Option(help="none, text, code, eager, metis; several with commas.")
    ] = "none,metis",
    world: Annotated[str, typer.Option(help="miniapps, with its options.")] = "miniapps?templates=seen",
    test: Annotated[str | None, typer.Option(help="The version to test on; default the same.")] = None,
    train_tasks: Annotated[int, typer.Option("--train", min=1, help="Tasks to learn from.")] = 90,
    test_tasks: Annotated[int, typer.Option("--test-tasks", min=1, help="Held-out tasks.")] = 90,
    theta: Theta = 3,
    seed: Annotated[int, typer.Option(help="Seed of tasks and agent.")] = 0,
    watch: Annotated[
        bool, typer.Option(help="Gated code is text again where its functions are documented otherwise.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Let arms learn from the same runs of a scripted agent, then test them with the memory frozen.

    Example: refork memory replay --arm none,text,code,eager,metis
    """
    from refork.cli.live import LiveProgress
    from refork_methods.memory.arms import compare_arms, tool_world

    names = [part.strip() for part in arm.split(",") if part.strip()]
    with LiveProgress() as progress:
        found = compare_arms(
            names,
            tool_world(world),
            None if test is None else tool_world(test),
            tasks=train_tasks,
            held_out=test_tasks,
            theta=theta,
            seed=seed,
            watch=watch,
            progress=progress,
        )
    told = {name: one.to_json() for name, one in found.items()}
    if as_json:
        print_json(told)
        return
    _print(told)


def _print(told: dict[str, Any]) -> None:
    from rich.table import Table

    from refork.cli.screen import open_console

    grid = Table(box=None, header_style="dim", show_edge=False, padding=(0, 2, 0, 0))
    for column in ("arm", "tasks done", "scenarios done", "steps a task", "tools", "called"):
        grid.add_column(column)
    for name, one in told.items():
        figures = one["figures"]
        called = {tool for row in figures["rows"] for tool in row["called"]}
        grid.add_row(
            name, f"{figures['completed']:.0%}", f"{figures['families_completed']:.0%}",
            f"{figures['steps']:.1f}", str(len(one.get("tools", ()))), str(len(called)),
        )  # fmt: skip
    open_console().print(grid)
