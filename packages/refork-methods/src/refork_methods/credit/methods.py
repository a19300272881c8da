"""Credit methods by name: each turns the paths of one task and their outcomes into advantages per token."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.registry import resolve
from refork.tree.node import Node, Trajectory

if TYPE_CHECKING:
    from refork_methods.implicit.pair import ImplicitPair

Floats = NDArray[np.float64]
Normalise = Literal["std", "mean"]


class Credit(Protocol):
    """The shared seam: paths of one task and their outcomes in, advantages per token of each of them out."""

    def __call__(self, trajectories: Sequence[Trajectory], outcomes: ArrayLike) -> Sequence[ArrayLike]:
        """One float64 array per trajectory, one number per token (verdicts left out); NaN: not computable."""
        ...


def credit_method(name: str, /, **options: Any) -> Credit:
    """The credit method of a name with its options set: keyword arguments of what the name stands for.

    A name is one of the registry's ``credits``, ``module:function`` or ``file.py:function``.

    Raises:
        BadInput: no such method, or an option that it does not have.
    """
    found: Callable[..., Sequence[ArrayLike]] = resolve("credits", name)
    # What a partial has set is what its name says.
    fixed = found.keywords if isinstance(found, partial) else {}
    known = inspect.signature(found).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
        # The first two are the seam's own, whatever a third party calls them: no option may set them.
        open_ = sorted(set(list(known)[2:]) - set(fixed))
        unknown = sorted(set(options) - set(open_))
        if unknown:
            raise BadInput(
                f"credit {name} has no option {unknown[0]!r}", hint=f"options: {', '.join(open_) or 'none'}"
            )
    return partial(found, **options)


def group_credit(
    trajectories: Sequence[Trajectory], outcomes: ArrayLike, *, normalise: Normalise = "std"
) -> list[Floats]:
    """Every token of a trajectory gets the trajectory's outcome minus the group's mean: the credit of GRPO.

    Args:
        trajectories: trajectories of one task.
        outcomes: floats [trajectories]; NaN is ungraded, takes no part in the mean, and stays NaN.
        normalise: ``std`` also divides by the group's deviation (GRPO, arXiv 2402.03300); ``mean`` does
            not (Dr. GRPO, arXiv 2503.20783).
    """
    from refork_methods.train.policy_gradient import group_advantages

    if normalise not in ("std", "mean"):
        raise BadInput(f"unknown normalisation {normalise!r}", hint="known: std, mean")
    earned = np.asarray(outcomes).ravel()
    if len(earned) != len(trajectories):
        raise BadInput(f"{len(trajectories)} trajectories but {len(earned)} outcomes", where="credit")
    given = group_advantages(earned, np.zeros(len(earned)), normalise)
    return [
        np.full(walk_length(trajectory), value) for trajectory, value in zip(trajectories, given, strict=True)
    ]


def fixed_pair(pair: ImplicitPair, **options: Any) -> Credit:
    """Implicit credit scored by two fixed checkpoints, whoever sampled: what a policy may be trained on.

    Args:
        pair: policy and reference, which stay as they are while another policy trains.
        options: of :func:`refork_methods.implicit.implicit_advantages`.
    """
    from refork_methods.implicit.on_tree import implicit_advantages, model_pairs, walk_values

    def credit(trajectories: Sequence[Trajectory], outcomes: ArrayLike) -> list[Floats]:
        values = walk_values(trajectories, model_pairs(trajectories, pair), pair.beta)
        return implicit_advantages(trajectories, outcomes, scores=values, **options)

    return credit


def walk_length(trajectory: Trajectory) -> int:
    """Tokens of a trajectory, verdicts left out: the length of its advantages."""
    return sum(size for _, size in spoken(trajectory))


def spoken(trajectory: Trajectory) -> list[tuple[Node, int]]:
    """The events of a trajectory that hold tokens, and how many of them it keeps; verdicts left out."""
    return [(s.node, len(s.tokens)) for s in trajectory if s.node.kind != "verdict" and s.tokens is not None]


def shared_mean(trajectories: Sequence[Trajectory], advantages: Sequence[ArrayLike]) -> list[Floats]:
    """The same advantages, a token that several trajectories share having the mean of theirs in each of them.

    Such a token was sampled once. Learned once with this mean, it gets the gradient that it would get
    from all its trajectories together, divided by their number. NaN takes no part; NaN everywhere stays NaN.

    Raises:
        BadInput: an array of another length than its trajectory.
    """
    sums: dict[str, Floats] = {}
    counts: dict[str, Floats] = {}
    parts: list[list[tuple[Node, int]]] = []
    for trajectory, given in zip(trajectories, advantages, strict=True):
        values = np.asarray(given, dtype=np.float64).ravel()
        if len(values) != walk_length(trajectory):
            raise BadInput(f"{len(values)} advantages for a trajectory of {walk_length(trajectory)} tokens")
        mine = spoken(trajectory)
        parts.append(mine)
        ends = np.cumsum([size for _, size in mine])
        # np.split gives one part more than there are ends, the empty rest: hence not strict.
        for (node, size), part in zip(mine, np.split(values, ends), strict=False):
            known = np.isfinite(part)
            total = sums.setdefault(node.id, np.zeros(node.length))
            total[:size] += np.where(known, part, 0.0)
            counts.setdefault(node.id, np.zeros(node.length))[:size] += known
    # 0 / 0 is meant: no trajectory had a number for this token, and NaN says so.
    with np.errstate(invalid="ignore"):
        means = {name: sums[name] / counts[name] for name in sums}
    return [np.concatenate([np.zeros(0), *(means[n.id][:size] for n, size in mine)]) for mine in parts]
