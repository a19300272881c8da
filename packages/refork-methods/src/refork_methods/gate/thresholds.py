"""Closed forms for one critic and no refinement: where verifying pays, and where the critic has a niche."""

from __future__ import annotations

from dataclasses import dataclass

from refork_methods.decide import break_even, crossing
from refork_methods.gate.model import Critic, Prices
from refork_methods.gate.policy import checked, pass_chance, posterior


@dataclass(frozen=True, slots=True)
class Niche:
    """The beliefs at which running a critic first beats both stopping and verifying: ``low < b < high``.

    ``exists`` is False where there are none; the two lines are then only where the critic's line crosses.
    ``trusts_fail``: the critic is the other way round, and a fail is what leads to verifying.
    """

    low: float
    high: float
    exists: bool
    trusts_fail: bool = False


def verify_line(prices: Prices) -> float:
    """The belief above which verifying beats stopping: price over reward; infinite without a reward."""
    return break_even(prices.reward, price=prices.verify) if prices.reward or prices.verify else 0.0


def critic_niche(critic: Critic, prices: Prices) -> Niche:
    """Where one critic is worth its price: run it, verify on a pass, stop on a fail.

    ``low = (c + beta C) / (alpha R - (alpha - beta) C)``, and
    ``high = ((1 - beta) C - c) / ((1 - alpha) R + (alpha - beta) C)``, with critic price c, verifier price C,
    reward R. Without signal (alpha = beta) a niche needs c < 0: such a critic is never bought at a price.

    Source: the model of arXiv:2606.24453; the closed forms are ours.
    """
    other_way = critic.gap < 0
    alpha, beta = (1 - critic.right, 1 - critic.wrong) if other_way else (critic.right, critic.wrong)
    reward, verify = prices.reward, prices.verify
    run = (-critic.price - beta * verify, -critic.price + alpha * (reward - verify))
    low = crossing(run, (0.0, 0.0))
    high = crossing(run, (-verify, reward - verify))
    # Without signal and price both crossings lie at one belief, where rounding alone could open a niche.
    if low is None or high is None or critic.gap == 0:
        return Niche(low if low is not None else 1.0, high if high is not None else 0.0, False, other_way)
    # Above stopping on its right, above verifying on its left: only lines that lean so leave a niche.
    leans = run[1] > run[0] and run[1] - run[0] < reward
    return Niche(low, high, leans and max(low, 0.0) < min(high, 1.0), other_way)


def critic_worth(critic: Critic, prices: Prices, belief: float) -> float:
    """What running a critic once adds to the better of stopping and verifying, its price paid.

    Exactly minus its price where alpha = beta: the zero-signal theorem. Raises BadInput for no chance.
    """
    b = checked(belief)
    passes = pass_chance(b, critic.right, critic.wrong)
    worth = -critic.price - _settled(b, prices)
    for passed, share in ((True, passes), (False, 1 - passes)):
        worth += share * _settled(posterior(b, critic.right, critic.wrong, passed), prices)
    return worth


def ship_line(prices: Prices, again: float = 0.0) -> float | None:
    """The belief above which shipping unverified beats verifying; None where shipping is not open.

    The reward is paid either way, so verifying only guards against the loss: it pays while the chance of
    being wrong is above price / loss. ``again`` is what a refused candidate is still worth, 0 where verifying
    ends the episode; it adds to the loss that verifying avoids. Below 0: never verify. Raises BadInput.
    """
    if prices.ship_loss is None:
        return None
    guarded = prices.ship_loss + again
    if guarded == 0 and prices.verify == 0:
        return 0.0
    return 1 - break_even(guarded, price=prices.verify)


def _settled(belief: float, prices: Prices) -> float:
    return max(0.0, prices.reward * belief - prices.verify)
