"""``refork method memory``: experience as text, and as code only where it was used again and again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.cli.screen import print_table

if TYPE_CHECKING:
    from refork_methods.memory.gate import RecurrenceGate
    from refork_methods.memory.memory import ExperienceMemory
    from refork_methods.memory.roles.by_model import Repairer
    from refork_methods.memory.roles.team import Roles


app = typer.Typer(
    help="Learn from finished runs: plans, facts, pitfalls; tools from plans that came back often enough.",
    no_args_is_help=True,
)

Store = Annotated[Path, typer.Argument(metavar="MEMORY", help="The memory's folder.")]
Model = Annotated[
    str | None,
    typer.Option("--model", help="Roles by this model (openai:URL#MODEL, hf:DIR); default: by rule."),
]
Theta = Annotated[int, typer.Option(help="Distinct tasks that must select a plan before it becomes code.")]
BuildCost = Annotated[float | None, typer.Option(help="What a build costs; with --saving this gives theta.")]
Saving = Annotated[float | None, typer.Option(help="What a task saves by code, in the same unit.")]
Eager = Annotated[bool, typer.Option("--eager", help="Code as soon as there is a plan (theta 0).")]
Share = Annotated[
    float,
    typer.Option(
        min=0, max=1, help="Part of the other runs that must have made a plan's calls; 0 looks at none."
    ),
]
Catalogue = Annotated[
    str, typer.Option(help="The environment's functions: a JSON file, or miniapps.", metavar="FILE")
]


@app.command()
def ingest(
    store: Store,
    runs: Annotated[list[Path], typer.Argument(help="OpenAI messages or spans as JSON lines, or a tree.")],
    model: Model = None,
    observe: Annotated[
        bool, typer.Option(help="Count, for each run, the plans that the memory would have chosen for it.")
    ] = True,
    skip_known: Annotated[
        bool, typer.Option("--skip-known", help="Pass over tasks that were read before.")
    ] = False,
    keep_secrets: Annotated[
        bool, typer.Option("--keep-secrets", help="Do not replace passwords, keys and tokens by names.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read finished runs, in order, and keep what they teach. Passwords become names: secret:app.argument.

    Exit status 1 where a run could not be read: it is named, and can be read again.

    Example: refork memory ingest memories/pay runs/monday.jsonl runs/tuesday.jsonl
    """
    from refork.cli.live import LiveProgress
    from refork_methods.memory.memory import ingest as read_in
    from refork_methods.memory.sources import read_runs

    found = [run for path in runs for run in read_runs(existing(path))]
    memory = open_memory(store, model=model, hide_secrets=not keep_secrets)
    with LiveProgress() as progress:
        told = read_in(memory, found, observe=observe, skip_known=skip_known, progress=progress)
    if as_json:
        print_json(told.to_json())
    else:
        typer.echo(f"{told.read} runs read, {told.skipped} skipped: {len(told.items)} new items")
        for item in told.items:
            typer.echo(f"{item.id}  {item.body.splitlines()[0]}")
        for task, reason in told.failed:
            typer.echo(f"{task}: not read: {reason}")
    if told.failed:
        raise typer.Exit(1)


@app.command()
def show(
    store: Store,
    at: Annotated[int | None, typer.Option(help="After this many events; default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what the memory holds now, or held after so many events of its log.

    Example: refork memory show memories/pay --at 20
    """
    from refork_methods.memory.report import overview

    memory = open_memory(store, new=False)
    told = overview(memory.state if at is None else memory.at(at))
    if as_json:
        print_json(told)
        return
    for item in told["items"]:
        typer.echo(f"{item['id']}  {item['body'].splitlines()[0]}")
    for tool in told["tools"]:
        typer.echo(f"{tool['name']}  {tool['doc']}")
    for name, account in told["accounts"].items():
        tokens = [account["tokens_in"], account["tokens_out"]]
        known = "tokens not known" if None in tokens else f"{sum(tokens):,.0f} tokens"
        typer.echo(f"{name}: {account['entries']} entries, {known}")


@app.command()
def select(
    store: Store,
    query: Annotated[str, typer.Option(help="What the task asks for.")],
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Choose the texts and tools for a query.

    Example: refork memory select memories/pay --query 'Send 20 dollars to Ann Lee for "rent"'
    """
    memory = open_memory(store, model=model, new=False)
    chosen = memory.select(query)
    if as_json:
        print_json(chosen.to_json())
        return
    for item in chosen.items:
        typer.echo(f"[{item.id}] {item.body}")
    for tool in chosen.tools:
        typer.echo(f"[tool] {tool.name}: {tool.doc}")
    if not chosen.items and not chosen.tools:
        typer.echo("nothing fits this query")


@app.command()
def gate(
    store: Store,
    theta: Theta = 3,
    build_cost: BuildCost = None,
    saving: Saving = None,
    as_json: AsJson = False,
) -> None:
    """Say of every plan how many distinct tasks selected it, and which are due. Builds nothing.

    Example: refork memory gate memories/pay --build-cost 12000 --saving 2500
    """
    from refork_methods.memory.report import gate_rows

    memory = open_memory(store, gate=_gate(theta, build_cost, saving), new=False)
    told = gate_rows(memory)
    if as_json:
        print_json(told)
        return
    for row in told["plans"]:
        state = row["tool"] or ("due" if row["due"] else "text")
        typer.echo(f"{row['plan']}  {row['tasks']} of {told['theta']}  {state}  {row['title']}")


@app.command()
def codify(
    store: Store,
    catalogue: Catalogue,
    theta: Theta = 3,
    build_cost: BuildCost = None,
    saving: Saving = None,
    eager: Eager = False,
    share: Share = 1.0,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Make code of the plans that are due, and admit what passes the guard and what other runs confirm.

    Exit status 1 where a model gave no usable reply: the plan stays due.

    Example: refork memory codify memories/pay --catalogue functions.json
    """
    from refork.plain import to_json
    from refork_methods.memory.admission import AdmissionGuard
    from refork_methods.memory.catalogue import read_catalogue
    from refork_methods.memory.memory import codify_due

    memory = open_memory(store, model=model, gate=_gate(theta, build_cost, saving, eager, share), new=False)
    guard = AdmissionGuard(read_catalogue(catalogue), repairer=_repairer(model))
    built = codify_due(memory, guard)
    if as_json:
        print_json([to_json(one) for one in built])
    else:
        for one in built:
            for tool in one.tools:
                typer.echo(f"{one.plan}: {tool.name}, from {len(one.tasks)} tasks")
            for reason in one.reasons:
                typer.echo(f"{one.plan}: {'stays due' if one.failed else 'stays text'}: {reason}")
        if not built:
            typer.echo("no plan is due")
    if any(one.failed for one in built):
        raise typer.Exit(1)


@app.command()
def audit(
    store: Store,
    idle: Annotated[int, typer.Option(min=1, help="Tasks after which an unused text is stale.")] = 30,
    catalogue: Annotated[str | None, typer.Option(help="The environment's functions now.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what a person should look at; exit status 1 where there is something.

    Example: refork memory audit memories/pay --catalogue functions.json
    """
    from refork.plain import to_json
    from refork_methods.memory.catalogue import read_catalogue
    from refork_methods.memory.usage import audit as look

    functions = None if catalogue is None else read_catalogue(catalogue)
    found = look(open_memory(store, new=False).state, idle=idle, catalogue=functions)
    if as_json:
        print_json([to_json(one) for one in found])
    else:
        for one in found:
            typer.echo(f"{one.kind}: {one.name}: {one.words}")
        if not found:
            typer.echo("nothing to look at")
    if found:
        raise typer.Exit(1)


def open_memory(
    store: Path,
    *,
    model: str | None = None,
    gate: RecurrenceGate | None = None,
    new: bool = True,
    hide_secrets: bool = True,
) -> ExperienceMemory:
    """The memory of a folder; says where a crash left part of a line."""
    from refork_methods.memory.events import FILE
    from refork_methods.memory.memory import ExperienceMemory

    if not new:
        existing(store / FILE)
    memory = ExperienceMemory(store, roles=_roles(model), gate=gate, hide_secrets=hide_secrets)
    if memory.torn:
        typer.echo(f"note: {memory.torn} bytes of an unfinished last line do not count", err=True)
    return memory


def _roles(model: str | None) -> Roles | None:
    from refork.chat import PolicyChat
    from refork.policies.open import open_policy
    from refork_methods.memory.roles.team import roles_by

    return None if model is None else roles_by(PolicyChat(open_policy(model)))


def _repairer(model: str | None) -> Repairer | None:
    from refork.chat import PolicyChat
    from refork.policies.open import open_policy
    from refork_methods.memory.roles.by_model import ModelRepairer

    return None if model is None else ModelRepairer(PolicyChat(open_policy(model)))


def _gate(
    theta: int, build_cost: float | None, saving: float | None, eager: bool = False, share: float = 1.0
) -> RecurrenceGate:
    from dataclasses import replace

    from refork.errors import BadInput
    from refork_methods.memory.gate import RecurrenceGate

    if (build_cost is None) != (saving is None):
        raise BadInput("--build-cost and --saving go together")
    if eager:
        return RecurrenceGate.at_once()
    if build_cost is not None and saving is not None:
        return replace(RecurrenceGate.rent_or_buy(build_cost, saving), share=share)
    return RecurrenceGate(theta, share=share)


# ``refork memory export`` and ``replay``: tools and lessons elsewhere, and the arms compared.


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
    from refork.registry import part

    names = [name.strip() for name in arm.split(",") if name.strip()]
    with LiveProgress() as progress:
        found = part("memory.arms", "refork-testbed")(
            names,
            world,
            test,
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
    _print_arms(told)


def _print_arms(told: dict[str, Any]) -> None:
    rows = []
    for name, one in told.items():
        figures = one["figures"]
        called = {tool for row in figures["rows"] for tool in row["called"]}
        rows.append([
            name, f"{figures['completed']:.0%}", f"{figures['families_completed']:.0%}",
            f"{figures['steps']:.1f}", str(len(one.get("tools", ()))), str(len(called)),
        ])  # fmt: skip
    print_table(("arm", "tasks done", "scenarios done", "steps a task", "tools", "called"), rows)
