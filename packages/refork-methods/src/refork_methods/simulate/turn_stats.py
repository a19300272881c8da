r"""How much a turn's answer tells beyond its action, the class that follows, and its share in the loss.

With A and O the lower-cased words of action and observation, each counted once: overlap |A n O|/|A|, novelty
|O \\ A|/|O|, Jaccard |A n O|/|A u O|, ratio characters of O / characters of A. A share whose denominator is
empty is 0; the ratio of an answer to an empty action is infinite, of no answer to it 0.

Source: arXiv 2606.24597 for the four statistics, the seven classes and their shares; the thresholds of echo
follow readers of it, all others are our reconstruction, for the source does not give them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from refork.errors import BadInput
from refork.plain import to_json
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.environment import Transition

TurnClass: TypeAlias = Literal[
    "retrieval", "expansion", "action", "transform", "boilerplate", "echo", "other"
]
CLASSES: tuple[TurnClass, ...] = get_args(TurnClass)

#: Share of a class that stays in the loss.
SHARES: Mapping[TurnClass, float] = {
    "retrieval": 1.0,
    "expansion": 1.0,
    "action": 1.0,
    "transform": 0.5,
    "boilerplate": 0.1,
    "echo": 0.05,
    "other": 1.0,
}


@dataclass(frozen=True, slots=True)
class TurnStats:
    """Overlap, novelty and Jaccard in [0, 1]; ratio 0 or more; lengths in characters."""

    overlap: float
    novelty: float
    jaccard: float
    ratio: float
    chars_action: int
    chars_observation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where classes begin; the first that fits is taken, in the order of the fields."""

    echo_overlap: float = 0.70
    echo_novelty: float = 0.30
    boilerplate_overlap: float = 0.50
    boilerplate_novelty: float = 0.50
    transform_ratio: float = 0.50
    transform_action: float = 200
    transform_novelty: float = 0.30
    action_observation: float = 80
    retrieval_overlap: float = 0.30
    retrieval_novelty: float = 0.70
    retrieval_ratio: float = 2.0
    expansion_novelty: float = 0.50
    expansion_ratio: float = 1.0

    @classmethod
    def parse(cls, items: Sequence[str]) -> Thresholds:
        """Thresholds with ``name=value`` items changed; raises BadInput naming an unknown or a bad one."""
        known = {field.name for field in fields(cls)}
        changed: dict[str, float] = {}
        for item in items:
            name, _, value = item.partition("=")
            if name not in known:
                raise BadInput(f"there is no threshold {name!r}", hint=", ".join(sorted(known)))
            try:
                changed[name] = float(value)
            except ValueError as error:
                raise BadInput(f"{value!r} is not a number", where=f"threshold {name}") from error
            if not math.isfinite(changed[name]) or changed[name] < 0:
                raise BadInput(f"{value} cannot be a threshold", where=f"threshold {name}")
        return cls(**changed)


@dataclass(frozen=True, slots=True)
class Weighed:
    """One turn: its statistics, its class, and its weight in the loss."""

    stats: TurnStats
    kind: TurnClass
    weight: float

    def to_json(self) -> Json:
        """One line of the log."""
        plain: Json = to_json(self.stats)
        return {"class": self.kind, "weight": self.weight, **plain}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def turn_stats(action: str, observation: str) -> TurnStats:
    """The statistics of one turn.

    Source: arXiv 2606.24597; the values of empty texts are ours (see the module).
    """
    said, seen = set(action.lower().split()), set(observation.lower().split())
    both = len(said & seen)
    empty = math.inf if observation else 0.0
    return TurnStats(
        overlap=_share(both, len(said)),
        novelty=_share(len(seen - said), len(seen)),
        jaccard=_share(both, len(said | seen)),
        ratio=len(observation) / len(action) if action else empty,
        chars_action=len(action),
        chars_observation=len(observation),
    )


def classify(stats: TurnStats, thresholds: Thresholds | None = None) -> TurnClass:
    """The class of a turn; the first that fits, as :class:`Thresholds` lists them, else ``other``.

    An answer without words is an ``action``: it repeats nothing, and that nothing is said is what is learned.
    """
    at = thresholds or Thresholds()
    rules: tuple[tuple[TurnClass, bool], ...] = (
        ("echo", stats.overlap >= at.echo_overlap and stats.novelty < at.echo_novelty),
        (
            "boilerplate",
            stats.overlap >= at.boilerplate_overlap and stats.novelty < at.boilerplate_novelty,
        ),
        (
            "transform",
            stats.ratio < at.transform_ratio
            and stats.chars_action >= at.transform_action
            and stats.novelty >= at.transform_novelty,
        ),
        ("action", stats.chars_observation <= at.action_observation),
        (
            "retrieval",
            stats.overlap < at.retrieval_overlap
            and stats.novelty >= at.retrieval_novelty
            and stats.ratio >= at.retrieval_ratio,
        ),
        ("expansion", stats.novelty >= at.expansion_novelty and stats.ratio >= at.expansion_ratio),
    )
    return next((kind for kind, fits in rules if fits), "other")


def weigh(
    turns: Sequence[Transition],
    thresholds: Thresholds | None = None,
    shares: Mapping[TurnClass, float] | None = None,
) -> list[Weighed]:
    """Statistics, class and weight of every turn: the share of its class, 0 where it is no target.

    Raises:
        BadInput: a share that is missing or outside [0, 1].
    """
    kept = dict(SHARES) if shares is None else dict(shares)
    wrong = [kind for kind in CLASSES if not 0.0 <= kept.get(kind, -1.0) <= 1.0]
    if wrong:
        raise BadInput(f"the share of class {wrong[0]} is {kept.get(wrong[0])}", hint="shares are in [0, 1]")
    found = []
    for turn in turns:
        stats = turn_stats(turn.action, turn.observation)
        kind = classify(stats, thresholds)
        found.append(Weighed(stats, kind, 0.0 if turn.target is False else kept[kind]))
    return found


def loss_weights(
    turns: Sequence[Transition],
    thresholds: Thresholds | None = None,
    shares: Mapping[TurnClass, float] | None = None,
) -> list[tuple[TurnClass, float]]:
    """Class and loss weight of every turn.

    The weight is the share itself. A mask drawn with the share, by token (:func:`sampled_tokens`) or by
    turn (:func:`sampled_turns`), has the same expectation and more variance; the source leaves open which
    of the two it draws.
    """
    return [(one.kind, one.weight) for one in weigh(turns, thresholds, shares)]


def sampled_tokens(
    weights: Float[Array, "turns"], lengths: Int[Array, "turns"], seed: int
) -> Bool[Array, "tokens"]:
    """A mask in which every token of a turn stays with probability the turn's weight, by itself.

    Its expectation is the weights repeated by the lengths, so a masked sum of losses that is divided by a
    fixed number has the weighted loss as its expectation; divided by its own count it has not.
    """
    rng = np.random.default_rng(stream_of("masked tokens", seed))
    each = np.repeat(weights, lengths)
    return np.asarray(rng.random(len(each)) < each)


def sampled_turns(
    weights: Float[Array, "turns"], lengths: Int[Array, "turns"], seed: int
) -> Bool[Array, "tokens"]:
    """A mask in which all tokens of a turn stay or go together, with probability the turn's weight."""
    rng = np.random.default_rng(stream_of("masked turns", seed))
    return np.asarray(np.repeat(rng.random(len(weights)) < weights, lengths))
