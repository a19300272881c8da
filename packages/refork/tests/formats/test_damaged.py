"""Damaged and hostile logs: a BadInput that names the file, and nothing else."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from refork.errors import BadInput
from refork.formats import readers
from refork.formats.pickled import unpickled

CALLS = [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]
GOOD: dict[str, Any] = {
    "agentworldbench": {"prompt": ["a"], "response": ["b"], "turn_idx": 1, "system_str": "s", "task": "mcp"},
    "atif": {
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "t"},
        "steps": [
            {"source": "user", "message": "go"},
            {
                "source": "agent",
                "message": "x",
                "tool_calls": [{"tool_call_id": "a", "function_name": "f", "arguments": {}}],
                "observation": {"results": [{"source_call_id": "a", "content": "r"}]},
                "metrics": {"prompt_tokens": 1},
            },
        ],
    },
    "verifiers": {
        "prompt": [{"role": "user", "content": "q"}],
        "completion": [{"role": "assistant", "content": "a", "tool_calls": CALLS}],
        "reward": 1.0,
        "metrics": {"m": 1.0},
        "task": "t",
    },
    "osworld": {"step_num": 1, "action": "x", "accessibility_tree": "<a><b name='n'/></a>"},
    "openai-chat": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
}
TRACE = {"task": {"type": "T"}, "nodes": [{"message": {"role": "user", "content": "q"}}], "rewards": {}}
ODD = (None, 0, -1, 1e308, float("nan"), "", "x", [], {}, [1], {"a": 1}, [[]], [{}], "\ud800", 10**30, True)


def mutated(dice: random.Random, body: Any) -> Any:
    """One place of a document changed to something odd, or taken away."""
    places = [(body, key) for key in body]
    for holder, key in places:
        inner = holder[key]
        if isinstance(inner, dict):
            places += [(inner, one) for one in inner]
        elif isinstance(inner, list):
            places += [(inner, one) for one in range(len(inner))]
    holder, key = dice.choice(places)
    if dice.random() < 0.2:
        del holder[key]
    else:
        holder[key] = dice.choice(ODD)
    return body


def refusal(read: Callable[[], object]) -> str | None:
    """Where a read was refused; None where it was not."""
    try:
        read()
    except BadInput as error:
        return str(error.where)
    return None


@pytest.mark.parametrize("reader", readers(), ids=lambda one: one.name)
def test_no_damage_is_more_than_bad_input(reader, tmp_path):
    """150 seeded changes of a good document: it is read, or refused with its place."""
    dice = random.Random(reader.name)
    good = GOOD.get(reader.name, GOOD["verifiers"])
    goods = [good, TRACE] if reader.name == "verifiers" else [good]
    file = tmp_path / "log.jsonl"
    raws = [b"\xff\xfe{}", b"[" * 100000, b'{"a":' * 100000, b"\n\n7\n", b'{"x": 1', b"{}\n\xff"]
    for base in goods:
        file.write_text(json.dumps(base))
        if reader.name in GOOD:
            assert list(reader.read(file))
        raws += [json.dumps(mutated(dice, json.loads(json.dumps(base)))).encode() for _ in range(150)]
        raws += [json.dumps(base).encode()[:cut] for cut in range(1, 60, 7)]
    for raw in raws:
        file.write_bytes(raw)
        said = refusal(lambda: list(reader.read(file)))
        assert said is None or str(file) in said, raw[:200]


def packed(path, raw):
    path.write_bytes(gzip.compress(raw))
    return path


def test_pickles_that_ask_for_memory_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "T_0.pkl.gz"
    monkeypatch.setattr("refork.formats.pickled.LARGEST", 1 << 20)
    with pytest.raises(BadInput, match="unpacks to more"):
        unpickled(packed(file, pickle.dumps(b"\0" * (2 << 20))))
    with pytest.raises(BadInput, match="remembers more"):
        unpickled(packed(file, b"\x80\x02]r" + struct.pack("<I", 2**31) + b"."))
    with pytest.raises(BadInput):
        unpickled(packed(file, b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R."))
    laughs: Any = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    with pytest.raises(BadInput, match="repeats counted"):
        unpickled(packed(file, pickle.dumps(laughs)))
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadInput, match="holds itself"):
        unpickled(packed(file, pickle.dumps(loop)))
    with pytest.raises(BadInput):
        unpickled(packed(file, b"\x80\x05\x8e" + struct.pack("<Q", 2**40) + b"x"))


def test_damaged_pickles_are_refused(tmp_path):
    good = pickle.dumps([{"goal": "g", "episode_data": {"a": [1, 2.5, "x"]}, "n": (None, {1}, b"z")}])
    dice, file = random.Random(0), tmp_path / "T_0.pkl.gz"
    assert unpickled(packed(file, good))[0]["goal"] == "g"
    for _ in range(300):
        raw = bytearray(good)
        raw[dice.randrange(len(raw))] = dice.randrange(256)
        packed(file, bytes(raw[: dice.randrange(1, 2 * len(raw))]))
        said = refusal(lambda: unpickled(file))
        assert said is None or str(file) in said
