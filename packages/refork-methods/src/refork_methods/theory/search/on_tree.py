"""A search as a rollout tree: theories with their parents, verdicts, and scores by who gave them.

A theory is a ``rewrite`` of the one whose slot it took: it carries the whole new text. Absolute scores are of
the producer ``theory:prior-predictive``; relative ones of ``theory:leaderboard``, one producer for each
round, since admitting a theory moves everybody's.
"""

from __future__ import annotations

from refork.plain import content_hash
from refork.tree.node import NewNode, node_id
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.theory.search.loop import TheorySearch

VERSION = "1"


def record_on_tree(search: TheorySearch, tree: Tree) -> dict[str, str]:
    """Put a search on a tree, as far as it went; the node of each label.

    Again with a search that went on, what is new is added.
    """
    facts = search.facts()
    key = f"theory/{content_hash(facts)[:16]}"
    text = f"find a theory of {search.domain.name} for {search.participants.name}"
    drafts = [NewNode(kind="task", key=key, text=text, origin="real", extra={"theory": facts})]
    top = node_id(None, None, "task", key)
    origin = "simulated" if search.participants.name.startswith("simulated") else "real"
    ids: dict[str, str] = {}
    for label, spec in search.theories.items():
        parent = search.parents[label]
        above = top if parent is None else ids[parent]
        theory = spec.theory(search.domain)
        drafts.append(
            NewNode(
                kind="rewrite",
                parent=above,
                key=f"theory/{label}",
                text=theory.to_yaml() if theory is not None else spec.title(search.domain),
                policy=None if parent is None else search.scientist.name,
                origin="real",
                extra={
                    "label": label,
                    "spec": spec.to_json(),
                    "title": spec.title(search.domain),
                    **_verdict(search, label),
                },
            )
        )
        ids[label] = node_id(above, None, "rewrite", f"theory/{label}")
    tree.append(drafts)
    producer = Producer("theory:prior-predictive", VERSION, {"settings": facts["settings"], "people": origin})
    tree.add_producer(producer)
    scores: list[Score] = []
    for label, rows in search.predicted.items():
        for one, row in zip(search.observed, rows, strict=True):
            scores.append(Score(ids[label], f"mse_pb/{one.name}", row.mse_pb, producer.id))
            if row.value is not None:
                scores.append(Score(ids[label], f"statistic/{one.name}", row.value, producer.id))
            if row.order is not None:
                scores.append(Score(ids[label], f"lag_1_error/{one.name}", row.order, producer.id))
    for number, standing in enumerate(search.pool.replay(), 1):
        relative = Producer("theory:leaderboard", VERSION, {"round": number, "search": key}, (producer.id,))
        tree.add_producer(relative)
        for label, value in standing.scores.items():
            scores.append(Score(ids[label], f"leaderboard/round {number}", value, relative.id))
    tree.add_scores(scores)
    return ids


def _verdict(search: TheorySearch, label: str) -> Json:
    """The verdict that made room for a theory, and why; nothing for a seed."""
    for key in search.record_keys("admitted"):
        number = key.partition("/")[0]
        ruled, admitted = search.record.get(f"{number}/verdict"), search.record.get(key)
        if ruled and admitted and admitted["label"] == label:
            return {"round": int(number), "ruling": ruled["ruling"], "why": ruled["why"]}
    return {}
