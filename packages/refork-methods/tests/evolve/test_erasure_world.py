import pytest

from refork_testbed.trials.evolve import erasure_effect


def test_rankings_stay_pinned_without_erasure_and_follow_the_truth_with_it():
    # 2000 repetitions: standard errors of 0.004 and less, so that 0.03 is seven of them.
    found = erasure_effect(12)
    assert found.pinned_keep == pytest.approx(0.857, abs=0.03)
    assert found.pinned_erase == pytest.approx(-0.25, abs=0.03)
    assert found.truth_keep == pytest.approx(0.13, abs=0.03)
    assert found.truth_erase == pytest.approx(0.88, abs=0.03)
    assert max(found.errors) < 0.005


def test_few_new_outcomes_move_a_kept_ranking_hardly_at_all():
    found = erasure_effect(4)
    assert found.pinned_keep == pytest.approx(0.975, abs=0.03)
    assert found.pinned_erase < 0
