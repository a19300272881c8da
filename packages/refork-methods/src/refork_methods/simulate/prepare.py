"""From sources to a folder to train from: read, checked, filtered, split, balanced, weighed and counted.

A source is a JSON-lines file of environment trajectories, a tree, or a log in a format that trees can be
made from. The folder holds ``train.jsonl`` and ``test.jsonl`` (trajectories), ``turns.jsonl`` (statistics,
class and weight of every turn that is trained on), ``replay.jsonl`` and ``data.json`` (what was done).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from refork.errors import BadInput, DiskFull
from refork.jsonl import json_objects
from refork.progress import Progress, silent
from refork.tree import Node, Tree
from refork.types import Json
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.data import (
    Problem,
    Split,
    accepted,
    balanced,
    check,
    filtered,
    mixture,
    refuse_overlap,
    size_of,
    split_sources,
)
from refork_methods.simulate.turn_stats import CLASSES, SHARES, Thresholds, TurnClass, weigh

_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is done with the data; None of ``balance``: nothing is left out, 0: as the smallest domain.

    ``replay_fraction`` is of characters here, for the tokenizer is not known yet; training measures the same
    fraction out again in tokens.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    test_fraction: float = 0.2
    by: str = "source"
    balance: int | None = None
    replay_fraction: float = 0.0
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
    chars_action: float
    chars_observation: float
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
    left_out: int
    replay: list[Json]
    replay_fraction: float
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
            "left_out_for_balance": self.left_out,
            "replay_items": len(self.replay),
            "replay_fraction": self.replay_fraction,
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
        return first.startswith('{"id"') and '"turns"' in first
    return isinstance(body, dict) and {"id", "source", "turns"} <= set(body)


def _of_tree(path: Path, unread: list[str]) -> Iterator[EnvTrajectory]:
    with Tree.open(path, "r") as tree:
        yield from _walks(tree, path, None, unread)


def _of_log(path: Path, unread: list[str]) -> Iterator[EnvTrajectory]:
    from refork.formats import reader_for

    reader = reader_for(path)
    with Tree.memory() as tree:
        tree.load(reader.read(path))
        yield from _walks(tree, path, path.stem, unread)


def _walks(tree: Tree, path: Path, source: str | None, unread: list[str]) -> Iterator[EnvTrajectory]:
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
    replay: Path | None = None,
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
    train = split.train
    if chosen.balance is not None:
        train = balanced(train, chosen.balance or None, chosen.seed)
    again, fraction = _replayed(train, replay, chosen)
    return Prepared(
        split=Split(train, split.test),
        problems=problems,
        unread=unread,
        dropped=clean.dropped + clean_tests.dropped,
        context_only=clean.context_only + clean_tests.context_only,
        left_out=len(split.train) - len(train),
        replay=again,
        replay_fraction=fraction,
        table=statistics(train, chosen.thresholds),
        choices=chosen,
    )


def _replayed(train: Sequence[EnvTrajectory], path: Path | None, chosen: Choices) -> tuple[list[Json], float]:
    """Lines of the replay file, so many that they hold the fraction of all characters."""
    if path is None:
        if chosen.replay_fraction:
            raise BadInput("a replay fraction is set, but no file to replay", hint="--replay FILE")
        return [], 0.0
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    with path.open(encoding="utf-8") as lines:
        items = list(json_objects(lines, str(path)))
    for place, body in items:
        if not isinstance(body.get("text"), str) and not isinstance(body.get("messages"), list):
            raise BadInput('replay is lines {"text": ...} or {"messages": [...]}', where=place)
    sizes = [_size(body) for _, body in items]
    found = mixture([size_of(item) for item in train], sizes, chosen.replay_fraction, chosen.seed)
    return [items[number][1] for number in found.replay], found.fraction


def _size(body: Json) -> int:
    if isinstance(body.get("text"), str):
        return len(body["text"])
    return sum(len(str(message.get("content") or "")) for message in body["messages"])


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
        chars_action=sum(one.stats.chars_action for one in weighed) / count,
        chars_observation=sum(one.stats.chars_observation for one in weighed) / count,
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
        if prepared.replay:
            _lines(folder / "replay.jsonl", prepared.replay)
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
