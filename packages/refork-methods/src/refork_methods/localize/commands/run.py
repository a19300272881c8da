"""Verbs of ``refork localize``: investigate an issue, and score case files against fixes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.errors import BadInput
from refork.jsonl import read_utf8

if TYPE_CHECKING:
    from refork_methods.localize.casefile import CaseFile
    from refork_methods.localize.commits import RepoScore

PathOption = Annotated[Path, typer.Argument(metavar="PATH", help="The repository: a directory.")]
Commit = Annotated[str | None, typer.Option(help="Read this commit instead of the files on disk.")]
History = Annotated[bool, typer.Option(help="Use git's record of earlier changes.")]
Dirty = Annotated[bool, typer.Option("--dirty", help="Allow uncommitted changes.")]
Locations = Annotated[int, typer.Option(min=1, help="Name at most so many places.")]
Tests = Annotated[bool, typer.Option("--tests", help="Let test files be named, too.")]
Out = Annotated[Path | None, typer.Option(help="Write the case file here, as JSON.")]
Sarif = Annotated[Path | None, typer.Option(help="Write it here as SARIF 2.1.0 for an editor.")]
Turns = Annotated[int, typer.Option(min=1, help="With --model: at most so many answers.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="With --model: tokens of one answer.")]
Context = Annotated[int, typer.Option(min=500, help="With --model: tokens of one question.")]

Issue = Annotated[
    str, typer.Option("--issue", help="File with the issue: text, a JSON row, or - for standard input.")
]
Trace = Annotated[Path | None, typer.Option(help="File with a stack trace or a failing test's log.")]
Coverage = Annotated[
    Path | None, typer.Option(help="Report of `coverage json --show-contexts`; needs --failed.")
]
Failed = Annotated[list[str] | None, typer.Option(help="A failed test in that report; may be repeated.")]
Markdown = Annotated[Path | None, typer.Option(help="Write it here as Markdown for a repair agent.")]
Model = Annotated[
    str | None, typer.Option(help="Let this model explore: openai:URL#MODEL, hf:DIR or scripted:NAME.")
]
Start = Annotated[
    bool, typer.Option("--start/--no-start", help="With --model: show it what the investigator found.")
]
Record = Annotated[
    Path | None, typer.Option(help="With --model: record the run in this tree, to fork it at any turn.")
]


def run(
    path: PathOption,
    issue: Issue,
    traceback: Trace = None,
    commit: Commit = None,
    coverage: Coverage = None,
    failed: Failed = None,
    history: History = True,
    dirty: Dirty = False,
    locations: Locations = 5,
    tests: Tests = False,
    out: Out = None,
    markdown: Markdown = None,
    sarif: Sarif = None,
    model: Model = None,
    turns: Turns = 20,
    max_tokens: MaxTokens = 4096,
    context: Context = 24_000,
    start: Start = True,
    tree: Record = None,
    as_json: AsJson = False,
) -> None:
    """Find where an issue's cause may lie: a ranked case file, from reading alone. No test is run.

    Without --model none is asked. Example: refork localize run . --issue issue.md --markdown case.md
    """
    from refork.cli.live import LiveProgress
    from refork_methods.localize.loop_settings import LoopSettings
    from refork_methods.localize.on_repository import localize_path, read_issue
    from refork_methods.localize.settings import InvestigateSettings
    from refork_methods.localize.with_model import ask_model, open_chat
    from refork_methods.localize.write import write_case

    if tree is not None and model is None:
        raise BadInput("--tree records a model's run", hint="name one with --model")
    text = sys.stdin.read() if issue == "-" else read_utf8(existing(Path(issue)))
    said = read_issue(text, issue)
    with LiveProgress() as progress:
        chat = None if model is None else open_chat(model, max_tokens, progress)
        found = localize_path(
            path,
            said,
            commit=commit,
            traceback=read_utf8(existing(traceback)) if traceback else None,
            coverage=coverage,
            failed=failed or (),
            use_history=history,
            allow_dirty=dirty,
            settings=InvestigateSettings(locations=locations, tests=tests),
            progress=progress,
        )
        case = found.case
        if chat is not None:
            limits = LoopSettings(max_turns=turns, context=context, locations=locations)
            case = ask_model(found, said, chat, limits, use_start=start, tree=tree, progress=progress).case
    write_case(case, found.snapshot, out=out, markdown=markdown, sarif=sarif)
    if not as_json:
        typer.echo(f"{len(found.snapshot):,} files, {found.lines:,} lines")
    print_json(case.to_json()) if as_json else _print_case(case)


def score(
    case: Annotated[Path | None, typer.Argument(metavar="[CASE]", help="A case file (JSON).")] = None,
    diff: Annotated[
        Path | None, typer.Option(help="The fix as a unified diff, to score CASE against.")
    ] = None,
    repo: Annotated[
        Path | None, typer.Option(help="Score on the fixes of this git repository instead.")
    ] = None,
    commits: Annotated[int, typer.Option(min=1, help="How many of its fixes, the newest first.")] = 20,
    base: Annotated[str, typer.Option(help="Begin at this commit.")] = "HEAD",
    mask: Annotated[
        bool, typer.Option("--mask", help="Mask the diff's paths and identifiers in the messages.")
    ] = False,
    every: Annotated[bool, typer.Option("--every", help="Take every commit, not only fixes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score a case file against the fix, or the investigator on a git repository's own bug fixes.

    Example: refork localize score --repo . --commits 20 --mask
    """
    from refork.cli.live import LiveProgress
    from refork_methods.localize.casefile import CaseFile
    from refork_methods.localize.commits import score_commits
    from refork_methods.localize.metrics import score_locations

    if (repo is None) == (case is None) or (case is None) != (diff is None):
        raise BadInput("give a case file with --diff, or --repo")
    if case is not None and diff is not None:
        told = CaseFile.loads(read_utf8(existing(case)))
        scores = score_locations(told, read_utf8(existing(diff))).to_json()
        if as_json:
            print_json(scores)
        else:
            _print_scores(scores)
        return
    assert repo is not None
    with LiveProgress() as progress:
        result = score_commits(repo, commits, base=base, masked=mask, every=every, progress=progress)
    if as_json:
        print_json(result.to_json())
    else:
        _print_repo(result)


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork localize``."""
    app.command()(run)
    app.command()(score)


def _print_case(case: CaseFile) -> None:
    if not case.locations:
        typer.echo("no place was found: the issue shares no word with the code")
        return
    for number, one in enumerate(case.locations, 1):
        chance = "" if one.confidence is None else f"  chance {one.confidence:.2f}"
        typer.echo(f"{number}. {one.place()}  {one.symbol or ''}{chance}")
        typer.echo(f"   {one.explanation}")
    for note in case.meta.get("notes", []):
        typer.echo(f"note: {note}")
    for flaw in case.meta.get("problems", []):
        typer.echo(f"flaw: {flaw}")
    ledger = case.meta.get("ledger")
    if ledger:
        known = "unknown" if ledger["tokens"] is None else f"{ledger['tokens']:,}"
        typer.echo(f"{case.status}; {ledger['turns']} turns, tokens: {known}")


def _print_scores(scores: dict[str, Any]) -> None:
    for name, value in scores.items():
        for k, one in value.items() if isinstance(value, dict) else [("", value)]:
            label = f"{name}@{k}" if k else name
            typer.echo(f"{label:<16} {'not measurable' if one is None else format(one, '.3f')}")


def _print_repo(result: RepoScore) -> None:
    from rich.table import Table

    from refork.cli.screen import open_console

    told = result.to_json()
    grid = Table(box=None, header_style="dim", show_edge=False, padding=(0, 2, 0, 0))
    for name in ("commit", "acc@1", "recall@5", "chunks", "bm25 rank", "files", "subject"):
        grid.add_column(name, no_wrap=name != "subject")
    for row in result.rows:
        shown = [row.scores.acc[1], row.scores.recall[5], row.scores.chunk_recall]
        cells = ["-" if value is None else f"{value:.2f}" for value in shown]
        grid.add_row(row.commit[:10], *cells, str(min(row.bm25.values())), str(row.files), row.subject[:60])
    open_console().print(grid)
    for name, one in told["investigator"].items():
        if one is not None:
            typer.echo(
                f"{name:<16} {one['mean']:.3f}  [{one['low']:.3f}, {one['high']:.3f}]  {one['cases']} fixes"
            )
    typer.echo(f"BM25 acc@1 {told['bm25']['acc@1']:.3f}, random {told['random']['acc@1']:.3f}")
    if result.skipped:
        typer.echo(f"{len(result.skipped)} commits could not be judged")
