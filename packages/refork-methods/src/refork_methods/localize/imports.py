"""Imports between the files of a repository, resolved by each language's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import networkx as nx

from refork_methods.localize.facts import FileFacts, Import
from refork_methods.localize.imports_python import PythonImports
from refork_methods.localize.languages.resolve import OtherImports
from refork_methods.localize.snapshot import Snapshot


@final
@dataclass(frozen=True, slots=True)
class Link:
    """One import of a file and the files it means, each with the names taken from it."""

    told: Import
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
                lines = tuple(sorted({*old["lines"], link.told.line}))
                graph.add_edge(path, target, lines=lines, names=tuple(dict.fromkeys((*old["names"], *names))))
    return ImportGraph(links, graph, python)
