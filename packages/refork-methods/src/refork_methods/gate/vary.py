"""The same problem with one number changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from refork.errors import BadInput
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices, chance

Setting: TypeAlias = tuple[CriticModel, Prices]
_PRICES = ("reward", "verify", "generate", "ship_loss")
_KERNEL = ("fix", "breaks")
_CRITIC = ("alpha", "beta", "gap", "price")


def parameters(model: CriticModel, prices: Prices) -> list[str]:
    """Every number of a problem by name: ``prior``, ``fix``, ``alpha:test``, ``verify`` and so on."""
    names = ["prior", *_KERNEL]
    names += [f"{side}:{critic}" for critic in model.names for side in ("alpha", "beta", "price")]
    names += [name for name in _PRICES if getattr(prices, name) is not None]
    return names


def present(model: CriticModel, prices: Prices, name: str) -> float:
    """What a parameter is now. Raises BadInput for one that is not there."""
    kind, _, critic = name.partition(":")
    if kind in _CRITIC and critic:
        found = model.critic(critic)
        return {"alpha": found.right, "beta": found.wrong, "gap": found.gap, "price": found.price}[kind]
    if name == "prior":
        return model.start
    if name in _KERNEL:
        return chance(getattr(model.kernel, name))
    if name in _PRICES and getattr(prices, name) is not None:
        return float(getattr(prices, name))
    raise _unknown(model, prices, name)


def varied(model: CriticModel, prices: Prices, name: str, value: float) -> Setting:
    """The model and the prices with one parameter set to a known value.

    A kernel that draws anew (fix = prior, breaks = 1 - prior) goes on drawing anew when the prior changes.
    ``gap:CRITIC`` keeps its alpha and moves its beta; where that would be negative, beta is 0, alpha the gap.

    Raises: BadInput for a parameter that is not there, or a value it cannot have.
    """
    kind, _, critic = name.partition(":")
    if kind in _CRITIC and critic:
        return _with_critic(model, critic, lambda old: _changed(old, kind, value)), prices
    if name == "prior":
        fix, breaks = chance(model.kernel.fix), chance(model.kernel.breaks)
        anew = abs(fix - model.start) < 1e-12 and abs(breaks - 1 + model.start) < 1e-12
        kernel = Kernel.resample(value) if anew else model.kernel
        return replace(model, prior=value, kernel=kernel), prices
    if name in _KERNEL:
        sides = {side: getattr(model.kernel, side) for side in _KERNEL} | {name: value}
        return replace(model, kernel=Kernel(sides["fix"], sides["breaks"])), prices
    if name in _PRICES:
        amounts = {field: getattr(prices, field) for field in _PRICES} | {name: value}
        return model, Prices(**amounts, unit=prices.unit)
    raise _unknown(model, prices, name)


def _with_critic(model: CriticModel, name: str, change: Callable[[Critic], Critic]) -> CriticModel:
    model.critic(name)
    return replace(model, critics=tuple(change(c) if c.name == name else c for c in model.critics))


def _changed(critic: Critic, kind: str, value: float) -> Critic:
    if kind == "gap":
        beta = critic.right - value
        return replace(critic, alpha=critic.right if beta >= 0 else value, beta=max(beta, 0.0))
    if kind == "price":
        return replace(critic, price=value)
    return replace(critic, alpha=value) if kind == "alpha" else replace(critic, beta=value)


def _unknown(model: CriticModel, prices: Prices, name: str) -> BadInput:
    gaps = [f"gap:{critic}" for critic in model.names]
    return BadInput(
        f"there is no parameter {name!r}", hint=f"one of {', '.join(parameters(model, prices) + gaps)}"
    )
