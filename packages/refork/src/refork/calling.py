"""Calling what a name stands for: an opener of one's own takes what its signature says, and is told so."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Final

from refork.errors import BadInput, UserError
from refork.registry import OURS

_PLACED: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def lacks(thing: object, protocol: type) -> list[str]:
    """What it lacks of a protocol. Properties are not read, since one may ask a server."""
    wanted = [name for name in vars(protocol) if not name.startswith("_")]
    nothing = object()
    return [
        name
        for name in wanted
        if inspect.getattr_static(thing, name, nothing) is nothing and not hasattr(thing, name)
    ]


def is_one(thing: object, protocol: type) -> bool:
    """Whether it is an object of a protocol, and no class of one."""
    return not isinstance(thing, type) and not lacks(thing, protocol)


def parameters(thing: Callable[..., Any]) -> list[Parameter]:
    """What it can be called with; annotations are types where they can be found, else text."""
    try:
        return list(inspect.signature(thing, eval_str=True).parameters.values())
    except (TypeError, ValueError):  # a builtin tells nothing
        return [Parameter("options", Parameter.VAR_KEYWORD)]
    except Exception:  # an annotation of somebody's code that is only there for type checkers
        return list(inspect.signature(thing).parameters.values())


def first(thing: Callable[..., Any]) -> Parameter | None:
    """What an argument behind the name would become."""
    found = parameters(thing)
    return found[0] if found and found[0].kind in _PLACED else None


def options_of(thing: Callable[..., Any], *, argument: bool) -> dict[str, Parameter] | None:
    """The options that it takes, beside its argument where one is given; None where it takes any."""
    found = parameters(thing)
    if any(one.kind is Parameter.VAR_KEYWORD for one in found):
        return None
    taken = found[1:] if argument else found
    return {one.name: one for one in taken if one.kind in _NAMED}


def call(
    thing: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any], *, where: str
) -> Any:
    """What it returns.

    Raises:
        BadInput: an argument or option that it does not take or that it lacks, or, in code that is not
            Refork's own, whatever went wrong, with its line.
    """
    _check(thing, arguments, options, where)
    # A mistake of ours keeps its traceback; one in somebody else's opener is theirs to mend.
    if (getattr(thing, "__module__", None) or "").partition(".")[0].replace("_", "-") in OURS:
        return thing(*arguments, **options)
    try:
        return thing(*arguments, **options)
    except UserError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise BadInput(
            f"opening it failed: {type(error).__name__}: {error}",
            where=f"{where}, {place.filename}:{place.lineno}",
        ) from error


def _check(
    thing: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any], where: str
) -> None:
    if (
        arguments
        and first(thing) is None
        and not any(
            one.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for one in parameters(thing)
        )
    ):
        raise BadInput(f"it takes no argument, not {arguments[0]!r}", where=where)
    known = options_of(thing, argument=bool(arguments))
    if known is None:
        return
    for name in options:
        if name not in known:
            hint = f"options: {', '.join(sorted(known)) or 'none'}"
            raise BadInput(f"unknown option {name!r}", where=where, hint=hint)
    for name, one in known.items():
        if one.default is Parameter.empty and name not in options:
            raise BadInput(f"it needs {name}, and nothing says it", where=where)
