"""The 15 CPU tools: each fires on its flaw, none on the mended twin; which of them a class is asked."""

from __future__ import annotations

import pytest

from refork_methods.kernel import tool
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.diagnose import derived, diagnose_cpu
from refork_methods.kernel.cpu.metrics import METRICS, Metric
from refork_methods.kernel.cpu.tools import cpu_tools
from refork_methods.kernel.roofline import Ceilings, Work
from refork_methods.kernel.signals import Signals, Source
from refork_methods.kernel.tool import CheckResult, Finding

MACHINE = Ceilings(flops=48e9, bandwidth=12e9, noise=1.05)
#: A float matmul with N = 512, once.
WORK = Work(flops=2 * 512**3, bytes=12 * 512**2)
FLOPS = WORK.flops

#: A kernel without a flaw, whose metrics are those of a tiled matmul.
SOUND: dict[Metric, float] = {
    m.INSTRUCTIONS: 0.3 * FLOPS, m.READS: 0.05 * FLOPS, m.WRITES: 0.02 * FLOPS,
    m.D1_READ_MISSES: 0.009 * FLOPS, m.D1_WRITE_MISSES: 100, m.LL_READ_MISSES: 4e4, m.LL_WRITE_MISSES: 9e3,
    m.BRANCHES: 0.02 * FLOPS, m.MISPREDICTIONS: 0.0001 * FLOPS, m.D1_BYTES: 32768, m.LINE_BYTES: 64,
    m.FULL_MISSES: 0.008 * FLOPS,
    m.PACKED: 8, m.SCALAR: 2, m.PACKED_128: 0, m.PACKED_256: 8, m.PACKED_512: 0, m.WIDEST_BITS: 256, m.FMA: 8,
    m.ITEM_BYTES: 4,
    m.LOOPS: 1, m.FP_LOOPS: 1, m.VECTOR_LOOPS: 1, m.LOOP_INSTRUCTIONS: 20, m.DIVISIONS: 0, m.ROOTS: 0,
    m.LIBM_CALLS: 0, m.OTHER_CALLS: 0, m.STACK_LOADS: 0, m.STACK_STORES: 0, m.STREAMING: 0, m.UPDATES: 0,
    m.VECTORISED: 1, m.MISSED: 1, m.VECTOR_BYTES: 32,
    m.LOOP_CYCLES: 4.2, m.BLOCK_CYCLES: 4, m.PORT_USE: 0.8,
    m.SAMPLES: 900, m.INSIDE: 0.97, m.STACK_SHARE: 0, m.FAULTS: 3,
    m.SECONDS: 0.0079, m.TIMED_CALLS: 10, m.OUTPUT_BYTES: 4 * 512**2,
}  # fmt: skip

#: Tool -> what its flaw changes, and what its twin, mended but near the threshold, changes.
PLANTED: dict[str, tuple[dict[Metric, float], dict[Metric, float]]] = {
    "CpuScalarFallback": ({m.PACKED: 0, m.PACKED_256: 0, m.VECTOR_LOOPS: 0}, {m.SCALAR: 7}),
    "NarrowVector": ({m.WIDEST_BITS: 512}, {m.PACKED_128: 6}),
    "StridedAccess": (
        {m.D1_READ_MISSES: 0.505 * FLOPS, m.FULL_MISSES: 0.4 * FLOPS},
        {m.D1_READ_MISSES: 0.0101 * FLOPS},
    ),
    "CapacityMiss": (
        {m.D1_READ_MISSES: 0.032 * FLOPS, m.FULL_MISSES: 0.03 * FLOPS},
        {m.D1_READ_MISSES: 0.032 * FLOPS, m.FULL_MISSES: 0.03 * FLOPS, m.D1_BYTES: 2**23},
    ),
    "ConflictMiss": ({m.FULL_MISSES: 0.0005 * FLOPS}, {m.FULL_MISSES: 0.0046 * FLOPS}),
    "BandwidthRoof": (
        {m.LL_READ_MISSES: 1.3e6, m.SECONDS: 0.0079},
        {m.LL_READ_MISSES: 1.1e6, m.SECONDS: 0.0079},
    ),
    "StoreTraffic": ({m.WRITES: 0.057 * FLOPS}, {m.WRITES: 0.049 * FLOPS}),
    "LoadPressure": ({m.READS: 0.094 * FLOPS}, {m.READS: 0.06 * FLOPS}),
    "CpuRegisterSpill": (
        {m.STACK_LOADS: 2, m.STACK_STORES: 1, m.STACK_SHARE: 0.12},
        {m.STACK_LOADS: 2, m.STACK_SHARE: 0.04},
    ),
    "DependencyChain": ({m.LOOP_CYCLES: 5.08, m.BLOCK_CYCLES: 1.5, m.PORT_USE: 0.3}, {m.LOOP_CYCLES: 5.9}),
    "PortPressure": ({m.PORT_USE: 0.98}, {m.PORT_USE: 0.89}),
    "BranchMiss": (
        {m.BRANCHES: 0.5 * FLOPS, m.MISPREDICTIONS: 0.12 * FLOPS},
        {m.BRANCHES: 0.5 * FLOPS, m.MISPREDICTIONS: 0.02 * FLOPS},
    ),
    "SlowOps": ({m.DIVISIONS: 1, m.LIBM_CALLS: 1}, {m.OTHER_CALLS: 1}),
    "CallOverhead": ({m.INSIDE: 0.6}, {m.INSIDE: 0.6, m.SAMPLES: 30}),
    "PageTouch": ({m.FAULTS: 2600}, {m.FAULTS: 600}),
}


def signals(changed: dict[Metric, float] | None = None, without: frozenset[Metric] = frozenset()) -> Signals:
    values: dict[Source, dict[str, float]] = {}
    for metric, value in (SOUND | (changed or {})).items():
        if metric not in without:
            values.setdefault(metric.source, {})[metric.name] = value
    return Signals(values)


def fired(changed: dict[Metric, float]) -> set[str]:
    found = diagnose_cpu(signals(changed), WORK, MACHINE)
    assert len(found.ran) == 15
    return {one.tool for one in found.findings}


def test_there_are_15() -> None:
    assert {one.name for one in cpu_tools()} == set(PLANTED)
    assert len(cpu_tools()) == 15


@pytest.mark.parametrize("name", PLANTED)
def test_each_fires_on_its_flaw_alone_and_not_on_the_twin(name: str) -> None:
    flaw, twin = PLANTED[name]
    assert fired(flaw) == {name}
    assert fired(twin) == set()


def test_findings_name_their_numbers_and_gains_only_where_measured() -> None:
    gains = set()
    for name, (flaw, _) in PLANTED.items():
        (finding,) = diagnose_cpu(signals(flaw), WORK, MACHINE).findings
        assert finding.metrics
        assert any(letter.isdigit() for letter in finding.cause), name
        gains |= {name} if finding.expected_gain else set()
    assert gains == {"StridedAccess", "CapacityMiss"}


def test_what_is_absent_silences_its_tools_and_is_never_zero() -> None:
    for name, (flaw, _) in PLANTED.items():
        for metric in flaw:
            changed = {other: value for other, value in flaw.items() if other is not metric}
            found = diagnose_cpu(signals(changed, frozenset({metric})), WORK, MACHINE)
            # A register spill is told from the code alone, but as a hint; output bytes only refine.
            silent = {one.tool for one in found.findings if one.severity != "info"}
            assert name not in silent or metric not in _NEEDED.get(name, set(flaw)), (name, metric.name)
    empty = diagnose_cpu(Signals(absent={"perf": "not permitted"}), WORK, MACHINE)
    assert empty.findings == ()
    assert empty.blind["CpuRegisterSpill"] == "objdump: not measured; perf: not permitted"


#: Of flaws that change several metrics, those without which a tool cannot tell.
_NEEDED = {
    "CpuScalarFallback": {m.PACKED},
    "StridedAccess": {m.D1_READ_MISSES},
    "CapacityMiss": {m.D1_READ_MISSES},
    "CpuRegisterSpill": {m.STACK_LOADS, m.STACK_STORES},
    "DependencyChain": {m.LOOP_CYCLES, m.BLOCK_CYCLES},
    "BandwidthRoof": {m.SECONDS},
}


def test_the_reason_of_scalar_code_decides_the_action() -> None:
    scalar: dict[Metric, float] = {m.PACKED: 0, m.PACKED_256: 0, m.VECTOR_LOOPS: 0}
    for metric, word in (
        (m.MISSED_REDUCTION, "accumulators"),
        (m.MISSED_ALIAS, "restrict"),
        (m.MISSED_STRIDE, "Interchange"),
        (None, "one iteration hands to the next"),
    ):
        changed = scalar | ({metric: 2.0} if metric else {})
        (finding,) = diagnose_cpu(signals(changed), WORK, MACHINE).findings
        assert word in finding.action
    unseen = signals(scalar, frozenset({m.VECTORISED, m.MISSED, m.VECTOR_BYTES}))
    (finding,) = diagnose_cpu(unseen, WORK, MACHINE).findings
    assert "-O3 -march=native" in finding.action
    # gcc may pack the products of a sum that it keeps in order; no loop is vector code for that.
    order: dict[Metric, float] = {
        m.PACKED: 1.0,
        m.SCALAR: 7.0,
        m.VECTOR_LOOPS: 0.0,
        m.PACKED_128: 1.0,
        m.PACKED_256: 0.0,
    }
    assert "CpuScalarFallback" in fired(order)


def test_a_busy_port_is_no_news_while_memory_is_the_reason() -> None:
    assert fired({m.PORT_USE: 0.98} | PLANTED["StoreTraffic"][0]) == {"StoreTraffic"}


def test_a_stream_that_reads_and_writes_each_byte_once_has_nothing_to_mend() -> None:
    # a[i] = b[i] + s * c[i] in doubles, stored past the caches: 2 flops, 24 bytes, 4 numbers at a time.
    n = 1_000_000
    stream = {
        m.READS: 2 * n / 4, m.WRITES: n / 4, m.D1_READ_MISSES: 2 * n / 8, m.D1_WRITE_MISSES: n / 8,
        m.LL_READ_MISSES: 2 * n / 8, m.LL_WRITE_MISSES: n / 8, m.FULL_MISSES: 3 * n / 8, m.BRANCHES: n / 4,
        m.MISPREDICTIONS: 10, m.INSTRUCTIONS: 6 * n / 4, m.OUTPUT_BYTES: 8 * n, m.SECONDS: 24 * n / 11.5e9,
        m.STREAMING: 1,
    }  # fmt: skip
    found = diagnose_cpu(signals(stream), Work(2 * n, 24 * n), MACHINE)
    assert (found.classified.bound, found.classified.confidence) == ("memory", "high")
    assert [one.tool for one in found.findings] == ["BandwidthRoof"]
    assert "96% of the memory's measured bandwidth" in found.findings[0].cause


def test_lines_fetched_only_to_be_written_over_are_found_where_stores_do_not_stream() -> None:
    n = 4_000_000
    copied = {
        m.LL_READ_MISSES: n / 16, m.LL_WRITE_MISSES: n / 16, m.LINE_BYTES: 64, m.STREAMING: 0,
        m.WRITES: n / 8, m.OUTPUT_BYTES: 4 * n, m.SECONDS: 8 * n / 9e9,
    }  # fmt: skip

    def found(**changed: float) -> list[Finding]:
        by_name = {one.name: one for one in METRICS.values()}
        values = copied | {by_name[name]: value for name, value in changed.items()}
        told = diagnose_cpu(signals(values), Work(n, 8 * n), MACHINE).findings
        return [one for one in told if one.tool == "StoreTraffic"]

    (one,) = found()
    assert "16 MB of lines are fetched from memory only to be written over, 33%" in one.cause
    assert "non-temporal" in one.action
    assert one.expected_gain == (1.0, 1.5)
    assert found(streaming_stores_loop=2) == []
    assert found(ll_write_misses=n / 320) == []  # 0.8 MB: caches hold it
    assert found(ll_read_misses=n / 2) == []  # a small part of what moves


def test_counts_at_indexed_places_wait_where_neither_ceiling_is_near() -> None:
    work = Work(1e6, 4e6)

    def chains(updates: int, seconds: float) -> list[str]:
        known = signals({m.UPDATES: updates, m.SECONDS: seconds, m.LL_READ_MISSES: 62500})
        told = diagnose_cpu(known, work, MACHINE).findings
        return [one.cause for one in told if one.tool == "DependencyChain"]

    (cause,) = chains(1, 1e-3)
    assert "Sums in memory at places that an index names" in cause
    assert chains(0, 1e-3) == []
    assert chains(1, 4e6 / MACHINE.bandwidth) == []


def test_a_written_line_moves_twice_unless_it_is_streamed() -> None:
    n = 1_000_000
    counted = {
        m.LL_READ_MISSES: n / 16,
        m.LL_WRITE_MISSES: n / 16,
        m.LINE_BYTES: 64,
        m.SECONDS: 1e-3,
    }
    for streaming, moved in ((0, 12 * n), (4, 8 * n)):
        known = signals(counted | {m.STREAMING: streaming})
        told = derived(known, Work(n, 8 * n), MACHINE)
        assert m.BYTES_SHARE.of(told) == pytest.approx(moved / 1e-3 / MACHINE.bandwidth)


def test_all_tools_are_asked_whatever_the_class() -> None:
    found = diagnose_cpu(signals({m.D1_READ_MISSES: 0.505 * FLOPS, m.SECONDS: 0.2}), WORK, MACHINE)
    # Theory says compute, the present code waits: theory counts, and the caches are asked all the same.
    assert (found.classified.theory, found.classified.measured) == ("compute", "latency")
    assert (found.classified.bound, found.classified.confidence) == ("compute", "low")
    assert "StridedAccess" in [one.tool for one in found.findings]


def test_derived_values_are_per_useful_flop() -> None:
    found = derived(signals({m.READS: FLOPS, m.SECONDS: 0.1}), WORK, MACHINE)
    assert m.READS_PER_FLOP.of(found) == 1
    assert m.READS_PER_BYTE.of(found) == FLOPS / WORK.bytes
    assert m.FLOPS_SHARE.of(found) == pytest.approx(FLOPS / 0.1 / 48e9)
    needed = WORK.bytes / 64
    assert m.EXCESS_PER_FLOP.of(found) == pytest.approx((0.009 * FLOPS - needed) / FLOPS)
    # A kernel without flops has no values per flop, and no line size means no excess.
    none = derived(signals(), Work(0, 1e6), MACHINE)
    assert m.READS_PER_FLOP.of(none) is None
    assert m.READS_PER_BYTE.of(none) is not None
    assert m.EXCESS_PER_FLOP.of(derived(signals(without=frozenset({m.LINE_BYTES})), WORK, MACHINE)) is None
    assert derived(Signals(), WORK, MACHINE) == Signals()


def test_counts_of_a_smaller_call_are_set_against_its_own_work() -> None:
    small = Work(2 * 128**3, 12 * 128**2)
    known = signals({m.D1_READ_MISSES: 0.505 * small.flops})
    found = derived(known, WORK, MACHINE, small, smaller=True)
    assert m.MISSES_PER_FLOP.of(found) == pytest.approx(0.505)
    told = diagnose_cpu(known, WORK, MACHINE, simulated=small, smaller=True).findings
    assert "StridedAccess" in [one.tool for one in told]
    # Where its work is not known nothing is, and least of all a small number.
    unknown = derived(known, WORK, MACHINE, None, smaller=True)
    assert m.MISSES_PER_FLOP.of(unknown) is None
    assert m.BYTES_SHARE.of(unknown) == pytest.approx(WORK.bytes / 0.0079 / MACHINE.bandwidth)


def test_a_users_tool_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "_REGISTERED", {})

    @tool.micro_tool(source="timing", category="latency")
    def too_slow(signals: Signals) -> CheckResult | None:
        return CheckResult(severity="info", cause="It is slow.", action="Wait.")

    tool.micro_tool(source="ncu", category="memory", name="OnGpus")(too_slow)
    found = diagnose_cpu(signals(), WORK, MACHINE)
    assert [one.tool for one in found.findings] == ["TooSlow"]
    assert "OnGpus" not in {*found.ran, *found.blind}


def test_metrics_are_named_once_with_a_meaning() -> None:
    declared = [one for one in vars(m).values() if isinstance(one, Metric)]
    assert len(METRICS) == len(declared) == len({one.name for one in declared})
    assert all(one.meaning and one.name.islower() for one in declared)
