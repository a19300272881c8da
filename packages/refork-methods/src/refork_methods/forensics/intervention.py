"""One named edit of a serialised environment, checked against what really changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, Literal, Self

from refork.errors import BadInput
from refork.plain import canonical, content_hash, to_json
from refork.types import Json
from refork_methods.forensics.document import (
    FieldChange,
    Steps,
    diff,
    look_up,
    parse_path,
    resolve,
    with_value,
    without,
    write_path,
)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one field: ``set`` to a value, ``replace`` one span of its text, or ``remove`` it."""

    path: str
    kind: Literal["set", "replace", "remove"]
    value: Any = None
    find: str | None = None

    def __post_init__(self) -> None:
        parse_path(self.path)
        canonical(self.value)

    def steps(self, environment: Json) -> Steps:
        """The path in this environment, an append resolved to its index."""
        return resolve(environment, parse_path(self.path))

    def apply(self, environment: Json) -> Json:
        """A copy of the environment with this edit; raises BadInput where there is nothing to edit."""
        steps = self.steps(environment)
        if self.kind == "remove":
            return dict(without(environment, steps))
        if self.kind == "set":
            return dict(with_value(environment, steps, self.value))
        text = look_up(environment, steps)
        return dict(with_value(environment, steps, _replaced(text, self.find or "", self.value, self.path)))


def _replaced(text: Any, find: str, new: Any, path: str) -> str:
    if not isinstance(text, str) or not isinstance(new, str):
        raise BadInput("only text can have a span replaced", where=path)
    times = text.count(find) if find else 0
    if times != 1:
        raise BadInput(f"the span {find[:60]!r} occurs {times} times; it must occur once", where=path,
                       hint="give a longer span that stands there once")  # fmt: skip
    return text.replace(find, new)


@dataclass(frozen=True, slots=True)
class Applied:
    """An intervention that took effect: the environment it gives and the verified changes."""

    intervention: str
    environment: Json
    changes: tuple[FieldChange, ...]
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Intervention:
    """One edit under a name; no edit is the control. Several edits come from :func:`factorial` only."""

    name: str
    edits: tuple[Edit, ...] = ()
    factorial: bool = False

    def __post_init__(self) -> None:
        if len(self.edits) > 1 and not self.factorial:
            raise BadInput(
                f"intervention {self.name!r} changes {len(self.edits)} fields; one edit is one intervention",
                hint="factorial(first, second, ...) runs all combinations, so that each has its own effect",
            )

    @property
    def id(self) -> str:
        """Digest of what is edited; the name does not count."""
        return content_hash([to_json(edit) for edit in self.edits])

    @classmethod
    def none(cls, name: str = "unchanged") -> Self:
        """The control: nothing is edited."""
        return cls(name)

    @classmethod
    def edit(cls, path: str, value: Any, name: str | None = None) -> Self:
        """Set one field; ``messages[+]`` appends to a list."""
        return cls(name or f"{path} = {canonical(value)[:40]}", (Edit(path, "set", value),))

    @classmethod
    def replace(cls, path: str, find: str, text: str, name: str | None = None) -> Self:
        """Replace a span of a text field that occurs there exactly once."""
        return cls(name or f"{path}: {find[:30]!r} -> {text[:30]!r}", (Edit(path, "replace", text, find),))

    @classmethod
    def remove(cls, path: str, name: str | None = None) -> Self:
        """Take one field or list element out."""
        return cls(name or f"without {path}", (Edit(path, "remove"),))

    def apply(self, environment: Json) -> Applied:
        """The edited environment, verified: every edit changes its own field and nothing else.

        Raises:
            BadInput: a field that is not there, an edit without effect, or two edits of one field.
        """
        new = environment
        for edit in self.edits:
            new = _one(edit, new, self.name)
        return self.verify(environment, new)

    def verify(self, before: Json, after: Json) -> Applied:
        """Check two serialised environments, however made: they differ in the declared fields only.

        Give the environment as the harness really built it: an edit that the harness ignores, or that
        moves anything else, is refused.

        Raises:
            BadInput: no effect, another field touched, or a field that holds something else than declared.
        """
        expected = before
        for edit in self.edits:
            expected = _one(edit, expected, self.name)
        near = self.edits[0].steps(before) if self.edits else ()
        changes = diff(before, after, near)
        if canonical(after) != canonical(expected):
            _refuse(self, before, changes, diff(expected, after, near))
        return Applied(self.id, after, tuple(changes), content_hash(before), content_hash(after))


def _one(edit: Edit, environment: Json, name: str) -> Json:
    """One edit applied, and the diff of the two documents held against the declared field."""
    new = edit.apply(environment)
    declared = write_path(edit.steps(environment))
    changes = diff(environment, new, edit.steps(environment))
    if not changes:
        raise BadInput(f"intervention {name!r} changes nothing", where=declared)
    strays = [c.path for c in changes if not _under(c.path, declared)]
    if strays:
        raise BadInput(f"intervention {name!r} also touches {', '.join(strays)}", where=declared)
    return new


def _under(path: str, declared: str) -> bool:
    """Whether a path is the declared field or lies inside it."""
    mine, its = parse_path(path), parse_path(declared)
    return mine[: len(its)] == its


def _refuse(
    which: Intervention, before: Json, changes: Sequence[FieldChange], rest: Sequence[FieldChange]
) -> None:
    declared = [write_path(edit.steps(before)) for edit in which.edits]
    where = ", ".join(declared) or "nothing declared"
    if not changes:
        raise BadInput(f"intervention {which.name!r} did not take effect: the environment is unchanged",
                       where=where, hint="does the harness read this field?")  # fmt: skip
    strays = [c.path for c in changes if not any(_under(c.path, d) for d in declared)]
    if strays:
        raise BadInput(f"intervention {which.name!r} also changed {', '.join(strays[:5])}", where=where,
                       hint="one edit, one field: make the others interventions of their own")  # fmt: skip
    raise BadInput(f"the declared field holds something else than intervention {which.name!r} says",
                   where=", ".join(c.path for c in rest[:5]))  # fmt: skip


def _check_apart(edits: Sequence[Edit]) -> None:
    """Refuse two edits of one field, and an edit beside an element whose removal would renumber its list."""
    for first, second in permutations(edits, 2):
        if _under(first.path, second.path):
            raise BadInput(f"two factors edit one field: {first.path} and {second.path}")
        *held, last = parse_path(first.path)
        if (
            first.kind == "remove"
            and isinstance(last, int)
            and parse_path(second.path)[: len(held)] == tuple(held)
        ):
            raise BadInput(
                f"taking out {first.path} renumbers the list that {second.path} is in",
                hint='set the element to "" or null instead, so that the others keep their places',
            )


def factorial(*factors: Intervention) -> tuple[Intervention, ...]:
    """All combinations of single edits, the control first; each cell's edits are checked one by one.

    Raises: BadInput for fewer than two factors, a factor that is not one edit, or two of one field.
    """
    if len(factors) < 2:
        raise BadInput("a factorial design needs two factors or more")
    for factor in factors:
        if len(factor.edits) != 1:
            raise BadInput(f"factor {factor.name!r} has {len(factor.edits)} edits; each factor is one edit")
    _check_apart([factor.edits[0] for factor in factors])
    cells: list[Intervention] = []
    # The order is read by place: the control, single edits as they were given, then combinations.
    for levels in sorted(
        product((False, True), repeat=len(factors)), key=lambda c: (sum(c), [not x for x in c])
    ):
        chosen = [factor for factor, on in zip(factors, levels, strict=True) if on]
        name = " + ".join(factor.name for factor in chosen) or "unchanged"
        cells.append(Intervention(name, tuple(f.edits[0] for f in chosen), factorial=len(chosen) > 1))
    return tuple(cells)
