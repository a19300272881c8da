"""``refork view``: trees in the browser, live, or as one file to share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AllowHost, Port, Regex, WorldSpec
from refork.errors import BadInput

if TYPE_CHECKING:
    from refork.viewer.live.forking import Forking
    from refork.viewer.live.shelf import Shelf

HOST, PORT = "127.0.0.1", 8080
TreePaths = Annotated[list[Path], typer.Argument(help="Tree files, or folders of them.")]
PolicySpec = Annotated[
    str | None,
    typer.Option("--policy", help="Who runs on when the page forks: hf:DIR, organism:NAME or scripted:NAME."),
]
Host = Annotated[str, typer.Option("--host", help="Address of this machine to listen on.")]
Browser = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]
ExportTo = Annotated[
    Path | None, typer.Option("--export", help="Write one HTML file that needs no server, and stop.")
]
Tasks = Annotated[
    list[str], typer.Option("--task", help="With --export: only this task (id); may be repeated.")
]
Score = Annotated[list[str], typer.Option("--score", help="With --export: only this score; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="With --export: print what was written as JSON.")]


def view_command(
    paths: TreePaths,
    policy: PolicySpec = None,
    success_regex: Regex = None,
    port: Port = PORT,
    open_browser: Browser = False,
    export: ExportTo = None,
    tasks: Tasks = [],  # noqa: B006
    world: WorldSpec = None,
    host: Host = HOST,
    names: AllowHost = [],  # noqa: B006
    scores: Score = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Look at trees in the browser: outlines, trajectories by token, diffs, effects, state graphs.

    The page follows a tree while a run grows it. With --policy it forks: pick a token, choose a change, and
    watch the effect arrive. --export writes the same page as one file for others (20,000 nodes at most).

    Example: refork view runs/demo/tree.db --policy hf:runs/demo/policy

    Example: refork view runs/demo/tree.db --task 3f2a --export task.html
    """
    from refork.viewer.live.shelf import Shelf

    shelf = Shelf(paths)
    if export is not None:
        if policy is not None:
            raise BadInput("a shared file cannot fork", hint="leave --policy out, or --export")
        given = {
            "--world": world is not None, "--success-regex": success_regex is not None,
            "--host": host != HOST, "--port": port != PORT, "--allow-host": bool(names),
            "--open": open_browser,
        }  # fmt: skip
        if unused := [name for name, is_given in given.items() if is_given]:
            what = f"{', '.join(unused)}: for a page that is served, and --export serves none"
            raise BadInput(what, hint="leave it out, or --export")
        _export(shelf, export, tasks, scores, as_json)
        return
    if tasks or scores or as_json:
        raise BadInput("--task, --score and --json go with --export", hint="the page chooses by itself")
    from refork.viewer.live.server import serve_viewer

    forking = _forking(shelf, policy, world, success_regex)

    def ready(address: str) -> None:
        typer.echo(f"viewing {', '.join(map(str, paths))} at {address} (this machine only)", err=True)
        if forking is None:
            typer.echo("reading only; --policy SPEC lets the page fork. Ctrl-C stops it", err=True)
        else:
            typer.echo(f"forks run on by {policy}. Ctrl-C stops it; what is drawn stays", err=True)
        if open_browser:
            typer.launch(address)

    serve_viewer(shelf, forking, host=host, port=port, names=names, ready=ready)


def _export(shelf: Shelf, file: Path, tasks: list[str], scores: list[str], as_json: bool) -> None:
    from refork.cli.common import print_json
    from refork.viewer.live.export import export_page

    told = export_page(shelf, file, tasks, scores)
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['nodes']:,} nodes of {told['tasks']:,} tasks in {file}, {told['bytes']:,} bytes")


def _forking(shelf: Shelf, policy: str | None, world: str | None, pattern: str | None) -> Forking | None:
    """Who forks, opened now, so that what is wrong with it is said before anybody looks."""
    if policy is None:
        if world is not None or pattern is not None:
            raise BadInput("--world and --success-regex go with --policy")
        return None
    if policy.startswith("openai:"):
        raise BadInput(
            "the page forks with a local or a scripted policy only, since a click would cost money",
            hint="`refork fork` asks servers",
        )
    from functools import partial

    from refork.cli.common import judge_for, policy_for, world_for
    from refork.cli.live import LiveProgress
    from refork.viewer.live.forking import Forking, ForkSetup

    with LiveProgress() as live:
        actor = policy_for(policy, live)
    answers = partial(world_for, spec=world)
    return Forking(ForkSetup(actor, answers, judge_for(pattern), policy), shelf.file)
