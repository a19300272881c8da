"""Put watching methods in the place of classes' own while somebody watches, and take them away after.

So what is watched holds no line for it, costs nothing while nobody watches, and stays of its class.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Final, final

from refork.runs.sections import recorder

#: The section of modules that are loaded, with what they load in turn.
IMPORTS: Final = "imports"

#: Makes a watching method of a method.
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@final
@dataclass(frozen=True, slots=True)
class ClassPattern:
    """Classes that have all of ``names``, whatever they are called; and what is put around their methods."""

    names: frozenset[str]
    methods: Mapping[str, Wrap]

    def fits(self, kind: type) -> bool:
        """Whether a class is of this shape, and no mere protocol of it."""
        return not getattr(kind, "_is_protocol", False) and all(hasattr(kind, name) for name in self.names)


#: Modules by full name: their classes by name: what is put around which method.
Named = Mapping[str, Mapping[str, Mapping[str, Wrap]]]


@final
@dataclass(slots=True)
class Attachment:
    """Watches classes of modules that are loaded, and of those that are loaded later.

    ``named`` are classes by module and name; ``shapes`` are looked for in modules whose names begin with one
    of ``within``. ``timing``: loading a module is a section itself.
    """

    named: Named
    shapes: Sequence[ClassPattern] = ()
    within: tuple[str, ...] = ("refork.", "refork_methods.", "refork_testbed.", "refork_worlds.")
    timing: bool = False
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _done: set[tuple[int, str]] = field(default_factory=set)
    _finder: _Finder | None = None

    def attach(self) -> None:
        """Begin."""
        # A copy of the list: what is put around a method may load modules itself.
        for name, module in list(sys.modules.items()):
            if self.wanted(name) and isinstance(module, ModuleType):
                self.module(name, module)
        self._finder = _Finder(self)
        sys.meta_path.insert(0, self._finder)

    def detach(self) -> None:
        """Give every class its own methods back."""
        if self._finder is not None:
            sys.meta_path.remove(self._finder)
            self._finder = None
        while self._undo:
            self._undo.pop()()
        self._done.clear()

    def wanted(self, name: str) -> bool:
        """Whether a module of this name may hold something to watch."""
        return name in self.named or (bool(self.shapes) and name.startswith(self.within))

    def module(self, name: str, module: ModuleType) -> None:
        """Watch the classes of a module."""
        for title, methods in self.named.get(name, {}).items():
            kind = getattr(module, title, None)
            if inspect.isclass(kind):  # another release of a library may not have it
                self._put(kind, methods, inherited=True)
        if not (self.shapes and name.startswith(self.within)):
            return
        for kind in list(vars(module).values()):
            if not inspect.isclass(kind) or kind.__module__ != name:
                continue
            for shape in self.shapes:
                if shape.fits(kind):
                    self._put(kind, shape.methods)

    def _put(self, kind: type, methods: Mapping[str, Wrap], *, inherited: bool = False) -> None:
        """Watch methods of a class; those that it inherits only where asked for: they are watched above."""
        for name, wrap in methods.items():
            own = name in vars(kind)
            before: Any = vars(kind)[name] if own else getattr(kind, name, None) if inherited else None
            if (id(kind), name) in self._done or not _plain(getattr(before, "__func__", before)):
                continue
            self._done.add((id(kind), name))
            of_class = isinstance(before, classmethod)
            watched = classmethod(wrap(before.__func__)) if of_class else wrap(before)
            setattr(kind, name, watched)
            # What was inherited comes back by taking ours away: a copy of it would hide later changes above.
            self._undo.append(partial(setattr, kind, name, before) if own else partial(delattr, kind, name))


def _plain(method: object) -> bool:
    return inspect.isfunction(method) and not inspect.iscoroutinefunction(method)


_FILES: Final = (importlib.machinery.SourceFileLoader, importlib.machinery.SourcelessFileLoader)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as the others do, and hears when one that is wanted has been loaded."""

    def __init__(self, owner: Attachment) -> None:
        self._owner = owner

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the finders after this one give."""
        wanted, keeper = self._owner.wanted(fullname), recorder()
        outermost = self._owner.timing and keeper is not None and not keeper.inside(IMPORTS)
        if not (wanted or outermost):
            return None
        # Those after this one only: another attachment's may stand before it, and ask this one.
        spec = _spec_of(fullname, path, target, sys.meta_path[sys.meta_path.index(self) + 1 :])
        loader = None if spec is None else spec.loader
        # Only such a loader is its module's own; another one may be shared.
        if isinstance(loader, _FILES):
            vars(loader)["exec_module"] = self._loading(loader.exec_module, fullname)
        return spec

    def _loading(self, execute: Callable[[ModuleType], None], name: str) -> Callable[[ModuleType], None]:
        def load(module: ModuleType) -> None:
            keeper = recorder()
            if not self._owner.timing or keeper is None or keeper.inside(IMPORTS):
                execute(module)
            else:
                with keeper.section(IMPORTS):
                    execute(module)
            # It may have been found while this was attached, and be loaded after that has ended.
            if self._owner._finder is self and self._owner.wanted(name):
                self._owner.module(name, module)

        return load


def _spec_of(
    name: str, path: Sequence[str] | None, target: ModuleType | None, finders: Iterable[Any]
) -> importlib.machinery.ModuleSpec | None:
    for finder in finders:
        find = getattr(finder, "find_spec", None)
        spec: importlib.machinery.ModuleSpec | None = None if find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None
