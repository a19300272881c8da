"""One sentence that says why an action was chosen."""

from __future__ import annotations

from collections.abc import Mapping

from refork_methods.gate.belief import State, after, pass_chance, refined
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices


def reason_for(action: str, q: Mapping[str, float], state: State, model: CriticModel, prices: Prices) -> str:
    """Why ``action``: what it nets, what it leads to, and how far the next best is behind."""
    others = {name: value for name, value in q.items() if name != action}
    if action == STOP and not others:
        return "the verifier refused the last candidate; nothing else is open"
    if action == STOP:
        best = max(others, key=lambda name: others[name])
        return (
            f"at a belief of {state.belief:.3f} nothing is worth its price; "
            f"the best of the rest, {best}, nets {others[best]:+.2f}"
        )
    # A critic that tells nothing only puts off what comes after it; it is no alternative.
    idle = {critic.name for critic in model.critics if critic.gap == 0}
    second = max((name for name in others if name not in idle), key=lambda name: others[name])
    lead = f"{q[action]:+.2f} against {others[second]:+.2f} for {second}"
    if action == VERIFY:
        return (
            f"a belief of {state.belief:.3f} makes the reward of {prices.reward:g} "
            f"worth the verifier's {prices.verify:g}: {lead}"
        )
    if action == SHIP:
        return f"the chance of being wrong, {1 - state.belief:.3f}, does not pay for a verification: {lead}"
    if action == GENERATE:
        return (
            f"a new candidate for {prices.generate:g} moves the belief from {state.belief:.3f} "
            f"to {refined(state.belief, model.kernel):.3f}: {lead}"
        )
    critic = model.critic(action)
    up, down = (after(state.belief, critic, passed) for passed in (True, False))
    share = pass_chance(state.belief, critic.right, critic.wrong)
    return (
        f"for {critic.price:g}, {action} moves the belief from {state.belief:.3f} to {up:.3f} "
        f"if it passes (chance {share:.2f}) and to {down:.3f} if not: {lead}"
    )
