"""Addresses of trees on a PostgreSQL server: ``postgresql://USER@HOST/DATABASE?tree=NAME``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode

from refork.errors import BadInput

EXAMPLE: Final = "postgresql://USER@HOST/DATABASE?tree=NAME"
# A path object has folded the slashes that follow the colon into one.
_ADDRESS: Final = re.compile(r"(?:postgres|postgresql):/(/?/?)([^?]*)\??(.*)", re.DOTALL)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
#: What stands before a tree's name in the name of its schema; and in trees made while the package was Ramify.
PREFIX: Final = "refork_"
FORMER_PREFIX: Final = "ramify_"


@dataclass(frozen=True, slots=True)
class Address:
    """A tree on a server: what libpq needs to connect, and the tree's name; neither holds a password."""

    server: str
    tree: str
    safe_text: str
    prefix: str = PREFIX

    @property
    def schema(self) -> str:
        """The schema in which the tree's tables are."""
        return f"{self.prefix}{self.tree}"


def is_address(uri: str | os.PathLike[str]) -> bool:
    """Whether a place is a tree on a server and not a file."""
    return _ADDRESS.match(os.fspath(uri)) is not None


def parse_address(uri: str | os.PathLike[str]) -> Address:
    """The parts of an address.

    Raises:
        BadInput: no address, no database, no or a bad name of the tree, or a password.
    """
    found = _ADDRESS.fullmatch(os.fspath(uri))
    if found is None:
        raise BadInput("this is not the address of a tree", hint=EXAMPLE)
    slashes, place_, query = found.groups()
    who, _, database = place_.rpartition("/")
    given = parse_qsl(query, keep_blank_values=True)
    if ":" in who.rpartition("@")[0] or any("password" in name.lower() for name, _ in given):
        # Not shown: an address stands in histories, recipes and lists of processes.
        raise BadInput(
            "an address holds no password",
            where="a tree's address",
            hint="put it into ~/.pgpass or PGPASSWORD, where libpq looks for it",
        )
    shown = f"postgresql://{place_ if who else '/' + database}" + (f"?{query}" if query else "")
    # ``//NAME`` alone is a host without a database; ``///NAME``, also as a path object folds it, names one.
    if not database or (slashes == "/" and not who):
        raise BadInput("this address names no database", where=shown, hint=EXAMPLE)
    names = [value for name, value in given if name == "tree"]
    if len(names) != 1:
        count = f"{len(names)} trees" if names else "no tree"
        raise BadInput(f"this address names {count}", where=shown, hint=EXAMPLE)
    if not _NAME.fullmatch(names[0]):
        raise BadInput(
            f"{names[0]!r} cannot be a tree's name",
            where=shown,
            hint="small letters, digits, _ and -, at most 48, a letter or digit first",
        )
    rest = urlencode([(name, value) for name, value in given if name != "tree"])
    return Address(f"postgresql://{who}/{database}" + (f"?{rest}" if rest else ""), names[0], shown)
