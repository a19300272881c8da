"""The functions of an environment as the guard needs them: name -> JSON schema of the parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork.types import Json
from refork_methods.memory.sources import function_name

_HINT = '{"app.function": SCHEMA, ...}, a list of OpenAI function schemas, or miniapps'


def read_catalogue(spec: str) -> dict[str, Json]:
    """A JSON file, or the catalogue of the world ``miniapps`` (with its options).

    The file holds an object "app.function" -> JSON schema, or a list of OpenAI function schemas.

    Raises:
        BadInput: no such file, or neither of the two.
    """
    if spec.partition("?")[0] == "miniapps":
        from refork.worlds.open import open_world
        from refork_methods.memory.on_miniapps import schemas
        from refork_testbed.worlds.miniapps.world import MiniAppsWorld

        world = open_world(spec)
        if isinstance(world, MiniAppsWorld):
            return schemas(world)
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
