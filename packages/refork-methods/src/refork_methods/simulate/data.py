"""What a simulator is trained on: checked, freed of retry loops, split by source, balanced, mixed.

Source: arXiv 2606.24597 for what is filtered (retry loops, their state chain kept; screens that do not
change) and for splits by source; how a loop is found, and everything that is refused, is ours.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

from refork.errors import BadInput
from refork.plain import content_hash
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.environment import EnvTrajectory, Transition

Kind: TypeAlias = Literal[
    "no turns",
    "simulated",
    "reasoning",
    "missing observation",
    "unanswered call",
    "doubled",
    "empty initial state",
]

#: Kinds that are told and do no harm to the rest of a trajectory.
WARNINGS: frozenset[Kind] = frozenset({"empty initial state"})
SCREENS = frozenset({"phone", "web", "desktop"})
#: Domains in which every action shows something.
_ALWAYS_ANSWERED = SCREENS | {"search", "tools"}
#: Longest cycle of turns that counts as a retry loop.
LONGEST_LOOP = 3

_REASONING = re.compile(
    r"</?\s*(think|thinking|thought|thoughts|reasoning|reflection)\s*>"
    r"|<\|(begin|end)_of_thought\|>|^\s*Thoughts?\s*:|\"(reasoning_content|reasoning|thought)\"\s*:",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a trajectory; ``turn`` counts from 1, None where all of it is meant."""

    kind: Kind
    trajectory: str
    turn: int | None = None

    @property
    def refused(self) -> bool:
        """Whether the trajectory cannot be trained on."""
        return self.kind not in WARNINGS

    def __str__(self) -> str:
        place = "" if self.turn is None else f", turn {self.turn}"
        return f"{self.kind} ({self.trajectory}{place})"

    def to_json(self) -> Json:
        """Plain fields."""
        return {**asdict(self), "refused": self.refused}


def check(trajectories: Iterable[EnvTrajectory]) -> list[Problem]:
    """Everything that must not be trained on, and what should be known first.

    Refused are trajectories without turns, with agent reasoning in an action, with an action that was not
    answered (a tool call, or any in a domain that always shows something), with answers that a simulator
    gave, and copies of another. An empty initial state is a warning: a simulator has to make it up.
    """
    found: list[Problem] = []
    seen: set[str] = set()
    for item in trajectories:
        name = f"{item.source}/{item.id}"
        mark = _content(item)
        if not item.turns:
            found.append(Problem("no turns", name))
        elif mark in seen:
            found.append(Problem("doubled", name))
        seen.add(mark)
        if item.extra.get("simulated"):
            found.append(Problem("simulated", name))
        for number, turn in enumerate(item.turns, start=1):
            found += [Problem(kind, name, number) for kind in _wrong(turn, item.domain)]
        if not item.brief.initial_state.strip():
            found.append(Problem("empty initial state", name))
    return found


def _wrong(turn: Transition, domain: str | None) -> Iterator[Kind]:
    """What is wrong with one turn."""
    if _REASONING.search(turn.action):
        yield "reasoning"
    if not turn.observation.strip():
        if _is_call(turn.action):
            yield "unanswered call"
        elif domain in _ALWAYS_ANSWERED:
            yield "missing observation"


def accepted(trajectories: Sequence[EnvTrajectory], problems: Iterable[Problem]) -> list[EnvTrajectory]:
    """Those that no problem refuses; of copies the first stays."""
    bad: dict[str, int] = Counter(
        problem.trajectory for problem in problems if problem.refused and problem.kind != "doubled"
    )
    found: dict[str, EnvTrajectory] = {}
    for item in trajectories:
        if f"{item.source}/{item.id}" not in bad:
            found.setdefault(_content(item), item)
    return list(found.values())


def _content(item: EnvTrajectory) -> str:
    return content_hash([item.brief.to_json(), item.seen()])


def _is_call(action: str) -> bool:
    try:
        body = json.loads(action.strip().split("\n")[-1])
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and isinstance(body.get("name"), str) and "arguments" in body


def task_of(item: EnvTrajectory) -> str | None:
    """The task within its source that a trajectory is of, where it is known."""
    task = item.extra.get("task")
    task = task.get("id") if isinstance(task, dict) else task
    return None if task is None else str(task)


def refuse_overlap(train: Iterable[EnvTrajectory], test: Iterable[EnvTrajectory]) -> None:
    """Raise BadInput where train and test share a source, and within it a task or one that is not known.

    Trajectories of one world are of one source; its tasks tell train from test.
    """
    tasks: dict[str, set[str | None]] = defaultdict(set)
    contents: set[str] = set()
    for item in train:
        tasks[item.source].add(task_of(item))
        contents.add(_content(item))
    for item in test:
        task = task_of(item)
        shared = tasks.get(item.source)
        if shared is not None and (task is None or None in shared or task in shared):
            told = "a source" if task is None or None in shared else "a task"
            raise BadInput(
                f"train and test share {told}: {item.source}" + (f", {task}" if told == "a task" else ""),
                where=f"trajectory {item.id}",
                hint="split by source; within a world, by task",
            )
        if _content(item) in contents:
            raise BadInput("a test trajectory is a copy of a training one", where=f"trajectory {item.id}")


@dataclass(frozen=True, slots=True)
class Filtered:
    """Trajectories after the filters, turns that were dropped, and turns that stay as context only."""

    trajectories: list[EnvTrajectory]
    dropped: int
    context_only: int


def filtered(trajectories: Iterable[EnvTrajectory]) -> Filtered:
    """Trajectories without retry loops; screens that did not change stay as context only.

    A retry loop is a cycle of up to ``LONGEST_LOOP`` turns said and answered again in the same words. Where
    the state keys show that the state after it is the state before it, the repetition is dropped, and every
    later turn still follows from what is left. Where states are not known it stays, as context only: the
    second "+1" is answered like the first and changes the state all the same.

    An unchanged screen is an observation of phone, web or desktop equal to the one before it.
    """
    found: list[EnvTrajectory] = []
    dropped = context = 0
    for item in trajectories:
        kept: list[Transition] = []
        for turn in item.turns:
            before = kept[-1].observation if kept else None
            if item.domain in SCREENS and turn.observation == before:
                kept.append(replace(turn, target=False))
            else:
                kept.append(turn)
            dropped += _without_loop(kept)
        context += sum(turn.target is False for turn in kept)
        found.append(replace(item, turns=tuple(kept)))
    return Filtered(found, dropped, context)


def _without_loop(turns: list[Transition]) -> int:
    """Take a repetition off the end, or mark it as context; returns how many turns went."""
    for length in range(1, LONGEST_LOOP + 1):
        if len(turns) < 2 * length:
            continue
        again, first = turns[-length:], turns[-2 * length : -length]
        if [(t.action, t.observation) for t in again] != [(t.action, t.observation) for t in first]:
            continue
        now, then = again[-1].state_key, first[-1].state_key
        if now is not None and then is not None:
            if now != then:
                continue
            del turns[-length:]
            return length
        turns[-length:] = [replace(turn, target=False) for turn in again]
    return 0


@dataclass(frozen=True, slots=True)
class Split:
    """Train and test, no source (or task of a world) in both."""

    train: list[EnvTrajectory]
    test: list[EnvTrajectory]


def split_sources(
    trajectories: Sequence[EnvTrajectory], fraction: float = 0.2, seed: int = 0, by: str = "source"
) -> Split:
    """Whole sources for testing, about ``fraction`` of them and at least one, drawn by the seed.

    ``by`` "task": whole tasks within each source instead, for records of one world. Trajectories whose split
    is recorded keep it, and their sources are not drawn.

    Raises:
        BadInput: a fraction outside (0, 1), one source only, a task that is not known, or an overlap.
    """
    if not 0.0 < fraction < 1.0:
        raise BadInput(f"the test fraction is {fraction}; it must be in (0, 1)", where="split")
    if by not in ("source", "task"):
        raise BadInput(f"there is no split by {by!r}", hint="source or task")
    recorded = {item.source for item in trajectories if item.split == "held-out"}
    open_ = sorted({_group(item, by) for item in trajectories if item.source not in recorded})
    if len(open_) == 1 and not recorded:
        raise BadInput(f"there is one {by} only", where="split", hint="give more, or --test-source")
    order = sorted(open_, key=lambda group: stream_of("test source", seed, *group))
    chosen = set(order[: max(1, round(fraction * len(order)))]) if len(open_) > 1 else set()
    test = [
        item
        for item in trajectories
        if (item.split == "held-out" if item.source in recorded else _group(item, by) in chosen)
    ]
    held = {id(item) for item in test}
    train = [item for item in trajectories if id(item) not in held]
    refuse_overlap(train, test)
    return Split(train, test)


def _group(item: EnvTrajectory, by: str) -> tuple[str, ...]:
    if by == "source":
        return (item.source,)
    task = task_of(item)
    if task is None:
        raise BadInput("the task is not known", where=f"trajectory {item.id}", hint="split by source")
    return (item.source, task)


def balanced(
    trajectories: Sequence[EnvTrajectory], most: int | None = None, seed: int = 0
) -> list[EnvTrajectory]:
    """At most so many turns of every domain (None: as many as the smallest has), whole trajectories, drawn.

    The first that exceeds the bound is the last that is taken, so no domain is empty. Order is kept.
    """
    groups: dict[str | None, list[int]] = defaultdict(list)
    for number, item in enumerate(trajectories):
        groups[item.domain].append(number)
    if most is None:
        sizes = [sum(len(trajectories[i].turns) for i in numbers) for numbers in groups.values()]
        most = min(sizes, default=0)
    kept: list[int] = []
    for numbers in groups.values():
        order = sorted(
            numbers,
            key=lambda i: stream_of("balance", seed, trajectories[i].source, trajectories[i].id),
        )
        held = 0
        for number in order:
            if held >= most:
                break
            kept.append(number)
            held += len(trajectories[number].turns)
    return [trajectories[number] for number in sorted(kept)]


@dataclass(frozen=True, slots=True)
class Mixed:
    """What is replayed beside the data, and the share it has of both together."""

    replay: list[int]
    fraction: float


def mixture(sizes: Sequence[int], replay_sizes: Sequence[int], fraction: float, seed: int = 0) -> Mixed:
    """Which items of other data stand beside the own so that they hold ``fraction`` of both together.

    Sizes are in any one unit (characters, tokens, turns). Items are drawn without replacement until all have
    been, then all over again; the last one exceeds the fraction by less than itself.

    Raises:
        BadInput: a fraction outside [0, 1), or above 0 without anything to replay.
    """
    if not 0.0 <= fraction < 1.0:
        raise BadInput(f"the replay fraction is {fraction}; it must be in [0, 1)", where="replay")
    if fraction == 0.0:
        return Mixed([], 0.0)
    if not any(size > 0 for size in replay_sizes):
        raise BadInput("a replay fraction is set, but there is nothing to replay", where="replay")
    own = sum(sizes)
    wanted = fraction / (1.0 - fraction) * own
    found: list[int] = []
    held, around = 0, 0
    while held < wanted:
        for number in _shuffled(len(replay_sizes), seed, around):
            if held >= wanted:
                break
            found.append(number)
            held += replay_sizes[number]
        around += 1
    return Mixed(found, held / (held + own) if held else 0.0)


def _shuffled(count: int, seed: int, around: int) -> list[int]:
    return sorted(range(count), key=lambda i: stream_of("replay", seed, around, i))


def size_of(item: EnvTrajectory) -> int:
    """Characters of a trajectory: its brief, actions and observations."""
    return len(item.brief.text) + sum(len(t.action) + len(t.observation) for t in item.turns)
