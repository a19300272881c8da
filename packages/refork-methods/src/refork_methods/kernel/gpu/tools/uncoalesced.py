"""Global memory: more sectors are moved than the accesses need."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Sectors as a multiple of the ideal (arXiv 2606.26453); what the ideal is, is ours.
EXCESS = 1.2
#: From here on it is critical (ours).
CRITICAL = 4.0
#: Bytes of a sector, and sectors of a warp's widest access (32 threads of 16 bytes).
SECTOR, WIDEST = 32.0, 16.0


def _excess(signals: Signals, side: str) -> tuple[float, str] | None:
    """Times the ideal for loads or stores, and how it is known: used bytes, else the widest access."""
    used = signals.get("ncu", f"{side}_bytes_per_sector")
    if used is not None and used > 0:
        return SECTOR / used, f"{used:.3g} of {SECTOR:.0f} bytes of a sector are used"
    asked = signals.get("ncu", f"{side}_sectors_per_request")
    if asked is None:
        return None
    return asked / WIDEST, f"{asked:.3g} sectors per request, {WIDEST:.0f} at most if they were neighbours"


@micro_tool(source="ncu", category="memory", bounds=("memory", "latency"), name="gpu.Uncoalesced")
def uncoalesced(signals: Signals) -> Finding | None:
    """Loads and stores apart where they were measured, else both together as ncu derives it."""
    sides = {f"{side}s": _excess(signals, side) for side in ("load", "store")}
    known = {which: found for which, found in sides.items() if found is not None}
    both = signals.get("ncu", "sector_excess")
    if both is not None:
        known["accesses"] = (both, "so the addresses that ran tell")
    bad = {which: found for which, found in known.items() if found[0] > EXCESS}
    if not bad:
        return None
    which = max(bad, key=lambda one: (one in sides, bad[one][0]))
    excess, detail = bad[which]
    names = [
        f"{one}_{what}" for one in ("load", "store") for what in ("sectors", "requests", "bytes_per_sector")
    ]
    return Finding(
        tool="gpu.Uncoalesced",
        category="memory",
        severity="critical" if excess > CRITICAL else "warn",
        cause=f"Global {which} move {excess:.3g} times the sectors they need: {detail}.",
        action="Let threads of a warp touch neighbouring addresses: transpose through a padded tile in "
        "shared memory, or turn arrays of structures into structures of arrays.",
        metrics={"sector_excess": excess},
        evidence=cited(signals, *names, "l2_sectors", "l2_ideal_sectors"),
    )
