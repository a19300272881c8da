"""Policies by name, as the command line and recipes write them: ``KIND:REST[+option=value...]``.

A kind is of the entry-point group ``refork.policies``, or ``module:Name`` or ``file.py:Name``, which may be a
policy, or a class or function that is given the rest and the options. ``refork policy list`` lists the
installed ones; the shipped ones are in :mod:`refork.policies.kinds`. Entry points of the group
``refork.policy_names`` (``organism``) are no kinds but names that stand for others: functions of what follows
the colon and of a progress.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Final, get_args

from refork import registry
from refork.calling import call, first, is_one, lacks, options_of
from refork.errors import BadInput
from refork.policies.base import Policy
from refork.policies.kinds import UNWRITTEN
from refork.policies.scripted import ScriptedPolicy
from refork.progress import Progress, silent

_NUMBERS: Final = {int: int, float: float}


def open_policy(spec: str, *, on_wait: Callable[[str], None] | None = None, **options: Any) -> Policy:
    """The policy that a name stands for; options win over what the name says.

    ``on_wait`` hears, from any thread, what a server's calls wait for, and why a local model is slow.
    A name that comes out of a tree, a log or a folder goes to :func:`recorded_policy`.

    Raises:
        BadInput: the name does not follow the grammar, an option is not known for its kind, or what was named
            is no policy.
    """
    kind, rest, inline = parse_spec(spell(spec))
    thing = registry.resolve("policies", kind)
    given = {name: value for name, value in options.items() if value is not None}
    if is_one(thing, Policy):
        if rest or inline or given:
            raise BadInput(f"{kind} is a policy and takes nothing more", where=f"policy {spec!r}")
        taken: Policy = thing
        return taken
    policy = thing
    if callable(thing):
        known = options_of(thing, argument=bool(rest))
        for name in options:
            if known is not None and name not in known:
                raise BadInput(
                    f"{kind} policies have no option {name!r}", where=spec, hint=f"options: {_listed(known)}"
                )
        if on_wait is not None and (known is None or "on_wait" in known):
            given["on_wait"] = on_wait
        policy = call(thing, (rest,) if rest else (), inline | given, where=f"policy {kind}")
    if not is_one(policy, Policy):
        parts = ", ".join(lacks(policy, Policy)) or "an instance"
        raise BadInput(
            f"this is no policy but {type(policy).__name__}: it lacks {parts}",
            where=f"policy {kind}",
            hint="what a policy has to have stands in docs/policies.md",
        )
    found: Policy = policy
    return found


def recorded_policy(spec: str, *, option: str = "--policy SPEC", **options: Any) -> Policy:
    """The policy that a tree, a log or somebody's folder names: of installed kinds only.

    No file is run and no module imported because a record names it. ``option`` is how the user names it.

    Raises:
        BadInput: no installed kind has the name; and as :func:`open_policy`.
    """
    check_recorded(spec, option=option)
    return open_policy(spec, **options)


def check_recorded(spec: str, *, option: str = "--policy SPEC") -> None:
    """Raises BadInput where a recorded name would run a file or import a module to be opened."""
    kind = spec.partition(":")[0]
    if not (registry.known("policies", kind) or registry.known("policy_names", kind)):
        raise registry.refused("policies", spec, option)


def spell(spec: str, progress: Progress = silent) -> str:
    """The name that a name stands for, itself where it stands for none.

    ``organism:NAME`` becomes ``hf:DIR``, the folder of that very build, so that a recipe which keeps it is
    resumed with the same weights. ``progress`` is told of what has to be made for it.
    """
    kind, colon, rest = spec.partition(":")
    if not (kind and colon and rest) or registry.known("policies", kind):
        return spec
    if registry.known("policy_names", kind):
        return str(registry.find("policy_names", kind)(rest, progress))
    return spec


def parse_spec(spec: str) -> tuple[str, str, dict[str, Any]]:
    """Kind, what follows it, and the options written into a policy's name.

    Raises:
        BadInput: the name does not follow the grammar.
    """
    kind, rest = registry.split("policies", spec)
    if not registry.known("policies", kind) and ":" not in kind:
        raise BadInput(f"{spec!r} names no policy", hint=_grammar())
    thing = registry.resolve("policies", kind)
    asked = first(thing) if callable(thing) else None
    if not rest and asked is not None and asked.default is Parameter.empty and asked.annotation is str:
        raise BadInput(f"{spec!r} names no policy", hint=_grammar())
    # Only a plus before NAME= begins an option: paths may hold others.
    parts = re.split(r"\+(?=[a-z_]+=)", rest)
    inline: dict[str, Any] = {}
    known = options_of(thing, argument=bool(rest)) if callable(thing) else {}
    for part in parts[1:]:
        name, _, value = part.partition("=")
        if known is not None and (name not in known or not _written(known[name])):
            raise BadInput(
                f"{name!r} cannot be written into the name of an {kind} policy",
                hint=f"options there: {_listed({n: p for n, p in known.items() if _written(p)})}",
            )
        try:
            inline[name] = _read(None if known is None else known[name])(value)
        except ValueError:
            raise BadInput(f"{name} is {value!r}; it must be a number", where=f"{kind} policy") from None
    return kind, parts[0], inline


def _written(option: Parameter) -> bool:
    """Whether an option may be written into a name: names are recorded and shown, so keys may not."""
    return UNWRITTEN not in get_args(option.annotation)


def _read(option: Parameter | None) -> Callable[[str], Any]:
    return str if option is None else _NUMBERS.get(option.annotation, str)


def _listed(known: dict[str, Parameter]) -> str:
    return ", ".join(name for name in known if name != "on_wait") or "none"


def _grammar() -> str:
    forms = [one.form for kind in ("policies", "policy_names") for one in registry.described(kind)]
    return f"write {', '.join(forms[:-1])} or {forms[-1]}; `refork policy list` tells more"


def scripted(text: str) -> ScriptedPolicy:
    """A script by its name and argument: ``NAME``, ``NAME@ARGUMENT`` or ``NAME-ARGUMENT``.

    Names are of the entry-point group ``refork.scripts``: functions of the argument, empty for none.

    Raises:
        BadInput: there is no such script, or it refuses the argument.
    """
    name, _, argument = text.partition("@")
    family, dash, rest = text.partition("-")
    if not registry.known("scripts", name) and dash and registry.known("scripts", family):
        name, argument = family, rest
    policy: ScriptedPolicy = registry.find("scripts", name)(argument)
    return policy
