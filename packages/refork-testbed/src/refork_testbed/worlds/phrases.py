"""A phrase grammar: tokens that come in fixed phrases, each followed by one of a few others.

Inside a phrase the next token is all but certain; at its end the text may go on in several ways, and the
tokens of one way belong together. So the text is easy to continue token by token, and hard to guess several
tokens ahead without knowing the first of them. Its distribution is a hidden Markov chain, hence exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.types import IntArray

Reals = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class PhraseGrammar:
    """Phrases of tokens 0 .. ``vocabulary`` - 1 and what follows them.

    After phrase i comes ``successors[i, j]`` with probability ``weights[i, j]``. Each token is replaced with
    probability ``noise`` by one drawn uniformly from the vocabulary; the phrase goes on underneath. A text
    starts at the start of a phrase, all of them equally likely.
    """

    vocabulary: int
    phrases: tuple[tuple[int, ...], ...]
    successors: Int[NDArray[np.int64], "phrases choices"]
    weights: Float[Reals, "phrases choices"]
    noise: float

    @cached_property
    def _starts(self) -> Int[NDArray[np.int64], " phrases"]:
        """The state of each phrase's first token."""
        return np.cumsum([0, *(len(phrase) for phrase in self.phrases[:-1])])

    @cached_property
    def transitions(self) -> Float[Reals, "states states"]:
        """From token to token of the phrases, written one after another; rows sum to 1."""
        total = sum(len(phrase) for phrase in self.phrases)
        found = np.eye(total, k=1)
        for start, phrase, following, weights in zip(
            self._starts, self.phrases, self.successors, self.weights, strict=True
        ):
            last = start + len(phrase) - 1
            found[last] = 0.0
            np.add.at(found[last], self._starts[following], weights)
        return found

    @cached_property
    def emissions(self) -> Float[Reals, "states vocabulary"]:
        """The distribution of the token written in each state, noise included."""
        spoken = np.concatenate([np.array(phrase) for phrase in self.phrases])
        kept: Reals = np.eye(self.vocabulary)[spoken]
        return (1 - self.noise) * kept + self.noise / self.vocabulary

    def sample(self, count: int, length: int, seed: int) -> Int[IntArray, "count length"]:
        """Independent texts, each from the start of a phrase."""
        rng = np.random.default_rng(seed)
        state = self._starts[rng.integers(len(self.phrases), size=count)]
        follow, spoken = self.transitions.cumsum(axis=1), self.emissions.cumsum(axis=1)
        found = np.empty((count, length), dtype=np.int32)
        for place in range(length):
            found[:, place] = _drawn(spoken[state], rng)
            state = _drawn(follow[state], rng)
        return found

    def distributions(self, tokens: Int[IntArray, " length"]) -> Float[Reals, "length_and_one vocabulary"]:
        """The exact distribution of every token of a text given those before it, and of the one after it.

        Raises:
            BadInput: the text is impossible (where there is no noise).
        """
        belief = np.zeros(len(self.emissions))
        belief[self._starts] = 1 / len(self.phrases)
        found = np.empty((len(tokens) + 1, self.vocabulary))
        for place, token in enumerate(tokens):
            found[place] = belief @ self.emissions
            belief = belief * self.emissions[:, token]
            if not belief.sum() > 0:
                raise BadInput("the grammar cannot write this text", where=f"token {place}")
            belief = (belief / belief.sum()) @ self.transitions
        found[-1] = belief @ self.emissions
        return found


def random_grammar(
    seed: int = 0,
    *,
    vocabulary: int = 32,
    phrases: int = 24,
    shortest: int = 3,
    longest: int = 7,
    choices: int = 4,
    noise: float = 0.03,
) -> PhraseGrammar:
    """A grammar of random phrases of ``shortest`` .. ``longest`` tokens, each with ``choices`` successors.

    Successors are distinct; their weights are uniform on the simplex.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, size=phrases)
    return PhraseGrammar(
        vocabulary=vocabulary,
        phrases=tuple(tuple(rng.integers(vocabulary, size=n).tolist()) for n in lengths),
        successors=np.stack([rng.choice(phrases, size=choices, replace=False) for _ in range(phrases)]),
        weights=rng.dirichlet(np.ones(choices), size=phrases),
        noise=noise,
    )


def _drawn(cumulative: Float[Reals, "rows outcomes"], rng: np.random.Generator) -> NDArray[np.int64]:
    """One outcome per row, by inversion; rounding of the last sum never draws past the end."""
    uniform = rng.random(len(cumulative))[:, None] * cumulative[:, -1:]
    return np.asarray((uniform >= cumulative).sum(axis=1), dtype=np.int64)
