"""What the program's process imports: calls of its tools are shown to the run's endpoint before they run.

The standard library alone, and nothing of Refork: the hook of ``refork agent record --patch`` loads this file
into programs whose environment has no Refork. Without a run around the program all of it does nothing.
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import inspect
import json
import math
import os
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

#: Where the program finds the address to which tool calls are shown.
VARIABLE: Final = "REFORK_TOOLS"
#: Version of what is sent there.
PROTOCOL: Final = 1
#: Characters of a result's text that are kept beside it, or in place of one that cannot be kept.
_TEXT: Final = 20_000
#: A tool that an intercepted tool calls is a part of that call.
_INSIDE: Final[ContextVar[bool]] = ContextVar("refork_inside_a_tool", default=False)

Run = TypeVar("Run", bound=Callable[..., Any])
Keep = Callable[[Any], Any]


class ToolRefused(RuntimeError):
    """The call was not let through: it is not on the tape, and the rule is that it then does not run."""


class RecordedToolError(RuntimeError):
    """The error that a tool raised when it was recorded, where its own class is not known here."""


def intercepted() -> bool:
    """Whether calls of tools are shown to a run of Refork here."""
    return bool(os.environ.get(VARIABLE)) and not _INSIDE.get()


def tool(function: Run | None = None, *, name: str | None = None) -> Any:
    """Let a function be a tool on the tape: ``@agents.tool``, for functions and coroutines.

    Under ``refork agent record`` its calls are put on the tape, with what they returned or raised. Under
    ``replay``, and under ``fork`` before the point, they do not run: what the tape has is returned or raised.
    Outside of these the function is as it was. Arguments and results are JSON to be kept; a result that is
    none is said so, and its run cannot be replayed.

    Raises:
        TypeError: a generator, whose result is no value.
    """
    if function is None:
        return functools.partial(tool, name=name)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is a generator: what it yields cannot be kept")
    called, shape = name or function.__name__, inspect.signature(function)

    def arguments(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        bound = shape.bind(*given, **named)
        bound.apply_defaults()
        return dict(bound.arguments)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waits(*given: Any, **named: Any) -> Any:
            if not intercepted():
                return await function(*given, **named)
            told = arguments(given, named)
            return await athrough(called, told, lambda: function(*given, **named), by="decorator")

        return waits

    @functools.wraps(function)
    def runs(*given: Any, **named: Any) -> Any:
        if not intercepted():
            return function(*given, **named)
        told = arguments(given, named)
        return through(called, told, lambda: function(*given, **named), by="decorator")

    return runs


def through(
    name: str,
    arguments: Any,
    run: Callable[[], Any],
    *,
    by: str,
    keep: Keep | None = None,
    give: Keep | None = None,
) -> Any:
    """Show a call, and do as the answer says: run it and tell what came, or give what the tape has.

    ``keep`` makes a result plain for the tape (ValueError where it cannot), ``give`` makes it again.
    """
    told = ask("call", _request(name, arguments, by))
    if told["do"] != "run":
        return _given(name, told, give)
    inside = _INSIDE.set(True)
    try:
        value = run()
    except BaseException as error:
        ask("result", {"id": told["id"], "result": _raised(error)})
        raise
    finally:
        _INSIDE.reset(inside)
    ask("result", {"id": told["id"], "result": _result(value, keep)})
    return value


async def athrough(
    name: str,
    arguments: Any,
    run: Callable[[], Awaitable[Any]],
    *,
    by: str,
    keep: Keep | None = None,
    give: Keep | None = None,
) -> Any:
    """As :func:`through`, of a coroutine."""
    told = await _aask("call", _request(name, arguments, by))
    if told["do"] != "run":
        return _given(name, told, give)
    inside = _INSIDE.set(True)
    try:
        value = await run()
    except BaseException as error:
        # Not awaited: of what is cancelled nothing can be awaited any more.
        ask("result", {"id": told["id"], "result": _raised(error)})
        raise
    finally:
        _INSIDE.reset(inside)
    await _aask("result", {"id": told["id"], "result": _result(value, keep)})
    return value


def ask(what: str, message: Any) -> Any:
    """Ask the run's endpoint. No answer is an error: a tool does not run because nobody could be asked.

    Raises:
        ToolRefused: the endpoint is gone, or could not answer.
    """
    address = urlsplit(os.environ[VARIABLE])
    line = http.client.HTTPConnection(address.hostname or "", address.port)
    try:
        body = json.dumps(message).encode()
        line.request("POST", f"{address.path}/{what}", body, {"content-type": "application/json"})
        answer = line.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ToolRefused(f"the run that records this program cannot be reached: {error!r}") from error
    finally:
        line.close()
    if answer.status != 200:
        raise ToolRefused(said.decode("utf-8", "replace"))
    return json.loads(said)


async def _aask(what: str, message: Any) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ask(what, message)  # another kind of loop: the answer comes from this machine, and at once
    return await asyncio.to_thread(ask, what, message)


def _request(name: str, arguments: Any, by: str) -> Any:
    told = {"version": PROTOCOL, "name": name, "arguments": plain(arguments), "by": by}
    repeatable = sys.modules.get("refork.agents.repeatable")
    line = "" if repeatable is None else repeatable.line_name()
    return {**told, "line": line} if line else told


def plain(value: Any) -> Any:
    """A value as JSON, to be compared and looked at; what is none is named by its class."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(one) for one in value), key=str)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return plain(dump())
        except Exception:  # a model of the program's own, which may do anything
            return {"class": _name(type(value))}
    text = repr(value)
    # An address in memory is another one in the next process.
    return {"class": _name(type(value))} if " at 0x" in text else text


def _exact(value: Any) -> bool:
    """Whether a value comes back from JSON as the same."""
    if value is None or type(value) in (str, bool, int):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is dict:
        return all(type(key) is str and _exact(one) for key, one in value.items())
    return type(value) is list and all(map(_exact, value))


def _result(value: Any, keep: Keep | None) -> Any:
    """A result for the tape: its JSON, or why it has none."""
    if keep is not None:
        try:
            value = keep(value)
        except ValueError as error:
            return {"unkept": str(error), "text": str(value)[:_TEXT]}
    if _exact(value):
        return {"json": value}
    return {"unkept": f"a {_name(type(value))} is not JSON", "text": str(value)[:_TEXT]}


def _raised(error: BaseException) -> Any:
    told = {"module": type(error).__module__, "class": type(error).__qualname__, "text": str(error)[:_TEXT]}
    if not isinstance(error, Exception):
        return {"unkept": f"it was ended by {_name(type(error))}", "text": told["text"]}
    return {"error": {**told, "args": list(error.args) if _exact(list(error.args)) else None}}


def _given(name: str, told: Any, give: Keep | None) -> Any:
    """What the tape has of a call: returned, or raised as it was."""
    if told["do"] == "refuse":
        raise ToolRefused(f"{name} was not run: {told['why']}")
    result = told["result"]
    if "error" not in result:
        return result["json"] if give is None else give(result["json"])
    failed = result["error"]
    # Only what the program itself has loaded, and only errors: a tape may be a stranger's.
    found: Any = sys.modules.get(failed["module"])
    for part in failed["class"].split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, Exception) and failed["args"] is not None:
        try:
            error = found(*failed["args"])
        except Exception:  # its class wants other arguments than it tells
            error = None
        if error is not None and str(error)[:_TEXT] == failed["text"]:
            raise error
    raise RecordedToolError(f"{failed['class']}: {failed['text']}")


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
