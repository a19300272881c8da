"""``refork rot``: what becomes of rules when a history is compacted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, DryRun, existing, print_json
from refork.cli.recipe import Keys

#: The sessions of the grid are planted there.
_TESTBED = "refork-testbed"

app = typer.Typer(
    help="Rules under compaction: run the grid, audit a session of your own, show what a run found.",
    no_args_is_help=True,
)

Names = Annotated[str | None, typer.Option(help="Several with commas.")]


def _list(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None


def _numbers(text: str | None, name: str) -> list[int] | None:
    from refork.errors import BadInput

    try:
        return [int(part) for part in _list(text) or ()] if text is not None else None
    except ValueError:
        raise BadInput(f"{text!r} is no list of numbers", where=name, hint="such as 15,30,80") from None


@app.command()
def run(
    out: Annotated[Path, typer.Option("--out", help="Folder of the run; the same one again resumes.")],
    recipe: Annotated[Path | None, typer.Argument(help="A recipe, TOML; options win over it.")] = None,
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy", help="An agent: hf:DIR, openai:URL#MODEL, organism:NAME, scripted:rule-agent."
        ),
    ] = [],  # noqa: B006
    summariser: Annotated[
        list[str],
        typer.Option("--summariser", help="Who summarises: self, a policy, organism:NAME, planted:NAME."),
    ] = [],  # noqa: B006
    compactor: Annotated[
        list[str],
        typer.Option("--compactor", help="truncate, summarise, langmem, langgraph, autogen-buffered, ..."),
    ] = [],  # noqa: B006
    conditions: Annotated[
        str | None, typer.Option("--conditions", help="With commas; default all seven.")
    ] = None,
    tasks: Annotated[str | None, typer.Option("--tasks", help="With commas; default all nine.")] = None,
    reps: Annotated[int | None, typer.Option("--reps", min=1, help="Sessions for each task.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="At which the compactor fires.")
    ] = None,
    words: Annotated[str | None, typer.Option("--words", help="Limits of the summary, with commas.")] = None,
    rounds: Annotated[str | None, typer.Option("--rounds", help="Compactions in a row, with commas.")] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="Any key of the recipe: key=value."),
        Keys("rot.recipe"),
    ] = [],  # noqa: B006
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run models x conditions x tasks x repetitions; every episode is a fork on one tree.

    Example: refork rot run --out runs/rot --policy scripted:rule-agent --compactor truncate --reps 3
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.registry import part
    from refork.runs.recipe import resolve
    from refork_methods.rot.page import write_grid_page

    if not policy and recipe is None and not any(key.startswith("policies=") for key in settings):
        raise BadInput("no agent is named", hint="--policy hf:DIR, openai:URL#MODEL or scripted:rule-agent")
    chosen = resolve(
        part("rot.recipe", _TESTBED), recipe, settings,
        policies=policy or None, summarisers=summariser or None, compactors=compactor or None,
        conditions=_list(conditions), tasks=_list(tasks), reps=reps, max_tokens=max_tokens,
        words=_numbers(words, "--words"), rounds=_numbers(rounds, "--rounds"),
    )  # fmt: skip
    told = part("rot.plan", _TESTBED)(chosen)
    if dry_run:
        print_json(told) if as_json else _lines(told)
        return
    with LiveProgress() as live:
        found = part("rot.run", _TESTBED)(chosen, out, progress=live)
    page = write_grid_page(out, found)
    print_json(found | {"page": str(page)}) if as_json else _show(found, page)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="Folder of a run.")], as_json: AsJson = False) -> None:
    """Show what a run has found so far, and write its page.

    Example: refork rot report runs/rot
    """
    from refork.registry import part
    from refork_methods.rot.page import write_grid_page

    found = part("rot.report", _TESTBED)(existing(folder))
    page = write_grid_page(folder, found)
    if as_json:
        print_json(found | {"page": str(page)})
    else:
        _show(found, page)


@app.command()
def audit(
    session: Annotated[Path, typer.Argument(help="OpenAI JSONL, a tree, or AutoGen's saved state.")],
    policy: Annotated[Path, typer.Option("--policy", help="The rules, YAML: rules: [{id, text, checker}].")],
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with the contexts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Name the call at which each rule went out of view, and who broke it; exit status 1 if any did.

    Example: refork rot audit session.jsonl --policy rules.yaml --html audit.html
    """
    from refork_methods.pin.policy_file import read_policy
    from refork_methods.rot.audit import audit_file
    from refork_methods.rot.page import write_audit_page

    told = audit_file(existing(session), read_policy(existing(policy)))
    page = write_audit_page(html, told["sessions"]) if html is not None else None
    if as_json:
        print_json(told | {"page": str(page) if page else None})
    else:
        _audited(told)
        if page is not None:
            typer.echo(page)
    if told["found"]:
        raise typer.Exit(1)


def _lines(told: dict[str, Any]) -> None:
    for key, value in told.items():
        typer.echo(f"{key}: {', '.join(value) if isinstance(value, list) else value}")


def _audited(told: dict[str, Any]) -> None:
    for session in told["sessions"]:
        typer.echo(f"{session['session']}: {len(session['calls'])} model calls")
        for rule in session["rules"]:
            typer.echo(f"  {rule['rule']}: {rule['words']}")
        for warning in session["warnings"]:
            typer.echo(f"  note: {warning}")
    if told["skipped"]:
        typer.echo(f"passed over, for they state none of the rules: {len(told['skipped'])} sessions")


def _show(found: dict[str, Any], page: Path) -> None:
    from refork.cli.screen import print_table
    from refork.report.words import points, rate, span
    from refork_methods.rot.picture import condition_name

    for setup in found["setups"]:
        limit = f", {setup['words']} words" if setup["words"] else ""
        title = f"{setup['compactor']}, summariser {setup['summariser']}{limit}, rounds {setup['rounds']}"
        typer.echo(title)
        lines = []
        for row in setup["table"]:
            one = row["all"]
            apart = [f"{one[k]} {k}" for k in ("invalid", "unparseable", "error") if one[k]]
            shown = rate(one["rate"]) if one["rate"] is not None else one["state"]
            ends = span(one["low"], one["high"])
            lines.append((condition_name(row["condition"]), shown, ends, str(one["n"]), ", ".join(apart)))
        print_table(("condition", "violation", "95 %", "n", "not counted"), lines)
        decay = setup["decay"]["all"]
        if decay is not None:
            typer.echo(f"decay {points(decay['decay'])} ({span(decay['low'], decay['high'], sign=True)})")
        blame = ", ".join(f"{name} {count}" for name, count in setup["culprits"].items())
        typer.echo(f"violations without a pin by culprit: {blame}")
    for flag in found["flags"]:
        typer.echo(f"flag, {flag['flag']}: {flag['words']}")
    for warning in found["warnings"]:
        typer.echo(f"note: {warning}")
    typer.echo(page)
