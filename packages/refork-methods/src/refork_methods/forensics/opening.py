"""A bench for a case from what a command line names: policy, world, grader, tree."""

from __future__ import annotations

from pathlib import Path

from refork.errors import BadInput
from refork.judge import Judge, MatchJudge
from refork.policies.base import Policy, Sampling
from refork.policies.open import open_policy
from refork.tree.node import Point
from refork.tree.tree import Tree
from refork.worlds.base import World
from refork.worlds.open import open_world
from refork_methods.forensics.bench import Bench, recorded_task, restart
from refork_methods.forensics.case import Case
from refork_methods.forensics.design import BASE, ArmPlan
from refork_methods.forensics.intervention import Intervention
from refork_methods.forensics.target import TargetJudge


def tree_file(case: Case) -> Path:
    """The tree that the incident names, else the one in the case's folder.

    Raises: BadInput for a case that has no folder and names no tree.
    """
    named, folder = case.incident.tree, case.folder
    if named is not None:
        path = Path(named)
        return path if path.is_absolute() or path.exists() or folder is None else folder / path
    if folder is None:
        raise BadInput("this case names no tree and has no folder", where=case.incident.name)
    return folder / "tree.db"


def world_of(case: Case, spec: str | None) -> World | None:
    """The world that is named, else the one of a motive scene; ``none`` for single turns."""
    scene = case.incident.environment.get("scene")
    if spec == "none" or (spec is None and not isinstance(scene, str)):
        return None
    return open_world(spec or f"motive:{scene}")


def grader_of(case: Case, pattern: str | None) -> Judge:
    """The grader that is the case's own: a pattern's, or what the world itself tells.

    Raises: BadInput where it is another one than the case names.
    """
    grader: Judge = TargetJudge() if pattern is None else MatchJudge(pattern, "target")
    wanted = case.incident.target.grader
    if grader.producer.id != wanted.id:
        raise BadInput(
            f"the case's rollouts are graded by {wanted.name!r} {wanted.config or ''}".rstrip(),
            where=case.incident.name,
            hint="--target-regex with the pattern that the case's file names: target = { grader = "
            '"match", grader_config = { pattern = "...", score = "target" } }',
        )
    return grader


def open_bench(
    case: Case,
    tree: Tree,
    policy: Policy | str,
    *,
    world: str | None = None,
    pattern: str | None = None,
    settings: Sampling | None = None,
    seed: int = 0,
) -> Bench:
    """What the arms of a case share.

    Raises: BadInput for another grader than the case's, or an environment that nothing can start.
    """
    inner = world_of(case, world)
    nodes = case.incident.nodes
    task = recorded_task(tree, nodes[0]) if nodes and inner is not None else None
    return Bench(
        tree, open_policy(policy) if isinstance(policy, str) else policy, grader_of(case, pattern),
        restart(inner, task), settings or Sampling(), seed,
    )  # fmt: skip


def rollout_of(case: Case, tree: Tree, node: str | None) -> Point:
    """The rollout to look into: the node that is named, else the incident's, else the first unedited hit.

    Raises: BadInput where there is none.
    """
    if node is not None:
        return tree.at(node)
    if case.incident.nodes:
        return tree.at(case.incident.nodes[-1])
    plain, unedited = ArmPlan(BASE, Intervention.none()).key, Intervention.none().id
    keys = [plain, *(key for key in case.state.draws if key[0] == unedited and key != plain)]
    for found in (o for key in keys for _, o in sorted(case.state.draws.get(key, {}).items())):
        if found.end == "hit" and found.node is not None and tree.has(found.node):
            return tree.at(found.node)
    raise BadInput(
        "no rollout of this case took the action yet",
        where=case.incident.name,
        hint="name one with --node, or run the base first: refork forensics controls",
    )
