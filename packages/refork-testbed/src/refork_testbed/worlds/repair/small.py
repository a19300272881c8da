"""The small wording: a broken function as bare numbered lines, for models of a few hundred thousand weights.

Beside it the split of mutations within projects: what is held out is other bugs of a code base that is known.
"""

from __future__ import annotations

import ast
import keyword
import re
from functools import lru_cache

from refork.worlds.base import Split
from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.mutation import Mutation, lines

#: Share of a function's mutations that are held out.
HELD_OUT = 0.2
_NAME = re.compile(r"[^\W\d]\w*")


def small_prompt(source: str, line: int, hint: str | None = None) -> str:
    """The innermost function around a line as rows `` N: code``, N from 1 in the file.

    A level of indentation is one space; docstring and blank lines are left out. ``hint``: another text of
    the file with the same lines, whose function is shown; it need not be read again, or even parse.
    """
    node, rows = _holding(source, line), lines(source if hint is None else hint)
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1
    skipped = range(first.lineno, (first.end_lineno or first.lineno) + 1) if documented else range(0)
    view = []
    for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        code = rows[number - 1].strip()
        if code and number not in skipped:
            deep = len(rows[number - 1]) - len(rows[number - 1].lstrip()) - node.col_offset
            view.append(f" {number}: {' ' * (deep // 4)}{code}")
    return "\n".join(view)


def span(source: str, line: int) -> tuple[int, int]:
    """First and last line of the innermost function that holds a line; raises ValueError where none does."""
    node = _holding(source, line)
    return node.lineno, node.end_lineno or node.lineno


def mutation_split(source: str, one: Mutation) -> Split:
    """Whether a mutation of a source is held out where mutations are split and not projects.

    The same mutation of functions that differ in their names and words alone shares a split: most functions
    stand in several projects. Which other name a wrong variable has is left out of account too.
    """
    first, last = span(source, one.line)
    rows = lines(source)
    begin = len("".join(rows[: first - 1]))
    before, after = source[begin : one.start], "".join(rows[first - 1 : last])
    place = [_bare(text) for text in (before, one.old, one.new, after)]
    dice = Dice("repair", "mutation split", *place, one.kind)
    return "held-out" if dice.uniform() < HELD_OUT else "train"


def _bare(text: str) -> str:
    """A text with all names and words made one."""
    return _NAME.sub(lambda found: found[0] if keyword.iskeyword(found[0]) else "_", text)


def _holding(source: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef:
    return max(
        (node for node in _functions(source) if node.lineno <= line <= (node.end_lineno or node.lineno)),
        # Of the functions around a line, the innermost starts last.
        key=lambda node: (node.lineno, -(node.end_lineno or node.lineno)),
    )


@lru_cache(maxsize=256)
def _functions(source: str) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    found = ast.walk(ast.parse(source))
    return tuple(node for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
