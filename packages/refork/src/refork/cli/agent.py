"""``refork agent``: programs that ask models, recorded from outside and run again from the tape."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.errors import BadInput
from refork.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

    from refork.agents import ContainedRun, ProgramRun
    from refork.types import Json

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
Contained = Annotated[
    bool,
    typer.Option(
        "--contained",
        help="Its tools change copies of its folder, the home folder and temporary files, and find no "
        "network; with --rerun-tools they do.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Keep what the program prints, and do not show it.")]
RunName = Annotated[str | None, typer.Option("--run", help="Beginning of a run's id; default: the last run.")]
Succeeds = Annotated[
    str | None,
    typer.Option("--succeeds", help="Regular expression that the output has; default: exit status 0."),
]
Fails = Annotated[
    str | None, typer.Option("--fails", help="Regular expression that the output must not have.")
]
Check = Annotated[
    str | None,
    typer.Option(
        "--check",
        help="Shell command that ends with 0 in the folder that a good run leaves; it reads the output.",
    ),
]
JudgedBy = Annotated[
    str | None,
    typer.Option("--judge", help="Judge of a draw's exchanges: a registered name, or FILE.py:FUNCTION."),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Programs that run at the same time.")]
Limit = Annotated[float, typer.Option("--limit", help="Seconds until a run is ended.")]
Tape = Annotated[Path, typer.Argument(metavar="TAPE", help="The tree file that holds the run.")]


def _allowed(rerun_tools: bool, contained: bool, covered: bool = False) -> None:
    """Refuse to run a program again whose tools are not on the tape, where nobody said that they may."""
    if not (rerun_tools or contained or covered):
        raise BadInput(
            "the program would run its own tools once more, and their effects with them",
            hint="--contained, and they change copies of files; --rerun-tools where they do no harm; "
            "or record with the tools on the tape (--patch, mcp-wrap)",
        )


def _say_where(inside: ContainedRun) -> None:
    """Say which folder a contained program sees."""
    start, restored = inside.start, inside.restored
    told = "as it is now (record with --snapshots, and it is as it was when the run began)"
    if start is not None:
        told = f"as it was when the run began ({restored or 'no'} paths are others now)"
        if start.left:
            told += f"; as they are now: {visible(_some(start.left))}"
    typer.echo(f"contained; the folder {told}", err=True)
    if inside.folder.read_only:
        typer.echo(f"read-only here: {visible(_some(inside.folder.read_only))}", err=True)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _announce(command: Sequence[str], folder: str, run: ProgramRun | None = None) -> None:
    """Say what is run, and whom it asks in place of others: the tape may be a stranger's."""
    typer.echo(f"runs in {visible(folder)}: {visible(shlex.join(command))}", err=True)
    for name, address in ((run and run.hosts) or {}).items():
        if address:
            typer.echo(f"what it asks of {visible(name)} goes to {visible(address)}", err=True)


def _how(run: ProgramRun) -> Json:
    """How a run was recorded: what of its clock and chance, and through a proxy; nothing unless asked for."""
    held = run.repeatable
    kept = {} if held is None else {name: held.get(name, 0) for name in ("processes", "looks")}
    told = {} if held is None else {"repeatable": kept}
    return told if run.hosts is None else {**told, "hosts": dict(run.hosts)}


def _say_how(run: ProgramRun) -> None:
    how = _how(run)
    if (kept := how.get("repeatable")) is not None:
        told = "nothing was kept: it started no Python that reads PYTHONPATH (-I and -E do not)"
        if count := kept["processes"]:
            told = f"clock and chance of {count} Python processes, {kept['looks']:,} looks at the clock"
        typer.echo(f"repeatable: {told}", err=True)
    if "hosts" in how:
        typer.echo(f"through a proxy: {visible(', '.join(how['hosts']))}", err=True)


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
    snapshots: Annotated[
        bool,
        typer.Option("--snapshots", help="Keep the folder as it is now, and which files change when."),
    ] = False,
    patch: Annotated[
        bool,
        typer.Option(
            "--patch",
            help="Let tools of known packages be on the tape, too, and which of their steps asks, "
            "where the program is Python.",
        ),
    ] = False,
    repeatable: Annotated[
        bool,
        typer.Option(
            "--repeatable",
            help="Keep clock, random numbers, uuids and hash order of a Python program, and give them back "
            "when it is run again.",
        ),
    ] = False,
    proxy: Annotated[
        bool,
        typer.Option(
            "--proxy",
            help="The last resort, for a program that names its provider's address itself: a proxy for it "
            "alone, with a certificate of this run's own.",
        ),
    ] = False,
    proxy_host: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy-host",
            help="Host of another provider, as NAME or NAME=ADDRESS to ask there; implies --proxy.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a program and put on a tape all that it asks of models. Its exit status is ours.

    It finds our address in the variables in which the packages of OpenAI, Anthropic, Gemini, Azure and Ollama
    look for one. Keys go to the provider and never to the tape. With --patch the calls of its tools are
    on it, too, where LangChain, LangGraph, OpenAI Agents, Pydantic AI, smolagents or MCP's client calls them,
    and who asked: the node, agent or module.
    With --repeatable a Python program that tells a model the time, a uuid or a random number is replayed.

    Example: `refork agent record -- python my_agent.py --task 3`

    Example: `refork agent record --snapshots -- python my_coding_agent.py`

    Example: `refork agent record --patch -- python my_graph.py`

    Example: `refork agent record --repeatable -- python my_agent.py`

    Example: `refork agent record --proxy -- python agent_with_a_fixed_address.py`

    Example: `refork agent record --out runs/tape.db --to http://127.0.0.1:8000/v1 -- node agent.js`
    """
    from refork import agents
    from refork.tree import Tree

    with Tree.open(out) as tree:
        run = agents.record(
            tree,
            command or [],
            folder=folder,
            to=to,
            quiet=quiet or as_json,
            settings=agents.RecordSettings(
                snapshots, patch, repeatable, proxy=proxy, proxy_hosts=tuple(proxy_host or ())
            ),
        )
        counted = agents.counts(tree, run)
        start = None if run.files is None else agents.start_of(tree, run.files)
        called = agents.of_tools(agents.tool_events(tree, run))
    kept = {} if start is None else {"files": start.files, "bytes": start.size, "left": list(start.left)}
    kept |= _how(run)
    told = {"run": run.id, "tape": str(out), "exit": run.exit, **counted, **kept}
    if as_json:
        print_json(
            told
            | {
                "tool_calls": len(called),
                "unkept": sorted({one.name for one in called if not one.replayable}),
            }
        )
    else:
        if start is not None:
            left = f"; not kept: {visible(_some(start.left))}" if start.left else ""
            typer.echo(f"kept of the folder: {start.files:,} files, {start.size:,} bytes{left}", err=True)
        if patch and not called:
            typer.echo(
                "no call of a tool was seen: none of the packages that --patch knows made one", err=True
            )
        _say_how(run)
        for name in sorted({one.name for one in called if not one.replayable}):
            told_why = next(one.result["unkept"] for one in called if one.name == name and not one.replayable)
            typer.echo(f"this run cannot be replayed: {visible(name)}: {visible(told_why)}", err=True)
        tools = f", {len(called)} tool calls" if called else ""
        typer.echo(
            f"run {run.id} on {out}: {counted['exchanges']} exchanges in {counted['conversations']} "
            f"conversations{tools}, exit status {run.exit}",
            err=True,
        )
    if run.exit:
        raise typer.Exit(run.exit)


@app.command()
def replay(
    tape: Tape,
    command: Command = None,
    contained: Contained = False,
    rerun_tools: RerunTools = False,
    run: RunName = None,
    folder: Folder = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a recorded program again, every answer from the tape; exit status 1 where it went another way.

    No model is asked. The first request that is not on the tape is named: which recorded one it is like,
    where in it the two differ, and the likely cause. Only what goes to models comes from the tape. What else
    the program does, it does once more: to copies of its files with --contained, else it has to be allowed.

    Example: `refork agent replay tape.db --contained`

    Example: `refork agent replay tape.db --rerun-tools -- python my_agent_v2.py --task 3`
    """
    from refork import agents
    from refork.tree import Tree

    with Tree.open(existing(tape), "r") as tree, ExitStack() as stack:
        found = agents.find_run(tree, run)
        _allowed(rerun_tools, contained, agents.covered(tree, found))
        _announce(command or found.command, str(folder or found.folder))
        inside = None
        if contained:
            inside = stack.enter_context(agents.ContainedRun(tree, found, folder=folder, network=rerun_tools))
            _say_where(inside)
        told = agents.replay(
            tree, found, command=command, folder=folder, quiet=quiet or as_json, contained=inside
        )
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
            help="answer:TEXT, part:OLD=>NEW, again, text:OLD=>NEW, set:NAME=VALUE, model:NAME, forbid:TOOL.",
        ),
    ],
    token: Annotated[
        int | None,
        typer.Option(
            "--token",
            help="Keep its answer up to this token: again goes on there, answer:TEXT behind TEXT.",
        ),
    ] = None,
    through: Annotated[
        int | None,
        typer.Option("--through", help="The control of again keeps the answers up to this exchange."),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Runs of the program per arm.")] = 16,
    seed: Annotated[int, typer.Option("--seed", help="Draws of another seed are draws of their own.")] = 0,
    succeeds: Succeeds = None,
    fails: Fails = None,
    check: Check = None,
    judge: JudgedBy = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Requests to models after which no draw is begun.")
    ] = None,
    to: ToServer = None,
    jobs: Jobs = 1,
    limit: Limit = 600.0,
    tools: Annotated[
        str,
        typer.Option(
            "--tools",
            help="Recorded tools behind the point: tape (equal calls from it, others refused), simulate "
            "(others answered by a model) or live.",
        ),
    ] = "tape",
    simulator: Annotated[
        str | None,
        typer.Option("--simulator", help="The model that answers for tools, at --to or OPENAI_BASE_URL."),
    ] = None,
    contained: Contained = False,
    rerun_tools: RerunTools = False,
    run: RunName = None,
    as_json: AsJson = False,
) -> None:
    """Run a recorded program on from one exchange, with one change and without, and compare how it ends.

    Before the point every answer is the tape's. The change is made there and, where it is one of what is
    asked, in every request behind it. With answer, part and again the control keeps the recorded answer,
    else it asks anew. What was drawn is on the tape, and is not drawn again.

    Example: `refork agent fork tape.db --step 4 --change again --draws 16 --fails 'could not' --contained`
    """
    from refork import agents
    from refork.cli.cards import effect_card
    from refork.cli.live import LiveProgress
    from refork.cli.screen import open_console
    from refork.tree import Tree

    if tools not in ("tape", "live", "simulate"):
        raise BadInput(f"{tools!r} is no rule for tools", where="--tools", hint="tape, live or simulate")
    with Tree.open(existing(tape)) as tree:
        found = agents.find_run(tree, run)
        _allowed(rerun_tools, contained, agents.covered(tree, found))
        cost = agents.cost_of(tree, found, step, draws)
        _announce(found.command, found.folder, found)
        tokens = "" if cost.tokens is None else f", about {cost.tokens:,} tokens"
        typer.echo(f"run {found.id}: up to {cost.calls:,} calls{tokens} as the recorded run asked", err=True)
        with LiveProgress() as live:
            base, other = agents.fork_run(
                tree,
                found,
                step,
                replace(agents.ProgramChange.parse(change), token=token),
                draws,
                through=through,
                seed=seed,
                outcome=agents.Outcome(succeeds, fails, check, judge),
                settings=agents.ProgramForkSettings(
                    to,
                    limit_s=limit,
                    jobs=jobs,
                    contained=contained,
                    network=rerun_tools,
                    tools=tools,  # type: ignore[arg-type]
                    simulator=simulator,
                    budget=budget,
                ),
                progress=live,
            )
        left = [draw.error for arm in (base, other) for draw in arm.draws if draw.error]
        if left:
            typer.echo(
                f"{len(left)} of {2 * draws} draws are no draws of their arm: {visible(left[0])}", err=True
            )
        if others := agents.other_files(tree, base, other):
            typer.echo(
                f"{len(others)} of {2 * draws} draws had other files by the point: {visible(others[0])}",
                err=True,
            )
        told = agents.compare_arms(base, other).to_json()
        used = agents.tools_of(tree, (base, other))
    if used and not as_json:
        ways = ", ".join(f"{count} {mode}" for mode, count in used.items())
        typer.echo(f"tool calls behind the point: {ways}", err=True)
    if as_json:
        print_json(told | {"tools": {"rule": tools, "calls": used}})
    else:
        open_console().print(effect_card(told))


@app.command()
def why(
    tape: Tape,
    succeeds: Succeeds = None,
    fails: Fails = None,
    check: Check = None,
    judge: JudgedBy = None,
    draws: Annotated[int, typer.Option("--draws", help="Most runs of the program per arm.")] = 32,
    smallest: Annotated[
        float, typer.Option("--smallest", help="The smallest loss of success that is looked for.")
    ] = 0.2,
    findings: Annotated[
        int, typer.Option("--findings", min=1, help="How many such answers are looked for, the last first.")
    ] = 1,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Requests to models after which it ends.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the case file; default: case-RUN.")
    ] = None,
    to: ToServer = None,
    jobs: Jobs = 1,
    limit: Limit = 600.0,
    contained: Contained = False,
    rerun_tools: RerunTools = False,
    run: RunName = None,
    as_json: AsJson = False,
) -> None:
    """Find the answer that lost a run, and write a case file; exit status 1 where none is shown to have.

    The program runs on from several exchanges until it is clear where its chance of success falls. What is
    found is tested on draws of its own, with the recorded answer as the control. What was drawn is on the
    tape: a search that was stopped goes on from there.

    Example: `refork agent why tape.db --fails 'could not' --budget 500 --contained`
    """
    from refork import agents
    from refork.cli.cards import effect_card
    from refork.cli.live import LiveProgress
    from refork.cli.screen import open_console
    from refork.tree import Tree

    settings = agents.ProgramForkSettings(
        to,
        limit_s=limit,
        jobs=jobs,
        contained=contained,
        network=rerun_tools,
        # Where tools may run they do: a program whose calls are refused succeeds less often for that.
        tools="live" if rerun_tools or contained else "tape",
    )
    search = agents.WhySettings(draws=draws, smallest=smallest, findings=findings, budget=budget)
    with Tree.open(existing(tape)) as tree:
        found = agents.find_run(tree, run)
        _allowed(rerun_tools, contained, agents.covered(tree, found))
        _announce(found.command, found.folder, found)
        with LiveProgress() as live:
            told = agents.why(
                tree,
                found,
                outcome=agents.Outcome(succeeds, fails, check, judge),
                settings=settings,
                search=search,
                progress=live,
            )
        rows = agents.exchanges(tree, found)
    folder = out or Path(f"case-{found.id}")
    files = agents.write_case(folder, str(tape), found, told, settings, rows)
    if as_json:
        print_json(told.to_json() | {"files": [str(file) for file in files]})
    else:
        console = open_console()
        for lost in told.confirmed:
            console.print(effect_card(lost.effect.to_json()))
        console.print(visible(f"{told.sentence}."), markup=False, highlight=False)
        typer.echo(f"{told.calls:,} requests in {told.runs:,} runs; case file: {files[0]}", err=True)
    if not told.confirmed:
        raise typer.Exit(1)


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
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("run", "when", "exit", "asked", "talks"):
        table.add_column(name, no_wrap=True)
    table.add_column("command", ratio=1, no_wrap=True, overflow="ellipsis")
    for run, count in zip(runs, counted, strict=True):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
        ended = "never ended" if run.exit is None else str(run.exit)
        numbers = (str(count["exchanges"]), str(count["conversations"]))
        # Where programs lie takes the line, and tells them apart least.
        parts = (Path(part).name if part.startswith("/") else part for part in run.command)
        table.add_row(run.id, when, ended, *numbers, Text(visible(" ".join(parts))))
    open_console().print(table)


@app.command()
def show(
    tape: Tape,
    step: Annotated[
        int | None, typer.Option("--step", help="One exchange in full, its answer's tokens by their numbers.")
    ] = None,
    run: RunName = None,
    state: Annotated[
        int | None, typer.Option("--state", help="Print a graph's values as they were at this step.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the exchanges of a run by their numbers: what was new in each request, and what the model said.

    The numbers are those that `refork agent fork --step` takes; of one exchange also those of --token. Of
    runs that were recorded with --patch also who asked: the node, agent or module of a known package. Of
    LangGraph the values of the graph are kept.

    Example: `refork agent show tape.db`

    Example: `refork agent show tape.db --step 3`

    Example: `refork agent show tape.db --state 4`
    """
    from rich.table import Table
    from rich.text import Text

    from refork import agents
    from refork.cli.screen import open_console
    from refork.tree import Tree

    with Tree.open(existing(tape), "r") as tree:
        found = agents.find_run(tree, run)
        rows = agents.exchanges(tree, found)
        if state is not None:
            print_json(agents.graph_state(tree, found, state))
            return
        if step is not None:
            _show_step(rows, step, agents.answer_tokens(tree, found, step), as_json)
            return
        called = agents.of_tools(agents.tool_events(tree, found))
        calls = [
            {
                "after": one.after, "name": one.name, "by": one.by, "mode": one.mode,
                "replayable": one.replayable,
                "text": tree.node(one.node).text, "node": one.node,
            }
            for one in called
        ]  # fmt: skip
    if as_json:
        told = {"run": found.id, "command": list(found.command), "exit": found.exit, **_how(found)}
        print_json(told | {"exchanges": rows, "tools": calls})
        return
    table = Table(box=None, pad_edge=False, expand=True)
    known = ["by"] if any(row.get("by") for row in rows) else []
    for name in ("step", "talk", "model", *known):
        table.add_column(name, no_wrap=True, max_width=28 if name == "by" else 16, overflow="ellipsis")
    for name in ("asked", "said"):
        table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        for call in calls[:]:
            if call["after"] <= row["step"]:
                _tool_row(table, calls.pop(0), known)
        named = zip(row["calls"], row["arguments"], strict=True)
        said = row["error"] or " ".join([row["said"], *(f"{name}({told})" for name, told in named)]).strip()
        texts = (Text(visible(" ".join(text.split()))) for text in (row["asked"], said))
        heads = (str(row["step"]), str(row["conversation"]), visible(row["model"] or "-"))
        table.add_row(*heads, *(Text(visible(str(row.get(name) or "-"))) for name in known), *texts)
    for call in calls:
        _tool_row(table, call, known)
    _say_how(found)
    open_console().print(table)


def _show_step(rows: Sequence[Json], step: int, tokens: Sequence[str], as_json: bool) -> None:
    """One exchange: what was new in the request, the calls of its answer, and its text by tokens."""
    row = rows[step]
    if as_json:
        print_json({**row, "tokens": list(tokens)})
        return
    for name, text in (
        ("asked by", row.get("by")),
        ("asked", row["asked"]),
        ("said", row["said"]),
        ("error", row["error"]),
    ):
        if text:
            typer.echo(f"{name}:\n{visible(text)}\n")
    for name, told in zip(row["calls"], row["arguments"], strict=True):
        typer.echo(f"called {visible(name)}({visible(told)})\n")
    if tokens:
        typer.echo(
            "tokens:\n" + " ".join(f"{i}:{visible(one.strip() or repr(one))}" for i, one in enumerate(tokens))
        )


def _tool_row(table: Table, call: Json, known: Sequence[str]) -> None:
    """A call of a tool between the exchanges; it is no step."""
    from rich.text import Text

    asked, _, came = str(call["text"]).partition(" -> ")
    texts = (Text(visible(" ".join(text.split()))) for text in (asked, came))
    table.add_row("", "", Text("tool"), *("" for _ in known), *texts)


@app.command("mcp-wrap")
def mcp_wrap_command(command: Command = None) -> None:
    """Put an MCP server's calls on the tape: write this before its command in the program's configuration.

    Under record all passes through, byte for byte. Under replay, and under fork before the point, the tape
    answers and the server is not started. Without a run around it the server runs as if we were not there.

    Example: `refork agent mcp-wrap -- npx some-mcp-server`
    """
    from refork.agents.mcp_wrap import wrap

    raise typer.Exit(wrap(command or []))


@app.command("mcp")
def mcp_command(
    folder: Annotated[
        Path, typer.Option("--folder", help="All that it reads, writes and runs lies in here.")
    ] = Path(),
    to: ToServer = None,
) -> None:
    """Serve coding assistants over MCP, on standard input and output: record, list, explain, fork, why.

    An assistant cannot leave the folder, nor choose whom the programs ask. What it is told of an effect has
    the control and the interval, and nothing has keys. `refork agent skill` tells it when to use this.

    Example: `claude mcp add refork -- refork agent mcp --folder .`
    """
    from refork.agents.mcp_server import serve_assistant

    serve_assistant(folder, to)


@app.command()
def skill(
    out: Annotated[Path, typer.Option("--out", help="Folder of an assistant's skills.")],
) -> None:
    """Write the skill file that tells a coding assistant when and how to use this, into a folder of skills.

    Example: `refork agent skill --out .claude/skills`

    Example: `refork agent skill --out ~/.codex/skills`
    """
    from importlib.resources import files

    text = files("refork.agents").joinpath("SKILL.md").read_text("utf-8")
    file = out.expanduser() / "refork" / "SKILL.md"
    if file.exists() and file.read_text("utf-8", "replace") != text:
        raise BadInput(
            "another skill file is there", where=str(file), hint="remove it, or name another --out"
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    except OSError as error:
        raise BadInput(f"it cannot be written: {error.strerror}", where=str(file)) from error
    typer.echo(f"wrote {visible(str(file))}", err=True)
