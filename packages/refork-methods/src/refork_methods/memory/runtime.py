"""How generated tools reach their environment, each other, and secrets; exported packages have this file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, final

#: Answers for the environment: the function's name, "app.function", and its keyword arguments.
Call = Callable[[str, dict[str, Any]], Any]
#: The value of a secret by its name, "app.argument"; None where it is not known.
Secrets = Callable[[str], Any]
#: What stands in a tool for a secret: this and its name.
PREFIX = "secret:"


def variable(name: str) -> str:
    """The environment variable of a secret: SECRET_APP_ARGUMENT."""
    return "SECRET_" + re.sub(r"\W", "_", name).upper()


def from_environment(name: str) -> str | None:
    """A secret from the environment variable that is named for it."""
    return os.environ.get(variable(name))


def filled(function: str, keywords: Mapping[str, Any], secrets: Secrets | None) -> dict[str, Any]:
    """A call's arguments with its secrets in place; None for ``secrets`` leaves them as they stand.

    A secret is given to the argument that it is named for, in its own app, and to nothing else.

    Raises:
        LookupError: nobody knows the value.
    """
    given = dict(keywords)
    app = function.partition(".")[0]
    for key, value in keywords.items():
        if secrets is None or not isinstance(value, str) or not value.startswith(PREFIX):
            continue
        name = value.removeprefix(PREFIX)
        # A second value of an argument is named app.argument_2, and an argument may end in a number itself.
        if re.sub(r"_\d+\Z", "", name) not in (f"{app}.{key}", re.sub(r"_\d+\Z", "", f"{app}.{key}")):
            continue
        given[key] = secrets(name)
        if given[key] is None:
            raise LookupError(f"the value of {value!r} is not known: set {variable(name)}, or pass secrets=")
    return given


@final
class Environment:
    """What a tool sees as ``apis``: ``apis.app.function(keyword=...)`` asks ``call``."""

    def __init__(self, call: Call, name: str = "", secrets: Secrets | None = None) -> None:
        self._call, self._name, self._secrets = call, name, secrets

    def __getattr__(self, part: str) -> Any:
        if not self._name:
            return Environment(self._call, part, self._secrets)

        def function(**keywords: Any) -> Any:
            name = f"{self._name}.{part}"
            return self._call(name, filled(name, keywords, self._secrets))

        return function


@final
class Bound:
    """What a tool sees as ``tools``: ``tools.name(keyword=...)`` runs another on the same environment."""

    def __init__(
        self, call: Call, functions: dict[str, Callable[..., Any]], secrets: Secrets | None = None
    ) -> None:
        self._call, self._functions, self._secrets = call, functions, secrets

    def __getattr__(self, name: str) -> Any:
        if name not in self._functions:
            raise AttributeError(f"there is no tool {name!r}")

        def tool(**keywords: Any) -> Any:
            return self.run(name, keywords)

        return tool

    def run(self, name: str, keywords: dict[str, Any]) -> Any:
        """Run a tool by its name."""
        return self._functions[name](Environment(self._call, secrets=self._secrets), self, **keywords)
