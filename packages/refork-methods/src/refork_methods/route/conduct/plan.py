"""A workflow as a model writes it: who does what, in order, and who sees whose answer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.route.pool import WorkerPool

# Reading the three lists of a plan out of what a model wrote.
#
# Three forms are read, whatever reasoning stands before them: a JSON object with the three keys, the three
# lists under their names (``model_id: [...]`` or ``model_id = [...]``), or just three lists at the end.
# Items may be quoted with ' or ", or bare words.

KEYS = ("model_id", "subtasks", "access_list")
#: A text, a number, or a list of such.
Item: TypeAlias = "str | int | list[Item]"
#: Longer than this is no plan; it bounds the work on what a model runs on to write.
LONGEST = 50_000
DEEPEST = 8

# Greedy: a plan may be tried out in one thought and written after another.
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL)
_KEYED = {key: re.compile(rf"[\"']?\b{key}s?\b[\"']?\s*[:=]\s*(?=\[)") for key in KEYS}
_ALL = re.compile(r"\s*[\"']?\ball\b[\"']?", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+\Z")
_TOKEN = re.compile(
    r"""\s*(?:(?P<sign>[\[\],])|"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>(?:\\.|[^'\\])*)'"""
    r"""|(?P<bare>[^\[\],"']+))""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPE = {"n": "\n", "t": "\t", "r": "\r"}


def three_lists(text: str) -> tuple[list[Item], list[Item], list[Item] | str]:
    """The lists of a plan as written, not yet checked; the last is a text where it says ``all`` once.

    Where a text holds several plans, the last whole one counts.

    Raises: BadInput where there are no three lists.
    """
    if len(text) > LONGEST:
        raise BadInput(f"a text of {len(text)} characters is no plan", hint=f"at most {LONGEST}")
    said = _THOUGHT.sub("", text, count=1)
    for read in (_as_json, _by_name, _at_the_end):
        found = read(said)
        if found is not None:
            return found
    raise BadInput("no plan was found", hint="three lists of equal length: " + ", ".join(KEYS))


def _as_json(text: str) -> tuple[list[Item], list[Item], list[Item] | str] | None:
    decoder = json.JSONDecoder()
    found = None
    for start in (m.start() for m in re.finditer(r"\{", text)):
        try:
            read, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict) and set(KEYS) <= set(read):
            found = read
    if found is None or not all(isinstance(found[key], list) for key in KEYS[:2]):
        return None
    access = found["access_list"]
    return (
        (found["model_id"], found["subtasks"], access)
        if isinstance(access, list) or _says_all(access)
        else None
    )


def _says_all(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "all"


def _by_name(text: str) -> tuple[list[Item], list[Item], list[Item] | str] | None:
    names = list(_KEYED["model_id"].finditer(text))
    for begun in reversed(names):
        lists: list[list[Item]] = []
        place = begun.start()
        for key in KEYS:
            named = _KEYED[key].search(text, place)
            read = None if named is None else _whole_list(text, named.end())
            if read is None:
                break
            lists.append(read[0])
            place = read[1]
        if len(lists) == len(KEYS):
            return lists[0], lists[1], lists[2]
        spread = re.compile(r"[\"']?\baccess_list\b[\"']?\s*[:=]").search(text, place)
        if len(lists) == len(KEYS) - 1 and spread and _ALL.match(text, spread.end()):
            return lists[0], lists[1], "all"
    return None


def _at_the_end(text: str) -> tuple[list[Item], list[Item], list[Item] | str] | None:
    lists: list[list[Item]] = []
    place = 0
    while (start := text.find("[", place)) >= 0:
        read = _whole_list(text, start)
        if read is None:
            place = start + 1
            continue
        lists.append(read[0])
        place = read[1]
    # What stands after the last list may be an ending, not half of another list.
    return (lists[-3], lists[-2], lists[-1]) if len(lists) >= len(KEYS) else None


def _whole_list(text: str, start: int) -> tuple[list[Item], int] | None:
    """The list that begins at a bracket, and where it ends; None where it is broken, or nested too deep."""
    whole: list[Item] = []
    within: list[list[Item]] = []
    due = True  # after a bracket or a comma an item may come, and nowhere else
    while (token := _TOKEN.match(text, start)) is not None:
        start = token.end()
        sign, quoted, bare = token["sign"], token["double"] or token["single"] or "", token["bare"]
        if sign == "]":
            due = False
            whole = within.pop()
            if not within:
                return whole, start
        elif sign == ",":
            if due:
                return None
            due = True
        elif not due or (sign == "[" and len(within) > DEEPEST):
            return None
        elif sign == "[":
            inner: list[Item] = []
            if within:
                within[-1].append(inner)
            within.append(inner)
        else:
            due = False
            word = _ESCAPED.sub(lambda m: _ESCAPE.get(m[1], m[1]), quoted) if bare is None else bare.strip()
            if bare is not None and not word:
                return None
            number = bare is not None and _NUMBER.match(word) and len(word) < 10
            within[-1].append(int(word) if number else word)
    return None


# A workflow as a model writes it: who does what, in order, and who sees whose answer.

#: Steps that a plan may have.
MOST_STEPS = 5
#: Why a plan cannot run.
Fault: TypeAlias = Literal[
    "unreadable",
    "empty",
    "unequal lengths",
    "too many steps",
    "unknown worker",
    "opted out",
    "empty subtask",
    "forward access",
    "unknown access",
    "repeated access",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a plan cannot run: the fault, the step it is in (from 1; None: the whole), and a sentence."""

    fault: Fault
    step: int | None
    text: str


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Three lists of one length: the worker of each step, its subtask, and the steps whose answers it sees.

    Steps are counted from 1, and so are workers where they are named by number (their place in the pool).
    ``access_list[t]`` holds earlier steps in the order in which they are shown. A plan may hold faults:
    :meth:`problems` names them, :meth:`validate` refuses them.

    Source: arXiv:2512.04388 (three lists, at most five steps); counting from 1 is ours.
    """

    model_id: tuple[str, ...]
    subtasks: tuple[str, ...]
    access_list: tuple[tuple[int, ...], ...]

    @classmethod
    def parse(cls, text: str, workers: Sequence[str] = ()) -> Plan:
        """Read the plan that a model wrote, after whatever reasoning; its faults stay in it.

        ``workers`` are the names that numbers stand for, from 1. Access is a list of steps, ``[]`` or
        ``all`` (every earlier step), for each step, or ``all`` once for the whole plan.

        Raises: BadInput where no three lists can be found, or an item cannot be what its list holds.
        """
        models, subtasks, access = three_lists(text)
        granted = ["all"] * len(subtasks) if isinstance(access, str) else access
        return cls(
            tuple(_worker(item, workers) for item in models),
            tuple(_subtask(item) for item in subtasks),
            tuple(_access(item, step) for step, item in enumerate(granted, 1)),
        )

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        """Inverse of :meth:`to_json`. Raises BadInput for what is no plan."""
        if not isinstance(data, dict) or not set(KEYS) <= set(data):
            raise BadInput("a workflow is an object with the lists " + ", ".join(KEYS))
        return cls.parse(json.dumps({key: data[key] for key in KEYS}))

    @classmethod
    def read(cls, path: Path | str) -> Plan:
        """The plan of a workflow file. Raises BadInput where there is none."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise BadInput(f"no workflow can be read: {error}", where=str(path)) from error

    def __len__(self) -> int:
        """Steps; the longest list where they differ."""
        return max(len(self.model_id), len(self.subtasks), len(self.access_list))

    def problems(self, pool: WorkerPool, most: int = MOST_STEPS) -> list[Problem]:
        """Every fault; none where the plan can run with this pool."""
        lengths = len(self.model_id), len(self.subtasks), len(self.access_list)
        found: list[Problem] = []
        if max(lengths) == 0:
            found.append(Problem("empty", None, "the plan has no step"))
        if len(set(lengths)) > 1:
            sizes = ", ".join(f"{key} {size}" for key, size in zip(KEYS, lengths, strict=True))
            found.append(Problem("unequal lengths", None, f"the lists differ in length: {sizes}"))
        if max(lengths) > most:
            found.append(Problem("too many steps", None, f"{max(lengths)} steps; at most {most}"))
        for step, name in enumerate(self.model_id, 1):
            if name not in pool.names:
                found.append(Problem("unknown worker", step, f"there is no worker {name!r}"))
            elif name not in pool.open:
                found.append(Problem("opted out", step, f"worker {name!r} has opted out"))
        for step, subtask in enumerate(self.subtasks, 1):
            if not subtask.strip():
                found.append(Problem("empty subtask", step, "the subtask is empty"))
        for step, access in enumerate(self.access_list, 1):
            found += _access_problems(step, access)
        return found

    def validate(self, pool: WorkerPool, most: int = MOST_STEPS) -> Plan:
        """The plan itself. Raises BadInput that names every fault where it has one."""
        found = self.problems(pool, most)
        if found:
            said = "; ".join(p.text if p.step is None else f"step {p.step}: {p.text}" for p in found)
            raise BadInput(f"this plan cannot run: {said}", hint=f"open workers: {', '.join(pool.open)}")
        return self

    def to_json(self) -> Json:
        """The workflow as JSON: the three lists."""
        return {
            "model_id": list(self.model_id),
            "subtasks": list(self.subtasks),
            "access_list": [list(access) for access in self.access_list],
        }


def _access_problems(step: int, access: tuple[int, ...]) -> list[Problem]:
    found: list[Problem] = []
    if len(set(access)) < len(access):
        found.append(Problem("repeated access", step, f"access {list(access)} names a step twice"))
    for other in dict.fromkeys(access):
        if other < 1:
            found.append(Problem("unknown access", step, f"there is no step {other}; steps count from 1"))
        elif other >= step:
            what = "itself" if other == step else f"step {other}, which comes later"
            found.append(Problem("forward access", step, f"it cannot see {what}"))
    return found


def _worker(item: Item, workers: Sequence[str]) -> str:
    if isinstance(item, bool) or not isinstance(item, str | int):
        raise BadInput(f"{item!r} names no worker", where="model_id")
    # A worker whose name is a number is meant by it, before any place in the pool.
    if isinstance(item, int) and str(item) not in workers and 1 <= item <= len(workers):
        return workers[item - 1]
    return str(item)


def _subtask(item: Item) -> str:
    if isinstance(item, bool) or not isinstance(item, str | int):
        raise BadInput(f"{item!r} is no subtask", where="subtasks")
    return str(item)


def _access(item: Item, step: int) -> tuple[int, ...]:
    if isinstance(item, str) and item.strip().lower() == "all":
        return tuple(range(1, step))
    if isinstance(item, list) and len(item) == 1 and item[0] == "all":
        return tuple(range(1, step))
    if not isinstance(item, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in item):
        raise BadInput(f"{item!r} is no list of steps", where=f"access_list, step {step}")
    return tuple(i for i in item if isinstance(i, int))
