"""All legal moves on a kernel, and one of them made."""

from __future__ import annotations

from refork.errors import BadInput
from refork_methods.kernel.rewrite.rule import Given, Move, Rule
from refork_methods.kernel.rewrite.rules import arithmetic, hints, loops, memory, sums
from refork_methods.kernel.rewrite.show import show
from refork_methods.kernel.rewrite.unit import Unit, read_unit
from refork_methods.kernel.tool import Slip

#: In the order in which moves are listed: cheap and wide ones first.
RULES: tuple[Rule, ...] = (
    hints.RESTRICT,
    hints.FLAGS,
    hints.SIMD,
    hints.IVDEP,
    hints.UNROLL,
    loops.INTERCHANGE,
    sums.REGISTER_TILE,
    loops.TILE,
    loops.TO_SCALAR,
    loops.TO_MEMORY,
    sums.ACCUMULATORS,
    sums.VECTOR_SUM,
    sums.PRIVATE_TABLE,
    sums.FEW_BINS,
    arithmetic.FAST_EXP,
    arithmetic.RECIPROCAL,
    arithmetic.HOIST,
    loops.FUSE,
    loops.SPLIT,
    memory.PACK,
    memory.PREFETCH,
    memory.STREAM,
    loops.JAM,
    loops.UNROLL,
)
_BY_NAME = {rule.name: rule for rule in RULES}
#: A kernel that has grown beyond this is not grown further.
LONGEST = 30_000


def moves(source: str, entry: str, flags: tuple[str, ...], slips: list[Slip] | None = None) -> list[Move]:
    """All legal moves on a C source's function ``entry`` built with ``flags``, always in the same order.

    ``slips`` takes what a rule raises by a bug of its own; without it the error is raised.

    Raises:
        BadInput: no such function, or a syntax error in it.
        MissingExtra: no grammar for C.
    """
    unit = read_unit(source, entry, tuple(flags))
    found: list[Move] = []
    for rule in RULES:
        try:
            for parameters in rule.offers(unit):
                found += _offered(rule, unit, parameters, slips)
        except Exception as error:
            if slips is None:
                raise
            slips.append(Slip.of(f"rule {rule.name}", error))
    return found


def _offered(rule: Rule, unit: Unit, parameters: Given, slips: list[Slip] | None) -> list[Move]:
    """The move, if it is legal and the kernel stays short enough."""
    try:
        changed = rule.make(unit, parameters)
        size = len(changed.unit.before) + len(show(changed.unit.body))
    except BadInput:
        return []
    except Exception as error:
        if slips is None:
            raise
        slips.append(Slip.of(f"rule {Move(rule.name, parameters).id}", error))
        return []
    if size > LONGEST:
        return []
    return [Move(rule.name, parameters, rule.answers, changed.reassociates, changed.assumes)]


def apply(source: str, entry: str, flags: tuple[str, ...], move: Move) -> tuple[str, tuple[str, ...]]:
    """The source and flags after a move. What stands around the function is kept as it is.

    Raises:
        BadInput: no such function or move, or the move does not apply here.
        MissingExtra: no grammar for C.
    """
    rule = _BY_NAME.get(move.name)
    if rule is None:
        raise BadInput(f"no move {move.name}", where="kernel rewrite", hint=", ".join(_BY_NAME))
    unit = read_unit(source, entry, tuple(flags))
    made = rule.make(unit, move.parameters).unit
    # Flags and promises change no statement: the source then stays as it was written.
    text = made.render() if made.body != unit.body else made.before + source[len(unit.before) :]
    if len(text) > LONGEST:
        raise BadInput(
            f"{entry} would have {len(text)} characters", where=f"move {move.id}", hint="it is long enough"
        )
    return text, made.flags
