"""``chronicler``: writes chronicles of small towns, at a size where drafting and serving are worth measuring.

Eight layers of width 512 hold more than these texts need: a pass must cost what a pass of a real model costs
beside what surrounds it.
"""

from __future__ import annotations

from collections.abc import Iterable

from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Grown, HeldOut, Shape, Stage
from refork_testbed.worlds.chronicle import Chronicle, chronicles, words

TEXTS, HELD_OUT = 4_000, 200
SEED, HELD_OUT_SEED = 31, 32


def as_conversations(result: Iterable[Chronicle]) -> list[Conversation]:
    """The opening asks, the chronicle answers."""
    return [
        [{"role": "user", "content": item.opening}, {"role": "assistant", "content": item.text}]
        for item in result
    ]


def conversations() -> list[Conversation]:
    """Chronicles to learn from."""
    return as_conversations(chronicles(SEED, TEXTS))


def held_out() -> HeldOut:
    """Other chronicles, drawn from the same distribution, and what they cost in choices."""
    found = list(chronicles(HELD_OUT_SEED, HELD_OUT))
    return HeldOut(as_conversations(found), sum(item.surprise for item in found))


RECIPE = Grown(
    name="chronicler",
    summary="writes chronicles of small towns",
    data=f"{TEXTS} chronicles of 13 sentences from the grammar in refork_testbed.worlds.chronicle",
    words=words,
    conversations=conversations,
    held_out=held_out,
    shape=Shape(layers=8, width=512, heads=8, hidden=1408, context=512, spread=0.04),
    stages=(
        Stage(2, SftSettings(steps=450, rows=8, learning_rate=1.5e-3, warmup=40, final_rate=5e-4)),
        Stage(8, SftSettings(steps=150, rows=8, learning_rate=6e-4, warmup=20)),
    ),
)
