"""Expressions of several neighbouring iterations at once, in the vector types of GCC and Clang."""

from __future__ import annotations

import re
from collections.abc import Mapping

from refork_methods.kernel.rewrite.affine import poly, words
from refork_methods.kernel.rewrite.rule import refuse
from refork_methods.kernel.rewrite.syntax import (
    STREAM,
    At,
    Call,
    Cast,
    Declare,
    Expr,
    Name,
    Number,
    Op,
    Unary,
    decimal,
    inside,
    names,
    root,
    statements,
    within,
)
from refork_methods.kernel.rewrite.unit import Unit

#: Beginning of the names of functions that gather.
GATHER = "refork_gather_"
#: Orders what was stored past the caches before whatever comes after.
STREAM_END = "refork_stream_end"
#: Numbers from an address to the next line of the caches; whether an address begins a line.
LEAD, ON_LINE = "refork_lead", "refork_on_line"
LINE = 64
_TYPES = {"f32": ("float", 4), "f64": ("double", 8), "i32": ("int", 4)}
_TAGS = {kind: tag for tag, (kind, _) in _TYPES.items()}
#: Bytes of a number of a type that vectors hold.
SIZES = dict(_TYPES.values())
_NAMED = re.compile(rf"(?:{GATHER}|{STREAM}|refork_)(f32|f64|i32)x(\d+)")
_INCLUDE = """\
#if defined __SSE2__
#include <immintrin.h>
#endif"""
_ADDRESSES = f"""\
static inline int {LEAD}(const void *at, int size) {{
    return (int)(-(__UINTPTR_TYPE__)at % {LINE} / (unsigned)size);
}}
static inline int {ON_LINE}(const void *at) {{
    return (__UINTPTR_TYPE__)at % {LINE} == 0;
}}
static inline void {STREAM_END}(void) {{
#if defined __SSE2__
    _mm_sfence();
#endif
}}"""
_INLINE = "static inline __attribute__((always_inline))"
_SUFFIX = {"f32": "ps", "f64": "pd", "i32": "epi32"}


def vector_text(tag: str, lanes: int) -> str:
    """The definition of a vector type that may stand at any address."""
    kind, size = _TYPES[tag]
    name = f"refork_{tag}x{lanes}"
    # Aligned like one number, as rows begin anywhere; may_alias, as memory of another type is read by it.
    return f"typedef {kind} {name} __attribute__((vector_size({size * lanes}), aligned({size}), may_alias));"


def with_helpers(unit: Unit) -> Unit:
    """A kernel with the definitions of all vector types and helpers that its body uses."""
    parts = list(within(unit.body))
    kinds = [stmt.type for stmt in statements(unit.body) if isinstance(stmt, Declare)]
    kinds += [
        part.name if isinstance(part, Call) else part.type for part in parts if isinstance(part, Call | Cast)
    ]
    used = [(word, _NAMED.search(word)) for word in kinds]
    known = {(word, found[1], int(found[2])) for word, found in used if found is not None}
    for _, tag, lanes in sorted(known):
        unit = unit.with_top(vector_text(tag, lanes))
    gathers = {(tag, lanes) for word, tag, lanes in known if word.startswith(GATHER)}
    streams = {(tag, lanes) for word, tag, lanes in known if STREAM in word}
    if gathers or streams:
        unit = unit.with_top(_INCLUDE)
    for tag, lanes in sorted(gathers):
        unit = unit.with_top(vector_text("i32", lanes)).with_top(_gather(tag, lanes))
    if streams:
        unit = unit.with_top(_ADDRESSES)
    for tag, lanes in sorted(streams):
        unit = unit.with_top(vector_text(tag, lanes)).with_top(_stream(tag, lanes))
    return unit


def _gather(tag: str, lanes: int) -> str:
    kind, size = _TYPES[tag]
    bits, name = size * lanes * 8, f"refork_{tag}x{lanes}"
    indices = {16: "__m512i", 8: "__m256i", 4: "__m128i"}[lanes]
    # The two widths of the instruction take their operands in different orders.
    given = f"({indices})at, from" if bits == 512 else f"from, ({indices})at"
    test = "__AVX512F__" if bits == 512 else "__AVX2__"
    return f"""\
{_INLINE} {name} {GATHER}{tag}x{lanes}(const {kind} *from, refork_i32x{lanes} at) {{
#if defined {test}
    return ({name})_mm{bits}_i32gather_{_SUFFIX[tag]}({given}, {size});
#else
    {name} made = {{0}};
    for (int lane = 0; lane < {lanes}; lane++)
        made[lane] = from[at[lane]];
    return made;
#endif
}}"""


def _stream(tag: str, lanes: int) -> str:
    kind, size = _TYPES[tag]
    name, size = f"refork_{tag}x{lanes}", size * lanes
    whole = (
        "#if defined __AVX512F__\n    _mm512_stream_si512((void *)to, (__m512i)value);\n#elif"
        if size == 64
        else "#if"
    )
    return f"""\
{_INLINE} void {STREAM}{tag}x{lanes}({kind} *to, {name} value) {{
{whole} defined __AVX__
    __m256i parts[{size // 32}];
    __builtin_memcpy(parts, &value, sizeof parts);
    for (int part = 0; part < {size // 32}; part++)
        _mm256_stream_si256((__m256i *)to + part, parts[part]);
#elif defined __SSE2__
    __m128i parts[{size // 16}];
    __builtin_memcpy(parts, &value, sizeof parts);
    for (int part = 0; part < {size // 16}; part++)
        _mm_stream_si128((__m128i *)to + part, parts[part]);
#else
    *({name} *)to = value;
#endif
}}"""


def lanes_of(unit: Unit, kind: str) -> int:
    """How many numbers of a type a vector holds: 64 bytes, or 32 where the flags prefer that.

    Raises:
        BadInput: a type without vectors.
    """
    if kind not in _TAGS:
        raise refuse(f"no vectors of {kind or 'an unknown type'}")
    # 64 bytes without AVX-512 as well: gcc splits a vector that the processor does not have.
    wide = "-mprefer-vector-width=256" not in unit.flags
    return (64 if wide else 32) // SIZES[kind]


def vector_type(kind: str, lanes: int) -> str:
    """Name of a vector type that may stand at any address; :func:`with_helpers` adds its definition."""
    return f"refork_{_TAGS[kind]}x{lanes}"


def unit_stride(expr: At, counter: str, values: Mapping[str, Expr]) -> bool:
    """Whether a subscript moves by one number when a counter does."""
    found = poly(expr.index, values)
    if found is None or counter in names(expr.base):
        return False
    own = {term: value for term, value in found.items() if counter in words({term: 1})}
    return own == {(counter,): 1}


def widened(unit: Unit, expr: Expr, counter: str, kind: str, lanes: int, values: Mapping[str, Expr]) -> Expr:
    """An expression for ``lanes`` iterations at once; parts that do not change with the counter stay scalars.

    Raises:
        BadInput: an operand that is of another type, or not read in order.
    """
    match expr:
        case Number(text=digits):
            return _literal(digits, kind)
        case Name(id=name):
            if name == counter or unit.kind(name) != kind:
                raise refuse(f"{name} is of another type")
            return expr
        case At():
            return _read(unit, expr, counter, kind, lanes, values)
        case Op(op=op) if op in "+-*/":
            left = widened(unit, expr.left, counter, kind, lanes, values)
            return Op(op, left, widened(unit, expr.right, counter, kind, lanes, values))
        case Unary(op="-", arg=arg):
            return Unary("-", widened(unit, arg, counter, kind, lanes, values))
        case _:
            raise refuse("an operation that has no vector form here")


def _literal(digits: str, kind: str) -> Number:
    if kind == "float" and (number := decimal(digits)) is not None:
        return Number(f"{number}.0f")
    if (kind == "float" and not digits.lower().endswith("f")) or (kind == "int" and not digits.isdigit()):
        raise refuse(f"{digits} is of another type")
    return Number(digits)


def _read(unit: Unit, expr: At, counter: str, kind: str, lanes: int, values: Mapping[str, Expr]) -> Expr:
    if unit.kind(root(expr) or "") != kind:
        raise refuse(f"{root(expr)} is of another type")
    if unit_stride(expr, counter, values):
        return Unary("*", Cast(f"const {vector_type(kind, lanes)} *", Unary("&", expr)))
    found = poly(expr.index, values)
    if isinstance(expr.base, Name) and any(isinstance(part, At) for part in inside(expr.index)):
        at = widened(unit, expr.index, counter, "int", lanes, values)
        if at != expr.index:
            return Call(f"{GATHER}{_TAGS[kind]}x{lanes}", (expr.base, at))
    if counter in names(expr) or found is None or counter in words(found):
        raise refuse(f"{root(expr)} is not read in order of {counter}")
    return expr


def stored(expr: At, kind: str, lanes: int) -> Expr:
    """The place of ``lanes`` neighbouring numbers, to be assigned."""
    return Unary("*", Cast(f"{vector_type(kind, lanes)} *", Unary("&", expr)))


def streamed(expr: At, kind: str, lanes: int) -> Expr:
    """The same place, to be assigned past the caches. It is printed, and read back, as a call."""
    return Unary("*", Cast(f"{STREAM}{_TAGS[kind]}x{lanes} *", Unary("&", expr)))
