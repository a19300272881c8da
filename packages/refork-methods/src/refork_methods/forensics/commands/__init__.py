"""``refork forensics``: the verbs that run something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, SamplingSettings, Seed, print_json
from refork.cli.screen import print_table
from refork_methods.forensics.commands.case import Folder, app

if TYPE_CHECKING:
    from refork.cli.live import LiveProgress
    from refork_methods.forensics.bench import Bench
    from refork_methods.forensics.case import Case

__all__ = ["app"]

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy", help="The model of the case: hf:DIR, organism:NAME, openai:URL#MODEL, scripted:NAME."
    ),
]
WorldName = Annotated[
    str | None, typer.Option("--world", help="Default: the motive scene; none: rollouts are single turns.")
]
Regex = Annotated[
    str | None, typer.Option("--target-regex", help="What the last turn matches where the action is taken.")
]
Draws = Annotated[int, typer.Option("--n", min=2, help="Rollouts of every arm but the base.")]
Confounds = Annotated[
    list[str], typer.Option("--confound", help="What else could explain it; rows that share one count once.")
]
DesignName = Annotated[
    str | None, typer.Option("--design", help="A design of the case; its predictions then count.")
]


@dataclass(frozen=True, slots=True)
class _Open:
    case: Case
    bench: Bench
    live: LiveProgress


@contextmanager
def _opened(
    folder: Path, policy: str, world: str | None, regex: str | None, items: list[str], seed: int
) -> Iterator[_Open]:
    """The case with its tree, and everything that its arms share."""
    from refork.cli.common import settings_for
    from refork.cli.live import LiveProgress
    from refork.policies.base import Sampling
    from refork.tree import Tree
    from refork_methods.forensics import Case
    from refork_methods.forensics.opening import open_bench, tree_file

    case = Case.open(folder)
    with Tree.open(tree_file(case)) as tree, LiveProgress() as live:
        settings = settings_for(Sampling(), items)
        bench = open_bench(
            case, tree, policy, world=world, pattern=regex, settings=settings, seed=seed
        )  # fmt: skip
        yield _Open(case, bench, live)


@app.command()
def resample(
    case: Folder,
    policy: PolicyName,
    node: Annotated[
        str | None, typer.Option("--node", help="The rollout's last node. Default: the incident's.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Continuations of every prefix.")] = 50,
    unit: Annotated[str, typer.Option("--unit", help="sentence, paragraph or turn.")] = "sentence",
    redraw: Annotated[
        str | None, typer.Option("--redraw", help="Instead: redraw every sentence that matches.")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=2, help="Rollouts of --redraw.")] = 100,
    max_tries: Annotated[int, typer.Option("--max-tries", min=1, help="Redraws in one place.")] = 20,
    world: WorldName = None,
    target_regex: Regex = None,
    settings: SamplingSettings = [],  # noqa: B006
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find the sentence of a rollout that moved the chance of the action, or redraw a class of sentences.

    Example: refork forensics resample cases/hook --policy scripted:motive-tedium --k 50
    """
    from refork_methods.forensics.opening import rollout_of
    from refork_methods.forensics.running import redrawn_case, resampled_case

    with _opened(case, policy, world, target_regex, settings, seed) as on:
        if redraw is not None:
            told = redrawn_case(on.case, on.bench, redraw, n, unit, max_tries, on.live)
        else:
            end = rollout_of(on.case, on.bench.tree, node)
            told = resampled_case(on.case, on.bench, end, k, unit, recorded=not settings, progress=on.live)
    if as_json:
        print_json(told)
        return
    _print_redrawn(told) if redraw is not None else _print_profile(told)
    for warning in told["warnings"]:
        typer.echo(f"warning: {warning}")
    typer.echo(told["file"])


@app.command()
def sweep(
    case: Folder,
    policy: PolicyName,
    design: DesignName = None,
    path: Annotated[str | None, typer.Option("--path", help="The number to vary.")] = None,
    grid: Annotated[str | None, typer.Option("--grid", help="Its values, e.g. 0,50,100,200.")] = None,
    n: Draws = 100,
    confound: Confounds = [],  # noqa: B006
    world: WorldName = None,
    target_regex: Regex = None,
    settings: SamplingSettings = [],  # noqa: B006
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Vary one number of the environment: a dose-response with Wilson bands and the test of a trend.

    Without --design or --path every dose-response of the case is run.

    Example: refork forensics sweep cases/hook --policy scripted:motive-tedium --path settings.errors
    --grid 0,50,150,258
    """
    from refork_methods.forensics.pictures import write_dose
    from refork_methods.forensics.running import sweeps

    with _opened(case, policy, world, target_regex, settings, seed) as on:
        told = sweeps(
            on.case, on.bench, n, design=design, path=path, grid=grid, confounds=confound, progress=on.live
        )
        for row in told:
            row["picture"] = str(write_dose(case, on.case, row))
    _print(told, as_json)


@app.command()
def factorial(
    case: Folder,
    policy: PolicyName,
    design: DesignName = None,
    edit: Annotated[
        list[str], typer.Option("--edit", help="One edit, path=value or path- to remove. Give one or more.")
    ] = [],  # noqa: B006
    n: Draws = 100,
    confound: Confounds = [],  # noqa: B006
    world: WorldName = None,
    target_regex: Regex = None,
    settings: SamplingSettings = [],  # noqa: B006
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run edits in all combinations: one edit is a counterfactual, two give their interaction.

    Without --design or --edit every counterfactual and factorial of the case is run.

    Example: refork forensics factorial cases/note --policy scripted:motive-loyal
    --edit 'settings.source="an engineer"' --edit 'settings.reason="it would be fun"'
    """
    from refork_methods.forensics.running import factorials

    with _opened(case, policy, world, target_regex, settings, seed) as on:
        told = factorials(
            on.case, on.bench, n, design=design, edits=edit, confounds=confound, progress=on.live
        )
    _print(told, as_json)


@app.command()
def controls(
    case: Folder,
    policy: PolicyName,
    without: Annotated[
        str | None, typer.Option("--without", help="Take the trigger away: path=value, or path- to remove.")
    ] = None,
    control_model: Annotated[
        str | None, typer.Option("--control-model", help="Another model, in the unchanged environment.")
    ] = None,
    planted: Annotated[
        str | None, typer.Option("--planted", help="An agent known to take the action: the positive control.")
    ] = None,
    n: Draws = 100,
    confound: Confounds = [],  # noqa: B006
    world: WorldName = None,
    target_regex: Regex = None,
    settings: SamplingSettings = [],  # noqa: B006
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run the base, then the controls: trigger removed, another model, a planted agent.

    Without options the base alone, and the control settings of the case.

    Example: refork forensics controls cases/hook --policy scripted:motive-tedium
    --control-model scripted:motive-loyal --planted scripted:motive-malign@hook
    """
    from refork_methods.forensics.running import run_controls

    with _opened(case, policy, world, target_regex, settings, seed) as on:
        told = run_controls(
            on.case, on.bench, n, without=without, model=control_model, planted=planted,
            confounds=confound, progress=on.live,
        )  # fmt: skip
    _print(told, as_json)


def _print(told: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    for row in told:
        _print_arms(row)
        for result in row["results"]:
            p = "" if result["p"] is None else f", p = {result['p']:.3g}"
            span = f"{result['estimate']:+.3f} [{result['low']:+.3f}, {result['high']:+.3f}]"
            typer.echo(f"{result['quantity']} {span}{p} ({result['method']})")
        for concern in (*row["concerns"], *row["warnings"]):
            typer.echo(f"warning: {concern}")
        if "picture" in row:
            typer.echo(row["picture"])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _print_arms(row: dict[str, Any]) -> None:
    rows = []
    for arm in row["arms"]:
        span = "-" if arm["low"] is None else f"{arm['low']:.1%} to {arm['high']:.1%}"
        counts = [str(arm[key]) for key in ("asked", "unfinished", "failed")]
        # Spaces let a narrow terminal break before the value rather than cut it off.
        name = " = ".join(part.strip() for part in arm["name"].split("=", 1))
        rows.append((name, str(arm["hits"]), str(arm["runs"]), _percent(arm["rate"]), span, *counts))
    typer.echo(row["design"])
    print_table(
        ("arm", "taken", "of", "rate", "95 % Wilson", "asked", "unfinished", "failed"), rows, wrap=True
    )


def _print_profile(told: dict[str, Any]) -> None:
    rows = []
    for i, row in enumerate(told["sentences"]):
        before, behind = (told["prefixes"][j]["rate"] for j in (i, i + 1))
        score = "-" if row["score"] is None else f"{row['score']:+.2f}"
        span = "-" if row["score"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}"
        text, p = repr(row["text"].strip())[:60], "-" if row["p_holm"] is None else f"{row['p_holm']:.2g}"
        rows.append((str(i + 1), text, _percent(before), _percent(behind), score, span, p))
    typer.echo(f"rollout {told['trace'][:12]}")
    print_table(("", "sentence", "before", "behind", "score", "95 %", "p (Holm)"), rows, wrap=True)


def _print_redrawn(told: dict[str, Any]) -> None:
    rows = []
    for arm in told["arms"]:
        cells = (str(arm[key]) for key in ("unfinished", "failed"))
        rows.append((arm["name"], str(arm["hits"]), str(arm["runs"]), _percent(arm["rate"]), *cells))
    typer.echo(f"class {told['class']!r}")
    print_table(("arm", "taken", "of", "rate", "unfinished", "failed"), rows, wrap=True)
