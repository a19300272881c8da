"""Secrets in runs and in what is made of them: found, named, and flagged where one is left.

A password, key or token that a run was told (not one that a call returned) becomes ``secret:app.argument``
before anything reads the run. Tools hold that name; its value is put in at the call, outside the sandbox, and
into that argument only: see :func:`refork_methods.memory.runtime.filled`. All of this is ours.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from refork.errors import CannotDo
from refork.formats.secret_shapes import NAMES, PASSWORDS, keys_in
from refork.types import Json
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.roles.lesson import Lesson
from refork_methods.memory.runtime import PREFIX
from refork_methods.memory.skeleton import Argument, CallStep, Constant
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunStep, RunTrajectory, leaves

_WEAK = r"secret|token|credential"
#: Beside the names that imports know, what forms of banks and shops ask for.
_ASKED = re.compile(r"(?:.*_)?(?:pin|otp|cvv|credential)(?:_?\d+)?")
#: What begins as a key of a known service does, whole or not; here a false alarm costs less than a leak.
_BEGUN = re.compile(
    r"\b(?:sk-|gh[pousr]_|github_pat_|xox[abpr]-|AKIA|AIza|glpat-|hf_)[\w-]{16,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
#: "password is X", "password for Y: X", "api key = X", "token 'X'"; a password may follow with no sign.
_TOLD = re.compile(
    rf"""(?i)(?<![A-Za-z])(?:(?P<strong>{PASSWORDS})|{_WEAK})s?\b
    (?P<sign>(?:\s+for\s+[\w.@-]+)?(?:\s+(?:is|was)\b|\s*[:=])?)\s*
    (?:(?P<quote>['"`])(?P<quoted>[^'"`\s]{{3,}})(?P=quote)|(?P<plain>[^\s'"`,;(){{}}\[\]]*[^\s'"`.,;:(){{}}\[\]]))""",
    re.VERBOSE,
)
#: A secret's name, as tools and plans write it.
_NAMED = re.compile(rf"\b{PREFIX[:-1]}[: ][A-Za-z_]\w*\.\w+")
_LEAST = 3


@dataclass(frozen=True, slots=True)
class Hidden:
    """A run without its secrets. ``names``: value -> what stands in its place."""

    run: RunTrajectory
    names: Mapping[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A text with the values replaced."""
        return _replaced(text, self.names)

    def lesson(self, lesson: Lesson) -> Lesson:
        """A lesson with the values replaced, those of calls too."""
        if not self.names:
            return lesson
        steps = tuple(_without(step, self.names) for step in lesson.skeleton)
        return replace(lesson, body=self.text(lesson.body), skeleton=steps)


def secret_key(key: str) -> bool:
    """Whether an argument's name says that it takes a secret."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
    return (NAMES.fullmatch(name) or _ASKED.fullmatch(name)) is not None


def hidden(run: RunTrajectory) -> Hidden:
    """The run with every secret that it was told replaced by its name, everywhere.

    Values that a call returned keep their place in arguments and results, where they are traced; in texts
    they are replaced too. The same run always gives the same; a run that was hidden stays as it is.
    """
    told, returned = _values(run)
    if not told and not returned:
        return Hidden(run)
    steps = tuple(_hidden_step(step, told, returned) for step in run.steps)
    every = told | returned
    return Hidden(
        replace(run, query=_replaced(run.query, every), context=_replaced(run.context, every), steps=steps),
        every,
    )


def _values(run: RunTrajectory) -> tuple[dict[str, str], dict[str, str]]:
    """Secrets that the run was told (value -> placeholder) and such that calls returned."""
    given = [text for _, text in _stated(run.context)]
    found: dict[str, list[tuple[bool, str]]] = {}
    seen: set[str] = set()
    returned: dict[str, str] = {}
    for step in run.steps:
        for key, value in _arguments(step.arguments):
            text = str(value)
            if text.startswith(PREFIX) or not (secret_key(key) or text in given or any(_keys(text))):
                continue
            name = f"{step.function.partition('.')[0]}.{key}"
            if text in seen:
                returned[text] = f"[{key}]"
            elif isinstance(value, str | int) and text:
                found.setdefault(name, []).append((step.failed, text))
        seen |= {str(leaf) for leaf in leaves(step.result)}
    told: dict[str, str] = {}
    for name, rows in found.items():
        # What was accepted has the plain name; what was tried in vain is numbered after it.
        values = dict.fromkeys(text for _, text in sorted(rows, key=lambda row: row[0]))
        for number, text in enumerate((v for v in values if v not in told), 1):
            told[text] = PREFIX + (name if number == 1 else f"{name}_{number}")
    return told, {value: name for value, name in returned.items() if value not in told}


def _hidden_step(step: RunStep, told: Mapping[str, str], returned: Mapping[str, str]) -> RunStep:
    every = {**told, **returned}
    return replace(
        step,
        output=_replaced(step.output, every),
        observation=_replaced(step.observation, every),
        arguments={key: _deep(value, told, key) for key, value in step.arguments.items()},
        result=_deep(step.result, told),
    )


def _deep(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """A JSON value with texts replaced in it; a secret argument's value as a whole, whatever its type."""
    if isinstance(value, Mapping):
        return {inner: _deep(one, names, str(inner)) for inner, one in value.items()}
    if isinstance(value, list):
        return [_deep(one, names, key) for one in value]
    if key and secret_key(key) and not isinstance(value, bool) and str(value) in names:
        return names[str(value)]
    if isinstance(value, str):
        return names[value] if value in names else _replaced(value, names)
    return value


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for value in sorted(names, key=len, reverse=True):
        # What is short stands in other words by chance.
        if len(value) >= _LEAST + value.isdigit() and value in text:
            found = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
            text = names[value].join(found.split(text))
    return text


def _without(step: CallStep, names: Mapping[str, str]) -> CallStep:
    def new(one: Argument) -> Argument:
        return Constant(names.get(str(one.value), one.value)) if isinstance(one, Constant) else one

    arguments = tuple((key, new(one)) for key, one in step.arguments)
    return replace(step, arguments=arguments, where=tuple((key, new(one)) for key, one in step.where))


def _arguments(value: Json, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value of arguments, with the name next to it."""
    for inner, one in value.items():
        rows = one if isinstance(one, list) else [one]
        for row in rows:
            if isinstance(row, Mapping):
                yield from _arguments(dict(row), str(inner))
            elif row is not None and not isinstance(row, bool):
                yield str(inner), row


def _stated(text: str) -> Iterator[tuple[str, str]]:
    """(words, value) of what a text states as a secret, names of secrets left out."""
    for match in _TOLD.finditer(_NAMED.sub(" ", text)):
        value = match["quoted"] or match["plain"]
        odd = match["quoted"] is not None or re.search(r"[\d\W_]", value) is not None
        told = match["strong"] or match["sign"] or match["quoted"]
        if odd and told and len(value) >= _LEAST:
            yield match.group(), value


def _keys(text: str) -> Iterator[str]:
    """Keys of known services in a text, and what begins as one does."""
    whole = list(keys_in(text))
    yield from whole
    for match in _BEGUN.finditer(text):
        if not any(match.group() in key or key in match.group() for key in whole):
            yield match.group()


def in_text(text: str) -> Iterator[str]:
    """What looks like a secret in a text, told without its value."""
    for key in _keys(text):
        yield f"a key that begins with {key[:4]!r}"
    for words, value in _stated(text):
        yield f"what stands after {words.replace(value, '')[:40].strip()!r}"


def in_source(source: str) -> Iterator[str]:
    """Literals of a source that are given as a secret or have the form of one."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.keyword) and node.arg:
            pairs = [(node.arg, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [(one.id, node.value) for one in node.targets if isinstance(one, ast.Name)]
        elif isinstance(node, ast.Dict):
            pairs = [
                (str(k.value), v)
                for k, v in zip(node.keys, node.values, strict=True)
                if isinstance(k, ast.Constant)
            ]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from in_text(node.value)
        for key, value in pairs:
            if secret_key(key) and isinstance(value, ast.Constant) and _literal(value.value):
                yield f"the argument {key!r} is a constant"


def _literal(value: object) -> bool:
    if value is None or isinstance(value, bool) or value == "":
        return False
    return not str(value).startswith(PREFIX)


def in_item(item: MemoryItem) -> tuple[str, ...]:
    """Likely secrets of an item: in its words, its query, and the constants of its calls."""
    pairs = [pair for step in item.skeleton for pair in (*step.arguments, *step.where)]
    given = [
        f"the argument {key!r} is a constant"
        for key, one in pairs
        if isinstance(one, Constant) and secret_key(key) and _literal(one.value)
    ]
    return tuple(dict.fromkeys([*given, *in_text(item.body), *in_text(item.query)]))


def in_tool(tool: Tool) -> tuple[str, ...]:
    """Likely secrets of a tool: in its source, doc, parameters and queries."""
    told = [str(one.get("description", "")) for one in tool.parameters.get("properties", {}).values()]
    texts = [tool.doc, *told, *tool.queries]
    return tuple(dict.fromkeys([*in_source(tool.source), *(w for text in texts for w in in_text(text))]))


def names_in(tool: Tool) -> tuple[str, ...]:
    """Names of the secrets that a tool needs at its calls, in order of first use."""
    return tuple(dict.fromkeys(re.findall(rf"(?<!\w){PREFIX}([\w.]*\w)", tool.source)))


def refuse_secrets(
    tools: Iterable[Tool], items: Iterable[MemoryItem] = (), calls: Sequence[tuple[str, Json]] = ()
) -> None:
    """Nothing, if no likely secret stands in what is to be written elsewhere.

    Raises:
        CannotDo: one does; says where, not what.
    """
    found = [f"{tool.name}: {words}" for tool in tools for words in in_tool(tool)]
    found += [f"{item.id}: {words}" for item in items for words in in_item(item)]
    for name, given in calls:
        keys = [key for key, value in _arguments(given) if secret_key(key) and _literal(value)]
        found += [f"a recorded call of {name}: the argument {key!r}" for key in keys]
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise CannotDo(
            f"this would write what looks like a secret: {found[0]}{more}",
            hint="see `refork memory audit`; --allow-secrets (allow_secrets=True) writes it all the same",
        )
