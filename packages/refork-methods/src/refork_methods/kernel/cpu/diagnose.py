"""From a CPU kernel's measurements to findings: per useful flop, classified, all tools asked.

Source: arXiv 2606.26453 for the two stages and their arbitration; it is about GPUs. The CPU metrics, and that
only misses beyond one per needed line count against a kernel, are ours.
"""

from __future__ import annotations

from dataclasses import replace

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import METRICS, Metric
from refork_methods.kernel.cpu.tools import cpu_tools
from refork_methods.kernel.roofline import (
    Ceilings,
    Classified,
    Work,
    by_measurement,
    by_theory,
    classify,
)
from refork_methods.kernel.signals import Signals, Source
from refork_methods.kernel.tool import Diagnosis, MicroTool, registered, run_tools


def diagnose_cpu(
    signals: Signals,
    work: Work | None,
    ceilings: Ceilings,
    *,
    simulated: Work | None = None,
    smaller: bool = False,
    inherent: bool = False,
    needed: float | None = None,
) -> Diagnosis:
    """Findings on one kernel by the 15 tools and those that a user registered for the same sources.

    ``work`` is that of one call (None: not declared), ``seconds`` in the signals that of one call.
    ``smaller``: a smaller call was simulated, whose work is ``simulated`` (None: not known).

    All of them are asked, whatever the class: theory may call a kernel compute-bound whose present code waits
    for memory. ``inherent``: each step of the problem itself waits for the last, so that neither
    ceiling can be reached; where it reaches neither, theory says latency (ours). ``needed``: bytes of all
    arrays of the simulated call, each once.
    """
    full = signals | derived(signals, work, ceilings, simulated, smaller=smaller, needed=needed)
    classified = _classified(full, work, ceilings, inherent)
    # Asked as if it were mixed, which every tool is for; the true class is put back below.
    found = run_tools(_asked(), full, Classified("mixed", classified.theory, classified.measured))
    return replace(found, classified=classified)


def _classified(full: Signals, work: Work | None, ceilings: Ceilings, inherent: bool) -> Classified:
    """By theory and measurement; mixed, so that every tool may look, where neither is known."""
    shares = m.together(full, m.FLOPS_SHARE, m.BYTES_SHARE)
    measured = by_measurement(*shares) if shares else None
    theory = by_theory(work, ceilings) if work is not None else None
    if inherent and measured in (None, "latency"):
        theory = "latency"
    if theory is None and measured is None:
        return Classified("mixed", None, None)
    return classify(theory, measured)


def _asked() -> list[MicroTool]:
    sources = {source for source, _ in METRICS} | {"counters"}
    # Ours for CPUs are in cpu_tools() already: what is looked for here are a user's.
    own = [
        tool
        for tool in registered()
        if sources & set(tool.sources) and not tool.rule.__module__.startswith("refork_methods.")
    ]
    return [*cpu_tools(), *own]


def derived(
    signals: Signals,
    work: Work | None,
    ceilings: Ceilings,
    simulated: Work | None = None,
    *,
    smaller: bool = False,
    needed: float | None = None,
) -> Signals:
    """What follows from measurements and declared work; nothing from what was not measured.

    Per-flop values need flops: a kernel that has none should declare its useful operations instead. Counts
    of a smaller call are set against its own work, so nothing follows from them where that is not known.
    """
    cache = {} if work is not None and work.flops else _by_line(signals, needed)
    if work is None:
        return Signals({"cachegrind": cache} if cache else {})
    counted = simulated if smaller else work
    if counted is not None and signals.has("cachegrind"):
        cache |= _cache(signals, counted)
    timing: dict[str, float] = {}
    seconds = m.SECONDS.of(signals)
    if seconds is not None and seconds > 0:
        timing[m.FLOPS_SHARE.name] = work.flops / seconds / ceilings.flops
        timing[m.BYTES_SHARE.name] = _moved(signals, work, counted) / seconds / ceilings.bandwidth
    values: dict[Source, dict[str, float]] = {"cachegrind": cache, "timing": timing}
    return Signals({source: found for source, found in values.items() if found})


def _by_line(signals: Signals, needed: float | None) -> dict[str, float]:
    """What a kernel without flops can be measured by: how often each line of its arrays misses."""
    known = m.together(signals, m.D1_READ_MISSES, m.D1_WRITE_MISSES, m.LINE_BYTES)
    if known is None or not needed or not known[2]:
        return {}
    return {m.MISSES_PER_LINE.name: (known[0] + known[1]) / (needed / known[2])}


def _cache(signals: Signals, work: Work) -> dict[str, float]:
    values = {m.NEEDED_BYTES.name: work.bytes}
    reads, misses = m.READS.of(signals), m.D1_READ_MISSES.of(signals)
    if reads is not None:
        values[m.READS_PER_BYTE.name] = reads / work.bytes
    if not work.flops:
        return values
    per_flop: tuple[tuple[Metric, Metric], ...] = (
        (m.READS, m.READS_PER_FLOP), (m.WRITES, m.WRITES_PER_FLOP), (m.BRANCHES, m.BRANCHES_PER_FLOP),
        (m.D1_READ_MISSES, m.MISSES_PER_FLOP),
    )  # fmt: skip
    for count, rate in per_flop:
        value = count.of(signals)
        if value is not None:
            values[rate.name] = value / work.flops
    line = m.LINE_BYTES.of(signals)
    # One miss for each line is needed by any version: only those beyond it can be saved.
    if misses is not None and line:
        values[m.EXCESS_PER_FLOP.name] = max(0.0, misses - work.bytes / line) / work.flops
    return values


def _moved(signals: Signals, work: Work, counted: Work | None) -> float:
    """Bytes of one call to and from memory: by simulated misses, at least what must be moved.

    A line that an ordinary store misses is fetched, and written back; the simulation does not know of stores
    past the caches, so where there are some a written line counts once. Where a smaller call was simulated,
    its excess over what it must move is taken for this one's; none where that is not known.
    """
    known = m.together(signals, m.LL_READ_MISSES, m.LL_WRITE_MISSES, m.LINE_BYTES)
    if known is None or counted is None:
        return work.bytes
    read, written, line = known
    ways = 1 if m.STREAMING.of(signals) else 2
    return work.bytes * max(1.0, (read + ways * written) * line / counted.bytes)
