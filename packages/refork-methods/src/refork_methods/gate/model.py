"""What is known about a candidate before and after its checks: prior, critics, refine kernel, prices."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.jsonl import write_whole
from refork.plain import content_hash, from_json, to_json
from refork.settings import present_mark
from refork.types import Json
from refork_methods.decide import BetaRate

#: A chance learned from counts, or one known beforehand.
Rate: TypeAlias = BetaRate | float

Unit: TypeAlias = Literal["utility", "seconds", "tokens", "money"]

UNITS: tuple[Unit, ...] = ("utility", "seconds", "tokens", "money")

#: Names of actions, which no critic may carry.
STOP, VERIFY, GENERATE, SHIP = "stop", "verify", "generate", "ship"

ACTIONS = (STOP, SHIP, VERIFY, GENERATE)

KIND, VERSION = "refork gate policy", 1
#: Of files with classes of difficulty, which a build that plans without them must not read.
CLASSES_VERSION = 2

#: Two chances for each class of difficulty.
ByClass: TypeAlias = tuple[tuple[float, float], ...]


def chance(rate: Rate) -> float:
    """The chance to act on: the posterior mean of counts, or the known number itself."""
    return rate.mean if isinstance(rate, BetaRate) else float(rate)


def exact(rate: Rate) -> Fraction:
    """The same chance as a rational; a number is taken as its shortest decimal, 0.9 as 9/10."""
    if isinstance(rate, BetaRate):
        above, total = rate.successes + rate.a, rate.trials + rate.a + rate.b
        return rational(above) / rational(total)
    return rational(rate)


def rational(number: float) -> Fraction:
    """The rational that a number's shortest decimal denotes."""
    return Fraction(repr(float(number)))


def _checked(rate: Rate | None, what: str) -> None:
    if rate is None:
        raise BadInput(
            f"{what} is missing", hint="a critic needs its pass rate on right and on wrong candidates"
        )
    if not isinstance(rate, BetaRate) and not (math.isfinite(rate) and 0 <= rate <= 1):
        raise BadInput(f"{what} is {rate!r}; it must lie in [0, 1]")


def _checked_classes(classes: ByClass, what: str) -> None:
    for chances in classes:
        if not all(math.isfinite(one) and 0 <= one <= 1 for one in chances):
            raise BadInput(f"a class of difficulty of {what} has {chances}; chances lie in [0, 1]")


def _amount(amount: float, what: str) -> None:
    if not math.isfinite(amount) or amount < 0:
        raise BadInput(f"the {what} is {amount!r}; it must be a finite amount of 0 or more")


@final
@dataclass(frozen=True, slots=True)
class Critic:
    """A cheap check that passes a right candidate with chance ``alpha`` and a wrong one with ``beta``.

    ``classes``: the two chances in every class of difficulty, where the model has such.

    Raises: BadInput for a rate that is missing or outside [0, 1], a negative price, a name of an action.
    """

    name: str
    alpha: Rate
    beta: Rate
    price: float
    classes: ByClass = ()

    def __post_init__(self) -> None:
        _checked_classes(self.classes, f"critic {self.name!r}")
        if not self.name or self.name in ACTIONS:
            raise BadInput(
                f"a critic cannot be called {self.name!r}", hint=f"{', '.join(ACTIONS)} are actions"
            )
        _checked(self.alpha, f"alpha of critic {self.name!r}, P(pass | right),")
        _checked(self.beta, f"beta of critic {self.name!r}, P(pass | wrong),")
        _amount(self.price, f"price of critic {self.name!r}")

    @property
    def right(self) -> float:
        """P(pass | right)."""
        return chance(self.alpha)

    @property
    def wrong(self) -> float:
        """P(pass | wrong)."""
        return chance(self.beta)

    @property
    def gap(self) -> float:
        """How much it tells: ``alpha - beta``; 0 says nothing, below 0 passes the wrong more often."""
        return self.right - self.wrong


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """What a refinement does: ``fix`` is P(right | was wrong), ``breaks`` is P(wrong | was right).

    ``classes``: the two in every class of difficulty, where the model has such.

    Raises: BadInput for a rate that is missing or outside [0, 1].
    """

    fix: Rate
    breaks: Rate
    classes: ByClass = ()

    def __post_init__(self) -> None:
        _checked_classes(self.classes, "the kernel")
        _checked(self.fix, "P(fix)")
        _checked(self.breaks, "P(break)")

    @classmethod
    def resample(cls, prior: Rate) -> Kernel:
        """Draw a new candidate that does not depend on the old one."""
        return cls(prior, 1.0 - chance(prior))


@final
@dataclass(frozen=True, slots=True)
class CriticModel:
    """Prior, critics and refine kernel of one writer on one kind of task; ``meta``: what it was fitted on.

    Critics are taken to be independent given right or wrong; the independence test checks that.

    ``classes`` of difficulty are (share of the instances, prior) each; the critics and the kernel then have
    chances by class too, and an instance stays in its class whatever is drawn. All other numbers are those of
    the instances together. Without classes all instances are alike.

    Raises: BadInput for two critics of one name, a prior that is missing or outside [0, 1], or classes that
        are not everywhere as many, or whose shares are not 1 together.
    """

    prior: Rate
    critics: tuple[Critic, ...]
    kernel: Kernel
    meta: Json = field(default_factory=dict)
    classes: ByClass = ()

    def __post_init__(self) -> None:
        _checked(self.prior, "the prior chance of a right candidate")
        names = [critic.name for critic in self.critics]
        if len(set(names)) < len(names):
            raise BadInput(f"two critics have one name: {', '.join(sorted(names))}")
        _checked_classes(self.classes, "the model")
        counts = {len(self.classes), len(self.kernel.classes), *(len(c.classes) for c in self.critics)}
        if len(counts) > 1:
            raise BadInput("the model, its kernel and its critics have different numbers of classes")
        if self.classes and abs(sum(share for share, _ in self.classes) - 1) > 1e-9:
            raise BadInput("the shares of the classes of difficulty are not 1 together")

    @property
    def start(self) -> float:
        """The belief in a fresh candidate."""
        return chance(self.prior)

    @property
    def names(self) -> tuple[str, ...]:
        """The critics' names, in order."""
        return tuple(critic.name for critic in self.critics)

    def critic(self, name: str) -> Critic:
        """The critic of a name. Raises BadInput."""
        for critic in self.critics:
            if critic.name == name:
                return critic
        raise BadInput(f"there is no critic {name!r}", hint=f"one of {', '.join(self.names) or 'none'}")

    def only(self, names: Iterable[str]) -> CriticModel:
        """The same with these critics alone, in the order given. Raises BadInput."""
        return replace(self, critics=tuple(self.critic(name) for name in names))

    @property
    def parts(self) -> tuple[tuple[float, CriticModel], ...]:
        """Every class of difficulty as its share and a model of its own; the model itself without classes."""
        if not self.classes:
            return ((1.0, self),)
        made = []
        for number, (share, prior) in enumerate(self.classes):
            critics = tuple(Critic(c.name, *c.classes[number], c.price) for c in self.critics)
            made.append((share, CriticModel(prior, critics, Kernel(*self.kernel.classes[number]))))
        return tuple(made)

    @property
    def alike(self) -> CriticModel:
        """The same without classes of difficulty: all instances by their common numbers."""
        critics = tuple(replace(critic, classes=()) for critic in self.critics)
        return replace(self, critics=critics, kernel=replace(self.kernel, classes=()), classes=())

    def to_json(self) -> Json:
        """Plain fields, with the format's kind and version; classes only where there are any."""
        body = to_json(self)
        if not self.classes:
            for part in (body, body["kernel"], *body["critics"]):
                del part["classes"]
        return {"kind": KIND, "version": CLASSES_VERSION if self.classes else VERSION, **body}

    @classmethod
    def from_json(cls, data: Json) -> CriticModel:
        """Inverse of :meth:`to_json`. Raises BadInput for another kind or version, or for a bad field."""
        if not isinstance(data, Mapping) or present_mark(data.get("kind")) != KIND:
            raise BadInput("this is no gate policy", hint="write one with: refork gate fit")
        if data.get("version") not in (VERSION, CLASSES_VERSION):
            raise BadInput(
                f"gate policy version {data.get('version')!r}; this build reads {VERSION} and "
                f"{CLASSES_VERSION}"
            )
        return from_json(cls, data)


@final
@dataclass(frozen=True, slots=True)
class Prices:
    """What a right candidate earns, and what verifying, generating and shipping wrong cost, in one unit.

    ``ship_loss`` None: an unverified candidate cannot be shipped. The critics carry their own prices.

    Raises: BadInput for a negative or non-finite amount, or an unknown unit.
    """

    reward: float = 100.0
    verify: float = 30.0
    generate: float = 5.0
    ship_loss: float | None = None
    unit: Unit = "utility"

    def __post_init__(self) -> None:
        for name in ("reward", "verify", "generate"):
            _amount(getattr(self, name), f"price {name!r}" if name != "reward" else "reward")
        if self.ship_loss is not None:
            _amount(self.ship_loss, "loss of shipping a wrong candidate")
        if self.unit not in UNITS:
            raise BadInput(f"unknown unit {self.unit!r}", hint=f"one of {', '.join(UNITS)}")


def write_policy(path: Path, model: CriticModel, prices: Prices | None = None) -> None:
    """Write a policy file with its digest, whole or not at all; the prices go with it where given."""
    data = model.to_json() | ({} if prices is None else {"prices": to_json(prices)})
    # The digest covers all but itself, and read_policy takes it out before it compares.
    data = {"digest": content_hash(data), **data}
    write_whole(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_policy(path: Path) -> tuple[CriticModel, Prices | None]:
    """The model of a policy file, and its prices where it has them.

    Raises: BadInput for what is no policy file, or one whose digest is not that of its content. A file
        without a digest, as written by hand, is read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"this policy file cannot be read: {error}", where=str(path)) from error
    digest = data.pop("digest", None) if isinstance(data, dict) else None
    if digest is not None and digest != content_hash(data):
        raise BadInput(
            "this policy file was changed after it was written",
            where=str(path),
            hint="fit it again, or take out its digest to stand by the change",
        )
    try:
        model = CriticModel.from_json(data)
        given = data.get("prices")
        # A default is for who writes code; a file that leaves a price out does not say that it is so.
        unknown = [name for name in ("reward", "verify", "generate") if given and name not in given]
        if unknown:
            raise BadInput(f"the prices have no {unknown[0]!r}")
        return model, from_json(Prices, given) if given else None
    except BadInput as error:
        raise BadInput(error.what, where=str(path), hint=error.hint) from error


# The same problem with one number changed.

Setting: TypeAlias = tuple[CriticModel, Prices]

_PRICES = ("reward", "verify", "generate", "ship_loss")

_KERNEL = ("fix", "breaks")

_CRITIC = ("alpha", "beta", "gap", "price")


def parameters(model: CriticModel, prices: Prices) -> list[str]:
    """Every number of a problem by name: ``prior``, ``fix``, ``alpha:test``, ``verify`` and so on.

    With classes of difficulty the prices alone: no other is one number then.
    """
    names = [] if model.classes else ["prior", *_KERNEL]
    sides = ("price",) if model.classes else ("alpha", "beta", "price")
    names += [f"{side}:{critic}" for critic in model.names for side in sides]
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
    if model.classes and not (name in _PRICES or kind == "price"):
        raise BadInput(
            f"{name!r} is another number in every class of difficulty, so it cannot be varied as one",
            hint="vary a price, or fit with --classes 1",
        )
    if kind in _CRITIC and critic:
        return _with_critic(model, critic, lambda old: _changed(old, kind, value)), prices
    if name == "prior":
        fix, breaks = chance(model.kernel.fix), chance(model.kernel.breaks)
        # By the numbers, since a model given on the command line has no meta that would say so.
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
