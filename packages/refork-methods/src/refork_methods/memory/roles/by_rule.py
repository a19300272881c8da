"""Reflector, screener and manager by rule: nothing is asked, and the same input gives the same answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import final

from refork_methods.memory.induce import only_reads, skeleton_of
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.queries import best_match, masked, template
from refork_methods.memory.retrieve import Candidate, Embedder, near_duplicates
from refork_methods.memory.roles.lesson import Chosen, Lesson, Most, Reflection, Screened
from refork_methods.memory.runtime import PREFIX
from refork_methods.memory.skeleton import CallStep, Constant, Result, Slot, functions_of, slots_of
from refork_methods.memory.trajectory import RunStep, RunTrajectory, shortened


@final
class RuleReflector:
    """A plan from a run that was not judged a failure, pitfalls from calls that failed and then went well.

    ``reads`` says of a function that it changes nothing.
    """

    name = "rule"

    def __init__(self, reads: Callable[[str], bool] = only_reads) -> None:
        self._reads = reads

    def reflect(self, run: RunTrajectory, given: Sequence[MemoryItem]) -> Reflection:
        """Lessons of a run."""
        del given
        lessons = [_pitfall(wrong, right) for wrong, right in _mended(run.steps)]
        if run.success is not False:
            skeleton = skeleton_of(run, self._reads)
            if skeleton:
                used = set(functions_of(skeleton))
                evidence = tuple(s.id for s in run.steps if s.function in used and not s.failed)
                lessons.append(Lesson("plan", plan_text(run.query, skeleton), evidence, skeleton))
        return Reflection(tuple(lessons))


def plan_text(query: str, skeleton: Sequence[CallStep]) -> str:
    """A skeleton in words: what it is for, and its steps in order."""
    goal = template(query, slots_of(skeleton)).rstrip(".")
    end = "" if goal.endswith(("?", "!")) else "."
    return "\n".join([f"To do: {goal}{end}", *(f"{n}. {_words(s)}" for n, s in enumerate(skeleton, 1))])


def _words(step: CallStep) -> str:
    given = ", ".join(f"{key} {_argument(one)}" for key, one in step.arguments)
    where = " and ".join(f"{key} is {_argument(one)}" for key, one in step.where)
    over = _argument(step.over) if step.over is not None else ""
    call = f"{step.function}({given})"
    return {
        "call": f"call {call}",
        "pages": f"call {call} for every {step.page}, from {step.first} until one is empty",
        "find": f"in {over} find the one whose {where}",
        "keep": f"of {over} keep those whose {where}",
        "each": f"for each of {over} call {call}",
        "return": f"answer with {_argument(step.value)}" if step.value is not None else "answer",
    }[step.op]


def _argument(one: Constant | Slot | Result) -> str:
    if isinstance(one, Constant):
        told = one.value if isinstance(one.value, str) else ""
        return f"the {told.replace(':', ' ')}" if told.startswith(PREFIX) else repr(one.value)
    if isinstance(one, Slot):
        return "{" + one.name + "}"
    return ".".join(["the " + one.step.replace("_", " "), *map(str, one.path)])


def _mended(steps: Sequence[RunStep]) -> list[tuple[RunStep, RunStep]]:
    """Failed calls, each with the next call of the same function that went well."""
    pairs: list[tuple[RunStep, RunStep]] = []
    for place, step in enumerate(steps):
        if step.failed and step.function:
            right = next(
                (s for s in steps[place + 1 :] if s.function == step.function and not s.failed), None
            )
            # The same call that went well later teaches nothing of how to call.
            if right is not None and right.arguments != step.arguments:
                pairs.append((step, right))
    return pairs


def _pitfall(wrong: RunStep, right: RunStep) -> Lesson:
    """Trigger, mistake, consequence; values are left out, types and names stay."""
    keys = sorted({*wrong.arguments, *right.arguments})
    changed = [key for key in keys if wrong.arguments.get(key) != right.arguments.get(key)]
    told = ", ".join(_change(key, wrong.arguments.get(key), right.arguments.get(key)) for key in changed)
    seen = wrong.observation or str(wrong.result)
    for key, value in wrong.arguments.items():
        if isinstance(value, str) and len(value) > 2:
            seen = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "{" + key + "}", seen)
    seen = " ".join(shortened(seen, 120).split())
    body = f"When calling {wrong.function}: giving {told} fails ({seen}); check it before the call."
    return Lesson("pitfall", body, (wrong.id, right.id))


def _change(key: str, before: object, after: object) -> str:
    if type(before) is type(after):
        return f"another {key}"
    return f"{key} as {type(before).__name__} instead of {type(after).__name__}"


@final
class RuleScreener:
    """Drops what is known: nearly the same words, or for plans the same calls for the same kind of query."""

    def __init__(self, embedder: Embedder | None = None, above: float = 0.9) -> None:
        self._embedder = embedder
        self._above = above

    def screen(self, lessons: Sequence[Lesson], known: Sequence[MemoryItem]) -> Screened:
        """A verdict on every lesson."""
        reasons: list[str | None] = []
        kept: list[tuple[str, str, tuple[str, ...], str]] = [
            (one.kind, one.body, functions_of(one.skeleton), one.id) for one in known
        ]
        for lesson in lessons:
            same = [row for row in kept if row[0] == lesson.kind]
            reason = self._known(lesson, same)
            reasons.append(reason)
            if reason is None:
                kept.append((lesson.kind, lesson.body, functions_of(lesson.skeleton), "this run"))
        return Screened(tuple(reasons))

    def _known(self, lesson: Lesson, same: Sequence[tuple[str, str, tuple[str, ...], str]]) -> str | None:
        for _, body, functions, name in same:
            if body == lesson.body:
                return f"{name} says the same"
            if lesson.skeleton and functions == functions_of(lesson.skeleton):
                first, other = body.partition("\n")[0], lesson.body.partition("\n")[0]
                if masked(first) == masked(other):
                    return f"{name} is the same plan"
        if lesson.skeleton:
            return None
        near = near_duplicates([row[1] for row in same] + [lesson.body], self._embedder, self._above)
        hit = next((pair for pair in near if pair[1] == len(same)), None)
        return f"{same[hit[0]][3]} says nearly the same" if hit else None


@final
class RuleManager:
    """Plans whose own query fits the task's, their tools, and the best-ranked facts and pitfalls.

    A plan with a skeleton fits where every slot has its place and nothing else varies; a plan without one
    where at least ``share`` of its query's words are in the task.
    """

    name = "rule"

    def __init__(self, share: float = 0.6) -> None:
        self._share = share

    def choose(
        self,
        query: str,
        candidates: Mapping[str, Sequence[Candidate]],
        items: Mapping[str, MemoryItem],
        plans: Mapping[str, str],
        most: Most,
    ) -> Chosen:
        """Ids of texts and names of tools."""
        row = [one.document.id for one in candidates.get("plan", ())]
        fitting = [name for name in row if self._fits(items[name], query)][: most.plan]
        tools = [
            one.document.id
            for one in candidates.get("tool", ())
            if plans[one.document.id] in fitting or self._fits(items[plans[one.document.id]], query)
        ]
        others = [
            one.document.id
            for kind in ("fact", "pitfall")
            for one in list(candidates.get(kind, ()))[: most.of(kind)]
        ]
        return Chosen((*fitting, *others), tuple(tools[: most.tool]))

    def _fits(self, plan: MemoryItem, query: str) -> bool:
        if plan.skeleton and plan.query:
            found = best_match(plan.query, query, slots_of(plan.skeleton))
            return found.fits and not found.stray
        own = [word for word in masked(plan.query or plan.body).split() if not word.startswith("<")]
        there = set(masked(query).split())
        return bool(own) and sum(word in there for word in own) >= self._share * len(own)
