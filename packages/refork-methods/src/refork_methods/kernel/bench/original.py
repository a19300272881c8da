"""The original and its higher-precision version: fit to judge others, or refused with what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from refork.errors import BadInput, CannotDo
from refork_methods.kernel.bench.check import Arrays, RejectedError, called, judge
from refork_methods.kernel.bench.process import (
    PRECISE,
    RESULT,
    Batch,
    FailedError,
    Host,
    Shared,
    draw_batch,
    draw_offsets,
    layout_of,
)
from refork_methods.kernel.bench.program import Programs
from refork_methods.kernel.bench.result import Limits
from refork_methods.kernel.bench.screen import RefusedError
from refork_methods.kernel.problem import FLOATING, Problem, parse

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
PRECISE_WIDER = (
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
_WORD = re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, PRECISE_WIDER), key=len, reverse=True)) + r")\b")
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
    # From the end, so that the positions of earlier changes stay true.
    for start, end, text in sorted(changes, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode()


def _change(node: Node, data: bytes) -> str | None:
    text = data[node.start_byte : node.end_byte].decode(errors="replace")
    if node.type == "primitive_type":
        return PRECISE.get(text)
    if node.type == "preproc_arg":
        return _WORD.sub(lambda found: PRECISE_WIDER[found[0]], text)
    if node.type == "identifier" and text in PRECISE_WIDER and _library(node):
        return PRECISE_WIDER[text]
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


#: Flags that change what numbers come out; the reference goes without.
_LOOSE = ("-Ofast", "-ffast-math", "-funsafe-math-optimizations", "-fassociative-math", "-freciprocal-math")
#: How much longer a wider version may take.
ORIGINAL_WIDER = 20
#: Outputs of fewer numbers than FEW are measured over DRAWS inputs: how large they are where nothing cancels.
FEW, DRAWS = 16, 8


@final
class Original:
    """Processes of the original and of its wider version, once both were found fit. A context.

    Raises:
        BadInput: the original does not build, crashes, writes where it may not, gives other results on the
            same inputs, leaves outputs unwritten, is not finite, or is itself further from the wider version
            than the tolerances allow.
    """

    def __init__(
        self, problem: Problem, programs: Programs, limits: Limits, rng: np.random.Generator
    ) -> None:
        self.problem = problem
        self._where = f"{problem.name}, the original"
        self._layout = layout_of(problem)
        self.shared, self._wide = Shared(self._layout), Shared(layout_of(problem, precise=True))
        self._limits = limits
        self._program = self._made(programs, problem.source, problem.flags, precise=False)
        self.host = Host(self._program, self.shared, limits)
        self._precise: Host | None = None
        try:
            self._wider_program(programs)
            self._fit(rng)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Original:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End both processes."""
        self.host.close()
        if self._precise is not None:
            self._precise.close()
        self.shared.close()
        self._wide.close()

    def expected(self, batch: Batch) -> Arrays:
        """The results of the wider version.

        Raises:
            BadInput: it crashes, or gives what is not finite.
        """
        wider = self._precise
        if wider is None:  # whole numbers only: nothing is wider
            return self._results(self.host, batch)
        return self._results(wider, batch)

    @property
    def precise(self) -> Host:
        """The process of the wider version; the original's own where nothing is wider."""
        return self.host if self._precise is None else self._precise

    def _results(self, host: Host, batch: Batch, at: str = "low") -> Arrays:
        which = "the higher-precision reference" if host is self._precise else "the original"
        placed = draw_offsets(host.layout, np.random.default_rng(0), at)
        try:
            found, _ = called(host, batch, placed)
        except (FailedError, RejectedError) as failed:
            raise BadInput(f"{which}: {failed}", where=self.problem.name, hint=_hint(str(failed))) from None
        for one in host.layout.regions:
            if one.role != "in" and one.dtype.kind == "f" and not np.isfinite(found[one.name]).all():
                place_of = int(np.argmin(np.isfinite(found[one.name]))) % one.count
                name = one.name if one.name == RESULT else f"{one.name}[{place_of}]"
                raise BadInput(
                    f"{which} leaves {name} not finite",
                    where=self.problem.name,
                    hint=f"it overflows, divides by 0, or does not write all of {one.name}: other fills, or "
                    f"{one.name}=LENGTH:inout where it reads what was there",
                )
        return found

    def _made(self, programs: Programs, source: str, flags: tuple[str, ...], *, precise: bool) -> Path:
        try:
            return programs.make(source, flags, precise=precise).path
        except RefusedError as refused:
            raise BadInput(f"the kernel is refused: {refused}", where=self._where) from None

    def _wider_program(self, programs: Programs) -> None:
        problem = self.problem
        types = [*(one.ctype for one in problem.arguments), problem.returns]
        if not any(one in FLOATING for one in types):
            return
        source = problem.reference
        if source is None:
            source = in_higher_precision(problem.source, problem.suffix)
        # Without fused operations: what is expected is then the same on every processor.
        flags = (*(one for one in problem.flags if one not in _LOOSE), "-ffp-contract=off")
        try:
            path = self._made(programs, source, flags, precise=True)
        except BadInput as error:
            raise BadInput(
                f"the higher-precision reference does not build: {error.what}", where=problem.name, hint=HINT
            ) from None
        limits = replace(self._limits, seconds=self._limits.seconds * ORIGINAL_WIDER)
        self._precise = Host(path, self._wide, limits)

    def _fit(self, rng: np.random.Generator) -> None:
        """The same inputs in two processes, other bytes in the outputs; then against the wider version."""
        problem = self.problem
        batch = draw_batch(problem, 1, rng, "nan")
        first = self._results(self.host, batch)
        before = draw_batch(problem, 1, rng, "number")
        with Host(self._program, self.shared, self._limits) as other:
            self._results(other, before)  # what it keeps from one call must not tell in the next
            second = self._results(other, replace(before, arrays=batch.arrays, scalars=batch.scalars))
        for one in self._layout.regions:
            if one.role != "in" and first[one.name].tobytes() != second[one.name].tobytes():
                differs = np.flatnonzero(first[one.name].view(np.uint8) != second[one.name].view(np.uint8))
                at = int(differs[0]) // one.dtype.itemsize
                raise BadInput(
                    f"two runs on the same inputs differ at {one.name}[{at}]",
                    where=self._where,
                    hint="it is random, keeps something from call to call, or reads an output before it "
                    f"writes all of it: {one.name}=LENGTH:inout",
                )
        # Right before a guard, where it shows who reads beyond.
        self._results(self.host, batch, "high")
        self.scales = self._measured(rng)
        try:
            judge(problem, self.host, batch, first, self.expected(batch), scales=self.scales)
        except RejectedError as off:
            raise BadInput(
                f"{off} in higher precision (relative error {off.error:.2g})",
                where=self._where,
                hint=f"allow more, such as rtol={4 * (off.error or 0):.0e}, or give {HINT}",
            ) from None

    def _measured(self, rng: np.random.Generator) -> dict[str, float]:
        """How large the numbers of each small output are, root mean square over inputs drawn anew."""
        small = [one for one in self._layout.regions if one.role != "in" and 0 < one.count < FEW]
        if not any(one.dtype.kind == "f" for one in small):
            return {}
        batches = [draw_batch(self.problem, 1, rng) for _ in range(DRAWS)]
        results = [self.expected(batch) for batch in batches]
        return {
            one.name: float(np.sqrt(np.mean([np.square(found[one.name], dtype=float) for found in results])))
            for one in small
            if one.dtype.kind == "f"
        }


def _hint(why: str) -> str:
    if "input" in why:
        return "NAME=LENGTH:inout for an array that is also written"
    if "reached" in why or "wrote" in why:
        return "give the array's true LENGTH, and fill index arrays with index:BELOW"
    return "a kernel must run on the inputs that are drawn: see its sizes and fills"


def must_run(failed: Exception, name: str) -> CannotDo:
    """The original, fit before, failed while it was timed."""
    return CannotDo(f"the original failed while it was timed: {failed}", where=name, hint="try again")
