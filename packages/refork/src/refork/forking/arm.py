"""The one operation: go back to a point, change one thing, let the agent run on many times."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadChange, BadInput, BadPoint, CannotDo
from refork.forking.change import Change, Diff, Plan, join
from refork.forking.check import check_ids, check_policy, recorded_tokenizer
from refork.forking.context import (
    Conversation,
    answers,
    conversation,
    has_tokens,
    said_whole,
    turn_before,
    turn_from,
)
from refork.forking.episodes import TURNS, Episodes
from refork.forking.run_on import Branch, judge_draws, run_on, world_producer
from refork.forking.settings import ForkOptions, ForkSettings, takes_fork_settings
from refork.judge import Judge
from refork.policies.base import Policy, Sampling
from refork.policies.renderable import ends_of, render_delta
from refork.policies.sent import REQUEST
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.tree.node import NewNode, Point, Trajectory
from refork.tree.score import DrawRecord, ForkRecord
from refork.tree.tree import Tree
from refork.tree.turn import carrying, turn_begun
from refork.types import IntArray, Json, Message, token_array
from refork.worlds.base import World
from refork.worlds.simulated import Simulator

if TYPE_CHECKING:
    from refork.forking.backend import Backend

#: Version of what an arm's identity holds. Arms recorded before versions have no such entry.
IDENTITY: Final = 2

#: Of a policy's card, what changes no draw, or (the device, the way the pass is computed) only where rounding
#: decides a tie. All else that a card says is heard.
_UNHEARD: Final = frozenset({
    "architecture", "batches", "device", "forward", "generation_config_not_applied", "members",
    "not compared", "not packed", "reference", "seed", "unedited", "why_not_tokens",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fork:
    """One arm and its draws, as recorded. ``draws[i]`` is draw ``i``; errors are among them.

    ``tokens``, ``ties`` and ``seconds`` are of this call only (0 where all was already recorded).
    ``judge`` is the producer of the judge that graded for this call, and the name of the score it gives.
    """

    tree: Tree
    record: ForkRecord
    point: Point
    draws: tuple[DrawRecord, ...]
    diff: Diff | None = None
    tokens: int = 0
    ties: int = 0
    seconds: float = 0.0
    judge: tuple[str, str] | None = None

    def values(self, score: str | Callable[[Trajectory], float | None] = "success") -> list[float | None]:
        """The score of each draw; None where it was not graded or the draw failed.

        Where several gave a draw this score, the judge of this call counts, and where it has no answer the
        world; of a call without a judge, the world, and where it gave none the newest.
        """
        alive = [d for d in self.draws if d.end != "error"]
        if callable(score):
            trajectories = self.tree.paths([d.leaf for d in alive])
            found = {d.draw: score(trajectory) for d, trajectory in zip(alive, trajectories, strict=True)}
        else:
            scored = resolved_scores(self.tree, score, [d.leaf for d in alive], self.judge)
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
            for trajectory in self.leaves()
            for step in trajectory
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
    generated: int = 0


def recorded_settings(point: Point, trajectory: Trajectory) -> Sampling:
    """The settings that the turn at the point was sampled with, else the last recorded ones.

    A log seldom says how long a turn could have been. Where it does not, ``max_tokens`` is the longest turn
    of the trajectory and a usual turn more: the same at every point of one trace, and never less than was
    said.
    """
    begun = turn_from(point)
    for node in [
        *([begun] if begun else []),
        point.node,
        *(step.node for step in reversed(trajectory.steps)),
    ]:
        if node.settings is not None:
            found = Sampling.from_json(node.settings).but(forced=(), banned_first=())
            limit = node.extra.get("turn_limit")
            if limit is None and node.noise is None and "max_tokens" not in node.settings:
                limit = _unknown_limit(trajectory)
            return found if limit is None else found.but(max_tokens=limit)
    return Sampling(max_tokens=_unknown_limit(trajectory))


def _unknown_limit(trajectory: Trajectory) -> int:
    longest = max((step.node.length for step in trajectory if step.node.kind == "action"), default=0)
    return longest + Sampling().max_tokens


def resolved_scores(
    tree: Tree, score: str, leaves: Sequence[str], judge: tuple[str, str] | None = None
) -> dict[str, float]:
    """The score of each leaf as :meth:`Fork.values` reads it; ``judge`` as on a fork."""
    by: list[str | None] = [p.id for p in tree.producers() if p.name.startswith("world:")]
    if judge is not None and judge[1] == score:
        # What another judge said earlier is no answer of this one, even where it has none.
        by.append(judge[0])
    else:
        # None stands for the newest: what somebody says later takes no grade of a world's place.
        by.insert(0, None)
    return {leaf: value for one in by for leaf, value in tree.score_map(score, leaves, one).items()}


def _digest(body: object) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()


def _drawer(card: Json) -> Json:
    """What of a policy's card can change a draw; weights that nobody knows go by the policy's name."""
    extra = {name: value for name, value in card["extra"].items() if name not in _UNHEARD}
    able = [name for name in card["capabilities"] if name in ("paired", "tokens")]
    who = [card["weights"] or card["name"], card["tokenizer"], card["context"]]
    return {"who": who, "able": able, "extra": extra}


@dataclass(frozen=True, slots=True)
class _Limits:
    """How far each draw of an arm may go: ``turns`` that the world answers, ``room`` of the first turn.

    None: no world counts turns; the first turn has the settings' own limit.
    """

    turns: int | None
    room: int | None


def fork_id(
    plan: Plan,
    change: Change | None,
    *,
    seed: int,
    stream: int,
    start: _Start,
    limits: _Limits,
    exclude_first: int | None = None,
    simulator: Json | None = None,
) -> str:
    """Digest of all that could change what a draw is; the same arm has the same id anywhere."""
    world = plan.world
    return _digest({
        "identity": IDENTITY,
        "point": plan.point.address,
        "change": change.to_json() if change else None,
        "policy": _drawer(plan.policy.card.to_json()),
        "settings": plan.settings.to_json(),
        "world": [world.name, world.version, world.deterministic] if world else None,
        "noise": [seed, stream],
        "exclude_first": exclude_first,
        "simulator": simulator,
        "turn": [start.mid_turn, start.complete],
        # What is drawn from, however it came about: another rendering of the same messages is another arm.
        "sees": hashlib.blake2b(start.tokens.tobytes(), digest_size=16).hexdigest()
        if len(start.tokens)
        else _digest(list(start.messages)),
        "turns": limits.turns,
        "room": limits.room,
    } | ({"first own turn": 2} if _begins_behind(start, plan.settings) else {}))  # fmt: skip


def _begins_behind(start: _Start, settings: Sampling) -> bool:
    """Whether something is asked of a draw's first own turn that draws behind an answer were once not given.

    Forced and banned first tokens, penalties that begin anew, and a turn that is cut where its limit is: arms
    that were recorded so hold other draws, and are not gone on with.
    """
    asked = bool(settings.forced or settings.banned_first or start.keep is not None)
    return start.complete and (asked or bool(start.generated and settings.penalised))


def _first_id(record: ForkRecord, plan: Plan, change: Change | None, extra: Json) -> str:
    """The id of the same arm before identities had a version: it knew no limits."""
    card = plan.policy.card
    return _digest([
        plan.point.address,
        change.to_json() if change else None,
        [card.weights or card.name, card.tokenizer],
        record.settings,
        [plan.world.name, plan.world.version] if plan.world else None,
        record.seed,
        extra,
    ])  # fmt: skip


def _rewrite(
    tree: Tree, plan: Plan, messages: Sequence[Message], pending: str, reason: str, *, complete: bool = False
) -> _Start:
    """Store a rewrite node with the whole new context and start from it.

    ``complete``: what is pending is a whole turn, which stays one and is to be answered.
    """
    rendered, approximate = render_delta(plan.policy, [], token_array([]), messages)
    begun = plan.policy.encode(pending) if pending else token_array([])
    tokens = join(rendered.tokens, begun)
    card = plan.policy.card
    keep = plan.point.keep if plan.point.mid_node else None
    extra: Json = {"messages": list(messages), "reason": reason} | carrying(pending, len(begun))
    extra["tokenizer"] = card.tokenizer
    extra |= {"token_ids": {"approximate": list(approximate)}} if approximate else {}
    if plan.account is not None:
        extra |= {"reason": str(plan.account.get("reason") or reason), "account": plan.account}
    digest = hashlib.blake2b(json.dumps(extra, sort_keys=True).encode(), digest_size=8).hexdigest()
    new_node = NewNode(
        kind="rewrite",
        parent=plan.point.node.id,
        keep=keep,
        # Named by its content, so that the same edit finds its node again and all its draws share one parent.
        key=f"edit/{digest}",
        text=rendered.text + pending,
        tokens=tokens,
        policy=card.name,
        extra=extra,
    )
    node = tree.append([new_node])[0]
    mid, said = bool(pending) and not complete, 0 if complete else len(begun)
    return _Start(node.id, None, tokens, tuple(messages), pending, mid, complete, said)


def _as_offered(point: Point, trajectory: Trajectory, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A chat whose first message carries its log's tools, and how the log's agent asked for this turn."""
    tools = trajectory.root.extra.get("tools")
    begun = turn_from(point)
    asked = next(
        (
            node.extra[REQUEST]
            for node in [*([begun] if begun else []), *(step.node for step in reversed(trajectory.steps))]
            if REQUEST in node.extra
        ),
        None,
    )
    if isinstance(asked, dict) and asked.get("tools"):
        tools, asked = asked["tools"], {key: value for key, value in asked.items() if key != "tools"}
    if not messages or any(message.get("tools") for message in messages):
        tools = None
    more: Json = ({"tools": tools} if tools else {}) | ({} if asked is None else {REQUEST: asked})
    return ({**messages[0], **more}, *messages[1:]) if messages and more else messages


def _begin(tree: Tree, plan: Plan, *, answered: bool = False) -> _Start:
    """Turn a plan into a place in the tree, storing edit nodes where the prefix itself changed.

    ``answered``: a log's turn that stands whole is over, for somebody is there to answer it.
    """
    point = plan.point
    keep = point.keep - plan.drop
    cut = Point(point.node, keep if (plan.drop or point.mid_node) else None)
    trajectory = tree.path(cut)
    talk = conversation(trajectory)
    if answered and talk.pending is not None and said_whole(trajectory):
        talk = replace(talk, complete=True)
    other_tokens = plan.swapped and recorded_tokenizer(trajectory) != plan.policy.card.tokenizer
    pending = talk.pending or ""
    if plan.messages is not None or other_tokens:
        reason = "message edited" if plan.messages is not None else "handed over to another tokenizer"
        inserted = plan.policy.decode(plan.insert) if len(plan.insert) else ""
        messages = _as_offered(point, trajectory, plan.messages or talk.messages)
        complete = talk.complete and not inserted
        return _rewrite(tree, plan, messages, pending + inserted, reason, complete=complete)
    mid_turn = talk.pending is not None and not talk.complete
    if not plan.policy.card.can("tokens"):
        if mid_turn or len(plan.insert):
            raise CannotDo(
                f"{plan.policy.card.name!r} takes chat messages only and cannot go on inside a turn",
                where=plan.where,
                hint="fork at the end of an observation, or use a server that takes token ids",
            )
        kept = None if keep == point.node.length else keep
        messages = _as_offered(point, trajectory, talk.messages)
        return _Start(point.node.id, kept, token_array([]), messages, pending, False, talk.complete)
    if not has_tokens(trajectory):
        return _untokenised(tree, plan, trajectory, talk)
    tokens = trajectory.tokens
    # Behind the last token and at the end are one place, which must not become two parents.
    kept = None if keep == point.node.length else keep
    said = turn_begun(trajectory, plan.policy.encode) if mid_turn or len(plan.insert) else 0
    if not len(plan.insert):
        return _Start(point.node.id, kept, tokens, talk.messages, pending, mid_turn, talk.complete, said)
    text = plan.policy.decode(plan.insert)
    digest = hashlib.blake2b(plan.insert.tobytes(), digest_size=8).hexdigest()
    new_node = NewNode(
        kind="action",
        parent=point.node.id,
        keep=kept,
        key=f"edit/{digest}",
        text=text,
        tokens=plan.insert,
        offsets=ends_of(plan.policy, plan.insert, text),
        extra={"edit": "insert"},
    )
    node = tree.append([new_node])[0]
    prefix, said = join(tokens, plan.insert), said + len(plan.insert)
    return _Start(node.id, None, prefix, talk.messages, pending + text, True, False, said)


def _untokenised(tree: Tree, plan: Plan, trajectory: Trajectory, talk: Conversation) -> _Start:
    """A start at a boundary between messages of a trajectory whose token ids nobody recorded.

    The policy's own template renders the conversation up to there into a rewrite node, which says so. A start
    inside a turn would need the ids that the model said, and a text has many.
    """
    messages = _as_offered(plan.point, trajectory, talk.messages)
    inserted = plan.policy.decode(plan.insert) if len(plan.insert) else ""
    if talk.pending is None:
        reason = "rendered with the policy's template: the log has no token ids"
        return _rewrite(tree, plan, messages, inserted, reason)
    if talk.complete and not inserted:
        # Somebody is to answer first; the answer's rendering brings the whole context along.
        return _Start(plan.point.node.id, None, token_array([]), messages, talk.pending, False, True)
    raise CannotDo(
        "this turn was recorded without token ids, so nothing can go on inside it or behind it",
        where=plan.where,
        hint=f"fork where the turn begins: --node {turn_before(trajectory)[:12]}; or import with --policy",
    )


def _turns_left(
    trajectory: Trajectory, world: World | None, max_turns: int | None, *, simulated: bool = False
) -> int | None:
    """Turns that may still be answered; None where nobody answers. Those already answered are used up."""
    if world is None and not simulated:
        return None
    used = answers(trajectory)
    if world is not None:
        return max((world.max_turns if max_turns is None else max_turns) - len(used), 1)
    # Of a log the simulator has answered nothing yet, however long it is.
    made_up = sum(node.origin == "simulated" for node in used)
    return max((TURNS if max_turns is None else max_turns) - made_up, 1)


@dataclass(slots=True)
class ReadyArm:
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


@takes_fork_settings
def prepare(
    point: Point,
    policy: Policy,
    draws: int | Sequence[int],
    *,
    change: Change | None = None,
    exclude_first: int | None = None,
    stream: int | None = None,
    room: int | None = None,
    **options: Unpack[ForkOptions],
) -> ReadyArm:
    """Check an arm, record it, and list the draws that are not on the tree yet.

    Where a backend is named, its workers open the episodes that they need. ``room``: tokens
    that the first turn may still say, instead of what its limit leaves; for callers that read something else
    than a whole turn, such as an answer behind thinking that was closed by force.
    """
    on = ForkSettings(**options)
    tree = point.tree
    if tree is None:
        raise BadPoint("this point belongs to no tree; take it with tree.at(node, token)")
    wanted = list(range(draws)) if isinstance(draws, int) else list(draws)
    if not wanted:
        raise BadInput(f"draws is {draws!r}; at least 1 is needed")
    if on.max_turns is not None and on.max_turns < 1:
        raise BadInput(
            f"max_turns is {on.max_turns}; at least 1 is needed", hint="leave it out for no limit of its own"
        )
    trajectory = tree.path(point)
    plan = Plan(point, trajectory, policy, on.settings or recorded_settings(point, trajectory), on.world)
    diff = change.diff(plan) if change is not None else None
    if change is not None:
        plan = change.apply(plan)
    check_policy(trajectory, policy, swapped=plan.swapped, any_weights=on.any_weights)
    start = _begin(tree, plan, answered=on.simulator is not None)
    # A whole turn without token ids is rendered with its answer; until then there are none to check.
    if plan.policy.card.can("tokens") and not (start.complete and not len(start.tokens)):
        check_ids(start.tokens, plan.policy.card, plan.where)
    start, left = _within_limit(plan, start, room)
    answering = plan.world is not None or on.simulator is not None
    if start.complete and not answering:
        raise BadPoint(
            "the turn is over at this point and there is no world to answer it",
            where=plan.where,
            hint="fork earlier in the step, or name the world",
        )
    episodes = Episodes(tree, plan.trajectory, plan.world, on.simulator) if answering else None
    simulated = on.simulator is not None
    limits = _Limits(_turns_left(trajectory, plan.world, on.max_turns, simulated=simulated), left)
    record = _recorded(
        tree, plan, change, start=start, limits=limits, seed=on.seed, episodes=episodes,
        exclude_first=exclude_first, stream=stream,
    )  # fmt: skip
    job = ReadyArm(record, point, plan, diff, simulator=on.simulator)
    done = {d.draw for d in tree.draws(record.id)}
    missing = [draw for draw in wanted if draw not in done]
    template = Branch(
        record.id, start.at, start.keep, start.tokens, list(start.messages),
        NoiseKey(on.seed, record.stream, 0), start.pending, start.mid_turn, start.complete,
        turns_left=limits.turns,
        exclude_first=exclude_first,
        max_tokens=limits.room,
        turn_limit=None if room is None or limits.room is None else start.generated + limits.room,
        called=_calls(trajectory) if start.complete else None,
        generated=start.generated,
    )  # fmt: skip
    try:
        job.branches = _branches(tree, plan, template, missing, episodes if on.backend is None else None)
    finally:
        if episodes is not None:
            episodes.close()
    return job


def _within_limit(plan: Plan, start: _Start, room: int | None) -> tuple[_Start, int | None]:
    """The start, and the tokens that the first turn may still say; None: as the settings say.

    The limit is the turn's: what was said of it before the point, by whomever, counts. A turn that has said
    as many tokens as it may is over.

    Raises:
        BadPoint: the turn is longer than its limit already.
        BadChange: more tokens are forced than may be said.
    """
    limit = plan.settings.max_tokens
    if start.complete or (room is None and not start.generated):
        return start, None
    left = limit - start.generated if room is None else min(room, limit)
    if left < 0:
        raise BadPoint(
            f"{start.generated} tokens of this turn stand before the draws, and its limit is {limit}",
            where=plan.where,
            hint=f"fork earlier, or let turns be longer: --set max_tokens={2 * start.generated}",
        )
    if left == 0:
        return replace(start, mid_turn=False, complete=True), None
    if len(plan.settings.forced) > left:
        raise BadChange(
            f"{len(plan.settings.forced)} tokens are forced, and the turn may say {left} more",
            where=plan.where,
            hint=f"fork earlier, or let turns be longer: --set max_tokens={start.generated + limit}",
        )
    return start, left


def _recorded(
    tree: Tree,
    plan: Plan,
    change: Change | None,
    *,
    start: _Start,
    limits: _Limits,
    seed: int,
    episodes: Episodes | None,
    exclude_first: int | None,
    stream: int | None,
) -> ForkRecord:
    """The arm's record, on the tree: found again where it is there, else begun."""
    point = plan.point
    simulated = None if episodes is None else episodes.simulated
    extra: Json = {} if exclude_first is None else {"exclude_first": exclude_first}
    extra |= {} if stream is None else {"stream": stream}
    extra |= {} if simulated is None else {"simulator": simulated}
    noise = stream_of(point.address) if stream is None else stream
    why = {"simulated": episodes.reason} if episodes is not None and episodes.reason else {}
    made = {name: value for name, value in (("turns", limits.turns), ("room", limits.room)) if value}
    record = ForkRecord(
        id=fork_id(
            plan,
            change,
            seed=seed,
            stream=noise,
            start=start,
            limits=limits,
            exclude_first=exclude_first,
            simulator=simulated,
        ),
        node=point.node.id,
        token=point.keep if point.mid_node else None,
        change=change.to_json() if change else None,
        policy=plan.policy.card.to_json(),
        settings=plan.settings.to_json(),
        world=plan.world.name if plan.world else None,
        seed=seed,
        stream=noise,
        extra=extra | why | made | {"identity": IDENTITY},
    )
    # What differs between two records of one identity (a policy's other name, its device) changes no draw.
    known = _recorded_fork(tree, record.id)
    if known is not None:
        return known
    earlier = _recorded_fork(tree, _first_id(record, plan, change, extra))
    if earlier is not None and _as_now(tree, earlier, record, start, limits):
        return earlier
    return tree.begin_fork(record)


def _recorded_fork(tree: Tree, fork: str) -> ForkRecord | None:
    try:
        return tree.fork_record(fork)
    except BadInput:
        return None


def _as_now(tree: Tree, earlier: ForkRecord, record: ForkRecord, start: _Start, limits: _Limits) -> bool:
    """Whether an arm recorded before identities had a version may be gone on with.

    It may where its draws are those that this arm would draw: its record does not say what limits it had, but
    its draws show whether any other limit than today's was ever met.
    """
    then, now = _drawer(earlier.policy), _drawer(record.policy)
    known = then["extra"].keys()
    if (then["who"], then["able"]) != (now["who"], now["able"]):
        return False
    if then["extra"] != {name: value for name, value in now["extra"].items() if name in known}:
        return False
    if _begins_behind(start, Sampling.from_json(record.settings)):
        return False
    if limits.turns is not None and start.generated:
        return False  # a draw that was cut short in its first turn could not be told from one that was not
    draws = tree.draws(earlier.id)
    trajectories = tree.paths([draw.leaf for draw in draws])
    return all(
        _same_limits(draw, trajectory, limits) for draw, trajectory in zip(draws, trajectories, strict=True)
    )


def _same_limits(draw: DrawRecord, trajectory: Trajectory, limits: _Limits) -> bool:
    """Whether today's limits would have let a recorded draw go just as far."""
    if draw.end == "error":
        return True
    own = [step.node for step in trajectory if step.node.fork == draw.fork]
    first = next((node for node in own if node.kind == "action"), None)
    if first is not None and limits.room is not None:
        cut = first.finish == "length"
        if first.length > limits.room or (cut and first.length < limits.room):
            return False
    if limits.turns is None:
        return True
    # A last answer without text has no node of its own, so turns are counted by their noise.
    answered = 1 + max((node.noise.turn for node in own if node.kind == "action" and node.noise), default=0)
    why = trajectory.leaf.extra.get("reason") if draw.end == "limit" else None
    if why == "turn limit":
        return answered == limits.turns
    return answered < limits.turns or (answered == limits.turns and why is None)


def _calls(trajectory: Trajectory) -> Message | None:
    """The message of a trajectory's last turn, where it calls tools."""
    message = trajectory.leaf.message or {}
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
            # Of turn 0, whichever turn is next: a replay derives the same seed from any turn of this draw.
            branch.episode, branch.origin = episodes.fresh(noise.integer())
        if not paired:
            branch.attempt = _attempt(tree, branch)
        branches.append(branch)
    return branches


def _attempt(tree: Tree, branch: Branch) -> str:
    """A suffix that no earlier, unfinished try of this draw has used (unpaired policies only)."""
    from refork.tree.node import node_id

    for n in range(10_000):
        suffix = f"~{n}" if n else ""
        # Behind a whole turn the answer to it comes first, and it alone where the draw was interrupted then.
        kind = "observation" if branch.complete else "action"
        key = f"{branch.fork}/{branch.noise.draw}{suffix}/0{kind[0]}"
        if not tree.has(node_id(branch.at, branch.keep, kind, key)):
            return suffix
    raise BadInput("this draw was tried 10,000 times and never finished", where=f"fork {branch.fork[:12]}")


def run_jobs(
    jobs: Sequence[ReadyArm],
    *,
    judge: Judge | None = None,
    progress: Progress = silent,
    stage: str = "forking",
    backend: Backend | None = None,
) -> list[Fork]:
    """Run prepared arms, on a backend or here.

    Here, arms with the same policy, settings and world share every batch.
    """
    started = time.monotonic()
    if backend is None:
        used = _run_here(jobs, judge, progress, stage)
    else:
        used = backend.run(jobs, judge=judge, progress=progress, stage=stage)
        # A backend does not say how long each arm took, so the time is shared out by draws.
        each = (time.monotonic() - started) / max(sum(len(job.branches) for job in jobs), 1)
        used |= {j.record.id: replace(used[j.record.id], seconds=each * len(j.branches)) for j in jobs}
    forks = []
    for job in jobs:
        tree = job.point.tree
        assert tree is not None
        drawn = sorted(tree.draws(job.record.id), key=lambda d: d.draw)
        spent = used[job.record.id]
        by = None
        if judge is not None:
            _judge_earlier(tree, judge, job, drawn)
            by = (judge.producer.id, judge.score)
        arm = Fork(tree, job.record, job.point, tuple(drawn), job.diff)
        forks.append(replace(arm, tokens=spent.tokens, ties=spent.ties, seconds=spent.seconds, judge=by))
    return forks


def _judge_earlier(tree: Tree, judge: Judge, job: ReadyArm, drawn: Sequence[DrawRecord]) -> None:
    """Let the judge grade draws that were on the tree before this call, where it has not done so yet."""
    now = {branch.noise.draw for branch in job.branches}
    before = [draw for draw in drawn if draw.draw not in now]
    known = tree.score_map(judge.score, [draw.leaf for draw in before], judge.producer.id)
    lacking = [draw for draw in before if draw.leaf not in known]
    if lacking:
        tree.add_producer(judge.producer)
        judge_draws(tree, judge, lacking)


def _run_here(
    jobs: Sequence[ReadyArm], judge: Judge | None, progress: Progress, stage: str
) -> dict[str, Used]:
    groups: dict[tuple[int, str, str | None], list[ReadyArm]] = {}
    for job in jobs:
        sampling = json.dumps(job.plan.settings.to_json(), sort_keys=True)
        # By the object: policies of one name may hold other weights, and each samples for itself.
        groups.setdefault((id(job.plan.policy), sampling, job.record.world), []).append(job)
    used: dict[str, Used] = {}
    for group in groups.values():
        started = time.monotonic()
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


@takes_fork_settings
def fork(
    point: Point,
    policy: Policy,
    draws: int = 64,
    change: Change | None = None,
    **options: Unpack[ForkOptions],
) -> Fork:
    """Let the agent run on ``draws`` times from a point, with at most one change; all is recorded.

    ``options`` are the fields of :class:`ForkSettings`. Draws already on the tree are not done again, so an
    interrupted call is finished by repeating it.

    Raises:
        BadInput, BadPoint, BadChange: the arm makes no sense.
        WrongTokenizer, WrongWeights: the policy is not the recorded one and no swap was asked for.
        CannotDo: the policy or world lacks what the arm needs.
        ReplayDiverged: the world answers its recorded actions differently now.
    """
    return _drawn(point, policy, draws, [change], ForkSettings(**options))[0]


@takes_fork_settings
def fork_both(
    point: Point, policy: Policy, draws: int, change: Change, **options: Unpack[ForkOptions]
) -> tuple[Fork, Fork]:
    """The control and the changed arm, as two calls of :func:`fork` give them.

    Both are checked before anything is drawn, so a change that cannot be made costs nothing; and arms that
    share policy, settings and world are one batch. Raises what :func:`fork` raises.
    """
    base, other = _drawn(point, policy, draws, [None, change], ForkSettings(**options))
    return base, other


def _drawn(
    point: Point, policy: Policy, draws: int, changes: Sequence[Change | None], on: ForkSettings
) -> list[Fork]:
    """The arms of some changes at a point, each with the first ``draws`` draws."""
    if draws < 1:
        raise BadInput(f"draws is {draws}; at least 1 is needed")
    # From the last on: a change may be refused, and then no control has been begun.
    jobs = [prepare(point, policy, draws, change=change, **on.options()) for change in reversed(changes)]
    arms = run_jobs(jobs[::-1], judge=on.judge, progress=on.progress, backend=on.backend)
    return [_first(arm, draws) for arm in arms]


def _first(arm: Fork, draws: int) -> Fork:
    """An arm with its first draws only; a call that wanted more may have been there before."""
    return replace(arm, draws=tuple(d for d in arm.draws if d.draw < draws))


def graded(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Scores as an array, NaN where ungraded."""
    return np.array(values, dtype=np.float64)  # which reads None as NaN
