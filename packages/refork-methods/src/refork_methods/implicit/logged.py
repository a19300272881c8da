"""Trajectories as JSON lines: chat logs to be scored, and scored ones with the log-probs of both models.

A **chat log** line holds ``messages`` (or Who&When's ``history``), and where known a task
(``task``, ``task_id``, ``question_ID``), an outcome (``outcome``, ``reward``, ``success``,
``reward_info.reward``) and the step that was marked as decisive (``decisive``, ``mistake_step``: the
number of a message).

A **scored** line holds ``actions``: for each its ``message`` number, and per token the log-probs ``policy``
and ``reference`` at temperature 1. Whoever logs both can write it without a model at hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.types import Json, Message
from refork_methods.implicit.aggregate import (
    PairLogprobs,
    aggregate_steps,
    pair_logprobs,
    step_advantages,
    token_advantages,
)
from refork_methods.implicit.predict import trajectory_digest

_MESSAGES = ("messages", "history")
_TASK = ("task", "task_id", "question_ID")
_OUTCOME = ("outcome", "reward", "success")
_DECISIVE = ("decisive", "mistake_step")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a trajectory besides its tokens. None: not known."""

    name: str
    task: str
    outcome: float | None
    decisive: int | None
    digest: str


@dataclass(frozen=True, slots=True)
class Scored:
    """A trajectory with the log-probs of both models; ``messages`` [steps] numbers each action's message.

    ``models`` names policy and reference with their weights.
    """

    facts: Facts
    pair: PairLogprobs
    messages: tuple[int, ...]
    models: Json
    beta: float = 1.0


def _lines(file: Path) -> Iterator[tuple[str, Json]]:
    with file.open(encoding="utf-8") as lines:
        yield from json_objects(lines, str(file))


def _first(body: Json, keys: Sequence[str]) -> Any:
    # Not by truth: an outcome of 0 and a marked step 0 are known.
    return next((body[key] for key in keys if body.get(key) is not None), None)


def _facts(body: Json, where: str, content: Any) -> Facts:
    outcome = _first(body, _OUTCOME)
    if outcome is None and isinstance(body.get("reward_info"), dict):
        outcome = body["reward_info"].get("reward")
    decisive, task = _first(body, _DECISIVE), _first(body, _TASK)
    try:
        value = None if outcome is None else float(outcome)
        if value is not None and not np.isfinite(value):
            raise ValueError(f"{value} is none")
        step = None if decisive is None else int(decisive)
    except (TypeError, ValueError) as error:
        raise BadInput(f"an outcome is a number and a step an integer: {error}", where=where) from error
    digest = trajectory_digest(json.dumps([task, content], sort_keys=True))
    name = str(body.get("id") or digest[:12])
    return Facts(name, name if task is None else str(task), value, step, str(body.get("digest") or digest))


def read_chats(file: Path) -> list[tuple[Facts, list[Message]]]:
    """Chat logs of a file, in order.

    Raises:
        BadInput: a line that is no JSON object or has no messages, an outcome that is no number.
    """
    found = []
    for where, body in _lines(file):
        messages = _first(body, _MESSAGES)
        if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
            raise BadInput(
                "this line has no messages", where=where, hint='expected {"messages": [{"role": ...}, ...]}'
            )
        found.append((_facts(body, where, messages), messages))
    if not found:
        raise BadInput("there is no trajectory in this file", where=str(file))
    return found


def read_scored(file: Path) -> list[Scored]:
    """Scored trajectories of a file, in order.

    Raises:
        BadInput: a line without actions, log-probs at another temperature than 1, a token that the logged
            top-k leave out, or log-probs that are not finite; token and line are named.
    """
    found = [_scored(body, where) for where, body in _lines(file)]
    if not found:
        raise BadInput("there is no trajectory in this file", where=str(file))
    return found


def _scored(body: Json, where: str) -> Scored:
    actions = body.get("actions")
    if not isinstance(actions, list) or not actions:
        raise BadInput(
            "this line has no actions, so there is nothing to score",
            where=where,
            hint="`refork implicit score` writes such lines",
        )
    temperature = body.get("temperature", 1)
    if temperature != 1:
        raise BadInput(
            f"these log-probs were taken at temperature {temperature}",
            where=where,
            hint="the advantage is a ratio of unfiltered probabilities: log at temperature 1, unfiltered",
        )
    columns: dict[str, list[float]] = {"policy": [], "reference": []}
    ids: list[int] = []
    names: list[str] = []
    for number, action in enumerate(actions):
        texts = action.get("tokens") or []
        for side in columns:
            columns[side] += realised(action.get(side) or [], texts, side, f"{where}, action {number}")
        count, other = (len(action.get(side) or []) for side in columns)
        if count != other:
            raise BadInput(
                f"{count} policy and {other} reference log-probs",
                where=f"{where}, action {number}",
                hint="a log-ratio compares two models on the same tokens",
            )
        ids += [number] * count
        names += [str(t) for t in texts] if len(texts) == count else [""] * count
    pair = pair_logprobs(
        columns["policy"], columns["reference"], ids, steps=len(actions),
        cut=[bool(a.get("cut", False)) for a in actions], names=names, where=where,
    )  # fmt: skip
    messages = tuple(int(a.get("message", i)) for i, a in enumerate(actions))
    models: Json = {key: body[key] for key in ("policy", "reference") if key in body}
    content = [[a.get("tokens"), a.get("policy")] for a in actions]
    return Scored(_facts(body, where, content), pair, messages, models, float(body.get("beta", 1.0)))


def realised(
    logged: Sequence[Any], tokens: Sequence[Any], side: str = "policy", where: str | None = None
) -> list[float]:
    """The log-prob of each token that was really said, from plain numbers or from logged top-k tables.

    Args:
        logged: per token a number, or a mapping from token to log-prob.
        tokens: what was said, needed for tables only.
        side: whose log-probs they are, for messages.
        where: place, for messages.

    Raises:
        BadInput: a table without the token that was said, or no number at all.
    """
    values = []
    for place, given in enumerate(logged):
        entry = given
        if isinstance(entry, Mapping):
            token = tokens[place] if place < len(tokens) else None
            if token is None or str(token) not in entry:
                raise BadInput(
                    f"the {side}'s top {len(entry)} leave out token {place} {token!r}, which was said",
                    where=where,
                    hint="log the log-prob of the token that was said, not only of the likeliest ones",
                )
            entry = entry[str(token)]
        if isinstance(entry, bool) or not isinstance(entry, (int, float)):
            raise BadInput(
                f"the {side} gives token {place} no log-prob ({entry!r})",
                where=where,
                hint="score the same tokens with the model itself",
            )
        values.append(float(entry))
    return values


def scored_line(item: Scored, texts: Sequence[Sequence[str]] | None = None) -> Json:
    """A scored trajectory as one JSON object that :func:`read_scored` takes, with its scores.

    ``scores`` has the exact sum over all tokens and, as length-free heuristic, the mean of step means; each
    action its sum (None where it is cut).
    """
    pair, beta = item.pair, item.beta
    steps, means = step_advantages(pair, "sum", beta), step_advantages(pair, "mean", beta)
    tokens = token_advantages(pair, beta)
    actions = []
    for number, message in enumerate(item.messages):
        own = pair.step_id == number
        actions.append(
            {
                "message": message,
                "score": _plain(steps[number]),
                "cut": bool(pair.cut[number]),
                **({"tokens": list(texts[number])} if texts is not None else {}),
                "policy": pair.policy[own].tolist(),
                "reference": pair.reference[own].tolist(),
                "advantage": tokens[own].tolist(),
            }
        )
    facts = item.facts
    known = {"task": facts.task, "outcome": facts.outcome, "decisive": facts.decisive}
    return {
        "id": facts.name,
        **{key: value for key, value in known.items() if value is not None},
        "digest": facts.digest,
        **item.models,
        "beta": beta,
        "temperature": 1,
        "scores": {"sum": _plain(aggregate_steps(steps)), "mean": _plain(aggregate_steps(means, "mean"))},
        "cut": int(pair.cut.sum()),
        "actions": actions,
    }


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def csv_rows(items: Iterable[Scored]) -> Iterator[list[Any]]:
    """A header, then one row per action: trajectory, facts, step, message, scores, size."""
    yield ["id", "task", "outcome", "step", "message", "score_sum", "score_mean", "tokens", "cut"]
    for item in items:
        sums = step_advantages(item.pair, "sum", item.beta)
        means = step_advantages(item.pair, "mean", item.beta)
        counts = np.bincount(item.pair.step_id[item.pair.step_id >= 0], minlength=item.pair.steps)
        for step, message in enumerate(item.messages):
            facts = [item.facts.name, item.facts.task, item.facts.outcome]
            own = [_plain(sums[step]), _plain(means[step]), int(counts[step]), bool(item.pair.cut[step])]
            yield [*facts, step, message, *own]
