"""Where commands draw: a console and coloured words, with foreign text made visible before it is styled."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from refork.errors import BadInput
from refork.visible import VisibleStream, drawn, visible

if TYPE_CHECKING:
    from rich.console import Console


def secho(text: str, *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """A text in colour where that is a terminal, else plain; ``style`` is that of ``typer.style``."""
    stream = sys.stderr if err else sys.stdout
    target = drawn(err=err)
    words = visible(text)
    words = typer.style(words, **style) if target.isatty() else words
    beside = stream.beside if isinstance(stream, VisibleStream) else None
    (beside or target).write(words + "\n" * nl)
    target.flush()


def open_console(*, err: bool = False, width: int | None = None) -> Console:
    """A console of rich's on standard output or error. It reads no markup, which foreign text may hold."""
    from refork.cli.screen_console import SafeConsole

    return SafeConsole(file=cast("IO[str]", drawn(err=err)), width=width, markup=False, emoji=False)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, wrap: bool = False, ruled: bool = False
) -> None:
    """A table on standard output; with ``wrap`` it folds its cells in a narrow window, else it goes on."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD if ruled else None, header_style="dim", show_edge=False,
        padding=(0, 1 if ruled else 2, 0, 0),
    )  # fmt: skip
    for name in columns:
        table.add_column(name, no_wrap=not wrap)
    for row in rows:
        table.add_row(*row)
    # A figure that is cut off is worse than a line that the terminal breaks.
    needed = 0 if wrap else sum(2 + max(map(len, cells)) for cells in zip(columns, *rows, strict=True))
    console = open_console()
    (console if console.width >= needed else open_console(width=needed)).print(table)


def data_stream(*, binary: bool) -> Any:
    """Standard output for data: as it is into a pipe or a file, made visible on a terminal.

    Raises:
        BadInput: binary data on a terminal.
    """
    stream = sys.stdout
    if stream.isatty():
        if binary:
            raise BadInput("this format is binary, and standard output is a terminal", hint="name a file")
        return stream
    under = stream.under if isinstance(stream, VisibleStream) else stream
    return under.buffer if binary else under


@contextmanager
def _helping() -> Iterator[None]:
    """While a help is printed, which is ours from end to end, in colour."""
    before = sys.stdout
    sys.stdout = cast("Any", drawn())
    try:
        yield
    finally:
        sys.stdout = before


class Verb(TyperCommand):
    """A command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        with _helping():
            super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run it, where it can be watched as is asked."""
        from refork.cli.watching import watching

        with watching(ctx, self.callback):
            return super().invoke(ctx)


class CommandGroup(TyperGroup):
    """A group of commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        with _helping():
            super().format_help(ctx, formatter)


def draw_help(app: typer.Typer) -> None:
    """Let all commands of an app print their help in colour."""
    if not isinstance(app.info.cls, type):
        app.info.cls = CommandGroup
    for command in app.registered_commands:
        command.cls = Verb
    groups: Iterable[Any] = app.registered_groups
    for group in groups:
        draw_help(group.typer_instance)
