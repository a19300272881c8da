"""What a simulator is trained on: checked, split by source, weighed, and written to a folder."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from refork.errors import BadInput, DiskFull
from refork.jsonl import json_objects
from refork.plain import content_hash, to_json
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree import Node, Tree
from refork.types import Json
from refork.worlds.environment import EnvTrajectory, Transition

# What a simulator is trained on: checked, freed of retry loops, split by source, mixed.
#
# Source: arXiv 2606.24597 for what is filtered (retry loops, their state chain kept; screens that do not
# change) and for splits by source; how a loop is found, and everything that is refused, is ours.

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
        # By content and not by name: logs are copied under other names.
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
    bad = {problem.trajectory for problem in problems if _refuses(problem)}
    names = Counter(f"{item.source}/{item.id}" for item in trajectories)
    found: dict[str, EnvTrajectory] = {}
    for item in trajectories:
        name = f"{item.source}/{item.id}"
        # A problem says a name: where two have it, the other one may be sound.
        if name not in bad or (names[name] > 1 and not any(map(_refuses, check([item])))):
            found.setdefault(_content(item), item)
    return list(found.values())


def _refuses(problem: Problem) -> bool:
    return problem.refused and problem.kind != "doubled"


def _content(item: EnvTrajectory) -> str:
    return content_hash([item.brief.to_json(), item.history()])


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
            # Against the turns that stay: a dropped loop leaves the screen from before it.
            if item.domain in SCREENS and turn.observation == before:
                kept.append(replace(turn, target=False))
            else:
                kept.append(turn)
            # After every turn, so only a repetition at the very end has to be looked for.
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
        # The state is not known, so the turns may have changed it: they stay for those that follow.
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
    # At least one on each side, whatever the fraction rounds to.
    count = min(max(1, round(fraction * len(order))), len(order) - 1)
    chosen = set(order[:count])
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


@dataclass(frozen=True, slots=True)
class Mixed:
    """What is replayed beside the data, and the share it has of both together."""

    replay: list[int]
    fraction: float


def mixture(sizes: Sequence[int], replay_sizes: Sequence[int], fraction: float, seed: int = 0) -> Mixed:
    """Which items of other data stand beside the own so that they hold ``fraction`` of both together.

    Sizes are in any one unit. Items are drawn without replacement until all have
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


# How much a turn's answer tells beyond its action, the class that follows, and its share in the loss.
#
# With A and O the lower-cased words of action and observation, each counted once: overlap |A n O|/|A|,
# novelty |O \\ A|/|O|, Jaccard |A n O|/|A u O|, ratio characters of O / characters of A. A share whose
# denominator is empty is 0; the ratio of an answer to an empty action is infinite, of no answer to it 0.
#
# Source: arXiv 2606.24597 for the four statistics, the seven classes and their shares; the thresholds of
# echo follow readers of it, all others are our reconstruction, for the source does not give them.

TurnClass: TypeAlias = Literal[
    "retrieval", "expansion", "action", "transform", "boilerplate", "echo", "other"
]
CLASSES: tuple[TurnClass, ...] = get_args(TurnClass)

#: Share of a class that stays in the loss.
SHARES: Mapping[TurnClass, float] = {
    "retrieval": 1.0,
    "expansion": 1.0,
    "action": 1.0,
    "transform": 0.5,
    "boilerplate": 0.1,
    "echo": 0.05,
    "other": 1.0,
}


@dataclass(frozen=True, slots=True)
class TurnStats:
    """Overlap, novelty and Jaccard in [0, 1]; ratio 0 or more; lengths in characters."""

    overlap: float
    novelty: float
    jaccard: float
    ratio: float
    chars_action: int
    chars_observation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where classes begin; the first that fits is taken, in the order of the fields."""

    echo_overlap: float = 0.70
    echo_novelty: float = 0.30
    boilerplate_overlap: float = 0.50
    boilerplate_novelty: float = 0.50
    transform_ratio: float = 0.50
    transform_action: float = 200
    transform_novelty: float = 0.30
    action_observation: float = 80
    retrieval_overlap: float = 0.30
    retrieval_novelty: float = 0.70
    retrieval_ratio: float = 2.0
    expansion_novelty: float = 0.50
    expansion_ratio: float = 1.0

    @classmethod
    def parse(cls, items: Sequence[str]) -> Thresholds:
        """Thresholds with ``name=value`` items changed; raises BadInput naming an unknown or a bad one."""
        known = {field.name for field in fields(cls)}
        changed: dict[str, float] = {}
        for item in items:
            name, _, value = item.partition("=")
            if name not in known:
                raise BadInput(f"there is no threshold {name!r}", hint=", ".join(sorted(known)))
            try:
                changed[name] = float(value)
            except ValueError as error:
                raise BadInput(f"{value!r} is not a number", where=f"threshold {name}") from error
            if not math.isfinite(changed[name]) or changed[name] < 0:
                raise BadInput(f"{value} cannot be a threshold", where=f"threshold {name}")
        return cls(**changed)


@dataclass(frozen=True, slots=True)
class Weighed:
    """One turn: its statistics, its class, and its weight in the loss."""

    stats: TurnStats
    kind: TurnClass
    weight: float

    def to_json(self) -> Json:
        """One line of the log."""
        plain: Json = to_json(self.stats)
        return {"class": self.kind, "weight": self.weight, **plain}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def turn_stats(action: str, observation: str) -> TurnStats:
    """The statistics of one turn.

    Source: arXiv 2606.24597; the values of empty texts are ours (see the module).
    """
    said, seen = set(action.lower().split()), set(observation.lower().split())
    both = len(said & seen)
    empty = math.inf if observation else 0.0
    return TurnStats(
        overlap=_share(both, len(said)),
        novelty=_share(len(seen - said), len(seen)),
        jaccard=_share(both, len(said | seen)),
        ratio=len(observation) / len(action) if action else empty,
        chars_action=len(action),
        chars_observation=len(observation),
    )


def classify(stats: TurnStats, thresholds: Thresholds | None = None) -> TurnClass:
    """The class of a turn; the first that fits, as :class:`Thresholds` lists them, else ``other``.

    An answer without words is an ``action``: it repeats nothing, and that nothing is said is what is learned.
    """
    at = thresholds or Thresholds()
    rules: tuple[tuple[TurnClass, bool], ...] = (
        ("echo", stats.overlap >= at.echo_overlap and stats.novelty < at.echo_novelty),
        (
            "boilerplate",
            stats.overlap >= at.boilerplate_overlap and stats.novelty < at.boilerplate_novelty,
        ),
        (
            "transform",
            stats.ratio < at.transform_ratio
            and stats.chars_action >= at.transform_action
            and stats.novelty >= at.transform_novelty,
        ),
        ("action", stats.chars_observation <= at.action_observation),
        (
            "retrieval",
            stats.overlap < at.retrieval_overlap
            and stats.novelty >= at.retrieval_novelty
            and stats.ratio >= at.retrieval_ratio,
        ),
        ("expansion", stats.novelty >= at.expansion_novelty and stats.ratio >= at.expansion_ratio),
    )
    return next((kind for kind, fits in rules if fits), "other")


def weigh(
    turns: Sequence[Transition],
    thresholds: Thresholds | None = None,
    shares: Mapping[TurnClass, float] | None = None,
) -> list[Weighed]:
    """Statistics, class and weight of every turn: the share of its class, 0 where it is no target.

    Raises:
        BadInput: a share that is missing or outside [0, 1].
    """
    kept = dict(SHARES) if shares is None else dict(shares)
    wrong = [kind for kind in CLASSES if not 0.0 <= kept.get(kind, -1.0) <= 1.0]
    if wrong:
        raise BadInput(f"the share of class {wrong[0]} is {kept.get(wrong[0])}", hint="shares are in [0, 1]")
    found = []
    for turn in turns:
        stats = turn_stats(turn.action, turn.observation)
        kind = classify(stats, thresholds)
        found.append(Weighed(stats, kind, 0.0 if turn.target is False else kept[kind]))
    return found


def loss_weights(
    turns: Sequence[Transition],
    thresholds: Thresholds | None = None,
    shares: Mapping[TurnClass, float] | None = None,
) -> list[tuple[TurnClass, float]]:
    """Class and loss weight of every turn.

    The weight is the share itself. A mask drawn with the share, as by :func:`sampled_turns`, has the same
    expectation and more variance.
    """
    return [(one.kind, one.weight) for one in weigh(turns, thresholds, shares)]


def sampled_turns(
    weights: Float[Array, "turns"], lengths: Int[Array, "turns"], seed: int
) -> Bool[Array, "tokens"]:
    """A mask in which all tokens of a turn stay or go together, with probability the turn's weight."""
    rng = np.random.default_rng(stream_of("masked turns", seed))
    return np.asarray(np.repeat(rng.random(len(weights)) < weights, lengths))


# From sources to a folder to train from: read, checked, filtered, split, weighed and counted.
#
# A source is a JSON-lines file of environment trajectories, a tree, or a log in a format that trees can be
# made from. The folder holds ``train.jsonl`` and ``test.jsonl`` (trajectories), ``turns.jsonl`` (statistics,
# class and weight of every turn that is trained on) and ``data.json`` (what was done).

_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is done with the data: the share of the sources (``by`` task: of the tasks) to test on."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    test_fraction: float = 0.2
    by: str = "source"
    seed: int = 0

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Row:
    """What a domain holds: ``shares`` of its turns by class, ``exact`` of those of which it is known."""

    domain: str
    trajectories: int
    turns: int
    targets: int
    exact: float | None
    shares: dict[TurnClass, float]
    weight: float

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Data that is ready, and what was found on the way."""

    split: Split
    problems: list[Problem]
    unread: list[str]
    dropped: int
    context_only: int
    table: list[Row]
    choices: Choices

    def to_json(self) -> Json:
        """Facts for the record; the data itself left out."""
        problems = Counter(problem.kind for problem in self.problems)
        return {
            "train": len(self.split.train),
            "test": len(self.split.test),
            "train_sources": sorted({item.source for item in self.split.train}),
            "test_sources": sorted({item.source for item in self.split.test}),
            "problems": dict(sorted(problems.items())),
            "refused": sorted({problem.trajectory for problem in self.problems if problem.refused}),
            "unread": self.unread,
            "retry_turns_dropped": self.dropped,
            "context_only_turns": self.context_only,
            "shares": dict(SHARES),
            "table": [row.to_json() for row in self.table],
            **self.choices.to_json(),
        }


def read_source(path: Path, unread: list[str]) -> Iterator[EnvTrajectory]:
    """The trajectories of one source; what a log holds that is none is told in ``unread``.

    Raises:
        BadInput: no such file, a format that is not known, or a broken line.
    """
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(_SQLITE):
        yield from _of_tree(path, unread)
    elif _is_trajectories(head.decode(errors="replace")):
        with path.open(encoding="utf-8") as lines:
            for place, body in json_objects(lines, str(path)):
                yield EnvTrajectory.from_json(body, place)
    else:
        yield from _of_log(path, unread)


def _is_trajectories(head: str) -> bool:
    first = head.lstrip().partition("\n")[0]
    try:
        body = json.loads(first)
    except ValueError:
        # A first line that is longer than what was read is cut off, and so no JSON.
        return first.startswith('{"id"') and '"turns"' in first
    return isinstance(body, dict) and {"id", "source", "turns"} <= set(body)


def _of_tree(path: Path, unread: list[str]) -> Iterator[EnvTrajectory]:
    with Tree.open(path, "r") as tree:
        yield from _trajectories(tree, path, None, unread)


def _of_log(path: Path, unread: list[str]) -> Iterator[EnvTrajectory]:
    from refork.formats import reader_for

    reader = reader_for(path)
    with Tree.memory() as tree:
        tree.load(reader.read(path))
        yield from _trajectories(tree, path, path.stem, unread)


def _trajectories(tree: Tree, path: Path, source: str | None, unread: list[str]) -> Iterator[EnvTrajectory]:
    from refork.growing.recorder import trajectory_of

    for leaf in tree.leaves():
        try:
            yield trajectory_of(tree.path(leaf), source=source)
        except BadInput as error:
            before = _without_last(tree, leaf, source)
            used = "" if before is None else "; the turns before it are used"
            unread.append(f"{path}: {error.what} ({error.where}){used}")
            if before is not None:
                yield before


def _without_last(tree: Tree, leaf: Node, source: str | None) -> EnvTrajectory | None:
    """The turns before a last call that nothing answered, as logs end that were ended by it."""
    from refork.growing.recorder import trajectory_of

    if leaf.kind != "action" or leaf.parent is None:
        return None
    try:
        found = trajectory_of(tree.path(leaf.parent), source=source)
    except BadInput:
        return None
    return found if found.turns else None


def prepare(
    sources: Sequence[Path],
    test_sources: Sequence[Path] = (),
    choices: Choices | None = None,
    progress: Progress = silent,
) -> Prepared:
    """Data to train and to test on, no source or task in both.

    Raises:
        BadInput: nothing is left to train on, train and test overlap, or a source cannot be read.
    """
    chosen = choices or Choices()
    unread: list[str] = []
    total = len(sources) + len(test_sources)
    parts: list[list[EnvTrajectory]] = []
    for number, path in enumerate([*sources, *test_sources]):
        progress("reading", number, total)
        parts.append(list(read_source(path, unread)))
    progress("reading", total, total)
    given = [item for part in parts[: len(sources)] for item in part]
    tests = [item for part in parts[len(sources) :] for item in part]
    problems = check([*given, *tests])
    clean, clean_tests = (filtered(accepted(items, problems)) for items in (given, tests))
    if not clean.trajectories:
        first = next((str(problem) for problem in problems if problem.refused), next(iter(unread), "no data"))
        raise BadInput(f"there is nothing to train on: {first}", where=", ".join(map(str, sources)))
    if test_sources:
        refuse_overlap(clean.trajectories, clean_tests.trajectories)
        split = Split(clean.trajectories, clean_tests.trajectories)
    else:
        split = split_sources(clean.trajectories, chosen.test_fraction, chosen.seed, chosen.by)
    return Prepared(
        split=split,
        problems=problems,
        unread=unread,
        dropped=clean.dropped + clean_tests.dropped,
        context_only=clean.context_only + clean_tests.context_only,
        table=statistics(split.train, chosen.thresholds),
        choices=chosen,
    )


def statistics(items: Iterable[EnvTrajectory], thresholds: Thresholds | None = None) -> list[Row]:
    """A row for every domain and, where there are several, one for all."""
    groups: dict[str, list[EnvTrajectory]] = {}
    for item in items:
        groups.setdefault(item.domain or "other", []).append(item)
    rows = [_row(name, groups[name], thresholds) for name in sorted(groups)]
    if len(groups) > 1:
        rows.append(_row("all", [item for group in groups.values() for item in group], thresholds))
    return rows


def _row(name: str, items: Sequence[EnvTrajectory], thresholds: Thresholds | None) -> Row:
    turns = [turn for item in items for turn in item.turns]
    weighed = weigh(turns, thresholds)
    kinds = Counter(one.kind for one in weighed)
    known = [turn.exact for turn in turns if turn.exact is not None]
    count = max(1, len(turns))
    return Row(
        domain=name,
        trajectories=len(items),
        turns=len(turns),
        targets=sum(turn.target is not False for turn in turns),
        exact=sum(known) / len(known) if known else None,
        shares={kind: kinds[kind] / count for kind in CLASSES},
        weight=sum(one.weight for one in weighed) / count,
    )


def write(prepared: Prepared, folder: Path) -> None:
    """Write the folder; every file whole or not at all. Raises DiskFull."""
    thresholds = prepared.choices.thresholds
    turns = (
        {"trajectory": item.id, "source": item.source, "turn": number, **one.to_json()}
        for item in prepared.split.train
        for number, one in enumerate(weigh(item.turns, thresholds), start=1)
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _lines(folder / "train.jsonl", (item.to_json() for item in prepared.split.train))
        _lines(folder / "test.jsonl", (item.to_json() for item in prepared.split.test))
        _lines(folder / "turns.jsonl", turns)
        part = folder / "data.json.part"
        part.write_text(json.dumps(prepared.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(folder / "data.json")
    except OSError as error:
        raise DiskFull(f"this could not be written: {error.strerror}", where=str(folder)) from error


def _lines(path: Path, items: Iterable[Json]) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as out:
        for item in items:
            out.write(json.dumps(item, ensure_ascii=False, allow_nan=False) + "\n")
    part.replace(path)
