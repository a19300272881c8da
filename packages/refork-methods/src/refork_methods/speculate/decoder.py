"""Speculative decoding of a local model: the same distribution or the same tokens, in fewer passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from refork.decoding.live import DrawRequest, LiveDecoder, StepOutput
from refork.errors import BadInput
from refork.policies.base import Continuation, Cost, PolicyCard, Rendered, Request, Sampling, in_order
from refork.policies.chat import Codec
from refork.policies.local import LocalPolicy
from refork.policies.weights import weights_digest
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import FloatArray, IntArray, Message
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.context import Proposer
from refork_methods.speculate.schedule import Scheduler
from refork_methods.speculate.speculator import Listener, ModelSpeculator, Rejected, SpeculationStats
from refork_methods.speculate.verification import Rule

WIDTH = 64
"""Branches drawn at the same time, unless told otherwise."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class RejectedDraft:
    """Drafts of one request that were verified and not said, in place of its tokens from ``offset`` on.

    ``noise`` is the request's, by which the recorded draw is found again.
    """

    request: int
    noise: NoiseKey
    offset: int
    tokens: IntArray


@final
class SpeculativeDecoder:
    """Draws from ``target`` with the drafts of ``draft``: a policy, to be given wherever one is taken.

    What it says has the distribution of the target's own words. Its card carries the target's weights, since
    those decide what is said, and names drafter and rule. It is ``paired`` under the coupled rule only: then
    equal noise gives what the target alone gives. Under the rejection rule what is drawn beside may change
    what is said, never its distribution. The settings are those of :class:`ModelSpeculator`.

    ``width`` branches are drawn at the same time. ``on_rejected`` is given what was drafted and not said.
    One thread at a time.

    Raises:
        WrongTokenizer, WrongWeights: the drafter was made for another model.
        BadInput: an unknown rule, a drafter of another shape, fewer than one row or draft token.
        CannotDo: a schedule that would leak drafted tokens.
    """

    def __init__(
        self,
        target: LocalPolicy,
        draft: Proposer,
        *,
        rule: Rule = "rejection",
        max_draft_tokens: int | None = None,
        scheduler: Scheduler | None = None,
        calibration: SequentialTemperatureScaling | None = None,
        width: int = WIDTH,
        on_rounds: Listener | None = None,
        on_rejected: Callable[[Sequence[RejectedDraft]], None] | None = None,
    ) -> None:
        draft.config.check_target(target)
        if width < 1:
            raise BadInput(f"a width of {width} must be at least 1")
        self.target, self.draft, self.width, self.on_rejected = target, draft, width, on_rejected
        self._card: PolicyCard | None = None
        self._speculator = ModelSpeculator(
            draft,
            rule=rule,
            scheduler=scheduler,
            calibration=calibration,
            max_draft_tokens=max_draft_tokens,
            eos=target.end_ids,
            on_rounds=on_rounds,
        )

    @property
    def card(self) -> PolicyCard:
        """The target's card, with the drafter's digest, rule, schedule and calibration in its ``extra``."""
        if self._card is None:
            card = self.target.card
            without = {"whitebox"} if self.rule == "coupled" else {"whitebox", "paired"}
            drafted = {
                "drafter": weights_digest(self.draft),
                "kind": self.draft.config.kind,
                "rule": self.rule,
                "max_draft_tokens": self.max_draft_tokens,
                **self._speculator.scheduling,
            }
            self._card = replace(
                card,
                name=f"{card.name}+{self.draft.config.kind}-{self.rule}",
                capabilities=card.capabilities - without,
                extra={**card.extra, "speculate": drafted},
            )
        return self._card

    @property
    def rule(self) -> Rule:
        """How drafts are accepted."""
        return self._speculator.rule

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens drafted in a round."""
        return self._speculator.block

    @property
    def stats(self) -> SpeculationStats:
        """What all draws since the last reset came to."""
        return self._speculator.stats

    def reset(self) -> None:
        """Begin to count anew."""
        self._speculator.tally.reset()

    @property
    def codec(self) -> Codec:
        """The target's tokenizer."""
        return self.target.codec

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text, no special tokens added."""
        return self.target.encode(text)

    def decode(self, tokens: IntArray) -> str:
        """Text of token ids, special tokens left out."""
        return self.target.decode(tokens)

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Tokens that new messages add after a context, ready for the policy's next turn."""
        return self.target.render(history, tokens, new)

    def logprobs(
        self, sequences: Sequence[IntArray], prompts: Sequence[int] | None = None
    ) -> list[FloatArray]:
        """Log-prob in nats of every token but the first given those before, temperature 1: [n - 1] each."""
        return self.target.logprobs(sequences, prompts)

    def next_logprobs(self, prefixes: Sequence[IntArray]) -> list[FloatArray]:
        """Log-probs in nats of every token after each prefix, temperature 1, no filter: [vocabulary] each."""
        return self.target.next_logprobs(prefixes)

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """One continuation per request, yielded as they finish.

        Under the coupled rule and at temperature 0 the tokens are those of ``target.sample``. Where the
        schedule would not draft for so many, the target's own batch decoder works them off. A request that
        fails under way ends with finish ``error``, and ends alone.

        Raises:
            BadInput: as :meth:`LocalPolicy.sample`.
        """
        owner: dict[int, int] = {}
        speculator = self._speculator.fresh(self._listen(owner, requests))
        width = min(self.width, max(len(requests), 1))
        if requests and not speculator.pays(width, float(settings.temperature == 0.0)):
            yield from self.target.sample(requests, settings)
            return
        asks = [self._ask(request, settings) for request in requests]
        live = LiveDecoder(self.target.decoder, width=width, speculator=speculator)
        for index, ask in enumerate(asks):
            owner[live.submit(ask)] = index
        parts: dict[int, _Parts] = {}
        while not live.idle:
            for said in live.step():
                mine = parts.setdefault(said.request_id, _Parts())
                mine.add(said)
                if said.finish is not None:
                    index = owner[said.request_id]
                    yield self._continuation(index, requests[index], parts.pop(said.request_id), said)

    def generate(
        self,
        prompts: Sequence[str | IntArray],
        settings: Sampling | None = None,
        *,
        seed: int = 0,
    ) -> list[Continuation]:
        """Continuations of texts or token ids, in their order; prompt i is drawn with draw i of ``seed``."""
        tokens = [self.target.encode(p) if isinstance(p, str) else p for p in prompts]
        stream = stream_of("generate")
        requests = [Request(ids, NoiseKey(seed, stream, i)) for i, ids in enumerate(tokens)]
        return in_order(self.sample(requests, settings or Sampling()), len(requests))

    def _ask(self, request: Request, settings: Sampling) -> DrawRequest:
        own = request.max_tokens
        if own is not None and own < settings.max_tokens:
            settings = settings.but(max_tokens=own, forced=settings.forced[:own])
        without = -1 if request.exclude_first is None else request.exclude_first
        return self.target.ask(
            request.tokens, request.noise, settings, without=without, generated=request.generated
        )

    def _listen(
        self, owner: dict[int, int], requests: Sequence[Request]
    ) -> Callable[[Sequence[Rejected]], None] | None:
        heard = self.on_rejected
        if heard is None:
            return None

        def listen(found: Sequence[Rejected]) -> None:
            whose = [owner[item.request_id] for item in found]
            heard(
                [
                    RejectedDraft(i, requests[i].noise, item.offset, item.tokens.astype(np.int32))
                    for i, item in zip(whose, found, strict=True)
                ]
            )

        return listen

    def _continuation(self, index: int, request: Request, parts: _Parts, said: StepOutput) -> Continuation:
        tokens = np.concatenate(parts.tokens).astype(np.int32)
        text, offsets = self.target.codec.pieces(tokens)
        reference = self.target.reference
        ref = None
        if reference is not None:
            [scores] = reference.logprobs([np.concatenate([request.tokens, tokens]).astype(np.int32)])
            ref = scores[len(request.tokens) - 1 :]
        return Continuation(
            index=index,
            tokens=tokens,
            text=text,
            finish=said.finish or "length",
            offsets=offsets,
            logprobs=np.concatenate(parts.logprobs),
            logprobs_t1=np.concatenate(parts.logprobs_t1),
            ref_logprobs=ref,
            entropy=np.concatenate(parts.entropy) if parts.entropy else None,
            ties=parts.ties,
            cost=Cost(tokens_in=len(request.tokens), tokens_out=len(tokens)),
            error=said.error,
        )


@final
@dataclass(slots=True, eq=False)
class _Parts:
    """What a request has said, step by step."""

    tokens: list[IntArray] = field(default_factory=list)
    logprobs: list[FloatArray] = field(default_factory=list)
    logprobs_t1: list[FloatArray] = field(default_factory=list)
    entropy: list[FloatArray] = field(default_factory=list)
    ties: int = 0

    def add(self, said: StepOutput) -> None:
        """One step more."""
        self.tokens.append(said.tokens)
        self.logprobs.append(said.logprobs)
        self.logprobs_t1.append(said.logprobs_t1)
        if said.entropy is not None:
            self.entropy.append(said.entropy)
        self.ties += said.ties
