"""What holds a GPU kernel back, from measurements taken anywhere: its class, then all tools for it."""

from __future__ import annotations

from refork_methods.kernel.gpu.tools import gpu_tools
from refork_methods.kernel.roofline import Bound, Ceilings, Classified, Work, by_measurement, by_theory
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import Diagnosis, run_tools


def classify_gpu(
    signals: Signals, *, work: Work | None = None, ceilings: Ceilings | None = None
) -> Classified:
    """The class by declared work and ceilings where both are known, and by the shares of peak in the profile.

    Where neither is known (code alone, or a time line), it is mixed: every tool may look.
    """
    theory = by_theory(work, ceilings) if work is not None and ceilings is not None else None
    compute, memory = signals.get("ncu", "compute_pct"), signals.get("ncu", "memory_pct")
    memory = signals.get("ncu", "dram_pct") if memory is None else memory
    measured: Bound | None = None
    if compute is not None and memory is not None:
        measured = by_measurement(compute / 100, memory / 100)
    return Classified(theory or measured or "mixed", theory, measured)


def diagnose_gpu(
    signals: Signals, *, work: Work | None = None, ceilings: Ceilings | None = None
) -> Diagnosis:
    """All GPU tools for the kernel's class on its measurements, findings gravest first.

    Source: arXiv 2606.26453 for the two stages; tools are never chosen by a model.
    """
    return run_tools(gpu_tools(), signals, classify_gpu(signals, work=work, ceilings=ceilings))
