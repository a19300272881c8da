"""A kernel to make fast: its entry, its arguments and sizes, its useful work, and how near is near enough.

What a kernel is given and how its results are judged follows arXiv 2606.26453; the form of it is ours.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

from refork.errors import BadInput, MissingExtra
from refork_methods.kernel.cpu.build import COMPILERS, FLAGS, check_flags
from refork_methods.kernel.roofline import Work

if TYPE_CHECKING:
    from tree_sitter import Node, Tree


#: Longer ones are no length or operation count.
LONGEST = 400
_HIGHEST = 64
#: Bits of a whole number, of which powers of powers would have millions; a float has no more than 1024.
_BITS = 4096


def value(text: str, names: Mapping[str, float], where: str) -> float:
    """The value of an expression; ``/`` of whole numbers rounds down, as in C.

    Raises:
        BadInput: no such expression, a name that is not known, a division by 0, a number beyond reason.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError("it is too long")
        found = _value(ast.parse(text.strip(), mode="eval").body, names)
        if not math.isfinite(found):
            raise ValueError("it is not finite")
    except KeyError as error:
        name = str(error.args[0])
        raise BadInput(f"{name!r} in {text!r} is not known", where=where, hint=f"{name}=NUMBER") from None
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError) as error:
        said = "it is no arithmetic" if isinstance(error, SyntaxError) else str(error)
        raise BadInput(f"expression {text!r}: {said}", where=where, hint="such as 2*n*n") from None
    return found


def names_in(text: str) -> set[str]:
    """The names that an expression uses; empty where it is none."""
    try:
        return {
            node.id for node in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(node, ast.Name)
        }
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        # A bool is an int to Python: True would count as 1.
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, names)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            found: float = _OPERATORS[type(op)](_value(left, names), _value(right, names))
            return found
        case _:
            raise ValueError("only numbers, names, + - * / % and **")


def _divided(left: float, right: float) -> float:
    whole = isinstance(left, int) and isinstance(right, int)
    return left // right if whole else left / right


def _power(left: float, right: float) -> float:
    # A whole number to a huge power would take all memory before its size could be looked at.
    if abs(right) > _HIGHEST:
        raise ValueError(f"a power over {_HIGHEST}")
    if isinstance(left, int) and left.bit_length() * right > _BITS:
        raise ValueError("a power of too large a number")
    return float(left**right) if right < 0 else left**right


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv, ast.Div: _divided, ast.Pow: _power,
}  # fmt: skip


Role: TypeAlias = Literal["in", "out", "inout", "size", "scalar"]

#: Element type in C -> bytes.
BYTES: dict[str, int] = {
    "float": 4, "double": 8,
    "char": 1, "signed char": 1, "unsigned char": 1, "int8_t": 1, "uint8_t": 1, "bool": 1, "_Bool": 1,
    "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2,
    "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4,
    "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "int64_t": 8, "uint64_t": 8,
    "size_t": 8, "ssize_t": 8, "ptrdiff_t": 8, "intptr_t": 8, "uintptr_t": 8,
}  # fmt: skip
FLOATING = ("float", "double")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One parameter of the entry.

    ``ctype``: the element type as C spells it. ``length``: elements of an array, an expression over the
    sizes; None for a scalar. ``role``: in (read), out (written, whatever it held), inout, size (an integer
    among the problem's sizes) or scalar. ``fill`` is how inputs are drawn: ``uniform`` (-1 to 1; integers
    -100 to 100), ``positive`` (0.1 to 1; integers 1 to 100), ``index:E`` (integers from 0 to below E),
    ``sorted-index:E`` (the same in ascending order), ``skewed-index:E`` (k as often as
    (k + 1)**-1.5, as words and background pixels are), ``offsets:E`` (ascending, the first 0 and the last E),
    ``permutation``, ``const:X``.
    """

    name: str
    ctype: str
    length: str | None
    role: Role
    fill: str = "uniform"

    def __post_init__(self) -> None:
        if self.ctype not in BYTES:
            raise BadInput(
                f"no inputs of type {self.ctype} can be drawn",
                where=f"argument {self.name}",
                hint="float, double, or an integer type of C",
            )
        indices = ("index", "sorted-index", "skewed-index", "offsets")
        kinds = ("uniform", "positive", *indices, "permutation", "const")
        kind, _, rest = self.fill.partition(":")
        takes = kind in (*indices, "const")
        if kind not in kinds or takes != bool(rest):
            raise BadInput(
                f"fill {self.fill!r}",
                where=f"argument {self.name}",
                hint="uniform, positive, index:E, sorted-index:E, skewed-index:E, offsets:E, permutation or "
                "const:X",
            )
        if kind in (*indices, "permutation") and self.ctype in FLOATING:
            raise BadInput(f"fill {self.fill!r} of {self.ctype}", where=f"argument {self.name}")

    @property
    def array(self) -> bool:
        """Whether it is a pointer to elements."""
        return self.length is not None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A kernel with all that is needed to run, check and time it.

    ``flops`` and ``bytes`` are the useful work of one call (None: not declared). A result r of the kernel
    passes against the expected e where |r - e| <= rtol |e| + atol rms(e), with rms over the array (and, where
    it has few numbers, over several draws of inputs); integers must be equal. ``reference`` is the source of
    a version in higher precision with the same parameters, float as double and double as long double; None:
    made from ``source``. ``returns`` is the entry's result type, None for void. ``work_of`` are the
    expressions of flops and bytes over the sizes, where known. ``alias``: pairs of arrays that a caller may
    hand over as one and the same. ``fixed``: sizes that a caller never changes.
    """

    name: str
    entry: str
    source: str
    suffix: str
    arguments: tuple[Argument, ...]
    sizes: dict[str, int]
    flops: float | None = None
    bytes: float | None = None
    rtol: float
    atol: float
    reference: str | None = None
    flags: tuple[str, ...] = FLAGS
    returns: str | None = None
    work_of: tuple[str | None, str | None] = (None, None)
    alias: tuple[tuple[str, str], ...] = ()
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"problem {self.name}"
        if not (self.rtol >= 0 and self.atol >= 0):
            raise BadInput(f"tolerances {self.rtol} and {self.atol}", where=where, hint="0 or more")
        for name in ("flops", "bytes"):
            given = getattr(self, name)
            if given is not None and not 0 <= given < float("inf"):
                raise BadInput(f"{name} {given}", where=where, hint="0 or more")
        if self.returns is not None and self.returns not in BYTES:
            raise BadInput(f"a result of type {self.returns}", where=where, hint="a number, or void")
        if not any(one.role in ("out", "inout") for one in self.arguments) and self.returns is None:
            raise BadInput(f"{self.entry} writes nothing and returns nothing", where=where, hint="NAME=E:out")
        for one in self.arguments:
            # None at all is a size that a kernel may be called with, though none to time it at.
            if one.array and self.length(one) < 0:
                raise BadInput(f"{one.name} has {self.length(one)} elements", where=where)
        known = {one.name: one for one in self.arguments if one.array}
        for pair in self.alias:
            types = {known[name].ctype for name in pair if name in known}
            if len(set(pair) & known.keys()) != 2 or len(types) != 1:
                raise BadInput(f"alias {':'.join(pair)}", where=where, hint="two arrays of one type, as c:a")

    def length(self, argument: Argument) -> int:
        """Elements of an array at these sizes; 1 for a scalar."""
        if argument.length is None:
            return 1
        return int(value(argument.length, self.sizes, f"length of {argument.name}"))

    @property
    def work(self) -> Work | None:
        """The useful work of one call; None where flops or bytes are not declared."""
        if self.flops is None or not self.bytes:
            return None
        return Work(self.flops, self.bytes)

    def resized(self, sizes: Mapping[str, int]) -> Problem:
        """The same at other sizes; its work is not declared where the sizes do not say it.

        Raises:
            BadInput: an array has no elements at these sizes.
        """
        new = {**self.sizes, **sizes}
        # A plain number tells of the old sizes alone; none at all is none at any size.
        known = (
            one if one is not None and (names_in(one) or not value(one, {}, "work")) else None
            for one in self.work_of
        )
        flops, of_bytes = (None if one is None else value(one, new, "work") for one in known)
        return replace(self, sizes=new, flops=flops, bytes=of_bytes)

    @property
    def digest(self) -> str:
        """16 hex digits of all that decides what is run and how it is judged."""
        # Without what was not declared: a problem of before it could be has the digest that it had.
        left_out = ["name", *(name for name in ("alias", "fixed") if not getattr(self, name))]
        told = repr([getattr(self, name) for name in self.__slots__ if name not in left_out])
        return hashlib.sha256(told.encode()).hexdigest()[:16]


#: Words of a declaration that do not change the element's type.
_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|restrict|__restrict__|__restrict|static|inline|extern|register|_Alignas\s*\([^)]*\)|"
    r"__attribute__\s*\(\(.*?\)\)|struct)\b"
)
_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+\(?[ \t]*(0|[1-9]\d*)[uUlL]*[ \t]*\)?[ \t]*(?://.*|/\*.*)?$",
    re.M,
)
_TYPEDEF = re.compile(r"\btypedef\s+([A-Za-z_][\w ]*?)\s+([A-Za-z_]\w*)\s*;")


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: element type, whether it is an array and constant, and its length where C says it."""

    name: str
    ctype: str
    array: bool
    constant: bool
    length: str | None


@final
@dataclass(frozen=True, slots=True)
class Signature:
    """The entry: name, result (None: void), parameters, and its definition in the syntax tree."""

    entry: str
    returns: str | None
    parameters: tuple[Parameter, ...]
    body: Node


def text(node: Node | None) -> str:
    """A node's source."""
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


def signature(root: Node, source: str, entry: str | None, where: str) -> Signature:
    """The entry's signature; where none is named, the only function that is not static.

    Raises:
        BadInput: no such function, several, a parameter that is no number or array of numbers.
    """
    functions = functions_of(root)
    if entry is None:
        seen = [name for name, node in functions.items() if not re.search(r"\bstatic\b", _head(node))]
        if len(seen) != 1:
            told = ", ".join(seen) or "none"
            raise BadInput(f"which function is the kernel? There are: {told}", where=where, hint="entry=NAME")
        entry = seen[0]
    if entry not in functions:
        raise BadInput(f"no function {entry}", where=where, hint=f"one of {', '.join(functions) or 'none'}")
    node = functions[entry]
    known = {new: old.strip() for old, new in _TYPEDEF.findall(source)}
    declared = _QUALIFIERS.sub(" ", re.sub(r'"C"', " ", text(node.child_by_field_name("type")))).strip()
    returns = None if declared == "void" else _type(declared, known, f"{where}, the result of {entry}")
    if _pointer_result(node):
        raise BadInput(f"{entry} returns a pointer", where=where, hint="a kernel returns a number or nothing")
    function = declarator_of(node)
    listed = function.child_by_field_name("parameters") if function is not None else None
    parameters = []
    for one in listed.named_children if listed is not None else []:
        if one.type == "parameter_declaration" and text(one).strip() != "void":
            parameters.append(_parameter(one, known, where))
        elif one.type not in ("comment", "parameter_declaration"):
            raise BadInput(f"parameter {text(one)!r}", where=where, hint="numbers and arrays of numbers")
    return Signature(entry, returns, tuple(parameters), node)


def functions_of(root: Node) -> dict[str, Node]:
    """The definitions of functions in a syntax tree, by name, in the order of the file."""
    found: dict[str, Node] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "function_definition":
            # Of two definitions, such as in both branches of an #ifdef, the first in the file is taken.
            found.setdefault(_named(node), node)
        elif node.type in (
            "translation_unit", "linkage_specification", "declaration_list", "preproc_ifdef", "preproc_if",
            "preproc_else", "preproc_elif",
        ):  # fmt: skip
            stack.extend(reversed(node.children))
    # Qualified names, such as a method's, are no plain identifiers: they all came under ''.
    found.pop("", None)
    return found


def declarator_of(node: Node) -> Node | None:
    """Where a definition says its function's name and parameters."""
    one = node.child_by_field_name("declarator")
    while one is not None and one.type != "function_declarator":
        one = one.child_by_field_name("declarator")
    return one


def _pointer_result(node: Node) -> bool:
    one = node.child_by_field_name("declarator")
    return one is not None and one.type == "pointer_declarator"


def _named(node: Node) -> str:
    function = declarator_of(node)
    name = function.child_by_field_name("declarator") if function is not None else None
    return text(name) if name is not None and name.type == "identifier" else ""


def _head(node: Node) -> str:
    """What stands before a function's name."""
    name = node.child_by_field_name("declarator")
    return text(node)[: name.start_byte - node.start_byte] if name is not None else ""


def _parameter(node: Node, known: dict[str, str], where: str) -> Parameter:
    kind = _type(
        _QUALIFIERS.sub(" ", text(node.child_by_field_name("type"))).strip(), known, where, text(node)
    )
    one = node.child_by_field_name("declarator")
    pointers, lengths = 0, list[str]()
    # A declarator is read from the outside in: the last dimension comes first.
    while one is not None and one.type != "identifier":
        if one.type == "array_declarator":
            size = one.child_by_field_name("size")
            lengths.insert(0, text(size))
        elif one.type in ("pointer_declarator", "reference_declarator"):
            pointers += 1
        elif one.type != "parenthesized_declarator":
            break
        inner = one.child_by_field_name("declarator")
        if inner is None:
            inner = next((child for child in one.named_children if child.type != "type_qualifier"), None)
        one = inner
    if one is None or one.type != "identifier":
        raise BadInput(f"parameter {text(node)!r} has no plain name", where=where)
    before = text(node)[: node.child_by_field_name("declarator").start_byte - node.start_byte]  # type: ignore[union-attr]
    if pointers > 1 or (pointers and lengths and not text(node).count("(*")):
        raise BadInput(
            f"parameter {text(node)!r} is a pointer to pointers", where=where, hint="one flat array"
        )
    dimensions = ([""] if pointers else []) + lengths
    length = None
    if dimensions and all(dimensions):
        # Dimensions are multiplied, so one that is a sum needs parentheses.
        length = "*".join(f"({size})" if re.search(r"[-+]", size) else size for size in dimensions)
    return Parameter(text(one), kind, bool(dimensions), bool(re.search(r"\bconst\b", before)), length)


def _type(declared: str, known: dict[str, str], where: str, shown: str = "") -> str:
    name = " ".join(declared.split())
    # Typedefs of typedefs; a bound, because a source may define them in a circle.
    for _ in range(8):
        if name in known:
            name = " ".join(_QUALIFIERS.sub(" ", known[name]).split())
    name = {"unsigned long int": "unsigned long", "long int": "long", "short int": "short",
            "signed": "int", "signed int": "int", "long long int": "long long"}.get(
        name.removeprefix("std::"), name.removeprefix("std::")
    )  # fmt: skip
    if name not in BYTES:
        raise BadInput(
            f"type {declared!r}{f' of {shown!r}' if shown else ''}",
            where=where,
            hint="float, double, or integers",
        )
    return name


def parse(source: str, suffix: str) -> Tree:
    """The syntax tree of C, or of C++ by its suffix.

    Raises:
        MissingExtra: the parser is not installed.
    """
    try:
        from tree_sitter import Language, Parser

        grammar = importlib.import_module("tree_sitter_c" if suffix == ".c" else "tree_sitter_cpp")
    except ImportError:
        raise MissingExtra("tree-sitter", "languages") from None
    return Parser(Language(grammar.language())).parse(source.encode())


#: A line of a problem's comment block.
BLOCK = re.compile(r"(?://|/\*|\*)[ \t]*(?:refork|ramify):[ \t]*(.*?)(?:\*/|$)", re.MULTILINE)
_KEYS = ("entry", "rtol", "atol", "flops", "bytes", "reference", "flags", "name", "alias", "fixed")
_ROLES = ("in", "out", "inout", "scalar")
#: Relative tolerances, and those against the root mean square of an output.
_RTOL = {"float": 1e-4, "double": 1e-10}
_ATOL = {"float": 1e-5, "double": 1e-11}


def read_problem(
    path: Path, entry: str | None = None, *, sizes: Mapping[str, int] | None = None, **settings: Any
) -> Problem:
    """A problem from a C or C++ file.

    Settings are those of the comment block (``// refork: entry=f n=512 a=n*n c=n*n:out``), which those given
    here outdo: ``rtol``, ``atol``, ``flops`` and ``bytes`` (expressions over the sizes), ``reference`` (a
    file), ``flags``, ``alias`` (``c:a,d:b``: arrays that may be the same), ``fixed`` (``n,m``: sizes at whose
    values alone a version has to be right), a size by its name, ``NAME=LENGTH[:ROLE][:FILL]`` for an array,
    and ``NAME=:scalar:const:X`` for a number. An array that is not const is ``inout`` unless its role is
    told.

    Raises:
        BadInput: no such file or function, an unknown key, a size or a length that nobody told: the message
            says the line to add. MissingExtra: the C parser is not installed.
    """
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    if path.suffix not in COMPILERS:
        cuda = "--code takes what its compiler and disassembler printed"
        hint = cuda if path.suffix == ".cu" else ", ".join(COMPILERS)
        raise BadInput(f"{path.name} is no C or C++ file", where="kernel problem", hint=hint)
    source, where = path.read_text(errors="replace"), path.name
    told: dict[str, Any] = {**_comments(source, where), **settings, **(sizes or {})}
    if entry is not None:
        told["entry"] = entry
    found = signature(parse(source, path.suffix).root_node, source, told.get("entry"), where)
    flags = _flags(told.get("flags"))
    known = _sizes(found, told, macros_of(source, flags), where)
    _nothing_missing(found, told, known, where)
    arguments = tuple(_argument(one, str(told.get(one.name, "")), known, where) for one in found.parameters)
    kinds = [one.ctype for one in arguments if one.role in ("out", "inout")] + [found.returns]
    kind = "float" if "float" in kinds else "double" if "double" in kinds else ""
    reference = told.get("reference")
    rtol, atol = _number(told, "rtol", {}), _number(told, "atol", {})
    work = [None if told.get(key) is None else str(told[key]) for key in ("flops", "bytes")]
    alias = [pair.partition(":") for pair in str(told.get("alias", "")).split(",") if pair]
    made = Problem(
        name=str(told.get("name", found.entry)),
        entry=found.entry,
        source=source,
        suffix=path.suffix,
        arguments=arguments,
        sizes=known,
        flops=_number(told, "flops", known),
        bytes=_number(told, "bytes", known),
        rtol=_RTOL.get(kind, 0.0) if rtol is None else rtol,
        atol=_ATOL.get(kind, 0.0) if atol is None else atol,
        reference=None if reference is None else _reference(path, str(reference)),
        flags=flags,
        returns=found.returns,
        work_of=(work[0], work[1]),
        alias=tuple((one, other) for one, _, other in alias),
        fixed=_fixed(told, known, where),
    )
    for argument in arguments:
        if argument.array and not made.length(argument):
            raise BadInput(f"{argument.name} has 0 elements", where=f"problem {made.name}")
    return made


def parse_settings(items: list[str]) -> dict[str, Any]:
    """Settings from ``KEY=VALUE`` items, as :func:`read_problem` takes them.

    Raises:
        BadInput: an item of another form.
    """
    told: dict[str, Any] = {}
    for item in items:
        key, sign, said = item.partition("=")
        if not sign or not key.isidentifier() or not said or key in ("path", "sizes"):
            raise BadInput(f"setting {item!r}", where="kernel problem", hint="KEY=VALUE, such as n=512")
        told[key] = said
    return told


def _comments(source: str, where: str) -> dict[str, Any]:
    items = [item for line in BLOCK.findall(source) for item in line.split()]
    for item in items:
        if not re.fullmatch(r"[^=]+=.+", item):
            raise BadInput(f"{item!r} in the comment block", where=where, hint="KEY=VALUE without spaces")
    return dict(item.split("=", 1) for item in items)


def macros_of(source: str, flags: tuple[str, ...]) -> dict[str, int]:
    """Whole numbers that the file or ``-D`` flags define; not such as 010, which is octal in C."""
    given = {
        name: int(number) for name, number in re.findall(r"-D(\w+)=(0|[1-9]\d*)(?= |$)", " ".join(flags))
    }
    # The flag wins: a file that lets itself be told has its #define inside #ifndef.
    return {name: int(number) for name, number in _DEFINE.findall(source)} | given


def _sizes(found: Signature, told: dict[str, Any], macros: dict[str, int], where: str) -> dict[str, int]:
    """Sizes that are told, and those that are macros, which settings cannot change."""
    for name in macros.keys() & told.keys():
        if str(told[name]) != str(macros[name]):
            raise BadInput(
                f"{name} is a macro, {macros[name]} here, not {told[name]}",
                where=where,
                hint=f"change its #define, or put that in #ifndef {name} and give flags=-O3,-D{name}=...",
            )
    used = {name for one in found.parameters for name in names_in(one.length or "")}
    used |= {
        name for key, said in told.items() if key not in ("alias", "fixed")
        for part in str(said).split(":") for name in names_in(part)
    }  # fmt: skip
    # A macro of the body is a size too: the work may follow from it.
    body = set(re.findall(r"\b[A-Z][A-Z0-9_]*\b", text(found.body)))
    sizes = {name: number for name, number in macros.items() if name in used | body}
    parameters = {one.name: one for one in found.parameters}
    for key, said in told.items():
        one = parameters.get(key)
        # An integer parameter that is told with a colon is a scalar with a fill, and no size.
        if key in _KEYS or (one is not None and (one.array or one.ctype in FLOATING or ":" in str(said))):
            continue
        if one is None and key not in used:
            hint = f"settings: {', '.join(_KEYS)}"
            raise BadInput(f"there is no parameter or setting {key}", where=where, hint=hint)
        number = said if isinstance(said, int | float) else value(str(said), sizes, f"{where}, size {key}")
        if number != int(number) or not 0 <= number < 1 << 40:
            raise BadInput(f"size {key} is {said}", where=where, hint="a whole number, 0 or more")
        sizes[key] = int(number)
    return sizes


def _nothing_missing(found: Signature, told: dict[str, Any], sizes: dict[str, int], where: str) -> None:
    """Nothing where every size and length is known.

    Raises:
        BadInput: one is not, with the line to add for all of them.
    """
    missing = {}
    for one in found.parameters:
        length = str(told.get(one.name, "")).partition(":")[0] or one.length
        if one.array:
            if not length:
                missing[one.name] = f"{one.name}=LENGTH{'' if one.constant else ':out or :inout'}"
            missing |= {name: f"{name}=NUMBER" for name in names_in(length or "") - set(sizes)}
        elif one.ctype not in FLOATING and one.name not in sizes and one.name not in told:
            missing[one.name] = f"{one.name}=NUMBER"
    if missing:
        asked = ", ".join(missing)
        raise BadInput(
            f"what is {asked}?", where=where, hint=f"add the line  // refork: {' '.join(missing.values())}"
        )


def _argument(one: Parameter, said: str, sizes: dict[str, int], where: str) -> Argument:
    """A parameter as ``LENGTH[:ROLE][:FILL]`` says; a fill may hold a colon itself."""
    length, _, rest = said.partition(":")
    role, _, fill = rest.partition(":")
    if role and role not in _ROLES:
        role, fill = "", rest
    fill = fill or "uniform"
    if not one.array:
        if role not in ("", "scalar"):
            raise BadInput(f"role {role} of the number {one.name}", where=where, hint="scalar")
        kind: Role = "size" if one.name in sizes else "scalar"
        return Argument(name=one.name, ctype=one.ctype, length=None, role=kind, fill=fill)
    if length and not names_in(length) and not re.fullmatch(r"[\d\s.*+()/-]+", length):
        raise BadInput(f"{one.name}={said}", where=where, hint=f"{one.name}=LENGTH[:ROLE][:FILL]")
    if role == "scalar":
        raise BadInput(f"role {role} of the array {one.name}", where=where, hint="in, out or inout")
    told: Any = role or ("in" if one.constant else "inout")
    return Argument(name=one.name, ctype=one.ctype, length=length or one.length, role=told, fill=fill)


def _fixed(told: dict[str, Any], sizes: Mapping[str, int], where: str) -> tuple[str, ...]:
    said = tuple(name for name in str(told.get("fixed", "")).split(",") if name)
    if unknown := [name for name in said if name not in sizes]:
        raise BadInput(f"fixed={unknown[0]}", where=where, hint=f"sizes: {', '.join(sizes) or 'none'}")
    return said


def _number(told: dict[str, Any], key: str, names: Mapping[str, float]) -> float | None:
    said = told.get(key)
    if said is None:
        return None
    return float(said) if isinstance(said, int | float) else float(value(str(said), names, key))


def _flags(said: Any) -> tuple[str, ...]:
    if said is None:
        return FLAGS
    listed = said.split(",") if isinstance(said, str) else list(said)
    return check_flags([str(one) for one in listed if one])


def _reference(path: Path, said: str) -> str:
    file = path.parent / said
    if not file.is_file():
        raise BadInput(f"no reference {said}", where=str(path), hint="a file beside the kernel")
    return file.read_text()
