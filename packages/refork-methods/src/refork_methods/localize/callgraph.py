"""Which symbol calls which, as far as names and imports tell without running anything."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import final

import networkx as nx

from refork_methods.localize.facts import FileFacts, Symbol
from refork_methods.localize.imports import ImportGraph, Link

# What a dotted name means where it stands in a Python file: scopes, imports, re-exports and base classes.

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
            told = link.statement
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
        # Only whole questions are remembered: inside, the answer depends on what is being asked already.
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
            # Depth first and left to right: Python's own order, but for a base that two bases share.
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


# Which symbol calls which, as far as names and imports tell without running anything.

MOST = 5
"""A name that fits more symbols than this says nothing, and makes no edge."""

NEAR = 0.5
"""What the fitting symbols of the caller's file, package and imports share between them."""

FAR = 0.25
"""What they share where none is near and the name is looked up in the whole repository."""

_PAIR = 4
"""A stem that more C files have names no pair of header and source."""

#: Methods that every built-in type has: a call of one on an unknown object is rarely ours.
_COMMON = frozenset(
    name for kind in (dict, list, set, str, bytes, tuple, int, float) for name in dir(kind) if name[0] != "_"
) | {"apply", "call", "close", "filter", "flush", "map", "next", "open", "put", "read", "readline",
     "readlines",      "recv", "run", "seek", "send", "write"}  # fmt: skip
_SELVES = frozenset({"this", "self", "Self", "super", "cls"})


def call_graph(
    files: Mapping[str, FileFacts], symbols: Sequence[Symbol], links: ImportGraph
) -> "nx.DiGraph[str]":
    """Symbol id -> called symbol id; all symbols are nodes.

    An edge has ``line``, ``sure`` and ``weight``: 1 where scope, imports or the class of ``self`` name one
    symbol. Where only the last name fits, :data:`NEAR` or :data:`FAR` is divided among what it fits; more
    than :data:`MOST` make no edge.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(symbol.id for symbol in symbols)
    python = PythonScopes(files, links)
    by_name = _ByName(files, links)
    for path, facts in files.items():
        for call in facts.calls:
            caller = facts.symbols[call.caller]
            sure = python.resolve(path, caller, call.callee) if facts.language == "python" else ()
            fits, weight = (sure, 1.0) if sure else by_name.fits(facts, caller, call.callee)
            for symbol in fits:
                _add(graph, caller.id, symbol.id, weight, call.line)
    return graph


def _add(graph: "nx.DiGraph[str]", caller: str, callee: str, weight: float, line: int) -> None:
    # One edge a pair: the ranking asks how sure a call is, not how often it stands there.
    old = graph.get_edge_data(caller, callee)
    # Of several calls between two symbols the surest stands, with its line.
    if old is None or weight > old["weight"]:
        graph.add_edge(caller, callee, weight=weight, sure=weight == 1.0, line=line)


@final
class _ByName:
    """Callable symbols by their last name, and which of them are near a file."""

    def __init__(self, files: Mapping[str, FileFacts], links: ImportGraph) -> None:
        self._files = files
        self._graph = links.graph
        self._named: dict[tuple[str, str], list[Symbol]] = {}
        self._folders: dict[str, set[str]] = {}
        for path, facts in files.items():
            self._folders.setdefault(posixpath.dirname(path), set()).add(path)
            for symbol in facts.symbols:
                if symbol.kind in ("function", "method", "class"):
                    self._named.setdefault((family(facts.language), symbol.name), []).append(symbol)
        self._near: dict[str, set[str]] = {}
        self._stems: dict[str, set[str]] = {}
        for path in (path for path, facts in files.items() if family(facts.language) == "c"):
            self._stems.setdefault(_stem(path), set()).add(path)
        self._bound = {path: _bound(found) for path, found in links.links.items()}

    def fits(self, facts: FileFacts, caller: Symbol, callee: str) -> tuple[tuple[Symbol, ...], float]:
        """(symbols that the call may mean, the weight of each)."""
        *before, name = callee.split(".")
        kind = family(facts.language)
        if kind == "python" and not before:
            return (), 0.0  # a bare name that no scope binds is built in, or bound at run time
        found = self._named.get((kind, name), ())
        if kind == "python":
            # Called on an object, so a function outside of classes is not meant.
            found = [symbol for symbol in found if symbol.kind != "function"]
        near = self._near_files(facts)
        close = [symbol for symbol in found if symbol.path in near]
        if kind != "python":
            bound = self._imported(facts, before, name)
            told = bound or self._certain_targets(facts, caller, before, close)
            if len(told) == 1:
                return told, 1.0
            close = list(bound) or close
        if close:
            return (tuple(close), NEAR / len(close)) if len(close) <= MOST else ((), 0.0)
        if found and len(found) <= MOST and name not in _COMMON:
            return tuple(found), FAR / len(found)
        return (), 0.0

    def _imported(self, facts: FileFacts, before: list[str], name: str) -> tuple[Symbol, ...]:
        """What an import of the file binds: the name itself, or the module that it is called on."""
        targets, original = self._bound[facts.path].get(before[-1] if before else name, (set(), None))
        wanted = name if before else original
        if wanted is None or (before and original is not None):
            return ()
        found = [s for s in self._named.get((family(facts.language), wanted), ()) if s.path in targets]
        return tuple([symbol for symbol in found if symbol.kind != "method"] or found)

    def _certain_targets(
        self, facts: FileFacts, caller: Symbol, before: list[str], close: list[Symbol]
    ) -> tuple[Symbol, ...]:
        """What is certainly meant outside Python: what fits, called bare or on what it is under."""
        holder = caller.qualified.rpartition(".")[0]
        rust = facts.language == "rust"
        own = [symbol for symbol in close if symbol.path == facts.path]
        if before and before[-1] in _SELVES:
            fits = (
                [symbol for symbol in own if symbol.qualified == f"{holder}.{symbol.name}"] if holder else []
            )
        elif before:
            fits = [
                symbol for symbol in close
                if before[-1] == symbol.qualified.rpartition(".")[0].rpartition(".")[2]
                or (rust and symbol.kind != "method" and before[-1] in _modules(symbol.path))
            ]  # fmt: skip
        else:
            beside = (
                [symbol for symbol in own if symbol.qualified == f"{holder}.{symbol.name}"] if holder else []
            )
            fits = beside or [symbol for symbol in own if symbol.kind != "method"] or [
                symbol for symbol in close if symbol.kind != "method"
            ]  # fmt: skip
        return tuple(fits) if len(fits) == 1 else ()

    def _near_files(self, facts: FileFacts) -> set[str]:
        known = self._near.get(facts.path)
        if known is None:
            known = {facts.path, *self._graph.successors(facts.path)}
            folder = self._folders[posixpath.dirname(facts.path)]
            if facts.language in ("go", "java"):
                known |= folder  # one package
            if family(facts.language) == "c":  # a header declares what a source of the same name defines
                for stem in {_stem(path) for path in known}:
                    pair = self._stems.get(stem, set())
                    known |= pair if len(pair) <= _PAIR else set()
            self._near[facts.path] = known
        return known


def _bound(links: Sequence[Link]) -> dict[str, tuple[set[str], str | None]]:
    """Name that imports bind in a file -> (files it comes from, its name there; None for a module itself)."""
    out: dict[str, tuple[set[str], str | None]] = {}
    for link in links:
        for name, bound in link.statement.names:
            whole = name in ("*", link.statement.module)
            targets, _ = out.setdefault(bound, (set(), None if whole else name))
            targets.update(link.targets)
    return out


def _stem(path: str) -> str:
    return posixpath.basename(path).rsplit(".", 1)[0]


def family(language: str | None) -> str:
    """Languages whose symbols can call each other, under one name."""
    groups = {"typescript": "javascript", "tsx": "javascript", "cpp": "c"}
    return groups.get(language or "", language or "")


def _modules(path: str) -> tuple[str, str]:
    """The names that a Rust file may have as a module."""
    folder, name = posixpath.split(path)
    return name.rsplit(".", 1)[0], posixpath.basename(folder)
