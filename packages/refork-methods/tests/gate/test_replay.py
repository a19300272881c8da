"""Replays by hand, promises against what happens, the best simple rule, many cells, scores."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.decide import brier
from refork_methods.gate.calibration import replay_json, scores_json
from refork_methods.gate.controller import BayesController
from refork_methods.gate.fit import fit_critics
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.planted import planted_records
from refork_methods.gate.policy import Choice, after, refined
from refork_methods.gate.records import Record
from refork_methods.gate.replay import (
    check_calibration,
    check_prediction,
    compare,
    cross_replay,
    episodes,
    replay,
)
from refork_methods.gate.rules import always_verify, best_of_n, gate, reflexion, simple_rules, stop
from refork_methods.gate.score import score

TRUE = CriticModel(0.6, (Critic("test", 0.9, 0.45, 2), Critic("review", 0.8, 0.35, 5)), Kernel(0.25, 0.1))
PRICES = Prices(100, 60, 5)
RETRY = {"horizon": 3, "verify": "retry"}


def chain(*candidates, instance="a", costs=None):
    """A draw refined step by step, from (right, verdict of the test, verdict of the review)."""
    return [
        Record(instance, "0", y, {"test": t, "review": r}, costs or {}, step=n)
        for n, (y, t, r) in enumerate(candidates)
    ]


class Fixed:
    """Takes the actions it is given, one after the other."""

    name, blind, charged = "fixed", False, {}

    def __init__(self, *actions):
        self.actions = iter(actions)

    def act(self, state):
        return Choice(next(self.actions), {}, None, "")

    def update(self, state, critic, passed):
        from refork_methods.gate.policy import observed

        return observed(state, TRUE.critic(critic), passed)

    def refine(self, state):
        from refork_methods.gate.policy import regenerated

        return regenerated(state, TRUE.kernel)


class TestByHand:
    WRONG_THEN_RIGHT = chain((False, True, False), (True, True, True), (True, True, True))

    def run(self, policy, records=None, prices=PRICES, **more):
        return replay(policy, records or self.WRONG_THEN_RIGHT, TRUE, prices, **({"horizon": 3} | more))

    def test_always_verify(self):
        once = self.run(always_verify(TRUE, 3))
        assert (once.utilities[0], once.spent[0], once.solved[0]) == (-60.0, 60.0, 0.0)
        again = self.run(always_verify(TRUE, 3), verify="retry")
        assert again.utilities[0] == -60 - 5 - 60 + 100
        assert again.solved[0] == 1

    def test_rules(self):
        assert self.run(stop(TRUE)).utilities[0] == 0
        assert self.run(best_of_n(TRUE, 3)).utilities[0] == 100 - 60 - 2 * 5
        assert self.run(gate(TRUE, 3, "test")).utilities[0] == -2 - 60  # passed, and was wrong
        assert self.run(gate(TRUE, 3, "review")).utilities[0] == 100 - 5 - 5 - 5 - 60
        assert self.run(reflexion(TRUE, 3, "review")).utilities[0] == 100 - 5 - 5 - 5 - 60

    def test_beliefs_are_bayes_and_one_for_each_candidate_left(self):
        found = self.run(Fixed("test", "review", "generate", "test", "verify"))
        test, review = TRUE.critics
        first = after(after(0.6, test, True), review, False)
        second = after(refined(first, TRUE.kernel), test, True)
        np.testing.assert_allclose(found.beliefs, [first, second], atol=1e-15)
        assert found.right.tolist() == [False, True]
        assert found.utilities[0] == 100 - 2 - 5 - 5 - 2 - 60
        assert found.actions == {"generate": 1, "review": 1, "test": 2, "verify": 1}

    def test_a_refused_candidate_is_not_left_twice(self):
        found = self.run(Fixed("verify", "generate", "verify"), verify="retry")
        np.testing.assert_allclose(found.beliefs, [0.6, 0.25], atol=1e-15)

    def test_shipping(self):
        prices = Prices(100, 60, 5, ship_loss=40)
        assert self.run(Fixed("ship"), prices=prices).utilities[0] == -40
        assert self.run(Fixed("generate", "ship"), prices=prices).utilities[0] == 95
        with pytest.raises(BadInput, match="shipping is not open"):
            self.run(Fixed("ship"))

    def test_a_failed_call_costs_and_says_nothing_to_anybody(self):
        records = chain((True, None, None), (False, False, False), (False, False, False))
        believing = self.run(Fixed("test", "review", "verify"), records)
        np.testing.assert_allclose(believing.beliefs, [0.6])
        assert (believing.utilities[0], believing.failed_calls) == (100 - 2 - 5 - 60, 2)
        blind = self.run(gate(TRUE, 3, "test"), records)  # goes on as if it passed, never as if it failed
        assert (blind.utilities[0], blind.failed_calls) == (100 - 2 - 60, 1)
        np.testing.assert_allclose(blind.beliefs, [0.6])
        controller = self.run(BayesController(TRUE, PRICES, 3), records)
        assert controller.failed_calls >= 1
        np.testing.assert_allclose(controller.beliefs[0], 0.6)

    def test_generating_beyond_the_last_candidate_is_paid_for_and_ends(self):
        assert self.run(Fixed("generate", "generate", "generate")).utilities[0] == -15

    def test_recorded_costs(self):
        costs = {"test": 1.0, "verify": 600.0, "generate": 50.0}
        records = chain(*[(False, True, True)] * 3, costs=costs)
        assert self.run(gate(TRUE, 3, "test"), records, costs="recorded").utilities[0] == -601
        with pytest.raises(BadInput, match="'review' cost here was not recorded, and unknown is not 0"):
            self.run(gate(TRUE, 3, "review"), records, costs="recorded")

    def test_what_is_refused(self):
        with pytest.raises(BadInput, match="no episode has 4 candidates with an outcome; the longest has 3"):
            self.run(stop(TRUE), horizon=4)
        bare = [Record("a", "0", True, {"test": True}, step=n) for n in range(3)]
        with pytest.raises(BadInput, match="no record of critic 'review'"):
            self.run(gate(TRUE, 3, "review"), bare)
        with pytest.raises(BadInput, match="no critic 'lint'"):
            self.run(Fixed("lint"))


class TestEpisodes:
    def test_refinements_of_a_draw_or_draws_of_an_instance(self):
        refined_ = [Record("a", d, True, {}, step=s) for d in "01" for s in range(3)]
        draws = [Record("b", str(d), True, {}) for d in range(3)]
        found = episodes(refined_ + draws)
        assert [(e.instance, len(e.candidates)) for e in found] == [("a", 3), ("a", 3), ("b", 3)]

    def test_a_missing_step_ends_it(self):
        found = episodes([Record("a", "0", True, {}, step=s) for s in (0, 1, 3)])
        assert [len(e.candidates) for e in found] == [2]
        (cut,) = episodes([Record("a", "0", True, {}, step=1)])
        assert cut.candidates == (), "it is counted as too short"

    def test_short_ones_and_lost_outcomes_are_counted(self):
        records = chain(*[(True, True, True)] * 3) + chain(
            (True, True, True), (None, True, True), instance="b"
        )
        headless = chain((None, True, True), *[(True, True, True)] * 3, instance="c")
        assert replay(stop(TRUE), records + headless, TRUE, PRICES, horizon=3).short == 2
        found = replay(stop(TRUE), records, TRUE, PRICES, horizon=3)
        assert (found.instances, found.episodes, found.short) == (("a",), 1, 1)
        assert found.dropped == {"no outcome": 1}
        told = replay_json({"stop": found}, {"stop": check_prediction(found, 0.0)}, {})
        assert told["warnings"] == [
            "1 episodes with too few candidates were left out",
            "1 candidates dropped: no outcome",
        ]
        assert (told["policies"][0]["z"], told["policies"][0]["utility"]["method"]) == (None, "one instance")

    def test_instances_weigh_the_same_however_many_episodes(self):
        records = chain(*[(True, True, True)] * 3) + [
            Record("b", d, False, {"test": True, "review": True}, step=s) for d in "01" for s in range(3)
        ]
        found = replay(always_verify(TRUE, 3), records, TRUE, PRICES, horizon=3)
        assert found.utilities.tolist() == [40.0, -60.0]

    def test_draws_under_a_refine_kernel_are_told(self):
        draws = [Record("b", str(d), True, {"test": True, "review": True}) for d in range(3)]
        assert "another process" in replay(stop(TRUE), draws, TRUE, PRICES).warnings[0]
        from dataclasses import replace

        anew = replace(TRUE, kernel=Kernel.resample(TRUE.prior))
        assert replay(stop(TRUE), draws, anew, PRICES).warnings == ()


@pytest.fixture(scope="module")
def held_out():
    fitted = fit_critics(planted_records(TRUE, 300, seed=1), {"test": 2, "review": 5})
    records = planted_records(TRUE, 300, seed=2, prefix="held")
    policies = {"dp": BayesController(fitted, PRICES, **RETRY), **simple_rules(fitted, 3)}
    ends = {name: replay(one, records, fitted, PRICES, **RETRY) for name, one in policies.items()}
    return fitted, records, policies, ends


class TestPromises:
    def test_every_policy_earns_what_the_true_model_predicts(self):
        # 2 SE each; of 10 policies that share their records all lie within 3.3 SE but once in a hundred.
        records = planted_records(TRUE, 1500, seed=11)
        for policy in (BayesController(TRUE, PRICES, **RETRY), *simple_rules(TRUE, 3).values()):
            found = check_calibration(
                replay(policy, records, TRUE, PRICES, **RETRY), policy, TRUE, PRICES, **RETRY
            )
            assert found.z is None or abs(found.z) < 3.3
            assert found.ece < 0.03

    def test_dp_within_two_standard_errors_of_its_own_promise(self, held_out):
        fitted, _, policies, ends = held_out
        found = check_calibration(ends["dp"], policies["dp"], fitted, PRICES, **RETRY)
        assert abs(found.z) < 2
        assert found.brier < 0.2
        assert found.realised.low < found.realised.estimate < found.realised.high

    def test_an_undeclared_duplicate_breaks_calibration(self):
        records = planted_records(TRUE, 400, seed=4, copies={"again": "test", "third": "test"})
        names, double = ["test", "review"], ["test", "review", "again", "third"]
        errors = []
        for critics in (names, double):
            model = fit_critics(records, dict.fromkeys(double, 0.0), critics=critics)
            held = planted_records(
                TRUE, 400, seed=5, copies={"again": "test", "third": "test"}, prefix="held"
            )
            errors.append(score(model, held).rows[0].ece)
        assert errors[1] > errors[0] + 0.05


class TestComparison:
    def test_the_best_rule_always_stands_beside_always_verify(self, held_out):
        *_, ends = held_out
        found = compare(ends, "dp", np.random.default_rng(0))
        rules = {name: one.mean().estimate for name, one in ends.items() if name != "dp"}
        assert found.best.rule == max(rules, key=rules.get)
        assert found.best.gap.estimate == pytest.approx(ends["dp"].mean().estimate - max(rules.values()))
        assert found.best.reference.estimate == pytest.approx(
            ends["dp"].mean().estimate - rules["always_verify"]
        )
        assert (
            found.best.reference.estimate > 20 > found.best.gap.estimate
        )  # the larger number is not the gain
        assert found.best.gap.high > 0
        assert 0 < found.detectable < 20
        assert compare(ends, "dp", np.random.default_rng(0)) == found

    def test_other_controllers_are_no_rules(self, held_out):
        *_, ends = held_out
        found = compare(ends, "dp", np.random.default_rng(0), others=("stop",))
        assert "stop" not in found.best.means

    def test_what_is_refused(self, held_out):
        *_, ends = held_out
        with pytest.raises(BadInput, match="was not replayed"):
            compare(ends, "greedy", np.random.default_rng(0))
        other = replay(stop(TRUE), planted_records(TRUE, 5), TRUE, PRICES)
        with pytest.raises(BadInput, match="different instances"):
            compare(ends | {"stop": other}, "dp", np.random.default_rng(0))

    def test_as_data(self, held_out):
        fitted, _, policies, ends = held_out
        checks = {
            name: check_calibration(one, policies[name], fitted, PRICES, **RETRY)
            for name, one in ends.items()
        }
        told = replay_json(ends, checks, {"dp": compare(ends, "dp", np.random.default_rng(0), resamples=100)})
        assert told["comparisons"]["dp"]["over_always_verify"]["estimate"] > 0
        utilities = [row["utility"]["estimate"] for row in told["policies"]]
        assert utilities == sorted(utilities, reverse=True)
        assert next(r for r in told["policies"] if r["policy"] == "stop")["z"] is None


class TestCrossfit:
    def run(self, records, **more):
        return cross_replay(
            lambda model: {"dp": BayesController(model, PRICES, **RETRY), "stop": stop(model)},
            records,
            {"test": 2, "review": 5},
            PRICES,
            **(RETRY | more),
        )

    def test_leaving_one_out_is_a_fold_for_each_instance(self):
        records = planted_records(TRUE, 12, seed=2)
        ends, promised = self.run(records)
        assert len(ends["dp"].instances) == 12
        assert promised["stop"] == 0
        place = ends["dp"].instances.index("task-4")
        rest = [r for r in records if r.instance != "task-4"]
        model = fit_critics(rest, {"test": 2, "review": 5})
        mine = [r for r in records if r.instance == "task-4"]
        alone = replay(BayesController(model, PRICES, **RETRY), mine, model, PRICES, **RETRY)
        assert ends["dp"].utilities[place] == alone.utilities[0]
        np.testing.assert_array_equal(ends["dp"].instances, ends["stop"].instances)
        assert sum(ends["dp"].actions.values()) > 1

    def test_folds_promise_what_comes_true(self):
        ends, promised = self.run(planted_records(TRUE, 300, seed=3), folds=4, seed=1)
        found = check_prediction(ends["dp"], promised["dp"])
        assert abs(found.z) < 2
        assert found.ece < 0.06

    def test_short_episodes_are_fitted_on_and_counted(self):
        short = planted_records(TRUE, 3, steps=2, prefix="short")
        ends, _ = self.run([*planted_records(TRUE, 8), *short], folds=2)
        assert ends["dp"].short == 3
        assert not any(name.startswith("short") for name in ends["dp"].instances)

    def test_what_is_refused(self):
        with pytest.raises(BadInput, match="9 folds of 8 instances"):
            self.run(planted_records(TRUE, 8), folds=9)


class TestScore:
    def test_the_belief_beats_every_critic_alone(self, held_out):
        fitted, records, *_ = held_out
        found = score(fitted, records)
        by = {row.name: row for row in found.rows}
        assert by["belief"].prr.value > max(by["test"].prr.value, by["review"].prr.value)
        right = np.array([float(r.right) for r in found.records])
        assert by["belief"].brier == pytest.approx(brier(found.beliefs, right))
        assert by["test"].ece is None
        told = scores_json(found)
        assert len(told["beliefs"]) == 900
        assert told["scores"][0]["score"] == "belief"

    def test_the_instances_it_was_fitted_on_only_without_their_own_records(self):
        records = planted_records(TRUE, 40)
        fitted = fit_critics(records, {"test": 2, "review": 5})
        with pytest.raises(BadInput, match="fitted on 40 instances"):
            score(fitted, records)
        assert len(score(fitted, records, without_own=True).beliefs) == 120

    def test_nothing_with_an_outcome(self):
        with pytest.raises(BadInput, match="no candidate has an outcome"):
            score(TRUE, [Record("a", "0", None, {"test": True})])
