"""``refork simulate serve``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from refork.cli.common import AllowHost, AllowOrigin, KeyFile, Port
from refork.cli.recipe import Keys
from refork.cli.serve import Host
from refork.errors import BadInput

Model = Annotated[
    str, typer.Argument(help="Folder of a run or model, organism:NAME or any policy.", show_default=False)
]
Worlds = Annotated[
    list[str], typer.Option("--world", help="[NAME=]SPEC of a world to simulate; may be repeated.")
]
Stdio = Annotated[
    bool, typer.Option("--stdio", help="One MCP client over standard input and output, no HTTP.")
]
TaskName = Annotated[str | None, typer.Option("--task", help="With --stdio: the task to begin with.")]
Width = Annotated[int, typer.Option("--width", min=1, help="Steps answered at the same time.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="0: the likeliest answer.")]
Think = Annotated[bool, typer.Option("--think", help="Let the model reason first; nobody sees it.")]
Changes = Annotated[
    list[str],
    typer.Option("--set", help="Any setting of refork serve as NAME=VALUE: world_sessions=64, ..."),
    Keys("refork.serve.settings:ServerSettings"),
]


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("serve")(serve_command)


def serve_command(
    model: Model,
    worlds: Worlds,
    stdio: Stdio = False,
    task: TaskName = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    key_file: KeyFile = None,
    hosts: AllowHost = [],  # noqa: B006
    origins: AllowOrigin = [],  # noqa: B006
    width: Width = 16,
    temperature: Temperature = 0.0,
    think: Think = False,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Serve simulated worlds that any agent can act in: OpenAI chat (world/NAME), MCP, and plain HTTP.

    Every answer says that it is simulated. Keys, limits, metrics and Ctrl-C are those of refork serve.

    Example: refork simulate serve runs/cpt --world terminal --world tools:shop --port 8000
    """
    from refork.cli.live import LiveProgress
    from refork.serve import serve
    from refork.serve.keys import read_keys
    from refork.serve.settings import ServerSettings, changed
    from refork_methods.simulate.simulating import open_simulator, simulated_worlds
    from refork_methods.simulate.world import GREEDY

    told: dict[str, Any] = {"host": host, "port": port, "width": width, "keys": read_keys(key_file)}
    told |= {"hosts": frozenset(hosts), "origins": frozenset(origins)}
    settings = changed(ServerSettings(**told), changes)
    if stdio and len(worlds) != 1:
        raise BadInput("over standard input one world is served", where="--stdio")
    if task is not None and not stdio:
        raise BadInput("a task is chosen by each client", where="--task", hint="it goes with --stdio")
    with LiveProgress() as live:
        law = GREEDY.but(temperature=temperature)
        opened, _ = open_simulator(model, think=think, settings=law, progress=live)
        served = simulated_worlds(opened, worlds)
    if stdio:
        import asyncio

        from refork.cli.screen import protocol
        from refork_methods.simulate.serve import sessions
        from refork_methods.simulate.serve.mcp import serve_stdio

        held = sessions.Worlds(served, settings)
        with protocol():
            asyncio.run(serve_stdio(held, next(iter(served)), task=task))
        return

    def ready(address: str) -> None:
        typer.echo(f"{opened.name} simulates at {address}; Ctrl-C lets running answers end", err=True)
        for name in served:
            base = f"{address}/worlds/{name}"
            typer.echo(f"  chat model world/{name}; MCP {base}/mcp; HTTP {base}/reset", err=True)

    serve({}, settings, worlds=served, ready=ready)
