"""``refork route conduct``: run a workflow, have one written, or train who writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.cli.recipe import Keys

if TYPE_CHECKING:
    from refork_methods.route.conduct.conductor import Conducted

Query = Annotated[str | None, typer.Argument(help="What is to be answered; not with --plan or --train.")]
PoolName = Annotated[str, typer.Option("--pool", help="The pool file (TOML), or 'expressions'.")]
PlanFile = Annotated[Path | None, typer.Option("--plan", help="Run this workflow (JSON).")]
Who = Annotated[
    str | None,
    typer.Option("--conductor", help="Who writes the plan: a policy, or organism:conductor."),
]
Train = Annotated[bool, typer.Option("--train", help="Train the conductor on what its plans earn.")]
QueryFile = Annotated[str, typer.Option("--queries", help="For --train: JSON lines, or 'expressions'.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", help="For --train: a recipe key, e.g. per_call=0.05 or updates=60."),
    Keys("refork_methods.route.conducting:ConductRecipe"),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Tree file that the run is recorded on; --train: the folder."),
]
SavePlan = Annotated[Path | None, typer.Option("--save-plan", help="Write the workflow (JSON) here.")]
Picture = Annotated[Path | None, typer.Option("--picture", help="Draw the workflow (SVG) here.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork route``."""
    app.command("conduct")(conduct_command)


def conduct_command(
    query: Query = None,
    pool: PoolName = "expressions",
    plan: PlanFile = None,
    conductor: Who = None,
    train: Train = False,
    queries: QueryFile = "expressions",
    settings: Settings = [],  # noqa: B006
    without: Annotated[list[str], typer.Option("--without", help="Leave this worker out.")] = [],  # noqa: B006
    most: Annotated[int, typer.Option("--max-steps", help="Steps that a plan may have.", min=1)] = 5,
    rounds: Annotated[int, typer.Option("--rounds", help="How deep plans may ask for plans.", min=1)] = 1,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the conductor.", min=0)] = 0.0,
    draw: Annotated[int, typer.Option("--draw", help="Number of a repeated run.", min=0)] = 0,
    out: Out = None,
    save_plan: SavePlan = None,
    picture: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Answer a query by a workflow: who does what, in which order, and who sees whose answer.

    With --plan a given workflow runs; else a conductor writes one. With --train the conductor learns from
    what its plans earn: 0 where they cannot run, 0.5 where the answer is wrong, 1 where it is right. The
    same command again resumes.

    Example: refork route conduct "3+4*2" --conductor organism:conductor --pool expressions --json

    Example: refork route conduct --train --set updates=60 --out runs/conductor
    """
    if train:
        _train(conductor, pool, queries, settings, out, as_json)
        return
    from refork_methods.route.conducting import pool_named

    workers = pool_named(pool if pool == "expressions" else str(existing(Path(pool)))).without(*without)
    done = (
        _given(existing(plan), workers, most, draw)
        if plan is not None
        else _written(query, conductor, workers, most, rounds, temperature, draw)
    )
    told = done.to_json()
    if save_plan is not None and done.plan is not None:
        _save(save_plan, json.dumps(done.plan.to_json(), indent=2) + "\n")
    if picture is not None and done.execution is not None:
        from refork_methods.route.workflow_picture import workflow_picture

        _save(picture, workflow_picture(done.execution, query or ""))
    if out is not None and done.execution is not None:
        told["node"] = _record(out, query or "", done, conductor, draw)
    print_json(told) if as_json else _show(done)
    if done.fault is not None:
        raise typer.Exit(1)


def _given(file: Path, pool: Any, most: int, draw: int) -> Conducted:
    from refork_methods.route.conduct.conductor import Conducted
    from refork_methods.route.conduct.execute import execute
    from refork_methods.route.conduct.plan import Plan

    plan = Plan.read(file).validate(pool, most)
    return Conducted("", plan, execute(plan, pool, draw=draw, most=most))


def _written(
    query: str | None,
    conductor: str | None,
    pool: Any,
    most: int,
    rounds: int,
    temperature: float,
    draw: int,
) -> Conducted:
    from refork.chat import PolicyChat
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.policies.base import Sampling
    from refork.policies.open import open_policy, spell
    from refork_methods.route.conduct.conductor import Conductor

    if query is None or conductor is None:
        raise BadInput(
            "there is nothing to run", hint="give a query and --conductor, --plan FILE, or --train"
        )
    with LiveProgress() as live:
        policy = open_policy(spell(conductor, live))
    writer = PolicyChat(policy, Sampling(temperature=temperature))
    return Conductor(writer, pool, rounds=rounds, most=most).run(query, draw=draw)


def _record(file: Path, query: str, done: Conducted, author: str | None, draw: int) -> str:
    from refork.tree.tree import Tree
    from refork_methods.route.conduct.on_tree import record

    assert done.execution is not None
    with Tree.open(file) as tree:
        text = done.text or None
        return record(tree, query, done.execution, text=text, author=author, planning=done.cost, draw=draw).id


def _save(file: Path, text: str) -> None:
    part = file.with_suffix(file.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def _show(done: Conducted) -> None:
    if done.execution is None:
        typer.echo(f"the plan cannot run: {done.fault}\n{done.text}")
        return
    for step in done.execution.steps:
        seen = ", ".join(str(one.step) for one in step.shown) or "nothing"
        said = step.output if step.output is not None else f"failed: {step.error}"
        typer.echo(f"{step.step}. {step.worker:<12} {step.subtask}   (sees {seen})\n   {said}")
    bill = done.execution.bill
    money = "unknown" if bill.total is None else f"{bill.total:g}"
    typer.echo(f"answer: {done.answer}\ncalls: {done.execution.calls}, money: {money}")


def _train(
    conductor: str | None, pool: str, queries: str, settings: list[str], out: Path | None, as_json: bool
) -> None:
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.runs.recipe import resolve
    from refork_methods.route.conducting import ConductRecipe, run_conduct

    if out is None:
        raise BadInput("training needs a folder", hint="--out runs/conductor")
    recipe = resolve(ConductRecipe, None, settings, conductor=conductor, pool=pool, queries=queries)
    with LiveProgress() as live:
        summary = run_conduct(recipe, out, live)
    if as_json:
        print_json(summary)
        return
    for name in ("before", "after"):
        found = summary[name]
        if found is not None:
            expected = "" if found["expected"] is None else f", expected {found['expected']:.3f}"
            typer.echo(
                f"{name}: {found['accuracy']:.3f} right [{found['accuracy_low']:.3f}, "
                f"{found['accuracy_high']:.3f}]{expected}; {found['run']:.1%} of plans run; "
                f"{found['calls']:.2f} calls each"
            )
    typer.echo(f"policy: {summary['policy']}")
