"""Selective injection: chance, break-even, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.inject import (
    GOLD,
    AgentEffect,
    GateRun,
    InjectionGate,
    advise_by_numbers,
    case_score,
    finding_right,
    measure_agent,
    producer_of,
)

DIFF = """--- a/shop/rates.py
+++ b/shop/rates.py
@@ -6,3 +6,3 @@
     if coupon is None:
-    if total > 10000:
+    if total >= 10000:
         return total // 10
"""
NEW_FILE = """--- /dev/null
+++ b/shop/new.py
@@ -0,0 +1,1 @@
+x = 1
"""


def case(score: float | None = 0.5, path: str = "shop/rates.py", start: int = 5, **meta: object) -> CaseFile:
    place = Location(path, start, start + 3, "why", "cause", "idea", score=score)
    return CaseFile((place,), meta={"producer": {"name": "investigate", "version": 1}, **meta})


def runs(count: int = 200, seed: int = 0) -> list[GateRun]:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(size=count)
    right = rng.uniform(size=count) < scores
    return [
        GateRun(f"t{n}", float(s), bool(r), "investigate 1")
        for n, (s, r) in enumerate(zip(scores, right, strict=True))
    ]


def middle() -> AgentEffect:
    """G = 0.25, L = 0.75 exactly: q* = 0.75."""
    none, right, wrong = np.full(8, 0.75), np.ones(8), np.zeros(8)
    return measure_agent("middle", none, right, wrong)


def test_measured_effect_and_break_even() -> None:
    effect = middle()
    assert effect.gain.estimate == pytest.approx(0.25)
    assert effect.loss.estimate == pytest.approx(0.75)
    assert effect.threshold == pytest.approx(0.75)
    low, high = effect.threshold_range
    assert low <= effect.threshold <= high
    assert effect.advise(0.76).act
    assert not effect.advise(0.75).act
    assert effect.advise(0.9).net == pytest.approx(0.9 * 0.25 - 0.1 * 0.75)
    assert not effect.advise(0.76, price=0.05).act


def test_an_agent_that_cannot_gain_gets_nothing() -> None:
    zeros = np.zeros(6)
    still = measure_agent("strong", zeros + 1, zeros + 1, zeros + 1)
    advice = still.advise(1.0)
    assert not advice.act
    assert math.isinf(advice.threshold)
    harmed = measure_agent("harmed", zeros + 1, zeros, zeros)  # a right finding harms: its gain counts as 0
    assert harmed.gain.estimate == -1
    assert not harmed.advise(1.0).act
    assert harmed.threshold == 1
    assert harmed.threshold_range[1] == 1


def test_decision_follows_the_calibrated_chance() -> None:
    gate = InjectionGate.fit(runs(), [middle()])
    sure, doubtful = gate.decide(case(0.99), "middle"), gate.decide(case(0.3), "middle")
    assert sure.act
    assert not doubtful.act
    assert sure.chance > 0.75 > doubtful.chance
    assert f"{sure.chance:.3f}" in sure.reason
    assert sure.threshold == pytest.approx(0.75)
    empty = CaseFile((), "empty")
    assert not gate.decide(empty, "middle").act
    assert gate.decide(empty, "middle").chance == 0


def test_gate_round_trip(tmp_path: Path) -> None:
    gate = InjectionGate.fit(runs(), [middle()])
    gate.write(tmp_path / "gate.json")
    again = InjectionGate.read(tmp_path / "gate.json")
    assert again == gate
    assert again.decide(case(0.9), "middle") == gate.decide(case(0.9), "middle")
    (tmp_path / "gate.json").write_text("{}")
    with pytest.raises(BadInput, match="not an injection gate"):
        InjectionGate.read(tmp_path / "gate.json")
    broken = json.loads(json.dumps(gate.to_json()))
    del broken["calibration"]
    with pytest.raises(BadInput):
        InjectionGate.from_json(broken)
    broken = gate.to_json() | {"agents": [{"agent": "x"}]}
    with pytest.raises(BadInput, match="AgentEffect gain"):
        InjectionGate.from_json(broken)
    with pytest.raises(BadInput, match="cannot be read"):
        InjectionGate.read(tmp_path / "absent.json")


def test_tasks_behind_the_gate_are_refused() -> None:
    rows = [replace(one, issue=f"digest {one.task}") for one in runs()]
    effect = replace(middle(), tasks=("forked",))
    gate = InjectionGate.fit(rows, [effect])
    for known in ("t3", "forked"):
        with pytest.raises(BadInput, match="this very task"):
            gate.decide(case(), "middle", task=known)
    with pytest.raises(BadInput, match="this very task"):  # known by its issue, whatever it is called
        gate.decide(case(issue="digest t7"), "middle", task="another name")
    assert gate.decide(case(), "middle", task="fresh").chance > 0


def test_gold_conditioned_findings_are_refused() -> None:
    gate = InjectionGate.fit(runs(), [middle()])
    oracle = case(**{GOLD: True})
    with pytest.raises(CannotDo, match="fix at hand"):
        gate.decide(oracle, "middle")
    with pytest.raises(CannotDo, match="fix at hand"):
        GateRun.of("t", oracle, DIFF)
    with pytest.raises(CannotDo, match="fix at hand"):
        advise_by_numbers(oracle, 1, 1, chance=1.0)


def test_other_refusals() -> None:
    gate = InjectionGate.fit(runs(), [middle()])
    with pytest.raises(BadInput, match="was not measured"):
        gate.decide(case(), "unknown")
    other = replace(case(), meta={"producer": {"name": "a model"}})
    with pytest.raises(BadInput, match="fitted on cases of"):
        gate.decide(other, "middle")
    with pytest.raises(BadInput, match="neither a score"):
        gate.decide(case(None), "middle")
    with pytest.raises(BadInput, match="twice"):
        InjectionGate.fit([*runs(), runs()[0]])
    with pytest.raises(BadInput, match="needs runs"):
        InjectionGate.fit([])
    with pytest.raises(BadInput, match="producers"):
        InjectionGate.fit([*runs(), GateRun("x", 0.5, True, "a model")])
    with pytest.raises(BadInput, match="cannot calibrate"):
        InjectionGate.fit([GateRun(f"t{n}", 0.1 * n, True) for n in range(8)])
    with pytest.raises(BadInput, match="task names"):
        measure_agent("a", np.zeros(3), np.zeros(3), np.zeros(3), tasks=["one"])
    with pytest.raises(BadInput, match="empty case"):
        case_score(CaseFile((), "empty"))


def test_what_counts_as_right() -> None:
    assert finding_right(case(start=5), DIFF)
    assert not finding_right(case(start=9), DIFF)
    assert finding_right(case(start=9), DIFF, "file")
    assert not finding_right(case(path="shop/cart.py"), DIFF, "file")
    assert not finding_right(CaseFile((), "empty"), DIFF)
    with pytest.raises(BadInput, match="no old line"):
        finding_right(case(), NEW_FILE)
    with pytest.raises(BadInput, match="unknown measure"):
        finding_right(case(), DIFF, "symbol")  # type: ignore[arg-type]
    made = GateRun.of("t", case(0.4, issue="abc"), DIFF)
    assert made == GateRun("t", 0.4, True, "investigate 1", "abc")
    assert producer_of(CaseFile((), "empty")) == ""
    five, one = (
        producer_of(case(producer={"name": "loop", "version": 1, "settings": {"locations": n}}))
        for n in (5, 1)
    )
    assert five != one
    assert producer_of(case(model="m")) != producer_of(case(model="n"))


def test_advice_by_numbers() -> None:
    stated = replace(case(), locations=(replace(case().locations[0], confidence=0.8),))
    assert advise_by_numbers(stated, 1, 3).threshold == pytest.approx(0.75)
    assert advise_by_numbers(stated, 1, 3).act
    assert not advise_by_numbers(stated, 1, 3, chance=0.7).act
    assert not advise_by_numbers(CaseFile((), "empty"), 1, 3).act
    with pytest.raises(BadInput, match="nothing was calibrated"):
        advise_by_numbers(case(), 1, 3)
