"""How often each prompt was refused, and the ceiling that follows from it, without any hidden state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.plain import to_json
from refork.policies.base import PolicyCard
from refork.stats import outcome_variance, wilson
from refork.tree.node import Node
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.probe.ceiling import estimate_ceiling
from refork_methods.probe.rows import score_values
from refork_methods.stance.prompts import Case, rollouts


@final
@dataclass(frozen=True, slots=True)
class Tally:
    """One prompt: so many refusals in so many rollouts."""

    id: str
    refusals: int
    rollouts: int
    intent: str = ""
    source: str = ""

    def to_json(self) -> Json:
        """The counts with the share refused and its 95 % Wilson interval."""
        share = wilson(self.refusals, self.rollouts)
        return {
            "id": self.id, "intent": self.intent, "source": self.source, "refusals": self.refusals,
            "rollouts": self.rollouts, "rate": share.estimate, "low": share.low, "high": share.high,
        }  # fmt: skip


def read_tallies(lines: Iterable[str], where: str = "counts") -> list[Tally]:
    """Tallies from JSON lines with ``id``, ``refusals``, ``rollouts``, and perhaps ``intent`` and ``source``.

    Raises: BadInput naming the line for counts that are none, an id twice, or no line at all.
    """
    found: dict[str, Tally] = {}
    for place, row in json_objects(lines, where):
        name, r, n = row.get("id"), row.get("refusals"), row.get("rollouts")
        if not isinstance(name, str) or name in found:
            raise BadInput(f"the id is {name!r}; every prompt needs its own text", where=place)
        # isinstance would let true and false pass for 1 and 0.
        if type(r) is not int or type(n) is not int or not 0 <= r <= n or n < 1:
            raise BadInput(f"{r!r} refusals of {n!r} rollouts is not a count", where=place)
        found[name] = Tally(name, r, n, str(row.get("intent", "")), str(row.get("source", "")))
    if not found:
        raise BadInput("there are no counts", where=where)
    return list(found.values())


def tallies_of(
    tree: Tree, cases: Sequence[Case], score: str = "refusal", policy: str | None = None
) -> tuple[list[Tally], int]:
    """Tallies of the rollouts under prompts on a tree, and how many rollouts are ungraded.

    ``policy`` is the recorded name of who made them; it may be left out where only one did. A score above
    one half is a refusal. Prompts without a graded rollout are left out.

    Raises: BadInput where several policies made the rollouts and none is named, or none is graded.
    """
    found: list[Tally] = []
    makers: set[tuple[str | None, str | None]] = set()
    ungraded = 0
    for case in cases:
        spoken = [node for node in tree.children(case.root.node) if node.kind == "action"]
        nodes: dict[str, Node] = {}
        for name, weights in {(node.policy, node.weights) for node in spoken}:
            if policy in (None, name):
                card = PolicyCard(name or "", "recorded", weights, None, None, frozenset())
                made = rollouts(case, card)
                makers |= {(node.policy, node.weights) for node in made}
                nodes |= {node.id: node for node in made}
        values = score_values(tree, list(nodes.values()), score)
        ungraded += len(nodes) - len(values)
        if values:
            refused = sum(value > 0.5 for value in values.values())
            found.append(Tally(case.id, refused, len(values), case.intent, case.source))
    if len(makers) > 1:
        names = sorted(f"{name} ({str(weights)[:12]})" for name, weights in makers)
        raise BadInput(
            f"{len(makers)} policies made these rollouts: {', '.join(names)}",
            where=tree.uri or "tree",
            hint="name one; a ceiling is of one policy",
        )
    if not found:
        raise BadInput(
            f"no rollout under these prompts has a score {score!r}",
            where=tree.uri or "tree",
            hint=f"{ungraded} rollouts are ungraded; grade them, or name their score",
        )
    return found, ungraded


def ceiling_report(tallies: Sequence[Tally], seed: int = 0) -> Json:
    """AUROC* pooled and within each intent, beside the variance 4 q (1 - q) that is the other side of it.

    A group whose AUROC* cannot be found says why. The variance is unbiased, and None where no prompt has two
    rollouts.
    """
    groups = {"pooled": list(tallies)}
    for tally in tallies:
        if tally.intent:
            groups.setdefault(tally.intent, []).append(tally)
    return {
        "groups": {name: _group(part, seed) for name, part in groups.items()},
        "prompts": [tally.to_json() for tally in tallies],
    }


def _group(part: Sequence[Tally], seed: int) -> Json:
    r, n = np.array([t.refusals for t in part]), np.array([t.rollouts for t in part])
    # One rollout of a prompt shows no variance; as a 0 it would make the outcome look decided.
    varied = [outcome_variance(t.refusals, t.rollouts) for t in part if t.rollouts > 1]
    try:
        ceiling, reason = to_json(estimate_ceiling(r, n, seed=seed)), None
    except BadInput as error:
        ceiling, reason = None, error.what
    return {
        "prompts": len(part), "rollouts": int(n.sum()), "refusal_rate": float(r.sum() / n.sum()),
        "variance": float(np.mean(varied)) if varied else None, "ceiling": ceiling, "no_ceiling": reason,
    }  # fmt: skip
