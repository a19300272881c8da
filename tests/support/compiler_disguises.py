"""Sources that try to read a file at compile time, and sources that try to use up the machine.

Each way to a file is a disguise of another kind. ``new`` are kinds that the screen of texts was not written
for. What is looked at is the effect: whether the file's bytes come back in an error, an object, a program or
a listing. In a source and its flags, SECRET stands for the file's path, NEAR for that of a link to it beside
the source, HELD for the number of an open descriptor of it, VICTIM for a process with its bytes in its
environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

#: Every source ends with this function, so that it is built to the end where nothing stops it.
ENTRY: Final = "void k(int n, float *a) { for (int i = 0; i < n; i++) a[i] += 1; }\n"


@final
@dataclass(frozen=True, slots=True)
class Disguise:
    """A source that tries to read SECRET."""

    name: str
    source: str
    new: bool = False
    suffix: str = ".c"
    flags: tuple[str, ...] = ("-O1",)


@final
@dataclass(frozen=True, slots=True)
class Bomb:
    """A source that makes a compiler or its tools take memory, disk, time or words without end."""

    name: str
    source: str
    suffix: str = ".c"


_ISO = ("-O1", "-std=c11")
#: Reads the file, once the assembler sees it; the second is told in its errors too.
_HIDDEN = '\\n.inc\\142in \\"SECRET\\"\\n#'
_TOLD = '\\n.incl\\165de \\"SECRET\\"\\n#'


def _asm(text: str) -> str:
    """A statement at the top of a file, from the text that the assembler sees."""
    told = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'__asm__("{told}");\n'


def _incbin(path: str = "SECRET") -> str:
    """The same by a directive whose name is made in the assembler alone."""
    return _asm(f'.irp x,inc\n.\\x\\()bin "{path}"\n.endr')


_PLAIN = _asm('.incbin "SECRET"')
#: Kinds that the screen's rules, or the reports that it was mended after, name.
_KNOWN = {
    "include": '#include "SECRET"\n',
    "include in angles": "#include <SECRET>\n",
    "include up from the headers": "#include <../../../../../../../..SECRET>\n",
    "digraph": '%:include "SECRET"\n',
    "joined line": '#inc\\\nlude "SECRET"\n',
    "comment before": '/* \n */ #include "SECRET"\n',
    "comment within": '#/**/include/**/"SECRET"\n',
    "macro": '#define F "SECRET"\n#include F\n',
    "include next": '#include_next "SECRET"\n',
    "import": '#import "SECRET"\n',
    "embed": 'const char b[] = {\n#embed "SECRET"\n};\n',
    "has embed": '#if __has_embed("SECRET")\nconst char b[] = {\n#embed "SECRET"\n};\n#endif\n',
    "has include": '#if __has_include("SECRET")\n#include "SECRET"\n#endif\n',
    "incbin": _PLAIN,
    "include of the assembler's": _asm('.include "SECRET"'),
    "joined strings": '__asm__(".inc" "bin \\"SECRET\\"");\n',
    "octal escape": '__asm__(".\\151ncbin \\"SECRET\\"");\n',
    "hexadecimal escape": '__asm__(".\\x69ncbin \\"SECRET\\"");\n',
    "stringification": '#define S(x) #x\n__asm__(S(.inc) S(bin) " \\"SECRET\\"");\n',
    "macro of the assembler's": _asm('.macro m a\n.\\a\\()bin "SECRET"\n.endm\nm inc'),
    "form feed": '\f#include "SECRET"\n',
    "vertical tab": '\v#include "SECRET"\n',
    "backslash, space, newline": '#inc\\ \nlude "SECRET"\n',
    "comment opener in a string": f'char b[] = "/*";\n{_PLAIN}char e[] = "*/";\n',
}

#: Kinds that it was not written for.
_NEW = {
    "stringified path": "#define S(x) #x\n#define T(x) S(x)\n#include T(SECRET)\n",
    "angles of a macro": "#define T(x) <x>\n#include T(SECRET)\n",
    "null byte before": '\0#include "SECRET"\n',
    "byte order mark": '\ufeff#include "SECRET"\n',
    "comment opener in a character": f"int b = '/*';\n{_PLAIN}int e = '*/';\n",
    "comment opener in a line comment": f"// /*\n{_PLAIN}// */\n",
    "error in another file": '#line 1 "SECRET"\nint b = ;\n',
    "error after a marker": '# 1 "SECRET"\nint b = ;\n',
    "warning in another file": '#line 1 "SECRET"\nint *b = 1.5;\n',
    "pragma of the preprocessor": '#pragma GCC dependency "SECRET" newer\n',
    "pragma operator": '_Pragma("GCC dependency \\"SECRET\\" newer")\n',
    "precompiled header": '#pragma GCC pch_preprocess "SECRET"\n',
    "system header": '#pragma GCC system_header\n#include_next "SECRET"\n',
    "alternatives of dialects": 'void b(void) { __asm__(".{inc|x}{bin|y} \\"SECRET\\"" :: "r"(0)); }\n',
    "operand": ('extern char incbin[];\nvoid b(void) { __asm__(".%c0 \\"SECRET\\"" :: "i"(incbin)); }\n'),
    "name of a variable": f'int b __asm__("y{_TOLD}") = 1;\n',
    "name of a function": f'void x(void) __asm__("y{_HIDDEN}");\nvoid b(void) {{ x(); }}\n',
    "name of a section": f'__attribute__((section("z,\\"a\\"{_HIDDEN}"))) int b = 1;\n',
    "ident": f'#ident "x\\"{_HIDDEN}"\n',
    "version of a symbol": f'int b(void) {{ return 1; }}\n__asm__(".symver b, b@{_HIDDEN}");\n',
    "list of the assembler's": _incbin(),
    "letters of the assembler's": _asm('.irpc x,c\n.in\\x\\()bin "SECRET"\n.endr'),
    "other macro syntax": _asm('.altmacro\n.macro m a\n.&a&bin "SECRET"\n.endm\nm inc'),
    "default of a macro": _asm('.macro m a=incb\n.\\a\\()in "SECRET"\n.endm\nm'),
    "macro of macros": _asm(
        '.macro m a:vararg\n\\a\n.endm\n.macro w x\nm .in\\x\\()bin "SECRET"\n.endm\nw c'
    ),
    "include of macros": _asm('.irp x,incl\n.\\x\\()ude "SECRET"\n.endr'),
    "repeated once": _asm('.rept 1\n.irp x,in\n.\\x\\()cbin "SECRET"\n.endr\n.endr'),
    "own root": '\f#include "/proc/self/rootSECRET"\n',
    "root of another": _incbin("/proc/VICTIM/rootSECRET"),
    "environment of another": '\f#include "/proc/VICTIM/environ"\n',
    "environment of another, assembled": _asm('.irp x,incl\n.\\x\\()ude "/proc/VICTIM/environ"\n.endr'),
    "own environment": '\f#include "/proc/self/environ"\n',
    "inherited descriptor": _incbin("/proc/self/fd/HELD"),
    "device of a descriptor": '\f#include "/dev/fd/HELD"\n',
    "link beside the source": '\f#include "NEAR"\n',
    "link beside it, assembled": _incbin("NEAR"),
    "link by its name alone": '\f#include "near"\n',
    "lines of a listing": '#line 1 "SECRET"\nint b(int x) { return x * 3; }\n',
    "debug file of the object": _asm('.section .gnu_debuglink\n.asciz "SECRET"\n.balign 4\n.long 0\n.text'),
    "second debug file": _asm('.section .gnu_debugaltlink\n.asciz "SECRET"\n.long 1,2,3,4,5\n.text'),
    "options of the linker's plug-in": _asm(
        ".section .gnu.lto_.opts,\"e\",@progbits\n.string \"'-o' '@SECRET' '-specs=SECRET'\"\n"
        '.section .gnu.lto_k.1,"e",@progbits\n.string "x"\n.comm __gnu_lto_slim,1\n.text'
    ),
    "libraries that an object asks for": _asm(
        '.section .deplibs,"MS",@progbits,1\n.asciz "SECRET"\n.section .linker-options\n.asciz "SECRET"'
    ),
    "warning of the linker": _asm('.section .gnu.warning.k\n.irp x,in\n.\\x\\()cbin "SECRET"\n.endr\n.text'),
    "interpreter of the program": _asm('.section .interp,"a"\n.asciz "SECRET"\n.text'),
    "options in a pragma": '#pragma GCC optimize("-fplugin=SECRET", "-include SECRET")\n',
    "options in an attribute": '__attribute__((optimize("-imacros SECRET"))) int b(void) { return 1; }\n',
    "target in an attribute": '__attribute__((target("arch=@SECRET"))) int b(void) { return 1; }\n',
}

_OTHERS = (
    Disguise("trigraph", '??=include "SECRET"\n', flags=_ISO),
    Disguise("trigraph of a joined line", '#inc??/\nlude "SECRET"\n', new=True, flags=_ISO),
    Disguise(
        "trigraphs in strings", '__asm__(".inc??/x62in ??/"SECRET??/"");\n', new=True, flags=_ISO
    ),
    Disguise("raw strings", '__asm__(R"(.inc)" R"(bin "SECRET")");\n', new=True, suffix=".cpp"),
    Disguise(
        "raw string of a macro", '__asm__(R"(\n.irp x,inc\n.\\x\\()bin "SECRET"\n.endr\n)");\n',
        new=True, suffix=".cpp",
    ),
    Disguise(
        "header unit", 'import "SECRET";\n', new=True, suffix=".cpp", flags=("-std=c++20", "-fmodules-ts")
    ),
    Disguise("file of responses", "\n", new=True, flags=("@SECRET",)),
    Disguise("forced include", "\n", new=True, flags=("-include", "SECRET")),
    Disguise("file of responses, assembled", "\n", new=True, flags=("-Wa,@SECRET",)),
    Disguise("plug-in", "\n", new=True, flags=("-fplugin=SECRET",)),
    Disguise("profile", "\n", new=True, flags=("-fprofile-use=SECRET",)),
)  # fmt: skip

DISGUISES: Final[tuple[Disguise, ...]] = (
    *(Disguise(name, source) for name, source in _KNOWN.items()),
    *(Disguise(name, source, new=True) for name, source in _NEW.items()),
    *_OTHERS,
)

_LAUGHS = "#define A0 x+x+x+x+x+x+x+x\n" + "".join(
    f"#define A{n} {'+'.join([f'A{n - 1}'] * 8)}\n" for n in range(1, 12)
)
_DEEP = "#define P0 ((((((((((\n" + "".join(f"#define P{n} {f'P{n - 1} ' * 10}\n" for n in range(1, 7))
_TWINS = (
    "template<int N, int M> struct T {\n"
    "    static constexpr int v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v;\n};\n"
    "template<int M> struct T<0, M> { static constexpr int v = 1; };\nint b = T<26, 1>::v;\n"
)

BOMBS: Final[tuple[Bomb, ...]] = (
    Bomb("four lines of gigabytes", _asm("\n".join([".data", *[".fill 825000000,1,1"] * 4, ".text"]))),
    Bomb("zeros", "char b[3300000000u] = {1};\n"),
    Bomb("nested repeats", _asm(".data\n" + ".rept 4000\n" * 4 + ".quad 1\n" + ".endr\n" * 4 + ".text")),
    Bomb("includes of itself", "#include __FILE__\n#include __FILE__\n#include __FILE__\n"),
    Bomb("macros of macros", _LAUGHS + "int x;\nint b = A11;\n"),
    Bomb("parentheses", _DEEP + "int b = P6 1;\n"),
    Bomb("templates", _TWINS, ".cpp"),
    Bomb("device without end", '#include "/dev/zero"\n'),
    Bomb("words without end",
         f'#if __INCLUDE_LEVEL__ < 22\n#pragma message "{"x" * 2000}"\n'
         "#include __FILE__\n#include __FILE__\n#endif\n"),
    Bomb("symbols", _asm(".macro m\nl\\@: .globl l\\@\n.endm\n.rept 200000\nm\n.endr")),
    Bomb("sections", _asm(".macro m\n.section s\\@\n.endm\n.rept 66000\nm\n.endr\n.text")),
)  # fmt: skip
