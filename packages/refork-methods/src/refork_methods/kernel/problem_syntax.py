"""The syntax tree of a kernel's source."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from refork.errors import MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Tree


def parse(source: str, suffix: str) -> Tree:
    """The syntax tree of C, or of C++ by its suffix.

    Raises:
        MissingExtra: the parser is not installed.
    """
    try:
        from tree_sitter import Language, Parser

        grammar = importlib.import_module("tree_sitter_c" if suffix == ".c" else "tree_sitter_cpp")
    except ImportError:
        raise MissingExtra("tree-sitter", "languages") from None
    return Parser(Language(grammar.language())).parse(source.encode())
