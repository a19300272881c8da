"""Runs of a pool on a tree: in the harness with a worker for every turn, and every worker alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refork.errors import BadInput, CannotDo
from refork.forking import Fork
from refork.forking.context import conversation
from refork.growing.rollouts import Group, grow
from refork.policies.base import Cost, Sampling
from refork.progress import Progress, silent
from refork.tree.node import Node, Trajectory
from refork.tree.score import DrawRecord
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task, World
from refork_methods.route.pool import WorkerPool, no_answer, wrongly_asked
from refork_methods.route.relay import Relay, Rule, Voice, by_chance
from refork_methods.route.table import Outcome, OutcomeTable

# A conversation as raw lines of ``role: content``: the text that a router's backbone reads.

_BEGINS = re.compile(r"(system|developer|user|assistant|tool): ")


def raw_lines(messages: Sequence[Mapping[str, Any]]) -> str:
    """A transcript as lines of ``role: content``; tool calls follow their message as one line of JSON.

    What a message says is not escaped: a line of it that begins ``assistant: `` reads like a turn.

    Raises: BadInput for no message, or one without a role.
    Source: arXiv:2606.21228 (no chat template); where tool calls go is ours.
    """
    if not messages:
        raise BadInput("there is no message to render")
    lines = []
    for number, message in enumerate(messages):
        if not message.get("role"):
            raise BadInput("a message has no role", where=f"message {number}")
        lines.append(f"{message['role']}: {_text(message.get('content'))}")
        if message.get("tool_calls"):
            lines.append(json.dumps(message["tool_calls"], sort_keys=True, ensure_ascii=False))
    return "\n".join(lines)


def as_lines(text: str) -> str:
    """The raw lines of a table's text: itself where it begins with a role, else one user message."""
    return text if _BEGINS.match(text) else raw_lines([{"role": "user", "content": text}])


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        return "\n".join(str(part) for part in parts if part is not None)
    return "" if content is None else str(content)


# Runs of a pool on a tree: in the harness with a worker for every turn, and every worker alone.


@dataclass(frozen=True, slots=True)
class Failure:
    """A draw without an outcome: it failed, or nobody graded it."""

    query: str
    worker: str
    repeat: int
    reason: str


@dataclass(frozen=True, slots=True)
class Labels:
    """The outcomes that were collected, and the draws that gave none."""

    table: OutcomeTable
    failures: tuple[Failure, ...]


def voices(pool: WorkerPool) -> dict[str, Voice]:
    """The open workers as members of a relay.

    Raises: CannotDo where one of them has no policy (only a policy's turns can be recorded and forked).
    """
    found: dict[str, Voice] = {}
    for name in pool.open:
        worker = pool[name]
        if worker.policy is None:
            raise CannotDo(
                f"worker {name!r} has no policy, so its turns cannot be recorded and forked",
                hint="name its policy in the pool file, or opt it out",
            )
        found[name] = Voice(worker.policy, worker.settings)
    return found


def relay(pool: WorkerPool, rule: Rule, identity: Json, name: str = "relay") -> Relay:
    """The pool's open workers as one policy; ``rule`` says who speaks. Raises CannotDo as :func:`voices`."""
    return Relay(voices(pool), rule, identity=identity, name=name)


def record_runs(
    tree: Tree,
    pool: WorkerPool,
    world: World,
    tasks: Sequence[Task],
    *,
    draws: int = 1,
    settings: Sampling | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Group]:
    """Runs in the harness with a worker drawn for every turn, equally likely; what is recorded is not redone.

    Raises: CannotDo as :func:`voices`; BadInput for no task or no draws.
    """
    policy = relay(pool, by_chance(pool.open, seed), {"rule": "chance", "seed": seed}, "relay:chance")
    return grow(
        tree, policy, world, tasks,
        draws=draws, settings=settings or Sampling(), seed=seed, progress=progress,
    )  # fmt: skip


def label_alone(
    tree: Tree,
    pool: WorkerPool,
    world: World,
    tasks: Sequence[Task],
    *,
    draws: int = 8,
    settings: Sampling | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Labels:
    """Standalone outcomes: every open worker does every task by itself, ``draws`` times.

    They say nothing of how a worker does at a turn of somebody else's run: :func:`label_by_fork` does.

    Raises: BadInput where nothing was graded, or as :func:`record_runs`.
    Source: arXiv:2606.21228 (first stage); the tree and the noise keys are ours.
    """
    rows: list[Outcome] = []
    failures: list[Failure] = []
    for name, voice in voices(pool).items():
        try:
            groups = grow(
                tree, voice.policy, world, tasks,
                draws=draws, settings=voice.settings or settings or Sampling(), seed=seed, progress=progress,
            )  # fmt: skip
        except Exception as error:  # one worker that is down, by whatever error, is not the end of the others
            if wrongly_asked(error):
                raise
            why = str(no_answer(error, name))
            failures += [Failure(t.id, name, draw, why) for t in tasks for draw in range(draws)]
            continue
        for group in groups:
            text = raw_lines(conversation(tree.path(group.root)).messages)
            found = outcomes(group.forks[0], group.task.id, name, pool, 0, group.values("reward"), text)
            rows += found[0]
            failures += found[1]
    return labels(rows, failures, pool.open)


def labels(rows: Sequence[Outcome], failures: Sequence[Failure], workers: Sequence[str]) -> Labels:
    """Rows and failures together. Raises BadInput where no draw gave an outcome, with the first reason."""
    if not rows:
        first = f": {failures[0].reason}" if failures else ""
        raise BadInput(f"none of the {len(failures)} draws gave an outcome{first}")
    # Rewards are 0 .. 1 unless some lie outside: a table's targets are in units of this range.
    low = min(0.0, *(row.reward for row in rows))
    high = max(1.0, *(row.reward for row in rows))
    return Labels(OutcomeTable.of(rows, workers=workers, low=low, high=high), tuple(failures))


def outcomes(
    arm: Fork, query: str, worker: str, pool: WorkerPool, turn: int, values: Sequence[float | None], text: str
) -> tuple[list[Outcome], list[Failure]]:
    """The rows of one arm; price and seconds are those of the worker's own turn, number ``turn`` from 0."""
    rows: list[Outcome] = []
    failures: list[Failure] = []
    for draw, trajectory, value in zip(arm.draws, arm.leaves(), values, strict=True):
        if draw.end == "error" or value is None:
            failures.append(Failure(query, worker, draw.draw, _why(draw)))
            continue
        cost = turn_cost(trajectory, turn)
        rows.append(Outcome(query, worker, value, pool[worker].bill(cost), cost.seconds, draw.draw, text))
    return rows, failures


def _why(draw: DrawRecord) -> str:
    return draw.error or ("the draw failed" if draw.end == "error" else "nobody graded this draw")


def turns_of(trajectory: Trajectory) -> list[list[Node]]:
    """The action nodes of every turn of a run; a turn may have been said in several pieces."""
    turns: list[list[Node]] = []
    said = False
    for step in trajectory:
        if step.node.kind == "action":
            if not said:
                turns.append([])
            turns[-1].append(step.node)
        # A rewrite between two pieces does not end the turn.
        said = step.node.kind == "action" or (said and step.node.kind == "rewrite")
    return turns


def turn_cost(trajectory: Trajectory, turn: int) -> Cost:
    """What one turn of a run used, its pieces together; None where a piece does not say."""
    turns = turns_of(trajectory)
    if not turn < len(turns):
        return Cost()
    costs = [node.cost for node in turns[turn]]

    def total(name: str) -> float | None:
        values = [getattr(cost, name) for cost in costs]
        return None if None in values else sum(values)

    tokens = {name: None if (v := total(name)) is None else int(v) for name in ("tokens_in", "tokens_out")}
    return Cost(tokens["tokens_in"], tokens["tokens_out"], total("seconds"), total("money"))


def speaker(node: Node, pool: WorkerPool) -> str | None:
    """Which worker said a recorded turn: the recorded name, else the one whose policy has the node's name."""
    named = node.extra.get("worker")
    if named in pool.names:
        return str(named)
    if node.policy is None:  # a worker without a policy has no policy's name either
        return None
    fits = [
        w.name for w in pool.workers if w.name == node.policy or _policy_name(pool, w.name) == node.policy
    ]
    return fits[0] if len(fits) == 1 else None


def _policy_name(pool: WorkerPool, name: str) -> str | None:
    policy = pool[name].policy
    return policy.card.name if policy is not None else None
