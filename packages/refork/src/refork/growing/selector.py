"""The selector seam: which point of a growing tree to fork next."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.registry import resolve
from refork.sampling.noise import NoiseKey, stream_of, uniforms

#: Every token of a turn is a candidate.
EVERY = -1


@dataclass(frozen=True, slots=True)
class Candidates:
    """Points of one task that may be forked, as plain arrays of one length; equal prefixes are one point.

    ``node``: node ids; ``token``: tokens kept (-1: all). ``depth``: tokens from the root.
    ``children``: branches that already start here, pending ones included. ``leaves``, ``wins``:
    graded leaves below and the sum of their success. ``entropy``: of the next token there, in nats
    (NaN where never computed). ``cost``: expected tokens of one more leaf from here. ``unseen``:
    probability that the next token there is one not drawn yet; ``surprisal``: of the first token that was
    (nats; both None or NaN where log-probs were not recorded). ``drawn``: leaves drawn for this task so far.
    ``note``: what the entropies cover ("exact", or over how many tokens). ``distributions``: next-token
    probabilities of each point, where a selector asked for them.
    """

    node: tuple[str, ...]
    token: NDArray[np.int64]
    depth: NDArray[np.int64]
    children: NDArray[np.int64]
    leaves: NDArray[np.int64]
    wins: NDArray[np.float64]
    entropy: NDArray[np.float64]
    cost: NDArray[np.float64]
    unseen: NDArray[np.float64] | None = None
    surprisal: NDArray[np.float64] | None = None
    drawn: int = 0
    note: str | None = None
    distributions: tuple[NDArray[np.float64], ...] | None = None

    def __len__(self) -> int:
        return len(self.node)

    def only(self, mask: NDArray[np.bool_]) -> Candidates:
        """Those of a mask [n]."""
        arrays = ((f.name, getattr(self, f.name)) for f in fields(self))
        kept: dict[str, Any] = {name: a[mask] for name, a in arrays if isinstance(a, np.ndarray)}
        distributions = (
            None
            if self.distributions is None
            else tuple(distribution for distribution, m in zip(self.distributions, mask, strict=True) if m)
        )
        return replace(
            self,
            node=tuple(n for n, m in zip(self.node, mask, strict=True) if m),
            distributions=distributions,
            **kept,
        )


@dataclass(frozen=True, slots=True)
class ForkChoice:
    """What a selector decided: fork candidate ``index`` ``draws`` more times; ``terms`` say why."""

    index: int
    draws: int
    terms: dict[str, float]


@runtime_checkable
class Selector(Protocol):
    """Chooses points to fork; UUCB and tree search implement this."""

    @property
    def name(self) -> str:
        """Name and settings, as recorded with every choice."""
        ...

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[ForkChoice]:
        """The next points to fork; an empty answer ends the growing."""
        ...


@dataclass(frozen=True, slots=True)
class Needs:
    """What a selector has to be told: next-token entropies, distributions, and points inside a turn.

    ``inside``: so many points of the highest entropy per turn, 0, or ``EVERY`` token. ``adaptive``: its
    choices depend on outcomes, so plain means over its leaves are biased.
    """

    entropy: bool = False
    distributions: bool = False
    inside: int = 4
    adaptive: bool = False


@runtime_checkable
class Needy(Protocol):
    """A selector that says what it needs; one that does not gets :class:`Needs` as they stand."""

    @property
    def needs(self) -> Needs:
        """What has to be recorded before it can choose."""
        ...


def needs_of(selector: Selector) -> Needs:
    """What a selector needs."""
    return selector.needs if isinstance(selector, Needy) else Needs()


def selector_named(name: str, seed: int = 0, /, **options: Any) -> Selector:
    """The selector of a name with its options: keyword arguments of the class that the name stands for.

    A name is one of the registry's ``selectors``, ``module:Class`` or ``file.py:Class``. ``seed`` is used
    where it has one.

    Raises:
        BadInput: no such selector, or an option that it does not have.
    """
    kind: Any = resolve("selectors", name)
    wrong = BadInput(f"{name} makes no selector", hint="a class whose objects have name and select")
    if not callable(kind):
        raise wrong
    signature = inspect.signature(kind)
    known = signature.parameters
    if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
        unknown = sorted(set(options) - (set(known) - {"name"}))
        if unknown:
            raise BadInput(
                f"selector {name} has no option {unknown[0]!r}",
                hint=f"options: {', '.join(sorted(set(known) - {'name'})) or 'none'}",
            )
    given = ({"seed": seed} if "seed" in known else {}) | options
    try:
        signature.bind(**given)
    except TypeError as error:
        raise wrong from error
    made = kind(**given)
    if not isinstance(made, Selector):
        raise wrong
    return made


@runtime_checkable
class PointValues(Protocol):
    """A source of values of points: a learned critic, an implicit advantage, a judge of steps."""

    @property
    def name(self) -> str:
        """Name and settings, as recorded with every choice."""
        ...

    def values(self, candidates: Candidates) -> NDArray[np.float64]:
        """Usefulness of one more rollout from each point, [n] in [0, 1]; NaN where it cannot say."""
        ...


@dataclass(frozen=True, slots=True)
class Independent:
    """Every rollout begins at the task: the plain group of GRPO."""

    name: str = "independent"

    @property
    def needs(self) -> Needs:
        """Nothing, and no points inside a turn."""
        return Needs(inside=0)

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[ForkChoice]:
        """All that is left, from the root."""
        root = int(np.argmin(candidates.depth))
        return [ForkChoice(root, leaves_left, {})]


@dataclass(frozen=True, slots=True)
class RandomNode:
    """Any point with equal chance, with replacement: the baseline of blind branching.

    ``roots`` plain rollouts come first, then ``at_once`` forks a round. ``inside`` says which points of a
    turn count: 4 of the highest entropy (as far as recorded), or ``EVERY`` token, which is blind altogether.

    Source: the node choice of arXiv 2509.21240, whose nodes are steps; here they may be tokens too.
    """

    seed: int = 0
    roots: int = 2
    at_once: int = 1
    inside: int = 4

    @property
    def name(self) -> str:
        """Name and settings."""
        tail = "" if self.inside == 4 else f", inside={self.inside}"
        return f"random-node(seed={self.seed}, roots={self.roots}, at_once={self.at_once}{tail})"

    @property
    def needs(self) -> Needs:
        """Points inside a turn; entropies are used where they happen to be recorded."""
        return Needs(inside=self.inside)

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[ForkChoice]:
        """Random points; the root alone in the first round."""
        if round_ == 0:
            return [ForkChoice(int(np.argmin(candidates.depth)), min(self.roots, leaves_left), {})]
        key = NoiseKey(self.seed, stream_of("random-node", candidates.node[0]), round_)
        picks = (uniforms([key], self.at_once)[0] * len(candidates)).astype(int)
        return [ForkChoice(int(pick), 1, {}) for pick in picks[:leaves_left]]


@dataclass(frozen=True, slots=True)
class Surprisal:
    """The points whose recorded next token was least likely, each forked as often as the others.

    ``roots`` plain rollouts, then the ``top`` most surprising points, ``draws`` forks each, over ``rounds``
    rounds. No outcome is looked at.

    Source: the tree sampler of arXiv 2506.11902, which forks by the sampled token's negative log-probability
    (not by the entropy of its distribution); one point per equal prefix is ours.
    """

    roots: int = 6
    top: int = 2
    draws: int = 2
    rounds: int = 1
    inside: int = EVERY

    @property
    def name(self) -> str:
        """Name and settings."""
        return f"surprisal(roots={self.roots}, top={self.top}, draws={self.draws}, rounds={self.rounds})"

    @property
    def needs(self) -> Needs:
        """Every token of a turn is a candidate."""
        return Needs(inside=self.inside)

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[ForkChoice]:
        """The most surprising points not forked yet; nothing once all rounds are over.

        Raises BadInput where no log-prob was recorded.
        """
        if round_ == 0:
            return [ForkChoice(int(np.argmin(candidates.depth)), min(self.roots, leaves_left), {})]
        if round_ > self.rounds:
            return []
        known = candidates.surprisal
        if known is None or not np.isfinite(known).any():
            raise BadInput(
                "surprisal needs log-probs of the sampled tokens, and none are recorded",
                where=self.name,
                hint="use a policy that returns log-probs, or --selector random",
            )
        # One child is the recorded branch alone; a point with more was forked already.
        fresh = np.where(np.isfinite(known) & (candidates.children == 1), known, -np.inf)
        # As many points per rollout as asked for; the published sampler ranks them over the whole group.
        order = np.argsort(-fresh, kind="stable")[: self.top * self.roots]
        return [ForkChoice(int(i), self.draws, {"surprisal": float(fresh[i])}) for i in order if fresh[i] > 0]
