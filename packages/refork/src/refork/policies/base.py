"""The policy seam: who acts. One call, many prefixes; batching is the seam.

A policy samples continuations of token prefixes under stated settings and addressed noise.
What a policy cannot do it says in its card, and a request for it is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from refork.errors import BadInput, CannotDo
from refork.sampling.noise import NoiseKey

# Part of the seam: who writes a policy finds all its words here.
from refork.sampling.settings import Sampling as Sampling  # noqa: PLC0414
from refork.types import Finish, FloatArray, IntArray, Json, Message


def refuse_grammar(settings: Sampling, name: str) -> None:
    """For policies that hold no turn to a grammar. Raises CannotDo where one is asked for."""
    if settings.grammar is not None:
        raise CannotDo(
            "this policy holds no turn to a grammar",
            where=name,
            hint="use a local model, or leave grammar away",
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of work used. None: not known; 0: known to be nothing."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float | None = None
    money: float | None = None

    def to_json(self) -> Json:
        """Known fields only."""
        return {k: v for k, v in asdict(self).items() if v is not None}


Number = TypeVar("Number", int, float)


def known_sum(values: Sequence[Number | None]) -> Number | None:
    """Their sum; None where one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def total_cost(costs: Sequence[Cost]) -> Cost:
    """Several costs as one; what any of them does not know is not known."""
    if not costs:
        return Cost()
    return Cost(
        known_sum([c.tokens_in for c in costs]),
        known_sum([c.tokens_out for c in costs]),
        known_sum([c.seconds for c in costs]),
        known_sum([c.money for c in costs]),
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One continuation to draw: the exact prefix and the address of its noise.

    ``tokens`` is the whole prefix (ids, [n], n >= 1); requests of one fork should share the array
    object. ``messages`` is the same context as chat messages, for servers that take no token ids;
    ``mid_turn`` says that the prefix ends inside an assistant message. ``exclude_first`` draws the
    first token from the distribution *given that it is not this one*: the distribution's filters act first,
    then the token is taken out and the rest renormalised (how a sweep resumes where a draw left the trace).
    ``max_tokens`` is this request's own limit, where a turn is already partly said; ``generated`` is how
    many of the last ``tokens`` are of that turn: a grammar reads them first, and penalties count them.
    """

    tokens: IntArray
    noise: NoiseKey
    messages: tuple[Message, ...] | None = None
    mid_turn: bool = False
    exclude_first: int | None = None
    max_tokens: int | None = None
    generated: int = 0


@dataclass(frozen=True, slots=True)
class Speaker:
    """Which of a composed policy's members said a continuation, under which settings, and why (``extra``)."""

    name: str
    card: PolicyCard
    settings: Sampling
    extra: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Continuation:
    """One sampled continuation of one request.

    ``tokens`` [m] are the sampled ids, a sampled end-of-sequence or stop id included. ``text`` is
    what they add to the transcript, without special tokens; ``offsets`` [m] is the end of each token in it
    (characters). ``logprobs`` [m] are natural logs under the distribution that was sampled from
    (temperature, filters and bans applied); ``logprobs_t1`` [m] under temperature 1 with no filter.
    ``entropy`` [m] is in nats, over the top-k at temperature 1, not renormalised (a lower bound).
    ``ties`` counts tokens whose noise fell so near a boundary of the distribution that another machine's
    rounding might have chosen the neighbour. None means never computed. ``by`` is who spoke, where the
    policy is composed of several.
    """

    index: int
    tokens: IntArray
    text: str
    finish: Finish
    offsets: IntArray | None = None
    logprobs: FloatArray | None = None
    logprobs_t1: FloatArray | None = None
    ref_logprobs: FloatArray | None = None
    entropy: FloatArray | None = None
    ties: int = 0
    cost: Cost = field(default_factory=Cost)
    message: Message | None = None
    error: str | None = None
    by: Speaker | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """Tokens that new messages add to a context.

    ``rewrites``: the template changed what came before, so ``tokens`` is the whole new context.
    """

    tokens: IntArray
    text: str
    rewrites: bool = False


@dataclass(frozen=True, slots=True)
class PolicyCard:
    """Who a policy is and what it can do; recorded with everything it samples.

    ``weights`` and ``tokenizer`` are digests (sha256, hex), None where they cannot be known.
    Capabilities: ``tokens`` (takes and returns token ids), ``logprobs`` (of sampled tokens),
    ``scores`` (log-probs of given sequences), ``paired`` (honours noise keys), ``whitebox``.
    """

    name: str
    kind: str
    weights: str | None
    tokenizer: str | None
    vocabulary: int | None
    capabilities: frozenset[str]
    context: int | None = None
    extra: Json = field(default_factory=dict)

    def can(self, capability: str) -> bool:
        """Whether a capability is present."""
        return capability in self.capabilities

    def to_json(self) -> Json:
        """Plain fields, for storage."""
        return asdict(self) | {"capabilities": sorted(self.capabilities)}


@runtime_checkable
class Policy(Protocol):
    """Who acts."""

    @property
    def card(self) -> PolicyCard:
        """Name, digests and capabilities."""
        ...

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text, no special tokens added."""
        ...

    def decode(self, tokens: IntArray) -> str:
        """Text of token ids, special tokens left out."""
        ...

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Tokens that ``new`` messages add after a context, ready for the policy's next turn.

        ``tokens`` is the context as it really is (the concatenated trajectory), ``history`` the messages it
        holds. The result ends where the policy is to begin speaking.
        """
        ...

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """Draw one continuation per request, yielded as they finish (``index`` says whose)."""
        ...

    def logprobs(self, sequences: Sequence[IntArray]) -> list[FloatArray]:
        """Log-prob of every token but the first given those before it, temperature 1: [n - 1] each."""
        ...


@runtime_checkable
class NextDistribution(Protocol):
    """A policy that can say the whole distribution of the next token, not only sample from it."""

    def next_logprobs(self, prefixes: Sequence[IntArray]) -> list[FloatArray]:
        """Log-probs of every token after each prefix, temperature 1 and no filter: [vocabulary] each."""
        ...


def stop_end(text: str, stops: Sequence[str], after: int) -> int | None:
    """Where in a turn's text the first stop string ends that ends beyond ``after`` characters, else None.

    It may begin before: a turn that was cut inside a stop string is over where the string is whole.
    """
    begins = ((stop, text.find(stop, max(0, after - len(stop) + 1))) for stop in stops)
    return min((at + len(stop) for stop, at in begins if at >= 0), default=None)


def sample_all(policy: Policy, requests: Sequence[Request], settings: Sampling) -> list[Continuation]:
    """All continuations, in the order of the requests."""
    return in_order(policy.sample(requests, settings), len(requests))


def each_once(continuations: Iterable[Continuation], count: int) -> Iterator[Continuation]:
    """Continuations as they come; a missing, doubled or unknown one is the policy's fault."""
    open_ = set(range(count))
    for item in continuations:
        if item.index not in open_:
            raise BadInput(f"the policy answered request {item.index} twice or out of range")
        open_.remove(item.index)
        yield item
    if open_:
        raise BadInput(f"the policy left {len(open_)} of {count} requests unanswered")


def in_order(continuations: Iterable[Continuation], count: int) -> list[Continuation]:
    """Continuations sorted by their request."""
    return sorted(each_once(continuations, count), key=lambda item: item.index)
