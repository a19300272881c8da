"""A kernel's source with its numbers one step wider: float as double, double as long double.

Only names that the parser takes for types, and calls of the mathematical library, are changed; a literal
keeps its value (0.1f stays the float that it is). Where a source depends on the width of its numbers, by
vector types, intrinsics, unions or assembler, it is refused: such a kernel needs a reference of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from refork.errors import BadInput
from refork_methods.kernel.bench.layout import PRECISE
from refork_methods.kernel.problem_syntax import parse

if TYPE_CHECKING:
    from tree_sitter import Node

_BASES = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
    "erf", "erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp",
    "hypot", "ilogb", "ldexp", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "logb",
    "lrint", "lround", "modf", "nearbyint", "nextafter", "pow", "remainder", "rint", "round", "scalbn",
    "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
]  # fmt: skip
#: Functions and constants of a width -> those of the next.
WIDER = (
    {f"{name}f": name for name in _BASES}
    | {name: f"{name}l" for name in _BASES}
    | {f"__builtin_{name}f": f"__builtin_{name}" for name in _BASES}
    | {f"__builtin_{name}": f"__builtin_{name}l" for name in _BASES}
    | {f"FLT_{name}": f"DBL_{name}" for name in ("MAX", "MIN", "EPSILON", "MANT_DIG", "DIG")}
    | {f"DBL_{name}": f"LDBL_{name}" for name in ("MAX", "MIN", "EPSILON", "MANT_DIG", "DIG")}
    | PRECISE
)
_WIDTH_BOUND = re.compile(
    r"\b(?:_mm\d*_\w+|__m\d+\w*|vector_size|__builtin_ia32_\w+|float(?:16|32|64)x\d+_t|v\w+q_f(?:32|64)|_Float\d+|"
    r"__asm__|asm|__fp16|__bf16|long\s+double)\b"
)
_WORD = re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, WIDER), key=len, reverse=True)) + r")\b")
HINT = "reference=FILE: the same function in double, or long double for double"


def in_higher_precision(source: str, suffix: str) -> str:
    """The source with wider numbers.

    Raises:
        BadInput: it depends on the width of its numbers. MissingExtra: the parser is not installed.
    """
    where = "higher-precision reference"
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    if bound := _WIDTH_BOUND.search(bare):
        raise BadInput(f"{bound[0]} depends on the width of numbers", where=where, hint=HINT)
    data = source.encode()
    changes: list[tuple[int, int, str]] = []
    stack = [parse(source, suffix).root_node]
    while stack:
        node = stack.pop()
        if node.type == "union_specifier":
            raise BadInput("a union depends on the width of numbers", where=where, hint=HINT)
        change = _change(node, data)
        if change is not None:
            changes.append((node.start_byte, node.end_byte, change))
        stack.extend(node.children)
    for start, end, text in sorted(changes, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode()


def _change(node: Node, data: bytes) -> str | None:
    text = data[node.start_byte : node.end_byte].decode(errors="replace")
    if node.type == "primitive_type":
        return PRECISE.get(text)
    if node.type == "preproc_arg":
        return _WORD.sub(lambda found: WIDER[found[0]], text)
    if node.type == "identifier" and text in WIDER and _library(node):
        return WIDER[text]
    return None


def _library(node: Node) -> bool:
    """Whether a name is called or is a constant, and no variable, field or parameter of that name."""
    parent: Any = node.parent
    name = (node.text or b"").decode()
    if "_" in name and name.isupper():
        return True
    return (
        parent is not None
        and parent.type == "call_expression"
        and parent.child_by_field_name("function") == node
    )
