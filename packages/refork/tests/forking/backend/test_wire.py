from __future__ import annotations

import dataclasses
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refork.forking.backend.wire import (
    pack,
    pack_array,
    pack_score,
    unpack,
    unpack_array,
    unpack_producer,
    unpack_score,
)
from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode, Node
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree

ints = st.lists(st.integers(0, 2**31 - 1), max_size=5)
floats = st.lists(st.floats(width=32, allow_nan=False), max_size=5)


def same(left, right):
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    return left == right


@given(ids=ints, values=floats, text=st.text(), snapshot=st.none() | st.binary(), draw=st.integers(0, 2**32))
def test_a_draft_goes_over_the_wire_and_comes_back_to_the_bit(ids, values, text, snapshot, draw):
    draft = NewNode(
        kind="action",
        parent="ab" * 16,
        keep=3,
        key="f/0/0a",
        text=text,
        tokens=np.array(ids, np.int32),
        logprobs=np.array(values, np.float32),
        message={"role": "assistant", "content": text},
        snapshot=snapshot,
        noise=NoiseKey(2**63, 2**64 - 1, draw, 2),
        cost=Cost(tokens_out=3, seconds=0.1),
        extra={"deep": [1, None, {"x": text}]},
    )
    back = unpack(NewNode, json.loads(json.dumps(pack(draft))))
    for field in dataclasses.fields(NewNode):
        assert same(getattr(draft, field.name), getattr(back, field.name)), field.name


def test_a_stored_node_comes_back_whole():
    with Tree.memory() as tree:
        node = tree.append(NewNode(kind="task", key="t", text="go", tokens=np.arange(2), extra={"a": 1}))[0]
    back = unpack(Node, json.loads(json.dumps(pack(node))))
    for field in dataclasses.fields(Node):
        assert same(getattr(node, field.name), getattr(back, field.name)), field.name


@given(st.lists(st.floats(allow_nan=False), max_size=4))
def test_scores_keep_their_bits(values):
    array = Score("n", "potential", np.array(values), "p", "why")
    back = unpack_score(json.loads(json.dumps(pack_score(array))))
    assert same(array.value, back.value)
    assert dataclasses.replace(back, value=0.0) == dataclasses.replace(array, value=0.0)
    for value in values:
        one = Score("n", "success", value, "p")
        assert unpack_score(json.loads(json.dumps(pack_score(one)))) == one


def test_a_producer_keeps_its_id():
    producer = Producer("judge", "2", {"a": [1]}, ("x", "y"))
    assert unpack_producer(json.loads(json.dumps(dataclasses.asdict(producer)))).id == producer.id


def test_an_array_keeps_type_and_shape():
    for array in (np.zeros((0,), np.int32), np.arange(6, dtype=np.int64).reshape(2, 3), np.array([-0.0])):
        back = unpack_array(json.loads(json.dumps(pack_array(array))))
        assert back.shape == array.shape
        assert same(array, back)
