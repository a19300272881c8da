"""The collapse report: which recorded groups teach nothing, and what group size would."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.growing.mass import Kind, gradient_mass, group_kind, group_rewards
from refork.growing.zero_variance import budget_curve, fit_beta
from refork.policies.base import Sampling
from refork.tree.node import Node, Trajectory
from refork.tree.tree import Tree
from refork.types import Json

SIZES = (2, 4, 8, 16, 32, 64, 128)
TARGETS = (0.5, 0.75, 0.9)


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """Rewards of one prompt's rollouts; ``independent`` are those that were drawn from the prompt itself."""

    id: str
    rewards: tuple[float, ...]
    independent: tuple[float, ...]
    difficulty: str | None = None


def sampled_under(trajectory: Trajectory) -> frozenset[tuple[object, ...]]:
    """The distributions that a path's turns were drawn from, as `Sampling.distribution`.

    What an edit put in was not drawn, and of some logs' turns it is not known: neither has settings.
    """
    said = [step.node.settings for step in trajectory if step.node.kind == "action"]
    return frozenset(Sampling.from_json(one).distribution for one in said if one is not None)


def groups_from_tree(tree: Tree, score: str = "success") -> list[RecordedGroup]:
    """The graded leaves of every task of a tree, what edits and changed forks led to left out.

    Draws under other sampling settings (another temperature, say) are a group of their own.

    Raises:
        BadInput: no graded task, or leaves of one task graded by different producers.
    """
    plain = {f.id: f for f in tree.forks() if f.change is None and "exclude_first" not in f.extra}
    # Nor what was forked below a changed fork's draws, however deep.
    start_of = {node.id: node.fork for node in tree.nodes({f.node for f in plain.values()})}
    while changed := [f for f, record in plain.items() if (start_of[record.node] or f) not in plain]:
        for one in changed:
            del plain[one]
    groups = []
    for task in tree.tasks():
        given: dict[str, set[str]] = {}
        for item in tree.scores(name=score, under=task):
            given.setdefault(item.node, set()).add(item.producer)
        leaves = [n for n in tree.nodes(given) if n.fork is None or n.fork in plain]
        if not leaves:
            continue
        # One producer must have graded all leaves of a task, or a difference may be one of scales.
        if not set.intersection(*(given[n.id] for n in leaves)):
            raise BadInput(
                f"the {score!r} scores of one task come from different producers, on scales of their own",
                where=f"task {task.id[:12]}",
                hint="retire one of them, or name a score that one producer gave",
            )
        common = set.intersection(*(given[n.id] for n in leaves))
        # By the world, else the newest: the order is that of registration.
        by = [p for p in tree.producers() if p.id in common]
        values = tree.score_map(
            score, [n.id for n in leaves], max(by, key=lambda p: p.name.startswith("world:")).id
        )
        at_root = {f for f, record in plain.items() if record.node == task.id}
        named = task.extra.get("task")
        recorded = named if isinstance(named, dict) else {}
        level = recorded.get("data", {}).get("difficulty")
        name = str((named if isinstance(named, str) else recorded.get("id")) or task.key)
        parts: dict[frozenset[tuple[object, ...]], list[Node]] = {}
        for node, path in zip(leaves, tree.paths([n.id for n in leaves]), strict=True):
            parts.setdefault(sampled_under(path), []).append(node)
        groups += [
            RecordedGroup(
                name if number == 1 else f"{name} (settings {number})",
                tuple(values[n.id] for n in part),
                tuple(values[n.id] for n in part if n.fork is None or n.fork in at_root),
                None if level is None else str(level),
            )
            for number, part in enumerate(parts.values(), start=1)
        ]
    if not groups:
        raise BadInput(
            f"no task of this tree has leaves with a {score!r} score",
            hint=f"--score names another; this tree has: {tree.named_scores()}",
        )
    return groups


def groups_from_jsonl(path: Path) -> list[RecordedGroup]:
    """Groups of a JSONL file: per line ``group`` and ``reward`` (one rollout) or ``rewards`` (all of them).

    ``difficulty`` and ``scorer`` are optional. Lines whose reward is null are ungraded and left out.

    Raises:
        BadInput: a line that is no such record, or a group with two scorers.
    """
    rewards: dict[str, list[float]] = {}
    scorers: dict[str, set[str]] = {}
    levels: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        name, values, row = _row(line, f"{path}:{number}")
        rewards.setdefault(name, []).extend(values)
        scorers.setdefault(name, set()).add(str(row.get("scorer", "")))
        if row.get("difficulty") is not None:
            levels[name] = str(row["difficulty"])
        if len(scorers[name]) > 1:
            raise BadInput(
                f"group {name!r} mixes the scales of the scorers {sorted(scorers[name])}",
                where=f"{path}:{number}",
            )
    if not rewards:
        raise BadInput("there are no groups", where=str(path))
    return [RecordedGroup(k, tuple(v), tuple(v), levels.get(k)) for k, v in rewards.items()]


def _row(line: str, where: str) -> tuple[str, list[float], Json]:
    try:
        row = json.loads(line)
        name = str(row["group"])
        given = row["rewards"] if "rewards" in row else [row["reward"]]
        return name, [float(v) for v in given if v is not None], row
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"not a rollout record: {error!r}", where=where, hint='{"group": "p1", "reward": 1.0}'
        ) from error


def zero_variance_report(
    groups: Sequence[RecordedGroup], *, passing: float = 1.0, graded: bool = False
) -> Json:
    """How the groups ended, their gradient mass, the budget curve, and the group size that would be needed.

    Args:
        groups: at least one, each with two rollouts or more.
        passing: the reward from which a rollout counts as a success.
        graded: rewards are on a scale of their own; -1, 0 and 1 may then stand in one group.

    Raises:
        BadInput: what :func:`refork.growing.mass.group_rewards` refuses, naming the group.
    """
    checked = [group_rewards(g.rewards, where=f"group {g.id}", graded=graded) for g in groups]
    kinds = [group_kind(r, passing, graded=graded) for r in checked]
    masses = [gradient_mass(r, graded=graded) for r in checked]
    rollouts = sum(len(r) for r in checked)
    rates = np.array([float((r >= passing).mean()) for r in checked])
    named = [g.difficulty or _level(rate) for g, rate in zip(groups, rates, strict=True)]
    report: Json = _shares(kinds) | {
        "rollouts": rollouts,
        "success": float(rates.mean()),
        "gradient_mass": {
            name: float(sum(getattr(m, name) for m in masses)) / rollouts
            for name in ("squared", "absolute", "centred")
        },
        "by_difficulty": {
            level: _shares([k for k, n in zip(kinds, named, strict=True) if n == level])
            for level in sorted(set(named))
        },
        "difficulty_is": "given" if any(g.difficulty for g in groups) else "the group's own success",
        "prompts": [
            {"group": g.id, "kind": k, "rollouts": len(r), "success": float(rate), "mass": m.squared}
            for g, k, r, rate, m in zip(groups, kinds, checked, rates, masses, strict=True)
        ],
    }
    return report | _planning(groups, passing)


def _planning(groups: Sequence[RecordedGroup], passing: float) -> Json:
    """Curve and needed sizes, from independent rollouts only."""
    counts = [
        (sum(v >= passing for v in g.independent), len(g.independent))
        for g in groups
        if len(g.independent) >= 2
    ]
    if len(counts) < 2:
        return {"curve": None, "law": None, "needed": None}
    won, drawn = zip(*counts, strict=True)
    distribution = fit_beta(won, drawn)
    return {
        "curve": [asdict(point) for point in budget_curve(won, drawn, SIZES, distribution)],
        "law": asdict(distribution),
        "needed": {f"{target:g}": distribution.required(target) for target in TARGETS},
    }


def _shares(kinds: Iterable[Kind]) -> Json:
    found = list(kinds)
    shares: Json = {"groups": len(found)}
    for kind in ("all-fail", "all-pass", "mixed"):
        name = kind.replace("-", "_")
        interval = stats.wilson(found.count(kind), len(found))
        shares[name] = found.count(kind)
        shares[f"{name}_share"] = [interval.estimate, interval.low, interval.high]
    return shares


def _level(rate: float) -> str:
    if math.isclose(rate, 0.0):
        return "never solved"
    if rate < 0.25:
        return "hard"
    return "easy" if rate > 0.75 else "middle"
