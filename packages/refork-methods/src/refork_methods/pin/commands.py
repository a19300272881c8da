"""``refork pin``: rules that stay in every model input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from refork.cli.common import AsJson, print_json
from refork.cli.screen import secho

if TYPE_CHECKING:
    from refork_methods.pin import Constraint, OperatorChannel, PinnedBuffer

app = typer.Typer(help="Pin rules so that compaction cannot lose them.", no_args_is_help=True)

Policy = Annotated[Path, typer.Option("--policy", help="YAML file of rules.")]
Changes = Annotated[Path | None, typer.Option("--changes", help="Signed changes, a JSON object a line.")]
KeyFile = Annotated[Path | None, typer.Option("--key-file", help="The operator's key.")]
Plain = Annotated[bool, typer.Option("--plain", help="Without the wording of provenance.")]


@app.command()
def show(
    policy: Annotated[Path, typer.Argument(help="YAML file of rules.")],
    changes: Changes = None,
    key_file: KeyFile = None,
    plain: Plain = False,
    as_json: AsJson = False,
) -> None:
    """Print the block that is put into every model input, and its hash.

    Example: ``refork pin show policy.yaml``
    """
    buffer = _buffer(policy, changes, key_file, plain)
    if as_json:
        rules = [{"id": c.id, "version": c.version, "text": c.text} for c in buffer.constraints]
        print_json({"sha256": buffer.digest, "rules": rules, "text": buffer.text})
        return
    typer.echo(buffer.text)
    count = len(buffer.constraints)
    words = f"{count} rule{'s' if count != 1 else ''}, {len(buffer.text)} characters"
    secho(f"{words}, sha256 {buffer.digest[:16]}", dim=True, err=True)


@app.command()
def check(
    log: Annotated[Path, typer.Argument(help="OpenAI JSONL, a tree, or AutoGen's saved state.")],
    policy: Policy,
    changes: Changes = None,
    key_file: KeyFile = None,
    plain: Plain = False,
    as_json: AsJson = False,
) -> None:
    """Check that every model call of a log was shown every rule exactly once, byte for byte.

    Exits with status 1 where one was not.

    Example: ``refork pin check session.jsonl --policy policy.yaml``
    """
    from refork_methods.rot.pins import check_pins

    found = check_pins(log, _buffer(policy, changes, key_file, plain))
    broken = [call for call in found if not call.ok]
    if as_json:
        print_json({"calls": len(found), "broken": [call.to_json() for call in broken]})
    else:
        for call in broken:
            typer.echo(f"{call.where}: {call.fault}")
        typer.echo(f"{len(found) - len(broken)} of {len(found)} model calls hold every rule exactly once")
    raise typer.Exit(1 if broken else 0)


@app.command()
def sign(
    action: Annotated[Literal["add", "replace", "remove"], typer.Argument(help="What to do.")],
    rule: Annotated[str, typer.Argument(help="The rule's id.")],
    policy: Policy,
    key_file: Annotated[Path, typer.Option("--key-file", help="The operator's key, at least 16 bytes.")],
    text: Annotated[str | None, typer.Option(help="The rule's new text; not for remove.")] = None,
    changes: Changes = None,
) -> None:
    """Print a signed change of one rule, to be appended to the file of changes.

    Example: ``refork pin sign replace spend --text 'At most 500 USD.' --policy p.yaml --key-file key``
    """
    from refork_methods.pin import change_line, signed_change

    buffer = _buffer(policy, changes, key_file, plain=False)
    change = signed_change(buffer, action, rule, text, _channel(key_file))
    typer.echo(change_line(change))
    if action == "replace" and change.constraint.checker is not None:
        secho("note: the rule's checker stays as it was; does it fit the new text?", dim=True, err=True)


def _buffer(policy: Path, changes: Path | None, key_file: Path | None, plain: bool) -> PinnedBuffer:
    from refork.errors import BadInput
    from refork_methods.pin import PinnedBuffer, changed, read_changes, read_policy

    rules: tuple[Constraint, ...] = read_policy(policy)
    buffer = PinnedBuffer(rules, provenance=not plain)
    if changes is None:
        return buffer
    if key_file is None:
        raise BadInput("signed changes need the operator's key", where=str(changes), hint="--key-file FILE")
    return changed(buffer, read_changes(changes), _channel(key_file))


def _channel(key_file: Path) -> OperatorChannel:
    from refork.cli.common import existing
    from refork_methods.pin import OperatorChannel

    return OperatorChannel(existing(key_file).read_bytes().strip())
