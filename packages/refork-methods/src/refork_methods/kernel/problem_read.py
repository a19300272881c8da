"""Problems from C and C++ files: signature, comments, a TOML file beside, and options; the later wins."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork_methods.kernel.cpu.build import COMPILERS, FLAGS, check_flags
from refork_methods.kernel.problem import FLOATING, Argument, Problem, Role
from refork_methods.kernel.problem_expr import names_in, value
from refork_methods.kernel.problem_lengths import inferred_length
from refork_methods.kernel.problem_signature import Parameter, Signature, constants, signature, text
from refork_methods.kernel.problem_syntax import parse

_BLOCK = re.compile(r"(?://|/\*|\*)[ \t]*(?:refork|ramify):[ \t]*(.*?)(?:\*/|$)", re.MULTILINE)
_KEYS = ("entry", "rtol", "atol", "flops", "bytes", "reference", "flags", "name")
_ROLES = ("in", "out", "inout", "scalar", "size")
#: Relative tolerances, and those against the root mean square of an output.
_RTOL = {"float": 1e-4, "double": 1e-10}
_ATOL = {"float": 1e-5, "double": 1e-11}


def read_problem(
    path: Path, entry: str | None = None, *, sizes: Mapping[str, int] | None = None, **settings: Any
) -> Problem:
    """A problem from a C or C++ file.

    Settings are those of the comment block (``// refork: entry=f n=512 a=n*n c=n*n:out``) and of the TOML
    file beside it (the same keys, numbers as numbers): ``rtol``, ``atol``, ``flops`` and ``bytes``
    (expressions over the sizes), ``reference`` (a file), ``flags``, a size by its name,
    ``NAME=LENGTH[:ROLE][:FILL]`` for an array, and ``NAME=:scalar:const:X`` for a number.

    Raises:
        BadInput: no such file or function, an unknown key, a size or a length that nobody told: the message
            says the line to add. MissingExtra: the C parser is not installed.
    """
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    if path.suffix not in COMPILERS:
        raise BadInput(f"{path.name} is no C or C++ file", where="kernel problem", hint=", ".join(COMPILERS))
    source = path.read_text(errors="replace")
    told: dict[str, Any] = {**_comments(source, path.name), **_beside(path), **settings, **(sizes or {})}
    if entry is not None:
        told["entry"] = entry
    found = signature(parse(source, path.suffix).root_node, source, told.get("entry"), path.name)
    return _made(path, source, found, told)


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
    told: dict[str, Any] = {}
    for line in _BLOCK.findall(source):
        for item in line.split():
            key, sign, said = item.partition("=")
            if not sign or not key or not said:
                raise BadInput(f"{item!r} in the comment block", where=where, hint="KEY=VALUE without spaces")
            told[key] = said
    return told


def _beside(path: Path) -> dict[str, Any]:
    file = path.with_suffix(".toml")
    if not file.is_file():
        return {}
    try:
        told = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{error}", where=str(file)) from None
    flat: dict[str, Any] = {key: one for key, one in told.items() if key not in ("sizes", "arguments")}
    flat |= told.get("sizes", {})
    for name, one in told.get("arguments", {}).items():
        parts = (
            [str(one.get(part, "")) for part in ("length", "role", "fill")] if isinstance(one, dict) else []
        )
        flat[name] = ":".join(parts).rstrip(":") if parts else one
    return flat


def _made(path: Path, source: str, found: Signature, told: dict[str, Any]) -> Problem:
    where = path.name
    flags = _flags(told.get("flags"))
    sizes = _macros(source, flags, found, told, where) | _sizes(found, told, where)
    arguments = tuple(_argument(one, found, told, sizes, where) for one in found.parameters)
    kinds = [one.ctype for one in arguments if one.role in ("out", "inout")] + [found.returns]
    kind = "float" if "float" in kinds else "double" if "double" in kinds else ""
    reference = told.get("reference")
    rtol, atol = _number(told, "rtol", {}), _number(told, "atol", {})
    work = [None if told.get(key) is None else str(told[key]) for key in ("flops", "bytes")]
    return Problem(
        name=str(told.get("name", found.entry)),
        entry=found.entry,
        source=source,
        suffix=path.suffix,
        arguments=arguments,
        sizes=sizes,
        flops=_number(told, "flops", sizes),
        bytes=_number(told, "bytes", sizes),
        rtol=_RTOL.get(kind, 0.0) if rtol is None else rtol,
        atol=_ATOL.get(kind, 0.0) if atol is None else atol,
        reference=None if reference is None else _reference(path, str(reference)),
        flags=flags,
        returns=found.returns,
        work_of=(work[0], work[1]),
    )


def _macros(
    source: str, flags: tuple[str, ...], found: Signature, told: dict[str, Any], where: str
) -> dict[str, int]:
    """Sizes that are macros, as the file or ``-D`` flags define them; settings cannot change them."""
    known = constants(source)
    known |= {name: int(number) for name, number in re.findall(r"-D(\w+)=(\d+)(?= |$)", " ".join(flags))}
    for name in known.keys() & told.keys():
        if str(told[name]) != str(known[name]):
            raise BadInput(
                f"{name} is a macro, {known[name]} here, not {told[name]}",
                where=where,
                hint=f"change its #define, or put that in #ifndef {name} and give flags=-O3,-D{name}=...",
            )
    used = _macros_used(found, told)
    return {name: number for name, number in known.items() if name in used}


def _macros_used(found: Signature, told: dict[str, Any]) -> set[str]:
    used: set[str] = set()
    for one in found.parameters:
        used |= names_in(one.length or "") | names_in(str(told.get(one.name, "")).partition(":")[0])
    for key in ("flops", "bytes"):
        used |= names_in(str(told.get(key, "")))
    return used | set(re.findall(r"\b[A-Z][A-Z0-9_]*\b", text(found.body)))


def _sizes(found: Signature, told: dict[str, Any], where: str) -> dict[str, int]:
    parameters = {one.name: one for one in found.parameters}
    sizes: dict[str, int] = {}
    for key, said in told.items():
        if key in _KEYS or (key in parameters and parameters[key].array):
            continue
        if key in parameters and parameters[key].ctype in FLOATING:
            continue
        if isinstance(said, str) and ":" in said and key in parameters:
            continue
        if key not in parameters and not re.fullmatch(r"[A-Za-z_]\w*", key):
            raise BadInput(f"setting {key!r}", where=where)
        number = said if isinstance(said, int | float) else value(str(said), sizes, f"{where}, size {key}")
        if key not in parameters and key not in names_all(found, told):
            raise BadInput(
                f"there is no parameter or setting {key}", where=where, hint=f"settings: {', '.join(_KEYS)}"
            )
        if number != int(number) or not 0 <= number < 1 << 40:
            raise BadInput(f"size {key} is {said}", where=where, hint="a whole number, 0 or more")
        sizes[key] = int(number)
    return sizes


def names_all(found: Signature, told: dict[str, Any]) -> set[str]:
    """Names that lengths and work are told in, beside parameters."""
    used: set[str] = set()
    for one in found.parameters:
        used |= names_in(one.length or "")
    for said in told.values():
        for part in str(said).split(":"):
            used |= names_in(part)
    return used


def _argument(
    one: Parameter, found: Signature, told: dict[str, Any], sizes: dict[str, int], where: str
) -> Argument:
    said = str(told.get(one.name, ""))
    length, role, fill = _split(said, one.name, where)
    if not one.array:
        return _scalar(one, role, fill, sizes, where)
    length = length or one.length or inferred_length(found.body, one.name, sizes)
    guess: Role = "in" if one.constant else _written(found, one.name)
    if role is not None and role not in ("in", "out", "inout"):
        raise BadInput(f"role {role} of the array {one.name}", where=where, hint="in, out or inout")
    if length is None:
        line = f"// refork: {one.name}=LENGTH{'' if one.constant else ':' + guess}"
        missing = " ".join(f"{p.name}=NUMBER" for p in found.parameters if _unsized(p, sizes, told))
        raise BadInput(
            f"how long is {one.name}?",
            where=where,
            hint=f"add the line  {line}{' ' + missing if missing else ''}",
        )
    unknown = names_in(length) - set(sizes)
    if unknown:
        line = " ".join(f"{name}=NUMBER" for name in sorted(unknown))
        raise BadInput(f"length {length} of {one.name}", where=where, hint=f"add the line  // refork: {line}")
    return Argument(name=one.name, ctype=one.ctype, length=length, role=role or guess, fill=fill or "uniform")


def _unsized(one: Parameter, sizes: dict[str, int], told: dict[str, Any]) -> bool:
    return not one.array and one.ctype not in FLOATING and one.name not in sizes and one.name not in told


def _scalar(
    one: Parameter, role: Role | None, fill: str | None, sizes: dict[str, int], where: str
) -> Argument:
    if one.name in sizes:
        return Argument(name=one.name, ctype=one.ctype, length=None, role="size")
    if one.ctype not in FLOATING and fill is None:
        raise BadInput(
            f"what is {one.name}?", where=where, hint=f"add the line  // refork: {one.name}=NUMBER"
        )
    if role not in (None, "scalar"):
        raise BadInput(f"role {role} of the number {one.name}", where=where, hint="scalar")
    return Argument(name=one.name, ctype=one.ctype, length=None, role="scalar", fill=fill or "uniform")


def _split(said: str, name: str, where: str) -> tuple[str | None, Role | None, str | None]:
    """Length, role and fill of ``LENGTH[:ROLE][:FILL]``; a fill may hold a colon itself."""
    length, _, rest = said.partition(":")
    role, _, fill = rest.partition(":")
    if role and role not in _ROLES:
        role, fill = "", rest
    if length and not names_in(length) and not re.fullmatch(r"[\d\s.*+()/-]+", length):
        raise BadInput(f"{name}={said}", where=where, hint=f"{name}=LENGTH[:ROLE][:FILL]")
    return length or None, role or None, fill or None  # type: ignore[return-value]


def _written(found: Signature, name: str) -> Role:
    """Out where the first thing done to an array is a plain assignment; else inout."""
    stack = [found.body.child_by_field_name("body")]
    while stack:
        node = stack.pop()
        if node is None or node.type != "identifier" or text(node) != name:
            stack.extend(reversed(node.children) if node is not None else [])
            continue
        above = node.parent
        while above is not None and above.type == "subscript_expression" and above.children[0] == node:
            node, above = above, above.parent
        if above is None or above.type != "assignment_expression":
            return "inout"
        if above.child_by_field_name("left") != node:
            return "inout"
        plain = text(above.child_by_field_name("operator")) == "="
        again = re.search(rf"\b{re.escape(name)}\b", text(above.child_by_field_name("right")))
        return "out" if plain and node.type == "subscript_expression" and not again else "inout"
    return "inout"


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
