"""A search as a rollout tree, so that ``refork tree`` shows, scores and exports it.

A kernel is a ``rewrite`` of the one before it: it carries the whole new text, who wrote it and why. The
search does not grow through :mod:`refork.growing`: that forks a policy's rollouts at tokens and counts
wins of leaves, while here every node is an outcome itself, is graded at once, and failing ones end subtrees.
"""

from __future__ import annotations

from pathlib import Path

from refork.plain import content_hash
from refork.tree.node import NewNode, node_id
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.kernel.search.folder import SearchNode, read_facts, read_history
from refork_methods.kernel.search.strategy import MOST, reward

VERSION = "1"


def record_on_tree(folder: Path, tree: Tree) -> list[str]:
    """Put a search's folder on a tree, as far as it went; the ids of its kernels by number.

    Again with a search that went on, what is new is added. Scores: ``reward`` of every kernel, ``speedup`` of
    those that are right.

    Raises:
        BadInput: it is not the folder of a search.
    """
    facts, history = read_facts(folder), read_history(folder)
    settings: Json = facts["settings"]
    most = float(settings.get("most", MOST))
    told = {name: facts[name] for name in ("settings", "writer", "problem")}
    # Without what may be changed on resuming: a search that went on must find its own root again.
    fixed = told | {"settings": {k: v for k, v in settings.items() if k not in ("evaluations", "finalists")}}
    key = f"kernel/{content_hash(fixed)[:16]}"
    name = str(facts["problem"].get("name", ""))
    drafts = [NewNode(kind="task", key=key, text=f"make {name} fast", origin="real", extra={"kernel": fixed})]
    above, ids = node_id(None, None, "task", key), list[str]()
    for node in history.nodes:
        draft = _draft(node, above if node.parent < 0 else ids[node.parent], str(facts["writer"]))
        drafts.append(draft)
        ids.append(node_id(draft.parent, None, draft.kind, str(draft.key)))
    producer = Producer("kernel:bench", VERSION, {"most": most})
    tree.append(drafts)
    tree.add_producer(producer)
    scores: list[Score] = []
    for node, at in zip(history.nodes, ids, strict=True):
        speedup = node.evaluated.speedup if node.evaluated.ok else None
        scores.append(Score(at, "reward", reward(speedup, most), producer.id))
        if speedup is not None:
            scores.append(Score(at, "speedup", speedup, producer.id))
    tree.add_scores(scores)
    return ids


def _draft(node: SearchNode, parent: str, writer: str) -> NewNode:
    made = node.proposal
    extra: Json = {
        "number": node.number,
        "source": node.candidate.digest,
        "flags": list(node.candidate.flags),
        "evaluated": node.evaluated.to_json(),
    }
    if made is not None:
        extra |= {"move": made.move, "why": made.why, "answers": list(made.answers)}
    return NewNode(
        kind="rewrite",
        parent=parent,
        key=f"kernel/{node.number}",
        text=node.candidate.source,
        policy=None if made is None else writer,
        origin="real",
        error=None if node.evaluated.ok else f"{node.evaluated.stage}: {node.evaluated.why}",
        extra=extra,
    )
