"""The shipped fake policy: real token ids and exact probability distributions, without a network or weights.

Its distribution is a function of the text before, a set of canned replies, or a Markov chain. Everything else
is what any policy does: filters, couplings, addressed noise, log-probs, offsets. Tests and documentation use
it where a model's quality does not matter and exact probabilities do.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.policies.base import (
    Continuation,
    Cost,
    PolicyCard,
    Rendered,
    Request,
    Sampling,
    refuse_grammar,
    stop_end,
)
from refork.sampling.noise import NoiseKey, gumbels, uniforms
from refork.types import Finish, FloatArray, IntArray, Message, token_array

Float64 = NDArray[np.float64]

#: What a distribution says of the next token: text of one token -> probability; "" is the end of the turn.
Distribution = Mapping[str, float]

END, TURN = 0, 1
_SPECIAL = 2
_BYTES = 256
#: Noise nearer than this to a boundary of the distribution counts as a tie (float32 distributions differ by
#: less).
TIE = 1e-6
#: Requests whose noise is made at once: alone, each takes longer than the draw.
_TOGETHER = 64


@final
class Words:
    """A lossless tokenizer: given words where they occur, single bytes elsewhere.

    Id 0 ends a turn and id 1 opens one; both add no text. Ids 2 to 257 are the bytes, words follow.
    """

    def __init__(self, words: Iterable[str]) -> None:
        longer = {word for word in words if len(word.encode()) > 1}
        self.words = tuple(sorted(longer))
        self._ids = {word: _SPECIAL + _BYTES + i for i, word in enumerate(self.words)}
        self._bytes = [b"", b"", *(bytes([i]) for i in range(_BYTES)), *(w.encode() for w in self.words)]
        by_length = sorted(self.words, key=len, reverse=True)
        self._next = re.compile("|".join([*map(re.escape, by_length), "."]), re.DOTALL)
        self._ones: dict[str, int] = {"": END}

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def digest(self) -> str:
        """Sha256 (hex) of the words."""
        return hashlib.sha256(json.dumps(["words", self.words]).encode()).hexdigest()

    def encode(self, text: str) -> IntArray:
        """Token ids of a text, the longest word first at every place."""
        ids: list[int] = []
        for found in self._next.finditer(text):
            word = found.group()
            known = self._ids.get(word)
            ids.extend([known] if known is not None else [_SPECIAL + byte for byte in word.encode()])
        return token_array(ids)

    def pieces(self, tokens: Any) -> tuple[str, IntArray]:
        """Text of token ids and the end of each in it (characters)."""
        reader = codecs.getincrementaldecoder("utf-8")("replace")
        parts: list[str] = []
        ends: list[int] = []
        end, last = 0, len(tokens) - 1
        for row, token in enumerate(tokens):
            if not 0 <= token < len(self):
                raise BadInput(f"token id {int(token)} is outside the vocabulary of {len(self)}")
            parts.append(reader.decode(self._bytes[token], final=row == last))
            end += len(parts[-1])
            ends.append(end)
        return "".join(parts), token_array(ends)

    def one(self, text: str) -> int:
        """The id of a text that is one token; "" is the end of the turn."""
        known = self._ones.get(text)
        if known is not None:
            return known
        ids = self.encode(text)
        if len(ids) == 1:
            return self._ones.setdefault(text, int(ids[0]))
        raise BadInput(f"{text!r} is not one token of this script", hint="name it among the words")


def distribution_array(distribution: Distribution, words: Words) -> Float64:
    """Log-probabilities [vocabulary] of a distribution.

    Raises:
        BadInput: a probability is negative or not finite, their sum is not 1, or a text is no token.
    """
    chances = np.zeros(len(words), dtype=np.float64)
    for text, chance in distribution.items():
        chances[words.one(text)] += chance
    total = float(chances.sum())
    if not np.isfinite(total) or chances.min() < 0 or abs(total - 1.0) > 1e-6:
        raise BadInput(f"probabilities must be 0 or more and sum to 1; these sum to {total:g}")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(chances / total), dtype=np.float64)


def penalise(
    logprobs: Float64, settings: Sampling, prompt: Sequence[int] = (), generated: Sequence[int] = ()
) -> Float64:
    """Log-probs [vocabulary] less the penalties, not normalised: a copy."""
    distribution = logprobs.copy()
    if settings.penalised:
        repetition, frequency, presence = settings.penalties
        for token in {*prompt, *generated}:
            distribution[token] = (
                distribution[token] / repetition
                if distribution[token] > 0
                else distribution[token] * repetition
            )
        for token in set(generated):
            distribution[token] -= frequency * generated.count(token) + presence
    return distribution


def filtered(
    logprobs: Float64,
    settings: Sampling,
    banned: Sequence[int] = (),
    prompt: Sequence[int] = (),
    generated: Sequence[int] = (),
) -> Float64:
    """The law that is sampled from, as log-probs [vocabulary]: the filters of :class:`Sampling` in order.

    Tokens that tie with the k-th are kept; top-p ranks equal ones by id. All minus infinity where
    nothing is left. Penalties read ``prompt`` and what the turn has ``generated``; a script's logits are its
    log-probabilities.
    """
    distribution = penalise(logprobs, settings, prompt, generated)
    distribution[list(banned)] = -np.inf
    if not np.isfinite(distribution).any():
        return distribution
    if settings.temperature == 0:
        best = int(np.argmax(distribution))
        distribution[:] = -np.inf
        distribution[best] = 0.0
        return distribution
    distribution = _normalised(distribution / settings.temperature)
    if settings.min_p:
        distribution[distribution < distribution.max() + np.log(settings.min_p)] = -np.inf
        distribution = _normalised(distribution)
    if settings.top_k is not None and settings.top_k < len(distribution):
        distribution[distribution < np.sort(distribution)[-settings.top_k]] = -np.inf
        distribution = _normalised(distribution)
    if settings.top_p is not None and settings.top_p < 1:
        order = np.argsort(-distribution, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(np.exp(distribution[order]))[:-1]])
        distribution[order[before >= settings.top_p]] = -np.inf
        distribution = _normalised(distribution)
    return distribution


def without(distribution: Float64, token: int) -> Float64:
    """The distribution given that the token is not this one."""
    rest = distribution.copy()
    rest[token] = -np.inf
    return _normalised(rest)


def choose_greedy(distribution: Float64) -> tuple[int, bool]:
    """The likeliest token, the lowest id of equals; and whether the next was as near as a tie."""
    best = int(np.argmax(distribution))
    others = np.delete(distribution, best)
    return best, bool(len(others)) and float(distribution[best] - others.max()) < TIE


def _normalised(distribution: Float64) -> Float64:
    if not np.isfinite(distribution).any():
        return distribution
    top = distribution.max()
    return np.asarray(distribution - (top + np.log(np.exp(distribution - top).sum())), dtype=np.float64)


def choose_inverse(distribution: Float64, uniform: float) -> tuple[int, bool]:
    """The token whose share of (0, 1), in order of ids, holds the uniform; and whether it was a tie."""
    ends = np.cumsum(np.exp(distribution))
    ends /= ends[-1]
    possible = np.flatnonzero(np.isfinite(distribution))
    # Impossible tokens share their end with the possible one before them, so they are not searched.
    row = min(int(np.searchsorted(ends[possible], uniform, side="right")), len(possible) - 1)
    inner = ends[possible][:-1]
    near = bool(len(inner)) and float(np.abs(inner - uniform).min()) < TIE
    return int(possible[row]), near


def choose_gumbel(distribution: Float64, noise: Float64) -> tuple[int, bool]:
    """The token with the largest log-prob plus Gumbel noise; and whether the next was as near as a tie."""
    return choose_greedy(distribution + noise)


@final
class ScriptedPolicy:
    """A policy whose distribution is written down: a function of the token ids before.

    :meth:`from_text`, :meth:`from_replies` and :meth:`from_chain` are the usual ways to make one.
    ``identity`` tells distributions apart: it belongs to the digest of the policy's weights.
    """

    def __init__(
        self, distribution: Callable[[Sequence[int]], Distribution], words: Words, *, name: str, identity: Any
    ) -> None:
        self._law_of = distribution
        self._words = words
        self._known: dict[tuple[int, ...], Float64] = {}
        self._card = PolicyCard(
            name=name,
            kind="scripted",
            weights=hashlib.sha256(json.dumps([identity, words.digest]).encode()).hexdigest(),
            tokenizer=words.digest,
            vocabulary=len(words),
            capabilities=frozenset({"tokens", "logprobs", "scores", "paired"}),
        )

    @classmethod
    def from_text(
        cls,
        distribution: Callable[[str], Distribution],
        words: Iterable[str] = (),
        *,
        name: str = "scripted",
        version: str = "1",
    ) -> ScriptedPolicy:
        """A policy whose distribution is a function of the whole text before.

        Every text the distribution names must be one token: one of ``words``, a single ASCII character, or ""
        for the end of the turn. Change ``version`` when the distribution changes: it stands for the weights.
        """
        known = Words(words)
        return cls(
            lambda tokens: distribution(known.pieces(tokens)[0]),
            known,
            name=name,
            identity=["text", name, version],
        )

    @classmethod
    def from_replies(
        cls, replies: Sequence[str] | Mapping[str, float], *, name: str = "replies"
    ) -> ScriptedPolicy:
        """A policy that says one of the replies each turn: equally likely, or with the given weights.

        Inside a turn it goes on with the replies that begin as the turn did. Where a fork's change left
        all of them, it goes on from the longest end of the turn that begins one.
        """
        weights = dict(replies) if isinstance(replies, Mapping) else dict.fromkeys(replies, 1.0)
        total = sum(weights.values())
        if not weights or not np.isfinite(total) or total <= 0 or min(weights.values()) < 0:
            raise BadInput("a scripted policy needs at least one reply with a positive weight")
        # Characters of several bytes are words too, so that a distribution never has to name half of one.
        words = Words(
            part
            for reply in weights
            for part in [*re.findall(r"\s?\S+|\s", reply), *re.findall(r"[^\x00-\x7f]", reply)]
        )

        def distribution(tokens: Sequence[int]) -> Distribution:
            return _distribution(_since_special(tokens, words), weights, words)

        return cls(distribution, words, name=name, identity=["replies", sorted(weights.items())])

    @classmethod
    def from_chain(cls, table: Mapping[str, Distribution], *, name: str = "chain") -> ScriptedPolicy:
        """A Markov chain: token text -> distribution of the next token.

        "" is the start of a turn as a state and its end as a token; after a token that is no state the
        chain starts anew.
        """
        if "" not in table:
            raise BadInput('a chain needs the state "", the start of a turn')
        words = Words(text for state, law in table.items() for text in (state, *law))
        states = {words.one(state): law for state, law in table.items()}

        def distribution(tokens: Sequence[int]) -> Distribution:
            return states.get(int(tokens[-1]) if len(tokens) else END, states[END])

        identity = sorted((state, sorted(after.items())) for state, after in table.items())
        policy = cls(distribution, words, name=name, identity=["chain", identity])
        for state in states:  # a table that is no distribution is refused here, not in the middle of a run
            policy._distribution([state])
        return policy

    @property
    def card(self) -> PolicyCard:
        """Name, digests and capabilities."""
        return self._card

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text."""
        return self._words.encode(text)

    def decode(self, tokens: IntArray) -> str:
        """Text of token ids."""
        return self._words.pieces(tokens)[0]

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Tokens of new messages: content and a newline, the policy's own between turn marks."""
        ids: list[int] = []
        if len(tokens) and history and history[-1].get("role") == "assistant" and tokens[-1] != END:
            ids.append(END)
        for message in new if len(tokens) else [*history, *new]:
            content = str(message.get("content") or "")
            if message.get("role") == "assistant":
                ids += [TURN, *self.encode(content), END]
            else:
                ids += [*self.encode(content + "\n")]
        ids.append(TURN)
        return Rendered(token_array(ids), self._words.pieces(ids)[0])

    def _distribution(self, tokens: Sequence[int]) -> Float64:
        key = tuple(map(int, tokens))
        known = self._known.get(key)
        if known is None:
            # Long runs meet ever new prefixes: memory must not grow with them.
            if len(self._known) >= 65536:
                self._known.clear()
            known = self._known[key] = distribution_array(self._law_of(key), self._words)
        return known

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """Draw one continuation per request, in order.

        Raises:
            BadInput: an empty prefix, or a token id outside the vocabulary.
            CannotDo: a grammar; a script's distribution is written down.
        """
        refuse_grammar(settings, self.card.name)
        for request in requests:
            self._check(request.tokens, "prefix")
        named = (*settings.banned, *settings.banned_first, *settings.forced, *settings.stop_ids)
        self._check(token_array([END, *named]), "sampling settings")
        limits = [
            settings.max_tokens if one.max_tokens is None else min(one.max_tokens, settings.max_tokens)
            for one in requests
        ]
        # Noise depends on its keys alone, so where the groups are cut changes no draw.
        for start in range(0, len(requests), _TOGETHER):
            some = slice(start, start + _TOGETHER)
            numbers = uniforms([request.noise for request in requests[some]], max(limits[some]))
            for index, row in enumerate(numbers, start):
                yield self._draw(index, requests[index], row[: limits[index]], settings)

    def _check(self, tokens: IntArray, where: str) -> None:
        if len(tokens) == 0:
            raise BadInput("the prefix is empty", where=where, hint="give at least one token")
        outside = [int(t) for t in tokens if not 0 <= t < len(self._words)]
        if outside:
            raise BadInput(
                f"token id {outside[0]} is outside the vocabulary of {len(self._words)}", where=where
            )

    def _draw(self, index: int, request: Request, numbers: Float64, settings: Sampling) -> Continuation:
        limit = len(numbers)
        prefix = [int(t) for t in request.tokens]
        cut = len(prefix) - request.generated
        turn = prefix[cut:]
        # What penalties read, where some are asked for.
        prompt, begun = (prefix[:cut], turn) if settings.penalised else ([], [])
        said: list[int] = []
        distributions: list[float] = []
        plain: list[float] = []
        entropy: list[float] = []
        ties, error = 0, None
        finish: Finish = "length"
        for place in range(limit):
            bare = self._distribution(prefix + said)
            first = place == len(settings.forced)
            banned = settings.banned + (settings.banned_first if first else ())
            distribution = filtered(bare, settings, banned, prompt, begun + said)
            if first and request.exclude_first is not None:
                distribution = without(distribution, request.exclude_first)
            if place < len(settings.forced):
                token = settings.forced[place]
            elif not np.isfinite(distribution).any():
                finish, error = "error", "the filters and bans leave no token to draw"
                break
            elif settings.temperature == 0:
                # Ties are looked for among all tokens: the greedy filter leaves one.
                free = penalise(bare, settings, prompt, begun + said)
                free[list(banned)] = -np.inf
                token, tie = choose_greedy(free)
                ties += tie
            else:
                token, tie = self._choose(distribution, request.noise, place, numbers, settings)
                ties += tie
            said.append(token)
            distributions.append(distribution[token])
            plain.append(bare[token])
            if settings.entropy_top_k is not None:
                entropy.append(_entropy(bare, settings.entropy_top_k))
            # As everywhere: a forced token ends no turn before all forced tokens are out.
            if place + 1 >= len(settings.forced) and self._stops([*turn, *said], settings):
                finish = "stop"
                break
        text, offsets = self._words.pieces(said)
        return Continuation(
            index=index,
            tokens=token_array(said),
            text=text,
            finish=finish,
            offsets=offsets,
            logprobs=np.array(distributions, dtype=np.float32),
            logprobs_t1=np.array(plain, dtype=np.float32),
            entropy=None if settings.entropy_top_k is None else np.array(entropy, dtype=np.float32),
            ties=ties,
            cost=Cost(tokens_in=len(prefix), tokens_out=len(said)),
            error=error,
        )

    def _choose(
        self, distribution: Float64, noise: NoiseKey, place: int, numbers: Float64, settings: Sampling
    ) -> tuple[int, bool]:
        if settings.coupling == "inverse":
            return choose_inverse(distribution, float(numbers[place]))
        return choose_gumbel(distribution, gumbels([noise], place, len(distribution))[0])

    def _stops(self, turn: list[int], settings: Sampling) -> bool:
        """Whether the newest token of a turn ends it."""
        if (turn[-1] == END and not settings.ignore_eos) or turn[-1] in settings.stop_ids:
            return True
        if not settings.stop:
            return False
        text, ends = self._words.pieces(turn)
        return stop_end(text, settings.stop, int(ends[-2]) if len(ends) > 1 else 0) is not None

    def logprobs(self, sequences: Sequence[IntArray]) -> list[FloatArray]:
        """Log-prob of every token but the first given those before it, exact: [n - 1] each."""
        results = []
        for row, sequence in enumerate(sequences):
            self._check(sequence, f"sequence {row}")
            ids = [int(t) for t in sequence]
            values = [self._distribution(ids[:place])[ids[place]] for place in range(1, len(ids))]
            results.append(np.array(values, dtype=np.float32))
        return results

    def next_logprobs(self, prefixes: Sequence[IntArray]) -> list[FloatArray]:
        """Log-probs of every token after each prefix, exact: [vocabulary] each."""
        for row, prefix in enumerate(prefixes):
            self._check(prefix, f"prefix {row}")
        return [self._distribution([int(t) for t in prefix]).astype(np.float32) for prefix in prefixes]


def _entropy(distribution: Float64, top_k: int) -> float:
    top = np.sort(distribution[np.isfinite(distribution)])[::-1][:top_k]
    # The entropy of a sure token would be -0.
    return float(-(np.exp(top) * top).sum()) + 0.0


def _since_special(tokens: Sequence[int], words: Words) -> str:
    """Text after the last turn mark."""
    start = max((row + 1 for row, token in enumerate(tokens) if token in (END, TURN)), default=0)
    return words.pieces(tokens[start:])[0]


def _distribution(said: str, weights: Mapping[str, float], words: Words) -> Distribution:
    for start in range(len(said) + 1):
        begun = said[start:]
        fitting = {r: w for r, w in weights.items() if w > 0 and r.startswith(begun)}
        if fitting:
            break
    distribution: dict[str, float] = {}
    total = sum(fitting.values())
    for reply, weight in fitting.items():
        rest = reply[len(begun) :]
        following = words.pieces(words.encode(rest)[:1])[0] if rest else ""
        distribution[following] = distribution.get(following, 0.0) + weight / total
    return distribution


def bare(name: str, argument: str) -> None:
    """Raises BadInput where a script that takes no argument was given one."""
    if argument:
        raise BadInput(f"the script {name!r} takes no argument, not {argument!r}", hint=f"scripted:{name}")


def chance_of(name: str, argument: str, default: float) -> float:
    """The chance behind a script's name; raises BadInput for what is no number."""
    try:
        return float(argument) if argument else default
    except ValueError:
        raise BadInput(f"{argument!r} is no chance", hint=f"scripted:{name}@0.1") from None
