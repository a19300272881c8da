"""Masking statistics: exact fixtures, one for every class, and masks whose expectation is the weight."""

from __future__ import annotations

import math

import numpy as np
import pytest

from refork.errors import BadInput
from refork.worlds.environment import Transition
from refork_methods.simulate.data import (
    CLASSES,
    SHARES,
    Thresholds,
    classify,
    loss_weights,
    sampled_turns,
    turn_stats,
    weigh,
)

WORDS = "w1 w2 w3 w4 w5 w6 w7 w8 w9"
FILES = " ".join(f"file{i}" for i in range(40))
#: One turn of every class under the default thresholds.
FIXTURES = {
    "echo": ("print hello big wide world", "hello big wide world"),
    "boilerplate": ("echo hello world", "hello world"),
    "transform": (" ".join(f"line{i}" for i in range(60)), "wrote sixty lines to the file"),
    "action": ("mkdir new", "done"),
    "retrieval": ("ls", FILES),
    "expansion": (f"cat {WORDS} now", f"{WORDS[:11]} {FILES[:90]}"),
    "other": (FILES[:190], " ".join(f"n{i}" for i in range(30))),
}


def test_the_published_fixture_is_exact():
    stats = turn_stats("echo hello world", "hello world")
    assert (stats.overlap, stats.novelty, stats.jaccard, stats.ratio) == (2 / 3, 0.0, 2 / 3, 11 / 16)
    shown = (stats.overlap, stats.novelty, stats.jaccard, stats.ratio)
    assert tuple(round(value, 2) for value in shown) == (0.67, 0.0, 0.67, 0.69)
    assert turn_stats("Echo  HELLO\nhello World", "hello world") == turn_stats(
        "echo hello hello world ", "hello world"
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_has_its_fixture_and_share(kind):
    stats = turn_stats(*FIXTURES[kind])
    assert classify(stats) == kind
    assert loss_weights([Transition(*FIXTURES[kind])]) == [(kind, SHARES[kind])]
    assert SHARES["transform"], SHARES["boilerplate"] == (0.5, 0.1)
    assert SHARES["echo"] == 0.05


def test_empty_texts_are_defined():
    nothing, silent, unasked = turn_stats("", ""), turn_stats("cd a", ""), turn_stats("", "a b")
    assert (nothing.overlap, nothing.novelty, nothing.jaccard, nothing.ratio) == (0, 0, 0, 0)
    assert (silent.overlap, silent.novelty, silent.jaccard, silent.ratio) == (0, 0, 0, 0)
    assert (unasked.overlap, unasked.novelty, unasked.jaccard, unasked.ratio) == (0, 1, 0, math.inf)
    assert {classify(nothing), classify(silent)} == {"action"}
    (told,) = weigh([Transition("", "a b")])
    assert told.to_json()["ratio"] == "Infinity"


def test_thresholds_and_shares_are_the_users():
    stats = turn_stats("echo hello world", "hello world")
    assert classify(stats, Thresholds.parse(["echo_overlap=0.6"])) == "echo"
    assert loss_weights([Transition("ls", FILES)], shares={**SHARES, "retrieval": 0.2}) == [
        ("retrieval", 0.2)
    ]
    assert loss_weights([Transition("ls", FILES, target=False)]) == [("retrieval", 0.0)]
    for wrong in ("echo=1", "echo_overlap=x", "echo_overlap=nan"):
        with pytest.raises(BadInput):
            Thresholds.parse([wrong])
    with pytest.raises(BadInput, match="share of class echo"):
        weigh([], shares={**SHARES, "echo": 2.0})


def test_masks_of_turns_have_the_weighted_loss_as_expectation():
    # 3000 draws: a mean that is 4.5 standard errors off would come once in 150,000 seeds.
    rng = np.random.default_rng(0)
    weights, lengths = np.array([1.0, 0.5, 0.1, 0.05]), np.array([3, 8, 5, 9])
    losses = rng.uniform(0.1, 3.0, lengths.sum())
    wanted = float(losses @ np.repeat(weights, lengths))
    drawn = np.array([losses @ sampled_turns(weights, lengths, seed) for seed in range(3000)])
    assert abs(drawn.mean() - wanted) < 4.5 * drawn.std() / math.sqrt(len(drawn))
    assert sampled_turns(weights, lengths, 7).tolist() == sampled_turns(weights, lengths, 7).tolist()
    assert sampled_turns(weights, lengths, 7)[:3].all()
