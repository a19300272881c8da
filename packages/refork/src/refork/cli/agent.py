"""``refork agent``: programs that ask models, recorded from outside and run again from the tape."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.errors import BadInput
from refork.visible import visible

app = typer.Typer(
    help="Record a program that asks models, without a change to it, and run it again from its tape.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND...", help="The program, as in a shell, after --.")
]
Folder = Annotated[Path | None, typer.Option("--folder", help="Where the program runs; default: here.")]
ToServer = Annotated[
    str | None,
    typer.Option("--to", help="Ask this OpenAI-compatible server, with its /v1, in place of the providers."),
]
RerunTools = Annotated[
    bool,
    typer.Option(
        "--rerun-tools", help="The program's own tools may run once more: files, commands, other servers."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Keep what the program prints, and do not show it.")]
RunName = Annotated[str | None, typer.Option("--run", help="Beginning of a run's id; default: the last run.")]
Tape = Annotated[Path, typer.Argument(metavar="TAPE", help="The tree file that holds the run.")]


def _allowed(rerun_tools: bool) -> None:
    """Refuse to run a program again where nobody said that its own tools may."""
    if not rerun_tools:
        raise BadInput(
            "the program would run its own tools once more, and their effects with them",
            hint="--rerun-tools where that does no harm; else in a container, or in a copy of its folder",
        )


def _announce(command: Sequence[str], folder: str) -> None:
    """Say what is run: the tape may be a stranger's."""
    typer.echo(f"runs in {visible(folder)}: {visible(shlex.join(command))}", err=True)


@app.command()
def record(
    command: Command = None,
    out: Annotated[Path, typer.Option("--out", help="The tree file; runs are added to it.")] = Path(
        "tape.db"
    ),
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Ask this OpenAI-compatible server, with its /v1, in place of the providers."
        ),
    ] = None,
    folder: Folder = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a program and put on a tape all that it asks of models. Its exit status is ours.

    It finds our address in the variables in which the packages of OpenAI, Anthropic, Gemini, Azure and Ollama
    look for one. Keys go to the provider and never to the tape.

    Example: `refork agent record -- python my_agent.py --task 3`

    Example: `refork agent record --out runs/tape.db --to http://127.0.0.1:8000/v1 -- node agent.js`
    """
    from refork import agents
    from refork.tree import Tree

    with Tree.open(out) as tree:
        run = agents.record(tree, command or [], folder=folder, to=to, quiet=quiet or as_json)
        counted = agents.counts(tree, run)
    if as_json:
        print_json({"run": run.id, "tape": str(out), "exit": run.exit, **counted})
    else:
        typer.echo(
            f"run {run.id} on {out}: {counted['exchanges']} exchanges in {counted['conversations']} "
            f"conversations, exit status {run.exit}",
            err=True,
        )
    if run.exit:
        raise typer.Exit(run.exit)


@app.command()
def replay(
    tape: Tape,
    command: Command = None,
    rerun_tools: RerunTools = False,
    run: RunName = None,
    folder: Folder = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a recorded program again, every answer from the tape; exit status 1 where it went another way.

    No model is asked. The first request that is not on the tape is named: which recorded one it is like,
    where in it the two differ, and the likely cause. Only what goes to models comes from the tape. What else
    the program does, it does once more, so that has to be allowed.

    Example: `refork agent replay tape.db --rerun-tools`

    Example: `refork agent replay tape.db --rerun-tools -- python my_agent_v2.py --task 3`
    """
    from refork import agents
    from refork.tree import Tree

    _allowed(rerun_tools)
    with Tree.open(existing(tape), "r") as tree:
        found = agents.find_run(tree, run)
        _announce(command or found.command, str(folder or found.folder))
        told = agents.replay(tree, found, command=command, folder=folder, quiet=quiet or as_json)
    if as_json:
        print_json(told.to_json())
    else:
        typer.echo(f"run {told.run}: {told.sentence}", err=True)
    if not told.identical:
        raise typer.Exit(1)


@app.command()
def fork(
    tape: Tape,
    step: Annotated[
        int, typer.Option("--step", help="Number of the exchange at which the run leaves the tape, from 0.")
    ],
    change: Annotated[
        str,
        typer.Option(
            "--change",
            help="answer:TEXT, again, text:OLD=>NEW, set:NAME=VALUE, model:NAME or forbid:TOOL.",
        ),
    ],
    draws: Annotated[int, typer.Option("--draws", help="Runs of the program per arm.")] = 16,
    succeeds: Annotated[
        str | None,
        typer.Option("--succeeds", help="Regular expression that the output has; default: exit status 0."),
    ] = None,
    fails: Annotated[
        str | None, typer.Option("--fails", help="Regular expression that the output must not have.")
    ] = None,
    to: ToServer = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Programs that run at the same time.")] = 1,
    limit: Annotated[float, typer.Option("--limit", help="Seconds until a run is ended.")] = 600.0,
    rerun_tools: RerunTools = False,
    run: RunName = None,
    as_json: AsJson = False,
) -> None:
    """Run a recorded program on from one exchange, with one change and without, and compare how it ends.

    Before the point every answer is the tape's. The change is made there and, where it is one of what is
    asked, in every request behind it. With answer and again the control keeps the recorded answer, else it
    asks anew. What was drawn is on the tape, and is not drawn again.

    Example: `refork agent fork tape.db --step 4 --change again --draws 16 --fails 'could not' --rerun-tools`
    """
    from refork import agents
    from refork.cli.cards import effect_card
    from refork.cli.live import LiveProgress
    from refork.cli.screen import open_console
    from refork.forking import compare
    from refork.tree import Tree

    _allowed(rerun_tools)
    with Tree.open(existing(tape)) as tree:
        found = agents.find_run(tree, run)
        cost = agents.cost_of(tree, found, step, draws)
        _announce(found.command, found.folder)
        tokens = "" if cost.tokens is None else f", about {cost.tokens:,} tokens"
        typer.echo(f"run {found.id}: up to {cost.calls:,} calls{tokens} as the recorded run asked", err=True)
        with LiveProgress() as live:
            base, other = agents.fork_run(
                tree,
                found,
                step,
                agents.ProgramChange.parse(change),
                draws,
                outcome=agents.Outcome(succeeds, fails),
                settings=agents.ProgramForkSettings(to, limit_s=limit, jobs=jobs),
                progress=live,
            )
        left = [draw.error for arm in (base, other) for draw in arm.draws if draw.error]
        if left:
            typer.echo(
                f"{len(left)} of {2 * draws} draws are no draws of their arm: {visible(left[0])}", err=True
            )
        told = compare(base, other).to_json()
    if as_json:
        print_json(told)
    else:
        open_console().print(effect_card(told))


@app.command("list")
def list_command(tape: Tape, as_json: AsJson = False) -> None:
    """List the runs of a tape.

    Example: `refork agent list tape.db`
    """
    from rich.table import Table
    from rich.text import Text

    from refork import agents
    from refork.cli.screen import open_console
    from refork.tree import Tree

    with Tree.open(existing(tape), "r") as tree:
        runs = agents.runs_of(tree)
        counted = [agents.counts(tree, run) for run in runs]
    if as_json:
        print_json(
            [
                {"run": run.id, "command": list(run.command), "began": run.began, "exit": run.exit, **count}
                for run, count in zip(runs, counted, strict=True)
            ]
        )
        return
    if not runs:
        typer.echo("no run is on this tape; refork agent record -- COMMAND")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "when", "exit", "exchanges", "conversations"):
        table.add_column(name, no_wrap=True)
    table.add_column("command", overflow="fold")
    for run, count in zip(runs, counted, strict=True):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
        ended = "never ended" if run.exit is None else str(run.exit)
        numbers = (str(count["exchanges"]), str(count["conversations"]))
        table.add_row(run.id, when, ended, *numbers, Text(visible(" ".join(run.command))))
    open_console().print(table)


@app.command()
def show(tape: Tape, run: RunName = None, as_json: AsJson = False) -> None:
    """Show the exchanges of a run by their numbers: what was new in each request, and what the model said.

    The numbers are those that `refork agent fork --step` takes.

    Example: `refork agent show tape.db`
    """
    from rich.table import Table
    from rich.text import Text

    from refork import agents
    from refork.cli.screen import open_console
    from refork.tree import Tree

    with Tree.open(existing(tape), "r") as tree:
        found = agents.find_run(tree, run)
        rows = agents.exchanges(tree, found)
    if as_json:
        print_json({"run": found.id, "command": list(found.command), "exit": found.exit, "exchanges": rows})
        return
    table = Table(box=None, pad_edge=False)
    for name in ("step", "conversation", "model"):
        table.add_column(name, no_wrap=True)
    for name in ("asked", "said"):
        table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        said = row["error"] or " ".join([row["said"], *(f"{name}(...)" for name in row["calls"])]).strip()
        texts = (Text(visible(" ".join(text.split()))) for text in (row["asked"], said))
        table.add_row(str(row["step"]), str(row["conversation"]), visible(row["model"] or "-"), *texts)
    open_console().print(table)
