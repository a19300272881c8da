"""Which step of a known package asks a model: its node, agent or module, told beside the request.

What a package keeps in variables of its context is read there; else the one place that asks for a step is
wrapped. The name goes to the run's endpoint over the channel of tools, and its number with the request, in a
header that only requests to that endpoint get. The standard library alone, as in
:mod:`refork.agents.program_side`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from refork.agents.program_side import VARIABLE, ask, plain

#: Header of a request that holds the number of what was told of it.
HEADER: Final = "x-refork-step"
#: Characters of a state's JSON beyond which only its size is told.
_LARGEST: Final = 4_000_000
#: Steps that are under way here, from the outermost.
_STEPS: Final[ContextVar[tuple[dict[str, Any], ...]]] = ContextVar("refork_steps", default=())
Swap = Callable[[Any, str, Callable[[Any], Any]], None]


def steps_now() -> tuple[list[dict[str, Any]], Any]:
    """The steps that ask now, and the state of the graph that one of them belongs to; None: it has none."""
    found, state = list(_STEPS.get()), None
    for name, look in _LOOKS.items():
        module = sys.modules.get(name)
        if module is not None:
            step, seen = look(module)
            found += [step] if step else []
            state = seen if seen is not None else state
    return found, state


def _tell(url: str) -> str | None:
    """The number under which the endpoint knows who asks; None: it is not asked, or nobody is known."""
    channel = os.environ.get(VARIABLE, "")
    if not channel or not url.startswith(channel.removesuffix("tools")):
        return None
    try:
        steps, state = steps_now()
        if not steps:
            return None
        told = json.dumps(plain(state)) if state is not None else None
        short = told is not None and len(told) > _LARGEST
        kept = {"size": len(told or "")} if short else json.loads(told or "null")
        return str(ask("step", {"steps": plain(steps), "state": kept, "cut": short})["id"])
    except Exception as error:
        # Whatever a package's insides do: a name is not worth a request, and the program goes on.
        sys.stderr.write(f"refork: the step that asks has no name on the tape: {error!r}\n")
        return None


async def _atell(url: str) -> str | None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _tell(url)  # another kind of loop: the answer comes from this machine, and at once
    ours = url.startswith(os.environ.get(VARIABLE, "-").removesuffix("tools"))
    return await asyncio.to_thread(_tell, url) if ours else None


@contextmanager
def _under(step: dict[str, Any]) -> Iterator[None]:
    before = _STEPS.get()
    _STEPS.set((*before, step))
    try:
        yield
    finally:
        # Not by a token: a generator may be ended in another context than it began in.
        _STEPS.set(before)


# -- who sends --------------------------------------------------------------------------------------


def _httpx(module: Any, swap: Swap) -> None:
    """``send`` of both clients, which all that they are asked comes through."""

    def send(old: Any) -> Any:
        def sends(self: Any, request: Any, *args: Any, **more: Any) -> Any:
            _mark(request, _tell(str(request.url)))
            return old(self, request, *args, **more)

        return sends

    def asend(old: Any) -> Any:
        async def waits(self: Any, request: Any, *args: Any, **more: Any) -> Any:
            _mark(request, await _atell(str(request.url)))
            return await old(self, request, *args, **more)

        return waits

    swap(module.Client, "send", send)
    swap(module.AsyncClient, "send", asend)


def _mark(request: Any, number: str | None) -> None:
    request.headers.pop(HEADER, None)  # of the try before this one
    if number is not None:
        request.headers[HEADER] = number


# -- what packages keep in their context --------------------------------------------------------------


def _langgraph(module: Any) -> tuple[dict[str, Any] | None, Any]:
    """The node, its checkpoint, and the values of the graph's channels as they were when the step began."""
    config = module.var_child_runnable_config.get() or {}
    told, inner = config.get("metadata") or {}, config.get("configurable") or {}
    if "langgraph_node" not in told:
        return None, None
    spaces = str(told.get("langgraph_checkpoint_ns") or "").split("|")
    checkpoints = inner.get("checkpoint_map") or {}
    step = {
        "by": "langgraph", "kind": "node", "name": told["langgraph_node"],
        "step": told.get("langgraph_step"),
        "path": "/".join(space.partition(":")[0] for space in spaces),
        "checkpoint": next(reversed(checkpoints.values()), None) if checkpoints else None,
    }  # fmt: skip
    read = inner.get("__pregel_read")
    channels = read.args[1] if read is not None else {}
    names = [name for name in channels if not name.startswith(("__", "branch:"))]
    return step, read(names) if read is not None and names else None


def _pydantic_ai(module: Any) -> tuple[dict[str, Any] | None, Any]:
    context = module.get_current_run_context()
    if context is None:
        return None, None
    name = getattr(context.agent, "name", None)
    return {
        "by": "pydantic-ai", "kind": "agent", "name": name,
        # While it streams the context is that of the whole run, which is at no step.
        "step": context.run_step or None, "run": context.run_id,
    }, None  # fmt: skip


def _dspy(module: Any) -> tuple[dict[str, Any] | None, Any]:
    """The modules that called one another, the innermost last, and the signature that it fills."""
    callers = module.settings.get("caller_modules") or []
    if not callers:
        return None, None
    signature = getattr(callers[-1], "signature", None)
    return {
        "by": "dspy", "kind": "module", "name": type(callers[-1]).__name__,
        "path": "/".join(type(one).__name__ for one in callers),
        "signature": getattr(signature, "signature", None),
    }, None  # fmt: skip


def _inspect_ai(module: Any) -> tuple[dict[str, Any] | None, Any]:
    """The spans of the transcript that are open here, of which solvers and agents have names."""
    here = module.current_span_id()
    log = sys.modules.get("inspect_ai.log._transcript")
    if here is None or log is None:
        return None, None
    begun = {one.id: one for one in log.transcript().events if one.event == "span_begin"}
    names = []
    while here in begun:
        if begun[here].type in ("solver", "agent"):
            names.append(begun[here])
        here = begun[here].parent_id
    if not names:
        return None, None
    return {
        "by": "inspect-ai", "kind": names[0].type, "name": names[0].name,
        "path": "/".join(one.name for one in reversed(names)), "span": names[0].id,
    }, None  # fmt: skip


#: By the module that has the variable.
_LOOKS: Final[dict[str, Callable[[Any], tuple[dict[str, Any] | None, Any]]]] = {
    "langchain_core.runnables.config": _langgraph,
    "pydantic_ai._run_context": _pydantic_ai,
    "dspy.dsp.utils.settings": _dspy,
    "inspect_ai.util._span": _inspect_ai,
}


# -- places that ask for a step -----------------------------------------------------------------------


def _openai_agents(module: Any, swap: Swap) -> None:
    """What the runner asks each answer through, whole and in pieces."""

    def step(bindings: Any) -> dict[str, Any]:
        tracing = sys.modules.get("agents.tracing")
        span = tracing.get_current_span() if tracing is not None else None
        known = getattr(span, "span_id", None)
        return {
            "by": "openai-agents", "kind": "agent", "name": bindings.public_agent.name,
            "span": None if known == "no-op" else known,
        }  # fmt: skip

    def whole(old: Any) -> Any:
        async def waits(bindings: Any, *args: Any, **more: Any) -> Any:
            with _under(step(bindings)):
                return await old(bindings, *args, **more)

        return waits

    def pieces(old: Any) -> Any:
        async def waits(result: Any, bindings: Any, *args: Any, **more: Any) -> Any:
            with _under(step(bindings)):
                return await old(result, bindings, *args, **more)

        return waits

    swap(module, "get_new_response", whole)
    swap(module, "run_single_turn_streamed", pieces)


def _smolagents(module: Any, swap: Swap) -> None:
    """A step of an agent of either kind, and its planning."""

    def step(agent: Any) -> dict[str, Any]:
        name = getattr(agent, "name", None) or type(agent).__name__
        return {"by": "smolagents", "kind": "agent", "name": name, "step": agent.step_number}

    def make(old: Any) -> Any:
        def steps(self: Any, *args: Any, **more: Any) -> Any:
            with _under(step(self)):
                yield from old(self, *args, **more)

        return steps

    swap(module.ToolCallingAgent, "_step_stream", make)
    swap(module.CodeAgent, "_step_stream", make)
    swap(module.MultiStepAgent, "_generate_planning_step", make)


def _crewai(module: Any, swap: Swap) -> None:
    """An agent at its task, of a crew or by itself."""

    def step(agent: Any, task: Any) -> dict[str, Any]:
        told = getattr(task, "name", None) or getattr(task, "description", None) or task
        return {"by": "crewai", "kind": "agent", "name": agent.role, "task": str(told)[:200]}

    def make(old: Any) -> Any:
        def runs(self: Any, task: Any, *args: Any, **more: Any) -> Any:
            with _under(step(self, task)):
                return _going_on(step(self, task), old(self, task, *args, **more))

        return runs

    for name in ("execute_task", "aexecute_task", "kickoff", "akickoff"):
        swap(module.Agent, name, make)


def _agent_framework(module: Any, swap: Swap) -> None:
    """A run of an agent. One that streams asks while it is read, under no name."""

    def make(old: Any) -> Any:
        def runs(self: Any, *args: Any, **more: Any) -> Any:
            found = old(self, *args, **more)
            step = {"by": "agent-framework", "kind": "agent", "name": self.name or type(self).__name__}
            return _going_on(step, found)

        return runs

    swap(module.RawAgent, "run", make)


def _going_on(step: dict[str, Any], found: Any) -> Any:
    """A result, or of one that is still to be awaited the same under its step."""
    if not inspect.iscoroutine(found):
        return found

    async def waits() -> Any:
        with _under(step):
            return await found

    return waits()


def _autogen(module: Any, swap: Swap) -> None:
    """What an assistant asks its model through, which is a method of the class."""
    kind = module.AssistantAgent
    old = inspect.getattr_static(kind, "_call_llm").__func__

    async def pieces(kind: Any, /, *args: Any, agent_name: str, **more: Any) -> Any:
        with _under({"by": "autogen", "kind": "agent", "name": agent_name}):
            async for piece in old(kind, *args, agent_name=agent_name, **more):
                yield piece

    if not getattr(old, "of_refork", False):
        pieces.of_refork = True  # type: ignore[attr-defined]
        kind._call_llm = classmethod(pieces)


def _applied(package: str, wrap: Callable[[Any, Swap], None], swap: Swap, module: Any) -> None:
    try:
        wrap(module, swap)
    except AttributeError as error:
        sys.stderr.write(f"refork: steps of this {package} have no names on the tape: {error}\n")


def step_patches(swap: Swap) -> dict[str, tuple[str, Callable[[Any], None]]]:
    """By the module that holds it: the package, and what wraps its place by ``swap``."""
    return {
        name: (package, functools.partial(_applied, package, wrap, swap))
        for name, (package, wrap) in _PLACES.items()
    }


_PLACES: Final[dict[str, tuple[str, Callable[[Any, Swap], None]]]] = {
    "httpx": ("httpx", _httpx),
    "httpx2": ("httpx2", _httpx),
    "agents.run_internal.run_loop": ("openai-agents", _openai_agents),
    "smolagents.agents": ("smolagents", _smolagents),
    "crewai.agent.core": ("crewai", _crewai),
    "agent_framework._agents": ("agent-framework-core", _agent_framework),
    "autogen_agentchat.agents._assistant_agent": ("autogen-agentchat", _autogen),
}
