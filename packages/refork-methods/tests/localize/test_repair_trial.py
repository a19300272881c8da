"""The planted edit trial: closed form, published table, controls, break-even.

Statistical checks use fixed seeds; tolerances are at least five standard errors of the simulation.
"""

from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.decide import break_even
from refork_testbed.trials.planted_repairs import (
    AGENTS,
    NONE,
    TrialRow,
    TrialRules,
    attempt,
    break_evens,
    draw_tasks,
    drawn_findings,
    right_findings,
    shuffled_findings,
    sweep,
    trial_gate,
    trial_table,
    zero_of,
)


def expected_trial(nats: float, *, spent: int = 0) -> tuple[float, float]:
    """In closed form: the chance that the agent's own order resolves a task, and its mean test runs.

    The place of one favoured item in a Plackett-Luce order; ``spent``: runs wasted before.
    """
    rules, weight, open_ = TrialRules(), float(np.exp(nats)), 1.0
    chance = runs = 0.0
    edits = np.arange(1, rules.edits + 1)
    for place in range(rules.functions):
        here = open_ * weight / (weight + rules.functions - 1 - place)
        open_ -= here
        needed = spent + rules.edits * place + edits
        chance += here * float((needed <= rules.budget).mean())
        runs += here * float(np.minimum(needed, rules.budget).mean())
    return chance, runs


def expected_gain(nats: float, measure: str = "resolved") -> tuple[float, float]:
    """In closed form: what a right finding earns and a wrong one costs, G and L."""
    rules = TrialRules()
    (solved, runs), (late, more) = expected_trial(nats), expected_trial(nats, spent=rules.wasted)
    if measure == "resolved":  # a right finding's own edits are within the budget
        return 1.0 - solved, solved - late
    return runs - (rules.edits + 1) / 2, more - runs


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], TrialRow]:
    return {(row.agent, row.arm): row for row in trial_table()}


def test_the_blind_agent_in_closed_form() -> None:
    chance, runs = expected_trial(0.0)
    assert chance == pytest.approx(40 / 240)
    assert runs == pytest.approx((sum(range(1, 41)) + 200 * 40) / 240)
    assert expected_trial(0.0, spent=18)[0] == pytest.approx(22 / 240)
    assert expected_trial(60.0)[1] == pytest.approx(3.5)


@pytest.mark.parametrize("agent", AGENTS)
def test_simulation_follows_the_law(agent: str) -> None:
    drawn = draw_tasks(20_000, np.random.default_rng(5))
    for spent, finding in ((0, None), (18, drawn_findings(drawn, 0.0, np.random.default_rng(6)))):
        got = attempt(drawn, AGENTS[agent], finding)
        chance, runs = expected_trial(AGENTS[agent], spent=spent)
        assert got.resolved.mean() == pytest.approx(chance, abs=0.014)
        assert got.runs.mean() == pytest.approx(runs, abs=0.5)


def test_a_trial_by_hand() -> None:
    rules = TrialRules(functions=3, edits=2, budget=5, wasted=3)
    tasks = draw_tasks(1, np.random.default_rng(0), rules)
    tasks = type(tasks)(np.array([1]), np.array([2]), np.array([[2.0, 1.0, 0.0]]), rules)
    assert tasks.rank(0.0)[0] == 2
    assert tasks.rank(1.5)[0] == 1
    none, right, wrong = (attempt(tasks, 0.0, None if f is None else np.array([f])) for f in (None, 1, 0))
    assert (none.runs[0], none.resolved[0]) == (4, True)
    assert (right.runs[0], right.resolved[0]) == (2, True)
    assert (wrong.runs[0], wrong.resolved[0]) == (5, False)
    assert attempt(tasks, 0.0, np.array([NONE])).runs[0] == 4


def test_published_table(rows: dict[tuple[str, str], TrialRow]) -> None:
    published = {
        "no report": (0.170, 0.944, 4.1),
        "injected, 90 % right": (0.908, 0.978, 5.3),
        "injected, 60 % right": (0.634, 0.918, 11.0),
        "filtered, 60 % right": (0.504, 0.960, 4.9),
    }
    for arm, (weak, middle, strong) in published.items():
        assert rows["weak", arm].resolved.estimate == pytest.approx(weak, abs=0.012)
        assert rows["middle", arm].resolved.estimate == pytest.approx(middle, abs=0.007)
        assert rows["strong", arm].runs.estimate == pytest.approx(strong, abs=0.3)
        assert rows["strong", arm].resolved.estimate == pytest.approx(1.0, abs=0.001)


def test_what_must_appear(rows: dict[tuple[str, str], TrialRow]) -> None:
    assert rows["weak", "injected, 60 % right"].gain.low > 0.40
    assert -0.04 < rows["middle", "injected, 60 % right"].gain.estimate < -0.02
    for arm in ("filtered, 60 % right", "gated, 60 % right"):
        assert 0.01 < rows["middle", arm].gain.estimate < 0.02
    base = rows["strong", "no report"].runs.estimate
    assert rows["strong", "injected, 60 % right"].runs.estimate > 2 * base
    assert rows["strong", "gated, 60 % right"].runs.estimate < 1.02 * base
    assert rows["strong", "injected, 60 % right"].gain.estimate == pytest.approx(0, abs=0.001)
    # each agent's own break-even lets nearly all through to the weak one, and almost none to the strong one
    assert rows["weak", "gated, 60 % right"].injected > 0.9
    assert rows["strong", "gated, 60 % right"].injected < 0.15


def test_shuffled_findings_never_help_and_oracles_never_harm(rows: dict[tuple[str, str], TrialRow]) -> None:
    for agent in AGENTS:
        assert rows[agent, "shuffled, 90 % right"].gain.low <= 0
        assert rows[agent, "shuffled, 90 % right"].more_runs.low > 0
        assert rows[agent, "oracle (control)"].gain.estimate >= 0
        assert rows[agent, "oracle (control)"].more_runs.estimate <= 0


def test_break_even_by_law_and_by_sweep() -> None:
    gain, loss = expected_gain(AGENTS["middle"])
    assert break_even(gain, loss) == pytest.approx(0.748, abs=0.001)
    for one in break_evens(50_000, seed=3, steps=21):
        distribution = break_even(*expected_gain(AGENTS[one.agent], measure=one.unit))
        low, high = one.effect.threshold_range
        assert low <= distribution <= high
        assert one.deviation is not None
        assert one.deviation < 0.03


def test_a_sweep_is_monotone_and_read_between_its_points() -> None:
    gains = sweep(0.0, [0.0, 0.5, 1.0], tasks=500)
    assert (np.diff(gains) > 0).all()
    assert zero_of([0.0, 0.5, 1.0], [-1.0, 1.0, 3.0]) == pytest.approx(0.25)
    assert zero_of([0.0, 1.0], [1.0, 2.0]) is None
    with pytest.raises(BadInput):
        zero_of([0.5, 0.5], [0.0, 1.0])


def test_shuffling_moves_every_finding() -> None:
    found = np.arange(30)
    moved = shuffled_findings(found, np.random.default_rng(0))
    assert sorted(moved) == sorted(found)
    assert (moved != found).all()


def test_same_seed_same_table() -> None:
    assert trial_table(200, 1) == trial_table(200, 1)
    assert trial_gate(1) == trial_gate(1)


def test_refusals() -> None:
    drawn = draw_tasks(4, np.random.default_rng(0))
    with pytest.raises(BadInput):
        TrialRules(budget=0)
    with pytest.raises(BadInput):
        TrialRules(functions=1)
    with pytest.raises(BadInput):
        draw_tasks(0, np.random.default_rng(0))
    with pytest.raises(BadInput):
        attempt(drawn, 0.0, np.array([1, 2]))
    with pytest.raises(BadInput):
        attempt(drawn, 0.0, np.full(4, 40))
    with pytest.raises(BadInput):
        drawn_findings(drawn, 1.5, np.random.default_rng(0))
    assert (right_findings(drawn) == drawn.fault).all()
