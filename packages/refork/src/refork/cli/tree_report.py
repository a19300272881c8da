"""What a copy into a tree did, printed: read, new, skipped and why, lost, redacted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from refork.cli.common import print_json
from refork.cli.screen import secho

if TYPE_CHECKING:
    from refork.tree import Loaded

_COLORS: Final = {"skipped": "yellow", "lost": None, "redacted": "cyan"}
_MOST: Final = 12
#: What a count is of, for people; its key is in JSON that others read.
_WORDS: Final = {"draft": "node", "forkrecord": "fork", "drawrecord": "draw", "retired": "retirement"}


def print_loaded(what: str, form: str | None, loaded: Loaded, as_json: bool) -> None:
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
    for kind, line in _lines(loaded):
        secho(line, fg=_COLORS[kind])


def _lines(loaded: Loaded) -> Iterator[tuple[str, str]]:
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
