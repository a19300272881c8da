"""Chains whose success probability is known exactly after every token, with falls planted where one likes.

A planted chain is a policy like any other (it samples, scores and pairs), so every estimate made through the
policy seam can be held against the truth.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.policies.base import Policy, Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.node import NewNode, Point
from refork.types import IntArray, token_array

Floats = NDArray[np.float64]
Table = Mapping[str, Mapping[str, float]]

RIGHT, WRONG = " right", " wrong"


def absorbing_values(transition: ArrayLike, reward: ArrayLike) -> Floats:
    """Expected reward from every state of an absorbing chain, [states], by a linear solve.

    ``transition`` [states, states]: rows sum to 1, or are all 0 where the chain ends. ``reward`` [states]:
    what an end pays.

    Raises: BadInput for rows that are no distribution.
    """
    step, pay = np.asarray(transition, dtype=np.float64), np.asarray(reward, dtype=np.float64)
    rows = step.sum(axis=1)
    if (step < 0).any() or not np.all((np.abs(rows - 1) < 1e-9) | (rows == 0)):
        raise BadInput("a row of the transition matrix neither sums to 1 nor is all zeros", where="chain")
    ends = np.where(rows == 0, pay, 0.0)
    return np.asarray(np.linalg.solve(np.eye(len(pay)) - step, ends))


@dataclass(frozen=True, slots=True)
class PlantedChain:
    """A policy with one trunk of T tokens whose exact values are known.

    ``values`` [T + 1] before each token and at the end; ``chances`` [T] of saying it. ``text`` is the trunk.
    """

    table: Table
    text: str
    values: Floats
    chances: Floats

    def policy(self) -> ScriptedPolicy:
        """The chain as a policy."""
        return ScriptedPolicy.from_chain(self.table, name="planted-chain")


def planted_chain(values: ArrayLike, chances: ArrayLike) -> PlantedChain:
    """A chain whose trunk has exactly these values and token probabilities.

    ``values`` [T + 1]: the chance of success before each token; the last is the trunk's own outcome, 0 or
    1. ``chances`` [T], in (0, 1). Whoever leaves the trunk says one token more and is right with the
    probability that makes the value before come out.

    Raises:
        BadInput: values that no distribution can have: a drop larger than ``(1 - pi) (1 - V)``, or a rise
        likewise.
    """
    v, pi = np.asarray(values, dtype=np.float64), np.asarray(chances, dtype=np.float64)
    if len(v) != len(pi) + 1 or len(pi) < 1 or v[-1] not in (0.0, 1.0):
        raise BadInput("T tokens need T + 1 values, the last of them 0 or 1", where="planted chain")
    if ((pi <= 0) | (pi >= 1)).any():
        raise BadInput("a token's probability must lie strictly between 0 and 1", where="planted chain")
    off = (v[:-1] - pi * v[1:]) / (1 - pi)
    if ((off < -1e-12) | (off > 1 + 1e-12)).any():
        at = int(np.flatnonzero((off < -1e-12) | (off > 1 + 1e-12))[0])
        raise BadInput(
            f"no distribution falls from {v[at]:g} to {v[at + 1]:g} at a token of probability {pi[at]:g}",
            where=f"planted chain, token {at}",
            hint="a drop is at most (1 - pi) * (1 - value after)",
        )
    off = np.clip(off, 0.0, 1.0)
    last = RIGHT if v[-1] == 1.0 else WRONG
    trunk = [f" t{i}" for i in range(1, len(pi))] + [last]
    table: dict[str, dict[str, float]] = {RIGHT: {"": 1.0}, WRONG: {"": 1.0}}
    for i, state in enumerate(["", *trunk[:-1]]):
        table[state] = {trunk[i]: float(pi[i]), f" o{i}": float(1 - pi[i])}
        table[f" o{i}"] = {RIGHT: float(off[i]), WRONG: float(1 - off[i])}
    return PlantedChain(table, "".join(trunk), v, pi)


def flat_chain(
    length: int, before: float, after: float, at: Sequence[int] = (), chance: float = 0.87, low: float = 0.3
) -> PlantedChain:
    """A wrong trunk of ``length`` tokens: value ``before``, fallen to ``after`` from the token ``at[0]`` on.

    Tokens that fall are said with probability ``low``, all others with ``chance``; the last token ends it.
    """
    values = np.full(length + 1, before)
    chances = np.full(length, chance)
    for token in at:
        values[token + 1 :] = after
        chances[token] = low
    values[-1] = 0.0
    # A fall from V to 0 needs a token of probability 1 - V or less.
    chances[-1] = min(chances[-1], 1 - values[-2])
    return planted_chain(values, chances)


def record_trace(
    start: Point, policy: Policy, tokens: IntArray | str, settings: Sampling | None = None
) -> Point:
    """The end of a given trace, recorded below ``start`` with the policy's own log-probs.

    For traces that were sampled elsewhere, at temperature 1 without filters: token ids, or a text of
    which each token is known. The same trace again is found, not doubled.

    Raises: BadInput for other settings: their log-probs cannot be computed from the seam.
    """
    sampling = settings or Sampling()
    if sampling.distribution != Sampling().distribution:
        raise BadInput("a trace can be recorded from its tokens only at temperature 1 without filters")
    if start.tree is None:
        raise BadInput("this point belongs to no tree; take it with tree.at(node)")
    ids = policy.encode(tokens) if isinstance(tokens, str) else token_array(tokens)
    prefix = start.tree.path(start).tokens
    whole = token_array(np.concatenate([prefix, ids]))
    # A sequence's first token has no log-prob, so those of the trace begin one place earlier.
    logprobs = policy.logprobs([whole])[0][len(prefix) - 1 :]
    ends = token_array([len(policy.decode(ids[: i + 1])) for i in range(len(ids))])
    draft = NewNode(
        kind="action",
        parent=start.node.id,
        keep=start.keep if start.mid_node else None,
        key="trace/" + "-".join(map(str, ids.tolist())),
        text=policy.decode(ids),
        tokens=ids,
        offsets=ends,
        logprobs=logprobs,
        logprobs_t1=logprobs,
        policy=policy.card.name,
        weights=policy.card.weights,
        settings=sampling.to_json(),
        finish="stop",
    )
    return start.tree.at(start.tree.append([draft])[0])
