"""One step ahead: what each action is worth if stopping, shipping or verifying comes right after it."""

from __future__ import annotations

from refork_methods.gate.belief import pass_chance, posterior, transition
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY
from refork_methods.gate.problem import Problem


def greedy_q(
    problem: Problem[float],
    belief: float,
    used: frozenset[str],
    candidate: int,
    *,
    fresh: float | None = None,
) -> dict[str, float]:
    """The one-step value of every open action.

    ``fresh`` is the belief in the next candidate; None takes what the refine kernel makes of this one. The
    source takes the prior, which is the same where candidates are drawn anew.

    Source: arXiv:2606.24453; the kernel, the used critics and shipping are ours.
    """
    p = problem
    table = settled(p, belief)
    if candidate + 1 < p.horizon:
        then = transition(belief, p.fix, p.breaks) if fresh is None else fresh
        table[GENERATE] = -p.generate + p.reward * then - p.verify
    for check in p.checks:
        if check.name in used:
            continue
        passes = pass_chance(belief, check.right, check.wrong)
        table[check.name] = -check.price
        for passed, share in ((True, passes), (False, 1 - passes)):
            moved = posterior(belief, check.right, check.wrong, passed)
            table[check.name] += share * max(settled(p, moved).values())
    return table


def settled(problem: Problem[float], belief: float) -> dict[str, float]:
    """What the actions that end the episode are worth at once."""
    table = {STOP: 0.0}
    if problem.ship_loss is not None:
        table[SHIP] = problem.reward * belief - problem.ship_loss * (1 - belief)
    table[VERIFY] = problem.reward * belief - problem.verify
    return table
