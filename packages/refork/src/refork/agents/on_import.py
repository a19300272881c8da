"""Functions that are called with a module as soon as a program imports it. The standard library alone."""

from __future__ import annotations

import functools
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

Wrap = Callable[[Any], None]
_WAITING: Final[dict[str, list[Wrap]]] = {}


def when_imported(name: str, wrap: Wrap) -> None:
    """Call ``wrap`` with a module behind its import, or at once where it is imported already."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    waiting = _WAITING.setdefault(name, [])
    if wrap not in waiting:
        waiting.append(wrap)
    if name in sys.modules:
        wrap(sys.modules[name])


class _Finder:
    """Gives a module's own spec, with a loader that calls who waits behind it.

    It is a finder by its method alone: the base class of such takes longer to import than all of this.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """None for what nobody waits for."""
        if name not in _WAITING:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                load: Wrap | None = getattr(spec.loader, "exec_module", None)
                if load is not None:
                    spec.loader.exec_module = functools.partial(_loaded, load)  # type: ignore[union-attr,method-assign]
                return spec
        return None


def _loaded(load: Wrap, module: ModuleType) -> None:
    load(module)
    for wrap in _WAITING.get(module.__name__, []):
        wrap(module)
