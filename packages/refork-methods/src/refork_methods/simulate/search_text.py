"""What is said in a search world: turns, fixed answers to them, and answers compared as sets of items.

A turn is ``search: words``, ``open: number or title`` or ``answer: items``. The item F1 is that of WideSearch
(arXiv 2508.07999); how items are normalised is ours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from refork.thoughts import without_thoughts

_FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_CALL = re.compile(r"\s*(search|open|answer)\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)
_PAGE = re.compile(r"(.*?)\s*;\s*page\s+(\d{1,4})\s*", re.IGNORECASE | re.DOTALL)

#: Answers to what cannot be done.
NOTHING, NO_RESULTS, NO_PAGE = "nothing happens", "no results", "no such page"
TIME_UP = "time is up"
#: Stands in a snippet for what is cut off.
MORE = "..."


@dataclass(frozen=True, slots=True)
class Call:
    """One action: its verb, its words, and which page of the results is asked for."""

    verb: Literal["search", "open", "answer"]
    words: str
    page: int = 1


def read_action(text: str) -> Call | None:
    """The action of a policy's turn; None where it is none.

    Thoughts pass unread; so does all before the last fenced block, or else before the last line that begins
    with a verb.
    """
    said = without_thoughts(text)
    fenced = _FENCE.findall(said)
    body = (fenced[-1] if fenced else said).strip()
    lines = body.split("\n")
    last = max((i for i, line in enumerate(lines) if _CALL.match(line)), default=None)
    if last is None:
        return None
    found = _CALL.match("\n".join(lines[last:]))
    assert found is not None
    verb, words = found[1].lower(), " ".join(found[2].split()) if found[1].lower() != "answer" else found[2]
    if verb == "search":
        paged = _PAGE.fullmatch(words)
        if paged is not None:
            return Call("search", paged[1].strip(), int(paged[2]))
        return Call("search", words.strip())
    return Call("open" if verb == "open" else "answer", words.strip())


#: A number, with thousands separators and decimals, or a word with its accents and apostrophes.
# A separator stands before exactly three digits: 1,234 is one number and 1,2345 is two.
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
        # Zeros go only behind a point: 100 is not 1.
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
