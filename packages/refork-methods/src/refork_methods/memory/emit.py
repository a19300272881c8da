"""A plan's call skeleton as Python source: one function in the calling convention of generated tools."""

from __future__ import annotations

import keyword
from collections.abc import Sequence

from refork.types import Json
from refork_methods.memory.skeleton import (
    ENTRY,
    Argument,
    CallStep,
    Constant,
    Result,
    Slot,
    SlotType,
    functions_of,
    slots_of,
)

_PYTHON: dict[SlotType, str] = {"string": "str", "date": "str", "integer": "int", "number": "float"}
#: Pages after which a tool gives up: an environment that never ends its list must not hold it for ever.
MOST_PAGES = 1000


def tool_name(steps: Sequence[CallStep], taken: Sequence[str] = ()) -> str:
    """A name from the last function called and the slots, unlike the taken ones."""
    functions = functions_of(steps)
    stem = functions[-1].replace(".", "_").lower() if functions else "plan"
    slots = [slot.name for slot in slots_of(steps)]
    name = f"{stem}_by_{'_'.join(slots)}"[:60].rstrip("_") if slots else f"{stem}_routine"
    fresh, number = name, 1
    while fresh in taken or keyword.iskeyword(fresh):
        number += 1
        fresh = f"{name}_{number}"
    return fresh


def parameters_schema(slots: Sequence[Slot]) -> Json:
    """The JSON schema of the tool's keywords."""
    properties: Json = {}
    for slot in slots:
        kind = "string" if slot.type == "date" else slot.type
        told = f"for example {slot.text!r}" + (", as YYYY-MM-DD" if slot.type == "date" else "")
        properties[slot.name] = {"type": kind, "description": told}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def emit(name: str, steps: Sequence[CallStep], slots: Sequence[Slot], doc: str) -> str:
    """Source of the function: one statement or loop per step, a docstring, typed keywords."""
    keywords = "".join(f", {slot.name}: {_PYTHON[slot.type]}" for slot in slots)
    head = f"def {name}(apis, tools{', *' + keywords if keywords else ''}) -> object:"
    lines = [head, *_docstring(doc, slots)]
    for step in steps:
        lines += ["    " + line for line in _step(step)]
    if not steps or steps[-1].op != "return":
        last = next((step.name for step in reversed(steps) if step.name), "")
        lines.append(f"    return {last or None}")
    return "\n".join(lines) + "\n"


def _docstring(doc: str, slots: Sequence[Slot]) -> list[str]:
    text = doc.replace("\\", "\\\\").replace('"""', "'''")
    if text.endswith('"'):
        text += " "
    if not slots:
        return [f'    """{text}"""']
    told = [f"        {slot.name}: {slot.type}" for slot in slots]
    return [f'    """{text}', "", "    Args:", *told, '    """']


def _expression(one: Argument) -> str:
    if isinstance(one, Constant):
        return repr(one.value)
    if isinstance(one, Slot):
        return one.name
    return one.step + "".join(f"[{key!r}]" for key in one.path)


def _keyword(key: str, value: str) -> str:
    """A keyword argument; names that Python keeps for itself go in by ``**``."""
    plain = key.isidentifier() and not keyword.iskeyword(key)
    return f"{key}={value}" if plain else f"**{{{key!r}: {value}}}"


def _call(step: CallStep, extra: str = "") -> str:
    given = [_keyword(key, _expression(one)) for key, one in step.arguments]
    return f"apis.{step.function}({', '.join([*given, *([extra] if extra else [])])})"


def _test(step: CallStep) -> str:
    return " and ".join(f"{ENTRY}[{key!r}] == {_expression(one)}" for key, one in step.where)


def _step(step: CallStep) -> list[str]:
    if step.op == "return":
        return [f"return {_expression(step.value)}" if step.value is not None else "return None"]
    if step.op == "call":
        return [f"{step.name} = {_call(step)}" if step.name else _call(step)]
    if step.op == "pages":
        return _pages(step)
    over = _expression(step.over) if isinstance(step.over, Result) else "()"
    if step.op == "each":
        if not step.name:
            return [f"for {ENTRY} in {over}:", f"    {_call(step)}"]
        return [f"{step.name} = []", f"for {ENTRY} in {over}:", f"    {step.name}.append({_call(step)})"]
    if step.op == "keep":
        return [f"{step.name} = [{ENTRY} for {ENTRY} in {over} if {_test(step)}]"]
    wanted = " and ".join(
        f"{key} {{{one.name}!r}}" if isinstance(one, Slot) else key for key, one in step.where
    )
    return [
        f"{step.name} = next(({ENTRY} for {ENTRY} in {over} if {_test(step)}), None)",
        f"if {step.name} is None:",
        f'    raise LookupError(f"nothing has {wanted}")',
    ]


def _pages(step: CallStep) -> list[str]:
    part = f"{step.name}_part"
    page = f"{step.name}_page"
    entries = f"{part}[{step.items!r}]" if step.items else part
    return [
        f"{step.name} = []",
        f"for {page} in range({step.first}, {step.first + MOST_PAGES}):",
        f"    {part} = {_call(step, _keyword(step.page, page))}",
        f"    if not {entries}:",
        "        break",
        f"    {step.name}.extend({entries})",
    ]
