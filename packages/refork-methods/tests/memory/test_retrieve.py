from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput, MissingExtra
from refork_methods.memory.retrieve import (
    Document,
    Retriever,
    SentenceEmbedder,
    bm25_scores,
    cosines,
    fuse,
    near_duplicates,
    ranks,
    words_of,
)

TEXTS = ["send money to a contact", "list all notes", "archive mail of one sender"]


class Letters:
    """Counts of letters, and how often it was asked."""

    name = "letters"

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        return np.array(
            [[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], dtype=float
        )


def documents(texts=TEXTS, kind="plan"):
    return [Document(f"{kind}-{n}", kind, text) for n, text in enumerate(texts, 1)]


def test_words_are_split_and_plurals_cut():
    assert words_of("pay.list_contacts, Notes pass") == ["pay", "list", "contact", "note", "pass"]


def test_bm25_scores_shared_words_only():
    scores = bm25_scores(TEXTS, "Send 20 to Ann")
    assert scores[0] > 0
    assert scores[1] == 0
    assert bm25_scores(["", "!"], "x").tolist() == [0, 0]
    assert bm25_scores(TEXTS, "?!").tolist() == [0, 0, 0]


def test_what_shares_nothing_is_no_candidate():
    found = Retriever().candidates(
        [*documents(), *documents(["Amounts are in dollars."], "fact")], "send money"
    )
    assert [one.document.id for one in found["plan"]] == ["plan-1"]
    assert found["fact"] == ()
    assert (found["plan"][0].by_words, found["plan"][0].by_vectors) == (1, None)


def test_ties_keep_the_order_and_eight_candidates_stay():
    same = documents(["send money"] * 12)
    found = Retriever().candidates(same, "send money")["plan"]
    assert [one.document.id for one in found] == [f"plan-{n}" for n in range(1, 9)]
    with pytest.raises(BadInput):
        Retriever(per_kind=0)
    with pytest.raises(BadInput, match="empty"):
        Retriever().candidates(same, "  ")


def test_fusion_is_the_sum_of_reciprocal_ranks():
    assert fuse([[0, 1], [1]]) == [(1, 1 / 61 + 1 / 62), (0, 1 / 61)]
    assert fuse([[1], [0]]) == [(0, 1 / 61), (1, 1 / 61)]
    assert ranks(np.array([0.0, 2.0, 2.0]), least=0.0) == [1, 2]


def test_vectors_help_and_are_computed_once():
    embedder = Letters()
    retriever = Retriever(embedder)
    found = retriever.candidates(documents(), "remit cash")["plan"]
    assert {one.by_words for one in found} == {None}
    assert len(found) == 3
    retriever.candidates(documents(), "remit cash")
    assert sum(map(len, embedder.asked)) == 4


def test_an_embedder_that_gives_the_wrong_shape_is_named():
    class Wrong:
        name = "wrong"

        def embed(self, texts):
            return np.zeros(len(texts))

    with pytest.raises(BadInput, match="wrong"):
        Retriever(Wrong()).candidates(documents(), "x")


def test_a_vector_of_length_0_is_like_nothing():
    assert cosines(np.zeros((2, 3)), np.ones(3)).tolist() == [0, 0]


@pytest.mark.parametrize("embedder", [None, Letters()])
def test_near_duplicates_are_proposed(embedder):
    texts = ["pay a friend", "list notes", "pay a friend"]
    assert [pair[:2] for pair in near_duplicates(texts, embedder)] == [(0, 2)]
    assert near_duplicates(["x"], embedder) == []
    assert near_duplicates(["!", "?"]) == []


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match="sentence-transformers"):
        SentenceEmbedder("x")
