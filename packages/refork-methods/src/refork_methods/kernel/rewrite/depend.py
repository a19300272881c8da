"""Which iterations must stay in order: distances where subscripts tell, "unknown" where they do not.

The textbook test of affine subscripts, dimension by dimension (Allen and Kennedy, Optimizing Compilers for
Modern Architectures). Before it a flat subscript such as ``i * n + k`` is split where the loops' bounds prove
that its parts do not overlap. Everything that is not proven counts as a dependence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import Access, accesses, values_of
from refork_methods.kernel.rewrite.affine import Facts, Poly, Term, add, constant, poly, quotient, words
from refork_methods.kernel.rewrite.canonical import loops
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Declare,
    Expr,
    Loop,
    Name,
    Stmts,
    inside,
    root,
    statements,
)
from refork_methods.kernel.rewrite.unit import Unit


def may_alias(unit: Unit, one: str, two: str) -> bool:
    """Whether two names can mean the same memory."""
    if one == two:
        return True
    left, right = unit.parameter(one), unit.parameter(two)
    for name, known in ((one, left), (two, right)):
        if known is None:
            local = unit.declared(name)
            if local is None:
                continue
            # A local variable or array is an object of its own.
            return "*" in local.type
        # A scalar parameter is the function's own copy.
        if known.dims is None:
            return False
    if (left and left.restrict) or (right and right.restrict):
        return False
    # By the standard objects of different types do not overlap, but bytes may look at any.
    kinds = {unit.kind(one), unit.kind(two)}
    return (
        len(kinds) == 1
        or "" in kinds
        or bool(kinds & {"char", "unsigned char", "signed char", "void", "uint8_t", "int8_t"})
    )


def _strides(found: Sequence[Poly], nests: Sequence[Facts]) -> list[tuple[int, Term, int]]:
    """By what counters are multiplied in subscripts, beyond 1, the smallest first."""
    strides: set[tuple[int, Term, int]] = set()
    for one, known in zip(found, nests, strict=True):
        counters = {loop.counter for loop in known.nest}
        for term, value in one.items():
            own = [atom for atom in term if atom in counters]
            rest = tuple(atom for atom in term if atom not in counters)
            if len(own) == 1 and (rest or abs(value) > 1):
                strides.add((len(rest), rest, abs(value)))
    return sorted(strides)


def split(result: Sequence[Poly], nests: Sequence[Facts], lanes: Sequence[int]) -> list[tuple[Poly, ...]]:
    """Flat subscripts of one array in as many dimensions as all of them provably have, outer ones first."""
    for _, term, unit in _strides(result, nests):
        parts = [quotient(one, term, unit) for one in result]
        room: Poly = {term: unit}
        if all(
            known.nonnegative(rest) and known.nonnegative(add(add(room, rest, -1), constant(width), -1))
            for (_, rest), known, width in zip(parts, nests, lanes, strict=True)
        ):
            outer = split([upper for upper, _ in parts], nests, [1] * len(nests))
            return [(*upper, rest) for upper, (_, rest) in zip(outer, parts, strict=True)]
    return [(one,) for one in result]


def subscripts(unit: Unit, result: Sequence[Access]) -> list[tuple[Poly | None, ...]]:
    """Each access's subscripts, flat ones split."""
    values = values_of(unit)
    made = [one.dims for one in result]
    by_array: dict[str, list[int]] = {}
    for number, one in enumerate(result):
        by_array.setdefault(one.array, []).append(number)
    for numbers in by_array.values():
        flat = [result[number].dims[0] for number in numbers if len(result[number].dims) == 1]
        polys = [one for one in flat if one is not None]
        # One subscript that is not understood may be any place: no split of the others is proven.
        if len(polys) != len(numbers):
            continue
        nests = [Facts(result[number].loops, values) for number in numbers]
        for number, dims in zip(
            numbers, split(polys, nests, [result[n].lanes for n in numbers]), strict=True
        ):
            made[number] = dims
    for number, one in enumerate(result):
        # Of several numbers read or written at once only the row is known.
        if one.lanes > 1:
            made[number] = (*made[number][:-1], None)
    return made


def distances(
    one: tuple[Poly | None, ...], two: tuple[Poly | None, ...], common: Sequence[Loop], moving: set[str]
) -> dict[str, int] | None:
    """How many iterations the second access is after the first, by counter, where that is certain.

    None: they never meet. ``moving`` are names that change in the nest other than as common counters.
    """
    found: dict[str, int] = {}
    if len(one) != len(two):
        return found
    counters = {loop.counter: loop for loop in common}
    for left, right in zip(one, two, strict=True):
        if left is None or right is None or (words(left) | words(right)) & moving:
            continue
        own = {term for term in (*left, *right) if set(_atoms(term)) & set(counters)}
        # Different strides in one counter: where they meet is not solved, so nothing is certain.
        if any(left.get(term) != right.get(term) for term in own):
            continue
        gap = add(left, right, -1)
        if set(gap) - {()}:
            continue
        met = _solve(own, left, gap.get((), 0), counters)
        if met is None:
            return None
        for counter, distance in met.items():
            # Two dimensions ask for two distances: no pair of iterations has both.
            if found.setdefault(counter, distance) != distance:
                return None
    return found


def _atoms(term: Term) -> list[str]:
    return sorted(words({term: 1}))


def _solve(own: set[Term], left: Poly, gap: int, counters: Mapping[str, Loop]) -> dict[str, int] | None:
    """The distance in the only counter of a dimension; nothing where there are several."""
    if not own:
        return None if gap else {}
    if len(own) > 1:
        return {}
    (term,) = own
    plain = [atom for atom in term if atom in counters]
    if len(plain) != 1 or len(_atoms(term)) != len(term):
        return {}
    loop = counters[plain[0]]
    if len(term) > 1:
        # A stride that is not known: equal subscripts meet at equal counters, unless the stride is 0.
        return {}
    times = left[term]
    # A stride that does not divide the gap never bridges it.
    if gap % times:
        return None
    distance = gap // times
    # Counters are whole steps apart where both started at one number; a start that moves tells nothing.
    still = poly(loop.lower, {})
    if distance % loop.step and still is not None and not words(still):
        return None
    return {loop.counter: distance}


def pin_tiles(result: dict[str, int], common: Sequence[Loop]) -> None:
    """Equal counters lie in the same tile."""
    by_counter = {loop.counter: loop for loop in common}
    for loop in reversed(common):
        base = by_counter.get(loop.lower.id) if isinstance(loop.lower, Name) else None
        if base is None or base.counter in result or result.get(loop.counter) != 0:
            continue
        width = add({(base.counter,): 1}, constant(base.step - 1))
        if any(one == width for one in Facts(tuple(common), {}).highest(loop)):
            result[base.counter] = 0


def _shared(one: Access, two: Access) -> tuple[Loop, ...]:
    both: list[Loop] = []
    for left, right in zip(one.loops, two.loops, strict=False):
        if left is not right:
            break
        both.append(left)
    return tuple(both)


def conflicts(
    unit: Unit, first: Sequence[Access], second: Sequence[Access], above: Sequence[Loop]
) -> Iterator[tuple[Access, Access, dict[str, int]]]:
    """Pairs, one of each list, that may touch the same memory in one iteration of the loops ``above``."""
    every = [*first, *(one for one in second if not any(one is other for other in first))]
    split_up = dict(zip(map(id, every), subscripts(unit, every), strict=True))
    written = {one.array for one in every if one.write} | _varying(unit)
    for one in first:
        for two in second:
            if not (one.write or two.write) or not may_alias(unit, one.array, two.array):
                continue
            common = _shared(one, two)
            inner = {loop.counter for loop in (*one.loops, *two.loops)} - {loop.counter for loop in common}
            found: dict[str, int] | None = {}
            if one.array == two.array:
                found = distances(split_up[id(one)], split_up[id(two)], common, written | inner)
            # Apart in a loop around: its order, which stays, keeps them apart.
            if found is None or any(found.get(loop.counter, 0) for loop in above):
                continue
            pin_tiles(found, common)
            yield one, two, found | {loop.counter: 0 for loop in above}


def _varying(unit: Unit) -> set[str]:
    """Variables that each iteration of some loop sets anew, and whose values are not seen through."""
    inner = {s.name for loop, _ in loops(unit.body) for s in statements(loop.body) if isinstance(s, Declare)}
    return inner - set(values_of(unit))


def parallel(unit: Unit, loop: Loop, above: tuple[Loop, ...], *, folds: bool = True) -> bool:
    """Whether rounding may change when the iterations of a loop run in another order.

    ``folds``: sums, products, maxima and minima may be taken in another order.

    Raises:
        BadInput: the order matters, or may matter.
    """
    found = accesses(unit, loop.body, (*above, loop))
    found = [one for one in found if one.array not in {each.counter for each in (*above, loop)}]
    reorders = False
    for one, two, distance in conflicts(unit, found, found, above):
        # In one iteration statements keep their order, whenever it runs.
        if distance.get(loop.counter) == 0:
            continue
        if folds and one.fold and one.fold == two.fold and one.array == two.array:
            reorders = reorders or (one.fold in "+*" and not (one.exact and two.exact))
            continue
        raise BadInput(
            f"iterations of {loop.counter} depend on each other, or may",
            where=f"{one.array} and {two.array}",
            hint="declare pointers restrict where they never overlap",
        )  # fmt: skip
    return reorders


def exchangeable(
    unit: Unit, outer: Loop, inner: Loop, above: tuple[Loop, ...], between: tuple[Loop, ...] = ()
) -> bool:
    """Whether rounding may change when a loop is moved out over another that it is perfectly nested in.

    ``between`` are the loops between the two: their order does not matter to the answer.

    Raises:
        BadInput: the order matters, or may matter.
    """
    found = accesses(unit, inner.body, (*above, outer, *between, inner))
    reorders = False
    for one, two, distance in conflicts(unit, found, found, above):
        far, near = distance.get(outer.counter), distance.get(inner.counter)
        # Only a pair that is ahead in one loop and behind in the other changes its order.
        if far == 0 or near == 0 or (far is not None and near is not None and (far > 0) == (near > 0)):
            continue
        if one.fold and one.fold == two.fold and one.array == two.array:
            reorders = reorders or (one.fold in "+*" and not (one.exact and two.exact))
            continue
        raise BadInput(
            f"{outer.counter} and {inner.counter} cannot be exchanged", where=f"{one.array} and {two.array}",
            hint="declare pointers restrict where they never overlap",
        )  # fmt: skip
    return reorders


def in_order(unit: Unit, first: Stmts, second: Stmts, loop: Loop, above: tuple[Loop, ...]) -> None:
    """All iterations of the first part may run before all of the second, or both in turns.

    Raises:
        BadInput: an iteration of the second part comes before one of the first that it may conflict with.
    """
    nest = (*above, loop)
    one, two = accesses(unit, first, nest), accesses(unit, second, nest)
    made = {s.name for s in statements(first) if isinstance(s, Declare)}
    if any(each.array in made for each in two):
        raise BadInput("the second part uses a variable of the first", where=f"loop {loop.counter}")
    for left, right, distance in conflicts(unit, one, two, above):
        far = distance.get(loop.counter)
        # Counted from the first part to the second: below 0 the second one came first.
        if far is None or far < 0:
            raise BadInput(
                f"iterations of {loop.counter} depend on each other, or may",
                where=f"{left.array} and {right.array}",
            )


def assigned(body: Stmts) -> set[str]:
    """Variables and arrays that statements write."""
    found: set[str] = set()
    for stmt in statements(body):
        if isinstance(stmt, Assign):
            target: Expr = stmt.target
            found |= (
                {part.id for part in inside(target) if isinstance(part, Name)}
                if not isinstance(target, At)
                else {root(target) or ""}
            )
    return found
