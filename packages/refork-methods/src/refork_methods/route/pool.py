"""The workers that a router chooses among: who they are, what a call of each costs, and who has opted out."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Shaped
from pydantic import BaseModel, ConfigDict, Field

from refork.chat import ChatModel, PolicyChat, Reply
from refork.errors import BadInput, CannotDo, ReforkError, ServerError, UserError
from refork.plain import from_json, to_json
from refork.policies.base import Cost, Policy, Sampling
from refork.policies.open import open_policy
from refork.stats.results import Array
from refork.types import Json, Message


@final
@dataclass(frozen=True, slots=True)
class Price:
    """What a worker costs: money per million tokens in and out, and per call. None is unknown, 0 is free.

    Raises: BadInput for a negative or non-finite price.
    """

    million_in: float | None = None
    million_out: float | None = None
    call: float | None = None

    def __post_init__(self) -> None:
        for name in ("million_in", "million_out", "call"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise BadInput(f"the price {name} is {value!r}; it must be a finite number, 0 or more")

    def of(self, cost: Cost) -> float | None:
        """The money of one call; None where a price, or the count of tokens that it is for, is unknown."""
        parts = [
            self.call,
            _times(self.million_in, cost.tokens_in),
            _times(self.million_out, cost.tokens_out),
        ]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    def to_json(self) -> Json:
        """All three, None where unknown."""
        return {"million_in": self.million_in, "million_out": self.million_out, "call": self.call}


def _times(price: float | None, tokens: int | None) -> float | None:
    # Free needs no count of tokens, which a server may not give.
    if price == 0:
        return 0.0
    return None if price is None or tokens is None else price * tokens / 1e6


@final
@dataclass(frozen=True, slots=True)
class Bill:
    """What several calls cost together: the ``known`` money, and how many calls have ``unknown`` prices."""

    known: float = 0.0
    unknown: int = 0

    @classmethod
    def of(cls, prices: Iterable[float | None]) -> Bill:
        """The sum of prices, the unknown ones counted."""
        listed = list(prices)
        known = [price for price in listed if price is not None]
        return cls(math.fsum(known), len(listed) - len(known))

    @property
    def total(self) -> float | None:
        """The whole cost; None as soon as one call's price is unknown."""
        return None if self.unknown else self.known


@final
@dataclass(frozen=True, slots=True)
class Worker:
    """One frozen model: a policy, a chat model, both, or (in a recorded table) only a name.

    ``settings`` are how its policy samples; ``price`` None is wholly unknown.
    """

    name: str
    policy: Policy | None = field(default=None, repr=False)
    chat: ChatModel | None = field(default=None, repr=False)
    price: Price | None = None
    spec: str | None = None
    settings: Sampling | None = None

    def asked(self) -> ChatModel:
        """The worker as a chat model. Raises CannotDo where there is only its name."""
        if self.chat is not None:
            return self.chat
        if self.policy is not None:
            return PolicyChat(self.policy, self.settings)
        raise CannotDo(
            f"worker {self.name!r} has neither a policy nor a chat model",
            hint="name its policy in the pool file, for example policy = 'openai:URL#MODEL'",
        )

    def bill(self, cost: Cost) -> float | None:
        """The money of one call: what the answer itself states, else by the price; None is unknown."""
        if cost.money is not None:
            return cost.money
        return self.price.of(cost) if self.price is not None else None


@final
@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Workers in a fixed order (the order of every probability vector), some of which have opted out.

    An opted-out worker keeps its place, gets no probability and is never called.

    Raises: BadInput for fewer than two workers, a name given twice or empty, an unknown opt-out, or a pool
    whose workers have all opted out.
    """

    workers: tuple[Worker, ...]
    opted_out: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = [worker.name for worker in self.workers]
        if len(names) < 2:
            raise BadInput(
                f"a pool of {len(names)} leaves nothing to choose", hint="name two workers or more"
            )
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled or not all(names):
            raise BadInput(f"worker names must be distinct and not empty: {doubled or names}")
        unknown = sorted(self.opted_out - set(names))
        if unknown:
            raise BadInput(f"{unknown[0]!r} opted out and is no worker", hint=f"workers: {', '.join(names)}")
        if not self.open:
            raise BadInput("every worker has opted out", hint="leave one in")

    @classmethod
    def of(cls, *workers: Worker | str) -> WorkerPool:
        """A pool of workers; a text is a worker that is only a name."""
        return cls(tuple(Worker(one) if isinstance(one, str) else one for one in workers))

    def __len__(self) -> int:
        return len(self.workers)

    def __getitem__(self, name: str) -> Worker:
        """The worker of a name, opted out or not. Raises BadInput where there is none."""
        return self.workers[self.index(name)]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(worker.name for worker in self.workers)

    @property
    def open(self) -> tuple[str, ...]:
        """Names of those that may be called, in order."""
        return tuple(name for name in self.names if name not in self.opted_out)

    @property
    def mask(self) -> Bool[np.ndarray, "workers"]:
        """Which workers may be called."""
        return np.array([name not in self.opted_out for name in self.names])

    def index(self, name: str) -> int:
        """The place of a worker. Raises BadInput where there is none."""
        if name not in self.names:
            raise BadInput(f"there is no worker {name!r}", hint=f"workers: {', '.join(self.names)}")
        return self.names.index(name)

    def without(self, *names: str) -> WorkerPool:
        """The pool after more workers have opted out."""
        return replace(self, opted_out=self.opted_out | {self.names[self.index(name)] for name in names})

    def subset(self, rng: np.random.Generator, size: int) -> WorkerPool:
        """A random sub-pool: ``size`` of the open workers stay open, the rest opt out.

        Raises: BadInput for a size outside 1 .. the number of open workers.
        """
        if not 1 <= size <= len(self.open):
            raise BadInput(f"a sub-pool of {size} from {len(self.open)} open workers")
        kept = {self.open[place] for place in rng.permutation(len(self.open))[:size]}
        return replace(self, opted_out=frozenset(set(self.names) - kept))

    def renormalised(self, probabilities: Shaped[Array, "workers"]) -> Float[np.ndarray, "workers"]:
        """Probabilities over all workers with the opted-out ones at 0 and the others scaled to sum to 1.

        Raises: BadInput for a vector of another length, negative or not finite, or no mass on the open ones.
        """
        p = np.asarray(probabilities, dtype=np.float64)
        if p.shape != (len(self),):
            raise BadInput(f"{p.shape} probabilities for {len(self)} workers")
        if not np.isfinite(p).all() or (p < 0).any():
            raise BadInput("probabilities must be finite and 0 or more")
        kept = np.where(self.mask, p, 0.0)
        if kept.sum() <= 0:
            raise BadInput(
                "all probability is on workers that opted out", hint=f"open workers: {', '.join(self.open)}"
            )
        return np.asarray(kept / kept.sum())

    def call(
        self, name: str, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0
    ) -> Reply:
        """Ask one worker. Whatever it raises itself is that it gave no answer, and ends nothing else.

        Raises:
            BadInput: there is no such worker.
            CannotDo: it has opted out, or is only a name.
            ServerError: it gave no answer, or something else than a reply.
        """
        worker = self[name]
        if name in self.opted_out:
            raise CannotDo(
                f"worker {name!r} has opted out and is not called", hint=f"open: {', '.join(self.open)}"
            )
        model = worker.asked()
        try:
            said = model.reply(messages, tools=tools, draw=draw)
        except Exception as error:  # a worker is the user's code or somebody's client: it may raise anything
            raise no_answer(error, name) from error
        if not isinstance(said, Reply) or not isinstance(said.message, dict):
            raise ServerError(f"what it gave is no reply but {type(said).__name__}", where=f"worker {name}")
        return said

    @property
    def identity(self) -> list[Json]:
        """How each worker answers and is paid, as JSON: what a record of runs with it depends on."""
        return [_identity(one) for one in self.workers]


def _identity(one: Worker) -> Any:
    body = [
        one.name, one.policy.card.to_json() if one.policy is not None else None,
        to_json(one.price) if one.price is not None else None,
        one.settings.to_json() if one.settings is not None else None,
    ]  # fmt: skip
    # A chat model is known by its name alone; where there is none, the list is as it always was.
    return body if one.chat is None else [*body, one.chat.name]


def wrongly_asked(error: Exception) -> bool:
    """Whether an error is about what was asked for, and not that a worker gave no answer."""
    return isinstance(error, ReforkError) and not isinstance(error, ServerError)


def no_answer(error: Exception, worker: str) -> ServerError:
    """A worker's own error as the one that callers expect: itself where it is that, else with its kind."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, UserError):
        return ServerError(error.what, where=error.where or f"worker {worker}", hint=error.hint)
    return ServerError(f"{type(error).__name__}: {error}", where=f"worker {worker}")


# The pool file: workers, their prices and who has opted out, as TOML.


class _Part(BaseModel):
    # Strict: a price that is a text, or true, is a slip of the pen and not a number.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PriceFile(_Part):
    """A worker's price; what is left out is unknown."""

    million_in: float | None = None
    million_out: float | None = None
    call: float | None = None


class WorkerFile(_Part):
    """One worker."""

    name: str
    policy: str | None = None
    price: PriceFile | None = None
    settings: dict[str, Any] | None = None


class ServeFile(_Part):
    """How the pool is served: the decision log, from the file's folder, and who writes workflows for it."""

    log: str | None = None
    conductor: str | None = None


class PoolFile(_Part):
    """A pool file."""

    worker: list[WorkerFile] = Field(default_factory=list)
    opted_out: list[str] = Field(default_factory=list)
    serve: ServeFile = ServeFile()


def read_pool_file(path: Path) -> PoolFile:
    """What a pool file says, nothing opened. Raises: BadInput for what is no such file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot be read: {error}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"this is not TOML: {error}", where=str(path)) from error
    return from_json(PoolFile, data, str(path))


def read_pool(path: Path, opener: Callable[..., Policy] = open_policy) -> WorkerPool:
    """The pool of a TOML file.

    Such a file reads::

        opted_out = ["large"]

        [[worker]]
        name = "small"
        policy = "openai:http://localhost:8000/v1#small"
        price = { million_in = 0.1, million_out = 0.4, call = 0 }
        settings = { temperature = 0.2, max_tokens = 512 }

    A price that is left out is unknown; write 0 where something is free. Opted-out workers are not opened.

    Raises: BadInput for what is no such file, and as :class:`WorkerPool`; the opener's own errors.
    """
    told = read_pool_file(path)
    plain = [
        Worker(
            one.name,
            price=None if one.price is None else Price(**one.price.model_dump()),
            spec=one.policy,
            settings=None if one.settings is None else Sampling.from_json(one.settings),
        )
        for one in told.worker
    ]
    # Checked before anything is opened: a wrong file must not load a model first.
    pool = WorkerPool(tuple(plain), frozenset(told.opted_out))
    opened = [
        replace(one, policy=opener(one.spec)) if one.spec is not None and one.name in pool.open else one
        for one in plain
    ]
    return WorkerPool(tuple(opened), pool.opted_out)
