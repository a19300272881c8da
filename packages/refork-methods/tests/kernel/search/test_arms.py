"""Arms of feedback against each other, and the search on the tree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from kernel.search.helpers_search import search
from refork.errors import BadInput
from refork.tree.tree import Tree
from refork_methods.kernel.search.arms import ArmTest, compare_arms, read_arms
from refork_methods.kernel.search.on_tree import record_on_tree


def test_arms_are_paired_by_kernel_and_seed_and_tested_over_kernels() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(1, 10, 12)
    gain = rng.uniform(1.1, 2.0, 12)
    cases = [(f"t{n // 3}", n % 3) for n in range(12)]
    arms = {
        "raw": dict(zip(cases, base / gain, strict=True)),
        "diagnosed": dict(zip(cases, base * gain, strict=True)),
        "none": dict(zip(cases, base, strict=True)),
    }
    tests = {(one.better, one.other): one for one in compare_arms(arms)}
    assert set(tests) == {("diagnosed", "none"), ("diagnosed", "raw"), ("none", "raw")}
    one = tests["diagnosed", "none"]
    assert one.ratio == pytest.approx(np.exp(np.log(gain).mean()))
    assert one.low < one.ratio < one.high
    means = np.log(gain).reshape(4, 3).mean(axis=1)
    assert one.p == pytest.approx(stats.wilcoxon(means, alternative="greater").pvalue)
    assert (one.kernels, one.cases) == (4, 12)
    assert one.adjusted == pytest.approx(min(1, 3 * one.p))
    backwards = compare_arms({"diagnosed": arms["none"], "none": arms["diagnosed"]})[0]
    assert backwards.p == 1.0
    del arms["none"]["t0", 0]
    assert {row.cases for row in compare_arms(arms)} == {11, 12}


def test_more_seeds_of_the_same_kernels_are_no_more_evidence() -> None:
    gains = {"a": 1.5, "b": 1.2, "c": 0.9}

    def compared(seeds: int) -> ArmTest:
        cases = [(kernel, seed) for kernel in gains for seed in range(seeds)]
        arms = {"diagnosed": {case: gains[case[0]] for case in cases}, "none": dict.fromkeys(cases, 1.0)}
        return compare_arms(arms)[0]

    few, many = compared(1), compared(15)
    assert (few.kernels, few.cases, many.kernels, many.cases) == (3, 3, 3, 45)
    assert (many.p, many.ratio, many.low, many.high) == pytest.approx((few.p, few.ratio, few.low, few.high))
    # One kernel alone is told of by its seeds.
    alone = {arm: {("a", seed): one + seed for seed in range(6)} for arm, one in (("raw", 1), ("none", 2))}
    one = compare_arms(alone)[0]
    assert (one.kernels, one.cases, one.p) == (1, 6, pytest.approx(2**-6))


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(BadInput, match="two at least"):
        compare_arms({"none": {("t", 0): 1.0}})
    with pytest.raises(BadInput, match="cases in common"):
        compare_arms({"none": {("t", 0): 1.0}, "raw": {("u", 0): 1.0}})
    with pytest.raises(BadInput, match="above 0"):
        compare_arms({arm: {("t", n): 0.0 for n in range(3)} for arm in ("none", "raw")})


def test_arms_are_read_from_folders(tmp_path: Path) -> None:
    for arm in ("diagnosed", "none"):
        for seed in range(3):
            search(tmp_path / arm / str(seed), feedback=arm, seed=seed, evaluations=6)
    arms = read_arms([tmp_path])
    assert {arm: len(found) for arm, found in arms.items()} == {"diagnosed": 3, "none": 3}
    # The fake writer does not read findings: nothing differs.
    one = compare_arms(arms)[0]
    assert (one.ratio, one.p) == (1.0, 1.0)
    with pytest.raises(BadInput, match="there twice"):
        read_arms([tmp_path, tmp_path])
    with pytest.raises(BadInput, match="no finished search"):
        read_arms([tmp_path / "nowhere"])


def test_a_search_is_a_tree_and_goes_on_as_one(tmp_path: Path) -> None:
    search(tmp_path / "s", evaluations=8)
    with Tree.open(tmp_path / "t.db") as tree:
        ids = record_on_tree(tmp_path / "s", tree)
        assert len(tree) == 10
        assert record_on_tree(tmp_path / "s", tree) == ids
        result = search(tmp_path / "s", evaluations=14)
        more = record_on_tree(tmp_path / "s", tree)
        assert more[: len(ids)] == ids
        assert len(tree) == 16
        trajectory = tree.path(more[result.best.number])
        assert [step.text for step in trajectory][-1] == result.best.candidate.source
        assert tree.score_map("speedup", [more[result.best.number]])[more[result.best.number]] == (
            result.best.evaluated.speedup
        )
        failing = [n.number for n in result.nodes if not n.evaluated.ok]
        assert all(tree.node(more[number]).error for number in failing)
        assert [one for one in tree.verify() if one] == []
        assert tree.outline().total == 16
