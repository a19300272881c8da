"""JSON documents: paths into them, and what differs between two of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from refork.errors import BadInput
from refork.plain import canonical

#: A path as steps: object keys and list indices.
Steps: TypeAlias = tuple[str | int, ...]

# A bare key, an index or an append, or a quoted key: in quotes a key may hold dots and brackets.
_STEP = re.compile(r"""\.?([^.\[\]"]+)|\[(\d+|\+)\]|\["((?:[^"\\]|\\.)*)"\]""")


def parse_path(path: str) -> Steps:
    """``messages[3].content``, ``files["a.py"]`` or ``messages[+]`` (append) as steps."""
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (at == 0 and path.startswith(".")):
            raise BadInput(f"not a path into a JSON document, from {path[at:]!r} on", where=repr(path),
                           hint='messages[3].content, files["a.py"], or messages[+] to append')  # fmt: skip
        key, index, quoted = found.groups()
        if key is not None:
            steps.append(key)
        elif index is not None:
            steps.append("+" if index == "+" else int(index))
        else:
            steps.append(json.loads(f'"{quoted}"'))
        at = found.end()
    if not steps:
        raise BadInput("the path is empty: name one field")
    return tuple(steps)


def write_path(steps: Steps) -> str:
    """The text of a path."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"""[^.\[\]"\s+]+""", step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text


def look_up(document: Any, steps: Steps) -> Any:
    """The value at a path; raises BadInput where there is none."""
    value = document
    for depth, step in enumerate(steps):
        try:
            # A key into a list, or an index into an object.
            if isinstance(value, dict) == isinstance(step, int):
                raise KeyError(step)
            value = value[step]
        except (KeyError, IndexError, TypeError) as error:
            raise BadInput(
                f"the environment has no field {write_path(steps[: depth + 1])}", where=write_path(steps)
            ) from error
    return value


def resolve(document: Any, steps: Steps) -> Steps:
    """The path with a final ``[+]`` made the index behind the list's last element.

    Raises: BadInput where it is no list, and no object that has a field of that name.
    """
    if steps[-1] != "+":
        return steps
    held = look_up(document, steps[:-1])
    if isinstance(held, list):
        return (*steps[:-1], len(held))
    if not isinstance(held, dict) or "+" not in held:
        raise BadInput("[+] appends to a list, and this is none", where=write_path(steps))
    return steps


def with_value(document: Any, steps: Steps, value: Any) -> Any:
    """A copy in which the field has the value: replaced, added to its object, or appended to its list."""
    new = deepcopy(document)
    holder, last = look_up(new, steps[:-1]), steps[-1]
    if isinstance(holder, list) and isinstance(last, int) and 0 <= last <= len(holder):
        # A slice: it replaces an element, and appends where the index is one behind the last.
        holder[last : last + 1] = [deepcopy(value)]
    elif isinstance(holder, dict) and isinstance(last, str):
        holder[last] = deepcopy(value)
    else:
        raise BadInput("the environment has no such field", where=write_path(steps))
    return new


def without(document: Any, steps: Steps) -> Any:
    """A copy without the field."""
    look_up(document, steps)
    new = deepcopy(document)
    del look_up(new, steps[:-1])[steps[-1]]
    return new


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs: where, and what it was and is."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def diff(before: Any, after: Any, near: Steps = ()) -> list[FieldChange]:
    """The fields in which two documents differ, deepest first named; lists aligned at both ends.

    Among equal neighbours it cannot be seen which one was taken out or put in; then ``near`` says.
    """
    return list(_diff(before, after, (), near))


def _diff(before: Any, after: Any, at: Steps, near: Steps) -> Iterator[FieldChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(k for k in after if k not in before)]:
            here = (*at, key)
            if key not in after:
                yield FieldChange(write_path(here), "removed", before=before[key])
            elif key not in before:
                yield FieldChange(write_path(here), "added", after=after[key])
            else:
                yield from _diff(before[key], after[key], here, near)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _diff_lists(before, after, at, near)
    # By their JSON text: True, 1 and 1.0 are equal in Python, and not in the environment that a run is given.
    elif canonical(before) != canonical(after):
        yield FieldChange(write_path(at), "changed", before, after)


def _diff_lists(before: list[Any], after: list[Any], at: Steps, near: Steps) -> Iterator[FieldChange]:
    if len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _diff(old, new, (*at, index), near)
        return
    old, new = [canonical(v) for v in before], [canonical(v) for v in after]
    shorter = min(len(old), len(new))
    most = near[len(at)] if near[: len(at)] == at and len(near) > len(at) else shorter
    most = min(most, shorter) if isinstance(most, int) else shorter
    # Equal elements at both ends stand; what lies between was taken out and put in.
    head = next((i for i in range(most) if old[i] != new[i]), most)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    for index in range(head, len(old) - tail):
        yield FieldChange(write_path((*at, index)), "removed", before=before[index])
    for index in range(head, len(new) - tail):
        yield FieldChange(write_path((*at, index)), "added", after=after[index])
