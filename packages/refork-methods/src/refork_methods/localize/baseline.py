"""What localization is measured against: BM25 over files and functions, names alone, a file by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import issue_terms, plain_words, query_words, split_data, words


class Bm25Settings(TypedDict):
    """Saturation and length normalisation of BM25."""

    k1: float
    b: float


#: Of thirty settings, each with the plain query and with the words that the investigator reads out of the
#: issue, those with most right files first, and most right functions among five, on 64 bugs of other projects
#: than those that are reported. Both are best with the investigator's words.
BEST_FILES: Final[Bm25Settings] = {"k1": 3.0, "b": 0.5}
BEST_FUNCTIONS: Final[Bm25Settings] = {"k1": 0.6, "b": 0.2}


@final
class FileBm25:
    """BM25 of the bm25s package over whole files, with the investigator's words for files and issues.

    ``files``: which to rank, all of the snapshot unless given.
    """

    def __init__(
        self, snapshot: Snapshot, files: Sequence[str] | None = None, *, k1: float = 1.5, b: float = 0.75,
        method: str = "lucene",
    ) -> None:  # fmt: skip
        self._files = tuple(snapshot.files if files is None else files)
        texts = [[*words(path), *words(snapshot.text(path))] for path in self._files]
        self._index = _Bm25(texts, k1, b, method)

    def ranked(self, issue: str, *, cleaned: bool = False) -> list[str]:
        """All files, best first; ties, those that share no word among them, in the order of the files.

        The query is the issue's words without English stop words; ``cleaned`` gives it what the investigator
        makes of the issue instead: no reporter's words, no small numbers, no data.
        """
        return [self._files[n] for n in self._index.order(issue, cleaned)]


@final
class FunctionBm25:
    """The same over functions and methods: path, qualified name and all lines of each.

    ``files``: of which files, all unless given.
    """

    def __init__(
        self, index: RepoIndex, files: Sequence[str] | None = None, *, k1: float = 1.5, b: float = 0.75,
        method: str = "lucene",
    ) -> None:  # fmt: skip
        kept = set(index.files if files is None else files)
        self._functions = [
            symbol for symbol in index.symbols
            if symbol.kind in ("function", "method") and symbol.path in kept
        ]  # fmt: skip
        lines = {path: index.snapshot.lines(path) for path in kept}
        texts = [
            [
                *words(one.path),
                *words(one.qualified),
                *words("\n".join(lines[one.path][one.start - 1 : one.end])),
            ]
            for one in self._functions
        ]
        self._index = _Bm25(texts, k1, b, method) if texts else None

    def ranked(self, issue: str, *, cleaned: bool = False) -> list[tuple[str, str]]:
        """(path, qualified name) of all functions, best first; ties in the order of the index."""
        order = () if self._index is None else self._index.order(issue, cleaned)
        return [(self._functions[n].path, self._functions[n].qualified) for n in order]

    def scores(self, issue: str, *, cleaned: bool = False) -> dict[str, float]:
        """Symbol id -> score, of all functions in the order of the index."""
        told = () if self._index is None else self._index.scores(issue, cleaned).tolist()
        return {one.id: score for one, score in zip(self._functions, told, strict=True)}


@final
class _Bm25:
    """The bm25s package over texts that are lists of words."""

    def __init__(self, texts: Sequence[list[str]], k1: float, b: float, method: str) -> None:
        import bm25s  # type: ignore[import-untyped]

        if not texts:
            raise BadInput("there is no file to rank")
        self._size = len(texts)
        self._index = bm25s.BM25(k1=k1, b=b, method=method, backend="numpy")
        self._index.index([text or [""] for text in texts], show_progress=False)

    def order(self, issue: str, cleaned: bool) -> list[int]:
        return [int(n) for n in np.argsort(-self.scores(issue, cleaned), kind="stable")]

    def scores(self, issue: str, cleaned: bool) -> Float[np.ndarray, "texts"]:
        terms = issue_terms(issue)
        named = [word for name in terms.identifiers for word in words(name)]
        told = [*query_words(split_data(terms.text)[0]), *named] if cleaned else plain_words(terms.text)
        asked = [word for word in told if word in self._index.vocab_dict]
        # bm25s fails on a query without a known word.
        return np.asarray(self._index.get_scores(asked)) if asked else np.zeros(self._size)


def random_acc(files: int, gold: int = 1) -> float:
    """The chance that a file drawn at random is all that was fixed; 0 where ``gold`` are several."""
    return 1 / files if gold == 1 else 0.0
