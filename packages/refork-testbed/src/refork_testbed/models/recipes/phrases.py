"""``phrases``: writes the text of a random phrase grammar; the target on which small drafters are compared.

Tokens of the grammar are syllables. Every turn of the assistant is a text of its own; the user only asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from refork.policies.base import Sampling
from refork.types import IntArray
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.phrases import PhraseGrammar, random_grammar

SYLLABLES = tuple("".join(pair) for pair in product("bdfklmst", "aeio"))
TEXTS, LENGTH = 7_200, 96
#: What the user says.
ASK = "go on"


def grammar() -> PhraseGrammar:
    """The grammar of this organism: 24 phrases of 3 to 7 of the 32 syllables, four successors each."""
    return random_grammar(0, vocabulary=len(SYLLABLES))


def write(tokens: IntArray) -> str:
    """A text of the grammar in syllables; each has a leading space, so that each is one token."""
    return "".join(f" {SYLLABLES[token]}" for token in tokens.tolist())


def words() -> Sequence[str]:
    """The syllables, and what the user says."""
    return [*SYLLABLES, *ASK.split()]


def conversations() -> list[Conversation]:
    """Texts of equal length."""
    return [
        [{"role": "user", "content": ASK}, {"role": "assistant", "content": write(text)}]
        for text in grammar().sample(TEXTS, LENGTH, seed=1)
    ]


RECIPE = Recipe(
    name="phrases",
    summary="writes phrases of syllables, each followed by one of four others",
    data=f"{TEXTS} texts of {LENGTH} tokens of a random phrase grammar, whose distribution is known exactly",
    words=words,
    conversations=conversations,
    shape=Shape(layers=2, width=64, heads=4, hidden=192, context=256),
    training=SftSettings(steps=450, rows=16, learning_rate=5e-3, warmup=20),
    sampling=Sampling(max_tokens=LENGTH),
)
