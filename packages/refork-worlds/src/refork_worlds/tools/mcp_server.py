"""Where an MCP server is, how long it may take, and which variables it is given: by name, never by value."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from refork.errors import BadInput

WHERE: Final = "tools:mcp"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A header's name, then a scheme where there is one, then the name of a variable.
_HEADER = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*):(?:([A-Za-z][A-Za-z0-9-]*) )?([A-Za-z_][A-Za-z0-9_]*)")
_HEADER_HINT = "headers=NAME:VARIABLE or headers=Authorization:Bearer%20VARIABLE, several with commas"


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is: a command that speaks on its standard streams, or a URL.

    ``timeout`` is for each call, ``start_timeout`` until it is ready, both in seconds. ``headers`` are
    ``Name:VARIABLE`` or ``Name:Scheme VARIABLE``, ``env`` names of variables that a command is given; their
    values are read when a connection is made.
    """

    command: str = ""
    url: str = ""
    timeout: float = 20.0
    start_timeout: float = 60.0
    headers: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.command.strip()) == bool(self.url.strip()):
            raise BadInput("an MCP server is a command or a url", hint="tools:mcp?command=... or url=...")
        for name, limit in (("timeout", self.timeout), ("start_timeout", self.start_timeout)):
            if not (limit > 0 and math.isfinite(limit)):
                raise BadInput(f"{name} is {limit}; it must be above 0 and finite", where=WHERE)
        if self.url:
            self._check_url()
        elif self.headers:
            raise BadInput(
                "headers are for a url", where=WHERE, hint="a command is given variables: env=NAME"
            )
        for header in self.headers:
            if not _HEADER.fullmatch(header):
                # Not shown: it may be the secret itself, put in by a shell.
                name = header.partition(":")[0] if ":" in header else "a header"
                raise BadInput(f"{name} does not name a variable", where=WHERE, hint=_HEADER_HINT)
        for variable in self.env:
            if not _VARIABLE.fullmatch(variable):
                raise BadInput("env holds what is no variable's name", where=WHERE, hint="env=NAME,NAME")

    def _check_url(self) -> None:
        if self.env:
            raise BadInput("env is for a command", where=WHERE, hint="a url is given headers=NAME:VARIABLE")
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            raise BadInput("the url cannot be read", where=WHERE) from None
        if parts.username is not None or parts.password is not None:
            raise BadInput(
                "the url holds a name or a password, which would be written into every tree",
                where=WHERE,
                hint="headers=Authorization:Basic%20VARIABLE",
            )
        if not known:
            raise BadInput(f"{self.url!r} is no http address", where=WHERE, hint="url=https://HOST/PATH")

    def words(self) -> list[str]:
        """The command's words; raises BadInput where there is no such program."""
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise BadInput(f"the command cannot be split: {error}", where=WHERE) from error
        if not words or shutil.which(words[0]) is None:
            raise BadInput(
                f"there is no program {words[0] if words else ''!r} to start the MCP server",
                where=f"{WHERE}, command {self.command!r}",
                hint="install it, or give its whole path",
            )
        return words

    def environment(self) -> dict[str, str]:
        """The variables that ``env`` names; raises BadInput where one is not set."""
        return {name: _value(name, "env") for name in self.env}

    def http_headers(self) -> dict[str, str]:
        """The headers with their values; raises BadInput where a variable is not set or cannot be one."""
        found: dict[str, str] = {}
        for header in self.headers:
            matched = _HEADER.fullmatch(header)
            assert matched is not None
            name, scheme, variable = matched.groups()
            value = _value(variable, f"header {name}")
            if not value or not value.isascii() or not value.isprintable() or value != value.strip():
                what = f"the environment variable {variable!r} holds no value for a header"
                raise BadInput(what, where=f"{WHERE}, header {name}", hint="one line of plain characters")
            found[name] = f"{scheme} {value}" if scheme else value
        return found

    def hidden(self, text: str) -> str:
        """A text of the server without the values of the variables that it was given."""
        names = [*self.env, *(header.rpartition(":")[2].rpartition(" ")[2] for header in self.headers)]
        for name in sorted(names, key=lambda one: -len(os.environ.get(one, ""))):
            value = os.environ.get(name, "")
            # What is shorter is no secret, and would be found in any text.
            if len(value) >= _SHORTEST:
                text = text.replace(value, f"${name}")
        return text


_SHORTEST: Final = 6


def _value(name: str, place: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise BadInput(
            f"the environment variable {name!r} is not set",
            where=f"{WHERE}, {place}",
            hint=f"export {name}=... before you start",
        )
    return value
