"""Replay without held-out records: every instance by a model that was fitted without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from refork.errors import BadInput
from refork_methods.gate.evaluate import worth
from refork_methods.gate.fit import fit_critics
from refork_methods.gate.model import CriticModel, Prices
from refork_methods.gate.policy import Policy, Verify
from refork_methods.gate.problem import in_floats
from refork_methods.gate.records import Record, completed, labelled
from refork_methods.gate.replay import Costs, Replay, episodes, replay

#: The policies that a fitted model gives, by name.
Policies: TypeAlias = Callable[[CriticModel], Mapping[str, Policy]]


def cross_replay(
    policies: Policies,
    records: Sequence[Record],
    critic_prices: Mapping[str, float],
    prices: Prices,
    *,
    folds: int | None = None,
    seed: int = 0,
    horizon: int = 3,
    verify: Verify = "terminal",
    costs: Costs = "prices",
    changed_only: bool = False,
) -> tuple[dict[str, Replay], dict[str, float]]:
    """Replays of policies, and what their models promised, averaged over instances.

    Only instances with an episode of ``horizon`` candidates are replayed; all are fitted on. They are dealt
    into ``folds`` (None: one instance each, leaving one out); those of a fold are replayed by policies whose
    model was fitted on all others.

    Raises: BadInput for fewer than two folds, more folds than instances, or as fit and replay.
    Source: arXiv:2606.24453 calibrates leaving one out; fewer folds are ours.
    """
    everything = completed(records)
    found = episodes(labelled(everything).records)
    names = sorted({e.instance for e in found if len(e.candidates) >= horizon})
    count = len(names) if folds is None else folds
    if not 2 <= count <= len(names):
        raise BadInput(f"{count} folds of {len(names)} instances", hint="2 up to one for each instance")
    order = np.random.default_rng(seed).permutation(len(names))
    parts: dict[str, list[Replay]] = {}
    promised: dict[str, list[tuple[float, int]]] = {}
    for fold in range(count):
        mine = {names[i] for i in order[fold::count]}
        rest = [r for r in everything if r.instance not in mine]
        model = fit_critics(rest, critic_prices, critics=list(critic_prices), changed_only=changed_only)
        held = [r for r in everything if r.instance in mine]
        for name, policy in policies(model).items():
            one = replay(policy, held, model, prices, horizon=horizon, verify=verify, costs=costs)
            parts.setdefault(name, []).append(one)
            value = worth(policy, in_floats(model, prices, horizon, verify))
            promised.setdefault(name, []).append((value, len(one.instances)))
    means = {
        name: float(np.average([v for v, _ in of], weights=[n for _, n in of]))
        for name, of in promised.items()
    }
    # Instances without a long episode are in no fold; the others count their own short ones.
    alone = sum(e.instance not in set(names) for e in found)
    ends = {name: merged(of) for name, of in parts.items()}
    return {name: replace(one, short=one.short + alone) for name, one in ends.items()}, means


def merged(replays: Sequence[Replay]) -> Replay:
    """Replays of one policy on different instances as one. Raises BadInput for none, or a shared instance."""
    if not replays:
        raise BadInput("there is no replay to merge")
    names = tuple(name for one in replays for name in one.instances)
    if len(set(names)) < len(names):
        raise BadInput("two replays share an instance")
    total = sum(one.episodes for one in replays)
    taken: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for one in replays:
        dropped.update(one.dropped)
        for action, mean in one.actions.items():
            taken[action] += round(mean * one.episodes)
    return Replay(
        replays[0].policy,
        names,
        np.concatenate([one.utilities for one in replays]),
        np.concatenate([one.solved for one in replays]),
        np.concatenate([one.spent for one in replays]),
        {action: n / total for action, n in sorted(taken.items())},
        sum(one.failed_calls for one in replays),
        np.concatenate([one.beliefs for one in replays]),
        np.concatenate([one.right for one in replays]),
        total,
        sum(one.short for one in replays),
        dict(dropped),
        tuple(dict.fromkeys(words for one in replays for words in one.warnings)),
    )
