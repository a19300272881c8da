"""What guides read of grammars and tokenizers, with no model: a vocabulary of six tokens."""

import json
import re

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.sampling.grammar import Grammar
from refork.sampling.guide import (
    WHITESPACE,
    Guides,
    _first,
    check_grammar,
    guides_of,
    masks,
    with_style,
)
from refork.types import token_array

pytest.importorskip("llguidance")

TOKENS = [b"<end>", b"a", b"b", b"ab", b"c", b"x"]
NONE = token_array([])


@pytest.fixture
def guides():
    return Guides(TOKENS, [0], 8)


def may(guide):
    return np.flatnonzero(guide.allowed()).tolist()


def test_what_may_follow_token_by_token(guides):
    make = guides.factory(Grammar.regex("a(b|c)?"), [0])
    guide = make(NONE)
    assert guide.allowed().dtype == np.bool_
    assert guide.allowed().shape == (8,)
    assert guide.allowed() is guide.allowed(), "asked twice, worked out once"
    assert may(guide) == [1, 3]
    guide.take(1)
    assert may(guide) == [0, 2, 4], "the end, where the text is whole"
    assert not guide.over
    assert may(make(token_array([1]))) == [0, 2, 4], "told what was said, it goes on from there"
    guide.take(2)
    assert may(guide) == [0]
    assert not guide.over, "an id ends the turn"
    guide.take(5)
    with pytest.raises(BadInput, match="token 5 breaks the grammar"):
        guide.allowed()
    assert may(make(NONE)) == [1, 3], "every turn has a guide of its own"


def test_without_an_end_a_turn_is_over_where_nothing_more_can_follow(guides):
    make = guides.factory(Grammar.regex("a(b|c)?"), [])
    assert [make(token_array(said)).over for said in ([], [1], [1, 2], [3], [5], [3, 5])] == [
        False, False, True, True, False, False,
    ]  # fmt: skip
    with pytest.raises(BadInput, match="nothing may follow, and no token ends the turn"):
        make(token_array([3])).allowed()


def test_rows_that_may_say_nothing_are_left_free_and_told(guides):
    make = guides.factory(Grammar.regex("a(b|c)"), [0])
    wrong = make(token_array([5]))
    found, said = masks(
        {0: make(NONE), 2: wrong, 3: make(NONE), 4: make(token_array([1]))},
        5,
        8,
        {0: [1], 3: [1, 3], 4: []}.get,
    )
    assert np.flatnonzero(found[0]).tolist() == [1, 3]
    assert np.flatnonzero(found[4]).tolist() == [2, 4]
    assert found[[1, 2, 3]].all()
    assert found.dtype == np.bool_
    assert said[3] == "every token that the grammar allows here is banned"
    assert "token 5 breaks the grammar" in said[2]
    assert sorted(said) == [2, 3]
    assert masks({0: wrong, 1: make(NONE)}, 2, 8)[0][1].sum() == 2


def test_the_last_64_grammars_are_kept(guides, monkeypatch):
    made = []
    compiled = Guides._compile

    def counted(self, grammar):
        made.append(grammar.text)
        return compiled(self, grammar)

    monkeypatch.setattr(Guides, "_compile", counted)
    texts = ["a" * n for n in range(1, 66)]
    for text in [*texts[:64], texts[0], texts[63]]:
        guides.factory(Grammar.regex(text), [0])(NONE).allowed()
    assert made == texts[:64]
    guides.factory(Grammar.regex(texts[64]), [0])
    guides.factory(Grammar.regex(texts[1]), [0])
    assert made == texts, "the first makes room"
    guides.factory(Grammar.regex(texts[0]), [0])
    assert made == [*texts, texts[0]]


def test_how_json_is_written_unless_a_schema_says_so():
    schema = {"type": "object", "x-guidance": {"item_separator": ";"}}
    assert with_style({"type": "object"}) == {
        "type": "object", "x-guidance": {"whitespace_pattern": WHITESPACE}
    }  # fmt: skip
    assert with_style(schema)["x-guidance"] == {"whitespace_pattern": WHITESPACE, "item_separator": ";"}
    assert with_style(schema, item_separator=",")["x-guidance"] == {"item_separator": ";"}
    assert with_style({}, item_separator=",") == {"x-guidance": {"item_separator": ","}}
    assert with_style({"x-guidance": 3})["x-guidance"] == {"whitespace_pattern": WHITESPACE}


def test_a_grammar_is_refused_before_there_is_a_tokenizer():
    check_grammar(Grammar.regex("a+"))
    check_grammar(Grammar("json_schema", json.dumps({"type": "integer"})))
    for grammar, says in (
        (Grammar("lark", "start: nothing"), "the lark cannot be held to"),
        (Grammar("json_schema", json.dumps({"type": "odd"})), "the json schema cannot be held to"),
    ):
        with pytest.raises(BadInput, match=re.escape(says)):
            check_grammar(grammar)


def test_who_does_not_know_its_bytes_cannot():
    with pytest.raises(CannotDo, match="depend on their neighbours"):
        guides_of(None, [0], 8)
    assert may(guides_of(TOKENS, [0], 8).factory(Grammar.regex("c"), [0])(NONE)) == [4]


def test_an_error_is_told_without_the_state_behind_it():
    assert _first(" wrong \n<state>\nmuch") == "wrong"
    assert _first("wrong\n<grammar>\nmuch\n<state>\nmore") == "wrong"
    assert _first("x" * 300) == "x" * 300
    assert _first("x" * 301) == "x" * 300 + "…"
