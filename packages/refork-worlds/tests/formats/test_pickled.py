"""Damaged and hostile pickles: a BadInput that names the file, and nothing else."""

from __future__ import annotations

import gzip
import pickle
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from refork.errors import BadInput
from refork_worlds.formats.pickled import unpickled


def refusal(read: Callable[[], object]) -> str | None:
    """Where a read was refused; None where it was not."""
    try:
        read()
    except BadInput as error:
        return str(error.where)
    return None


def packed(path, raw):
    path.write_bytes(gzip.compress(raw))
    return path


def test_pickles_that_ask_for_memory_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "T_0.pkl.gz"
    monkeypatch.setattr("refork_worlds.formats.pickled.LARGEST", 1 << 20)
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
