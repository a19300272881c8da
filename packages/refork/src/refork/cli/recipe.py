"""Long commands: settings beyond a handful are keys of a recipe, which ``--recipe FILE`` or ``--set`` gives.

A command declares all its options as ever, those that are typed daily first. What goes beyond ``MOST`` leaves
the help and goes on working. ``--template`` prints a recipe with every key, its default and its line of help.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import difflib
import functools
import inspect
import json
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, final

import typer
from typer.models import ArgumentInfo, OptionInfo

from refork.errors import BadInput
from refork.registry import resolve
from refork.settings import from_toml
from refork.types import Json

#: Options that a command's help may show, ``--recipe`` among them and ``--help`` not.
MOST: Final = 8
#: They say how a command answers, not what it does: always shown, and no keys.
_ALWAYS: Final = ("json", "dry_run")
#: Always shown where a command has them: where its answer goes, and how much it draws.
_DAILY: Final = ("out", "draws")
#: What the recipe of the command that runs now sets, for the record of its run.
CHOSEN: Final[ContextVar[Json]] = ContextVar("CHOSEN")
_HELP: Final = (
    "TOML file of this and further settings; --template prints one, --set KEY=VALUE gives a single one."
)


@final
@dataclass(frozen=True, slots=True)
class Keys:
    """Stands in the annotation of a command's ``--set``: the settings whose keys that takes.

    ``targets``: pydantic models or dataclasses, each ``module:Class`` or the name of a part in the registry,
    imported when they are asked for. A key that is an option too goes to the option, unless ``first``.
    """

    targets: tuple[str, ...]
    first: bool

    def __init__(self, *targets: str, first: bool = False) -> None:
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "first", first)

    def settings(self) -> tuple[Setting, ...]:
        """All keys; of those that several have, the first's."""
        found: dict[str, Setting] = {}
        for target in self.targets:
            for one in settings_of(resolve("parts", target)):
                found.setdefault(one.key, one)
        return tuple(found.values())


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One key: a field of settings or an option, with what says it."""

    key: str
    help: str
    default: Any
    needed: bool
    kind: Any
    #: Settings below it, of a field that is a table.
    inner: tuple[Setting, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Option:
    """An option of a command, which is a key too."""

    parameter: inspect.Parameter
    info: OptionInfo

    @property
    def key(self) -> str:
        # Inside Annotated, typer finds an option's first name where else its default is.
        names = (self.info.default, *(self.info.param_decls or ()))
        long = [one for one in names if isinstance(one, str) and one.startswith("--")]
        name = long[0].partition("/")[0].removeprefix("--") if long else self.parameter.name
        return name.replace("-", "_")

    @property
    def needed(self) -> bool:
        return self.parameter.default is inspect.Parameter.empty

    @property
    def kind(self) -> Any:
        return typing.get_args(self.parameter.annotation)[0]

    @property
    def setting(self) -> Setting:
        default = None if self.needed else self.parameter.default
        return Setting(self.key, self.info.help or "", default, self.needed, self.kind)


@final
@dataclass(slots=True)
class _Given:
    """What one call of a command was given: options by parameter, and what is left for its own settings."""

    file: Path | None = None
    from_file: Json = field(default_factory=dict)
    from_set: Json = field(default_factory=dict)
    rest: Json = field(default_factory=dict)
    given: Json = field(default_factory=dict)


class _Recipe:
    """The recipe of one command: which of its options are shown, and where each key goes."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.signature = inspect.signature(call, eval_str=True)
        self.options: dict[str, _Option] = {}
        self.set: str | None = None  # its own --set, and its own recipe file
        self.file: str | None = None
        self.keys: Keys | None = None
        for name, parameter in self.signature.parameters.items():
            info, keys = _metadata(parameter.annotation)
            self.keys = keys or self.keys
            if name == "recipe" and info is not None and Path in _arms(parameter.annotation):
                self.file = name
            elif isinstance(info, OptionInfo) and not info.hidden:
                option = _Option(parameter, info)
                if option.key == "set":
                    self.set = name
                else:
                    self.options[option.key] = option
        #: A recipe of a run is one value, whichever way its keys come.
        self.own_first = self.file is not None or (self.keys is not None and self.keys.first)
        self.long = self.keys is not None or len(self.options) + (self.set is not None) > MOST

    def visible_keys(self) -> set[str]:
        """Keys of the options that the help shows: needed and daily ones, then the first declared."""
        daily = (*_ALWAYS, *_DAILY)
        # A stable sort: among equals the order of the declaration stays.
        ranked = sorted(self.options, key=lambda key: not (self.options[key].needed or key in daily))
        return set(ranked[: MOST - 1])

    def signature_with_recipe(self) -> inspect.Signature:
        """The command's parameters, the less usual ones hidden, with those of a recipe."""
        shown, changed = self.visible_keys(), []
        hidden = {one.parameter.name for key, one in self.options.items() if key not in shown}
        for name, parameter in self.signature.parameters.items():
            more: dict[str, Any] = {}
            if name in hidden:
                more = {"hidden": True}
            elif name == self.set:
                # Eager: what it sets is the default of other options, so it is read before any of these.
                more = {"hidden": True, "is_eager": True, "callback": self._on_set}
            elif name == self.file:
                more = {"is_eager": True, "callback": self._on_file}
                if isinstance(_metadata(parameter.annotation)[0], OptionInfo):
                    more["help"] = _HELP
            changed.append(_with_info(parameter, **more) if more else parameter)
        return self.signature.replace(parameters=[*changed, *self._added()])

    def _added(self) -> Iterator[inspect.Parameter]:
        own = self.signature.parameters.get(self.file or "")
        if own is None or isinstance(_metadata(own.annotation)[0], ArgumentInfo):
            info = typer.Option("--recipe", help=_HELP, is_eager=True, callback=self._on_file)
            yield _parameter("recipe_file", Annotated[Path | None, info], None)
        if self.set is None:
            info = typer.Option("--set", hidden=True, is_eager=True, callback=self._on_set)
            yield _parameter("recipe_set", Annotated[list[str], info], [])
        info = typer.Option("--template", hidden=True, is_eager=True, callback=self._on_template)
        yield _parameter("recipe_template", Annotated[bool, info], False)
        yield _parameter("recipe_context", typer.Context, inspect.Parameter.empty)

    def run(self, **given: Any) -> Any:
        """Call the command with what options, recipe file and ``--set`` say together."""
        context = given.pop("recipe_context")
        for name in ("recipe_file", "recipe_set", "recipe_template"):
            given.pop(name, None)
        from refork.runs.recipe import RecipeText

        found = _given(context)
        if self.file is not None:
            given[self.file] = None if found.file is None else RecipeText(found.file, found.rest)
        elif self.set is not None and found.rest:
            given[self.set] = [*_items(found.rest), *(given[self.set] or ())]
        # Options and keys may come in any order, so what was given is known only here.
        token = CHOSEN.set(found.given)
        try:
            return self.call(**given)
        finally:
            CHOSEN.reset(token)

    def settings(self) -> list[Setting]:
        """All keys: the options, then those of the command's own settings."""
        own = self._own()
        options = [
            one.setting
            for key, one in self.options.items()
            if key not in _ALWAYS and (key not in own or not self.own_first)
        ]
        known = {one.key for one in options}
        return [*options, *(one for key, one in own.items() if key not in known)]

    def _on_file(self, context: typer.Context, value: Path | None) -> Path | None:
        if value is None:
            return None
        given = _given(context)
        if given.file is not None:
            raise BadInput("a command takes one recipe", where=str(value))
        from refork.runs.recipe import read_toml

        given.file = value
        for key, inner in read_toml(value).items():
            self._take(given, key, inner, str(value), given.from_file)
        context.default_map = given.from_file | given.from_set
        return value

    def _on_set(self, context: typer.Context, value: list[str] | None) -> list[str] | None:
        given, left = _given(context), []
        for item in value or ():
            key, sign, text = item.partition("=")
            key = key.strip()
            name = key.replace("-", "_")
            if not sign and (name in self.options or self.set is None):
                raise BadInput(f"--set {item!r} has no '='", hint="write --set KEY=VALUE")
            option = self._option(name, from_toml(text))
            if option is None:
                self._check(key, "--set")
                left.append(item)
                given.given[key] = text
            else:
                given.from_set[option.parameter.name] = given.given[name] = _typed(option, text, "--set")
        context.default_map = given.from_file | given.from_set
        return left or (None if value is None else [])

    def _on_template(self, context: typer.Context, value: bool) -> None:
        if value:
            typer.echo(self.template(context.command_path))
            raise typer.Exit

    def template(self, command: str) -> str:
        """What ``--template`` prints; ``command`` is the command's name."""
        summary = (inspect.getdoc(self.call) or "").partition("\n")[0]
        return template(command, summary, self.settings())

    def _take(self, given: _Given, key: str, value: Any, where: str, into: Json) -> None:
        option = self._option(key.replace("-", "_"), value)
        if option is None:
            self._check(key, where)
            given.rest[key] = value
        else:
            into[option.parameter.name] = _valid(option, value, where)
        # A --set may have been read first, and wins.
        given.given.setdefault(key, value)

    def _option(self, key: str, value: Any) -> _Option | None:
        """The option that a key stands for; None where it is one of the command's own settings."""
        option = None if key in _ALWAYS else self.options.get(key)
        if option is None or not self.own_first or key not in self._own():
            return option
        # A table of the settings and an option may share a name, such as a selector and its kind.
        return option if self._own()[key].inner and not isinstance(value, dict) else None

    @functools.cache  # noqa: B019 - there is one for each command, as long as the program runs
    def _own(self) -> dict[str, Setting]:
        return {} if self.keys is None else {one.key: one for one in self.keys.settings()}

    def _check(self, key: str, where: str) -> None:
        """Refuse a key that nothing has, with the nearest that there is."""
        if (self.set is not None or self.file is not None) and self.keys is None:
            return  # the command has names of its own there, such as the sizes of a kernel
        head = key.partition(".")[0]
        if head in self._own():
            return
        known = [one.key for one in self.settings()]
        raise unknown_key(key, known, where)


def add_recipes(app: typer.Typer) -> None:
    """Let the commands of an app that have many options take a recipe. Doing it again changes nothing."""
    for info in app.registered_commands:
        if info.callback is not None and not hasattr(info.callback, "recipe"):
            recipe = _Recipe(info.callback)
            if recipe.long:
                # The partial takes the attributes that are set below; a bound method would refuse them.
                run: Any = functools.wraps(info.callback)(functools.partial(recipe.run))
                run.__signature__ = recipe.signature_with_recipe()
                run.recipe = recipe
                info.callback = run
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_recipes(group.typer_instance)


def unknown_key(key: str, known: Iterable[str], where: str) -> BadInput:
    """The error for a key that nothing has."""
    near = difflib.get_close_matches(key.replace("-", "_"), list(known), 3)
    return BadInput(
        f"there is no key {key!r}",
        where=where,
        hint=f"did you mean {', '.join(near)}?" if near else "--template prints all keys",
    )


def settings_of(kind: type[Any]) -> tuple[Setting, ...]:
    """The keys of settings: fields of a pydantic model or a dataclass that TOML can hold.

    A field's line of help is the comment above it that begins with ``#:``.
    """
    from pydantic import BaseModel

    helps = _comments(kind)
    found = []
    if issubclass(kind, BaseModel):
        for name, about in kind.model_fields.items():
            below = next((one for one in _arms(about.annotation) if _is_model(one)), None)
            inner = () if below is None else settings_of(below)
            default = None if about.is_required() else about.get_default(call_default_factory=True)
            if isinstance(default, BaseModel):
                default = default.model_dump()
            found.append(
                Setting(name, helps.get(name, ""), default, about.is_required(), about.annotation, inner)
            )
        return tuple(found)
    for one in dataclasses.fields(kind):
        default = one.default
        if isinstance(default, str | int | float | Path | None):
            found.append(Setting(one.name, helps.get(one.name, ""), default, False, one.type))
    return tuple(found)


def template(command: str, summary: str, settings: Iterable[Setting]) -> str:
    """A recipe for a command, every key commented out at its default."""
    head = textwrap.wrap(
        f"{command}: {summary} Pass this file with --recipe. A line that begins with '#' and a key holds the "
        "default; remove its '#' to set it. An option, or --set KEY=VALUE, wins over this file.",
        width=96,
    )
    every = list(settings)
    plain = [line for one in every if not one.inner for line in _written(one)]
    tables = [line for one in every if one.inner for line in _table(one, one.key)]
    return "\n".join([*(f"# {line}" for line in head), *plain, *tables])


def _table(one: Setting, path: str) -> Iterator[str]:
    yield ""
    yield from (f"# {line}" for line in textwrap.wrap(one.help, 96))
    yield f"#[{path}]"
    default = one.default or {}
    for inner in one.inner:
        if not inner.inner:
            yield from _written(dataclasses.replace(inner, default=default.get(inner.key, inner.default)))
    for inner in one.inner:
        if inner.inner:
            yield from _table(inner, f"{path}.{inner.key}")


def _written(one: Setting) -> Iterator[str]:
    said = one.help.rstrip()
    if one.needed:
        said = f"{said} Needed." if said else "Needed."
    elif choices := _choices(one.kind):
        said = f"{said} One of {', '.join(choices)}.".lstrip()
    yield ""
    yield from (f"# {line}" for line in textwrap.wrap(said, 96))
    yield f"#{one.key} =" + ("" if one.default is None else f" {toml(one.default)}")


def toml(value: Any) -> str:
    """A value as TOML writes it on one line."""
    if isinstance(value, Enum):
        value = value.value
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)  # inf and nan are TOML's words too
        case dict():
            pairs = (f"{json.dumps(str(key))} = {toml(one)}" for key, one in value.items() if one is not None)
            return "{" + ", ".join(pairs) + "}"
        case list() | tuple() | set() | frozenset():
            return "[" + ", ".join(toml(one) for one in value) + "]"
        case _:
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _items(rest: Json, prefix: str = "") -> Iterator[str]:
    """Keys of a file as ``a.b=value`` items. A text stands bare where reading it gives the same text."""
    for key, value in rest.items():
        if isinstance(value, dict):
            yield from _items(value, f"{prefix}{key}.")
        elif isinstance(value, str) and from_toml(value) == value:
            yield f"{prefix}{key}={value}"
        else:
            yield f"{prefix}{key}={toml(value)}"


def _typed(option: _Option, text: str, where: str) -> Any:
    """The value of an option that was typed as text: as it stands, else as TOML reads it."""
    if isinstance(from_toml(text), list):
        return _valid(option, from_toml(text), where)
    # As text first: an option of text may hold `007` or `true`, which TOML would read as something else.
    try:
        return _valid(option, text, where)
    except BadInput:
        return _valid(option, from_toml(text), where)


def _valid(option: _Option, value: Any, where: str) -> Any:
    """A value that the option's annotation takes, for the command line to read further."""
    from pydantic import TypeAdapter, ValidationError

    listed = any(typing.get_origin(one) is list for one in _arms(option.kind))
    try:
        if listed and not isinstance(value, list):
            value = [value]
        TypeAdapter(option.kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"key {option.key!r}: {first['msg']} (it holds {value!r})", where=where) from error
    return value


def _arms(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    if typing.get_origin(kind) is Annotated:
        return _arms(typing.get_args(kind)[0])
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return tuple(arm for one in typing.get_args(kind) for arm in _arms(one)) if union else (kind,)


def _choices(kind: Any) -> list[str]:
    found: list[str] = []
    for one in _arms(kind):
        if typing.get_origin(one) is typing.Literal:
            found += [str(value) for value in typing.get_args(one)]
        elif isinstance(one, type) and issubclass(one, Enum):
            found += [str(value.value) for value in one]
    return found


def _is_model(kind: Any) -> bool:
    from pydantic import BaseModel

    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _comments(kind: type[Any]) -> dict[str, str]:
    """By field, the ``#:`` comment above it, in the class and in those that it is made from."""
    found: dict[str, str] = {}
    # From the bases down: a field that is declared again keeps the old comment unless it brings one.
    for one in reversed(kind.__mro__):
        if one is object or one.__module__.partition(".")[0] == "pydantic":
            continue
        lines = textwrap.dedent(inspect.getsource(one)).splitlines()
        tree = ast.parse("\n".join(lines)).body[0]
        assert isinstance(tree, ast.ClassDef)
        for item in tree.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                said: list[str] = []
                for line in reversed(lines[: item.lineno - 1]):
                    if not line.lstrip().startswith("#:"):
                        break
                    said.insert(0, line.lstrip().removeprefix("#:").strip())
                found[item.target.id] = " ".join(said) or found.get(item.target.id, "")
    return found


def _given(context: typer.Context) -> _Given:
    found: _Given = context.meta.setdefault("refork.recipe", _Given())
    return found


def _metadata(annotation: Any) -> tuple[OptionInfo | ArgumentInfo | None, Keys | None]:
    told = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is Annotated else ()
    info = next((one for one in told if isinstance(one, OptionInfo | ArgumentInfo)), None)
    return info, next((one for one in told if isinstance(one, Keys)), None)


def _with_info(parameter: inspect.Parameter, **changes: Any) -> inspect.Parameter:
    """A parameter whose option or argument has other attributes."""
    info = copy.copy(_metadata(parameter.annotation)[0])
    for name, value in changes.items():
        setattr(info, name, value)
    return parameter.replace(annotation=Annotated[typing.get_args(parameter.annotation)[0], info])


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
