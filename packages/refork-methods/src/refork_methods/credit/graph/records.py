"""Recorded trajectories outside a tree: JSON lines of three kinds, checked as they are read.

A line is a whole trajectory with its ``steps``, a conversation (``messages``: an assistant turn is a step,
what comes before it its observation), or one step of a trajectory as trainers log it (``traj_uid``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.types import Json


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One action and what was seen before it.

    ``anchor``: the name of the state where the environment gives one (a state hash). ``reward``: earned by
    this step, None where rewards are per episode. ``tokens`` and ``mask`` (true: sampled) have one entry per
    token where they are recorded.
    """

    observation: Any
    anchor: str | None = None
    action: str = ""
    valid: bool = True
    reward: float | None = None
    tokens: tuple[int, ...] | None = None
    mask: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trajectory: its task, the group it was sampled in, its name there, its steps and its reward.

    ``reward`` is that of the whole episode: the sum of the steps' where these have rewards.
    """

    task: str
    group: str
    name: str
    steps: tuple[RecordedStep, ...]
    reward: float

    @property
    def per_step(self) -> bool:
        """Whether the steps carry the rewards."""
        return bool(self.steps) and self.steps[0].reward is not None


def number(value: Any, where: str) -> float:
    """A finite reward; raises BadInput for NaN, infinities and what is not a number."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, (int, float)):
        raise BadInput(f"the reward is {value!r}, not a number", where=where)
    if not math.isfinite(value):
        raise BadInput(
            f"the reward is {value!r}", where=where, hint="leave trajectories out that were never graded"
        )
    return float(value)


def check_records(records: Sequence[Recorded]) -> None:
    """Refuse what no estimator can be computed from.

    Raises:
        BadInput: nothing at all, a trajectory without steps or without a group, two trajectories of one
            name in a group, or rewards per step in some and per episode in others.
    """
    if not records:
        raise BadInput("there is no trajectory", where="trajectories")
    seen: set[tuple[str, str, str]] = set()
    for item in records:
        where = f"trajectory {item.name}"
        if not item.group:
            raise BadInput("it names no group", where=where, hint="group_id: what was sampled together")
        if not item.steps:
            raise BadInput("it has no steps", where=where)
        number(item.reward, where)
        if item.per_step != records[0].per_step:
            raise BadInput(
                "rewards are per step in some trajectories and per episode in others",
                where=where,
                hint="give every trajectory one reward, or every step",
            )
        key = (item.task, item.group, item.name)
        if key in seen:
            raise BadInput(
                f"group {item.group} has two trajectories of this name",
                where=where,
                hint="rows that only fill up a batch must be left out: they would count twice",
            )
        seen.add(key)


def _tokens(data: Json, where: str) -> tuple[tuple[int, ...] | None, tuple[bool, ...] | None]:
    tokens, mask = data.get("tokens", data.get("token_ids")), data.get("mask")
    if mask is not None and (tokens is None or len(mask) != len(tokens)):
        size = "no" if tokens is None else len(tokens)
        raise BadInput(f"a mask of {len(mask)} entries for {size} token ids", where=where)
    ids = None if tokens is None else tuple(int(t) for t in tokens)
    return ids, None if mask is None else tuple(bool(m) for m in mask)


def _step(data: Any, where: str) -> RecordedStep:
    if not isinstance(data, dict):
        raise BadInput("a step is not an object", where=where)
    if data.get("observation") is None and data.get("anchor") is None:
        raise BadInput("a step has neither an observation nor an anchor", where=where)
    tokens, mask = _tokens(data, where)
    reward, anchor, valid = data.get("reward"), data.get("anchor"), data.get("valid")
    if valid not in (None, True, False):
        raise BadInput(f"valid is {valid!r}, neither true nor false", where=where)
    if isinstance(anchor, (dict, list)):
        raise BadInput("an anchor is a name, not a structure", where=where, hint="hash the state instead")
    return RecordedStep(
        observation=data.get("observation"),
        anchor=None if anchor is None else str(anchor),
        action=str(data.get("action") or ""),
        valid=valid is None or bool(valid),
        reward=None if reward is None else number(reward, where),
        tokens=tokens,
        mask=mask,
    )


def _turns(messages: Any, where: str) -> list[RecordedStep]:
    """Steps of a conversation: an assistant turn, and the messages between it and the one before."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise BadInput("messages are not a list of objects", where=where)
    steps: list[RecordedStep] = []
    seen: list[str] = []
    for message in messages:
        content = message.get("content")
        text = "" if content is None else content if isinstance(content, str) else _json(content)
        if message.get("role") == "assistant":
            calls = message.get("tool_calls")
            said = "\n".join(filter(None, (text, _json(calls) if calls else "")))
            steps.append(RecordedStep("\n".join(seen), action=said))
            seen = []
        else:
            seen.append(text)
    return steps


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _known(data: Json, *keys: str) -> Any:
    """The first of some fields that is given; one that is null is not."""
    return next((data[key] for key in keys if data.get(key) is not None), None)


def _name(data: Json, keys: Sequence[str], where: str, hint: str) -> str:
    found = next((data[key] for key in keys if data.get(key) not in (None, "")), None)
    if found is None:
        raise BadInput(f"it has no {keys[0]}", where=where, hint=hint)
    return str(found)


def _whole(data: Json, where: str, number_in_file: int) -> Recorded:
    group = _name(data, ("group_id", "uid"), where, "trajectories sampled for one prompt share a group_id")
    task, name = _known(data, "task_id"), _known(data, "traj_id")
    if "messages" in data:
        steps = _turns(data["messages"], where)
    else:
        given = data.get("steps")
        if not isinstance(given, list):
            raise BadInput("it has neither steps nor messages", where=where)
        steps = [_step(item, f"{where}, step {i}") for i, item in enumerate(given)]
    return Recorded(
        group if task is None else str(task),
        group,
        str(number_in_file if name is None else name),
        tuple(steps),
        _reward(data.get("reward"), steps, where),
    )


def _reward(episode: Any, steps: Sequence[RecordedStep], where: str) -> float:
    earned = [step.reward for step in steps if step.reward is not None]
    if episode is not None:
        if earned:
            raise BadInput(
                "it has a reward per episode and per step", where=where, hint="keep one of the two"
            )
        return number(episode, where)
    if not earned:
        raise BadInput("it has no reward", where=where, hint="leave trajectories out that were never graded")
    if len(earned) != len(steps):
        raise BadInput(
            f"{len(earned)} of {len(steps)} steps have a reward",
            where=where,
            hint="give every step one (0 where nothing was earned), or the episode",
        )
    return sum(earned)


def _rows(rows: Sequence[tuple[Json, str]]) -> list[Recorded]:
    """Trajectories from one row per step: a row that fills up a batch, said twice, counts once."""
    steps: dict[tuple[str, str], dict[int, tuple[Json, str]]] = {}
    for data, where in rows:
        key = (
            _name(data, ("uid", "group_id"), where, "uid: what was sampled together"),
            _name(data, ("traj_uid",), where, "the trajectory's name"),
        )
        if not isinstance(data.get("step"), int):
            raise BadInput(
                "this row has no step number",
                where=where,
                hint="step: 0, 1, ...; without it a repeated row cannot be told from a repeated state",
            )
        mine = steps.setdefault(key, {})
        if data["step"] in mine and mine[data["step"]][0] != data:
            raise BadInput(f"two different rows for step {data['step']}", where=where)
        mine.setdefault(data["step"], (data, where))
    return [_from_rows(group, name, mine) for (group, name), mine in steps.items()]


def _from_rows(group: str, name: str, mine: dict[int, tuple[Json, str]]) -> Recorded:
    first, where = mine[min(mine)]
    if sorted(mine) != list(range(len(mine))):
        raise BadInput("its steps are not numbered 0, 1, 2, ...", where=f"trajectory {name}")
    if len({repr(data.get("episode_rewards")) for data, _ in mine.values()}) > 1:
        raise BadInput("its rows disagree about the episode's reward", where=f"trajectory {name}")
    steps = []
    for i in range(len(mine)):
        data, place = mine[i]
        seen, valid = _known(data, "anchor_obs", "observation"), _known(data, "is_action_valid", "valid")
        steps.append(_step({**data, "observation": seen, "valid": valid}, place))
    reward = _reward(first.get("episode_rewards"), steps, where)
    task = _known(first, "task_id")
    return Recorded(group if task is None else str(task), group, name, tuple(steps), reward)


def parse_records(lines: Iterable[str], where: str = "trajectories") -> list[Recorded]:
    """Trajectories of JSON lines, in order; empty lines are passed over.

    Raises:
        BadInput: what cannot be read, and everything :func:`check_records` refuses; the place is the line.
    """
    found: list[Recorded] = []
    rows: list[tuple[Json, str]] = []
    for place, data in json_objects(lines, where):
        if "traj_uid" in data:
            rows.append((data, place))
        else:
            found.append(_whole(data, place, int(place.rpartition(":")[2])))
    found += _rows(rows)
    check_records(found)
    return found


def read_records(path: Path) -> list[Recorded]:
    """The trajectories of a JSON lines file; see :func:`parse_records`.

    Raises:
        BadInput: no such file, not text, or what :func:`parse_records` refuses.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return parse_records(lines, path.name)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error}", where=str(path)) from error
