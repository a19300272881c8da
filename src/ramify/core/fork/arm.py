"""The one operation: go back to a point, change one thing, let the agent run on many times."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ramify.core.errors import BadInput, BadPoint, CannotDo
from ramify.core.fork.change import Change, Diff, Plan, join
from ramify.core.fork.check import check_ids, check_policy
from ramify.core.fork.context import conversation, need_tokens, said_whole
from ramify.core.fork.episodes import TURNS, Episodes
from ramify.core.fork.run_on import Branch, run_on, world_producer
from ramify.core.judge import Judge
from ramify.core.policy.base import Policy, Sampling
from ramify.core.policy.noise import NoiseKey, stream_of
from ramify.core.run.progress import Progress, silent
from ramify.core.tree.node import Draft, Point, Trajectory
from ramify.core.tree.score import DrawRecord, ForkRecord
from ramify.core.tree.tree import Tree
from ramify.core.tree.turn import turn_begun
from ramify.core.types import IntArray, Json, Message, token_array
from ramify.core.world.base import World
from ramify.core.world.simulated import Simulator

if TYPE_CHECKING:
    from ramify.core.fork.backend import Backend


@dataclass(frozen=True, slots=True)
class Fork:
    """One arm and its draws, as recorded. ``draws[i]`` is draw ``i``; errors are among them.

    ``tokens``, ``ties`` and ``seconds`` are of this call only (0 where all was already recorded).
    """

    tree: Tree
    record: ForkRecord
    point: Point
    draws: tuple[DrawRecord, ...]
    diff: Diff | None = None
    tokens: int = 0
    ties: int = 0
    seconds: float = 0.0

    def values(self, score: str | Callable[[Trajectory], float | None] = "success") -> list[float | None]:
        """The score of each draw; None where it was not graded or the draw failed."""
        alive = [d for d in self.draws if d.end != "error"]
        if callable(score):
            walks = self.tree.paths([d.leaf for d in alive])
            found = {d.draw: score(walk) for d, walk in zip(alive, walks, strict=True)}
        else:
            scored = self.tree.score_map(score, [d.leaf for d in alive])
            found = {d.draw: scored.get(d.leaf) for d in alive}
        return [found.get(d.draw) for d in self.draws]

    @property
    def simulator(self) -> Json | None:
        """Who simulated the world's answers, None where nobody did."""
        return self.record.extra.get("simulator")

    @property
    def simulated(self) -> float:
        """Share of the arm's own answers that a simulator gave."""
        if self.simulator is None:
            return 0.0
        own = [
            step.node.origin == "simulated"
            for walk in self.leaves()
            for step in walk
            if step.node.fork == self.record.id and step.node.kind == "observation"
        ]
        return sum(own) / len(own) if own else 0.0

    def leaves(self) -> list[Trajectory]:
        """The whole trajectory of every draw."""
        return list(self.tree.paths([d.leaf for d in self.draws]))


@dataclass(frozen=True, slots=True)
class _Start:
    """Where every draw of an arm begins: node, kept tokens, prefix, conversation."""

    at: str
    keep: int | None
    tokens: IntArray
    messages: tuple[Message, ...]
    pending: str
    mid_turn: bool
    complete: bool
    said: int = 0


def recorded_settings(point: Point, walk: Trajectory) -> Sampling:
    """The settings that the turn at the point was sampled with, else the last recorded ones."""
    for node in [point.node, *(step.node for step in reversed(walk.steps))]:
        if node.settings is not None:
            return Sampling.from_json(node.settings).but(forced=(), banned_first=())
    return Sampling()


def fork_id(point: Point, plan: Plan, change: Change | None, seed: int, extra: Json | None = None) -> str:
    """Digest of all that could change what a draw is; the same arm has the same id anywhere."""
    card = plan.policy.card
    body = [
        point.address,
        change.to_json() if change else None,
        [card.weights or card.name, card.tokenizer],
        plan.settings.to_json(),
        [plan.world.name, plan.world.version] if plan.world else None,
        seed,
        extra or {},
    ]
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()


def _rewrite(tree: Tree, plan: Plan, messages: Sequence[Message], pending: str, reason: str) -> _Start:
    """Store a rewrite node with the whole new context and start from it."""
    rendered = plan.policy.render([], token_array([]), messages)
    tokens = join(rendered.tokens, plan.policy.encode(pending)) if pending else rendered.tokens
    card = plan.policy.card
    keep = plan.point.keep if plan.point.mid_node else None
    extra: Json = {"messages": list(messages), "pending": pending, "reason": reason}
    extra["tokenizer"] = card.tokenizer
    if plan.account is not None:
        extra |= {"reason": str(plan.account.get("reason") or reason), "account": plan.account}
    digest = hashlib.blake2b(json.dumps(extra, sort_keys=True).encode(), digest_size=8).hexdigest()
    draft = Draft(
        kind="rewrite",
        parent=plan.point.node.id,
        keep=keep,
        key=f"edit/{digest}",
        text=rendered.text + pending,
        tokens=tokens,
        policy=card.name,
        extra=extra,
    )
    node = tree.append([draft])[0]
    said = len(tokens) - len(rendered.tokens)
    return _Start(node.id, None, tokens, tuple(messages), pending, bool(pending), complete=False, said=said)


def _with_tools(walk: Trajectory, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A chat whose first message shows the tools of its log."""
    tools = walk.root.extra.get("tools")
    if not tools or not messages or any(message.get("tools") for message in messages):
        return messages
    return ({**messages[0], "tools": tools}, *messages[1:])


def _begin(tree: Tree, plan: Plan, *, answered: bool = False) -> _Start:
    """Turn a plan into a place in the tree, storing edit nodes where the prefix itself changed.

    ``answered``: a log's turn that stands whole is over, for somebody is there to answer it.
    """
    point = plan.point
    keep = point.keep - plan.drop
    cut = Point(point.node, keep if (plan.drop or point.mid_node) else None, tree)
    walk = tree.path(cut)
    talk = conversation(walk)
    if answered and talk.pending is not None and said_whole(walk):
        talk = replace(talk, complete=True)
    recorded = next((s.node.extra["tokenizer"] for s in walk if "tokenizer" in s.node.extra), None)
    other_tokens = plan.swapped and recorded != plan.policy.card.tokenizer
    pending = talk.pending or ""
    if plan.messages is not None or other_tokens:
        reason = "message edited" if plan.messages is not None else "handed over to another tokenizer"
        inserted = plan.policy.decode(plan.insert) if len(plan.insert) else ""
        return _rewrite(tree, plan, plan.messages or talk.messages, pending + inserted, reason)
    mid_turn = talk.pending is not None and not talk.complete
    if not plan.policy.card.can("tokens"):
        if mid_turn or len(plan.insert):
            raise CannotDo(
                f"{plan.policy.card.name!r} takes chat messages only and cannot go on inside a turn",
                where=plan.where,
                hint="fork at the end of an observation, or use a server that takes token ids",
            )
        kept = None if keep == point.node.length else keep
        messages = _with_tools(walk, talk.messages)
        return _Start(point.node.id, kept, token_array([]), messages, pending, False, talk.complete)
    need_tokens(walk)
    tokens = walk.tokens
    kept = None if keep == point.node.length else keep
    said = turn_begun(walk, plan.policy.encode) if mid_turn else 0
    if not len(plan.insert):
        return _Start(point.node.id, kept, tokens, talk.messages, pending, mid_turn, talk.complete, said)
    text = plan.policy.decode(plan.insert)
    digest = hashlib.blake2b(plan.insert.tobytes(), digest_size=8).hexdigest()
    draft = Draft(
        kind="action",
        parent=point.node.id,
        keep=kept,
        key=f"edit/{digest}",
        text=text,
        tokens=plan.insert,
        extra={"edit": "insert"},
    )
    node = tree.append([draft])[0]
    prefix, said = join(tokens, plan.insert), said + len(plan.insert)
    return _Start(node.id, None, prefix, talk.messages, pending + text, True, False, said)


def _turns_left(
    walk: Trajectory, world: World | None, max_turns: int | None, *, simulated: bool = False
) -> int | None:
    if world is None:
        return (max_turns or TURNS) if simulated else max_turns
    used = sum(step.node.kind == "observation" for step in walk)
    return max((max_turns or world.max_turns) - used, 1)


@dataclass(slots=True)
class Job:
    """One arm that is ready to run: its record and the branches still to draw."""

    record: ForkRecord
    point: Point
    plan: Plan
    diff: Diff | None
    branches: list[Branch] = field(default_factory=list)
    simulator: Simulator | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """What running an arm took now: sampled tokens, ties, seconds."""

    tokens: int = 0
    ties: int = 0
    seconds: float = 0.0

    def plus(self, tokens: int, ties: int) -> Used:
        """The same and some more."""
        return replace(self, tokens=self.tokens + tokens, ties=self.ties + ties)


def prepare(
    point: Point,
    policy: Policy,
    draws: int | Sequence[int],
    *,
    change: Change | None = None,
    settings: Sampling | None = None,
    world: World | None = None,
    seed: int = 0,
    max_turns: int | None = None,
    any_weights: bool = False,
    exclude_first: int | None = None,
    stream: int | None = None,
    simulator: Simulator | None = None,
    away: bool = False,
) -> Job:
    """Check an arm, record it, and list the draws that are not on the tree yet.

    ``away``: the draws are for a backend, whose workers open the episodes that they need.
    """
    tree = point.tree
    if tree is None:
        raise BadPoint("this point belongs to no tree; take it with tree.at(node, token)")
    wanted = list(range(draws)) if isinstance(draws, int) else list(draws)
    if not wanted:
        raise BadInput(f"draws is {draws!r}; at least 1 is needed")
    walk = tree.path(point)
    plan = Plan(point, walk, policy, settings or recorded_settings(point, walk), world)
    diff = change.diff(plan) if change is not None else None
    if change is not None:
        plan = change.apply(plan)
    check_policy(walk, policy, swapped=plan.swapped, any_weights=any_weights)
    start = _begin(tree, plan, answered=simulator is not None)
    if plan.policy.card.can("tokens"):
        check_ids(start.tokens, plan.policy.card, plan.where)
    episodes = Episodes(tree, plan.walk, plan.world, simulator) if plan.world or simulator else None
    record = _record(plan, change, seed, episodes, exclude_first, stream)
    tree.begin_fork(record)
    job = Job(record, point, plan, diff, simulator=simulator)
    done = {d.draw for d in tree.draws(record.id)}
    missing = [draw for draw in wanted if draw not in done]
    if start.complete and episodes is None and missing:
        raise BadPoint(
            "the turn is over at this point and there is no world to answer it",
            where=plan.where,
            hint="fork earlier in the step, or name the world",
        )
    template = Branch(
        record.id, start.at, start.keep, start.tokens, list(start.messages),
        NoiseKey(seed, record.stream, 0), start.pending, start.mid_turn, start.complete,
        turns_left=_turns_left(walk, plan.world, max_turns, simulated=simulator is not None),
        exclude_first=exclude_first,
        max_tokens=None if settings is not None else _room(plan.settings, point, start),
        called=_calls(walk) if start.complete else None,
        said=start.said,
    )  # fmt: skip
    try:
        job.branches = _branches(tree, plan, template, missing, None if away else episodes)
    finally:
        if episodes is not None:
            episodes.close()
    return job


def _record(
    plan: Plan,
    change: Change | None,
    seed: int,
    episodes: Episodes | None,
    exclude_first: int | None,
    stream: int | None,
) -> ForkRecord:
    """What an arm is, before any of its draws; who simulates belongs to its name, why does not."""
    point = plan.point
    extra: Json = {} if exclude_first is None else {"exclude_first": exclude_first}
    extra |= {} if stream is None else {"stream": stream}
    if episodes is not None and episodes.simulated is not None:
        extra["simulator"] = episodes.simulated
    return ForkRecord(
        id=fork_id(point, plan, change, seed, extra),
        node=point.node.id,
        token=point.keep if point.mid_node else None,
        change=change.to_json() if change else None,
        policy=plan.policy.card.to_json(),
        settings=plan.settings.to_json(),
        world=plan.world.name if plan.world else None,
        seed=seed,
        stream=stream_of(point.address) if stream is None else stream,
        extra=extra | ({"simulated": episodes.reason} if episodes and episodes.reason else {}),
    )


def _calls(walk: Trajectory) -> Message | None:
    """The message of a walk's last turn, where it calls tools."""
    message = walk.leaf.message or {}
    return message if message.get("tool_calls") else None


def _branches(
    tree: Tree, plan: Plan, template: Branch, draws: list[int], episodes: Episodes | None
) -> list[Branch]:
    """A branch per missing draw, each with its own episode and luck."""
    paired = plan.policy.card.can("paired")
    branches = []
    for draw in draws:
        noise = replace(template.noise, draw=draw)
        branch = replace(template, noise=noise, messages=list(template.messages))
        if episodes is not None:
            branch.episode, branch.origin = episodes.fresh(noise.integer())
        if not paired:
            branch.attempt = _attempt(tree, branch)
        branches.append(branch)
    return branches


def _room(settings: Sampling, point: Point, start: _Start) -> int | None:
    """Tokens a resumed turn may still say, so that a fork has the recorded turn's own limit."""
    if not start.mid_turn or point.node.kind != "action":
        return None
    return max(settings.max_tokens - point.keep, 1)


def _attempt(tree: Tree, branch: Branch) -> str:
    """A suffix that no earlier, unfinished try of this draw has used (unpaired policies only)."""
    from ramify.core.tree.node import node_id

    for n in range(10_000):
        suffix = f"~{n}" if n else ""
        key = f"{branch.fork}/{branch.noise.draw}{suffix}/0a"
        if not tree.has(node_id(branch.at, branch.keep, "action", key)):
            return suffix
    raise BadInput("this draw was tried 10,000 times and never finished", where=f"fork {branch.fork[:12]}")


def run_jobs(
    jobs: Sequence[Job], *, judge: Judge | None = None, progress: Progress = silent, stage: str = "forking",
    backend: Backend | None = None,
) -> list[Fork]:  # fmt: skip
    """Run prepared arms, on a backend or here.

    Here, arms with the same policy, settings and world share every batch.
    """
    started = time.monotonic()
    if backend is None:
        used = _run_here(jobs, judge, progress, stage)
    else:
        used = backend.run(jobs, judge=judge, progress=progress, stage=stage)
        each = (time.monotonic() - started) / max(sum(len(job.branches) for job in jobs), 1)
        used |= {j.record.id: replace(used[j.record.id], seconds=each * len(j.branches)) for j in jobs}
    forks = []
    for job in jobs:
        tree = job.point.tree
        assert tree is not None
        drawn = sorted(tree.draws(job.record.id), key=lambda d: d.draw)
        spent = used[job.record.id]
        forks.append(
            Fork(tree, job.record, job.point, tuple(drawn), job.diff, spent.tokens, spent.ties, spent.seconds)
        )
    return forks


def _run_here(jobs: Sequence[Job], judge: Judge | None, progress: Progress, stage: str) -> dict[str, Used]:
    started = time.monotonic()
    groups: dict[tuple[int, str, str | None], list[Job]] = {}
    for job in jobs:
        law = json.dumps(job.plan.settings.to_json(), sort_keys=True)
        groups.setdefault((id(job.plan.policy), law, job.record.world), []).append(job)
    used: dict[str, Used] = {}
    for group in groups.values():
        plan = group[0].plan
        tree = group[0].point.tree
        assert tree is not None
        branches = [b for job in group for b in job.branches]
        producer = world_producer(plan.world.name, plan.world.version) if plan.world else None
        totals = run_on(
            tree, branches, plan.policy, plan.settings,
            producer=producer, judge=judge, progress=progress, stage=stage,
        )  # fmt: skip
        seconds = time.monotonic() - started
        for job in group:
            fork = job.record.id
            share = len(job.branches) / max(len(branches), 1)
            used[fork] = Used(totals.tokens.get(fork, 0), totals.ties.get(fork, 0), seconds * share)
    return used


def fork(
    point: Point,
    policy: Policy,
    draws: int = 64,
    change: Change | None = None,
    *,
    settings: Sampling | None = None,
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    max_turns: int | None = None,
    any_weights: bool = False,
    simulator: Simulator | None = None,
    progress: Progress = silent,
    backend: Backend | None = None,
) -> Fork:
    """Let the agent run on ``draws`` times from a point, with at most one change; all is recorded.

    ``settings`` default to those the turn was recorded with. With ``world`` every draw goes on until
    the world ends it; without, a draw is the rest of the policy's turn. Draws already on the tree
    are not done again, so an interrupted call is finished by repeating it.

    ``simulator`` answers where there is no world, or where it can neither restore nor replay what is
    recorded; the record, every answer and the scores say so. Where no world limits the turns, it answers
    ``max_turns`` of them (default 8).

    ``backend`` says who does the draws (default: this process); what is recorded is the same.

    Raises:
        BadInput, BadPoint, BadChange: the arm makes no sense.
        WrongTokenizer, WrongWeights: the policy is not the recorded one and no swap was asked for.
        CannotDo: the policy or world lacks what the arm needs.
        ReplayDiverged: the world answers its recorded actions differently now.
    """
    if draws < 1:
        raise BadInput(f"draws is {draws}; at least 1 is needed")
    job = prepare(
        point, policy, draws, change=change, settings=settings, world=world, seed=seed,
        max_turns=max_turns, any_weights=any_weights, simulator=simulator, away=backend is not None,
    )  # fmt: skip
    done = run_jobs([job], judge=judge, progress=progress, backend=backend)[0]
    kept = tuple(d for d in done.draws if d.draw < draws)
    return Fork(done.tree, done.record, point, kept, done.diff, done.tokens, done.ties, done.seconds)


def graded(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Scores as an array, NaN where ungraded."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
