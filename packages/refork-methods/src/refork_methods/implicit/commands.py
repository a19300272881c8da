"""``refork implicit``: score steps by beta * log(policy / reference), and use the scores."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.cli.screen import secho

if TYPE_CHECKING:
    from refork_methods.implicit.logged import Scored
    from refork_methods.implicit.pair import ImplicitPair

app = typer.Typer(
    help="Score the steps of trajectories with a policy and its reference; choose, predict, attribute.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

ScoredFile = Annotated[Path, typer.Argument(help="What `refork implicit score --out` wrote.")]
Token = Annotated[str, typer.Option(help="sum (exact), mean, last, min, max, min-of-each or max-of-each.")]
StepOf = Annotated[str, typer.Option("--step", help="sum (exact), mean, last, min, max or bottom10.")]
Success = Annotated[float, typer.Option(help="The least outcome that counts as a success.")]
Seed = Annotated[int, typer.Option("--seed", help="Of tie breaking and of the bootstrap.")]
Folder = Annotated[str, typer.Option(help="Folder or hub id of the checkpoint, with or without hf:.")]


def _local(spec: str) -> Any:
    from refork.policies.local import LocalPolicy
    from refork.policies.open import open_policy

    return open_policy(spec) if ":" in spec else LocalPolicy.load(spec)


def _pair(
    policy: str | None, reference: str | None, beta: float, cache: Path | None, chunked: bool, longest: int
) -> ImplicitPair | None:
    from refork.errors import BadInput
    from refork_methods.implicit.pair import ImplicitPair

    if policy is None and reference is None:
        return None
    if policy is None or reference is None:
        raise BadInput("a pair needs both --policy and --reference")
    return ImplicitPair(
        _local(policy), _local(reference), beta=beta, cache=cache, chunked=chunked, longest=longest
    )


@app.command()
def score(
    file: Annotated[Path | None, typer.Argument(help="Chat logs as JSON lines.", show_default=False)] = None,
    tree: Annotated[Path | None, typer.Option(help="Score the rollouts of a tree instead.")] = None,
    policy: Annotated[str | None, typer.Option(help="The trained checkpoint.")] = None,
    reference: Annotated[str | None, typer.Option(help="The checkpoint its training began from.")] = None,
    beta: Annotated[float, typer.Option(help="Price of one nat in training; 1 where not known.")] = 1.0,
    render: Annotated[
        str | None, typer.Option(help="template or flat; default: the template if any.")
    ] = None,
    actions: Annotated[
        str, typer.Option(help="assistant, every or every-but-human (flat only).")
    ] = "assistant",
    longest: Annotated[int, typer.Option(help="Tokens; longer trajectories lose their beginning.")] = 16_384,
    chunked: Annotated[bool, typer.Option("--chunked", help="Read the vocabulary in chunks.")] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps log-probs; default: in Refork's home.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no log-probs.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write .jsonl (for the other verbs) or .csv.")] = None,
    as_json: AsJson = False,
) -> None:
    """Score every token, action and trajectory: two forward passes, no training.

    Example: refork implicit score chats.jsonl --policy runs/rl --reference runs/sft --out scored.jsonl
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.settings import home
    from refork.tree import Tree
    from refork_methods.implicit.logged import scored_line
    from refork_methods.implicit.report import warnings_of
    from refork_methods.implicit.score import score_chats, scored_tree

    if (file is None) == (tree is None):
        raise BadInput("name either a file of chat logs or a --tree")
    with LiveProgress() as live:
        kept = None if no_cache else cache or home() / "logprobs"
        pair = _pair(policy, reference, beta, kept, chunked, longest)
        if tree is not None:
            with Tree.open(existing(tree)) as store:
                items = scored_tree(store, pair, beta=beta, progress=live)
        else:
            assert file is not None
            if pair is None:
                raise BadInput("chat logs need a pair of models", hint="name --policy and --reference")
            items = score_chats(existing(file), pair, render=render, actions=actions, progress=live)
    if out is not None:
        _write(items, out)
    if as_json:
        print_json([scored_line(item) for item in items])
        return
    _scores_table(items)
    _warn(warnings_of(items))


def _write(items: list[Scored], out: Path) -> None:
    """A file that appears only once it is whole."""
    from refork_methods.implicit.logged import csv_rows, scored_line

    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as target:
            if out.suffix == ".csv":
                csv.writer(target).writerows(csv_rows(items))
            else:
                target.writelines(json.dumps(scored_line(item)) + "\n" for item in items)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _scores_table(items: list[Scored]) -> None:
    from refork_methods.implicit.logged import scored_line

    typer.echo(f"{'trajectory':14s} {'outcome':>7s} {'sum':>9s} {'mean':>9s} {'actions':>7s}  lowest action")
    for item in items:
        line = scored_line(item)
        known = [a for a in line["actions"] if a["score"] is not None]
        low = min(known, key=lambda a: a["score"]) if known else None
        place = f"message {low['message']} ({low['score']:+.3f})" if low else "-"
        outcome = "-" if item.facts.outcome is None else f"{item.facts.outcome:g}"
        sums = [("-" if v is None else f"{v:+.3f}") for v in line["scores"].values()]
        typer.echo(
            f"{item.facts.name[:14]:14s} {outcome:>7s} {sums[0]:>9s} {sums[1]:>9s} "
            f"{item.pair.steps:7d}  {place}"
        )


def _warn(sentences: list[str]) -> None:
    for sentence in sentences:
        secho(f"note: {sentence}", fg="yellow", err=True)


def _interval(found: dict[str, Any]) -> str:
    return f"{found['estimate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


@app.command()
def best(
    scored: ScoredFile, token: Token = "sum", step: StepOf = "sum", seed: Seed = 0, as_json: AsJson = False
) -> None:
    """Choose the trajectory with the highest score of each task; what that is worth beside mean and oracle.

    Example: refork implicit best scored.jsonl
    """
    from refork_methods.implicit.logged import read_scored
    from refork_methods.implicit.report import best_report

    report = best_report(read_scored(existing(scored)), token, step, seed)
    if as_json:
        print_json(report)
        return
    for row in report["picks"]:
        outcome = "-" if row["outcome"] is None else f"{row['outcome']:g}"
        value = "-" if row["score"] is None else f"{row['score']:+.3f}"
        typer.echo(f"{row['task'][:24]:24s} {row['id'][:24]:24s} {value:>9s}  outcome {outcome}")
    if "mean" in report:
        low, high = report["candidates"]
        typer.echo(
            f"chosen {report['expected']:.3f}, mean {report['mean']:.3f}, oracle {report['oracle']:.3f} "
            f"of {report['tasks']} tasks with {low}-{high} candidates"
        )
        if report["gain"]:
            typer.echo(f"gain over the mean {_interval(report['gain'])}")
    _warn(report["warnings"])


@app.command()
def predict(
    scored: ScoredFile,
    token: Token = "sum",
    step: StepOf = "sum",
    tune_on: Annotated[
        Path | None, typer.Option("--tune-on", help="Other scored trajectories, to choose the rules by.")
    ] = None,
    success: Success = 1.0,
    by_task: Annotated[bool, typer.Option("--by-task", help="Resample tasks, not trajectories.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Tell successes from failures by their scores: AUROC with a bootstrap interval.

    Example: refork implicit predict scored.jsonl --tune-on earlier.jsonl
    """
    from refork_methods.implicit.logged import read_scored
    from refork_methods.implicit.report import predict_report

    report = predict_report(
        read_scored(existing(scored)), token, step, success=success, by_task=by_task, seed=seed,
        tune_on=read_scored(existing(tune_on)) if tune_on else None,
    )  # fmt: skip
    if as_json:
        print_json(report)
        return
    typer.echo(
        f"AUROC {_interval(report['auroc'])}, {report['successes']} successes, {report['failures']} failures"
    )
    typer.echo(f"DeLong's interval [{report['delong']['low']:.3f}, {report['delong']['high']:.3f}]")
    how = "exact" if report["exact"] else "heuristic"
    typer.echo(f"tokens {report['token']}, steps {report['step']} ({how}); {report['resampled']} resampled")
    if report["tuned"]:
        typer.echo(f"rules chosen on {report['tuned']['on']} other trajectories")
    grid = sorted(report["grid"].values())
    typer.echo(
        f"all pairs of rules lie between {grid[0]:.3f} and {grid[-1]:.3f} here (sensitivity, no result)"
    )
    _warn(report["warnings"])


@app.command()
def attribute(
    scored: ScoredFile, token: Token = "sum", success: Success = 1.0, as_json: AsJson = False
) -> None:
    """Name the step that lost each failed trajectory, by every rule, with its margin.

    Example: refork implicit attribute scored.jsonl
    """
    from refork_methods.implicit.logged import read_scored
    from refork_methods.implicit.report import attribution_report

    report = attribution_report(read_scored(existing(scored)), token, success)
    if as_json:
        print_json(report)
        return
    names = ("lowest", "running-sum", "drop")
    typer.echo(f"{'failed trajectory':20s} " + " ".join(f"{name:>22s}" for name in names))
    for row in report["failures"]:
        cells = []
        for name in names:
            found = row[name]
            margin = "" if found["margin"] is None else f" (by {found['margin']:.3f})"
            cells.append(f"{'message ' + str(found['message']) + margin:>22s}")
        typer.echo(f"{row['id'][:20]:20s} " + " ".join(cells))
    for name, hit in (report["accuracy"] or {}).items():
        typer.echo(
            f"{name}: {hit['exact']:.3f} of {hit['count']} marked steps hit, "
            f"{hit['mean_error']:.2f} steps off on average ({hit['as_text']:.3f} if compared as text)"
        )
    _warn(report["warnings"])


@app.command()
def merge(
    policy: Folder,
    reference: Folder,
    out: Annotated[Path, typer.Option(help="New folder for the merged reference.")],
    alpha: Annotated[float, typer.Option(help="0: the reference, 1: the policy.")] = 0.4,
    method: Annotated[str, typer.Option(help="linear, ties, dare or emr.")] = "linear",
    other: Annotated[
        list[str] | None,
        typer.Option(help="emr: another checkpoint trained from the reference; again for more."),
    ] = None,
    density: Annotated[float, typer.Option(help="Share of the difference that ties and dare keep.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of what dare keeps.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a reference between two checkpoints, for a pair that is too far apart.

    Example: refork implicit merge --policy runs/rl --reference runs/base --alpha 0.4 --out runs/between
    """
    from refork_methods.implicit.merge import MERGE_METHODS, merge_reference

    chosen = next((name for name in MERGE_METHODS if name == method), None)
    if chosen is None:
        from refork.errors import BadInput

        raise BadInput(f"unknown merge method {method!r}", hint=f"known: {', '.join(MERGE_METHODS)}")
    folder = merge_reference(
        policy.removeprefix("hf:"), reference.removeprefix("hf:"), out, alpha,
        method=chosen, density=density, seed=seed,
        others=[each.removeprefix("hf:") for each in other or []],
    )  # fmt: skip
    if as_json:
        print_json({"folder": str(folder), "alpha": alpha, "method": method, "density": density})
    else:
        typer.echo(str(folder))
