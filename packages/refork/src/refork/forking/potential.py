"""Fork every token (or turn) of a trace in one batch: where along it was success won or lost?

The value of a point is the chance that the policy, run on from there, succeeds. Estimating it at
every token from scratch costs ``tokens x draws`` continuations. But a draw that happens to say the
recorded next token *is* a draw from the next point. Whether it does is decided first, by a number
compared with the recorded probability of that token; only where a draw leaves the trace is it
sampled, given that its first token is not the recorded one. So every draw serves all the points it
passes, the distribution of each is exact, and all that remains to be sampled is known beforehand: one batch.

Source: token-wise potential is arXiv 2606.25524; the reuse and its unbiasedness are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo
from refork.forking.arm import ReadyArm, graded, prepare, recorded_settings, resolved_scores, run_jobs
from refork.forking.grading import need_grader
from refork.forking.settings import ForkOptions, ForkSettings, takes_fork_settings
from refork.judge import Judge
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of, uniforms
from refork.tree.node import Node, Point, Trajectory
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import Json

if TYPE_CHECKING:
    from refork.forking.backend import Backend

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Passage:
    """Which draws serve which points, before anything is sampled.

    ``start`` and ``leave`` [draws]: the first boundary a draw serves and the boundary at which it
    leaves the trace; ``leave == boundaries`` is a draw that says the whole trace again.
    """

    start: Ints
    leave: Ints

    def serving(self, boundary: int) -> NDArray[np.bool_]:
        """Draws that are exact draws from the given boundary."""
        return np.asarray((self.start <= boundary) & (boundary <= self.leave))


def first_passage(
    follow: Floats, wanted: NDArray[np.bool_], draws: int, noise: Callable[[int, int], Floats]
) -> Passage:
    """Decide where draws leave a trace, topping up to ``draws`` at every wanted boundary.

    ``follow`` [T]: probability that the trace's next token is said at each boundary. ``wanted`` [T]:
    boundaries whose value is asked for. ``noise(draw, T)``: uniforms in (0, 1), one per boundary.
    """
    length = len(follow)
    start: list[int] = []
    leave: list[int] = []
    active = 0
    gone = [0] * (length + 1)  # how many left at each boundary
    for boundary in range(length):
        if boundary:
            # Who leaves at a boundary still serves it: the token that leaves is drawn from there.
            active -= gone[boundary - 1]
        if not wanted[boundary]:
            continue
        # How many begin depends on where others left, never on how they ended, so it biases no value.
        for _ in range(draws - active):
            says = noise(len(start), length)[boundary:] < follow[boundary:]
            end = length if says.all() else boundary + int(np.argmin(says))
            start.append(boundary)
            leave.append(end)
            gone[end] += 1
        active = max(active, draws)
    return Passage(np.array(start, dtype=np.int64), np.array(leave, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Paired:
    """Score differences between draws of a point and draws of the next, all [points].

    Pair ``j`` compares point ``j`` with point ``j + 1``, the last one with the trace's own outcome.
    ``count`` graded pairs, ``total`` the sum of their differences, ``square`` that of their squares. A draw
    that serves both points is a pair whose difference is 0; one that leaves the trace between them is
    paired with one that begins behind it.
    """

    count: Ints
    total: Floats
    square: Floats

    def __add__(self, other: Paired) -> Paired:
        return Paired(self.count + other.count, self.total + other.total, self.square + other.square)

    def mean(self) -> Floats:
        """Mean difference, the drop of the value; NaN where no pair was graded."""
        return _mean(self.total, self.count)

    def error(self) -> Floats:
        """Standard error of the mean difference; NaN where fewer than two pairs were graded.

        For outcomes 0 and 1 with b pairs that fall and c that rise it is
        ``sqrt(b + c - (b - c)**2 / n) / n``: only discordant pairs carry noise.
        """
        count = np.maximum(self.count, 2)  # of fewer nothing is said
        spread = np.maximum(self.square - self.total**2 / count, 0.0)
        return np.where(self.count > 1, np.sqrt(spread) / count, np.nan)


def _mean(total: Floats, count: Ints) -> Floats:
    """Sums over their counts, NaN where nothing was counted."""
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values along one trace. ``points[j]`` has ``value[j]`` from ``count[j]`` graded draws.

    ``total[j]`` is the sum of their scores. ``outcome`` is what the trace itself scored. ``follow`` is the
    probability of every token of the trace under the distribution of the draws (0 where draws are not
    reused). ``sampled`` counts continuations really drawn, ``served`` the draws they stand for, ``simulated``
    is the share of the world's answers that a simulator gave. ``binary``: every score is 0 or 1, so that
    ``total`` counts successes. ``asked`` is what the values hang on beside policy, seed and draws.
    """

    trajectory: Trajectory
    points: tuple[Point, ...]
    total: Floats
    count: Ints
    outcome: float | None
    follow: Floats
    sampled: int
    served: int
    tokens: int
    seconds: float
    paired: Paired
    simulated: float = 0.0
    binary: bool = False
    asked: Json = field(default_factory=dict)

    @property
    def value(self) -> Floats:
        """Mean score per point, NaN where no draw was graded."""
        return _mean(self.total, self.count)

    def drops(self) -> Floats:
        """``value[j] - value[j+1]`` along the points, the trace's own outcome as the last value."""
        end = np.nan if self.outcome is None else self.outcome
        return np.asarray(-np.diff(np.append(self.value, end)))

    def steepest(self) -> int:
        """Index of the point after which the value falls most."""
        drops = self.drops()
        if np.isnan(drops).all():
            raise BadInput("no point of this trace could be graded")
        return int(np.nanargmax(drops))


def action_steps(trajectory: Trajectory) -> list[tuple[Node, int]]:
    """Sampled action nodes of a path's context with the number of tokens the path keeps of each."""
    found = []
    for step in trajectory.context:
        node = step.node
        if node.kind == "action" and node.tokens is not None and "edit" not in node.extra:
            found.append((node, node.length if step.keep is None else step.keep))
    return found


def _follow(policy: Policy, trajectory: Trajectory, settings: Sampling) -> Floats:
    """Probability of every kept action token under the distribution of ``settings``, 0 where it is not told.

    A recorded log-prob counts where it was taken under that distribution, of this policy's weights, and of a
    token that was free: a token that was forced, or drawn given that it is none of some others, leaves no
    chance that draws may be told by.
    """
    pieces: list[Floats] = []
    for node, keep in action_steps(trajectory):
        recorded = None if node.settings is None else Sampling.from_json(node.settings)
        told = (
            node.logprobs is not None
            and recorded is not None
            and _sampling_key(recorded) == _sampling_key(settings)
        )
        if told and _said_by(node, policy):
            assert node.logprobs is not None
            assert recorded is not None
            chance = np.exp(node.logprobs[:keep].astype(np.float64))
            # What is banned or excluded is so of the first free token, the one behind those that are forced.
            first = bool(recorded.banned_first) or "excluded_first" in node.extra
            chance[: len(recorded.forced) + first] = 0.0
        elif _sampling_key(settings) == _sampling_key(Sampling()):
            index = next(i for i, step in enumerate(trajectory.steps) if step.node.id == node.id)
            prefix = Trajectory(trajectory.steps[: index + 1]).tokens
            given = policy.logprobs([prefix])[0]
            chance = np.exp(given[len(prefix) - keep - 1 :].astype(np.float64))
        else:
            raise CannotDo(
                "this trace has no log-probs under the distribution it is to be swept with, "
                "so draws cannot be reused",
                where=f"node {node.id[:12]}",
                hint="sweep with its own settings, or with reuse=False",
            )
        pieces.append(chance)
    return np.minimum(np.concatenate(pieces), 1.0)


def _sampling_key(settings: Sampling) -> tuple[object, ...]:
    """What of some settings says how likely a free token is.

    A grammar says which ends of a turn may come when, so under one they belong to it.
    """
    grammar = settings.grammar
    ends = () if grammar is None else (tuple(sorted(settings.stop_ids)), settings.ignore_eos)
    return (settings.distribution, grammar, ends)


def _said_by(node: Node, policy: Policy) -> bool:
    """Whether a policy's own weights said a node, or nobody knows the weights of either."""
    if "worker" in node.extra:  # a member of a composed policy: the weights are the member's
        return True
    return node.weights == policy.card.weights


def token_chances(policy: Policy, trajectory: Trajectory, settings: Sampling | None = None) -> Floats:
    """Probability of every kept sampled token of a trajectory under the distribution it was drawn with, [T].

    That distribution is all of it: temperature, filters, bans and grammar. 0 where a token was forced, or
    drawn with others taken out.

    Raises:
        CannotDo: the record lacks log-probs under that distribution, or ``settings`` name another one.
    """
    steps = action_steps(trajectory)
    if not steps:
        raise BadInput("this trajectory holds no sampled action", where=f"node {trajectory.leaf.id[:12]}")
    return _follow(policy, trajectory, settings or recorded_settings(Point(steps[-1][0], 0), trajectory))


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep before anything is sampled: what it will cost is known already."""

    end: Point
    trajectory: Trajectory
    boundaries: tuple[Point, ...]
    wanted: NDArray[np.bool_]
    follow: Floats
    passage: Passage
    outcome: float | None
    score: str
    arms: _Shared
    asked: Json

    @property
    def terms(self) -> Json:
        """What the values hang on, beside policy, seed and draws."""
        on = self.arms.on
        return self.asked | {
            "end": self.end.address,
            "score": self.score,
            "settings": None if on.settings is None else on.settings.to_json(),
            "world": None if on.world is None else [on.world.name, on.world.version],
            "simulator": None if on.simulator is None else on.simulator.identity,
            "judge": None if on.judge is None else on.judge.producer.id,
            "max_turns": on.max_turns,
        }

    @property
    def continuations(self) -> int:
        """Continuations that the sweep needs; those on the tree already are counted too."""
        left = int((self.passage.leave < len(self.boundaries)).sum())
        return left + (len(self.whole) if self.runs_on else 0)

    @property
    def whole(self) -> list[int]:
        """Draws that say the whole trace again."""
        return [int(i) for i in np.flatnonzero(self.passage.leave == len(self.boundaries))]

    @property
    def runs_on(self) -> bool:
        """Whether the trace is unfinished, so that draws that said all of it run on from its end."""
        return self.outcome is None and bool(self.whole) and not _over(self.end, self.arms.answered)


@takes_fork_settings
def plan_sweep(
    end: Point,
    policy: Policy,
    draws: int = 64,
    *,
    every: str = "token",
    at: Collection[int] | None = None,
    score: str = "success",
    reuse: bool = True,
    **options: Unpack[ForkOptions],
) -> SweepPlan:
    """Decide which draws serve which points; nothing is sampled and nothing written.

    ``every``: ``token`` or ``turn``; ``at``: the numbers of the boundaries to value instead (counted over
    all the policy's tokens of the trajectory). In a world with chance of its own, draws are reused within a
    turn only.

    Raises:
        BadInput: nothing to sweep, an unknown ``every``, a boundary that is not there, or nobody who grades.
        CannotDo: log-probs that reuse needs are missing.
    """
    on = ForkSettings(**options)
    tree, trajectory, steps = _trace(end, draws, every)
    need_grader(score, on.world, on.judge, f"node {end.node.id[:12]}")
    bare = not steps
    if bare:
        # Nobody recorded token ids: a turn can be valued where it begins, which is where the messages end.
        boundaries, reuse = _openings(trajectory, tree), False
    else:
        boundaries = [Point(node, t, tree) for node, keep in steps for t in range(keep)]
    if at is None and bare:
        wanted = np.ones(len(boundaries), dtype=np.bool_)
    elif at is None:
        wanted = np.array([every == "token" or p.keep == 0 for p in boundaries])
    else:
        outside = [b for b in at if not 0 <= b < len(boundaries)]
        if outside or not at:
            raise BadInput(
                f"boundary {outside[0]} is not on this trace" if outside else "no boundary is asked for",
                hint=f"boundaries are 0 to {len(boundaries) - 1}",
            )
        wanted = np.isin(np.arange(len(boundaries)), np.array(sorted(at)))
    sampling = on.settings or recorded_settings(Point(steps[-1][0], 0, tree) if steps else end, trajectory)
    follow = _follow(policy, trajectory, sampling) if reuse else np.zeros(len(boundaries))
    if not bare and (on.simulator is not None or (on.world is not None and not on.world.deterministic)):
        # At a turn's last token all draws leave: behind it the world's chance is each draw's own.
        follow[np.cumsum([keep for _, keep in steps]) - 1] = 0.0
    stream = stream_of("passage", end.address)
    # One distribution for every arm: the one under which the chances of the trace's tokens were taken.
    shared = _Shared(policy, on if bare else replace(on, settings=sampling))

    def noise(draw: int, length: int) -> Floats:
        return np.asarray(uniforms([NoiseKey(on.seed, stream, draw)], length)[0])

    return SweepPlan(
        end,
        trajectory,
        tuple(boundaries),
        wanted,
        follow,
        first_passage(follow, wanted, draws, noise),
        # What a turn scored is no outcome of its beginning.
        None if end.mid_node else _outcome(end, tree, trajectory, score, shared),
        score,
        shared,
        {"at": every if at is None else sorted({int(b) for b in at}), "reuse": reuse},
    )


def run_sweep(
    plan: SweepPlan,
    *,
    judge: Judge | None = None,
    progress: Progress = silent,
    backend: Backend | None = None,
) -> Sweep:
    """Sample what a plan needs and hand every score to the points its draw serves."""
    passage, shared, whole = plan.passage, plan.arms, plan.whole
    jobs, owners = _departures(list(plan.boundaries), passage, plan.follow, shared, backend)
    if plan.runs_on:
        jobs.append(shared.arm(plan.end, whole, None, backend))
        owners.append(set(whole))
    forks = run_jobs(jobs, judge=judge, progress=progress, stage="sweeping", backend=backend)
    values = np.full(len(passage.start), np.nan)
    if plan.outcome is not None:
        values[whole] = plan.outcome
    for arm, mine in zip(forks, owners, strict=True):
        for record, value in zip(arm.draws, graded(arm.values(plan.score)), strict=True):
            # The arm may hold draws of an earlier sweep, which left the trace here by another passage.
            if record.draw in mine:
                values[record.draw] = value
    asked = np.flatnonzero(plan.wanted)
    total, count, served = _serve(passage, asked, values)
    return Sweep(
        plan.trajectory,
        tuple(p for p, w in zip(plan.boundaries, plan.wanted, strict=True) if w),
        total,
        count,
        plan.outcome,
        plan.follow,
        sampled=plan.continuations,
        served=served,
        tokens=sum(f.tokens for f in forks),
        seconds=sum(f.seconds for f in forks),
        paired=pair_up(passage, asked, values, plan.outcome),
        simulated=sum(f.simulated * len(f.draws) for f in forks) / max(sum(len(f.draws) for f in forks), 1),
        binary=bool(np.isin(values[~np.isnan(values)], (0.0, 1.0)).all()),
        asked=plan.terms,
    )


@takes_fork_settings
def sweep(
    end: Point,
    policy: Policy,
    draws: int = 64,
    *,
    every: str = "token",
    at: Collection[int] | None = None,
    score: str = "success",
    reuse: bool = True,
    **options: Unpack[ForkOptions],
) -> Sweep:
    """Value of every token boundary (or every turn's beginning) of the trajectory that ends at ``end``.

    Point ``j`` stands before token ``j`` of the policy's tokens. Arguments as in :func:`plan_sweep`.

    Raises:
        BadInput: nothing to sweep, an unknown ``every``, or a boundary that is not there.
        CannotDo: log-probs that reuse needs are missing.
    """
    plan = plan_sweep(end, policy, draws, every=every, at=at, score=score, reuse=reuse, **options)
    on = ForkSettings(**options)
    return run_sweep(plan, judge=on.judge, progress=on.progress, backend=on.backend)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all arms of a sweep have in common."""

    policy: Policy
    on: ForkSettings

    @property
    def answered(self) -> bool:
        """Whether somebody answers a turn that is whole."""
        return self.on.world is not None or self.on.simulator is not None

    def arm(
        self, point: Point, draws: list[int], exclude_first: int | None, backend: Backend | None
    ) -> ReadyArm:
        """An arm with a stream of its own: what decided the passage must not decide what follows."""
        return prepare(
            point, self.policy, draws, exclude_first=exclude_first,
            stream=stream_of("sweep", point.address), **replace(self.on, backend=backend).options(),
        )  # fmt: skip


def _departures(
    boundaries: list[Point], passage: Passage, follow: Floats, shared: _Shared, backend: Backend | None
) -> tuple[list[ReadyArm], list[set[int]]]:
    """An arm per boundary where draws leave the trace, and the draws it holds."""
    jobs, owners = [], []
    for boundary in np.unique(passage.leave[passage.leave < len(boundaries)]):
        leavers = [int(i) for i in np.flatnonzero(passage.leave == boundary)]
        # Where no draw may follow the trace, its next token is as good as any other.
        token = _token(boundaries[boundary]) if follow[boundary] > 0 else None
        jobs.append(shared.arm(boundaries[boundary], leavers, token, backend))
        owners.append(set(leavers))
    return jobs, owners


def _trace(end: Point, draws: int, every: str) -> tuple[Tree, Trajectory, list[tuple[Node, int]]]:
    if every not in ("token", "turn"):
        raise BadInput(f"every is {every!r}; it is 'token' or 'turn'")
    if draws < 1:
        raise BadInput(f"draws is {draws}; at least 1 is needed")
    if end.tree is None:
        raise BadInput("this point belongs to no tree; take it with tree.at(node)")
    trajectory = end.tree.path(end)
    steps = action_steps(trajectory)
    if steps and any(step.node.kind == "action" and step.node.tokens is None for step in trajectory.context):
        # Token ids of some turns only: their turns are valued alike, where the messages end.
        steps = [] if every == "turn" else steps
    if not steps and not _openings(trajectory, end.tree):
        raise BadInput("this trajectory holds no sampled action to sweep", where=f"node {end.node.id[:12]}")
    if not steps and every == "token":
        raise CannotDo(
            "this trace was recorded without token ids, so its tokens cannot be swept",
            where=f"node {end.node.id[:12]}",
            hint="--every turn sweeps its messages; `tree import --policy` tokenises a log",
        )
    return end.tree, trajectory, steps


def _openings(trajectory: Trajectory, tree: Tree) -> list[Point]:
    """Where the turns of a trajectory's context begin: the end of what stands before each."""
    return [
        Point(before.node, before.keep, tree)
        for before, step in pairwise(trajectory.context)
        if step.node.kind == "action" and before.node.kind != "action"
    ]


def _outcome(end: Point, tree: Tree, trajectory: Trajectory, score: str, shared: _Shared) -> float | None:
    """What a trace scored by the rule for its draws: this call's judge, else the world, else the newest.

    None where somebody answers and the trace goes on: what it scored so far is no outcome of it.
    """
    if shared.answered and end.node.kind != "verdict" and not _ends_log(end, tree):
        return None
    judge, leaf = shared.on.judge, trajectory.leaf.id
    if judge is None or judge.score != score:
        return resolved_scores(tree, score, [leaf]).get(leaf)
    said = tree.score_map(score, [leaf], judge.producer.id).get(leaf)
    if said is None:
        said = judge.judge(trajectory).value
    if said is None:
        return resolved_scores(tree, score, [leaf], (judge.producer.id, score)).get(leaf)
    return said


def _ends_log(end: Point, tree: Tree) -> bool:
    """Whether a log ends here; draws of forks are no part of it."""
    return end.node.fork is None and all(node.fork is not None for node in tree.children(end.node))


def _over(end: Point, answered: bool) -> bool:
    """Whether nothing can follow: the world has spoken its verdict, or nobody answers a whole turn."""
    node = end.node
    whole = node.kind == "action" and not end.mid_node and node.finish is not None
    return node.kind == "verdict" or (whole and not answered)


def _token(point: Point) -> int:
    assert point.node.tokens is not None
    return int(point.node.tokens[point.keep])


def _serve(passage: Passage, wanted: Ints, values: Floats) -> tuple[Floats, Ints, int]:
    """Hand every draw's score to all the boundaries it served: sums, graded counts, draws served."""
    total = np.zeros(len(wanted))
    count = np.zeros(len(wanted), dtype=np.int64)
    served = 0
    for j, boundary in enumerate(wanted):
        mine = values[passage.serving(int(boundary))]
        known = mine[~np.isnan(mine)]
        total[j], count[j] = known.sum(), len(known)
        served += len(mine)
    return total, count, served


def pair_up(passage: Passage, wanted: Ints, values: Floats, outcome: float | None) -> Paired:
    """Pairs of draws of neighbouring points; a draw that serves both is its own partner.

    ``wanted`` [points]: boundaries; ``values`` [draws]: scores, NaN where ungraded. An ungraded draw leaves
    with its partner. Where more draws leave than begin (or the other way round), the surplus has none.
    """
    count = np.zeros(len(wanted), dtype=np.int64)
    total, square = np.zeros(len(wanted)), np.zeros(len(wanted))
    for j, boundary in enumerate(wanted):
        here = passage.serving(int(boundary))
        if j + 1 == len(wanted):
            difference = values[here] - (np.nan if outcome is None else outcome)
        else:
            there = passage.serving(int(wanted[j + 1]))
            left, begun = values[here & ~there], values[there & ~here]
            pairs = min(len(left), len(begun))
            stayed = values[here & there]
            # Not zeros: where a draw is ungraded, NaN - NaN keeps its pair out of the count.
            difference = np.concatenate([stayed - stayed, left[:pairs] - begun[:pairs]])
        known = difference[~np.isnan(difference)]
        count[j], total[j], square[j] = len(known), known.sum(), (known**2).sum()
    return Paired(count, total, square)


def potential_scores(result: Sweep, policy: Policy, seed: int, draws: int) -> tuple[Producer, list[Score]]:
    """The sweep as scores: ``potential`` per token of each action node, the value before that token.

    The value of a whole turn, of which no token ids are known, is none of a token's and is left out. The
    producer says all that the values hang on, so that another sweep of the node is another's word.
    """
    card = policy.card
    who: Json = {"policy": card.weights or card.name, "seed": seed, "draws": draws, "points": "before token"}
    producer = Producer("sweep", "1", who | result.asked)
    by_node: dict[str, Floats] = {}
    for point, value in zip(result.points, result.value, strict=True):
        if not point.mid_node:
            continue
        row = by_node.setdefault(point.node.id, np.full(point.node.length, np.nan))
        row[point.keep] = value
    # A node with a token nobody graded gets no score: an array holds numbers only.
    known = {node: row for node, row in by_node.items() if not np.isnan(row).any()}
    return producer, [Score(node, "potential", row, producer.id) for node, row in known.items()]
