"""Drift alarms: where a simulator contradicts what it said before.

A model has no state, only its transcript; what it forgets of that shows as a contradiction. The rules are
generic and cautious: they speak only where no action in between could have changed the matter, as far as its
text tells (:mod:`refork_methods.simulate.actions`). Silence proves nothing.

Source: arXiv 2606.24597 names drift as the failure of prompted simulators; these rules are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from refork.errors import BadInput
from refork.stats import Interval, wilson
from refork.types import Json
from refork.worlds.environment import ActionObservation, DomainName
from refork_methods.simulate.actions import Reading, read_action, tool_call, words

#: What an answer holds that a control or a failed parse put there.
_MARKS = re.compile(
    r"\(the simulator gave no answer\)|\(partial result|\(page \d+ of|error\"?:\s?\"?(503|429|504) "
)
_MISSING = re.compile(r"[Nn]o such file|[Nn]ot found|does not exist|cannot access")


@dataclass(frozen=True, slots=True)
class Alarm:
    """Turn ``second`` (from 0) contradicts turn ``first``; ``why`` says how."""

    rule: str
    first: int
    second: int
    why: str

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn with what its action does."""

    number: int
    action: str
    answer: str
    reading: Reading

    @property
    def failed(self) -> bool:
        """Whether the answer says that something is not there."""
        return _MISSING.search(self.answer) is not None


def newest(domain: DomainName | None, history: Sequence[ActionObservation]) -> list[Alarm]:
    """Alarms of the last turn."""
    if not history or _marked(history[-1][1]):
        return []
    last = _turn(domain, history, len(history) - 1)
    if last.reading.effect != "read":
        return []
    before = [_turn(domain, history, number) for number in range(len(history) - 1)]
    found = [alarm for rule in _RULES for alarm in rule(before, last)]
    if domain == "search":
        found = list(_repeated(_of_one_search(before), last))
    seen_pairs: set[tuple[int, str]] = set()
    kept = []
    for alarm in sorted(found, key=lambda a: -a.first):
        if (alarm.first, alarm.why) not in seen_pairs:
            seen_pairs.add((alarm.first, alarm.why))
            kept.append(alarm)
    return kept


def alarms(domain: DomainName | None, history: Sequence[ActionObservation]) -> list[Alarm]:
    """Alarms of a whole transcript, turn by turn."""
    return [alarm for end in range(1, len(history) + 1) for alarm in newest(domain, history[:end])]


def drift_rate(episodes: Sequence[Sequence[Alarm]], level: float = 0.95) -> Interval:
    """Share of episodes with an alarm, with Wilson's interval. Raises BadInput for no episodes."""
    if not episodes:
        raise BadInput("there is no episode to take a drift rate of")
    return wilson(sum(bool(one) for one in episodes), len(episodes), level)


def _marked(text: str) -> bool:
    return _MARKS.search(text) is not None


def _turn(domain: DomainName | None, seen: Sequence[ActionObservation], number: int) -> _Turn:
    action, answer = seen[number]
    return _Turn(number, action.strip(), answer.rstrip(), read_action(domain, action))


def _of_one_search(before: Sequence[_Turn]) -> list[_Turn]:
    """Turns since the last search: what a result's number means depends on it."""
    starts = [turn.number for turn in before if turn.reading.command == "search"]
    return [t for t in before if t.reading.command == "search" or not starts or t.number > starts[-1]]


def _back(before: Sequence[_Turn]) -> Iterator[tuple[_Turn, frozenset[str]]]:
    """Earlier looks, latest first, with the names touched since; it ends where all may have been."""
    touched: frozenset[str] = frozenset()
    for turn in reversed(before):
        if turn.reading.effect == "read":
            if not _marked(turn.answer):
                yield turn, touched
        elif turn.reading.touched is None:
            return
        else:
            touched = touched | turn.reading.touched


def _repeated(before: Sequence[_Turn], last: _Turn) -> Iterator[Alarm]:
    """The same question again: the same answer, but for what was touched since."""
    for turn, touched in _back(before):
        if turn.action != last.action:
            continue
        if turn.answer == last.answer:
            return
        if not touched:
            yield Alarm("repeat", turn.number, last.number, f"{last.action!r} is answered otherwise")
        elif last.reading.lists:
            yield from _entities(turn, last, touched)
        elif last.reading.operands and not words(last.action) & touched:
            yield Alarm("repeat", turn.number, last.number, f"{last.action!r} is answered otherwise")
        return


def _entities(turn: _Turn, last: _Turn, touched: frozenset[str]) -> Iterator[Alarm]:
    """What a list lost or gained without an action that named it."""
    if {name for operand in last.reading.operands for name in words(operand)} & touched or last.failed:
        return
    old, new = set(turn.answer.split()), set(last.answer.split())
    for name, what in [*((n, "gone") for n in sorted(old - new)), *((n, "new") for n in sorted(new - old))]:
        if not words(name) & touched and not name.isdigit():
            yield Alarm(what, turn.number, last.number, f"{name!r} is {what} and no action named it")


def _existence(before: Sequence[_Turn], last: _Turn) -> Iterator[Alarm]:
    """A file that was there and is not, or the other way round, with nothing done to it."""
    if last.reading.command not in ("cat", "head", "tail", "wc") or len(last.reading.operands) != 1:
        return
    path = last.reading.operands[0]
    folder, _, name = path.rpartition("/")
    places = ((folder,),) if folder else ((), (".",))
    for turn, touched in _back(before):
        if words(path) & touched:
            return
        reading = turn.reading
        listed = reading.command == "ls" and reading.operands in places
        if listed and not turn.failed:
            there = name in turn.answer.split()
        elif path in reading.operands and reading.command in ("cat", "head", "tail", "wc"):
            there = not turn.failed
        else:
            continue
        if there and last.failed:
            yield Alarm("missing", turn.number, last.number, f"{path!r} was there and nothing removed it")
        elif not there and not last.failed and not name.startswith("."):
            yield Alarm("appeared", turn.number, last.number, f"{path!r} was not there and nothing made it")
        return


def _line_counts(before: Sequence[_Turn], last: _Turn) -> Iterator[Alarm]:
    """``wc -l`` of a file against its text."""
    mine = _lines(last)
    if mine is None:
        return
    for turn, touched in _back(before):
        theirs = _lines(turn)
        if theirs is None or theirs[0] != mine[0]:
            continue
        if theirs[1] != mine[1] and not words(mine[0]) & touched:
            why = f"{mine[0]!r} has {mine[1]} lines here and {theirs[1]} there"
            yield Alarm("count", turn.number, last.number, why)
        return


def _lines(turn: _Turn) -> tuple[str, int] | None:
    """The file of which a turn shows all lines, or counts them, and how many it says there are."""
    words_of = turn.action.split()
    if turn.failed or "|" in turn.action:
        return None
    if len(words_of) == 2 and words_of[0] == "cat" and turn.answer:
        return words_of[1], len(turn.answer.split("\n"))
    found = re.match(r"\s*(\d+)\b", turn.answer)
    if len(words_of) == 3 and words_of[:2] == ["wc", "-l"] and found:
        return words_of[2], int(found.group(1))
    return None


def _values(before: Sequence[_Turn], last: _Turn) -> Iterator[Alarm]:
    """A row that another tool call shows with other values, nothing written in between."""
    mine = _rows(last)
    if not mine:
        return
    checked: set[tuple[str, str]] = set()
    for turn, touched in _back(before):
        if touched:
            return
        for key, row in _rows(turn).items():
            if key not in mine or key in checked:
                continue
            checked.add(key)
            other = [f for f in sorted(row.keys() & mine[key].keys()) if row[f] != mine[key][f]]
            if other:
                field = other[0]
                why = f"{key[0]} {key[1]}: {field} is {mine[key][field]!r}, it was {row[field]!r}"
                yield Alarm("value", turn.number, last.number, why)


def _counts(before: Sequence[_Turn], last: _Turn) -> Iterator[Alarm]:
    """A count against a whole list with the same filters, nothing written in between."""
    mine = _counted(last)
    if mine is None:
        return
    for turn, touched in _back(before):
        if touched:
            return
        theirs = _counted(turn)
        if theirs is not None and theirs[0] == mine[0]:
            if theirs[1] != mine[1]:
                why = f"{mine[0][0]}: {mine[1]} here, {theirs[1]} there"
                yield Alarm("count", turn.number, last.number, why)
            return


def _body(turn: _Turn) -> tuple[str, str, dict[str, Any], Any] | None:
    """Verb, noun, arguments and JSON answer of a tool call that went well."""
    call = tool_call(turn.action)
    if call is None:
        return None
    try:
        body = json.loads(turn.answer)
    except (ValueError, RecursionError):
        return None
    verb, _, noun = call[0].partition("_")
    return (verb, _singular(noun), call[1], body) if not _is_error(body) else None


def _is_error(body: Any) -> bool:
    return isinstance(body, dict) and "error" in body


def _singular(noun: str) -> str:
    return noun[:-3] + "y" if noun.endswith("ies") else noun.removesuffix("s")


def _rows(turn: _Turn) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of an answer by noun and id."""
    found = _body(turn)
    if found is None:
        return {}
    _, noun, _, body = found
    if isinstance(body, dict) and "id" not in body:
        lists = [value for value in body.values() if isinstance(value, list)]
        items = lists[0] if len(lists) == 1 else []
    else:
        items = body if isinstance(body, list) else [body]
    rows = [item for item in items if isinstance(item, dict) and "id" in item]
    return {(noun, str(row["id"])): row for row in rows}


def _counted(turn: _Turn) -> tuple[tuple[str, str], int] | None:
    """Noun and filters of a count, or of a list that is shown whole, and how many there are."""
    found = _body(turn)
    if found is None or not isinstance(found[3], dict):
        return None
    verb, noun, arguments, body = found
    filters = {k: v for k, v in arguments.items() if k not in ("limit", "offset", "page")}
    key = (noun, json.dumps(filters, sort_keys=True))
    if verb == "count" and isinstance(body.get("count"), int):
        return key, int(body["count"])
    rows = body.get("rows", body.get("items"))
    whole = body.get("next") is None and not arguments.get("offset") and not arguments.get("page")
    if verb == "list" and isinstance(rows, list) and "next" in body and whole:
        return key, len(rows)
    return None


_RULES: tuple[Callable[[Sequence[_Turn], _Turn], Iterator[Alarm]], ...] = (
    _repeated,
    _existence,
    _line_counts,
    _values,
    _counts,
)
