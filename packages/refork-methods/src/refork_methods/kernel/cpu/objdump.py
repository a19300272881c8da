"""What binutils disassemble: vector and scalar arithmetic of one x86-64 function, and its innermost loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import networkx as nx

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m


@final
@dataclass(frozen=True, slots=True)
class Instruction:
    """One line: address, mnemonic, operands in AT&T order, where it jumps or what it calls, the line."""

    address: int
    name: str
    operands: str
    line: str
    target: int | None = None
    callee: str = ""

    @property
    def jumps(self) -> bool:
        """Whether it may go on elsewhere in its function."""
        return self.name.startswith(("j", "loop"))

    @property
    def ends(self) -> bool:
        """Whether the next instruction does not follow it."""
        return self.name.startswith(("jmp", "ret", "ud2", "hlt"))


def innermost(body: Sequence[Instruction]) -> list[list[Instruction]]:
    """The loops that hold no other, by address of their heads.

    A step to an instruction through which every way to that step leads closes a loop; its body is what
    reaches the step without passing that head. Jumps back from code that gcc moved out of the way are none.
    """
    if not body:
        return []
    graph = _flow(body)
    parent = nx.immediate_dominators(graph, 0)
    loops: dict[int, set[int]] = {}
    for at, head in graph.edges:
        # A head is entered from outside and from its loop.
        if (graph.in_degree(head) > 1 or head == 0) and _dominates(parent, head, at):
            loops.setdefault(head, {head}).update(_body(graph, head, at))
    least = [
        head for head, inside in loops.items() if not any(other in inside for other in loops if other != head)
    ]
    return [[body[at] for at in sorted(loops[head])] for head in sorted(least)]


def _flow(body: Sequence[Instruction]) -> nx.DiGraph[int]:
    """Ways between instructions, by position; what cannot be reached is left out."""
    place = {one.address: at for at, one in enumerate(body)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(body)))
    for at, one in enumerate(body):
        if not one.ends and at + 1 < len(body):
            graph.add_edge(at, at + 1)
        if one.jumps and one.target in place:
            graph.add_edge(at, place[one.target])
    # Jump tables: what nothing else leads to is a case.
    cases = [at for at in graph if at and not graph.in_degree(at)]
    tables = [
        at for at, one in enumerate(body) if one.name.startswith("jmp") and one.operands.startswith("*")
    ]
    graph.add_edges_from((table, case) for table in tables for case in cases)
    found = nx.descendants(graph, 0) | {0}
    return graph.subgraph(found).copy()


def _dominates(parent: dict[int, int], head: int, at: int) -> bool:
    """Whether every way from the entry to ``at`` leads through ``head``."""
    while at != head:
        above = parent.get(at)
        if above is None or above == at:
            return False
        at = above
    return True


def _body(graph: nx.DiGraph[int], head: int, last: int) -> set[int]:
    """What reaches the loop's last instruction without passing the head."""
    inside, waiting = {last}, [last]
    while waiting:
        one = waiting.pop()
        if one == head:
            continue
        fresh = set(graph.predecessors(one)) - inside
        inside |= fresh
        waiting += fresh
    return inside


WHERE = "objdump -d"
_SYMBOL = re.compile(r"^([0-9a-f]+) <(.+)>:$")
_CODE = re.compile(
    r"^\s*([0-9a-f]+):\t(?:(?:[0-9a-f]{2} )+\s*\t)?"
    r"(?:(?:bnd|notrack|data16|[c-g]s|repz(?= ret)) )*([a-z]\S*)(?:\s+(.*))?$"
)
_MOVED = re.compile(r"^\s+[0-9a-f]+: R_X86_64_\S+\s+(\S+)$")
_TARGET = re.compile(r"^([0-9a-f]+)(?: <([^>+]+)(\+0x[0-9a-f]+)?>)?")
#: Floating-point arithmetic; moves, compares, conversions and shuffles do no useful work.
_ARITHMETIC = re.compile(
    r"^v?(?:add|sub|mul|div|sqrt|max|min|addsub|hadd|hsub|dp|rcp|rsqrt|rcp14|rsqrt14"
    r"|fn?m(?:add|sub)(?:132|213|231)|fm(?:addsub|subadd)(?:132|213|231))(?P<kind>[ps])[sd]$"
)
_ROOT = re.compile(r"^v?sqrt[ps][sd]$")
_DIVIDE = re.compile(r"^(?:v?div[ps][sd]|i?div[bwlq]?)$")
_FMA = re.compile(r"^vfn?m(?:add|sub|addsub|subadd)\d{3}[ps][sd]$")
_UPDATE = re.compile(r"^(?:add|sub|inc|dec)[bwlq]?$")
_LOAD = re.compile(r"^mov(?:[sz]?[bwl][wlq]|[lq]|abs)?$")
_INDEXED = re.compile(r"\(%\w+,%(\w+)(?:,\d)?\)$")
_STREAMING = re.compile(r"^v?movnt(?:ps|pd|dq|i|q)$")
_ONLY_READ = re.compile(r"^(?:cmp|test|v?u?comis|bt|push|i?div|i?mul|prefetch)")
_LIBM = re.compile(
    r"^(?:__)?(?:acosh?|asinh?|atan[2h]?|cbrt|cosh?|erfc?|exp2?|expm1|fmod|hypot|lgamma|log(?:10|1p|2)?|pow"
    r"|remainder|sin(?:h|cos)?|sqrt|tanh?|tgamma)[fl]?(?:_finite)?(?:@.*)?$"
)


def parse(text: str, entry: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Counts of ``entry`` and of the copies gcc made of it (``entry.constprop.0``), from AT&T syntax.

    Calls are named in linked programs, and in object files where relocations are shown (-dr). Returns
    metrics by name, and the lines of slow operations, calls and stack accesses in innermost loops.

    Raises:
        BadInput: no such function, or one without instructions.
    """
    bodies = [body for name, body in functions(text).items() if name.split(".")[0] == entry]
    if not any(bodies):
        raise BadInput(f"no function {entry}", where=WHERE, hint="declare it extern, or noinline")
    loops = [loop for body in bodies for loop in innermost(body)]
    every = [one for body in bodies for one in body]
    # Without a loop the whole function counts as one.
    inner = [one for loop in loops for one in loop] or every
    within = set(inner) if loops else set()
    stack = [one for body in bodies for one in stack_accesses(body) if one in within]
    slow = [one for one in inner if _DIVIDE.match(one.name) or _ROOT.match(one.name)]
    calls = [one for one in inner if one.name.startswith("call")]
    libm = [one for one in calls if is_libm(one.callee)]
    kinds = [[_kind(one) for one in loop] for loop in loops]
    values: dict[str, float] = {
        m.PACKED.name: _count(every, lambda one: _kind(one) == "p"),
        m.SCALAR.name: _count(every, lambda one: _kind(one) == "s"),
        m.PACKED_128.name: _count(inner, lambda one: _kind(one) == "p" and _bits(one) == 128),
        m.PACKED_256.name: _count(inner, lambda one: _kind(one) == "p" and _bits(one) == 256),
        m.PACKED_512.name: _count(inner, lambda one: _kind(one) == "p" and _bits(one) == 512),
        m.FMA.name: _count(inner, lambda one: bool(_FMA.match(one.name))),
        m.LOOPS.name: len(loops),
        m.FP_LOOPS.name: sum(any(loop) for loop in kinds),
        m.VECTOR_LOOPS.name: sum(any(loop) and loop.count("p") >= loop.count("s") for loop in kinds),
        m.LOOP_INSTRUCTIONS.name: len(inner),
        m.DIVISIONS.name: _count(inner, lambda one: bool(_DIVIDE.match(one.name))),
        m.ROOTS.name: _count(inner, lambda one: bool(_ROOT.match(one.name))),
        m.LIBM_CALLS.name: len(libm),
        m.OTHER_CALLS.name: len(calls) - len(libm),
        m.STACK_LOADS.name: _count(stack, lambda one: not is_store(one)),
        m.STACK_STORES.name: _count(stack, is_store),
        m.UPDATES.name: sum(map(_updates, loops)),
        m.STREAMING.name: _count(inner, lambda one: bool(_STREAMING.match(one.name))),
    }
    arithmetic = [one for one in inner if _kind(one)]
    packed = [one for one in inner if _kind(one) == "p"]
    if packed:
        values[m.ITEM_BYTES.name] = sum(4 if one.name.endswith("s") else 8 for one in packed) / len(packed)
    shown = dict.fromkeys(one.line for one in [*slow, *calls, *stack[:6], *arithmetic[:6]])
    return {name: float(value) for name, value in values.items()}, tuple(shown)


def widest_bits(flags: str) -> int:
    """Widest vector registers by the processor's flags (/proc/cpuinfo of x86)."""
    known = flags.split()
    return 512 if "avx512f" in known else 256 if "avx" in known else 128


def loop_assembly(text: str, entry: str) -> str | None:
    """The innermost loop of ``entry`` that computes most, as llvm-mca reads it; None where it has none."""
    bodies = [body for name, body in functions(text).items() if name.split(".")[0] == entry]
    loops = [loop for body in bodies for loop in innermost(body)]
    if not loops:
        return None
    most = max(
        loops, key=lambda loop: sum(_bits(one) if _kind(one) == "p" else bool(_kind(one)) for one in loop)
    )
    # Padding takes no port.
    lines = [f"{one.name} {_operands(one)}".strip() for one in most if "nop" not in one.name]
    return ".Lloop:\n" + "\n".join(lines) + "\n"


def functions(text: str) -> dict[str, list[Instruction]]:
    """The instructions of all functions, by symbol."""
    found: dict[str, list[Instruction]] = {}
    body: list[Instruction] | None = None
    for line in text.splitlines():
        if symbol := _SYMBOL.match(line):
            body = found.setdefault(symbol[2], [])
        elif body is not None and (code := _CODE.match(line)):
            body.append(_instruction(int(code[1], 16), code[2], (code[3] or "").strip(), line))
        elif body and (moved := _MOVED.match(line)):
            # In an object a relocation on the next line says where a call goes.
            last = body[-1]
            # The addend: a call is relative to its own end, so that its target stands there as f-0x4.
            callee = re.sub(r"[-+]0x[0-9a-f]+$", "", moved[1])
            # A name that begins with a dot is a section: a jump to somewhere in this file.
            if last.name.startswith(("call", "jmp")) and not callee.startswith("."):
                body[-1] = Instruction(last.address, last.name, last.operands, last.line, None, callee)
    return found


def is_stack(operands: str, frame: bool = False) -> bool:
    """Whether an operand is a place on the stack; indexed ones are arrays and not spilled registers."""
    return bool(re.search(r"\(%rsp\)" if not frame else r"\(%r[sb]p\)", operands))


def is_store(one: Instruction) -> bool:
    """Whether the last operand, the destination, is in memory."""
    return one.operands.endswith(")") and not _ONLY_READ.match(one.name)


def is_libm(callee: str) -> bool:
    """Whether a call goes to a scalar function of the mathematics library."""
    return bool(_LIBM.match(callee))


def _instruction(address: int, name: str, operands: str, line: str) -> Instruction:
    operands = operands.partition("#")[0].strip()
    if not name.startswith(("j", "loop", "call")) or not (found := _TARGET.match(operands)):
        return Instruction(address, name, operands, line.strip())
    callee = found[2] if found[2] and not found[3] and name.startswith(("call", "jmp")) else ""
    return Instruction(address, name, operands, line.strip(), int(found[1], 16), callee)


def _operands(one: Instruction) -> str:
    """What an assembler reads; all jumps go to the loop's head."""
    return one.callee or (".Lloop" if one.target is not None else one.operands)


def _kind(one: Instruction) -> str:
    """``p`` packed, ``s`` scalar floating-point arithmetic, nothing else."""
    found = _ARITHMETIC.match(one.name)
    return found["kind"] if found else ""


def _bits(one: Instruction) -> int:
    return 512 if "%zmm" in one.operands else 256 if "%ymm" in one.operands else 128


def stack_accesses(body: Sequence[Instruction]) -> list[Instruction]:
    """Loads and stores of spilled registers; the base register is a frame's only where it was set to be."""
    frame = any(one.name.startswith("mov") and one.operands == "%rsp,%rbp" for one in body)
    return [one for one in body if is_stack(one.operands, frame) and not one.name.startswith(("lea", "nop"))]


def _updates(loop: Sequence[Instruction]) -> int:
    """Sums in memory whose index the same loop reads from memory."""
    loads = [one.operands for one in loop if _LOAD.match(one.name) and "(" in one.operands]
    loaded = {_family(operands.rpartition("%")[2]) for operands in loads if not operands.endswith(")")}
    places = [_INDEXED.search(one.operands) for one in loop if _UPDATE.match(one.name)]
    return sum(place is not None and _family(place[1]) in loaded for place in places)


def _family(register: str) -> str:
    """A register's name without its width."""
    return re.sub(r"^[er](?=[a-z]{2}$)|(?<=\d)[bwd]$|(?<=[sdbp][ip])l$", "", register)


def _count(items: Iterable[Instruction], test: Callable[[Instruction], bool]) -> int:
    return sum(map(test, items))
