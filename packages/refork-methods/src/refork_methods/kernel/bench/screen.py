"""What a candidate is refused for before it runs: its text, and its object file.

A kernel needs the C library's mathematics, memory and little else. The list is one of what is let in, so that
a way around the bench that nobody thought of is not. What passes here is still run without any rights.

The look at the text is a courtesy: it says early and in plain words what is wrong with an honest source. Many
disguises pass it. What holds a source back while it is compiled is the jail of the compiler.
"""

from __future__ import annotations

import re
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.cpu.build import LISTED, read_whole, run_tool

_SYMBOLS = 2  # SHT_SYMTAB
LOCAL, INDIRECT, UNDEFINED = 0, 10, 0
#: Of sections and symbols, and bytes of a name: names may lie in each other, so that a small file tells much.
_MOST, _LONGEST = 1 << 16, 4096


@final
@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: its name, whether it is defined here, seen outside, and resolved by code (an ifunc)."""

    name: str
    defined: bool
    outside: bool
    indirect: bool


def read_object(data: bytes) -> tuple[list[str], list[Symbol]]:
    """Names of the sections, and the symbols.

    Raises:
        BadInput: it is no such file.
    """
    try:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("it is no 64-bit ELF file")
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        if size < 64:
            raise ValueError("its section headers are too short")
        if count == 0 or names == 0xFFFF:  # more sections than the header can count: in the first of them
            (many,) = struct.unpack_from("<Q", data, start + 32)
            (link,) = struct.unpack_from("<I", data, start + 40)
            count, names = (many or count), (link if names == 0xFFFF else names)
        if count > _MOST:
            raise ValueError(f"over {_MOST} sections")
        heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + size * n) for n in range(count)]
        table = _content(data, heads[names])
        sections = [_text(table, head[0]) for head in heads]
        symbols: list[Symbol] = []
        for head in heads:
            if head[1] == _SYMBOLS:
                if head[5] > 24 * _MOST or len(symbols) > _MOST:
                    raise ValueError(f"over {_MOST} symbols")
                symbols += _symbols(_content(data, head), _content(data, heads[head[6]]))
    except (struct.error, IndexError, ValueError) as error:
        raise BadInput(f"this object file cannot be read: {error}", where="kernel build") from None
    return sections, symbols


def _content(data: bytes, head: tuple[int, ...]) -> bytes:
    return data[head[4] : head[4] + head[5]]


def _symbols(table: bytes, names: bytes) -> list[Symbol]:
    found = []
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table[: len(table) // 24 * 24]):
        if name:
            found.append(
                Symbol(_text(names, name), section != UNDEFINED, info >> 4 != LOCAL, info & 15 == INDIRECT)
            )
    return found


def _text(table: bytes, start: int) -> str:
    end = table.find(b"\0", start, start + _LONGEST + 1)
    if end < 0:
        raise ValueError(f"a name that does not end, or is over {_LONGEST} bytes")
    return table[start:end].decode(errors="replace")


_INCLUDE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(include(?:_next)?|import|embed)\b(.*)$", re.MULTILINE)
#: Headers of the standard libraries and of vector instructions, by a plain name.
_HEADER = re.compile(
    r"<(?:c?(?:assert|complex|ctype|errno|fenv|float|inttypes|limits|math|stdalign|stdarg|stdbool|stddef|"
    r"stdint|stdio|stdlib|string|tgmath|time)(?:\.h)?|malloc\.h|omp\.h|alloca\.h|arm_(?:neon|sve|bf16|fp16)\.h|"
    r"(?:x86|[a-z]?mm|imm|amm|zmm|[a-z0-9]+)intrin\.h|algorithm|array|bit|bitset|functional|iterator|memory|"
    r"numeric|limits|type_traits|utility|vector|valarray|tuple|span|new|cstddef|cstdint|experimental/simd)>"
)
_READS_FILES = re.compile(r"\.\s*(?:incbin|include)\b", re.IGNORECASE)
#: Names that the driver or the C library's start needs for itself.
RESERVED = frozenset(("main", "_start", "refork_call", "_init", "_fini", "environ"))
_SECTION = re.compile(
    r"\.?(?:text|data|rodata|bss|tdata|tbss|lbss|ldata|lrodata|comment|note|eh_frame|debug|symtab|symtab_shndx|"
    r"strtab|shstrtab|gcc_except_table|group|ltext)(?:[._].*)?|\.rela?(?:\..*)?|"
)
_MATHS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 exp10 expm1 fabs "
    "fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb "
    "lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo rint round roundeven scalbln "
    "scalbn sin sincos sinh sqrt tan tanh tgamma trunc cabs carg cexp clog conj cpow csqrt creal cimag cproj "
    "csin ccos ctan csinh ccosh ctanh __fpclassify __isinf __isnan __finite __signbit"
)
_LIBRARY = (
    "malloc calloc realloc free aligned_alloc posix_memalign memalign memcpy memmove memset memcmp memchr "
    "mempcpy memrchr strlen strcmp strncmp abs labs llabs div ldiv qsort bsearch abort "
    "__assert_fail __stack_chk_fail __memcpy_chk __memset_chk __memmove_chk __errno_location __tls_get_addr "
    "_GLOBAL_OFFSET_TABLE_ __cpu_model __cpu_features2 __gxx_personality_v0 __gcc_personality_v0 "
    "_Unwind_Resume __cxa_begin_catch __cxa_end_catch __cxa_rethrow __cxa_guard_acquire __cxa_guard_release "
    "__cxa_guard_abort __cxa_throw_bad_array_new_length __cxa_allocate_exception __cxa_free_exception "
    "__cxa_throw __cxa_pure_virtual _ZSt9terminatev _ZSt17__throw_bad_allocv _ZSt20__throw_length_errorPKc "
    "_ZSt28__throw_bad_array_new_lengthv _ZSt24__throw_out_of_range_fmtPKcz _ZSt25__throw_bad_function_callv "
    "_ZSt7nothrow"
)
_ALLOWED = frozenset(_LIBRARY.split()) | {
    name + end for name in _MATHS.split() for end in ("", "f", "l", "_finite", "f_finite")
}
#: Vector mathematics, operators new and delete, arithmetic that the compiler calls for.
_ALLOWED_LIKE = re.compile(
    r"_ZGV[a-z]\w*_\w+|_Zn[wa]m\w*|_Zd[la]Pv\w*|__(?:\w+_finite|"
    r"[a-z]+(?:[qhsdtbx][if]|[sdtxh]c)[a-z0-9]*[0-9]?)|_ZTV.*|_ZTI.*"
)
_SYSTEM_CALL = re.compile(r"\t(?:syscall|sysenter|int +\$?0x80|svc\b.*)", re.MULTILINE)


@final
class RefusedError(Exception):
    """A candidate does what no kernel needs; ``cheat`` is the name of the trick."""

    def __init__(self, cheat: str, why: str) -> None:
        super().__init__(why)
        self.cheat = cheat


def screen_source(source: str) -> None:
    """A courtesy to honest writers: includes of what is no standard header are told before they fail.

    It holds nobody back who means to get past it; the compiler's jail does.

    Raises:
        RefusedError: it includes another file.
    """
    # The preprocessor joins lines before it looks for directives, so an include may be cut in two.
    joined = re.sub(r"\\\r?\n", "", source)
    plain = re.sub(r"/\*.*?\*/", " ", joined, flags=re.DOTALL)
    # In both texts: a comment before the # hides an include from the first, a /* in a string from the second.
    for found in (*_INCLUDE.finditer(joined), *_INCLUDE.finditer(plain)):
        told = re.sub(r"//.*|/\*.*?\*/", "", found[2]).strip()
        if found[1] != "include" or not _HEADER.fullmatch(told):
            raise RefusedError("reads-files", f"it includes {told or found[1]}, which is no standard header")
    # Neighbouring strings are one to the compiler, so a directive may be cut in two as well.
    strings = re.sub(r'"\s*"', "", plain)
    if _READS_FILES.search(strings) or "__has_embed" in source:
        raise RefusedError("reads-files", "its assembler reads another file")


def screen_object(path: Path, entry: str) -> str:
    """The entry's symbol as the object spells it (mangled in C++), where nothing speaks against the object.

    Raises:
        RefusedError: a section that runs before or after, an import that is not let in, a system call.
        BadInput: no such entry, or a name that is taken.
    """
    if entry in RESERVED:
        raise BadInput(f"an entry cannot be called {entry}", where="kernel build", hint="rename it")
    data = read_whole(path)
    sections, symbols = read_object(data)
    for name in sections:
        if not _SECTION.fullmatch(name):
            raise RefusedError("runs-outside", f"it has a section {name}: code that runs outside of calls")
    for one in symbols:
        if one.indirect:
            raise RefusedError(
                "runs-outside", f"{one.name} is resolved before the first call; use -march, not target_clones"
            )
        if not one.defined and not _allowed(one.name):
            raise RefusedError(
                "imports",
                f"it uses {one.name}, which is not among what a kernel may use (one core, no files)",
            )
    _no_system_calls(data)
    return _entry(symbols, entry)


def _allowed(name: str) -> bool:
    return name in _ALLOWED or _ALLOWED_LIKE.fullmatch(name) is not None


def _entry(symbols: list[Symbol], entry: str) -> str:
    mangled = re.compile(rf"_Z{len(entry)}{re.escape(entry)}(?!\d)\w*")
    own = [one.name for one in symbols if one.defined and one.outside]
    found = [name for name in own if name == entry] or [name for name in own if mangled.fullmatch(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"{entry} has {len(found)} overloads", where="kernel build", hint='extern "C"')
    if any(one.name == entry and one.defined for one in symbols):
        raise BadInput(f"{entry} is static", where="kernel build", hint="remove the static before it")
    raise BadInput(f"there is no function {entry}", where="kernel build", hint="the entry keeps its name")


def _no_system_calls(data: bytes) -> None:
    if shutil.which("objdump") is None:  # the filter of the process holds them back all the same
        return
    command = ("objdump", "-d", "--no-show-raw-insn", "kernel.o")
    where = "kernel build, objdump"
    said = run_tool(command, {"kernel.o": data}, (), seconds=60, where=where, bounds=LISTED).out
    if _SYSTEM_CALL.search(said.decode(errors="replace")):
        raise RefusedError("system-call", "it makes system calls of its own")
