"""A policy file: the rules of an operator, in YAML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.types import Json
from refork_methods.pin.channel import SignedChange
from refork_methods.pin.constraint import Constraint

_EXAMPLE = "rules: [{id: spend, text: 'Never buy for more than 100 USD.'}]"


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    text: str
    kind: Literal["soft", "hard"] = "soft"
    tool: str | None = None
    checker: Json | None = None
    version: int = 1


def read_policy(path: Path | str) -> tuple[Constraint, ...]:
    """The rules of a YAML file: a list ``rules`` of id and text; kind, tool, checker and version if given.

    Raises:
        BadInput: no such file, not YAML, a field unknown, missing or of the wrong type, a checker that is
            not of the grammar, or an id twice; it names the rule.
    """
    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"the policy file cannot be read: {error.strerror}", where=str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"not YAML: {' '.join(str(error).split())}", where=str(path)) from error
    rules = data.get("rules") if isinstance(data, dict) else data
    if not isinstance(rules, list) or not rules:
        raise BadInput("the policy file has no rules", where=str(path), hint=f"for example {_EXAMPLE}")
    found = tuple(_rule(rule, f"{path}, rule {place + 1}") for place, rule in enumerate(rules))
    check_unique(found, str(path))
    return found


def check_unique(rules: Sequence[Constraint], where: str) -> None:
    """Raise BadInput where two rules have one id."""
    names = [rule.id for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two rules have the id {name!r}", where=where)


def _rule(data: Any, where: str) -> Constraint:
    try:
        rule = _Rule.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the rule"
        if first["type"] == "extra_forbidden":
            known = ", ".join(_Rule.model_fields)
            raise BadInput(f"a rule has no field {field!r}", where=where, hint=f"fields: {known}") from error
        raise BadInput(f"{field}: {first['msg']}", where=where, hint=f"for example {_EXAMPLE}") from error
    if rule.checker is not None:
        from refork_methods.pin.checkers import check_checker  # loads the SQL reader

        check_checker(rule.checker, f"{where}, checker")
    try:
        return Constraint(**rule.model_dump())
    except BadInput as error:
        raise BadInput(error.what, where=where, hint=error.hint) from error


def read_changes(path: Path | str) -> list[SignedChange]:
    """Signed changes, one JSON object a line, oldest first. Raises BadInput naming a bad line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the file of changes cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise BadInput("the file of changes is not text", where=str(path)) from error
    # On the line feed alone: splitlines would also cut inside a rule that holds a Unicode line separator.
    return [_change(body, where) for where, body in json_objects(text.split("\n"), str(path))]


def _change(body: Json, where: str) -> SignedChange:
    try:
        return SignedChange.from_json(body)
    except BadInput as error:
        raise BadInput(error.what, where=where, hint=error.hint) from error


def change_line(change: SignedChange) -> str:
    """One line of a file of changes."""
    return json.dumps(change.to_json(), sort_keys=True, ensure_ascii=False)
