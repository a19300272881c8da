"""Priors of a theory's parameters: parsed from text, none of it run, and sampled by a generator."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.types import Json

#: One array for each parameter: [people], or [people, n] for a list of n values.
Parameters: TypeAlias = dict[str, NDArray[Any]]
_EXAMPLE = "[0.1, 20], {1, 2, 5}, [(0, 1)] * n_features, validities, or a number"


@final
@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform on [low, high]; ``times`` independent values of it, a number or a name of the context.

    Raises: BadInput for ends that are not finite or not in order.
    """

    low: float
    high: float
    times: int | str | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise BadInput(f"a uniform prior from {self.low} to {self.high}", hint="finite, lower end first")
        if isinstance(self.times, int) and self.times < 1:
            raise BadInput(f"a prior of {self.times} values", hint="at least one")

    def sample(self, rng: np.random.Generator, people: int, context: Mapping[str, Any]) -> NDArray[Any]:
        """Values [people], or [people, times]. Raises BadInput for a name that the context has not."""
        if self.times is None:
            return rng.uniform(self.low, self.high, people)
        count = self.times if isinstance(self.times, int) else _named(context, self.times)
        if not isinstance(count, int) or count < 1:
            raise BadInput(f"{self.times!r} is {count!r} here, and no count of values")
        return rng.uniform(self.low, self.high, (people, count))

    def text(self) -> str:
        """The prior as it is written in a theory."""
        pair = f"{_written(self.low)}, {_written(self.high)}"
        return f"[{pair}]" if self.times is None else f"[({pair})] * {self.times}"


@final
@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the values, all equally likely. Raises BadInput for none."""

    values: tuple[float | str, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise BadInput("a prior without values")

    def sample(self, rng: np.random.Generator, people: int, context: Mapping[str, Any]) -> NDArray[Any]:
        """Values [people]."""
        del context
        return np.asarray(self.values)[rng.integers(len(self.values), size=people)]

    def text(self) -> str:
        """The prior as it is written in a theory."""
        return "{" + ", ".join(_written(v) if isinstance(v, float) else repr(v) for v in self.values) + "}"


@final
@dataclass(frozen=True, slots=True)
class Given:
    """What the experiment's context holds under a name: the same for everybody."""

    name: str

    def sample(self, rng: np.random.Generator, people: int, context: Mapping[str, Any]) -> NDArray[Any]:
        """Values [people] or [people, n]. Raises BadInput for a name that the context has not."""
        del rng
        value = np.asarray(_named(context, self.name))
        return np.broadcast_to(value, (people, *value.shape))

    def text(self) -> str:
        """The prior as it is written in a theory."""
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Fixed:
    """One value for everybody. Raises BadInput where it is not finite."""

    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise BadInput(f"a parameter fixed at {self.value}")

    def sample(self, rng: np.random.Generator, people: int, context: Mapping[str, Any]) -> NDArray[Any]:
        """Values [people]."""
        del rng, context
        return np.full(people, self.value)

    def text(self) -> str:
        """The prior as it is written in a theory."""
        return _written(self.value)


def _written(value: float) -> str:
    """A number in the fewest digits that read as it: six where they do, for theories on disk have those."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


Prior: TypeAlias = Uniform | OneOf | Given | Fixed


def _named(context: Mapping[str, Any], name: str) -> Any:
    if name not in context:
        known = ", ".join(sorted(context)) or "nothing"
        raise BadInput(f"a prior names {name!r}, which this experiment has not", hint=f"it has {known}")
    return context[name]


def parse_prior(spec: Any, where: str | None = None) -> Prior:
    """A prior from its text, or from what YAML makes of that text.

    ``[lo, hi]`` is uniform, ``{a, b}`` one of the values, ``[(lo, hi)] * n`` a list of n uniform values (n
    a number or a name), a bare name what the experiment holds under it, a number that number.

    Raises: BadInput for anything else. Source: arXiv:2606.26448 (code); never evaluated, which is ours.
    """
    if isinstance(spec, Mapping) and spec and all(value is None for value in spec.values()):
        return OneOf(tuple(_value(one, spec, where) for one in spec))  # YAML's reading of {a, b}
    # YAML has read the brackets already; in quotes they come as text, below.
    if isinstance(spec, list) and len(spec) == 2:
        return _uniform([_number(one, spec, where) for one in spec], None, where)
    if isinstance(spec, int | float) and not isinstance(spec, bool):
        return Fixed(float(spec))
    if not isinstance(spec, str):
        raise _bad(spec, where)
    try:
        node = ast.parse(spec.strip(), mode="eval").body
    # The text may be a model's: ast.parse answers deep nesting by RecursionError or MemoryError.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _bad(spec, where) from error
    return _from_tree(node, spec, where)


def _from_tree(node: ast.expr, spec: str, where: str | None) -> Prior:
    if isinstance(node, ast.Name):
        return Given(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        inner = node.left.elts
        ends = inner[0] if len(inner) == 1 and isinstance(inner[0], ast.Tuple) else node.left
        return _uniform(_pair(ends, spec, where), _times(node.right, spec, where), where)
    if isinstance(node, ast.List):
        return _uniform(_pair(node, spec, where), None, where)
    if isinstance(node, ast.Set):
        return OneOf(tuple(_value(_literal(one, spec, where), spec, where) for one in node.elts))
    return Fixed(_number(_literal(node, spec, where), spec, where))


def _uniform(ends: list[float], times: int | str | None, where: str | None) -> Prior:
    try:
        return Uniform(ends[0], ends[1], times)
    except BadInput as error:
        raise BadInput(error.what, where=where, hint=error.hint) from error


def _pair(node: ast.expr, spec: str, where: str | None) -> list[float]:
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    if len(parts) != 2:
        raise _bad(spec, where)
    return [_number(_literal(part, spec, where), spec, where) for part in parts]


def _times(node: ast.expr, spec: str, where: str | None) -> int | str:
    if isinstance(node, ast.Name):
        return node.id
    value = _literal(node, spec, where)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _bad(spec, where)
    return value


def _literal(node: ast.expr, spec: str, where: str | None) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError) as error:
        raise _bad(spec, where) from error


def _number(value: Any, spec: Any, where: str | None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _bad(spec, where)
    return float(value)


def _value(value: Any, spec: Any, where: str | None) -> float | str:
    return value if isinstance(value, str) else _number(value, spec, where)


def _bad(spec: Any, where: str | None) -> BadInput:
    return BadInput(f"{spec!r} is no prior", where=where, hint=f"write {_EXAMPLE}")


def sample_priors(
    priors: Mapping[str, Prior], rng: np.random.Generator, people: int, context: Json
) -> Parameters:
    """One draw of every parameter for each person, in the order of the priors."""
    return {name: prior.sample(rng, people, context) for name, prior in priors.items()}
