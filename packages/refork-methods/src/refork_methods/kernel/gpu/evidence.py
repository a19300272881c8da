"""What several GPU tools need: lines to cite, and spills from whichever program saw them."""

from __future__ import annotations

from refork_methods.kernel.gpu.metrics import STALLS
from refork_methods.kernel.signals import Signals


def cited(signals: Signals, *names: str) -> tuple[str, ...]:
    """The lines of an ncu export that these metrics were read from."""
    starts = tuple(f"{name} = " for name in names)
    return tuple(line for line in signals.lines.get("ncu", ()) if line.startswith(starts))


def ncu(signals: Signals, name: str) -> float | None:
    """A metric of Nsight Compute."""
    return signals.get("ncu", name)


def stalls(signals: Signals) -> dict[str, float]:
    """Shares of a warp's time in percent, by reason, of those that were measured."""
    shares = {reason: ncu(signals, f"stall_{reason}_pct") for reason in STALLS}
    return {reason: share for reason, share in shares.items() if share is not None}


def spills(signals: Signals) -> dict[str, float]:
    """Traffic with local memory above 0, by what saw it; empty where there is none or none was looked for."""
    seen = {
        "spill_store_bytes": signals.get("ptxas", "spill_store_bytes"),
        "spill_load_bytes": signals.get("ptxas", "spill_load_bytes"),
        "stl": signals.get("sass", "stl"),
        "ldl": signals.get("sass", "ldl"),
        "local_stores": ncu(signals, "local_stores"),
        "local_loads": ncu(signals, "local_loads"),
    }
    return {name: value for name, value in seen.items() if value}


def registers(signals: Signals) -> float | None:
    """Registers a thread, from the profile, else from the assembler."""
    measured = ncu(signals, "registers_per_thread")
    return signals.get("ptxas", "registers_per_thread") if measured is None else measured
