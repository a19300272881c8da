"""Rules of a tool's answers that nobody wrote: induced from recorded calls, kept where they replay on others.

A rule is a statement of one fixed family about the JSON that a tool answers. Answers with an ``error`` and
all others are told apart, for a failing call says nothing of what a good one looks like. Every statement that
all calls to learn from keep is a candidate; it is kept where enough held-out calls of the tool keep it too,
all of them, and refused with its count where they do not.

Source: arXiv 2606.24597 has executable checks for its domains; learning them from a log is ours.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

from refork.errors import BadInput
from refork.plain import content_hash, from_json, to_json
from refork.types import Json
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.actions import tool_call
from refork_methods.simulate.prompt import Target
from refork_methods.simulate.reward import default_rule

#: What is said of an answer: its own kind; that it has a key; a key's kind; a key's value; that a key has
#: what an argument was; that a list is no longer than an argument said.
Statement: TypeAlias = Literal["kind", "has", "kind of", "constant", "echo", "at most"]
#: Calls to learn a rule from, and held-out calls that must keep it.
LEAST, HELD = 5, 3


@final
@dataclass(frozen=True, slots=True)
class InducedRule:
    """One statement about one tool's answers: of those with an error, or of the others."""

    tool: str
    failed: bool
    says: Statement
    key: str = ""
    value: Any = None

    def holds(self, arguments: Json, answer: Any) -> bool | None:
        """Whether an answer keeps it; None where the arguments do not bear on it."""
        if self.says == "kind":
            return bool(_kind(answer) == self.value)
        known = isinstance(answer, dict) and self.key in answer
        if self.says == "has" or not known:
            return known
        found = answer[self.key]
        if self.says == "kind of":
            return bool(_kind(found) == self.value)
        if self.says == "constant":
            return bool(found == self.value)
        given = arguments.get(self.value)
        if given is None:
            return None
        if self.says == "echo":
            return bool(found == given)
        return isinstance(found, list) and len(found) <= given if type(given) is int else None

    def __str__(self) -> str:
        """In words."""
        when = f"{self.tool}, failed" if self.failed else self.tool
        words = {
            "kind": f"the answer is {self.value}", "has": f"has {self.key}",
            "kind of": f"{self.key} is {self.value}", "constant": f"{self.key} is always {self.value!r}",
            "echo": f"{self.key} is the argument {self.value}",
            "at most": f"{self.key} has at most as many as the argument {self.value} says",
        }  # fmt: skip
        return f"{when}: {words[self.says]}"


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """A candidate that was not kept: it held in ``held`` of ``calls`` held-out calls."""

    rule: InducedRule
    held: int
    calls: int


@final
@dataclass(frozen=True, slots=True)
class InducedRules:
    """The rules that were kept, and the candidates that were not. An object is a rule of ``HybridReward``."""

    rules: tuple[InducedRule, ...]
    refused: tuple[Refused, ...] = ()

    @property
    def identity(self) -> str:
        """A digest of the rules, for the record of what was rewarded."""
        return f"induced {content_hash(to_json(self.rules))[:16]}"

    def check(self, prediction: str, target: Target) -> float | None:
        """1.0 where a prediction keeps every rule of the target's tool, else 0.0; None where there is none.

        Which answers are failures is told by the truth: to fail where it did not breaks a rule, or nothing.
        """
        call = tool_call(target.action)
        truth = _parsed(target.truth)
        if call is None or truth is None:
            return None
        said = _parsed(prediction)
        mine = [rule for rule in self.rules if (rule.tool, rule.failed) == (call[0], _failed(truth))]
        kept = [found for rule in mine if (found := rule.holds(call[1], said)) is not None]
        return float(all(kept)) if kept else None

    def __call__(self, prediction: str, target: Target) -> float | None:
        """As the default rule has it, and these rules where they say something; both must be kept."""
        found = [
            one
            for one in (default_rule(prediction, target), self.check(prediction, target))
            if one is not None
        ]
        return min(found) if found else None

    def write(self, path: Path) -> None:
        """Write them as JSON, whole or not at all."""
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(to_json(self), indent=1) + "\n", encoding="utf-8")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> InducedRules:
        """Inverse of :meth:`write`. Raises BadInput for what is no such file."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"there are no rules to read: {error}", where=str(path)) from error
        return from_json(cls, data, str(path))


def _parsed(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _failed(answer: Any) -> bool:
    return isinstance(answer, dict) and bool(answer.get("error"))


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    kinds = ((int | float, "number"), (str, "text"), (list, "list"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "nothing")


Calls: TypeAlias = dict[tuple[str, bool], list[tuple[Json, Any]]]


def _calls(trajectories: Iterable[EnvTrajectory]) -> Calls:
    """Arguments and JSON answers of every call, by tool and by whether it failed."""
    found: Calls = defaultdict(list)
    for trajectory in trajectories:
        for turn in trajectory.turns:
            call, answer = tool_call(turn.action), _parsed(turn.observation)
            if call is not None and answer is not None:
                found[call[0], _failed(answer)].append((call[1], answer))
    return found


def _candidates(tool: str, failed: bool, calls: Sequence[tuple[Json, Any]]) -> Iterator[InducedRule]:
    """Statements that the first call suggests; whether all keep them is asked afterwards."""
    answer = calls[0][1]
    yield InducedRule(tool, failed, "kind", value=_kind(answer))
    if not isinstance(answer, dict):
        return
    names = sorted({name for given, _ in calls for name in given})
    for key, value in answer.items():
        yield InducedRule(tool, failed, "has", key)
        yield InducedRule(tool, failed, "kind of", key, _kind(value))
        if isinstance(value, str | int | float) or value is None:
            yield InducedRule(tool, failed, "constant", key, value)
        for name in names:
            yield InducedRule(tool, failed, "echo", key, name)
            if isinstance(value, list):
                yield InducedRule(tool, failed, "at most", key, name)


def induce_rules(
    known: Sequence[EnvTrajectory], held: Sequence[EnvTrajectory], *, least: int = LEAST, replay: int = HELD
) -> InducedRules:
    """Rules that all of ``least`` or more known calls keep, and all of ``replay`` or more held-out ones.

    Raises: BadInput for a trajectory on both sides, for counts below 1, or where no call of a tool with a
    JSON answer is recorded.
    """
    if min(least, replay) < 1:
        raise BadInput("rules need a call to learn from and one to replay", where="induce")
    both = {(one.source, one.id) for one in known} & {(one.source, one.id) for one in held}
    if both:
        raise BadInput(f"trajectory {min(both)[1]!r} is on both sides", where="induce")
    learned, others = _calls(known), _calls(held)
    if not learned:
        raise BadInput("no recorded call of a tool has a JSON answer", where="induce")
    kept: list[InducedRule] = []
    refused: list[Refused] = []
    for (tool, failed), calls in sorted(learned.items()):
        for rule in _candidates(tool, failed, calls):
            told = [one for call in calls if (one := rule.holds(*call)) is not None]
            if len(told) < least or not all(told):
                continue
            shown = [one for call in others.get((tool, failed), []) if (one := rule.holds(*call)) is not None]
            if len(shown) >= replay and all(shown):
                kept.append(rule)
            else:
                refused.append(Refused(rule, sum(shown), len(shown)))
    return InducedRules(tuple(kept), tuple(refused))
