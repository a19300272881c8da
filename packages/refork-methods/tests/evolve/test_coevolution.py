from functools import cache

import numpy as np
import pytest
from scipy.stats import kstest

from refork.errors import BadInput
from refork.plain import canonical
from refork_methods.evolve.promote import Gate
from refork_methods.evolve.replay import replay
from refork_methods.evolve.scripted.coevolution import World, coevolve, runtime
from refork_methods.evolve.scripted.papers import (
    GOOD,
    JudgeRule,
    Papers,
    calibrated,
    fitted,
    human_papers,
    machine_papers,
)
from refork_methods.evolve.search import Settings
from refork_methods.journal import Journal
from refork_testbed.trials.evolve import measure, measure_judge


def test_human_work_has_the_sheets_margins_and_machine_work_its_quality():
    human, machine = (make(4000, np.random.default_rng(3)) for make in (human_papers, machine_papers))
    # Kolmogorov-Smirnov at 0.001 each: fails by chance once in 250 seeds.
    assert kstest(human.quality, "uniform").pvalue > 0.001
    assert kstest(human.gloss, "beta", (2, 4)).pvalue > 0.001
    assert kstest(machine.quality, "uniform").pvalue > 0.001
    assert kstest(machine.gloss, "beta", (5, 2)).pvalue > 0.001


def test_a_judge_of_what_it_sees_alone_is_even_handed_and_one_of_gloss_is_not():
    # 20,000 papers a side: a standard error of 0.013.
    assert measure_judge(calibrated(0.0, 0.0, 0.4)).stringency.estimate == pytest.approx(1, abs=0.05)
    glossy = measure_judge(calibrated(3.0, 0.5, 0.4))
    assert glossy.stringency.low > 1.4
    assert glossy.human_acceptance == pytest.approx(0.4, abs=0.02)


def test_a_rule_is_its_weights():
    papers = Papers(*(np.array(v) for v in ([0.9, 0.1], [0.0, 1.0], [0.0, 0.0], [0.9, 0.1])))
    rule = JudgeRule(1.0, 0.0, 1.0)
    assert rule.accepts(papers).tolist() == [False, True]
    assert rule.accuracy(papers) == 0
    assert papers.good.tolist() == [GOOD < 0.9, GOOD < 0.1]
    assert rule.id != JudgeRule(1.0, 0.0, 1.01).id
    with pytest.raises(BadInput):
        rule.accuracy(papers.take(np.zeros(0, int)))


SEED = calibrated(3.0, 0.5, 0.4)
GATE = Gate("best_belief", anchor_slack=0.05)


@cache
def played(traps):
    world = World(SEED, seed=1, traps=traps)
    log = Journal(clock=lambda: 0.0)
    return world, coevolve(world, Settings(1024, first=128, seed=1, gate=GATE), log), log


def test_a_run_replays_and_shows_no_anchor_item():
    _, archive, log = played(True)
    assert replay(log).records == archive.records
    world = World(SEED, seed=1)
    anchor = human_papers(200, world.rng("anchor"))
    text = "".join(canonical(entry.body) for entry in log)
    assert not any(repr(float(x)) in text for x in (*anchor.observed, *anchor.quality))
    ports = runtime(world)
    assert not hasattr(ports.editor, "_anchor")
    assert not hasattr(ports.editor._shop, "_anchor")


def test_traps_come_from_the_records_and_controls_balance_them():
    _, _, log = played(True)
    notes = [e.body["notes"]["review"] for e in log if e.kind == "checkpoint"]
    assert notes[-1]["traps"] > 0
    decided = [e.body["decisions"]["review"] for e in log if e.kind == "checkpoint"]
    for one, told in zip(decided, notes, strict=True):
        assert sum(one["incumbent"]["tally"]["controls"]) == told["controls"]
        assert told["controls"] in (0, told["traps"])


def test_without_traps_nothing_but_the_anchor_is_examined():
    world, archive, log = played(False)
    assert all(e.body["notes"]["review"]["traps"] == 0 for e in log if e.kind == "checkpoint")
    assert measure(world, archive).first.stringency.low > 1.4


def test_a_frozen_judge_erases_nothing():
    world = World(SEED, seed=2, traps=False, replace=False)
    archive = coevolve(world, Settings(200, first=32, seed=2))
    found = measure(world, archive, papers=500)
    assert (found.replaced, found.erased) == (0, 0)
    assert found.first == found.last


def test_a_too_strict_judge_gives_way_to_a_milder_one():
    strict = calibrated(0.0, 0.0, 0.08)
    for seed in (0, 1):
        world = World(strict, seed=seed, traps=False)
        found = measure(world, coevolve(world, Settings(600, first=128, seed=seed)))
        assert found.replaced > 0
        assert found.first.human_acceptance < 0.1 < 0.25 < found.last.human_acceptance < 0.55
        assert found.last.accuracy > found.first.accuracy


def test_worlds_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="verified"):
        World(SEED, verified=2.0)


def test_a_fitted_rule_is_the_one_that_labelled_the_papers():
    papers = machine_papers(4000, np.random.default_rng(5))
    planted = JudgeRule(0.8, -0.2, 0.9)
    points = (
        papers.observed + planted.gloss * papers.gloss + planted.length * papers.length - planted.threshold
    )
    chance = 1 / (1 + np.exp(-12 * points))
    labels = np.random.default_rng(6).random(4000) < chance
    found = fitted(papers, labels, np.ones(4000), ridge=0.0)
    # Standard errors are 0.03 and less: four of them, missed by chance once in 5,000 seeds.
    assert found.gloss == pytest.approx(0.8, abs=0.12)
    assert found.length == pytest.approx(-0.2, abs=0.12)
    assert found.threshold == pytest.approx(0.9, abs=0.12)
    # A paper of weight two is that paper twice.
    twice = papers.beside(papers.take(np.arange(50)))
    weights = np.where(np.arange(4000) < 50, 2.0, 1.0)
    again = fitted(twice, np.concatenate([labels, labels[:50]]), np.ones(4050))
    once = fitted(papers, labels, weights)
    assert (once.gloss, once.threshold) == pytest.approx((again.gloss, again.threshold), rel=1e-9)
    with pytest.raises(BadInput, match="one label"):
        fitted(papers, np.ones(4000, dtype=bool), np.ones(4000))
    with pytest.raises(BadInput, match="against acceptance"):
        fitted(papers, ~labels, np.ones(4000))
