"""Advice that cannot be followed in a source is not given there."""

from __future__ import annotations

import pytest

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.diagnose import derived, diagnose_cpu
from refork_methods.kernel.fitted import CHAIN, GATHER, SINGLE, fitted, shape_of
from refork_methods.kernel.roofline import Ceilings, Work
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import Finding
from refork_testbed.kernels import functions

MACHINE = Ceilings(flops=48e9, bandwidth=12e9, noise=1.05)
STRIDED = Finding(
    tool="StridedAccess", category="memory", severity="critical", cause="It strides.",
    action="Interchange the loops.", expected_gain=(10.7, 13.8),
)  # fmt: skip
CHAINED = Finding(
    tool="DependencyChain", category="latency", severity="warn", cause="It waits.", action="4 accumulators."
)


def advice(name: str, one: Finding) -> Finding:
    path = functions()[name]
    (found,) = fitted([one], shape_of(path.read_text(), name, ("-O3",)))
    return found


@pytest.mark.parametrize(
    ("name", "action"),
    [("gather", GATHER), ("gathered_sum", GATHER), ("spmv", GATHER), ("triad", SINGLE)],
)
def test_one_loop_is_exchanged_with_no_other(name: str, action: str) -> None:
    found = advice(name, STRIDED)
    assert found.action == action
    assert found.expected_gain is None


def test_a_prefix_sum_is_told_no_accumulators_and_a_sum_is() -> None:
    assert advice("prefix_sum", CHAINED).action == CHAIN
    recursion = "void f(int n, float *x) { float y = 0, z = 0; for (int i = 0; i < n; i++) { %s } }"
    for body in ("x[i] += y - z; z = y; y = x[i];", "x[i + 1] = x[i] * 2;"):
        (found,) = fitted([CHAINED], shape_of(recursion % body, "f", ("-O3",)))
        assert found.action == CHAIN
    for name in ("moments", "spmv", "gathered_sum"):
        assert advice(name, CHAINED).action == CHAINED.action


def test_a_product_keeps_its_advice_and_the_measured_gain() -> None:
    assert advice("batched_product", STRIDED) == STRIDED
    assert advice("pointer_product", STRIDED) == STRIDED
    assert shape_of("int f(", "f", ()) is None
    (unread,) = fitted([STRIDED], None)
    assert unread.action == STRIDED.action
    assert unread.expected_gain is None


def counted(misses: float, stored: float) -> Signals:
    values = {m.D1_READ_MISSES.name: misses, m.D1_WRITE_MISSES.name: stored, m.LINE_BYTES.name: 64.0}
    return Signals({"cachegrind": values | {m.READS.name: 1e6, m.WRITES.name: 1e6}})


def test_a_transposed_copy_is_found_by_its_lines() -> None:
    lines = 1e6 * 8 / 64
    # One array is read in order; each number that is stored takes a line anew.
    seen = counted(lines / 2, 1e6)
    for work in (None, Work(0, 8e6)):
        (found,) = (
            one
            for one in diagnose_cpu(seen, work, MACHINE, needed=8e6).findings
            if one.tool == "StridedAccess"
        )
        assert found.metrics == {m.MISSES_PER_LINE.name: pytest.approx(8.5)}
        assert found.severity == "critical"
    plain = diagnose_cpu(counted(lines / 2, lines / 2), None, MACHINE, needed=8e6)
    assert not [one for one in plain.findings if one.tool == "StridedAccess"]
    # Where flops are declared, those are what misses are set against.
    assert m.MISSES_PER_LINE.of(derived(seen, Work(1e6, 8e6), MACHINE, needed=8e6)) is None
