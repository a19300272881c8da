"""The policy seam: who acts. One call, many prefixes; batching is the seam.

A policy samples continuations of token prefixes under stated settings and addressed noise.
What a policy cannot do it says in its card, and a request for it is refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, runtime_checkable

from refork.errors import BadInput, CannotDo
from refork.policies.grammar import Grammar
from refork.policies.noise import NoiseKey
from refork.types import Coupling, Finish, FloatArray, IntArray, Json, Message


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn; a value object that is recorded with every sampled node.

    Filters act in this order, vLLM's: grammar, bans, repetition penalty, frequency penalty, presence penalty,
    temperature, min-p, top-k, top-p. ``temperature=0`` is greedy, after bans and penalties.
    ``repetition_penalty`` r reads the prompt and the turn so far: the logit of a token that occurs in either
    is divided by r where it is above 0, else multiplied by r. ``frequency_penalty`` times the number of times
    that the token occurs in the turn so far, and ``presence_penalty`` where it occurs at all, are subtracted;
    these two do not read the prompt. The turn so far holds what was said before the point of a fork inside
    it, and forced tokens. ``min_p`` keeps tokens of at least that share of the likeliest one's probability.
    ``stop`` strings end a continuation after the token that completes one; the text keeps it.
    ``forced`` tokens are emitted first, whatever the law says; their log-probs are the law's.
    ``banned_first`` acts on the first free token of a turn only, ``banned`` on all. ``grammar``: what every
    whole turn must be; ids that end a turn may come only where it is whole, and other ends may cut it.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    coupling: Coupling = "inverse"
    ignore_eos: bool = False
    entropy_top_k: int | None = None
    grammar: Grammar | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    def __post_init__(self) -> None:  # noqa: C901 (a list of independent checks)
        def refuse(name: str, rule: str) -> None:
            raise BadInput(f"{name} is {getattr(self, name)!r}; it must be {rule}", where="sampling")

        if not math.isfinite(self.temperature) or self.temperature < 0:
            refuse("temperature", "a finite number, 0 (greedy) or more")
        if self.top_k is not None and self.top_k < 1:
            refuse("top_k", "at least 1, or None")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            refuse("top_p", "in (0, 1], or None")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            refuse("min_p", "in [0, 1], or None")
        if self.repetition_penalty is not None and not 0 < self.repetition_penalty < math.inf:
            refuse("repetition_penalty", "a finite number above 0 (1 changes nothing), or None")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            # Servers' own bounds, OpenAI's: what is recorded can be asked of any of them.
            if value is not None and not -2 <= value <= 2:
                refuse(name, "in [-2, 2] (0 changes nothing), or None")
        if self.max_tokens < 1:
            refuse("max_tokens", "at least 1")
        if self.coupling not in ("inverse", "gumbel"):
            refuse("coupling", "'inverse' or 'gumbel'")
        if len(self.forced) > self.max_tokens:
            refuse("forced", f"no longer than max_tokens ({self.max_tokens})")
        if any(not item for item in self.stop):
            refuse("stop", "free of empty strings")
        grammar: object = self.grammar
        if grammar is not None and not isinstance(grammar, Grammar):
            refuse("grammar", "a Grammar, or None")

    def to_json(self) -> Json:
        """Fields that differ from the defaults, as plain JSON data."""
        plain = Sampling()
        return {
            f.name: _plain(value)
            for f in fields(self)
            if (value := getattr(self, f.name)) != getattr(plain, f.name)
        }

    @classmethod
    def from_json(cls, data: Json) -> Sampling:
        """Inverse of :meth:`to_json`; an unknown key is refused."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise BadInput(f"unknown sampling setting {unknown[0]!r}", hint=f"known: {sorted(known)}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if isinstance(values.get("grammar"), dict):
            values["grammar"] = Grammar.from_json(values["grammar"])
        return cls(**values)

    def but(self, **changes: Any) -> Sampling:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def distribution(self) -> tuple[object, ...]:
        """What decides the distribution of a free token given the text before, where no grammar does.

        Equal for settings that say the same in other words (``top_p=1`` and ``top_p=None``). What holds for
        the first token alone (``forced``, ``banned_first``) is not in it.
        """
        return (
            self.temperature,
            self.top_k,
            None if self.top_p == 1 else self.top_p,
            self.min_p or None,
            *self.penalties,
            tuple(sorted(set(self.banned))),
        )

    @property
    def penalties(self) -> tuple[float, float, float]:
        """Repetition, frequency and presence penalty; (1, 0, 0) changes nothing."""
        repetition = 1.0 if self.repetition_penalty is None else self.repetition_penalty
        return repetition, self.frequency_penalty or 0.0, self.presence_penalty or 0.0

    @property
    def penalised(self) -> bool:
        """Whether the distribution depends on which tokens were said before, beyond what the model reads."""
        return self.penalties != (1.0, 0.0, 0.0)

    @property
    def filtered(self) -> bool:
        """Whether top-k, top-p or min-p take tokens out."""
        return self.temperature != 0 and (
            self.top_k is not None or self.top_p not in (None, 1) or bool(self.min_p)
        )

    @property
    def is_plain(self) -> bool:
        """Whether free tokens are drawn from the model's own distribution: temperature 1, nothing else."""
        return self.distribution == Sampling().distribution and not self.banned_first and self.grammar is None


def refuse_grammar(settings: Sampling, name: str) -> None:
    """For policies that hold no turn to a grammar. Raises CannotDo where one is asked for."""
    if settings.grammar is not None:
        raise CannotDo(
            "this policy holds no turn to a grammar",
            where=name,
            hint="use a local model, or leave grammar away",
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Grammar):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


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


def total_cost(costs: Sequence[Cost]) -> Cost:
    """Several costs as one; what any of them does not know is not known."""

    def add(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    tokens_in, tokens_out = (add([getattr(c, name) for c in costs]) for name in ("tokens_in", "tokens_out"))
    return Cost(
        None if tokens_in is None else int(tokens_in),
        None if tokens_out is None else int(tokens_out),
        add([c.seconds for c in costs]),
        add([c.money for c in costs]),
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One continuation to draw: the exact prefix and the address of its noise.

    ``tokens`` is the whole prefix (ids, [n], n >= 1); requests of one fork should share the array
    object. ``messages`` is the same context as chat messages, for servers that take no token ids;
    ``mid_turn`` says that the prefix ends inside an assistant message. ``exclude_first`` draws the
    first token from the law *given that it is not this one*: the law's filters act first, then the
    token is taken out and the rest renormalised (how a sweep resumes where a draw left the trace).
    ``max_tokens`` is this request's own limit, where a turn is already partly said; ``said`` is how many of
    the last ``tokens`` are of that turn: a grammar reads them first, and penalties count them.
    """

    tokens: IntArray
    noise: NoiseKey
    messages: tuple[Message, ...] | None = None
    mid_turn: bool = False
    exclude_first: int | None = None
    max_tokens: int | None = None
    said: int = 0


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
    (characters). ``logprobs`` [m] are natural logs under the law that was sampled from
    (temperature, filters and bans applied); ``logprobs_t1`` [m] under temperature 1 with no filter.
    ``entropy`` [m] is in nats, over the top-k at temperature 1, not renormalised (a lower bound).
    ``ties`` counts tokens whose noise fell so near a boundary of the law that another machine's
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

        ``tokens`` is the context as it really is (the concatenated walk), ``history`` the messages it
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
class NextLaw(Protocol):
    """A policy that can say the whole law of the next token, not only sample from it."""

    def next_logprobs(self, prefixes: Sequence[IntArray]) -> list[FloatArray]:
        """Log-probs of every token after each prefix, temperature 1 and no filter: [vocabulary] each."""
        ...


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
