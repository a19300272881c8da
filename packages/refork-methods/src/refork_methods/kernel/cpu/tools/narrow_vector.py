"""Vectors narrower than the machine has."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "NarrowVector"
#: Guess: below this share of operations at full width the narrow ones are not just a loop's remainder.
LEAST_WIDE = 0.5
_WIDTHS = (128.0, 256.0, 512.0)


@micro_tool(source="objdump", category="compute", bounds=("compute",))
def narrow_vector(signals: Signals) -> Finding | None:
    """Less than half of the packed operations of innermost loops use the widest registers."""
    counts = together(signals, m.PACKED_128, m.PACKED_256, m.PACKED_512, m.WIDEST_BITS)
    if counts is None or not sum(counts[:3]):
        return None
    widest = counts[3]
    wide = sum(count for bits, count in zip(_WIDTHS, counts[:3], strict=True) if bits >= widest)
    share = wide / sum(counts[:3])
    if share >= LEAST_WIDE:
        return None
    used = max(bits for bits, count in zip(_WIDTHS, counts[:3], strict=True) if count)
    return Finding(
        tool=NAME,
        category="compute",
        severity="warn" if used < widest / 2 else "info",
        cause=f"{share:.0%} of the vector operations have {widest:.0f} bits; the widest have {used:.0f}.",
        action=(
            "Compile with -march=native, align the arrays, and time"
            f" -mprefer-vector-width={widest:.0f}: some processors run slower with it."
        ),
        metrics={"wide_share": share, m.WIDEST_BITS.name: widest},
        evidence=cited(signals, "objdump", "ps ", "pd "),
    )
