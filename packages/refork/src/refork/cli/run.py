"""``refork run``: what long commands do now, and how they ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, print_json
from refork.visible import json_text

if TYPE_CHECKING:
    from refork.runs.record import RunRecord

app = typer.Typer(
    help="What long commands do now, and how they ended.", no_args_is_help=True, rich_markup_mode="markdown"
)

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Its id or the beginning of it, its process number or its folder; else the newest.",
    ),
]


@app.command("list")
def list_command(
    everything: Annotated[bool, typer.Option("--all", help="Finished runs of earlier days, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs of this home: those under way, and those that ended in the last day.

    Example: `refork run list`
    """
    from refork.runs.record import ENDED, records
    from refork.runs.workers import seen_json

    now = time.time()
    found = [
        record for record in records()
        if everything or record.state_at(now) not in ENDED or now - record.updated < 86400
    ]  # fmt: skip
    if as_json:
        print_json([seen_json(record, now) for record in found])
        return
    if not found:
        typer.echo("no run is on record" if everything else "no run of the last day is on record; --all")
        return
    from refork.cli.run_tables import run_table
    from refork.cli.screen import open_console

    open_console().print(run_table(found, now))


@app.command()
def status(
    name: Name = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until it has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a run is, or how it ended; --follow: until it has. With --json a line for every change.

    Exits with status 1 where it failed or was killed.

    Example: `refork run status --follow`
    """
    from refork.runs.record import find_record
    from refork.runs.workers import seen_json

    record = find_record(name)
    if follow:
        record = _follow(record, as_json=as_json)
    elif as_json:
        print_json(seen_json(record, time.time()))
    else:
        _print(record)
    if record.state_at(time.time()) in ("failed", "killed"):
        raise typer.Exit(1)


@app.command()
def path(name: Name = None) -> None:
    """Print where a run's record is; without a name, the folder of all of them.

    Example: `refork run path`
    """
    from refork.runs.record import file_of, find_record, runs_folder

    typer.echo(str(runs_folder() if name is None else file_of(find_record(name))))


def _print(record: RunRecord) -> None:
    from refork.cli.run_tables import status_lines, workers_table
    from refork.cli.screen import open_console

    now = time.time()
    typer.echo("\n".join(status_lines(record, now)))
    if (table := workers_table(record, now)) is not None:
        open_console().print("", table, sep="\n")


def _follow(record: RunRecord, *, as_json: bool) -> RunRecord:
    """Show it again whenever it changes, until it has ended."""
    from refork.runs.record import ENDED, file_of, read_record
    from refork.runs.workers import seen_json

    if as_json:

        def show(now: RunRecord) -> None:
            typer.echo(json_text(seen_json(now, time.time())))

        return _until_ended(record, show)
    from rich.live import Live

    from refork.cli.run_tables import status_picture
    from refork.cli.screen import open_console

    console = open_console()
    if not console.is_terminal:
        return _until_ended(record, lambda now: typer.echo(_line(now)))
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:

        def draw(now: RunRecord) -> None:
            live.update(status_picture(now, time.time()), refresh=True)

        while record.state_at(time.time()) not in ENDED:
            draw(record)
            time.sleep(1)
            record = read_record(file_of(record)) or record
        draw(record)
    return record


def _until_ended(record: RunRecord, show: Any) -> RunRecord:
    from refork.runs.record import ENDED, file_of, read_record

    last: tuple[Any, ...] | None = None
    while True:
        state = record.state_at(time.time())
        crew = [(one["worker"], one["state"], one["task"], one["done"]) for one in record.workers]
        # No times and no rates in it: they change at every look and are no news.
        now = (state, record.stage, record.done, record.total, record.waiting, record.rollouts, crew)
        if now != last:
            show(record)
            last = now
        if state in ENDED:
            return record
        time.sleep(0.5)
        # What cannot be read at this moment leaves the last record standing.
        record = read_record(file_of(record)) or record


def _line(record: RunRecord) -> str:
    from refork.cli.run_tables import count

    parts = [record.state_at(time.time()), record.stage, count(record), record.waiting or ""]
    return ", ".join(part for part in parts if part)
