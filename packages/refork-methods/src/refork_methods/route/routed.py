"""A pool behind one name: a chooser picks the worker of every call, and the decision is kept."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
from jaxtyping import Float, Shaped

from refork.chat import Reply
from refork.errors import ServerError
from refork.policies.base import Request
from refork.policies.relay import NextSpeaker, Relay
from refork.stats.results import Array
from refork.types import Json, Message
from refork_methods.route.decision import Decision, DecisionLog, decide
from refork_methods.route.pool import WorkerPool
from refork_methods.route.runs import relay

if TYPE_CHECKING:
    from refork_methods.route.backbone import RouterBackbone
    from refork_methods.route.head import SelectionHead

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
                if not left or made.runner_up is None or not made.of(made.probabilities, made.runner_up):
                    raise
                failed.append(made.chosen)
                pool = pool.without(made.chosen)
                made = self._decide(query, chances, pool)
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
