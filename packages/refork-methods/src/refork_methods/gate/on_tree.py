"""The gate on a tree: candidates are drawn turns, refining is a fork, verdicts and beliefs are scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, final

import numpy as np

from refork.errors import BadInput, ServerError
from refork.forking.arm import prepare, run_jobs
from refork.forking.context import conversation
from refork.plain import to_json
from refork.policies.base import Cost, Sampling, total_cost
from refork.policies.base import Policy as Acting
from refork.progress import Progress, silent
from refork.stats.results import Interval
from refork.tree.node import NewNode, Node, Point
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task, World
from refork_methods.gate.controller import METHODS, BayesController
from refork_methods.gate.evaluate import promised
from refork_methods.gate.live import CriticVerdict, Event, LiveEpisode, Opened, Writer, run_gate
from refork_methods.gate.model import GENERATE, CriticModel, Prices, Unit, read_policy
from refork_methods.gate.policy import Policy, Verify, verify_from
from refork_methods.gate.regimes import Comparison, compare_rules
from refork_methods.gate.replay import mean_interval
from refork_methods.gate.rules import every_rule

#: What the policy is told before it refines a candidate, from what its checks said.
Feedback: TypeAlias = Callable[[Sequence[CriticVerdict]], str]

BELIEF = "belief"

GATE_VERSION = "1"


def plain_feedback(feedback: Sequence[CriticVerdict]) -> str:
    """Each verdict on a line, with its reason; asks for another try."""
    lines = []
    for one in feedback:
        passed = one.verdict.passed
        word = "gave no verdict" if passed is None else ("passed" if passed else "failed")
        lines.append(f"{one.critic} {word}" + (f": {one.verdict.reason}" if one.verdict.reason else ""))
    return "\n".join([*(lines or ["not checked"]), "try again"])


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate: the point after its last event, and the text the policy gave."""

    point: Point
    text: str

    @property
    def node(self) -> Node:
        """The event that carries its scores."""
        return self.point.node

    @property
    def digest(self) -> str:
        """SHA-256 of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@final
class TreeWriter:
    """Draws candidates from a policy at a point of a tree.

    Without ``world`` a candidate is one turn; refining it appends what its checks said and forks there.
    With ``world`` a candidate is a whole rollout and each further one a draw of its own, so the kernel to
    use is :meth:`Kernel.resample`. ``draw`` numbers the episode: the same number draws the same candidates.
    ``unit``: what of a candidate's recorded cost is told; None is told where the policy does not say.

    Raises: ServerError where the policy gave an error instead of a candidate; the tree keeps it.
    """

    def __init__(
        self,
        root: Point,
        policy: Acting,
        settings: Sampling,
        *,
        world: World | None = None,
        seed: int = 0,
        draw: int = 0,
        feedback: Feedback = plain_feedback,
        unit: Unit = "utility",
    ) -> None:
        self._root, self._policy, self._settings = root, policy, settings
        self._world, self._seed, self._draw, self._feedback = world, seed, draw, feedback
        self._drawn, self._unit = 0, unit

    def __call__(
        self, previous: Candidate | None, feedback: Sequence[CriticVerdict]
    ) -> tuple[Candidate, float | None]:
        """The first candidate, or one refined from ``previous``."""
        number, self._drawn = self._drawn, self._drawn + 1
        if previous is None or self._world is not None:
            # Far apart, so that no episode's later rollouts are another's first.
            return self._fork(self._root, self._draw + (number << 32) if number else self._draw)
        assert previous.point.tree is not None
        return self._fork(self._answered(previous.point.tree, previous, feedback), self._draw)

    def wrote(self, candidate: Node) -> bool:
        """Whether a recorded candidate, or one that it was refined from, is a draw of this episode.

        It is another's where the policy, its weights, the settings or the seed are others.
        """
        tree, card = self._root.tree, self._policy.card.to_json()
        assert tree is not None
        mine = (_who(card), self._settings.to_json(), self._seed, self._world.name if self._world else None)
        leaves = {
            done.leaf
            for fork in tree.forks(self._root.node)
            if (_who(fork.policy), fork.settings, fork.seed, fork.world) == mine
            for done in tree.draws(fork.id)
            if done.draw % (1 << 32) == self._draw
        }
        return any(step.node.id in leaves for step in tree.path(candidate))

    def _answered(self, tree: Tree, previous: Candidate, told: Sequence[CriticVerdict]) -> Point:
        text = self._feedback(told)
        message = {"role": "user", "content": text}
        tokens = None
        if self._policy.card.can("tokens"):
            trajectory = tree.path(previous.point)
            talk = conversation(trajectory)
            before = [*talk.messages, {"role": "assistant", "content": talk.pending or ""}]
            rendered = self._policy.render(before, trajectory.tokens, [message])
            # A template that rewrites the context leaves no tokens to append; the message alone is recorded.
            tokens = None if rendered.rewrites else rendered.tokens
        key = f"gate/{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        draft = NewNode(
            kind="observation", parent=previous.node.id, key=key, text=text, message=message,
            tokens=tokens, origin="real", extra={"by": "gate"},
        )  # fmt: skip
        return tree.at(tree.append([draft])[0])

    def _fork(self, point: Point, draw: int) -> tuple[Candidate, float | None]:
        job = prepare(
            point, self._policy, [draw], settings=self._settings, world=self._world, seed=self._seed
        )
        done = next(d for d in run_jobs([job])[0].draws if d.draw == draw)
        if done.end == "error":
            raise ServerError(f"the policy gave no candidate: {done.error}", where=self._policy.card.name)
        tree = point.tree
        assert tree is not None
        end = tree.at(done.leaf)
        before = len(list(tree.path(point)))
        said = [step.node for step in list(tree.path(end))[before:] if step.node.kind == "action"]
        return Candidate(end, said[-1].text), self._in_unit(total_cost([node.cost for node in said]))

    def _in_unit(self, cost: Cost) -> float | None:
        if self._unit == "tokens":
            parts = (cost.tokens_in, cost.tokens_out)
            return None if None in parts else float(sum(part or 0 for part in parts))
        return {"seconds": cost.seconds, "money": cost.money}.get(self._unit)


def _who(card: Json) -> Json:
    """What of a policy's card says whose draws they are; weights that nobody knows go by the name."""
    return {
        "who": card["weights"] or card["name"],
        "tokenizer": card["tokenizer"],
        "context": card["context"],
    }


def critic_producer(name: str, config: Json | None = None) -> Producer:
    """Who gives a critic's verdicts; ``config`` is whatever could change them."""
    return Producer(f"critic:{name}", GATE_VERSION, config or {})


def gate_producer(
    policy: Policy,
    model: CriticModel,
    prices: Prices,
    critics: Mapping[str, Producer],
    settings: Json | None = None,
) -> Producer:
    """Who gives the beliefs of one controller: retiring a critic retires them.

    ``settings``: whatever else moves what is asked, such as the horizon; other settings, another producer.
    """
    config = {"policy": policy.name, "model": _digest(model.to_json()), "prices": to_json(prices)}
    config |= settings or {}
    return Producer("gate", GATE_VERSION, config, tuple(sorted(one.id for one in critics.values())))


def record_episode(
    tree: Tree,
    episode: LiveEpisode[Candidate],
    gate: Producer,
    critics: Mapping[str, Producer],
    name: str | None = None,
) -> str:
    """Write an episode's verdicts and final beliefs as scores of its candidates; the id of its verdict node.

    A candidate's belief is the last one before it was verified. The verdict node hangs on the last
    candidate and holds the events, the outcome and the accounts; under a ``name`` it is found again by
    :func:`recorded_episodes`.
    """
    for producer in (*critics.values(), gate):
        tree.add_producer(producer)
    scores: list[Score] = []
    beliefs: dict[str, float] = {}
    fresh = episode.events[0].before if episode.events else episode.belief
    for event in episode.events:
        node = event.candidate.node.id
        beliefs.setdefault(node, fresh)
        if event.action == GENERATE:
            beliefs[node] = event.after
        elif event.action in critics:
            beliefs[node] = event.after
            if event.passed is not None:
                producer = critics[event.action]
                scores.append(Score(node, event.action, float(event.passed), producer.id, event.why or None))
    scores += [Score(node, BELIEF, value, gate.id) for node, value in beliefs.items()]
    body: Json = {
        "events": [_plain(event) for event in episode.events], "outcome": episode.outcome,
        "utility": episode.utility, "first": episode.first, "belief": episode.belief, "right": episode.right,
    }  # fmt: skip
    last = episode.candidate.node.id
    draft = NewNode(
        kind="verdict", parent=last, key=_key(gate, _digest(body) if name is None else name),
        text=episode.outcome, extra={"gate": body, "reason": "gate"},
    )  # fmt: skip
    tree.add_scores(scores)
    return tree.append([draft])[0].id


def recorded_episodes(tree: Tree, root: Point, gate: Producer) -> dict[str, list[Node]]:
    """The verdict nodes of a controller's episodes from a root, by the names they were recorded under.

    Several of one name are of several writers: a producer says who decided, not who wrote.
    """
    start = _key(gate, "")
    found: dict[str, list[Node]] = {}
    for node in tree.walk(root.node):
        if node.kind == "verdict" and node.key.startswith(start):
            found.setdefault(node.key.removeprefix(start), []).append(node)
    return found


def _key(gate: Producer, name: str) -> str:
    return f"gate/{gate.id}/{name}"


def _plain(event: Event[Candidate]) -> Json:
    return {
        "action": event.action, "candidate": event.candidate.node.id, "number": event.number,
        "before": event.before, "after": event.after, "price": event.price, "passed": event.passed,
        "why": event.why,
    }  # fmt: skip


def _digest(body: Json) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


# Many live episodes on a tree: rows, totals, what the model had promised; nothing is played twice.

#: An episode whose writer gave no candidate; it has no utility.
FAILED = "failed"


class Bench(Protocol):
    """Where tasks become episodes: the repair world's in the testbed, or one of your own."""

    @property
    def producers(self) -> Mapping[str, Producer]:
        """Who gives each critic's verdicts."""

    def root(self, task: Task) -> Point:
        """Where a task's episodes begin."""

    def open(self, task: Task) -> Callable[[int], Opened[Candidate]]:
        """What an episode's number opens."""


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """A policy and what it acts under. ``measured``: pay what calls really cost, where they say so."""

    policy: Policy
    model: CriticModel
    prices: Prices
    horizon: int = 3
    ending: Verify = "terminal"
    measured: bool = False

    def producer(self, critics: Mapping[str, Producer]) -> Producer:
        """Who gives the beliefs of this setting."""
        more: Json = {"horizon": self.horizon, "verify": self.ending, "measured": self.measured}
        if isinstance(self.policy, BayesController) and self.policy.lookahead is not None:
            more["lookahead"] = self.policy.lookahead
        return gate_producer(self.policy, self.model, self.prices, critics, more)


@final
@dataclass(frozen=True, slots=True)
class LiveRow:
    """One episode; ``recorded``: it was on the tree already. A failed one has nothing but its ``why``."""

    task: str
    draw: int
    outcome: str
    actions: tuple[str, ...] = ()
    belief: float | None = None
    utility: float | None = None
    spent: float | None = None
    node: str | None = None
    recorded: bool = False
    why: str | None = None


@final
@dataclass(frozen=True, slots=True)
class LiveRun:
    """Episodes beside what the model promised of the policy, of the plan, and of every simple rule."""

    policy: str
    unit: str
    rows: tuple[LiveRow, ...]
    predicted: float
    rules: Comparison

    @property
    def utilities(self) -> list[float]:
        """Mean utility of each task; failed episodes, and those without an outcome, are left out."""
        found: dict[str, list[float]] = {}
        for row in self.rows:
            if row.utility is not None and row.outcome != "unknown":
                found.setdefault(row.task, []).append(row.utility)
        return [sum(mine) / len(mine) for mine in found.values()]

    def mean(self, level: float = 0.95) -> Interval | None:
        """Mean utility over tasks with its t interval; None without an episode."""
        values = np.array(self.utilities)
        return mean_interval(values, level, "task") if values.size else None

    @property
    def z(self) -> float | None:
        """(Realised - predicted) by the realised mean's standard error; None where that is not known."""
        values = np.array(self.utilities)
        error = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0
        return (float(values.mean()) - self.predicted) / error if error > 0 else None

    def to_json(self) -> Json:
        """Plain fields, rows and totals."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.outcome] = counts.get(row.outcome, 0) + 1
        return {
            "policy": self.policy, "unit": self.unit,
            "rows": [to_json(row) for row in self.rows], "outcomes": counts,
            "recorded": sum(row.recorded for row in self.rows), "tasks": len(self.utilities),
            "utility": to_json(self.mean()), "predicted": self.predicted, "z": self.z,
            "promised": self.rules.to_json(),
        }  # fmt: skip


def policy_named(
    name: str, model: CriticModel, prices: Prices, horizon: int = 3, verify: Verify = "terminal"
) -> Policy:
    """``dp``, ``greedy``, or a rule by its name, such as ``gate(public)``. Raises BadInput."""
    for method in METHODS:
        if name == method:
            return BayesController(model, prices, horizon, verify, method)
    rules = every_rule(model, horizon)
    if name not in rules:
        raise BadInput(f"there is no policy {name!r}", hint=", ".join([*METHODS, *rules]))
    return rules[name]


def setting_from(
    path: Path, use: str = "dp", *, horizon: int = 3, verify: str = "terminal", measured: bool = False
) -> Setting:
    """A policy by name over a policy file. Raises BadInput for a file without prices, or an unknown name."""
    model, prices = read_policy(path)
    if prices is None:
        raise BadInput(
            "the policy file has no prices", where=str(path), hint="refork gate fit --reward 100 ..."
        )
    ending = verify_from(verify)
    policy = policy_named(use, model, prices, horizon, ending)
    return Setting(policy, model, prices, horizon, ending, measured)


def run_live(
    tree: Tree,
    bench: Bench,
    tasks: Sequence[Task],
    setting: Setting,
    *,
    draws: int = 1,
    progress: Progress = silent,
) -> LiveRun:
    """Play ``draws`` episodes of every task and write each on the tree as it ends.

    An episode that is on the tree is read from there, so a run that was stopped goes on; one of another
    writer (:class:`TreeWriter`) is not taken for it. A writer that fails is a row without utility, never the
    end of the run.

    Raises: BadInput for fewer than one draw or no task, and as :func:`run_gate`.
    """
    if draws < 1 or not tasks:
        raise BadInput(f"{draws} draws of {len(tasks)} tasks", hint="at least 1 of each")
    compared = compare_rules(setting.model, setting.prices, setting.horizon, setting.ending)
    gate = setting.producer(bench.producers)
    rows: list[LiveRow] = []
    for task in tasks:
        known = recorded_episodes(tree, bench.root(task), gate)
        opened = bench.open(task)
        for draw in range(draws):
            callables = opened(draw)
            node = next((n for n in known.get(str(draw), ()) if _is_of(callables[0], n)), None)
            if node is None:
                try:
                    made = _play(tree, setting, callables, gate, bench.producers, str(draw))
                    rows.append(_row(task.id, draw, tree.node(made), recorded=False))
                except ServerError as error:
                    rows.append(LiveRow(task.id, draw, FAILED, why=error.what))
            else:
                rows.append(_row(task.id, draw, node, recorded=True))
            progress("episodes", len(rows), draws * len(tasks))
    found = promised(setting.policy, setting.model, setting.prices, setting.horizon, setting.ending)
    return LiveRun(setting.policy.name, setting.prices.unit, tuple(rows), found, compared)


def _is_of(write: Writer[Candidate], episode: Node) -> bool:
    """Whether an episode's candidates are of this writer; one that is no TreeWriter cannot be told apart."""
    return not isinstance(write, TreeWriter) or write.wrote(episode)


def _play(
    tree: Tree,
    setting: Setting,
    opened: Opened[Candidate],
    gate: Producer,
    critics: Mapping[str, Producer],
    name: str,
) -> str:
    write, checks, verify = opened
    episode = run_gate(
        setting.policy, setting.model, setting.prices, write, checks, verify,
        horizon=setting.horizon, ending=setting.ending, measured=setting.measured,
    )  # fmt: skip
    return record_episode(tree, episode, gate, critics, name)


def _row(task: str, draw: int, node: Node, *, recorded: bool) -> LiveRow:
    body = node.extra["gate"]
    return LiveRow(
        task,
        draw,
        body["outcome"],
        tuple(event["action"] for event in body["events"]),
        body["belief"],
        body["utility"],
        body["first"] + sum(event["price"] for event in body["events"]),
        node.id,
        recorded,
    )
