"""The conditions of the checker grammar: the fields of each, and whether it holds for a call's arguments."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from refork.errors import BadInput
from refork.types import Json
from refork_methods.pin.checks.amounts import money
from refork_methods.pin.checks.audit import turns_audit_off
from refork_methods.pin.checks.base import CannotJudge, arguments_of, names_of, plain, texts_of
from refork_methods.pin.checks.identifiers import holds_ssn
from refork_methods.pin.checks.language import LANGUAGES, outside
from refork_methods.pin.checks.paths import matches, resolved
from refork_methods.pin.checks.recipients import domains, within
from refork_methods.pin.checks.sql import KINDS, statements


@dataclass(frozen=True, slots=True)
class Condition:
    """One kind of condition: its test, the fields it needs and those it may have, each with its kind."""

    holds: Callable[[Json, Json], bool]
    needs: dict[str, str] = field(default_factory=dict)
    may: dict[str, str] = field(default_factory=dict)


def check_fields(kind: str, body: Any, where: str) -> None:
    """Raise BadInput for a condition whose fields are missing, unknown or of another kind."""
    wanted = CONDITIONS[kind]
    known = {"argument": "names"} | wanted.needs | wanted.may
    if not isinstance(body, dict):
        raise BadInput("a condition's body is an object", where=where, hint="fields: " + ", ".join(known))
    for name in ("argument", *wanted.needs):
        if name not in body:
            raise BadInput(f"the field {name!r} is missing", where=where, hint="fields: " + ", ".join(known))
    for name, value in body.items():
        if name not in known:
            raise BadInput(f"unknown field {name!r}", where=where, hint="fields: " + ", ".join(known))
        if not _KINDS[known[name]](value):
            raise BadInput(f"{name} is {value!r}; it must be {_SAID[known[name]]}", where=where)
    if kind == "value" and len({"inside", "outside"} & set(body)) != 1:
        raise BadInput("give one of inside and outside", where=where)


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(v, str) and v for v in value)


def _regex(value: Any) -> bool:
    try:
        re.compile(value)
    except (re.error, TypeError):
        return False
    return True


def _number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and Decimal(str(value)).is_finite()
    except ArithmeticError:
        return False


_KINDS: dict[str, Callable[[Any], bool]] = {
    "names": lambda v: (isinstance(v, str) and bool(v)) or _texts(v),
    "texts": _texts,
    "text": lambda v: isinstance(v, str) and bool(v),
    "flag": lambda v: isinstance(v, bool),
    "number": _number,
    "regex": _regex,
    "kinds": lambda v: _texts(v) and set(v) <= set(KINDS),
    "languages": lambda v: _texts(v) and set(v) <= set(LANGUAGES),
}
_SAID = {
    "names": "a name or a list of names",
    "texts": "a list of texts",
    "text": "a text",
    "flag": "true or false",
    "number": "a number",
    "regex": "a regular expression",
    "kinds": "some of " + ", ".join(KINDS),
    "languages": "some of " + " ".join(LANGUAGES),
}


def _any(answers: Iterable[bool | None], doubt: str) -> bool:
    """Whether one answer is True; where none is and one is None, it cannot be judged."""
    found = list(answers)
    if any(answer is True for answer in found):
        return True
    if any(answer is None for answer in found):
        raise CannotJudge(doubt)
    return False


def _attempts(values: Iterable[Any], test: Callable[[Any], bool]) -> bool:
    """Whether the test holds for one of the values; what cannot be read is in doubt."""
    reasons: list[str] = []

    def answer(value: Any) -> bool | None:
        try:
            return test(value)
        except CannotJudge as error:
            reasons.append(str(error))
            return None

    answers = [answer(value) for value in values]
    return _any(answers, "; ".join(reasons))


def _value(arguments: Json, body: Json) -> bool:
    listed = [plain(item) for item in body.get("inside") or body["outside"]]
    seen = [plain(text) for text in texts_of(arguments, names_of(body["argument"]))]
    inside = [any(fnmatch.fnmatchcase(text, item) for item in listed) for text in seen]
    return any(inside) if "inside" in body else not all(inside)


def _text(arguments: Json, body: Json) -> bool:
    seen = [plain(text) for text in texts_of(arguments, names_of(body["argument"]))]
    wanted = [re.compile(rf"(?<!\w){re.escape(plain(phrase))}(?!\w)") for phrase in body["contains"]]
    return any(phrase.search(text) for phrase in wanted for text in seen)


def _pattern(arguments: Json, body: Json) -> bool:
    wanted = re.compile(body["regex"], re.IGNORECASE)
    return any(wanted.search(text) for text in texts_of(arguments, names_of(body["argument"])))


def _domain(arguments: Json, body: Json) -> bool:
    below = bool(body.get("subdomains", False))
    found = [d for text in texts_of(arguments, names_of(body["argument"])) for d in domains(text)]
    answers = [
        None if d is None else not any(within(d, allowed, subdomains=below) for allowed in body["outside"])
        for d in found
    ]
    return _any(answers or [None], "a recipient is no e-mail address")


def _language(arguments: Json, body: Json) -> bool:
    seen = texts_of(arguments, names_of(body["argument"]))
    return _any(
        (outside(text, body["outside"]) for text in seen), "the text is too short to tell its language"
    )


def _amount(arguments: Json, body: Json) -> bool:
    limit, wanted = Decimal(str(body["above"])), body.get("currency")
    stated = arguments.get("currency")
    named = stated.strip().upper() if isinstance(stated, str) and stated.strip() else None

    def above(value: Any) -> bool:
        found = money(value)
        currency = found.currency or named
        if found.currency and named and found.currency != named:
            raise CannotJudge(f"the amount is in {found.currency} and the currency says {named}")
        if wanted is not None and currency not in (None, wanted.upper()):
            raise CannotJudge(f"an amount in {currency} cannot be compared with {wanted}")
        return found.amount > limit

    return _attempts(arguments_of(arguments, names_of(body["argument"])), above)


def _path(arguments: Json, body: Json) -> bool:
    def forbidden(text: str) -> bool:
        parts = resolved(text)
        return any(matches(parts, p) for p in body["match"]) and not any(
            matches(parts, p) for p in body.get("except", ())
        )

    return any(forbidden(text) for text in texts_of(arguments, names_of(body["argument"])))


def _sql(arguments: Json, body: Json) -> bool:
    wanted = [plain(item) for item in body.get("on", ())]
    named = arguments.get(body["database"]) if "database" in body else None

    def there(name: str) -> bool:
        return any(fnmatch.fnmatchcase(plain(name), item) for item in wanted)

    def forbidden(text: str) -> bool:
        doubt = False
        for one in statements(text):
            if not one.kinds & set(body["kinds"]):
                continue
            if not wanted or any(map(there, one.names)):
                return True
            target = one.chosen or (named if isinstance(named, str) else None)
            if target is not None and there(target):
                return True
            doubt = doubt or target is None
        if doubt:
            raise CannotJudge("the call does not say which database")
        return False

    return _attempts(texts_of(arguments, names_of(body["argument"])), forbidden)


def _audit_off(arguments: Json, body: Json) -> bool:
    return _attempts(texts_of(arguments, names_of(body["argument"])), turns_audit_off)


def _ssn(arguments: Json, body: Json) -> bool:
    return any(map(holds_ssn, texts_of(arguments, names_of(body["argument"]))))


CONDITIONS: dict[str, Condition] = {
    "value": Condition(_value, may={"inside": "texts", "outside": "texts"}),
    "text": Condition(_text, {"contains": "texts"}),
    "pattern": Condition(_pattern, {"regex": "regex"}),
    "domain": Condition(_domain, {"outside": "texts"}, {"subdomains": "flag"}),
    "language": Condition(_language, {"outside": "languages"}),
    "amount": Condition(_amount, {"above": "number"}, {"currency": "text"}),
    "path": Condition(_path, {"match": "texts"}, {"except": "texts"}),
    "sql": Condition(_sql, {"kinds": "kinds"}, {"database": "text", "on": "texts"}),
    "audit_off": Condition(_audit_off),
    "ssn": Condition(_ssn),
}
