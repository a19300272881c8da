"""``refork probe variance|cuts|frontier``: whether thinking moves the outcome, and what a defence does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, RunFolder, Seed, absolute, existing, print_json, spelled
from refork.cli.recipe import Keys
from refork.cli.screen import print_table
from refork_methods.probe.commands.probe import app

if TYPE_CHECKING:
    from refork.report.charts import Figure

__all__ = ["app"]

Policy = Annotated[str, typer.Option("--policy", help="The policy that thinks: hf:DIR, organism:NAME.")]
TreeFile = Annotated[Path | None, typer.Option("--tree", help="The tree file; default: tree.db in --out.")]
Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", help="JSONL with prompt, intent, source. Default: the tree's own tasks."),
]
Rollouts = Annotated[
    int | None,
    typer.Option(
        "--rollouts", min=1, help="Complete rollouts to draw per prompt. Default: the recorded ones."
    ),
]
Guards = Annotated[
    list[str],
    typer.Option("--guard", help="regex:PATTERN, python:FILE.py:NAME or model:FILE.toml; again for a panel."),
]
Tie = Annotated[
    str | None, typer.Option("--tie", help="What an even split of the guards means: comply or refuse.")
]
Close = Annotated[
    str, typer.Option("--close", help="What ends the thinking; 'harmony' and 'think' name both markers.")
]
Open = Annotated[str, typer.Option("--open", help="What opens it; '' where it begins with the turn.")]
ForceClose = Annotated[
    bool, typer.Option("--force-close", help="Close by force what never closes by itself.")
]
Settings = Annotated[
    list[str],
    typer.Option("--set", help="Another recipe key, e.g. sampling.temperature=0.6, answer_tokens=256."),
]


@app.command()
def variance(
    policy: Policy,
    out: RunFolder,
    guard: Guards,
    tree: TreeFile = None,
    prompts: Prompts = None,
    rollouts: Rollouts = None,
    tie: Tie = None,
    close: Close = "</think>",
    open_: Open = "<think>",
    cuts: Annotated[
        str, typer.Option("--cuts", help="Shares of the thinking that are kept.")
    ] = ".2,.4,.6,.8,1",
    mode: Annotated[str, typer.Option("--mode", help="both, force_close or free.")] = "both",
    prefixes: Annotated[
        int, typer.Option("--prefixes", min=1, help="Rollouts that are cut, per prompt.")
    ] = 8,
    continuations: Annotated[int, typer.Option("--continuations", min=2, help="Draws per cut.")] = 8,
    no_think: Annotated[
        int, typer.Option("--no-think", min=0, help="Also draw so many answers per prompt without thinking.")
    ] = 0,
    force_close: ForceClose = False,
    seed: Seed = 0,
    settings: Annotated[Settings, Keys("refork_methods.stance.run:VarianceRecipe")] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Measure how open the outcome still is after every cut, closed there by force and thinking on.

    Example: refork probe variance --policy hf:DIR --prompts p.jsonl --rollouts 9 --guard regex:no --out r
    """
    from refork_methods.stance.picture import variance_figure
    from refork_methods.stance.run import VarianceRecipe, run_variance

    given = _given(policy, out, tree, prompts, rollouts, guard, tie, close, open_, force_close, seed) | {
        "cuts": _numbers(cuts),
        "modes": ("force_close", "free") if mode == "both" else (mode,),
        "prefixes": prefixes,
        "continuations": continuations,
        "no_think": no_think,
    }
    told = _run(VarianceRecipe, run_variance, out, given, settings)
    told |= _drawn(out / "variance.svg", variance_figure(told))
    if as_json:
        print_json(told)
        return
    _print_variance(told)
    for row in told["reading"]:
        typer.echo(f"at {row['cut']:.0%}: {row['says']}")
    typer.echo("the first row against forced cuts mixes: " + "; ".join(told["whole_against_forced_mixes"]))
    _missing(told)
    typer.echo(told["picture"])


@app.command()
def cuts(
    policy: Policy,
    out: RunFolder,
    guard: Guards,
    annotator: Annotated[
        list[str],
        typer.Option(
            "--annotator", help="regex:COMPLY//REFUSE, python:... or model:FILE.toml; an odd number."
        ),
    ],
    tree: TreeFile = None,
    prompts: Prompts = None,
    rollouts: Rollouts = None,
    tie: Tie = None,
    close: Close = "</think>",
    open_: Open = "<think>",
    traces: Annotated[int, typer.Option("--traces", min=1, help="Rollouts per prompt to look into.")] = 1,
    answers: Annotated[int, typer.Option("--answers", min=2, help="Answers on each side of a turn.")] = 100,
    words: Annotated[bool, typer.Option("--words", help="Every word is a chunk (planted worlds).")] = False,
    locked: Annotated[
        str, typer.Option("--locked", help="pre, or pre+post: whose rate must be fixed.")
    ] = "pre",
    force_close: ForceClose = False,
    seed: Seed = 0,
    settings: Annotated[Settings, Keys("refork_methods.stance.run:CutsRecipe")] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Fork around every turn of stance and test whether it moves the outcome; exit status 1 where one does.

    Example: refork probe cuts --tree t.db --policy hf:DIR --guard regex:no --annotator python:a.py:f --out c
    """
    from refork_methods.stance.picture import cells_figure
    from refork_methods.stance.run import CutsRecipe, run_cuts

    given = _given(policy, out, tree, prompts, rollouts, guard, tie, close, open_, force_close, seed) | {
        "annotators": tuple(annotator),
        "traces": traces,
        "answers": answers,
        "words": words,
        "locked": locked,
    }
    told = _run(CutsRecipe, run_cuts, out, given, settings)
    told |= _drawn(out / "cuts.svg", cells_figure(told))
    if as_json:
        print_json(told)
    else:
        _print_cells(told)
        _cut_words(told)
        _missing(told)
        typer.echo(told["picture"])
    if any(cut["meaningful"] for cut in told["cuts"]):
        raise typer.Exit(1)


@app.command()
def frontier(
    base: Annotated[
        Path, typer.Option("--base", help="Rates of the base policy: a file, or a variance run.")
    ],
    out: RunFolder,
    defence: Annotated[
        list[str], typer.Option("--defence", help="NAME=RATES of a defended policy; again for more.")
    ] = [],  # noqa: B006
    resamples: Annotated[int, typer.Option("--resamples", min=100)] = 1000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Place defences beside the curve that a constant shift towards refusing traces: slide, win or worse.

    Example: refork probe frontier --base runs/base --defence star1=runs/star1 --out runs/plane
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork_methods.stance.picture import plane_figure
    from refork_methods.stance.run import run_frontier

    named: dict[str, Path] = {}
    for item in defence:
        name, sign, path = item.partition("=")
        if not (sign and name and path) or name in {"base", *named}:
            raise BadInput(f"--defence {item!r} is not NAME=RATES with a name of its own")
        named[name] = existing(Path(path))
    with LiveProgress() as live:
        told = run_frontier(out, existing(base), named, seed=seed, resamples=resamples, progress=live)
    told |= _drawn(out / "frontier.svg", plane_figure(told))
    if as_json:
        print_json(told)
        return
    _print_plane(told)
    _flip_words(told)
    typer.echo(told["picture"])


def _given(
    policy: str,
    out: Path,
    tree: Path | None,
    prompts: Path | None,
    rollouts: int | None,
    guards: list[str],
    tie: str | None,
    close: str,
    open_: str,
    force_close: bool,
    seed: int,
) -> dict[str, Any]:
    return {
        "tree": absolute(tree or out / "tree.db"),
        "policy": policy,
        "prompts": None if prompts is None else str(existing(prompts).resolve()),
        "rollouts": rollouts,
        "guards": tuple(guards),
        "tie": tie,
        "close": close,
        "open": open_,
        "force_close": force_close,
        "seed": seed,
    }


def _numbers(text: str) -> tuple[float, ...]:
    from refork.errors import BadInput

    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"{text!r} is not a list of numbers", hint="--cuts .2,.4,1") from error


def _run(kind: Any, measure: Any, out: Path, given: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    from refork.cli.live import LiveProgress
    from refork.runs.recipe import resolve
    from refork.tree import Tree
    from refork_methods.stance.run import digests, open_run

    names = (given["prompts"], *given["guards"], *given.get("annotators", ()))
    recipe = resolve(kind, None, settings, files=digests(*names), **given)
    out.mkdir(parents=True, exist_ok=True)
    with Tree.open(Path(recipe.tree)) as store, LiveProgress() as live:
        recipe = spelled(recipe, live)
        told: dict[str, Any] = measure(open_run(out, recipe, store, progress=live), recipe, live)
    return told


def _drawn(file: Path, figure: Figure) -> dict[str, str]:
    file.write_text(figure.svg(), encoding="utf-8")
    return {"picture": str(file)}


def _spread(found: dict[str, float] | None, digits: int = 3) -> str:
    if found is None:
        return "-"
    return f"{found['estimate']:.{digits}f} [{found['low']:.{digits}f}, {found['high']:.{digits}f}]"


def _print_variance(told: dict[str, Any]) -> None:
    names = {"force_close": "forced", "free": "free", None: "complete"}
    rows = []
    for row in told["cuts"]:
        parts = row["parts"]
        between = _figure(parts["between"] if parts else None)
        counts = [str(row[name] or 0) for name in ("groups", "left_out")]
        figures = [_figure(row["plug_in"]), _figure(row["coin"]), between]
        rows.append((f"{row['cut']:.0%}", names[row["mode"]], _spread(row["v"]), *figures, *counts))
    print_table(("kept", "mode", "V", "plug-in", "coin", "between", "groups", "out"), rows)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _print_cells(told: dict[str, Any]) -> None:
    kinds = ("performative", "meaningful")
    rows = [(side, *(str(told["cells"][f"{side} {k}"]) for k in kinds)) for side in ("locked", "wavering")]
    print_table(("outcome before the turn", *kinds), rows)


def _cut_words(told: dict[str, Any]) -> None:
    kept, loops, torn = (told["traces"][name] for name in ("kept", "loop", "unresolved"))
    typer.echo(f"{kept} traces; {loops} loops and {torn} that annotators disagree on are set apart")
    bare, open_ = (told["traces"][name] for name in ("unopened", "unclosed"))
    if bare or open_:
        typer.echo(f"also set apart: {bare} that never open their thinking, {open_} that never close it")
    typer.echo(
        f"per trace {_figure(told['oscillations_per_trace'])} oscillations, "
        f"{_figure(told['meaningful_per_trace'])} meaningful; with any: {_spread(told['with_oscillation'])}"
    )
    typer.echo(
        f"performative {_spread(told['performative'])}, "
        f"locked ({told['locked_rule']}) {_spread(told['locked'])}"
    )
    typer.echo(f"meaningful ones that move as their text says: {_spread(told['agreement'])}")
    if told["kappa"] is not None:
        typer.echo(f"Fleiss kappa of the annotators {told['kappa']:.3f}")


def _missing(told: dict[str, Any]) -> None:
    names = {
        "unopened": "rollouts never open their thinking, so where they answer is unknown",
        "unclosed": "answers never came: thinking did not close",
        "unvoted": "answers lack a guard's vote",
        "errors": "draws failed",
        "short": "prefixes could not be carried on",
        "empty": "chosen rollouts did not think, so nothing was cut",
        "uncut_unopened": "chosen rollouts never open their thinking, so nothing was cut",
        "uncut_unclosed": "chosen rollouts never close their thinking and were not cut (see --force-close)",
        "without_rollouts": "prompts have no rollout",
        "ties": "even splits, resolved by the tie rule",
        "left_out": "turns without an answer on one side",
    }
    for key, words in names.items():
        if told.get(key):
            typer.echo(f"{told[key]} {words}")


def _print_plane(told: dict[str, Any]) -> None:
    lines = []
    for row in (told["base"], *told["defences"]):
        own = row is told["base"]
        both = ", lowers both" if row["lowers_both"] else ""
        rates = [_spread(row[name], 2) for name in ("asr", "orr")]
        stands = ["-", "-", ""]
        if not own:
            stands = [_spread(row["distance"], 2), f"{row['shift']:+.1f}", row["verdict"] + both]
        lines.append((row["name"], *rates, *stands))
    print_table(("policy", "ASR", "ORR", "distance", "shift", ""), lines)


def _flip_words(told: dict[str, Any]) -> None:
    for row in told["defences"]:
        for side in row["flips"]:
            typer.echo(
                f"{row['name']}, {side['intent']}: {_spread(side['better'])} of prompts flip to the better "
                f"side, {_spread(side['worse'])} to the worse (p {side['p']:.3g})"
            )
