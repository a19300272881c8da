"""Schedules by name, as the command line and recipes give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from refork.errors import BadInput
from refork_methods.speculate.schedule import Mode, PrefixScheduler
from refork_methods.speculate.step_cost import StepCost


def schedule_of(name: str, cost: StepCost) -> PrefixScheduler:
    """The schedule of a name: ``early_stop``, ``stale_topk:2``, ``fixed:4``, ``static_threshold:0.5``.

    Raises:
        BadInput: no such rule, or a number that is none.
    """
    mode, _, number = name.partition(":")
    known = get_args(Mode)
    if mode not in known:
        raise BadInput(f"there is no schedule {name!r}", hint=", ".join(known))
    try:
        if mode == "fixed":
            return PrefixScheduler(cost, "fixed", length=int(number))
        if mode == "top_k":
            return PrefixScheduler(cost, "top_k", budget=int(number))
        if mode == "static_threshold":
            return PrefixScheduler(cost, "static_threshold", threshold=float(number))
        if mode == "stale_topk" and number:
            return PrefixScheduler(cost, "stale_topk", staleness=int(number))
    except ValueError as error:
        raise BadInput(
            f"{number!r} in {name!r} is no number", hint="fixed:4, static_threshold:0.5"
        ) from error
    if number:
        raise BadInput(f"{mode} takes no number", where=name)
    found: PrefixScheduler = _plain(known, mode, cost)
    return found


def _plain(known: Sequence[Mode], mode: str, cost: StepCost) -> PrefixScheduler:
    return PrefixScheduler(cost, next(one for one in known if one == mode))


def schedules_of(names: Sequence[str] | None, cost: StepCost) -> dict[str, PrefixScheduler]:
    """Schedules by name; by default the paper's two, vLLM's rule, and half a block for all.

    Raises:
        BadInput: as :func:`schedule_of`.
    """
    chosen = names or ("early_stop", "stale_topk", "vllm", "fixed:3")
    return {name: schedule_of(name, cost) for name in chosen}
