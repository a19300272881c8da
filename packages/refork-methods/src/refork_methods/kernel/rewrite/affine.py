"""Integer expressions as sums of products, and what is known of their signs inside loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, final

from refork_methods.kernel.rewrite.canonical import keeps_int
from refork_methods.kernel.rewrite.show import show_expr
from refork_methods.kernel.rewrite.syntax import (
    Call,
    Cast,
    Expr,
    Loop,
    Name,
    Number,
    Op,
    Other,
    Pick,
    Unary,
    decimal,
    inside,
)

#: Coefficients by product of variables, sorted; the empty product is the constant. An expression that is no
#: sum of products, such as ``rows[i]``, counts as one variable, named by its text.
Poly: TypeAlias = dict[tuple[str, ...], int]
Term: TypeAlias = tuple[str, ...]


def constant(value: int) -> Poly:
    """A number."""
    return {(): value} if value else {}


def add(left: Poly, right: Poly, times: int = 1) -> Poly:
    """``left + times * right``."""
    made = dict(left)
    for term, value in right.items():
        made[term] = made.get(term, 0) + times * value
    return {term: value for term, value in made.items() if value}


def multiply(left: Poly, right: Poly) -> Poly:
    """The product."""
    made: Poly = {}
    for one, a in left.items():
        for two, b in right.items():
            term = tuple(sorted(one + two))
            made[term] = made.get(term, 0) + a * b
    return {term: value for term, value in made.items() if value}


def poly(expr: Expr, values: Mapping[str, Expr]) -> Poly | None:
    """An integer expression as a sum, or None where it calls something.

    ``values`` are of variables that are set once.
    """
    match expr:
        case Number(text=digits):
            # What is no decimal, an octal such as 010 among them, stays opaque.
            number = decimal(digits.rstrip("uUlL"))
            return {(digits,): 1} if number is None else constant(number)
        case Name(id=name):
            return poly(values[name], values) if name in values else {(name,): 1}
        case Cast(type=kind, arg=arg) if keeps_int(kind):
            return poly(arg, values)
        case Unary(op="-", arg=arg):
            inner = poly(arg, values)
            return None if inner is None else add({}, inner, -1)
        case Op(op=op) if op in "+-*":
            left, right = poly(expr.left, values), poly(expr.right, values)
            if left is None or right is None:
                return None
            return multiply(left, right) if op == "*" else add(left, right, 1 if op == "+" else -1)
        case _:
            if any(isinstance(part, Call | Other) for part in inside(expr)):
                return None
            return {(show_expr(expr),): 1}


def words(result: Poly) -> set[str]:
    """The variables in a sum, those inside of opaque terms too."""
    return {word for term in result for atom in term for word in _words(atom)}


@lru_cache(maxsize=4096)
def _words(atom: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[A-Za-z_]\w*", atom))


def whole(lower: Expr, upper: Expr, step: int) -> Expr:
    """Where the last full step of a loop ends."""
    if lower == Number("0"):
        return Op("*", Op("/", upper, Number(str(step))), Number(str(step)))
    count = Op("/", Op("-", upper, lower), Number(str(step)))
    return Op("+", lower, Op("*", count, Number(str(step))))


def _whole_of(loop: Loop, values: Mapping[str, Expr]) -> Expr | None:
    """The bound that a loop's own bound is rounded down from, where its steps divide it."""
    upper = loop.upper
    if isinstance(upper, Name) and upper.id in values:
        upper = values[upper.id]
    match upper:
        case Op(op="*", left=Op(op="/", left=bound, right=Number(text=step))):
            start: Expr = Number("0")
        case Op(
            op="+",
            left=start,
            right=Op(op="*", left=Op(op="/", left=Op(op="-", left=bound), right=Number(text=step))),
        ):
            pass
        case _:
            return None
    if (
        start != loop.lower
        or not (found := decimal(step))
        or found % loop.step
        or whole(start, bound, found) != upper
    ):
        return None
    return bound


@final
@dataclass(frozen=True, slots=True)
class Facts:
    """What holds inside a nest of loops (outer first)."""

    nest: tuple[Loop, ...]
    values: Mapping[str, Expr]

    def lowest(self, loop: Loop) -> Poly | None:
        """The first value of a counter."""
        return poly(loop.lower, self.values)

    def highest(self, loop: Loop) -> list[Poly]:
        """Sums that the counter does not pass: each of them holds."""
        bound = _whole_of(loop, self.values)
        # A bound that was rounded down to whole steps: the last one begins a step before it at the latest.
        if bound is not None:
            return [add(one, constant(loop.step), -1) for one in self._alternatives(bound)]
        return [add(one, constant(1), -1) for one in self._alternatives(loop.upper)]

    def _alternatives(self, upper: Expr) -> list[Poly]:
        if isinstance(upper, Name) and upper.id in self.values:
            return self._alternatives(self.values[upper.id])
        match upper:
            case Pick(test=Op(op="<" | "<=", left=left, right=right), yes=yes, no=no) if (left, right) == (
                yes,
                no,
            ):
                # The smaller of two bounds: the counter passes neither.
                return [*self._alternatives(left), *self._alternatives(right)]
            case _:
                found = poly(upper, self.values)
                return [] if found is None else [found]

    def at_least(self) -> dict[str, int]:
        """Least values of sizes, from loops that would not run otherwise."""
        found: dict[str, int] = {}
        for loop in self.nest:
            lower = self.lowest(loop)
            if lower is None or any(term for term in lower) or lower.get((), 0) < 0:
                continue
            for high in self.highest(loop):
                free = [term for term in high if term]
                if len(free) == 1 and len(free[0]) == 1 and high[free[0]] == 1:
                    # The body runs only where the first value is at most the last, which bounds the size.
                    found[free[0][0]] = max(found.get(free[0][0], 0), lower.get((), 0) - high.get((), 0))
        return found

    def nonnegative(self, result: Poly) -> bool:
        """Whether a sum is provably 0 or more wherever the nest's body runs."""
        return any(self._settled(one) for one in self._without(result, tuple(reversed(self.nest))))

    def _without(self, found: Poly, left: Sequence[Loop]) -> Iterator[Poly]:
        """The least that a sum can be, with counters replaced by their bounds, in each known way."""
        if not left:
            yield found
            return
        loop, rest = left[0], left[1:]
        own = {term: value for term, value in found.items() if loop.counter in term}
        if not own:
            yield from self._without(found, rest)
            return
        # Not linear in this counter: neither end of its range is known to be the least.
        if any(term.count(loop.counter) != 1 for term in own):
            return
        slope = {tuple(atom for atom in term if atom != loop.counter): value for term, value in own.items()}
        remaining = {term: value for term, value in found.items() if term not in own}
        low = self.lowest(loop)
        if all(value > 0 for value in slope.values()) and self._positive(slope):
            options = [] if low is None else [low]
        elif all(value < 0 for value in slope.values()) and self._positive({t: -v for t, v in slope.items()}):
            options = self.highest(loop)
        else:
            return
        for option in options:
            if loop.counter not in words(option):
                yield from self._without(add(remaining, multiply(slope, option)), rest)

    def _positive(self, slope: Poly) -> bool:
        counters = {loop.counter for loop in self.nest}
        known = self.at_least()
        return all(atom not in counters and known.get(atom, 0) >= 1 for term in slope for atom in term)

    def _settled(self, found: Poly) -> bool:
        """Whether a sum of sizes is 0 or more, given their least values."""
        known = self.at_least()
        # Each size is its least value and something that is 0 or more: where all coefficients are then 0 or
        # more, so is the sum.
        shifted: Poly = {}
        for term, value in found.items():
            product: Poly = constant(value)
            for atom in term:
                if atom not in known:
                    return False
                product = multiply(product, add({(atom,): 1}, constant(known[atom])))
            shifted = add(shifted, product)
        return all(value >= 0 for value in shifted.values())


def quotient(result: Poly, stride: Term, unit: int) -> tuple[Poly, Poly]:
    """``result = q * unit * stride + rest`` term by term: (q, rest)."""
    whole_part: Poly = {}
    rest: Poly = {}
    for term, value in result.items():
        remaining = list(term)
        for atom in stride:
            if atom in remaining:
                remaining.remove(atom)
            else:
                rest[term] = value
                break
        else:
            if value % unit:
                rest[term] = value
            else:
                key = tuple(remaining)
                whole_part[key] = whole_part.get(key, 0) + value // unit
    return whole_part, rest
