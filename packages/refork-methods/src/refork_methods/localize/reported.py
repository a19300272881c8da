"""What an issue tells of values: which kinds of result it speaks of, what stands in them, which errors."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from refork_methods.localize.terms import IssueTerms

#: English words after which a report states a result.
_OUTCOME = re.compile(
    r"\b(?:gives?|gave|gets?|got|returns?|returned|results?|outputs?|prints?|produces?|yields?|expect(?:s|ed)?"
    r"|actual(?:ly)?|should|ought|instead|says?|now|see|observed|receive[sd]?)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\.?\w)|\b(?:True|False|None)\b")
_ENDLESS = re.compile(
    r"\b(?:hang(?:s|ing)?|infinite|endless(?:ly)?|forever|never (?:ends?|returns?|finish(?:es)?|stops?)"
    r"|(?:not|n't) (?:end|return|stop|finish|terminate|come to an end)|time[sd]? ?out)\b",
    re.IGNORECASE,
)
#: How far before a value its word of outcome may stand [characters].
_REACH = 40
_KINDS = {list: "list", dict: "dict", set: "set", tuple: "tuple", str: "str", bool: "bool", int: "int",
          float: "float", type(None): "None"}  # fmt: skip
#: Characters of an issue that are searched for values.
_MOST = 20_000
#: An error that no class stands for: it does not end.
ENDLESS = "no end"
Atom = tuple[str, str | float]


@final
@dataclass(frozen=True, slots=True)
class Reported:
    """``kinds`` of results that are told; ``atoms``: words, signs and numbers in values; ``errors``."""

    kinds: frozenset[str]
    atoms: frozenset[Atom]
    errors: frozenset[str]


def reported(issue: IssueTerms) -> Reported:
    """Read the literals in an issue's text; a value that is cut off is not read."""
    kinds: set[str] = set()
    atoms: set[Atom] = set()
    for value, start in _literals(issue.text[:_MOST]):
        before = re.split(r"[.;\n]\s", issue.text[max(0, start - _REACH) : start])[-1]
        if _OUTCOME.search(before):
            kinds.add(_KINDS.get(type(value), "other"))
        atoms |= set(_atoms(value))
    errors = {name for name in issue.errors if not name.endswith("Warning")}
    if _ENDLESS.search(issue.text):
        errors.add(ENDLESS)
    return Reported(frozenset(kinds), frozenset(atoms), frozenset(errors))


def signs(text: str) -> Iterator[Atom]:
    """The characters of a text that are neither letters, digits nor spaces."""
    return (("sign", letter) for letter in text if not letter.isalnum() and letter != " ")


def number(value: object) -> Iterator[Atom]:
    """A number that a float can hold."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        yield "number", float(value)


def _atoms(value: object) -> Iterator[Atom]:
    if isinstance(value, str):
        yield from (("word", word) for word in re.findall(r"\w{2,30}", value))
        yield from signs(value)
    elif isinstance(value, dict):
        for key, held in value.items():
            yield from _atoms(key)
            yield from _atoms(held)
    elif isinstance(value, list | tuple | set | frozenset):
        for held in value:
            yield from _atoms(held)
    else:
        yield from number(value)


def _literals(text: str) -> Iterator[tuple[object, int]]:
    """Python literals in a text and where each starts; of nested ones the outermost."""
    at = 0
    while at < len(text):
        end = at
        inside = at > 0 and (text[at - 1].isalnum() or text[at - 1] in "._")
        if text[at] in "[{(\"'" and not (inside and text[at] in "\"'"):
            end = _closing(text, at)
        elif not inside and (hit := _NUMBER.match(text, at)):
            end = hit.end()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = ast.literal_eval(text[at:end].strip()) if end > at else ...
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError):
            found = ...
        if found is ...:
            at += 1
        else:
            yield found, at
            at = end


def _closing(text: str, start: int, most: int = 1000) -> int:
    """Past the end of the bracket or quote that opens at ``start``, on its line; ``start`` if it has none."""
    depth, quote, at = 0, "", start
    while at < min(len(text), start + most) and text[at] != "\n":
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in "\"'":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if not quote and depth <= 0:
            return at + 1
        at += 1
    return start
