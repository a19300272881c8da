"""What localization is measured against: BM25 over whole files, and a file drawn by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from refork.errors import BadInput
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import issue_terms, plain_words, query_words, split_data, words


@final
class FileBm25:
    """BM25 of the bm25s package over whole files, with the investigator's words for files and issues.

    ``files``: which to rank, all of the snapshot unless given.
    """

    def __init__(
        self, snapshot: Snapshot, files: Sequence[str] | None = None, *, k1: float = 1.5, b: float = 0.75,
        method: str = "lucene",
    ) -> None:  # fmt: skip
        import bm25s  # type: ignore[import-untyped]

        self._files = tuple(snapshot.files if files is None else files)
        if not self._files:
            raise BadInput("there is no file to rank")
        texts = [[*words(path), *words(snapshot.text(path))] or [""] for path in self._files]
        self._index = bm25s.BM25(k1=k1, b=b, method=method, backend="numpy")
        self._index.index(texts, show_progress=False)

    def ranked(self, issue: str, *, cleaned: bool = False) -> list[str]:
        """All files, best first; ties, those that share no word among them, in the order of the files.

        The query is the issue's words without English stop words; ``cleaned`` gives it what the investigator
        makes of the issue instead: no reporter's words, no small numbers, no data.
        """
        terms = issue_terms(issue)
        named = [word for name in terms.identifiers for word in words(name)]
        said = [*query_words(split_data(terms.text)[0]), *named] if cleaned else plain_words(terms.text)
        asked = [word for word in said if word in self._index.vocab_dict]
        # bm25s fails on a query without a known word.
        if not asked:
            return list(self._files)
        scores = np.asarray(self._index.get_scores(asked))
        return [self._files[n] for n in np.argsort(-scores, kind="stable")]


def random_acc(files: int, gold: int = 1) -> float:
    """The chance that a file drawn at random is all that was fixed; 0 where ``gold`` are several."""
    return 1 / files if gold == 1 else 0.0
