"""Several policies in one conversation: a rule says before every turn which of them speaks it.

What is recorded of a turn is the one who spoke: its name, weights and settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from refork.errors import BadInput, CannotDo, ServerError
from refork.policies.base import (
    Continuation,
    Policy,
    PolicyCard,
    Rendered,
    Request,
    Sampling,
    Speaker,
    each_once,
)
from refork.policies.chat import Codec
from refork.policies.renderable import codec_of
from refork.sampling.noise import stream_of
from refork.types import FloatArray, IntArray, Json, Message, token_array
from refork_methods.route.pool import no_answer, wrongly_asked


@final
@dataclass(frozen=True, slots=True)
class Voice:
    """One member: its policy, and its own settings where they differ from the run's."""

    policy: Policy
    settings: Sampling | None = None


@final
@dataclass(frozen=True, slots=True)
class NextSpeaker:
    """Who speaks a turn; ``extra`` is recorded with it (the reason of the choice)."""

    name: str
    extra: Json = field(default_factory=dict)


#: Who speaks each of these turns: one answer per request. A request's ``noise.turn`` counts turns from the
#: point that the run began at, its ``messages`` are the conversation.
Rule = Callable[[Sequence[Request]], Sequence[NextSpeaker]]


def by_schedule(names: Sequence[str]) -> Rule:
    """Turn t is spoken by ``names[t]``, and by the last of them from there on."""
    if not names:
        raise BadInput("the schedule is empty")
    listed = list(names)
    return lambda requests: [NextSpeaker(listed[min(r.noise.turn, len(listed) - 1)]) for r in requests]


def by_chance(names: Sequence[str], seed: int = 0) -> Rule:
    """Every turn is spoken by one of the names, equally likely; a pure function of the turn's noise key."""
    if not names:
        raise BadInput("there is nobody to choose from")
    listed = list(names)

    def rule(requests: Sequence[Request]) -> list[NextSpeaker]:
        keys = [stream_of("relay", seed, *r.noise.to_json().values()) for r in requests]
        return [NextSpeaker(listed[key % len(listed)]) for key in keys]

    return rule


@final
class Relay:
    """A policy made of several; ``identity`` tells rules apart and belongs to the digest of its weights.

    It takes token ids where all members do and share one tokenizer; else it takes messages, and every member
    renders them for itself.
    """

    def __init__(
        self, voices: Mapping[str, Voice], rule: Rule, *, identity: Json, name: str = "relay"
    ) -> None:
        if not voices:
            raise BadInput("a relay needs at least one member")
        self._voices = dict(voices)
        self._rule = rule
        self._first = next(iter(self._voices.values())).policy
        self._card = _card(self._voices, identity, name)

    @property
    def card(self) -> PolicyCard:
        """Name, digests, and what all members can do."""
        return self._card

    @property
    def codec(self) -> Codec | None:
        """The tokenizer that the members share; None where they share none, or a server has it."""
        return codec_of(self._first) if self._card.can("tokens") else None

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text. Raises CannotDo where the members do not share a tokenizer."""
        return self._shared("encode text").encode(text)

    def decode(self, tokens: IntArray) -> str:
        """Text of token ids. Raises CannotDo where the members do not share a tokenizer."""
        return self._shared("decode tokens").decode(tokens)

    def _shared(self, what: str) -> Policy:
        if not self._card.can("tokens"):
            raise CannotDo(
                f"cannot {what}: the members of {self._card.name!r} do not share a tokenizer",
                hint="go to the end of an observation: there the messages are enough",
            )
        return self._first

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Tokens that new messages add; only their text where the members do not share a tokenizer."""
        if self._card.can("tokens"):
            return self._first.render(history, tokens, new)
        return Rendered(token_array([]), "\n".join(str(m.get("content") or "") for m in new))

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """Draw one continuation per request, each by the member that the rule names.

        A member that fails as a whole, whatever it raises, gives errors for its own requests; the others'
        turns stand.

        Raises:
            BadInput: the rule names nobody, or not one for every request.
            ServerError: every member failed.
        """
        turns = list(self._rule(requests))
        if len(turns) != len(requests):
            raise BadInput(f"the rule named {len(turns)} speakers for {len(requests)} turns")
        groups: dict[str, list[int]] = {}
        for index, turn in enumerate(turns):
            if turn.name not in self._voices:
                raise BadInput(f"the rule named {turn.name!r}", hint=f"members: {', '.join(self._voices)}")
            groups.setdefault(turn.name, []).append(index)
        refused: list[ServerError] = []
        for name, indices in groups.items():
            voice = self._voices[name]
            sampling = _merged(voice.settings, settings)
            asked = [self._request(voice.policy, requests[i]) for i in indices]
            open_ = set(indices)
            try:
                for said in each_once(voice.policy.sample(asked, sampling), len(asked)):
                    index = indices[said.index]
                    open_.remove(index)
                    by = self._speaker(turns[index], sampling)
                    yield self._as_said(replace(said, index=index, by=by))
            except Exception as raised:  # a member may be the user's own code
                if wrongly_asked(raised):
                    raise
                error = no_answer(raised, name)
                refused.append(error)
                # Nobody answered: that is the run's failure, and no data.
                if len(refused) == len(groups):
                    raise error from raised
                for index in sorted(open_):
                    by = self._speaker(turns[index], sampling)
                    yield Continuation(index, token_array([]), "", "error", error=str(error), by=by)

    def _as_said(self, said: Continuation) -> Continuation:
        """What one value per token says is left out where the tokens are not the relay's."""
        if self._card.can("tokens"):
            return said
        return replace(said, offsets=None, logprobs=None, logprobs_t1=None, ref_logprobs=None, entropy=None)

    def _speaker(self, turn: NextSpeaker, sampling: Sampling) -> Speaker:
        return Speaker(turn.name, self._voices[turn.name].policy.card, sampling, turn.extra)

    def _request(self, policy: Policy, request: Request) -> Request:
        if self._card.can("tokens") or not policy.card.can("tokens"):
            return request
        if request.messages is None:
            raise BadInput("a relay of several tokenizers needs the messages of every turn")
        return replace(request, tokens=policy.render([], token_array([]), request.messages).tokens)

    def logprobs(self, sequences: Sequence[IntArray]) -> list[FloatArray]:
        """Refused: which member's they are is not said by a sequence."""
        raise CannotDo(
            "a relay scores no given tokens", where=self._card.name, hint="ask the member that is meant"
        )


def _merged(own: Sampling | None, run: Sampling) -> Sampling:
    """A member's own settings, with what a fork's change forces or bans in the run's."""
    if own is None:
        return run
    return own.but(forced=run.forced, banned=run.banned, banned_first=run.banned_first)


def _card(voices: Mapping[str, Voice], identity: Json, name: str) -> PolicyCard:
    cards = {who: voice.policy.card for who, voice in voices.items()}
    kinds = {(card.tokenizer, card.vocabulary) for card in cards.values()}
    common = frozenset.intersection(*(card.capabilities for card in cards.values()))
    shared = len(kinds) == 1 and "tokens" in common and next(iter(kinds))[0] is not None
    members = [
        [who, card.name, card.weights, settings.to_json() if (settings := voices[who].settings) else None]
        for who, card in cards.items()
    ]
    contexts = [card.context for card in cards.values() if card.context is not None]
    tokenizer, vocabulary = next(iter(kinds)) if shared else (None, None)
    return PolicyCard(
        name=name,
        kind="relay",
        weights=hashlib.sha256(json.dumps([identity, members], sort_keys=True).encode()).hexdigest(),
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        # Whose scores or states they would be is known for a drawn turn only.
        capabilities=(common if shared else common - {"tokens", "logprobs"}) - {"scores", "whitebox"},
        context=min(contexts, default=None),
        extra={"members": list(voices)},
    )
