"""``refork probe``: how much of the outcome is decided before the thinking starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, RunFolder, TreeFile, absolute, existing, print_json, spelled
from refork.cli.recipe import Keys
from refork.cli.screen import print_table

app = typer.Typer(
    help="How much of a refuse-or-comply outcome is decided before, and during, the thinking.",
    no_args_is_help=True,
)

Prompts = Annotated[
    Path | None, typer.Option("--prompts", help="JSON lines of prompt, intent, source. Default: the tree's.")
]


@app.command()
def fit(
    tree: TreeFile,
    policy: Annotated[
        str, typer.Option("--policy", help="The local model that made the rollouts: hf:DIR, organism:NAME.")
    ],
    out: RunFolder,
    prompts: Prompts = None,
    score: Annotated[str, typer.Option("--score", help="The score that says refused (above one half).")] = (
        "refusal"
    ),
    refusal_regex: Annotated[
        str | None, typer.Option("--refusal-regex", help="Grade ungraded rollouts: what a refusal matches.")
    ] = None,
    draws: Annotated[int, typer.Option("--draws", min=0, help="Draw so many rollouts of each prompt.")] = 0,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Also probe 20 places of the prompt at five depths.")
    ] = False,
    settings: Annotated[
        list[str],
        typer.Option(
            "--set", help="A recipe key, e.g. layer=-2, labels=1, close='>>', sampling.max_tokens=96."
        ),
        Keys("refork_methods.probe.run:ProbeRecipe"),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Probe the last prompt and first thinking token; exit status 1 where an AUROC beats its ceiling.

    Example: refork probe fit --tree runs/a/tree.db --policy hf:DIR --out runs/probe --score success
    """
    from refork.cli.live import LiveProgress
    from refork.policies.open import open_policy
    from refork.runs.recipe import open_folder, resolve
    from refork.tree import Tree
    from refork_methods.probe.page import write_page
    from refork_methods.probe.run import ProbeRecipe, leaks, run_fit

    recipe = resolve(
        ProbeRecipe, None, settings, tree=absolute(tree), policy=policy, score=score,
        prompts=str(prompts.resolve()) if prompts else None, refusal_regex=refusal_regex, draws=draws,
        sweep=sweep or None,
    )  # fmt: skip
    with Tree.open(tree if draws else existing(tree)) as store, LiveProgress() as live:
        recipe = spelled(recipe, live)
        opened = open_policy(recipe.policy)
        open_folder(out, recipe)
        told = run_fit(out, recipe, store, opened, live)
    page = write_page(out, told)
    if as_json:
        print_json(told | {"page": str(page)})
    else:
        _print_fit(told)
        typer.echo(str(page))
    if leaks(told):
        raise typer.Exit(1)


#: What helps where tasks do not say what was meant: the outcomes of a log can be counted by hand.
COUNTS = 'count outcomes yourself: --counts FILE, lines of {"id": ..., "refusals": ..., "rollouts": ...}'


@app.command()
def ceiling(
    tree: Annotated[Path | None, typer.Option("--tree", help="The tree file.")] = None,
    counts: Annotated[
        Path | None, typer.Option("--counts", help="Instead: JSON lines of id, refusals, rollouts.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Recorded name, where several made the rollouts.")
    ] = None,
    score: Annotated[str, typer.Option("--score", help="The score that says refused.")] = "refusal",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print AUROC*, the highest AUROC that any reader of the prompt can reach, from repeated rollouts.

    Example: refork probe ceiling --tree runs/a/tree.db --score success
    """
    from refork.errors import BadInput
    from refork.tree import Tree
    from refork_methods.probe.tally import ceiling_report, read_tallies, tallies_of
    from refork_methods.stance.prompts import recorded_cases

    if (tree is None) == (counts is None):
        raise BadInput("name a tree or a file of counts", hint="--tree FILE, or --counts FILE")
    if counts is not None:
        with existing(counts).open(encoding="utf-8") as lines:
            tallies, ungraded = read_tallies(lines, str(counts)), 0
    else:
        assert tree is not None
        with Tree.open(existing(tree), "r") as store:
            tallies, ungraded = tallies_of(store, recorded_cases(store, COUNTS), score, policy)
    told = ceiling_report(tallies, seed) | {"ungraded": ungraded}
    if as_json:
        print_json(told)
        return
    _print_ceilings(told["groups"])
    if ungraded:
        typer.echo(f"{ungraded} rollouts are ungraded and left out")


def _print_fit(told: dict[str, Any]) -> None:
    from refork_methods.probe.page import curve_words

    rows = told["rows"]
    typer.echo(
        f"{rows['prompts']} prompts, {rows['rollouts']} rollouts, {rows['refusals']} refusals"
        f"; {rows['ungraded']} ungraded, {rows['failed']} failed, {rows['without_thinking']} without thinking"
        f"; {rows['unopened']} never open their thinking, {rows['unclosed']} never close it, "
        f"{rows['closed_by_force']} closed by force"
    )
    _print_areas(told["probes"])
    for name, probe in told["probes"].items():
        for group, reason in probe["left_out"].items():
            typer.echo(f"{name.replace('_', ' ')}: {group} left out, {reason}")
    if told["curve"] is not None:
        typer.echo(curve_words(told["curve"]))
    for note in told["notes"]:
        typer.echo(note)


def _print_areas(probes: dict[str, Any]) -> None:
    rows = []
    for name, probe in probes.items():
        parts = {"pooled": probe["pooled"], **probe["within"]} if probe["pooled"] else {}
        for group, part in parts.items():
            shown = f"{part['auroc']:.3f} [{part['low']:.3f}, {part['high']:.3f}]"
            balanced, leak = f"{part['balanced_accuracy']:.3f}", "LEAK" if part["leak"] else ""
            rows.append((name.replace("_", " "), group, shown, ceiling_words(part), balanced, leak))
    print_table(("probe", "group", "AUROC", "AUROC*", "balanced", ""), rows, wrap=True)


def ceiling_words(part: dict[str, Any]) -> str:
    """AUROC* of a part of a report with its standard error, or why there is none."""
    found = part["ceiling"]
    return part["no_ceiling"] if found is None else f"{found['estimate']:.3f} ± {found['se']:.3f}"


def _print_ceilings(groups: dict[str, Any]) -> None:
    rows = []
    for name, part in groups.items():
        found = part["ceiling"]
        variance = "-" if part["variance"] is None else f"{part['variance']:.3f}"
        between = "" if found is None else f"{found['repeat']:.3f} and {found['plug_in']:.3f}"
        counts = (str(part["prompts"]), str(part["rollouts"]), f"{part['refusal_rate']:.3f}")
        rows.append((name, *counts, variance, ceiling_words(part), between))
    print_table(("group", "prompts", "rollouts", "refused", "4q(1-q)", "AUROC*", "between"), rows, wrap=True)
