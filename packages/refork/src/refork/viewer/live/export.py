"""The viewer's page as one file to share: everything it may ask is asked now and lies inside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from refork import __version__
from refork.errors import BadInput, CannotDo
from refork.registry import part
from refork.tree.browse import Filter
from refork.tree.node import Node
from refork.tree.view import TreeView
from refork.types import Json
from refork.viewer.live import answers
from refork.viewer.live.page import shared_page
from refork.viewer.live.shelf import Shelf

#: Nodes and bytes that one file holds at most: a browser reads it at once.
NODES: Final = 20_000
BYTES: Final = 64 << 20
#: Branches of a fork that are compared with each other, and comparisons in all.
COMPARED: Final = 6
DIFFS: Final = 2000
_HTML: Final = b"<!doctype html"


def export_page(shelf: Shelf, file: Path, tasks: Sequence[str] = (), scores: Sequence[str] = ()) -> Json:
    """Write one tree's page (all tasks, or those named) into a file that needs no network; what was written.

    Raises:
        BadInput: several trees, an unknown task or score, too much for one file, or a target that is no page.
        CannotDo: the file cannot be written.
    """
    if shelf.only is None:
        raise BadInput("one file holds one tree", hint="name a single tree file")
    _check_target(file)
    view = shelf.view(shelf.only.name)
    chosen = _tasks(view, tasks)
    nodes = list(_nodes(view, chosen))
    shared = _shared(view, shelf.only.name, chosen, nodes, _scores(view, scores))
    page = shared_page({"mode": "shared", "refork": __version__, "shared": shared}).encode()
    if len(page) > BYTES:
        raise BadInput(
            f"the file would take {len(page):,} bytes; at most {BYTES:,} are written",
            hint="name some tasks (--task) or one score (--score)",
        )
    _write(file, page)
    return {"file": str(file), "tasks": len(chosen), "nodes": len(nodes), "bytes": len(page)}


def _check_target(file: Path) -> None:
    """Refuse to write over what is no page: a tree, say."""
    if not file.exists():
        return
    try:
        with file.open("rb") as old:
            # An empty file holds nothing that a page could take away.
            page = old.read(len(_HTML)).lower() in (_HTML, b"")
    except OSError as error:
        raise CannotDo(f"the target cannot be read: {error.strerror}", where=str(file)) from error
    if not page:
        raise BadInput("this file exists and is no HTML page", where=str(file), hint="choose another name")


def _tasks(view: TreeView, wanted: Sequence[str]) -> list[Node]:
    if not wanted:
        return list(view.tree.tasks())
    found = [view.tree.node(name) for name in dict.fromkeys(wanted)]
    for node in found:
        if node.parent is not None:
            raise BadInput("this node is no task", where=f"node {node.id[:12]}", hint="`refork tree list`")
    return found


def _scores(view: TreeView, wanted: Sequence[str]) -> list[str]:
    known = view.score_names()
    for name in wanted:
        if name not in known:
            raise BadInput(
                f"no score {name!r} in this tree", hint=f"scores here: {', '.join(known) or 'none'}"
            )
    return list(dict.fromkeys(wanted)) or known


def _nodes(view: TreeView, tasks: Sequence[Node]) -> Iterator[Node]:
    count = 0
    for task in tasks:
        for node in view.tree.walk(task):
            count += 1
            if count > NODES:
                raise BadInput(
                    f"these tasks have more than {NODES:,} nodes, which is what one file holds",
                    hint="name some of them: --task ID (`refork tree list` prints ids)",
                )
            yield node


def _shared(
    view: TreeView, name: str, tasks: Sequence[Node], nodes: Sequence[Node], scores: Sequence[str]
) -> Json:
    """Every answer, by what the page asks."""
    ids = {task.id for task in tasks}
    page = answers.tasks(view, Filter(), "written", 0, len(view.tree), scores[0] if scores else None)
    listed = [one for one in page["tasks"] if one["id"] in ids]
    facts = answers.tree(view, name) | {"scores": list(scores), "nodes": len(nodes)}
    shapes, lines = _outlines(view, tasks, scores)
    forks = [node.id for node in nodes if sum(view.branch_counts([node.id]).get(node.id, {}).values()) > 1]
    named = [*scores] or [""]
    branches = {f"{n}|{s}": answers.branches(view, n, s or None) for n in forks for s in named}
    effects, cards = _effects(view, {node.id: task for node, task in _owners(view, tasks)}, scores)
    return {
        "tree": facts,
        "tasks": page | {"tasks": listed, "total": len(listed), "all": len(listed)},
        "shapes": shapes,
        "lines": lines,
        "nodes": _texts(view, nodes),
        "branches": branches,
        "diffs": _diffs(view, [branches[f"{node}|{named[0]}"]["branches"] for node in forks]),
        "effects": effects,
        "effect": cards,
        "versions": {n: answers.versions(view, n, 0, 100) for n in view.all_score_names()},
        "said": {node.id: told for node in nodes if (told := answers.node_scores(view, node.id))["scores"]},
        "graph": _graphs(view, tasks, scores),
    }


def _owners(view: TreeView, tasks: Sequence[Node]) -> Iterator[tuple[Node, str]]:
    for task in tasks:
        for node in view.tree.walk(task):
            yield node, task.id


def _outlines(view: TreeView, tasks: Sequence[Node], scores: Sequence[str]) -> tuple[Json, Json]:
    """Shapes and all lines of each task, for each score, joined and not."""
    shapes: Json = {}
    lines: Json = {}
    for task in tasks:
        ids = [node.id for node in view.tree.walk(task)]
        for score in scores or [""]:
            for joined in (True, False):
                found = view.lines(task.id, score or None, joined=joined)
                key = f"{task.id}|{score}|{int(joined)}"
                shapes[key] = answers.shape(found, view.version())
                told: list[Json] = []
                for start in range(0, len(found), 500):
                    wanted = range(start, min(start + 500, len(found)))
                    told += answers.window(view, found, wanted)["lines"]
                for line, start, span in zip(told, found.starts.tolist(), found.spans.tolist(), strict=True):
                    line["nodes"] = ids[start : start + span]
                lines[key] = told
    return shapes, lines


def _texts(view: TreeView, nodes: Sequence[Node]) -> Json:
    found: Json = {}
    for start in range(0, len(nodes), answers.NODES):
        part = [node.id for node in nodes[start : start + answers.NODES]]
        for node in answers.nodes(view, part)["nodes"]:
            # A file has no second page: what a long step says at once is what it holds.
            found[node["id"]] = node | {"next": None, "left_out": node["next"] is not None}
    return found


def _diffs(view: TreeView, forks: Sequence[Sequence[Json]]) -> Json:
    found: Json = {}
    for branches in forks:
        leaves = [branch["leaf"] for branch in branches[:COMPARED]]
        for left, right in combinations(leaves, 2):
            if len(found) + 2 > DIFFS:
                return found
            found[f"{left}|{right}"] = answers.diff(view, left, right)
            found[f"{right}|{left}"] = answers.diff(view, right, left)
    return found


def _effects(view: TreeView, owner: dict[str, str], scores: Sequence[str]) -> tuple[Json, Json]:
    told = answers.effects(view, None, owner)
    told["pairs"] = [one | {"task": owner[one["node"]]} for one in told["pairs"]]
    cards: dict[str, Any] = {}
    for one in told["pairs"]:
        for score in scores or ["success"]:
            key = f"{one['control']}|{one['changed']}|{score}"
            cards[key] = answers.effect(view, one["control"], one["changed"], score)
    return told, cards


def _graphs(view: TreeView, tasks: Sequence[Node], scores: Sequence[str]) -> Json:
    """The merged states of each task; a task that has no graded rollout has none."""
    found: Json = {}
    for task in tasks:
        for score in scores:
            try:
                found[f"{task.id}|{score}"] = part("view.graph")(view, task.id, score)
            except BadInput:
                continue
    return found


def _write(file: Path, data: bytes) -> None:
    """The whole file or none of it."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        fresh.write_bytes(data)
        fresh.replace(file)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise CannotDo(f"the page cannot be written: {error.strerror}", where=str(file)) from error
