"""``refork cliff``: the tokens at which a trace loses its success, found, proven, and trained away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import (
    AsJson,
    JudgeSpec,
    Regex,
    RunFolder,
    Seed,
    TreeFile,
    WorldSpec,
    absolute,
    ask_for_grading,
    existing,
    judge_for,
    policy_for,
    print_json,
    spelled,
    world_for,
)
from refork.cli.recipe import Keys
from refork.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from refork_methods.cliff.run import CliffRecipe, CliffRun

app = typer.Typer(
    help="Find the tokens at which a trace loses its success, prove them, and train on them.",
    no_args_is_help=True,
)

OfPolicy = Annotated[
    str | None, typer.Option("--policy", help="The run's own, repeated where it is a file of yours.")
]
OfWorld = Annotated[
    str | None, typer.Option("--world", help="The run's own, repeated where it is a file of yours.")
]
Budget = Annotated[
    int | None, typer.Option("--budget-rollouts", min=1, help="Continuations the whole run may use.")
]
Unproven = Annotated[
    bool,
    typer.Option(
        "--unproven", help="At tokens that the published test takes for cliffs once, without a re-test."
    ),
]


@contextmanager
def _opened(out: Path, policy: str | None, world: str | None) -> Iterator[CliffRun]:
    """The run of a folder, with its tree and policy open; what a user typed may be a file of their own."""
    from refork.tree import Tree
    from refork_methods.cliff.run import load_recipe, open_run

    recipe = load_recipe(out)
    _check_policy(recipe, policy)
    with Tree.open(existing(Path(recipe.tree))) as store:
        trusted = _same(recipe.world, world, "--world")
        yield open_run(out, recipe, store, trusted=trusted)


def _check_policy(recipe: CliffRecipe, typed: str | None) -> None:
    """What the folder records runs nothing of its own, unless the user has typed the same."""
    from refork.policies.open import check_recorded

    if not _same(recipe.policy, typed, "--policy"):
        check_recorded(recipe.policy)


def _same(recorded: str | None, typed: str | None, option: str) -> bool:
    if typed is not None and typed != recorded:
        raise BadInput(f"this run is of {recorded!r}, not {typed!r}", where=option)
    return typed is not None


@app.command()
def scan(
    tree: TreeFile,
    policy: Annotated[
        str, typer.Option("--policy", help="The policy that made the traces: hf:DIR, organism:NAME.")
    ],
    out: RunFolder,
    world: Annotated[str | None, typer.Option("--world", help="Default: the recorded one.")] = None,
    success_regex: Annotated[
        str | None, typer.Option("--success-regex", help="Without a world: what a right last turn matches.")
    ] = None,
    traces: Annotated[str, typer.Option("--traces", help="wrong, right or all.")] = "wrong",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many traces.")] = None,
    budget: Budget = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="A recipe key, e.g. draws=64, rule=paper, fdr=0.05."),
        Keys("refork_methods.cliff.run:CliffRecipe"),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Value every token of recorded traces; the same command again goes on where it stopped.

    Example: refork cliff scan --tree runs/a/tree.db --policy hf:DIR --out runs/cliff --budget-rollouts 20000
    """
    from refork.cli.live import LiveProgress
    from refork.runs.recipe import open_folder, resolve
    from refork.tree import Tree
    from refork_methods.cliff.run import CliffRecipe, open_run, run_scan

    with Tree.open(existing(tree)) as store, LiveProgress() as live:
        recipe = resolve(
            CliffRecipe, None, settings, tree=absolute(tree), policy=policy, world=world,
            success_regex=success_regex, traces=traces,
        )  # fmt: skip
        recipe = spelled(recipe, live)
        run = open_run(out, recipe, store)
        open_folder(out, recipe)
        told = run_scan(run, limit, budget, live)
    if as_json:
        print_json(told)
        return
    typer.echo(
        f"{told['traces']} of {told['traces_chosen']} traces, {told['tokens']} tokens, "
        f"{told['rollouts']} continuations; {told['nominated']} tokens nominated"
    )
    if told["budget_reached"]:
        typer.echo("the budget is used up; a larger --budget-rollouts goes on from here")


@app.command()
def verify(
    out: RunFolder,
    policy: OfPolicy = None,
    world: OfWorld = None,
    budget: Budget = None,
    effects: Annotated[
        bool, typer.Option(help="Also delete and keep what survives, beside random positions.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Test every nominated token again on fresh draws; exit status 1 where cliffs survive.

    Example: refork cliff verify --out runs/cliff
    """
    from refork.cli.live import LiveProgress
    from refork_methods.cliff.run import run_verify

    with _opened(out, policy, world) as run, LiveProgress() as live:
        told = run_verify(run, budget, effects, live)
    _print(told, as_json)
    if told["survived"]:
        raise typer.Exit(1)


@app.command()
def pairs(
    out: RunFolder,
    policy: OfPolicy = None,
    world: OfWorld = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Likeliest tokens to try at each cliff.")] = 10,
    variant: Annotated[
        str, typer.Option("--variant", help="1:N, or hard: chosen at least as good as the point.")
    ] = "1:N",
    unproven: Unproven = False,
    budget: Budget = None,
    as_json: AsJson = False,
) -> None:
    """Try other tokens at every proven cliff and write preference pairs.

    Example: refork cliff pairs --out runs/cliff --variant hard
    """
    from refork.cli.live import LiveProgress
    from refork_methods.cliff.run import run_pairs, run_unproven

    make = run_unproven if unproven else run_pairs
    with _opened(out, policy, world) as run, LiveProgress() as live:
        told = make(run, k, variant, budget, live)  # type: ignore[arg-type]  # checked there
    if as_json:
        print_json(told)
        return
    typer.echo(
        f"{told['pairs']} pairs at {told['cliffs']} cliffs in {told['file']}, "
        f"{told['text_form']} of them with text that reads back as the same tokens"
    )


@app.command()
def train(
    out: RunFolder,
    policy: OfPolicy = None,
    kinds: Annotated[
        str,
        typer.Option("--kinds", help="all, deterministic, uncertain, sampled-off, uncertain+sampled-off."),
    ] = "all",
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Of the optimizer.")] = 5e-6,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Times over the pairs.")] = 1,
    beta: Annotated[
        float, typer.Option("--beta", help="How far the policy may leave its reference; smaller is further.")
    ] = 0.05,
    unproven: Unproven = False,
    full: Annotated[bool, typer.Option("--full", help="All weights instead of a LoRA adapter.")] = False,
    eos_compat: Annotated[
        bool, typer.Option("--eos-compat", help="Add the end of sequence, as the released trainer does.")
    ] = False,
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Train on the pairs, one token each, and save the policy in the run's folder.

    Example: refork cliff train --out runs/cliff --kinds uncertain+sampled-off
    """
    from refork.cli.live import LiveProgress
    from refork.policies.open import open_policy
    from refork_methods.cliff.dpo import CliffDpoSettings, Lora
    from refork_methods.cliff.run import load_recipe, run_train

    plan = CliffDpoSettings(
        learning_rate=learning_rate, epochs=epochs, beta=beta, lora=None if full else Lora(),
        eos_compat=eos_compat, seed=seed,
    )  # fmt: skip
    recipe = load_recipe(out)
    _check_policy(recipe, policy)
    with LiveProgress() as live:
        told = run_train(out, open_policy(recipe.policy), kinds, plan, live, unproven=unproven)
    if as_json:
        print_json(told)
        return
    typer.echo(
        f"{told['pairs']} pairs, {told['loss_tokens']} loss tokens, {told['seconds']:.1f} s; {told['policy']}"
    )


@app.command()
def report(out: RunFolder, as_json: AsJson = False) -> None:
    """Print what a run has found, and write its page with the potential of every trace.

    Example: refork cliff report --out runs/cliff
    """
    from refork_methods.cliff.page import write_page
    from refork_methods.cliff.run import read_run, read_tokens

    told = read_run(out)
    page = write_page(out, told, read_tokens(out))
    _print(told | {"page": str(page)}, as_json)
    if not as_json:
        typer.echo(str(page))


def why_command(
    tree: TreeFile,
    policy: Annotated[
        str, typer.Option("--policy", help="The policy that made the trace: hf:DIR, organism:NAME.")
    ],
    node: Annotated[
        str | None,
        typer.Option("--node", help="Last node of the trace; default: a failed one of this policy."),
    ] = None,
    draws: Annotated[
        int, typer.Option("--draws", min=16, help="Draws of each point, of each test and of each arm.")
    ] = 64,
    world: WorldSpec = None,
    success_regex: Regex = None,
    judge: JudgeSpec = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say why a trace failed: the token that lost it, tested on fresh draws, and what it cost.

    It is the scan and the test of `refork method cliff` on one trace, and the comparison of `refork fork` at
    the worst cliff, whose arms the tree keeps. Exit status 1 where a cliff was found.

    Example: refork why --tree runs/demo/tree.db --policy hf:runs/demo/policy
    """
    from refork.cli.cards import LiveProgress, effect_card
    from refork.cli.screen import open_console
    from refork.forking.grading import need_grader
    from refork.tree import Tree
    from refork_methods.cliff.select import choose_traces, first_by
    from refork_methods.cliff.why import why

    with Tree.open(existing(tree)) as store:
        first = store.at(node) if node is not None else next(map(store.at, store.tasks()), None)
        if first is None:
            raise BadInput("the tree is empty", where=str(tree))
        place, grader = world_for(store.path(first), world), judge_for(success_regex, judge)
        place, grader = ask_for_grading(place, grader, as_json=as_json)
        need_grader("success", place, grader, f"node {first.node.id[:12]}")  # before a model is read
        failed = [] if node is not None else choose_traces(store, "wrong", judge=grader)
        with LiveProgress() as live:
            drawing = policy_for(policy, live)
            end = first_by(store, failed, drawing.card.weights) if failed else first
            found = why(end, drawing, draws, world=place, judge=grader, seed=seed, progress=live)
    told = found.to_json()
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['tokens']} tokens, {len(told['cliffs'])} suspected, {told['rollouts']} rollouts")
        if told["cliffs"]:
            open_console().print(_table(told["cliffs"]))
        if found.effect is None:
            typer.echo("no token of this trace loses more success than noise explains")
        else:
            open_console().print(effect_card(found.effect.to_json()))
    if found.worst is not None:
        raise typer.Exit(1)


def _print(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    from refork.cli.screen import open_console

    typer.echo(f"{told['traces']} traces, {told['tokens']} tokens, {told['rollouts']} continuations")
    tested = told["tested"]
    typer.echo(
        f"{told['nominated']} nominated, "
        + ("not tested again yet" if tested is None else f"{tested} tested again, {told['survived']} survive")
    )
    if told["cliffs"]:
        open_console().print(_table(told["cliffs"]))
    for name, side in (told["effects"] or {}).items():
        if name != "sampled":
            one = side["pass@1"]
            typer.echo(
                f"{name}: deleting {one['deleted']:.3f}, keeping {one['kept']:.3f}, "
                f"{one['gain']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}] at {side['positions']} places"
            )


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="dim", show_edge=False, padding=(0, 2, 0, 0))
    for name in ("trace", "token", "text", "before", "after", "pi", "kind", "q", ""):
        table.add_column(name)
    for row in rows:
        sides = [f"{k / n:.2f}" if n else "-" for k, n in (row["before"], row["after"])]
        pi = "-" if row["pi"] is None else f"{row['pi']:.3f}"
        table.add_row(
            row["leaf"][:8], str(row["index"]), repr(row["text"]), *sides, pi, row["kind"] or "-",
            f"{row['q']:.3f}", "cliff" if row["real"] else "noise",
        )  # fmt: skip
    return table
