"""What the report shows, gathered from the job's results."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from refork import __version__, stats
from refork.forking import Effect, Sweep, trace_report
from refork.plain import from_json
from refork.report.data import EffectData, Gain, RateData, Trace
from refork.tree.node import Trajectory
from refork.types import Json
from refork_methods.credit.segments import walk_tree
from refork_methods.credit.siblings import leaf_mean_values, visit_counts
from refork_testbed.demo.data import CurvePoint, ReportData, Stage, TreeData, TreeNode

if TYPE_CHECKING:
    from refork_methods.train.loop import Update
    from refork_testbed.demo.flow import Demo

CODE = """\
point = tree.at(node, token={token})
base = fork(point, policy, draws={draws})
other = fork(point, policy, draws={draws}, change=Remove(tokens=1))
effect = compare(base, other, score="success")"""


def _rate(interval: stats.Interval, n: int) -> RateData:
    return RateData(rate=interval.estimate, low=interval.low, high=interval.high, n=n)


def report_data(
    demo: Demo,
    summary: Json,
    result: Sweep,
    effect: Effect,
    gain: stats.Difference,
    updates: Sequence[Update],
) -> ReportData:
    """The whole report as plain data."""
    recipe = demo.recipe
    cliff = result.points[result.steepest()]
    return ReportData(
        title="From one failed run to a better agent",
        command=summary["command"],
        world=demo.world.name,
        policy={"name": demo.policy.card.name, "weights": summary["weights_before"]},
        seconds=summary["seconds"],
        versions={"refork": __version__, "python": platform.python_version()},
        settings=recipe.model_dump(mode="json") | {"recipe": summary["recipe"]},
        curve=tuple(_curve(demo, updates)),
        before=_rate(demo.curve[0][1], demo.graded[0]),
        after=_rate(demo.curve[-1][1], demo.graded[-1]),
        gain=Gain(
            difference=gain.interval.estimate,
            low=gain.interval.low,
            high=gain.interval.high,
            p=gain.p,
            n=summary["tasks"],
            method=f"{gain.interval.method}, tasks paired",
        ),
        tree=_tree(demo, result),
        trace=from_json(Trace, trace_report(result)),
        effect=from_json(EffectData, _effect(effect)),
        stages=tuple(Stage(title=s.title, detail=s.detail, seconds=s.seconds) for s in demo.stages),
        code=CODE.format(token=cliff.keep + 1, draws=recipe.effect_draws),
    )


def _curve(demo: Demo, updates: Sequence[Update]) -> Iterator[CurvePoint]:
    train = {u.number: u.success for u in updates}
    for update, interval, tokens in demo.curve:
        note = f"{train[update]:.2f} on its training tasks" if update in train else None
        yield CurvePoint(
            update=update,
            success=interval.estimate,
            low=interval.low,
            high=interval.high,
            tokens=tokens,
            note=note,
        )


def _effect(effect: Effect) -> Json:
    data = effect.to_json()
    for arm in ("base", "other"):
        data[arm] = data[arm] | {"n": effect.draws}
    return data


def _tree(demo: Demo, result: Sweep) -> TreeData:
    """The swept task's tree before training: its rollouts, and the forks made along the failed one."""
    tree, root = demo.tree, result.trajectory.root
    trajectories = [
        trajectory
        for trajectory in tree.paths([node.id for node in tree.leaves(root.id)])
        if trajectory.leaf.kind == "verdict" and _drawn_by(trajectory, demo.weights[0])
    ]
    scored = tree.score_map("success", [trajectory.leaf.id for trajectory in trajectories])
    trajectories = [trajectory for trajectory in trajectories if trajectory.leaf.id in scored]
    index, parents, graded = walk_tree(
        trajectories, [scored[trajectory.leaf.id] for trajectory in trajectories]
    )
    values = leaf_mean_values(parents, graded)
    counts = visit_counts(parents, graded)
    on_trace = {step.node.id for step in result.trajectory}
    nodes = {step.node.id: step.node for trajectory in trajectories for step in trajectory}
    shown = [
        TreeNode(
            id=node.id,
            parent=node.parent,
            kind=node.kind,
            label=node.text,
            success=float(values[index[node.id]]),
            leaves=int(counts[index[node.id]]),
            on_trace=node.id in on_trace,
            forked=node.keep is not None,
        )
        for node in nodes.values()
    ]
    return TreeData(task=root.text, nodes=tuple(_around(shown, on_trace)))


def _drawn_by(trajectory: Trajectory, weights: str) -> bool:
    """Whether one policy drew all of it: the trained ones ran on the same tasks."""
    return all(s.node.weights in (None, weights) for s in trajectory if s.node.kind == "action")


def _around(nodes: list[TreeNode], on_trace: set[str], limit: int = 260) -> list[TreeNode]:
    """The nodes nearest to the swept trajectory: whole branches are left out, the smallest first."""
    near = [n for n in nodes if n.id in on_trace]
    # Stable: of a parent and an only child with as many leaves the parent comes first, and is kept first.
    rest = sorted((n for n in nodes if n.id not in on_trace), key=lambda n: -n.leaves)
    kept = {n.id for n in near}
    for node in rest:
        if len(kept) >= limit:
            break
        if node.parent in kept:
            kept.add(node.id)
    return [n for n in nodes if n.id in kept]
