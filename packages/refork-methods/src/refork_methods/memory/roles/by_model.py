"""The memory's roles by any chat model, from reflector to repairer. The prompts are ours."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, final, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refork.chat import ChatModel
from refork.errors import BadInput, ServerError
from refork.policies.base import Cost, total_cost
from refork.types import Json, Message
from refork_methods.memory.codifier import Codified, CodifierInput
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.queries import free_literals, masked, tokens_of
from refork_methods.memory.retrieve import Candidate
from refork_methods.memory.roles.lesson import Chosen, Lesson, Most, Reflection, Screened
from refork_methods.memory.skeleton import CallStep, checked, functions_of
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunTrajectory, compact_view, full_view

# Asking a chat model for strict JSON: one answer, one retry with what was wrong, then a clear error.

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)


class StrictReply(BaseModel):
    """A reply of which every field is known and of its type."""

    model_config = ConfigDict(extra="forbid", strict=True)


R = TypeVar("R", bound=StrictReply)


def ask(
    model: ChatModel,
    role: str,
    messages: Sequence[Message],
    shape: type[R],
    check: Callable[[R], None] = lambda _: None,
) -> tuple[R, Cost]:
    """The model's reply in the given shape, and the cost of all it took.

    ``check`` raises BadInput for what the shape cannot say; the model is told and asked once more.

    Raises:
        ServerError: no usable reply in two.
    """
    asked = list(messages)
    costs: list[Cost] = []
    wrong = ""
    for draw in range(2):
        reply = model.reply(asked, draw=draw)
        costs.append(reply.cost)
        try:
            found = shape.model_validate_json(_bare(reply.text))
            check(found)
        except ValidationError as error:
            first = error.errors()[0]
            wrong = f"{'.'.join(map(str, first['loc'])) or 'the reply'}: {first['msg']}"
        except BadInput as error:
            wrong = error.what
        else:
            return found, total_cost(costs)
        asked += [
            {"role": "assistant", "content": reply.text},
            {"role": "user", "content": f"That cannot be used: {wrong}. Reply with the JSON object alone."},
        ]
    raise ServerError(
        f"the {role} gave no usable reply in two: {wrong}",
        where=model.name,
        hint="try another model, or the roles by rule, which need none",
    )


def _bare(text: str) -> str:
    """The reply without a code fence around it."""
    found = _FENCE.match(text.strip())
    return found.group(1) if found else text.strip()


def prompt_messages(system: str, **parts: object) -> list[Message]:
    """A system message and one user message whose parts are JSON, one headed block each."""
    blocks = [
        f"{name}:\n{part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, indent=1)}"
        for name, part in parts.items()
    ]
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(blocks)}]


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
        messages = prompt_messages(_REFLECT, run=compact_view(run), **{"given to the agent": shown})
        costs = []
        for turn in range(OPENINGS + 1):
            last = turn == OPENINGS

            def check(found: _Reflected, last: bool = last) -> None:
                _check_reflected(found, known, may, last)

            found, cost = ask(self._model, "reflector", messages, _Reflected, check)
            costs.append(cost)
            if found.lessons is not None:
                return Reflection(tuple(map(_lesson, found.lessons)), total_cost(costs))
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

        messages = prompt_messages(
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
        messages = prompt_messages(_CHOOSE, task=query, candidates=shown)
        found, cost = ask(self._model, "manager", messages, _Choice, check)
        return Chosen(tuple(dict.fromkeys(found.texts)), tuple(dict.fromkeys(found.tools)), cost)


# Codifier and repairer by any chat model. Neither type holds a trajectory. The prompts are ours.

_CODE = """\
You turn a plan that was used again and again into small Python functions. You see the plan and the
queries it served, and nothing else. Write a function only if at least two structurally different
queries need it; everything that varies between queries is a parameter, and no value of a single
query stands in the code. Prefer small helpers that can be combined; write no function that solves
one whole query.
Each function is one complete "def NAME(apis, tools, *, parameter: type) -> type:" with a docstring
that describes its parameters. Environment functions are apis.app.function(keyword=...), other
functions tools.name(keyword=...). A value secret:NAME of the calls is a credential: pass the string
"secret:NAME" as it stands, it is filled in later; write no other credential.
Reply {"tools": [{"name": "...", "source": "...", "doc": "one line", "parameters": JSON schema
object, "needs": ["app.function", "tools.name"]}], "refuse": ""} or {"tools": [], "refuse": "why
not"} and nothing else."""

_REPAIR = """\
You repair one Python function that was not admitted. Keep its name, parameters and purpose; change
only what the reason asks for. Reply {"source": "...", "needs": ["app.function", "tools.name"]} and
nothing else."""


class _Function(StrictReply):
    name: str
    source: str
    doc: str
    parameters: dict[str, Any]
    needs: list[str] = Field(default_factory=list)


class _Functions(StrictReply):
    tools: list[_Function]
    refuse: str = ""


class _Repaired(StrictReply):
    source: str
    needs: list[str] = Field(default_factory=list)


@runtime_checkable
class Repairer(Protocol):
    """Mends a tool that was not admitted, once."""

    @property
    def name(self) -> str:
        """Who repairs, for the record."""
        ...

    def repair(self, tool: Tool, reason: str) -> tuple[Tool, Cost]:
        """The tool with another source. It sees the tool and the reason, and no run."""
        ...


@final
class ModelCodifier:
    """A chat model writes the functions; what it may not do is checked, not trusted."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def codify(self, given: CodifierInput) -> Codified:
        """Tools or a refusal. Raises ServerError where the model gives no usable reply."""
        queries = given.all_queries
        nothing = Cost(tokens_in=0, tokens_out=0)
        if given.support > 1 and (len(queries) < given.support or not _differ(queries)):
            return Codified(refused="no two of the queries are structurally different", cost=nothing)

        def check(found: _Functions) -> None:
            if bool(found.tools) == bool(found.refuse):
                raise BadInput('give "tools", or say in "refuse" why there are none')
            for one in found.tools:
                _tool(one, given)
                if one.name in given.taken:
                    raise BadInput(f"the name {one.name!r} is taken")

        messages = prompt_messages(
            _CODE,
            plan=given.body,
            calls=[step.to_json() for step in given.skeleton] or "(none given)",
            functions=list(functions_of(given.skeleton)) or "(none given)",
            queries=list(queries),
            **{"names that are taken": list(given.taken)},
        )
        found, cost = ask(self._model, "codifier", messages, _Functions, check)
        if not found.tools:
            return Codified(refused=found.refuse, cost=cost)
        tools = tuple(_tool(one, given) for one in found.tools)
        if given.support > 1:
            for tool in tools:
                free = free_literals(literals_of(tool.source), queries)
                if free:
                    return Codified(
                        refused=f"{tool.name}: the literal {free[0]!r} is of some queries only", cost=cost
                    )
        return Codified(tools, cost=cost)


def _differ(queries: tuple[str, ...]) -> bool:
    """Whether two queries differ in wording, or in at least two of their typed slots."""
    for place, one in enumerate(queries):
        for other in queries[place + 1 :]:
            if masked(one) != masked(other):
                return True
            pairs = zip(tokens_of(one), tokens_of(other), strict=True)
            if sum(a.text.lower() != b.text.lower() for a, b in pairs) >= 2:
                return True
    return False


def _tool(one: _Function, given: CodifierInput) -> Tool:
    return Tool(
        id=f"tool:{given.plan}:{one.name}",
        name=one.name,
        source=one.source,
        doc=one.doc,
        parameters=dict(one.parameters),
        needs=tuple(one.needs),
        plan=given.plan,
        queries=given.all_queries,
    )


def literals_of(source: str) -> list[object]:
    """The strings and numbers in a source, docstrings left out; none where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    # By the node, not its text: a docstring's words may stand elsewhere as a literal.
    doc = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Module) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and id(node) not in doc
        and isinstance(node.value, str | int | float)
    ]


@final
class ModelRepairer:
    """One repair by a chat model."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def repair(self, tool: Tool, reason: str) -> tuple[Tool, Cost]:
        """The tool with another source. Raises ServerError where the model gives no usable reply."""

        def check(found: _Repaired) -> None:
            _with(tool, found)

        shown: Json = {"name": tool.name, "source": tool.source, "parameters": tool.parameters}
        found, cost = ask(
            self._model, "repairer", prompt_messages(_REPAIR, function=shown, reason=reason), _Repaired, check
        )
        return _with(tool, found), cost


def _with(tool: Tool, found: _Repaired) -> Tool:
    return Tool.from_json(tool.to_json() | {"source": found.source, "needs": found.needs or list(tool.needs)})
