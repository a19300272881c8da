"""A search engine over SQLite's full-text index (FTS5) with its BM25.

FTS5 rather than bm25s: the facts of an invented world lie in SQLite anyway, the index is on disk where there
is much text, and the standard library is well kept. Results whose whole title stands in the query come first,
then by BM25, then by title, so that nothing depends on the order of rows.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput, CannotDo
from refork.sampling.noise import NoiseKey, stream_of, uniforms
from refork_methods.simulate.search_text import MORE
from refork_testbed.worlds.search.fiction import STOP

_WORD = re.compile(r"\w+")
#: A word of the title counts as much as four of the page.
_WEIGHTS = (4.0, 1.0)


@dataclass(frozen=True, slots=True)
class Snippets:
    """What is shown of a page in a list of results: one sentence, or its last ``words`` words (0: all).

    ``rich`` is the share of pages that show the sentence that fits the query best, so that a good query has
    its answer at once. The others tease: they show the sentence most like it that is not it.
    """

    rich: float = 1.0
    words: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rich <= 1.0:
            raise BadInput(f"{self.rich!r} is no share of rich snippets", where="snippets", hint="0 to 1")
        if self.words < 0:
            raise BadInput(f"a snippet cannot have {self.words} words", where="snippets")

    def of(self, title: str, page: Sequence[str], query: str, name: str) -> str:
        """The snippet of a page; ``name`` is the corpus, so that a page is rich or not whatever the query."""
        if not page:
            return MORE
        chosen = page[best_sentence(title, page, query)]
        if self.rich < 1.0 and len(page) > 1:
            luck = uniforms([NoiseKey(0, stream_of("snippet", name, title), 0)], 1)[0][0]
            if luck >= self.rich:
                chosen = page[_teaser(page, page.index(chosen))]
        said = chosen.split(" ")
        if self.words and len(said) > self.words:
            return " ".join([MORE, *said[-self.words :]])
        return chosen


def query_words(query: str) -> list[str]:
    """The words of a query that are searched, each once: those that say something, else all."""
    words = list(dict.fromkeys(_WORD.findall(query.lower())))
    return [word for word in words if word not in STOP] or words


def best_sentence(title: str, page: Sequence[str], query: str) -> int:
    """The sentence of a page that shares most of the query's words, the title's apart; ties go to the first.

    Words with the same first four letters count as one: "built" and "build", "made" and "makes" do not.
    """
    own = set(_WORD.findall(title.lower()))
    wanted = {_stem(word) for word in query_words(query) if word not in own}
    scores = [len(wanted & {_stem(word) for word in _WORD.findall(text.lower())}) for text in page]
    return scores.index(max(scores))


def _stem(word: str) -> str:
    return word[:4]


def _teaser(page: Sequence[str], best: int) -> int:
    """The sentence most like the best one that is not it; ties go to the first."""
    wanted = set(page[best].split(" "))
    scores = [-1 if i == best else len(wanted & set(text.split(" "))) for i, text in enumerate(page)]
    return scores.index(max(scores))


@final
class Index:
    """Pages and their index; ``pages`` are title -> sentences.

    Raises:
        CannotDo: this SQLite was built without FTS5.
    """

    def __init__(self, pages: Mapping[str, Sequence[str]], name: str) -> None:
        self.name = name
        self.pages = {title: tuple(pages[title]) for title in sorted(pages)}
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._db.execute(
                "CREATE VIRTUAL TABLE page USING fts5(title, body, tokenize = 'porter unicode61')"
            )
        except sqlite3.OperationalError as error:
            raise CannotDo(f"this Python's SQLite has no full-text index: {error}", where="search") from error
        rows = ((title, " ".join(said)) for title, said in self.pages.items())
        self._db.executemany("INSERT INTO page (title, body) VALUES (?, ?)", rows)
        self._titles = list(self.pages)
        self._known: dict[str, tuple[str, ...]] = {}

    def search(self, query: str) -> tuple[str, ...]:
        """The titles of all pages that fit, best first: with every word of the query, else with any."""
        key = " ".join(query_words(query))
        if key not in self._known:
            words = key.split()
            found = self._match(words, " ") or self._match(words, " OR ")
            self._known[key] = tuple(found)
        return self._known[key]

    def _match(self, words: Iterable[str], between: str) -> list[str]:
        asked = set(words)
        # In quotes: a bare OR, NOT or NEAR is an operator of FTS5.
        phrase = between.join(f'"{word}"' for word in sorted(asked))
        if not phrase:
            return []
        rows = self._db.execute(
            "SELECT rowid, bm25(page, ?, ?) FROM page WHERE page MATCH ?", (*_WEIGHTS, phrase)
        ).fetchall()

        def sort_key(row: tuple[int, float]) -> tuple[bool, float, str]:
            title = self._titles[row[0] - 1]
            named = set(_WORD.findall(title.lower())) <= asked
            # Rounding errors of floats must not order equal pages; their titles do.
            return not named, round(row[1], 6), title

        return [self._titles[row[0] - 1] for row in sorted(rows, key=sort_key)]
