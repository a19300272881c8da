"""``refork tree``: look into recorded trees, check them, copy them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from refork.cli.common import AsJson, existing, print_json, tree_name
from refork.cli.fork import compare_command
from refork.cli.screen import data_stream, secho

if TYPE_CHECKING:
    from refork.policies.base import Policy
    from refork.tree import Loaded, Tree
    from refork.tree.outline import Outline, OutlineLine

app = typer.Typer(
    help="Look into recorded trees, check them, copy them.", no_args_is_help=True, rich_markup_mode="markdown"
)

TreeFile = Annotated[Path, typer.Argument(help="The tree file, or a server's address.", show_default=False)]
ScoreName = Annotated[
    str | None, typer.Option("--score", help="The score to show; the usual one by default.")
]

_COLORS: Final = {"skipped": "yellow", "lost": None, "redacted": "cyan"}
_MOST: Final = 12
#: What a count is of, for people; its key is in JSON that others read.
_WORDS: Final = {"draft": "node", "forkrecord": "fork", "drawrecord": "draw", "retired": "retirement"}


def _reading(file: Path) -> Tree:
    from refork.tree import Tree

    return Tree.open(file, "r")


def _line(line: OutlineLine) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "below": line.below,
        "leaves": line.leaves,
        "mean": line.mean,
        "scored": line.scored,
    }
    if line.simulated:
        counts |= {
            "simulated_leaves": line.simulated,
            "simulated_mean": line.simulated_mean,
            "simulated_scored": line.simulated_scored,
        }
    if line.node is None:
        return {"more": line.more, **counts}
    shown = {"id": line.node.id, "parent": line.node.parent, "keep": line.node.keep, "kind": line.node.kind}
    shown |= {"simulated": True} if line.node.origin == "simulated" else {}
    return {**shown, "text": line.node.text, "tokens": line.node.length, "score": line.own, **counts}


def _lines(drawn: Outline) -> dict[str, Any]:
    sizes = {"total": drawn.total, "hidden": drawn.hidden, "leaves": drawn.leaves}
    simulated = {"simulated_leaves": drawn.simulated} if drawn.simulated else {}
    lines = [_line(line) for line in drawn.lines]
    return {"score": drawn.score, **sizes, **simulated, "lines": lines}


@app.command("list")
def list_tasks(
    tree: TreeFile,
    score: ScoreName = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many tasks.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the tasks of a tree, with the size and the mean score of what grows from each.

    Example: `refork tree list runs/demo/tree.db --limit 20`
    """
    from refork.cli.screen import open_console
    from refork.cli.tree_view import task_table
    from refork.tree.outline import Options

    with _reading(tree) as store:
        drawn = store.task_lines(Options(score=score, lines=limit))
    if as_json:
        print_json(_lines(drawn))
        return
    console = open_console()
    console.print(task_table(drawn, console))
    if drawn.hidden:
        console.print(f"{drawn.hidden:,} more tasks; --limit shows them", style="dim")


@app.command()
def show(
    tree: TreeFile,
    under: Annotated[str | None, typer.Option(help="Draw what grows from this node only.")] = None,
    score: ScoreName = None,
    siblings: Annotated[int, typer.Option(min=1, help="Draw so many of a fork; count the others.")] = 6,
    lines: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Draw a tree: forks indented, runs without a fork flat, coloured by a score.

    Example: `refork tree show runs/demo/tree.db --siblings 4 --lines 60`
    """
    from refork.cli.screen import open_console
    from refork.cli.tree_view import legend, tree_table
    from refork.tree.outline import Options

    with _reading(tree) as store:
        drawn = store.outline(Options(under=under, score=score, siblings=siblings, lines=lines))
    if as_json:
        print_json(_lines(drawn))
        return
    console = open_console()
    console.print(tree_table(drawn, console))
    console.print(legend(drawn, console))


@app.command()
def path(
    tree: TreeFile,
    node: Annotated[str, typer.Argument(help="NODE or NODE:TOKEN; a clear beginning of the id will do.")],
    as_json: AsJson = False,
) -> None:
    """Print the path from the root to a node or a token of it.

    Example: `refork tree path runs/demo/tree.db 3f2a91c0:17`
    """
    from refork.cli.screen import open_console
    from refork.cli.tree_view import walk_table

    with _reading(tree) as store:
        trajectory = store.path(node)
    if as_json:
        from refork.formats.native import plain_node

        print_json([{"keep": step.keep, "node": plain_node(step.node)} for step in trajectory])
        return
    console = open_console()
    console.print(walk_table(trajectory, console))


@app.command()
def schema(
    tree: Annotated[Path | None, typer.Argument(help="A tree file, to see its version.")] = None,
    migrate: Annotated[bool, typer.Option("--migrate", help="Bring the file to this version.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print every stored field with its meaning; bring an older file up to date.

    Example: `refork tree schema runs/demo/tree.db --migrate`
    """
    from rich.table import Table

    from refork.cli.screen import open_console
    from refork.tree import Tree
    from refork.tree.schema import FIELDS, VERSION

    version = VERSION
    if tree is not None:
        with Tree.open(existing(tree), "a" if migrate else "r") as store:
            version = store.stats().version
    if as_json:
        print_json({"version": version, "fields": [asdict(field) for field in FIELDS]})
        return
    table = Table(box=None, header_style="dim", show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("field", style="bold", no_wrap=True)
    table.add_column("type", style="dim", no_wrap=True)
    table.add_column("meaning")
    last = None
    for field in FIELDS:
        if last not in (None, field.table):
            table.add_row()
        last = field.table
        table.add_row(f"{field.table}.{field.name}", field.sql.split()[0], field.doc)
    console = open_console()
    console.print(f"schema version {version}" + (f" of {tree_name(tree)}" if tree else ""), style="dim")
    console.print(table)


def _policies(specs: list[str]) -> dict[str, Policy]:
    """Policies by the name under which they are recorded: ``SPEC``, or ``NAME=SPEC``."""
    from refork.policies.open import open_policy

    found = {}
    # A specification may hold '=' too, but only behind its colon.
    for item in specs:
        name, given, spec = item.partition("=")
        named = bool(given) and ":" not in name
        policy = open_policy(spec if named else item)
        found[name if named else policy.card.name] = policy
    return found


@app.command()
def verify(
    tree: TreeFile,
    policy: Annotated[
        list[str] | None, typer.Option(help="SPEC or NAME=SPEC: derive its recorded steps again.")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="How far log-probs may lie apart, nats.")] = 1e-4,
    redraw: Annotated[bool, typer.Option("--redraw", help="Draw from the noise keys again too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Derive again what must hold of a tree; exit status 1 where something does not.

    Example: `refork tree verify runs/demo/tree.db --policy hf:runs/organisms/maze --redraw`
    """
    policies = _policies(policy or [])
    with _reading(tree) as store:
        findings = list(store.verify(policies, tolerance, redraw))
        count = len(store) if not findings else None
    if as_json:
        print_json([asdict(finding) for finding in findings])
    for finding in () if as_json else findings:
        place = "" if finding.node is None else f"  node {finding.node[:12]}"
        token = "" if finding.token is None else f" token {finding.token}"
        color = "red" if finding.severity == "error" else "yellow"
        secho(finding.severity, fg=color, nl=False)
        typer.echo(
            f"{place}{token}  {finding.what}" + (f"\n  likely: {finding.cause}" if finding.cause else "")
        )
    if findings:
        raise typer.Exit(1)
    if not as_json:
        typer.echo(f"{count:,} nodes, nothing found")


@contextlib.contextmanager
def _written(target: str, force: bool, *, binary: bool = False) -> Iterator[Any]:
    """Standard output for ``-``; else a file that appears only once it is whole."""
    from refork.errors import BadInput

    if target == "-":
        yield data_stream(binary=binary)
        return
    file = Path(target)
    if file.exists() and not force:
        raise BadInput("the file exists already", where=target, hint="--force replaces it")
    # In the same folder, so that taking the file's place is one step of the file system.
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") if binary else part.open("w", encoding="utf-8") as out:
            yield out
            out.flush()
            # On the disk before it gets its name: a crash would else leave an empty file that looks whole.
            os.fsync(out.fileno())
        part.replace(file)
    except OSError as error:
        raise BadInput(f"the file cannot be written: {error.strerror}", where=target) from error
    finally:
        part.unlink(missing_ok=True)


@app.command()
def export(
    tree: TreeFile,
    out: Annotated[str, typer.Argument(help="Where to; - is standard output.")] = "-",
    format_: Annotated[
        str,
        typer.Option("--format", help="native, openai-chat, verifiers, atif, otlp, trl, or FILE.py:Name."),
    ] = "native",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a tree to a file: all that it holds, or its trajectories in another tool's format.

    Only `native` holds everything; importing it gives the same tree.

    Example: `refork tree export runs/demo/tree.db demo.jsonl`
    """
    from refork.formats import is_binary, writer_for

    writer = writer_for(format_)
    with _reading(tree) as store, _written(out, force, binary=is_binary(writer)) as target:
        count = writer.write(store.records(), target)
    typer.echo(f"{count:,} {'records' if format_ == 'native' else 'lines'} written", err=True)


def _print_loaded(what: str, form: str | None, loaded: Loaded, as_json: bool) -> None:
    """Print what was copied from ``what``; with ``form``, also what of that format was not."""
    if as_json:
        found = {"from": what, **({} if form is None else {"format": form}), **asdict(loaded)}
        counts = {kind: loaded.count(kind) for kind in ("skipped", "lost", "redacted")}
        print_json(found if form is None else {**found, **counts})
        return
    typer.echo(
        f"{what}: {loaded.nodes:,} new nodes, {loaded.scores:,} scores, {loaded.forks:,} forks, "
        f"{loaded.draws:,} draws"
        + (f"; {loaded.renumbered:,} ordinals renumbered" if loaded.renumbered else "")
    )
    if form is None:
        return
    counted = [(count, _WORDS.get(kind, kind)) for kind, count in loaded.read.items()]
    read = ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counted) or "nothing"
    typer.echo(f"read      {read}, as {form}")
    for kind, line in _loaded_lines(loaded):
        secho(line, fg=_COLORS[kind])


def _loaded_lines(loaded: Loaded) -> Iterator[tuple[str, str]]:
    for kind in ("skipped", "lost", "redacted"):
        noted = [one for one in loaded.remarks if one.kind == kind]
        if not noted and kind == "skipped":
            yield kind, "skipped   nothing"
        for one in noted[:_MOST]:
            count = f"{one.count:,} x " if one.count > 1 else ""
            place = f"  ({one.places[0]})" if one.places else ""
            yield kind, f"{kind:<9} {count}{one.what}{place}"
        if len(noted) > _MOST:
            yield kind, f"{kind:<9} and {len(noted) - _MOST:,} other reasons; --json has them"


@app.command("import")
def import_file(
    tree: TreeFile,
    source: Annotated[Path, typer.Argument(help="The file to read, or a folder of them.")],
    format_: Annotated[
        str | None,
        typer.Option("--format", help="native, openai-chat, inspect, ..., or FILE.py:Name; else seen."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Tokenise texts with this policy.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="End at the first item that cannot be read; write nothing.")
    ] = False,
    keep_secrets: Annotated[
        bool, typer.Option("--keep-secrets", help="Leave keys, tokens and passwords in the texts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read an export, or another tool's logs, into a tree; what cannot be read is skipped and told.

    Of a folder every file is read by its own format.

    The same command again goes on where it was stopped, and changes nothing that is there. Secrets are taken
    out of other tools' logs.

    Example: `refork tree import mine.db chats.jsonl --policy hf:DIR`
    """
    from refork import formats
    from refork.cli.live import LiveProgress
    from refork.tree import Tree

    tokeniser = next(iter(_policies([policy]).values())) if policy else None
    redactor = None if keep_secrets else formats.Redactor()
    reader = None if existing(source).is_dir() else formats.reader_for(source, format_, tokeniser, redactor)
    with Tree.open(tree) as store, LiveProgress() as progress:
        if reader is None:
            loaded = formats.import_folder(
                store, source, format_, tokeniser, strict=strict, redactor=redactor, progress=progress
            )
            form = ", ".join(f"{name} ({count:,} files)" for name, count in sorted(loaded.files.items()))
        else:
            loaded = formats.import_file(
                store, source, reader, strict=strict, redactor=redactor, progress=progress
            )
            form = reader.name
        # Where the first turn begins: that can be forked whether there are token ids or not.
        said = next((node.parent for node in store.walk() if node.kind == "action"), None)
    _print_loaded(str(source), form, loaded, as_json)
    if said is not None and not as_json:
        typer.echo(
            f"next      refork fork --tree {tree_name(tree)} --node {said[:8]} --policy {policy or 'hf:DIR'}"
        )


@app.command()
def merge(
    tree: TreeFile,
    others: Annotated[list[Path], typer.Argument(help="Trees to copy into it.")],
    as_json: AsJson = False,
) -> None:
    """Copy other trees into one; equal nodes are stored once, and ids stay what they are.

    Example: `refork tree merge all.db machine1.db machine2.db`
    """
    from refork.errors import BadInput
    from refork.tree import Tree

    # All are checked before the first is copied, so that a slip in the last leaves the tree as it was.
    for other in others:
        if tree_name(other) == tree_name(tree) or (tree.exists() and other.exists() and other.samefile(tree)):
            raise BadInput("a tree cannot be merged into itself", where=tree_name(other))
        existing(other)
    with Tree.open(tree) as store:
        for other in others:
            with _reading(other) as source:
                _print_loaded(tree_name(other), None, store.merge(source), as_json)


@app.command()
def stats(tree: TreeFile, as_json: AsJson = False) -> None:
    """Count nodes, tokens, policies, forks, draws, scores and bytes; and tasks and means by origin.

    Example: `refork tree stats runs/demo/tree.db --json`
    """
    with _reading(tree) as store:
        found = store.stats()
        origins = store.origins()
    if as_json:
        print_json(asdict(found) | {"origins": [asdict(one) for one in origins]})
        return
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.items())
    rows = {
        "nodes": f"{found.nodes:,}" + (f" ({kinds})" if kinds else ""),
        "tasks": f"{found.tasks:,}",
        "leaves": f"{found.leaves:,}, at most {found.max_depth:,} deep",
        "tokens": f"{found.tokens:,}",
        "policies": ", ".join(f"{name} {count:,}" for name, count in found.policies.items()) or "none",
        "forks": f"{found.forks:,} with {found.draws:,} finished draws",
        "snapshots": f"{found.blobs:,}",
        "size": f"{found.bytes / 1e6:,.1f} MB, schema version {found.version}",
    }
    for name, text in rows.items():
        typer.echo(f"{name:<10} {text}")
    for line in origins if any(one.origin for one in origins) else ():
        told = " · ".join(f"{key} {value}" for key, value in line.origin.items()) or "not said by the log"
        mean = f", mean {line.mean:.3f} of {line.scored:,}" if line.mean is not None else ""
        typer.echo(f"origin     {told}: {line.tasks:,} tasks, {line.leaves:,} leaves{mean}")
    for score in found.scores:
        retired = "  retired" if score.retired else ""
        typer.echo(
            f"score      {score.name} by {score.label} ({score.producer[:8]}): {score.count:,}{retired}"
        )


app.command("compare")(compare_command)
