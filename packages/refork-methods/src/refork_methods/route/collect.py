"""Labels by fork: at a turn of a recorded run swap only the worker, let the run go on, and see what it earns.

A label is what a worker is worth *in the harness*, at that turn, with the others' work before and after it.
The recorded worker's own arm is the control: the others' distance from it is the counterfactual effect of the
swap, paired draw by draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Literal, TypeAlias, final

import numpy as np

from refork import stats
from refork.errors import BadInput, ServerError
from refork.forking import Fork, SwapPolicy
from refork.forking.arm import ReadyArm, graded, prepare, run_jobs
from refork.forking.context import conversation
from refork.policies.base import Sampling
from refork.progress import Progress, silent
from refork.stats import Interval
from refork.tree.node import Point, Trajectory
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import World
from refork.worlds.open import recorded_world
from refork_methods.route.pool import WorkerPool
from refork_methods.route.relay import Relay, by_schedule
from refork_methods.route.runs import Failure, Labels, labels, outcomes, raw_lines, relay, speaker, turns_of
from refork_methods.route.table import Outcome, OutcomeTable

Rest: TypeAlias = Literal["recorded", "swapped"]
#: A score's name, or a function of a run and the number of the swapped turn (from 0).
Score: TypeAlias = str | Callable[[Trajectory, int], float | None]

#: Draws that run at once; a block is committed round by round.
_BLOCK = 512


@final
@dataclass(frozen=True, slots=True)
class SwapPoint:
    """One turn of one recorded run: where it begins, who said it, who said the turns after it."""

    query: str
    task: str
    turn: int
    point: Point
    worker: str
    rest: tuple[str, ...]
    settings: Sampling


@final
@dataclass(frozen=True, slots=True)
class SwapEffect:
    """What putting ``worker`` in the place of ``recorded`` does to the score, over ``points`` turns.

    ``effect`` is the mean over tasks of the paired differences, with its interval over tasks; None where
    there are fewer than two tasks.
    """

    recorded: str
    worker: str
    points: int
    tasks: int
    mean: float
    effect: Interval | None

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


@final
@dataclass(frozen=True, slots=True)
class Swaps:
    """In-harness outcomes of every worker at every turn, and the effects of the swaps."""

    table: OutcomeTable
    failures: tuple[Failure, ...]
    effects: tuple[SwapEffect, ...]
    points: tuple[SwapPoint, ...]


def recorded_runs(tree: Tree) -> list[Trajectory]:
    """The finished runs on a tree that begin at a task and were not changed on the way, in stored order.

    Arms of forks are left out, so labels that were collected are never labelled again.
    """
    found: list[Trajectory] = []
    for task in tree.tasks():
        grown = [record for record in tree.forks(task) if record.change is None]
        if grown:
            draws = [draw for record in grown for draw in tree.draws(record.id) if draw.end != "error"]
            found += tree.paths([draw.leaf for draw in draws])
        else:  # imported: nothing on the way was drawn by a fork
            trajectories = tree.paths([leaf.id for leaf in tree.leaves(task)])
            found += [
                trajectory
                for trajectory in trajectories
                if all(step.node.fork is None for step in trajectory)
            ]
    return found


def swap_points(
    tree: Tree,
    pool: WorkerPool,
    runs: Sequence[Trajectory],
    *,
    turns: Sequence[int] | None = None,
    rest: Rest = "recorded",
) -> list[SwapPoint]:
    """Every turn (or those numbered ``turns``) of recorded runs, each once for the workers that follow it.

    Raises: BadInput for a turn below 0 or whose worker is not in the pool, for no turn at all, and (with the
    recorded workers after it) for one whose following workers have opted out.
    """
    if turns is not None and min(turns, default=0) < 0:
        raise BadInput(f"there is no turn {min(turns)}", hint="turns are numbered from 0")
    found: dict[tuple[str, str, tuple[str, ...]], SwapPoint] = {}
    for trajectory in runs:
        said = turns_of(trajectory)
        names = [_named(nodes[0].policy, speaker(nodes[0], pool), nodes[0].id, pool) for nodes in said]
        for turn in range(len(said)) if turns is None else [t for t in turns if t < len(said)]:
            after = tuple(names[turn + 1 :]) if rest == "recorded" else ()
            gone = sorted(set(after) & pool.opted_out)
            if gone:
                raise BadInput(
                    f"worker {gone[0]!r} follows in this run and has opted out",
                    where=f"node {said[turn][0].id[:12]}",
                    hint="let the swapped worker finish the run: rest='swapped'",
                )
            first = said[turn][0]
            assert first.parent is not None  # an action follows a task at least
            # Before the first token of the turn, so that the swapped worker speaks all of it.
            point = tree.at(first.parent, first.keep)
            task = trajectory.root.extra.get("task")
            task = str((task.get("id") if isinstance(task, dict) else task) or trajectory.root.id[:12])
            query = f"{task}#{turn}/{trajectory.leaf.id[:12]}"
            # What a change forced on the recorded turn is not for the swapped worker.
            sampling = Sampling.from_json(first.settings or {}).but(forced=(), banned_first=())
            # Runs of one task share their beginning: the same turn with the same rest is one point.
            key = (point.address, names[turn], after)
            found.setdefault(key, SwapPoint(query, task, turn, point, names[turn], after, sampling))
    if not found:
        raise BadInput("there is no turn to swap a worker at", hint="record runs first, or name other turns")
    return list(found.values())


def _named(policy: str | None, worker: str | None, node: str, pool: WorkerPool) -> str:
    if worker is None:
        raise BadInput(
            f"the turn was said by {policy or 'nobody known'}, which is not one worker of the pool",
            where=f"node {node[:12]}",
            hint=f"workers: {', '.join(pool.names)}",
        )
    return worker


def label_by_fork(
    tree: Tree,
    pool: WorkerPool,
    *,
    runs: Sequence[Trajectory] | None = None,
    world: World | None = None,
    turns: Sequence[int] | None = None,
    draws: int = 8,
    rest: Rest = "recorded",
    score: Score = "reward",
    seed: int = 0,
    progress: Progress = silent,
) -> Swaps:
    """Outcomes of every open worker at every recorded turn, everything else left as it was.

    At each turn the run goes on ``draws`` times per worker, with that worker for the turn and (``rest``) the
    recorded workers, or the same one, for the turns after it. All arms of a turn share their noise. Draws on
    the tree are not done again: an interrupted call is finished by repeating it.

    Raises: BadInput for draws below 1, runs without a world, or as :func:`swap_points`; CannotDo where a
    worker has no policy; ServerError where no worker's server answers.
    Source: the labels of arXiv:2606.21228's first stage are standalone; taking them by fork is ours.
    """
    if draws < 1:
        raise BadInput(f"draws is {draws}; at least 1 is needed")
    trajectories = list(runs) if runs is not None else recorded_runs(tree)
    points = swap_points(tree, pool, trajectories, turns=turns, rest=rest)
    arms = _Arms(tree, pool, world, draws, seed)
    done = arms.run(points, progress)
    rows: list[Outcome] = []
    failures: list[Failure] = []
    values: dict[tuple[str, str], list[float | None]] = {}
    for point in points:
        before = tree.path(point.point)
        text = raw_lines(conversation(before).messages)
        for name in pool.open:
            arm = done[point.query, name]
            if isinstance(arm, str):
                failures += [Failure(point.query, name, draw, arm) for draw in range(draws)]
                values[point.query, name] = [None] * draws
                continue
            got = _values(arm, score, point.turn)
            values[point.query, name] = got
            more = outcomes(arm, point.query, name, pool, point.turn, got, text)
            rows += more[0]
            failures += more[1]
    collected: Labels = labels(rows, failures, pool.open)
    effects = swap_effects(points, pool.open, values)
    return Swaps(collected.table, collected.failures, tuple(effects), tuple(points))


def _values(arm: Fork, score: Score, turn: int) -> list[float | None]:
    return (
        arm.values(score)
        if isinstance(score, str)
        else arm.values(lambda trajectory: score(trajectory, turn))
    )


@dataclass(slots=True)
class _Arms:
    """Runs the arms of many points, those of one schedule of workers in one batch."""

    tree: Tree
    pool: WorkerPool
    world: World | None
    draws: int
    seed: int

    def run(self, points: Sequence[SwapPoint], progress: Progress) -> dict[tuple[str, str], Fork | str]:
        """The arm of every point and worker, or why its worker gave none.

        A worker whose server is down fails its own arms; the call fails where all of them did.
        """
        arms = [(point, name, (name, *point.rest)) for point in points for name in self.pool.open]
        # Arms of one schedule of speakers share a policy, so that they can be drawn in one batch.
        arms.sort(key=lambda arm: arm[2])
        worlds: dict[str, World] = {}
        size = max(_BLOCK // self.draws, 1)
        found: dict[tuple[str, str], Fork | str] = {}
        refused: ServerError | None = None
        told = _BatchProgress(progress, len(arms) * self.draws)
        for schedule, group in groupby(arms, key=lambda arm: arm[2]):
            policy = relay(
                self.pool, by_schedule(schedule), {"schedule": list(schedule)}, f"relay:{schedule[0]}"
            )
            mine = list(group)
            for start in range(0, len(mine), size):
                block = mine[start : start + size]
                jobs = [self._job(point, policy, worlds) for point, _, _ in block]
                told.begin(len(block) * self.draws, sum(len(job.branches) for job in jobs))
                try:
                    forks: Sequence[Fork | str] = [
                        self._own_draws(arm) for arm in run_jobs(jobs, progress=told)
                    ]
                except ServerError as error:
                    refused, forks = error, [str(error)] * len(block)
                found |= {
                    (point.query, name): arm for (point, name, _), arm in zip(block, forks, strict=True)
                }
        if refused is not None and all(isinstance(arm, str) for arm in found.values()):
            raise refused
        return found

    def _own_draws(self, arm: Fork) -> Fork:
        """The arm without draws that an earlier call wanted more of."""
        kept = tuple(draw for draw in arm.draws if draw.draw < self.draws)
        return Fork(self.tree, arm.record, arm.point, kept, arm.diff)

    def _job(self, point: SwapPoint, policy: Relay, worlds: dict[str, World]) -> ReadyArm:
        trajectory = self.tree.path(point.point)
        return prepare(
            point.point, policy, self.draws,
            change=SwapPolicy(policy), settings=point.settings,
            world=self._world(trajectory, worlds), seed=self.seed,
        )  # fmt: skip

    def _world(self, trajectory: Trajectory, worlds: dict[str, World]) -> World:
        if self.world is not None:
            return self.world
        spec = trajectory.root.extra.get("world")
        if not spec:
            raise BadInput(
                "this run records no world, so nothing can answer and grade its turns",
                where=f"task {trajectory.root.id[:12]}",
                hint="name the world",
            )
        return worlds.setdefault(str(spec), recorded_world(str(spec)))


@dataclass(slots=True)
class _BatchProgress:
    """One count over all batches, of which each tells its own from 0."""

    progress: Progress
    total: int
    ready: int = 0
    before: int = 0

    def begin(self, draws: int, missing: int) -> None:
        """A batch of ``draws`` begins, of which ``missing`` are still to be done."""
        self.before = self.ready + draws - missing
        self.ready += draws

    def __call__(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        if waiting is None:
            self.progress("forking workers", self.before + done, self.total, tokens=tokens)
        else:
            self.progress("", 0, 0, waiting=waiting)


def swap_effects(
    points: Sequence[SwapPoint],
    workers: Sequence[str],
    values: dict[tuple[str, str], list[float | None]],
) -> list[SwapEffect]:
    """Effects of every swap of a recorded worker by another, the turns of a task taken together.

    Pairs of draws of which one has no score are left out. The mean of each task counts once, whatever its
    number of turns, and the interval is over tasks: turns of one run are not independent.
    """
    gathered: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for point in points:
        if point.worker not in workers:
            continue
        base = graded(values[point.query, point.worker])
        for name in workers:
            other = graded(values[point.query, name])
            known = ~np.isnan(base + other)
            if name == point.worker or not known.any():
                continue
            pair = (float(base[known].mean()), float(other[known].mean()))
            gathered.setdefault((point.worker, name), {}).setdefault(point.task, []).append(pair)
    found = []
    for (recorded, name), tasks in sorted(gathered.items()):
        # A task counts once: its turns share a beginning and a grade.
        left, right = np.array([np.mean(pairs, axis=0) for pairs in tasks.values()]).T
        effect = stats.paired_difference(left, right).interval if left.size > 1 else None
        count = sum(len(pairs) for pairs in tasks.values())
        found.append(SwapEffect(recorded, name, count, left.size, float((right - left).mean()), effect))
    return found
