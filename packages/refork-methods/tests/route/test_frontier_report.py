from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.decide import area_under_frontier
from refork_methods.route.frontier import frontier_report, removals, served, success_chance
from refork_methods.route.table import OutcomeTable
from refork_testbed.worlds.specialists import HARNESS

PRICES = np.array([0.2, 0.5, 1.0, 1.6])
NAMES = ["small", "medium", "large", "huge"]


def planted(queries=300, repeats=4, seed=0, prices=PRICES):
    rng = np.random.default_rng(seed)
    domain = rng.integers(0, 4, queries)
    rewards = (rng.random((queries, 4, repeats)) < HARNESS.T[domain][:, :, None]).astype(float)
    cost = np.broadcast_to(np.array(prices)[None, :, None], rewards.shape)
    return OutcomeTable.from_arrays(rewards, NAMES, cost=cost, latency=cost * 2), domain


def routing(domain, picks, sure=0.7):
    return np.eye(4)[np.array(picks)[domain]] * sure + (1 - sure) / 4


def exact(picks):
    return HARNESS[picks, np.arange(4)].mean()


def test_every_option_is_there_and_measured():
    table, domain = planted()
    good, bad = routing(domain, [0, 1, 1, 0]), routing(domain, [0, 1, 2, 3])
    report = frontier_report(table, {"good": good, "bad": bad}, calls=(3, 9))
    names = [option.name for option in report.options]
    assert names == [*NAMES, "good", "bad", "random", f"majority@3 of {report.best_single}",
                     f"best-of-3 of {report.best_single}", "oracle"]  # fmt: skip
    quality = {option.name: option.quality.estimate for option in report.options}
    # 300 queries of 4 draws: SE below 0.021 with the domains' own chance; 5 SE, once in a million seeds.
    assert abs(quality["good"] - 0.9) < 5 * 0.021
    assert abs(quality["bad"] - exact([0, 1, 2, 3])) < 5 * 0.021
    assert quality["oracle"] >= max(quality[name] for name in [*NAMES, "good", "bad"])
    assert report.split_oracle < quality["oracle"]
    on = dict(zip(names, report.on_frontier, strict=True))
    assert on["good"] is True
    assert on["huge"] is False
    assert on["oracle"] is None
    assert on[f"best-of-3 of {report.best_single}"] is None
    assert (report.queries, report.tasks) == (300, 300)


def test_the_area_is_that_of_the_shared_frontier_and_grows_with_a_good_router():
    table, domain = planted()
    report = frontier_report(table, {"good": routing(domain, [0, 1, 1, 0])})
    quality = np.array([option.quality.estimate for option in report.options[:4]])
    assert report.budgets == (pytest.approx(0.2), pytest.approx(1.6))
    costs = np.array([option.cost for option in report.options[:4]])
    alone = area_under_frontier(quality, costs, *report.budgets)
    assert report.area["workers alone"] == pytest.approx(alone)
    assert report.area["good"] > alone + 0.1


def test_regret_is_held_against_the_best_worker_of_each_query():
    table, domain = planted()
    means, _ = table.means()
    p = routing(domain, [0, 1, 1, 0])
    (router,) = frontier_report(table, {"good": p}).routers
    lost = means.max(axis=1) - means[np.arange(300), p.argmax(axis=1)]
    assert router.regret.regret.estimate == pytest.approx(lost.mean())
    assert router.regret.oracle == pytest.approx(means.max(axis=1).mean())


def test_a_chance_of_success_is_learned_elsewhere_and_held_against_outcomes():
    train, where = planted(seed=1)
    test, there = planted(seed=2)
    sure = np.array([0.4, 0.6, 0.5, 0.9])  # how sure it is by domain, whatever that is worth

    def p(domain):
        return (
            np.eye(4)[np.array([0, 1, 2, 3])[domain]] * sure[domain][:, None]
            + (1 - sure[domain])[:, None] / 4
        )

    chance = success_chance(p(where), train)
    (router,) = frontier_report(test, {"r": p(there)}, chances={"r": chance}).routers
    found = router.calibration
    # Right 0.9, 0.9, 0.5, 0.4 by domain; the router is surest where it is worst, so isotonic pools them:
    # it then states one chance near 0.675, whose Brier score is p (1 - p).
    assert found.brier == pytest.approx(0.675 * 0.325, abs=0.03)
    assert found.error < 0.08
    assert found.cases == 1200
    assert frontier_report(test, {"r": p(there)}).routers[0].calibration is None
    good = routing(there, [0, 1, 1, 0])
    with pytest.raises(BadInput, match="right or wrong"):
        success_chance(good[:2], OutcomeTable.from_arrays(np.full((2, 4, 1), 0.5), NAMES))


def test_removing_a_worker_sends_its_queries_to_the_next_best():
    table, domain = planted()
    means, _ = table.means()
    p = routing(domain, [0, 1, 1, 0])
    p[domain == 2, 2] += 0.01  # second choice for domain 2
    found = {one.worker: one for one in removals(table, p / p.sum(axis=1, keepdims=True))}
    assert found["huge"].loss == found["large"].loss == 0
    assert found["large"].share == 0
    gone = found["medium"]
    assert gone.share == pytest.approx(np.isin(domain, [1, 2]).mean())
    after = np.where(domain == 2, means[:, 2], means[:, 0])
    assert gone.after == pytest.approx(after.mean())
    assert gone.oracle == pytest.approx(np.delete(means, 1, axis=1).max(axis=1).mean())
    assert gone.best_single == pytest.approx(max(means[:, [0, 2, 3]].mean(axis=0)))
    assert served(p, [1])[:, 1].max() == 0
    with pytest.raises(BadInput, match="no worker is left"):
        served(p, range(4))


def test_unknown_prices_are_outside_of_the_frontier():
    table, domain = planted(prices=[0.2, 0.5, 1.0, np.nan])
    report = frontier_report(table, {"good": routing(domain, [0, 1, 1, 0])})
    on = dict(zip([o.name for o in report.options], report.on_frontier, strict=True))
    assert on["huge"] is None
    assert on["random"] is None
    assert on["good"] is True
    assert set(report.area.values()) == {None}
    assert report.budgets is None
    body = report.to_json()
    assert body["options"][3]["cost"] is None
    assert body["options"][3]["on_frontier"] is None
    assert body["routers"][0]["removals"][0]["loss"] >= 0


def test_names_and_shapes_are_checked():
    table, domain = planted(40)
    with pytest.raises(BadInput, match="one name: 'small'"):
        frontier_report(table, {"small": routing(domain, [0, 1, 1, 0])})
    with pytest.raises(BadInput, match="shares"):
        frontier_report(table, {"r": np.ones((3, 4)) / 4})
