"""Calibration records drawn from a known critic model: what a fit must find again, and examples to try."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from refork.errors import BadInput
from refork_methods.gate.model import CriticModel, Prices, chance
from refork_methods.gate.records import Record


def planted_records(
    model: CriticModel,
    instances: int = 100,
    *,
    draws: int = 1,
    steps: int = 3,
    seed: int = 0,
    prices: Prices | None = None,
    copies: Mapping[str, str] | None = None,
    failed: float = 0.0,
    prefix: str = "task",
) -> tuple[Record, ...]:
    """Candidates of ``instances``: each draw right with the prior's chance, then refined ``steps - 1`` times.

    With classes of difficulty each instance is of one, whose chances hold for all its draws. Verdicts are
    independent given the outcome, except for ``copies``, which repeat another critic's (new
    name to old name). ``failed`` is the share of critic calls without a verdict. With ``prices``, what every
    call cost is recorded.

    Raises: BadInput for fewer than one of anything, or a copy of an unknown critic.
    """
    if min(instances, draws, steps) < 1 or not 0 <= failed < 1:
        raise BadInput(f"{instances} instances of {draws} draws of {steps} steps, {failed:g} failed calls")
    for old in (copies or {}).values():
        model.critic(old)
    rng = np.random.default_rng(seed)
    shares = [share for share, _ in model.parts]
    costs = {critic.name: critic.price for critic in model.critics}
    costs |= {} if prices is None else {"verify": prices.verify, "generate": prices.generate}
    made = []
    for number in range(instances):
        mine = model if len(shares) == 1 else model.parts[int(rng.choice(len(shares), p=shares))][1]
        fix, breaks = chance(mine.kernel.fix), chance(mine.kernel.breaks)
        for draw in range(draws):
            right = bool(rng.random() < mine.start)
            for step in range(steps):
                if step:
                    right = bool(rng.random() < (1 - breaks if right else fix))
                verdicts: dict[str, bool | None] = {}
                for critic in mine.critics:
                    passed = bool(rng.random() < (critic.right if right else critic.wrong))
                    verdicts[critic.name] = None if rng.random() < failed else passed
                verdicts |= {new: verdicts[old] for new, old in (copies or {}).items()}
                name = f"{prefix}-{number}"
                digest = hashlib.sha256(f"{seed}/{name}/{draw}/{step}".encode()).hexdigest()
                made.append(
                    Record(
                        name,
                        str(draw),
                        right,
                        verdicts,
                        {} if prices is None else dict(costs),
                        step if steps > 1 else None,
                        digest,
                    )
                )
    return tuple(made)
