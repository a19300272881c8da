"""An extractive summariser: a causal language model says of a sentence whether later questions will need it.

Learned is that forecast, from where in the conversation a sentence stands and its words. Built in are
the splitting into sentences, the word budget, and the choice: sentences are drawn one after another without
replacement in proportion to forecast per word, while they fit. Forecasts under a floor are not told
apart, so what no question needs fills the rest of the budget in random order. A sentence with many words
that the model does not know is not read: so a harness's instructions around a conversation in the small
wording stay out of the summary without having to be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.chat import Reply
from refork.errors import BadInput, CannotDo
from refork.formats.openai_chat import text_of
from refork.policies.base import Cost, NextDistribution, Policy
from refork.sampling.noise import NoiseKey, stream_of, uniforms
from refork.types import Json, Message, token_array

Floats: TypeAlias = NDArray[np.float64]

#: What the model says of a sentence, and of where it stands.
NEEDED, IDLE = "needed", "idle"
OPENING, POSITIONS = "opening", ("early", "middle", "late")
#: Sentences that count as the opening.
OPENS = 2
#: Forecasts are not told apart below this.
FLOOR = 0.05
#: A sentence is read where at least this share of its words is known.
KNOWN = 0.8

_BREAK = re.compile(r"(?<=[.!?])\s+|\n+|<[^<>]*>")
_WHO = "human|user|ai|assistant|system|tool"
_SPEAKER = re.compile(rf"^(?:(?:{_WHO})\s*:|\[(?:{_WHO})\])\s*", re.IGNORECASE)
_BUDGET = re.compile(r"(\d+) words")
_WORD = re.compile(r"[A-Za-z]+|[0-9]+")


def sentences(texts: Sequence[str]) -> list[str]:
    """Sentences of texts in order, each once, without marks of harnesses: who speaks, and tags."""
    parts = (_SPEAKER.sub("", part.strip()) for text in texts for part in _BREAK.split(text))
    return list(dict.fromkeys(" ".join(part.split()) for part in parts if part))


def questions(result: Sequence[str]) -> list[str]:
    """What the model is asked about each sentence of a conversation: where it stands, and its words."""
    later = max(len(result) - OPENS, 1)
    places = [
        OPENING if i < OPENS else POSITIONS[(i - OPENS) * len(POSITIONS) // later] for i in range(len(result))
    ]
    return [f"{place}: {sentence}" for place, sentence in zip(places, result, strict=True)]


def choose(
    result: Sequence[str], needed: Float[Floats, "n"], words: int, noise: Float[Floats, "n"]
) -> list[str]:
    """The sentences of a summary of at most ``words`` words, in the order of the conversation.

    ``needed`` [n] are the forecasts, ``noise`` [n] uniform draws in (0, 1): sentences come in the order of a
    draw without replacement by forecast per word (Gumbel's trick), and one that does not fit is passed over.
    """
    sizes = np.array([len(sentence.split()) for sentence in result])
    keys = np.log(np.maximum(needed, FLOOR) / sizes) - np.log(-np.log(noise))
    kept, left = [], words
    for place in np.argsort(-keys, kind="stable").tolist():
        if sizes[place] <= left:
            kept.append(place)
            left -= int(sizes[place])
    if not kept:  # all are longer than the budget
        return [" ".join(result[int(keys.argmax())].split()[:words])]
    return [result[place] for place in sorted(kept)]


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The probability that a sentence will be needed, and the tokens that were read for it."""

    needed: float
    tokens: int


@final
class ExtractiveChat:
    """A summariser organism as a chat model: a prompt that holds a conversation is answered with its summary.

    ``words`` is the budget where the prompt names none ("at most 80 words"). ``known`` are texts whose words
    the model can read. ``seed`` and the draw address the noise. A sentence is read once: forecasts are kept.

    Raises:
        CannotDo: the policy cannot say the distribution of its next token.
    """

    def __init__(self, policy: Policy, known: Sequence[str], words: int = 80, seed: int = 0) -> None:
        if not isinstance(policy, NextDistribution):
            raise CannotDo(
                "this policy cannot say the distribution of its next token", where=policy.card.name
            )
        self._policy: Policy = policy
        self._reader: NextDistribution = policy
        self._known = frozenset(word for text in known for word in _WORD.findall(text))
        self._words = words
        self._seed = seed
        self._kept: dict[str, _Forecast] = {}

    @property
    def name(self) -> str:
        """The policy's name."""
        return self._policy.card.name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The summary of what the prompt holds; tools are not used. See :meth:`replies`."""
        return self.replies([messages], draw=draw)[0]

    def replies(self, prompts: Sequence[Sequence[Message]], *, draw: int = 0) -> list[Reply]:
        """Summaries of many prompts in one batch, each the same as alone.

        Raises:
            BadInput: a prompt holds no sentence that the model can read.
        """
        texts = [[text_of(message) for message in messages] for messages in prompts]
        found = [self._read(each) for each in texts]
        forecasts = self._forecasts(found)
        return [self._reply(t, f, n, draw) for t, f, n in zip(texts, found, forecasts, strict=True)]

    def _forecasts(self, conversations: Sequence[Sequence[str]]) -> list[list[_Forecast]]:
        """The probability that a later question needs each sentence of each conversation."""
        asked = [questions(found) for found in conversations]
        new = sorted({q for each in asked for q in each} - self._kept.keys())
        if new:
            empty = token_array([])
            prompts: list[list[Message]] = [[{"role": "user", "content": q}] for q in new]
            prefixes = [self._policy.render([], empty, prompt).tokens for prompt in prompts]
            yes, no = (int(self._policy.encode(word)[0]) for word in (NEEDED, IDLE))
            distributions = self._reader.next_logprobs(prefixes)
            for question, tokens, distribution in zip(new, prefixes, distributions, strict=True):
                needed = 1 / (1 + np.exp(float(distribution[no]) - float(distribution[yes])))
                self._kept[question] = _Forecast(float(needed), len(tokens))
        return [[self._kept[q] for q in each] for each in asked]

    def _reply(
        self, texts: Sequence[str], found: Sequence[str], forecasts: Sequence[_Forecast], draw: int
    ) -> Reply:
        budgets = _BUDGET.findall("\n".join(texts))
        words = int(budgets[-1]) if budgets else self._words
        # Addressed by the sentences, so a summary does not depend on what else is in the batch.
        key = NoiseKey(self._seed, stream_of("summary", *found), draw)
        noise = np.asarray(uniforms([key], len(found), 0)[0], dtype=np.float64)
        text = " ".join(choose(found, np.array([one.needed for one in forecasts]), words, noise))
        # It reads every sentence and samples nothing: the words of the answer are the conversation's.
        cost = Cost(tokens_in=sum(one.tokens for one in forecasts), tokens_out=0)
        return Reply({"role": "assistant", "content": text}, cost=cost)

    def _read(self, texts: Sequence[str]) -> list[str]:
        found = [s for s in sentences(texts) if self._readable(s)]
        if not found:
            raise BadInput(
                "there is no sentence that this summariser can read",
                where=self.name,
                hint="it knows the small wording of the house-rule scenarios and nothing else",
            )
        return found

    def _readable(self, sentence: str) -> bool:
        words = _WORD.findall(sentence)
        return any(map(str.isalpha, words)) and sum(word in self._known for word in words) >= KNOWN * len(
            words
        )
