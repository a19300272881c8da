"""The functions of an environment as the guard needs them: name -> JSON schema of the parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from refork.errors import BadInput
from refork.registry import known
from refork.types import Json
from refork.worlds.open import open_world
from refork_methods.memory.sources import function_name

_HINT = (
    '{"app.function": SCHEMA, ...}, a list of OpenAI function schemas, or a world that has a catalogue: '
    "miniapps, of refork-testbed"
)


class Function(Protocol):
    """One function of a world: ``name`` is "app.function", ``parameters`` a JSON schema of its keywords."""

    @property
    def name(self) -> str:
        """App and function."""
        ...

    @property
    def parameters(self) -> Json:
        """A schema of an object."""
        ...

    @property
    def doc(self) -> str:
        """What is said of it."""
        ...


@runtime_checkable
class WithCatalogue(Protocol):
    """A world that lists its functions."""

    def catalogue(self) -> Sequence[Function]:
        """All of them, in a fixed order."""
        ...


def schemas(world: WithCatalogue) -> dict[str, Json]:
    """The catalogue as a guard wants it: "app.function" -> JSON schema, with what is said of the function."""
    return {one.name: one.parameters | {"description": one.doc} for one in world.catalogue()}


def read_catalogue(spec: str) -> dict[str, Json]:
    """A JSON file, or the catalogue of a world that has one, such as the testbed's ``miniapps``.

    The file holds an object "app.function" -> JSON schema, or a list of OpenAI function schemas.

    Raises:
        BadInput: no such file, or neither of the two.
    """
    if known("worlds", spec.partition("?")[0]):
        world = open_world(spec)
        if isinstance(world, WithCatalogue):
            return schemas(world)
        raise BadInput(f"the world {world.name} has no catalogue", where=spec, hint=_HINT)
    path = Path(spec)
    if not path.is_file():
        raise BadInput("there is no such catalogue", where=spec, hint=_HINT)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"this catalogue is not JSON: {error}", where=spec) from error
    rows = data.items() if isinstance(data, dict) else map(_named, data) if isinstance(data, list) else None
    if rows is None:
        raise BadInput("this is no catalogue", where=spec, hint=_HINT)
    found = dict(rows)
    for name, schema in found.items():
        if "." not in name or not isinstance(schema, dict):
            raise BadInput(f"{name!r} is no function of an app with a schema", where=spec, hint=_HINT)
    return found


def _named(one: Any) -> tuple[str, Json]:
    function = one.get("function", one) if isinstance(one, dict) else {}
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadInput("a function has no name", where="catalogue", hint=_HINT)
    schema = dict(function.get("parameters") or {"type": "object", "properties": {}})
    if function.get("description"):
        schema["description"] = function["description"]
    return function_name(function["name"]), schema
