"""Let many branches run on at once: the policy speaks, the world answers, every round is committed.

Growing from a task and forking inside a step are the same loop; they differ in where it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from refork.errors import UserError
from refork.forking.change import join
from refork.forking.context import called
from refork.judge import Judge
from refork.policies.base import Continuation, Policy, Rendered, Request, Sampling, each_once
from refork.policies.renderable import render_delta
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode, Trajectory, node_id
from refork.tree.score import DrawRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import IntArray, Json, Message, Origin, token_array
from refork.worlds.base import Episode, Observation
from refork.worlds.simulated import StepsTogether, has_grade, simulator_of, together

#: Nodes that are committed together while a batch is still being sampled.
_FLUSH = 512


@dataclass(slots=True)
class Branch:
    """One live draw: where its next node goes, what the policy sees, and the world it acts on.

    ``cancelled`` takes it out before its next turn; what it said so far stays, and it never ends. ``called``
    is the message of the turn that the world answers next, where it calls tools. ``generated`` counts the
    tokens of the turn under way; ``turn_limit`` is what the turn may say in all, where that is not what the
    settings say, and is recorded with it. ``opening``: it has said nothing itself yet.
    """

    fork: str
    at: str
    keep: int | None
    tokens: IntArray
    messages: list[Message]
    noise: NoiseKey
    pending: str = ""
    mid_turn: bool = False
    complete: bool = False
    episode: Episode | None = None
    origin: Origin = "real"
    turns_left: int | None = None
    exclude_first: int | None = None
    max_tokens: int | None = None
    turn_limit: int | None = None
    generated: int = 0
    attempt: str = ""
    cancelled: bool = False
    called: Message | None = None
    opening: bool = True


@dataclass(slots=True)
class _Writes:
    """What one round stores, in one transaction."""

    new_nodes: list[NewNode] = field(default_factory=list)
    draws: list[DrawRecord] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)

    def node(self, draft: NewNode) -> str:
        """Queue a node; its id is known beforehand because its key is."""
        self.new_nodes.append(draft)
        return node_id(draft.parent, draft.keep, draft.kind, draft.key or "")


@dataclass(frozen=True, slots=True)
class Totals:
    """What running on has used and met, per fork: sampled tokens, and ties (see :class:`Continuation`)."""

    tokens: dict[str, int] = field(default_factory=dict)
    ties: dict[str, int] = field(default_factory=dict)

    def add(self, fork: str, continuation: Continuation) -> None:
        """Count one continuation."""
        self.tokens[fork] = self.tokens.get(fork, 0) + len(continuation.tokens)
        self.ties[fork] = self.ties.get(fork, 0) + continuation.ties


class Ledger(Protocol):
    """Where a run writes: a tree, or a worker's sheet that is copied into one."""

    def add_producer(self, producer: Producer) -> str:
        """Register who gives scores; its id."""
        ...

    def commit(
        self, new_nodes: Sequence[NewNode], draws: Sequence[DrawRecord] = (), scores: Iterable[Score] = ()
    ) -> object:
        """Store nodes, finished draws and scores, all or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class _Runner:
    tree: Ledger
    policy: Policy
    producer: Producer | None
    judged: Callable[[Sequence[DrawRecord]], None] | None

    def key(self, branch: Branch, part: str) -> str:
        return f"{branch.fork}/{branch.noise.draw}{branch.attempt}/{branch.noise.turn}{part}"

    def end(self, writes: _Writes, branch: Branch, end: str, error: str | None = None) -> None:
        writes.draws.append(DrawRecord(branch.fork, branch.noise.draw, branch.at, end, error))
        if branch.episode is not None:
            branch.episode.close()

    def action(self, writes: _Writes, branch: Branch, said: Continuation, law: Sampling) -> bool:
        """Store a turn; False where it failed and the draw is over."""
        exact = self.policy.card.can("tokens")
        said, odd = _spelled(said)
        card = said.by.card if said.by else self.policy.card
        extra: Json = {} if branch.exclude_first is None else {"excluded_first": branch.exclude_first}
        extra |= {} if branch.turn_limit is None else {"turn_limit": branch.turn_limit}
        extra |= {"worker": said.by.name} | said.by.extra if said.by else {}
        node = writes.node(
            NewNode(
                kind="action",
                parent=branch.at,
                keep=branch.keep,
                key=self.key(branch, "a"),
                text=said.text,
                tokens=said.tokens if exact else None,
                offsets=said.offsets if exact else None,
                logprobs=said.logprobs,
                logprobs_t1=said.logprobs_t1,
                ref_logprobs=said.ref_logprobs,
                entropy=said.entropy,
                message=said.message,
                policy=card.name,
                weights=card.weights,
                settings=(said.by.settings if said.by else law).to_json(),
                noise=branch.noise,
                fork=branch.fork,
                finish=said.finish,
                error=said.error,
                cost=said.cost,
                extra=extra | ({"ties": said.ties} if said.ties else {}) | odd,
            )
        )
        # What the first turn alone was asked for must not reach the turns after it.
        branch.at, branch.keep = node, None
        branch.exclude_first = branch.max_tokens = branch.turn_limit = None
        branch.mid_turn, branch.generated, branch.opening = False, 0, False
        branch.pending += said.text
        branch.called = said.message if said.message and said.message.get("tool_calls") else None
        if said.error is not None:
            self.end(writes, branch, "error", said.error)
            return False
        if exact:
            branch.tokens = join(branch.tokens, said.tokens)
        if branch.episode is None:
            self.end(writes, branch, "done" if said.finish == "stop" else "limit")
            return False
        return True

    def answer(self, writes: _Writes, branches: Sequence[Branch]) -> list[Branch]:
        """Let the world answer turns just said, together where it can; returns who goes on."""
        seen = _answers(branches)
        return [b for b, one in zip(branches, seen, strict=True) if self.take(writes, b, one)]

    def take(self, writes: _Writes, branch: Branch, seen: Observation | Exception) -> bool:
        """Store the world's answer; False where the draw is over."""
        if not isinstance(seen, Exception):
            seen = _storable(seen)
        if isinstance(seen, Exception):  # a world that breaks ends its draw, not the run
            branch.at = writes.node(
                NewNode(
                    kind="observation",
                    parent=branch.at,
                    keep=branch.keep,
                    key=self.key(branch, "o"),
                    error=whole_text(repr(seen)),
                    fork=branch.fork,
                )
            )
            self.end(writes, branch, "error", whole_text(f"world: {seen!r}"))
            return False
        # Only an answered turn is a message; until then it is pending and may still be gone on with.
        branch.messages.append(branch.called or {"role": "assistant", "content": branch.pending})
        branch.pending, branch.complete, branch.generated = "", False, 0
        if branch.turns_left is not None:
            branch.turns_left -= 1
        over = seen.done or branch.turns_left == 0
        # An empty answer in the middle is recorded too: without its node two turns would read as one.
        if seen.text or not over:
            self.observe(writes, branch, seen, over)
        full = not over and self._full(branch)
        if over or full:
            self.verdict(writes, branch, seen, "context limit" if full else "turn limit")
            return False
        # By turns and not by tokens said: arms stay paired after one of them was longer in a turn.
        branch.noise = branch.noise.at_turn(branch.noise.turn + 1)
        return True

    def _full(self, branch: Branch) -> bool:
        """Whether the policy's context has no room for another token."""
        most = self.policy.card.context
        return most is not None and len(branch.tokens) >= most

    def observe(self, writes: _Writes, branch: Branch, seen: Observation, over: bool) -> None:
        shown = _answer_messages(branch, seen.text)
        exact = self.policy.card.can("tokens")
        rendered, approximate = (
            render_delta(self.policy, branch.messages, branch.tokens, shown)
            if exact and not over
            else (Rendered(token_array([]), seen.text), ())
        )
        if exact and not over and branch.messages and not len(branch.tokens):
            # The trajectory so far has no token ids, so what was rendered is the whole context.
            rendered = replace(rendered, rewrites=True)
        delta = None if rendered.rewrites or not exact or over else rendered.tokens
        simulator = simulator_of(branch.episode)
        snapshot = branch.episode.snapshot() if branch.episode and not over else None
        branch.at = writes.node(
            NewNode(
                kind="observation",
                parent=branch.at,
                keep=branch.keep,
                key=self.key(branch, "o"),
                text=seen.text,
                tokens=delta,
                message=shown[0] if len(shown) == 1 else None,
                state_key=seen.state_key,
                snapshot=snapshot,
                fork=branch.fork,
                origin=branch.origin if simulator is None else "simulated",
                extra=seen.info
                | ({} if simulator is None else {"simulator": simulator})
                | ({"messages": shown} if len(shown) > 1 else {}),
            )
        )
        branch.keep = None
        branch.messages.extend(shown)
        branch.called = None
        if rendered.rewrites:
            branch.at = writes.node(
                NewNode(
                    kind="rewrite",
                    parent=branch.at,
                    key=self.key(branch, "r"),
                    text=rendered.text,
                    tokens=rendered.tokens,
                    policy=self.policy.card.name,
                    fork=branch.fork,
                    extra={
                        "messages": list(branch.messages),
                        "reason": "the chat template changed the context"
                        if len(branch.tokens)
                        else "rendered with the policy's template: the log has no token ids",
                    }
                    | ({"token_ids": {"approximate": list(approximate)}} if approximate else {}),
                )
            )
            branch.tokens = rendered.tokens
        elif delta is not None:
            branch.tokens = join(branch.tokens, delta)

    def verdict(self, writes: _Writes, branch: Branch, seen: Observation, limit: str) -> None:
        # Out of turns is a failure where somebody grades, and not known where nobody does: None is not 0.
        reward = seen.reward if seen.done else (0.0 if has_grade(branch.episode) else None)
        text = "ungraded" if reward is None else ("success" if reward >= 1.0 else "failure")
        extra = {"reward": reward, "reason": "world" if seen.done else limit}
        branch.at = writes.node(
            NewNode(
                kind="verdict",
                parent=branch.at,
                keep=branch.keep,
                key=self.key(branch, "v"),
                text=text,
                fork=branch.fork,
                extra=extra,
            )
        )
        producer = self.producer_of(branch)
        if reward is not None and producer is not None:
            writes.scores.append(Score(branch.at, "reward", float(reward), producer.id))
            writes.scores.append(Score(branch.at, "success", float(reward >= 1.0), producer.id))
        self.end(writes, branch, "done" if seen.done else "limit")

    def producer_of(self, branch: Branch) -> Producer | None:
        """Who graded a draw: the world, or the world's rule reading a simulator's texts."""
        simulator = simulator_of(branch.episode)
        if self.producer is None or simulator is None:
            return self.producer
        # The world's rule, but over texts that the world never said: by name another producer.
        name = self.producer.name.removeprefix("world:").removeprefix("simulated:")
        made = replace(
            self.producer,
            name=f"world:simulated:{name}",
            config=self.producer.config | {"simulator": simulator},
        )
        self.tree.add_producer(made)
        return made

    def request(self, branch: Branch) -> Request:
        return Request(
            branch.tokens,
            branch.noise,
            tuple(branch.messages),
            branch.mid_turn,
            branch.exclude_first,
            branch.max_tokens,
            branch.generated,
        )

    def flush(self, writes: _Writes) -> None:
        self.tree.commit(writes.new_nodes, writes.draws, writes.scores)
        if self.judged is not None and writes.draws:
            self.judged(writes.draws)


def judge_draws(tree: Tree, judge: Judge, draws: Sequence[DrawRecord]) -> None:
    """Let a judge score the leaves of stored draws that did not fail."""
    ended = [d for d in draws if d.end != "error"]
    tree.add_scores(
        s for trajectory in tree.paths([d.leaf for d in ended]) for s in _judged(judge, trajectory)
    )


def _judged(judge: Judge, trajectory: Trajectory) -> Iterable[Score]:
    verdict = judge.judge(trajectory)
    if verdict.value is not None:
        reason = None if verdict.reason is None else whole_text(verdict.reason)
        yield Score(trajectory.leaf.id, judge.score, verdict.value, judge.producer.id, reason)


#: What a node says of a text that came with half of a surrogate pair in it, which no text can hold.
HALVES: Final = "halves of surrogate pairs came with this; each stands as U+FFFD"


def _spelled(said: Continuation) -> tuple[Continuation, Json]:
    """What was said as text that can be kept, and what its node says where that is not as it came."""
    if _is_whole([said.text, said.message, said.error]):
        return said, {}
    message, error = whole_texts(said.message), whole_texts(said.error)
    return replace(said, text=whole_text(said.text), message=message, error=error), {"mended": HALVES}


def _storable(seen: Observation) -> Observation:
    """An answer of the world as text that can be kept, marked where that is not as it came."""
    if _is_whole([seen.text, seen.state_key, seen.info]):
        return seen
    info = whole_texts(seen.info) | {"mended": HALVES}
    return replace(seen, text=whole_text(seen.text), state_key=whole_texts(seen.state_key), info=info)


def _is_whole(data: Any) -> bool:
    if isinstance(data, str):
        # A text without such halves comes back as the same object, so that no second comparison is needed.
        return whole_text(data) is data
    if isinstance(data, dict):
        return all(_is_whole(key) and _is_whole(value) for key, value in data.items())
    return all(map(_is_whole, data)) if isinstance(data, (list, tuple)) else True


def whole_text(text: str) -> str:
    """A text with U+FFFD in the place of every half of a surrogate pair; of the same length."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def whole_texts(data: Any) -> Any:
    """Plain JSON data whose texts are all :func:`whole_text`."""
    if isinstance(data, str):
        return whole_text(data)
    if isinstance(data, dict):
        return {whole_texts(key): whole_texts(value) for key, value in data.items()}
    return [whole_texts(item) for item in data] if isinstance(data, (list, tuple)) else data


def world_producer(name: str, version: str) -> Producer:
    """Who gives a world's rewards."""
    return Producer(f"world:{name}", version)


def run_on(
    tree: Tree, branches: Sequence[Branch], policy: Policy, settings: Sampling, *,
    producer: Producer | None = None, judge: Judge | None = None, progress: Progress = silent,
    stage: str = "running on",
    refill: Callable[[Sequence[DrawRecord]], Sequence[Branch]] | None = None,
) -> Totals:  # fmt: skip
    """Run branches to their ends, committing turns as they finish; returns what it used.

    ``refill`` is told after every round which draws ended in it, and may give more branches to run.

    A draw that fails is stored with its error and does not stop the others. Stopping in the middle
    loses at most the turns in flight; the same call again goes on from what is stored.
    """
    for known in filter(None, (producer, judge.producer if judge else None)):
        tree.add_producer(known)
    judged = None if judge is None else partial(judge_draws, tree, judge)
    return run_to(
        tree, branches, policy, settings, producer=producer, judged=judged,
        progress=progress, stage=stage, refill=refill,
    )  # fmt: skip


def run_to(
    ledger: Ledger, branches: Sequence[Branch], policy: Policy, settings: Sampling, *,
    producer: Producer | None = None, judged: Callable[[Sequence[DrawRecord]], None] | None = None,
    progress: Progress = silent, stage: str = "running on",
    refill: Callable[[Sequence[DrawRecord]], Sequence[Branch]] | None = None,
) -> Totals:  # fmt: skip
    """:func:`run_on` into any ledger, which knows ``producer`` already; ``judged`` hears what was stored."""
    runner = _Runner(ledger, policy, producer, judged)
    totals = Totals()
    writes = _Writes()
    ended, begun = 0, len(branches)
    over: list[DrawRecord] = []

    def flush() -> None:
        nonlocal writes, ended
        runner.flush(writes)
        ended += len(writes.draws)
        over.extend(writes.draws)
        writes = _Writes()
        progress(stage, ended, begun, tokens=sum(totals.tokens.values()))

    def more() -> list[Branch]:
        nonlocal begun
        fresh = list(refill(tuple(over))) if refill else []
        over.clear()
        begun += len(fresh)
        return _begun(runner, writes, fresh)

    live = _begun(runner, writes, branches)
    flush()
    live += more()
    while live:
        still: list[Branch] = []
        waiting: list[Branch] = []
        # Forced and banned first tokens are of a draw's first own turn, the one at the point or behind the
        # answer to it; later turns go by the plain settings.
        opening = [b for b in live if b.opening]
        later = [b for b in live if not b.opening]
        for group, sampling in ((opening, settings), (later, settings.but(forced=(), banned_first=()))):
            said = policy.sample([runner.request(b) for b in group], sampling) if group else ()
            for continuation in each_once(said, len(group)):
                branch = group[continuation.index]
                totals.add(branch.fork, continuation)
                if runner.action(writes, branch, continuation, sampling):
                    waiting.append(branch)
                # A world is asked as soon as its turn is there; simulated ones answer in one batch, below.
                if waiting and together(waiting[-1].episode) is None:
                    still += runner.answer(writes, [waiting.pop()])
                if len(writes.new_nodes) >= _FLUSH:
                    flush()
        still += runner.answer(writes, waiting)
        flush()
        fresh = more()
        live = _wanted(still) + fresh
    return totals


def _begun(runner: _Runner, writes: _Writes, branches: Sequence[Branch]) -> list[Branch]:
    """Branches that have a turn to say; one whose turn is complete meets the world's answer first."""
    over = {id(b): b for b in branches if b.complete}  # an answered turn is no longer complete
    for branch in runner.answer(writes, list(over.values())):
        del over[id(branch)]
    return [b for b in branches if id(b) not in over]


def _acted(branch: Branch) -> str:
    """What a turn does: its tool calls where it made some, else its text."""
    return (called(branch.called) if branch.called is not None else None) or branch.pending


def _answers(branches: Sequence[Branch]) -> list[Observation | Exception]:
    """What the worlds answer, in order; a world that breaks gives its exception. UserErrors are raised."""
    found: dict[int, Observation | Exception] = {}
    batches: dict[type[StepsTogether], list[int]] = {}
    for number, branch in enumerate(branches):
        assert branch.episode is not None
        kind = together(branch.episode)
        if kind is not None:
            batches.setdefault(kind, []).append(number)
            continue
        try:
            found[number] = branch.episode.step(_acted(branch))
        except UserError:
            raise
        except Exception as error:
            found[number] = error
    for batch, numbers in batches.items():
        actions = [_acted(branches[n]) for n in numbers]
        answers = batch.step_together([branches[n].episode for n in numbers], actions)
        found |= zip(numbers, answers, strict=True)
    # A batch gives its errors back as answers, so those that a user can mend are raised only here.
    mine = next((answer for answer in found.values() if isinstance(answer, UserError)), None)
    if mine is not None:
        raise mine
    return [found[number] for number in range(len(branches))]


def _answer_messages(branch: Branch, text: str) -> list[Message]:
    """The answer as messages: the user's, or each called tool's (the first one's holds the text)."""
    calls = (branch.called or {}).get("tool_calls") or ()
    tools: list[Message] = [
        {"role": "tool", "tool_call_id": str(c.get("id", "")), "content": ""} for c in calls
    ]
    if not tools:
        return [{"role": "user", "content": text}]
    tools[0]["content"] = text
    return tools


def _wanted(branches: Sequence[Branch]) -> list[Branch]:
    """Branches that were not cancelled; the others' episodes are closed."""
    for branch in branches:
        if branch.cancelled and branch.episode is not None:
            branch.episode.close()
    return [b for b in branches if not b.cancelled]
