"""Reflector, screener and manager by any chat model. The prompts are ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from pydantic import Field

from refork.chat import ChatModel
from refork.errors import BadInput
from refork_methods.memory.events import added
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.retrieve import Candidate
from refork_methods.memory.roles.asking import StrictReply, ask, told
from refork_methods.memory.roles.lesson import Chosen, Lesson, Most, Reflection, Screened
from refork_methods.memory.skeleton import CallStep, checked
from refork_methods.memory.trajectory import RunTrajectory, compact_view, full_view

#: Rounds in which a reflector may open steps.
OPENINGS = 3

_REFLECT = """\
You read one finished run of an agent and write down what will help with other tasks.
Three kinds of lesson. plan: a procedure that can be used again, with what varies named and nothing
that belongs to this task alone. fact: a lasting property of the environment. pitfall: when it
happens, the mistake, what it leads to. From a failed run find the cause; from a successful one find
wasted and repeated steps too.
A value written secret:NAME is a hidden credential: copy it as it stands.
The run is shown one line per step. To see steps in full first, reply {"open": ["STEP", ...]}.
Otherwise reply {"lessons": [{"kind": "plan|fact|pitfall", "body": "...", "evidence": ["STEP", ...],
"refs": ["tool named in the body"], "supersedes": "id of a given item that this one corrects, or
null", "skeleton": [...]}]}, with an empty list where there is nothing to learn.
A plan may have a skeleton, a list of steps {"op": "call", "name": "r1", "function": "app.function",
"arguments": {"key": VALUE}}; also "pages" (with "page": name of the page parameter, "first": first
page, "items": key of the entries), "find" and "keep" (with "over": RESULT, "where": {"field":
VALUE}), "each" (with "over") and "return" (with "value"). VALUE is {"constant": v}, {"slot":
"name", "text": "as it stands in the query", "type": "string|integer|number|date"} or {"result":
"r1", "path": ["key"]}. Reply with one JSON object and nothing else."""

_SCREEN = """\
You decide which lessons enter a memory. Keep one only if it is general (useful beyond the task it
came from), new (no known item says it), grounded (it names a cause, not a coincidence) and of the
right scope (neither wider nor narrower than what was seen).
Reply {"verdicts": [{"lesson": 0, "keep": true, "reason": ""}]}, one verdict per lesson in order, a
reason wherever keep is false. Reply with one JSON object and nothing else."""

_CHOOSE = """\
You choose what an agent is given for a task: texts to read and tools to call. Choose only what
bears on the task; nothing is a good choice where nothing does. Name ids from the candidates only.
Reply {"texts": ["id", ...], "tools": ["name", ...]} and nothing else."""


class _Lesson(StrictReply):
    kind: Literal["plan", "fact", "pitfall"]
    body: str = Field(min_length=1)
    evidence: list[str] = Field(default_factory=list)
    refs: list[str] = Field(default_factory=list)
    supersedes: str | None = None
    skeleton: list[dict[str, Any]] = Field(default_factory=list)


class _Reflected(StrictReply):
    open: list[str] | None = None
    lessons: list[_Lesson] | None = None


class _Verdict(StrictReply):
    lesson: int
    keep: bool
    reason: str = ""


class _Verdicts(StrictReply):
    verdicts: list[_Verdict]


class _Choice(StrictReply):
    texts: list[str] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)


@final
class ModelReflector:
    """Reads the compact view of a run, opens the steps it wants, and writes lessons."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def reflect(self, run: RunTrajectory, given: Sequence[MemoryItem]) -> Reflection:
        """Lessons of a run. Raises ServerError where the model gives no usable reply."""
        known = {step.id for step in run.steps}
        may = {item.id for item in given}
        shown = [{"id": item.id, "kind": item.kind, "body": item.body} for item in given]
        messages = told(_REFLECT, run=compact_view(run), **{"given to the agent": shown})
        costs = []
        for turn in range(OPENINGS + 1):
            last = turn == OPENINGS

            def check(found: _Reflected, last: bool = last) -> None:
                _check_reflected(found, known, may, last)

            found, cost = ask(self._model, "reflector", messages, _Reflected, check)
            costs.append(cost)
            if found.lessons is not None:
                return Reflection(tuple(map(_lesson, found.lessons)), added(*costs))
            opened = "\n\n".join(full_view(run.step(name)) for name in found.open or ())
            messages += [
                {"role": "assistant", "content": json.dumps({"open": found.open})},
                {"role": "user", "content": opened},
            ]
        raise AssertionError("the last turn must give lessons")


def _check_reflected(found: _Reflected, known: set[str], may: set[str], last: bool) -> None:
    if (found.open is None) == (found.lessons is None):
        raise BadInput('give either "open" or "lessons"')
    if found.open is not None:
        if last:
            raise BadInput('no more steps can be opened; give "lessons"')
        strange = [name for name in found.open if name not in known]
        if strange or not found.open:
            raise BadInput(f"there is no step {strange[0]!r}" if strange else "name a step to open")
    for one in found.lessons or ():
        strange = [name for name in one.evidence if name not in known]
        if strange:
            raise BadInput(f"there is no step {strange[0]!r} to be evidence")
        if one.supersedes is not None and one.supersedes not in may:
            raise BadInput(f"the agent was not given {one.supersedes!r}, so it cannot be superseded")
        if one.skeleton and one.kind != "plan":
            raise BadInput("only a plan has a skeleton")
        _lesson(one)


def _lesson(one: _Lesson) -> Lesson:
    return Lesson(
        one.kind,
        one.body,
        tuple(one.evidence),
        checked([CallStep.from_json(step) for step in one.skeleton]),
        tuple(one.refs),
        one.supersedes,
    )


@final
class ModelScreener:
    """Keeps or drops lessons; it is shown them and the known items of their kinds, and no run."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    def screen(self, lessons: Sequence[Lesson], known: Sequence[MemoryItem]) -> Screened:
        """A verdict on every lesson. Raises ServerError where the model gives no usable reply."""
        if not lessons:
            return Screened(())
        kinds = {lesson.kind for lesson in lessons}

        def check(found: _Verdicts) -> None:
            if [one.lesson for one in found.verdicts] != list(range(len(lessons))):
                raise BadInput(f"give one verdict for each of the {len(lessons)} lessons, in order")

        messages = told(
            _SCREEN,
            lessons=[{"lesson": n, "kind": one.kind, "body": one.body} for n, one in enumerate(lessons)],
            known=[{"kind": one.kind, "body": one.body} for one in known if one.kind in kinds],
        )
        found, cost = ask(self._model, "screener", messages, _Verdicts, check)
        return Screened(tuple(None if v.keep else v.reason or "not kept" for v in found.verdicts), cost)


@final
class ModelManager:
    """One selection call per task, that names ids of candidates."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def choose(
        self,
        query: str,
        candidates: Mapping[str, Sequence[Candidate]],
        items: Mapping[str, MemoryItem],
        plans: Mapping[str, str],
        most: Most,
    ) -> Chosen:
        """Ids and names. Raises ServerError where the model gives no usable reply."""
        del plans
        offered = {
            kind: {one.document.id: one.document.text for one in row} for kind, row in candidates.items()
        }
        if not any(offered.values()):
            return Chosen()
        tools = offered.get("tool", {})
        texts = {name: kind for kind, row in offered.items() if kind != "tool" for name in row}

        def check(found: _Choice) -> None:
            strange = [n for n in found.texts if n not in texts] + [n for n in found.tools if n not in tools]
            if strange:
                raise BadInput(f"{strange[0]!r} is not among the candidates")
            for kind in ("plan", "fact", "pitfall"):
                if sum(texts[name] == kind for name in set(found.texts)) > most.of(kind):
                    raise BadInput(f"at most {most.of(kind)} of kind {kind}")
            if len(set(found.tools)) > most.tool:
                raise BadInput(f"at most {most.tool} tools")

        shown = {
            kind: {name: items[name].body if name in items else text for name, text in row.items()}
            for kind, row in offered.items()
        }
        messages = told(_CHOOSE, task=query, candidates=shown)
        found, cost = ask(self._model, "manager", messages, _Choice, check)
        return Chosen(tuple(dict.fromkeys(found.texts)), tuple(dict.fromkeys(found.tools)), cost)
