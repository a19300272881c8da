"""Rounds of one instance: error rate and power of the test, what it needs, what shuffling leaves alone."""

import numpy as np
import pytest

from gate.gate_problems import HARD_AND_EASY, mixed
from refork_methods.gate.model import Critic, CriticModel, Kernel
from refork_methods.gate.planted import planted_records
from refork_methods.gate.records import Record
from refork_methods.gate.rounds import OUTCOMES, _Table, rounds

ALIKE = CriticModel(0.6, (Critic("test", 0.9, 0.45, 2), Critic("review", 0.8, 0.35, 5)), Kernel(0.25, 0.1))


def test_hard_and_easy_instances_are_found_in_the_outcomes():
    report = rounds(planted_records(HARD_AND_EASY, 60, draws=3, steps=1), shuffles=199)
    assert report.p == 1 / 200
    # Two draws of one instance: covariance .16, variance .25.
    assert report.parts[OUTCOMES].correlation == pytest.approx(0.64, abs=0.15)
    assert report.parts["review"].p > 0.05
    assert "fit with --classes 2" in report.warnings[0]
    assert "review" not in report.warnings[0]


def test_a_critic_that_errs_alike_on_all_rounds_of_an_instance_is_named():
    sticky = mixed((0.6, 0.6), (0.5, 0.5), sticky=((0.98, 0.05), (0.82, 0.85)))
    report = rounds(planted_records(sticky, 300, draws=3, steps=1, seed=1), shuffles=199)
    assert report.parts["test"].p < 0.05
    assert report.parts[OUTCOMES].p > 0.05
    assert "test +" in report.warnings[0]


def test_a_model_that_holds_is_rejected_as_often_as_stated():
    # 60 samples at a rate of .05: more than 9 rejections have a chance of 1 in 700. Persistence from step to
    # step is the kernel's, and critics that differ by outcome are the model's: neither is a difficulty.
    shapes = ({"draws": 1, "steps": 3}, {"draws": 3, "steps": 1})
    found = [
        rounds(planted_records(ALIKE, 30, seed=100 + n, failed=0.05, **shapes[n % 2]), shuffles=39).p
        for n in range(60)
    ]
    assert sum(p <= 0.05 for p in found) <= 9
    assert np.mean(found) > 0.35


def test_shuffling_keeps_what_the_model_knows():
    records = planted_records(ALIKE, 40, draws=2, steps=3, seed=5)
    table = _Table.of(records, ("test", "review"))
    owner = table._moved(np.random.default_rng(0))
    assert (np.bincount(owner) == np.bincount(table.owner)).all()
    # Two steps of each draw: who owns the second was dealt anew among those whose first has the same outcome.
    for right in (0, 1):
        first = (table.step == 0) & (table.right == right)
        assert (np.sort(owner[first]).size, int(table.right[first].sum())) == (
            first.sum(),
            right * first.sum(),
        )
    assert (owner != table.owner).any()


def test_what_cannot_be_tested_says_so():
    lone = [Record(f"i{n}", "0", n % 2 == 0, {"test": n % 3 == 0}) for n in range(20)]
    report = rounds(lone)
    assert (report.p, report.instances) == (None, 0)
    assert "cannot be tested" in report.warnings[0]
    flat = [Record(f"i{n}", str(k), True, {"test": True}) for n in range(5) for k in range(2)]
    report = rounds(flat)
    assert report.p is None
    assert report.parts == dict.fromkeys((OUTCOMES, "test"), report.parts[OUTCOMES])
    assert rounds([]).p is None
    assert rounds([Record("i", "0", None, {})]).p is None
