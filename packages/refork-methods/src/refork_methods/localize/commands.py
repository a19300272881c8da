"""``refork method localize``: investigate an issue, score case files, and what they are worth downstream."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.errors import BadInput
from refork.jsonl import read_utf8

if TYPE_CHECKING:
    from refork_methods.decide import Advice
    from refork_methods.localize.casefile import CaseFile
    from refork_methods.localize.commits import RepoScore
    from refork_methods.localize.session import LoopSettings
    from refork_methods.localize.transfer import SettingTransfer, TransferReport


# Verbs of ``refork localize``: investigate an issue, and score case files against fixes.

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
    from refork_methods.localize.casefile import write_case
    from refork_methods.localize.on_repository import localize_path, read_issue
    from refork_methods.localize.on_tree import ask_model, open_chat
    from refork_methods.localize.session import LoopSettings
    from refork_methods.localize.settings import InvestigateSettings

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
    bugs: Annotated[
        Path | None,
        typer.Option(help="Score on these bugs: JSON lines with SWE-bench's fields; needs --clones."),
    ] = None,
    clones: Annotated[
        Path | None, typer.Option(help="With --bugs: the folder that holds clones of their repositories.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --bugs: ask this model, too: openai:URL#MODEL, hf:DIR or scripted:NAME."),
    ] = None,
    turns: Turns = 20,
    max_tokens: MaxTokens = 4096,
    context: Context = 24_000,
    start: Start = True,
    as_json: AsJson = False,
) -> None:
    """Score a case file against the fix, or the investigator on a git repository's own bug fixes.

    With --bugs on bugs of many repositories, files and functions apart, BM25 beside it, and a model if asked.

    Example: refork localize score --repo . --commits 20 --mask
    """
    from refork.cli.live import LiveProgress
    from refork_methods.localize.casefile import CaseFile
    from refork_methods.localize.commits import score_commits
    from refork_methods.localize.metrics import score_locations
    from refork_methods.localize.session import LoopSettings

    given = [name for name in (case, repo, bugs) if name is not None]
    if len(given) != 1 or (case is None) != (diff is None) or (bugs is None) != (clones is None):
        raise BadInput("give a case file with --diff, or --repo, or --bugs with --clones")
    if model is not None and bugs is None:
        raise BadInput("--model needs --bugs")
    if bugs is not None and clones is not None:
        limits = LoopSettings(max_turns=turns, context=context)
        _score_bugs(existing(bugs), existing(clones), mask, model, max_tokens, limits, start, as_json)
        return
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


def _score_bugs(
    rows: Path,
    clones: Path,
    mask: bool,
    model: str | None,
    max_tokens: int,
    limits: LoopSettings,
    start: bool,
    as_json: bool,
) -> None:
    from refork.cli.live import LiveProgress
    from refork.errors import UserError
    from refork_methods.localize.bugs import (
        BugScore,
        bugs_json,
        find_clone,
        model_asker,
        read_bugs,
        score_bug,
    )
    from refork_methods.localize.on_tree import open_chat

    found = read_bugs(rows)
    scores: list[BugScore] = []
    skipped: dict[str, str] = {}
    with LiveProgress() as progress:
        ask = None if model is None else model_asker(open_chat(model, max_tokens, progress), limits, start)
        for number, bug in enumerate(found):
            progress("scoring bugs", number, len(found))
            try:
                scores += score_bug(find_clone(clones, bug.repo), bug, (mask,), ask=ask)
            except UserError as error:
                skipped[bug.name] = error.what
    told = bugs_json(scores, skipped)
    if as_json:
        print_json(told)
        return
    for key, row in told["arms"].items():
        lead = told["leads"].get(key)
        ahead = (
            ""
            if lead is None
            else f"  investigator {lead['mean']:+.3f} [{lead['low']:+.3f}, {lead['high']:+.3f}]"
        )
        typer.echo(
            f"{key:<28} {row['mean']:.3f}  [{row['low']:.3f}, {row['high']:.3f}]  {row['bugs']} bugs{ahead}"
        )
    if skipped:
        typer.echo(f"{len(skipped)} bugs could not be scored, the first: {next(iter(skipped.values()))}")


def _print_case(case: CaseFile) -> None:
    if not case.locations:
        typer.echo("no place was found: the issue shares no word with the code")
        return
    for number, one in enumerate(case.locations, 1):
        chance = "" if one.confidence is None else f"  chance {one.confidence:.2f}"
        typer.echo(f"{number}. {one.location()}  {one.symbol or ''}{chance}")
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


# Verbs of ``refork localize``: hand a case file over or not, and what case files are worth downstream.


def inject(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="A case file (JSON).")],
    gate: Annotated[
        Path | None, typer.Option(help="A fitted gate (JSON); needs --agent. Or give --gain and --loss.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The repair agent, by its name in the gate.")] = None,
    task: Annotated[str | None, typer.Option(help="The task's id, to refuse one the gate knows.")] = None,
    gain: Annotated[float | None, typer.Option(min=0, help="What a right finding earns the agent.")] = None,
    loss: Annotated[float | None, typer.Option(min=0, help="What a wrong finding costs it.")] = None,
    chance: Annotated[
        float | None, typer.Option(min=0, max=1, help="Chance of being right; else the case's own.")
    ] = None,
    price: Annotated[float, typer.Option(min=0, help="What handing over costs either way.")] = 0.0,
    root: Annotated[
        Path | None, typer.Option(help="The repository, to print the places' lines with them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a case file should go into a repair agent's context, and print it as Markdown if so.

    Advice goes to standard error, so that the output can be piped. Exit status 1: do not inject.

    Example: refork localize inject case.json --gate gate.json --agent my-agent > findings.md
    """
    from refork_methods.localize.casefile import CaseFile, case_markdown
    from refork_methods.localize.inject import InjectionGate, advise_by_numbers
    from refork_methods.localize.snapshot import Snapshot

    told = CaseFile.loads(read_utf8(existing(case)))
    if gate is not None:
        if agent is None or gain is not None or loss is not None or chance is not None:
            raise BadInput("a gate needs --agent, and knows --gain, --loss and --chance itself")
        advice = InjectionGate.read(existing(gate)).decide(told, agent, task=task, price=price)
    elif gain is None or loss is None:
        raise BadInput("give --gate with --agent, or both --gain and --loss")
    else:
        advice = advise_by_numbers(told, gain, loss, chance=chance, price=price)
    markdown = case_markdown(told, None if root is None else Snapshot(root)) if advice.act else None
    if as_json:
        print_json(_advice_json(advice) | {"markdown": markdown})
    else:
        typer.echo(f"{'inject' if advice.act else 'do not inject'}: {advice.reason}", err=True)
        if markdown is not None:
            typer.echo(markdown, nl=False)
    if not advice.act:
        raise typer.Exit(1)


def transfer(
    with_: Annotated[Path, typer.Argument(metavar="WITH", help="Repairs with findings (JSON lines).")],
    without: Annotated[Path, typer.Argument(metavar="WITHOUT", help="The same tasks without (JSON lines).")],
    level: Annotated[float, typer.Option(help="Of the intervals; tests reject at 1 minus it.")] = 0.95,
    deploy: Annotated[
        bool, typer.Option("--deploy", help="Refuse a control arm (oracle, shuffled, masked).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare repairs with and without findings: paired difference, test, tokens with the localizer's own.

    A line is {"task", "resolved", "findings": "none|all|gated|masked|shuffled|oracle"} and may have
    "setting", "tokens", "localizer_tokens" and "error".

    Example: refork localize transfer with.jsonl without.jsonl
    """
    from refork_methods.localize.transfer import read_runs, transfer_report

    report = transfer_report(read_runs(existing(with_)), read_runs(existing(without)), level=level)
    if deploy:
        report.refuse_control()
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)


def _advice_json(advice: Advice) -> dict[str, Any]:
    from math import isfinite

    limit = advice.threshold if isfinite(advice.threshold) else None  # None: no chance is enough
    return {
        "inject": advice.act,
        "chance": advice.chance,
        "break_even": limit,
        "net": advice.net,
        "reason": advice.reason,
    }


def _print_report(report: TransferReport) -> None:
    wide = max([7, *(len(row.setting) for row in report.settings)])
    typer.echo(
        f"{'setting':<{wide}}  tasks  without  with   difference               +    -    p (Holm)  tokens"
    )
    for row in report.settings:
        span = row.difference
        typer.echo(
            f"{row.setting or '-':<{wide}}  {row.tasks:>5}  {row.without:.3f}    {row.with_:.3f}  "
            f"{span.estimate:+.3f} [{span.low:+.3f}, {span.high:+.3f}]  {row.gains:<4} {row.losses:<4} "
            f"{row.p:.4f}{'*' if row.significant else ' '}   {_tokens(row)}"
        )
    typer.echo(f"mean difference over {len(report.settings)} settings {report.mean:+.3f}")
    if any(report.unmatched):
        typer.echo(f"left out, in one arm only: {report.unmatched[0]} without, {report.unmatched[1]} with")
    if any(report.errors):
        typer.echo(f"broken rollouts, not resolved: {report.errors[0]} without, {report.errors[1]} with")
    if any(row.tokens is not None and row.tokens.relative is not None for row in report.settings):
        typer.echo("tokens: change of the total, the localizer's own counted")
    if not report.deployable:
        typer.echo(f"note: {report.findings} findings are a control, nothing to deploy")


def _tokens(row: SettingTransfer) -> str:
    if row.tokens is None:
        return "not counted"
    if row.tokens.relative is None:
        return "localizer's not counted"
    return f"{row.tokens.relative:+.1%}"


app = typer.Typer(help="Where the bug is: a case file from an issue and a repository.", no_args_is_help=True)
app.command()(run)
app.command()(score)
app.command()(inject)
app.command()(transfer)
