from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.growing.plant import plant_prompt
from refork.policies.base import Sampling
from refork.policies.scripted import Words
from refork.tree.node import NewNode, Point
from refork_methods.cliff.planted import flat_chain, record_trace
from refork_methods.forensics.instruments.sentences import paragraph_ends, pieces, sentence_ends, token_cuts


def spans(text, ends):
    return [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", " Two!", " Three?"]),
        ('He said "no." Then left.', ['He said "no."', " Then left."]),
        ("It is 3.5 e.g. here. Done", ["It is 3.5 e.g. here.", " Done"]),
        ("1. First\n2. Second", ["1. First", "\n2. Second"]),
        ("a...\n\nb", ["a...", "\n\nb"]),
        ("no mark at all  ", ["no mark at all"]),
        ("", []),
        ("  \n ", []),
    ],
)
def test_sentences_end_at_marks_before_white_space_and_at_line_breaks(text, expected):
    assert spans(text, sentence_ends(text)) == expected


def test_paragraphs_end_before_empty_lines():
    text = "a. b.\nc\n \nd\n\n\ne"
    assert spans(text, paragraph_ends(text)) == ["a. b.\nc", "\n \nd", "\n\n\ne"]


def test_cuts_take_the_fewest_tokens_that_hold_the_sentence():
    # Tokens "On" "e." " T" "wo.\n" "" : the last adds no text and belongs to the last cut.
    offsets = np.array([2, 4, 6, 10, 10])
    assert token_cuts([4, 9], offsets) == [2, 5]
    assert token_cuts([1, 2, 4, 9], offsets) == [1, 2, 5], "two ends inside one token share its cut"
    assert token_cuts([], np.array([], dtype=int)) == []


def test_cuts_of_words_are_exact_for_every_sentence():
    text = "This is one. Here is two! And a third?"
    words = Words(["This", " is", " one", " Here", " two", " And", " third"])
    offsets = words.pieces(words.encode(text))[1]
    cuts = token_cuts(sentence_ends(text), offsets)
    pieces_ = [
        text[a:b]
        for a, b in zip([0, *(offsets[c - 1] for c in cuts)], [offsets[c - 1] for c in cuts], strict=False)
    ]
    assert pieces_ == ["This is one.", " Here is two!", " And a third?"]


def said(tree, policy, *nodes, keep=None):
    at, kept = plant_prompt(tree, policy, "Well?").node.id, None
    for i, text in enumerate(nodes):
        tokens = policy.encode(text)
        draft = NewNode(
            kind="action", parent=at, keep=kept, key=f"n{i}", text=text, tokens=tokens,
            offsets=policy._words.pieces(tokens)[1], policy=policy.card.name, weights=policy.card.weights,
            settings=Sampling().to_json(), finish="length",
        )  # fmt: skip
        at, kept = tree.append([draft])[0].id, keep
    return tree.at(at)


def test_pieces_join_the_nodes_of_one_turn(tree):
    policy = flat_chain(4, 0.5, 0.5).policy()
    end = said(tree, policy, "ab. c", "d. e", keep=5)
    found = pieces(end)
    assert [p.text for p in found] == ["ab.", " cd.", " e"]
    assert "".join(p.text for p in found) == "ab. cd. e"
    texts = ["".join(s.text for s in tree.path(p.after) if s.node.kind == "action") for p in found]
    assert texts == ["ab.", "ab. cd.", "ab. cd. e"], "the point behind a piece keeps exactly its text"
    for one, next_ in pairwise(found):
        assert one.after.address == next_.before.address, "behind i and before i + 1 are one prefix"


def test_pieces_behind_a_point_begin_there(tree):
    policy = flat_chain(4, 0.5, 0.5).policy()
    end = said(tree, policy, "ab. cd. e")
    assert [p.text for p in pieces(end, behind=tree.at(end.node, 3))] == [" cd.", " e"]
    assert pieces(end, behind=tree.at(end.node)) == []
    with pytest.raises(BadInput, match="does not pass"):
        pieces(end, behind=plant_prompt(tree, policy, "another"))


def test_turns_of_an_episode_end_behind_the_worlds_answer(planted):
    case, bench, _ = planted
    fork = bench.run([case.incident.environment], [[0]])[0]
    end = bench.tree.at(fork.draws[0].leaf)
    found = pieces(end)
    inner = [p for p, q in pairwise(found) if q.turn > p.turn]
    assert inner
    assert all(p.after.node.kind == "observation" for p in inner)
    turns = pieces(end, "turn")
    assert [p.turn for p in turns] == list(range(len(turns)))
    assert "".join(p.text for p in turns) == "".join(p.text for p in found)


def test_what_cannot_be_cut_is_refused(tree):
    policy = flat_chain(4, 0.5, 0.5).policy()
    root = plant_prompt(tree, policy, "Well?")
    with pytest.raises(BadInput, match="no turn"):
        pieces(root)
    with pytest.raises(BadInput, match="unknown unit"):
        pieces(root, "word")
    with pytest.raises(BadInput, match="no tree"):
        pieces(Point(root.node))
    bare = tree.append([NewNode(kind="action", parent=root.node.id, key="x", text="a. b.")])[0]
    with pytest.raises(CannotDo, match="without token ids"):
        pieces(tree.at(bare))
    assert [p.text for p in pieces(tree.at(bare), "turn")] == ["a. b."]
    assert pieces(tree.at(bare), "turn")[0].before.node.id == root.node.id


def test_a_recorded_trace_keeps_its_last_token(tree):
    chain = flat_chain(6, 0.5, 0.5)
    policy = chain.policy()
    end = record_trace(plant_prompt(tree, policy, "Well?"), policy, chain.text)
    assert pieces(end)[-1].after.keep == end.node.length
