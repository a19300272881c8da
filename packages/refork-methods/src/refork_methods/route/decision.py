"""One choice of a worker and why: probabilities, margin, expected reward, price, and who came second."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
from jaxtyping import Float, Shaped

from refork.chat import Reply
from refork.errors import BadInput, ServerError
from refork.policies.base import Request
from refork.stats.results import Array
from refork.tree.tree import Tree
from refork.types import Json, Message
from refork_methods.decide import break_even
from refork_methods.journal import Journal
from refork_methods.route.pool import WorkerPool
from refork_methods.route.relay import NextSpeaker, Relay
from refork_methods.route.runs import relay

if TYPE_CHECKING:
    from refork_methods.route.backbone import RouterBackbone
    from refork_methods.route.head import SelectionHead


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """A choice among ``workers``; every tuple is in their order, and an opted-out worker has probability 0.

    ``margin`` is the chosen worker's probability minus the largest other one (negative where a net value
    decided otherwise). ``expected`` rewards and ``prices`` of one call are None where unknown. ``value`` is
    the money that a reward of 1 is worth, None where probability alone decided.
    """

    query: str
    workers: tuple[str, ...]
    probabilities: tuple[float, ...]
    chosen: str
    runner_up: str | None
    margin: float
    expected: tuple[float | None, ...] | None = None
    prices: tuple[float | None, ...] | None = None
    opted_out: tuple[str, ...] = ()
    value: float | None = None

    def of(self, column: tuple[float | None, ...] | None, worker: str | None) -> float | None:
        """A worker's entry of one of the columns."""
        if column is None or worker is None:
            return None
        return column[self.workers.index(worker)]

    @property
    def price(self) -> float | None:
        """What the chosen worker's call is expected to cost; None is unknown."""
        return self.of(self.prices, self.chosen)

    @property
    def pays_above(self) -> float | None:
        """The worth of a reward of 1 above which choosing this worker and not the runner-up pays.

        0 where it is no dearer; infinite where it is dearer and not better; None where something is unknown.
        """
        other = self.runner_up
        rewards = self.of(self.expected, self.chosen), self.of(self.expected, other)
        prices = self.of(self.prices, self.chosen), self.of(self.prices, other)
        if None in rewards or None in prices:
            return None
        gain, price = (float(one) - float(two) for one, two in (rewards, prices))  # type: ignore[arg-type]
        if price <= 0:
            return 0.0
        return break_even(max(gain, 0.0), price=price)

    @property
    def reason(self) -> str:
        """The choice in words, with its numbers and what is not known."""
        other = self.runner_up
        chance = self.of(self.probabilities, self.chosen)
        parts = [f"{self.chosen} with probability {chance:.3f}"]
        if other is not None:
            side = f"{abs(self.margin):.3f} {'ahead of' if self.margin >= 0 else 'behind'}"
            parts[0] += f", {side} {other} ({self.of(self.probabilities, other):.3f})"
        if self.expected is not None:
            parts.append("expected reward " + self._against(self.expected))
        if self.prices is not None:
            parts.append("price of a call " + self._against(self.prices))
        if self.value is not None:
            parts.append(f"a reward of 1 is worth {self.value:g}, and its net value is the highest")
        if self.pays_above is not None and self.pays_above > 0:
            worth = f"{self.pays_above:.4g}" if math.isfinite(self.pays_above) else "nothing, at any worth"
            parts.append(f"against {other} it pays above a worth of {worth}" if worth[0] != "n"
                         else f"against {other} it does not pay at any worth of a reward")  # fmt: skip
        unknown = [w for w, p in zip(self.workers, self.prices or (), strict=False) if p is None]
        unknown = [w for w in unknown if w not in self.opted_out]
        if unknown:
            parts.append(f"price unknown: {', '.join(unknown)}")
        if self.opted_out:
            parts.append(f"opted out: {', '.join(self.opted_out)}")
        return "; ".join(parts)

    def _against(self, column: tuple[float | None, ...]) -> str:
        mine, theirs = self.of(column, self.chosen), self.of(column, self.runner_up)
        text = "unknown" if mine is None else f"{mine:.4g}"
        if self.runner_up is None:
            return text
        return f"{text} against {'unknown' if theirs is None else f'{theirs:.4g}'}"

    def to_json(self) -> Json:
        """All fields and the reason."""
        return asdict(self) | {"reason": self.reason}

    @classmethod
    def from_json(cls, data: Json) -> Decision:
        """Inverse of :meth:`to_json`. Raises BadInput for what is no decision."""
        try:
            known: Json = {f.name: data[f.name] for f in fields(cls)}
            # JSON has lists only; with tuples a decision equals the one that was written.
            known |= {name: tuple(v) for name, v in known.items() if isinstance(v, list)}
            made = cls(**known)
            columns = [c for c in (made.probabilities, made.expected, made.prices) if c is not None]
            sound = made.chosen in made.workers and all(len(c) == len(made.workers) for c in columns)
        except (KeyError, TypeError) as error:
            raise BadInput(f"this is no decision: {error!r}") from error
        if not sound or made.runner_up not in (None, *made.workers):
            raise BadInput("this is no decision: its columns do not fit its workers")
        return made


def decide(
    query: str,
    probabilities: Shaped[Array, "workers"],
    pool: WorkerPool,
    *,
    expected: Shaped[Array, workers] | None = None,
    prices: Shaped[Array, workers] | None = None,
    value: float | None = None,
) -> Decision:
    """Choose the likeliest open worker, or (``value``) the one of the highest ``value * expected - price``.

    NaN in ``expected`` (rewards) and ``prices`` (money for one call) is unknown. By net value a worker whose
    price is unknown is not chosen, because unknown is not free. Equal ones: the first in the pool.

    Raises: BadInput for probabilities as :meth:`WorkerPool.renormalised`, columns of another length, a value
    without expected rewards and prices, or no open worker with both known.
    """
    p = pool.renormalised(probabilities)
    columns = [_column(column, len(pool)) for column in (expected, prices)]
    if value is None:
        # Not 0: an open worker of probability 0 still comes before one that opted out.
        score = np.where(pool.mask, p, -np.inf)
    else:
        if columns[0] is None or columns[1] is None:
            raise BadInput("a net value needs expected rewards and prices")
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"the value of a reward is {value!r}; it must be positive")
        net = value * columns[0] - columns[1]
        score = np.where(pool.mask & ~np.isnan(net), net, -np.inf)
        if not np.isfinite(score).any():
            raise BadInput(
                "no open worker has both a known price and an expected reward",
                hint="state prices in the pool",
            )
    chosen = int(score.argmax())
    others = np.where(pool.mask, p, -np.inf)
    others[chosen] = -np.inf
    second = int(others.argmax()) if np.isfinite(others).any() else None
    margin = float(p[chosen] - (p[second] if second is not None else 0.0))
    plain = [None if c is None else tuple(None if np.isnan(v) else float(v) for v in c) for c in columns]
    return Decision(
        query,
        pool.names,
        tuple(p.tolist()),
        pool.names[chosen],
        pool.names[second] if second is not None else None,
        margin,
        plain[0],
        plain[1],
        tuple(name for name in pool.names if name in pool.opted_out),
        value,
    )


def _column(values: Shaped[Array, "workers"] | None, size: int) -> Shaped[Array, "workers"] | None:
    if values is None:
        return None
    column = np.asarray(values, dtype=np.float64)
    if column.shape != (size,) or np.isinf(column).any():
        raise BadInput(f"{column.shape} entries for {size} workers, or an infinite one")
    return column


#: Decisions that a log without a file remembers: a server must not grow with its calls.
MOST_IN_MEMORY = 4096


@final
class DecisionLog:
    """Decisions in order, with what each call then cost; a file of JSON lines, or (without one) memory.

    A file's decisions are read from it when asked for. Memory holds the newest ``MOST_IN_MEMORY``; the
    log's length counts all. May be used from several threads.
    """

    def __init__(self, file: Path | None = None) -> None:
        if file is None:
            self._journal = Journal(noun="decision log", keep=MOST_IN_MEMORY)
        else:
            begin = Journal if file.exists() else Journal.create
            self._journal = begin(file, noun="decision log", keep=0)
        self._lock = threading.Lock()

    def append(self, decision: Decision, **call: float | str | None) -> None:
        """Add a decision and what is known of its call: ``money``, ``seconds``, ``error`` (None: unknown)."""
        with self._lock:
            self._journal.append("decision", {"decision": decision.to_json(), "call": call})

    def __len__(self) -> int:
        return len(self._journal)

    def __iter__(self) -> Iterator[tuple[Decision, Json]]:
        """Every decision and its call, oldest first."""
        for entry in self._journal:
            yield Decision.from_json(entry.body["decision"]), dict(entry.body["call"])


def decisions_on(tree: Tree) -> Iterator[tuple[str, Decision]]:
    """The decisions that a routed policy left on a tree: the node they chose the speaker of, and each."""
    for task in tree.tasks():
        for node in tree.walk(task):
            if "decision" in node.extra:
                yield node.id, Decision.from_json(node.extra["decision"])


# A pool behind one name: a chooser picks the worker of every call, and the decision is kept.

#: Probabilities over all workers of the pool, in its order, for the next turn of a conversation.
Chooser: TypeAlias = Callable[[Sequence[Message]], Shaped[Array, "workers"]]


def always(pool: WorkerPool, name: str) -> Chooser:
    """The chooser that names one worker."""
    row = np.eye(len(pool))[pool.index(name)]
    return lambda messages: row


def head_chooser(head: SelectionHead, backbone: RouterBackbone, pool: WorkerPool) -> Chooser:
    """The chooser of a fitted selection head; conversations are read by the backbone it was fitted on.

    A head with singular-value offsets makes the backbone read with them from now on. May be used from
    several threads.

    Raises: Mismatch or WrongWeights for another backbone or format; BadInput for an open worker that the head
    was never fitted on (fit again with its outcomes, or opt it out).
    """
    read = head_reader(head, backbone, pool)
    return lambda messages: in_pool_order(head, read(messages), pool)


def head_reader(
    head: SelectionHead, backbone: RouterBackbone, pool: WorkerPool
) -> Callable[[Sequence[Message]], Float[np.ndarray, "1 d"]]:
    """What a head reads of a conversation, all three checked. Raises: as :func:`head_chooser`."""
    head.require(backbone)
    head.mask(pool.open)
    if head.offsets is not None:
        backbone.settle(head.offsets, head.matrices)
    return lambda messages: backbone.states([list(messages)])


def in_pool_order(
    head: SelectionHead, state: Float[np.ndarray, "1 d"], pool: WorkerPool
) -> Float[np.ndarray, "workers"]:
    """A head's chances over the workers of a pool; 0 for one that it does not know."""
    known = dict(zip(head.workers, head.probabilities(state, open=pool.open)[0], strict=True))
    return np.array([known.get(name, 0.0) for name in pool.names])


@final
class RoutedChat:
    """A :class:`~refork.chat.ChatModel`: each call goes to the worker that ``chooser`` favours.

    ``expected`` and ``prices`` [workers] enter every decision, and ``value`` makes it one by net value (see
    :func:`decide`). Where a worker gives no answer the call goes on to the next best ``retries`` times at
    most; every try is a decision of its own in ``log``. Opted-out workers are never called. A reply's note
    says who gave it, with what probability and why, and who was tried before.
    """

    def __init__(
        self,
        pool: WorkerPool,
        chooser: Chooser,
        *,
        name: str = "routed",
        expected: Shaped[Array, "workers"] | None = None,
        prices: Shaped[Array, "workers"] | None = None,
        value: float | None = None,
        retries: int = 1,
        log: DecisionLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool = pool
        self.log = log if log is not None else DecisionLog()
        self._name = name
        self._chooser = chooser
        self._columns = {"expected": expected, "prices": prices}
        self._value = value
        self._retries = retries
        self._clock = clock

    @property
    def name(self) -> str:
        """The one name that the pool is served under."""
        return self._name

    def decide(self, messages: Sequence[Message]) -> Decision:
        """Who would answer, without asking."""
        return self._decide(query_of(messages), self._chooser(messages), self.pool)

    def _decide(self, query: str, chances: Shaped[Array, "workers"], pool: WorkerPool) -> Decision:
        return decide(query, chances, pool, **self._columns, value=self._value)

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The chosen worker's answer.

        Raises:
            BadInput: the chooser gives no probabilities over the pool.
            ServerError: the chosen worker and those tried after it gave no answer.
        """
        query, chances, pool = query_of(messages), self._chooser(messages), self.pool
        made = self._decide(query, chances, pool)
        failed: list[str] = []
        for left in range(self._retries, -1, -1):
            began = self._clock()
            try:
                answer = self.pool.call(made.chosen, messages, tools=tools, draw=draw)
            except ServerError as error:
                self.log.append(made, money=None, seconds=self._clock() - began, error=str(error))
                # A runner-up of probability 0 is one that opted out: it is never asked instead.
                if not left or made.runner_up is None or not made.of(made.probabilities, made.runner_up):
                    raise
                failed.append(made.chosen)
                pool = pool.without(made.chosen)
                try:
                    made = self._decide(query, chances, pool)
                except BadInput:  # none of the others can be chosen: it was the server that failed
                    raise error from None
                continue
            money = self.pool[made.chosen].bill(answer.cost)
            self.log.append(made, money=money, seconds=self._clock() - began, error=None)
            return replace(answer, note=_note(made, money, failed, answer.note))
        raise AssertionError("unreachable: the last try returns or raises")


def _note(made: Decision, money: float | None, failed: Sequence[str], inside: Json | None) -> Json:
    """A decision as the one who asked may read it; ``inside`` is what the worker itself notes."""
    note: Json = {
        "worker": made.chosen,
        "probability": made.of(made.probabilities, made.chosen),
        "margin": made.margin,
        "reason": made.reason,
        "money": money,
        "failed": list(failed),
        "decision": made.query,
    }
    return note if inside is None else note | {"inside": inside}


def routed_policy(pool: WorkerPool, chooser: Chooser, *, identity: Json, name: str = "routed") -> Relay:
    """The pool as one policy in a harness: before every turn the chooser picks who speaks it.

    Each turn on the tree keeps its decision. ``identity`` names the chooser in its exact version.
    Raises: CannotDo where an open worker has no policy.
    """

    def rule(requests: Sequence[Request]) -> list[NextSpeaker]:
        made = [decide(query_of(r.messages or ()), chooser(r.messages or ()), pool) for r in requests]
        return [NextSpeaker(one.chosen, {"decision": one.to_json()}) for one in made]

    body = {"rule": "chooser", "open": list(pool.open)} | identity
    return relay(pool, rule, body, name)


def query_of(messages: Sequence[Message]) -> str:
    """A short name for a conversation, the same for the same messages."""
    body = json.dumps(list(messages), sort_keys=True, default=str)
    return hashlib.blake2b(body.encode(), digest_size=6).hexdigest()
