"""How generated tools reach their environment and each other; every exported package has this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

#: Answers for the environment: the function's name, "app.function", and its keyword arguments.
Call = Callable[[str, dict[str, Any]], Any]


@final
class Environment:
    """What a tool sees as ``apis``: ``apis.app.function(keyword=...)`` asks ``call``."""

    def __init__(self, call: Call, name: str = "") -> None:
        self._call, self._name = call, name

    def __getattr__(self, part: str) -> Any:
        if not self._name:
            return Environment(self._call, part)

        def function(**keywords: Any) -> Any:
            return self._call(f"{self._name}.{part}", keywords)

        return function


@final
class Bound:
    """What a tool sees as ``tools``: ``tools.name(keyword=...)`` runs another on the same environment."""

    def __init__(self, call: Call, functions: dict[str, Callable[..., Any]]) -> None:
        self._call, self._functions = call, functions

    def __getattr__(self, name: str) -> Any:
        if name not in self._functions:
            raise AttributeError(f"there is no tool {name!r}")

        def tool(**keywords: Any) -> Any:
            return self.run(name, keywords)

        return tool

    def run(self, name: str, keywords: dict[str, Any]) -> Any:
        """Run a tool by its name."""
        return self._functions[name](Environment(self._call), self, **keywords)
