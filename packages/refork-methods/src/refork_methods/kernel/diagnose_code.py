"""What a kernel's code tells before it runs, and the source lines that it speaks of.

Whether a chain of dependencies lies in the problem or only in the present code is our question, which
arXiv 2606.26453 does not ask.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from refork.errors import BadInput
from refork_methods.kernel.bench.elf import read_object
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu import toolchain
from refork_methods.kernel.cpu.build import LISTED, Built, compile_object, read_whole
from refork_methods.kernel.cpu.static import static_signals
from refork_methods.kernel.cpu.tools import DEPENDENCY_CHAIN_MOST_RATIO as MOST_RATIO
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.problem_syntax import parse
from refork_methods.kernel.signals import Signals

if TYPE_CHECKING:
    from tree_sitter import Node

#: Sums in any order, and vectors wherever gcc can make them: what then still waits, waits by the problem.
REORDERED = (
    "-O3",
    "-fassociative-math",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-fvect-cost-model=unlimited",
)
_ADDRESS = re.compile(r"^\s*([0-9a-f]+):\s")
_PLACE = re.compile(r"(?:[^\s:]*/)?([^\s:/]+\.\w+):(\d+)")


@final
@dataclass(frozen=True, slots=True)
class Code:
    """Signals of the object, the object, and whether its dependencies remain when sums may be reordered."""

    signals: Signals
    built: Built
    inherent: bool


def read_code(source: Path, folder: Path, entry: str, flags: Sequence[str]) -> Code:
    """Compile a kernel and read its code.

    Raises:
        BadInput: it does not compile, or has no such function.
    """
    built = compile_object(source, folder, flags=flags)
    symbol = _symbol(built.path, entry)
    signals = _plain(static_signals(built, symbol, lines=_own_lines(source, entry)), source)
    waits = _waits(signals) and not _nested(source, entry)
    return Code(signals, built, waits and _still_waits(source, folder, entry, flags))


def _symbol(path: Path, entry: str) -> str:
    """The entry's name in an object: mangled in C++."""
    mangled = re.compile(rf"_Z{len(entry)}{re.escape(entry)}(?!\d)\w*")
    own = [one.name for one in read_object(read_whole(path))[1] if one.defined]
    return next((name for name in own if name == entry or mangled.fullmatch(name)), entry)


def _waits(signals: Signals) -> bool:
    known = m.together(signals, m.LOOP_CYCLES, m.BLOCK_CYCLES)
    return known is not None and known[1] > 0 and known[0] / known[1] > MOST_RATIO


def _still_waits(source: Path, folder: Path, entry: str, flags: Sequence[str]) -> bool:
    """Whether gcc finds no vectors, and the model still waits, where every order of a sum is allowed."""
    try:
        built = compile_object(source, folder, flags=(*flags, *REORDERED))
        signals = static_signals(built, _symbol(built.path, entry))
    except BadInput:
        return False
    return _waits(signals) and not m.VECTOR_LOOPS.of(signals)


def _nested(source: Path, entry: str) -> bool:
    """Whether the entry has a loop within a loop: what one waits for, the other may do side by side."""
    root = parse(source.read_text(errors="replace"), source.suffix).root_node
    bodies = [node for node in root.children if node.type == "function_definition"]
    found = [node for node in bodies if _named(node.child_by_field_name("declarator")) == entry]
    return any(_depth(node) > 1 for node in found or bodies)


def _named(node: Node | None) -> str:
    """The name that a declarator declares."""
    while node is not None and node.type != "identifier":
        node = node.child_by_field_name("declarator")
    return "" if node is None or node.text is None else node.text.decode()


def _depth(node: Node) -> int:
    own = node.type in ("for_statement", "while_statement", "do_statement")
    return own + max((_depth(child) for child in node.children), default=0)


def _own_lines(source: Path, entry: str) -> range | None:
    """The lines of the entry; None where the file has other functions, whose loops may be inlined."""
    text = source.read_text(errors="replace")
    bodies = len(re.findall(r"^[^\s#/{}][^;{}]*\)\s*\{", text, re.MULTILINE))
    found = re.search(rf"\b{re.escape(entry)}\s*\(", text)
    if bodies != 1 or found is None:
        return None
    return range(text.count("\n", 0, found.start()) + 1, text.count("\n") + 2)


def _plain(signals: Signals, source: Path) -> Signals:
    """The same without the folder that the source was compiled in."""
    lines = {
        one: tuple(line.replace(f"{source.parent}/", "") for line in given)
        for one, given in signals.lines.items()
    }
    return replace(signals, lines=lines)


def named(signals: Signals, name: str) -> Signals:
    """The same where a copy of the source, kept under a digest, has its own name again."""
    pattern = re.compile(r"(?:[^\s:]*/)?[0-9a-f]{16}\.\w+(?=:\d)")
    lines = {one: tuple(pattern.sub(name, line) for line in given) for one, given in signals.lines.items()}
    return replace(signals, lines=lines)


def with_places(findings: Sequence[Finding], built: Built, name: str) -> tuple[Finding, ...]:
    """The same findings, each disassembled line of their evidence with the source line it comes from."""
    addresses = sorted(
        {found[1] for one in findings for line in one.evidence if (found := _ADDRESS.match(line))}
    )
    places = dict(zip(addresses, _lines_of(built.path, addresses), strict=True))

    def placed(line: str) -> str:
        found = _ADDRESS.match(line)
        at = places.get(found[1]) if found else None
        code = re.sub(r"\s+", " ", line.strip())
        return f"{name}:{at}: {code}" if at else line

    return tuple(replace(one, evidence=tuple(map(placed, one.evidence))) for one in findings)


def _lines_of(path: Path, addresses: Sequence[str]) -> list[int | None]:
    """Source lines of addresses in the text section of an object; None where they cannot be told."""
    if not addresses:
        return []
    command = ("addr2line", "-j", ".text", "-e", "kernel.o", *addresses)
    try:
        done = toolchain.run(command, files={"kernel.o": read_whole(path)}, bounds=LISTED)
    except FileNotFoundError:
        return [None] * len(addresses)
    found = [re.search(r":(\d+)", line) for line in done.out.decode(errors="replace").splitlines()]
    if done.ended != "exit" or done.status or len(found) != len(addresses):
        return [None] * len(addresses)
    return [int(one[1]) if one else None for one in found]


def source_lines(findings: Sequence[Finding], source: str, name: str) -> dict[int, str]:
    """The lines of the source that evidence names, by number."""
    text = source.splitlines()
    wanted = {
        int(found[2])
        for one in findings
        for line in one.evidence
        for found in _PLACE.finditer(line)
        if found[1] == name
    }
    return {number: text[number - 1].strip() for number in sorted(wanted) if 0 < number <= len(text)}
