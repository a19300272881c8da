import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.speculate.certify import CONTROLS, EXACT_MODES, certify_rules
from refork_methods.speculate.lossless import (
    JAGGED,
    DropUnlikely,
    RetrospectiveArgmax,
    StopAfterUnlikely,
    check_lossless,
    counterexample,
    emitted,
    first_token,
    jagged,
    random_world,
    single_draft,
    total_variation,
    worlds,
)
from refork_methods.speculate.schedule import PrefixScheduler, schedule_of, schedules_of
from refork_methods.speculate.step_cost import StepCost

TABLE = StepCost.of({1: 1.0})
EXACT = 1e-12


def test_the_counterexample():
    world = counterexample()
    assert first_token(world, RetrospectiveArgmax(world.cost)) == pytest.approx([0.85, 0.15], abs=EXACT)
    assert first_token(world, PrefixScheduler(world.cost)) == pytest.approx([0.70, 0.30], abs=EXACT)


def test_dropping_an_unlikely_draft_leaks_and_stopping_after_it_does_not():
    world = single_draft()
    assert first_token(world, DropUnlikely(0.5)) == pytest.approx([0.88, 0.12], abs=EXACT)
    assert first_token(world, StopAfterUnlikely(0.5)) == pytest.approx([0.70, 0.30], abs=EXACT)


@pytest.mark.parametrize("name", [*EXACT_MODES, "stale_topk:2"])
def test_two_requests_keep_their_joint_law(name):
    found = check_lossless(schedule_of(name, TABLE), name=name)
    assert found.lossless
    assert found.max_tv < EXACT
    assert sum(case.name.startswith("2 requests") for case in found.cases) == 12


def test_stale_budgets_over_more_rounds():
    """Three tokens of each request: budgets of later rounds come from tokens drafted in earlier ones."""
    world = random_world(5, jagged(np.array(JAGGED["plateaus"])))
    rule = schedule_of("stale_topk", world.cost)
    assert total_variation(emitted(world, rule, 3), world.truth(3)) < EXACT


def test_more_words_and_a_longer_block():
    cost = jagged(np.array([1.0, 1.5, 1.6, 1.7]))
    world = random_world(3, cost, requests=1, block=3, vocabulary=3)
    assert total_variation(emitted(world, PrefixScheduler(cost), 3), world.truth(3)) < EXACT


def test_refusing_to_draft_from_the_past_keeps_the_law():
    """A draft so dear that rounds go plain once there is a past."""
    costs = {b: 1.0 + 0.1 * b for b in range(1, 7)}
    dear = StepCost.of(costs, {1: 1.2, 2: 1.2})
    world = random_world(2, dear)
    scheduler = PrefixScheduler(dear)
    answers = []
    for _ in range(3):
        answers.append(scheduler.drafts(2))
        scheduler.plan(np.full((2, 2), 0.2))
    assert answers == [True, False, False]
    assert total_variation(emitted(world, PrefixScheduler(dear), 3), world.truth(3)) < EXACT


def test_the_same_step_argmax_is_caught():
    two = [world for world in worlds() if world.requests == 2]
    found = check_lossless(RetrospectiveArgmax, among=two)
    assert not found.lossless
    assert found.max_tv > 0.05


def test_a_context_only_rule_is_exact_on_such_confidences_only():
    def make(cost):
        return PrefixScheduler(cost, "context_only")

    assert check_lossless(PrefixScheduler(TABLE, "context_only")).max_tv < EXACT
    assert check_lossless(make, among=worlds(context_only=True)).lossless
    assert check_lossless(make).max_tv > 0.05


def test_a_rule_that_reads_what_it_admits_is_caught():
    class Peeks:
        def choose(self, view):
            return (view.tokens[:, 0] == 0).astype(np.int64)

    assert check_lossless(lambda cost: Peeks()).max_tv > 0.05


def test_certificates_by_name():
    found = certify_rules([*EXACT_MODES[:1], *CONTROLS])
    assert [one.lossless for one in found] == [True, False, False, True]
    assert found[1].to_json()["cases"][0]["name"] == "counterexample"
    assert all(one.error_rate == 0.0 and one.method == "enumeration" for one in found)


def test_names_of_schedules():
    assert schedule_of("fixed:4", TABLE).length == 4
    assert schedule_of("stale_topk:2", TABLE).staleness == 2
    assert schedule_of("static_threshold:0.25", TABLE).threshold == 0.25
    assert schedule_of("top_k:5", TABLE).budget == 5
    assert list(schedules_of(None, TABLE)) == ["early_stop", "stale_topk", "vllm", "fixed:3"]
    for bad in ("best", "fixed", "fixed:x", "static_threshold:", "early_stop:3"):
        with pytest.raises(BadInput):
            schedule_of(bad, TABLE)


def test_lengths_that_cannot_be_are_refused():
    class TooLong:
        def choose(self, view):
            return np.full(len(view.tokens), 9)

    with pytest.raises(BadInput, match="blocks of 2"):
        check_lossless(lambda cost: TooLong())
    with pytest.raises(BadInput, match="probability"):
        DropUnlikely(2.0)


def test_total_variation():
    assert total_variation({("a",): 1.0}, {("b",): 1.0}) == 1.0
    assert total_variation({("a",): 0.5, ("b",): 0.5}, {("a",): 1.0}) == 0.5
