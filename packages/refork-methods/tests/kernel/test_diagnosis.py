"""Findings, signals, classes and the tools that run on them."""

from __future__ import annotations

import math

import pytest

from refork.errors import BadInput
from refork_methods.kernel import tool as tools
from refork_methods.kernel.roofline import (
    Ceilings,
    Work,
    by_measurement,
    by_theory,
    classify,
    roof,
)  # fmt: skip
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import CheckResult, Finding, by_severity, micro_tool, registered, run_tools

MACHINE = Ceilings(flops=48e9, bandwidth=12e9, noise=1.05)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_REGISTERED", {})


@pytest.mark.parametrize(
    ("flops", "bytes_", "bound"),
    [(2 * 512**3, 12 * 512**2, "compute"), (2e6, 12e6, "memory"), (4e6, 1e6, "mixed"), (0, 1e6, "memory")],
)
def test_theory_compares_intensity_with_the_ridge(flops: float, bytes_: float, bound: str) -> None:
    assert MACHINE.ridge == 4
    assert by_theory(Work(flops, bytes_), MACHINE) == bound


def test_measurement_and_arbitration() -> None:
    assert by_measurement(0.9, 0.2) == "compute"
    assert by_measurement(0.2, 0.9) == "memory"
    assert by_measurement(0.6, 0.5) == "mixed"
    assert by_measurement(0.1, 0.2) == "latency"
    assert (classify("compute", "compute").bound, classify("compute", "compute").confidence) == (
        "compute",
        "high",
    )
    both = classify("compute", "memory")
    assert (both.bound, both.confidence) == ("compute", "low")
    assert classify(None, "latency").bound == "latency"
    with pytest.raises(BadInput, match="neither work nor counters"):
        classify(None, None)


def test_the_roof_is_the_larger_time() -> None:
    assert roof(Work(48e9, 6e9), MACHINE) == 1.0
    assert roof(Work(1.0, 24e9), MACHINE) == 2.0
    with pytest.raises(BadInput, match="noise"):
        Ceilings(1.0, 1.0, noise=0.9)


def finding(name: str, severity: str = "warn", gain: tuple[float, float] | None = None) -> Finding:
    return Finding(
        tool=name, category="memory", severity=severity, cause="It waits.", action="Block the loop.",
        expected_gain=gain,
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_finding_is_a_sentence_and_the_gravest_comes_first() -> None:
    assert finding("a").sentence == "It waits. Block the loop."
    assert finding("a", gain=(2, 4)).sentence.endswith("Expected: 2 to 4 times as fast.")
    order = by_severity([finding("a"), finding("b", "critical"), finding("c", gain=(1, 3))])
    assert [one.tool for one in order] == ["b", "c", "a"]
    with pytest.raises(BadInput, match="metric misses is not finite"):
        CheckResult(severity="info", cause="x", action="y", metrics={"misses": math.nan})


def test_what_was_not_measured_is_absent_and_not_zero() -> None:
    signals = Signals({"cachegrind": {"d1_read_misses": 0.0}}, absent={"counters": "not in this machine"})
    assert signals.get("cachegrind", "d1_read_misses") == 0.0
    assert signals.get("counters", "cycles") is None
    assert signals.all("cachegrind", "d1_read_misses", "reads") is None
    more = signals | Signals({"counters": {"cycles": 5.0}}, {"counters": ("5 cycles",)})
    assert more.get("counters", "cycles") == 5.0
    assert more.absent == {}
    with pytest.raises(BadInput, match="twice"):
        signals | signals
    with pytest.raises(BadInput, match="not finite"):
        Signals({"mca": {"cycles": math.nan}})


def test_all_tools_of_a_class_run_and_blind_ones_say_why() -> None:
    waits = CheckResult(severity="warn", cause="It waits.", action="Block the loop.")

    @micro_tool(source="cachegrind", category="memory", bounds=("memory",))
    def strided_access(signals: Signals) -> CheckResult | None:
        misses = signals.get("cachegrind", "misses")
        return waits if misses and misses > 0.1 else None

    @micro_tool(source=("counters", "perf"), category="latency")
    def page_touch(signals: Signals) -> CheckResult | None:
        return waits

    @micro_tool(source="mca", category="compute", bounds=("compute",))
    def port_pressure(signals: Signals) -> CheckResult | None:
        raise AssertionError("not for this class")

    signals = Signals({"cachegrind": {"misses": 0.5}, "mca": {"x": 1.0}}, absent={"perf": "no permission"})
    found = run_tools(registered(), signals, classify("memory", None))
    assert [(one.tool, one.category) for one in found.findings] == [("StridedAccess", "memory")]
    assert found.ran == ("StridedAccess",)
    assert found.blind == {"PageTouch": "counters: not measured; perf: no permission"}
    assert [one.name for one in registered()] == ["StridedAccess", "PageTouch", "PortPressure"]
