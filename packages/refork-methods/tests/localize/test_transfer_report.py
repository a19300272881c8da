"""Transfer: pairing, tests, tokens with the localizer's own, controls."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, wilcoxon

from refork.errors import BadInput, CannotDo
from refork.stats import holm
from refork_methods.localize.transfer import Findings, RepairRun, read_runs, transfer_report


def arm(
    resolved: list[float],
    findings: Findings = "none",
    setting: str = "",
    tokens: float | None = None,
    own: float | None = None,
) -> list[RepairRun]:
    return [RepairRun(f"t{n}", value, setting, findings, tokens, own) for n, value in enumerate(resolved)]


def test_paired_counts_and_mcnemar() -> None:
    without = arm([0] * 9 + [1] * 11)
    with_ = arm([1] * 8 + [0] + [1] * 10 + [0], "all")
    (row,) = transfer_report(with_, without).settings
    assert (row.tasks, row.gains, row.losses) == (20, 8, 1)
    assert (row.without, row.with_) == (0.55, 0.9)
    assert row.difference.estimate == pytest.approx(0.35)
    assert row.test.p == pytest.approx(binomtest(8, 9, 0.5).pvalue)
    assert row.significant
    assert row.p == row.test.p
    assert row.tokens is None


def test_holm_over_settings() -> None:
    without, with_ = [], []
    for name, gains in (("a", 6), ("b", 9), ("c", 3)):
        without += arm([0] * 12, setting=name)
        with_ += arm([1] * gains + [0] * (12 - gains), "gated", name)
    report = transfer_report(with_, without)
    raw = [binomtest(gains, gains, 0.5).pvalue for gains in (6, 9, 3)]
    assert [row.p for row in report.settings] == pytest.approx(holm(np.array(raw)).p.tolist())
    assert [row.significant for row in report.settings] == [False, True, False]
    assert report.mean == pytest.approx((6 + 9 + 3) / 36)
    assert report.deployable


def test_seeds_are_averaged_and_graded_outcomes_get_wilcoxon() -> None:
    rng = np.random.default_rng(0)
    base, other = rng.integers(0, 2, (12, 3)), rng.integers(0, 2, (12, 3))
    other[:9] |= base[:9]
    without = [RepairRun(f"t{n}", float(v)) for n, row in enumerate(base) for v in row]
    with_ = [RepairRun(f"t{n}", float(v), findings="all") for n, row in enumerate(other) for v in row]
    (row,) = transfer_report(with_, without).settings
    change = other.mean(axis=1) - base.mean(axis=1)
    assert row.tasks == 12
    assert row.difference.estimate == pytest.approx(change.mean())
    assert row.test.method.startswith("Wilcoxon")
    assert row.test.p == pytest.approx(wilcoxon(change[change != 0], method="approx").pvalue)


def test_tokens_count_the_localizers_own() -> None:
    without = arm([0, 1, 1], tokens=100_000)
    (row,) = transfer_report(arm([1, 1, 1], "all", tokens=80_000, own=28_600), without).settings
    assert row.tokens is not None
    assert row.tokens.change.estimate == -20_000
    assert row.tokens.total_change is not None
    assert row.tokens.total_change.estimate == 8_600
    assert row.tokens.relative == pytest.approx(0.086)
    (row,) = transfer_report(arm([1, 1, 1], "all", tokens=80_000), without).settings
    assert row.tokens is not None  # a cost that nobody counted is not a cost of 0
    assert (row.tokens.localizer, row.tokens.total_change, row.tokens.relative) == (None, None, None)


def test_unmatched_tasks_and_broken_rollouts_are_counted() -> None:
    without = [*arm([1, 0, 1]), RepairRun("only here", 1)]
    with_ = [*arm([1, 1], "all"), RepairRun.from_json({"task": "t2", "error": "timeout", "findings": "all"})]
    report = transfer_report(with_, without)
    assert report.unmatched == (1, 0)
    assert report.errors == (0, 1)
    assert report.settings[0].losses == 1


def test_controls_are_no_deployable_arms() -> None:
    for name in ("oracle", "shuffled", "masked"):
        report = transfer_report(arm([1, 1, 1], name), arm([0, 1, 0]))  # type: ignore[arg-type]
        assert not report.deployable
        assert report.to_json()["deployable"] is False
        with pytest.raises(CannotDo, match="control"):
            report.refuse_control()


def test_refusals(tmp_path: Path) -> None:
    plain, given = arm([0, 1]), arm([1, 1], "all")
    for with_, without, said in (
        ([], plain, "both arms"),
        (plain, plain, "had none"),
        (given, given, "had some"),
        ([*given, *arm([1], "oracle", "x")], plain, "all and oracle"),
        (arm([1, 1], "all", "x"), plain, "one arm only"),
        (arm([1], "all"), plain, "1 tasks"),
    ):
        with pytest.raises(BadInput, match=said):
            transfer_report(with_, without)
    for row, said in (
        ({"resolved": True}, "names its"),
        ({"task": "a"}, "resolved"),
        ({"task": "a", "resolved": 2}, "resolved"),
        ({"task": "a", "resolved": 1, "findings": "some"}, "unknown findings"),
        ({"task": "a", "resolved": 1, "tokens": -1}, "tokens"),
    ):
        with pytest.raises(BadInput, match=said):
            RepairRun.from_json(row)
    with pytest.raises(BadInput, match="cannot be read"):
        read_runs(tmp_path / "absent")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(BadInput, match="no run"):
        read_runs(tmp_path / "empty")


def test_rows_of_swe_bench_are_read(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({"instance_id": "a__b-1", "resolved": True, "tokens": 5}) + "\n")
    (run,) = read_runs(file)
    assert (run.task, run.resolved, run.tokens, run.localizer_tokens) == ("a__b-1", 1.0, 5.0, None)
    assert RepairRun.from_json(run.to_json()) == run
