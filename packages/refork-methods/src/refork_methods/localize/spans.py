"""From a symbol to the lines of it that matter."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from jaxtyping import Float

from refork_methods.localize.terms import words

_DECIDES = re.compile(r"^\s*(?:\}?\s*else\s+)?(?:if|elif|while|for|switch|match|case|unless)\b")
_GIVES = re.compile(r"^\s*(?:return|yield|raise|throw|panic!?)\b")


@final
@dataclass(frozen=True, slots=True)
class Mechanics:
    """Lines of a span that decide (conditions, loops) and that give a result (return, yield, raise)."""

    decides: tuple[int, ...]
    gives: tuple[int, ...]


def choose_lines(
    start: int, end: int, lines: Float[np.ndarray, "span"], whole: int, window: int
) -> tuple[int, int]:
    """A symbol's lines to point at: all if at most ``whole``, else the heaviest ``window`` of them.

    ``lines`` holds the weight of each line from ``start`` to ``end``; with equal weights the first window
    wins.
    """
    if end - start + 1 <= whole:
        return start, end
    mass = np.concatenate([[0.0], np.cumsum(lines)])
    sums = mass[window:] - mass[:-window]
    # Equal windows differ in the last digits of their sums, and the first of them is to win.
    best = int(np.argmax(sums > sums.max() - 1e-12))
    return start + best, start + best + window - 1


def word_weights(texts: Sequence[str], weights: Mapping[str, float]) -> Float[np.ndarray, "span"]:
    """The weight of each line's words, each word once a line."""
    return np.array([sum(weights.get(word, 0.0) for word in set(words(text))) for text in texts])


def own_lines(start: int, end: int, inner: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches of ``start..end`` that no inner span covers."""
    found: list[tuple[int, int]] = []
    at = start
    for low, high in sorted(inner):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    if at <= end:
        found.append((at, end))
    return found


def mechanics(texts: Sequence[str], start: int, tree: ast.Module | None = None) -> Mechanics:
    """Lines that decide and lines that give, by the syntax tree if there is one, else by their first word."""
    end = start + len(texts) - 1
    if tree is None:
        decides = [n for n, text in enumerate(texts, start) if _DECIDES.match(text)]
        gives = [n for n, text in enumerate(texts, start) if _GIVES.match(text)]
        return Mechanics(tuple(decides), tuple(gives))
    inside = range(start, end + 1)
    decides, gives = _telling_lines(tree)
    return Mechanics(tuple(n for n in decides if n in inside), tuple(n for n in gives if n in inside))


@lru_cache(maxsize=64)
def _telling_lines(tree: ast.Module) -> tuple[list[int], list[int]]:
    """Of a whole file, once: lines that branch or loop, and lines that return, yield or raise."""
    decides: set[int] = set()
    gives: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            decides.add(node.test.lineno)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.Match):
            decides.add(node.lineno)
        elif isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Raise):
            gives.add(node.lineno)
    return sorted(decides), sorted(gives)


@lru_cache(maxsize=64)
def parsed(source: str, path: str) -> ast.Module | None:
    """The syntax tree of a Python file; None for another language or a file that does not parse."""
    if not path.endswith((".py", ".pyi")):
        return None
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the code that is looked at, such as invalid escapes
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
