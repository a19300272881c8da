"""Imports between the files of a repository, resolved by each language's own rules."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import final

import networkx as nx

from refork_methods.localize.facts import FileFacts, Import
from refork_methods.localize.languages.resolve import OtherImports
from refork_methods.localize.snapshot import Snapshot

# Which files of the repository a Python import means.

_SUFFIXES = (".py", ".pyi", ".pyx")


@final
class PythonImports:
    """Finds modules in a set of files the way the import system would, from every folder it may start in.

    A file's own root comes first: the folder in which its chain of packages (folders with ``__init__``)
    begins. Then the repository's root and ``src``, then every other root, shortest first. Over all of them a
    package with ``__init__`` or a module hides folders without one (a namespace), whose parts are joined. A
    name of the standard library is looked for in the first three only. ``top``: the folder's own name, by
    which its files import each other where the snapshot is a package itself.
    """

    def __init__(self, files: Mapping[str, FileFacts], top: str | None = None) -> None:
        self._top = top if "__init__.py" in files else None
        self._files = {path: facts for path, facts in files.items() if path.endswith(_SUFFIXES)}
        self._folders: set[str] = set()
        for path in self._files:
            folder = posixpath.dirname(path)
            while folder not in self._folders:
                self._folders.add(folder)
                folder = posixpath.dirname(folder)
        self._root = cache(self._root_of)
        roots = {self._root(posixpath.dirname(path)) for path in self._files}
        roots |= {""} | ({"src"} & self._folders)
        first = {"": 0, "src": 1}
        self._roots = sorted(roots, key=lambda root: (first.get(root, 2), root.count("/"), root))
        self._absolute = cache(self._find_absolute)

    def _root_of(self, folder: str) -> str:
        while folder and self._module(posixpath.join(folder, "__init__")) is not None:
            folder = posixpath.dirname(folder)
        return folder

    def _module(self, stem: str) -> str | None:
        return next((stem + suffix for suffix in _SUFFIXES if stem + suffix in self._files), None)

    def targets(self, path: str, imported: Import) -> dict[str, tuple[str, ...]]:
        """Files that an import in a file means -> the names it binds from them (none for a module itself).

        A name of ``from`` that is a submodule means the submodule; any other means the module it is taken
        from.
        """
        home = self.find(path, imported.module, imported.level)
        out: dict[str, list[str]] = {} if home is None else {home: []}
        if imported.kind == "from":
            out = self._taken(path, imported, home)
        elif imported.kind == "star" and home is not None:
            inner = [self.submodule(home, name) for name in self._files[home].exports or ()]
            out = {found: [] for found in inner if found is not None} | {home: ["*"]}
        return {
            target: tuple(dict.fromkeys(names)) for target, names in sorted(out.items()) if target != path
        }

    def _taken(self, path: str, told: Import, home: str | None) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for name, _ in told.names:
            found = self.find(path, f"{told.module}.{name}" if told.module else name, told.level)
            if found is not None:
                out.setdefault(found, [])
            elif home is not None:
                out.setdefault(home, []).append(name)
        return out

    def find(self, path: str, module: str, level: int = 0) -> str | None:
        """The file that a module name means in a file; None for a namespace and for what is elsewhere."""
        if level == 0:
            return self._absolute(self._root(posixpath.dirname(path)), module)
        folder = posixpath.dirname(path)
        for _ in range(level - 1):
            if not folder:
                return None
            folder = posixpath.dirname(folder)
        if not module:
            return self._module(posixpath.join(folder, "__init__"))
        return self._search((folder,), module.split("."))

    def _find_absolute(self, own: str, module: str) -> str | None:
        parts = module.split(".")
        if not all(parts):
            return None
        if parts[0] == self._top:
            return self._search(("",), parts[1:]) if parts[1:] else "__init__.py"
        near = tuple(dict.fromkeys((own, "", "src")))
        if parts[0] in sys.stdlib_module_names:
            return self._search(near, parts)
        return self._search(tuple(dict.fromkeys((*near, *self._roots))), parts)

    def _search(self, folders: tuple[str, ...], parts: list[str]) -> str | None:
        """Part by part: the first package or module of the name, else every folder of that name."""
        found: str | None = None
        for part in parts:
            spaces: list[str] = []
            found = None
            for folder in folders:
                here = posixpath.join(folder, part)
                package = self._module(posixpath.join(here, "__init__"))
                found = package or self._module(here)
                if found is not None:
                    folders = (here,) if package is not None else ()
                    break
                # Only a part of a namespace: a later root may still hold the package itself.
                if here in self._folders:
                    spaces.append(here)
            else:
                folders = tuple(spaces)
            if found is None and not folders:
                return None
        return found

    def submodule(self, home: str, name: str) -> str | None:
        """The file of a package's submodule; None where the file is no package or has none of that name."""
        if not posixpath.basename(home).startswith("__init__."):
            return None
        return self._search((posixpath.dirname(home),), [name])


# Imports between the files of a repository, resolved by each language's own rules.


@final
@dataclass(frozen=True, slots=True)
class Link:
    """One import of a file and the files it means, each with the names taken from it."""

    statement: Import
    targets: dict[str, tuple[str, ...]]


@final
@dataclass(frozen=True, slots=True)
class ImportGraph:
    """``links``: path -> its imports that mean a file here; ``graph``: the same, all files being nodes."""

    links: dict[str, tuple[Link, ...]]
    graph: "nx.DiGraph[str]"
    python: PythonImports


def import_graph(files: Mapping[str, FileFacts], snapshot: Snapshot) -> ImportGraph:
    """Resolve every import; one that means nothing inside the repository is left out."""
    python = PythonImports(files, snapshot.root.name if snapshot.root is not None else None)
    others = OtherImports(files, snapshot)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(files)
    links: dict[str, tuple[Link, ...]] = {}
    for path, facts in files.items():
        if facts.language == "python":
            found = [Link(told, python.targets(path, told)) for told in facts.imports]
        else:
            found = [Link(told, others.targets(path, told)) for told in facts.imports]
        links[path] = tuple(link for link in found if link.targets)
        for link in links[path]:
            for target, names in link.targets.items():
                old = graph.get_edge_data(path, target, {"lines": (), "names": ()})
                lines = tuple(sorted({*old["lines"], link.statement.line}))
                graph.add_edge(path, target, lines=lines, names=tuple(dict.fromkeys((*old["names"], *names))))
    return ImportGraph(links, graph, python)
