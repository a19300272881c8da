"""``test-tiny``: counts on, built in seconds; for tests and examples."""

from __future__ import annotations

from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "then", "comes")


def conversations() -> list[Conversation]:
    """``one two`` is answered ``then comes three``."""
    pairs = zip(WORDS, WORDS[1:9], WORDS[2:10], strict=False)
    return [
        [{"role": "user", "content": f"{a} {b}"}, {"role": "assistant", "content": f"then comes {c}"}]
        for a, b, c in pairs
    ]


RECIPE = Recipe(
    name="test-tiny",
    summary="counts on from two number words",
    data="the eight pairs of successive number words up to ten",
    words=lambda: WORDS,
    conversations=conversations,
    shape=Shape(layers=2, width=32, heads=2, hidden=64, context=256),
    training=SftSettings(steps=100, rows=8, learning_rate=2e-2, warmup=10),
)
