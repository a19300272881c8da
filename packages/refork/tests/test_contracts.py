"""The seams' value objects: nodes, trajectories, scores, settings and errors, without a store."""

import re

import numpy as np
import pytest

from refork import errors
from refork.errors import BadInput, BadPoint, MissingExtra, UserError
from refork.policies.base import Continuation, Cost, Sampling, in_order
from refork.tree.node import Node, Point, Step, Trajectory, node_id
from refork.tree.score import Producer
from refork.types import token_array

EMPTY = dict.fromkeys(Node.__dataclass_fields__)


def node(kind="action", text="", tokens=None, offsets=None):
    values = dict(
        EMPTY, id="a" * 32, kind=kind, key="0", depth=0, text=text, cost=Cost(), created=0.0, extra={}
    )
    values["tokens"] = None if tokens is None else token_array(tokens)
    values["offsets"] = None if offsets is None else token_array(offsets)
    return Node(**values)


def test_the_tree_of_errors_names_every_error():
    raised = [
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)
    ]
    told = errors.__doc__.partition("\n\n")[2]
    assert sorted(re.findall(r"(?:── |^)([A-Z]\w+)", told, re.MULTILINE)) == sorted(raised)


def test_text_upto_a_token():
    word = node(text="ab cde f", tokens=[1, 2, 3], offsets=[2, 6, 8])
    assert [word.text_upto(t) for t in (0, 1, 2, 3, None)] == ["", "ab", "ab cde", "ab cde f", "ab cde f"]
    with pytest.raises(BadPoint):
        node(text="ab", tokens=[1, 2]).text_upto(1)


def test_a_point_is_inside_or_at_the_end():
    word = node(tokens=[1, 2, 3])
    assert [Point(word, t).mid_node for t in (0, 2, 3, None)] == [True, True, False, False]
    assert [Point(word, t).keep for t in (0, 2, None)] == [0, 2, 3]
    assert Point(word, 3).address == Point(word).address == f"{'a' * 32}:end"
    assert Point(word, 2).address == f"{'a' * 32}:2"


def test_the_context_starts_at_the_last_rewrite_and_skips_verdicts():
    kinds = [("task", [1]), ("action", [2, 3]), ("rewrite", [4]), ("verdict", [5]), ("action", [6, 7])]
    trajectory = Trajectory(tuple(Step(node(kind, tokens=ids), None) for kind, ids in kinds))
    assert trajectory.tokens.tolist() == [4, 6, 7]
    cut = Trajectory((*trajectory.steps[:1], Step(trajectory.steps[1].node, 1)))
    assert cut.tokens.tolist() == [1, 2]
    assert cut.tokens.dtype == np.int32
    assert not cut.tokens.flags.writeable
    assert (trajectory.root.kind, trajectory.leaf.kind, len(trajectory)) == ("task", "action", 5)


def test_text_without_ids_cannot_be_a_prefix():
    with pytest.raises(BadPoint):
        _ = Trajectory((Step(node("task", text="words"), None),)).tokens


def test_an_id_names_the_place_and_nothing_else():
    places = [
        ("p", None, "action", "0"),
        ("p", 0, "action", "0"),
        ("p", 1, "action", "0"),
        (None, 1, "action", "0"),
    ]
    places += [("p", None, "task", "0"), ("p", None, "action", "1")]
    assert len({node_id(*place) for place in places}) == len(places)
    assert node_id("p", 1, "action", "0") == node_id("p", 1, "action", "0")


def test_a_producer_is_all_that_could_change_its_word():
    plain = Producer("judge", "1", {"a": 1, "b": 2}, ("x", "y"))
    assert plain.id == Producer("judge", "1", {"b": 2, "a": 1}, ("y", "x")).id
    others = [Producer("judge", "2"), Producer("judge", "1", {"a": 2}), Producer("judge", "1", {}, ("x",))]
    assert len({producer.id for producer in (plain, *others)}) == 4


def test_settings_survive_storage_and_refuse_nonsense():
    settings = Sampling(temperature=0.5, stop=("\n",), banned=(3, 4), coupling="gumbel")
    assert Sampling.from_json(settings.to_json()) == settings
    assert Sampling().to_json() == {}
    for bad in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_k": 0}, {"max_tokens": 0}, {"stop": ("",)}):
        with pytest.raises(BadInput):
            Sampling(**bad)
    with pytest.raises(BadInput, match="warmth"):
        Sampling.from_json({"warmth": 1})


def test_continuations_come_back_in_order_or_not_at_all():
    given = [Continuation(i, token_array([i]), "", "stop") for i in (2, 0, 1)]
    assert [c.index for c in in_order(given, 3)] == [0, 1, 2]
    for wrong in (given[:2], [*given, given[0]]):
        with pytest.raises(BadInput):
            in_order(wrong, 3)


def test_an_error_says_what_where_and_what_next():
    error = UserError("it broke", where="node 1", hint="mend it")
    assert str(error) == "it broke (node 1)\n  next: mend it"
    assert "pip install 'gymnasium>=1.0' 'reasoning-gym>=" in str(MissingExtra("gymnasium", "worlds"))
