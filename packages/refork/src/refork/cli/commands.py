"""Commands by name: the product's own at the top, those of methods and of other packages under ``method``.

Each is an entry point of ``refork.commands``: a ``typer.Typer`` is a command with verbs, an annotated
function a single one. Only the module of the command that is asked for is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import typer

from refork.cli.recipe import add_recipes
from refork.cli.screen import CommandGroup, draw_help
from refork.cli.watching import watch_verbs
from refork.errors import BadInput, UserError
from refork.registry import find, names, own, registered, resolve

#: The commands that the help shows, in groups. No other package can add to them.
GROUPS: Final = {
    "Begin": ("demo", "agent", "world", "policy"),
    "Look": ("tree", "view"),
    "Fork and compare": ("fork", "sweep", "why"),
    "Grow and train": ("grow", "train"),
    "Operate": ("run", "serve"),
    "Methods": ("method",),
}
PRODUCT: Final = tuple(name for names in GROUPS.values() for name in names if name != "method")
#: Where commands went that were once at the top; their old names go on to work, and no help shows them.
MOVED: Final = {"compare": "tree compare"}
METHOD: Final = "What methods and other packages add, each under its name: refork method credit report ..."


class _Loaded(Mapping[str, Any]):
    """Commands that are made when they are looked at, each once."""

    def __init__(self, known: Iterable[str], make: Callable[[str], Any]) -> None:
        self._made: dict[str, Any] = dict.fromkeys(known)
        self._make = make

    def __getitem__(self, name: str) -> Any:
        if self._made[name] is None:
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class Methods(CommandGroup):
    """``refork method``: the commands of methods and of other packages."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        taken = {name for name, one in registered("commands").items() if one.rival is not None}
        self._hidden = {*PRODUCT, *MOVED} - taken
        self.commands: Any = _Loaded(
            names("commands"), lambda name: _command(name, lambda: find("commands", name))
        )

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands that the help shows: those that it does not show at the top."""
        return [name for name in self.commands if name not in self._hidden]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; ``module:Name`` and ``file.py:Name`` stand for one, too."""
        if ":" in cmd_name:
            return _command(cmd_name, lambda: resolve("commands", cmd_name))
        return super().get_command(ctx, cmd_name)


class Product(CommandGroup):
    """``refork``: the product's commands, and ``method``.

    A method that comes with Refork is also found at the top, where all were once; the help does not show it.
    Other packages are not looked at, so that none can break a command of Refork.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._own = own("commands")
        self.commands: Any = _Loaded(["method", *self._own], self._make)

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands that the help shows."""
        return [name for names in GROUPS.values() for name in names if name in self.commands]

    def _make(self, name: str) -> Any:
        if name == "method":
            command = _made(name, typer.Typer(cls=Methods, no_args_is_help=True, help=METHOD))
        else:
            command = _command(name, self._own[name].load)
        command.rich_help_panel = next((group for group, names in GROUPS.items() if name in names), None)
        return command


def _command(name: str, load: Callable[[], Any]) -> Any:
    """A command; where it cannot be made, one that says why, so that the help and all others go on."""
    try:
        thing = load()
        if not callable(thing):
            raise BadInput(
                f"command {name!r} is a {type(thing).__name__}, not a typer.Typer or a function",
                hint="mend or uninstall the package that registers it",
            )
        return _made(name, thing)
    except UserError as error:
        return _refusing(name, error)
    except Exception as error:  # typer's, at an annotation that it cannot turn into an option
        wrong = BadInput(
            f"command {name!r} is no command line: {type(error).__name__}: {error}",
            hint="mend or uninstall the package that registers it",
        )
        return _refusing(name, wrong)


def _refusing(name: str, error: UserError) -> Any:
    def refuse() -> None:
        raise error

    command = _made(name, refuse)
    command.help = "Cannot be used: " + "; ".join(line.strip() for line in str(error).splitlines())
    # Whatever is typed behind the name, --help included, brings the reason and no complaint about options.
    command.params = []
    command.add_help_option = False
    command.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return command


def _made(name: str, thing: Any) -> Any:
    holder = typer.Typer(rich_markup_mode="markdown")
    if isinstance(thing, typer.Typer):
        holder.add_typer(thing, name=name)
    else:
        holder.command(name)(thing)
    watch_verbs(holder)
    add_recipes(holder)
    draw_help(holder)
    return typer.main.get_group(holder).commands[name]
