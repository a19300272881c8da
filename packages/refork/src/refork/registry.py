"""Everything that has a name, in one place: built in, from any installed package, or in a file of one's own.

A package adds things by entry points. A world of the name ``chess`` is, in its ``pyproject.toml``::

    [project.entry-points."refork.worlds"]
    chess = "my_package.chess:open_chess"

What comes with Refork is registered the same way, and is loaded when it is first asked for.
``package.module:Name`` and ``./file.py:Name`` stand wherever a name does; an argument may follow behind
another colon.
``docs/extend.md`` shows what each kind is called with.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, final, get_args

from refork.errors import BadInput, CannotDo, UserError

Kind = Literal[
    "policies",
    "policy_names",
    "scripts",
    "engines",
    "worlds",
    "formats",
    "changes",
    "selectors",
    "credits",
    "judges",
    "critics",
    "backends",
    "trackers",
    "compactors",
    "commands",
    "parts",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
#: The packages of this repository; only the first is sure to be installed.
OURS: Final = ("refork", "refork-worlds", "refork-testbed", "refork-methods")
_ONE: Final[dict[Kind, str]] = {"policies": "policy", "policy_names": "policy name"}


def group(kind: Kind) -> str:
    """The entry-point group of a kind."""
    return f"refork.{kind}"


def singular(kind: Kind) -> str:
    """What one of a kind is called in messages."""
    return _ONE.get(kind, kind.removesuffix("s"))


@final
@dataclass(frozen=True, slots=True)
class Registered:
    """A name of a kind and where what it stands for is: ``target`` is ``module:attribute``."""

    kind: Kind
    name: str
    target: str
    package: str
    #: Another package that gave this name to something else, so that nobody can say which is meant.
    rival: str | None = None

    def load(self) -> Any:
        """What the name stands for; its module is imported now.

        Raises:
            BadInput: the package that registered it cannot be imported, or lacks it; or two have this name.
            MissingExtra: it needs a package that is not installed.
        """
        if self.rival is not None:
            what = f"the {singular(self.kind)} {self.name!r}"
            raise BadInput(
                f"{what} is registered by {self.package} and by {self.rival}",
                where=group(self.kind),
                hint="uninstall one of them",
            )
        try:
            return EntryPoint(self.name, self.target, group(self.kind)).load()
        except UserError:
            raise
        except Exception as error:
            raise BadInput(
                f"{singular(self.kind)} {self.name!r} cannot be loaded: {type(error).__name__}: {error}",
                where=f"package {self.package}, {self.target}",
                hint=f"mend or uninstall {self.package}; `pip check` says what it lacks",
            ) from error


_added: dict[Kind, dict[str, Any]] = {kind: {} for kind in KINDS}


def register(kind: Kind, name: str, thing: Any) -> None:
    """Give something a name in this process, as in a notebook; packages use entry points.

    Raises:
        BadInput: the name is taken, or is none.
    """
    if not name or set(name) & set(":?/\\ "):
        raise BadInput(f"{name!r} is no name", hint="no colon, question mark, slash or space")
    if name in _added[kind] or name in registered(kind):
        raise BadInput(f"the {singular(kind)} {name!r} is registered already")
    _added[kind][name] = thing


def unregister(kind: Kind, name: str) -> None:
    """Take back what :func:`register` did."""
    del _added[kind][name]


@lru_cache(maxsize=len(KINDS))
def registered(kind: Kind) -> Mapping[str, Registered]:
    """All installed names of a kind, in the order of the alphabet. Nothing is imported."""
    found: dict[str, Registered] = {}
    for point in entry_points(group=group(kind)):
        package = point.dist.name if point.dist is not None else "?"
        one = Registered(kind, point.name, point.value, package)
        other = found.setdefault(point.name, one)
        if other.target != one.target:
            found[point.name] = replace(other, rival=package)
    return MappingProxyType(dict(sorted(found.items())))


def own(kind: Kind) -> Mapping[str, Registered]:
    """The names of a kind that come with Refork, without a look at other people's packages."""
    found: dict[str, Registered] = {}
    for package in filter(_installed, OURS):
        for point in distribution(package).entry_points.select(group=group(kind)):
            found[point.name] = Registered(kind, point.name, point.value, package)
    return found


def _installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def names(kind: Kind) -> tuple[str, ...]:
    """All names of a kind, installed and of this process."""
    return tuple(sorted({*registered(kind), *_added[kind]}))


def known(kind: Kind, name: str) -> bool:
    """Whether something has exactly this name."""
    return name in _added[kind] or name in registered(kind)


def find(kind: Kind, name: str) -> Any:
    """What an installed name, or one of this process, stands for.

    Never imports a file or a module that a text names: safe for names out of trees and logs.

    Raises:
        BadInput: nothing has this name.
    """
    if name in _added[kind]:
        return _added[kind][name]
    if name in registered(kind):
        return registered(kind)[name].load()
    near = difflib.get_close_matches(name, names(kind), 3)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names(kind)) or 'none'}"
    if lacking := [package for package in OURS if not _installed(package)]:
        hint += f"; more come with {', '.join(lacking)}, not installed here"
    raise BadInput(f"there is no {singular(kind)} {name!r}", hint=hint)


def refused(kind: Kind, text: str, option: str) -> BadInput:
    """The error for a name out of a record that nothing installed has; ``option``: how a user names it."""
    head = text.strip().partition("?")[0].partition(":")[0]
    near = difflib.get_close_matches(head, names(kind), 3)
    return BadInput(
        f"no installed {singular(kind)} is called {head!r}, and no file or module is run because a record "
        f"names it",
        where=f"recorded {singular(kind)} {text!r}",
        hint=f"name it yourself where you trust it: {option}"
        + (f"; the installed name may be {', '.join(near)}" if near else ""),
    )


@final
@dataclass(frozen=True, slots=True)
class Described:
    """A name for people: its ``form``, what it is, and what it lacks where it cannot be loaded."""

    name: str
    form: str
    what: str
    package: str
    lacks: str | None = None

    @property
    def description(self) -> str:
        """What a list says of it."""
        if self.lacks is not None:
            return f"({self.package}) cannot be loaded: {self.lacks}"
        return self.what if self.package in OURS else f"{self.what} ({self.package})".lstrip()


def described(kind: Kind) -> list[Described]:
    """All names of a kind with the first lines of their docstrings, ````FORM``: what it is``.

    What cannot be loaded is listed with the reason.
    """
    found = []
    for name in names(kind):
        package = registered(kind)[name].package if name in registered(kind) else "this process"
        try:
            line = (inspect.getdoc(find(kind, name)) or "").partition("\n")[0]
        except UserError as error:
            told = f"{error.what}; {error.hint}" if error.hint else error.what
            found.append(Described(name, name, "", package, told))
            continue
        form, sign, what = line.rpartition("``: ")
        found.append(Described(name, form.replace("``", "") if sign else name, what.rstrip("."), package))
    return found


def split(kind: Kind, text: str) -> tuple[str, str]:
    """A name and what follows its colon; ``module:Name`` and ``file.py:Name`` are names with a colon in them.

    A registered name wins over a module that is called like it.
    """
    head, _, rest = text.partition(":")
    if known(kind, head) or not rest:
        return head, rest
    file, mark, behind = text.partition(".py:")
    if not mark and not _is_module(head):
        return head, rest
    head, behind = (f"{file}.py", behind) if mark else (head, rest)
    attribute, _, argument = behind.partition(":")
    return f"{head}:{attribute}", argument


def resolve(kind: Kind, name: str) -> Any:
    """What a name stands for: an installed one, ``module:Name``, or ``file.py:Name``.

    The latter two run code, so they are for what a user has typed; texts out of trees go to :func:`find`.

    Raises:
        BadInput: there is no such name, file, module or attribute, or running it failed.
    """
    head, colon, attribute = name.rpartition(":")
    if not colon or known(kind, name):
        return find(kind, name)
    module = _from_file(Path(head)) if head.endswith(".py") else _from_module(head)
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, vars(module), 3)
        raise BadInput(
            f"{head} has no {attribute!r}",
            where=f"{singular(kind)} {name}",
            hint=f"did you mean {', '.join(near)}?" if near else None,
        )
    return getattr(module, attribute)


def part(name: str, package: str = "refork-methods") -> Any:
    """What another package adds at a seam of this one, such as ``serve.pins``.

    Raises:
        CannotDo: the package that adds it is not installed.
    """
    if not known("parts", name):
        raise CannotDo(
            f"this needs {package}, which is not installed",
            hint=f"in a checkout: pip install -e packages/{package}",
        )
    return find("parts", name)


def version_of(kind: Kind, name: str, thing: Any) -> str:
    """Sixteen hex digits of the file that a name's thing is from: another version of the file has others.

    Raises:
        BadInput: it has no source, as what is typed into an interpreter may have none.
    """
    place = name.rpartition(":")[0]
    if not place.endswith(".py"):
        one = registered(kind).get(name)
        place = place or (one.target.partition(":")[0] if one else thing.__module__)
        place = getattr(sys.modules.get(place), "__file__", None) or ""
    try:
        source = Path(place).read_bytes() if place else inspect.getsource(thing).encode()
    except (OSError, TypeError) as error:
        raise BadInput(f"{singular(kind)} {name!r} has no source to tell its version by") from error
    return hashlib.sha256(source).hexdigest()[:16]


def _is_module(name: str) -> bool:
    """Whether a dotted name, or a plain one that is installed, names a module; its parents are imported."""
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _from_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise BadInput(f"there is no module {error.name!r}", where=name) from error
    except Exception as error:
        raise BadInput(f"importing it failed: {type(error).__name__}: {error}", where=name) from error


def _from_file(file: Path) -> Any:
    """A file as a module, run once in a process; again where its text has changed."""
    try:
        source = file.read_bytes()
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(file)) from error
    digest = hashlib.sha256(str(file.resolve()).encode() + b"\0" + source).hexdigest()[:16]
    name = f"refork_file_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickles look it up there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        # Half a module must not be what the next call finds.
        del sys.modules[name]
        if isinstance(error, UserError) or not isinstance(error, Exception):
            raise
        line = error.lineno if isinstance(error, SyntaxError) else _line(error, file)
        raise BadInput(
            f"running it failed: {type(error).__name__}: {error}",
            where=f"{file}:{line}" if line else str(file),
        ) from error
    return module


def _line(error: Exception, file: Path) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
