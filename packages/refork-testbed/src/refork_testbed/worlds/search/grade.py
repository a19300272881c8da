"""How answers are compared: as sets of items, each as normalised words.

The item F1 is that of WideSearch (arXiv 2508.07999); how items are normalised is ours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: A number, with thousands separators and decimals, or a word with its accents and apostrophes.
_WORD = re.compile(r"\d{1,3}(?:[,\u00a0\u202f']\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?|[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Word:
    """A normalised word and where it stands: ``text[start:end]``."""

    word: str
    start: int
    end: int


def words_in(text: str) -> list[Word]:
    """The words of a text: small letters without accents, numbers without separators and empty decimals."""
    return [Word(_normal(found[0]), *found.span()) for found in _WORD.finditer(text)]


def _normal(word: str) -> str:
    if word[0].isdigit():
        plain = re.sub(r"[,\u00a0\u202f']", "", word)
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    bare = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in bare if not unicodedata.combining(letter))


def normalised(text: str) -> str:
    """A text as it is compared."""
    return " ".join(item.word for item in words_in(text))


def spans_of(text: str, item: str) -> list[tuple[int, int]]:
    """Where a text says an item, word for word: ``(start, end)`` each, not overlapping.

    ``1893`` is not found in ``18930``, nor ``ann`` in ``anna``; ``1,893`` and ``1893.0`` say ``1893``.
    """
    said, wanted = words_in(text), [found.word for found in words_in(item)]
    if not wanted:
        return []
    found: list[tuple[int, int]] = []
    at = 0
    while at + len(wanted) <= len(said):
        if [one.word for one in said[at : at + len(wanted)]] == wanted:
            found.append((said[at].start, said[at + len(wanted) - 1].end))
            at += len(wanted)
        else:
            at += 1
    return found


def items_of(answer: str) -> tuple[str, ...]:
    """The items of a written answer: separated by semicolons or lines, normalised, each once."""
    parts = (normalised(part) for part in re.split(r"[;\n]", answer))
    return tuple(dict.fromkeys(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class Grade:
    """Items of an answer that are right, that are wrong, and that are missing."""

    right: int
    wrong: int
    missing: int

    @property
    def accepted(self) -> bool:
        """Every item and no other."""
        return self.wrong == self.missing == 0

    @property
    def f1(self) -> float:
        """Harmonic mean of the items' precision and recall."""
        return 2 * self.right / (2 * self.right + self.wrong + self.missing) if self.right else 0.0

    @property
    def verdict(self) -> str:
        """In fixed words."""
        word = "accepted" if self.accepted else "rejected"
        return f"{word} : {self.right} right , {self.wrong} wrong , {self.missing} missing"


def grade(answer: str, gold: Sequence[str]) -> Grade:
    """An answer against the one set of right items."""
    return compare(items_of(answer), gold)


def compare(items: Iterable[str], gold: Iterable[str]) -> Grade:
    """Items against the right ones, both as sets."""
    given, wanted = {normalised(item) for item in items}, {normalised(item) for item in gold}
    return Grade(len(given & wanted), len(given - wanted), len(wanted - given))
