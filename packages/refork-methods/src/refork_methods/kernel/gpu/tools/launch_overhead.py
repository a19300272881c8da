"""Launch: it takes long to launch kernels, compared with how long they run."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Percent (arXiv 2606.26453); of launching and running together: our reading.
MUCH = 20.0
#: From here on it is critical (ours).
MOST = 50.0


@micro_tool(source="nsys", category="launch", name="gpu.LaunchOverhead")
def launch_overhead(signals: Signals) -> Finding | None:
    """Time in launching calls over that time and the kernels' own."""
    share = signals.get("nsys", "launch_pct")
    if share is None or share <= MUCH:
        return None
    metrics = {"launch_pct": share}
    detail = ""
    counted = signals.all("nsys", "launches", "launches_s", "kernel_runs", "kernels_s")
    if counted is not None:
        launches, launching, runs, running = counted
        metrics |= {"launches": launches, "launch_us": 1e6 * launching / launches}
        metrics["kernel_us"] = 1e6 * running / runs
        detail = (
            f" {launches:.0f} launches take {metrics['launch_us']:.3g} us each, "
            f"a kernel runs {metrics['kernel_us']:.3g} us."
        )
    known = HITS["LaunchOverhead"]
    return Finding(
        tool="gpu.LaunchOverhead",
        category="launch",
        severity="critical" if share > MOST else "warn",
        cause=f"Launching is {share:.0f} % of launching and running.{detail}",
        action="Fuse small kernels, record them as a CUDA graph, or keep one persistent kernel running.",
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(*signals.lines.get("nsys", ()), known.line),
    )
