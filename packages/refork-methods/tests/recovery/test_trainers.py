"""Sampling, censored means, the three trainers and the search agent."""

from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.recovery.censored import censored_mean, survival
from refork_methods.recovery.chain import expected_visits
from refork_methods.recovery.closed import search_cost, sft_limit_hitting_time
from refork_methods.recovery.dose import golden_student, maze_dose, shorten_paths
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.hitting import expected_hitting_time, hitting_gradient
from refork_methods.recovery.rows import BACKWARD, FORWARD, RowPolicy
from refork_methods.recovery.sample import count_moves, golden_moves, moves_of, sample_paths
from refork_methods.recovery.trainers import (
    RewardSettings,
    SftSettings,
    distill,
    maximum_likelihood,
    reward_gradient,
    rlvr,
    row_support,
    sft,
    sft_gradient,
)
from refork_testbed.trials.maze import simulate_search

GRAPH = PathStar(3, 3, 3)
BASE = RowPolicy.base(GRAPH)


@pytest.fixture(scope="module")
def teacher():
    return rlvr(BASE, RewardSettings(seed=1)).policy


def test_sampled_walks_have_the_exact_mean_and_visits():
    trajectories = sample_paths(BASE, 4000, 20_000, np.random.default_rng(0))
    assert bool(trajectories.reached.all())
    error = trajectories.steps.std() / 4000**0.5
    # Four standard errors, and one seed: a right sampler fails less than once in 10,000 seeds.
    assert abs(trajectories.steps.mean() - 326) < 4 * error
    assert np.allclose(count_moves(trajectories) / 4000, expected_visits(BASE), rtol=0.1, atol=0.05)
    assert trajectories.steps.min() >= GRAPH.golden_length
    row, wanted, whose = moves_of(trajectories)
    assert len(row) == len(wanted) == len(whose) == count_moves(trajectories).sum()


def test_walks_are_cut_at_the_cap_and_the_target_at_the_cap_counts():
    graph = PathStar(2, 1, 1)
    trajectories = sample_paths(RowPolicy.optimal(graph), 200, graph.golden_length, np.random.default_rng(0))
    assert set(trajectories.steps.tolist()) == {graph.golden_length}
    # The right branch at once, or not in time.
    assert 0.3 < trajectories.reached.mean() < 0.7
    with pytest.raises(BadInput, match="2 K \\+ 2 = 4"):
        sample_paths(RowPolicy.base(graph), 5, 3, np.random.default_rng(0))
    with pytest.raises(BadInput, match="0 trajectories"):
        sample_paths(BASE, 0, 100, np.random.default_rng(0))


def test_a_censored_mean_is_not_the_mean_of_what_was_seen():
    trajectories = sample_paths(BASE, 4000, 400, np.random.default_rng(3))
    found = censored_mean(trajectories.steps, trajectories.reached)
    assert found.censored > 1000
    assert found.restricted < 250 < 326
    # The tail of a chain is nearly exponential; the seed is fixed.
    assert found.mean == pytest.approx(326, rel=0.05)
    assert found.low < found.restricted < found.high


def test_kaplan_meier_by_hand():
    times, ended = [2, 3, 3, 5, 8], [True, True, False, True, False]
    at, share = survival(times, ended)
    steps = dict(zip(at.tolist(), share.tolist(), strict=True))
    assert steps[2] == pytest.approx(4 / 5)
    assert steps[3] == pytest.approx(4 / 5 * 3 / 4)
    assert steps[5] == pytest.approx(4 / 5 * 3 / 4 * 1 / 2)
    found = censored_mean(times, ended)
    # Area under the steps up to the horizon 8.
    assert found.restricted == pytest.approx(2 + 0.8 * 1 + 0.6 * 2 + 0.3 * 3)
    assert found.median == 5
    none = censored_mean([10, 10], [False, False])
    assert (none.mean, none.median, none.restricted) == (None, None, 10.0)
    whole = censored_mean([1, 2, 3], [True] * 3)
    assert whole.mean == whole.restricted == 2.0
    wide = censored_mean([1, 400], [True, False])
    assert 0.0 == wide.low < wide.restricted < wide.high <= 400


def test_bad_times_are_refused():
    for times, ended in (([], []), ([1, 2], [True]), ([0.0], [True]), ([np.nan], [True])):
        with pytest.raises(BadInput):
            censored_mean(times, ended)


@pytest.mark.parametrize("normalise", ["row", "path"])
def test_imitating_golden_paths_gives_backward_rows_a_gradient_of_zero_bits(normalise):
    rng = np.random.default_rng(0)
    policy = RowPolicy(GRAPH, rng.normal(size=(4, 3)))
    gradient = sft_gradient(policy, golden_moves(GRAPH, 7), normalise, 7)
    assert (gradient[list(FORWARD)] > 0).all()
    assert gradient[list(BACKWARD)].tobytes() == np.zeros((2, 3)).tobytes()
    trained = sft(policy, golden_moves(GRAPH, 7), SftSettings(updates=50, normalise=normalise, paths=7))
    assert trained.policy.gaps[list(BACKWARD)].tobytes() == policy.gaps[list(BACKWARD)].tobytes()


def test_golden_imitation_ends_far_above_the_base():
    trained = sft(BASE, golden_moves(GRAPH, 500))
    assert trained.curve[0] == (0, pytest.approx(326))
    assert 326 < 1300 < trained.hitting_time < float(sft_limit_hitting_time(3, 3, 3))


def test_sign_ascent_goes_up_everywhere_and_ends_where_published():
    start = RowPolicy.base(PathStar(15, 15, 5))
    trained = rlvr(start, RewardSettings(mode="sign", updates=1200, learning_rate=0.01))
    assert np.allclose(trained.policy.gaps, 12.0)
    assert trained.hitting_time == pytest.approx(900.4437, abs=1e-4)
    assert trained.policy.desired.min() > 0.99996
    values = [value for _, value in trained.curve]
    assert bool((np.diff(values) < 0).all())


def test_exact_reward_training_improves_from_a_bad_start():
    gaps = np.zeros((4, 3))
    gaps[[1, 3]] = -0.5
    start = RowPolicy(GRAPH, gaps)
    trained = rlvr(start, RewardSettings(mode="exact", updates=300, learning_rate=1e-3))
    assert trained.hitting_time < 100 < 400 < trained.curve[0][1]
    with pytest.raises(BadInput, match="smaller learning rate"):
        rlvr(start, RewardSettings(mode="exact", updates=50, learning_rate=5.0))


def test_the_sampled_gradient_points_along_the_exact_one():
    rng = np.random.default_rng(0)
    mean = np.mean([reward_gradient(BASE, 256, 2000, rng) for _ in range(40)], axis=0)
    exact = -hitting_gradient(3, BASE.odds)[1]
    cosine = (mean * exact).sum() / np.linalg.norm(mean) / np.linalg.norm(exact)
    # About 10,000 trajectories; over seeds 0 to 9 the cosine lies above 0.97.
    assert cosine > 0.9


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sampled_reward_training_and_distillation_fall_below_70(seed):
    trained = rlvr(BASE, RewardSettings(seed=seed))
    assert trained.hitting_time < 70
    for traces in (20, 100):
        assert distill(trained.policy, BASE, traces, seed=seed).hitting_time < 70


def test_a_dose_of_one_percent_is_enough_and_shortened_traces_are_not(teacher):
    none, little, some, whole = maze_dose(teacher, [0, 0.01, 0.1, 1.0], seeds=(0, 1))
    assert min(none.measured) > 326
    assert none.predicted == pytest.approx(none.measured[0])
    for dose in (little, some, whole):
        assert max(dose.measured) < 70
        assert dose.predicted == pytest.approx(np.mean(dose.measured), rel=0.25)
    assert golden_student(teacher, 1000) > 326
    trajectories = sample_paths(teacher, 300, 400, np.random.default_rng(0))
    short = shorten_paths(trajectories.only(trajectories.reached))
    assert set(short.steps.tolist()) == {GRAPH.golden_length}
    assert np.array_equal(count_moves(short), golden_moves(GRAPH, len(short)))
    cut = sample_paths(teacher, 300, 10, np.random.default_rng(0))
    with pytest.raises(BadInput, match="reached the target"):
        shorten_paths(cut)
    with pytest.raises(BadInput, match=r"\[0, 1\]"):
        maze_dose(teacher, [1.5])


def test_no_signal_no_change_and_refusals():
    # Every trajectory of a sure loser is cut: all rewards are equal, so there is nothing to learn.
    stuck = np.zeros((4, 3))
    stuck[0] = -np.inf
    trajectories = reward_gradient(RowPolicy(GRAPH, stuck), 8, 50, np.random.default_rng(0))
    assert not trajectories.any()
    for said, refused in {
        "2 K \\+ 2 = 8": lambda: rlvr(BASE, RewardSettings(cap=7)),
        "infinite: state a_0": lambda: rlvr(RowPolicy(GRAPH, stuck), RewardSettings(mode="exact")),
        "reached the target": lambda: distill(RowPolicy(GRAPH, stuck), BASE, 5, cap=50),
        "no moves": lambda: sft(BASE, np.zeros((4, 3, 2))),
        "unknown mode": lambda: RewardSettings(mode="hope"),
        "unknown normalisation": lambda: SftSettings(normalise="day"),
        "above 0": lambda: SftSettings(updates=0),
    }.items():
        with pytest.raises(BadInput, match=said):
            refused()


def test_maximum_likelihood_freezes_unseen_rows():
    fitted = maximum_likelihood(BASE, golden_moves(GRAPH))
    assert np.array_equal(fitted.gaps, RowPolicy.golden_limit(GRAPH).gaps)
    visits = expected_visits(RowPolicy(GRAPH, np.full((4, 3), 0.7)))
    assert np.allclose(maximum_likelihood(BASE, visits).gaps, 0.7)


def test_row_support_names_what_nothing_teaches(teacher):
    golden = row_support(BASE, golden_moves(GRAPH, 5))
    assert golden.moves == {"a": 15, "b": 0, "c": 15, "d": 0}
    assert golden.unseen == ("b_0", "b_1", "b_2", "d_0", "d_1", "d_2")
    assert golden.predicted == pytest.approx(1310.370, abs=5e-4)
    trajectories = sample_paths(teacher, 200, 400, np.random.default_rng(0))
    taught = row_support(BASE, count_moves(trajectories.only(trajectories.reached)))
    assert (taught.unseen, taught.stuck) == ((), None)
    assert taught.predicted < 70


@pytest.mark.parametrize("best", [False, True])
def test_the_search_agent_costs_what_its_closed_form_says(best):
    graph = PathStar(10, 8, 5)
    policy = RowPolicy.optimal(graph) if best else RowPolicy.golden_limit(graph)
    assert search_cost(policy) == pytest.approx(175.5 if best else 362.7)
    found = simulate_search(policy, 6000, np.random.default_rng(0))
    assert bool(found.reached.all())
    assert not found.stuck.any()
    # Four standard errors, one seed.
    assert abs(found.cost.mean() - search_cost(policy)) < 4 * found.cost.std() / 6000**0.5


def test_without_a_dead_end_a_search_never_goes_back():
    gaps = np.where(np.isin(np.arange(4), FORWARD)[:, None], 1e4, -1e4) * np.ones((4, 2))
    assert search_cost(RowPolicy(PathStar(1, 2, 2), gaps)) == 6


def test_a_search_that_may_turn_can_lose_the_target():
    found = simulate_search(BASE, 300, np.random.default_rng(0))
    assert bool((found.reached ^ found.stuck).all())
    assert found.stuck.any()
    with pytest.raises(BadInput, match="always go on"):
        search_cost(BASE)
    with pytest.raises(BadInput, match="0 episodes"):
        simulate_search(BASE, 0, np.random.default_rng(0))
    cut = simulate_search(RowPolicy.golden_limit(GRAPH), 50, np.random.default_rng(0), cap=5)
    assert not cut.reached.any()
    assert not cut.stuck.any()


def test_search_adds_where_walking_multiplies():
    trajectory = [expected_hitting_time(RowPolicy.golden_limit(PathStar(4, k, 3))).value for k in (4, 5, 6)]
    search = [search_cost(RowPolicy.golden_limit(PathStar(4, k, 3))) for k in (4, 5, 6)]
    assert trajectory[2] / trajectory[1] > 5
    assert search[2] - search[1] == pytest.approx(search[1] - search[0])
