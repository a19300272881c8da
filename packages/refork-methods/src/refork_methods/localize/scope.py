"""What a dotted name means where it stands in a Python file: scopes, imports, re-exports and base classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from refork_methods.localize.facts import FileFacts, Symbol
from refork_methods.localize.imports import ImportGraph

_Bound = tuple[str, str | None]
"""(file, name in it); no name means the file as a module."""


@final
class PythonScopes:
    """Resolves names as the language binds them; what is bound at run time only stays unknown."""

    def __init__(self, files: Mapping[str, FileFacts], links: ImportGraph) -> None:
        self._files = {path: facts for path, facts in files.items() if facts.language == "python"}
        self._links = links
        self._names: dict[str, dict[str, Symbol]] = {}
        self._bound: dict[str, dict[str, list[_Bound]]] = {}
        self._stars: dict[str, list[str]] = {}
        self._bases: dict[str, tuple[Symbol, ...]] = {}
        self._known: dict[tuple[str, ...], Symbol | None] = {}
        for path, facts in self._files.items():
            # The last binding of a name is the one that stays.
            self._names[path] = {symbol.qualified: symbol for symbol in facts.symbols[1:]}
            self._bound[path], self._stars[path] = self._imported(path)

    def _imported(self, path: str) -> tuple[dict[str, list[_Bound]], list[str]]:
        bound: dict[str, list[_Bound]] = {}
        stars: list[str] = []
        for link in self._links.links.get(path, ()):
            told = link.told
            if told.kind == "star":
                stars += [target for target, names in link.targets.items() if names]
            elif told.kind == "import":
                for target in link.targets:
                    bound.setdefault(told.names[0][1], []).append((target, None))
            elif told.kind == "from":
                taken = {name: target for target, names in link.targets.items() for name in names}
                for name, as_name in told.names:
                    if name in taken:
                        bound.setdefault(as_name, []).append((taken[name], name))
                    else:
                        inner = f"{told.module}.{name}" if told.module else name
                        module = self._links.python.find(path, inner, told.level)
                        if module is not None:
                            bound.setdefault(as_name, []).append((module, None))
        return bound, stars

    def resolve(self, path: str, caller: Symbol, callee: str) -> tuple[Symbol, ...]:
        """The symbols that a call certainly means: a function, or a class and its ``__init__``."""
        parts = callee.split(".")
        if parts[0] in ("self", "cls", "super") and len(parts) == 2:
            found = self._of_self(path, caller, parts[1], above=parts[0] == "super")
        elif parts[0] == "?":
            found = None
        else:
            found = self._local(path, caller, parts) or self.find(path, parts)
        if found is None or found.kind in ("variable", "module"):
            return ()
        if found.kind == "class":
            start = self._member(found, "__init__")
            return (found,) if start is None else (found, start)
        return (found,)

    def _local(self, path: str, caller: Symbol, parts: list[str]) -> Symbol | None:
        """A name bound in a function around the caller; class bodies are no scope for what is inside them."""
        names = self._names[path]
        scope = caller.qualified if caller.kind != "module" else ""
        own = True
        while scope:
            holder = names.get(scope)
            if holder is not None and (holder.kind != "class" or own):
                found = names.get(f"{scope}.{parts[0]}")
                if found is not None:
                    return found if len(parts) == 1 else self._into(found, parts[1:])
            own = False
            scope = scope.rpartition(".")[0]
        return None

    def _of_self(self, path: str, caller: Symbol, name: str, above: bool) -> Symbol | None:
        names = self._names[path]
        scope = caller.qualified.rpartition(".")[0]
        while scope:
            holder = names.get(scope)
            if holder is not None and holder.kind == "class":
                return self._member(holder, name, skip=above)
            scope = scope.rpartition(".")[0]
        return None

    def find(self, path: str, parts: list[str]) -> Symbol | None:
        """The symbol that a dotted name means at the top of a file."""
        key = (path, *parts)
        if key not in self._known:
            self._known[key] = self._find(path, parts, set())
        return self._known[key]

    def _find(self, path: str, parts: list[str], seen: set[tuple[str, ...]]) -> Symbol | None:
        # Imports may run in circles: each question is asked once.
        if path not in self._names or (path, *parts) in seen:
            return None
        seen.add((path, *parts))
        names = self._names[path]
        found = names.get(parts[0])
        if found is not None and found.kind != "variable":
            return self._into(found, parts[1:]) if len(parts) > 1 else found
        bound = self._bound[path]
        for size in range(len(parts), 0, -1):
            for target, name in bound.get(".".join(parts[:size]), ()):
                rest = parts[size:] if name is None else [name, *parts[size:]]
                inner = self._find(target, rest, seen) if rest else None
                if inner is not None:
                    return inner
        for target in self._stars[path]:
            if not parts[0].startswith("_") or parts[0] in (self._files[target].exports or ()):
                inner = self._find(target, parts, seen)
                if inner is not None:
                    return inner
        below = self._links.python.submodule(path, parts[0]) if len(parts) > 1 else None
        return self._find(below, parts[1:], seen) if below is not None else found

    def _into(self, symbol: Symbol, rest: list[str]) -> Symbol | None:
        """A name under a symbol: a method of a class or of its bases."""
        if symbol.kind != "class" or len(rest) > 2:
            return None
        member = self._member(symbol, rest[0])
        return member if member is None or len(rest) == 1 else self._into(member, rest[1:])

    def _member(self, holder: Symbol, name: str, skip: bool = False) -> Symbol | None:
        """A class's own or inherited member, bases from left to right; ``skip`` leaves out its own."""
        seen = {holder.id}
        waiting = list(self._bases_of(holder)) if skip else [holder]
        while waiting:
            here = waiting.pop(0)
            found = self._names[here.path].get(f"{here.qualified}.{name}")
            if found is not None:
                return found
            fresh = [base for base in self._bases_of(here) if base.id not in seen]
            seen.update(base.id for base in fresh)
            waiting = fresh + waiting
        return None

    def _bases_of(self, holder: Symbol) -> tuple[Symbol, ...]:
        known = self._bases.get(holder.id)
        if known is None:
            self._bases[holder.id] = ()  # a class that derives from itself ends here
            found = [self.find(holder.path, base.split(".")) for base in holder.bases]
            known = tuple(base for base in found if base is not None and base.kind == "class")
            self._bases[holder.id] = known
        return known
