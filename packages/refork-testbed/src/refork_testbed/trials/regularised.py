"""Any tabular policy under the KL-regularised objective: its value, and exact gradient ascent on it.

What :mod:`~refork_methods.implicit.soft_values` solves in one sweep, a trainer approaches step by
step; here every expectation is a sum, so that nothing but the number of updates separates the two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput
from refork_methods.implicit.soft_values import FiniteMdp, Floats, check_beta, policy_rows


def regularised_values(
    mdp: FiniteMdp, policy: ArrayLike, reference: ArrayLike, beta: float
) -> tuple[Floats, Floats]:
    """V [H + 1, S] and Q [H, S, A] of a policy when every nat of divergence from the reference costs beta.

    V(s) = E_policy[Q - beta log(policy / reference)]; no maximum and no log-sum-exp is taken, so at the
    optimum it checks the solver by another way.
    """
    check_beta(beta)
    distribution, ref = policy_rows(mdp, policy, "policy"), policy_rows(mdp, reference, "reference")
    price = beta * (np.log(distribution) - np.log(ref))
    values = np.zeros((mdp.steps + 1, len(mdp.over)))
    quality = np.zeros(distribution.shape)
    paid = (mdp.chances * mdp.rewards).sum(-1)
    for step in reversed(range(mdp.steps)):
        quality[step] = paid + mdp.chances @ values[step + 1]
        values[step] = (distribution[step] * (quality[step] - price[step])).sum(-1)
    return values, quality


def visits(mdp: FiniteMdp, policy: ArrayLike, start: int = 0) -> Floats:
    """Probability of being in each state at each step, [H, S]."""
    distribution = policy_rows(mdp, policy, "policy")
    found = np.zeros(distribution.shape[:2])
    found[0, start] = 1.0
    for step in range(mdp.steps - 1):
        found[step + 1] = np.einsum("s,sa,sat->t", found[step], distribution[step], mdp.chances)
    return found


def softmax(logits: Floats) -> Floats:
    """Probabilities of logits, over the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def exact_gradient(
    mdp: FiniteMdp, logits: Floats, reference: ArrayLike, beta: float, start: int = 0
) -> Floats:
    """Gradient [H, S, A] of the regularised objective in the logits of a tabular softmax policy.

    visits(s) * policy(a|s) * (Q(s, a) - beta log(policy / reference) - V(s)), with Q and V of the policy.
    """
    distribution, ref = softmax(logits), policy_rows(mdp, reference, "reference")
    values, quality = regularised_values(mdp, distribution, ref, beta)
    gain = quality - beta * (np.log(distribution) - np.log(ref)) - values[:-1, :, None]
    return np.asarray(visits(mdp, distribution, start)[:, :, None] * distribution * gain)


def ascend(
    mdp: FiniteMdp, reference: ArrayLike, beta: float, updates: int, *, rate: float, start: int = 0
) -> Floats:
    """The policy [H, S, A] after ``updates`` steps of exact gradient ascent that begin at the reference."""
    if updates < 0 or rate <= 0:
        raise BadInput("updates must be 0 or more and the rate above 0", where="exact policy gradient")
    ref = policy_rows(mdp, reference, "reference")
    logits = np.log(ref).copy()
    for _ in range(updates):
        logits += rate * exact_gradient(mdp, logits, ref, beta, start)
    return softmax(logits)
