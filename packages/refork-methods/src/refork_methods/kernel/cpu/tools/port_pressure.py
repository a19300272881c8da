"""One kind of execution unit that is busy all the time, while memory is not the reason."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited
from refork_methods.kernel.cpu.tools.bandwidth_roof import bandwidth_roof
from refork_methods.kernel.cpu.tools.capacity_miss import capacity_miss
from refork_methods.kernel.cpu.tools.conflict_miss import conflict_miss
from refork_methods.kernel.cpu.tools.load_pressure import load_pressure
from refork_methods.kernel.cpu.tools.store_traffic import store_traffic
from refork_methods.kernel.cpu.tools.strided_access import strided_access
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "PortPressure"
#: Guess.
LEAST_USE = 0.90
_MEMORY = (strided_access, capacity_miss, conflict_miss, bandwidth_roof, store_traffic, load_pressure)


@micro_tool(source="mca", category="compute", bounds=("compute",))
def port_pressure(signals: Signals) -> Finding | None:
    """A port busy in more than 90 % of the cycles, and no finding about memory."""
    use = m.PORT_USE.of(signals)
    if use is None or use <= LEAST_USE or any(check(signals) for check in _MEMORY):
        return None
    fused = m.FMA.of(signals)
    first = "Use fused multiply-adds (-mfma, -ffp-contract=fast), then a" if fused == 0 else "A"
    return Finding(
        tool=NAME,
        category="compute",
        severity="info",
        cause=f"The busiest port works in {use:.0%} of the cycles: these instructions cannot run faster.",
        action=f"{first} better algorithm: fewer operations per result.",
        metrics={m.PORT_USE.name: use} | ({m.FMA.name: fused} if fused is not None else {}),
        evidence=cited(signals, "mca", "per iteration"),
    )
